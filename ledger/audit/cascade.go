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

// provenance gives a fact the depth of the unwind that made it: the record names the
// plan and the action whose undo is under way, or was not long ago.
func (b *book) provenance(e ledger.Entry, f *fact) {
	f.depth, f.fired, f.undonePlan, f.undoneA, f.madeAt = 0, nil, "", "", nil
	p := b.plan(e.Record.Plan)
	if p == nil || p.firing == nil {
		return
	}
	a := p.named(e.Record.Action)
	if a == nil || !a.flying() && (a.undo != compensated || b.now-a.settledNs > recently) {
		return
	}
	f.depth, f.fired, f.undonePlan, f.undoneA, f.madeAt = p.firing.depth, p.firing.fired, p.id, a.id, e.Address
}

// firingNow is as what a lease that is true fires, after the facts that it read: at
// depth 1, or one deeper than the deepest of them (I25).
func (b *book) firingNow(p *plan, l *lease, read []string) *firing {
	f := &firing{depth: 1}
	if p.passed != nil && l.name == leaseFailed {
		f.depth, f.passed = p.passed.depth, p.passed.fired
	} else if f.by = b.deepest(read); f.by != nil {
		f.depth = f.by.depth + 1
	}
	if l.cascade == goneOn {
		f.depth = 1
	}
	return f
}

// deepest is the fact of the deepest undo among keys, or nil.
func (b *book) deepest(keys []string) (by *made) {
	for _, key := range keys {
		f := b.fact(key)
		if f == nil || f.depth == 0 || by != nil && f.depth <= by.depth {
			continue
		}
		by = &made{key, f.madeAt, f.retracted, f.depth, f.undonePlan, f.undoneA, f.fired}
	}
	return by
}

// claimed checks what a record claims of a firing: it counts only as this place of
// the ledger has it.
func (b *book) claimed(e ledger.Entry, p *plan, name string, depth uint32, chain []*pb.Link) (*lease, *action, *firing, verdict) {
	l, a := p.lease(p.number(e.Record.Action), name)
	switch {
	case !p.armed():
		return nil, nil, nil, void("I15", "plan %s is %s", p.id, p.status())
	case p.fired != nil:
		return nil, nil, nil, void("I14", "plan %s unwinds already for %s", p.id, ledger.FormatAddress(p.fired))
	case l == nil || l.fired || a == nil && e.Record.Action != "":
		return nil, nil, nil, void("I14", "plan %s holds no lease %s", p.id, name)
	case p.phase == ledger.StateCommitting && l.name == leaseDeadline:
		return nil, nil, nil, void("I15", "plan %s was committed before its deadline", p.id)
	case l.stopped():
		return nil, nil, nil, void("I25", "lease %s of plan %s is %s", name, p.id, l.cascade)
	}
	p.chosen(numberOf(a), name)
	if t := p.turnedBy(numberOf(a), name); t != nil && !t.clocked && !samePlace(e.Record.Cause, t.at, e) {
		return nil, nil, nil, void("I12", "lease %s of plan %s turned at %s, and this fires for %s", name, p.id, ledger.FormatAddress(t.at), ledger.FormatAddress(e.Record.Cause))
	}
	f, truth := b.asWhat(p, a, l)
	switch {
	case truth != triggers.True && b.clocked(l):
		return nil, nil, nil, void("I16", "lease %s of plan %s is %s here: it would fire early", name, p.id, truth)
	case truth != triggers.True:
		return nil, nil, nil, void("I11", "lease %s of plan %s is %s here", name, p.id, truth)
	case depth != f.depth:
		return nil, nil, nil, void("I25", "depth %d, but what lease %s of plan %s read makes it %d", depth, name, p.id, f.depth)
	case !b.sameChain(e, chain, f):
		return nil, nil, nil, void("I25", "the chain is not what led to lease %s of plan %s", name, p.id)
	}
	return l, a, f, effective
}

