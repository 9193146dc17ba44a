package replay

import (
	"context"
	"fmt"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Stage is Plan.Stage for a function that may be run again: an act that is recorded is not staged
// a second time. It has no Undo, Repeat or Find, as this process never makes it.
//
// Errors beside those of Plan.Stage: *Diverged, *Recorded (it was dropped with a part of the plan),
// ErrSuperseded; and ErrUnwinding for what is not recorded, once the plan is being undone.
func (p *Plan) Stage(ctx context.Context, declared Action) error {
	err := p.r.stage(ctx, declared)
	if err != nil {
		p.r.broke(err)
		return fmt.Errorf("cannot stage action %q: %w", named(declared), err)
	}
	return nil
}

func (r *run) stage(ctx context.Context, declared Action) error {
	if declared.Undo != nil || declared.Repeat || declared.Find != nil {
		return ledger.Refuse("action.undo", "undo, repeat or find, given for what is staged",
			"none of them: this process does not call it")
	}
	declared.staged = true
	_, plain, past, err := r.enter(ctx, declared)
	switch {
	case err != nil:
		return err
	case past == nil:
		return r.claim.Plan.Stage(ctx, plain)
	case past.Undone:
		return &coordinator.Recorded{Action: past.Action, Capability: past.Registered.Capability,
			Outcome: api.OutcomeUnknown, Undone: true}
	}
	return nil
}
