package quarantine

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Obligation is one quarantined action in full: what happened, what was tried,
// and what each answer of its owner would do.
type Obligation struct {
	Plan     api.Plan   `json:"plan"` // without its actions
	Action   api.Action `json:"action"`
	Attempts []api.Undo `json:"attempts"` // of its undo, in order
	// actions that are undone, or delivered, once it is answered, unless with --halt
	Waiting []string `json:"waiting"`
	// acts that are dropped then: their deliveries were stopped before they were made
	Drops   []string      `json:"drops,omitempty"`
	Answers []ownerChoice `json:"answers"` // empty when it is not quarantined
}

// ownerChoice is an answer that the owner could give.
type ownerChoice struct {
	Answer  string `json:"answer"` // retry, done, lost, accepted, skipped
	Does    string `json:"does"`
	Command string `json:"command,omitempty"`
	Refused string `json:"refused,omitempty"` // why it cannot be given now
}

func newQuarantineShow(s *cli.Settings) *cobra.Command {
	return cli.Show[Obligation]{
		Command: &cobra.Command{
			Use:   "show PLAN ACTION",
			Short: "Show one quarantined action in full, and what each answer would do",
			Long: `Show one quarantined action in full: what happened, what its undo was called with,
each attempt and how it ended, what a probe found, why it waits and for whom, what
each answer would do, and the commands to type. Exit code 1 while it is quarantined.

ACTION is the id that its agent gave it or its number in the plan. Lists show both
where they differ. An id that is the number of another action is refused: 'id:4' and
'number:4' say which is meant. So it is with every command that takes an action.`,
			Example: "  sagenbaum quarantine show 01JD3BX7 4\n  sagenbaum quarantine show 01JD3BX7 4 " +
				"-o json | jq .attempts",
			Args: cli.Exactly("PLAN", "ACTION"),
		},
		Doing: "show the action",
		Ask: func(ctx context.Context, c *cli.Client, args []string) (Obligation, error) {
			return obligation(ctx, c, args[0], args[1])
		},
		Write: func(out io.Writer, p cli.Pen, o Obligation) {
			WriteObligation(out, p, o, time.Now())
		},
		Look: func(o Obligation) bool { return o.Action.Undo == cli.UndoQuarantined },
	}.New(s)
}

// obligation asks for one action of a plan and the attempts of its undo.
func obligation(ctx context.Context, c *cli.Client, id, action string) (Obligation, error) {
	plan, err := c.Plan(ctx, id, 0)
	if err != nil {
		return Obligation{}, err
	}
	a, err := render.FindAction(plan, action)
	if err != nil {
		return Obligation{}, err
	}
	return ObligationOf(ctx, c, plan, a)
}

