package turn

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// sky has the flights of one term, of a run c, b, a that is recorded in this order.
type sky struct {
	f     Flights
	flies map[string]*Flight
}

func newSky() *sky {
	s := &sky{flies: map[string]*Flight{}}
	s.f.MayRun = func() bool { return true }
	s.f.Hold(undoOf("b", "c"))
	s.f.Hold(undoOf("a", "b"))
	s.take("c")
	return s
}

// undoOf is the command of an undo that goes behind another one; before empty: it counts.
func undoOf(action, before string) Sending {
	c := executor.Command{Number: 1, Behind: before,
		Command: api.Command{Purpose: ledger.PurposeUndo, Plan: "p", Action: action, Attempt: 1}}
	if before != "" {
		c.UntilNs = 1000
	}
	return Sending{Command: c}
}

func (s *sky) take(action string) (sent bool) {
	x, _ := s.f.Take(undoOf(action, ""), 0)
	if x != nil {
		s.flies[action] = x
	}
	return x != nil
}

// answer takes the answer of a worker, and says what follows: "send b, answers c".
func (s *sky) answer(action, status string, epochNs int64) string {
	return s.said(s.f.Result(s.flies[action], Result{Fate: Replied, Reply: api.Reply{Status: status}},
		Instant{EpochNs: epochNs}))
}

func (s *sky) said(v Verdict) string {
	var said []string
	if v.Next != nil {
		s.flies[v.Next.Attempt.Action] = v.Next
		said = append(said, "send "+v.Next.Attempt.Action)
	}
	if len(v.Answers) > 0 {
		said = append(said, "answers "+fmt.Sprint(len(v.Answers)))
	}
	if v.Run != nil {
		said = append(said, "wait")
	}
	return strings.Join(said, ", ")
}

func TestARunLeavesOneByOneAndAnswersTogether(t *testing.T) {
	t.Parallel()
	s := newSky()
	for _, step := range []struct{ action, want string }{{"c", "send b, wait"}, {"b", "send a"}, {"a", "answers 3"}} {
		if may, _ := s.f.MaySend(s.flies[step.action], 0); !may {
			t.Fatalf("%s may not be sent", step.action)
		}
		if got := s.answer(step.action, api.StatusDone, 0); got != step.want {
			t.Errorf("%s is done: %q, want %q", step.action, got, step.want)
		}
	}
	for _, action := range []string{"b", "a"} {
		if s.take(action) {
			t.Errorf("%s is sent again when it counts", action)
		}
	}
	if s.f.Len() != 0 || !s.take("b") {
		t.Errorf("%d fly, and another attempt is not taken", s.f.Len())
	}
}

// What an answer holds back: it is not done, it comes too late, others may have the tenant.
func TestARunStops(t *testing.T) {
	t.Parallel()
	for _, status := range []string{api.StatusFailed, api.StatusStop} {
		s := newSky()
		s.answer("c", api.StatusDone, 0)
		if got := s.answer("b", status, 0); got != "answers 2" {
			t.Errorf("%s: %q", status, got)
		}
	}
	s := newSky()
	if got := s.answer("c", api.StatusWorking, 0); got != "" {
		t.Errorf("working: %q", got)
	}
	if got := s.answer("c", api.StatusDone, 1001); got != "answers 1" {
		t.Errorf("too late: %q", got)
	}
	if !s.take("b") { // it counts by now
		t.Error("what was kept back is not sent when it counts")
	}
	if got := s.answer("b", api.StatusDone, 1000); got != "send a, wait" {
		t.Errorf("in time again: %q", got)
	}
	for _, may := range []func() bool{nil, func() bool { return false }} {
		s = newSky()
		s.f.MayRun = may
		if got := s.answer("c", api.StatusDone, 0); got != "answers 1" {
			t.Errorf("others may have the tenant: %q", got)
		}
	}
}

// Whoever works at a command that does not count yet is asked again soon: its report that it
// has failed does not count either.
func TestWhoWorksAheadIsAskedAgainSoon(t *testing.T) {
	t.Parallel()
	s := newSky()
	s.answer("c", api.StatusDone, 0)
	working := Result{Fate: Replied, Reply: api.Reply{Status: api.StatusWorking, UntilMs: 60_000}}
	if v := s.f.Result(s.flies["b"], working, Instant{}); !v.Again || v.InNs != int64(WorkingMin) {
		t.Errorf("it does not count: %+v", v)
	}
	s.take("b")
	if v := s.f.Result(s.flies["b"], working, Instant{}); !v.Again || v.InNs != 60e9 {
		t.Errorf("it counts: %+v", v)
	}
}

