package executor

import (
	"encoding/binary"
	"iter"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/deadlines"
	"github.com/sagenbaum/sagenbaum/executor/leases"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/writers"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// storedLeases reads watchers from the rows of a state.
type storedLeases struct{ *State }

// Watcher implements leases.Stored. The condition is held when it is asked.
func (s storedLeases) Watcher(id string) *leases.Watcher {
	if id[0] == 0 {
		return s.nodeWatcher([]byte(id[1:]))
	}
	ref := rows.ParseLease([]byte(id))
	l, _ := s.plan(ref.Plan).lease(ref)
	return leases.StoredWatcher(id, l.WakeNs, l.Keys, l.Faulty)
}

// heldBy holds the condition of a watcher: as it is kept, or again from the rows. What
// it returns is good until the next call; nil: the condition cannot be read.
func (s *State) heldBy(w *leases.Watcher) *triggers.Held {
	if w.Recall(&s.recalled) {
		return &s.recalled
	}
	p, a, l := s.leaseBehind(w.ID)
	if l == nil {
		return nil
	}
	held := p.hold(a, l)
	if held == nil {
		return nil
	}
	w.Keep(held)
	return held
}

// leaseBehind is the lease that a watcher is, or the first of its node.
func (s *State) leaseBehind(id string) (p *plan, a *action, l *rowspb.LeaseRow) {
	if id[0] == 0 {
		return s.member([]byte(id[1:]))
	}
	ref := rows.ParseLease([]byte(id))
	p = s.plan(ref.Plan)
	l, a = p.lease(ref)
	return p, a, l
}

// wakeReaders looks at every lease that reads a fact, and at no other.
func (s *State) wakeReaders(key string, at *pb.Address) {
	var changed []rows.Lease
	for w := range s.watchers.Readers(key) {
		held := s.heldBy(w)
		if held == nil {
			continue // was compiled when it was armed
		}
		result := s.ask(held, s.meta.TimeNs)
		switch {
		case s.unchanged(w, held, result):
			if w.WakeNs != 0 {
				s.due.AskAgain(w.DueKey())
			}
		case w.IsNode():
			changed = append(changed, s.nodeChanged(w, held, result)...)
		default:
			changed = append(changed, rows.ParseLease([]byte(w.ID)))
		}
	}
	if s.meta.HolderFold >= ledger.PrefixSince { // in the order in which a plan keeps what turns
		slices.SortFunc(changed, rows.Lease.Compare)
		changed = slices.Compact(changed)
	}
	for _, ref := range changed {
		s.lookAt(ref, at)
	}
}

// unchanged reports whether an answer leaves everything as it was.
func (s *State) unchanged(w *leases.Watcher, held *triggers.Held, r triggers.Result) bool {
	if r.Truth == triggers.True || r.Moot || r.WakeNs != w.WakeNs || faulty(r) != w.Faulty {
		return false
	}
	return !held.Computes() || slices.Equal(held.Watched(r, s.meta.TimeNs, s.memory.View()), w.Keys)
}

// hold reads what a lease's condition needs of its plan and action. It is nil when
// the condition cannot be read.
func (p *plan) hold(a *action, l *rowspb.LeaseRow) *triggers.Held {
	condition, err := p.s.Condition(conditionOf(p, a, l))
	if err != nil {
		return nil
	}
	return condition.Hold(scopeOf(p, a, l))
}

// scopeOf is what a lease may read of its plan and action.
func scopeOf(p *plan, a *action, l *rowspb.LeaseRow) triggers.Scope {
	scope := triggers.Scope{Plan: planScope(p), ArmedNs: l.ArmedNs, Inexact: !l.Exact}
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
		Agent: writers.First(p.row), OpenedNs: p.row.OpenedNs, ActiveNs: p.row.ActiveNs,
		DeadlineNs: deadlines.Of(p.row),
		Actions:    int(p.row.Actions),
	}
	if len(p.row.Declared.Labels) > 0 {
		scope.Labels = map[string]string{}
		for _, l := range p.row.Declared.Labels {
			scope.Labels[l.Key] = l.Value
		}
	}
	return scope
}

