package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor"
)

// obligation is one quarantined action in full: what happened, what was tried,
// and what each answer of its owner would do.
type obligation struct {
	Plan     executor.PlanView   `json:"plan"` // without its actions
	Action   executor.ActionView `json:"action"`
	Attempts []executor.UndoView `json:"attempts"` // of its undo, in order
	Waiting  []string            `json:"waiting"`  // actions that are undone once it is answered, unless with --halt
	Answers  []ownerChoice       `json:"answers"`  // empty when it is not quarantined
}

// ownerChoice is an answer that the owner could give.
type ownerChoice struct {
	Answer  string `json:"answer"` // retry, done, lost, accepted, skipped
	Does    string `json:"does"`
	Command string `json:"command,omitempty"`
	Refused string `json:"refused,omitempty"` // why it cannot be given now
}

func newQuarantineShow(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "show PLAN ACTION",
		Short: "Show one quarantined action in full, and what each answer would do",
		Long: `Show one quarantined action in full: what happened, what its undo was called with,
each attempt and how it ended, what a probe found, why it waits and for whom, what
each answer would do, and the commands to type. ACTION is its number in the plan or
its id. Exit code 1 while it is quarantined.`,
		Example:           "  sagenbaum quarantine show 01JD3BX7 4\n  sagenbaum quarantine show 01JD3BX7 4 -o json | jq .attempts",
		Args:              exactly("PLAN", "ACTION"),
		ValidArgsFunction: completePlans(s, "quarantine.ls"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := s.connect()
			if err != nil {
				return err
			}
			defer c.close()
			o, err := c.obligation(cmd.Context(), args[0], args[1])
			if err != nil {
				return failed("show the action", err)
			}
			if s.json() {
				err = printJSON(cmd.OutOrStdout(), o)
			} else {
				writeObligation(cmd.OutOrStdout(), s.pen(cmd), o, time.Now())
			}
			if err == nil && o.Action.Undo == undoQuarantined {
				return errLook
			}
			return err
		},
	}
}

// obligation asks for one action of a plan and the attempts of its undo.
func (c *client) obligation(ctx context.Context, id, action string) (obligation, error) {
	plan, err := c.plan(ctx, id, 0)
	if err != nil {
		return obligation{}, err
	}
	a, err := findAction(plan, action)
	if err != nil {
		return obligation{}, err
	}
	return c.obligationOf(ctx, plan, a)
}

func (c *client) obligationOf(ctx context.Context, plan executor.PlanView, a executor.ActionView) (obligation, error) {
	o := obligation{Action: a, Attempts: []executor.UndoView{}, Waiting: waitingFor(plan, a), Answers: choices(plan, a, time.Now())}
	if !isOrphan(a) {
		answer, err := c.undos(ctx, executor.UndoQuery{Plan: plan.Plan, Action: a.Action}, undosOfOne)
		if err != nil {
			return obligation{}, err
		}
		o.Attempts = answer.Undos
	}
	plan.Actions = nil
	o.Plan = plan
	return o, nil
}

// undosOfOne bounds the attempts that are shown of one undo; a contract allows
// 100, and an owner may allow them again.
const undosOfOne = 1000

// waitingFor are the actions that an unwind has not come to because they came
// before this one, the latest first.
func waitingFor(plan executor.PlanView, a executor.ActionView) []string {
	before := map[int]bool{}
	for _, n := range a.After {
		before[n] = true
	}
	waiting := []string{}
	for i := len(plan.Actions) - 1; i >= 0; i-- {
		b := plan.Actions[i]
		if !before[b.Number] {
			continue
		}
		for _, n := range b.After {
			before[n] = true
		}
		if b.Undo == "owed" {
			waiting = append(waiting, fmt.Sprintf("%d %s", b.Number, capabilityOf(b)))
		}
	}
	return waiting
}

