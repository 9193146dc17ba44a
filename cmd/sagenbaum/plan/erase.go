package plan

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
)

// erasing is what `plan erase` was asked to do.
type erasing struct {
	reason, actor string
	force         bool
	limit         time.Duration
}

// erased is what `plan erase` answers.
type erased struct {
	Plan     string       `json:"plan"`
	State    string       `json:"state"`
	Erasure  *api.Erasure `json:"erasure"`
	Children []string     `json:"children,omitempty"` // they have keys of their own
}

func newPlanErase(s *cli.Settings) *cobra.Command {
	var v erasing
	cmd := &cobra.Command{
		Use:   "erase PLAN",
		Short: "Destroy the key of a plan's sensitive fields, so that no one can read them any more",
		Long: `Destroy the key of a plan's sensitive fields, those that contracts mark so. The ledger
stays as it is, and every byte and rule of it can still be verified; what was in those
fields can never be read again. The erasure is a record under the operator's name, and
so is the confirmation that the key is gone.

It is refused (exit code 75) while undos of the plan are held or owed, which may need
what is sealed. With --force it is done nevertheless: an undo that takes a sealed value
is then quarantined for the plan's owner. Plans that are part of it have keys of their own.
Erasing twice is harmless. Copies of the keys that were made before, in a backup, are not destroyed.`,
		Example: `  sagenbaum plan erase 01JD3BX7 --reason "asked for by the customer, ticket 4711"
  sagenbaum plan erase 01JD3BX7 --reason "leaked" --force`,
		Args: cli.Exactly("PLAN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.CheckActor(v.actor); err != nil {
				return err
			}
			if ledger.IsBlank(v.reason) {
				return cli.Fail(cli.ExitUsage, `--reason "asked for by the customer"`,
					"an erasure needs a reason: it is for good")
			}
			if err := cli.CheckWait(v.limit, "1m"); err != nil {
				return err
			}
			return s.With(func(c *cli.Client) error {
				answer, err := erase(cmd.Context(), c, args[0], v)
				if err != nil {
					return cli.Failed("erase the plan", err)
				}
				err = s.Print(cmd, answer, func() { writeErased(cmd, s.Pen(cmd), answer) })
				return cli.Look(err, answer.Erasure.Destroyed == "")
			})
		},
	}
	cmd.Flags().StringVar(&v.reason, "reason", "", "why, for the record; required")
	cmd.Flags().StringVar(&v.actor, "actor", cli.DefaultActor(), "`NAME` of the person who erases")
	cmd.Flags().BoolVar(&v.force, "force", false,
		"also while undos are held or owed: those that take sealed values are their owner's then")
	cmd.Flags().DurationVar(&v.limit, "wait-timeout", waitDefault,
		"how long to wait at most until the key is gone")
	return cmd
}

// erase records the request, unless there is one, and waits until the key is gone.
func erase(ctx context.Context, c *cli.Client, id string, v erasing) (erased, error) {
	plan, err := c.Plan(ctx, id, 0)
	if err != nil {
		return erased{}, err
	}
	sequence := uint64(0)
	if plan.Erasure == nil {
		request := &pb.PlanErased{Reason: v.reason, Actor: v.actor, Force: v.force}
		if _, sequence, err = c.Operate(ctx, v.actor,
			&pb.Record{Plan: id, Kind: &pb.Record_PlanErased{PlanErased: request}}); err != nil {
			return erased{}, err
		}
	}
	for deadline := time.Now().Add(v.limit); ; {
		if plan, err = c.Plan(ctx, id, sequence); err != nil {
			return erased{}, cli.Stored(sequence, "sagenbaum plan show "+id, err)
		}
		if plan.Erasure == nil {
			return erased{}, cli.Fail(cli.ExitFailed, "sagenbaum plan show "+id,
				"plan %s is not erased", id)
		}
		if plan.Erasure.Destroyed != "" || !time.Now().Before(deadline) {
			return erased{Plan: id, State: plan.State, Erasure: plan.Erasure,
				Children: cli.ChildrenOf(plan)}, nil
		}
		select {
		case <-ctx.Done():
			return erased{}, ctx.Err()
		case <-time.After(erasePoll):
		}
	}
}

// erasePoll is how often the word that a key is gone is asked for.
const erasePoll = 100 * time.Millisecond

func writeErased(cmd *cobra.Command, p cli.Pen, answer erased) {
	answer = cli.ForPeople(answer)
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%s %s, %s\n", p.Bold(answer.Plan), p.State(answer.State),
		render.ErasureText(answer.Erasure))
	for _, child := range answer.Children {
		fmt.Fprintf(out,
			"  plan %s is a part of it, with a key of its own: sagenbaum plan erase %s --reason "+
				"WHY\n", child, child)
	}
	if answer.Erasure.Destroyed == "" {
		fmt.Fprintf(cmd.ErrOrStderr(),
			"the key is not destroyed yet; the executor tries on\n  next: sagenbaum plan show %s\n",
			answer.Plan)
	}
}

// revealed asks for a plan with its sealed values in the clear, on a subject of its own, so
// that permissions can keep it from those who may look at everything else.
func revealed(ctx context.Context, c *cli.Client, id string) (api.Plan, error) {
	if _, err := c.Plan(ctx, id, 0); err != nil {
		return api.Plan{}, err
	}
	answer, err := cli.Ask(ctx, c, api.PlanReveal, api.PlanQuery{Plan: id})
	return answer.Plan, err
}
