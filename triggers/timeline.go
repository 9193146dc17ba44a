package triggers

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/triggers/exact"
)

// Limits on a timeline, so that no file can cost a turn.
const (
	// EventsMax is how many events a timeline may have.
	EventsMax = 1000

	evaluationsMax = 3000 // of one timeline
)

// EventKind says what an Event changes.
type EventKind uint8

// The kinds of event, each with the fields of Event that it uses.
const (
	EventAssert  EventKind = iota + 1 // Key, Value
	EventRetract                      // Key
	EventStatus                       // Text: the status of the plan
	EventActions                      // Count: actions registered in the plan, by its agent
	EventOutcome                      // Text: the outcome of the forward; Value: its output, or nil
	EventVerdict                      // Text: the outcome of the verdict; Reason, By
	EventActive                       // none: the agent of the plan has written something else
)

// Event is one thing that happens on a timeline.
type Event struct {
	AtNs   int64 // ns after arming; below zero: before it
	Kind   EventKind
	Key    string          // of a fact
	Value  json.RawMessage // one JSON value
	Text   string
	Reason string
	By     string
	Count  int
}

// Timeline is what happens to one lease, on a clock of its own.
type Timeline struct {
	Scope   Scope   // at arming, but for what the events change; NowNs is not looked at
	Events  []Event // at most EventsMax; those of one instant in their order
	UntilNs int64   // ns after arming; 0: as long as anything changes
	HeldNs  int64   // ns after arming, until when it is held in a committed plan; 0: it is not
}

// Span is a stretch of time over which a condition gives one answer.
type Span struct {
	FromNs int64 // ns after arming
	ToNs   int64 // where the next one begins, or the timeline ends
	Truth  Truth
	Moot   bool
	Waits  []string // what an unknown waits for
	Err    error    // why the evaluation stopped
	// those that began it, by index in Course.Events; none: arming or a flip of the clock
	Events []int
	After  bool // after the instant of firing, where no lease looks any more

	Retired bool // the plan is not open: no lease looks after its beginning
}

// Course is how a timeline went.
type Course struct {
	Events      []Event // of the timeline, by time
	Spans       []Span  // from arming to EndNs, without a gap
	EndNs       int64   // ns after arming
	Fires       bool
	FiresNs     int64 // ns after arming
	Moot        bool  // it can never fire
	MootNs      int64 // since when, ns after arming
	Retired     bool  // it did not fire before its plan was undone or committed, and does not any more
	RetiredNs   int64 // since when, ns after arming
	Last        Result
	Evaluations int
}

// Statuses of a plan in which leases look for their conditions: in a committed one, those that are
// held after the commit.
const (
	openPlan      = "open"
	committedPlan = "committed"
)

// TimelineError says which field of a Timeline is out of reach.
type TimelineError struct {
	Field   string // as in "events[3].at"
	Problem string // what is wrong with it
	Want    string // what would be right
}

// Error reads "refused: until: no instant after arming; want ...".
func (e *TimelineError) Error() string {
	return "refused: " + e.Field + ": " + e.Problem + "; want " + e.Want
}

// Run plays a timeline: it evaluates at arming, after the events of an instant and
// at every instant that the evaluation before asked to wake at, and nowhere else. A
// lease whose plan is no longer open turns at that very instant or is retired; one
// whose plan is open again, back at a savepoint, is asked again.
// The error is a *TimelineError.
func (c *Condition) Run(t Timeline) (Course, error) {
	r, err := newTimelineRun(c, t)
	if err != nil {
		return Course{}, err
	}
	return r.run()
}

// timelineRun is one run of a timeline.
type timelineRun struct {
	condition *Condition
	scope     Scope
	past      *past
	view      View // of past
	next      int  // of the events
	endNs     int64
	heldNs    int64
	course    Course
}

