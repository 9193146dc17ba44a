package render

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// WriteTree prints a plan as its actions in order: what is known of each forward,
// and what became of its compensation. Child plans are below their entries.
//
//	01JD3BX7  ship feature/x  quarantined since 14:02:12Z (plan failed: "tag exists")
//	├─ 1 git.branch.create  completed  ── held, exact
//	├┄ savepoint branched
//	├─ 2 git.push           completed  ── quarantined: the remote refused
//	├─ 3 plan 01JD3BX9      committed  ── compensated 14:02:11Z  release notes
//	│  └─ 1 wiki.page.edit  completed  ── compensated 14:02:11Z
//	└─ 4 git.tag.create     failed     ── skipped: known not to have happened
//	held 1 · compensated 0 · skipped 1 · quarantined 1 · owner release
func WriteTree(w io.Writer, p cli.Pen, f cli.Family, now time.Time) {
	f = f.ForPeople()
	plan := f.Root
	head := p.Bold(plan.Plan)
	if plan.Label != "" {
		head += "  " + cli.Clip(plan.Label, 60)
	}
	fmt.Fprintf(w, "%s  %s\n", head, stateLine(p, plan, now))
	t := treeWriter{w: w, p: p, family: f, now: now, drawn: map[string]bool{plan.Plan: true}}
	t.actions(plan, "")
	for _, o := range plan.Orphans {
		fmt.Fprintf(w,
			"!! the record of %s was refused: it may have happened, and nothing undoes it\n", o)
	}
	for _, omitted := range plan.Omitted {
		fmt.Fprintf(w, "not shown, for the answer would be too long: %s\n", omitted)
	}
	for _, part := range f.Plans() {
		cutLines(w, p, part, now)
		errorLines(w, p, part)
	}
	fmt.Fprintln(w, p.Dim(countLine(plan)))
}

// errorLines marks a plan with leases in error.
func errorLines(w io.Writer, p cli.Pen, plan api.Plan) {
	var names []string
	note := func(of string, leases []api.Lease) {
		for _, l := range leases {
			if l.Error != "" && !l.Moot && !l.Fired {
				names = append(names, of+l.Name)
			}
		}
	}
	note("", plan.Leases)
	for _, a := range plan.Actions {
		note(fmt.Sprintf("%d ", a.Number), a.Leases)
	}
	if len(names) > 0 {
		fmt.Fprintf(w, "%s: %s\n  next: sagenbaum trigger explain %s\n", p.In("33", "in error"),
			cli.Clip("lease "+strings.Join(names, ", lease "), TreeWidth), plan.Plan)
	}
}

// TreeWidth is how many columns a line of a tree has where that depends on us.
const TreeWidth = 100

type treeWriter struct {
	w      io.Writer
	p      cli.Pen
	family cli.Family
	now    time.Time
	drawn  map[string]bool // plans, each once
}

// actions draws the actions of one plan after a prefix of branches.
func (t treeWriter) actions(plan api.Plan, prefix string) {
	var forward, outcome int
	for _, a := range plan.Actions {
		forward = max(forward, utf8.RuneCountInString(EntryText(a)))
		outcome = max(outcome, len(t.outcome(a)))
	}
	t.savepoints(plan, prefix, 0)
	for i, a := range plan.Actions {
		branch, below := "├─", "│  "
		if i == len(plan.Actions)-1 {
			branch, below = "└─", "   "
		}
		a = asLeft(plan, a)
		word := t.outcome(a)
		line := fmt.Sprintf("%s%s %s  ", prefix, branch, padded(EntryText(a), forward))
		room := TreeWidth - utf8.RuneCountInString(line) - outcome - utf8.RuneCountInString("  ── ")
		marks := undoMarks(a, t.now)
		fits := utf8.RuneCountInString(t.undo(cli.Pen{}, a, room)+markText(marks)) <= room
		fmt.Fprintf(t.w, "%s%s%s  ── %s", line, t.p.State(word),
			strings.Repeat(" ", outcome-len(word)), t.undo(t.p, a, room))
		if fits {
			fmt.Fprintln(t.w, t.p.Dim(markText(marks)))
		} else {
			fmt.Fprintln(t.w)
			for _, mark := range marks {
				fmt.Fprintln(t.w, prefix+below+"   "+t.p.Dim(mark))
			}
		}
		if child, known := t.family.Children[a.Child]; known && !t.drawn[a.Child] {
			t.drawn[a.Child] = true
			t.actions(child, prefix+below)
		}
		if i < len(plan.Actions)-1 {
			t.savepoints(plan, prefix, a.Number)
		}
	}
	if last := len(plan.Actions); last > 0 {
		t.lastSavepoints(plan, prefix, plan.Actions[last-1].Number)
	}
}

// savepoints draws those that were set when a plan had so many actions.
func (t treeWriter) savepoints(plan api.Plan, prefix string, actions int) {
	for _, sp := range plan.Savepoints {
		if sp.Actions == actions {
			fmt.Fprintln(t.w, prefix+t.p.Dim("├┄ savepoint "+sp.Name))
		}
	}
}

