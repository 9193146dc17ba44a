package executor_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestTheWindowOfWhatStaysIsNoMatter: a committed plan is undone back to a savepoint. What
// comes before it stays, so that its undo window may have closed; what comes after it must
// still be inside of its own.
func TestTheWindowOfWhatStaysIsNoMatter(t *testing.T) {
	for line, want := range map[string]string{
		"open a:for=5s a+ save:s b b+ commit @10s undo:s turn":             "compensated a=skipped b=compensated",
		"open a:for=5s a+ save:s b b+ save:u c c+ commit @10s undo:u turn": "compensated a=skipped b=skipped c=compensated",
		"open a a+ save:s b:for=20s b+ commit @10s undo:s turn":            "compensated a=skipped b=compensated",
		"open a a+ save:s b:for=5s b+ commit @10s !undo:s":                 "none",
		"open a a+ b:for=5s b+ save:s c c+ commit @10s !undo turn":         "none",
		"open a:until=5s a+ save:s b b+ commit @10s undo:s turn":           "compensated a=skipped b=compensated",
		"open a:until=5s a+ save:s b b+ commit @10s !undo turn":            "none",
	} {
		s := newSchedule(t)
		s.play(line)
		got := "none"
		if s.planOf("p~1") != nil {
			got = s.show("p~1").State + " " + s.actionsOf("p~1")
		}
		if got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
		if s.show("p").State != ledger.StateCommitted {
			t.Errorf("%s: the plan is %s", line, s.show("p").State)
		}
	}
}

func (w *world) actionsOf(plan string) string {
	var out []string
	for _, a := range w.show(plan).Actions {
		out = append(out, a.Action+"="+a.Undo)
	}
	return strings.Join(out, " ")
}

// TestJitterIsDrawnFromKeyAndAttempt: a delay is between what the contract says and so many
// percent more, the same whenever it is asked for, and another one for another action or
// another attempt. Without jitter it is what the contract says.
func TestJitterIsDrawnFromKeyAndAttempt(t *testing.T) {
	const backoff, keys, attempts = int64(10 * time.Second), 200, 3
	for _, percent := range []int64{0, 1, 20, 100} {
		c := &pb.CompensationRegistered{BackoffNs: backoff, BackoffMaxNs: 4 * backoff, JitterPercent: uint32(percent)}
		seen, low, high := map[int64]bool{}, int64(0), int64(0)
		for k := range keys {
			key := ledger.Key("t", "p", fmt.Sprint("a", k), ledger.PurposeUndo)
			for attempt := uint32(1); attempt <= attempts; attempt++ {
				plain := backoff << (attempt - 1)
				got := BackoffOf(c, key, attempt)
				if again := BackoffOf(c, key, attempt); again != got {
					t.Fatalf("%d%%: %d, and asked again %d", percent, got, again)
				}
				if more := plain * percent / 100; got < plain || got > plain+more {
					t.Fatalf("%d%%: attempt %d waits %d, want %d to %d", percent, attempt, got, plain, plain+more)
				}
				share := (got - plain) * 1000 / plain // in tenths of a percent
				seen[(got-plain)/(plain/(1<<16))], low, high = true, min(low, share), max(high, share)
			}
		}
		if percent == 0 {
			continue
		}
		if len(seen) < keys*attempts/2 { // one percent has 655 steps
			t.Errorf("%d%%: %d attempts of %d actions take only %d different shares", percent, attempts, keys, len(seen))
		}
		if low > percent || high < percent*9 {
			t.Errorf("%d%%: from %d to %d tenths of a percent are added", percent, low, high)
		}
	}
}

// TestRetriesOfTwoActionsComeApart: two undos that fail together are tried again at
// different instants, and no earlier than their contract says.
func TestRetriesOfTwoActionsComeApart(t *testing.T) {
	s := newSchedule(t)
	s.worker = func(Command) *api.Reply { return &api.Reply{Status: api.StatusFailed, Code: "locked"} }
	s.must(s.agent("p", opened(0)))
	for _, id := range []string{"a", "b"} {
		s.must(s.agent("p", append(pair(id, func(f *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			f.Branch, c.BackoffNs, c.JitterPercent = true, 10*second, 100
		}), completed(id))...))
	}
	s.must(s.agent("p", planFailed()))
	s.turn()
	var due []int64
	for n := uint32(1); n <= 2; n++ {
		a := s.planOf("p").Action(n)
		if a.Row.Undo != rowspb.Undo_UNDO_WAITING {
			t.Fatalf("action %d is %s", n, a.Row.Undo)
		}
		due = append(due, a.Row.DueNs-s.now)
	}
	for _, wait := range due {
		if wait < 10*second || wait > 20*second {
			t.Errorf("waits of %v, want 10 to 20 s", due)
		}
	}
	if due[0] == due[1] {
		t.Errorf("both are tried again after %d ns", due[0])
	}
}

