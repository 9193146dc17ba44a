package executor

import (
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// A rehearsal is the unwind itself, decided by the same code in a scratch copy that is
// thrown away, with workers that say done and probes that find the effect.

// rehearsalStagesMax bounds how far a rehearsal looks.
const rehearsalStagesMax = 100_000

// Rehearsed is a record that the unwind would write about an action. The steps of one
// stage are under way at once.
type Rehearsed struct {
	Stage  int
	Record *pb.Record
	Plan   *Plan   // in the scratch copy
	Action *Action // likewise, after the decision
}

// rehearsal plays an unwind to its end.
type rehearsal struct {
	d     *decider
	stage int
	show  func(Rehearsed)
}

// Rehearse plays the unwind of a plan at nowNs (unix ns): all of it, what came after
// savepoint to, or action from and what came after it. It returns the plan at its end in a
// scratch copy of the state: of a committed plan, the one that undoes it. refused says why
// nothing was played; the plan is nil if there is none of that id.
func (r *Reading) Rehearse(
	id, to, from string, nowNs int64, show func(Rehearsed),
) (end *Plan, refused string) {
	live := *compiling(r.s)
	in := Input{EpochNs: nowNs, SizeMax: ledger.CommitSizeMax}
	d := &decider{live: &live, state: live.fork(), in: in}
	d.state.meta.TimeNs = max(d.state.meta.TimeNs, nowNs)
	p := d.state.plan(id)
	switch {
	case p == nil:
		return nil, ""
	case p.row.Delivers:
		return readPlan(d.state, p), "plan " + id + " delivers plan " + p.row.Origin +
			": preview that one"
	}
	if p, refused = d.order(p, back{to, from}); refused == "" {
		(&rehearsal{d: d, show: show}).play(p)
	}
	return readPlan(d.state, p), refused
}

// order asks for the unwind in the scratch state, as an operator would.
func (d *decider) order(p *plan, to back) (*plan, string) {
	all := to == back{}
	here := &pb.Address{Sequence: d.state.meta.Applied.GetSequence() + 1}
	e := ledger.Entry{Address: here, StampNs: d.in.EpochNs, Record: &pb.Record{Plan: p.id}}
	switch p.row.Phase {
	case rowspb.Phase_PHASE_UNWINDING, rowspb.Phase_PHASE_QUARANTINED:
		if !all && to != goesBack(p.row) {
			return p, already(p)
		}
		return p, ""
	case rowspb.Phase_PHASE_OPEN, rowspb.Phase_PHASE_COMMITTING:
		switch begun := p.row.Fired != nil || p.row.Signal != rowspb.Signal_SIGNAL_NONE; {
		case to.savepoint != "" && p.row.Phase == rowspb.Phase_PHASE_COMMITTING:
			return p, "plan " + p.id + " is being committed, and goes back to no savepoint"
		case to.savepoint != "" && savepoint(p, to.savepoint) == nil:
			return p, "plan " + p.id + " has no savepoint " + to.savepoint
		case to.action != "" && p.notFrom(to.action) != "":
			return p, p.notFrom(to.action)
		case begun && !all && to != goesBack(p.row):
			return p, already(p)
		case p.row.Fired != nil:
			return p, ""
		}
	case rowspb.Phase_PHASE_COMMITTED:
		if why := staysCommitted(p, to); why != "" {
			return p, why
		}
		d.state.folding(e).undoCommitted(p, to, "plan "+p.id+" is undone")
		p, to = d.state.plan(p.row.UndoneAs), back{}
	default:
		return p, "plan " + p.id + " is " + stateName(p.row)
	}
	p.row.Signal = rowspb.Signal_SIGNAL_CANCELLED
	p.row.ToSavepoint, p.row.FromAction = to.savepoint, to.action
	p.takeTurns(rows.Lease{})
	p.row.Fired = here
	return p, ""
}

func already(p *plan) string { return "plan " + p.id + " is already " + statusName(p.row) }

// play answers the calls of one stage after the other, until there are none. Time
// goes on only when nothing else does.
func (r *rehearsal) play(p *plan) {
	r.forgetAhead(p)
	calls := r.flying(p) // that were out before
	r.due(p)
	for range rehearsalStagesMax {
		r.stage++
		calls = append(calls, r.decide(p)...)
		for len(calls) == 0 {
			if !r.wait(p) {
				return
			}
			calls = r.decide(p)
		}
		var checks []call // after an undo: of the next stage
		for _, c := range calls {
			r.answer(c)
			checks = append(checks, r.note(r.d.records)...)
			r.d.records, r.d.size = nil, 0
		}
		calls = checks
	}
}

// decide lets a plan and its children take every step they can, and returns the
// calls among them.
func (r *rehearsal) decide(p *plan) []call {
	for again := true; again; {
		began := len(r.d.records)
		for _, q := range r.all(p) {
			r.d.size = 0
			r.d.plan(q.id)
		}
		r.settleAddresses()
		again = len(r.d.records) > began && len(r.d.records) < ledger.CommitLenMax
	}
	calls := r.note(r.d.records)
	r.d.records, r.d.size = nil, 0
	return calls
}

// all is a plan and what is part of it.
func (r *rehearsal) all(p *plan) []*plan {
	plans := []*plan{p}
	p.descendants(func(c *plan) bool { plans = append(plans, c); return true })
	return plans
}

// each calls f for every action of an unwinding plan that is in this state.
func (r *rehearsal) each(p *plan, undo rowspb.Undo, f func(*plan, *action)) {
	for _, q := range r.all(p) {
		for n := q.row.Actions; n >= 1 && q.row.Phase == rowspb.Phase_PHASE_UNWINDING; n-- {
			if a := r.d.state.action(q.id, n); a.fixed.Child == "" && a.row.Undo == undo {
				f(q, a)
			}
		}
	}
}

// flying are the calls that were out before the preview began.
func (r *rehearsal) flying(p *plan) (calls []call) {
	r.each(p, rowspb.Undo_UNDO_DISPATCHED, func(_ *plan, a *action) {
		calls = append(calls, call{a, a.row.Asking})
	})
	return calls
}

// forgetAhead takes back what was recorded ahead: it is shown when its turn comes.
func (r *rehearsal) forgetAhead(p *plan) {
	r.each(p, rowspb.Undo_UNDO_OWED, func(_ *plan, a *action) {
		a.row.Ahead, a.row.Behind = nil, 0
	})
}

// due starts what waits for another try and whose time has come; its records are
// those of the stage that follows.
func (r *rehearsal) due(p *plan) {
	start := func(q *plan, a *action) {
		if a.row.DueNs <= r.d.in.EpochNs {
			r.d.size = 0
			r.d.next(q, a)
		}
	}
	r.each(p, rowspb.Undo_UNDO_WAITING, start)
	r.each(p, rowspb.Undo_UNDO_SETTLING, start)
}

// wait lets time pass until the next try; false: nothing waits for one.
func (r *rehearsal) wait(p *plan) bool {
	first := int64(0)
	earliest := func(_ *plan, a *action) {
		if first == 0 || a.row.DueNs < first {
			first = a.row.DueNs
		}
	}
	r.each(p, rowspb.Undo_UNDO_WAITING, earliest)
	r.each(p, rowspb.Undo_UNDO_SETTLING, earliest)
	if first == 0 {
		return false
	}
	r.d.in.EpochNs = max(r.d.in.EpochNs, first)
	r.d.state.meta.TimeNs = max(r.d.state.meta.TimeNs, first)
	r.due(p)
	return true
}

// settleAddresses gives what this stage has registered a place, so that its undo
// may be decided like that of anything in the ledger.
func (r *rehearsal) settleAddresses() {
	for _, a := range r.d.state.changed {
		if a.fixed.Registered.Sequence == 0 {
			a.fixed.Registered = &pb.Address{
				Sequence: r.d.state.meta.Applied.GetSequence() + 1, Index: a.id.N,
			}
		}
	}
}

// call is one that a stage has sent.
type call struct {
	a        *action
	question pb.Question
}

// note shows the records that were decided and returns the calls among them.
func (r *rehearsal) note(records []*pb.Record) (calls []call) {
	for _, rec := range records {
		if rec.Action == "" {
			continue
		}
		p, a := r.d.state.plan(rec.Plan), r.d.state.byName(rec.Plan, rec.Action)
		switch k := rec.Kind.(type) {
		case *pb.Record_CompensationDispatched:
			calls = append(calls, call{a, pb.Question_QUESTION_UNSPECIFIED})
		case *pb.Record_ProbeAsked:
			calls = append(calls, call{a, k.ProbeAsked.Question})
		}
		r.show(Rehearsed{r.stage, rec, readPlan(r.d.state, p), readAction(r.d.state, a)})
	}
	return calls
}

// answer lets a call succeed: undos are done, effects in doubt are present, no one has changed
// anything, and checks after an undo find nothing.
func (r *rehearsal) answer(c call) {
	p, a := r.d.state.plan(c.a.id.Plan), c.a
	if a.row.Undo != rowspb.Undo_UNDO_DISPATCHED {
		return
	}
	if c.question == pb.Question_QUESTION_UNSPECIFIED {
		r.d.done(p, a, &pb.CompensationSucceeded{Attempt: a.row.Attempt}, nil, a.row.Dispatched)
		return
	}
	presence := pb.Presence_PRESENCE_PRESENT
	if c.question == pb.Question_QUESTION_VERIFY {
		presence = pb.Presence_PRESENCE_ABSENT
	}
	rec := r.d.about(p, a, a.row.Dispatched)
	answer := &pb.ProbeAnswered{Attempt: a.row.Asked, Question: c.question, Presence: presence}
	if compares(a) && c.question != pb.Question_QUESTION_VERIFY && !p.committing() {
		answer.Change = pb.Change_CHANGE_NONE
	}
	rec.Kind = &pb.Record_ProbeAnswered{ProbeAnswered: answer}
	r.d.propose(rec)
}

// stopsMax bounds the irreversible acts that StopsAt names.
const stopsMax = 256

// StopsAt names the irreversible acts of a plan that is being undone at which that stops until
// their owner has answered, the latest first, those of child plans as plan/action: what they came
// after waits.
func (p *Plan) StopsAt() (names []string) {
	eachStop(p.p, false, func(of *plan, a *action) bool {
		names = append(names, treeName(p.p, of, a))
		return len(names) < stopsMax
	})
	return names
}

// eachStop calls f for each irreversible act at which the unwind of a plan stops, until it returns
// false. All that waits for its owner in a child stops its parent, if its entry does.
func eachStop(p *plan, all bool, f func(*plan, *action) bool) bool {
	for n := p.row.Actions; n >= 1; n-- {
		a := p.action(n)
		switch {
		case a.row.Undo != rowspb.Undo_UNDO_QUARANTINED:
		case a.fixed.Child != "":
			if !eachStop(p.s.plan(a.fixed.Child), all || holdsUp(a), f) {
				return false
			}
		case a.fixed.Forward.GetClass() == pb.Class_CLASS_IRREVERSIBLE && (all || holdsUp(a)):
			if !f(p, a) {
				return false
			}
		}
	}
	return true
}

// holdsUp reports whether something that an action came after waits for it, also beyond what has
// passed itself and is not clear: that holds back what it came after.
func holdsUp(a *action) bool {
	if passed(a.plan, a) {
		return false
	}
	seen := map[uint32]bool{}
	for left := slices.Clone(a.fixed.Before); len(left) > 0; {
		m := left[len(left)-1]
		left = left[:len(left)-1]
		b := a.plan.action(m)
		switch {
		case seen[m]:
		case b.row.Undo == rowspb.Undo_UNDO_OWED:
			return true
		case passed(a.plan, b):
			left = append(left, b.fixed.Before...)
		}
		seen[m] = true
	}
	return false
}

// What becomes of an action by what is recorded already, for those who ask.

// UndoneIn names the plan that undoes an action of a committed child, with all of the child, for
// the verdict on it; "": the plan is no committed child, or was committed with its root, or the
// verdict undoes nothing. The leases of such a child are held on, and what they undo is its root's.
func (a *Action) UndoneIn() string {
	x, p := a.a, a.a.plan
	l, _ := p.lease(rows.Lease{Plan: p.id, N: x.id.N, Name: leaseVerdict})
	verdict := x.row.Verdict
	switch {
	case l == nil || !keeps(p.row) || verdict == pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW:
		return ""
	case settled(x.row.Undo): // a part of the child has undone it before: only all of a plan is left
		if !crossed(x) || l.OfAction {
			return ""
		}
		return wholeOf(p).id
	case x.row.Outcome == rowspb.Outcome_OUTCOME_FAILED:
		return ""
	case l.OfAction:
		to, _ := p.undoneIn()
		return to.id
	}
	return p.root().id
}

// ToDrop reports whether a staged act, or what delivers it, is not made any more although nothing
// has settled it yet: its deliveries were stopped, and it is dropped when its turn comes.
func (a *Action) ToDrop() bool {
	x := a.a
	if row := x.plan.row; !row.Delivers && row.DeliveredAs != "" && staged(x) {
		if x = x.plan.s.byName(row.DeliveredAs, x.fixed.Id); x == nil {
			return false
		}
	}
	row := x.plan.row
	if !delivers(x) || row.Stopped == nil || closed(row.Phase) && !keeps(row) {
		return false
	}
	switch x.row.Undo {
	case rowspb.Undo_UNDO_HELD, rowspb.Undo_UNDO_OWED, rowspb.Undo_UNDO_READY:
		return x.row.Ahead == nil && x.row.Unsure == 0 && !isDelivered(x)
	}
	return false // it is out, or its owner's, or settled
}

// UndoneInPart reports whether an action was undone in a part of its plan after which the plan went
// on: what it did is not there any more. Of what its owner has answered for, that is so only where
// the answer says it: one that skips it claims nothing.
func (a *Action) UndoneInPart() bool {
	p, row := a.plan().row, a.Row
	switch {
	case !settled(row.Undo), row.Outcome == rowspb.Outcome_OUTCOME_FAILED,
		row.Undo == rowspb.Undo_UNDO_RESOLVED &&
			row.Resolution.GetOutcome() != pb.Resolution_RESOLUTION_DONE:
		return false
	case p.Unwinding != nil: // not in the unwind of the present, or that it has ended with
		return laterThan(p.Unwinding, row.Settled)
	}
	return p.Phase == rowspb.Phase_PHASE_OPEN || p.Phase == rowspb.Phase_PHASE_COMMITTING ||
		p.Phase == rowspb.Phase_PHASE_COMMITTED
}
