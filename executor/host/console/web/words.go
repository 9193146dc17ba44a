package web

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// comma is what precedes the element at an index of a list.
func comma(i int) string { return when(i > 0, ", ") }

// joined are numbers with commas between them.
func joined(numbers []int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(numbers), "[]"), " ", ", ")
}

// prefixed is a text after a prefix, or nothing when there is no text.
func prefixed(prefix, text string) string { return when(text != "", prefix+text) }

// when is a text under a condition, or nothing.
func when(condition bool, text string) string {
	if !condition {
		return ""
	}
	return text
}

// plural is a number of things; the word for one is a regular noun.
func plural(n int, noun string) string { return strconv.Itoa(n) + " " + ending(n, noun) }

// ending is a regular noun in the form that follows a number.
func ending(n int, noun string) string { return noun + when(n != 1, "s") }

// count is a number, or nothing for none.
func count(n uint64) string { return when(n != 0, strconv.FormatUint(n, 10)) }

// sequence is that of an address.
func sequence(address string) string {
	s, _, _ := strings.Cut(address, ".")
	return s
}

// kind is that of a record, for people.
func kind(name string) string { return strings.ReplaceAll(name, "_", " ") }

// until is the address of the page of a ledger that ends with a sequence.
func until(sequence uint64) string { return "?until=" + strconv.FormatUint(sequence, 10) }

// unwindTo is the address of the preview of an unwind to a savepoint.
func (p *Page) unwindTo(plan, savepoint string) string {
	return p.href("plans", plan, "preview") + "?" + url.Values{"to": {savepoint}}.Encode()
}

// unwindOf is the address of the preview of an unwind of an action and what came after it.
func (p *Page) unwindOf(plan, action string) string {
	return p.href("plans", plan, "preview") + "?" +
		url.Values{"action": {api.ActionArg(action, 0)}}.Encode()
}

// partsMax bounds the actions that are offered to be undone.
const partsMax = 50

// partsOf names the actions of a plan that can be undone with what came after them.
func partsOf(p api.Plan) (ids []string) {
	if !ledger.MayUnwind(p.State) {
		return nil
	}
	for _, a := range p.Actions {
		if (a.Undo == "held" || a.Undo == "retired") && len(ids) < partsMax {
			ids = append(ids, a.Action)
		}
	}
	return ids
}

func (b Plan) parts() []string { return partsOf(b.Plan) }

func (b Preview) parts() []string { return partsOf(b.Plan) }

func progress(p api.Plan) string {
	switch p.State {
	case ledger.StateUnwinding:
		return fmt.Sprintf("%d undone, %d to go", p.Compensated, p.Held)
	case ledger.StateCompensated:
		return fmt.Sprintf("%d undone", p.Compensated) + counted(", ", p.Skipped, " skipped")
	case ledger.StateDelivering:
		return fmt.Sprintf("%d delivered, %d to go", p.Compensated, p.Held)
	case ledger.StateDelivered:
		return fmt.Sprintf("%d delivered", p.Compensated) + counted(", ", p.Skipped, " dropped")
	}
	return plural(p.ActionCount, "action") + counted(", ", p.Held, " held")
}

// counted is a number between two texts, or nothing for none.
func counted(before string, n int, after string) string {
	return when(n != 0, before+strconv.Itoa(n)+after)
}

func leaseState(l api.Lease) string {
	switch {
	case l.Cascade == "cut":
		return "cut"
	case l.Fired:
		return "fired"
	case l.Moot:
		return "moot"
	}
	return l.Truth
}

func dueAnchor(d api.Due) string {
	return when(d.Kind == "lease", "#leases")
}

func dueName(d api.Due) string { return cmp.Or(d.Lease, d.Action, d.Plan) }

func dueOf(d api.Due) string { return cmp.Or(clip(d.Label, 80), d.Plan) }

// waitingState is why a command has no answer, in a word or two.
func waitingState(w api.Waiting) string {
	switch {
	case w.Working:
		return "works on"
	case w.Problem != "":
		return "not sent"
	case w.Handler != "":
		return "no process"
	}
	return "no worker"
}