// asWhat says whether a lease has turned or is true here, and as what it fires.
func (b *book) asWhat(p *plan, a *action, l *lease) (*firing, triggers.Truth) {
	f := &firing{depth: 1}
	if t := p.turnedBy(numberOf(a), l.name); t != nil {
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

// chain tells what led to a firing, the oldest first, as a record has it.
func (b *book) chain(f *firing) (links []*pb.Link) {
	list := []*firing{f}
	for next := f; len(list) <= DepthMax; {
		at := next.passed
		if next.by != nil {
			at = next.by.fired
		}
		if at == nil || b.firing(at) == nil {
			break
		}
		next = b.firing(at)
		list = append(list, next)
	}
	slices.Reverse(list)
	for i, g := range list[:len(list)-1] {
		link := &pb.Link{Plan: g.plan, Action: g.action, Lease: g.lease, Fired: g.fired}
		if by := list[i+1].by; by != nil {
			link.UndonePlan, link.Undone, link.Key, link.Fact, link.Retracted = by.undonePlan, by.undone, by.key, by.fact, by.retracted
		}
		links = append(links, link)
	}
	return links
}

func (b *book) sameChain(e ledger.Entry, chain []*pb.Link, f *firing) bool {
	return slices.EqualFunc(chain, b.chain(f), func(x, y *pb.Link) bool {
		return x.Plan == y.Plan && x.Action == y.Action && x.Lease == y.Lease && samePlace(x.Fired, y.Fired, e) &&
			x.UndonePlan == y.UndonePlan && x.Undone == y.Undone && x.Key == y.Key && samePlace(x.Fact, y.Fact, e) && x.Retracted == y.Retracted
	})
}

// leaseFired takes a firing. Of a committed child it declares the root failed.
func (b *book) leaseFired(e ledger.Entry, p *plan, k *pb.LeaseFired) verdict {
	if k.Lease == leaseDuplicate {
		return b.duplicateFired(e, p)
	}
	l, a, f, v := b.claimed(e, p, k.Lease, k.Depth, k.Chain)
	if !v.ok() {
		return v
	}
	f.fired = e.Address
	l.cascade, l.fired = "", true
	p.firing = f
	b.firings.put(firingKey(placeOf(e.Address)), f, firingLen)
	p.turned, p.behind = nil, nil
	reason := "lease " + k.Lease + ": " + l.condition()
	if k.Lease == leaseVerdict || k.Lease == leaseUnheard {
		reason = "verdict " + p.scope(a, l).Verdict.Outcome + " on action " + a.id + " by " + a.verdictBy
		if a.verdictReason != "" {
			reason += ": " + a.verdictReason
		}
	}
	if p.phase == ledger.StateCommitted {
		root := p.root()
		before := root.passed
		root.passed = f
		if !b.signal(root, signalFailed, reason+" (child plan "+p.id+")", "").ok() {
			root.passed = before
		}
		return effective
	}
	p.fired = e.Address
	if p.reason == "" {
		p.reason = reason
	}
	return effective
}

// cascadeCut holds a lease that turned over a limit until the owner answers.
func (b *book) cascadeCut(e ledger.Entry, p *plan, k *pb.CascadeCut) verdict {
	l, a, f, v := b.claimed(e, p, k.Lease, k.Depth, k.Chain)
	switch {
	case !v.ok():
		return v
	case l.text == "" || f.depth < 2:
		return void("I25", "lease %s of plan %s turned by no cascade", k.Lease, p.id)
	}
	l.cascade, l.joined = cutShort, false
	if p.turnedBy(numberOf(a), l.name) != nil {
		b.nextTurn(p, func(*turn) bool { return true })
	}
	p.cuts = append(p.cuts, &cut{number: numberOf(a), lease: l.name, at: e.Address})
	b.page(p, a, api.PageCascadeCut, e.Address)
	b.lookPlan(p)
	return effective
}

// uncut takes leases from the owner again.
func (b *book) uncut(p *plan, to string, gone func(*cut) bool) {
	var kept, went []*cut
	for _, c := range p.cuts {
		if gone(c) {
			went = append(went, c)
			if l, _ := p.lease(c.number, c.lease); l != nil {
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

// cascadeAnswered takes the owner's word on leases that are cut.
func (b *book) cascadeAnswered(e ledger.Entry, p *plan, k *pb.CascadeAnswered) verdict {
	number := p.number(e.Record.Action)
	if e.Record.Action != "" && number == 0 && len(p.cuts) > 0 {
		return refused("I6", "action %s is not registered in plan %s", e.Record.Action, p.id)
	}
	answer, to := "give-up", givenUp
	if k.Resume {
		answer, to = "resume", goneOn
	}
	var meant, said []*cut
	for _, c := range p.cuts {
		if (e.Record.Action == "" || c.number == number) && (k.Lease == "" || c.lease == k.Lease) && (e.Record.Cause == nil || sameAddress(c.at, e.Record.Cause)) {
			meant = append(meant, c)
		}
	}
	if len(meant) == 0 {
		return refused("I25", "no such lease of plan %s waits behind a cut cascade", p.id)
	}
	for _, c := range meant {
		if counts, waits := p.counts(e, c.proposal, proposal{answer: answer}); counts {
			said = append(said, c)
		} else {
			c.proposal = waits
		}
	}
	if len(said) == 0 {
		return effective
	}
	b.uncut(p, to, func(c *cut) bool { return slices.Contains(said, c) })
	if k.Resume {
		b.lookPlan(p)
	}
	return effective
}

// counts reports whether an owner's answer counts now: at once, or, where the plan
// asks for a second approver, when another operator has given the same one. Otherwise
// it waits as a proposal.
func (p *plan) counts(e ledger.Entry, first *proposal, answer proposal) (bool, *proposal) {
	answer.operator = e.Source.Name
	if !p.secondApprover() {
		return true, nil
	}
	if first != nil && first.operator != answer.operator && first.answer == answer.answer && first.halt == answer.halt && first.force == answer.force {
		return true, nil
	}
	return false, &answer
}
