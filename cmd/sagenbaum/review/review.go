// Package review is `sagenbaum review`: actions that wait for a supervisor's verdict.
package review

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/plan"
)

// Command is `sagenbaum review` with all below it.
func Command(s *cli.Settings) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "review",
		Short: "See the actions that wait for a verdict, and give it",
		Example: `  sagenbaum review ls
  sagenbaum review show 01JD3BX7 charge
  sagenbaum review allow 01JD3BX7 charge
  sagenbaum review block 01JD3BX7 charge --reason "over the limit of the day"`,
	}, cli.Watchable(s, newLs(s)), newShow(s),
		newGive(s, pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW, giving{
			use: "allow PLAN ACTION", short: "Let an action go on: its tool is called",
			example: "  sagenbaum review allow 01JD3BX7 charge --reason \"as agreed\""}),
		newGive(s, pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK, giving{
			use: "block PLAN ACTION", short: "Keep an action from being done; one that was done " +
				"already is undone",
			example: "  sagenbaum review block 01JD3BX7 charge --reason \"over the limit of the day\"",
			reason:  true}),
		newGive(s, pb.VerdictOutcome_VERDICT_OUTCOME_REDIRECT, giving{
			use: "redirect PLAN ACTION", short: "Keep an action from being done, and say what to do " +
				"instead",
			example: "  sagenbaum review redirect 01JD3BX7 charge --reason \"pay by invoice\"",
			reason:  true}))
}

// ask asks for one batch.
func ask(in cli.Listing) ([]api.Review, string, error) {
	answer, err := cli.Ask(in.Ctx, in.Client, api.ReviewLs,
		api.ReviewQuery{After: in.After, Limit: in.Limit})
	return answer.Reviews, answer.Next, err
}

func newLs(s *cli.Settings) *cobra.Command {
	return cli.List[api.Review]{
		Command: &cobra.Command{
			Use: "ls",
			Short: "List the actions that wait for a verdict (exit code 1 when there are any), the " +
				"one that has waited longest first",
			Example: "  sagenbaum review ls\n  sagenbaum review ls --filter 'review.agent == " +
				"\"coder\"' -o json",
		},
		Doing: "list the reviews", Name: "review", Filter: `review.agent == "coder"`,
		Most: "at most `N` actions", Ask: ask,
		Data: func(reviews []api.Review, next string) any {
			return api.ReviewAnswer{Reviews: reviews, Next: next}
		},
		Empty: "no action waits for a verdict",
		Table: cli.Table{Head: []string{"PLAN", "ACTION", "CAPABILITY", "WANTED BY", "WAITS SINCE",
			"UNTIL", "INPUT"}, Elastic: []string{"INPUT"}, Spare: []string{"UNTIL"}},
		Row: func(t *cli.Table, v api.Review) {
			v = cli.ForPeople(v)
			now := time.Now()
			until := "-" // its agent's limit is its own
			if v.DeadlineNs != 0 {
				until = cli.Relative(v.DeadlineNs, now)
			}
			t.Add(v.Plan, v.Action, v.Capability, v.Agent, cli.Relative(v.SinceNs, now), until,
				cli.Clip(inputText(v), 100))
		},
		More: func(reviews []api.Review) string {
			if len(reviews) == 0 {
				return ""
			}
			first := cli.ForPeople(reviews[0])
			return "  next: sagenbaum review show " + first.Plan + " " + first.Action
		},
		Look: func(api.Review) bool { return true },
	}.New(s)
}

// inputText is the input of an action for people.
func inputText(v api.Review) string {
	switch {
	case v.Omitted:
		return "(too large to be shown)"
	case len(v.Input) == 0:
		return "(none)"
	}
	return cli.Printable(string(v.Input))
}

