package host

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/actuators"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// offered is a command that is its owner's when nobody takes it until then.
func offered(until, after time.Duration) executor.Command {
	c := command()
	c.UnservedNs, c.UnservedAfterNs = time.Now().Add(until).UnixNano(), int64(after)
	return c
}

func TestACommandThatNobodyTakesIsToldAgainAndAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		offered func() executor.Command
		resent  bool
		fate    actuators.Fate
		from    time.Duration // then it is told; 0: never
	}{
		{"a new one", func() executor.Command {
			return offered(10*time.Minute, 10*time.Minute)
		}, false, actuators.NoWorker, 10 * time.Minute},
		{"one that a restart finds", func() executor.Command {
			return offered(-time.Hour, 10*time.Minute)
		}, true, actuators.NoWorker, turn.UnservedSeen},
		{"one that a restart finds, in a hurry", func() executor.Command {
			return offered(-time.Hour, 2*time.Second)
		}, true, actuators.NoWorker, 2 * time.Second},
		{"one that cannot be sent", func() executor.Command { return offered(time.Minute, time.Minute) }, false,
			actuators.Unsent, 0},
		{"one that needs no worker", command, false, actuators.NoWorker, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{results: []actuators.Result{{Fate: c.fate}}}
				d := newDispatcher(new(turn.Flights), s, instant, nil)
				defer d.stop()
				if c.resent {
					d.send(turn.Sending{Command: c.offered(), Resent: true})
				} else {
					d.send(turn.Sending{Command: c.offered()})
				}
				if c.from == 0 {
					<-time.After(2 * time.Hour)
					if told := d.take(); len(told) != 0 {
						t.Fatalf("%+v", told)
					}
					return
				}
				<-time.After(c.from - time.Nanosecond)
				synctest.Wait()
				if told := d.take(); len(told) != 0 {
					t.Fatalf("too early: %+v", told)
				}
				for range 2 {
					<-time.After(2 * turn.WorkerWaitMax)
					synctest.Wait()
					told := d.take()
					if len(told) == 0 || !told[0].Unserved || told[0].Reply != nil || told[0].Attempt != 1 ||
						told[0].Reached != c.resent {
						t.Fatalf("%+v", told)
					}
				}
				if w := d.waiting(); len(w) != 1 || w[0].UnservedNs == 0 {
					t.Fatalf("it waits no longer: %+v", w)
				}
			})
		})
	}
}

// A worker that has it may be at work; only when nobody serves for as long again is it
// given up, and then in doubt.
func TestAWorkerThatGoesAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{results: []actuators.Result{working(time.Now().Add(5 * time.Minute).UnixMilli()),
			{Fate: actuators.NoWorker}}}
		d := newDispatcher(new(turn.Flights), s, instant, nil)
		defer d.stop()
		d.send(turn.Sending{Command: offered(2*time.Minute, 2*time.Minute)})
		<-time.After(5*time.Minute + 50*time.Second)
		synctest.Wait()
		if told := d.take(); len(told) != 0 {
			t.Fatalf("%+v", told)
		}
		<-time.After(20 * time.Second)
		synctest.Wait()
		if told := d.take(); len(told) == 0 || !told[0].Unserved || !told[0].Reached {
			t.Fatalf("%+v", told)
		}
	})
}

func TestAnUndoThatNobodyWaitsForIsHandedOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		results := make(chan actuators.Result)
		d := newDispatcher(new(turn.Flights), slowly(results), instant, nil)
		defer d.stop()
		d.send(turn.Sending{Command: command()})
		of := []turn.About{{Plan: "p", Action: "a"}}
		d.prune(of, func(string, uint32, string, uint32) bool { return true })
		if d.flights.Len() != 1 {
			t.Fatal("dropped, and its call waits for the answer")
		}
		d.prune(of, settled)
		results <- actuators.Result{Fate: actuators.Replied, Reply: api.Reply{Status: api.StatusDone, Worker: "w1"}}
		if a := landed(t, d); a.Reply.Worker != "w1" || a.Plan != "p" || a.Attempt != 1 || len(d.waiting()) != 0 {
			t.Fatalf("%+v", a)
		}
	})
}

// slowly gives each sending the next of some results.
type slowly chan actuators.Result