// No answer waits for one that is not to come soon: no worker takes the command, or one works.
func TestAnAnswerWaitsForTheNextOnly(t *testing.T) {
	t.Parallel()
	for _, r := range []Result{{Fate: NoWorker}, {Fate: Unsent}, {Fate: Overheard},
		{Fate: Replied, Reply: api.Reply{Status: api.StatusWorking}}} {
		s := newSky()
		s.answer("c", api.StatusDone, 0)
		if got := s.said(s.f.Result(s.flies["b"], r, Instant{})); got != "answers 1" {
			t.Errorf("%+v: %q", r, got)
		}
	}
}

// Whoever listens and is no worker may have carried it out all the same: the command waits for a
// worker, spends no attempt, and is in doubt when that has lasted for too long.
func TestWhatIsOverheardWaitsInDoubt(t *testing.T) {
	t.Parallel()
	var f Flights
	s := Sending{Command: executor.Command{Number: 1, UnservedNs: int64(time.Hour), UnservedAfterNs: int64(time.Minute),
		Command: api.Command{Plan: "p", Action: "a", Purpose: ledger.PurposeUndo, Attempt: 1}}}
	x, _ := f.Take(s, 0)
	overheard := Result{Fate: Overheard}
	if v := f.Result(x, overheard, Instant{EpochNs: 1}); !v.Again || v.Ended || len(v.Answers) > 0 || !x.Reached ||
		!x.Heard || x.Tries != 1 {
		t.Fatalf("%+v, %+v", v, x)
	}
	late := Instant{EpochNs: int64(time.Hour), MonoNs: int64(time.Hour)}
	v := f.Result(x, overheard, late)
	if len(v.Answers) != 1 || !v.Answers[0].Unserved || !v.Answers[0].Reached || v.Ended {
		t.Fatalf("%+v", v)
	}
	if v := f.Result(x, Result{Fate: NoWorker}, late); x.Heard || !x.Reached || v.Ended {
		t.Errorf("nobody listens any more: %+v, %+v", v, x)
	}
	if v := f.Result(x, Result{Fate: Silent}, late); !v.Ended || len(v.Answers) != 1 || v.Answers[0].Unserved {
		t.Errorf("a worker is silent: %+v", v)
	}
}

// A command that is on its way ahead leaves only while it may, and from when it counts on.
func TestWhatIsKeptBackLeavesWhenItCounts(t *testing.T) {
	t.Parallel()
	s := newSky()
	s.answer("c", api.StatusDone, 0)
	s.f.MayRun = func() bool { return false }
	if may, v := s.f.MaySend(s.flies["b"], 0); may || !v.Again {
		t.Fatalf("it may leave: %v %+v", may, v)
	}
	if s.take("b") {
		t.Fatal("a second flight")
	}
	if may, _ := s.f.MaySend(s.flies["b"], 0); !may {
		t.Fatal("it counts, and may not leave")
	}
}

// What was called back is neither sent nor waited for.
func TestWhatIsCalledBackIsForgotten(t *testing.T) {
	t.Parallel()
	none := func(string, uint32, string, uint32) bool { return false }
	all := func(string, uint32, string, uint32) bool { return true }
	s := newSky()
	s.f.Prune(About{Plan: "p", Action: "b"}, all)
	if dropped := s.f.Prune(About{Plan: "p", Action: "b"}, none); dropped != nil {
		t.Fatalf("it was not sent: %+v", dropped)
	}
	if got := s.answer("c", api.StatusDone, 0); got != "answers 1" {
		t.Errorf("%q", got)
	}
	s = newSky()
	s.answer("c", api.StatusDone, 0)
	if dropped := s.f.Prune(About{Plan: "p", Action: "b"}, none); dropped != s.flies["b"] {
		t.Fatalf("it was sent: %+v", dropped)
	}
	if got := s.answer("b", api.StatusDone, 0); got != "answers 1" {
		t.Errorf("done all the same: %q", got)
	}
	s = newSky()
	s.answer("c", api.StatusDone, 0)
	s.answer("b", api.StatusDone, 0)
	s.f.Prune(About{Plan: "p", Action: "b"}, none)
	if !s.take("b") {
		t.Error("it is not sent again, as it was done before it was called back")
	}
}