func (t treeWriter) lastSavepoints(plan api.Plan, prefix string, from int) {
	for _, sp := range plan.Savepoints {
		if sp.Actions >= from {
			fmt.Fprintln(t.w, prefix+t.p.Dim("   savepoint "+sp.Name))
		}
	}
}

func padded(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}

// outcome is the word for a forward; for a child plan, the state of that.
func (t treeWriter) outcome(a api.Action) string {
	if a.Child == "" {
		return outcomeWord(a)
	}
	if child, known := t.family.Children[a.Child]; known {
		return child.State
	}
	return "plan"
}

func (t treeWriter) undo(p cli.Pen, a api.Action, room int) string {
	line := undoText(p, a, t.now, room)
	if child := t.family.Children[a.Child]; child.Label != "" {
		line += p.Dim("  " + cli.Clip(child.Label, 40))
	}
	return line
}

// asLeft says of what a plan that has ended still owes that nothing waits for it any
// more: an answer of its owner said halt.
func asLeft(plan api.Plan, a api.Action) api.Action {
	if a.Undo == "owed" && plan.State == ledger.StateResolved {
		a.Note, a.WaitsFor = "left as it is, as its owner said", ""
	}
	if a.Staged && !Delivers(a) {
		switch {
		case a.Undo == cli.UndoQuarantined, a.Undo == undoResolved:
			a.Note = "in plan " + plan.DeliveredAs
		case a.Undo == undoStaged && plan.State == ledger.StateCommitted: // its root is not yet
			a.Note = "made once plan " + plan.Parent + " is committed"
		case a.Undo == undoStaged:
			a.Note = "made once the plan is committed"
		}
	}
	return a
}

func stateLine(p cli.Pen, plan api.Plan, now time.Time) string {
	line := p.State(plan.State)
	switch {
	case plan.EndedNs != 0:
		line += " since " + cli.Clock(plan.EndedNs)
	case plan.State == ledger.StateOpen && plan.DeadlineNs != 0:
		line += ", deadline " + cli.Relative(plan.DeadlineNs, now)
	}
	if n := plan.HeldConditions; n > 0 {
		line += ", holds " + cli.CountOf(n, "condition")
		if plan.HeldUntilNs != 0 {
			line += ", the first until " + cli.Moment(plan.HeldUntilNs)
		}
	}
	if plan.ToSavepoint != "" {
		line += " back to savepoint " + plan.ToSavepoint
	}
	if plan.FromAction != "" {
		line += " from " + plan.FromAction + " on"
	}
	for _, link := range []struct{ what, plan string }{{"part of", plan.Parent},
		{originWord(plan), plan.Origin}, {"delivered as", plan.DeliveredAs},
		{"undone as", plan.UndoneAs}} {
		if link.plan != "" {
			line += ", " + link.what + " " + p.Bold(link.plan)
		}
	}
	if plan.Stopped != "" {
		line += ", stopped"
	}
	return line + Because(plan.Reason)
}

// originWord says what a plan does about the one that it was made of.
func originWord(plan api.Plan) string {
	if plan.Delivers {
		return "delivers"
	}
	return "undoes"
}

func outcomeWord(a api.Action) string {
	switch {
	case !a.Staged || a.Outcome != "unknown":
	case a.ToDrop, a.Undo == undoStaged, a.Undo == undoDropped, Delivers(a) && a.Attempt == 0:
		return "not made"
	case a.Undo == ledger.StateDelivered:
		return "completed"
	case a.Undo == "skipped": // in a plan that undoes: that is not what delivers it
		return undoStaged
	}
	return strings.ReplaceAll(a.Outcome, "_", " ")
}

// What becomes of a staged act, beside delivering and delivered.
const (
	undoStaged   = "staged"
	undoDropped  = "dropped"
	undoResolved = "resolved"
)

// Delivers reports whether what is done about an action is no undo: it is the act itself, which
// was staged. In the plan that it was staged in, nothing is done about it.
func Delivers(a api.Action) bool { return a.Staged && a.Compensation != "" }

// UndoLine is undoText with its marks.
func UndoLine(p cli.Pen, a api.Action, now time.Time, room int) string {
	return undoText(p, a, now, room) + p.Dim(markText(undoMarks(a, now)))
}

// undoText says what became of one action's compensation and why, in about so
// many columns.
func undoText(p cli.Pen, a api.Action, now time.Time, room int) string {
	plain := undoWord(a, now)
	why := a.Note
	if why == "" && a.Undo != "compensated" {
		why = a.Failure
	}
	if a.Child != "" && a.Undo != cli.UndoQuarantined {
		why = "" // what its plan waited for is over
	}
	line := p.State(a.Undo) + strings.TrimPrefix(plain, a.Undo)
	if plain == toBeDelivered || plain == ToBeDropped {
		line = p.State(plain)
	}
	if why != "" {
		line += ": " + cli.Clip(why, min(120, max(48, room-utf8.RuneCountInString(plain)-2)))
	}
	return line
}