// ObligationOf asks for the attempts of an action's undo and says what its owner can answer.
func ObligationOf(ctx context.Context, c *cli.Client, plan api.Plan,
	a api.Action) (Obligation, error) {
	o := Obligation{Action: a, Attempts: []api.Undo{}, Answers: choices(plan, a, time.Now())}
	o.Waiting, o.Drops = waitingFor(plan, a)
	if !render.IsOrphan(a) {
		answer, err := c.Undos(ctx, api.UndoQuery{Plan: plan.Plan, Action: a.Action},
			undosOfOne)
		if err != nil {
			return Obligation{}, err
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
// before this one, the latest first; drops: those that are not made any more.
func waitingFor(plan api.Plan, a api.Action) (waiting, drops []string) {
	before := map[int]bool{}
	for _, n := range a.After {
		before[n] = true
	}
	waiting = []string{}
	for i := len(plan.Actions) - 1; i >= 0; i-- {
		b := plan.Actions[i]
		if !before[b.Number] {
			continue
		}
		for _, n := range b.After {
			before[n] = true
		}
		switch {
		case b.ToDrop:
			drops = append(drops, render.EntryText(b))
		case b.Undo == "owed":
			waiting = append(waiting, render.EntryText(b))
		}
	}
	return waiting, drops
}

// choices are the answers to a quarantined action, and what each would do.
func choices(plan api.Plan, a api.Action, now time.Time) []ownerChoice {
	list := []ownerChoice{}
	if a.Undo != cli.UndoQuarantined && !a.Owed || a.Child != "" || waitsElsewhere(a) {
		return list
	}
	does := map[string]string{
		cli.AnswerRetry:    retryText(a),
		cli.AnswerDone:     "records that it was undone by other means",
		cli.AnswerLost:     "records that it cannot be undone any more",
		cli.AnswerAccepted: "records that the effect stays, deliberately",
		cli.AnswerSkipped:  "claims nothing about the effect, which may remain",
	}
	if a.ForCommit {
		does[cli.AnswerDone] = "records that it is not there, so that the plan is committed without it"
		does[cli.AnswerAccepted] = "records that it is there, and stays"
	}
	if render.Delivers(a) && !wasDelivered(a) {
		does[cli.AnswerDone] = "records that it needs no delivery any more: it was made by other means"
		does[cli.AnswerLost] = "records that it cannot be delivered any more"
		does[cli.AnswerAccepted] = "records that it stays as it is, deliberately"
		does[cli.AnswerSkipped] = "claims nothing about the act, which may have been made"
	}
	for _, as := range []string{cli.AnswerRetry, cli.AnswerDone, cli.AnswerLost, cli.AnswerAccepted,
		cli.AnswerSkipped} {
		choice := ownerChoice{Answer: as, Does: does[as], Command: answerCommand(plan.Plan, a, as)}
		if err := answerable(plan, a, cli.OwnerWord{As: as}, now); err != nil {
			choice.Refused = err.Error()
			if answerable(plan, a, cli.OwnerWord{As: as, Force: true}, now) == nil {
				choice.Refused += "; --force is a decision of its own"
			} else {
				choice.Does, choice.Command = "", ""
			}
		}
		list = append(list, choice)
	}
	return list
}

// waitsElsewhere reports whether what became of a staged act waits in the plan that delivers it.
func waitsElsewhere(a api.Action) bool {
	return a.Staged && !render.Delivers(a) && a.Undo == cli.UndoQuarantined
}

// wasDelivered reports whether a staged act was made: it waits for its owner as its plan is undone.
func wasDelivered(a api.Action) bool {
	return render.Delivers(a) && a.Outcome == "completed"
}

// retryText is what a retry would do: it may be the first try, where an owner's word
// was asked for.
func retryText(a api.Action) string {
	if a.ForCommit {
		return "asks " + a.Probe + " once more whether it has happened"
	}
	again, anew := "", ""
	if a.Attempt > 0 {
		again, anew = " again", "; with --new-key under another one, and perhaps twice"
	}
	if a.Unchanged != "" {
		anew += "; first asks " + a.Probe + " whether it is unchanged, unless with --overwrite"
	}
	if render.Delivers(a) {
		return fmt.Sprintf("has %s make it%s, %s, same key%s", a.Compensation, again,
			cli.CountOf(a.Attempts, "attempt"), anew)
	}
	return fmt.Sprintf("asks %s%s, %s, same key%s", a.Compensation, again,
		cli.CountOf(a.Attempts, "attempt"), anew)
}

// WriteObligation prints one obligation for people.
func WriteObligation(w io.Writer, p cli.Pen, o Obligation, now time.Time) {
	o = cli.ForPeople(o)
	plan, a := o.Plan, o.Action
	title := plan.Plan + " " + render.EntryText(a)
	if render.IsOrphan(a) {
		title = plan.Plan + " " + a.Action
	}
	state := p.State(a.Undo)
	if a.Undo == cli.UndoQuarantined && a.SettledNs != 0 {
		state += " since " + cli.Moment(a.SettledNs) + ", " + cli.Relative(a.SettledNs, now)
	}
	fmt.Fprintf(w, "%s  %s\n", p.Bold(title), state)
	l := render.Lines{W: w, Width: 11, Indent: "  "}
	l.Line("why", "%s", cli.Dash(a.Note))
	l.Line("plan", "%s · %s · agent %s", cli.Dash(plan.Label),
		p.State(plan.State)+render.Because(plan.Reason), plan.Agent)
	l.Line("owner", "%s", ownerText(plan))
	if a.Proposal != "" {
		answer, operator := render.ProposalOf(a)
		l.Line("proposed", "%s by %s; it counts when another operator has given the same answer",
			render.AnswerWord(answer), operator)
	}
	if a.Resolution != "" {
		l.Line("answered", "%s by %s: %s%s", a.Resolution, a.ResolvedBy, a.ResolvedReason,
			render.EvidenceText(a))
	}
	switch {
	case a.Child != "":
		l.Line("see", "sagenbaum doctor --plan %s; what waits there is answered there", a.Child)
	case waitsElsewhere(a):
		l.Line("see", "sagenbaum quarantine show %s %s; it is answered there", plan.DeliveredAs,
			a.Action)
	case !render.IsOrphan(a):
		writeForward(w, p, a, now)
		writeChange(w, p, a)
		writeUndo(w, p, o, now)
	}
	if len(o.Answers) > 0 {
		writeChoices(w, p, o)
	}
}

func ownerText(plan api.Plan) string {
	text := plan.Owner
	if text == "" {
		text = "no one is named"
	}
	if plan.SecondApprover {
		text += ", and a second operator has to agree"
	}
	return text
}

func writeForward(w io.Writer, p cli.Pen, a api.Action, now time.Time) {
	fmt.Fprintf(w, "\n%s\n", p.Bold("what happened"))
	l := render.Lines{W: w, Width: 11, Indent: "  "}
	l.Line("outcome", "%s", render.OutcomeText(a))
	l.Line("registered", "%s %s", cli.Moment(a.AtNs), a.Registered)
	l.Line("reported", "%s", a.OutcomeAt)
	l.Line("effect", "%s", render.EffectText(a))
	l.Line("class", "%s", render.ClassText(a))
	l.Line("window", "%s", render.WindowText(a, now))
	l.Line("verdict", "%s", a.Verdict)
	l.Line("input", "%s", cli.Clip(string(a.Input), 1000))
	l.Line("before", "%s", cli.Clip(string(a.Before), 1000))
	l.Line("output", "%s", cli.Clip(string(a.Output), 1000))
}

// writeChange shows both states of what someone else has changed, one under the other.
func writeChange(w io.Writer, p cli.Pen, a api.Action) {
	if !a.Changed {
		return
	}
	fmt.Fprintf(w, "\n%s\n", p.Bold("changed by someone else"))
	l := render.Lines{W: w, Width: 11, Indent: "  "}
	l.Line("left", "%s", cli.Clip(cli.Dash(string(a.Output)), 1000))
	l.Line("now", "%s", cli.Clip(cli.Dash(string(a.Found)), 1000))
	l.Line("unchanged", "%s", a.Unchanged)
}

func writeUndo(w io.Writer, p cli.Pen, o Obligation, now time.Time) {
	a := o.Action
	title := "its undo"
	if render.Delivers(a) {
		title = "its delivery"
	}
	fmt.Fprintf(w, "\n%s\n", p.Bold(title))
	l := render.Lines{W: w, Width: 11, Indent: "  "}
	if a.Compensation == "" {
		l.Line("by", "nothing: no inverse is registered")
	}
	l.Line("by", "%s", a.Compensation)
	if a.Compensation != "" {
		l.Line("key", "%s", a.Key)
	}
	l.Line("arguments", "%s", cli.Clip(string(a.Arguments), 1000))
	for _, u := range o.Attempts {
		l.Line(fmt.Sprintf("attempt %d", u.Attempt), "%s", attemptText(u))
	}
	if len(o.Attempts) == 0 && a.Compensation != "" {
		l.Line("attempts", "none")
	}
	if render.Alive(a, now) {
		l.Line("alive", "attempt %d had no answer and may be at work until %s (%s)", a.Attempt,
			cli.Moment(a.AliveNs), cli.Relative(a.AliveNs, now))
	}
}

// attemptText is one attempt as a sentence: when, how it ended and how long it took.
func attemptText(u api.Undo) string {
	text := fmt.Sprintf("%s %s", cli.Moment(u.DispatchedNs), u.State)
	if u.EndedNs != 0 {
		text += " after " + render.Lasted(u.EndedNs-u.DispatchedNs)
	}
	if u.WorkNs != 0 {
		text += ", worked " + render.Lasted(u.WorkNs)
	}
	if u.Worker != "" {
		text += ", worker " + u.Worker
	}
	for _, why := range []string{u.Code, u.Message} {
		if why != "" {
			text += ": " + cli.Clip(why, 300)
		}
	}
	return text
}

// goesOn is what a plan does with what waited for an answer.
func goesOn(plan api.Plan) string {
	switch {
	case plan.Stopped != "": // it was delivered, and is undone by its owner or not at all
		return "asks its owner about "
	case plan.Delivers:
		return "delivers "
	}
	return "undoes "
}

func writeChoices(w io.Writer, p cli.Pen, o Obligation) {
	fmt.Fprintf(w, "\n%s\n", p.Bold("answers"))
	for _, choice := range o.Answers {
		if choice.Does != "" {
			fmt.Fprintf(w, "  %-11s %s\n", choice.Answer, choice.Does)
		}
		if choice.Refused != "" {
			name := choice.Answer
			if choice.Does != "" {
				name = ""
			}
			fmt.Fprintf(w, "  %-11s %s\n", name, p.In("33", "refused now: ")+choice.Refused)
		}
		if choice.Command != "" {
			fmt.Fprintf(w, "  %-11s %s\n", "", p.Dim(choice.Command))
		}
	}
	then := "nothing else of the plan waits for it"
	var does []string
	if len(o.Drops) > 0 {
		does = append(does, "drops "+cli.Clip(strings.Join(o.Drops, ", "), 400))
	}
	if len(o.Waiting) > 0 {
		does = append(does, goesOn(o.Plan)+cli.Clip(strings.Join(o.Waiting, ", "), 400))
	}
	if len(does) > 0 {
		then = strings.Join(does, "; ") + "; --halt leaves that as it is"
	}
	fmt.Fprintf(w, "  %-11s %s\n", "then", then)
}
