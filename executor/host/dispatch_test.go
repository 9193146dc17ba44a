package host

import (
	"context"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/actuators"
	"github.com/sagenbaum/sagenbaum/executor/host/page"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// send has a command leave as a session has it.
func (d *dispatcher) send(s turn.Sending) { d.flights.Send(s, d.now().MonoNs, d) }

// prune has a session say that the ledger has settled actions.
func (d *dispatcher) prune(actions []turn.About,
	waits func(plan string, n uint32, purpose string, attempt uint32) bool) {
	d.flights.PruneAll(actions, waits, d)
}

// script is an actuator that gives its results in turn, the last one for ever.
type script struct {
	results []actuators.Result
	sent    []api.Command
}

func (s *script) Send(c api.Command, done func(actuators.Result)) {
	s.sent = append(s.sent, c)
	r := s.results[0]
	if len(s.results) > 1 {
		s.results = s.results[1:]
	}
	go done(r)
}

func working(until int64) actuators.Result {
	return actuators.Result{Fate: actuators.Replied, Reply: api.Reply{Status: api.StatusWorking, UntilMs: until}}
}

func command() executor.Command {
	return executor.Command{Number: 1, Command: api.Command{Purpose: ledger.PurposeUndo, Plan: "p", Action: "a",
		Capability: "x", Key: "k", Attempt: 1}}
}

func TestADispatcherThatHasStoppedSendsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{results: []actuators.Result{{Fate: actuators.NoWorker}}}
		d := newDispatcher(new(turn.Flights), s, instant, nil)
		d.send(turn.Sending{Command: command()})
		synctest.Wait()
		d.stop()
		other := command()
		other.Number, other.Key = 2, "k2"
		d.send(turn.Sending{Command: other})
		<-time.After(time.Minute) // the first would go out again
		if len(s.sent) != 1 || len(d.take()) != 0 {
			t.Errorf("%d commands, and answers to them, after its end", len(s.sent)-1)
		}
	})
}

func TestAWorkerThatIsAlwaysWorkingIsSeenAndEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{results: []actuators.Result{working(math.MaxInt64 / 2), working(0)}}
		d := newDispatcher(new(turn.Flights), s, instant, nil)
		d.send(turn.Sending{Command: command()})
		synctest.Wait()
		start := time.Now()
		if w := d.waiting(); len(w) != 1 || !w[0].Working ||
			w[0].AgainNs != start.Add(turn.WorkingMax).UnixNano() {
			t.Fatalf("not seen: %+v", w)
		}
		<-d.wake
		if answers := d.take(); len(answers) != 1 || answers[0].Reply != nil {
			t.Fatalf("%+v", answers)
		}
		if took := time.Since(start); took > 2*turn.WorkingMax {
			t.Fatalf("after %s", took)
		}
		for _, c := range s.sent {
			if c.Key != "k" || c.Attempt != 1 {
				t.Fatalf("%+v", c)
			}
		}
		d.stop()
	})
}

func TestACommandWithoutAWorkerWaitsWithBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{results: []actuators.Result{{Fate: actuators.NoWorker}}}
		d := newDispatcher(new(turn.Flights), s, instant, nil)
		d.send(turn.Sending{Command: command()})
		d.send(turn.Sending{Command: command()}) // the same attempt flies once
		<-time.After(time.Minute)
		synctest.Wait()
		if w := d.waiting(); len(w) != 1 || w[0].Working || w[0].Tries != len(s.sent) {
			t.Fatalf("%+v after %d sendings", w, len(s.sent))
		}
		if n := len(s.sent); n < 12 || n > 25 {
			t.Fatalf("%d sendings in a minute", n)
		}
		if answers := d.take(); len(answers) != 0 {
			t.Fatalf("no worker is no answer: %+v", answers)
		}
		of := []turn.About{{Plan: "p", Action: "a"}}
		d.prune(of, func(_ string, _ uint32, purpose string, attempt uint32) bool {
			return purpose == ledger.PurposeUndo && attempt == 1
		})
		if len(d.waiting()) != 1 {
			t.Fatal("the answer to a question has settled an undo")
		}
		d.prune(of, settled)
		before := len(s.sent)
		<-time.After(time.Minute)
		if len(s.sent) != before || len(d.waiting()) != 0 {
			t.Fatal("sent after it was settled")
		}
		d.stop()
	})
}

// silence that no worker can break before the attempt's timeout.
var silence = actuators.Result{Fate: actuators.Silent}

func until(c executor.Command, d time.Duration) executor.Command {
	c.ResendUntilNs = time.Now().Add(d).UnixNano()
	return c
}

// landed takes the one answer that has come.
func landed(t *testing.T, d *dispatcher) executor.Answer {
	t.Helper()
	<-d.wake
	answers := d.take()
	if len(answers) != 1 {
		t.Fatalf("%+v", answers)
	}
	return answers[0]
}

func TestS108NoCopyGoesOutWhenItsProviderMayHaveForgottenTheKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{results: []actuators.Result{working(0), silence}}
		d := newDispatcher(new(turn.Flights), s, instant, nil)
		d.send(turn.Sending{Command: until(command(), 10*time.Second)})
		start := time.Now()
		if a := landed(t, d); a.Reply != nil || a.Purpose != ledger.PurposeUndo || a.Attempt != 1 || a.Number != 1 {
			t.Fatalf("%+v", a)
		}
		if took := time.Since(start); took < 10*time.Second || took > 10*time.Second+turn.WorkerWaitMax {
			t.Fatalf("after %s", took)
		}
		if len(s.sent) != 3 { // at 0 s, and on from the worker's word at 1 s and 6 s
			t.Fatalf("%d sendings", len(s.sent))
		}
		// After a restart nobody knows whether the command had reached a worker.
		old := command()
		old.Attempt, old.ResendUntilNs = 2, time.Now().UnixNano()-1
		d.send(turn.Sending{Command: old, Resent: true})
		if a := landed(t, d); a.Reply != nil || a.Attempt != 2 {
			t.Fatalf("%+v", a)
		}
		if len(s.sent) != 3 {
			t.Fatal("a copy went out after the window")
		}
		fresh := command()
		fresh.Attempt = 3
		d.send(turn.Sending{Command: until(fresh, time.Hour), Resent: true})
		if a := landed(t, d); a.Attempt != 3 || len(s.sent) != 4 {
			t.Fatalf("a copy inside the window is held back: %+v, %d sendings", a, len(s.sent))
		}
		d.stop()
	})
}