// A node is shared by leases that always have the same answer, such as one condition
// over facts that a hundred thousand plans hold. It is indexed and asked in their
// place; they are looked at when it turns true.

func (s *State) nodeRow(node []byte) *rowspb.NodeRow {
	return rows.Nodes.Find(s.tx, node)
}

// joinNode makes a lease one of a node. It reports false when it needs a look of its
// own: the condition is true or moot now.
func (s *State) joinNode(ref rows.Lease, l *rowspb.LeaseRow, held *triggers.Held,
	node []byte) bool {
	row := s.nodeRow(node)
	// a flip that no one was asked at yet
	if row == nil || row.WakeNs != 0 && row.WakeNs <= s.meta.TimeNs {
		result := s.ask(held, s.meta.TimeNs)
		if result.Truth == triggers.True || result.Moot {
			return false
		}
		if row == nil {
			row = new(rowspb.NodeRow)
			s.indexNode(node, row, held, result, false)
		}
	}
	row.Leases++
	rows.Nodes.Set(s.tx, node, row)
	rows.Members.Add(s.tx, rows.Member{Node: node, Lease: ref})
	l.Node = node
	return true
}

// leaveNode takes a lease out of its node; the last one ends it.
func (s *State) leaveNode(ref rows.Lease, l *rowspb.LeaseRow) {
	node := l.Node
	l.Node = nil
	rows.Members.Delete(s.tx, rows.Member{Node: node, Lease: ref})
	row := s.nodeRow(node)
	if row.Leases--; row.Leases > 0 {
		rows.Nodes.Set(s.tx, node, row)
		return
	}
	s.watchers.Move(leases.NodeID(node), row.Keys, nil)
	if row.WakeNs != 0 {
		s.due.DropKey(row.WakeNs,
			rows.Due.Key(rows.Instant{Ns: row.WakeNs, Kind: rows.DueNode, Node: node}))
	}
	if _, on := rows.FaultyNodes.Get(s.tx, node); on {
		s.setFaulty(rows.FaultyNodes.Key(node), false)
	}
	rows.Nodes.Delete(s.tx, node)
}

// indexNode moves a node to the facts and the instant it waits for now; wasFaulty
// says whether it is on the list of those in error.
func (s *State) indexNode(node []byte, row *rowspb.NodeRow, held *triggers.Held,
	result triggers.Result, wasFaulty bool) {
	keys := held.Watched(result, s.meta.TimeNs, s.memory.View())
	s.watchers.Move(leases.NodeID(node), row.Keys, keys)
	if row.WakeNs != result.WakeNs {
		if row.WakeNs != 0 {
			s.due.DropKey(row.WakeNs,
				rows.Due.Key(rows.Instant{Ns: row.WakeNs, Kind: rows.DueNode, Node: node}))
		}
		if result.WakeNs != 0 {
			s.due.SetKey(result.WakeNs,
				rows.Due.Key(rows.Instant{Ns: result.WakeNs, Kind: rows.DueNode, Node: node}))
		}
	} else if result.WakeNs != 0 {
		s.due.AskAgain(rows.Due.Key(rows.Instant{Ns: result.WakeNs, Kind: rows.DueNode, Node: node}))
	}
	row.Keys, row.WakeNs = keys, result.WakeNs
	if faulty(result) != wasFaulty {
		s.setFaulty(rows.FaultyNodes.Key(node), !wasFaulty)
	}
	w, eager := leases.NewWatcher(leases.NodeID(node), held, result.WakeNs, keys, faulty(result))
	s.watchers.Remember(w, keys, eager)
}

// nodeChanged follows a node whose answer is another now. It returns the leases of it that are to
// be looked at each by itself.
func (s *State) nodeChanged(w *leases.Watcher, h *triggers.Held, r triggers.Result) []rows.Lease {
	node := []byte(w.ID[1:])
	if r.Truth == triggers.True || r.Moot {
		return slices.Collect(s.members(node))
	}
	if row := s.nodeRow(node); row != nil {
		s.indexNode(node, row, h, r, w.Faulty)
		rows.Nodes.Set(s.tx, node, row)
	}
	return nil
}