// handledBy says what a command without an answer waits for.
func handledBy(w api.Waiting) string {
	tried := counted(", asked ", w.Tries, " times")
	switch {
	case w.Working:
		return "a worker says that it is still working" + w.AskedAgain()
	case w.Problem != "":
		return "tried " + plural(w.Tries, "time") + ": " + w.Problem
	case w.Handler != "":
		return "no process offers " + w.Handler + tried
	}
	return w.Wanted("no worker") + " serves it" + tried
}

func factValue(f api.Fact) string { return cmp.Or(clip(string(f.Value), 80), "–") }

func memorySize(m api.Memory) string {
	return bytesText(m.Bytes) + when(m.Capacity != 0, " of "+bytesText(m.Capacity))
}

func reviewInput(r api.Review) string {
	if r.Omitted {
		return "its input is too large for a list"
	}
	return clip(string(seal.Redact(r.Input)), 300)
}

// input is what the action would be done with, all of it: a verdict is about that.
func (b Review) input() json.RawMessage {
	if len(b.Review.Input) > 0 {
		return b.Review.Input
	}
	return b.Action.Input
}

func stepNumber(p api.Preview, s api.PreviewStep) string {
	return when(s.Plan != p.Plan, s.Plan+"/") + strconv.Itoa(s.Number)
}

func stepUndoes(s api.PreviewStep) string {
	return when(s.Inverse != "", "undoes "+s.Capability) + prefixed(", ", s.Fidelity)
}

func took(u api.Undo) string {
	if u.EndedNs == 0 {
		return "–"
	}
	return lasted(u.EndedNs - u.DispatchedNs)
}

func (l timeLine) took() string {
	return lasted(l.TookNs) + when(l.Attempts > 1, fmt.Sprintf(", %d attempts", l.Attempts))
}

func (r Row) name() string {
	if r.Child != "" {
		return "plan " + r.Child
	}
	return cmp.Or(r.Capability, "?")
}

// unsure reports that the outcome is not what the agent wanted, or is not known.
func (r Row) unsure() bool {
	if r.Staged && r.Outcome == "unknown" {
		return false // its agent does not call it
	}
	return slices.Contains([]string{"in_doubt", "failed", "unknown"}, r.Outcome)
}

// delivers reports that what is done about an action is no undo: it is the act itself, which was
// staged.
func delivers(a api.Action) bool { return a.Staged && a.Compensation != "" }

// toDeliver reports that an act was staged, and is not known to be delivered.
func toDeliver(a api.Action) bool { return delivers(a) && a.Outcome != "completed" }

// elsewhere reports that what becomes of a staged act is said by the plan that delivers it.
func elsewhere(a api.Action) bool { return a.Staged && !delivers(a) }

// undoWord is the state of an undo, or of a delivery.
func undoWord(a api.Action) string {
	if a.ToDrop {
		return "to be dropped"
	}
	if delivers(a) && (a.Undo == "owed" || a.Undo == "ready") {
		return "to be delivered"
	}
	if delivers(a) && a.Undo == "dispatched" {
		return "delivering"
	}
	return word(a.Undo)
}

// underWay is what plans are that are unwinding, or are counted with those, as they deliver.
func (b Overview) underWay() string {
	if len(b.Delivering) > 0 {
		return "Under way"
	}
	return "Unwinding"
}

// called is what is in flight of them.
func (b Overview) called() string {
	if len(b.Delivering) > 0 {
		return "call"
	}
	return "undo"
}

// inOrder says in which order the actions of a plan are listed, and settled.
func (b Plan) inOrder() string {
	if b.Plan.Delivers {
		return fmt.Sprintf("%d, of which the last is delivered first", b.Plan.ActionCount)
	}
	return fmt.Sprintf("%d in order of registration; an unwind goes from the last to the first",
		b.Plan.ActionCount)
}

// halt is what an answer that halts leaves.
func (b Obligation) halt() string {
	if toDeliver(b.Action) && b.Plan.Stopped == "" {
		return "Make nothing of what is staged after it"
	}
	return "Leave what it came after as it is"
}

