package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
)

// cascadeWord is what an owner says of the leases of a plan that are cut.
type cascadeWord struct {
	cli.OwnerWord
	resume        bool
	lease, action string // empty: all that are cut
}

func newPlanResume(s *cli.Settings) *cobra.Command {
	return newCascadeAnswer(s, &cascadeWord{resume: true}, &cobra.Command{
		Use:   "resume PLAN",
		Short: "Let a lease fire that a cascade limit holds",
		Long: `Let a lease fire that a cascade limit holds, as the plan's owner. Its depth counts
from 1 again, and so does the plan's budget, so that a cascade that still goes round is
cut once more. A lease that is not true any more is held as before. The answer is a
record; exit code 75 means that nothing is cut, or that another answer was first.

A plan that asks for a second approver waits until another operator has said the
same; the command says so and ends with 1.`,
		Example: `  sagenbaum plan why 01JD3BX7
  sagenbaum plan resume 01JD3BX7 --reason "the stock is right now" --actor operator1`,
	})
}

func newPlanGiveUp(s *cli.Settings) *cobra.Command {
	return newCascadeAnswer(s, new(cascadeWord), &cobra.Command{
		Use:   "give-up PLAN",
		Short: "Give up, for good, a lease that a cascade limit holds",
		Long: `Give up, for good, a lease that a cascade limit holds, as the plan's owner: nothing
makes it fire again, and the plan goes on without it. The plan itself is neither
undone nor ended; 'plan cancel' does that. The answer is a record; exit code 75
means that nothing is cut, or that another answer was first.

A plan that asks for a second approver waits until another operator has said the
same; the command says so and ends with 1.`,
		Example: `  sagenbaum plan give-up 01JD3BX7 --reason "the shipment stays" --actor operator1
  sagenbaum plan give-up 01JD3BX7 --lease low --reason "the shipment stays"`,
	})
}

func newCascadeAnswer(s *cli.Settings, w *cascadeWord, cmd *cobra.Command) *cobra.Command {
	cmd.Args = cli.Exactly("PLAN")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := w.Check(); err != nil {
			return err
		}
		return s.With(func(c *cli.Client) error {
			return cli.Failed("answer the cascade", answerCascade(cmd, s, c, args[0], w))
		})
	}
	w.Flags(cmd)
	cmd.Flags().StringVar(&w.lease, "lease", "",
		"only the lease of this `NAME`; all that are cut otherwise")
	cmd.Flags().StringVar(&w.action, "action", "",
		"only leases of this `ACTION`: its number in the plan, or its id")
	return cmd
}

// cascadeAnswered is what became of an owner's answer, as -o json prints it.
type cascadeAnswered struct {
	Plan   string   `json:"plan"`
	Answer string   `json:"answer"` // resume, give-up
	By     string   `json:"by"`
	Record uint64   `json:"record"` // sequence of the answer in the ledger
	Leases []string `json:"leases"`
	// the plan waits for a second operator to say the same
	Proposal string `json:"proposal,omitempty"`
	api.OutcomeAnswer
}

func answerCascade(cmd *cobra.Command, s *cli.Settings, c *cli.Client, id string,
	w *cascadeWord) error {
	ctx := cmd.Context()
	plan, err := c.Plan(ctx, id, 0)
	if err != nil {
		return err
	}
	record := &pb.Record{Plan: id,
		Kind: &pb.Record_CascadeAnswered{CascadeAnswered: &pb.CascadeAnswered{
			Resume: w.resume, Lease: w.lease, Reason: w.Reason, Actor: w.Actor,
		}}}
	meant, err := cutsMeant(plan, w.action, w.lease)
	if err != nil {
		return err
	}
	if w.action != "" {
		record.Action = meant[0].Action
	}
	if len(meant) == 1 { // it never meets a later cut
		if record.Cause, err = ledger.ParseAddress(meant[0].Cut); err != nil {
			return err
		}
	}
	result := cascadeAnswered{Plan: id, Answer: cascadeVerb(w.resume), By: w.Actor}
	for _, cut := range meant {
		result.Leases = append(result.Leases, cut.Lease)
	}
	if result.OutcomeAnswer, result.Record, err = c.Operate(ctx, w.Actor, record); err != nil {
		return err
	}
	if plan.SecondApprover {
		now, err := c.Plan(ctx, id, result.Record)
		if err != nil {
			return cli.Stored(result.Record, "sagenbaum plan show "+id, err)
		}
		for _, cut := range cutsOf(now, record.Action, w.lease) {
			if cut.Proposal != "" {
				result.Proposal = cut.Proposal
			}
		}
	}
	if result.Proposal == "" && w.resume {
		if result.OutcomeAnswer, err = Settled(ctx, c, id, result.Record,
			result.OutcomeAnswer); err != nil {
			return cli.Stored(result.Record, "sagenbaum plan show "+id, err)
		}
	}
	err = s.Print(cmd, result, func() { writeCascadeAnswered(cmd, s.Pen(cmd), result, plan, w) })
	return cli.Look(err, result.Proposal != "")
}

