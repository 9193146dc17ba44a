package executor

import (
	"encoding/json"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// previewStepsMax bounds the steps that one preview shows.
const previewStepsMax = 1000

// Preview says what an unwind of a plan would do at nowNs (unix ns, the host's
// guarded clock), without acting: all of it, or what came after a savepoint. The
// error is a *ledger.Refused: there is no such plan.
func (r *Reader) Preview(q view.PreviewQuery, nowNs int64) (view.Preview, error) {
	p := r.s.plan(q.Plan)
	if p == nil {
		return view.Preview{}, noPlan(q.Plan)
	}
	shown := view.Preview{
		Plan: p.id, State: stateName(p.row), To: q.To, Owner: r.s.owner(p), Steps: []view.PreviewStep{},
	}
	show := func(d rehearsed) {
		step, ok := previewStep(d.record)
		if !ok {
			return
		}
		if len(shown.Steps) == previewStepsMax {
			shown.Omitted++
			return
		}
		if step.Step == "quarantine" {
			step.Owner = d.state.owner(d.plan)
		}
		shown.Steps = append(shown.Steps, stepOf(step, d.stage, d.plan, d.action))
	}
	scratch, p, refused := r.s.rehearse(q.Plan, q.To, nowNs, show)
	if refused != "" {
		shown.Refused, shown.End = refused, shown.State
		return shown, nil
	}
	shown.End = stateName(p.row)
	open := p.row.Phase == rowspb.Phase_PHASE_OPEN // again: what is held is not outstanding
	for n := uint32(1); n <= p.row.Actions && len(shown.Outstanding) < outstandingMax && !open; n++ {
		if a := scratch.action(p.id, n); outstanding(a) {
			shown.Outstanding = append(shown.Outstanding, a.fixed.Id)
		}
	}
	shown.Outstanding = append(shown.Outstanding, orphans(p.row)...)
	return shown, nil
}

// previewStep is what a record says that the unwind would do; ok is false where that is
// no step for people: a check after an undo, or what follows from a step before.
func previewStep(rec *pb.Record) (step view.PreviewStep, ok bool) {
	switch k := rec.Kind.(type) {
	case *pb.Record_CompensationDispatched:
		step.Step, step.Inverse = "compensate", k.CompensationDispatched.Capability
	case *pb.Record_ProbeAsked:
		if k.ProbeAsked.Question == pb.Question_QUESTION_VERIFY {
			return step, false
		}
		step.Step, step.Inverse = "probe", k.ProbeAsked.Capability
		step.Reason = "in doubt; what follows takes the effect for present"
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

// stepOf is a step with the action that it is about.
func stepOf(step view.PreviewStep, stage int, p *plan, a *action) view.PreviewStep {
	step.Stage, step.Plan = stage, p.id
	if p.row.Origin != "" && strings.HasSuffix(p.id, undoneSuffix) {
		step.Plan = p.row.Origin
	}
	f := a.fixed.Forward
	step.Number, step.Action = int(a.id.N), a.fixed.Id
	step.Capability, step.Class = f.GetCapability(), className(f.GetClass())
	step.Fidelity = a.fixed.Compensation.GetFidelity()
	step.Outcome, step.ClosesNs = outcomeName(a.row.Outcome), a.row.ClosesNs
	return step
}

// noPlan refuses a question about a plan that there is none of.
func noPlan(id string) error {
	return ledger.Refuse("plan", "there is no plan "+id, "a plan of this tenant")
}
