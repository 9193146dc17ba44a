package host

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/actuators"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// script is an actuator that gives its results in turn, the last one for ever.
type script struct {
	results []actuators.Result
	sent    []ledger.Command
}

func (s *script) Send(c ledger.Command, done func(actuators.Result)) {
	s.sent = append(s.sent, c)
	r := s.results[0]
	if len(s.results) > 1 {
		s.results = s.results[1:]
	}
	go done(r)
}

func working(until int64) actuators.Result {
	return actuators.Result{Fate: actuators.Replied, Reply: ledger.Reply{Status: ledger.StatusWorking, UntilMs: until}}
}

func command() executor.Command {
	return executor.Command{Number: 1, Command: ledger.Command{Plan: "p", Action: "a", Capability: "x", Key: "k", Attempt: 1}}
}

func TestAWorkerThatIsAlwaysWorkingIsSeenAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{results: []actuators.Result{working(math.MaxInt64 / 2), working(0)}}
		d := newDispatcher(s)
		d.send(command())
		synctest.Wait()
		if w := d.waiting(); len(w) != 1 || !w[0].Working {
			t.Fatalf("not seen: %+v", w)
		}
		start := time.Now()
		<-d.wake
		if answers := d.take(); len(answers) != 1 || answers[0].Reply != nil {
			t.Fatalf("%+v", answers)
		}
		if took := time.Since(start); took > 2*workingMax {
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
	synctest.Test(t, func(t *testing.T) {
		s := &script{results: []actuators.Result{{Fate: actuators.NoWorker}}}
		d := newDispatcher(s)
		d.send(command())
		d.send(command()) // the same attempt flies once
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
		d.forget(attemptID{"p", "a", 1})
		before := len(s.sent)
		<-time.After(time.Minute)
		if len(s.sent) != before || len(d.waiting()) != 0 {
			t.Fatal("sent after it was settled")
		}
		d.stop()
	})
}
