package executor

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Cascades. An undo may make facts that turn the leases of other plans, whose undos
// make facts in turn. Each firing carries its depth: 1, or one more than that of the
// firing that led to the deepest fact it read. The fold counts and keeps the provenance;
// how deep is too deep is decided where the firing is proposed (cascade_limit.go).

// chainMax bounds the links that are told of one cascade. No depth limit is above
// it, so that the whole of a cascade that is cut can be shown.
const chainMax = CascadeDepthMax

// hourNs is the span over which a tenant's budget counts, in ns of logical time.
const hourNs = int64(3600e9)

// stopped reports whether a lease fires no more by itself: it was cut, or given up.
func stopped(l *rowspb.LeaseRow) bool {
	return l.Cascade == rowspb.Cascade_CASCADE_CUT || l.Cascade == rowspb.Cascade_CASCADE_ENDED
}

// provenance gives a fact that was asserted or retracted the depth of the unwind
// that did so. A record names the plan and action whose undo it comes from; any other
// has none.
func (s *fold) provenance(row *rowspb.FactRow) {
	row.Depth, row.Fired, row.UndonePlan, row.Undone, row.Made = 0, nil, "", "", nil
	if s.e.Record.Plan == "" {
		return
	}
	p := s.plan(s.e.Record.Plan)
	if p == nil || p.row.Firing == nil {
		return
	}
	if a := s.byName(p.id, s.e.Record.Action); a == nil || !a.undoing() {
		return
	}
	f := p.row.Firing
	row.Depth, row.Fired, row.UndonePlan, row.Undone, row.Made = f.Depth, f.Fired, p.id,
		s.e.Record.Action, s.e.Address
	s.keepFiring(f)
}

// undoing reports whether a fact may come from the undo of an action: it is under
// way, or was not long ago. So no one gives a fact the depth of any old unwind.
func (a *action) undoing() bool {
	s := a.plan.s
	undoes := flying(a.row.Undo) && ordered(a.plan.row) // else a commit asks about it
	return undoes || a.row.Undo == rowspb.Undo_UNDO_COMPENSATED &&
		s.meta.TimeNs-a.row.SettledNs <= hourNs
}

// keepFiring keeps a firing that something refers to.
func (s *State) keepFiring(f *rowspb.Firing) {
	rows.Firings.Set(s.tx, rows.At(f.Fired), f)
}

// firingAt is a firing that was kept, or nil.
func (s *State) firingAt(at *pb.Address) *rowspb.Firing {
	if at == nil {
		return nil
	}
	return rows.Firings.Find(s.tx, rows.At(at))
}

// made finds the deepest of the facts that a condition read; nil when no undo has
// made any of them.
func (s *State) made(keys []string) (by *rowspb.Made) {
	for _, key := range keys {
		if row := s.memory.Fact(key); row.GetDepth() > by.GetDepth() {
			by = &rowspb.Made{Key: key, Fact: row.Made, Retracted: row.Retracted, Depth: row.Depth,
				UndonePlan: row.UndonePlan, Undone: row.Undone, Fired: row.Fired}
		}
	}
	return by
}

// turning is the firing of a lease that is true: how deep it is, by the facts that it read.
func (p *plan) turning(l *rowspb.LeaseRow, read []string) *rowspb.Firing {
	s := p.s
	f := &rowspb.Firing{Depth: 1, TurnedNs: s.meta.TimeNs}
	if passed := p.row.Passed; passed != nil && l.Name == leaseFailed {
		f.Depth, f.Passed = passed.Depth, passed.Fired
	} else if f.By = s.made(read); f.By != nil {
		f.Depth = f.By.Depth + 1
	} else {
		f.Read = s.readLast(read)
	}
	if l.Cascade == rowspb.Cascade_CASCADE_RESUMED {
		f.Depth = 1
	}
	return f
}

// noteTurning keeps the firing of a lease with its turn.
func (p *plan) noteTurning(ref rows.Lease, l *rowspb.LeaseRow, read []string) {
	t := turnOf(p, ref)
	if t == nil || t.Firing != nil {
		return
	}
	if f := p.turning(l, read); f.Depth > 1 || f.By != nil || f.Read != nil {
		t.Firing = f
	}
}

