package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// unwinding is what `plan unwind` was asked to do.
type unwinding struct {
	to            string // savepoint; empty: all of it
	action        string // only this one and what came after it
	reason, actor string
	wait          bool
	limit         time.Duration // of the wait
}

func newPlanUnwind(s *cli.Settings) *cobra.Command {
	var v unwinding
	cmd := &cobra.Command{
		Use:   "unwind PLAN",
		Short: "Undo what a plan did: all of it, or a part",
		Long: `Undo what a plan did, latest first: all of it; or what came after a savepoint, or
one action and what came after it in the plan's order, and then the plan is open
again. 'plan preview' shows it before.

A committed plan is undone too, inside its undo windows: a new plan, with ~1 after
the old one's id, holds what the old one did, and the command follows that one. When
windows have closed nothing happens, what has become irreversible is listed, and the
exit code is 75. So it is when the log decided otherwise. A committed plan that is a
part of another one is undone as an action of that one: --action plan:PART.

With --wait the command ends when the plan has, or after --wait-timeout, with exit
code 1 when it did not end compensated (with --to or --action: open again) by then.
Undoing goes
on whether or not anybody waits for it.`,
		Example: `  sagenbaum plan unwind 01JD3BX7 --reason "bad release" --wait
  sagenbaum plan unwind 01JD3BX7 --to drafted --reason "wrong dates" --actor operator1
  sagenbaum plan unwind 01JD3BX7 --action hotel --reason "closed"`,
		Args: cli.Exactly("PLAN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := v.check(); err != nil {
				return err
			}
			return s.With(func(c *cli.Client) error {
				return cli.Failed("unwind the plan", unwindPlan(cmd, s, c, args[0], v))
			})
		},
	}
	cmd.Flags().StringVar(&v.to, "to", "", "only what came after this `SAVEPOINT`")
	cmd.Flags().StringVar(&v.action, "action", "",
		"only this `ACTION`, by its id or number, and what came after it")
	cmd.Flags().StringVar(&v.reason, "reason", "", "why, for the record")
	cmd.Flags().StringVar(&v.actor, "actor", cli.DefaultActor(), "`NAME` of the person who unwinds")
	cmd.Flags().BoolVar(&v.wait, "wait", false, "wait until the plan has ended, or is open again")
	cmd.Flags().DurationVar(&v.limit, "wait-timeout", waitDefault, "how long --wait waits at most")
	return cmd
}

func (v unwinding) check() error {
	switch {
	case v.to != "" && v.action != "":
		return cli.Fail(cli.ExitUsage, "--action ACTION", "--to and --action name two parts")
	case ledger.IsBlank(v.reason):
		return cli.Fail(cli.ExitUsage, `--reason "bad release"`, "an unwind needs a reason")
	}
	if err := cli.CheckWait(v.limit, "1m"); err != nil {
		return err
	}
	return cli.CheckActor(v.actor)
}

// Unwound is what became of an unwind, as -o json prints it.
type Unwound struct {
	// the one that is undone: of a committed one, the plan that undoes it
	Plan   string   `json:"plan"`
	Origin string   `json:"origin,omitempty"`       // the committed plan
	To     string   `json:"to,omitempty"`           // savepoint
	Action string   `json:"action,omitempty"`       // and what came after it
	Record uint64   `json:"record"`                 // sequence of the request in the ledger
	Gone   []string `json:"irreversible,omitempty"` // refused: what cannot be undone any more
	api.OutcomeAnswer
}

func unwindPlan(
	cmd *cobra.Command, s *cli.Settings, c *cli.Client, id string, v unwinding,
) error {
	ctx := cmd.Context()
	before, err := c.Plan(ctx, id, 0)
	if err != nil {
		return err // an unknown plan never reaches the ledger
	}
	if err := hasSavepoint(before, v.to); err != nil {
		return err
	}
	if v.action, err = actionOf(before, v.action); err != nil {
		return err
	}
	result, err := v.request(ctx, c, id)
	if err != nil {
		if f := new(cli.Failure); errors.As(err, &f) && result.Record != 0 {
			f.Hint = cmp.Or(PartNext(ctx, c, before), f.Hint)
		}
		return refusedUnwind(cmd, s, result, err)
	}
	if v.wait && cli.WantsColor(cmd.ErrOrStderr()) { // a terminal
		sayWaiting(cmd.ErrOrStderr(), result.Plan, v.limit)
	}
	limit, stop := settleMax, func() {}
	if v.wait {
		limit = v.limit
		stop = follow(ctx, s, cmd.ErrOrStderr(), result.Plan)
	}
	if v.partly() && result.Origin == "" {
		result.OutcomeAnswer, err = awaitRewound(ctx, c, before, v, result.Record, limit)
	} else {
		result.OutcomeAnswer, err = AwaitEnd(ctx, c, result.Plan, result.Record, limit)
	}
	stop()
	if err != nil {
		return cli.Stored(result.Record, "sagenbaum plan show "+result.Plan, err)
	}
	err = s.Print(cmd, result, func() { writeUnwound(cmd, s.Pen(cmd), result, v) })
	if err != nil || !v.wait {
		return err
	}
	return judgeUnwound(cmd, c, result, v)
}

