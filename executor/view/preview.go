package view

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// previewStepsMax bounds the steps that one preview shows.
const previewStepsMax = 1000

// Preview says what an unwind of a plan would do at nowNs (unix ns, the host's
// guarded clock), without acting: all of it, what came after a savepoint, or an action and
// what came after it. The error is a *ledger.Refused: there is no such plan, or the question
// names both a savepoint and an action. Undoable is set where it names an action of the plan.
func (r *Reader) Preview(q api.PreviewQuery, nowNs int64) (api.Preview, error) {
	p := r.core.Plan(q.Plan)
	switch {
	case p == nil:
		return api.Preview{}, noPlan(q.Plan)
	case q.To != "" && q.Action != "":
		return api.Preview{}, ledger.Refuse("action", "given beside a savepoint", "one of the two")
	}
	if a, err := which(p, q.Action); err != nil {
		return api.Preview{}, err
	} else if a != nil {
		q.Action = a.Fixed.Id
	} else {
		q.Action = strings.TrimPrefix(q.Action, api.IDPrefix) // the refusal names it
	}
	shown := api.Preview{
		Plan: p.ID, State: p.State(), To: q.To, Action: q.Action, Owner: p.Owner(),
		Steps: []api.PreviewStep{},
	}
	undoable := newUndoable(p, q.Action)
	show := func(d executor.Rehearsed) {
		step, ok := previewStep(d.Record)
		if !ok {
			return
		}
		undoable.goesThrough(d, step)
		if len(shown.Steps) == previewStepsMax {
			shown.Omitted++
			return
		}
		if step.Step == "quarantine" {
			step.Owner = d.Plan.Owner()
		}
		if d.Plan.Row.Delivers {
			r.delivered(d, &step)
		}
		shown.Steps = append(shown.Steps, r.stepOf(step, d.Stage, d.Plan, d.Action))
	}
	r.deliveries(p, "", &shown.Deliveries)
	shown.Unarmed = unarmed(r, p, q.Action)
	p, refused := r.core.Rehearse(q.Plan, q.To, q.Action, nowNs, show)
	if refused != "" {
		shown.Refused, shown.End = refused, shown.State
		shown.Undoable = undoable.said(refused)
		return shown, nil
	}
	shown.Stops = p.StopsAt()
	shown.End = p.State()
	if p.Row.Phase != rowspb.Phase_PHASE_OPEN { // again: what is held is not outstanding
		shown.Outstanding = p.Outstanding()
	}
	left := ""
	if len(shown.Outstanding) > 0 {
		left = "it waits for an owner's answer about what came after it"
	}
	shown.Undoable = undoable.said(left)
	shown.Outstanding = append(shown.Outstanding, orphanNames(p)...)
	return shown, nil
}

// PreviewOf is Preview of a plan of this agent. It says of child plans of other agents with what
// arguments nothing. The error is a *ledger.Refused also where the plan is another agent's.
func (r *Reader) PreviewOf(agent string, q api.PreviewQuery, nowNs int64) (api.Preview, error) {
	if p := r.core.Plan(q.Plan); p == nil || p.Row.Agent != agent {
		return api.Preview{}, ledger.Refuse("plan", "agent "+agent+" has no plan "+q.Plan,
			"a plan of its own")
	}
	if q.Action != "" {
		q.Action = api.ByID(q.Action)
	}
	shown, err := r.Preview(q, nowNs)
	for i, step := range shown.Steps {
		if p := r.core.Plan(step.Plan); p == nil || p.Row.Agent != agent {
			shown.Steps[i].Arguments = nil
		}
	}
	return shown, err
}

// previewStep is what a record says that the unwind would do; ok is false where that is
// no step for people: a check after an undo, or what follows from a step before.
func previewStep(rec *pb.Record) (step api.PreviewStep, ok bool) {
	switch k := rec.Kind.(type) {
	case *pb.Record_CompensationDispatched:
		step.Step, step.Inverse = "compensate", k.CompensationDispatched.Capability
	case *pb.Record_ProbeAsked:
		if k.ProbeAsked.Question == pb.Question_QUESTION_VERIFY {
			return step, false
		}
		step.Step, step.Inverse = "probe", k.ProbeAsked.Capability
		step.Reason = "in doubt; what follows takes the effect for present"
		if k.ProbeAsked.Question == pb.Question_QUESTION_UNCHANGED {
			step.Reason = "asked first whether it is unchanged; what follows takes it for that"
		}
	case *pb.Record_CompensationSkipped:
		step.Step, step.Reason = "skip", k.CompensationSkipped.Reason
	case *pb.Record_ActionQuarantined:
		step.Step, step.Reason = "quarantine", k.ActionQuarantined.Reason
	default:
		return step, false
	}
	step.Arguments = json.RawMessage(rec.Payload.GetArguments())
	return step, true
}