// lookAt looks at a lease by itself; one of a node leaves it.
func (s *State) lookAt(ref rows.Lease, at *pb.Address) {
	p := s.plan(ref.Plan)
	if p == nil {
		return
	}
	l, a := p.lease(ref)
	switch {
	case l == nil:
	case l.Node == nil:
		p.evaluate(a, l, at)
	default:
		s.leaveNode(ref, l)
		p.mark(a)
		if held := p.hold(a, l); held != nil && p.live(a, l, ref) {
			p.consider(a, l, ref, held, at)
		}
	}
}

// members yields the leases of a node, in ascending order.
func (s *State) members(node []byte) iter.Seq[rows.Lease] {
	prefix := append(rows.Members.Prefix(), node...)
	return func(yield func(rows.Lease) bool) {
		for k := range s.tx.Scan(prefix, rows.After(prefix)) {
			if !yield(rows.ParseLease(k[len(prefix):])) {
				return
			}
		}
	}
}

// member is the first lease of a node: all see the same.
func (s *State) member(node []byte) (p *plan, a *action, l *rowspb.LeaseRow) {
	for ref := range s.members(node) {
		if p = s.plan(ref.Plan); p != nil {
			if l, a = p.lease(ref); l != nil && l.Node != nil {
				return p, a, l
			}
		}
	}
	return nil, nil, nil
}

// nodeWatcher reads a node. Its condition is held when it is asked, as its first lease
// sees it.
func (s *State) nodeWatcher(node []byte) *leases.Watcher {
	row := s.nodeRow(node)
	if row == nil {
		return nil
	}
	_, faulty := rows.FaultyNodes.Get(s.tx, node)
	return leases.StoredWatcher(leases.NodeID(node), row.WakeNs, row.Keys, faulty)
}

// dueNode asks a node whose wake instant has come, and fires its leases.
func (d *decider) dueNode(node []byte, ns int64) int64 {
	w := d.state.nodeWatcher(node)
	switch {
	case w == nil || w.WakeNs != ns || d.full():
		return d.in.EpochNs
	case d.in.HoldClock:
		return d.in.EpochNs + heldAgain
	}
	held := d.state.heldBy(w)
	if held == nil {
		return d.in.EpochNs
	}
	result := d.state.answerAt(held, d.in.EpochNs, d.state.meta.TimeNs)
	if result.Truth != triggers.True {
		return max(result.WakeNs, 0) // 0: only a fact can change it now
	}
	// 0: all that is left of it has come to its end, and the next record drops it
	again := int64(0)
	for ref := range d.live.members(node) { // what has fired is a member no more
		p := d.state.plan(ref.Plan)
		l, a := p.lease(ref)
		switch {
		case d.full():
			return d.in.EpochNs
		case l != nil && l.Node != nil && l.UntilNs != 0:
			again = max(again, d.fireMember(p, a, l))
			continue
		case l != nil && l.Node != nil && armed(p.row) && p.row.Fired == nil:
			full := p.hold(a, l).Evaluate(d.in.EpochNs, d.state.memory.View())
			d.fireDue(p, a, l, readingsOf(full.Readings), p.row.Opened)
		}
		again = d.in.EpochNs
	}
	return again
}

// fireMember fires a lease that is held after the commit, unless its node has turned true after
// the end of it.
func (d *decider) fireMember(p *plan, a *action, l *rowspb.LeaseRow) (again int64) {
	full := p.hold(a, l).Evaluate(asOf(l, d.in.EpochNs), d.state.memory.View())
	switch {
	case full.Truth != triggers.True:
		return 0
	case waitsForPart(p):
		return d.partAgain(p)
	}
	return d.fireDue(p, a, l, readingsOf(full.Readings), p.row.Opened)
}

// eachHeldOn calls f for every lease that a committed plan holds.
func eachHeldOn(p *plan, f func(*action, *rowspb.LeaseRow)) {
	for _, l := range p.row.Leases {
		if l.UntilNs != 0 {
			f(nil, l)
		}
	}
	for _, n := range p.row.Watchers {
		a := p.action(n)
		for _, l := range a.row.Leases {
			if l.UntilNs != 0 {
				f(a, l)
			}
		}
	}
}

