package plan

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// moving is what `plan deadline` was asked to do.
type moving struct {
	in            time.Duration
	at            string
	reason, actor string
}

func newPlanDeadline(s *cli.Settings) *cobra.Command {
	var v moving
	cmd := &cobra.Command{
		Use:   "deadline PLAN",
		Short: "Move the deadline of an open plan, or give it its first one",
		Long: `Move the deadline of an open plan, earlier or later, or give it its first one: of an agent
that is gone, so that its plan ends by itself, or of one that needs longer. The instant
has to be to come; 'plan unwind' undoes the plan now. Its agent is told.

A deadline that has come is not moved any more, nor that of a plan that ends. Where
someone else has moved it since the command looked, the move has no effect. Exit code 75
means one of these.`,
		Example: `  sagenbaum plan deadline 01JD3BX7 --in 2h --reason "the provider is slow today"
  sagenbaum plan deadline 01JD3BX7 --at 2026-05-01T14:00:00Z --reason "the sale ends then"`,
		Args: cli.Exactly("PLAN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := v.check(time.Now())
			if err != nil {
				return err
			}
			return s.With(func(c *cli.Client) error {
				return cli.Failed("move the deadline", moveDeadline(cmd, s, c, args[0], to, v))
			})
		},
	}
	cmd.Flags().DurationVar(&v.in, "in", 0, "so long from now")
	cmd.Flags().StringVar(&v.at, "at", "",
		"at this `TIME`: 18:00, 2026-05-01 18:00, or as RFC 3339 writes it")
	cmd.Flags().StringVar(&v.reason, "reason", "", "why, for the record and the agent (required)")
	cmd.Flags().StringVar(&v.actor, "actor", cli.DefaultActor(), "`NAME` of the person who moves it")
	return cmd
}

// check is the instant that was asked for, in unix ns.
func (v moving) check(now time.Time) (int64, error) {
	to, given := now.Add(v.in), v.in != 0
	switch at, ok := cli.Instant(v.at, now); {
	case given == (v.at != ""):
		return 0, cli.Fail(cli.ExitUsage, "--in 2h, or --at 2026-05-01T14:00:00Z",
			"one of --in and --at says when")
	case v.at != "" && !ok:
		return 0, cli.Fail(cli.ExitUsage, "--at 18:00, --at 2026-05-01T14:00:00Z",
			"--at %.80q is no time", v.at)
	case v.at != "":
		to = at
	}
	if !to.After(now) {
		return 0, cli.Fail(cli.ExitUsage, "an instant to come; sagenbaum plan unwind undoes the plan now",
			"%s has passed", to.UTC().Format(time.RFC3339))
	}
	if ledger.IsBlank(v.reason) {
		return 0, cli.Fail(cli.ExitUsage, `--reason "the provider is slow today"`,
			"a move of a deadline needs a reason")
	}
	ns, err := ledger.InstantNs("deadline", to)
	if err != nil {
		return 0, cli.Fail(cli.ExitUsage, "", "%v", err)
	}
	return ns, cli.CheckActor(v.actor)
}

// Moved is what became of a move, as -o json prints it.
type Moved struct {
	Plan   string `json:"plan"`
	By     string `json:"by"`
	Record uint64 `json:"record"`           // sequence of the move in the ledger
	WasNs  int64  `json:"was_ns,omitempty"` // the deadline before it
	api.OutcomeAnswer
}

func moveDeadline(cmd *cobra.Command, s *cli.Settings, c *cli.Client, id string, to int64,
	v moving) error {
	ctx := cmd.Context()
	if _, err := c.Plan(ctx, id, 0); err != nil {
		return err // an unknown plan never reaches the ledger
	}
	now, err := c.Outcome(ctx, api.OutcomeQuery{Plan: id})
	if err != nil {
		return err
	}
	moved := Moved{Plan: id, By: v.actor, WasNs: now.DueNs}
	moved.OutcomeAnswer, moved.Record, err = c.Operate(ctx, v.actor, &pb.Record{Plan: id,
		Kind: &pb.Record_DeadlineMoved{DeadlineMoved: &pb.DeadlineMoved{DeadlineNs: to,
			Follows: now.DueSet, Reason: v.reason, Actor: v.actor}}})
	if err != nil {
		return err
	}
	return s.Print(cmd, moved, func() {
		was := "it had none"
		if moved.WasNs != 0 {
			was = "it was " + cli.Moment(moved.WasNs)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "the deadline of %s is %s, %s; %s · record %d\n",
			cli.Printable(id), cli.Moment(to), cli.Relative(to, time.Now()), was, moved.Record)
	})
}
