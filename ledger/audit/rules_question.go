package audit

import (
	"cmp"
	"math"
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// The questions of an unwind, and their answers.
var askClauses = []clause{
	{"I20.question", "A question is the one that the contract asks.", func(c *claim) judgement {
		k := c.Record.GetProbeAsked()
		call := questionCall(c.a.compensation, k.Question)
		return unless(call != nil && call.Capability == k.Capability,
			"%q, and not %s: so asks the contract of action %s",
			call.GetCapability(), k.Capability, c.a.id)
	}},
	{"I20.ask", "A question is asked where its answer decides what comes next.",
		func(c *claim) judgement {
			k := c.Record.GetProbeAsked()
			return unless(c.b.asksNext(c.p, c.a, k, c.p.isReady(c.a)),
				"the undo of action %s is %s",
				c.a.id, state{c.p, c.a})
		}},
	{"I29.asked", "No effect is asked about before its forward has had its time.",
		func(c *claim) judgement {
			switch c.Record.GetProbeAsked().Question {
			case pb.Question_QUESTION_EFFECT, pb.Question_QUESTION_UNCHANGED:
				return landedFirst(settlesBy)(c)
			default:
				return judgement{}
			}
		}},
	nextQuestion,
}

var nextQuestion = clause{"I20.number", "The questions about an action are numbered from 1.",
	func(c *claim) judgement {
		n := c.Record.GetProbeAsked().Attempt
		return unless(n == c.a.asked+1, "question %d about action %s is next, and not %d",
			c.a.asked+1,
			c.a.id, n)
	}}

var foundClauses = []clause{
	{"I20.open", "An answer is to the question that is out.", func(c *claim) judgement {
		k, a := c.Record.GetProbeAnswered(), c.a
		open := a.undo == dispatched && a.asking == k.Question && a.asked == k.Attempt &&
			k.Question != pb.Question_QUESTION_UNSPECIFIED
		return unless(open, "the undo of action %s is %s, at question %d", a.id, state{c.p, a},
			a.asked)
	}},
	{"I20.presence", "An answer has a presence that this version knows.", func(c *claim) judgement {
		_, known := pb.Presence_name[int32(c.Record.GetProbeAnswered().Presence)]
		return unless(known, "a presence that this version knows")
	}},
	{"I20.unserved", "A question that no one has answered has found nothing.",
		func(c *claim) judgement {
			k := c.Record.GetProbeAnswered()
			return unless(!k.Unserved || k.Presence == pb.Presence_PRESENCE_UNSPECIFIED,
				"no presence of action %s", c.a.id)
		}},
	{"I20.change", "An answer says of a change what its contract asks for, and no more.",
		func(c *claim) judgement {
			k, a := c.Record.GetProbeAnswered(), c.a
			_, known := pb.Change_name[int32(k.Change)]
			there := k.Presence == pb.Presence_PRESENCE_PRESENT ||
				k.Presence == pb.Presence_PRESENCE_DUPLICATE
			waits := k.Question == pb.Question_QUESTION_UNCHANGED ||
				k.Question == pb.Question_QUESTION_UNDO && a.askedToSend
			if k.Change == pb.Change_CHANGE_UNSPECIFIED {
				return unless(!waits || !there || !mustCompare(c.b, a), "whether action %s was changed",
					a.id)
			}
			may := a.compensation.GetUnchanged() != "" && k.Question != pb.Question_QUESTION_VERIFY &&
				k.Presence != pb.Presence_PRESENCE_UNSPECIFIED
			return unless(known && may, "nothing of a change of action %s", a.id)
		}},
	{"I23.question", "A question is given up as served by no one after the time of its contract.",
		func(c *claim) judgement {
			until := c.a.offeredUntil()
			return unless(!c.Record.GetProbeAnswered().Unserved || c.Record.EpochNs >= until,
				"the question about action %s is offered until %d", c.a.id, until)
		}},
}

// openClauses are asked of a question while its plan is open.
var openClauses = append(aboutAction[:3:3],
	clause{"I20.openly", "An open plan asks the probe about what is in doubt.",
		func(c *claim) judgement {
			k := c.Record.GetProbeAsked()
			call := c.a.compensation.GetProbe().GetCall()
			due := c.a.askNs != 0 && asksFrom(c.b, c.p, c.a) != 0
			return unless(due && k.Question == pb.Question_QUESTION_EFFECT &&
				call.GetCapability() == k.Capability &&
				!hasNoName(c.b, c.p, c.a, call.GetBindings()),
				"no question about action %s: it is %s, and its undo %s", c.a.id, c.a.outcome,
				c.a.undo)
		}},
	clause{"I20.lasts", "A doubt of an open plan is asked about once it has lasted.",
		func(c *claim) judgement {
			return unless(c.Record.EpochNs >= c.a.askNs, "at %d or later about action %s",
				c.a.askNs, c.a.id)
		}},
	nextQuestion)

// doubtChapters are those of actions in doubt that an open plan asks about, or that a commit
// waits for.
var doubtChapters = map[string]*chapter{
	"probe_asked of an open plan": {counts: openClauses, content: questionContent,
		collect: noteAskedOpenly},
	"probe_answered of an open plan": {
		counts: append(append(aboutAction[:3:3],
			clause{"I20.heard", "An answer about a doubt is to the question that its open plan has asked.",
				func(c *claim) judgement {
					k := c.Record.GetProbeAnswered()
					return unless(k.Question == c.a.asking && k.Attempt == c.a.asked,
						"question %d about action %s is out", c.a.asked, c.a.id)
				}}), foundClauses[1:]...),
		collect: noteAnsweredOpenly,
	},
	"probe_asked for a commit": {
		counts: append(aboutAction[:3:3],
			clause{"I20.doubt", "A commit asks the probe whether an effect is there.",
				func(c *claim) judgement {
					k := c.Record.GetProbeAsked()
					call := c.a.compensation.GetProbe().GetCall()
					effect := k.Question == pb.Question_QUESTION_EFFECT
					return unless(effect && call != nil && call.Capability == k.Capability,
						"%q about the effect of action %s", call.GetCapability(), c.a.id)
				}},
			clause{"I20.waits", "A commit asks about what it waits for.", func(c *claim) judgement {
				return unless(c.a.doubt == doubtDue || c.a.doubt == doubtAgain,
					"no commit waits for an answer about action %s", c.a.id)
			}},
			clause{"I29.doubt", "No commit asks before a forward has had its time.",
				landedFirst(func(c *claim) int64 { return c.p.doubtBy(c.a) })},
			nextQuestion),
		content: questionContent,
		collect: noteDoubtAsked,
	},
	"probe_answered for a commit": {
		counts: append(aboutAction[:3:3],
			clause{"I20.answer", "An answer for a commit is to the question that is out.",
				func(c *claim) judgement {
					k, a := c.Record.GetProbeAnswered(), c.a
					_, known := pb.Presence_name[int32(k.Presence)]
					none := k.Change == pb.Change_CHANGE_UNSPECIFIED
					return unless(a.doubt == doubtAsked && k.Question == a.asking &&
						k.Attempt == a.asked && known && none,
						"no such question about action %s is out", a.id)
				}}),
		collect: noteDoubtAnswered,
	},
	"commit_waits": {
		counts: append(aboutAction[:3:3],
			clause{"I15.committing", "An owner is asked about a doubt while a commit waits.",
				func(c *claim) judgement {
					return unless(c.p.isCommitting(), "plan %s is %s", c.p.id, c.p.status())
				}},
			clause{"I36.owner", "An owner is asked where no question is out, and none is left.",
				func(c *claim) judgement {
					d := c.a.doubt
					return unless(d != "" && d != doubtAsked && d != doubtGiven,
						"no commit waits for the owner of action %s", c.a.id)
				}},
			clause{"I29.owner", "No owner is asked before a forward has had its time.",
				landedFirst(func(c *claim) int64 { return c.p.doubtBy(c.a) })}),
		collect: noteCommitWaits,
	},
}

// What is told of an effect after it was reported.

// toldAs is the action whose undo is of the effect that was reported of an action: that one, or a
// duty of it.
func toldAs(p *plan, a *action) *action {
	if a.doubtedAs != 0 && !p.actions[a.doubtedAs-1].owedElse {
		return p.actions[a.doubtedAs-1]
	}
	for _, d := range p.actions {
		if d.dutyOf == a.n && !d.extra && sameAddress(d.registered, a.toldAt) {
			return d
		}
	}
	return a
}

// lacks says what a report may still add to an earlier one until the undo of the effect is sent.
func lacks(b *book, p *plan, a *action) (name, output bool) {
	of := toldAs(p, a)
	if !a.told || isSent(b, of) {
		return false, false
	}
	return a.nameOf() == "" && of.nameOf() == "", len(a.output) == 0
}

// isSent is hasBegun, but for an undo before whose first attempt the world is asked: that reads
// what becomes known until then.
func isSent(b *book, a *action) bool {
	asks := a.attempt == 0 && a.ahead == nil && a.isOut() && b.rules >= ledger.ReturnedSince
	return a.hasBegun() && !asks
}

func (c *claim) addsToReport() bool {
	name, more := lacks(c.b, c.p, c.a)
	return name && c.Record.GetEffectReported().ExternalRef != "" ||
		more && len(c.Record.Payload.GetOutput()) > 0
}

// addsReport keeps what a report adds to an earlier one.
func addsReport(b *book, c *claim) {
	for _, a := range slices.Compact([]*action{c.a, toldAs(c.p, c.a)}) {
		if a.nameOf() == "" {
			a.externalRef = c.Record.GetEffectReported().ExternalRef
		}
		if len(a.output) == 0 {
			a.output = c.Record.Payload.GetOutput()
		}
		a.wordAt = c.Address.Sequence
		b.lookAction(c.p, a)
	}
}

// questionCall is the call that a question makes.
func questionCall(c *pb.CompensationRegistered, q pb.Question) *pb.Call {
	if q == pb.Question_QUESTION_VERIFY {
		return c.GetVerify().GetCall()
	}
	return c.GetProbe().GetCall()
}

// What someone has seen of the effect of an action, whatever its agent says of it.

// isSeen: a probe has seen the effect of an action, and what it is called is known.
func isSeen(b *book, a *action) bool {
	seen := a.presence == pb.Presence_PRESENCE_PRESENT || a.presence == pb.Presence_PRESENCE_DUPLICATE
	return seen && a.nameOf() != "" && b.rules >= ledger.SeenSince
}

// isThere: someone has found the effect of an action, and it was neither undone nor found gone
// since. It is there, whatever its agent says.
func isThere(b *book, a *action) bool {
	seen := a.there || a.presence == pb.Presence_PRESENCE_PRESENT ||
		a.presence == pb.Presence_PRESENCE_DUPLICATE
	return seen && a.undo != compensated && a.undo != resolved && b.rules >= ledger.ThereSince
}

// sighted: the effect of an action was found there, or gone. What was found there has not failed.
func (a *action) sighted(b *book, there bool) {
	if a.there = there; isThere(b, a) && a.outcome == failed {
		a.outcome = inDoubt
	}
}

// saidOf is the outcome that a record tells of an action. though: a failure of what is there is a
// doubt.
func saidOf(b *book, a *action, r *pb.Record) (outcome, failure string, though bool) {
	outcome, failure = outcomeOf(r)
	if outcome == failed && isThere(b, a) {
		return inDoubt, failure, true
	}
	return outcome, failure, false
}

// undoesSeen: the undo of an action, as far as it has come, is of an effect that a probe has seen,
// by its name. What is said of that effect from now on adds nothing.
func undoesSeen(b *book, p *plan, a *action) bool {
	switch asksForCommit := p.phase == ledger.StateCommitting && !a.isSettled(); {
	case !isSeen(b, a), a.late, asksForCommit, a.undo == skipped:
		return false
	case a.undo == compensated:
		return !a.blindly
	default:
		return a.hasBegun() || a.isOwners()
	}
}

// completesOther: a record completes another effect of an action than the one that its undo is of.
// A provider that refuses what is late goes by the forward, whatever it calls it.
func completesOther(b *book, p *plan, a *action, r *pb.Record) bool {
	ref := r.GetForwardCompleted().GetExternalRef()
	return ref != "" && ref != a.nameOf() && undoesSeen(b, p, a) && !a.barred()
}

// namedOtherwise is the name of an effect that a probe has seen, where a record completes another
// one before the undo has begun.
func namedOtherwise(b *book, p *plan, a *action, r *pb.Record) string {
	ref := r.GetForwardCompleted().GetExternalRef()
	if ref == "" || ref == a.nameOf() || !isThere(b, a) || a.late || a.isSettled() || a.barred() ||
		undoesSeen(b, p, a) {
		return ""
	}
	return a.foundRef
}

// owesOther owes what a forward says that it has done besides what is undone already.
func owesOther(b *book, e ledger.Entry, p *plan, a *action) {
	k, asks := e.Record.GetForwardCompleted(),
		a.compensation.GetOnLate() == pb.OnLate_ON_LATE_QUARANTINE
	b.owedAgain(e, p, a, &action{outcome: completed, externalRef: k.ExternalRef, lifted: k.Lifted,
		incomplete: k.OutputIncomplete, unnamed: k.ReferenceIncomplete,
		output: e.Record.Payload.GetOutput(), late: true, approved: a.approved && !asks}, noteLate)
}

// The doubt of an open plan. The world is asked about it while the plan is open. What is not there
// settles nothing: the agent may call the forward once more.

// asksOpenly: a question is out that an open plan has asked about the effect of an action.
func (a *action) asksOpenly() bool {
	return a.undo == held && a.doubt == "" && a.asking == pb.Question_QUESTION_EFFECT
}

// endless: no one knows when a forward that is held can no longer land, for its caller may go on
// for as long as nothing is undone.
func endless(p *plan, a *action) bool {
	f := a.forward
	return f.GetTimeoutNs() == 0 || f.GetReview() || a.atNs <= p.writerSinceNs
}

// asksFrom is the epoch from which on an open plan asks about an action; 0: it does not.
func asksFrom(b *book, p *plan, a *action) int64 {
	c, f := a.compensation, a.forward
	if b.rules < ledger.AskedSince || p.phase != ledger.StateOpen || a.undo != held ||
		c.GetProbe() == nil || !a.waitsForAnswer() {
		return 0
	}
	after := span(c.AskAfterNs, int64(ledger.AskAfterDefault))
	switch {
	case a.outcome == inDoubt:
		return sum(a.outcomeNs, after)
	case f.GetReview():
		return 0
	case f.GetTimeoutNs() != 0:
		after = max(after, f.GetTimeoutNs()+span(f.GetGraceNs(), int64(ledger.GraceDefault)))
	}
	return sum(max(a.atNs, p.writerSinceNs), after)
}

// askLater sets when an open plan asks about an action, as is known of it now.
func askLater(b *book, p *plan, a *action) {
	switch out := a.asksOpenly(); {
	case out && !a.waitsForAnswer():
		a.dropCall()
		a.askNs = 0
	case !out:
		a.askNs = asksFrom(b, p, a)
	}
}

// stopAsking ends the questions of an open plan: a commit or an unwind asks for itself. Nothing of
// it waits for a verdict any more.
func stopAsking(b *book, p *plan) {
	for _, a := range p.actions {
		delete(b.pages, page{p.id, a.n, api.PageVerdictWanted})
		if a.askNs = 0; a.asksOpenly() {
			a.dropCall()
		}
	}
}

func noteAskedOpenly(_ *book, c *claim) {
	a, k := c.a, c.Record.GetProbeAsked()
	a.asking, a.asked, a.askedNs, a.askNs = k.Question, k.Attempt, c.Record.EpochNs, 0
	a.arguments = c.Record.Payload.GetArguments()
}

func noteAnsweredOpenly(b *book, c *claim) {
	p, a, k := c.p, c.a, c.Record.GetProbeAnswered()
	landed, early := p.landed(a), p.tooEarly(a, a.askedNs)
	a.dropCall()
	switch from := asksFrom(b, p, a); {
	case k.Presence == pb.Presence_PRESENCE_ABSENT && early && from != 0 && landed < math.MaxInt64:
		a.askNs, a.askedFrom = max(landed, min(c.Record.EpochNs, epochMax)), a.asked
	case k.Presence == pb.Presence_PRESENCE_ABSENT && early,
		k.Presence == pb.Presence_PRESENCE_UNSPECIFIED:
		a.askNs = a.askAgain(b, c, from)
	case k.Presence == pb.Presence_PRESENCE_ABSENT: // until the plan ends, it may be called again
		a.there = false
	default:
		a.sighted(b, true)
		a.presence = k.Presence
		noteName(b, a, k)
		if k.Presence == pb.Presence_PRESENCE_DUPLICATE {
			b.noteExtraRefs(p, a, k.Duplicates)
		}
		if p.holdsLeases() {
			b.lookAction(p, a)
		}
	}
}

// askAgain is when an open plan asks once more after an answer that settled nothing; 0: it does
// not.
func (a *action) askAgain(b *book, c *claim, from int64) int64 {
	call, k := a.compensation.Probe.GetCall(), c.Record.GetProbeAnswered()
	tries, most := k.Attempt-a.askedFrom, cmp.Or(call.GetAttempts(), 3)
	const least, longest = int64(15e9), int64(3600e9)
	switch {
	case from == 0:
		return 0
	case k.Unserved && b.rules >= ledger.AskedOnSince: // as if it had not been asked
		a.askedFrom = k.Attempt
		pause := max(span(a.compensation.UnservedAfterNs, longest), 4*least)
		return min(c.Record.EpochNs, epochMax) + min(pause, longest)
	case k.Unserved || tries >= most:
		return 0
	}
	first := max(cmp.Or(call.GetBackoffNs(), int64(1e9)), least)
	wait := first
	for n := uint32(1); n < tries && wait < max(longest, first); n++ {
		wait *= 2
	}
	return min(c.Record.EpochNs, epochMax) + min(wait, max(longest, first))
}
