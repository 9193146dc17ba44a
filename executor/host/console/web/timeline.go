package web

import (
	"fmt"
	"slices"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// timeline is an unwind in time: a line for each action, a bar for each attempt.
type timeline struct {
	FromNs, UntilNs int64
	Ticks           []string
	Lines           []timeLine
	Running         bool // it goes on
}

type timeLine struct {
	Number     int
	Capability string
	Undo       string
	Attempts   int
	TookNs     int64
	Bars       []bar
}

// bar is a part of a line, in thousandths of its width.
type bar struct {
	X, Width int
	Kind     string // wait, queue, work, pause
	State    string // of the attempt
	Address  string // of the record that it shows
	Title    string
}

const timelineWidth = 1000

// newTimeline places attempts in time; nil when there are none.
func newTimeline(plan api.Plan, undos []api.Undo, nowNs int64) *timeline {
	if len(undos) == 0 {
		return nil
	}
	t := &timeline{FromNs: undos[0].DispatchedNs}
	for _, u := range undos {
		begun, ended := u.DispatchedNs-u.WaitedNs, u.EndedNs
		if ended == 0 {
			ended, t.Running = max(nowNs, u.DispatchedNs), true
		}
		t.FromNs, t.UntilNs = min(t.FromNs, begun), max(t.UntilNs, ended)
	}
	t.UntilNs = max(t.UntilNs, t.FromNs+1)
	slices.SortStableFunc(undos, func(a, b api.Undo) int {
		return int(
			min(max(a.DispatchedNs-b.DispatchedNs, -1), 1),
		)
	})
	for _, u := range undos {
		at := slices.IndexFunc(t.Lines, func(l timeLine) bool { return l.Number == u.Number })
		if at < 0 {
			at, t.Lines = len(t.Lines), append(
				t.Lines, timeLine{Number: u.Number, Capability: u.Compensation, Undo: undoOf(plan, u.Number)},
			)
		}
		t.add(&t.Lines[at], u, nowNs)
	}
	for i := range 5 {
		t.Ticks = append(t.Ticks, "+"+lasted((t.UntilNs-t.FromNs)*int64(i)/4))
	}
	t.Ticks[0] = "0"
	return t
}

func undoOf(plan api.Plan, number int) string {
	for _, a := range plan.Actions {
		if a.Number == number {
			return a.Undo
		}
	}
	return ""
}

// add draws one attempt: what it waited, its way to the worker and back, and the work.
func (t *timeline) add(l *timeLine, u api.Undo, nowNs int64) {
	l.Attempts++
	ended := u.EndedNs
	if ended == 0 {
		ended = max(nowNs, u.DispatchedNs)
	}
	l.TookNs += ended - u.DispatchedNs
	title := fmt.Sprintf("attempt %d: %s after %s", u.Attempt, u.State, lasted(ended-u.DispatchedNs))
	if u.Worker != "" {
		title += ", worker " + u.Worker
	}
	if u.WaitedNs > 0 {
		l.Bars = append(
			l.Bars,
			t.bar(
				u.DispatchedNs-u.WaitedNs, u.DispatchedNs, "wait", u,
				"waited "+lasted(u.WaitedNs)+" to be dispatched",
			),
		)
	}
	work := min(u.WorkNs, ended-u.DispatchedNs)
	begun := ended - work // its worker's time ends with the answer, as near as anybody knows
	if u.EndedNs == 0 || u.WorkNs == 0 {
		begun = u.DispatchedNs
	} else if begun > u.DispatchedNs {
		l.Bars = append(
			l.Bars,
			t.bar(u.DispatchedNs, begun, "queue", u, title+"; "+lasted(begun-u.DispatchedNs)+" on the way"),
		)
	}
	if work > 0 {
		title += "; worked " + lasted(work)
	}
	b := t.bar(begun, ended, "work", u, title)
	if u.Ended != "" {
		b.Address = u.Ended
	}
	l.Bars = append(l.Bars, b)
}

func (t *timeline) bar(from, until int64, kind string, u api.Undo, title string) bar {
	span := float64(t.UntilNs - t.FromNs)
	at := int(float64(from-t.FromNs) / span * timelineWidth)
	end := int(float64(until-t.FromNs) / span * timelineWidth)
	at = min(max(at, 0), timelineWidth-4)
	return bar{
		X: at, Width: max(min(end, timelineWidth)-at, 4), Kind: kind, State: u.State,
		Address: u.Dispatched, Title: title,
	}
}
