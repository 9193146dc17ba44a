package memory

import (
	"encoding/binary"
	"encoding/json"
	"iter"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// keptFact is a fact as it is kept in memory.
type keptFact struct {
	row  *rowspb.FactRow // nil: the key was never asserted
	view *triggers.Fact  // of a resident one that a condition has read since the last Flush
}

// Fact returns the row of a key, or nil when it was never asserted. The row may be
// changed; it counts when it is written.
func (m *Memory) Fact(key string) *rowspb.FactRow { return m.kept(key).row }

func (m *Memory) kept(key string) *keptFact {
	if row, changed := m.changed[key]; changed {
		return row
	}
	if f, kept := m.facts.Get(key); kept {
		return f
	}
	if _, kept := m.absent.Get(key); kept {
		return &noFact
	}
	f := new(keptFact)
	if m.base != nil {
		if b := m.base.Fact(key); b != nil {
			f.row = proto.CloneOf(b)
		}
	} else {
		f.row = rows.Facts.Find(m.tx, key)
	}
	if f.row == nil {
		m.absent.Put(key, struct{}{})
		return &noFact
	}
	m.facts.Put(key, f)
	return f
}

// noFact is what is kept for every key that was never asserted.
var noFact keptFact

// put writes the row of a key: once, whatever becomes of it until the Flush.
func (m *Memory) put(key string, row *rowspb.FactRow) {
	f := &keptFact{row: row}
	m.facts.Put(key, f)
	m.absent.Remove(key)
	if _, changed := m.changed[key]; !changed {
		m.changedKeys = append(m.changedKeys, key)
	}
	m.changed[key] = f
}

// viewing takes note of a fact whose value is about to be decoded. What is decoded
// is many times as large, and is kept for a while only.
func (m *Memory) viewing(f *keptFact) {
	if m.viewedBytes += len(f.row.Value); m.viewedBytes > viewedBytesMax {
		m.unview()
	}
	m.viewed = append(m.viewed, f)
}

func (m *Memory) unview() {
	for _, f := range m.viewed {
		f.view = nil
	}
	clear(m.viewed)
	m.viewed, m.viewedBytes = m.viewed[:0], 0
}

// Flush writes what changed since the last Flush into the rows.
func (m *Memory) Flush() {
	m.unview()
	for _, key := range m.changedKeys {
		rows.Facts.Set(m.tx, key, m.changed[key].row)
	}
	clear(m.changed)
	m.changedKeys = m.changedKeys[:0]
}

// View lets conditions read the facts.
func (m *Memory) View() triggers.View { return factView{m} }

type factView struct{ m *Memory }

// Fact implements triggers.View. An evicted fact is there like any other; only its
// value is fetched from the ledger, when it is read.
func (v factView) Fact(key string) *triggers.Fact {
	f := v.m.kept(key)
	switch row := f.row; {
	case row == nil || row.Retracted:
		return nil
	case row.Evicted != nil:
		return &triggers.Fact{AssertedNs: row.AssertedNs, ChangedNs: row.ChangedNs,
			Sequence: row.Source.GetSequence(),
			Load:     func() json.RawMessage { return v.m.recallMissed(key, row) }}
	case f.view == nil:
		v.m.viewing(f)
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

// Occurred reports whether a scratch fold has seen an assertion.
func (m *Memory) Occurred() bool { return len(m.occurred) > 0 }

// Occurrences implements triggers.View.
func (v factView) Occurrences(key string, fromNs, toNs int64) iter.Seq[int64] {
	prefix := rows.Occurred.WithinSized(key)
	from := binary.BigEndian.AppendUint64(slices.Clone(prefix), uint64(max(fromNs, 0)+1))
	to := binary.BigEndian.AppendUint64(slices.Clone(prefix), uint64(max(toNs, 0)+1))
	return func(yield func(int64) bool) {
		if row := v.m.Fact(key); row == nil || row.AssertedNs <= fromNs {
			return // the last one was before
		}
		for k := range v.m.tx.Scan(from, to) {
			if !yield(int64(binary.BigEndian.Uint64(k[len(prefix):]))) {
				return
			}
		}
		for _, o := range v.m.occurred {
			if o.key == key && o.ns > fromNs && o.ns <= toNs && !yield(o.ns) {
				return
			}
		}
	}
}
