package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

const undoQuarantined = "quarantined"

// resolutions are the ways an owner ends a quarantine.
var resolutions = []struct {
	name    string
	outcome pb.Resolution
}{
	{"done", pb.Resolution_RESOLUTION_DONE},
	{"lost", pb.Resolution_RESOLUTION_LOST},
	{"accepted", pb.Resolution_RESOLUTION_ACCEPTED},
}

func newQuarantine(s *settings) *cobra.Command {
	return group(&cobra.Command{
		Use:     "quarantine",
		Short:   "See what waits for its owner, and resolve it",
		Example: "  sagenbaum quarantine ls\n  sagenbaum quarantine resolve 01JD3BX7 4 --as done --reason \"deleted by hand\" --evidence ticket:OPS-91",
	}, newQuarantineLs(s), newQuarantineResolve(s))
}

func newQuarantineLs(s *settings) *cobra.Command {
	var q executor.Filter
	var limit int
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List the actions that wait for their owner (exit code 1 when there are any)",
		Example: "  sagenbaum quarantine ls\n  sagenbaum quarantine ls --limit 1000 -o json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return fail(exitUsage, "--limit 100", "a limit of %d lists nothing", limit)
			}
			c, err := s.connect()
			if err != nil {
				return err
			}
			defer c.close()
			answer, err := c.plans(cmd.Context(), "quarantine.ls", q, limit)
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
	return cmd
}

func writeQuarantine(cmd *cobra.Command, answer executor.PlansAnswer) {
	answer = forPeople(answer)
	if len(answer.Plans) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "nothing is quarantined")
		return
	}
	t := table{head: []string{"PLAN", "ACTION", "CAPABILITY", "OWNER", "SINCE", "WHY"}}
	first := ""
	for _, plan := range answer.Plans {
		for _, a := range plan.Actions {
			if a.Undo != undoQuarantined {
				continue
			}
			if first == "" {
				first = fmt.Sprintf("sagenbaum quarantine resolve %s %d --as done --reason WHY --evidence REF", plan.Plan, a.Number)
			}
			why := a.Note
			if why == "" {
				why = a.Failure
			}
			t.add(plan.Plan, fmt.Sprint(a.Number), a.Capability, dash(plan.Owner), moment(a.SettledNs), clip(why, 100))
		}
		for _, orphan := range plan.Orphans {
			t.add(plan.Plan, orphan, "?", dash(plan.Owner), moment(plan.EndedNs), "it came without its registration: nobody knows how to undo it")
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

// resolution is what the owner says about one quarantined action.
type resolution struct {
	as, reason, evidence, actor string
	halt                        bool
}

func newQuarantineResolve(s *settings) *cobra.Command {
	var r resolution
	cmd := &cobra.Command{
		Use:   "resolve PLAN ACTION",
		Short: "Say, as its owner, how a quarantined action ended",
		Long: `Say, as its owner, how a quarantined action ended. ACTION is its number in
the plan or its id.

  done      it was undone by other means
  lost      it cannot be undone any more
  accepted  the effect stays, deliberately

What the action depended on is undone next, unless --halt leaves it as it is.
The resolution is a record; exit code 75 means that another one was first.`,
		Example: `  sagenbaum quarantine resolve 01JD3BX7 4 --as done --reason "deleted by hand" --evidence ticket:OPS-91 --actor operator1
  sagenbaum quarantine resolve 01JD3BX7 4 --as accepted --reason "the branch stays" --halt`,
		Args:              exactly("PLAN", "ACTION"),
		ValidArgsFunction: completePlans(s, "quarantine.ls"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.reason == "" {
				return fail(exitUsage, `--reason "deleted by hand"`, "a resolution needs a reason")
			}
			if err := checkActor(r.actor); err != nil {
				return err
			}
			names := make([]string, len(resolutions))
			for i, known := range resolutions {
				names[i] = known.name
			}
			if err := oneOf("as", r.as, names...); err != nil {
				return err
			}
			c, err := s.connect()
			if err != nil {
				return err
			}
			defer c.close()
			return failed("resolve the action", resolve(cmd, s, c, args[0], args[1], r))
		},
	}
	cmd.Flags().StringVar(&r.as, "as", "", "`OUTCOME`: done, lost or accepted")
	cmd.Flags().StringVar(&r.reason, "reason", "", "why, for the record")
	cmd.Flags().StringVar(&r.evidence, "evidence", "", "reference to the evidence, as ticket:OPS-91")
	cmd.Flags().StringVar(&r.actor, "actor", defaultActor(), "`NAME` of who resolves")
	cmd.Flags().BoolVar(&r.halt, "halt", false, "leave what this action depended on as it is")
	fixedCompletion(cmd, "as", "done", "lost", "accepted")
	return cmd
}

func resolve(cmd *cobra.Command, s *settings, c *client, id, action string, r resolution) error {
	ctx := cmd.Context()
	plan, err := c.plan(ctx, id, 0)
	if err != nil {
		return err
	}
	found, err := findAction(plan, action)
	if err != nil {
		return err
	}
	if found.Undo != undoQuarantined && !slices.Contains(plan.Orphans, found.Action) {
		return fail(exitConflict, "sagenbaum plan tree "+id, "action %d of %s is %s, not quarantined", found.Number, id, found.Undo)
	}
	record := &pb.Record{Plan: id, Action: found.Action, Kind: &pb.Record_Resolved{Resolved: &pb.Resolved{
		Outcome: outcomeOf(r.as), Reason: r.reason, Evidence: r.evidence, Actor: r.actor, Halt: r.halt,
	}}}
	answer, sequence, err := c.operate(ctx, r.actor, record)
	if err != nil {
		return err
	}
	if answer, err = c.settled(ctx, id, sequence, answer); err != nil {
		return err
	}
	if s.json() {
		return printJSON(cmd.OutOrStdout(), answer)
	}
	evidence := ""
	if r.evidence != "" {
		evidence = ", evidence " + r.evidence
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s action %s (%s) resolved as %s by %s%s · record %d · plan now %s\n",
		id, action, printable(found.Capability), r.as, r.actor, printable(evidence), sequence, s.pen(cmd).state(answer.State))
	return nil
}

func outcomeOf(name string) pb.Resolution {
	for _, known := range resolutions {
		if known.name == name {
			return known.outcome
		}
	}
	return pb.Resolution_RESOLUTION_UNSPECIFIED
}

// findAction finds an action by its number or its id; a forward that came
// without its registration has an id only.
func findAction(plan executor.PlanView, name string) (executor.ActionView, error) {
	number, err := strconv.Atoi(name)
	known := slices.Clone(plan.Orphans)
	if slices.Contains(plan.Orphans, name) {
		return executor.ActionView{Action: name, Capability: "unregistered"}, nil
	}
	for _, a := range plan.Actions {
		if a.Action == name || err == nil && a.Number == number {
			return a, nil
		}
		known = append(known, fmt.Sprint(a.Number))
	}
	return executor.ActionView{}, fail(exitFailed, "sagenbaum plan tree "+plan.Plan, "plan %s has no action %q; it has %s", plan.Plan, name, dash(strings.Join(known, ", ")))
}
