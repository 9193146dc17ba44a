package web

import (
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestAPageTellsOfADeliveryInWordsOfItsOwn: nothing of it is an undo, and each page leads to the plan
// that delivers.
func TestAPageTellsOfADeliveryInWordsOfItsOwn(t *testing.T) {
	t.Parallel()
	act := api.Action{Number: 1, Action: "mail", Capability: "mail.send", Class: "irreversible", Staged: true,
		Outcome: "unknown"}
	of := func(undo string) api.Action { a := act; a.Undo = undo; return a }
	in := func(undo, outcome string) api.Action {
		a := of(undo)
		a.Compensation, a.Outcome = "mail.send", outcome
		return a
	}
	stopped := func(undo string) api.Action { a := in(undo, "unknown"); a.ToDrop = true; return a }
	committed := api.Plan{Plan: "p", State: "committed", DeliveredAs: "p~0"}
	delivers := api.Plan{Plan: "p~0", State: "quarantined", Origin: "p", Delivers: true, Stopped: "9.0-ab",
		ActionCount: 1}
	delivering := delivers
	delivering.Stopped = ""
	with := func(p api.Plan, a api.Action) Plan {
		p.Actions = []api.Action{a}
		return Plan{Tree: *NewTree(p, 0)}
	}
	for name, c := range map[string]struct {
		body  Body
		says  string
		never string
		links string
	}{
		"staged": {with(api.Plan{Plan: "p", State: "open"}, of("staged")),
			"made once the plan, and the root that it is a part of, are committed", "no outcome", ""},
		"delivered": {with(committed, of("delivered")), "Delivered as|delivered", "no outcome", "/plans/p~0"},
		"its owner's": {with(committed, of("quarantined")),
			"Answer this quarantine", "no outcome", "/quarantine/p~0/mail"},
		"of no answer": {Obligation{Plan: committed, Action: of("quarantined")},
			"Answered elsewhere", "Your answer", "/quarantine/p~0/mail"},
		"in turn": {with(delivers, in("owed", "unknown")),
			"Delivers what is staged in|Deliveries stopped|to be delivered|made by",
			"undone by|owed|Preview an unwind", "/plans/p"},
		"under way": {with(delivers, in("dispatched", "unknown")),
			"delivering|1, of which the last is delivered first", "undoing|in order of registration", ""},
		"to be answered": {Obligation{Plan: delivering, Action: in("quarantined", "unknown"), Waiting: []api.Action{act}},
			"Its delivery|it needs no delivery any more|Then is delivered: |Make nothing of what is staged after it",
			"undone|Its undo|came after", ""},
		"stopped":              {with(delivers, stopped("owed")), "to be dropped", "to be delivered", ""},
		"stopped, in its plan": {with(committed, stopped("delivering")), "to be dropped", "delivering", ""},
		"to be answered, stopped": {Obligation{Plan: delivers, Action: in("quarantined", "unknown"),
			Drops: []api.Action{stopped("owed")}, NoRetry: "the deliveries were stopped"},
			"Then is dropped: |the deliveries were stopped|Leave what it came after as it is",
			"Then is delivered|make it again|Nothing else", ""},
		"to be undone": {Obligation{Plan: delivers, Action: in("quarantined", "completed"), NoRetry: "it was delivered"},
			"it was undone by other means|it was delivered", "needs no delivery", ""},
		"a preview": {Preview{Preview: api.Preview{Plan: "p", State: "open", Deliveries: []string{"m", "q/n"}}},
			"A commit would deliver: |q/n", "", ""},
		"later": {Preview{Preview: api.Preview{Plan: "p", State: "committed", Deliveries: []string{"m"}}},
			"To be delivered, if it is not undone: ", "A commit", ""},
		"an overview": {Overview{Delivering: []api.Plan{{Plan: "p~0", State: "delivering"}}},
			"Delivering now|Under way", "Unwinding",
			"/plans/p~0"},
	} {
		wantPage(t, name, c.body, c.says, c.never, c.links)
	}
}

// wantPage reads a page, and wants texts on it, no others, and a link.
func wantPage(t *testing.T, name string, body Body, says, never, link string) {
	t.Helper()
	page := read(t, string((&Page{Tenant: "default", Operator: "ana", Acts: true, Confirmed: true}).Render(body)))
	shown := strings.Join(page.texts, " ")
	for _, want := range strings.Split(says, "|") {
		if !strings.Contains(shown, want) {
			t.Errorf("%s: the page does not say %q: %s", name, want, shown)
		}
	}
	for _, word := range strings.Split(never, "|") {
		if word != "" && strings.Contains(shown, word) {
			t.Errorf("%s: the page says %q: %s", name, word, shown)
		}
	}
	if links := strings.Join(page.links, " ") + " "; link != "" && !strings.Contains(links, link+" ") {
		t.Errorf("%s: no link to %s: %s", name, link, links)
	}
}

// TestEachStateOfADeliveryHasAMark of its own: it is none that no one knows.
func TestEachStateOfADeliveryHasAMark(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"staged", "delivering", "delivered", "dropped"} {
		if shape(state) == shape("no such state") || known(state) == "other" || word(state) != state {
			t.Errorf("%s is shown as %s, %s, %q", state, shape(state), known(state), word(state))
		}
	}
}
