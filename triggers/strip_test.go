package triggers

import (
	"errors"
	"math"
	"math/rand"
	"strings"
	"testing"
	"time"
)

func courseOf(t *testing.T, condition string, timeline Timeline) Course {
	t.Helper()
	c, err := Compile(condition)
	if err != nil {
		t.Fatal(err)
	}
	timeline.Scope.ArmedNs = start
	timeline.Scope.Plan.Status = "open"
	course, err := c.Run(timeline)
	if err != nil {
		t.Fatal(err)
	}
	return course
}

func TestTextShowsTheTruthOverTime(t *testing.T) {
	for _, c := range []struct {
		condition string
		timeline  Timeline
		want      string
	}{
		{`plan.status == "failed"`, Timeline{Events: []Event{status(8, "failed")}}, `
true     |                                F####
unknown  |
false    |................................
         +--------------------------------1....>
          0s                              8s`},
		{`absent_for("k", first_at("j"), duration("1h"))`,
			Timeline{Events: []Event{fact(10, "j", `1`), fact(10, "j", `2`), fact(900, "k", `1`)}}, `
true     |
unknown  |??????????????????????//????????
false    |                                x....
         +------------1---------//--------3....>
          0s          10s                 15m`},
		{`count("k", duration("5s")) == 1`, Timeline{Events: []Event{fact(4, "k", `1`)}, UntilNs: 20 * second}, `
true     |       F########
unknown  |
false    |.......         .....................
         +-------1........~....................|
          0s     4s       9s                   20s`},
		{`seen("k")`, Timeline{Events: []Event{fact(-5, "k", `1`)}}, `
true     |
unknown  |?????????????????????????????????????
false    |
         +------------------------------------->
          0s`},
	} {
		strip := NewStrip(courseOf(t, c.condition, c.timeline))
		if got := "\n" + strings.Join(strip.Text(47), "\n"); got != c.want {
			t.Errorf("%s is drawn%s\nwant%s", c.condition, got, c.want)
		}
	}
}

func TestSpansSayWhatBeganThemAndWhatIsAfterTheFiring(t *testing.T) {
	course := courseOf(t, `1 / facts["k"] == 1 && after(`+stamp(20*time.Second)+`)`, Timeline{Events: []Event{
		fact(30, "k", `2`), fact(5, "k", `0`), fact(5, "j", `1`), fact(9, "k", `1`), retracted(40, "k"), fact(-3, "j", `1`),
	}})
	var said []string
	for _, s := range course.Spans {
		text := FormatOffset(s.FromNs) + " " + s.Truth.String() + " " + strings.Join(s.Waits, "+")
		for _, e := range s.Events {
			text += " " + course.Events[e].Key
		}
		if s.Err != nil {
			text += " error"
		}
		if s.After {
			text += " after"
		}
		said = append(said, text)
	}
	want := []string{"0s unknown fact k+time 2026-03-01T12:00:20Z", "5s unknown time 2026-03-01T12:00:20Z k j",
		"20s true ", "30s false  k after", "40s unknown fact k k after"}
	if strings.Join(said, "\n") != strings.Join(want, "\n") {
		t.Errorf("spans\n%s\nwant\n%s", strings.Join(said, "\n"), strings.Join(want, "\n"))
	}
	if !course.Fires || course.FiresNs != 20*second || course.Moot || course.EndNs != 40*second ||
		course.Evaluations != 6 {
		t.Errorf("course %+v", course)
	}
	for i := 1; i < len(course.Spans); i++ {
		if course.Spans[i-1].ToNs != course.Spans[i].FromNs {
			t.Errorf("a gap before span %d", i)
		}
	}
}

func TestTimelinesOutOfReachAreRefused(t *testing.T) {
	c, err := Compile(`seen("k")`)
	if err != nil {
		t.Fatal(err)
	}
	many := make([]Event, EventsMax+1)
	for field, timeline := range map[string]Timeline{
		"events":       {Events: many},
		"until":        {UntilNs: -1},
		"events[0].at": {Events: []Event{fact(20, "k", `1`)}, UntilNs: second},
		"events[1].at": {Events: []Event{fact(20, "k", `1`), {AtNs: math.MaxInt64, Kind: EventRetract, Key: "k"}}},
	} {
		timeline.Scope.ArmedNs = start
		_, err := c.Run(timeline)
		var refused *TimelineError
		if !errors.As(err, &refused) || refused.Field != field || refused.Want == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
	action := &Action{}
	course := courseOf(t, `action.outcome == "completed"`,
		Timeline{Scope: Scope{Action: action}, Events: []Event{completed(1, `{}`)}})
	if !course.Fires || action.Outcome != "" {
		t.Errorf("fires %v; the caller's action is now %q", course.Fires, action.Outcome)
	}
}

// Whatever happens, the line goes from 0 to its width without going back, and each
// stretch has what it must have, as far as there is room.
func TestStretchesFillTheLineInOrder(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for range 2000 {
		course := Course{Spans: []Span{{}}, EndNs: 1}
		for n := r.Intn(40); n >= 0; n-- {
			ns := r.Int63n(int64(1) << (1 + r.Intn(60)))
			course.Spans = append(course.Spans, Span{FromNs: ns})
			course.EndNs = max(course.EndNs, ns)
		}
		strip := NewStrip(course)
		width, least := float64(20+r.Intn(900)), float64(r.Intn(60))
		places := strip.Place(width, func(int) float64 { return least })
		if len(places) != len(strip.Stretches)+1 || places[0] != 0 || math.Abs(places[len(places)-1]-width) > 1e-6 {
			t.Fatalf("places %v on a line of %v", places, width)
		}
		room := least*float64(len(strip.Stretches)) <= width
		for i := range strip.Stretches {
			if length := places[i+1] - places[i]; length < 0 || room && length < least-1e-6 {
				t.Fatalf("stretch %d has %v, want %v: %v", i, length, least, places)
			}
		}
		for _, line := range strip.Text(78) {
			if len(line) > 78+stripOver {
				t.Fatalf("a line of %d columns", len(line))
			}
		}
	}
}

func TestOffsetsAreWrittenShortly(t *testing.T) {
	for text, d := range map[string]time.Duration{
		"0s": 0, "50ms": 50 * time.Millisecond, "15m": 15 * time.Minute, "15m+": 15*time.Minute +
			1, "72h": 72 * time.Hour, "21d": 21 * 24 * time.Hour,
		"21d1h": (21*24 + 1) * time.Hour, "1m40s": 100 * time.Second, "-1m": -time.Minute, "1h0m50s": time.Hour +
			50*time.Second, "1ns": 1, "2ns": 2,
	} {
		if got := FormatOffset(int64(d)); got != text && d != 1 || d == 1 && got != "0s+" {
			t.Errorf("%d ns is written %s, want %s", d, got, text)
		}
	}
}
