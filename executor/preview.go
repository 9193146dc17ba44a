package executor

import (
	"encoding/json"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Preview is the unwind itself, decided by the same code in a scratch copy that is
// thrown away, with workers that say done and probes that find the effect.

// previewStepsMax bounds the steps that one preview shows, previewStagesMax how far
// it looks.
const (
	previewStepsMax  = 1000
	previewStagesMax = 100_000
	previewPrograms  = 256
)

// Preview says what an unwind of a plan would do at nowNs (unix ns, the host's
// guarded clock), without acting: all of it, or what came after a savepoint. The
// error is a *ledger.Refused: there is no such plan.
func (r *Reader) Preview(q PreviewQuery, nowNs int64) (PreviewView, error) {
	live := *r.s
	if live.programs == nil {
		live.programs = triggers.NewCache(previewPrograms)
	}
	d := &decider{live: &live, state: live.fork(), in: Input{EpochNs: nowNs, SizeMax: ledger.CommitSizeMax}}
	d.state.meta.TimeNs = max(d.state.meta.TimeNs, nowNs)
	p := d.state.plan(q.Plan)
	if p == nil {
		return PreviewView{}, ledger.Refuse("plan", "there is no plan "+q.Plan, "a plan of this tenant")
	}
	view := PreviewView{Plan: p.id, State: stateName(p.row), To: q.To, Owner: d.state.owner(p), Steps: []PreviewStep{}}
	p, view.Refused = d.rehearse(p, q.To)
	if view.Refused != "" {
		view.End = view.State
		return view, nil
	}
	run := &rehearsal{d: d, view: &view}
	run.play(p)
	view.End = stateName(p.row)
	for n := uint32(1); n <= p.row.Actions && len(view.Outstanding) < outstandingMax && !rewindable(p.row); n++ {
		if a := d.state.action(p.id, n); outstanding(a) {
			view.Outstanding = append(view.Outstanding, a.fixed.Id)
		}
	}
	view.Outstanding = append(view.Outstanding, orphans(p.row)...)
	return view, nil
}

// rewindable reports whether a plan is open again: what is held is not outstanding.
func rewindable(r *rowspb.PlanRow) bool { return r.Phase == rowspb.Phase_PHASE_OPEN }

// rehearse asks for the unwind in the scratch state, as an operator would.
func (d *decider) rehearse(p *plan, to string) (*plan, string) {
	here := &pb.Address{Sequence: d.state.meta.Applied.GetSequence() + 1}
	e := ledger.Entry{Address: here, StampNs: d.in.EpochNs, Record: &pb.Record{Plan: p.id}}
	switch p.row.Phase {
	case rowspb.Phase_PHASE_UNWINDING, rowspb.Phase_PHASE_QUARANTINED:
		if to != "" && to != p.row.ToSavepoint {
			return p, already(p)
		}
		return p, ""
	case rowspb.Phase_PHASE_OPEN, rowspb.Phase_PHASE_COMMITTING:
		switch begun := p.row.Fired != nil || p.row.Signal != rowspb.Signal_SIGNAL_NONE; {
		case to != "" && p.row.Phase == rowspb.Phase_PHASE_COMMITTING:
			return p, "plan " + p.id + " is being committed: all of it is undone, or nothing"
		case to != "" && savepoint(p, to) == nil:
			return p, "plan " + p.id + " has no savepoint " + to
		case begun && to != "" && to != p.row.ToSavepoint:
			return p, already(p)
		case p.row.Fired != nil:
			return p, ""
		}
	case rowspb.Phase_PHASE_COMMITTED:
		if result := d.state.undoCommitted(e, p, to, "preview"); result.Verdict != Effective {
			return p, result.Reason
		}
		p, to = d.state.plan(p.row.UndoneAs), ""
	default:
		return p, "plan " + p.id + " is " + stateName(p.row)
	}
	p.row.Signal, p.row.ToSavepoint, p.row.Fired, p.row.Turned, p.row.Behind = rowspb.Signal_SIGNAL_CANCELLED, to, here, nil, nil
	return p, ""
}

func already(p *plan) string { return "plan " + p.id + " is already " + statusName(p.row) }

// rehearsal plays an unwind to its end.
type rehearsal struct {
	d     *decider
	view  *PreviewView
	stage int
}

// play answers the calls of one stage after the other, until there are none. Time
// goes on only when nothing else does.
func (r *rehearsal) play(p *plan) {
	calls := r.flying(p) // that were out before
	r.due(p)
	for range previewStagesMax {
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
	r.d.state.descendants(p, func(c *plan) bool { plans = append(plans, c); return true })
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
	r.each(p, rowspb.Undo_UNDO_DISPATCHED, func(_ *plan, a *action) { calls = append(calls, call{a, a.row.Asking}) })
	return calls
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
			a.fixed.Registered = &pb.Address{Sequence: r.d.state.meta.Applied.GetSequence() + 1, Index: a.id.n}
		}
	}
}