func newTimelineRun(c *Condition, t Timeline) (*timelineRun, error) {
	if len(t.Events) > EventsMax {
		return nil, &TimelineError{Field: "events", Problem: fmt.Sprint(len(t.Events)),
			Want: fmt.Sprintf("at most %d", EventsMax)}
	}
	armed := t.Scope.ArmedNs
	if t.UntilNs < 0 || addNs(armed, t.UntilNs) == math.MaxInt64 {
		return nil, &TimelineError{Field: "until", Problem: "no instant after arming",
			Want: "an offset from arming, before the year 2262"}
	}
	r := &timelineRun{condition: c, scope: t.Scope, past: newPast(), endNs: t.UntilNs,
		heldNs: t.HeldNs}
	if t.Scope.Action != nil {
		action := *t.Scope.Action // events change it
		r.scope.Action = &action
	}
	for i, e := range t.Events {
		at := addNs(armed, e.AtNs)
		if at == math.MaxInt64 || at == math.MinInt64 || t.UntilNs > 0 && e.AtNs > t.UntilNs {
			return nil, &TimelineError{Field: fmt.Sprintf("events[%d].at", i),
				Problem: "an instant that the timeline does not reach", Want: "an offset from arming, not " +
					"after until"}
		}
	}
	r.course.Events = slices.Clone(t.Events)
	slices.SortStableFunc(r.course.Events, func(a, b Event) int {
		switch {
		case a.AtNs < b.AtNs:
			return -1
		case a.AtNs > b.AtNs:
			return 1
		}
		return 0
	})
	r.view = r.past
	return r, nil
}

func (r *timelineRun) run() (Course, error) {
	for at := int64(0); ; {
		r.happen(at)
		r.evaluate(at)
		next, more := r.following(at)
		if !more {
			r.end(at)
			return r.course, nil
		}
		if r.course.Evaluations >= evaluationsMax {
			return Course{}, &TimelineError{Field: "until", Problem: fmt.Sprintf("more than %d evaluations",
				evaluationsMax), Want: "an earlier end, or fewer events"}
		}
		at = next
	}
}

// happen lets all events up to an instant happen, each at its own.
func (r *timelineRun) happen(at int64) {
	for r.next < len(r.course.Events) && r.course.Events[r.next].AtNs <= at {
		e := &r.course.Events[r.next]
		now := addNs(r.scope.ArmedNs, e.AtNs)
		switch e.Kind {
		case EventAssert:
			r.past.assert(e.Key, string(e.Value), now)
		case EventRetract:
			r.past.retract(e.Key)
		case EventStatus:
			r.scope.Plan.Status = e.Text
		case EventActions:
			r.scope.Plan.Actions, r.scope.Plan.ActiveNs = e.Count, now
		case EventActive:
			r.scope.Plan.ActiveNs = now
		case EventOutcome:
			r.scope.Plan.ActiveNs = now
			if r.scope.Action != nil {
				r.scope.Action.Outcome, r.scope.Action.Output = e.Text, e.Value
			}
		case EventVerdict:
			r.scope.Verdict = &Verdict{Outcome: e.Text, Reason: e.Reason, By: e.By, AtNs: now}
		default:
			panic(fmt.Sprintf("triggers: no such kind of event: %d", e.Kind))
		}
		r.next++
	}
}

func (r *timelineRun) evaluate(at int64) {
	r.scope.NowNs = addNs(r.scope.ArmedNs, at)
	r.past.now = r.scope.NowNs
	result := r.condition.Evaluate(r.scope, r.view)
	c := &r.course
	c.Evaluations++
	if result.WakeNs != 0 && (result.WakeNs <= r.scope.NowNs || result.Moot) {
		panic(fmt.Sprintf("triggers: wakes at %d, asked at %d, moot %v", result.WakeNs, r.scope.NowNs,
			result.Moot))
	}
	held := r.scope.Plan.Status == committedPlan && r.heldNs > 0
	open := r.scope.Plan.Status == openPlan || held && at < r.heldNs
	c.Retired = c.Retired && !open // back at a savepoint
	asked := !c.Fires && !c.Moot && !c.Retired
	span := Span{FromNs: at, Truth: result.Truth, Moot: result.Moot, Waits: result.Waits,
		Err: result.Err, After: c.Fires, Events: r.eventsOf(at)}
	switch {
	case !asked:
	case held && !open: // its last instant was before
		c.Retired, c.RetiredNs = true, at
	case result.Truth == True:
		c.Fires, c.FiresNs = true, at
	case result.Moot:
		c.Moot, c.MootNs = true, at
	case !open:
		c.Retired, c.RetiredNs = true, at
	}
	span.Retired = c.Retired
	if n := len(c.Spans); n == 0 || !c.Spans[n-1].same(&span) {
		c.Spans = append(c.Spans, span)
	}
	c.Last = result
}

