package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor"
)

const undoQuarantined = "quarantined"

func newQuarantine(s *settings) *cobra.Command {
	return group(&cobra.Command{
		Use:   "quarantine",
		Short: "See what waits for its owner, and answer it",
		Example: `  sagenbaum quarantine ls
  sagenbaum quarantine show 01JD3BX7 4
  sagenbaum quarantine retry 01JD3BX7 4 --reason "the branch is no longer protected"
  sagenbaum quarantine resolve 01JD3BX7 4 --as done --reason "deleted by hand" --evidence ticket:OPS-91`,
	}, watchable(s, newQuarantineLs(s)), newQuarantineShow(s), newQuarantineRetry(s), newQuarantineResolve(s), newQuarantineSkip(s))
}

func newQuarantineLs(s *settings) *cobra.Command {
	var q executor.Filter
	var limit int
	var only listFilter
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List the actions and cut leases that wait for their owner (exit code 1 when there are any)",
		Example: "  sagenbaum quarantine ls\n  sagenbaum quarantine ls --limit 1000 -o json\n  sagenbaum quarantine ls --filter 'plan.owner == \"travel\"'\n  sagenbaum quarantine ls --watch",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return fail(exitUsage, "--limit 100", "a limit of %d lists nothing", limit)
			}
			if err := only.check(); err != nil {
				return err
			}
			c, err := s.connect()
			if err != nil {
				return err
			}
			defer c.close()
			answer, err := c.plansWhere(cmd.Context(), "quarantine.ls", q, limit, &only)
			if err != nil {
				return failed("list the quarantine", err)
			}
			if s.json() {
				if err := printJSON(cmd.OutOrStdout(), answer); err != nil {
					return err
				}
			} else {
				writeQuarantine(cmd, answer)
			}
			if len(answer.Plans) > 0 {
				return errLook
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&q.After, "after", "", "start behind this `PLAN`")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most `N` plans")
	only.flag(cmd, "plan", `plan.owner == "travel"`)
	return cmd
}

func writeQuarantine(cmd *cobra.Command, answer executor.PlansAnswer) {
	answer = forPeople(answer)
	if len(answer.Plans) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "nothing is quarantined")
		return
	}
	t := table{head: []string{"PLAN", "ACTION", "CAPABILITY", "OWNER", "SINCE", "WHY"}, elastic: []string{"WHY", "OWNER"}, spare: []string{"SINCE"}}
	first := ""
	for _, plan := range answer.Plans {
		for _, a := range parked(plan) {
			if first == "" && a.Child == "" {
				first = fmt.Sprintf("sagenbaum quarantine show %s %d", plan.Plan, a.Number)
			}
			t.add(plan.Plan, fmt.Sprint(a.Number), capabilityOf(a), dash(plan.Owner), moment(a.SettledNs), clip(whyParked(a), 100))
		}
		for _, cut := range plan.Cuts {
			if first == "" {
				first = "sagenbaum plan why " + plan.Plan
			}
			t.add(plan.Plan, dash(cut.Action), "lease "+cut.Lease, dash(plan.Owner), moment(cut.AtNs), clip(cutText(cut), 100))
		}
		for _, orphan := range plan.Orphans {
			t.add(plan.Plan, orphan, "?", dash(plan.Owner), moment(plan.EndedNs), whyOrphan)
		}
	}
	t.write(cmd.OutOrStdout())
	if answer.Next != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "there are more: sagenbaum quarantine ls --after %s\n", answer.Next)
	}
	if first != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "  next:", first)
	}
}

// whyOrphan is why an act whose record was refused is its owner's.
const whyOrphan = "its record was refused: it may have happened, and nothing undoes it"

// parked are the actions of a plan that wait for their owner, in order.
func parked(plan executor.PlanView) (actions []executor.ActionView) {
	for _, a := range plan.Actions {
		if a.Undo == undoQuarantined {
			actions = append(actions, a)
		}
	}
	return actions
}

// whyParked says why an action waits for its owner, and what one has proposed.
func whyParked(a executor.ActionView) string {
	why := a.Note
	if why == "" {
		why = a.Failure
	}
	if a.Proposal != "" {
		answer, operator := proposalOf(a)
		why = fmt.Sprintf("%s proposed by %s, waits for a second operator: %s", answerWord(answer), operator, why)
	}
	return why
}

// proposalOf splits the answer of a first approver, as "done by ana at 12.0…".
func proposalOf(a executor.ActionView) (answer, operator string) {
	answer, rest, _ := strings.Cut(a.Proposal, " by ")
	operator, _, _ = strings.Cut(rest, " at ")
	return answer, operator
}

// capabilityOf names what an entry of a plan did: a capability, or a whole plan.
func capabilityOf(a executor.ActionView) string {
	switch {
	case a.Child != "":
		return "plan " + a.Child
	case a.Capability == "":
		return "?"
	}
	return a.Capability
}

// findAction finds an action by its number or, where no number is meant, its id; a
// act whose record was refused has an id only.
func findAction(plan executor.PlanView, name string) (executor.ActionView, error) {
	if slices.Contains(plan.Orphans, name) {
		return orphan(name), nil
	}
	known := slices.Clone(plan.Orphans)
	for _, a := range plan.Actions {
		if fmt.Sprint(a.Number) == name {
			return a, nil
		}
		known = append(known, fmt.Sprint(a.Number))
	}
	for _, a := range plan.Actions {
		if a.Action == name {
			return a, nil
		}
	}
	return executor.ActionView{}, fail(exitFailed, "sagenbaum plan tree "+plan.Plan, "plan %s has no action %q; it has %s", plan.Plan, name, dash(clip(strings.Join(known, ", "), 200)))
}

// orphan stands for an act whose record was refused.
func orphan(id string) executor.ActionView {
	return executor.ActionView{Action: id, Undo: undoQuarantined, Note: whyOrphan}
}

// isOrphan reports whether an action is one of those.
func isOrphan(a executor.ActionView) bool { return a.Number == 0 }
