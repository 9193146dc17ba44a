package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Part is a part of a plan; the zero value is all of it.
type Part struct {
	Savepoint string // what came after it
	Action    string // this action, by its ID, and what came after it; not with Savepoint
}

// Preview says what an unwind of the plan, or of a part of it, would do now, without doing it:
// the steps in order, with arguments, class and fidelity, what would go to the owner, and how
// the plan would end. An executor decides it with the code that unwinds, taking every worker to
// say done and every effect in doubt to be there. It knows all that this process has recorded.
// Preview.Refused says why such an unwind could not even begin: the plan is not open, has no
// such part, or its undo windows have closed. Fields that are sealed stay sealed, and of child
// plans of other agents there are no arguments.
//
// Errors: *ledger.Refused (no connection, two parts, or the ledger has no such plan of this
// agent), ErrInDoubt, ErrClosed, ErrUnconfirmed (no executor has answered within
// Config.ConfirmTimeout: call again), ctx's.
func (p *Plan) Preview(ctx context.Context, part Part) (api.Preview, error) {
	preview, err := p.preview(ctx, part)
	if err != nil {
		return api.Preview{}, fmt.Errorf("cannot preview an unwind of plan %q: %w", p.id, err)
	}
	return preview, nil
}

func (p *Plan) preview(ctx context.Context, part Part) (api.Preview, error) {
	if part.Savepoint != "" && part.Action != "" {
		return api.Preview{}, ledger.Refuse("part.action", "given beside a savepoint",
			"one of the two")
	}
	if p.c.bus == nil {
		return api.Preview{}, ledger.Refuse("config.conn", "missing", "a connection to NATS")
	}
	if err := p.Flush(ctx); err != nil {
		return api.Preview{}, err
	}
	asking, cancel := context.WithTimeout(ctx, p.c.confirmTimeout)
	defer cancel()
	answer, err := ask(asking, p.c.bus, p.c.tenant, api.OwnPreview(p.c.agent),
		api.PreviewQuery{Plan: p.id, To: part.Savepoint, Action: part.Action, Sequence: p.Stored()})
	var problem *api.Problem
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.As(err, &problem) && problem.Behind:
		err = fmt.Errorf("%w: %s", ErrUnconfirmed, problem.Text)
	case problem != nil:
		err = ledger.Refuse("plan", problem.Text, "a plan of this agent")
	case err != nil && !errors.Is(err, errUnread):
		err = unconfirmed(err)
	}
	return answer.Preview, err
}

// Undoable says whether and how an action of a plan can be undone now.
type Undoable struct {
	// Can: nothing of it would be left, and no owner is asked before.
	Can bool
	// Why: it cannot, as it is irreversible, its undo window has closed, it is undone, or it waits
	// for an owner; or nothing would be sent for it.
	Why      string
	Until    time.Time // end of its undo window; zero: none is known
	Class    string    // compensable, irreversible or effectless
	Fidelity string    // exact, semantic or lossy; empty: its contract does not say
	// With: what came after it and is undone first, at most 1,000 actions; those of child plans
	// as plan/action.
	With []string
}

// Undoable says whether an action of the plan, by its ID, can be undone now, until when, and how
// exactly. Errors as of Preview, and *ledger.Refused if the ledger has no such action.
func (p *Plan) Undoable(ctx context.Context, action string) (Undoable, error) {
	found, err := p.undoable(ctx, action)
	if err != nil {
		return Undoable{}, fmt.Errorf("cannot say whether action %q can be undone: %w", action, err)
	}
	answer := Undoable{Can: found.Can, Why: found.Why, Class: found.Class, Fidelity: found.Fidelity,
		With: found.With}
	if found.ClosesNs != 0 {
		answer.Until = time.Unix(0, found.ClosesNs)
	}
	return answer, nil
}

func (p *Plan) undoable(ctx context.Context, action string) (*api.Undoable, error) {
	if action == "" {
		return nil, ledger.Refuse("action.id", "missing", "an action of this plan")
	}
	preview, err := p.preview(ctx, Part{Action: action})
	if err == nil && preview.Undoable == nil {
		err = ledger.Refuse("action.id", preview.Refused, "an action of this plan")
	}
	return preview.Undoable, err
}
