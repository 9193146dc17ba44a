// Package undo is `sagenbaum undo`: the attempts to undo actions.
package undo

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor/view"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
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
	var q view.UndoQuery
	var limit int
	var only cli.ListFilter
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
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckUndoQuery(q, limit); err != nil {
				return err
			}
			c, err := s.Connect()
			if err != nil {
				return err
			}
			defer c.Close()
			return cli.Failed("list undos", listUndos(cmd, s, c, q, limit, &only))
		},
	}
	cmd.Flags().StringVar(&q.Plan, "plan", "", "attempts of this `PLAN`")
	cmd.Flags().StringVar(&q.Action, "action", "",
		"only of this `ACTION` of the plan, by its number or id")
	cmd.Flags().StringVar(&q.Capability, "capability", "",
		"attempts to undo what this `CAPABILITY` did, in the order of dispatch")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most `N` attempts")
	cmd.Flags().StringVar(&q.After, "after", "",
		"go on after this `PLACE`, as printed when there are more")
	only.Flag(cmd, "undo", `undo.state == "failed"`)
	return cmd
}

func listUndos(cmd *cobra.Command, s *cli.Settings, c *cli.Client, q view.UndoQuery, limit int,
	only *cli.ListFilter) error {
	ctx := cmd.Context()
	if q.Plan != "" && q.Action != "" {
		plan, err := c.Plan(ctx, q.Plan, 0)
		if err != nil {
			return err
		}
		a, err := render.FindAction(plan, q.Action)
		if err != nil {
			return err
		}
		q.Action = a.Action
	}
	answer, err := c.UndosWhere(ctx, q, limit, only)
	if err != nil {
		return err
	}
	if s.JSON() {
		return cli.PrintJSON(cmd.OutOrStdout(), answer)
	}
	if len(answer.Undos) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "nothing was dispatched")
		return nil
	}
	render.WriteUndos(cmd.OutOrStdout(), s.Pen(cmd), cli.ForPeople(answer).Undos, q.Plan == "")
	if answer.Next != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "there are more: --after %s\n", answer.Next)
	}
	return nil
}