// TestAnAnswerIsAboutTheRegistrationThatItNames: an owner looks at one registration and
// answers for it. An answer that names another one, or another quarantine of it, is refused
// and says what stands where.
func TestAnAnswerIsAboutTheRegistrationThatItNames(t *testing.T) {
	for _, verb := range []string{"resolve", "retry"} {
		s := newSchedule(t)
		s.play("open a a+ b b+ b=stop fail turn")
		a, b := s.actionOf("p", "a"), s.actionOf("p", "b")
		if b.Row.Undo != rowspb.Undo_UNDO_QUARANTINED {
			t.Fatalf("b is %s", b.Row.Undo)
		}
		answer := func(about, cause *pb.Address) Result {
			r := resolvedBy(false)
			if verb == "retry" {
				r = &pb.Record{Kind: &pb.Record_RetryRequested{RetryRequested: &pb.RetryRequested{Actor: "ops", Reason: "again"}}}
			}
			r.Plan, r.Action, r.About, r.Cause = "p", "b", about, cause
			return s.append(ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: "ops"}, r)[0]
		}
		other := proto.CloneOf(b.Fixed.Registered)
		other.Leaf[0] ^= 1
		for name, c := range map[string]struct {
			about, cause *pb.Address
			says         string
		}{
			"another action":     {a.Fixed.Registered, nil, "about: "},
			"another leaf":       {other, nil, "about: "},
			"another quarantine": {b.Fixed.Registered, b.Fixed.Registered, "cause: "},
		} {
			if got := answer(c.about, c.cause); got.Verdict != Refused || !strings.HasPrefix(got.Reason, c.says) {
				t.Errorf("%s, %s: %+v", verb, name, got)
			}
		}
		if now := s.actionOf("p", "b").Row.Undo; now != rowspb.Undo_UNDO_QUARANTINED {
			t.Errorf("%s: after refused answers b is %s", verb, now)
		}
		if got := answer(b.Fixed.Registered, b.Row.Settled); got.Verdict != Effective {
			t.Errorf("%s of what is meant: %+v", verb, got)
		}
	}
}

// TestAKeyIsRememberedFromItsFirstAttempt: a provider that keeps a key for 10 s counts from
// when it saw it first. A third attempt after 12 s asks first, though the second was sent 6 s
// ago; and a copy of the second may be sent only while the first is remembered.
func TestAKeyIsRememberedFromItsFirstAttempt(t *testing.T) {
	s := newSchedule(t)
	var sent []Command
	s.worker = func(c Command) *api.Reply {
		sent = append(sent, c)
		if c.Purpose == api.PurposeProbe {
			return &api.Reply{Status: api.StatusDone, Output: []byte(`{"presence":"absent"}`)}
		}
		return &api.Reply{Status: api.StatusFailed, Code: "locked"}
	}
	s.must(s.agent("p", opened(0)))
	s.must(s.agent("p", append(pair("a", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.Probe = &pb.Probe{Call: &pb.Call{Capability: "probe.a"}}
		c.Attempts, c.BackoffNs, c.BackoffMaxNs, c.DedupeNs = 3, 6*second, 6*second, 10*second
	}), completed("a"))...))
	s.must(s.agent("p", planFailed()))
	s.turn()
	first := s.now
	for range 20 {
		s.now += second
		s.turn()
	}
	var got []string
	for _, c := range sent {
		got = append(got, fmt.Sprint(c.Purpose, c.Attempt))
		if c.Purpose == ledger.PurposeUndo && c.ResendUntilNs != first+10*second {
			t.Errorf("attempt %d may be sent again until %d ns behind the first", c.Attempt, c.ResendUntilNs-first)
		}
	}
	if text := strings.Join(got, " "); text != "undo1 undo2 probe1" {
		t.Errorf("sent: %s", text)
	}
	s.wantState("p", ledger.StateCompensated, "a=compensated")
}

