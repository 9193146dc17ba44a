package door_test

import (
	"fmt"
	"testing"
)

// writers are the requests of writers of a plan with the action a.
func writers(l *live) (act func(plan, writer string) map[string]any, tell func(plan, writer, outcome, more string),
	begin func(plan string), resume func(plan, writer string)) {
	act = func(plan, writer string) map[string]any {
		return l.good(l.post, "tripper", "plan.act", fmt.Sprintf(
			`{"plan":%q,"action":"a","capability":"page.read","input":{"p":1},"writer":%q}`, plan, writer))
	}
	tell = func(plan, writer, outcome, more string) {
		l.good(l.post, "tripper", "plan.outcome", fmt.Sprintf(`{"plan":%q,"action":"a","writer":%q,"outcome":%q%s}`,
			plan, writer, outcome, more))
	}
	begin = func(plan string) {
		l.good(l.post, "tripper", "plan.begin", fmt.Sprintf(`{"plan":%q,"writer":"w1"}`, plan))
		act(plan, "w1")
	}
	resume = func(plan, writer string) {
		l.good(l.post, "tripper", "plan.resume", fmt.Sprintf(`{"plan":%q,"writer":%q}`, plan, writer))
	}
	return act, tell, begin, resume
}

// TestARepeatedActSaysWhatCountsNow: what was told first may have been said otherwise since, by the
// writer that has registered the action, by one that has resumed its plan, or by one before.
func TestARepeatedActSaysWhatCountsNow(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	act, tell, begin, resume := writers(l)
	const output = `,"output":{"id":7}`
	for _, first := range []string{"in_doubt", "not_taken"} {
		for _, c := range []struct {
			name string
			told func(plan string) (writer string)
		}{
			{"same", func(plan string) string {
				tell(plan, "w1", first, `,"message":"no"`)
				act(plan, "w1")
				tell(plan, "w1", "completed", output)
				return "w1"
			}},
			{"resumed", func(plan string) string {
				resume(plan, "w2")
				act(plan, "w2")
				tell(plan, "w2", first, `,"message":"no"`)
				tell(plan, "w2", "completed", output)
				return "w2"
			}},
			{"recorded", func(plan string) string {
				tell(plan, "w1", first, `,"message":"no"`)
				resume(plan, "w2")
				act(plan, "w2")
				tell(plan, "w2", "completed", output)
				return "w2"
			}},
			{"before", func(plan string) string {
				resume(plan, "w2")
				act(plan, "w2")
				tell(plan, "w2", first, `,"message":"no"`)
				tell(plan, "w1", "completed", output)
				return "w2"
			}},
		} {
			plan := first + "-" + c.name
			begin(plan)
			writer := c.told(plan)
			for _, when := range []string{"at once", "after a crash"} {
				a := act(plan, writer)
				if a["state"] != "recorded" || a["outcome"] != "completed" || fmt.Sprint(a["output"]) != "map[id:7]" ||
					a["code"] != nil || a["message"] != nil {
					t.Errorf("%s, %s: %v", plan, when, a)
				}
				l.crash()
			}
		}
	}
}

// TestADoubtThatIsToldOfWhatFailedCounts also for a writer that has resumed the plan.
func TestADoubtThatIsToldOfWhatFailedCounts(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	act, tell, begin, resume := writers(l)
	begin("doubted")
	tell("doubted", "w1", "not_taken", `,"message":"no"`)
	resume("doubted", "w2")
	if a := act("doubted", "w2"); a["outcome"] != "failed" {
		t.Errorf("%v", a)
	}
	tell("doubted", "w2", "in_doubt", `,"message":"again, and no answer"`)
	if a := act("doubted", "w2"); a["outcome"] != "in_doubt" || a["message"] != "again, and no answer" {
		t.Errorf("%v", a)
	}
}