// delivered corrects a step about an act that is not delivered yet: the rehearsal has taken what is
// out for done.
func (r *Reader) delivered(d executor.Rehearsed, step *api.PreviewStep) {
	p := r.core.Plan(d.Plan.ID)
	if p == nil || step.Step != "quarantine" {
		return
	}
	if a := p.Named(d.Action.Fixed.Id); a != nil && a.Row.Undo == rowspb.Undo_UNDO_DISPATCHED {
		step.Reason = "irreversible: " + a.Fixed.Forward.GetCapability() +
			" is being delivered by plan " + p.ID + ", and taken for done"
	}
}

// deliveriesMax bounds the staged acts that a preview names.
const deliveriesMax = 256

// deliveries names the staged acts of a plan, and of those that are a part of it, that are still to
// be made.
func (r *Reader) deliveries(p *executor.Plan, under string, names *[]string) {
	for n := uint32(1); n <= p.Row.Actions && len(*names) < deliveriesMax; n++ {
		a := p.Action(n)
		if c := r.core.Plan(a.Fixed.Child); a.Fixed.Child != "" && c != nil {
			r.deliveries(c, c.ID+"/", names)
		} else if undo := a.Undo(); undo == "staged" || undo == ledger.StateDelivering && !a.ToDrop() {
			*names = append(*names, under+a.Fixed.Id)
		}
	}
}

// stepOf is a step with the action that it is about, by its number in the plan that it was
// registered in.
func (r *Reader) stepOf(step api.PreviewStep, stage int, p *executor.Plan,
	a *executor.Action) api.PreviewStep {
	step.Stage, step.Plan, step.Number = stage, p.ID, int(a.N)
	if p.Row.Origin != "" {
		step.Plan = p.Row.Origin
	}
	if origin := r.core.Plan(p.Row.Origin); p.Row.Delivers && origin != nil {
		if b := origin.Named(a.Fixed.Id); b != nil {
			step.Number = int(b.N)
		}
	}
	f := a.Fixed.Forward
	step.Action = a.Fixed.Id
	step.Capability, step.Class = f.GetCapability(), className(f.GetClass())
	step.Fidelity = a.Fixed.Compensation.GetFidelity()
	step.Outcome, step.ClosesNs = a.Outcome(), a.Row.ClosesNs
	step.Found = a.Row.Presence == pb.Presence_PRESENCE_PRESENT ||
		a.Row.Presence == pb.Presence_PRESENCE_DUPLICATE
	return step
}

// undoable is what a preview finds out about the action from which it goes back; nil: it goes
// back from none.
type undoable struct {
	plan, action string
	found        api.Undoable
}

func newUndoable(p *executor.Plan, action string) *undoable {
	a := p.Named(action)
	if a == nil {
		return nil
	}
	f := a.Fixed.Forward
	return &undoable{plan: p.ID, action: action, found: api.Undoable{
		Can: true, ClosesNs: a.Row.ClosesNs, Class: className(f.GetClass()),
		Fidelity: a.Fixed.Compensation.GetFidelity()}}
}

// goesThrough takes a step of the unwind.
func (u *undoable) goesThrough(d executor.Rehearsed, step api.PreviewStep) {
	if u == nil {
		return
	}
	plan := cmp.Or(d.Plan.Row.Origin, d.Plan.ID)
	name := d.Action.Fixed.Id
	switch {
	case plan != u.plan:
		u.comesAfter(plan + "/" + name)
	case name != u.action:
		u.comesAfter(name)
	case step.Step == "quarantine":
		u.found.Can, u.found.Why = false, step.Reason
	case step.Step == "skip":
		u.found.Why = step.Reason
	}
}

func (u *undoable) comesAfter(name string) {
	if len(u.found.With) < previewStepsMax && !slices.Contains(u.found.With, name) {
		u.found.With = append(u.found.With, name)
	}
}

// said ends with why the action cannot be undone, or with nothing against it.
func (u *undoable) said(against string) *api.Undoable {
	if u == nil {
		return nil
	}
	if against != "" && u.found.Can {
		u.found.Can, u.found.Why = false, against
	}
	return &u.found
}

// noPlan refuses a question about an unknown plan.
func noPlan(id string) error {
	return ledger.Refuse("plan", "there is no plan "+id, "a plan of this tenant")
}
