package audit

import (
	"maps"
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// planChapters are those of what a holder says of a whole plan.
var planChapters = map[string]*chapter{
	"unwind_started": {
		counts: unwindClauses,
		content: []clause{{"I15.unwind",
			"What unwinds was open, committing, or committed as a part.",
			func(c *claim) judgement { return c.p.neverEnded() }},
			{"I21.part-of-plan", "An unwind says what it undoes of its plan.",
				func(c *claim) judgement {
					right := func(c *claim) bool { return saysItsPart(c.p, c.Record) }
					return unless(c.wasRight(right),
						"savepoint %q or action %q of plan %s", c.p.toSavepoint, c.p.fromAction,
						c.p.id)
				}}},
		collect: noteUnwind,
	},
	"plan_rewound": {
		counts: []clause{openedPlan,
			{"I21.rewound",
				"A plan is back at its savepoint when all that came after it has been undone.",
				func(c *claim) judgement {
					p := c.p
					back := p.rewinding && p.phase == ledger.StateUnwinding && p.nothingGoesOn() &&
						p.count(quarantined) == 0 && len(p.openClaims()) == 0
					return unless(back, "plan %s is %s and not back at %s", p.id, p.status(),
						c.Record.GetPlanRewound().Savepoint)
				}}},
		collect: noteRewound,
	},
	"plan_ended": {counts: endingClauses, content: endedContent, collect: noteEnd},
	"held_set_retired": {counts: retirementClauses, content: retiredContent,
		collect: noteRetirement},
	"key destroyed": {
		counts: []clause{openedPlan,
			{"I6.destroyed", "A key is destroyed for a request to erase its plan.",
				func(c *claim) judgement {
					return unless(c.p.erased != nil && sameAddress(c.Record.Cause, c.p.erased),
						"cause: no one asked there to erase plan %s", c.p.id)
				}},
			{"I5.destroyed", "A key is destroyed once.", func(c *claim) judgement {
				return unless(c.p.shredded == nil, "the key of plan %s was destroyed", c.p.id)
			}}},
		collect: func(_ *book, c *claim) { c.p.shredded = c.Address },
	},
	"owner_paged": {
		counts: []clause{openedPlan,
			{"I6.page", "A page that was taken is one that was open.", func(c *claim) judgement {
				at := c.b.pages[c.pageKey()]
				return unless(at != nil && sameAddress(c.Record.Cause, at),
					"no page of kind %s about plan %s is open",
					c.Record.GetOwnerPaged().Kind, c.p.id)
			}}},
		collect: func(b *book, c *claim) { delete(b.pages, c.pageKey()) },
	},
}

// saysItsPart reports whether a record that begins the unwind of a plan says what that undoes of
// it: any other record does, and so does a part of the parent's unwind, which says nothing of that.
func saysItsPart(p *plan, r *pb.Record) bool {
	k := r.GetUnwindStarted()
	return k == nil || k.ParentPlan != "" ||
		p != nil && p.wanted() == back{k.ToSavepoint, k.FromAction}
}

func (c *claim) pageKey() page {
	return page{c.p.id, c.p.numberNamed(c.Record.Action), c.Record.GetOwnerPaged().Kind}
}

// asPart makes a clause on an unwind that is, or is not, a part of a parent's.
func asPart(part bool, id, says string, judge func(c *claim) judgement) clause {
	return clause{id, says, func(c *claim) judgement {
		if part != (c.Record.GetUnwindStarted().ParentPlan != "") {
			return judgement{}
		}
		return judge(c)
	}}
}

var unwindClauses = []clause{openedPlan,
	asPart(true, "I21.part", "A child unwinds as a part of its own parent.",
		func(c *claim) judgement {
			parent := c.Record.GetUnwindStarted().ParentPlan
			return unless(c.p.parent != nil && c.p.declared.ParentPlan == parent,
				"plan %s is no part of plan %s", c.p.id, parent)
		}),
	asPart(true, "I21.turn",
		"A child unwinds when what came after it in its parent has been passed.",
		func(c *claim) judgement {
			parent := c.p.parent
			turn := parent.phase == ledger.StateUnwinding &&
				parent.isReady(parent.actions[c.p.entry-1])
			return unless(turn, "plan %s is %s and has not come to plan %s", parent.id,
				parent.status(), c.p.id)
		}),
	asPart(true, "I15.held", "A child unwinds that still holds its set.", func(c *claim) judgement {
		return unless(c.p.holdsLeases(), "plan %s is %s", c.p.id, c.p.phase)
	}),
	asPart(true, "I6.parent-cause", "A child unwinds for what its parent unwinds for.",
		func(c *claim) judgement {
			at := c.p.parent.cause()
			return unless(samePlace(c.Record.Cause, at, c.Entry), "cause: plan %s unwinds for %s",
				c.p.parent.id,
				reference{at})
		}),
	asPart(false, "I15.stops", "A plan unwinds that is open or committing.",
		func(c *claim) judgement {
			return unless(c.p.canStop(), "plan %s is %s", c.p.id, c.p.status())
		}),
	asPart(false, "I11.fired", "A plan unwinds for a lease of its own that has fired.",
		func(c *claim) judgement {
			fired := c.p.fired != nil && samePlace(c.Record.Cause, c.p.fired, c.Entry)
			return unless(fired, "cause: no lease of plan %s fired there", c.p.id)
		}),
}

var endingClauses = []clause{openedPlan,
	{"I31.end", "No plan ends as if an act that was claimed and refused had not happened.",
		func(c *claim) judgement {
			names := c.p.openClaims()
			quarantines := c.Record.GetPlanEnded().End == pb.PlanEnd_PLAN_END_QUARANTINED
			return unless(len(names) == 0 || quarantines || c.endsAtOnce(),
				"quarantined, for %.200q", names)
		}},
	{"I22.end", "A plan ends compensated when all that crossed has been undone.",
		func(c *claim) judgement {
			return c.endsAs(pb.PlanEnd_PLAN_END_COMPENSATED)
		}},
	{"I23.end", "A plan ends as the ends of its actions say.", func(c *claim) judgement {
		return c.endsAs(c.Record.GetPlanEnded().End)
	}},
}

// endsAtOnce: a plan fails without an unwind, because nothing of it has crossed.
func (c *claim) endsAtOnce() bool {
	failed := c.Record.GetPlanEnded().End == pb.PlanEnd_PLAN_END_FAILED
	return failed && c.p.canStop() && c.p.fired != nil && !c.p.anythingCrossed()
}

// endsAs judges one of the ends of a plan.
func (c *claim) endsAs(end pb.PlanEnd) judgement {
	right := c.p.rightEnd()
	switch {
	case c.Record.GetPlanEnded().End != end, c.endsAtOnce():
		return judgement{}
	case right == pb.PlanEnd_PLAN_END_UNSPECIFIED:
		return breaks("no end yet: plan %s is %s", c.p.id, c.p.status())
	}
	return unless(end == right, "%s, and not %s", right, end)
}

// endedContent recounts what an end says.
var endedContent = []clause{
	{"I22.successes",
		"A plan that ended compensated has one success for each crossed compensable action.",
		func(c *claim) judgement {
			if c.Record.GetPlanEnded().End != pb.PlanEnd_PLAN_END_COMPENSATED {
				return judgement{}
			}
			for _, a := range c.p.actions {
				if why := c.p.notUndone(a); why != "" {
					return breaks("%s", why)
				}
			}
			return judgement{}
		}},
	{"I38.end",
		"Delivered is the end of a plan that delivers, where something was; compensated never.",
		func(c *claim) judgement {
			end := c.Record.GetPlanEnded().End
			made := slices.ContainsFunc(c.p.actions, func(a *action) bool { return a.undo == compensated })
			delivered := end != pb.PlanEnd_PLAN_END_DELIVERED || c.p.delivers && made
			undone := end != pb.PlanEnd_PLAN_END_COMPENSATED || !c.p.delivers
			return unless(delivered && undone, "another end than %s of plan %s", end, c.p.id)
		}},
	{"I31.answered", "Only a quarantined plan has an act that no one has answered for.",
		func(c *claim) judgement {
			names := c.p.openClaims()
			quarantines := c.Record.GetPlanEnded().End == pb.PlanEnd_PLAN_END_QUARANTINED
			return unless(len(names) == 0 || quarantines, "an answer for %.200q", names)
		}},
	{"I23.outstanding", "An end names exactly what is owed and not undone.",
		func(c *claim) judgement {
			return unless(c.wasRight(namesRight), "outstanding %.200q, and not %.200q",
				c.namesOwed(), c.Record.GetPlanEnded().Outstanding)
		}},
	{"I22.counts", "An end counts what was undone and what was skipped.", func(c *claim) judgement {
		k := c.Record.GetPlanEnded()
		return unless(c.wasRight(countsRight),
			"%v compensated and skipped, and not %v", c.counts(), [2]int{int(k.Compensated), int(k.Skipped)})
	}},
}

// namesRight reports whether an end names what is owed and not undone.
func namesRight(c *claim) bool {
	return slices.Equal(c.namesOwed(), c.Record.GetPlanEnded().Outstanding)
}

// countsRight reports whether an end counts what was undone and skipped. One that ends at once
// counts nothing.
func countsRight(c *claim) bool {
	k := c.Record.GetPlanEnded()
	said := [2]int{int(k.Compensated), int(k.Skipped)}
	return c.p.phase != ledger.StateUnwinding || c.counts() == said
}

// counts are how many actions of a plan were undone and skipped.
func (c *claim) counts() [2]int { return [2]int{c.p.count(compensated), c.p.count(skipped)} }

// notUndone says what keeps an action from being undone; empty: nothing.
func (p *plan) notUndone(a *action) string {
	crossed := a.mayHaveCrossed() && !a.overtaken() &&
		a.forward.GetClass() == pb.Class_CLASS_COMPENSABLE
	switch {
	case a.child != nil && !a.isSettled():
		return "child plan " + a.child.id + " undone first, which is " + a.child.phase
	case a.child != nil:
	case a.undo == compensated && a.successes != 1 && p.origin == "":
		return "one success of action " + a.id
	case a.undo == skipped && crossed && p.origin == "":
		return "an undo of action " + a.id + ", which crossed"
	case !a.isSettled():
		return "action " + a.id + " undone first, which is " + p.stateOf(a)
	}
	return ""
}

// outstandingMax is how many actions a PlanEnded names.
const outstandingMax = 256

// namesOwed is what an end has to name: what is owed, and the acts that wait for the
// plan's owner.
func (c *claim) namesOwed() (names []string) {
	if !c.endsAtOnce() {
		for _, a := range c.p.actions {
			if !a.isSettled() && a.undo != held && len(names) < outstandingMax {
				names = append(names, a.id)
			}
		}
	}
	return append(names, c.p.openClaims()...)
}

// whileWaiting makes a clause on the retirement of a commit that has waited.
func whileWaiting(id, says string, judge func(b *book, p *plan) judgement) clause {
	return clause{id, says, func(c *claim) judgement {
		if c.p.phase != ledger.StateCommitting {
			return judgement{}
		}
		return judge(c.b, c.p)
	}}
}

var retirementClauses = []clause{openedPlan,
	whileWaiting("I36.decided",
		"A commit retires nothing in doubt, or found more than once, that no one has answered for.",
		func(b *book, p *plan) judgement {
			n := undecided(b, p)
			return unless(n == 0, "an answer for %d actions in doubt, or found more than once", n)
		}),
	whileWaiting("I31.retired",
		"A commit retires nothing beside an act that was claimed and refused.",
		func(_ *book, p *plan) judgement {
			names := p.treeClaims()
			return unless(names == nil, "an answer for %.200q", names)
		}),
	whileWaiting("I15.retired",
		"A commit that has waited is made while nothing has asked for the plan's end.",
		func(_ *book, p *plan) judgement {
			return unless(p.signal == "" && p.fired == nil && p.countOpenChildren() == 0,
				"plan %s is %s", p.id, p.status())
		}),
	whileWaiting("I13.retired", "A commit that has waited is not made after a turned lease.",
		func(_ *book, p *plan) judgement {
			return unless(!slices.ContainsFunc(p.tree(), (*plan).turns),
				"a lease of plan %s, or of a part of it, has turned", p.id)
		}),
	{"I24.retired", "The held set of a root is retired once, after its commit.",
		func(c *claim) judgement {
			due := c.p.phase == ledger.StateCommitted && !c.p.retired && c.p.parent == nil
			return unless(due || c.p.phase == ledger.StateCommitting,
				"plan %s is %s and has nothing to retire", c.p.id, c.p.status())
		}},
	{"I36.named", "A retirement names what it retires in doubt.", func(c *claim) judgement {
		want, said := c.p.inDoubt, c.Record.GetHeldSetRetired().InDoubt
		if c.p.phase == ledger.StateCommitting {
			want = c.p.doubts()
		}
		return unless(slices.Equal(want, said), "in doubt are %.200q, and not %.200q", want, said)
	}},
	{"I24.given-up", "A retirement that commits its plan counts what that gives up.",
		func(c *claim) judgement {
			want, said := c.p.givesUp(), int(c.Record.GetHeldSetRetired().Count)
			return unless(want == said || c.p.phase != ledger.StateCommitting ||
				c.b.rules < ledger.OthersSince, "%d registrations, and not %d", want, said)
		}},
}

// retiredContent recounts what a retirement says.
var retiredContent = []clause{
	{"I24.count", "A retirement counts what its commit has retired.", func(c *claim) judgement {
		want, said := c.p.gaveUp, int(c.Record.GetHeldSetRetired().Count)
		return unless(want == said || c.p.phase == ledger.StateCommitting,
			"%d registrations, and not %d", want, said)
	}},
	{"I36.doubt", "What is retired in doubt is accepted by its plan, or answered for, and named.",
		func(c *claim) judgement { return retiredInDoubt(c.p, c.Record.GetHeldSetRetired()) }},
}

// retiredInDoubt finds an action in doubt that no one has answered for, or that is not named.
func retiredInDoubt(p *plan, k *pb.HeldSetRetired) judgement {
	tree := []*plan{p}
	for _, part := range p.below() {
		if part.retired || part.stillHolds() {
			tree = append(tree, part)
		}
	}
	for _, part := range tree {
		for _, a := range part.actions {
			since := p.phase == ledger.StateCommitted && isEarlier(p.committed, a.registered)
			if !a.retiresUnknown() || p.accepts() || since && a.dutyOf != 0 {
				continue
			}
			answered := a.resolution.GetOutcome() == pb.Resolution_RESOLUTION_SKIPPED
			named := slices.Contains(k.InDoubt, a.id) ||
				slices.Contains(k.InDoubt, part.id+"/"+a.id) ||
				len(k.InDoubt) == namedMax
			if !answered || !named {
				return breaks("an answer for action %s of plan %s, and its name", a.id, part.id)
			}
		}
	}
	return judgement{}
}

// chapters are the clauses of each kind of record, by its name and, where one kind means
// several things, by what is meant.
var chapters = gathered(recordChapters, agentChapters, peopleChapters, leaseChapters, factChapters,
	planChapters, undoChapters, doubtChapters)

func gathered(parts ...map[string]*chapter) map[string]*chapter {
	all := map[string]*chapter{}
	for _, part := range parts {
		maps.Copy(all, part)
	}
	return all
}

// atEnd are asked of each plan once nothing is under way any more.
var atEnd = []clause{deliveredWhole,
	{"L1.ends", "Every unwind ends, and every commit is followed by its retirement.",
		func(c *claim) judgement {
			why := unfinished(c.b, c.p)
			return unless(why == "", "%s", why)
		}},
	{"L2.deadline", "Every deadline that has passed has fired.", func(c *claim) judgement {
		p, at := c.p, c.p.deadlineNs
		passed := p.phase == ledger.StateOpen && p.fired == nil && at > 0 && c.b.now >= at
		return unless(!passed, "a firing of plan.deadline, which has passed")
	}},
	{"I13.fires", "What is true while armed has fired.", func(c *claim) judgement {
		lease := c.b.unfired(c.p)
		return unless(lease == "", "a firing of lease %s, which is true", lease)
	}},
	{"I22.settled", "A plan that ended compensated or failed owes nothing.",
		func(c *claim) judgement {
			if c.p.phase != ledger.StateCompensated && c.p.phase != ledger.StateFailed {
				return judgement{}
			}
			for _, a := range c.p.actions {
				if !a.isSettled() {
					return breaks("an end of action %s, which is %s, in a plan that is %s", a.id,
						state{c.p, a}, c.p.phase)
				}
			}
			return judgement{}
		}},
	{"I24.gone", "Nothing is held of what a commit has retired.", func(c *claim) judgement {
		n := c.p.held()
		return unless(!c.p.retired || n == 0,
			"none of the %d registrations that are held of a retired plan", n)
	}},
}

// unfinished says what of a plan is under way; empty: nothing.
func unfinished(b *book, p *plan) string {
	switch {
	case p.phase == ledger.StateUnwinding:
		return "an end of the plan, which still unwinds"
	case p.phase == ledger.StateQuarantined && p.count(quarantined) == 0 &&
		len(p.openClaims()) == 0:
		return "another end: nothing of the plan waits for its owner"
	case p.canStop() && p.fired != nil:
		return "an unwind: a lease fired"
	case p.phase == ledger.StateCommitting && undecided(b, p) == 0 && p.countOpenChildren() == 0 &&
		p.treeClaims() == nil:
		return "a retirement: the plan is committing, and nothing of it is in doubt"
	case p.phase == ledger.StateCommitted && p.parent == nil && !p.retired && p.origin == "":
		return "a retirement: the plan was committed"
	}
	for _, a := range p.actions {
		if a.doubt != "" && a.doubt != doubtGiven {
			return "an answer about action " + a.id + ", for which the commit of the plan waits"
		}
	}
	return ""
}

// unfired is a lease of a plan that is true and has not fired; empty: there is none.
func (b *book) unfired(p *plan) string {
	if isRetired(p) && allEnded(p.root()).is != broken {
		for _, l := range p.heldOn() {
			if !l.isStopped() && b.hasTurned(p, l.a, l.lease) {
				return l.name
			}
		}
	}
	if !p.holdsLeases() || p.fired != nil {
		return ""
	}
	for up := p.parent; up != nil; up = up.parent { // it is undone with that, or waits
		if up.fired != nil || !up.canStop() && up.phase != ledger.StateCommitted {
			return ""
		}
	}
	for _, l := range p.leases {
		if p.asksOwn(l) && !l.fired && !l.isStopped() &&
			b.hasTurned(p, nil, l) { // a child's own go with its commit
			return l.name
		}
	}
	for _, a := range p.actions {
		for _, l := range a.leases {
			if !a.isSettled() && !l.fired && !l.isStopped() && b.hasTurned(p, a, l) {
				return l.name + " of action " + a.id
			}
		}
	}
	return ""
}
