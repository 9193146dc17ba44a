package undo

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/mcp/started"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/plan"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// plansMax bounds the plans that one command undoes, and lookMax those that it looks at for them.
const (
	plansMax = 1000
	lookMax  = 10_000
)

// touchedShown are the actions of a plan that are named before it is undone.
const touchedShown = 10

// request is which plans are to be undone, and how.
type request struct {
	last               int
	since, agent, plan string
	reason, actor      string
	yes, dryRun, goOn  bool
	limit              time.Duration // of the wait for each
	sinceNs            int64
	now                time.Time
}

// flags are those of the command.
func (q *request) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&q.last, "last", 0, "the last `N` plans that did anything that can be undone")
	f.StringVar(&q.since, "since", "",
		"plans opened at this `TIME` or later: 14:00, 2026-05-01, 2h, or as RFC 3339 writes it")
	f.StringVar(&q.agent, "agent", "", "plans of this `AGENT`")
	cli.PlanFlag(cmd, &q.plan, "this `PLAN`")
	f.StringVar(&q.reason, "reason", "", "why, for the record")
	f.StringVar(&q.actor, "actor", cli.DefaultActor(), "`NAME` of the person who undoes")
	f.BoolVar(&q.yes, "yes", false, "do not ask before anything is undone")
	f.BoolVar(&q.dryRun, "dry-run", false, "show what would be undone, and undo nothing")
	f.BoolVar(&q.goOn, "keep-going", false,
		"go on with earlier plans after one that did not end compensated")
	f.DurationVar(&q.limit, "wait-timeout", time.Minute, "how long to wait for each plan")
}

// choosing are the flags that say which plans.
var choosing = []string{"last", "since", "agent", "plan"}

// empty reports whether no plan is asked for.
func empty(cmd *cobra.Command) bool { return !slices.ContainsFunc(choosing, cmd.Flags().Changed) }

// check refuses what does not say which plans, or why.
func (q *request) check(cmd *cobra.Command, data bool) (err error) {
	q.now = time.Now()
	if q.since != "" {
		q.sinceNs, err = past(q.since, q.now)
	}
	given := cmd.Flags().Changed
	switch last := given("last"); {
	case err != nil:
		return err
	case given("agent") && !ledger.ValidToken(q.agent):
		return cli.Fail(cli.ExitUsage, "--agent AGENT of "+ledger.TokenWanted, "%.80q is no agent",
			q.agent)
	case given("plan") && q.plan == "", given("since") && q.since == "":
		return cli.Fail(cli.ExitUsage, cmd.CommandPath()+" --help", "an empty flag chooses no plan")
	case q.plan != "" && (last || q.since != "" || q.agent != ""):
		return cli.Fail(cli.ExitUsage, "--plan PLAN alone", "--plan names one plan, and others as well")
	case last && (q.last < 1 || q.last > plansMax):
		return cli.Fail(cli.ExitUsage, fmt.Sprintf("--last N of 1 to %d", plansMax),
			"--last %d is no number of plans", q.last)
	case q.limit <= 0:
		return cli.CheckWait(q.limit, "1m")
	case q.dryRun:
		return nil
	case ledger.IsBlank(q.reason):
		return cli.Fail(cli.ExitUsage, `--reason "wrong project"`, "an undo needs a reason")
	case !q.yes && (data || !isTerminal(cmd.InOrStdin())):
		return cli.Fail(cli.ExitUsage, "--dry-run to see what would be undone, --yes to undo it",
			"there is no one to ask here")
	}
	return cli.CheckActor(q.actor)
}

func isTerminal(in io.Reader) bool {
	f, ok := in.(*os.File)
	return ok && cli.IsTerminal(f)
}

// past is a time that has passed, in unix ns: an instant, or how long ago.
func past(text string, now time.Time) (int64, error) {
	at, ok := cli.Instant(text, now)
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		at, ok = now.Add(-d), true
	}
	switch {
	case !ok:
		return 0, cli.Fail(cli.ExitUsage, "--since 14:00, --since 2h, --since 2026-05-01T14:00:00Z",
			"--since %.80q is no time", text)
	case at.After(now):
		return 0, cli.Fail(cli.ExitUsage, "--since "+now.AddDate(0, 0, -1).Format("2006-01-02")+"T15:04 "+
			"with the day", "--since %s is later than now", at.Format(time.RFC3339))
	}
	return at.UnixNano(), nil
}

