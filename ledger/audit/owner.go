package audit

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Calls that no one takes, and owners' answers.

// offeredUntil is the instant until which the call that is out is to be offered to
// workers: unserved_after after the record that made it, and after what a worker that
// may have it has asked for.
func (a *action) offeredUntil() int64 {
	since := a.askedNs
	if a.asking == pb.Question_QUESTION_UNSPECIFIED {
		since = max(a.dispatchedNs, a.aliveUntilNs)
	}
	return sum(since, span(a.compensation.GetUnservedAfterNs(), int64(ledger.UnservedDefault)))
}

// isLate: a word that this attempt is done comes after the action's quarantine or its
// owner's answer, or beside what was done under another key.
func (a *action) isLate(attempt uint32) bool {
	behind := a.undo == quarantined || a.undo == resolved || a.besides(attempt)
	return behind && a.child == nil && attempt >= 1 && attempt <= a.attempt && !a.makesFact()
}

const noteUndone = "its undo was carried out after all: see whether that was once too often"

// owes: an owner may answer for an action. It is quarantined, a commit waits for its
// owner, or it is owed and not dealt with.
func (p *plan) owes(a *action) bool {
	open := p.phase == ledger.StateUnwinding || p.phase == ledger.StateQuarantined
	due := []string{owed, dispatched, waiting, exhausted}
	return a.undo == quarantined || a.doubt == doubtGiven || open && slices.Contains(due, a.undo)
}

// noteResolved ends what is owed by its owner's word.
func noteResolved(b *book, c *claim) {
	p, a, k := c.p, c.a, c.Record.GetResolved()
	word := proposal{answer: k.Outcome.String(), halt: k.Halt}
	if at := p.claimNamed(c.Record.Action); at >= 0 {
		b.answerClaim(c, at, word)
		return
	}
	counts, waits := p.counts(c.Entry, a.proposal, word)
	switch a.proposal = waits; {
	case !counts:
		return
	case a.doubt != "":
		b.answerDoubt(p, a, k)
		return
	}
	b.goOn(p)
	p.resumed = c.Address
	if a.undo != quarantined {
		a.dropCall()
	}
	a.resolution = k
	delete(b.pages, page{p.id, a.n, api.PageQuarantined})
	b.closeAction(p, a, resolved, c.Address)
}

// noteRetry lets an undo go on, or a question about a doubt, by its owner's word.
func noteRetry(b *book, c *claim) {
	p, a, k := c.p, c.a, c.Record.GetRetryRequested()
	word := proposal{answer: "retry", force: k.Force}
	if k.NewKey {
		word.answer = "retry under a new key"
	}
	if k.Overwrite {
		word.answer += " over a change"
	}
	counts, waits := p.counts(c.Entry, a.proposal, word)
	switch a.proposal = waits; {
	case !counts:
		return
	case a.doubt != "":
		asksUnnamed(b, a)
		if b.endDoubt(p, a); b.rules < ledger.SurplusSince { // else until the world has answered
			a.surplus = nil
		}
		a.doubt = doubtDue
		return
	}
	if k.NewKey {
		a.laterKeys = append(slices.Clip(a.laterKeys), laterKey{a.attempt, c.Address})
	}
	a.attemptsFrom, a.approved, a.unserved, a.failedForNow = a.attempt, true, false, false
	a.change, a.overwrite = pb.Change_CHANGE_UNSPECIFIED, k.Overwrite
	switch a.undo {
	case quarantined:
		b.goOn(p)
		p.resumed = c.Address
		a.settled, a.settledNs = nil, 0
		delete(b.pages, page{p.id, a.n, api.PageQuarantined})
		a.undo = owed
	case owed:
	default: // what is in flight stays there for its next attempt, if that may be made at once
		leftUnsure(b, p, a)
		again := a.isOut() && a.attempt > 0 && a.asking != pb.Question_QUESTION_EFFECT &&
			b.next(p, a) == doDispatch
		last := a.arguments
		a.dropCall()
		a.undo = owed
		if again { // as it stays in flight, so does what it was sent with
			a.undo, a.askedToSend, a.arguments = waiting, false, last
		}
	}
}

// saidDoneLate notes at a quarantine that an attempt was done. After the owner's answer, or
// beside another key, it is a duty, of the owner's: both may have been carried out.
func (b *book) saidDoneLate(c *claim, attempt uint32) {
	c.a.noteSaid(attempt)
	if c.a.undo != quarantined {
		owesUndone(b, c)
	}
}