// eventsOf returns the events of an instant; those before arming belong to none.
func (r *timelineRun) eventsOf(at int64) []int {
	var events []int
	for i := r.next - 1; i >= 0 && r.course.Events[i].AtNs == at; i-- {
		events = append(events, i)
	}
	slices.Reverse(events)
	return events
}

// same reports whether a span says what the one before it says. What a moot
// condition waits for does not matter any more.
func (s *Span) same(next *Span) bool {
	if s.Truth != next.Truth || s.Moot != next.Moot || s.Retired != next.Retired ||
		fmt.Sprint(s.Err) != fmt.Sprint(next.Err) {
		return false
	}
	return s.Moot || slices.Equal(s.Waits, next.Waits)
}

// following returns the instant at which to evaluate next.
func (r *timelineRun) following(at int64) (int64, bool) {
	next, more := int64(0), false
	if r.course.Last.WakeNs != 0 {
		next, more = r.course.Last.WakeNs-r.scope.ArmedNs, true
	}
	if r.heldNs > at && r.scope.Plan.Status == committedPlan && (!more || r.heldNs < next) {
		next, more = r.heldNs, true
	}
	if r.next < len(r.course.Events) {
		if e := r.course.Events[r.next].AtNs; !more || e < next {
			next, more = e, true
		}
	}
	if more && r.endNs > 0 && next > r.endNs {
		return 0, false
	}
	return next, more
}

func (r *timelineRun) end(at int64) {
	c := &r.course
	c.EndNs = max(at, r.endNs)
	for i := range c.Spans {
		c.Spans[i].ToNs = c.EndNs
		if i+1 < len(c.Spans) {
			c.Spans[i].ToNs = c.Spans[i+1].FromNs
		}
	}
}

// past is a View over facts that are asserted one after the other.
type past struct {
	now   int64 // unix ns
	facts map[string]*Fact
	times map[string][]int64
	seq   uint64
}

func newPast() *past {
	return &past{facts: map[string]*Fact{}, times: map[string][]int64{}}
}

// Fact returns the fact under key, or nil when there is none now.
func (p *past) Fact(key string) *Fact { return p.facts[key] }

// Occurrences yields the times at which key was asserted in (fromNs, toNs].
func (p *past) Occurrences(key string, fromNs, toNs int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for _, ns := range p.times[key] {
			if ns > fromNs && ns <= toNs && !yield(ns) {
				return
			}
		}
	}
}

// Under yields the facts whose keys begin with prefix.
func (p *past) Under(prefix string) iter.Seq2[string, *Fact] {
	return func(yield func(string, *Fact) bool) {
		for _, key := range slices.Sorted(maps.Keys(p.facts)) {
			if strings.HasPrefix(key, prefix) && !yield(key, p.facts[key]) {
				return
			}
		}
	}
}

func (p *past) assert(key, value string, ns int64) {
	p.seq++
	had, ok := p.facts[key]
	fact := &Fact{Value: json.RawMessage(value), AssertedNs: ns, ChangedNs: ns, Sequence: p.seq}
	if ok && exact.Same(had.Value, []byte(value)) {
		fact.ChangedNs = had.ChangedNs
	}
	p.facts[key] = fact
	p.times[key] = append(p.times[key], ns)
}

func (p *past) retract(key string) { delete(p.facts, key) }