func newShow(s *cli.Settings) *cobra.Command {
	return cli.Show[api.Review]{
		Command: &cobra.Command{
			Use: "show PLAN ACTION",
			Short: "Show an action that waits for a verdict, with its input and what a block would " +
				"undo",
			Example: "  sagenbaum review show 01JD3BX7 charge",
			Args:    cli.Exactly("PLAN", "ACTION"),
		},
		Doing: "show the review",
		Ask: func(ctx context.Context, c *cli.Client, args []string) (api.Review, error) {
			answer, err := cli.Ask(ctx, c, api.ReviewLs,
				api.ReviewQuery{Plan: args[0], Action: args[1]})
			for _, v := range answer.Reviews {
				return v, nil
			}
			if err == nil {
				err = cli.Fail(cli.ExitFailed, "sagenbaum review ls",
					"no action %s of plan %s waits for a verdict", args[1], args[0])
			}
			return api.Review{}, err
		},
		Write: writeReview,
		Next: func(v api.Review) string {
			return fmt.Sprintf("  next: sagenbaum review allow|block|redirect %s %s",
				cli.Printable(v.Plan), cli.Printable(v.Action))
		},
	}.New(s)
}

func writeReview(out io.Writer, p cli.Pen, v api.Review) {
	block := v.Block
	v = cli.ForPeople(v)
	fmt.Fprintf(out, "%s %s  waits for a verdict since %s\n", p.Bold(v.Plan), p.Bold(v.Action),
		cli.Moment(v.SinceNs))
	lines := [][2]string{{"capability", v.Capability}, {"class", v.Class}, {"wanted by", v.Agent},
		{"plan", v.Label}, {"owner", v.Owner}}
	if v.DeadlineNs != 0 {
		lines = append(lines, [2]string{"until", cli.Moment(v.DeadlineNs) +
			", the deadline of its plan"})
	}
	cli.PrintLines(out, append(lines, [2]string{"input", inputText(v)}))
	if block == nil { // the server does not say it
		return
	}
	fmt.Fprintln(out, "\nA block keeps it from being done, and undoes nothing. Should it have been "+
		"done all the same,\nor nothing be heard of it for 30 s, this is undone:")
	plan.WritePreview(out, p, *block, time.Now())
}

// giving is the command of one verdict.
type giving struct {
	use, short, example string
	reason              bool // it needs one
}

// scopes are what --scope may be.
var scopes = map[string]pb.Scope{"": pb.Scope_SCOPE_UNSPECIFIED, "action": pb.Scope_SCOPE_ACTION,
	"plan": pb.Scope_SCOPE_PLAN}

func newGive(s *cli.Settings, outcome pb.VerdictOutcome, g giving) *cobra.Command {
	var by, reason, scope string
	cmd := &cobra.Command{
		Use: g.use, Short: g.short, Example: g.example,
		Long: g.short + `. The verdict is a record under the supervisor's name, if the server lets
this user write under it. The last verdict on an action counts; ACTION is its id or
its number in the plan ('id:4' or 'number:4' where 4 is both, of two actions).
A block of a staged act drops it, and what was staged after it; once it is being delivered, a block
stops the deliveries. A committed plan is undone for it inside its undo windows, by a plan of its
own. Exit code 75 means that the log refused it, for instance because a window has closed, or that
nothing is undone.`,
		Args: cli.Exactly("PLAN", "ACTION"),
		RunE: s.Connected(func(cmd *cobra.Command, args []string, c *cli.Client) error {
			switch {
			case !ledger.ValidToken(by):
				return cli.Fail(cli.ExitUsage, "--by NAME of the supervisor: 1 to 64 letters, digits, "+
					"'-' or '_'", "%q is no supervisor, and each verdict has one", by)
			case g.reason && ledger.IsBlank(reason):
				return cli.Fail(cli.ExitUsage, "--reason TEXT", "a verdict that keeps an action from "+
					"being done says why")
			}
			undoes, known := scopes[scope]
			if !known {
				return cli.Fail(cli.ExitUsage, "--scope action, or --scope plan", "%q is no scope", scope)
			}
			action, err := meant(cmd.Context(), c, args[0], args[1])
			if err != nil {
				return cli.Failed("give the verdict", err)
			}
			given, err := give(cmd.Context(), c, by, &pb.Record{Plan: args[0], Action: action,
				Kind: &pb.Record_VerdictGiven{VerdictGiven: &pb.VerdictGiven{Outcome: outcome,
					Reason: reason, Scope: undoes}}})
			if err != nil {
				return cli.Failed("give the verdict", err)
			}
			return s.Print(cmd, given, func() {
				fmt.Fprintf(cmd.OutOrStdout(), "%s %s: %s by %s · record %d · plan %s%s\n", args[0], action,
					given.Verdict, by, given.Record, s.Pen(cmd).State(given.State), undoneAs(given))
			})
		}),
	}
	cmd.Flags().StringVar(&by, "by", cli.DefaultActor(), "`NAME` of the supervisor; by itself the "+
		"user who runs this")
	cmd.Flags().StringVar(&reason, "reason", "", "why, or what to do instead: the agent is told")
	if g.reason { // allow undoes nothing
		cmd.Flags().StringVar(&scope, "scope", "", "what is undone of what has happened: the `action`, "+
			"with what came after it, which is meant without it, or the plan")
	}
	return cmd
}