// What counts before the one that it was to go behind is done leaves at once, and once.
func TestWhatCountsIsHeldNoMore(t *testing.T) {
	t.Parallel()
	s := newSky()
	if !s.take("b") {
		t.Fatal("it is not sent")
	}
	if got := s.answer("c", api.StatusDone, 0); got != "answers 1" {
		t.Errorf("it is sent twice: %q", got)
	}
}

// The answers of a run that comes to a halt are handed over after a while, once.
func TestAnswersOfARunAreHandedOver(t *testing.T) {
	t.Parallel()
	s := newSky()
	v := s.f.Result(s.flies["c"], Result{Fate: Replied, Reply: api.Reply{Status: api.StatusDone}}, Instant{})
	s.said(v)
	if got := s.f.HandOver(v.Run); len(got) != 1 || len(s.f.HandOver(v.Run)) != 0 {
		t.Fatalf("%+v", got)
	}
	if got := s.answer("b", api.StatusDone, 0); got != "send a, wait" {
		t.Errorf("the next one waits, too: %q", got)
	}
}

// TestAnInstantThatNoOneCanCountIsLate: a worker that says so is asked again as late as may be, and
// not at once.
func TestAnInstantThatNoOneCanCountIsLate(t *testing.T) {
	for _, until := range []int64{ledger.InstantMax / 1e6, 1 << 53, 1<<63 - 1} {
		s := newSky()
		v := s.f.Result(s.flies["c"], Result{Fate: Replied,
			Reply: api.Reply{Status: api.StatusWorking, UntilMs: until}}, Instant{EpochNs: 1})
		if v.InNs != int64(WorkingMax) || s.flies["c"].AgainNs != int64(WorkingMax)+1 {
			t.Errorf("until %d: asked again in %d ns, at %d", until, v.InNs, s.flies["c"].AgainNs)
		}
	}
}

// TestAWorkerPutsOffItsAnswerForALimitedTime: after that the attempt has none.
func TestAWorkerPutsOffItsAnswerForALimitedTime(t *testing.T) {
	t.Parallel()
	s := newSky()
	working := Result{Fate: Replied, Reply: api.Reply{Status: api.StatusWorking}}
	if v := s.f.Result(s.flies["c"], working, Instant{MonoNs: int64(WorkingMax)}); v.Ended || !v.Again {
		t.Fatalf("%+v", v)
	}
	v := s.f.Result(s.flies["c"], working, Instant{MonoNs: int64(WorkingMax) + 1})
	if !v.Ended || v.Again || len(v.Answers) != 1 || v.Answers[0].Reply != nil {
		t.Errorf("%+v", v)
	}
}

