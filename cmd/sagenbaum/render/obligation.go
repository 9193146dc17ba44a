package render

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// CutNames are the leases that a cascade limit holds, with commas between them.
func CutNames(cuts []api.Cut) string {
	var names []string
	for _, cut := range cuts {
		names = append(names, CutName(cut))
	}
	return strings.Join(names, ", ")
}

// CutName names a lease that a cascade limit holds.
func CutName(cut api.Cut) string {
	if cut.Action != "" {
		return "lease " + cut.Lease + " of action " + cut.Action
	}
	return "lease " + cut.Lease
}

// CutText says why a lease is held, and what an owner has proposed.
func CutText(cut api.Cut) string {
	text := "cascade cut, " + cut.Why
	if cut.Proposal != "" {
		text += "; proposed: " + cut.Proposal + ", waits for a second operator"
	}
	return text
}

// cutLines are what plan show and tree say of leases that are cut.
func cutLines(w io.Writer, p cli.Pen, plan api.Plan, now time.Time) {
	for _, cut := range plan.Cuts {
		fmt.Fprintf(w, "%s is held for its owner since %s: %s\n", p.In("31;1", CutName(cut)),
			cli.Relative(cut.AtNs, now), CutText(cut))
	}
	if len(plan.Cuts) > 0 {
		fmt.Fprintf(w, "  next: sagenbaum plan why %s\n", plan.Plan)
	}
}

// WhyOrphan is why an act whose record was refused is its owner's.
const WhyOrphan = "its record was refused: it may have happened, and nothing undoes it"

// Parked are the actions of a plan that wait for their owner, in order.
func Parked(plan api.Plan) (actions []api.Action) {
	for _, a := range plan.Actions {
		if a.Undo == cli.UndoQuarantined {
			actions = append(actions, a)
		}
	}
	return actions
}

// WhyParked says why an action waits for its owner, and what one has proposed.
func WhyParked(a api.Action) string {
	why := a.Note
	if why == "" {
		why = a.Failure
	}
	if a.Proposal != "" {
		answer, operator := ProposalOf(a)
		why = fmt.Sprintf("%s proposed by %s, waits for a second operator: %s", AnswerWord(answer),
			operator, why)
	}
	return why
}

// ProposalOf splits the answer of a first approver, as "done by ana at 12.0…".
func ProposalOf(a api.Action) (answer, operator string) {
	answer, rest, _ := strings.Cut(a.Proposal, " by ")
	operator, _, _ = strings.Cut(rest, " at ")
	return answer, operator
}

// CapabilityOf names what an entry of a plan did: a capability, or a whole plan.
func CapabilityOf(a api.Action) string {
	switch {
	case a.Child != "":
		return "plan " + a.Child
	case a.Capability == "":
		return "?"
	}
	return a.Capability
}

// FindAction finds the action that people mean by its id or its number; an act whose record was
// refused has an id only. What says which of both it is meets one action only, where an agent's ids
// are the numbers of other actions.
func FindAction(plan api.Plan, text string) (api.Action, error) {
	next := "sagenbaum plan tree " + plan.Plan
	known := slices.Clone(plan.Orphans)
	for _, a := range plan.Actions {
		known = append(known, NumberText(a))
	}
	id, at, err := view.Find(plan, text)
	_, noNumber := strconv.Atoi(text)
	switch {
	case err != nil:
		return api.Action{}, cli.Fail(cli.ExitFailed, next, "%v", err)
	case noNumber == nil && len(plan.Actions) < plan.ActionCount: // the others are not known here
		return api.Action{}, cli.Fail(cli.ExitFailed, next, "plan %s has more actions than are shown, "+
			"and %s may be an id or a number; want id:%s or number:%s", plan.Plan, text, text, text)
	case id == "":
		return api.Action{}, cli.Fail(cli.ExitFailed, next, "plan %s has no action %q; it has %s",
			plan.Plan, text, cli.Dash(cli.Clip(strings.Join(known, ", "), 200)))
	case at < 0:
		return Orphan(id), nil
	}
	return plan.Actions[at], nil
}