// meant is the id of the action that an argument is about. What the host does not know, the log
// refuses.
func meant(ctx context.Context, c *cli.Client, plan, text string) (id string, err error) {
	answer, err := cli.Ask(ctx, c, api.ReviewLs, api.ReviewQuery{Plan: plan, Action: text})
	if err != nil || answer.Action != "" {
		return answer.Action, err
	}
	return strings.TrimPrefix(text, api.IDPrefix), nil
}

// Given is a verdict that the ledger has taken.
type Given struct {
	Plan    string `json:"plan"`
	Action  string `json:"action"`
	Verdict string `json:"verdict"` // allow, block, redirect
	By      string `json:"by"`
	Record  uint64 `json:"record"` // sequence
	State   string `json:"state"`  // of the plan

	UndoneAs string `json:"undone_as,omitempty"` // the plan that undoes a committed one
	UndoneIn string `json:"undone_in,omitempty"` // the plan that undoes a committed child

	withChild string // how UndoneIn does it
}

func undoneAs(g Given) string {
	switch {
	case g.UndoneAs != "":
		return ", undone by plan " + cli.Printable(g.UndoneAs)
	case g.UndoneIn != "":
		return ", and the action " + cli.Printable(g.withChild)
	}
	return ""
}

// give appends a verdict, and waits until it is folded.
func give(ctx context.Context, c *cli.Client, by string, record *pb.Record) (Given, error) {
	source := ledger.Source{Tenant: c.Tenant, Class: ledger.ClassVerdict, Name: by}
	sequence, err := c.AppendRecords(ctx, source, record)
	if err != nil {
		return Given{}, err
	}
	answer, err := c.Outcome(ctx, api.OutcomeQuery{Plan: record.Plan, Sequence: sequence,
		Action: record.Action, WaitMs: c.Timeout.Milliseconds() / 2})
	switch {
	case len(answer.Refused) > 0: // also of a plan that there is not
		return Given{}, cli.Fail(cli.ExitConflict, "sagenbaum review ls",
			"record %d has no effect: %s", sequence, strings.Join(answer.Refused, "; "))
	case err != nil:
		return Given{}, cli.Stored(sequence, "sagenbaum plan show "+record.Plan, err)
	}
	allows := record.GetVerdictGiven().Outcome == pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW
	if allows && answer.Outcome == api.OutcomeFailed {
		return Given{}, cli.Fail(cli.ExitConflict, "sagenbaum plan show "+record.Plan,
			"record %d allows nothing: action %s has failed, and its agent waits no more for a verdict",
			sequence, record.Action)
	}
	if !allows && answer.State == ledger.StateCommitted && answer.UndoneAs+answer.UndoneIn == "" {
		return Given{}, cli.Fail(cli.ExitConflict, "sagenbaum plan show "+record.Plan,
			"plan %s is committed, and record %d undoes nothing: action %s has nothing to undo",
			record.Plan, sequence, record.Action)
	}
	return Given{Plan: record.Plan, Action: record.Action, Verdict: answer.Verdict, By: by,
		Record: sequence, State: answer.State, UndoneAs: answer.UndoneAs, UndoneIn: answer.UndoneIn,
		withChild: answer.UndoneWithChild()}, nil
}