// Send implements Actuator.
func (s slowly) Send(_ api.Command, done func(actuators.Result)) { go func() { done(<-s) }() }

func TestS50AnUndoThatNobodyServesIsItsOwners(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.host("h1")
	failed := func(plan, capability string, after time.Duration) {
		r.append(ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "agent", Plan: plan},
			&pb.Record{Plan: plan, Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{}}},
			&pb.Record{Plan: plan, Action: "a",
				Kind: &pb.Record_ForwardRegistered{ForwardRegistered: &pb.ForwardRegistered{
					Capability: "do.x", Class: pb.Class_CLASS_COMPENSABLE}}},
			&pb.Record{Plan: plan, Action: "a",
				Kind: &pb.Record_CompensationRegistered{CompensationRegistered: &pb.CompensationRegistered{
					Capability: capability, UnservedAfterNs: int64(after)}}},
			&pb.Record{Plan: plan, Action: "a", Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{}}})
		r.fail(plan)
	}
	failed("waits", "undo.y", 24*time.Hour) // what is seen meanwhile must not end meanwhile
	var answer api.PlanAnswer
	r.eventually("it says until when", func() bool {
		return r.ask("plan.show", api.PlanQuery{Plan: "waits"}, &answer) == nil && len(answer.Plan.Actions) == 1 &&
			answer.Plan.Actions[0].NoWorker &&
			strings.Contains(answer.Plan.Actions[0].WaitsFor, "its owner's at 2")
	})
	var due api.UpcomingAnswer
	if err := r.ask("due.ls", api.ListQuery{}, &due); err != nil || len(due.Upcoming.Due) != 1 ||
		due.Upcoming.Due[0].Kind != "unserved" {
		t.Fatalf("%+v, %v", due, err)
	}
	failed("p", "undo.x", time.Second)
	if got := r.ended("p"); got.State != ledger.StateQuarantined {
		t.Fatalf("%+v", got)
	}
	refused := r.records(func(rec *pb.Record) bool { return rec.GetCompensationFailed() != nil })
	quarantined := r.records(func(rec *pb.Record) bool { return rec.GetActionQuarantined() != nil })
	if len(refused) != 1 || !refused[0].Record.GetCompensationFailed().Unserved || len(quarantined) != 1 ||
		quarantined[0].Record.GetActionQuarantined().Reason != "no worker serves undo.x for 1s" {
		t.Fatalf("%v, %v", refused, quarantined)
	}
	if waiting := r.status().Waiting; len(waiting) != 1 || waiting[0].Plan != "waits" {
		t.Errorf("%+v wait still", waiting)
	}
	r.serve(done)
	r.append(ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: "ann"}, &pb.Record{Plan: "p", Action: "a",
		Kind: &pb.Record_RetryRequested{RetryRequested: &pb.RetryRequested{Actor: "ann", Reason: "the worker is there"}}})
	r.eventually("it is undone", func() bool { return r.show("p").State == ledger.StateCompensated })
}

// A commit asks about an action, and its agent says what came of it before a worker does:
// then nobody waits for the answer, and the question is not asked any more.
func TestAQuestionThatNobodyWaitsForIsNotAskedAnyMore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.host("h1")
	inDoubt := &pb.Record{Plan: "p", Action: "a",
		Kind: &pb.Record_ForwardInDoubt{ForwardInDoubt: &pb.ForwardInDoubt{Code: "timeout"}}}
	commit := &pb.Record{Plan: "p", Kind: &pb.Record_PlanCommitted{PlanCommitted: &pb.PlanCommitted{}}}
	records := append([]*pb.Record{opened("p", &pb.PlanOpened{})}, pair("p", "a", charge())...)
	r.append(agentOf("agent", "p"), append(records, inDoubt, commit)...)
	r.eventually("the question has found nobody", func() bool {
		waiting := r.status().Waiting
		return len(waiting) == 1 && waiting[0].Tries > 0
	})
	r.append(agentOf("agent", "p"), completed("p", "a", "r1"))
	r.eventually("the plan is committed", func() bool { return r.show("p").State == ledger.StateCommitted })
	if waiting := r.status().Waiting; len(waiting) != 0 {
		t.Errorf("%+v", waiting)
	}
}