func owesUndone(b *book, c *claim) {
	a := c.a
	b.owedAgain(c.Entry, c.p, a, &action{
		outcome: a.outcome, externalRef: a.externalRef, foundRef: a.foundRef, presence: a.presence,
		undone: true,
	}, noteUndone)
}

// Erasure is a plan whose sealed values cannot be read any more, or will not be: what
// was in them is not proven by its records, and never can be. That the records are those
// which were written, and that every decision was right, is proven without them.
type Erasure struct {
	Plan      string      `json:"plan"`
	Erased    *pb.Address `json:"erased"`              // the operator's record
	Reason    string      `json:"reason"`              // as it says
	Actor     string      `json:"actor"`               // likewise
	Destroyed *pb.Address `json:"destroyed,omitempty"` // the holder's record; nil: none yet
	Sealed    int         `json:"sealed"`              // values of the plan that are erased
}

// erasureOf is what became of the sealed values of a plan; nil: it was not erased.
func erasureOf(p *plan) *Erasure {
	if p.erased == nil {
		return nil
	}
	return &Erasure{p.id, p.erased, p.erasure.GetReason(), p.erasure.GetActor(), p.shredded,
		p.sealed}
}

// sealedIn counts the sealed values of a record.
func sealedIn(r *pb.Record) (count int) {
	p := r.GetPayload()
	for _, document := range [][]byte{p.GetInput(), p.GetOutput(), p.GetArguments(), p.GetDetail(),
		p.GetBefore()} {
		count += len(seal.Values(document))
	}
	return count
}

// isOver: the plan has come to an end that only something new can open again.
func (p *plan) isOver() bool {
	return !p.canStop() && p.phase != ledger.StateUnwinding && p.phase != ledger.StateQuarantined
}

// isErased: what the undos of a plan take cannot be read any more.
func (b *book) isErased(p *plan) bool {
	if of := b.plan(p.origin); of != nil {
		p = of
	}
	return p.erased != nil
}

// Keys of an undo. Attempts under different keys are different undos to their provider.

// keyOf is undoKey of one attempt: its owner may have asked for another key before it.
func keyOf(b *book, p *plan, a *action, attempt uint32) string {
	key := firstKey(b, p, a)
	if n := a.keysBefore(attempt); n > 0 {
		return ledger.RetryKey(key, a.laterKeys[n-1].at)
	}
	return key
}

func firstKey(b *book, p *plan, a *action) string {
	if a.key != "" {
		return a.key
	}
	return ledger.Key(b.tenant, p.id, a.id, ledger.PurposeUndo)
}

// laterKey is an owner's request for another key: attempts after so many have it.
type laterKey struct {
	after uint32
	at    *pb.Address
}

// keysBefore counts the requests for another key that an attempt came after.
func (a *action) keysBefore(attempt uint32) (n int) {
	for n < len(a.laterKeys) && a.laterKeys[n].after < attempt {
		n++
	}
	return n
}

