package executor

import (
	"fmt"
	"iter"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/attempts"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// A duty is an effect of an action that is owed once more: an extra one that a
// probe found (S98), or one whose forward reported after its action was undone or
// skipped. It is an action of its own beside the one it comes from, with that one's
// contract and place in the order and a key of its own, and no one can register one.

// DutySign is between an action's id and the number of its duty.
const DutySign = "~"

// dutyID is what the i-th duty of an action is called.
func dutyID(origin *action, i uint32) string {
	return fmt.Sprintf("%s%s%d", origin.fixed.Id, DutySign, i)
}

// dutiesOf are those of a registered action, in the order in which they came.
func dutiesOf(origin *action) iter.Seq[*action] {
	return func(yield func(*action) bool) {
		p, i := origin.plan, uint32(1)
		for i <= origin.row.Duties && yield(p.s.byName(p.id, dutyID(origin, i))) {
			i++
		}
	}
}

// origin is the registered action that a duty comes from; of any other, itself.
func (a *action) origin() *action {
	if a.fixed.DutyOf != 0 {
		return a.plan.action(a.fixed.DutyOf)
	}
	return a
}

// duty adds one. at is the record that gave rise to it.
func (origin *action) duty(at *pb.Address, row *rowspb.ActionRow, output []byte) *action {
	s := origin.plan.s
	origin = origin.origin()
	origin.row.Duties++
	origin.change()
	row.OutcomeAt, row.HasOutput = at, bindable(output)
	d := origin.plan.enlist(&rowspb.ActionStatic{
		Id: dutyID(origin, origin.row.Duties), Registered: at, AtNs: s.meta.TimeNs,
		Forward: origin.fixed.Forward, Compensation: origin.fixed.Compensation,
		Before: origin.fixed.Before, DutyOf: origin.id.N,
		Facts: origin.fixed.Facts, FactsLost: origin.fixed.FactsLost,
	}, row)
	payload := rows.ClonePayload(origin.payload())
	payload.Output, payload.Found = output, nil
	d.setPayload(payload)
	return d
}

// foundDuplicates takes out the lease that answers for extra effects, which is true
// by now, and holds the plan until it has fired.
func (s about) foundDuplicates(refs []string) {
	p, a := s.a.plan, s.a
	a.row.Duplicates = nil
	for _, ref := range refs {
		if ref != a.name() && !a.owedTo(ref) {
			a.row.Duplicates = append(a.row.Duplicates, ref)
		}
	}
	if len(a.row.Duplicates) == 0 {
		return
	}
	a.row.Leases = slices.DeleteFunc(a.row.Leases, isDuplicate)
	a.row.Leases = append(a.row.Leases, &rowspb.LeaseRow{Name: leaseDuplicate, ArmedNs: s.meta.TimeNs})
	a.row.Presence, a.row.PresenceAt = pb.Presence_PRESENCE_DUPLICATE, s.e.Address
	p.row.Duplicated = rows.Insert(p.row.Duplicated, a.id.N)
	a.watch()
}

// duplicateFired owes the extra effects that a probe found (S98).
func (s *fold) duplicateFired(p *plan) Result {
	a := s.byName(p.id, s.e.Record.Action)
	fires := p.row.Phase == rowspb.Phase_PHASE_UNWINDING ||
		p.row.Phase == rowspb.Phase_PHASE_OPEN && s.meta.HolderFold >= ledger.AskedSince
	if !fires || a == nil || !slices.Contains(p.row.Duplicated, a.id.N) {
		return void("no extra effect of action %s of plan %s waits for its lease", s.e.Record.Action,
			p.id)
	}
	l, _ := p.lease(rows.Lease{Plan: p.id, N: a.id.N, Name: leaseDuplicate})
	l.Fired = true
	refs := a.row.Duplicates
	a.row.Duplicates = nil
	p.row.Duplicated = rows.Without(p.row.Duplicated, a.id.N)
	p.mark(a)
	for _, ref := range refs {
		if !a.owedTo(ref) {
			s.about(a).duplicate(ref)
		}
	}
	return effective
}

// duplicate owes one extra effect. Its output is not known: its compensation reads
// meta.external_ref.
func (s about) duplicate(ref string) {
	a := s.a
	a.plan.reopen()
	d := s.extra(ref)
	if s.about(d).waitsForUnwind(noteExtra, noteKept) {
		return
	}
	d.joinUnwind()
	if why := d.unnamed(); why != "" {
		d.row.Note = why
		if d.row.Undo == rowspb.Undo_UNDO_READY {
			d.park()
		}
	}
}

// Why an extra effect is undone that was found while its plan was open, and what becomes of others.
const (
	noteExtra = "its effect is there more than once: the extra one is undone"
	noteKept  = "its effect is there more than once: the extra one is still there, as its plan " +
		"is committed, and is undone with it if that is"
	noteNoUndo = "; it is its owner's then: "
)

// unnamed says why the undo of an extra effect would not know which one it is about, or "".
func (a *action) unnamed() string {
	if s := a.plan.s; s.NamesEffect(a.fixed.Compensation, s.meta.HolderFold) {
		return ""
	}
	found := map[bool]string{false: "the probe found", true: "there is"}[anytime(a.plan.s)]
	return found + " an extra effect " + a.row.ExternalRef +
		", and no argument of its compensation reads meta.external_ref"
}

// owedTo reports whether an extra effect is a duty already: a later probe may find it
// still there.
func (a *action) owedTo(ref string) bool {
	for d := range dutiesOf(a.origin()) {
		if d.name() == ref {
			return true
		}
	}
	return false
}

// completedLate fences a forward that reports completion after the unwind has
// begun to deal with its action without knowing: the effect is never silently
// held. other: what completed is another effect than the one that is undone.
func (s about) completedLate(other bool) {
	a := s.a
	if a.row.Presence == pb.Presence_PRESENCE_ABSENT && !settled(a.row.Undo) {
		// the probe was too early: its answer must not skip what is there now
		a.row.Presence = pb.Presence_PRESENCE_UNSPECIFIED
	}
	switch {
	case a.fixed.Forward.Class == pb.Class_CLASS_EFFECTLESS || a.row.Late:
	case a.asksForCommit(): // and knows it now
	case other:
		s.owedOther(s.e.Record.GetForwardCompleted())
	case undoesSeen(a): // which has completed, and nothing else has
	case a.row.Asking == pb.Question_QUESTION_UNDO && a.row.Blind && refusesLate(a):
		// No undo came first, or the forward were refused: what was asked before says nothing.
		if a.row.Undo == rowspb.Undo_UNDO_DISPATCHED {
			a.row.AskedFrom = a.row.Asked
			a.wait(s.meta.TimeNs)
		}
	case flying(a.row.Undo) && !a.row.Blind: // a question about its effect is out: it is answered
		a.land()
		a.owe()
	case a.tooLate():
		s.owedAnew(&rowspb.ActionRow{
			Outcome: rowspb.Outcome_OUTCOME_COMPLETED, ExternalRef: a.row.ExternalRef,
			LiftedOutput: a.row.LiftedOutput, OutputIncomplete: a.row.OutputIncomplete,
			ReferenceIncomplete: a.row.ReferenceIncomplete,
			Late:                true, Approved: a.row.Approved && !asksWhenLate(a),
		}, noteLate)
	}
}

// doubtedLate is completedLate for a forward that its caller gives up only now: it may
// land after all that was done without knowing of it.
func (s about) doubtedLate() {
	a := s.a
	probed := a.row.Presence == pb.Presence_PRESENCE_ABSENT && a.row.Resolution == nil
	if probed && a.row.Undo == rowspb.Undo_UNDO_HELD {
		a.row.Presence = pb.Presence_PRESENCE_UNSPECIFIED // a commit has asked about it before
	}
	if a.fixed.Forward.Class == pb.Class_CLASS_EFFECTLESS || a.row.Late || !a.tooLate() {
		return
	}
	d := s.owedAnew(&rowspb.ActionRow{
		Outcome: rowspb.Outcome_OUTCOME_IN_DOUBT, OutcomeNs: s.meta.TimeNs, Approved: a.row.Approved,
	}, noteDoubted)
	a.row.DoubtedAs = d.id.N
}

// tooLate reports whether the undo of an action was sent blindly, or was given up, so
// that what becomes known of its forward now is owed on its own; nothing more is done
// for the action itself. A blind undo that the provider holds against what comes late
// has dealt with it.
func (a *action) tooLate() bool {
	switch u := a.row.Undo; {
	case a.asksForCommit(), undoesSeen(a):
		return false
	case a.row.Blind && refusesLate(a) && (flying(u) || u == rowspb.Undo_UNDO_COMPENSATED):
		return false
	case flying(u) && a.row.Blind:
		a.row.Late = true
		a.row.Overtaken = a.fixed.DutyOf != 0 && a.plan.s.meta.HolderFold >= ledger.OwnerFirstSince
		if u == rowspb.Undo_UNDO_WAITING || a.row.Asking == pb.Question_QUESTION_UNDO {
			a.land()
			a.owe()
		}
		return true
	case u == rowspb.Undo_UNDO_COMPENSATED && a.row.Blind, u == rowspb.Undo_UNDO_SKIPPED,
		u == rowspb.Undo_UNDO_RESOLVED && !letStand(a.row.Resolution):
		a.row.Late = true
		return true
	default:
		return false
	}
}

// tellDoubted tells the duty for a doubt about a forward what has become known of it
// since. The blind undo may have undone a completed one: it is asked about.
func (s about) tellDoubted() {
	a := s.a
	if a.row.DoubtedAs == 0 || a.row.Outcome == rowspb.Outcome_OUTCOME_IN_DOUBT {
		return
	}
	d := a.plan.action(a.row.DoubtedAs)
	s.about(d).outcomeOf()
	if a.row.Outcome == rowspb.Outcome_OUTCOME_COMPLETED && !settled(d.row.Undo) && !d.row.Late {
		d.row.Late = true
		d.change()
	}
}

// Why something is owed once more.
const (
	noteLate    = "its forward completed after it was undone or skipped: the effect may stand"
	noteDoubted = "its forward was given up after it was undone or skipped: the effect may still come"
	noteOwed    = "; that is owed as " // and the duty of a settled action
)

// asksWhenLate reports whether the contract gives an effect that came late to its
// owner.
func asksWhenLate(a *action) bool {
	return a.fixed.Compensation.GetOnLate() == pb.OnLate_ON_LATE_QUARANTINE
}

// isSeen reports whether a probe has seen the effect of an action, and what it is called is known.
// Holders of before SeenSince undid it blindly all the same.
func isSeen(a *action) bool {
	seen := a.row.Presence == pb.Presence_PRESENCE_PRESENT ||
		a.row.Presence == pb.Presence_PRESENCE_DUPLICATE
	return seen && a.name() != "" && a.plan.s.meta.HolderFold >= ledger.SeenSince
}

// dirty reports whether the forward of an action has failed dirty; holders of before DirtySince
// said so of what is undone blindly.
func dirty(a *action) bool {
	if staged(a) || a.plan.s.meta.HolderFold < ledger.DirtySince {
		return blind(a)
	}
	of := a.origin()
	return attempts.FailedDirty(a.row, of.row.Told && (a.id == of.id || toldAs(of).id == a.id))
}

// undoesSeen reports whether the undo of an action, as far as it has come, is of an effect that a
// probe has seen, by its name. What is said of that effect from now on adds nothing.
func undoesSeen(a *action) bool {
	switch {
	case !isSeen(a), a.row.Late, a.asksForCommit(), a.row.Undo == rowspb.Undo_UNDO_SKIPPED:
		return false
	case a.row.Undo == rowspb.Undo_UNDO_COMPENSATED:
		return !a.row.Blind
	default:
		return hasBegun(a) || isOwners(a)
	}
}

// otherThanSeen reports whether a record completes another effect of an action than the one that
// its undo is of. A provider that refuses what is late goes by the forward, whatever it calls it.
func otherThanSeen(a *action, r *pb.Record) bool {
	ref := r.GetForwardCompleted().GetExternalRef()
	return ref != "" && ref != a.name() && undoesSeen(a) && !refusesLate(a)
}

// owedAnew adds the duty for what became known of a forward too late, and lets its plan
// deal with it.
func (s about) owedAnew(row *rowspb.ActionRow, why string) *action {
	p, a := s.a.plan, s.a
	p.reopen()
	row.ClosesNs = a.row.ClosesNs
	output := s.e.Record.Payload.GetOutput()
	if row.Undone { // the record is about the undo, not about the forward
		output = a.payload().Output
	}
	d := a.duty(s.e.Address, row, output)
	if settled(a.row.Undo) {
		a.row.Note = why + noteOwed + d.fixed.Id
	}
	if s.about(d).waitsForUnwind(why, why) {
		return d
	}
	d.joinUnwind()
	if a.row.Undo == rowspb.Undo_UNDO_RESOLVED && begins(d) { // against its owner's word
		d.row.Note = why
		d.dropRetry()
		d.park()
	}
	return d
}

// waitsForUnwind reports whether a duty is of a plan that is not being undone. An open one undoes
// it: what it did was rewound, and this is, too. Of a committed one it is kept, held for its root,
// or given up. Its owner is told why, and may have the plan undone.
func (s about) waitsForUnwind(rewound, kept string) bool {
	p, d := s.a.plan, s.a
	switch p.row.Phase {
	case rowspb.Phase_PHASE_OPEN, rowspb.Phase_PHASE_COMMITTING:
		s.rewindDuty(rewound)
		return true
	case rowspb.Phase_PHASE_COMMITTED:
	default:
		return false
	}
	if !keeps(p.row) {
		s.meta.Held--
	}
	if next, why := d.nextStep(); next == stepQuarantine && !p.committing() && anytime(s.State) {
		kept += noteNoUndo + why
	}
	d.knownSince()
	if p.row.UndoneAs == "" { // else the plan that undoes it has this duty too
		p.page(d, api.PageQuarantined, kept, s.e.Address)
	}
	return true
}

// failedLate handles a forward that is known to have failed while its undo waits
// for another call: there is nothing to undo (I20).
func (a *action) failedLate() {
	asksEffect := a.row.Undo == rowspb.Undo_UNDO_DISPATCHED &&
		a.row.Asking == pb.Question_QUESTION_EFFECT
	if !a.asksForCommit() && (a.row.Undo == rowspb.Undo_UNDO_WAITING || asksEffect) {
		a.land()
		a.owe()
	}
}

// extrasMax bounds the duties of an action that a report may add to.
const extrasMax = 256

// reportedExtras owes the extra effects of a report: once the lease that answers for them fires,
// or, of what is committed, which holds none, at once.
func (s about) reportedExtras(more []string) {
	p := s.a.plan
	p.reopen()
	switch p.row.Phase {
	case rowspb.Phase_PHASE_COMMITTING, rowspb.Phase_PHASE_COMMITTED:
		for _, ref := range more {
			s.duplicate(ref)
		}
	default:
		s.foundDuplicates(extrasAfter(s.a, more))
	}
	p.touch()
}

// cannotOwe says why the extra effects of a report, of which more are new, cannot be owed, or "".
func cannotOwe(a *action, k *pb.EffectReported, more []string) string {
	p, owed := a.plan, int(a.row.Duties)+len(extrasAfter(a, more))-len(more)
	switch phase := p.row.Phase; {
	case len(k.Duplicates) == 0:
		return ""
	case !anytime(p.s) && (phase == rowspb.Phase_PHASE_COMMITTING ||
		phase == rowspb.Phase_PHASE_COMMITTED || phase == rowspb.Phase_PHASE_RESOLVED):
		return "effect_reported.duplicates: plan " + p.id + " is " + stateName(p.row) +
			", and neither open nor undone"
	case k.ExternalRef == "" && a.name() == "" &&
		(a.row.Told || a.row.Outcome != rowspb.Outcome_OUTCOME_COMPLETED):
		return "effect_reported.external_ref: missing; want the name of the effect beside which the " +
			"duplicates are"
	case len(more) > 0 && owed+len(more) > extrasMax:
		return fmt.Sprintf("effect_reported.duplicates: %d, and %d of action %s are owed; want at most "+
			"%d", len(more), owed, a.fixed.Id, extrasMax)
	}
	return ""
}

// pendingExtras are the extra effects of an action whose lease has yet to fire.
func pendingExtras(a *action) []string {
	if !slices.Contains(a.plan.row.Duplicated, a.id.N) {
		return nil
	}
	return slices.Clone(a.row.Duplicates)
}

// extrasAfter are those that its lease answers for once more are reported: with them what a commit
// has found.
func extrasAfter(a *action, more []string) []string {
	if a.plan.s.meta.HolderFold < ledger.AllFoundSince {
		return append(pendingExtras(a), more...)
	}
	return extrasBeside(a, append(slices.Clone(a.row.Duplicates), more...))
}

// knowsEffect reports whether a name is that of an effect of an action that is known to be there.
func knowsEffect(a *action, name string) bool {
	return name == a.name() || a.owedTo(name) || slices.Contains(pendingExtras(a), name)
}

// newExtras are the extra effects of a report that are not known yet.
func newExtras(a *action, k *pb.EffectReported) (names []string) {
	for _, name := range k.Duplicates {
		if !knowsEffect(a, name) {
			names = append(names, name)
		}
	}
	return names
}

// isOwed is what an effect of an action, by its name, is owed as beside the action's own, or "": no
// two undos have one name.
func isOwed(a *action, name string) string {
	if name == "" || name == a.name() {
		return ""
	}
	for d := range dutiesOf(a.origin()) {
		if d.name() == name && d.id != a.id && d.id.N != a.row.DoubtedAs {
			return d.fixed.Id
		}
	}
	if slices.Contains(pendingExtras(a), name) {
		return "an extra effect"
	}
	return ""
}