// endsAt keeps the instant at which a committed plan gives up the next of its conditions. One that
// has turned true is fired, however late its holder comes.
func endsAt(p *plan) {
	s, ns := p.s, int64(0)
	eachHeldOn(p, func(_ *action, l *rowspb.LeaseRow) {
		if l.UntilNs > s.meta.TimeNs && (ns == 0 || l.UntilNs < ns) {
			ns = l.UntilNs
		}
	})
	if ns != p.row.EndsNs {
		if p.row.EndsNs != 0 {
			rows.Endings.Delete(s.tx, rows.Numbered{N: uint64(p.row.EndsNs), Name: p.id})
		}
		if p.row.EndsNs = ns; ns != 0 {
			rows.Endings.Add(s.tx, rows.Numbered{N: uint64(ns), Name: p.id})
		}
	}
	if ns != 0 && (s.meta.EndsNs == 0 || ns < s.meta.EndsNs) {
		s.meta.EndsNs = ns
	}
	p.touch()
}

// endingsMax bounds the plans that give up conditions before one record, so that records are not
// slow when many windows close at once; the others do so before the next ones, in the order of the
// instants and of their names. Before a fact changes all do, and before a record about a plan that
// one does: what comes after a window undoes nothing.
const endingsMax = 64

// endLeases gives up the conditions of committed plans whose windows have closed by now. Each is
// asked once more, as of its last instant: what came true then is undone all the same.
func endLeases(s *fold) {
	if !s.endsBy(s.meta.EndsNs) {
		return
	}
	r := s.e.Record
	if p := s.plan(r.GetPlan()); p != nil && s.endsBy(p.row.EndsNs) {
		s.endOf(p)
	}
	all := r.GetFactAsserted() != nil || r.GetFactRetracted() != nil
	for done := 0; all || done < endingsMax; done++ {
		p := nextEnding(s)
		if p == nil {
			return
		}
		s.endOf(p)
	}
}

// endsBy reports whether an end, 0 for none, has come by now.
func (s *State) endsBy(ns int64) bool { return ns != 0 && ns <= s.meta.TimeNs }

// nextEnding is the plan that is the next to give up conditions, if it is to do so by now; nil:
// none is. It keeps when the next one does.
func nextEnding(s *fold) *plan {
	if !s.endsBy(s.meta.EndsNs) {
		return nil
	}
	s.meta.EndsNs = 0
	prefix := rows.Endings.Prefix()
	for k := range s.tx.Scan(prefix, rows.After(prefix)) {
		if s.meta.EndsNs = int64(binary.BigEndian.Uint64(k[1:])); s.endsBy(s.meta.EndsNs) {
			return s.plan(string(k[9:]))
		}
		break
	}
	return nil
}

// endOf gives up what a committed plan has held until now, but for what has turned true and what
// waits for its owner.
func (s *fold) endOf(p *plan) {
	eachHeldOn(p, func(a *action, l *rowspb.LeaseRow) {
		if l.UntilNs > s.meta.TimeNs || l.Cascade == rowspb.Cascade_CASCADE_CUT {
			return
		}
		lastLook(s, p, a, l, s.meta.TimeNs)
		if l.TurnedNs == 0 || p.row.Turned == nil {
			releaseHeld(p, a, l)
		}
	})
	p.uncut(rowspb.Cascade_CASCADE_NONE, func(c *rowspb.Cut) bool {
		l, _ := p.lease(rows.Lease{Plan: p.id, N: c.Action, Name: c.Lease})
		return l.GetUntilNs() == 0
	})
	endsAt(p)
}

// releaseHeld gives up one lease that is held after the commit.
func releaseHeld(p *plan, a *action, l *rowspb.LeaseRow) {
	p.s.index(rows.Lease{Plan: p.id, N: number(a), Name: l.Name}, l, 0, nil, false)
	l.UntilNs, l.TurnedNs = 0, 0
	p.row.HeldOn--
	p.s.meta.Conditions--
	p.mark(a)
}