// What operators report of an effect is kept as its completion.
var effectClauses = []clause{openedPlan, registeredAction,
	{"I6.effect", "An effect is reported of an action that has one of its own, and an undo.",
		func(c *claim) judgement {
			a := c.a
			none := a.forward.GetClass() == pb.Class_CLASS_EFFECTLESS || a.compensation == nil
			return unless(a.dutyOf == 0 && a.child == nil && !none && !a.isStaged(),
				"action %s is staged, a duty, a plan of its own, or without an effect or an undo", a.id)
		}},
	{"I24.effect", "What a forward has returned under a seal is not reported in clear.",
		func(c *claim) judgement {
			return unless(len(c.Record.Payload.GetOutput()) == 0 || !c.a.compensation.GetSealed(),
				"the output of action %s is sealed", c.a.id)
		}},
	{"I15.effect", "An effect of a plan that is undone is reported of what undoes it; not of what " +
		"the undo of a part leaves out.",
		func(c *claim) judgement {
			committed := c.p.phase == ledger.StateCommitted && !c.p.holdsLeases() && !anytime(c.b)
			leftOut := c.p.phase == ledger.StateCommitted && c.p.root().undoneAs != "" && anytime(c.b)
			return unless(c.p.undoneAs == "" && !committed && !leftOut && !staysOut(c.b, c.p, c.a),
				"plan %s is %s, or leaves action %s out", c.p.id, c.p.status(), c.a.id)
		}},
	{"I23.effect", "What was undone, or is its owner's, is not reported to be there.",
		func(c *claim) judgement {
			a := c.a
			nothing := isFinal(c.b, c.p, a) && len(c.Record.GetEffectReported().Duplicates) == 0
			return unless(!nothing && (a.doubt == "" || len(a.surplus) == 0),
				"action %s is %s", a.id, a.undo)
		}},
	{"I5.named", "What is known to be there has the name that it was known by first.",
		func(c *claim) judgement {
			ref, a := c.Record.GetEffectReported().ExternalRef, c.a
			name, _ := lacks(c.b, c.p, a)
			open := a.nameOf() == "" && a.outcome != completed || name
			owed := (a.outcome != completed || name) && isOwed(c.p, a, ref)
			return unless(ref == "" || !owed && (open || c.p.knowsEffect(a, ref)),
				"the effect of action %s is known as %q, or %q is owed", a.id, a.nameOf(), ref)
		}},
	{"I15.extra", "Extra effects are reported with the name of the effect that they come beside, " +
		"and at most 256 of an action.", mayOweExtras},
	{"I5.output", "What a forward has returned is reported once, before its undo is sent.",
		func(c *claim) judgement {
			output, a := c.Record.Payload.GetOutput(), c.a
			_, more := lacks(c.b, c.p, a)
			known := bytes.Equal(ledger.Compact(output), ledger.Compact(a.output))
			return unless(len(output) == 0 || more || known || a.outcome != completed,
				"what action %s has returned is known, or its undo was sent", a.id)
		}},
	{"I5.effect", "What is known to be there is reported once.", func(c *claim) judgement {
		return copyIf(c.a.outcome == completed && len(c.newExtras()) == 0 && !c.addsToReport())
	}},
}

const extrasMax = 256

// mayOweExtras judges the extra effects of a report.
func mayOweExtras(c *claim) judgement {
	k, more := c.Record.GetEffectReported(), c.newExtras()
	open := c.p.phase != ledger.StateCommitted && c.p.phase != ledger.StateCommitting &&
		c.p.phase != ledger.StateResolved || anytime(c.b)
	own := c.a.outcome == completed && !c.a.told
	named := k.ExternalRef != "" || c.a.nameOf() != "" || own
	fits := len(more) == 0 || int(c.a.duties)+len(c.extrasAfter(more)) <= extrasMax
	return unless(len(k.Duplicates) == 0 || open && named && fits,
		"plan %s is %s, and action %s has %d duties", c.p.id, c.p.status(), c.a.id, c.a.duties)
}

// isFinal: the action is settled, and what becomes known of its forward now changes nothing.
func isFinal(b *book, p *plan, a *action) bool {
	barred := undoesSeen(b, p, a) || a.undo == compensated && a.barred()
	return a.isSettled() && !a.late &&
		(a.outcome == completed || barred || a.undo == resolved && reckonsWith(a.resolution))
}

// reckonsWith: an owner's answer knows of an effect that is still there.
func reckonsWith(r *pb.Resolved) bool {
	return r.GetOutcome() == pb.Resolution_RESOLUTION_LOST ||
		r.GetOutcome() == pb.Resolution_RESOLUTION_ACCEPTED
}

// knowsEffect: a name is that of an effect of an action that is known to be there.
func (p *plan) knowsEffect(a *action, name string) bool {
	return name == a.nameOf() || p.hasDutyFor(a, name) || slices.Contains(a.duplicates, name)
}

// newExtras are the extra effects of a report that are not known yet.
func (c *claim) newExtras() (names []string) {
	for _, name := range c.Record.GetEffectReported().GetDuplicates() {
		if !c.p.knowsEffect(c.a, name) {
			names = append(names, name)
		}
	}
	return names
}

// noteEffect keeps that an effect is there, as its completion does, until its agent says more.
func noteEffect(b *book, c *claim) {
	k, p, a := c.Record.GetEffectReported(), c.p, c.a
	extra, known := c.newExtras(), a.outcome == completed
	counts, waits := p.counts(c.Entry, a.proposal,
		proposal{answer: ledger.EffectAnswer(k, c.Record.Payload.GetOutput())})
	if a.proposal = waits; !counts {
		return
	}
	switch {
	case known && c.addsToReport():
		addsReport(b, c)
	case !known:
		e := c.Entry
		e.Record = &pb.Record{Plan: p.id, Action: a.id, Payload: c.Record.Payload,
			Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{
				ExternalRef: cmp.Or(k.ExternalRef, a.nameOf())}}}
		b.becomes(e, p, a)
		a.told, a.toldAt = true, c.Address
	}
	if len(extra) > 0 {
		b.goOn(p)
		if p.phase == ledger.StateCommitted || p.phase == ledger.StateCommitting {
			for _, ref := range extra {
				oweExtraEffect(b, p, a, c.Address, ref)
			}
			return
		}
		b.noteExtraRefs(p, a, c.extrasAfter(extra))
	}
}