func TestACommandThatReachedNobodyGoesOutAtAnyTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nobody := actuators.Result{Fate: actuators.NoWorker}
		s := &script{results: []actuators.Result{nobody, nobody, nobody, nobody, nobody,
			{Fate: actuators.Replied, Reply: api.Reply{Status: api.StatusDone}}}}
		d := newDispatcher(&turn.Flights{MayRun: func() bool { return true }}, s, instant, nil)
		d.send(turn.Sending{Command: until(command(), time.Millisecond)})
		if a := landed(t, d); a.Reply == nil || a.Reply.Status != api.StatusDone || len(s.sent) != 6 {
			t.Fatalf("%+v after %d sendings", a, len(s.sent))
		}
		d.stop()
	})
}

func TestACommandTakesThePlaceOfTheOneBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{results: []actuators.Result{{Fate: actuators.NoWorker}}}
		d := newDispatcher(new(turn.Flights), s, instant, nil)
		d.send(turn.Sending{Command: command()})
		probe := command()
		probe.Purpose, probe.Capability = api.PurposeProbe, "x.get"
		d.send(turn.Sending{Command: probe})
		<-time.After(time.Minute)
		synctest.Wait()
		for i, c := range s.sent {
			if i > 0 && c.Purpose != api.PurposeProbe {
				t.Fatalf("sending %d is %+v", i, c)
			}
		}
		if w := d.waiting(); len(w) != 1 || w[0].Capability != "x.get" {
			t.Fatalf("%+v", w)
		}
		d.prune([]turn.About{{Plan: "p", Action: "a"}}, settled)
		before := len(s.sent)
		<-time.After(time.Minute)
		if len(s.sent) != before {
			t.Fatal("sent after nobody asks any more")
		}
		d.stop()
	})
}

// A command without a worker, and one whose worker says working for ever, call
// operators once each, after a while and not before.
func TestACommandThatFindsNoEndIsSaidOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lost := executor.Command{Number: 1, Command: api.Command{Purpose: ledger.PurposeUndo, Plan: "p", Action: "a",
			Attempt: 1, Capability: "x.y", Address: "1.0-ab", Tenant: "t"}}
		busy := lost
		busy.Action = "b"
		answers := func(c api.Command) actuators.Result {
			if c.Action == "a" {
				return actuators.Result{Fate: actuators.NoWorker}
			}
			return actuators.Result{Fate: actuators.Replied,
				Reply: api.Reply{Status: api.StatusWorking, UntilMs: time.Now().Add(2 * time.Second).UnixMilli()}}
		}
		d := newDispatcher(new(turn.Flights), always(answers), instant, nil)
		var said []api.Page
		d.stuckAfter = time.Minute
		d.stuck = func(f *flight, since time.Time) { said = append(said, page.Stuck(f.Command, f.Working, since)) }
		d.send(turn.Sending{Command: lost})
		d.send(turn.Sending{Command: busy})
		wait(t, 55*time.Second)
		d.mu.Lock()
		if len(said) != 0 {
			t.Errorf("said too early: %+v", said)
		}
		d.mu.Unlock()
		wait(t, 5*time.Minute)
		d.mu.Lock()
		if len(said) != 2 || said[0].ID == said[1].ID && said[0].Action == said[1].Action {
			t.Errorf("%+v", said)
		}
		for _, page := range said {
			want := map[string]string{"a": "no worker serves x.y, since ",
				"b": "a worker of x.y says that it is still working, since "}[page.Action]
			if !strings.HasPrefix(page.Reason, want) || page.Kind != api.PageStuckWorker {
				t.Errorf("%+v", page)
			}
		}
		d.mu.Unlock()
		d.stop()
	})
}

// TestAnAnswerDoesNotWaitForASlowWorker: those of a run are handed over together, and the first of
// them waits for the next one for a moment only.
func TestAnAnswerDoesNotWaitForASlowWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := command(), command()
		second.Action, second.Number, second.Behind, second.UntilNs = "b", 2, "a", math.MaxInt64
		slow := make(chan struct{})
		d := newDispatcher(new(turn.Flights), always(func(c api.Command) actuators.Result {
			if c.Action == "b" {
				<-slow
			}
			return actuators.Result{Fate: actuators.Replied, Reply: api.Reply{Status: api.StatusDone}}
		}), instant, nil)
		d.flights.MayRun = func() bool { return true }
		d.flights.Hold(turn.Sending{Command: second})
		d.send(turn.Sending{Command: first})
		start := time.Now()
		if a := landed(t, d); a.Number != 1 || time.Since(start) > turn.RunHoldMax {
			t.Errorf("%+v after %s", a, time.Since(start))
		}
		close(slow)
		if a := landed(t, d); a.Number != 2 {
			t.Errorf("%+v", a)
		}
		d.stop()
	})
}

// always answers every sending at once.
type always func(api.Command) actuators.Result

func (a always) Send(c api.Command, done func(actuators.Result)) { go done(a(c)) }

// wait lets time pass in a bubble.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	<-ctx.Done()
	synctest.Wait()
}