// Chosen is a plan that is to be undone, and what came of it.
type Chosen struct {
	Plan     string `json:"plan"`
	Agent    string `json:"agent"`
	Label    string `json:"label,omitempty"`
	State    string `json:"state"`
	OpenedNs int64  `json:"opened_ns"`
	// Preview is what an unwind would do, as `plan preview` shows it.
	Preview api.Preview `json:"preview"`
	// Unwound is what came of it; null: nothing was asked for.
	Unwound *plan.Unwound `json:"unwound,omitempty"`
	Error   string        `json:"error,omitempty"` // why it was not undone, or what is not known
}

// Answer is what `undo` prints with -o json: the plans in the order in which they are undone.
type Answer struct {
	Plans []Chosen `json:"plans"`
	// Past: plans that match and of which nothing can be undone now, and why.
	Past []Past `json:"past,omitempty"`
}

// choose finds the plans, the one that was opened last first.
func (q *request) choose(ctx context.Context, c *cli.Client) (answer Answer, err error) {
	answer.Plans = []Chosen{}
	if q.plan != "" {
		p, err := c.Plan(ctx, q.plan, 0)
		if err != nil {
			return answer, err
		}
		return answer, answer.consider(ctx, c, p, true)
	}
	find := api.FindQuery{Agent: q.agent, FromNs: q.sinceNs, Limit: cli.PageSize}
	for looked := 0; ; {
		found, err := cli.Ask(ctx, c, api.PlanFind, find)
		if err != nil {
			return answer, err
		}
		for i := range found.Plans {
			if err := answer.consider(ctx, c, found.Plans[i], false); err != nil {
				return answer, err
			}
			if len(answer.Plans) == q.last && q.last > 0 {
				return answer, nil
			}
		}
		looked += len(found.Plans)
		switch {
		case len(answer.Plans) > plansMax || looked > lookMax:
			return answer, cli.Fail(cli.ExitUsage, "fewer: --last N, --since TIME, --agent AGENT",
				"these are too many plans for one command: at most %d are undone, and %d looked at",
				plansMax, lookMax)
		case found.Next == "":
			return answer, nil
		}
		find.After = found.Next
	}
}

// touches reports whether an unwind would do anything for an effect, or drop one that is staged.
func touches(v api.Preview) bool {
	return v.Omitted > 0 || len(v.Deliveries) > 0 ||
		slices.ContainsFunc(v.Steps, func(s api.PreviewStep) bool { return s.Step != plan.StepSkip })
}

// run is the command: find, show, ask, undo.
func (q *request) run(cmd *cobra.Command, s *cli.Settings) error {
	if err := q.check(cmd, s.JSON()); err != nil {
		return err
	}
	return s.With(func(c *cli.Client) error {
		answer, err := q.choose(cmd.Context(), c)
		if err != nil {
			return cli.Failed("find the plans", err)
		}
		if !s.JSON() {
			q.show(cmd, s.Pen(cmd), answer)
			sayUnserved(cmd.Context(), cmd.OutOrStdout(), c, answer.Plans)
		}
		if q.dryRun || len(answer.Plans) == 0 {
			return cmp.Or(s.Print(cmd, answer, func() {}), q.judge(answer))
		}
		if !q.yes {
			if err := q.ask(cmd, len(answer.Plans)); err != nil {
				return err
			}
		}
		done := q.undo(cmd, s, c, answer.Plans)
		if err := s.Print(cmd, answer, func() {}); err != nil {
			return err
		}
		return cli.Look(nil, !done)
	})
}

// show prints the plans that are to be undone, and how each would end.
func (q *request) show(cmd *cobra.Command, pen cli.Pen, answer Answer) {
	out := cmd.OutOrStdout()
	for _, p := range cli.ForPeople(answer.Plans) {
		line := fmt.Sprintf("%s  %s, of agent %s, opened %s", pen.Bold(p.Plan), pen.State(p.State),
			p.Agent, cli.Relative(p.OpenedNs, q.now))
		if p.Label != "" {
			line += ": " + cli.Clip(p.Label, 60)
		}
		fmt.Fprintln(out, line)
		for _, text := range plan.Touched(p.Preview, touchedShown) {
			fmt.Fprintln(out, "  "+text)
		}
		fmt.Fprintln(out, "  "+plan.Would(pen, p.Preview))
		if staged := p.Preview.Deliveries; len(staged) > 0 {
			fmt.Fprintf(out, "  drops what is staged, which is then never made: %s\n",
				cli.Clip(strings.Join(staged, ", "), 200))
		}
	}
	past := cli.ForPeople(answer.Past)
	for _, p := range past[:min(len(past), pastShown)] {
		fmt.Fprintf(out, "not %s: %s\n", p.Plan, cli.Clip(p.Why, 200))
	}
	if more := len(past) - pastShown; more > 0 {
		fmt.Fprintf(out, "and not %d others\n", more)
	}
	if len(answer.Plans) == 0 {
		fmt.Fprintln(out, "nothing is to be undone")
	}
}