// firing says whether a lease is true here, or has turned before, and how deep it
// fires.
func (p *plan) firing(a *action, l *rowspb.LeaseRow) (*rowspb.Firing, triggers.Truth) {
	s := p.s
	f := &rowspb.Firing{Depth: 1}
	if t := firstTurn(p, rows.Lease{Plan: p.id, N: number(a), Name: l.Name}); t != nil {
		f.TurnedNs = t.Ns
		if t.Firing != nil {
			f = proto.CloneOf(t.Firing)
		}
	} else {
		held := p.hold(a, l)
		if held == nil {
			return nil, triggers.Unknown
		}
		now := held.Evaluate(asOf(l, s.meta.TimeNs), s.memory.View())
		if now.Truth != triggers.True {
			return nil, now.Truth
		}
		f = p.turning(l, now.Keys)
	}
	f.Plan, f.Lease = p.id, l.Name
	if a != nil {
		f.Action = a.fixed.Id
	}
	return f, triggers.True
}

// claimed checks what a record claims of a firing: it counts only as this place of
// the log has it.
func (s *fold) claimed(p *plan, lease string, depth uint32,
	chain []*pb.Link) (*rowspb.LeaseRow, *action, *rowspb.Firing, Result) {
	n := s.number(p.id, s.e.Record.Action)
	l, a := p.lease(rows.Lease{Plan: p.id, N: n, Name: lease})
	switch {
	case !armed(p.row) && l.GetUntilNs() == 0:
		return nil, nil, nil, void("plan %s is %s", p.id, statusName(p.row))
	case givenUp(p) && n == 0 && turnOf(p, rows.Lease{Plan: p.id, Name: lease}) == nil:
		return nil, nil, nil, void("plan %s was committed, and what it held itself went with that", p.id)
	case !armed(p.row) && waitsForPart(p):
		return nil, nil, nil, void("a part of plan %s is being undone", p.id)
	case p.row.Fired != nil:
		return nil, nil, nil,
			void("plan %s unwinds already for %s", p.id, ledger.FormatAddress(p.row.Fired))
	case l == nil || l.Fired || a == nil && s.e.Record.Action != "":
		return nil, nil, nil, void("plan %s holds no lease %s", p.id, lease)
	case inTime(p, l):
		return nil, nil, nil, void("plan %s was committed before its deadline, at %s", p.id,
			ledger.FormatAddress(p.row.Committed))
	case stopped(l):
		return nil, nil, nil, void("lease %s of plan %s is %s", lease, p.id, cascadeName(l.Cascade))
	}
	// A late copy of an earlier firing, of a plan that is back at a savepoint since, is none of this
	// turn.
	if t := firstTurn(p, rows.Lease{Plan: p.id, N: n, Name: lease}); t != nil && !t.Clocked &&
		!samePlace(s.e.Record.Cause, t.At, s.e) {
		return nil, nil, nil, void("lease %s of plan %s turned at %s, and this fires for %s", lease, p.id,
			ledger.FormatAddress(t.At), ledger.FormatAddress(s.e.Record.Cause))
	}
	if !armed(p.row) {
		if why := notFirst(p, a, l); why != "" {
			return nil, nil, nil, void("%s", why)
		}
	}
	f, truth := p.firing(a, l)
	switch {
	case truth != triggers.True:
		return nil, nil, nil, void("lease %s of plan %s is %s here", lease, p.id, truth)
	case depth != f.Depth:
		return nil, nil, nil, void("depth %d, but what lease %s of plan %s read makes it %d", depth,
			lease, p.id, f.Depth)
	case !s.sameChain(chain, f):
		return nil, nil, nil, void("the chain is not what led to lease %s of plan %s", lease, p.id)
	}
	f.Fired = s.e.Address
	return l, a, f, effective
}

func (s *fold) sameChain(chain []*pb.Link, f *rowspb.Firing) bool {
	same := func(a, b *pb.Address) bool { return a == b || a != nil && samePlace(a, b, s.e) }
	return slices.EqualFunc(chain, s.chain(f), func(a, b *pb.Link) bool {
		return a.Plan == b.Plan && a.Action == b.Action && a.Lease == b.Lease && same(a.Fired, b.Fired) &&
			a.UndonePlan == b.UndonePlan && a.Undone == b.Undone && a.Key == b.Key && same(a.Fact, b.Fact) &&
			a.Retracted == b.Retracted
	})
}

// before are the firings that led to one, oldest first.
func (s *State) before(f *rowspb.Firing) (list []*rowspb.Firing) {
	for len(list) < chainMax {
		at := f.Passed
		if f.By != nil {
			at = f.By.Fired
		}
		if f = s.firingAt(at); f == nil {
			break
		}
		list = append(list, f)
	}
	slices.Reverse(list)
	return list
}

