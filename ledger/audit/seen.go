package audit

import (
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

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
