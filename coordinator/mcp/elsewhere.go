package mcp

import (
	"context"
	"slices"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// What became of a call is not always in the history of its plan: of a committed one, another plan
// undoes it, and another one makes what was staged.

// reported is the report of some effects of a plan that was looked at, with what other plans know of
// them. Errors: as coordinator.Past; then it is not known whether what is there stays.
func (g *Gateway) reported(ctx context.Context, t *tracked, past coordinator.Past,
	of func(*effect) bool) (report, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	g.answered(ctx, t, past.Plan)
	if past.UndoneAs == "" {
		return t.report(past, of), nil
	}
	undoing, err := g.agent.Past(ctx, past.UndoneAs, 0)
	if err != nil {
		return t.report(past, of), err
	}
	undoing.Actions = slices.DeleteFunc(undoing.Actions, func(a coordinator.PastUndo) bool {
		return a.Note == ledger.NoteNotAsked // it stays, as the committed plan says
	})
	t.learn(undoing)
	out := t.report(undoing, of) // which says where a person looks at what needs its owner
	out.Plan, out.State = past.Plan, past.State
	out.Message = ended(past) + ", and is " + undoing.State
	return out, nil
}

// answered finds out what their owner has said of calls that were staged: the plan that makes them
// says so.
func (g *Gateway) answered(ctx context.Context, t *tracked, plan string) {
	stay := t.those(func(e *effect) bool { return e.wasStaged() && e.State == stateStays })
	if len(stay) == 0 {
		return
	}
	making, err := g.agent.Past(ctx, plan+deliverySuffix, 0)
	if err != nil {
		g.logger.Debug("what its owner has said of a call is not known", "plan", plan, "error", err)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range making.Actions {
		i := slices.IndexFunc(stay, func(e *effect) bool { return e.Action == a.Action })
		if i >= 0 && a.Undo == ledger.StateResolved {
			stay[i].why = "its owner has answered for it: " + a.Resolution + said(" by ", a.ResolvedBy) +
				said(", ", a.ResolvedReason)
		}
	}
}