// TestAPlanThatHasEndedTakesNoMemory: what is kept decoded is of plans that go on, and of a few
// large ones; what comes later to one that has ended finds it, and nothing of it stays.
func TestAPlanThatHasEndedTakesNoMemory(t *testing.T) {
	var names []string
	for n := range ReleasedMax + 1 {
		names = append(names, fmt.Sprint("a", n))
	}
	w := newWorld(t)
	for plan, end := range map[string]*pb.Record{"p": planFailed(), "committed": planCommitted(), "open": nil,
		"large": planFailed()} {
		opening := opened(0)
		opening.GetPlanOpened().Label = strings.Repeat("l", 200)
		for n := range 16 {
			opening.GetPlanOpened().Labels = append(opening.GetPlanOpened().Labels,
				&pb.Label{Key: fmt.Sprint("k", n), Value: strings.Repeat("v", 200)})
		}
		w.must(w.agent(plan, opening))
		actions := names[:2]
		if plan == "large" {
			actions = names
		}
		w.do(plan, actions...)
		w.must(w.agent(plan, append(pair("long", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			c.Triggers = []*pb.Trigger{when("x", `facts["k"] == "`+strings.Repeat("y", 3000)+`"`)}
		}), completed("long"))...))
		if plan == "p" {
			w.must(w.agent(plan, pair("late")...))
		}
		if end != nil {
			w.must(w.agent(plan, end))
		}
		w.turn()
	}
	s := OpenWith(rows.NewMemoryKV(), "t", w, w.programs)
	kept := func(when string, log []ledger.Message, wantPlans, wantActions int) {
		t.Helper()
		for _, m := range log {
			foldMessage(t, s, m)
		}
		if plans, actions, _ := s.Decoded(); plans != wantPlans || actions != wantActions {
			t.Errorf("%s: %d plans and %d actions are kept, want %d and %d", when, plans, actions, wantPlans, wantActions)
		}
	}
	const large = ReleasedMax + 2
	kept("at the end", w.log, 2, 3+large)
	_, _, most := s.Decoded()
	before := len(w.log)
	w.must(w.agent("p", completed("late")))
	w.turn()
	if shown := w.show("p"); shown.State != ledger.StateCompensated || len(shown.Actions) != 5 {
		t.Errorf("%s, of %d actions", shown.State, len(shown.Actions))
	}
	kept("after more of it was undone", w.log[before:], 2, 3+large)
	if _, _, now := s.Decoded(); now != most {
		t.Errorf("%d bytes of large rows are counted, want %d", now, most)
	}
}

// TestAnEndThatIsOverIsNotTold: where the end of a plan and the late word that takes it back are
// folded in one turn, only the next end is told with the sequence of its record.
func TestAnEndThatIsOverIsNotTold(t *testing.T) {
	w := newWorld(t)
	w.must(w.agent("p", opened(0)))
	w.must(w.agent("c", openedUnder("p")))
	w.must(w.agent("c", pair("late")...))
	w.must(w.agent("p", planFailed()))
	w.turn()
	w.wantState("p", ledger.StateCompensated, w.undos("p"))
	first := uint64(len(w.log))
	w.must(w.agent("c", completed("late")))
	over := len(w.log)
	w.turn()
	w.wantState("p", ledger.StateCompensated, w.undos("p"))
	s := OpenWith(rows.NewMemoryKV(), "t", w, w.programs)
	told := func(log []ledger.Message) (at []uint64) {
		for _, m := range log {
			foldMessage(t, s, m)
		}
		for _, n := range s.Notices() {
			if n.Plan == "p" && ledger.HasEnded(n.State) && n.At != 0 {
				at = append(at, n.At)
			}
		}
		return at
	}
	if at := told(w.log[:over]); len(at) != 0 {
		t.Errorf("told of an end at %v, which was over", at)
	}
	if at := told(w.log[over:]); len(at) != 1 || at[0] <= first+1 {
		t.Errorf("told of ends at %v", at)
	}
}
