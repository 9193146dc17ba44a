package audit

import (
	"math"
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// aboutAction are the clauses of all that a holder says of one action.
var aboutAction = []clause{openedPlan, registeredAction,
	{"I6.registration", "What a holder says of an action names its registration.",
		func(c *claim) judgement {
			return unless(sameAddress(c.Record.About, c.a.registered),
				"about: action %s was registered at %s",
				c.a.id, reference{c.a.registered})
		}},
}

// inUnwind are those of all that is part of an unwind.
var inUnwind = append(aboutAction[:3:3],
	clause{"I15.unwinding", "An action is undone while its plan unwinds.",
		func(c *claim) judgement {
			return unless(c.p.phase == ledger.StateUnwinding, "plan %s is %s", c.p.id, c.p.status())
		}})

// landedFirst is I29: nothing final is done about a doubt before its forward can land no more.
func landedFirst(by func(c *claim) int64) func(c *claim) judgement {
	return func(c *claim) judgement {
		at := by(c)
		return unless(c.Record.EpochNs >= at,
			"at %d or later: before, the forward of action %s may still land", at, c.a.id)
	}
}

// settlesBy is the instant before which nothing is done about an action that is ready.
func settlesBy(c *claim) int64 {
	if !c.p.isReady(c.a) {
		return math.MinInt64
	}
	return c.p.settlesBy(c.a)
}

// undone are the clauses of a chapter after those of all unwinds.
func undone(own ...clause) []clause { return append(inUnwind[:4:4], own...) }

var undoChapters = map[string]*chapter{
	"undo_window_closing": {
		counts: append(aboutAction[:3:3],
			clause{"I24.window", "A warning is of the undo window of an action that is held, once.",
				func(c *claim) judgement {
					closes := c.Record.GetUndoWindowClosing().ClosesNs
					warns := c.p.holdsLeases() && c.a.undo == held && c.a.closesNs != 0 &&
						!c.a.warned
					return unless(warns && closes == c.a.closesNs,
						"action %s is %s, and its window closes at %d",
						c.a.id, c.a.undo, c.a.closesNs)
				}}),
		collect: func(b *book, c *claim) {
			c.a.warned = true
			b.page(c.p, c.a, api.PageWindowClosing, c.Address)
		},
	},
	"success told late": {
		counts: append(aboutAction[:3:3],
			clause{"I22.late", "That an attempt was done, after its owner's answer, is said once.",
				func(c *claim) judgement {
					done := c.Record.GetCompensationSucceeded().Attempt
					return unless(!c.a.wasSaid(done), "attempt %d of action %s was said to be done",
						done, c.a.id)
				}}),
		content: successContent,
		collect: func(b *book, c *claim) {
			b.saidDoneLate(c,
				c.Record.GetCompensationSucceeded().Attempt)
		},
	},
	"compensation_dispatched": {counts: undone(dispatchClauses...), content: dispatchContent,
		collect: noteDispatch},
	"dispatched ahead": aheadChapter,
	"compensation_succeeded": {counts: undone(successClauses...), content: successContent,
		collect: noteSuccess},
	"compensation_failed": {counts: undone(failureClauses...), collect: noteFailure},
	"undo by a fact":      {counts: undone(madeClauses...), collect: noteMade},
	"compensation_skipped": {counts: undone(skipClauses...), content: []clause{orderClause},
		collect: noteSkip},
	"action_quarantined": {counts: undone(quarantineClauses...), content: quarantineContent,
		collect: noteQuarantine},
	"probe_asked": {counts: undone(askClauses...), content: questionContent,
		collect: noteQuestion},
	"probe_answered": {counts: undone(foundClauses...), collect: noteFound},
}

// passed is the first clause of what begins an undo, or ends it without one (I21).
var passed = clause{"I21.passed",
	"The undo of an action begins when what came after it has been passed.",
	func(c *claim) judgement {
		return unless(c.a.undo != owed || c.p.isReady(c.a), "what came after action %s is settled",
			c.a.id)
	}}

var dispatchClauses = []clause{passed,
	{"I19.waits", "An attempt is dispatched of an undo that is owed, or waits for its next one.",
		func(c *claim) judgement {
			again := c.a.undo == waiting && c.a.asking == pb.Question_QUESTION_UNSPECIFIED
			return unless(c.a.undo == owed || again, "the undo of action %s is %s", c.a.id,
				c.a.undo)
		}},
	{"I19.attempt", "The attempts of an undo are numbered from 1.", func(c *claim) judgement {
		n := c.Record.GetCompensationDispatched().Attempt
		return unless(n == c.a.attempt+1, "attempt %d of action %s is next, and not %d",
			c.a.attempt+1, c.a.id, n)
	}},
	{"I38.commit", "What is staged is dispatched only once its root is committed.",
		func(c *claim) judgement {
			return unless(!c.a.isStaged() || c.p.delivers,
				"action %s is staged, and no commit has it delivered", c.a.id)
		}},
	{"I38.stopped", "Nothing is dispatched of a delivery that was stopped.",
		func(c *claim) judgement {
			return unless(!c.p.isDelivery(c.a) || c.p.stopped == nil, "plan %s was stopped at %s", c.p.id,
				reference{c.p.stopped})
		}},
	{"I38.again", "What may have been delivered is sent again while its provider knows the key, or " +
		"once nothing was found after it could land no more, or for its owner.",
		func(c *claim) judgement {
			return unless(!c.p.isDelivery(c.a) || c.a.isSafe(c.b.now),
				"attempt %d of action %s had no answer", c.a.unsureOf, c.a.id)
		}},
	{"I20.next",
		"What is undone may have crossed, and its contract has it undone as it is now.",
		func(c *claim) judgement {
			next := c.b.next(c.p, c.a)
			return unless(next == doDispatch, "%s action %s", next, c.a.id)
		}},
	{"I20.unchanged",
		"Where the contract asks, nothing is undone that someone else may have changed, unless the " +
			"owner says so.",
		func(c *claim) judgement {
			return unless(!comparesFirst(c.b, c.a),
				"no undo of action %s: no answer says that it is as its forward left it", c.a.id)
		}},
	{"I19.undo", "What is dispatched is the registered undo, under its key.",
		func(c *claim) judgement {
			k := c.Record.GetCompensationDispatched()
			want, key := c.a.compensation.Capability, c.b.undoKey(c.p, c.a)
			return unless(k.Capability == want && k.Key == key,
				"%s with key %q, and not %s with %q",
				want, key, k.Capability, k.Key)
		}},
	{"I20.blind", "An undo is dispatched as blind where no completion is known.",
		func(c *claim) judgement {
			return unless(c.Record.GetCompensationDispatched().BlindCleanup == c.a.isBlind(),
				"blind_cleanup: the outcome of action %s is %s", c.a.id, c.a.outcome)
		}},
	{"I20.output", "An undo is dispatched with what is known of the effect of its forward.",
		func(c *claim) judgement {
			folded := c.Record.Folded
			heard := folded == 0 || folded >= c.a.wordAt
			same := c.Record.GetCompensationDispatched().HasForwardOutput == c.a.hasOutput()
			return unless(heard && same || c.b.rules < ledger.EffectsSince,
				"decided on the records up to %d: of action %s more was said at %d",
				folded, c.a.id, c.a.wordAt)
		}},
	dirtyClause,
	{"I29.undo", "No blind undo is final before its forward can land no more.",
		landedFirst(settlesBy)},
}

// dispatchContent holds what is dispatched against what was registered, without what the
// clauses before have made of it.
var dispatchContent = append([]clause{
	{"I17.registered", "An undo has its registration.", func(c *claim) judgement {
		return unless(c.a.compensation != nil, "a registration of action %s", c.a.id)
	}},
	{"I17.frozen",
		"An undo is sent as it was registered, and tells its worker what is known of the forward.",
		func(c *claim) judgement {
			k, a := c.Record.GetCompensationDispatched(), c.a
			if k.TimeoutNs != callTimeout(a.compensation) ||
				k.WorkerVersion != a.compensation.GetWorkerVersion() {
				return breaks("timeout %d and worker version %q, as registered",
					callTimeout(a.compensation), a.compensation.GetWorkerVersion())
			}
			return unless(k.HasForwardOutput == a.hasOutput() && isDirty(c.b, c.p, a) == k.DirtyFailure,
				"dirty_failure %v and has_forward_output %v", isDirty(c.b, c.p, a), a.hasOutput())
		}},
	{"I19.key",
		"A key is that of tenant, plan and action, whatever attempt, term and plan that undoes, " +
			"until its owner asks for another one.",
		func(c *claim) judgement {
			id := c.p.id
			if c.p.origin != "" &&
				c.a.key != "" { // a late duty of the plan that undoes has a key of that plan
				id = c.p.origin
			}
			purpose := ledger.PurposeUndo
			if c.p.isDelivery(c.a) {
				id, purpose = c.p.origin, ledger.PurposeDo
			}
			want := ledger.Key(c.b.tenant, id, c.a.id, purpose)
			if n := len(c.a.laterKeys); n > 0 {
				want = ledger.RetryKey(want, c.a.laterKeys[n-1].at)
			}
			key := c.Record.GetCompensationDispatched().Key
			return unless(key == want, "key %q, and not %q", want, key)
		}},
	{"I20.crossed", "What is known not to have crossed is never undone.", func(c *claim) judgement {
		return unless(c.a.mayHaveCrossed() || c.p.isDelivery(c.a),
			"skip action %s: its effect never crossed the boundary",
			c.a.id)
	}},
	orderClause, deliveredInOrder,
}, callContent...)

// orderClause is I21, by a walk over all that came after an action at any remove: it has
// ended, or is its owner's where the plan goes on without. What joins after an undo that
// has begun does not hold up its next attempt.
var orderClause = clause{"I21.order",
	"When the undo of an action begins, all that came after it has ended.",
	func(c *claim) judgement {
		if c.a.undo != owed {
			return judgement{}
		}
		if later := notOver(c.p, c.a); later != nil {
			return breaks("action %s first, which came after it and is %s", later.id,
				c.p.stateOf(later))
		}
		return judgement{}
	}}

// notOver is the first of what came after an action, at any remove, that has a part in the unwind
// and has not ended; nil: there is none.
func notOver(p *plan, a *action) (first *action) {
	x, seen := p.indexed(), map[uint32]bool{}
	for left := slices.Clone(x.after[a.n-1]); len(left) > 0; {
		n := left[len(left)-1]
		left = left[:len(left)-1]
		later := p.actions[n-1]
		if seen[n] || p.isClear(later) && x.clear[n-1] {
			continue
		}
		seen[n] = true
		left = append(left, x.after[n-1]...)
		over := later.isSettled() || later.undo == quarantined && p.letsGo(later)
		if !over && later.atUnwind(p) && (first == nil || n < first.n) {
			first = later
		}
	}
	return first
}

// atUnwind: the action has a part in the unwind that is under way.
func (a *action) atUnwind(p *plan) bool { return a.undo != held || a.n > p.target }

// questionContent are asked of every question.
var questionContent = append([]clause{
	{"I19.question", "A question is asked under the key of the undo.",
		func(c *claim) judgement { return c.argued("I19") }},
}, callContent...)

// callContent are I30 and I37 of every call.
var callContent = []clause{
	{"I30.arguments", "A call takes what its registered bindings make of what was recorded.",
		func(c *claim) judgement { return c.argued("I30") }},
	{"I37.missing", "No call is sent in place of one that reads what could not be kept.",
		func(c *claim) judgement { return c.argued("I37") }},
}

// argued judges the arguments of a call. A holder builds a call from what it has read:
// where others have written since, it may have been right where its holder had read to.
func (c *claim) argued(rule string) judgement {
	f := c.arguments()
	switch {
	case f == nil || f.rule != rule || c.wasRight(isCalledRight):
		return judgement{}
	}
	return breaks("%s", f.right)
}

// attemptFlies is a clause on an answer about an attempt.
func attemptFlies(c *claim, attempt uint32) judgement {
	return unless(c.a.mayStillEnd(attempt), "attempt %d of action %s in flight: its undo is %s",
		attempt, c.a.id, state{c.p, c.a})
}

var successClauses = []clause{
	{"I22.again", "What has ended has no success.", func(c *claim) judgement {
		flies := c.a.mayStillEnd(c.Record.GetCompensationSucceeded().Attempt)
		return unless(flies || !c.a.isSettled(), "the undo of action %s is %s", c.a.id, c.a.undo)
	}},
	{"I18.success", "A success is of an attempt in flight.", func(c *claim) judgement {
		return attemptFlies(c, c.Record.GetCompensationSucceeded().Attempt)
	}},
	{"I18.verified", "A success is verified, or probed, by a question that found the effect gone.",
		func(c *claim) judgement {
			k := c.Record.GetCompensationSucceeded()
			return unless(!k.Verified && !k.Probed || c.a.confirmed,
				"a question that found the effect of action %s gone", c.a.id)
		}},
	{"I18.check", "Where the contract asks for a check after the undo, a success has one.",
		func(c *claim) judgement {
			k := c.Record.GetCompensationSucceeded()
			return unless(k.Verified || k.Probed || c.a.compensation.GetVerify() == nil,
				"a check of action %s first", c.a.id)
		}},
	{"I18.fact", "An undo in working memory succeeds when it has changed its fact.",
		func(c *claim) judgement {
			return unless(c.b.changedItsFact(c.a), "the fact of action %s first", c.a.id)
		}},
}

var successContent = []clause{deliveredOnce,
	{"I18.dispatched", "No success without a dispatch before it.", func(c *claim) judgement {
		k := c.Record.GetCompensationSucceeded()
		return unless(c.a.dispatched != nil && k.Attempt <= c.a.attempt,
			"a dispatch of attempt %d of action %s", k.Attempt, c.a.id)
	}},
	{"I18.blob", "An undo that its worker had no blob for is not done, whatever its contract says.",
		func(c *claim) judgement {
			missing := c.Record.GetCompensationSucceeded().Code == api.CodeBlob
			return unless(!missing || !anytime(c.b), "a blob for the undo of action %s", c.a.id)
		}},
	{"I22.once", "Each undo succeeds once under a key.", func(c *claim) judgement {
		again := c.a.besides(c.Record.GetCompensationSucceeded().Attempt)
		return unless(c.a.successes == 0 || again, "the undo of action %s has its success", c.a.id)
	}},
}

var failureClauses = []clause{
	{"I18.failure", "A failure is of the attempt that is out, or of one that cannot be checked.",
		func(c *claim) judgement {
			k, a := c.Record.GetCompensationFailed(), c.a
			out := a.undo == dispatched && a.asking == pb.Question_QUESTION_UNSPECIFIED
			unchecked := k.Code == "unverified" && k.Final && a.mayStillEnd(k.Attempt) &&
				a.asking != pb.Question_QUESTION_VERIFY && c.b.rules >= ledger.OwnerFirstSince
			return unless(k.Attempt == a.attempt && (out || unchecked),
				"an attempt in flight: the undo of action %s is %s", a.id, state{c.p, a})
		}},
	{"I18.said", "What was reported done has failed only where its check cannot be made.",
		func(c *claim) judgement {
			return unless(!c.a.isSaidDone() ||
				c.Record.GetCompensationFailed().Code == "unverified",
				"the undo of action %s was reported done", c.a.id)
		}},
	{"I23.worker", "An undo in working memory waits for no worker.", func(c *claim) judgement {
		return unless(!c.Record.GetCompensationFailed().Unserved || !c.a.makesFact(),
			"the undo of action %s needs no worker", c.a.id)
	}},
	{"I23.offered", "An undo is given up as served by no one after the time of its contract.",
		func(c *claim) judgement {
			until := c.a.offeredUntil()
			return unless(!c.Record.GetCompensationFailed().Unserved || c.Record.EpochNs >= until,
				"the undo of action %s is offered until %d", c.a.id, until)
		}},
	{"I18.doubt", "An attempt that may have come to a worker ends in doubt.",
		func(c *claim) judgement {
			k := c.Record.GetCompensationFailed()
			return unless(!k.Unserved || c.a.aliveUntilNs == 0 || k.InDoubt,
				"in_doubt: action %s may be with a worker", c.a.id)
		}},
}

var skipClauses = []clause{passed,
	{"I22.owed", "What is skipped was owed.", func(c *claim) judgement {
		return unless(c.a.undo == owed, "the undo of action %s is %s", c.a.id, c.a.undo)
	}},
	{"I22.skip", "Only what never crossed the boundary, or has no effect, is skipped.",
		func(c *claim) judgement {
			next := c.b.next(c.p, c.a)
			return unless(next == doSkip, "%s action %s: its effect may have crossed", next, c.a.id)
		}},
	{"I18.skip", "What was reported done is not skipped.", func(c *claim) judgement {
		return unless(!c.a.isSaidDone(), "the undo of action %s was reported done", c.a.id)
	}},
}

var quarantineClauses = []clause{
	{"I23.changed",
		"What someone else has changed is its owner's for that, and what no one has is not.",
		func(c *claim) judgement {
			is := c.a.undo == exhausted && c.a.isForeign()
			return unless(c.Record.GetActionQuarantined().Changed == is,
				"changed %v: what was found of action %s says so", is, c.a.id)
		}},
	{"I23.nothing", "What has nothing to undo is not its owner's.", func(c *claim) judgement {
		return unless(!c.p.isReady(c.a) || c.b.next(c.p, c.a) != doSkip, "skip action %s", c.a.id)
	}},
	{"I29.quarantine", "No owner is asked about a doubt before its forward can land no more.",
		landedFirst(settlesBy)},
	passed,
	{"I23.state", "What is quarantined was owed, and no call of it is out.",
		func(c *claim) judgement {
			fits := []string{owed, waiting, exhausted}
			return unless(slices.Contains(fits, c.a.undo), "the undo of action %s is %s", c.a.id,
				c.a.undo)
		}},
	{"I18.quarantine", "What was reported done before its next attempt is not its owner's.",
		func(c *claim) judgement {
			return unless(!c.a.isSaidDone() || !c.p.isReady(c.a),
				"the undo of action %s was reported done", c.a.id)
		}},
}

var quarantineContent = []clause{
	{"I23.ground", "What is its owner's is so by the records, whatever reason is given: it is not " +
		"undone without its owner, has no attempt left, or a call about it cannot be made.",
		func(c *claim) judgement {
			return unless(c.wasRight(hasGround), "%s action %s, after %d of %d attempts",
				c.b.next(c.p, c.a), c.a.id, c.a.attempt-c.a.attemptsFrom, triesOf(c.a.compensation))
		}},
}

// madeClauses are asked of a fact that an undo makes.
var madeClauses = []clause{
	{"I18.memory", "A holder makes the facts of undos in working memory.",
		func(c *claim) judgement {
			return unless(c.a.makesFact(), "the compensation of action %s makes no fact", c.a.id)
		}},
	{"I18.made", "An undo makes its fact while it is in flight.", func(c *claim) judgement {
		return attemptFlies(c, c.a.attempt)
	}},
	{"I18.made-for", "The cause of an undo's fact is its dispatch.", func(c *claim) judgement {
		return unless(sameAddress(c.Record.Cause, c.a.dispatched),
			"cause: action %s was dispatched at %s", c.a.id, reference{c.a.dispatched})
	}},
	{"I18.no-fact", "An undo that was dispatched with no fact makes none.",
		func(c *claim) judgement {
			_, _, ok := factOf(c.a.compensation.Capability, c.a.arguments)
			return unless(ok, "the arguments of action %s are no fact", c.a.id)
		}},
	{"I22.made", "An undo makes its fact once for each dispatch.", func(c *claim) judgement {
		key, _, _ := factOf(c.a.compensation.Capability, c.a.arguments)
		return unless(!c.b.changedBy(c.a, key), "the undo of action %s has changed fact %q", c.a.id, key)
	}},
	{"I18.same", "The fact of an undo is the one that was dispatched.", func(c *claim) judgement {
		key, value, _ := factOf(c.a.compensation.Capability, c.a.arguments)
		said, gone := c.Record.GetFactAsserted(), c.Record.GetFactRetracted()
		as := c.a.compensation.Capability
		same := as == ledger.CapabilityAssert && said != nil && said.Key == key &&
			string(said.Value) == string(value) ||
			as == ledger.CapabilityRetract && gone.GetKey() == key
		return unless(same, "%s of fact %q with %.80s", as, key, value)
	}},
}
