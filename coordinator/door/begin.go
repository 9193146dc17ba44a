package door

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// doBegin is plan.begin.
func (d *Door) doBegin(ctx context.Context, who Caller, q *Begin) (State, error) {
	s, err := d.beginOrFind(ctx, who, q)
	why := s.Reason
	if err == nil && q.Parent != "" && s.State == ledger.StateOpen {
		// Only in the ledger's order is it known what its parent was when it was begun.
		now, err := d.stateAt(ctx, who,
			api.OutcomeQuery{Plan: q.Plan, Sequence: d.storedOf(who, q.Plan)})
		if errors.As(err, new(*ledger.Refused)) {
			err = unread()
		}
		if err != nil {
			e := explain(err)
			e.Stored = StoredAll
			return State{}, e
		}
		why = now.Reason // also where the plan is only about to fail
	}
	if strings.HasPrefix(why, ledger.ReasonParent+q.Parent+" ") {
		return State{}, ledger.Refuse("parent", why,
			"an open plan that takes parts of this agent; and another id")
	}
	return s, err
}

// beginOrFind begins a plan, or says what became of it since it was begun.
func (d *Door) beginOrFind(ctx context.Context, who Caller, q *Begin) (State, error) {
	if !ledger.ValidToken(q.Plan) || q.Plan == ledger.ManyPlans {
		return State{}, ledger.Refuse("plan", "no name", ledger.TokenWanted)
	}
	w, err := d.writer(who, q.Writer)
	if err != nil {
		return State{}, err
	}
	h := w.fresh(q.Plan)
	defer h.taking.Unlock()
	defer func() { w.drop(q.Plan, h, false) }()
	spec := specOf(q)
	if h.plan == nil {
		if err := w.begin(ctx, h, spec); err != nil {
			return State{}, ofParent(err, q)
		}
	}
	if err := h.plan.Same(spec); err != nil {
		return State{}, err
	}
	if strings.HasPrefix(h.reason, ledger.ReasonUnopened) {
		return State{}, unopened(h.reason)
	}
	if h.state != "" && h.state != ledger.StateOpen {
		answer := opened(h.plan, w)
		answer.State, answer.Reason, answer.Ended = h.state, h.reason, ledger.HasEnded(h.state)
		return answer, nil
	}
	if err = h.plan.Flush(ctx); err == nil {
		err = h.plan.Accepted(ctx)
	}
	if errors.Is(err, coordinator.ErrClosed) {
		return d.begun(ctx, who, w, h)
	}
	if err != nil {
		var refused *ledger.Refused
		if errors.As(err, &refused) || errors.Is(err, coordinator.ErrPlanExists) {
			w.superseded(q.Plan, h, coordinator.ErrSuperseded) // it is looked up again
		}
		return State{}, err
	}
	return opened(h.plan, w), nil // the ledger has said by now what its deadline is
}

// begun answers plan.begin where this process takes nothing more for the plan: only what the ledger
// has of it counts.
func (d *Door) begun(ctx context.Context, who Caller, w *writer, h *held) (State, error) {
	if d.life.Err() == nil {
		s, err := d.stateOf(ctx, who, h.plan.ID(), 0)
		if err == nil && s.State != ledger.StateOpen {
			s.Writer = w.key.name
			return s, nil
		}
	}
	e := errClosed()
	e.Stored = StoredUnknown
	return State{}, e
}

// unopened is why a plan whose opening the ledger did not take cannot be begun again.
func unopened(reason string) error {
	if refused := ledger.TenantRefusal(reason); refused != nil {
		return refused
	}
	return ledger.Refuse("plan", reason, "another plan, with another id")
}

// ofParent is why a plan is not begun: another agent has its parent, or any other reason.
func ofParent(err error, q *Begin) error {
	var handed *coordinator.HandedOver
	if !errors.As(err, &handed) || handed.Plan != q.Parent {
		return err
	}
	e := handedOver(handed)
	e.Field, e.Want = "parent", "a plan without a parent, or one that agent "+handed.Agent+" begins"
	return e
}

// begin begins a plan, or goes on with the one that there is. h.taking is held.
func (w *writer) begin(ctx context.Context, h *held, spec coordinator.PlanSpec) error {
	p, err := w.coordinator.Begin(ctx, spec)
	switch {
	case err == nil:
		h.known(p, ledger.StateOpen, "")
		return nil
	case !errors.Is(err, coordinator.ErrPlanExists):
		return err
	}
	exists := err
	err = w.recall(ctx, spec.ID, h)
	var refused *ledger.Refused
	switch {
	case errors.As(err, new(*coordinator.HandedOver)):
		return err
	case errors.As(err, &refused), errors.Is(err, coordinator.ErrSuperseded):
		return exists
	}
	return err
}

func specOf(q *Begin) coordinator.PlanSpec {
	spec := coordinator.PlanSpec{ID: q.Plan, Label: q.Label, Owner: q.Owner, Input: q.Input,
		Deadline: time.Duration(q.Deadline), DeadlineAt: q.DeadlineAt.Time, Triggers: q.Triggers,
		Labels: q.Labels, Concurrency: q.Concurrency, SecondApprover: q.SecondApprover,
		AfterCommit: q.AfterCommit,
		Parent:      q.Parent, ParentAction: q.ParentAction, AttachToken: q.AttachToken,
		ParentToken: q.ParentToken}
	switch q.OnUndoFailure {
	case "continue":
		spec.OnUndoFailure = coordinator.ContinueOnUndoFailure
	case "halt":
		spec.OnUndoFailure = coordinator.HaltOnUndoFailure
	}
	if q.DoubtAtCommit == "accept" {
		spec.DoubtAtCommit = coordinator.AcceptDoubtAtCommit
	}
	return spec
}
