package executor

import (
	"encoding/binary"
	"encoding/json"
	"iter"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// applyFact folds what a source observed.
func (s *State) applyFact(e ledger.Entry) Result {
	if why := s.unregistered(e.Record); why != "" {
		return Result{Refused, why}
	}
	if a := s.actionOf(e.Record); a != nil && e.Record.About != nil &&
		!sameAddress(e.Record.About, a.fixed.Registered) {
		return refused("about: %s, but action %s was registered at %s",
			ledger.FormatAddress(e.Record.About), a.fixed.Id, ledger.FormatAddress(a.fixed.Registered))
	}
	switch k := e.Record.Kind.(type) {
	case *pb.Record_FactAsserted:
		s.assertFact(e, k.FactAsserted)
	case *pb.Record_FactRetracted:
		// A tombstone keeps the record that ended the fact, whoever says it again.
		if row := s.fact(k.FactRetracted.Key); row != nil && !row.Retracted {
			s.retractFact(e, k.FactRetracted.Key)
		}
	default:
		panic("executor: unknown fact record " + ledger.KindOf(e.Record).Name)
	}
	return effective
}

// unregistered says which plan or action a record names that is not there, or "".
// A fact of an action is stored after its registration.
func (s *State) unregistered(r *pb.Record) string {
	switch {
	case r.Plan == "" || s.plan(r.Plan) != nil &&
		(r.Action == "" || s.byName(r.Plan, r.Action) != nil):
		return ""
	case r.Action == "":
		return "plan " + r.Plan + " was never opened"
	default:
		return "action " + r.Action + " of plan " + r.Plan + " is not registered"
	}
}

// actionOf is the action that a record names, or nil.
func (s *State) actionOf(r *pb.Record) *action {
	if r.Plan == "" || r.Action == "" || s.plan(r.Plan) == nil {
		return nil
	}
	return s.byName(r.Plan, r.Action)
}

func (s *State) assertFact(e ledger.Entry, f *pb.FactAsserted) {
	now := s.meta.TimeNs
	row := &rowspb.FactRow{Value: f.Value, AssertedNs: now, ChangedNs: now, SinceNs: now,
		Source: e.Address}
	s.attribute(row, e)
	old := s.fact(f.Key)
	if old != nil && sameValue(old, f.Value) {
		row.ChangedNs = old.ChangedNs
	}
	s.renew(f.Key, old, row)
	rows.Occurred.Add(s.tx, rows.Occurrence{Key: f.Key, Ns: now, At: rows.At(e.Address)})
	if s.base != nil { // leases wake where the record is folded
		s.occurred = append(s.occurred, occurrence{f.Key, now})
		return
	}
	s.wakeReaders(f.Key, e.Address)
}

// retractFact leaves a tombstone: the key stays, and says which record ended the
// fact (S83).
func (s *State) retractFact(e ledger.Entry, key string) {
	row := s.fact(key)
	if row == nil {
		row = new(rowspb.FactRow) // of what was never asserted: a compensation says so nevertheless
	}
	s.leave(key, row)
	row.Value, row.Evicted, row.Reingested, row.Size, row.Digest, row.SinceNs = nil, nil, nil, 0, nil,
		0
	row.Retracted, row.ChangedNs, row.RetractedNs, row.Tombstone = true, s.meta.TimeNs, s.meta.TimeNs,
		e.Address
	s.attribute(row, e)
	s.enter(key, row)
	s.chronicle(key, e.Address, chronicleRetracted)
	if s.base == nil {
		s.wakeReaders(key, e.Address)
	}
}

// attribute notes who asserted or retracted a fact, and for which action.
func (s *State) attribute(row *rowspb.FactRow, e ledger.Entry) {
	r := e.Record
	row.By, row.Plan, row.Action, row.About, row.Cause = e.Source.Name, r.Plan, r.Action, r.About,
		r.Cause
	row.Undo = e.Source.Class == ledger.ClassExecutor
	if row.About == nil {
		if a := s.actionOf(r); a != nil {
			row.About = a.fixed.Registered
		}
	}
	s.provenance(e, row)
}

// keptFact is a fact as it is kept in memory.
type keptFact struct {
	row  *rowspb.FactRow // nil: the key was never asserted
	view *triggers.Fact  // of a resident one that a condition has read since the last Flush
}

// fact returns the row of a key, or nil when it was never asserted. The row may be
// changed; it counts when it is written.
func (s *State) fact(key string) *rowspb.FactRow { return s.keptFact(key).row }

func (s *State) keptFact(key string) *keptFact {
	if row, changed := s.facted[key]; changed {
		return row
	}
	if f, kept := s.facts.Get(key); kept {
		return f
	}
	if _, kept := s.absent.Get(key); kept {
		return &noFact
	}
	f := new(keptFact)
	if s.base != nil {
		if b := s.base.fact(key); b != nil {
			f.row = b.CloneVT()
		}
	} else {
		f.row = rows.Facts.Find(s.tx, key)
	}
	if f.row == nil {
		s.absent.Put(key, struct{}{})
		return &noFact
	}
	s.facts.Put(key, f)
	return f
}

// noFact stands for every key that was never asserted.
var noFact keptFact

// writeFact writes the row of a key: once, whatever becomes of it until the Flush.
func (s *State) writeFact(key string, row *rowspb.FactRow) {
	f := &keptFact{row: row}
	s.facts.Put(key, f)
	s.absent.Remove(key)
	if _, changed := s.facted[key]; !changed {
		s.factKeys = append(s.factKeys, key)
	}
	s.facted[key] = f
}

// viewing takes note of a fact whose value is about to be decoded. What is decoded
// is many times as large, and is kept for a while only.
func (s *State) viewing(f *keptFact) {
	if s.viewedBytes += len(f.row.Value); s.viewedBytes > viewedBytesMax {
		s.unview()
	}
	s.viewed = append(s.viewed, f)
}

func (s *State) unview() {
	for _, f := range s.viewed {
		f.view = nil
	}
	clear(s.viewed)
	s.viewed, s.viewedBytes = s.viewed[:0], 0
}

func (s *State) flushFacts() {
	s.unview()
	for _, key := range s.factKeys {
		rows.Facts.Set(s.tx, key, s.facted[key].row)
	}
	clear(s.facted)
	s.factKeys = s.factKeys[:0]
}

// newWatchers remembers who reads facts.
func newWatchers() *rows.Recent[*watchList] {
	return rows.NewRecent(watchedMax, watcherBytesMax, func(l *watchList) int { return l.bytes })
}

// newFacts remembers facts.
func newFacts() *rows.Recent[*keptFact] {
	return rows.NewRecent(factsMax, factBytesMax, func(f *keptFact) int {
		return keptFactBytes + len(f.row.GetValue())
	})
}

// factView lets conditions read the folded facts.
type factView struct{ s *State }

// Fact implements triggers.View. An evicted fact is there like any other; only its
// value is fetched from the ledger, when it is read.
func (v factView) Fact(key string) *triggers.Fact {
	f := v.s.keptFact(key)
	switch row := f.row; {
	case row == nil || row.Retracted:
		return nil
	case row.Evicted != nil:
		return &triggers.Fact{AssertedNs: row.AssertedNs, ChangedNs: row.ChangedNs,
			Sequence: row.Source.GetSequence(),
			Load:     func() json.RawMessage { return v.s.missed(key, row) }}
	case f.view == nil:
		v.s.viewing(f)
		f.view = &triggers.Fact{Value: row.Value, AssertedNs: row.AssertedNs, ChangedNs: row.ChangedNs,
			Sequence: row.Source.GetSequence()}
	}
	return f.view
}

// occurrence is an assertion that a scratch fold has seen.
type occurrence struct {
	key string
	ns  int64
}

// Occurrences implements triggers.View.
func (v factView) Occurrences(key string, fromNs, toNs int64) iter.Seq[int64] {
	prefix := rows.Occurred.WithinSized(key)
	from := binary.BigEndian.AppendUint64(slices.Clone(prefix), uint64(max(fromNs, 0)+1))
	to := binary.BigEndian.AppendUint64(slices.Clone(prefix), uint64(max(toNs, 0)+1))
	return func(yield func(int64) bool) {
		if row := v.s.fact(key); row == nil || row.AssertedNs <= fromNs {
			return // the last one was before
		}
		for k := range v.s.tx.Scan(from, to) {
			if !yield(int64(binary.BigEndian.Uint64(k[len(prefix):]))) {
				return
			}
		}
		for _, o := range v.s.occurred {
			if o.key == key && o.ns > fromNs && o.ns <= toNs && !yield(o.ns) {
				return
			}
		}
	}
}