// chain tells what led to a firing, as a record has it.
func (s *State) chain(f *rowspb.Firing) (links []*pb.Link) {
	list := append(s.before(f), f)
	for i, g := range list[:len(list)-1] {
		link := &pb.Link{Plan: g.Plan, Action: g.Action, Lease: g.Lease, Fired: g.Fired}
		if by := list[i+1].By; by != nil {
			link.UndonePlan, link.Undone, link.Key, link.Fact, link.Retracted = by.UndonePlan, by.Undone,
				by.Key, by.Fact, by.Retracted
		}
		links = append(links, link)
	}
	return links
}

// noteFired takes note of a lease that fires.
func (p *plan) noteFired(l *rowspb.LeaseRow, f *rowspb.Firing) {
	s := p.s
	f.Said, f.Resumed = p.turnedFor(l, f), p.resumedBy(l, f)
	l.Cascade = rowspb.Cascade_CASCADE_NONE
	p.row.Firing = f
	if f.Depth < 2 {
		return
	}
	p.row.Cascaded++
	if hour := s.meta.TimeNs / hourNs; hour != s.meta.CascadeHour {
		s.meta.CascadeHour, s.meta.Cascaded = hour, 0
	}
	s.meta.Cascaded++
}

// passOn declares a plan failed, or a part of it, for the lease of a plan that is part
// of it. What that plan undoes already needs no word; one that goes back elsewhere is undone as a
// whole: it goes back to one place.
func (s *fold) passOn(to *plan, f *rowspb.Firing, reason string, part back) {
	if s.keepsTurns() && part != (back{}) && to.partly() && undoes(to, part.action) {
		return
	}
	before := to.row.Passed
	s.keepFiring(f)
	to.row.Passed = f
	if to.partly() {
		part = back{}
	}
	if s.signal(to, rowspb.Signal_SIGNAL_FAILED, reason, part).Verdict != Effective {
		to.row.Passed = before
	}
}

// cascadeCut holds a lease that turned true over a limit, until its plan's owner
// answers.
func (s *fold) cascadeCut(p *plan, k *pb.CascadeCut) Result {
	l, a, f, result := s.claimed(p, k.Lease, k.Depth, k.Chain)
	switch {
	case result.Verdict != Effective:
		return result
	case standing(l.Name) != "" || f.Depth < 2:
		return void("lease %s of plan %s turned by no cascade", k.Lease, p.id)
	}
	l.Cascade, l.TurnedNs = rowspb.Cascade_CASCADE_CUT, 0
	if a != nil {
		a.change()
	}
	ref := rows.Lease{Plan: p.id, N: number(a), Name: l.Name}
	if turnedBy(p, ref) != nil {
		p.nextTurn(anyTurn)
	}
	s.index(ref, l, 0, nil, false)
	if len(p.row.Cuts) == 0 {
		s.meta.Cut++
	}
	f.Fired = nil
	p.row.Cuts = append(p.row.Cuts, &rowspb.Cut{Action: ref.N, Lease: l.Name, At: s.e.Address,
		AtNs: s.meta.TimeNs, Why: k.Why, Firing: f})
	p.listOwner()
	p.page(a, api.PageCascadeCut, fmt.Sprintf("lease %s is held, the cascade was cut: %s", l.Name,
		k.Why), s.e.Address)
	p.touch()
	p.evaluatePlan(s.e.Address) // another lease may have turned after this one
	if p.row.HeldOn > 0 {
		s.endOf(p)
	}
	return effective
}

// listOwner keeps a plan on the list of those that wait for their owner while
// something of it is quarantined or cut.
func (p *plan) listOwner() {
	s := p.s
	// of a commit, or for an act
	waits := !ordered(p.row) && (p.row.Quarantined > 0 || orphaned(p.row))
	if p.row.Phase == rowspb.Phase_PHASE_QUARANTINED || len(p.row.Cuts) > 0 || waits {
		rows.Owners.Add(s.tx, p.id)
		return
	}
	rows.Owners.Delete(s.tx, p.id)
}

// uncut takes leases from the owner of a plan again: they were answered, or their
// plan has no use for them.
func (p *plan) uncut(to rowspb.Cascade, gone func(*rowspb.Cut) bool) {
	s := p.s
	var kept []*rowspb.Cut
	for _, c := range p.row.Cuts {
		if !gone(c) {
			kept = append(kept, c)
			continue
		}
		if l, a := p.lease(rows.Lease{Plan: p.id, N: c.Action, Name: c.Lease}); l != nil {
			if l.Cascade = to; a != nil {
				a.change()
			}
		}
	}
	if len(kept) == len(p.row.Cuts) {
		return
	}
	for _, c := range p.row.Cuts {
		if !slices.ContainsFunc(kept, func(other *rowspb.Cut) bool { return other.Action == c.Action }) {
			var a *action
			if c.Action != 0 {
				a = p.action(c.Action)
			}
			p.unpage(a, api.PageCascadeCut)
		}
	}
	p.row.Cuts = kept
	if len(kept) == 0 {
		s.meta.Cut--
		p.listOwner()
	}
	p.touch()
}