// call is one that a stage has sent.
type call struct {
	a        *action
	question pb.Question
}

// note shows the steps that were decided and returns the calls among them.
func (r *rehearsal) note(records []*pb.Record) (calls []call) {
	for _, rec := range records {
		p := r.d.state.plan(rec.Plan)
		if rec.Action == "" {
			continue
		}
		a := r.d.state.byName(rec.Plan, rec.Action)
		step := r.step(p, a)
		switch k := rec.Kind.(type) {
		case *pb.Record_CompensationDispatched:
			step.Step, step.Inverse, step.Arguments = "compensate", k.CompensationDispatched.Capability, json.RawMessage(rec.Payload.GetArguments())
			calls = append(calls, call{a, pb.Question_QUESTION_UNSPECIFIED})
		case *pb.Record_ProbeAsked:
			calls = append(calls, call{a, k.ProbeAsked.Question})
			if k.ProbeAsked.Question == pb.Question_QUESTION_VERIFY {
				continue
			}
			step.Step, step.Inverse, step.Arguments = "probe", k.ProbeAsked.Capability, json.RawMessage(rec.Payload.GetArguments())
			step.Reason = "in doubt; what follows takes the effect for present"
		case *pb.Record_CompensationSkipped:
			step.Step, step.Reason = "skip", k.CompensationSkipped.Reason
		case *pb.Record_ActionQuarantined:
			step.Step, step.Reason, step.Owner = "quarantine", k.ActionQuarantined.Reason, r.d.state.owner(p)
		default:
			continue
		}
		if len(r.view.Steps) < previewStepsMax {
			r.view.Steps = append(r.view.Steps, step)
		} else {
			r.view.Omitted++
		}
	}
	return calls
}

func (r *rehearsal) step(p *plan, a *action) PreviewStep {
	f := a.fixed.Forward
	plan := p.id
	if p.row.Origin != "" && strings.HasSuffix(plan, undoneSuffix) {
		plan = p.row.Origin
	}
	return PreviewStep{
		Stage: r.stage, Plan: plan, Number: int(a.id.n), Action: a.fixed.Id, Capability: f.GetCapability(), Class: className(f.GetClass()),
		Fidelity: a.fixed.Compensation.GetFidelity(), Outcome: outcomeName(a.row.Outcome), ClosesNs: a.row.ClosesNs,
	}
}

// answer lets a call succeed: undos are done, effects in doubt are present, and
// checks after an undo find nothing.
func (r *rehearsal) answer(c call) {
	p, a := r.d.state.plan(c.a.id.plan), c.a
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
	rec.Kind = &pb.Record_ProbeAnswered{ProbeAnswered: &pb.ProbeAnswered{Attempt: a.row.Asked, Question: c.question, Presence: presence}}
	r.d.propose(rec)
}
