package undo

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/doctor"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/executor/view"
)

func newUndoShow(s *cli.Settings) *cobra.Command {
	return &cobra.Command{
		Use:     "show PLAN ACTION",
		Short:   "Show every attempt to undo one action in full",
		Example: "  sagenbaum undo show 01JD3BX7 4",
		Args:    cli.Exactly("PLAN", "ACTION"),
		RunE: s.Connected(func(cmd *cobra.Command, args []string, c *cli.Client) error {
			plan, err := c.Plan(cmd.Context(), args[0], 0)
			if err != nil {
				return cli.Failed("show the undo", err)
			}
			a, err := render.FindAction(plan, args[1])
			if err != nil {
				return cli.Failed("show the undo", err)
			}
			answer, err := c.Undos(cmd.Context(),
				view.UndoQuery{Plan: plan.Plan, Action: a.Action}, doctor.DumpUndos)
			if err != nil {
				return cli.Failed("show the undo", err)
			}
			if s.JSON() {
				return cli.PrintJSON(cmd.OutOrStdout(), answer)
			}
			if len(answer.Undos) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "nothing was dispatched")
			}
			for i, u := range cli.ForPeople(answer).Undos {
				if i > 0 {
					fmt.Fprintln(cmd.OutOrStdout())
				}
				writeAttempt(cmd, s.Pen(cmd), u)
			}
			return nil
		}),
	}
}

func writeAttempt(cmd *cobra.Command, p cli.Pen, u view.Undo) {
	ended := "-"
	if u.Ended != "" {
		ended = u.Ended + " at " + cli.Moment(u.EndedNs)
	}
	for _, line := range [...][2]string{
		{"attempt", strconv.Itoa(u.Attempt) + " " + p.In(render.UndoColors[u.State], u.State)},
		{"action", fmt.Sprintf("%d %s, %s", u.Number, u.Action, u.Capability)},
		{"undo by", u.Compensation}, {"key", u.Key}, {"forward", u.About},
		{"dispatched", u.Dispatched + " at " + cli.Moment(u.DispatchedNs)}, {"ended", ended},
		{"waited", render.Lasted(u.WaitedNs)}, {"queued", render.Lasted(u.QueuedNs)},
		{"work", fmt.Sprintf("%s: setup %s, tools %s, model %s", render.Lasted(u.WorkNs),
			render.Lasted(u.SetupNs), render.Lasted(u.ToolNs), render.Lasted(u.LLMNs))},
		{"worker", u.Worker}, {"code", u.Code}, {"message", u.Message},
	} {
		if line[1] != "" {
			fmt.Fprintf(cmd.OutOrStdout(), "%-12s %s\n", line[0], line[1])
		}
	}
}
