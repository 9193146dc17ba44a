package triggers

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// TestAMootConditionSaysWhatEndedIt: the name that is never there, the time that
// has passed, the window that has closed; and only of what decides.
func TestAMootConditionSaysWhatEndedIt(t *testing.T) {
	paid := fact(10, "paid", "1")
	for _, c := range []struct {
		condition string
		events    []Event
		want      string
	}{
		{`action.refund == "r"`, nil, `[action.refund, which was not lifted from the input]`},
		{`plan.labels.team == "x" && facts["k"] == 1`, nil, `[plan.labels.team, which is not set]`},
		{`before(` + stamp(time.Minute) + `) && facts["k"] == 1`, nil, `[time 2026-03-01T12:01:00Z, which has passed]`},
		{`absent_for("paid", action.at, duration("1m"))`, []Event{paid},
			`[fact paid, which was asserted in its window at 2026-03-01T12:00:10Z]`},
		{`within("other", action.at, duration("1m")) && facts["k"] == 1`, []Event{paid},
			`[the window for fact other, which closed at 2026-03-01T12:01:00Z]`},
		{`(before(` + stamp(time.Minute) + `) || facts["k"] == 1) && action.labels.x == "y"`, nil,
			`[action.labels.x, which is not set]`},
		{`!after(` + stamp(time.Minute) + `)`, nil, `[]`},
		{`action.order == "o8" && facts["k"] == 1`, nil, `[]`},
	} {
		_, course := newTimeline(t, c.condition).run(c.events...)
		if !course.Moot || fmt.Sprint(course.Last.MootWhy) != c.want {
			t.Errorf("%s: moot %v because %v, want %s", c.condition, course.Moot, course.Last.MootWhy, c.want)
		}
	}
}

// TestACompletedForwardThatLiftedNothingHasNoFields for ever: nothing waits for an
// output that has come.
func TestACompletedForwardThatLiftedNothingHasNoFields(t *testing.T) {
	for condition, whole := range map[string]bool{`action.output.ref == "r1"`: true, `action["output"].ref == "r1"`: true,
		`action.?output.ref.orValue("none") == "r1"`: false} {
		l := newTimeline(t, condition)
		c := l.condition
		l.scope.Action.Outcome = "completed"
		if r := c.Evaluate(l.scope, newMemory(t)); r.Moot != whole || whole &&
			fmt.Sprint(r.MootWhy) != "[action.output.ref, which was not lifted from the output]" {
			t.Errorf("%s: %+v", condition, r)
		}
		l.scope.Action.Outcome = "in_doubt"
		if r := c.Evaluate(l.scope, newMemory(t)); r.Moot || whole && fmt.Sprint(r.Waits) != "[output of the forward]" {
			t.Errorf("%s in doubt: %+v", condition, r)
		}
		l.scope.Action.Outcome, l.scope.Action.Output = "completed", json.RawMessage(`{"ref":"r1"}`)
		if r := c.Evaluate(l.scope, newMemory(t)); r.Truth != True {
			t.Errorf("%s lifted: %+v", condition, r)
		}
	}
}

// TestReadingsTellWhatIsThereFromWhatWasNotRead.
func TestReadingsTellWhatIsThereFromWhatWasNotRead(t *testing.T) {
	l := newTimeline(t,
		`"there" in facts && !("gone" in facts) && since("there") < at("there") && absent_for("k", action.at, duration("1h"))`)
	_, course := l.run(fact(1, "there", "1"), fact(2, "there", "1"))
	want := "[{facts[\"gone\"]  false 0} {facts[\"there\"]  true 2}"
	var got []string
	for _, r := range course.Last.Readings {
		if r.Name[:5] == "facts" {
			got = append(got, fmt.Sprintf("{%s %s %v %d}", r.Name, r.Value, r.Present, r.Sequence))
		}
	}
	if fmt.Sprint(got) != want+"]" {
		t.Errorf("%v, want %s]", got, want)
	}
}

// TestALeaseIsRetiredWithItsPlan, as the executor does it: it turns at the step that
// ends the plan's being open, or not at all, and is asked again back at a savepoint.
func TestALeaseIsRetiredWithItsPlan(t *testing.T) {
	const deadline, never = `after(plan.deadline)`, int64(-1)
	for _, c := range []struct {
		condition string
		events    []Event
		fires     int64
		retired   int64
	}{
		{deadline, []Event{status(8, "cancelled")}, never, after(8)},
		{deadline, []Event{status(8, "failed")}, never, after(8)},
		{deadline, []Event{status(8, "committed")}, never, after(8)},
		{`plan.status == "failed"`, []Event{status(8, "failed")}, after(8), never},
		{`facts["k"] == 1`, []Event{status(8, "failed"), fact(8, "k", "1")}, after(8), never},
		{`facts["k"] == 1`, []Event{status(8, "failed"), fact(9, "k", "1")}, never, after(8)},
		{`facts["k"] == 1`, []Event{status(8, "cancelled"), fact(9, "k", "1"), status(20, "open")}, after(20), never},
		{`action.none == 1`, []Event{status(8, "failed")}, never, never}, // moot before
	} {
		fires, course := newTimeline(t, c.condition).run(c.events...)
		retired := never
		if course.Retired {
			retired = course.RetiredNs
		}
		if fires != c.fires || retired != c.retired {
			t.Errorf("%s %v: fires %d, retired %d", c.condition, c.events, fires, retired)
		}
		for i := range course.Spans {
			if span := &course.Spans[i]; course.Retired && span.Retired != (span.FromNs >= course.RetiredNs) {
				t.Errorf("%s: span from %d is retired: %v", c.condition, span.FromNs, span.Retired)
			}
		}
	}
}
