package plan

import (
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestPlanWhyTellsEveryKindOfCause in plain words.
func TestPlanWhyTellsEveryKindOfCause(t *testing.T) {
	t.Parallel()
	for want, steps := range map[string][]api.WhyStep{
		"plan p was declared failed by agent: no card (8.0-cd)\n": {step(func(s *api.WhyStep) {
			s.Lease, s.Said, s.Actor, s.Reason, s.At = "plan.failed", "failed", "agent", "no card", "8.0-cd"
		})},
		"plan p was told to unwind (back to savepoint sp) by root: back (8.0-cd)\n    that turned lease " +
			"plan.cancelled of plan p true, and the undo of its plan back to savepoint sp began (9.0-ab)\n": {step(func(
			s *api.WhyStep) {
			s.Lease, s.Said, s.ToSavepoint, s.Actor, s.Reason, s.At = "plan.cancelled", "unwind", "sp", "root", "back", "8.0-cd"
		})},
		"plan p was told to unwind by root (8.0-cd)\n": {step(func(s *api.WhyStep) {
			s.Lease, s.Said, s.Actor, s.At = "plan.cancelled", "unwind", "root", "8.0-cd"
		})},
		"action 3 of plan p completed late: it stands (8.0-cd)\n": {step(func(s *api.WhyStep) {
			s.Lease, s.Said, s.SaidOf, s.Reason, s.At = "plan.cancelled", "late", "3", "it stands", "8.0-cd"
		})},
		"the deadline of plan p passed: 1970-01-01 00:00:09Z, set when it was opened (2.0-cd)\n": {step(func(
			s *api.WhyStep) {
			s.Lease, s.DeadlineNs, s.At = "plan.deadline", 9e9, "2.0-cd"
		})},
		"the deadline of plan p passed: 1970-01-01 00:00:09Z, moved by ana: slow (5.0-cd)\n": {step(func(
			s *api.WhyStep) {
			s.Lease, s.Said, s.DeadlineNs, s.Actor, s.Reason, s.At = "plan.deadline", "moved", 9e9, "ana", "slow", "5.0-cd"
		})},
		"a verdict on action 3 of plan p was block by law: no (8.0-cd)\n": {step(func(s *api.WhyStep) {
			s.Lease, s.Action, s.Said, s.Actor, s.Reason, s.At = "action.verdict", "3", "block", "law", "no", "8.0-cd"
		})},
		"a verdict on action 3 (card.charge) of plan o was redirect by law: no (8.0-cd)\n    that turned lease " +
			"plan.cancelled of plan o~1 true, which undoes the committed plan o (9.0-ab)\n": {step(func(s *api.WhyStep) {
			s.Plan, s.Lease, s.SaidOf, s.SaidPlan, s.Capability, s.Origin = "o~1", "plan.cancelled", "3", "o", "card.charge", "o"
			s.Said, s.Actor, s.Reason, s.At = "redirect", "law", "no", "8.0-cd"
		})},
		"became true at 1970-01-01 00:00:09Z: facts[\"stock\"] < 1\n": {step(func(
			s *api.WhyStep) {
			s.TurnedNs = 9e9
		})},
		"fact stock was asserted by source store: 0 (7.0-ef)\n    that turned lease low of plan p true, and the " +
			"undo of its plan began (9.0-ab)\n    condition: facts[\"stock\"] < 1\n": {step(func(s *api.WhyStep) {
			s.Key, s.Source, s.Value, s.Fact, s.FactNs, s.TurnedNs = "stock", "store", "0", "7.0-ef", 9e9, 9e9
		})},
		"fact stock was retracted (7.0-ef); what lease low waits for became true at 1970-01-01 00:00:09Z\n": {step(func(
			s *api.WhyStep) {
			s.Key, s.Fact, s.FactNs, s.TurnedNs, s.Retracted = "stock", "7.0-ef", 8e9, 9e9, true
		})},
		"the undo of action 2 of plan c retracted fact stock (7.0-ef)\n    that turned lease low of action 3 of plan " +
			"p true, and the undo of its plan began (9.0-ab)\n": {
			step(func(s *api.WhyStep) { s.Plan = "o" }),
			step(func(s *api.WhyStep) {
				s.By, s.Undone, s.UndonePlan, s.Key, s.Fact, s.Retracted, s.Action, s.Depth = "fact", "2", "c", "stock", "7.0-ef",
					true, "3", 2
			})},
		"plan c is a part of plan p: lease plan.failed of plan p fired": {
			step(func(s *api.WhyStep) { s.Plan = "c" }),
			step(func(s *api.WhyStep) { s.Lease, s.By, s.Depth = "plan.failed", "part", 2 })},
	} {
		why := api.Why{Plan: "p", State: "compensated", Steps: steps}
		saysAll(t, told(why), want, append(why.Before(), why.Step(len(steps)-1)...))
	}
	if got := told(api.Why{Plan: "child", State: "compensated",
		Steps: []api.WhyStep{step(func(*api.WhyStep) {})}}); !strings.Contains(got,
		"plan child is a part of it, and is undone with it") {
		t.Error(got)
	}
	if got := told(api.Why{Plan: "a\x1b[31m", State: "open"}); strings.Contains(got, "\x1b") {
		t.Errorf("%q", got)
	}
}

// told is what plan why prints.
func told(why api.Why) string {
	var out strings.Builder
	writeWhy(&out, cli.Pen{}, why)
	return out.String()
}

// step is one of a chain.
func step(change func(*api.WhyStep)) api.WhyStep {
	s := api.WhyStep{Plan: "p", Lease: "low", Condition: `facts["stock"] < 1`, Fired: "9.0-ab", Depth: 1}
	change(&s)
	return s
}

// saysAll wants a text, and the lines that a page of the console shows, too.
func saysAll(t *testing.T, got, want string, lines []api.Line) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%s\ndoes not say %q", got, want)
	}
	for _, line := range lines {
		if !strings.Contains(got, line.String()) {
			t.Errorf("%s\ndoes not say %q", got, line)
		}
	}
}

