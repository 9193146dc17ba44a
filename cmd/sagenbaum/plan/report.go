package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
)

// reporting is what `plan report` was told of an effect.
type reporting struct {
	present       bool
	ref, output   string
	duplicates    []string
	reason, actor string
}

func newPlanReport(s *cli.Settings) *cobra.Command {
	var v reporting
	cmd := &cobra.Command{
		Use:   "report PLAN ACTION --present",
		Short: "Say that the effect of an action is there",
		Long: `Say that the effect of an action is there, whatever its agent has said: its call timed
out, or failed, and you see at the provider what it has made. What follows is what
follows from the action's completion: its undo is held, or it is owed if the plan is
being undone, or was. ACTION is its number in the plan or its id.

With --duplicate, which may be given again, the effect is there more than once: each
extra one is undone at once, alone. A committed plan keeps it, and its owner is paged:
'plan unwind PLAN --action ACTION~1' undoes it alone, which is the one undo that a
committed plan has. The inverse has to read meta.external_ref, and the effect itself
needs a name, from its agent or with --ref.

Where the plan asks for a second approver, another operator has to report the same.

That nothing is there cannot be said here: 'quarantine resolve' is the owner's word.
Exit code 75 means that the log decided otherwise.`,
		Example: `  sagenbaum plan report 01JD3BX7 4 --present --ref ch_9 --reason "seen in the dashboard"
  sagenbaum plan report 01JD3BX7 4 --present --output '{"id": "ch_9"}' --reason "seen in the dashboard"
  sagenbaum plan report 01JD3BX7 4 --present --ref ch_9 --duplicate ch_10 --reason "charged twice"`,
		Args: cli.Exactly("PLAN", "ACTION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := v.check(); err != nil {
				return err
			}
			return s.With(func(c *cli.Client) error {
				return cli.Failed("report the effect", reportEffect(cmd, s, c, args[0], args[1], v))
			})
		},
	}
	cmd.Flags().BoolVar(&v.present, "present", false, "the effect is there (required)")
	cmd.Flags().StringVar(&v.ref, "ref", "", "what the provider calls the effect: its `NAME`")
	cmd.Flags().StringArrayVar(&v.duplicates, "duplicate", nil,
		"what the provider calls an extra effect: its `NAME`")
	cmd.Flags().StringVar(&v.output, "output", "", "what the forward would have returned, in `JSON`")
	cmd.Flags().StringVar(&v.reason, "reason", "", "how you know, for the record (required)")
	cmd.Flags().StringVar(&v.actor, "actor", cli.DefaultActor(), "`NAME` of the person who reports")
	return cmd
}

func (v reporting) check() error {
	switch {
	case !v.present:
		return cli.Fail(cli.ExitUsage, "--present, or sagenbaum quarantine resolve",
			"only that an effect is there can be reported")
	case ledger.IsBlank(v.reason):
		return cli.Fail(cli.ExitUsage, `--reason "seen in the dashboard"`, "a report needs a reason")
	case v.output != "" && !json.Valid([]byte(v.output)):
		return cli.Fail(cli.ExitUsage, `--output '{"id": "ch_9"}'`, "the output is no JSON")
	}
	return cli.CheckActor(v.actor)
}

// Reported is what became of a report, as -o json prints it.
type Reported struct {
	Plan   string `json:"plan"`
	Action string `json:"action"`
	By     string `json:"by"`
	Record uint64 `json:"record"` // sequence of the report in the ledger
	// Proposal is set when the plan waits for a second operator to report the same.
	Proposal string `json:"proposal,omitempty"`
	api.OutcomeAnswer
}

func reportEffect(cmd *cobra.Command, s *cli.Settings, c *cli.Client, id, action string,
	v reporting) error {
	ctx := cmd.Context()
	plan, err := c.Plan(ctx, id, 0)
	if err != nil {
		return err // an unknown plan never reaches the ledger
	}
	if action, err = actionOf(plan, action); err != nil {
		return err
	}
	if err := v.saysAgain(plan, action); err != nil {
		return err
	}
	record := &pb.Record{Plan: id, Action: action,
		Kind: &pb.Record_EffectReported{EffectReported: &pb.EffectReported{ExternalRef: v.ref,
			Duplicates: v.duplicates, Reason: v.reason, Actor: v.actor}}}
	if v.output != "" {
		record.Payload = &pb.Payload{Output: []byte(v.output)}
	}
	result := Reported{Plan: id, Action: action, By: v.actor}
	result.OutcomeAnswer, result.Record, err = c.Operate(ctx, v.actor, record)
	if err != nil {
		return err
	}
	if plan.SecondApprover {
		answer := ledger.EffectAnswer(record.GetEffectReported(), record.Payload.GetOutput())
		if result.Proposal, err = waiting(ctx, c, result, answer); err != nil {
			return cli.Stored(result.Record, "sagenbaum plan show "+id, err)
		}
	}
	return cli.Look(s.Print(cmd, result, func() {
		text := "the effect of action %s of plan %s is there, as %s says · record %d\n"
		if result.Proposal != "" {
			text = "action %s of plan %s waits for a second operator to report the same as %s · " +
				"record %d\n"
		}
		fmt.Fprintf(cmd.OutOrStdout(), text, cli.Printable(action), cli.Printable(id),
			cli.Printable(v.actor), result.Record)
	}), result.Proposal != "")
}

// saysAgain refuses a report that says again what is known of an effect whose undo is over: the log
// takes it for a copy of the earlier one, and nothing follows.
func (v reporting) saysAgain(plan api.Plan, action string) error {
	if v.ref != "" || len(v.duplicates) > 0 || v.output != "" {
		return nil
	}
	of, err := render.FindAction(plan, action)
	if err != nil || of.Outcome != "completed" {
		return err
	}
	for _, duty := range plan.Actions {
		if duty.DutyOf == action && duty.Settled != "" {
			return cli.Fail(cli.ExitConflict, "sagenbaum plan why "+plan.Plan+" "+duty.Action+
				"; an effect that is there all the same is undone by hand", "nothing would follow: the "+
				"effect of action %s was reported before, and action %s, which is its undo, is %s",
				action, duty.Action, duty.Undo)
		}
	}
	return nil
}

// waiting is the proposal that a report is, or "": it counts.
func waiting(ctx context.Context, c *cli.Client, r Reported, answer string) (string, error) {
	plan, err := c.Plan(ctx, r.Plan, r.Record)
	if err != nil {
		return "", err
	}
	for _, a := range plan.Actions {
		if a.Action == r.Action && strings.HasPrefix(a.Proposal, answer) {
			return a.Proposal, nil
		}
	}
	return "", nil
}