// choices are the answers to a quarantined action, and what each would do.
func choices(plan executor.PlanView, a executor.ActionView, now time.Time) []ownerChoice {
	list := []ownerChoice{}
	if a.Undo != undoQuarantined && !a.Owed || a.Child != "" {
		return list
	}
	does := map[string]string{
		answerRetry:    retryText(a),
		answerDone:     "records that it was undone by other means",
		answerLost:     "records that it cannot be undone any more",
		answerAccepted: "records that the effect stays, deliberately",
		answerSkipped:  "claims nothing about the effect, which may stand",
	}
	for _, as := range []string{answerRetry, answerDone, answerLost, answerAccepted, answerSkipped} {
		choice := ownerChoice{Answer: as, Does: does[as], Command: answerCommand(plan.Plan, a, as)}
		if err := answerable(plan, a, ownerWord{as: as}, now); err != nil {
			choice.Refused = err.Error()
			if alive(a, now) && a.Compensation != "" {
				choice.Refused += "; --force is a decision of its own"
			} else {
				choice.Does, choice.Command = "", ""
			}
		}
		list = append(list, choice)
	}
	return list
}

// retryText is what a retry would do: it may be the first try, where an owner's word
// was asked for.
func retryText(a executor.ActionView) string {
	again := ""
	if a.Attempt > 0 {
		again = " again"
	}
	return fmt.Sprintf("asks %s%s, %s, same key", a.Compensation, again, countOf(a.Attempts, "attempt"))
}

func writeObligation(w io.Writer, p pen, o obligation, now time.Time) {
	o = forPeople(o)
	plan, a := o.Plan, o.Action
	title := fmt.Sprintf("%s %d %s", plan.Plan, a.Number, capabilityOf(a))
	if isOrphan(a) {
		title = plan.Plan + " " + a.Action
	}
	state := p.state(a.Undo)
	if a.Undo == undoQuarantined && a.SettledNs != 0 {
		state += " since " + moment(a.SettledNs) + ", " + relative(a.SettledNs, now)
	}
	fmt.Fprintf(w, "%s  %s\n", p.bold(title), state)
	l := lines{w: w, width: 11, indent: "  "}
	l.line("why", "%s", dash(a.Note))
	l.line("plan", "%s · %s · agent %s", dash(plan.Label), p.state(plan.State)+because(plan.Reason), plan.Agent)
	l.line("owner", "%s", ownerText(plan))
	if a.Proposal != "" {
		answer, operator := proposalOf(a)
		l.line("proposed", "%s by %s; it counts when another operator has given the same answer", answerWord(answer), operator)
	}
	if a.Resolution != "" {
		l.line("answered", "%s by %s: %s%s", a.Resolution, a.ResolvedBy, a.ResolvedReason, evidenceText(a))
	}
	switch {
	case a.Child != "":
		l.line("see", "sagenbaum doctor --plan %s; what waits there is answered there", a.Child)
	case !isOrphan(a):
		writeForward(w, p, a, now)
		writeUndo(w, p, o, now)
	}
	if len(o.Answers) > 0 {
		writeChoices(w, p, o)
	}
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + clip(reason, 120) + ")"
}

func evidenceText(a executor.ActionView) string {
	if a.Evidence == "" {
		return ""
	}
	return ", evidence " + a.Evidence
}

func ownerText(plan executor.PlanView) string {
	text := plan.Owner
	if text == "" {
		text = "nobody is named"
	}
	if plan.SecondApprover {
		text += ", and a second operator has to agree"
	}
	return text
}

// lines prints names and values below each other; a value that is empty is left out.
type lines struct {
	w      io.Writer
	width  int
	indent string
}

func (l lines) line(name, format string, args ...any) {
	if text := strings.TrimSpace(fmt.Sprintf(format, args...)); text != "" && text != "-" {
		fmt.Fprintf(l.w, "%s%-*s %s\n", l.indent, l.width, name, text)
	}
}

func writeForward(w io.Writer, p pen, a executor.ActionView, now time.Time) {
	fmt.Fprintf(w, "\n%s\n", p.bold("what happened"))
	l := lines{w: w, width: 11, indent: "  "}
	l.line("outcome", "%s", outcomeText(a))
	l.line("registered", "%s %s", moment(a.AtNs), a.Registered)
	l.line("reported", "%s", a.OutcomeAt)
	l.line("probe", "%s", presenceText(a))
	l.line("class", "%s", classText(a))
	l.line("window", "%s", windowText(a, now))
	l.line("verdict", "%s", a.Verdict)
	l.line("input", "%s", clip(string(a.Input), 1000))
	l.line("before", "%s", clip(string(a.Before), 1000))
	l.line("output", "%s", clip(string(a.Output), 1000))
}