// toBeDelivered is what is owed, or ready, of an act that was staged.
const toBeDelivered = "to be delivered"

// ToBeDropped is what a staged act is whose deliveries were stopped before it was made.
const ToBeDropped = "to be dropped"

// undoWord is the state of an undo with what belongs to it.
func undoWord(a api.Action, now time.Time) string {
	if a.ToDrop {
		return ToBeDropped
	}
	line := a.Undo
	switch a.Undo {
	case "owed", "ready":
		if Delivers(a) {
			return toBeDelivered
		}
	case ledger.StateDelivered:
		if a.SettledNs != 0 {
			line += " " + cli.Clock(a.SettledNs)
		}
	case "held":
		for _, part := range []struct {
			is   bool
			text string
		}{{a.Fidelity != "", a.Fidelity},
			{a.ClosesNs != 0, "window " + WindowWord(a.ClosesNs, now)}} {
			if part.is {
				line += ", " + part.text
			}
		}
	case "compensated":
		line += " " + cli.Clock(a.SettledNs)
		if a.Attempt > 1 {
			line += fmt.Sprintf(", attempt %d", a.Attempt)
		}
	case "dispatched":
		switch {
		case a.Child != "":
			line = "dispatched"
		case a.Asking != "":
			line += ", asking " + askingText(a.Asking)
		default:
			line += fmt.Sprintf(" to %s, attempt %d of %d", a.Compensation, a.Attempt, a.Attempts)
		}
	case "ahead":
		line += ": waits for " + a.WaitsFor
	case "waiting":
		if a.Asking != "" {
			line += fmt.Sprintf(", asks again %s %s", cli.Relative(a.DueNs, now),
				askingText(a.Asking))
		} else {
			line += fmt.Sprintf(", attempt %d of %d %s", a.Attempt+1, a.Attempts,
				cli.Relative(a.DueNs, now))
		}
	case undoResolved:
		if a.Staged && !Delivers(a) { // the plan that delivers it says how
			return line
		}
		if a.Child != "" { // each of its actions says how
			return line + " " + cli.Clock(a.SettledNs)
		}
		line += fmt.Sprintf(" as %s by %s %s", a.Resolution, a.ResolvedBy, cli.Clock(a.SettledNs))
		line += EvidenceText(a)
	}
	return line
}

// markText is what is in brackets after the line of an action.
func markText(marks []string) (text string) {
	for _, mark := range marks {
		text += " (" + mark + ")"
	}
	return text
}

// undoMarks are what is to be said of an action beside the state of its undo.
func undoMarks(a api.Action, now time.Time) (marks []string) {
	answer, operator := ProposalOf(a)
	for _, mark := range []struct {
		is   bool
		text string
	}{
		{a.DutyOf != "", "owed once more: " + listed(a.ExternalRef, "an effect of "+a.DutyOf)},
		{a.Presence == "duplicate", "it was found more than once"},
		{a.Presence == "present" && a.Outcome != "completed" && a.DutyOf == "",
			"it was found to be there"},
		{a.Proposal != "",
			AnswerWord(answer) + " proposed by " + operator + ", waits for a second operator"},
		{a.WaitsFor != "", "waits for " + a.WaitsFor},
		{a.Faster != "", a.Faster},
		{a.Progress != "", "its worker said " + cli.Relative(a.ProgressNs, now) + ": " + a.Progress},
		{a.Undo == cli.UndoQuarantined && Alive(a, now),
			"an attempt may be at work until " + cli.Clock(a.AliveNs)},
		{a.Pivot, "pivot"},
		{a.Approve && a.Undo == "held", "asks for the owner's word"},
		{a.Class != "compensable" && a.Class != "" && a.Child == "", a.Class},
		{len(a.After) > 0 && !slices.Equal(a.After, []int{a.Number - 1}) && a.DutyOf == "",
			"after " + joinNumbers(a.After)},
	} {
		if mark.is {
			marks = append(marks, mark.text)
		}
	}
	return marks
}

func joinNumbers(numbers []int) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = fmt.Sprint(n)
	}
	return strings.Join(texts, ", ")
}

func countLine(plan api.Plan) string {
	undone, not := "compensated", "skipped"
	if plan.Delivers {
		undone, not = ledger.StateDelivered, undoDropped
	}
	line := fmt.Sprintf("held %d · %s %d · %s %d · quarantined %d", plan.Held, undone,
		plan.Compensated, not, plan.Skipped, plan.Quarantined)
	if plan.Owner != "" {
		line += " · owner " + plan.Owner
	}
	if plan.SecondApprover {
		line += " · answers take a second operator"
	}
	if plan.OnUndoFailure == "continue" {
		line += " · goes on around a quarantine"
	}
	return line
}
