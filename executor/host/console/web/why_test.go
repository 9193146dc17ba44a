package web

import (
	"slices"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestAPageTellsWhyInTheWordsOfTheCommandLine: `plan why` prints the lines of a chain as they are,
// and a page shows them with links to what they name.
func TestAPageTellsWhyInTheWordsOfTheCommandLine(t *testing.T) {
	t.Parallel()
	why := api.Why{Plan: "p", State: "quarantined", Origin: "o", Omitted: true,
		Cycle: &api.Cycle{Plans: []string{"p", "q", "p"}, Rounds: 2}, Cuts: []api.Cut{{Lease: "low"}},
		Answers: []api.CutAnswer{{Action: "3", Lease: "low", Why: "depth 9 of 8", Cut: "7.0-aa",
			Word: api.Word{Answer: "resume", By: "ana", At: "8.0-bb", AtNs: 9e9}}},
		Steps: []api.WhyStep{
			{Plan: "p", Lease: "plan.failed", Said: "failed", Actor: "agent", Reason: "no <card>", At: "1.0-ab",
				Fired: "2.0-ab"},
			{Plan: "q", Action: "3", Lease: "low", Condition: `facts["stock"] < 1`, By: "fact", Undone: "2", UndonePlan: "p",
				Key: "stock", Fact: "3.0-ab", Fired: "4.0-ab", Retracted: true},
			{Plan: "q", Lease: "high", Condition: "true", Key: "stock", Source: "store", Value: "0", FactNs: 8e9,
				TurnedNs: 9e9, Fact: "5.0-ab", Fired: "6.0-ab", Resumed: &api.Word{Answer: "resume", By: "ana", At: "8.0-bb"}},
			{Plan: "r", Lease: "plan.deadline", DeadlineNs: 9e9, At: "1.0-ac", Fired: "9.0-ab", ToSavepoint: "sp"},
			{Plan: "s", Lease: "plan.failed", By: "part", Fired: "10.0-ab"},
			{Plan: "s", Lease: "low", Condition: "x < 1", TurnedNs: 9e9},
		}}
	page := read(t, string((&Page{Tenant: "default", Operator: "ana"}).Render(
		Plan{Tree: Tree{Plan: api.Plan{Plan: "p", State: "quarantined"}}, Why: why})))
	shown := strings.Join(page.texts, "")
	lines := slices.Concat(why.Before(), why.After())
	for i := range why.Steps {
		lines = append(lines, why.Step(i)...)
	}
	if len(lines) < 17 { // a plan that undoes another one is no part of it
		t.Fatalf("%d lines are too few to compare", len(lines))
	}
	for _, line := range lines {
		if !strings.Contains(shown, line.String()) {
			t.Errorf("the page does not say %q", line)
		}
		for _, part := range line {
			link := map[api.Names]string{api.NamesPlan: "/t/default/plans/" + part.Text,
				api.NamesFact:   "/t/default/memory/fact?key=" + part.Text,
				api.NamesRecord: "/t/default/ledger/" + strings.Split(part.Text, ".")[0]}[part.Names]
			if link != "" && !slices.Contains(page.links, link) {
				t.Errorf("no link to %s %q; there are %q", link, part.Text, page.links)
			}
		}
	}
}

// TestAPageSaysWhatIsKnownOfAnEffect: what it is called, and what would have made its undo faster; and
// nothing of that where nothing is known.
func TestAPageSaysWhatIsKnownOfAnEffect(t *testing.T) {
	t.Parallel()
	extra := api.Action{Number: 2, Action: "1~1", Capability: "card.charge", Class: "compensable", Undo: "settling",
		Outcome: "in_doubt", DutyOf: "1", ExternalRef: "ch_10", Presence: "present",
		Faster: "faster: late: never, or a shorter settle"}
	plan := api.Plan{Plan: "p", State: "unwinding", Actions: []api.Action{extra}}
	shown := func(b Body) string {
		return strings.Join(read(t, string((&Page{Tenant: "default", Operator: "ana"}).Render(b))).texts, " ")
	}
	tree, waiting := shown(Plan{Tree: *NewTree(plan, 0)}), shown(Obligation{Plan: plan, Action: extra})
	for _, want := range []string{"owed once more", "effect ch_10", "found present", extra.Faster} {
		if !strings.Contains(tree, want) {
			t.Errorf("the plan does not say %q: %s", want, tree)
		}
	}
	if !strings.Contains(waiting, "effect ch_10") {
		t.Errorf("its owner's page does not say what it is called: %s", waiting)
	}
	plan.Actions = []api.Action{{Number: 1, Action: "1", Capability: "card.charge", Undo: "held", Outcome: "unknown"}}
	if tree := shown(Plan{Tree: *NewTree(plan, 0)}); strings.Contains(tree, "effect ") {
		t.Errorf("nothing is known, and it says: %s", tree)
	}
}