func ofPlan(c *rowspb.Cut) bool { return c.Action == 0 }

func anyCut(*rowspb.Cut) bool { return true }

func cascadeName(c rowspb.Cascade) string {
	return [...]string{"", "cut", "resumed", "given up"}[c]
}

// What has turned true beside a lease that fires. It was true while its plan was armed, so that it
// fires, too: once the plan is open again, if it ever is.

// keepsTurns reports whether what has turned true is acted upon also after the unwind of a part
// of its plan, for another lease, has begun. Earlier holders forgot it.
func (s *State) keepsTurns() bool { return s.meta.HolderFold >= ledger.KeptSince }

// takeTurns takes up the turns of a plan of which a lease fires, and returns its own, or nil.
// The others wait until the plan is open again.
func (p *plan) takeTurns(ref rows.Lease) *rowspb.Turned {
	own, first, rest := turnOf(p, ref), p.row.Turned, p.row.Behind
	p.row.Turned, p.row.Behind = nil, nil
	if !p.s.keepsTurns() {
		return own
	}
	if first != nil && first != own {
		p.row.Behind = append(p.row.Behind, first)
	}
	for _, t := range rest {
		if t != own {
			p.row.Behind = append(p.row.Behind, t)
		}
	}
	return own
}

// answered reports whether a lease has fired before its plan was undone in another part, and has no
// turn that is still to be acted upon: its action is as its owner has left it. Earlier holders had
// it fire again, and again.
func answered(p *plan, n uint32, l *rowspb.LeaseRow) bool {
	return l.Fired && p.s.meta.HolderFold >= ledger.AnsweredSince &&
		turnOf(p, rows.Lease{Plan: p.id, N: n, Name: l.Name}) == nil
}

// ofSignal reports whether a lease is what was asked for: it holds as long as the signal does.
func ofSignal(lease string) bool { return lease == leaseFailed || lease == leaseCancelled }

// turnAgain takes up what had turned true before a part of the plan was undone: it is acted upon,
// whatever its condition is by now (I13), unless it undoes an action only that the part has undone,
// or which its owner's word keeps. One on the clock is over with its action.
func (p *plan) turnAgain(stays map[uint32]bool) {
	p.row.Behind = slices.DeleteFunc(p.row.Behind, func(t *rowspb.Turned) bool {
		l, a := p.lease(rows.Lease{Plan: p.id, N: t.Action, Name: t.Lease})
		return l == nil || l.Fired || stopped(l) || inTime(p, l) || ofSignal(l.Name) ||
			(l.OfAction || t.Clocked) && a != nil && settled(a.row.Undo) || l.OfAction && stays[t.Action]
	})
	if len(p.row.Behind) == 0 {
		return
	}
	first := max(0, slices.IndexFunc(p.row.Behind, func(t *rowspb.Turned) bool { return !t.Clocked }))
	t := p.row.Behind[first]
	p.row.Turned, p.row.Behind = t, slices.Delete(p.row.Behind, first, first+1)
	if ref := (rows.Lease{Plan: p.id, N: t.Action, Name: t.Lease}); t.Clocked {
		l, a := p.lease(ref)
		p.s.index(ref, l, wakeNow, nil, false)
		p.mark(a)
	}
	p.touch()
}

// besidePart is the plan that a verdict which is to undo a plan has undone as a cancel does, or
// nil: its action happened and was undone in a part of that, or is being undone, and no lease on it
// fires any more.
func besidePart(a *action, k *pb.VerdictGiven) *plan {
	p, undo := wholeOf(a.plan), a.row.Undo
	part := stops(p.row) && settled(undo) || p.row.Rewinding && undo != rowspb.Undo_UNDO_HELD
	if !part || !crossed(a) || k.Outcome == pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW ||
		p.s.ofAction(k.Scope) || p.s.meta.HolderFold < ledger.BesidePartSince {
		return nil
	}
	return p
}

// wholeOf is the plan that a committed child is a part of, and so on; of another plan, that one.
func wholeOf(p *plan) *plan {
	for keeps(p.row) || child(p.row) && p.row.Committed != nil &&
		p.s.meta.HolderFold >= ledger.WholeSince {
		p, _ = p.entry()
	}
	return p
}

// isCommitted reports whether the plan that a plan is a part of is committed.
func isCommitted(p *plan) bool { return wholeOf(p).row.Phase == rowspb.Phase_PHASE_COMMITTED }
