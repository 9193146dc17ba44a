package plan

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// handing is what `plan adopt` was asked to do.
type handing struct {
	agent, reason, actor string
	follows              uint64
	seen                 bool // follows was given
}

func newPlanAdopt(s *cli.Settings) *cobra.Command {
	var v handing
	cmd := &cobra.Command{
		Use:   "adopt PLAN --agent NAME",
		Short: "Hand an open plan to another agent of its tenant",
		Long: `Hand an open plan, whose agent is gone or is to go on no more, to another agent of its
tenant. A process of that one resumes it (coordinator.Resume, or plan.resume at the door)
and goes on, commits or undoes it. Both agents are told. Of the one that had the plan
only what became of its forwards is taken from here on; what else it claims waits for
you, as an act that was refused. It is told afterwards: end its process first where you
can, for what it calls until it hears of it happens and is refused.

Only this plan is handed over: its child plans are plans of their own. One that ends, and
one that a function of its agent has begun, is not. Where a process has resumed the plan
since the command looked, it has no effect. Exit code 75 means one of these.

What you have seen may be older: with --follows the command has no effect either where a
process has resumed the plan after that. It is writer_at of what this command printed
before (-o json), or of the plan.outcome of the query API; 0 hands the plan over whoever
writes it.`,
		Example: `  sagenbaum plan adopt 01JD3BX7 --agent coder-2 --reason "its machine is gone"
  sagenbaum plan adopt 01JD3BX7 --agent coder-3 --reason "so is that one's" --follows 8123`,
		Args: cli.Exactly("PLAN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			v.seen = cmd.Flags().Changed("follows")
			if err := v.check(); err != nil {
				return err
			}
			return s.With(func(c *cli.Client) error {
				return cli.Failed("hand the plan over", adopt(cmd, s, c, args[0], v))
			})
		},
	}
	cmd.Flags().StringVar(&v.agent, "agent", "", "`NAME` of the agent that gets it (required)")
	cmd.Flags().StringVar(&v.reason, "reason", "", "why, for the record and both agents (required)")
	cmd.Flags().Uint64Var(&v.follows, "follows", 0, "`SEQUENCE` of the record that made its writer "+
		"that; default as the command finds it")
	cmd.Flags().StringVar(&v.actor, "actor", cli.DefaultActor(), "`NAME` of the person who does")
	return cmd
}

func (v handing) check() error {
	switch {
	case !ledger.ValidToken(v.agent):
		return cli.Fail(cli.ExitUsage, "--agent coder-2", "--agent %.80q is not a name; want %s", v.agent,
			ledger.TokenWanted)
	case ledger.IsBlank(v.reason):
		return cli.Fail(cli.ExitUsage, `--reason "its machine is gone"`,
			"handing a plan over needs a reason")
	}
	return cli.CheckActor(v.actor)
}

// Handed is what became of it, as -o json prints it.
type Handed struct {
	Plan   string `json:"plan"`
	From   string `json:"from"` // the agent that had it
	Agent  string `json:"agent"`
	By     string `json:"by"`
	Record uint64 `json:"record"` // sequence of the plan_adopted in the ledger
	// Children are child plans of the plan that are open, which stay with their agents.
	Children []string `json:"children,omitempty"`
	api.OutcomeAnswer
}

func adopt(cmd *cobra.Command, s *cli.Settings, c *cli.Client, id string, v handing) error {
	ctx := cmd.Context()
	shown, err := c.Plan(ctx, id, 0)
	if err != nil {
		return err // an unknown plan never reaches the ledger
	}
	now, err := c.Outcome(ctx, api.OutcomeQuery{Plan: id})
	if err != nil {
		return err
	}
	handed := Handed{Plan: id, From: shown.Agent, Agent: v.agent, By: v.actor}
	if !v.seen {
		v.follows = now.WriterAt
	}
	if handed.Children, err = openChildren(ctx, c, shown); err != nil {
		return err
	}
	handed.OutcomeAnswer, handed.Record, err = c.Operate(ctx, v.actor, &pb.Record{Plan: id,
		Kind: &pb.Record_PlanAdopted{PlanAdopted: &pb.PlanAdopted{Agent: v.agent,
			Follows: v.follows, Reason: v.reason, Actor: v.actor}}})
	if err != nil {
		return err
	}
	return s.Print(cmd, handed, func() {
		fmt.Fprintf(cmd.OutOrStdout(), "%s is agent %s's, and no longer agent %s's; a process of it "+
			"resumes it · record %d\n", cli.Printable(id), v.agent, cli.Printable(handed.From),
			handed.Record)
		for _, child := range handed.Children {
			fmt.Fprintf(cmd.OutOrStdout(), "its child plan %s stays as it is: sagenbaum plan adopt %s\n",
				cli.Printable(child), cli.Printable(child))
		}
	})
}

// openChildren are the child plans of a plan that are open: one that has ended is not handed over.
func openChildren(ctx context.Context, c *cli.Client, p api.Plan) (open []string, err error) {
	for _, a := range p.Actions {
		if a.Child == "" {
			continue
		}
		now, err := c.Outcome(ctx, api.OutcomeQuery{Plan: a.Child})
		if err != nil {
			return nil, err
		}
		if now.State == ledger.StateOpen {
			open = append(open, a.Child)
		}
	}
	return open, nil
}
