package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Steps of a preview.
const (
	StepCompensate = "compensate"
	stepProbe      = "probe"
	StepSkip       = "skip"
	stepQuarantine = "quarantine"
)

func newPlanPreview(s *cli.Settings) *cobra.Command {
	var q api.PreviewQuery
	cmd := &cobra.Command{
		Use:   "preview PLAN",
		Short: "Show what an unwind of a plan would do now, without doing it",
		Long: `Show what an unwind of a plan would do now, without doing it: the steps in their
order, with the arguments as they would be sent, and which staged acts a commit would
deliver instead. Steps of one stage run side by
side. The executor decides them with the code that unwinds, taking every worker to
say done and every effect in doubt to be there.

Exit code 1 when it would leave something to an owner, or could not begin.`,
		Example: "  sagenbaum plan preview 01JD39QK\n  sagenbaum plan preview 01JD39QK --to " +
			"drafted -o json",
		Args: cli.Exactly("PLAN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Plan = args[0]
			answer, err := cli.Question(cmd, s, "preview the unwind", api.PlanPreview, q)
			if err != nil {
				return err
			}
			err = s.Print(cmd, answer.Preview,
				func() { WritePreview(cmd.OutOrStdout(), s.Pen(cmd), answer.Preview, time.Now()) })
			return cli.Look(err, !endsWell(answer.Preview))
		},
	}
	cmd.Flags().StringVar(&q.To, "to", "",
		"only what came after this `SAVEPOINT`; the plan stays open")
	cmd.Flags().StringVar(&q.Action, "action", "",
		"only this `ACTION`, by its id or number, and what came after it; the plan stays open")
	return cmd
}

// endsWell reports whether an unwind would leave nothing to an owner.
func endsWell(v api.Preview) bool {
	return v.Refused == "" && (Undone(v.End) || v.End == ledger.StateOpen)
}

// WritePreview prints the steps of an unwind, a line or three each:
//
//	STAGE  #  STEP        CAPABILITY                          CLASS         FIDELITY  VALID UNTIL
//	1      3  compensate  payments.charge → payments.refund   compensable   semantic  in 179d2h
//	                      amount=1200 payment="pi_1"
//	2      2  quarantine  mail.send                           irreversible  -         -
//	                      to travel: irreversible: mail.send has no inverse
//	stops at irreversible acts: 2
//	left until its owner has answered: 1
//	would: 1 semantic, 1 to its owner travel · 0 in doubt · ends quarantined
func WritePreview(w io.Writer, p cli.Pen, v api.Preview, now time.Time) {
	v = cli.ForPeople(v)
	to := ""
	if v.To != "" {
		to = " back to savepoint " + v.To
	}
	if v.Action != "" {
		to = " of " + v.Action + " and what came after it"
	}
	fmt.Fprintf(w, "%s  %s, an unwind%s now:\n", p.Bold(v.Plan), p.State(v.State), to)
	if v.Refused != "" {
		fmt.Fprintln(w, p.In("31;1", "would be refused"))
		for _, line := range refusalLines(v.Refused) {
			fmt.Fprintln(w, "  "+line)
		}
		return
	}
	t := cli.Table{Head: []string{"STAGE", "#", "STEP", "CAPABILITY", "CLASS", "FIDELITY",
		"VALID UNTIL"}}
	t.Paint = cli.PaintColumn(2, func(cell string) string { return p.In(stepColors[cell], cell) })
	probed := map[string]bool{}
	for _, step := range v.Steps {
		number := numberOf(v.Plan, step)
		t.Add(fmt.Sprint(step.Stage), number, step.Step, callText(step), step.Class,
			cli.Dash(step.Fidelity), validText(step.ClosesNs, now))
		t.Note(3, stepNotes(step, probed[number])...)
		probed[number] = probed[number] || step.Step == stepProbe
	}
	if len(v.Steps) > 0 {
		t.Write(w)
	}
	if v.Omitted > 0 {
		fmt.Fprintf(w, "and %d further steps\n", v.Omitted)
	}
	if len(v.Stops) > 0 {
		fmt.Fprintln(w, "stops at irreversible acts: "+cli.Clip(strings.Join(v.Stops, ", "), 200))
	}
	if behind := waitsBehind(v); behind != "" {
		fmt.Fprintln(w, "left until its owner has answered: "+behind)
	}
	if len(v.Deliveries) > 0 {
		what := "a commit would deliver: "
		if v.State == ledger.StateCommitted {
			what = "to be delivered, if it is not undone: "
		}
		fmt.Fprintln(w, what+cli.Clip(strings.Join(v.Deliveries, ", "), 200))
	}
	for _, u := range v.Unarmed {
		of := render.NumberText(api.Action{Number: u.Number, Action: u.Action})
		fmt.Fprintf(w, "trigger %s of %s never fires: %s\n", u.Trigger, of, u.Reason)
	}
	if v.State == ledger.StateCommitted && to != "" {
		fmt.Fprintln(w, "a committed plan is undone once: what this leaves cannot be undone afterwards")
	}
	fmt.Fprintln(w, Would(p, v))
}

// waitsBehind names what an unwind would not come to, because it came before
// something that goes to its owner.
func waitsBehind(v api.Preview) string {
	var names []string
	for _, action := range v.Outstanding {
		parked := slices.ContainsFunc(v.Steps, func(s api.PreviewStep) bool {
			return s.Step == stepQuarantine && s.Action == action && s.Plan == v.Plan
		})
		if !parked {
			names = append(names, strings.Replace(action, "plan:", "plan ", 1))
		}
	}
	return cli.Clip(strings.Join(names, ", "), 200)
}

