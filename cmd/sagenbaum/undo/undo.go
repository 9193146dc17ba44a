// Package undo is `sagenbaum undo`: the attempts to undo actions.
package undo

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Command is `sagenbaum undo` with all below it.
func Command(s *cli.Settings) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "undo",
		Short: "See each attempt to undo an action",
		Example: "  sagenbaum undo ls --plan 01JD3BX7\n  sagenbaum undo ls --capability " +
			"payments.charge",
	}, cli.Watchable(s, newUndoLs(s)), cli.Watchable(s, newUndoShow(s)))
}

func newUndoLs(s *cli.Settings) *cobra.Command {
	var q api.UndoQuery
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the attempts of undos: of a plan, of an action, or of a capability",
		Long: `List the attempts of undos, each with its state and where its time went: of a plan,
of one action of it, or of everything that a capability did.

  WAITED  from when it could have been dispatched until it was
  QUEUED  from the dispatch until the worker had it, and back
  WORK    the worker's own time, and of that SETUP, TOOL and LLM, where it says so`,
		Example: `  sagenbaum undo ls --plan 01JD3BX7
  sagenbaum undo ls --plan 01JD3BX7 --action 4 -o json
  sagenbaum undo ls --capability payments.charge --limit 1000 --filter 'undo.state == "failed"'`,
	}
	cmd.Flags().StringVar(&q.Plan, "plan", "", "attempts of this `PLAN`")
	cmd.Flags().StringVar(&q.Action, "action", "",
		"only of this `ACTION` of the plan, by its number or id")
	cmd.Flags().StringVar(&q.Capability, "capability", "",
		"attempts to undo what this `CAPABILITY` did, in the order of dispatch")
	named := false // q.Action is an id
	return cli.List[api.Undo]{
		Command: cmd, Doing: "list undos", Name: "undo", Filter: `undo.state == "failed"`,
		Most:  "at most `N` attempts",
		From:  "go on after this `PLACE`, as printed when there are more",
		Check: func() error { return cli.CheckUndoQuery(q) },
		Ask: func(in cli.Listing) ([]api.Undo, string, error) {
			if q.Action != "" && !named {
				plan, err := in.Client.Plan(in.Ctx, q.Plan, 0)
				if err != nil {
					return nil, "", err
				}
				a, err := render.FindAction(plan, q.Action)
				if err != nil {
					return nil, "", err
				}
				q.Action, named = a.Action, true
			}
			return cli.UndoBatch(&q)(in)
		},
		Data: func(undos []api.Undo, next string) any {
			return api.UndosAnswer{Undos: undos, Next: next}
		},
		Empty: "nothing was dispatched",
		Write: func(out io.Writer, p cli.Pen, undos []api.Undo) {
			render.WriteUndos(out, p, cli.ForPeople(undos), q.Plan == "")
		},
		GoOn: func(next string) string { return "--after " + next },
	}.New(s)
}
