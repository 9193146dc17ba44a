// Package quarantine is `sagenbaum quarantine`: what waits for an owner, and the answers.
package quarantine

import (
	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/proto/api"
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
	return cli.List[api.Plan]{
		Command: &cobra.Command{
			Use: "ls",
			Short: "List the actions and cut leases that wait for their owner (exit code 1 when " +
				"there are any)",
			Example: "  sagenbaum quarantine ls\n  sagenbaum quarantine ls --limit 1000 -o json\n  " +
				"sagenbaum quarantine ls --filter 'plan.owner == \"travel\"'\n  sagenbaum quarantine " +
				"ls --watch",
		},
		Doing: "list the quarantine", Name: "plan", Filter: `plan.owner == "travel"`,
		Most: "at most `N` plans", From: "start after this `PLAN`",
		Ask: cli.QuarantineBatch, Place: cli.PlaceOfPlan,
		Data:  cli.PlansData,
		Empty: "nothing is quarantined",
		Table: cli.Table{Head: []string{"PLAN", "ACTION", "CAPABILITY", "OWNER", "SINCE", "WHY"},
			Elastic: []string{"WHY", "OWNER"}, Spare: []string{"SINCE"}},
		Row: addQuarantined,
		GoOn: func(next string) string {
			return "sagenbaum quarantine ls --after " + cli.Printable(next)
		},
		More: func(plans []api.Plan) string {
			for _, plan := range plans {
				if command := lookNext(cli.ForPeople(plan)); command != "" {
					return "  next: " + command
				}
			}
			return ""
		},
		Look: func(api.Plan) bool { return true },
	}.New(s)
}

func addQuarantined(t *cli.Table, plan api.Plan) {
	plan = cli.ForPeople(plan)
	for _, a := range render.Parked(plan) {
		t.Add(plan.Plan, render.NumberText(a), render.CapabilityOf(a), cli.Dash(plan.Owner),
			cli.Moment(a.SettledNs), cli.Clip(render.WhyParked(a), 100))
	}
	for _, cut := range plan.Cuts {
		t.Add(plan.Plan, cli.Dash(cut.Action), "lease "+cut.Lease, cli.Dash(plan.Owner),
			cli.Moment(cut.AtNs), cli.Clip(render.CutText(cut), 100))
	}
	for _, orphan := range plan.Orphans {
		t.Add(plan.Plan, orphan, "?", cli.Dash(plan.Owner), cli.Moment(plan.EndedNs),
			render.WhyOrphan)
	}
}

// lookNext is the command that shows the first thing of a plan that waits for its owner;
// empty where only orphans wait.
func lookNext(plan api.Plan) string {
	for _, a := range render.Parked(plan) {
		if a.Child == "" {
			return "sagenbaum quarantine show " + plan.Plan + " " + render.ActionArg(a)
		}
	}
	if len(plan.Cuts) > 0 {
		return "sagenbaum plan why " + plan.Plan
	}
	return ""
}