// TestAListenerIsNotTakenForAWorker: with a terminal and a stream on the subjects, an undo and a
// question wait as they do where nobody serves, until a worker comes.
func TestAListenerIsNotTakenForAWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.host("h1")
	for _, subject := range []string{"undo.>", "ask.>"} {
		if _, err := r.conn.Subscribe(subject, func(*nats.Msg) {}); err != nil {
			t.Fatal(err)
		}
	}
	js, err := r.conn.JetStream()
	if err == nil {
		_, err = js.AddStream(&nats.StreamConfig{Name: "EARS", Subjects: []string{"undo.>", "ask.>"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	quick := charge() // with attempts for a machine that is slow once the worker is there
	quick.TimeoutNs, quick.Attempts = int64(20e6), 50
	quick.Probe.Call.TimeoutNs, quick.Probe.Call.Attempts = int64(20e6), 50
	r.charged("known", "ch_1", quick)
	records := append([]*pb.Record{opened("doubted", &pb.PlanOpened{})}, pair("doubted", "a", quick)...)
	r.append(agentOf("agent", "doubted"), append(records, &pb.Record{Plan: "doubted", Action: "a",
		Kind: &pb.Record_ForwardInDoubt{ForwardInDoubt: &pb.ForwardInDoubt{Code: "timeout"}}})...)
	r.fail("doubted")
	r.eventually("both wait, visibly", func() bool {
		waiting := r.status().Waiting
		return len(waiting) == 2 && waiting[0].Tries > 2 && waiting[1].Tries > 2 && waiting[0].Heard && waiting[1].Heard
	})
	if spent := r.records(func(rec *pb.Record) bool {
		return rec.GetCompensationFailed() != nil || rec.GetProbeAnswered() != nil
	}); len(spent) > 0 {
		t.Fatalf("attempts are spent: %v", spent)
	}
	calls := api.ServedQuery{Calls: []api.ServedCall{{Capability: "charge.refund", Undo: true},
		{Capability: quick.Probe.Call.Capability}}}
	var answer api.ServedAnswer
	if err := r.ask("worker.served", calls, &answer); err != nil || answer.Calls[0].Served != api.ServedListener ||
		answer.Calls[1].Served != api.ServedListener {
		t.Errorf("%+v, %v", answer, err)
	}
	var workers api.WorkersAnswer
	if err := r.ask("worker.ls", struct{}{}, &workers); err != nil || len(workers.Workers) != 1 ||
		workers.Workers[0].Served != api.ServedListener {
		t.Errorf("%+v, %v", workers, err)
	}
	r.provide("ch_1")
	r.eventually("a worker undoes it", func() bool { return r.show("known").State == ledger.StateCompensated })
}

// Who serves what contracts call is asked of the servers, and known from answers and from
// commands on their way where they do not tell.
func TestWhoServesACallIsKnownAsFarAsItCanBe(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.host("h1")
	r.eventually("holding", func() bool { return r.status().Mode == api.ModeHolding })
	calls := api.ServedQuery{Calls: []api.ServedCall{{Capability: "undo.a", Undo: true, Version: "v2"}}}
	asked := func() api.Served {
		t.Helper()
		var answer api.ServedAnswer
		if err := r.ask("worker.served", calls, &answer); err != nil || len(answer.Calls) != 1 ||
			answer.Calls[0].ServedCall != calls.Calls[0] {
			t.Fatalf("%+v, %v", answer, err)
		}
		return answer.Calls[0]
	}
	if got := asked(); got.Served != api.ServedNo || got.HeardNs != 0 || got.OtherVersion != "" {
		t.Errorf("%+v", got)
	}
	tooMany := api.ServedQuery{Calls: make([]api.ServedCall, 1001)}
	if err := r.ask("worker.served", tooMany, &api.ServedAnswer{}); !strings.Contains(says(err), "at most 1000") {
		t.Error(err)
	}
	r.plan("p", 1, 0)
	r.fail("p")
	calls.Calls[0].Capability = "undo.x"
	r.eventually("its command has found nobody", func() bool {
		for _, w := range r.status().Waiting {
			calls.Calls[0].Capability = w.Capability
			return w.Tries > 0
		}
		return false
	})
	if got := asked(); got.Served != "no" {
		t.Errorf("%+v", got)
	}
}
