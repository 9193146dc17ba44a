// Package quarantine is `sagenbaum quarantine`: what waits for an owner, and the answers.
package quarantine

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor/view"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
)

// Command is `sagenbaum quarantine` with all below it.
func Command(s *cli.Settings) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "quarantine",
		Short: "See what waits for its owner, and answer it",
		Example: `  sagenbaum quarantine ls
  sagenbaum quarantine show 01JD3BX7 4
  sagenbaum quarantine retry 01JD3BX7 4 --reason "the branch is no longer protected"
  sagenbaum quarantine resolve 01JD3BX7 4 --as done --reason "deleted by hand" --evidence ticket:OPS-91`,
	}, cli.Watchable(s, newQuarantineLs(s)), newQuarantineShow(s), newQuarantineRetry(s),
		newQuarantineResolve(s), newQuarantineSkip(s))
}

func newQuarantineLs(s *cli.Settings) *cobra.Command {
	var q view.Filter
	var limit int
	var only cli.ListFilter
	cmd := &cobra.Command{
		Use: "ls",
		Short: "List the actions and cut leases that wait for their owner (exit code 1 when " +
			"there are any)",
		Example: "  sagenbaum quarantine ls\n  sagenbaum quarantine ls --limit 1000 -o json\n  " +
			"sagenbaum quarantine ls --filter 'plan.owner == \"travel\"'\n  sagenbaum quarantine " +
			"ls --watch",
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return cli.Fail(cli.ExitUsage, "--limit 100", "a limit of %d lists nothing", limit)
			}
			c, err := s.Connect()
			if err != nil {
				return err
			}
			defer c.Close()
			answer, err := c.PlansWhere(cmd.Context(), "quarantine.ls", q, limit, &only)
			if err != nil {
				return cli.Failed("list the quarantine", err)
			}
			if err := s.Print(cmd, answer, func() { writeQuarantine(cmd, answer) }); err != nil {
				return err
			}
			return cli.Look(nil, len(answer.Plans) > 0)
		},
	}
	cmd.Flags().StringVar(&q.After, "after", "", "start after this `PLAN`")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most `N` plans")
	only.Flag(cmd, "plan", `plan.owner == "travel"`)
	return cmd
}

func writeQuarantine(cmd *cobra.Command, answer view.PlansAnswer) {
	answer = cli.ForPeople(answer)
	if len(answer.Plans) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "nothing is quarantined")
		return
	}
	t := cli.Table{Head: []string{"PLAN", "ACTION", "CAPABILITY", "OWNER", "SINCE", "WHY"},
		Elastic: []string{"WHY", "OWNER"}, Spare: []string{"SINCE"}}
	first := ""
	for _, plan := range answer.Plans {
		for _, a := range render.Parked(plan) {
			if first == "" && a.Child == "" {
				first = fmt.Sprintf("sagenbaum quarantine show %s %d", plan.Plan, a.Number)
			}
			t.Add(plan.Plan, fmt.Sprint(a.Number), render.CapabilityOf(a), cli.Dash(plan.Owner),
				cli.Moment(a.SettledNs), cli.Clip(render.WhyParked(a), 100))
		}
		for _, cut := range plan.Cuts {
			if first == "" {
				first = "sagenbaum plan why " + plan.Plan
			}
			t.Add(plan.Plan, cli.Dash(cut.Action), "lease "+cut.Lease, cli.Dash(plan.Owner),
				cli.Moment(cut.AtNs), cli.Clip(render.CutText(cut), 100))
		}
		for _, orphan := range plan.Orphans {
			t.Add(plan.Plan, orphan, "?", cli.Dash(plan.Owner), cli.Moment(plan.EndedNs),
				render.WhyOrphan)
		}
	}
	t.Write(cmd.OutOrStdout())
	if answer.Next != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "there are more: sagenbaum quarantine ls --after %s\n",
			answer.Next)
	}
	if first != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "  next:", first)
	}
}
