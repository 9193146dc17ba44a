package undo

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/doctor"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

func newUndoShow(s *cli.Settings) *cobra.Command {
	return cli.Show[api.UndosAnswer]{
		Command: &cobra.Command{
			Use:     "show PLAN ACTION",
			Short:   "Show every attempt to undo one action in full",
			Example: "  sagenbaum undo show 01JD3BX7 4",
			Args:    cli.Exactly("PLAN", "ACTION"),
		},
		Doing: "show the undo",
		Ask: func(ctx context.Context, c *cli.Client, args []string) (api.UndosAnswer, error) {
			plan, err := c.Plan(ctx, args[0], 0)
			if err != nil {
				return api.UndosAnswer{}, err
			}
			a, err := render.FindAction(plan, args[1])
			if err != nil {
				return api.UndosAnswer{}, err
			}
			return c.Undos(ctx, api.UndoQuery{Plan: plan.Plan, Action: a.Action}, doctor.DumpUndos)
		},
		Write: func(out io.Writer, p cli.Pen, answer api.UndosAnswer) {
			for i, u := range cli.ForPeople(answer).Undos {
				if i > 0 {
					fmt.Fprintln(out)
				}
				writeAttempt(out, p, u)
			}
		},
		Next: func(answer api.UndosAnswer) string {
			return map[bool]string{true: "nothing was dispatched"}[len(answer.Undos) == 0]
		},
	}.New(s)
}

func writeAttempt(out io.Writer, p cli.Pen, u api.Undo) {
	ended := "-"
	if u.Ended != "" {
		ended = u.Ended + " at " + cli.Moment(u.EndedNs)
	}
	blind := ""
	if u.BlindCleanup {
		blind = "sent without knowing that the forward has completed"
	}
	for _, line := range [...][2]string{
		{"attempt", strconv.Itoa(u.Attempt) + " " + p.In(render.UndoColors[u.State], u.State)},
		{"action", fmt.Sprintf("%d %s, %s", u.Number, u.Action, u.Capability)},
		{"undo by", u.Compensation}, {"key", u.Key}, {"forward", u.About},
		{"dispatched", u.Dispatched + " at " + cli.Moment(u.DispatchedNs)}, {"blind", blind},
		{"ended", ended},
		{"waited", render.Lasted(u.WaitedNs)}, {"queued", render.Lasted(u.QueuedNs)},
		{"work", fmt.Sprintf("%s: setup %s, tools %s, model %s", render.Lasted(u.WorkNs),
			render.Lasted(u.SetupNs), render.Lasted(u.ToolNs), render.Lasted(u.LLMNs))},
		{"worker", u.Worker}, {"code", u.Code}, {"message", u.Message},
	} {
		if line[1] != "" {
			fmt.Fprintf(out, "%-12s %s\n", line[0], line[1])
		}
	}
}