// cutsMeant are the leases that an answer is about; none is a conflict, before
// anything is sent. The log has the last word.
func cutsMeant(plan api.Plan, action, lease string) ([]api.Cut, error) {
	next := "sagenbaum plan why " + plan.Plan
	if len(plan.Cuts) == 0 {
		return nil, cli.Fail(cli.ExitConflict, next,
			"no lease of plan %s waits after a cut cascade: it is %s", plan.Plan, plan.State)
	}
	what := "lease " + lease
	known := plan // with what is cut, which may be far from the first actions
	known.Actions = slices.Clone(plan.Actions)
	for _, c := range plan.Cuts {
		named := func(a api.Action) bool { return a.Action == c.Action }
		if c.Action != "" && !slices.ContainsFunc(known.Actions, named) {
			known.Actions = append(known.Actions, api.Action{Number: c.Number, Action: c.Action})
		}
	}
	id, err := actionOf(known, action)
	if err != nil {
		return nil, err
	}
	if meant := cutsOf(plan, id, lease); len(meant) > 0 {
		return meant, nil
	}
	switch {
	case lease == "":
		what = "action " + action
	case action != "":
		what += " of action " + action
	}
	return nil, cli.Fail(cli.ExitConflict, next, "%s of plan %s is not cut; cut: %s", what,
		plan.Plan, render.CutNames(plan.Cuts))
}

// cutsOf are the cuts of an action's leases, of leases of a name, or of both.
func cutsOf(plan api.Plan, id, lease string) (list []api.Cut) {
	for _, cut := range plan.Cuts {
		if (id == "" || cut.Action == id) && (lease == "" || cut.Lease == lease) {
			list = append(list, cut)
		}
	}
	return list
}

func cascadeVerb(resume bool) string {
	if resume {
		return "resume"
	}
	return "give-up"
}

// resumeCommand is the command line of an answer.
func resumeCommand(plan string, cuts []api.Cut, resume bool) string {
	line := fmt.Sprintf("sagenbaum plan %s %s --reason WHY --actor NAME", cascadeVerb(resume), plan)
	if len(cuts) > 1 {
		line += " [--lease LEASE]"
		if slices.ContainsFunc(cuts, func(c api.Cut) bool { return c.Action != "" }) {
			line += " [--action ACTION]"
		}
	}
	return line
}

func writeCascadeAnswered(cmd *cobra.Command, p cli.Pen, r cascadeAnswered, plan api.Plan,
	w *cascadeWord) {
	r = cli.ForPeople(r)
	out, leases := cmd.OutOrStdout(), "lease "+strings.Join(r.Leases, ", ")
	if r.Proposal != "" {
		fmt.Fprintf(out, "%s %s: %s proposed by %s · record %d · waits for a second operator\n",
			r.Plan, leases, r.Answer, w.Actor, r.Record)
		fmt.Fprintln(cmd.ErrOrStderr(), "  next:", resumeCommand(r.Plan, plan.Cuts, w.resume),
			"(by the second operator)")
		return
	}
	said := "given up"
	if w.resume {
		said = "goes on from depth 1"
	}
	fmt.Fprintf(out, "%s %s %s, as told by %s · record %d · plan now %s\n", r.Plan, leases, said,
		w.Actor, r.Record, p.State(r.State))
}