// sayUnserved names the undos that would wait for a worker, and what to start. Where that cannot be
// asked it says nothing.
func sayUnserved(ctx context.Context, out io.Writer, c *cli.Client, plans []Chosen) {
	var question api.ServedQuery
	asked := map[string]bool{}
	for _, p := range plans {
		for _, step := range p.Preview.Steps {
			if step.Step != plan.StepSkip && step.Inverse != "" && !asked[step.Inverse] &&
				len(question.Calls) < servedMax {
				asked[step.Inverse] = true
				question.Calls = append(question.Calls, api.ServedCall{Capability: step.Inverse, Undo: true})
			}
		}
	}
	if len(question.Calls) == 0 {
		return
	}
	answer, err := cli.Ask(ctx, c, api.WorkerServed, question)
	no := func(call api.Served) bool { return call.Served == api.ServedNo }
	if err == nil && slices.ContainsFunc(answer.Calls, no) && cli.Pause(ctx, servedAgain) {
		answer, err = cli.Ask(ctx, c, api.WorkerServed, question) // a host takes over from a gateway
	}
	if err != nil {
		return
	}
	for _, s := range cli.ForPeople(answer.Calls) {
		if s.Served != api.ServedNo {
			continue
		}
		fmt.Fprintf(out, "no worker serves %s now: what it undoes waits until one does\n", s.Capability)
		if next := started.Next(s.Capability); next != "" {
			fmt.Fprintln(out, "  next:", cli.Printable(next))
		}
	}
}

const (
	servedMax   = 1000        // capabilities of one question
	servedAgain = time.Second // until it is asked once more
	pastShown   = 5           // plans of which nothing can be undone
)

// errNo ends the command where the answer to its question is no.
var errNo = cli.Fail(cli.ExitFailed, "", "nothing is undone")

// ask has the person at the terminal say yes.
func (q *request) ask(cmd *cobra.Command, plans int) error {
	what := "this plan"
	if plans > 1 {
		what = fmt.Sprintf("these %d plans, one after the other, as listed", plans)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "Undo %s? [y/N] ", what)
	said := make(chan string, 1)
	go func() { // ends with the process where no one answers
		text, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		said <- strings.ToLower(strings.TrimSpace(text))
	}()
	select {
	case text := <-said:
		if text == "y" || text == "yes" {
			return nil
		}
		return errNo
	case <-cmd.Context().Done():
		fmt.Fprintln(cmd.ErrOrStderr())
		return errNo
	}
}

// undo undoes the plans in their order, each when the one before it has ended; done: all ended
// compensated. What came later may build on what came before, so it stops at one that did not.
func (q *request) undo(cmd *cobra.Command, s *cli.Settings, c *cli.Client, plans []Chosen) bool {
	done := true
	for i := range plans {
		p := &plans[i]
		r, err := plan.Unwind(cmd.Context(), c, p.Plan, q.reason, q.actor, q.limit)
		ended := err == nil && plan.Undone(r.State)
		done = done && ended
		hint := "sagenbaum doctor --plan " + r.Plan
		if r.Record != 0 {
			p.Unwound = &r
		}
		if err != nil {
			p.Error = err.Error()
		}
		if f := new(cli.Failure); errors.As(err, &f) {
			hint = f.Hint
		}
		if !s.JSON() {
			writeUndone(cmd.OutOrStdout(), s.Pen(cmd), *p)
		}
		if ended {
			continue
		}
		fmt.Fprintln(cmd.ErrOrStderr(), "  next:", cli.Printable(hint))
		left := len(plans) - i - 1
		if q.goOn && cmd.Context().Err() == nil || left == 0 {
			continue
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "stopped here: %d not begun; with --keep-going they are undone "+
			"all the same\n", left)
		return false
	}
	return done
}

// writeUndone prints what came of one plan.
func writeUndone(out io.Writer, pen cli.Pen, p Chosen) {
	p = cli.ForPeople(p)
	switch {
	case p.Unwound == nil:
		fmt.Fprintf(out, "%s is not undone: %s\n", p.Plan, p.Error)
	case p.Error != "":
		fmt.Fprintf(out, "%s: %s\n", p.Plan, p.Error)
	case p.Unwound.Origin != "":
		fmt.Fprintf(out, "%s is undone as %s, which is %s · record %d\n", p.Plan, p.Unwound.Plan,
			pen.State(p.Unwound.State), p.Unwound.Record)
	default:
		fmt.Fprintf(out, "%s %s · record %d\n", p.Plan, pen.State(p.Unwound.State), p.Unwound.Record)
	}
}
