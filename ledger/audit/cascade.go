package audit

import (
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// What a cascade limit and the owner have made of a lease.
const (
	cutShort = "cut"
	goneOn   = "resumed"
	givenUp  = "given up"
)

// DepthMax bounds the depth of a cascade, in leases (I25): no holder's own limit is
// above it.
const DepthMax = 64

// recently is how long a compensated action may still be named by the facts that its
// undo has made, in ns of logical time.
const recently = int64(3600e9)

// notesCascade gives a fact the depth of the unwind that made it: the record names the
// plan and the action whose undo is under way, or was not long ago.
func (b *book) notesCascade(e ledger.Entry, f *fact) {
	f.depth, f.fired, f.undonePlan, f.undoneA, f.madeAt = 0, nil, "", "", nil
	p := b.plan(e.Record.Plan)
	if p == nil || p.firing == nil {
		return
	}
	a := p.named(e.Record.Action)
	if a == nil || !a.isOut() && (a.undo != compensated || b.now-a.settledNs > recently) {
		return
	}
	f.depth, f.fired, f.undonePlan, f.undoneA, f.madeAt = p.firing.depth, p.firing.fired, p.id,
		a.id, e.Address
}

// firingNow is the firing of a lease that is true, after the facts that it read: at
// depth 1, or one deeper than the deepest of them (I25).
func (b *book) firingNow(p *plan, l *lease, read []string) *firing {
	f := &firing{depth: 1}
	if p.passed != nil && l.name == leaseFailed {
		f.depth, f.passed = p.passed.depth, p.passed.fired
	} else if f.by = b.deepestOf(read); f.by != nil {
		f.depth = f.by.depth + 1
	}
	if l.cascade == goneOn {
		f.depth = 1
	}
	return f
}

// deepestOf is the fact of the deepest undo among keys, or nil.
func (s *store) deepestOf(keys []string) (by *made) {
	for _, key := range keys {
		f := s.fact(key)
		if f == nil || f.depth == 0 || by != nil && f.depth <= by.depth {
			continue
		}
		by = &made{key, f.madeAt, f.retracted, f.depth, f.undonePlan, f.undoneA, f.fired}
	}
	return by
}

// asWhat says whether a lease has turned or is true here, and its firing.
func (b *book) asWhat(p *plan, a *action, l *lease) (*firing, triggers.Truth) {
	f := &firing{depth: 1}
	if t := p.firstTurn(numberOf(a), l.name); t != nil {
		if t.firing != nil {
			g := *t.firing
			f = &g
		}
	} else {
		truth, read := b.truth(p, a, l)
		if truth != triggers.True {
			return nil, truth
		}
		f = b.firingNow(p, l, read)
	}
	f.plan, f.lease = p.id, l.name
	if a != nil {
		f.action = a.id
	}
	return f, triggers.True
}

// chainOf tells what led to a firing, the oldest first, as a record has it.
func (s *store) chainOf(f *firing) (links []*pb.Link) {
	list := []*firing{f}
	for next := f; len(list) <= DepthMax; {
		at := next.passed
		if next.by != nil {
			at = next.by.fired
		}
		if at == nil || s.firing(at) == nil {
			break
		}
		next = s.firing(at)
		list = append(list, next)
	}
	slices.Reverse(list)
	for i, g := range list[:len(list)-1] {
		link := &pb.Link{Plan: g.plan, Action: g.action, Lease: g.lease, Fired: g.fired}
		if by := list[i+1].by; by != nil {
			link.UndonePlan, link.Undone, link.Key, link.Fact, link.Retracted = by.undonePlan,
				by.undone, by.key, by.fact, by.retracted
		}
		links = append(links, link)
	}
	return links
}

func (s *store) sameChain(e ledger.Entry, chain []*pb.Link, f *firing) bool {
	return slices.EqualFunc(chain, s.chainOf(f), func(x, y *pb.Link) bool {
		return x.Plan == y.Plan && x.Action == y.Action && x.Lease == y.Lease &&
			samePlace(x.Fired, y.Fired, e) &&
			x.UndonePlan == y.UndonePlan && x.Undone == y.Undone && x.Key == y.Key &&
			samePlace(x.Fact, y.Fact, e) && x.Retracted == y.Retracted
	})
}

// releaseCuts takes leases from the owner again.
func (b *book) releaseCuts(p *plan, to string, gone func(*cut) bool) {
	var kept, went []*cut
	for _, c := range p.cuts {
		if gone(c) {
			went = append(went, c)
			if l, _ := p.leaseNamed(c.number, c.lease); l != nil {
				l.cascade = to
			}
			continue
		}
		kept = append(kept, c)
	}
	for _, c := range went {
		if !slices.ContainsFunc(kept, func(other *cut) bool { return other.number == c.number }) {
			delete(b.pages, page{p.id, c.number, api.PageCascadeCut})
		}
	}
	p.cuts = kept
}

// counts reports whether an owner's answer counts now: at once, or, where the plan
// asks for a second approver, when another operator has given the same one. Otherwise
// it waits as a proposal.
func (p *plan) counts(e ledger.Entry, first *proposal, answer proposal) (bool, *proposal) {
	answer.operator = e.Source.Name
	if !p.needsTwo() {
		return true, nil
	}
	if first != nil && first.operator != answer.operator && first.answer == answer.answer &&
		first.halt == answer.halt && first.force == answer.force {
		return true, nil
	}
	return false, &answer
}

// noteFiring takes a firing. Of a committed child it declares the root failed.
func noteFiring(b *book, c *claim) {
	p, a, l, k := c.p, c.a, c.l, c.Record.GetLeaseFired()
	if k.Lease == leaseDuplicate {
		noteExtra(b, c)
		return
	}
	if p.hasFired == nil {
		p.hasFired = map[string]place{}
	}
	p.hasFired[firedName(c.Record)] = placeOf(c.Address)
	f := c.firing
	f.fired = c.Address
	l.cascade, l.fired = "", true
	p.firing = f
	b.firings.put(firingKey(placeOf(c.Address)), f, firingLen)
	mine := p.turnOf(numberOf(a), l.name)
	p.setTurnsAside(mine, b.rules)
	reason := "lease " + k.Lease + ": " + l.conditionText()
	if k.Lease == leaseVerdict || k.Lease == leaseUnheard {
		reason = verdictText(a)
	}
	if isRetired(p) {
		c.firesSince(reason)
		return
	}
	if p.phase == ledger.StateCommitted {
		up, part := p.root(), back{}
		if l.single {
			up, part = p.undoneWith()
		}
		c.passesUp(up, part, reason+" (child plan "+p.id+")")
		b.takeNextTurn(p, func(*turn) bool { return true })
		return
	}
	p.fired = c.Address
	if remembers(b.rules) && p.goesBack() && l.name != leaseFailed && l.name != leaseCancelled {
		c.firesForMore(mine)
	}
	if l.single && p.signal == "" {
		p.fromAction = a.id
	}
	if p.reason == "" {
		p.reason = reason
	}
}

// passesUp declares a plan failed for the lease of a committed child, or a part of it. It goes
// back to one place only: if that does not hold the child, all of it is undone.
func (c *claim) passesUp(up *plan, part back, reason string) {
	if up.goesBack() {
		if remembers(c.b.rules) && part.action != "" && up.isUndoing(part.action) {
			return
		}
		part = back{}
	}
	before := up.passed
	up.passed = c.firing
	if !c.b.wants(up, signalFailed, reason, part) {
		up.passed = before
	}
}

// isUndoing: an action is among those that the plan undoes, or is about to.
func (p *plan) isUndoing(id string) bool {
	a := p.named(id)
	if p.rewinding {
		return a.undo != held
	}
	return p.part(p.wanted())[a.n]
}

// firesForMore: a lease fires where a part of the plan was asked to be undone. One on the plan
// undoes all of it; one on an action waits for its turn once more, as the part may miss it.
func (c *claim) firesForMore(mine *turn) {
	b, p, l := c.b, c.p, c.l
	if !l.single {
		p.toSavepoint, p.fromAction, p.reason = "", "", ""
		return
	}
	if mine == nil {
		g := *c.firing
		mine = &turn{number: c.a.n, lease: l.name, ns: b.now, at: c.Address,
			clocked: clocked(b.programs, l), firing: &g, read: c.Record.GetLeaseFired().Readings}
	}
	if len(p.behind) < behindMax {
		p.behind = append([]*turn{mine}, p.behind...)
	}
}

// undoneWith is the plan that undoes a committed child as a whole, for one of its actions, and
// the entry of the child there.
func (p *plan) undoneWith() (up *plan, part back) {
	for up = p; up.stillHolds(); up = up.parent {
		part.action = up.parent.actions[up.entry-1].id
	}
	return up, part
}

// noteCut holds a lease that turned over a limit until the owner answers.
func noteCut(b *book, c *claim) {
	p, l := c.p, c.l
	l.cascade, l.joined, l.trueNs = cutShort, false, 0
	listMore(b, p, l)
	if p.choose(numberOf(c.a), l.name) {
		b.takeNextTurn(p, func(*turn) bool { return true })
	}
	p.cuts = append(p.cuts, &cut{number: numberOf(c.a), lease: l.name, at: c.Address})
	b.page(p, c.a, api.PageCascadeCut, c.Address)
	b.lookPlan(p)
	endOf(b, p)
}

// cutBy are the cuts that an owner's answer means.
func (p *plan) cutBy(r *pb.Record) (meant []*cut) {
	number, lease := p.numberNamed(r.Action), r.GetCascadeAnswered().Lease
	for _, x := range p.cuts {
		named := (r.Action == "" || x.number == number) && (lease == "" || x.lease == lease)
		if named && (r.Cause == nil || sameAddress(x.at, r.Cause)) {
			meant = append(meant, x)
		}
	}
	return meant
}

// noteCascadeAnswer takes the owner's word on leases that are cut.
func noteCascadeAnswer(b *book, c *claim) {
	p, resume := c.p, c.Record.GetCascadeAnswered().Resume
	answer, to := "give-up", givenUp
	if resume {
		answer, to = "resume", goneOn
	}
	var said []*cut
	for _, x := range p.cutBy(c.Record) {
		if counts, waits := p.counts(c.Entry, x.proposal, proposal{answer: answer}); counts {
			said = append(said, x)
		} else {
			x.proposal = waits
		}
	}
	if len(said) == 0 {
		return
	}
	b.releaseCuts(p, to, func(x *cut) bool { return slices.Contains(said, x) })
	if resume {
		b.lookPlan(p)
	}
	endOf(b, p) // the answer may have come after its window
}

// firstTurn is turnedBy also where the lease turned at the same record as the first one:
// which of them is asked first is no one's rule.
func (p *plan) firstTurn(number uint32, name string) *turn {
	if i := p.besideFirst(number, name); i >= 0 {
		return p.behind[i]
	}
	return p.turnedBy(number, name)
}

// besideFirst finds a lease that turned at the same record as the first one; -1: it did not.
func (p *plan) besideFirst(number uint32, name string) int {
	return slices.IndexFunc(p.behind, func(t *turn) bool {
		return p.turned != nil && t.number == number && t.lease == name &&
			sameAddress(t.at, p.turned.at) &&
			t.clocked == p.turned.clocked
	})
}

// choose takes a lease that a holder names for the first one, if it is as good as that.
func (p *plan) choose(number uint32, name string) bool {
	if i := p.besideFirst(number, name); i >= 0 {
		p.turned, p.behind[i] = p.behind[i], p.turned
	}
	return p.turnedBy(number, name) != nil
}