// then begins what an answer lets go on.
func (b Obligation) then() string {
	switch {
	case b.Plan.Stopped != "": // it was delivered, and is undone by its owner or not at all
		return "Then its owner is asked about: "
	case b.Plan.Delivers:
		return "Then is delivered: "
	}
	return "Then is undone: "
}

// deliveries begins what is delivered where the plan is not undone.
func (b Preview) deliveries() string {
	if b.Preview.State == ledger.StateCommitted {
		return "To be delivered, if it is not undone: "
	}
	return "A commit would deliver: "
}

func (r Row) outcome() string {
	switch r.Outcome {
	case "failed":
		return "did not happen"
	case "unknown":
		return "no outcome"
	}
	return word(r.Outcome)
}

func (r Row) resolved() string {
	return r.ResolvedBy + prefixed(": ", r.ResolvedReason) + prefixed(", evidence ", r.Evidence)
}

func (r Row) attempt() string {
	return fmt.Sprintf("attempt %d", r.Attempt) + counted(" of ", r.Attempts, "")
}

func (r Record) title() string { return cmp.Or(kind(r.Kind), "Not a record") }

func (q Quarantined) href(p *Page) string {
	switch {
	case q.Cut != nil:
		return p.href("plans", q.Plan.Plan)
	case q.Orphan != "":
		return p.obligation(q.Plan.Plan, q.Orphan, 0)
	}
	return p.obligation(q.Plan.Plan, q.Action.Action, q.Action.Number)
}

// obligation is the address of an action that waits for its owner, as api.ActionArg names it.
func (p *Page) obligation(plan, action string, number int) string {
	return p.href("quarantine", plan, api.ActionArg(action, number))
}

func (q Quarantined) name() string {
	if q.Cut != nil {
		return "lease " + q.Cut.Lease
	}
	return cmp.Or(q.Orphan, q.Action.Capability)
}

func (q Quarantined) why() string {
	if q.Cut != nil {
		return q.Cut.Why
	}
	return clip(cmp.Or(q.Action.Note, q.Action.Failure), 240)
}

func (q Quarantined) sinceNs() int64 {
	switch {
	case q.Cut != nil:
		return q.Cut.AtNs
	case q.Orphan != "":
		return q.Plan.LastNs
	}
	return q.Action.SettledNs
}

func (b Obligation) class() string {
	return b.Action.Class + prefixed(", ", b.Action.Fidelity) + when(b.Action.Pivot, ", pivot") +
		when(b.Action.Approve, ", its undo asks for the owner's word")
}

func (b Obligation) second() string {
	return when(b.Plan.SecondApprover, ", and a second operator has to agree")
}

// tone is that of the banner with the action's note.
func (b Obligation) tone() string {
	if b.Action.Undo == "quarantined" {
		return "bad"
	}
	return "plain"
}

// stuck reports that the action cannot be tried again, whatever the operator says.
func (b Obligation) stuck() bool { return b.NoRetry != "" && !b.Forced }

func (b Obligation) again() string {
	again := when(b.Action.Attempt != 0, " again")
	return fmt.Sprintf("%s, %d attempts, same key", again, b.Action.Attempts)
}

func (b Health) mode(tenant string) string {
	switch b.Status.Mode {
	case "holding":
		return "This host holds tenant " + tenant + " and decides for it."
	case "standby":
		return "Another host holds the tenant; this one folds along."
	case "clock-guard":
		return "The wall clock disagrees with itself: no clock lease fires until it agrees, " +
			"or an operator confirms it."
	case "degraded":
		return "A disk cannot be written. Nothing is folded or dispatched until it can; " +
			"the work then goes on by itself."
	case "halted":
		return "A guard has failed. Nothing is dispatched until the ledger is repaired: " +
			"sagenbaum ledger repair"
	}
	return "The ledger is being opened."
}

// limitWords is a limit as people call it.
func limitWords(limit string) string { return strings.ReplaceAll(limit, "_", " ") }
