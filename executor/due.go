package executor

import (
	"container/heap"
	"encoding/binary"
	"math"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// snooze is a due entry that was asked and was not true; it is asked again at ns.
type snooze struct {
	ns  int64
	key string
}

type snoozeHeap []snooze

func (h snoozeHeap) Len() int { return len(h) }
func (h snoozeHeap) Less(i, j int) bool {
	return h[i].ns < h[j].ns || h[i].ns == h[j].ns && h[i].key < h[j].key
}
func (h snoozeHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *snoozeHeap) Push(x any) { *h = append(*h, x.(snooze)) }

// Pop implements heap.Interface.
func (h *snoozeHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// duePerTurn bounds the due entries one turn looks at.
const duePerTurn = 4096

// setDue adds a due entry.
func (s *State) setDue(ns int64, kind byte, ref rows.Lease) {
	s.setDueKey(ns, rows.Due.Key(rows.Instant{Ns: ns, Kind: kind, Lease: ref}))
}

func (s *State) setDueKey(ns int64, key []byte) {
	s.tx.Set(key, nil)
	if s.base == nil && string(key) < s.dueFrom {
		heap.Push(&s.snoozed, snooze{ns, string(key)})
		return
	}
	if s.nextDue != 0 {
		s.nextDue = min(s.nextDue, ns)
	}
}

// dropDue removes a due entry.
func (s *State) dropDue(ns int64, kind byte, ref rows.Lease) {
	s.dropDueKey(ns, rows.Due.Key(rows.Instant{Ns: ns, Kind: kind, Lease: ref}))
}

func (s *State) dropDueKey(ns int64, key []byte) {
	s.tx.Delete(key)
	if ns == s.nextDue {
		s.nextDue = 0
	}
}

// rouse has a due entry whose instant stays what it was asked again. Where the clock of
// a holder is ahead of logical time it was asked already, and let go until something
// that it reads changes: that is now.
func (s *State) rouse(key []byte) {
	if s.base != nil || string(key) >= s.dueFrom {
		return
	}
	if at, had := slices.BinarySearch(s.roused, string(key)); !had {
		s.roused = slices.Insert(s.roused, at, string(key))
	}
}

// noDue stands for "no entry" in State.nextDue.
const noDue = math.MaxInt64

// dueEntries returns the entries to look at, in order of key, so that a restart,
// which forgets what was snoozed, changes no order.
func (s *State) dueEntries(nowNs int64) []string {
	ready, _ := slices.BinarySearch(s.roused, string(rows.DueFrom(uint64(nowNs)+1)))
	entries := slices.Clone(s.roused[:min(ready, duePerTurn)])
	s.roused = slices.Delete(s.roused, 0, len(entries))
	for len(s.snoozed) > 0 && s.snoozed[0].ns <= nowNs && len(entries) < duePerTurn {
		entries = append(entries, heap.Pop(&s.snoozed).(snooze).key)
	}
	if s.nextDue == 0 || s.nextDue <= nowNs {
		entries = s.scanDue(nowNs, entries)
	}
	slices.Sort(entries)
	return slices.Compact(entries)
}

// scanDue adds the entries at or behind dueFrom that are due. It reads one further,
// which is the next to fall due.
func (s *State) scanDue(nowNs int64, entries []string) []string {
	from := max(s.dueFrom, string(rows.Due.Prefix()))
	s.dueFrom, s.nextDue = max(from, string(rows.DueFrom(uint64(nowNs)+1))), noDue
	for k := range s.tx.Scan([]byte(from), rows.After(rows.Due.Prefix())) {
		ns := int64(binary.BigEndian.Uint64(k[1:]))
		if ns > nowNs || len(entries) == duePerTurn {
			s.nextDue = ns
			if ns <= nowNs {
				s.dueFrom = string(k)
			}
			break
		}
		entries = append(entries, string(k))
	}
	return entries
}

// due fires the leases whose wake instant has come, and returns the other entries
// that are due. It comes before all else that a turn decides, and the unwinds of
// what fires here come with the other work, so that no lease is late for the unwind
// of another.
func (d *decider) due() (others []string) {
	for _, k := range d.live.dueEntries(d.in.EpochNs) {
		if k[9] != rows.DueLease && k[9] != rows.DueNode {
			others = append(others, k)
			continue
		}
		d.again(k, d.dueCondition)
	}
	return others
}

// attempts starts every attempt whose backoff is over, and warns of windows.
func (d *decider) attempts(entries []string) {
	for _, k := range entries {
		d.again(k, d.dueAttempt)
	}
}

// again handles one due entry, which look tells when to look at again, if it stays,
// or 0. What was decided is looked at again at once: if its records never reach the
// ledger, the next Decide must propose them again (I9). A full turn looks at nothing.
func (d *decider) again(key string, look func(key []byte) int64) {
	again := d.in.EpochNs
	if !d.full() {
		if _, ok := d.live.tx.Get([]byte(key)); !ok {
			return // moved or given up since it was snoozed
		}
		again = look([]byte(key))
	}
	if again != 0 {
		heap.Push(&d.live.snoozed, snooze{again, key})
	}
}

func (d *decider) dueCondition(key []byte) int64 {
	if key[9] == rows.DueNode {
		return d.dueNode(key[10:], int64(binary.BigEndian.Uint64(key[1:])))
	}
	at := rows.ParseInstant(key)
	ns, ref := at.Ns, at.Lease
	p := d.live.plan(ref.Plan)
	switch {
	case p == nil || ref.N > p.row.Actions:
		return 0
	case p.row.Fired != nil:
		return 0 // its unwind gives up the entry, or a rewind sets it again
	}
	return d.dueLease(d.state.plan(ref.Plan), ref, ns)
}

func (d *decider) dueAttempt(key []byte) int64 {
	at := rows.ParseInstant(key)
	ns, kind, ref := at.Ns, at.Kind, at.Lease
	p := d.state.plan(ref.Plan)
	if p == nil || ref.N > p.row.Actions {
		return 0
	}
	a := d.state.action(p.id, ref.N)
	if kind == rows.DueWindow {
		return d.dueWindow(p, a)
	}
	settles := a.row.Undo == rowspb.Undo_UNDO_SETTLING
	waits := a.row.Undo == rowspb.Undo_UNDO_WAITING || settles
	switch {
	case !d.state.asks(p) || !waits || a.row.DueNs != ns:
	case settles && p.row.InFlight >= concurrency(p.row):
		return 0 // it begins when an undo of its plan ends
	case d.next(p, a):
		d.plan(p.id)
	}
	return d.in.EpochNs
}

// dueWindow warns the owner of an action whose undo window is about to close.
func (d *decider) dueWindow(p *plan, a *action) int64 {
	if d.in.HoldClock {
		return d.in.EpochNs + heldAgain
	}
	if warns(p, a) && !d.full() {
		r := d.about(p, a, a.row.OutcomeAt)
		r.Kind = &pb.Record_UndoWindowClosing{UndoWindowClosing: &pb.UndoWindowClosing{ClosesNs: a.row.ClosesNs}}
		d.propose(r)
	}
	return d.in.EpochNs
}

// heldAgain is after how long a lease that the clock guard holds is looked at
// again, in ns: not at once, so that many of them leave room for retries.
const heldAgain = int64(100e6)

func (d *decider) dueLease(p *plan, ref rows.Lease, ns int64) int64 {
	l, a := d.state.lease(p, ref)
	switch {
	case l == nil || l.WakeNs != ns || !armed(p.row) || p.row.Fired != nil || d.full():
		return d.in.EpochNs
	case d.in.HoldClock:
		return d.in.EpochNs + heldAgain
	}
	turned := turnedBy(p, ref)
	if turned != nil && turned.Ns <= d.in.EpochNs {
		return d.fireDue(p, a, l, turned.Readings, turned.At)
	}
	held := d.state.hold(p, a, l)
	if held == nil {
		return 0
	}
	result := d.state.answerAt(held, d.in.EpochNs)
	if result.Truth == triggers.True {
		result = held.Evaluate(d.in.EpochNs, factView{d.state})
		return d.fireDue(p, a, l, readingsOf(result.Readings), p.row.Opened)
	}
	again := int64(0) // only a fact can change it now, and facts wake it themselves
	if result.WakeNs > d.in.EpochNs {
		again = result.WakeNs
	}
	if turned != nil && (again == 0 || turned.Ns < again) {
		again = turned.Ns
	}
	return again
}

func (d *decider) fireDue(p *plan, a *action, l *rowspb.LeaseRow, readings []*pb.Reading,
	cause *pb.Address) int64 {
	if d.fire(p, a, l, readings, cause) {
		d.fired = append(d.fired, p.id)
	}
	return d.in.EpochNs
}

// NextWake returns the next instant (unix ns) at which time alone may call for
// a decision; ok is false when nothing waits for the clock.
func (s *State) NextWake() (ns int64, ok bool) {
	if len(s.snoozed) > 0 {
		ns, ok = s.snoozed[0].ns, true
	}
	if len(s.roused) > 0 {
		if first := int64(binary.BigEndian.Uint64([]byte(s.roused[0][1:]))); !ok || first < ns {
			ns, ok = first, true
		}
	}
	if s.nextDue == 0 {
		s.nextDue = s.firstDue()
	}
	if s.nextDue != noDue && (!ok || s.nextDue < ns) {
		ns, ok = s.nextDue, true
	}
	return ns, ok
}

// firstDue reads the first due entry that was not looked at yet.
func (s *State) firstDue() int64 {
	from := max(s.dueFrom, string(rows.Due.Prefix()))
	for k := range s.tx.Scan([]byte(from), rows.After(rows.Due.Prefix())) {
		return int64(binary.BigEndian.Uint64(k[1:]))
	}
	return noDue
}

// HasWork reports whether Decide has something to do whatever the clock says.
func (s *State) HasWork() bool { return s.todo.len() > 0 }
