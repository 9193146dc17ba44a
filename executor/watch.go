package executor

import (
	"encoding/binary"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// watcher is who reads a fact: a lease, or a node of equal ones. It has what an
// evaluation needs, so that a fact which changes nothing reads no other row, but for
// the program of the condition, which is the cache's. What changes of a lease makes a
// new one.
type watcher struct {
	id     string         // in the index: a lease reference, or a zero byte and a node
	kept   *triggers.Kept // nil: held again from the rows when it is asked
	keys   []string       // that it watches; nil: those of the text, which do not change
	wakeNs int64
	faulty bool
	gone   bool  // it left the list that has it
	bytes  int32 // that it takes in each of the lists it is in, about
}

// What a watcher and a list of them take in memory beside their names, in bytes, and
// what is kept of a condition that is not held yet.
const (
	watcherBytes = 64
	listBytes    = 112
	unheldBytes  = 200
)

// A lease whose watcher takes more than watcherMax bytes with its lists is held again
// from the rows when a fact wakes it; one that takes more even so is listed only where
// others are. keptMax bounds what is kept of its condition.
const (
	keptMax    = 384
	watcherMax = 800
)

// newWatcher makes the watcher of a condition that is held. eager says that it is small
// enough for lists of its own.
func newWatcher(
	id string, held *triggers.Held, wakeNs int64, keys []string, faulty bool,
) (w *watcher, eager bool) {
	w = &watcher{id: id, kept: held.Keep(keptMax), wakeNs: wakeNs, faulty: faulty}
	bytes := watcherBytes + len(id)
	if held.Computes() {
		w.keys = keys
	}
	lists := 0
	for _, key := range keys {
		lists += listBytes + len(key)
		if w.keys != nil {
			bytes += 16
		}
	}
	if w.kept != nil {
		if size := held.Size(); bytes+size+lists <= watcherMax {
			bytes += size
		} else {
			w.kept = nil
		}
	}
	w.bytes = int32(bytes / max(len(keys), 1))
	return w, bytes+lists <= watcherMax
}

// unheldWatcher is a watcher as the rows have it. Whether its keys may change is known
// once its condition is held.
func unheldWatcher(id string, wakeNs int64, keys []string, faulty bool) *watcher {
	bytes := int32(watcherBytes + len(id) + unheldBytes)
	return &watcher{id: id, wakeNs: wakeNs, keys: keys, faulty: faulty, bytes: bytes}
}

func (w *watcher) isNode() bool { return w.id[0] == 0 }

// dueKey is where it stands among what falls due.
func (w *watcher) dueKey() []byte {
	if w.isNode() {
		return rows.Due.Key(rows.Instant{Ns: w.wakeNs, Kind: rows.DueNode, Node: []byte(w.id[1:])})
	}
	return rows.Due.Key(rows.Instant{
		Ns: w.wakeNs, Kind: rows.DueLease, Lease: rows.ParseLease([]byte(w.id)),
	})
}

// watchersInline is how many watchers of one fact stand in one row. Where there
// are more, each has a row of its own.
const watchersInline = 8

// watchersRow is the row of rows.Watchers: the watchers of a fact in ascending
// order, or how many they are.
type watchersRow struct {
	few  []string
	many uint64
}

func (r watchersRow) encode() []byte {
	if r.many > 0 {
		return binary.AppendUvarint([]byte{1}, r.many)
	}
	out := []byte{0}
	for _, id := range r.few {
		out = append(binary.AppendUvarint(out, uint64(len(id))), id...)
	}
	return out
}

func (s *State) watchersRow(key string) (r watchersRow) {
	v, ok := rows.Watchers.Get(s.tx, key)
	if !ok {
		return r
	}
	if v[0] == 1 {
		r.many, _ = binary.Uvarint(v[1:])
		return r
	}
	for rest := v[1:]; len(rest) > 0; {
		n, size := binary.Uvarint(rest)
		rest = rest[size:]
		r.few, rest = append(r.few, string(rest[:n])), rest[n:]
	}
	return r
}

// setWatching adds or removes one watcher of a fact.
func (s *State) setWatching(key, id string, on bool) {
	row := s.watchersRow(key)
	at, had := slices.BinarySearch(row.few, id)
	own := rows.Watch{Key: key, Watcher: id}
	switch {
	case on && row.many == 0 && !had && len(row.few) == watchersInline:
		for _, other := range row.few {
			rows.Watches.Add(s.tx, rows.Watch{Key: key, Watcher: other})
		}
		rows.Watches.Add(s.tx, own)
		row = watchersRow{many: watchersInline + 1}
	case on && row.many > 0:
		rows.Watches.Add(s.tx, own)
		row.many++
	case on && !had:
		if len(row.few) == 0 && s.base == nil {
			s.watchers.Put(key, newWatchList(key)) // this one is all, and is remembered next
		}
		row.few = slices.Insert(row.few, at, id)
	case !on && row.many > 0:
		rows.Watches.Delete(s.tx, own)
		row.many--
	case !on && had:
		row.few = slices.Delete(row.few, at, at+1)
	}
	if len(row.few) == 0 && row.many == 0 {
		rows.Watchers.Delete(s.tx, key)
	} else {
		rows.Watchers.Put(s.tx, key, row.encode())
	}
	if !on {
		s.forget(key, id)
	}
}

// watching lists who reads a fact, in ascending order.
func (s *State) watching(key string) []string {
	row := s.watchersRow(key)
	if row.many == 0 {
		return row.few
	}
	ids := make([]string, 0, row.many)
	prefix := rows.Watches.WithinSized(key)
	for k := range s.tx.Scan(prefix, rows.After(prefix)) {
		ids = append(ids, string(k[len(prefix):]))
	}
	return ids
}

// remember puts a watcher of facts among those kept for them, in place of an older one.
// A large one makes no list for itself.
func (s *State) remember(w *watcher, keys []string, eager bool) {
	if s.base != nil {
		return
	}
	for _, key := range keys {
		list, kept := s.watchers.Get(key)
		switch {
		case !kept:
		case !eager && list.empty():
			s.watchers.Remove(key)
		default:
			s.watchers.Grown(list.set(w))
		}
	}
}

func (s *State) forget(key, id string) {
	if s.base != nil {
		return
	}
	if list, kept := s.watchers.Get(key); kept {
		s.watchers.Grown(list.remove(id))
	}
}

// watchersOf returns who reads a fact, from memory or from the rows, in ascending order.
func (s *State) watchersOf(key string) []*watcher {
	if s.base == nil {
		if list, kept := s.watchers.Get(key); kept {
			all, grown := list.all()
			s.watchers.Grown(grown)
			return all
		}
	}
	list := newWatchList(key)
	for _, id := range s.watching(key) {
		if w := s.watcher(id); w != nil {
			list.append(w)
		}
	}
	if s.base == nil && list.bytes <= watchListMax {
		s.watchers.Put(key, list)
	}
	return list.sorted
}

// watcher reads one watcher from the rows. Its condition is held when it is asked.
func (s *State) watcher(id string) *watcher {
	if id[0] == 0 {
		return s.nodeWatcher([]byte(id[1:]))
	}
	ref := rows.ParseLease([]byte(id))
	l, _ := s.lease(s.plan(ref.Plan), ref)
	return unheldWatcher(id, l.WakeNs, l.Keys, l.Faulty)
}

// heldBy holds the condition of a watcher: as it is kept, or again from the rows. What
// it returns is good until the next call; nil: the condition cannot be read.
func (s *State) heldBy(w *watcher) *triggers.Held {
	if w.kept != nil && w.kept.Recall(&s.recalled) {
		return &s.recalled
	}
	p, a, l := s.leaseBehind(w.id)
	if l == nil {
		return nil
	}
	held := s.hold(p, a, l)
	if held == nil {
		return nil
	}
	if !held.Computes() {
		w.keys = nil
	}
	w.kept = held.Keep(keptMax)
	return held
}

// leaseBehind is the lease that a watcher is, or the first of its node.
func (s *State) leaseBehind(id string) (p *plan, a *action, l *rowspb.LeaseRow) {
	if id[0] == 0 {
		return s.member([]byte(id[1:]))
	}
	ref := rows.ParseLease([]byte(id))
	p = s.plan(ref.Plan)
	l, a = s.lease(p, ref)
	return p, a, l
}

// wakeReaders looks at every lease that reads a fact, and at no other (S72).
func (s *State) wakeReaders(key string, at *pb.Address) {
	list := s.watchersOf(key)
	if len(list) > 1 {
		list = slices.Clone(list) // what turns leaves it
	}
	for _, w := range list {
		held := s.heldBy(w)
		if held == nil {
			continue // was compiled when it was armed
		}
		result := s.ask(held, s.meta.TimeNs)
		if s.unchanged(w, held, result) {
			if w.wakeNs != 0 {
				s.rouse(w.dueKey())
			}
			continue
		}
		if w.isNode() {
			s.nodeChanged(w, held, result, at)
			continue
		}
		ref := rows.ParseLease([]byte(w.id))
		if p := s.plan(ref.Plan); p != nil {
			if l, a := s.lease(p, ref); l != nil {
				s.evaluate(p, a, l, at)
			}
		}
	}
}

// unchanged reports whether an answer leaves everything as it was.
func (s *State) unchanged(w *watcher, held *triggers.Held, r triggers.Result) bool {
	if r.Truth == triggers.True || r.Moot || r.WakeNs != w.wakeNs || faulty(r) != w.faulty {
		return false
	}
	return !held.Computes() || slices.Equal(held.Watched(r, s.meta.TimeNs, factView{s}), w.keys)
}

// condition compiles a condition, or finds it compiled. A text that no one has compiled
// yet takes as long as a costly evaluation.
func (s *State) condition(text string) (*triggers.Condition, error) {
	if s.between != nil && !s.programs.Knows(text) {
		s.between(true)
	}
	return s.programs.Condition(text)
}

// hold reads what a lease's condition needs of its plan and action. It is nil when
// the condition cannot be read.
func (s *State) hold(p *plan, a *action, l *rowspb.LeaseRow) *triggers.Held {
	condition, err := s.condition(conditionOf(p, a, l))
	if err != nil {
		return nil
	}
	return condition.Hold(scopeOf(p, a, l))
}

// scopeOf is what a lease may read of its plan and action.
func scopeOf(p *plan, a *action, l *rowspb.LeaseRow) triggers.Scope {
	scope := triggers.Scope{Plan: planScope(p), ArmedNs: l.ArmedNs}
	if a == nil {
		return scope
	}
	scope.Action = &triggers.Action{
		ID: a.fixed.Id, Capability: a.fixed.Forward.Capability, AtNs: a.fixed.AtNs,
		Input: a.fixed.Forward.Lifted, Output: a.row.LiftedOutput, Outcome: outcomeName(a.row.Outcome),
		Presence: presenceName(a.row.Presence),
	}
	if a.row.Verdict != pb.VerdictOutcome_VERDICT_OUTCOME_UNSPECIFIED {
		scope.Verdict = &triggers.Verdict{Outcome: verdictName(a.row.Verdict),
			Reason: a.row.VerdictReason, By: a.row.VerdictBy, AtNs: a.row.VerdictNs}
	}
	return scope
}

func planScope(p *plan) triggers.Plan {
	scope := triggers.Plan{
		ID: p.id, Status: statusName(p.row), Label: p.row.Declared.Label, Owner: p.row.Declared.Owner,
		Agent: p.row.Agent, OpenedNs: p.row.OpenedNs, DeadlineNs: p.row.Declared.DeadlineNs,
		Actions: int(p.row.Actions),
	}
	if len(p.row.Declared.Labels) > 0 {
		scope.Labels = map[string]string{}
		for _, l := range p.row.Declared.Labels {
			scope.Labels[l.Key] = l.Value
		}
	}
	return scope
}

// setWatches moves a watcher from the facts it was indexed by to others.
func (s *State) setWatches(id string, from, to []string) {
	if slices.Equal(from, to) {
		return
	}
	for _, k := range from {
		if _, stays := slices.BinarySearch(to, k); !stays {
			s.setWatching(k, id, false)
		}
	}
	for _, k := range to {
		if _, had := slices.BinarySearch(from, k); !had {
			s.setWatching(k, id, true)
		}
	}
}

func nodeID(node []byte) string { return "\x00" + string(node) }
