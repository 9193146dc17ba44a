package audit

import (
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// sourceClauses are those of a fact of a source.
var sourceClauses = append([]clause{newFact}, factClauses...)

// peopleChapters are those of what sources, supervisors, operators and workers write.
var peopleChapters = map[string]*chapter{
	"fact_asserted": {counts: sourceClauses, collect: func(b *book, c *claim) {
		k := c.Record.GetFactAsserted()
		b.noteFact(c.Entry, k.Key, k.Value)
	}},
	"fact_retracted": {counts: sourceClauses, collect: func(b *book, c *claim) {
		key := c.Record.GetFactRetracted().Key
		if f := b.fact(key); f != nil && !f.retracted { // a tombstone stays as it is
			b.noteTombstone(c.Entry, key)
		}
	}},
	"verdict_given":     {counts: verdictClauses, collect: noteVerdict},
	"evict_requested":   {counts: askedFacts, collect: noteAskedFacts},
	"restore_requested": {counts: askedFacts, collect: noteAskedFacts},
	"cancel_requested":  {counts: cancelClauses, collect: noteCancel},
	"compensation_requested": {
		counts: append(undoneClauses, forOpen(beforeItsCommit, knownSavepoint, knownPart, endClauses[0],
			endClauses[1])...),
		collect: func(b *book, c *claim) {
			if c.p.phase == ledger.StateCommitted {
				beginUndoing(b, c)
				return
			}
			noteWish(b, c)
		},
	},
	"resolved": {counts: append(answerClauses, resolveClauses...),
		collect: noteResolved},
	"retry_requested": {counts: append(answerClauses, retryClauses...),
		collect: noteRetry},
	"plan_erased": {counts: erasureClauses,
		collect: func(_ *book, c *claim) {
			c.p.erased, c.p.erasure = c.Address,
				c.Record.GetPlanErased()
		}},
	"effect_reported":  {counts: effectClauses, collect: noteEffect},
	"cascade_answered": {counts: cascadeClauses, collect: noteCascadeAnswer},
	"compensation_progressed": {counts: []clause{openedPlan, registeredAction},
		collect: noteProgress},
	"compensation_reported": {counts: reportClauses, collect: noteReport},
}

// factClauses are asked where a fact names the plan or action that it is about.
var factClauses = []clause{
	{"I6.fact", "A fact about a plan or an action is about one that there is.",
		func(c *claim) judgement {
			switch r := c.Record; {
			case r.Plan == "":
				return judgement{}
			case c.p == nil:
				return breaks("plan %s was never opened", r.Plan)
			case r.Action != "" && c.a == nil:
				return breaks("action %s is not registered in plan %s", r.Action, r.Plan)
			}
			return judgement{}
		}},
	{"I6.fact-about", "A fact names the registration of its action.", func(c *claim) judgement {
		return c.namesAction()
	}},
}

// namesAction judges the reference to an action of someone who need not make any.
func (c *claim) namesAction() judgement {
	if c.a == nil || c.Record.Action == "" || c.Record.About == nil ||
		sameAddress(c.Record.About, c.a.registered) {
		return judgement{}
	}
	return breaks("about: action %s was registered at %s", c.a.id, reference{c.a.registered})
}

var askedFacts = []clause{
	{"I10.asked",
		"Facts are asked out of working memory, or back, where they are not there already; once.",
		func(c *claim) judgement {
			keys, evicted := keysOf(c.Record)
			for _, key := range keys {
				switch f := c.b.fact(key); {
				case f == nil || f.retracted:
					return breaks("keys: facts that there are, and %q is none", key)
				case f.asked != nil:
					return breaks("fact %q: an answer to what was asked at %s", key,
						reference{f.asked})
				case (f.evicted != nil) != evicted:
					return breaks("fact %q is where it is asked to be", key)
				}
			}
			return judgement{}
		}},
}

func keysOf(r *pb.Record) (keys []string, evicted bool) {
	if k := r.GetRestoreRequested(); k != nil {
		return k.Keys, true
	}
	return r.GetEvictRequested().GetKeys(), false
}

func noteAskedFacts(b *book, c *claim) {
	keys, _ := keysOf(c.Record)
	for _, key := range keys {
		b.fact(key).asked = c.Address
	}
}

// forCommitted makes a clause on what undoes a committed plan, or a part of it.
func forCommitted(id, says string, judge func(c *claim, to back) judgement) clause {
	return clause{id, says, func(c *claim) judgement {
		if c.p.phase != ledger.StateCommitted {
			return judgement{}
		}
		_, _, to := c.wish()
		return judge(c, to)
	}}
}

// undoneClauses say when a committed plan is undone: by a plan of its own, inside the
// undo windows.
var undoneClauses = []clause{openedPlan,
	forCommitted("I15.part", "A committed child is undone with its root.",
		func(c *claim, _ back) judgement {
			return unless(c.p.parent == nil, "unwind plan %s: plan %s is a part of it",
				c.p.root().id, c.p.id)
		}),
	forCommitted("I5.undone", "A committed plan is undone once, and what undoes it is not undone.",
		func(c *claim, _ back) judgement { return undoneOnce(c.p) }),
	forCommitted("I6.undone", "A committed plan is undone to one of its savepoints.",
		func(c *claim, to back) judgement {
			return unless(to.savepoint == "" || c.p.savepoint(to.savepoint) != nil,
				"to_savepoint: one of plan %s, and %q is none", c.p.id, to.savepoint)
		}),
	forCommitted("I6.undone-part",
		"Of a committed plan an action is undone that is in it, and not settled.",
		func(c *claim, to back) judgement { return c.partOf(to.action) }),
	forCommitted("I15.busy", "A committed plan is undone when its child plans have ended.",
		func(c *claim, _ back) judgement { return allEnded(c.p) }),
	forCommitted("I20.window", "A committed plan is undone inside its undo windows.",
		func(c *claim, to back) judgement { return c.insideWindows(c.p, to) }),
}

func undoneOnce(p *plan) judgement {
	if p.undoneAs != "" {
		return breaks("plan %s is undone by plan %s", p.id, p.undoneAs)
	}
	return unless(p.origin == "", "plan %s undoes plan %s", p.id, p.origin)
}

func allEnded(p *plan) judgement {
	for _, part := range p.below() {
		if !part.isClosed() {
			return breaks("an end of plan %s, a part of it, which is %s", part.id, part.phase)
		}
	}
	return judgement{}
}

func (c *claim) insideWindows(p *plan, to back) judgement {
	return unless(!c.b.anyPastWindow(p, p.part(to)), "undo windows of plan %s have closed", p.id)
}

// reachClauses say when a verdict counts on an action of a committed plan, which is undone for it.
var reachClauses = []clause{
	{"I36.allowed", "A supervisor allows what is still held, if its forward waits for that.",
		func(c *claim) judgement {
			k, a := c.Record.GetVerdictGiven(), c.a
			waits := k.Outcome == pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW && a.forward.GetReview() &&
				a.outcome == unheardOf && c.b.rules >= ledger.StillHeldSince
			return unless(!waits || a.undo == held, "action %s is %s", a.id, a.undo)
		}},
	forVerdict("I5.reached", "For a verdict a committed plan is undone once.",
		func(c *claim, root *plan, _ back) judgement { return undoneOnce(root) }),
	forVerdict("I15.reached",
		"For a verdict a committed plan is undone when its child plans have ended.",
		func(c *claim, root *plan, _ back) judgement { return allEnded(root) }),
	forVerdict("I20.reached", "For a verdict a committed plan is undone inside its undo windows.",
		func(c *claim, root *plan, to back) judgement { return c.insideWindows(root, to) }),
}

func forVerdict(id, says string, judge func(c *claim, root *plan, to back) judgement) clause {
	return clause{id, says, func(c *claim) judgement {
		if root, to := c.reaches(); root != nil {
			return judge(c, root, to)
		}
		return judgement{}
	}}
}

// reaches is the committed root that a verdict has undone, and how far; nil: none. A child was
// committed as a whole.
func (c *claim) reaches() (root *plan, to back) {
	k, rules := c.Record.GetVerdictGiven(), c.b.rules
	switch one := undoesOne(c.b, k.GetScope()); {
	case k.GetOutcome() <= pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW, !isCommitted(c.b, c.p),
		rules < ledger.ReachesSince, c.a.isSettled() && (one || rules < ledger.BesidePartSince),
		!c.a.mayHaveCrossed() && (!c.a.isStaged() || one):
		return nil, back{}
	}
	root, to.action = c.p, c.a.id
	for root.parent != nil {
		root, to.action = root.parent, root.parent.actions[root.entry-1].id
	}
	if !undoesOne(c.b, k.Scope) {
		to = back{}
	}
	if c.undoes(root, to) {
		return nil, back{}
	}
	return root, to
}

// isRetired: a plan is committed, and so is the root that it is part of.
func isRetired(p *plan) bool { return p.phase == ledger.StateCommitted && !p.stillHolds() }

// undoes reports whether the plan that undoes a committed one undoes a part of it, too.
func (c *claim) undoes(p *plan, to back) bool {
	u := c.b.plan(p.undoneAs)
	if u == nil {
		return false
	}
	part := p.part(to)
	return !slices.ContainsFunc(p.actions, func(a *action) bool {
		owed := part[a.n] && a.dutyOf == 0 && !a.isStaged() && !a.isSettled()
		return owed && u.leavesOut(u.actions[a.n-1])
	})
}

// leavesOut: the plan undoes a part of a committed one, of which the action is not.
func (p *plan) leavesOut(a *action) bool {
	return p.origin != "" && !p.delivers && a.undo == skipped && a.settled == nil
}

func staysOut(b *book, p *plan, a *action) bool {
	return p.leavesOut(a) && b.rules >= ledger.LeftOutSince
}

// knownPart is asked where someone wants one action of an open plan undone, and what came after it.
var knownPart = clause{"I6.part", "A plan undoes one of its actions that is not settled.",
	func(c *claim) judgement {
		return c.partOf(c.Record.GetCompensationRequested().GetFromAction())
	}}

func (c *claim) partOf(id string) judgement {
	switch a := c.p.named(id); {
	case id == "":
		return judgement{}
	case a == nil:
		return breaks("from_action: one of plan %s, and %q is none", c.p.id, id)
	default:
		return unless(!a.isSettled(), "from_action: %s of plan %s is %s", id, c.p.id, a.undo)
	}
}

// answerClauses are asked of an owner's answer about an action: it is quarantined, or owed
// and not dealt with. An answer about an act that was claimed and refused keeps them all.
var answerClauses = []clause{openedPlan,
	onAction("I6.answer",
		"An owner answers for an action that is registered, or for an act that was claimed.",
		func(c *claim) judgement { return registeredAction.judge(c) }),
	onAction("I23.child", "An owner answers for the actions of a child plan, not for the child.",
		func(c *claim) judgement {
			return unless(c.a.child == nil, "an answer for the actions of plan %s", c.Record.Action)
		}),
	onAction("I23.owed", "An owner answers for what is quarantined or owed.",
		func(c *claim) judgement {
			return unless(c.p.owes(c.a), "the undo of action %s is %s", c.a.id, c.a.undo)
		}),
	onAction("I18.done", "An owner does not answer for an undo that was reported done.",
		func(c *claim) judgement {
			return unless(c.parked() || !c.a.isSaidDone(),
				"the undo of action %s was reported done",
				c.a.id)
		}),
	onAction("I6.answer-about", "An answer names the registration of its action.",
		func(c *claim) judgement { return c.namesAction() }),
	onAction("I6.answer-cause", "An answer names the quarantine, or the attempt, that it is about.",
		func(c *claim) judgement {
			at := c.a.dispatched
			if c.parked() {
				at = c.a.settled
			}
			given := c.Record.Cause
			return unless(given == nil || at != nil && sameAddress(given, at),
				"cause: action %s is %s by %s", c.a.id, c.a.undo, reference{at})
		}),
}

func (c *claim) parked() bool { return c.a.undo == quarantined || c.a.doubt == doubtGiven }

// onAction makes a clause that is not asked of an answer about a claimed act.
func onAction(id, says string, judge func(c *claim) judgement) clause {
	return clause{id, says, func(c *claim) judgement {
		if c.Record.GetResolved() != nil && c.p.claimNamed(c.Record.Action) >= 0 {
			return judgement{}
		}
		return judge(c)
	}}
}

var resolveClauses = []clause{
	onAction("I36.resolved", "An answer about a doubt says whether the effect is there.",
		func(c *claim) judgement {
			k := c.Record.GetResolved()
			return unless(c.a.doubt == "" || k.Outcome != pb.Resolution_RESOLUTION_LOST && !k.Halt,
				"accepted, done or skipped, without halt: plan %s does not unwind", c.p.id)
		}),
}

// toRetry makes a clause on an undo, not on a doubt, that is to be tried again.
func toRetry(id, says string, judge func(c *claim, a *action) judgement) clause {
	return clause{id, says, func(c *claim) judgement {
		if c.a.doubt != "" {
			return judgement{}
		}
		return judge(c, c.a)
	}}
}

var retryClauses = []clause{
	{"I36.retry", "A doubt is asked about again where the contract has a probe.",
		func(c *claim) judgement {
			return unless(c.a.doubt == "" || c.a.compensation.GetProbe() != nil,
				"action %s has no probe", c.a.id)
		}},
	toRetry("I23.inverse", "An undo is tried again where there is an inverse.",
		func(c *claim, a *action) judgement {
			none := a.forward.GetClass() == pb.Class_CLASS_IRREVERSIBLE && !mayDeliver(c.p, a) ||
				a.compensation.GetCapability() == "" || a.undone
			return unless(!none, "resolve it: there is nothing to retry of action %s", a.id)
		}),
	toRetry("I23.again", "An undo that goes on already is not asked to.",
		func(c *claim, a *action) judgement {
			k := c.Record.GetRetryRequested()
			other := k.NewKey || k.Overwrite != a.overwrite
			return unless(a.undo != owed || !a.approved || a.attemptsFrom != a.attempt || other,
				"the undo of action %s goes on already", a.id)
		}),
	{"I19.new-key",
		"Another key is asked for, once, where an attempt was made, and never for a doubt.",
		func(c *claim) judgement {
			k, a := c.Record.GetRetryRequested(), c.a
			last := a.keysBefore(a.attempt) == len(a.laterKeys)
			return unless(!k.NewKey || a.doubt == "" && a.attempt > 0 && last,
				"no new_key: attempt %d of action %s is the last", a.attempt, a.id)
		}},
	{"I23.overwrite",
		"An owner overwrites where a contract asks whether something was changed, and no doubt.",
		func(c *claim) judgement {
			k, a := c.Record.GetRetryRequested(), c.a
			return unless(!k.Overwrite || a.doubt == "" && a.compensation.GetUnchanged() != "",
				"no overwrite: nothing asks whether action %s was changed", a.id)
		}},
	toRetry("I19.flight", "Without force an attempt that may be at work is waited for.",
		func(c *claim, a *action) judgement {
			out := a.undo == dispatched && a.asking == pb.Question_QUESTION_UNSPECIFIED ||
				a.aliveUntilNs > c.b.now
			return unless(c.Record.GetRetryRequested().Force || !out,
				"attempt %d of action %s may be at work", a.attempt, a.id)
		}),
}

var erasureClauses = []clause{openedPlan,
	{"I24.erased", "What undoes a plan is erased with that plan.", func(c *claim) judgement {
		return unless(c.p.origin == "", "erase plan %s: these are its values", c.p.origin)
	}},
	{"I5.erased", "A plan is erased once.",
		func(c *claim) judgement { return copyIf(c.p.erased != nil) }},
	{"I24.key", "Without force a plan is erased when nothing of it may need its key.",
		func(c *claim) judgement {
			u, holds := c.b.plan(c.p.undoneAs), len(c.p.root().heldOn()) > 0
			switch {
			case c.Record.GetPlanErased().Force:
				return judgement{}
			case goesOn(c.b.plan(c.p.deliveredAs)):
				return breaks("an end of plan %s, which delivers it", c.p.deliveredAs)
			case u != nil && !u.isOver():
				return breaks("an end of plan %s, which undoes it and is %s", u.id, u.status())
			}
			for _, q := range c.p.root().below() {
				holds = holds || len(q.heldOn()) > 0
			}
			return unless(c.p.isOver() && !c.p.stillHolds() && !holds,
				"an end of plan %s, which is %s, and of the conditions that it holds", c.p.id,
				c.p.status())
		}},
}

var cascadeClauses = []clause{openedPlan,
	{"I6.cut", "An answer about a cascade is about an action that is registered.",
		func(c *claim) judgement {
			return unless(c.Record.Action == "" || c.a != nil || len(c.p.cuts) == 0,
				"action %s is not registered in plan %s", c.Record.Action, c.p.id)
		}},
	{"I25.answer", "An owner answers for a lease that was cut short.", func(c *claim) judgement {
		return unless(len(c.p.cutBy(c.Record)) > 0, "no such lease of plan %s was cut short",
			c.p.id)
	}},
}

var reportClauses = []clause{openedPlan, registeredAction,
	{"I19.report", "A worker reports under the key of the undo.", func(c *claim) judgement {
		key := c.Record.GetCompensationReported().Key
		attempt := c.Record.GetCompensationReported().Attempt
		return unless(key == keyOf(c.b, c.p, c.a, attempt),
			"another key than %q: that of attempt %d of action %s", key, attempt, c.a.id)
	}},
	{"I19.token", "A worker reports what it was given, where the dispatch asks for a token.",
		func(c *claim) judgement {
			k := c.Record.GetCompensationReported()
			return unless(c.a.takesToken(k.Attempt, k.Token, c.Source.Name),
				"the token of attempt %d of action %s, from the worker that has it", k.Attempt, c.a.id)
		}},
	{"I5.report", "That an attempt was done is said once.", func(c *claim) judgement {
		k, a := c.Record.GetCompensationReported(), c.a
		done := k.Answer == pb.Answer_ANSWER_DONE && k.Attempt >= 1 && a.wasSaid(k.Attempt)
		ended := a.undo == compensated || a.undo == skipped
		return copyIf(done && (!ended || a.besides(k.Attempt)))
	}},
	{"I18.report",
		"A worker reports an attempt that is in flight or ahead, or was when its owner answered.",
		func(c *claim) judgement {
			k, a := c.Record.GetCompensationReported(), c.a
			done := k.Answer == pb.Answer_ANSWER_DONE
			current := a.undo == dispatched && k.Attempt == a.attempt &&
				a.asking == pb.Question_QUESTION_UNSPECIFIED
			made := a.mayStillEnd(k.Attempt) || a.ahead != nil && a.isRecorded(k.Attempt)
			flies := c.p.phase == ledger.StateUnwinding && made && (done || current) &&
				a.asking != pb.Question_QUESTION_VERIFY
			return unless(flies || done && a.isLate(k.Attempt),
				"an attempt in flight: the undo of action %s is %s",
				a.id, state{c.p, a})
		}},
	{"I5.answer", "One answer of a worker counts, and a success against any other.",
		func(c *claim) judgement {
			k, a := c.Record.GetCompensationReported(), c.a
			said := a.reported != nil && (k.Answer != pb.Answer_ANSWER_DONE || a.isSaidDone())
			return copyIf(said && !(k.Answer == pb.Answer_ANSWER_DONE && a.isLate(k.Attempt)))
		}},
}