// stepColors are the SGR codes of the steps of a preview.
var stepColors = map[string]string{StepCompensate: "32", stepProbe: "33", StepSkip: "2",
	stepQuarantine: "31;1"}

// numberOf names an action: of a child plan together with it.
func numberOf(plan string, step api.PreviewStep) string {
	number := fmt.Sprint(step.Number)
	if step.Capability != "" { // not the entry of a child plan
		number = render.NumberText(api.Action{Number: step.Number, Action: step.Action})
	}
	if step.Plan != plan {
		return step.Plan + "/" + number
	}
	return number
}

func callText(step api.PreviewStep) string {
	capability := step.Capability
	if capability == "" {
		capability = step.Action // a child plan
	}
	if step.Inverse == "" {
		return capability
	}
	return capability + " → " + step.Inverse
}

func validText(ns int64, now time.Time) string {
	if ns == 0 {
		return "-"
	}
	if ns <= now.UnixNano() {
		return "closed"
	}
	return cli.Relative(ns, now)
}

// stepNotes are the lines below a step: its arguments, and what is to be said.
// probed says that a step before has asked the world.
func stepNotes(step api.PreviewStep, probed bool) (notes []string) {
	if text := argumentsText(step.Arguments); text != "" {
		notes = append(notes, text)
	}
	switch {
	case step.Step == stepQuarantine && step.Owner != "":
		notes = append(notes, "to "+step.Owner+": "+step.Reason)
	case step.Step == stepQuarantine:
		notes = append(notes, "no one is named as its owner: "+step.Reason)
	case step.Reason != "":
		notes = append(notes, step.Reason)
	case step.Step == StepCompensate && doubtful(step) && !probed:
		notes = append(notes, "in doubt: it may not have happened")
	}
	return notes
}

func doubtful(step api.PreviewStep) bool {
	return !step.Found && (step.Outcome == "unknown" || step.Outcome == "in_doubt")
}

// Touched are the actions that an unwind would do something for, in the order in which it does, a
// line each with what is undone; at most so many, and then how many more.
func Touched(v api.Preview, most int) (lines []string) {
	v = cli.ForPeople(v)
	seen, more := map[string]bool{}, v.Omitted
	for _, step := range v.Steps {
		number := numberOf(v.Plan, step)
		switch {
		case step.Step == StepSkip || seen[number]:
			continue
		case len(lines) == most:
			more++
		default:
			line := number + "  " + cmp.Or(step.Capability, step.Action)
			if text := argumentsText(step.Arguments); text != "" {
				line += "  " + text
			}
			lines = append(lines, line)
		}
		seen[number] = true
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return lines
}

// argumentsText prints a JSON object as name=value, in its own order. Of the undo of a call of an
// MCP server it is what that was called with, beside which the images are long.
func argumentsText(raw json.RawMessage) string {
	var call struct {
		Input  json.RawMessage `json:"input"`
		Recipe string          `json:"recipe"`
	}
	if json.Unmarshal(raw, &call) == nil && call.Recipe != "" && len(call.Input) > 0 {
		raw = call.Input
	}
	in := json.NewDecoder(strings.NewReader(string(raw)))
	if start, err := in.Token(); err != nil || start != json.Delim('{') {
		return cli.Clip(string(raw), 160)
	}
	var parts []string
	for in.More() {
		name, err := in.Token()
		var value json.RawMessage
		if err != nil || in.Decode(&value) != nil {
			return cli.Clip(string(raw), 160)
		}
		parts = append(parts, fmt.Sprintf("%v=%s", name, value))
	}
	return cli.Clip(strings.Join(parts, " "), 160)
}

// Would sums a preview up in a line: each action once, by what would become of it.
func Would(p cli.Pen, v api.Preview) string {
	kinds := map[string]int{}
	doubts := map[string]bool{}
	for _, step := range v.Steps {
		if doubtful(step) && step.Step != StepSkip {
			doubts[step.Plan+"/"+step.Action] = true
		}
		switch step.Step {
		case StepCompensate:
			kinds[step.Fidelity]++
		case stepQuarantine:
			kinds[stepQuarantine]++
		case StepSkip:
			kinds[StepSkip]++
		}
	}
	var parts []string
	for _, kind := range []struct{ name, text string }{
		{"exact", "exact"}, {"semantic", "semantic"}, {"lossy", "lossy"},
		{"", "of unsaid fidelity"}, {StepSkip, "skipped"},
	} {
		if n := kinds[kind.name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, kind.text))
		}
	}
	if n := len(v.Deliveries); n > 0 {
		parts = append(parts, fmt.Sprintf("%d staged and dropped", n))
	}
	if n := kinds[stepQuarantine]; n > 0 {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%d to its owner %s", n, v.Owner)))
	}
	if len(parts) == 0 {
		parts = []string{"nothing to do"}
	}
	return fmt.Sprintf("would: %s · %d in doubt · ends %s", strings.Join(parts, ", "), len(doubts),
		p.State(v.End))
}

// refusalLines takes a refusal that lists what has become irreversible apart.
func refusalLines(reason string) []string {
	head, list, found := strings.Cut(reason, ": ")
	if !found || !strings.Contains(head, "windows have closed") {
		return []string{reason}
	}
	return append([]string{head + ":"}, strings.Split(list, "; ")...)
}
