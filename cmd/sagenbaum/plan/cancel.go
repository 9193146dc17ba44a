package plan

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
)

const (
	waitDefault = time.Minute            // of --wait
	settleMax   = 500 * time.Millisecond // for an end that follows at once
)

// cancelling is what `plan cancel` was asked to do.
type cancelling struct {
	reason, actor string
	wait          bool
	limit         time.Duration // of the wait
}

func newPlanCancel(s *cli.Settings) *cobra.Command {
	var v cancelling
	cmd := &cobra.Command{
		Use:   "cancel PLAN",
		Short: "Cancel a plan: what it did is undone, latest first",
		Long: `Cancel a plan: what it did is undone, latest first. The cancel is a record under
the operator's name; exit code 75 means that the log decided otherwise, for
example because the plan was committed before. With --wait the command ends when
the plan has, or after --wait-timeout, with exit code 1 when it did not end
compensated by then. The undo goes on without the command.

Of PLAN~0, which delivers what is staged in the committed PLAN, it stops the
deliveries: what was not sent is dropped, and what was sent is waited for.`,
		Example: `  sagenbaum plan cancel 01JD3BX7 --reason "wrong branch" --wait
  sagenbaum plan cancel 01JD3BX7 --wait --wait-timeout 10m`,
		Args: cli.Exactly("PLAN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.CheckActor(v.actor); err != nil {
				return err
			}
			if err := cli.CheckWait(v.limit, "1m"); err != nil {
				return err
			}
			return s.With(func(c *cli.Client) error {
				return cli.Failed("cancel the plan", cancelPlan(cmd, s, c, args[0], v))
			})
		},
	}
	cmd.Flags().StringVar(&v.reason, "reason", "", "why, for the record")
	cmd.Flags().StringVar(&v.actor, "actor", cli.DefaultActor(), "`NAME` of the person who cancels")
	cmd.Flags().BoolVar(&v.wait, "wait", false, "wait until the plan has ended")
	cmd.Flags().DurationVar(&v.limit, "wait-timeout", waitDefault, "how long --wait waits at most")
	return cmd
}

func cancelPlan(cmd *cobra.Command, s *cli.Settings, c *cli.Client, id string, v cancelling) error {
	ctx := cmd.Context()
	if _, err := c.Plan(ctx, id, 0); err != nil {
		return err // an unknown plan never reaches the ledger
	}
	request := &pb.CancelRequested{Reason: v.reason, Actor: v.actor}
	answer, sequence, err := c.Operate(ctx, v.actor,
		&pb.Record{Plan: id, Kind: &pb.Record_CancelRequested{CancelRequested: request}})
	if err != nil {
		return err
	}
	if v.wait {
		if cli.WantsColor(cmd.ErrOrStderr()) { // a terminal
			sayWaiting(cmd.ErrOrStderr(), id, v.limit)
		}
		stop := follow(ctx, s, cmd.ErrOrStderr(), id)
		answer, err = AwaitEnd(ctx, c, id, sequence, v.limit)
		stop()
	} else {
		answer, err = Settled(ctx, c, id, sequence, answer)
	}
	if err != nil {
		return cli.Stored(sequence, "sagenbaum plan show "+id, err)
	}
	err = s.Print(cmd, answer, func() {
		fmt.Fprintf(cmd.OutOrStdout(), "%s %s, cancelled by %s · record %d\n", id,
			s.Pen(cmd).State(answer.State), v.actor, sequence)
	})
	if err != nil || !v.wait {
		return err
	}
	if Moving(answer.State) {
		sayUnfinished(ctx, cmd, c, id, v.limit)
	}
	return cli.Look(nil, !Undone(answer.State))
}

// Undone reports whether a plan that was to be undone has ended so that nothing is left of it.
func Undone(state string) bool {
	return state == ledger.StateCompensated || state == ledger.StateFailed
}

func sayWaiting(w io.Writer, id string, limit time.Duration) {
	fmt.Fprintf(w,
		"waiting for the end of %s, at most %s; to interrupt this stops the waiting, not the "+
			"undoing\n", id, limit)
}

// sayUnfinished says on stderr what a plan waits for whose end did not come in
// time; what cannot be asked is left out, for the answer is there.
func sayUnfinished(ctx context.Context, cmd *cobra.Command, c *cli.Client, id string,
	limit time.Duration) {
	stderr := cmd.ErrOrStderr()
	plan, err := c.Plan(ctx, id, 0)
	goesOn := "undoing goes on"
	if plan.Delivers {
		goesOn = "what was sent is waited for"
	}
	fmt.Fprintf(stderr, "%s has not ended after %s; %s\n", id, limit, goesOn)
	if err == nil {
		for _, line := range outstanding(cli.ForPeople(plan), time.Now()) {
			fmt.Fprintln(stderr, "  "+line)
		}
	}
	fmt.Fprintln(stderr, "  next: sagenbaum plan tree "+id)
}

// outstanding lists the undos that are under way and what each waits for, latest
// first, as they are undone.
func outstanding(plan api.Plan, now time.Time) (lines []string) {
	for _, a := range slices.Backward(plan.Actions) {
		switch a.Undo {
		case "ready", "dispatched", "waiting":
			line := fmt.Sprintf("action %s: %s", render.EntryText(a),
				render.UndoLine(cli.Pen{}, a, now, render.TreeWidth))
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// Moving are the states that a plan leaves by itself.
func Moving(state string) bool { return state != "" && !ledger.HasEnded(state) }

// AwaitEnd asks until the plan has ended, for at most limit; the answer is then
// the state that it has. It returns earlier when the context ends.
func AwaitEnd(ctx context.Context, c *cli.Client, id string, sequence uint64,
	limit time.Duration) (api.OutcomeAnswer, error) {
	deadline := time.Now().Add(limit)
	for {
		wait := max(min(time.Until(deadline), c.Timeout/2), time.Millisecond)
		answer, err := c.Outcome(ctx,
			api.OutcomeQuery{Plan: id, Sequence: sequence, Ended: true,
				WaitMs: max(wait.Milliseconds(), 1)})
		if err != nil {
			return answer, err
		}
		if !Moving(answer.State) || !time.Now().Before(deadline) {
			return answer, nil
		}
		if err := ctx.Err(); err != nil {
			return answer, err
		}
	}
}

// Settled is what becomes of a plan right after an operator's record: an end
// that follows within milliseconds is told instead of the way there.
func Settled(ctx context.Context, c *cli.Client, id string, sequence uint64,
	answer api.OutcomeAnswer) (api.OutcomeAnswer, error) {
	if !Moving(answer.State) {
		return answer, nil
	}
	return AwaitEnd(ctx, c, id, sequence, settleMax)
}