// TestThatNoWorkerTakesACommandIsSeenWithoutABreak: what was not sent says nothing of workers, and
// a worker that has come since may have had it.
func TestThatNoWorkerTakesACommandIsSeenWithoutABreak(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		between Result
		reached bool
	}{
		{"it was not sent", Result{Fate: Unsent}, false},
		{"a worker had it", Result{Fate: Replied, Reply: api.Reply{Status: api.StatusWorking}}, true},
	} {
		var f Flights
		s := undoOf("a", "")
		s.UnservedNs, s.UnservedAfterNs = 1, int64(time.Hour)
		x, _ := f.Take(s, 0)
		at := func(seen time.Duration, r Result) Verdict {
			return f.Result(x, r, Instant{EpochNs: int64(time.Hour), MonoNs: int64(seen)})
		}
		at(0, Result{Fate: NoWorker})
		at(UnservedSeen-1, c.between)
		for _, seen := range []time.Duration{UnservedSeen, 2*UnservedSeen - 1} {
			if v := at(seen, Result{Fate: NoWorker}); len(v.Answers) != 0 {
				t.Errorf("%s: after %s nobody has taken it: %+v", c.name, seen, v)
			}
		}
		v := at(2*UnservedSeen, Result{Fate: NoWorker})
		if len(v.Answers) != 1 || !v.Answers[0].Unserved || v.Answers[0].Reached != c.reached {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
}

// TestThatNoWorkerTakesACommandIsStillSoWhenItIsRecorded: no copy leaves between the decision and its
// record, and none is on its way then. What came to a worker meanwhile is told with it.
func TestThatNoWorkerTakesACommandIsStillSoWhenItIsRecorded(t *testing.T) {
	t.Parallel()
	var f Flights
	s, second := undoOf("a", ""), undoOf("b", "")
	second.Number = 2
	x, _ := f.Take(s, 0)
	other, _ := f.Take(second, 0)
	answer := executor.Answer{Plan: "p", Number: x.Command.Number, Purpose: ledger.PurposeUndo,
		Attempt: x.Attempt.Number, Unserved: true}
	replied := executor.Answer{Plan: "p", Number: 9, Reply: &api.Reply{}}
	decide := func(want ...executor.Answer) {
		t.Helper()
		if got := f.Decide([]executor.Answer{answer, replied}); !slices.Equal(got, want) {
			t.Errorf("it is decided on %+v, want %+v", got, want)
		}
	}
	leaves := func(x *Flight, want bool) {
		t.Helper()
		if may, v := f.MaySend(x, 0); may != want || v.Again == want {
			t.Errorf("%s may leave: %v, %+v", x.Attempt.Action, may, v)
		}
	}
	leaves(x, true)
	decide(replied) // a copy is on its way
	f.Result(x, Result{Fate: NoWorker}, Instant{})
	decide(answer, replied)
	leaves(x, false)
	leaves(other, true)
	f.Resume()
	leaves(x, true)
	f.Result(x, Result{Fate: Overheard}, Instant{})
	reached := answer
	reached.Reached = true
	decide(reached, replied)
	f.Resume()
	for _, wrong := range []executor.Answer{
		{Plan: "q", Number: answer.Number, Purpose: answer.Purpose, Attempt: answer.Attempt, Unserved: true},
		{Plan: "p", Number: answer.Number + 7, Purpose: answer.Purpose, Attempt: answer.Attempt, Unserved: true},
		{Plan: "p", Number: answer.Number, Purpose: api.PurposeProbe, Attempt: answer.Attempt, Unserved: true},
		{Plan: "p", Number: answer.Number, Purpose: answer.Purpose, Attempt: answer.Attempt + 1, Unserved: true},
	} {
		if got := f.Decide([]executor.Answer{wrong}); len(got) > 0 {
			t.Errorf("no command of it is on its way: %+v", got)
		}
	}
}

// TestAFirstCopyThatIsLateLeavesUnderTheLock: by when its provider may have forgotten the key, a host
// that has taken the tenant over may have sent one of its own.
func TestAFirstCopyThatIsLateLeavesUnderTheLock(t *testing.T) {
	t.Parallel()
	var f Flights
	undo := undoOf("a", "")
	undo.ResendUntilNs = 100
	x, _ := f.Take(undo, 0)
	if may, _ := f.MaySend(x, 100); !may {
		t.Error("a first copy may not leave while its provider knows the key")
	}
	if may, v := f.MaySend(x, 101); may || !v.Again || v.Ended {
		t.Errorf("without a lock it may leave later: %v %+v", may, v)
	}
	f.MayRun = func() bool { return true }
	if may, _ := f.MaySend(x, 101); !may {
		t.Error("a first copy that no worker took in time may not leave")
	}
}

// TestADeliveryLeavesOnceAndUnderTheLock: without the lock nothing leaves, and what may have reached
// a worker is not sent again once its provider may have forgotten the key. An undo needs no lock.
func TestADeliveryLeavesOnceAndUnderTheLock(t *testing.T) {
	t.Parallel()
	var f Flights
	delivery := undoOf("m", "")
	delivery.Delivers, delivery.ResendUntilNs = true, 100
	x, _ := f.Take(delivery, 0)
	if may, v := f.MaySend(x, 1); may || !v.Again {
		t.Errorf("without a lock it may leave: %v %+v", may, v)
	}
	f.MayRun = func() bool { return false }
	if may, _ := f.MaySend(x, 1); may {
		t.Error("it may leave when another host may hold the tenant")
	}
	f.MayRun = func() bool { return true }
	if may, _ := f.MaySend(x, 101); !may {
		t.Error("a first copy may not leave")
	}
	delivery.Resent, delivery.Action = true, "n"
	x, _ = f.Take(delivery, 0)
	if may, _ := f.MaySend(x, 100); !may {
		t.Error("a copy may not leave while its provider knows the key")
	}
	if may, v := f.MaySend(x, 101); may || len(v.Answers) != 1 || v.Answers[0].Reply != nil {
		t.Errorf("a copy may leave later, or lands with an answer: %v %+v", may, v)
	}
	delivery.Resent, delivery.Unsure, delivery.Action = false, true, "o"
	x, _ = f.Take(delivery, 0)
	if may, _ := f.MaySend(x, 100); !may {
		t.Error("an attempt after a doubtful one may not leave while its provider knows the key")
	}
	if may, v := f.MaySend(x, 101); may || len(v.Answers) != 1 {
		t.Errorf("an attempt after a doubtful one that no one took in time may leave: %v %+v", may, v)
	}
	f.MayRun = nil
	undo, _ := f.Take(undoOf("a", ""), 0)
	if may, _ := f.MaySend(undo, 1); !may {
		t.Error("an undo waits for the lock")
	}
}

// TestTheAnswerToACopyIsToldFromThatToTheFirst, as another one may be at work.
func TestTheAnswerToACopyIsToldFromThatToTheFirst(t *testing.T) {
	t.Parallel()
	failed := Result{Fate: Replied, Reply: api.Reply{Status: api.StatusFailed, Code: "locked"}}
	working := Result{Fate: Replied, Reply: api.Reply{Status: api.StatusWorking}}
	for name, c := range map[string]struct {
		resent  bool
		before  []Result
		reached bool
	}{
		"the first":                    {},
		"after one that no one took":   {before: []Result{{Fate: NoWorker}, {Fate: Unsent}}},
		"after one that is at work":    {before: []Result{working}, reached: true},
		"after one that was overheard": {before: []Result{{Fate: Overheard}}, reached: true},
		"after an earlier holder's":    {resent: true, reached: true},
	} {
		var f Flights
		sending := undoOf("m", "")
		sending.Resent = c.resent
		x, _ := f.Take(sending, 0)
		for _, r := range c.before {
			f.Result(x, r, Instant{})
		}
		if v := f.Result(x, failed, Instant{}); len(v.Answers) != 1 || v.Answers[0].Reached != c.reached {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// TestAWorkerOfAnotherVersionCostsNothing: it has done nothing, so the attempt goes on, is sent again
// soon, and is told as unserved when there is no other worker; also where the right one is at work.
func TestAWorkerOfAnotherVersionCostsNothing(t *testing.T) {
	t.Parallel()
	other := Result{Fate: Replied, Reply: api.Reply{Status: api.StatusFailed, Code: api.CodeWorkerVersion}}
	for _, working := range []bool{false, true} {
		var f Flights
		s := undoOf("a", "")
		s.WorkerVersion, s.ResendUntilNs = "2", 1
		s.UnservedNs, s.UnservedAfterNs = 1, int64(UnservedSeen)
		x, _ := f.Take(s, 0)
		if working {
			f.Result(x, Result{Fate: Replied, Reply: api.Reply{Status: api.StatusWorking}}, Instant{})
		}
		waited := int64(0)
		for n := range 32 {
			v := f.Result(x, other, Instant{EpochNs: int64(time.Hour), MonoNs: waited})
			if v.Ended || !v.Again || len(v.Answers) != 0 || x.Reached != working || x.Tries != n+1 {
				t.Fatalf("working %t, try %d: %+v", working, n, v)
			}
			waited += v.InNs
		}
		if waited > int64(12*time.Second) {
			t.Errorf("32 tries take %s", time.Duration(waited))
		}
		for range 100 {
			v := f.Result(x, other, Instant{EpochNs: int64(time.Hour), MonoNs: int64(UnservedSeen)})
			if v.Ended || len(v.Answers) != 1 || !v.Answers[0].Unserved || v.InNs > int64(WorkerWaitMax) {
				t.Fatalf("working %t: %+v", working, v)
			}
		}
		f.MayRun = func() bool { return true }
		if may, _ := f.MaySend(x, 2); may == working {
			t.Errorf("working %t: a copy may be sent again: %t", working, may)
		}
	}
	for _, c := range []struct{ what, status, version string }{
		{"one that says stop", api.StatusStop, "2"},
		{"a command that asks for none", api.StatusFailed, ""},
	} {
		var f Flights
		s := undoOf("a", "")
		s.WorkerVersion = c.version
		x, _ := f.Take(s, 0)
		refused := Result{Fate: Replied, Reply: api.Reply{Status: c.status, Code: api.CodeWorkerVersion}}
		if v := f.Result(x, refused, Instant{}); !v.Ended || len(v.Answers) != 1 {
			t.Errorf("%s: %+v", c.what, v)
		}
	}
}