// ActionArg names an action in a command: by its id, which says so where it is a number.
func ActionArg(a api.Action) string { return api.ActionArg(a.Action, a.Number) }

// NumberText is the number of an action, and its id where that is another one.
func NumberText(a api.Action) string {
	number := strconv.Itoa(a.Number)
	if a.Action == number || a.Action == "" || a.Child != "" {
		return number
	}
	return number + " (" + a.Action + ")"
}

// Orphan names an act whose record was refused.
func Orphan(id string) api.Action {
	return api.Action{Action: id, Undo: cli.UndoQuarantined, Note: WhyOrphan}
}

// IsOrphan reports whether an action is one of those.
func IsOrphan(a api.Action) bool { return a.Number == 0 }

// Alive reports whether an attempt without an answer may still be at work.
func Alive(a api.Action, now time.Time) bool { return a.AliveNs > now.UnixNano() }

// AnswerWord is an owner's answer as a noun, as in "a retry".
func AnswerWord(as string) string {
	as, flags, _ := strings.Cut(as, " ") // as in "skipped --halt"
	switch as {
	case cli.AnswerRetry:
		as = "a retry"
	case cli.AnswerSkipped:
		as = "a skip"
	}
	return strings.TrimSpace(as + " " + flags)
}

// Because is a reason in parentheses, shortened; empty where there is none.
func Because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + cli.Clip(reason, 120) + ")"
}

// EvidenceText names the evidence of an answer; empty where there is none.
func EvidenceText(a api.Action) string {
	if a.Evidence == "" {
		return ""
	}
	return ", evidence " + a.Evidence
}

// Lines prints names and values below each other; a value that is empty is left out.
type Lines struct {
	W      io.Writer
	Width  int
	Indent string
}

// Line prints one name with its value, unless the value is empty or "-".
func (l Lines) Line(name, format string, args ...any) {
	if text := strings.TrimSpace(fmt.Sprintf(format, args...)); text != "" && text != "-" {
		fmt.Fprintf(l.W, "%s%-*s %s\n", l.Indent, l.Width, name, text)
	}
}

// OutcomeText says in words what is known of a forward.
func OutcomeText(a api.Action) string {
	switch a.Outcome {
	case "unknown":
		if a.Staged {
			return "staged: a worker makes it, and its agent does not call it"
		}
		return "unknown: its agent has not said; it may have happened"
	case "in_doubt":
		return "in doubt: it may have happened"
	case "failed":
		return "failed: known not to have happened"
	default:
		return outcomeWord(a)
	}
}

// EffectText says what the provider calls an effect, and what was found of it; empty where neither
// is known.
func EffectText(a api.Action) string {
	found := ""
	switch a.Presence {
	case "":
	case "duplicate":
		found = "found more than once"
	default:
		found = "found " + a.Presence
	}
	return listed(a.ExternalRef, found)
}

// listed are the parts that are not empty, with commas between them.
func listed(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ", ")
}

// ClassText is the class of an action's effect and what qualifies it.
func ClassText(a api.Action) string {
	parts := []string{a.Class}
	for _, part := range []struct {
		is   bool
		text string
	}{{a.Fidelity != "", a.Fidelity}, {a.Pivot, "pivot"},
		{a.Approve, "its undo asks for the owner's word"}} {
		if part.is {
			parts = append(parts, part.text)
		}
	}
	return strings.Join(parts, ", ")
}

// WindowText says when the window for an undo closes; empty where it has none.
func WindowText(a api.Action, now time.Time) string {
	switch {
	case a.ClosesNs == 0:
		return ""
	case a.ClosesNs <= now.UnixNano():
		return fmt.Sprintf("closed %s, at %s", cli.Relative(a.ClosesNs, now),
			cli.Moment(a.ClosesNs))
	default:
		return fmt.Sprintf("closes %s, at %s", cli.Relative(a.ClosesNs, now),
			cli.Moment(a.ClosesNs))
	}
}