// outcomeText says in words what is known of a forward.
func outcomeText(a executor.ActionView) string {
	switch a.Outcome {
	case "unknown":
		return "unknown: its agent has not said; it may have happened"
	case "in_doubt":
		return "in doubt: it may have happened"
	case "failed":
		return "failed: known not to have happened"
	default:
		return outcomeWord(a)
	}
}

func presenceText(a executor.ActionView) string {
	switch a.Presence {
	case "":
		return ""
	case "duplicate":
		return "found the effect more than once"
	default:
		return "found the effect " + a.Presence
	}
}

func classText(a executor.ActionView) string {
	parts := []string{a.Class}
	for _, part := range []struct {
		is   bool
		text string
	}{{a.Fidelity != "", a.Fidelity}, {a.Pivot, "pivot"}, {a.Approve, "its undo asks for the owner's word"}} {
		if part.is {
			parts = append(parts, part.text)
		}
	}
	return strings.Join(parts, ", ")
}

func windowText(a executor.ActionView, now time.Time) string {
	switch {
	case a.ClosesNs == 0:
		return ""
	case a.ClosesNs <= now.UnixNano():
		return fmt.Sprintf("closed %s, at %s", relative(a.ClosesNs, now), moment(a.ClosesNs))
	default:
		return fmt.Sprintf("closes %s, at %s", relative(a.ClosesNs, now), moment(a.ClosesNs))
	}
}

func writeUndo(w io.Writer, p pen, o obligation, now time.Time) {
	a := o.Action
	fmt.Fprintf(w, "\n%s\n", p.bold("its undo"))
	l := lines{w: w, width: 11, indent: "  "}
	if a.Compensation == "" {
		l.line("by", "nothing: no inverse is registered")
	}
	l.line("by", "%s", a.Compensation)
	if a.Compensation != "" {
		l.line("key", "%s", a.Key)
	}
	l.line("arguments", "%s", clip(string(a.Arguments), 1000))
	for _, u := range o.Attempts {
		l.line(fmt.Sprintf("attempt %d", u.Attempt), "%s", attemptText(u))
	}
	if len(o.Attempts) == 0 && a.Compensation != "" {
		l.line("attempts", "none")
	}
	if alive(a, now) {
		l.line("alive", "attempt %d had no answer and may be at work until %s (%s)", a.Attempt, moment(a.AliveNs), relative(a.AliveNs, now))
	}
}

// attemptText is one attempt as a sentence: when, how it ended and how long it took.
func attemptText(u executor.UndoView) string {
	text := fmt.Sprintf("%s %s", moment(u.DispatchedNs), u.State)
	if u.EndedNs != 0 {
		text += " after " + lasted(u.EndedNs-u.DispatchedNs)
	}
	if u.WorkNs != 0 {
		text += ", worked " + lasted(u.WorkNs)
	}
	if u.Worker != "" {
		text += ", worker " + u.Worker
	}
	for _, why := range []string{u.Code, u.Message} {
		if why != "" {
			text += ": " + clip(why, 300)
		}
	}
	return text
}

func writeChoices(w io.Writer, p pen, o obligation) {
	fmt.Fprintf(w, "\n%s\n", p.bold("answers"))
	for _, choice := range o.Answers {
		if choice.Does != "" {
			fmt.Fprintf(w, "  %-11s %s\n", choice.Answer, choice.Does)
		}
		if choice.Refused != "" {
			name := choice.Answer
			if choice.Does != "" {
				name = ""
			}
			fmt.Fprintf(w, "  %-11s %s\n", name, p.in("33", "refused now: ")+choice.Refused)
		}
		if choice.Command != "" {
			fmt.Fprintf(w, "  %-11s %s\n", "", p.dim(choice.Command))
		}
	}
	then := "nothing else of the plan waits for it"
	if len(o.Waiting) > 0 {
		then = "undoes " + clip(strings.Join(o.Waiting, ", "), 400) + "; --halt leaves that as it is"
	}
	fmt.Fprintf(w, "  %-11s %s\n", "then", then)
}