// TestAnAnswerFindsItsActionByNumberOrID, and a refusal names it.
func TestAnAnswerFindsItsActionByNumberOrID(t *testing.T) {
	t.Parallel()
	plan := api.Plan{Plan: "p",
		Actions: []api.Action{{Number: 1, Action: "x"}, {Number: 2, Action: "y"}, {Number: 3, Action: "z"}},
		Cuts: []api.Cut{
			{Lease: "low"}, {Lease: "low", Number: 2, Action: "y"}, {Lease: "high", Number: 2, Action: "y"},
			{Lease: "low", Number: 700, Action: "far"},
		}}
	for _, c := range []struct {
		action, lease string
		meant         int
		refusal       string
	}{
		{"", "", 4, ""}, {"", "low", 3, ""}, {"2", "", 2, ""}, {"y", "", 2, ""}, {"y", "high", 1, ""},
		{"700", "", 1, ""}, {"far", "low", 1, ""},
		{"1", "", 0, "action 1 of plan p is not cut; cut: lease low, lease low of action y, lease high of action y, " +
			"lease low of action far"},
		{"z", "low", 0, "lease low of action z of plan p is not cut"},
		{"2", "third", 0, "lease third of action 2 of plan p is not cut"},
		{"", "third", 0, "lease third of plan p is not cut"},
		{"nope", "", 0, `plan p has no action "nope"`},
	} {
		meant, err := cutsMeant(plan, c.action, c.lease)
		if len(meant) != c.meant || (err == nil) != (c.refusal == "") || err != nil &&
			!strings.Contains(err.Error(), c.refusal) {
			t.Errorf("%s %s: %+v, %v", c.action, c.lease, meant, err)
		}
	}
	if line := resumeCommand("p", plan.Cuts, true); !strings.HasSuffix(line, "[--lease LEASE] [--action ACTION]") {
		t.Error(line)
	}
}
