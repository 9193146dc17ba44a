// Package undo is `sagenbaum undo`: it undoes plans that are chosen by what they are, and shows the
// attempts to undo actions.
package undo

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Command is `sagenbaum undo` with all below it.
func Command(s *cli.Settings) *cobra.Command {
	var q request
	group := cli.Group(&cobra.Command{
		Use:   "undo",
		Short: "Undo plans: the last ones, those since a time, those of an agent",
		Long: `Undo plans: the last ones, those opened since a time, those of an agent, or one.
Flags narrow each other. It shows what would be undone, asks, and undoes one plan
after the other, the one that was opened last first: what came later may build on
what came before. It stops at a plan that does not end compensated.

A committed plan is undone inside its undo windows, as a plan of its own. Child plans
are undone with their parents. 'plan preview' shows each step, 'plan unwind' undoes a
part of a plan.

Exit code 1 when one of them did not end compensated within --wait-timeout; undoing
goes on whether or not anyone waits for it. It is 1, too, where nothing is undone and
a plan that matches is quarantined, or cannot be undone any more; with --plan it is 75
where nothing of that plan can be undone now. A plan that is undone already is no
failure.`,
		Example: `  sagenbaum undo --last 1 --dry-run
  sagenbaum undo --since 14:00 --agent coder --reason "wrong project"
  sagenbaum undo --plan 01JD3BX7 --reason "bad release" --yes
  sagenbaum undo ls --capability payments.charge`,
	}, cli.Watchable(s, newUndoLs(s)), cli.Watchable(s, newUndoShow(s)))
	q.flags(group)
	help := group.RunE
	group.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 || empty(cmd) {
			return help(cmd, args)
		}
		return q.run(cmd, s)
	}
	return group
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
	cli.PlanFlag(cmd, &q.Plan, "attempts of this `PLAN`")
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

		CheckAfter: view.CheckUndosPlace,
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