// anytime: effects are reported of what is committed, or was resolved, too.
func anytime(b *book) bool { return b.rules >= ledger.AnytimeSince }

// extrasAfter are the extra effects that are owed once more are reported: with them what a commit
// has found.
func (c *claim) extrasAfter(more []string) []string {
	if c.b.rules < ledger.AllFoundSince {
		return slices.Concat(c.a.duplicates, more)
	}
	return besides(c.p, c.a, slices.Concat(c.a.duplicates, c.a.surplus, more))
}

// mayAdd judges what the agent says of a forward after an operator has reported its effect.
func mayAdd(b *book, p *plan, a *action, r *pb.Record) judgement {
	k := r.GetForwardCompleted()
	switch {
	case k == nil, isOwed(p, a, k.ExternalRef), !p.otherEffect(a, k) && isSent(b, toldAs(p, a)):
		return judgement{is: copied}
	}
	begun := p.otherEffect(a, k) && (a.hasBegun() || a.isOwners())
	return unless(!begun || a.duties < ownMax(b), "action %s has %d duties", a.id, a.duties)
}

// isOwed: an effect of an action is owed beside its own, by its name. The duty for a doubt about
// the action is of its own effect.
func isOwed(p *plan, a *action, name string) bool {
	if name == "" || name == a.nameOf() {
		return false
	}
	origin := p.originOf(a)
	if origin.duties == 0 && len(a.duplicates) == 0 {
		return false
	}
	return slices.Contains(a.duplicates, name) ||
		slices.ContainsFunc(p.actions, func(d *action) bool {
			return d.dutyOf == origin.n && d.nameOf() == name && d != a && d.n != a.doubtedAs
		})
}

// alsoBecomes is becomes of the copy of an action in what undoes its committed plan.
func alsoBecomes(b *book, e ledger.Entry, p *plan, a *action) {
	if u := b.plan(p.undoneAs); u != nil && a.dutyOf == 0 {
		if copied := u.named(e.Record.Action); copied != nil {
			b.becomes(e, u, copied)
		} else if u.takenBack(e.Record, processOf(u, e.Source.Name, e.Record.Writer)) >= 0 {
			b.takeBack(u, e)
		}
	}
}

// otherEffect: an agent names another effect than an operator has reported.
func (p *plan) otherEffect(a *action, k *pb.ForwardCompleted) bool {
	reported := cmp.Or(a.nameOf(), toldAs(p, a).nameOf())
	return k.ExternalRef != "" && reported != "" && k.ExternalRef != reported
}

// hasBegun: a call of the undo of an action was made, or nothing is to be done for it any more.
func (a *action) hasBegun() bool {
	return a.attempt > 0 || a.ahead != nil || a.isOut() || a.isSettled()
}

// isOwners: the undo of an action is its owner's, who answers for the effect that it has a name of.
func (a *action) isOwners() bool { return a.undo == quarantined || a.undo == exhausted }

// addsWord keeps what the agent says of a forward after an operator has reported its effect. Two
// names are two effects, and both are owed.
func (b *book) addsWord(e ledger.Entry, p *plan, a *action) {
	k, output, of := e.Record.GetForwardCompleted(), e.Record.Payload.GetOutput(), toldAs(p, a)
	other, reported := p.otherEffect(a, k), cmp.Or(a.nameOf(), of.nameOf())
	if other && (a.hasBegun() || a.isOwners()) {
		owesOther(b, e, p, a)
		return
	}
	if a.told = false; other {
		a.output = nil
	}
	for _, x := range slices.Compact([]*action{a, of}) {
		x.returns(k, output)
		x.wordAt = e.Address.Sequence
		if k.ExternalRef == "" {
			x.foundRef = reported
		}
	}
	if other {
		oweExtraEffect(b, p, a, e.Address, reported)
	}
	b.lookAction(p, a)
	if of != a {
		b.lookAction(p, of)
	}
	noteReads(b, p)
}
