package plan

import (
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestAReportThatNothingFollowsIsNoSuccess: an operator who is told that an effect is there expects that
// it is undone.
func TestAReportThatNothingFollowsIsNoSuccess(t *testing.T) {
	t.Parallel()
	plan := func(outcome, settled string) api.Plan {
		return api.Plan{Plan: "p", Actions: []api.Action{{Number: 1, Action: "a", Outcome: outcome},
			{Number: 2, Action: "a~1", DutyOf: "a", Undo: "compensated", Settled: settled}}}
	}
	for _, c := range []struct {
		what    string
		of      reporting
		plan    api.Plan
		refused bool
	}{
		{"said again", reporting{}, plan("completed", "9.0"), true},
		{"with a name", reporting{ref: "ch_9"}, plan("completed", "9.0"), false},
		{"with another effect", reporting{duplicates: []string{"ch_9"}}, plan("completed", "9.0"), false},
		{"with its output", reporting{output: "1"}, plan("completed", "9.0"), false},
		{"while its undo is owed", reporting{}, plan("completed", ""), false},
		{"of an effect that is in doubt", reporting{}, plan("in_doubt", "9.0"), false},
		{"of another action", reporting{}, api.Plan{Actions: []api.Action{{Number: 1, Action: "a", Outcome: "completed"},
			{Number: 2, Action: "b~1", DutyOf: "b", Settled: "9.0"}}}, false},
	} {
		err := c.of.saysAgain(c.plan, "a")
		if (err != nil) != c.refused ||
			err != nil && !strings.Contains(err.Error(), "a~1, which is its undo, is compensated") {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