// request asks for an unwind. Where it is refused, what has become irreversible is in the result.
func (v unwinding) request(ctx context.Context, c *cli.Client, id string) (r Unwound, err error) {
	r = Unwound{Plan: id, To: v.to, Action: v.action}
	request := &pb.CompensationRequested{Reason: v.reason, Actor: v.actor, ToSavepoint: v.to,
		FromAction: v.action}
	r.OutcomeAnswer, r.Record, err = c.Operate(ctx, v.actor, &pb.Record{Plan: id,
		Kind: &pb.Record_CompensationRequested{CompensationRequested: request}})
	if err != nil {
		r.Gone = goneOf(r.Refused)
		return r, err
	}
	after, err := c.Plan(ctx, id, r.Record)
	if err == nil && after.State == ledger.StateCommitted && after.UndoneAs != "" {
		r.Plan, r.Origin = after.UndoneAs, id
	}
	return r, cli.Stored(r.Record, "sagenbaum plan show "+id, err)
}

// PartNext is the command that undoes a committed plan which is a part of another one: it is undone
// as an action of the root. Of a part of a part it undoes the one that the root has. Empty: the
// plan is not committed, or is no part.
func PartNext(ctx context.Context, c *cli.Client, part api.Plan) string {
	if part.State != ledger.StateCommitted || part.Parent == "" {
		return ""
	}
	for {
		whole, err := c.Plan(ctx, part.Parent, 0)
		if err != nil {
			return ""
		}
		if whole.Parent != "" {
			part = whole
			continue
		}
		for _, a := range whole.Actions {
			if a.Child == part.Plan {
				return "sagenbaum plan unwind " + whole.Plan + " --action " + a.Action
			}
		}
		return ""
	}
}

// Unwind has all of a plan undone, and waits for its end, for at most limit. Where undo windows
// have closed, nothing is undone, and Gone says of what.
func Unwind(
	ctx context.Context, c *cli.Client, id, reason, actor string, limit time.Duration,
) (Unwound, error) {
	r, err := unwinding{reason: reason, actor: actor}.request(ctx, c, id)
	if err != nil {
		return r, err
	}
	if r.OutcomeAnswer, err = AwaitEnd(ctx, c, r.Plan, r.Record, limit); err != nil {
		err = fmt.Errorf("its undo goes on, record %d asks for it, and its end was not waited for: %w",
			r.Record, err)
	}
	return r, err
}

// judgeUnwound is how a wait ends: well, or with something to look at.
func judgeUnwound(cmd *cobra.Command, c *cli.Client, r Unwound, v unwinding) error {
	open := v.partly() && r.Origin == ""
	if r.State == ledger.StateQuarantined {
		fmt.Fprintln(cmd.ErrOrStderr(), "  next: sagenbaum doctor --plan "+r.Plan)
	}
	switch {
	case r.State == ledger.StateUnwinding, r.State == ledger.StateOpen && !open:
		sayUnfinished(cmd.Context(), cmd, c, r.Plan, v.limit)
		return cli.ErrLook
	case open && r.State == ledger.StateOpen, Undone(r.State):
		return nil
	default:
		return cli.ErrLook
	}
}

// partly reports whether the plan is to be open again.
func (v unwinding) partly() bool { return v.to != "" || v.action != "" }

// actionOf is the id of an action of a plan that is named by its id or number.
func actionOf(plan api.Plan, text string) (string, error) {
	if text == "" {
		return "", nil
	}
	a, err := render.FindAction(plan, text)
	return a.Action, err
}

