package audit

import (
	"slices"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Dispatches that are recorded ahead of their turn. Such a record names the dispatch that it
// goes behind, of the one action that has to be undone first. It counts as an attempt from the
// success of that one on. Once that success can no longer come, or is no longer all that is
// missing, it is an attempt of which no one knows whether it was sent, and none of those that
// the contract allows.

// ahead is a dispatch that waits for the success of another one.
type ahead struct {
	at      *pb.Address
	of      uint32 // number of the action that has to be undone first
	epochNs int64
}

// aheadMaxNs is for how long a dispatch ahead may be sent before it counts.
const aheadMaxNs = int64(1e9)

// first is the action that a dispatch names as the one to be undone before; nil: it names none
// that came after this one and after no other.
func (c *claim) first() *action {
	behind := c.Record.GetCompensationDispatched().GetBehind()
	for _, f := range c.p.actions[c.a.n:] {
		at := f.dispatched
		if f.ahead != nil {
			at = f.ahead.at
		}
		if slices.Equal(f.before, []uint32{c.a.n}) && samePlace(behind, at, c.Entry) && at != nil {
			return f
		}
	}
	return nil
}

// isPlain: it is known what there is to undo, and the contract asks for the undo and no more.
func (a *action) isPlain() bool {
	c := a.compensation
	asks := c.GetProbe() != nil || c.GetVerify() != nil || c.GetSealed() || c.GetDedupeNs() != 0
	return a.child == nil && a.dutyOf == 0 && a.outcome == completed && !a.late && !a.undone &&
		a.forward.GetClass() == pb.Class_CLASS_COMPENSABLE && c.GetCapability() != "" && !asks &&
		!a.makesFact()
}

// mayPrecede: all that is missing for the undo of an action is the success of f, which came
// after it, and is out or ahead itself.
func (p *plan) mayPrecede(f, a *action) bool {
	out := f.undo == dispatched && f.asking == pb.Question_QUESTION_UNSPECIFIED && p.missing(f) == 0
	return f.isPlain() && (out || f.ahead != nil) && p.missing(a) == 1
}

// followRuns settles what is ahead in a family, the last action first: it goes on to wait, it
// counts from now on, or it is called back. None of that changes what is missing.
func (b *book) followRuns(f *family, epochNs int64) {
	for _, p := range f.plans {
		if p.aheads == 0 {
			continue
		}
		for i := len(p.actions) - 1; i >= 0 && p.aheads > 0; i-- {
			a := p.actions[i]
			if a.ahead == nil {
				continue
			}
			f := p.actions[a.ahead.of-1]
			turn := f.undo == compensated && p.unwound() && p.missing(a) == 0 &&
				b.next(p, a) == doDispatch
			switch {
			case a.undo == owed && p.mayPrecede(f, a):
				continue
			case a.undo == owed && turn:
				a.attempt, a.dispatched, a.dispatchedNs = 1, a.ahead.at, epochNs
				a.blindly, a.unserved, a.undo = false, false, dispatched
				a.ahead = nil
				p.aheads--
			default:
				b.callBack(p, a)
			}
		}
	}
}

// callBack makes what was ahead an attempt that may have been sent, or not.
func (b *book) callBack(p *plan, a *action) {
	a.attempt, a.attemptsFrom, a.arguments = 1, 1, nil
	a.dispatched, a.dispatchedNs = a.ahead.at, a.ahead.epochNs
	if !a.isSettled() {
		a.aliveUntilNs = max(a.aliveUntilNs, min(b.now, epochMax)+callTimeout(a.compensation))
	}
	a.ahead = nil
	p.aheads--
}

// isRecorded: an attempt was dispatched, or is ahead.
func (a *action) isRecorded(attempt uint32) bool {
	return attempt >= 1 && (attempt <= a.attempt || attempt == 1 && a.ahead != nil)
}

// aheadClauses are asked of a dispatch that names the one that it goes behind.
var aheadClauses = []clause{
	{"I21.behind",
		"A dispatch ahead names that of the one action that is to be undone first, and is out " +
			"or ahead.",
		func(c *claim) judgement {
			return unless(c.first() != nil, "behind: %s is no dispatch of what came after action %s",
				reference{c.Record.GetCompensationDispatched().Behind}, c.a.id)
		}},
	{"I21.whole", "Nothing is dispatched ahead in a plan that goes back to a savepoint.",
		func(c *claim) judgement {
			return unless(!c.p.rewinding, "plan %s goes back to a savepoint", c.p.id)
		}},
	{"I19.ahead", "Only the first attempt of an undo that is owed is dispatched ahead, once.",
		func(c *claim) judgement {
			return unless(c.a.undo == owed && c.a.ahead == nil && c.a.attempt == 0 &&
				c.Record.GetCompensationDispatched().Attempt == 1,
				"the undo of action %s is %s, with %d attempts", c.a.id, state{c.p, c.a}, c.a.attempt)
		}},
	{"I21.missing", "Nothing but the success that it waits for is missing for a dispatch ahead.",
		func(c *claim) judgement {
			f := c.first()
			return unless(c.p.mayPrecede(f, c.a), "more than the success of action %s", f.id)
		}},
	{"I20.ahead",
		"What is dispatched ahead is known to be there, and its contract asks no question and " +
			"no one.",
		func(c *claim) judgement {
			return unless(c.a.isPlain() && c.b.next(c.p, c.a) == doDispatch, "%s action %s",
				c.b.next(c.p, c.a), c.a.id)
		}},
	{"I20.closes", "No undo window closes while a dispatch ahead may be sent.",
		func(c *claim) judgement {
			closes := c.a.closesNs
			return unless(closes == 0 || closes > c.Record.EpochNs+aheadMaxNs,
				"the undo window of action %s closes at %d", c.a.id, closes)
		}},
}

// aheadChapter is asked of a dispatch ahead.
var aheadChapter = &chapter{
	counts: undone(slices.Concat(aheadClauses,
		clausesNamed("I19.undo", "I20.blind", "I20.output", "I20.dirty"))...),
	content: slices.DeleteFunc(slices.Clone(dispatchContent),
		func(k clause) bool { return k.id == orderClause.id }),
	collect: func(b *book, c *claim) {
		c.a.ahead = &ahead{c.Address, c.first().n, c.Record.EpochNs}
		c.a.arguments = c.Record.Payload.GetArguments()
		c.a.askToken(c.Record.GetCompensationDispatched())
		c.p.aheads++
	},
}

// clausesNamed are some of those of a dispatch.
func clausesNamed(ids ...string) (list []clause) {
	for _, k := range dispatchClauses {
		if slices.Contains(ids, k.id) {
			list = append(list, k)
		}
	}
	return list
}

func codeAhead(c *coder, a *ahead) {
	record(c, &a.at)
	number(c, &a.of)
	number(c, &a.epochNs)
}