// hasSavepoint refuses a savepoint that a plan does not have.
func hasSavepoint(plan api.Plan, name string) error {
	if name == "" {
		return nil
	}
	var known []string
	for _, sp := range plan.Savepoints {
		if sp.Name == name {
			return nil
		}
		known = append(known, sp.Name)
	}
	return cli.Fail(cli.ExitFailed, "sagenbaum plan tree "+plan.Plan,
		"compensation_requested.to_savepoint: plan %s has no savepoint %q; it has %s", plan.Plan,
		name, cli.Dash(strings.Join(known, ", ")))
}

// goneOf is what has become irreversible, where that is why an unwind was refused.
func goneOf(refused []string) (gone []string) {
	for _, reason := range refused {
		if list := refusalLines(reason); len(list) > 1 {
			gone = append(gone, list[1:]...)
		}
	}
	return gone
}

// refusedUnwind prints what has become irreversible, one line each, where that is
// why nothing was unwound.
func refusedUnwind(cmd *cobra.Command, s *cli.Settings, r Unwound, cause error) error {
	if len(r.Gone) == 0 {
		return cause
	}
	if s.JSON() {
		if err := cli.PrintJSON(cmd.OutOrStdout(), r); err != nil {
			return err
		}
	} else {
		for _, line := range cli.ForPeople(r.Gone) {
			fmt.Fprintln(cmd.OutOrStdout(), line)
		}
	}
	return cli.Fail(cli.ExitConflict, "sagenbaum plan preview "+r.Plan,
		"nothing of %s was unwound, record %d has no effect: undo windows have closed", r.Plan,
		r.Record)
}

func writeUnwound(cmd *cobra.Command, p cli.Pen, r Unwound, v unwinding) {
	line := r.Plan + " " + p.State(r.State)
	switch {
	case r.Origin != "":
		line = fmt.Sprintf("%s is undone as %s, which is %s", r.Origin, r.Plan, p.State(r.State))
	case v.to != "" && r.State == ledger.StateOpen:
		line = fmt.Sprintf("%s %s again at savepoint %s", r.Plan, p.State(r.State), v.to)
	case v.to != "":
		line += " back to savepoint " + v.to
	case v.action != "" && r.State == ledger.StateOpen:
		line = fmt.Sprintf("%s %s again without %s", r.Plan, p.State(r.State), v.action)
	case v.action != "":
		line += " from " + v.action + " on"
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s, unwound by %s · record %d\n", line, v.actor, r.Record)
}

const (
	rewoundAskMin = 20 * time.Millisecond // between two looks at a plan that goes back
	rewoundAskMax = time.Second
)

// awaitRewound asks until a plan has gone back to a savepoint and is open again, or
// stopped on the way, for at most limit. Before is the plan as it was asked.
func awaitRewound(ctx context.Context, c *cli.Client, before api.Plan, v unwinding,
	sequence uint64, limit time.Duration) (api.OutcomeAnswer, error) {
	deadline := time.Now().Add(limit)
	for delay := rewoundAskMin; ; delay = min(2*delay, rewoundAskMax) {
		plan, err := c.Plan(ctx, before.Plan, sequence)
		if err != nil {
			return api.OutcomeAnswer{}, err
		}
		state := plan.State
		if state == ledger.StateOpen && !wentBack(before, plan, v) {
			state = ledger.StateUnwinding // it is asked for, and has not begun
		}
		pause := min(delay, time.Until(deadline))
		if state != ledger.StateUnwinding || pause <= 0 {
			answer, err := c.Outcome(ctx, api.OutcomeQuery{Plan: before.Plan, Sequence: sequence})
			answer.State = state
			return answer, err
		}
		select {
		case <-ctx.Done():
			return api.OutcomeAnswer{}, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// wentBack reports whether nothing is held any more of what a plan had done after
// a savepoint, or of an action, when it was asked to go back.
func wentBack(before, plan api.Plan, v unwinding) bool {
	if v.action != "" {
		return !slices.ContainsFunc(plan.Actions, func(a api.Action) bool {
			return a.Action == v.action && slices.Contains(unsettledUndos, a.Undo)
		})
	}
	kept := 0
	for _, sp := range before.Savepoints {
		if sp.Name == v.to {
			kept = sp.Actions
		}
	}
	last := len(before.Actions)
	return !slices.ContainsFunc(plan.Actions, func(a api.Action) bool {
		return a.Number > kept && a.Number <= last && slices.Contains(unsettledUndos, a.Undo)
	})
}

// unsettledUndos are the states of an undo that is still to come or under way.
var unsettledUndos = []string{"held", "owed", "ahead", "ready", "dispatched", "waiting",
	"exhausted", cli.UndoQuarantined}
