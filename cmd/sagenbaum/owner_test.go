package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// scene is a server with an agent that books trips and a worker that frees them,
// in one process with the test, which drives the command line.
type scene struct {
	*cmdtest.Served
	conn   *nats.Conn
	agent  *coordinator.Coordinator
	worker *worker.Worker

	mu     sync.Mutex
	free   worker.Handler // what room.free does now
	refund worker.Handler
	shut   worker.Handler
	seen   int // rooms there are, as the probe sees it
}

// tripContracts declare what the scene's agent can do.
func tripContracts() []contract.Contract {
	room := map[string]any{"room": "=input.room"}
	return []contract.Contract{
		{
			Capability: "room.book", Class: contract.Compensable, Fidelity: contract.Exact, ValidFor: 2 * time.Hour,
			Settle: time.Second,
			Inverse: &contract.Inverse{Call: "room.free", With: room, Attempts: 2, Backoff: 10 * time.Millisecond,
				Timeout: 2 * time.Second},
			Probe: &contract.Probe{Call: "room.look", With: room, Attempts: 1},
		},
		{
			Capability: "card.charge", Class: contract.Compensable, Fidelity: contract.Semantic,
			OnInDoubt: contract.InDoubtCompensate, Settle: 10 * time.Millisecond,
			Inverse: &contract.Inverse{Call: "card.refund",
				With: map[string]any{"payment": "=output.id", "amount": "=input.amount"}, Attempts: 2,
				Backoff: 10 * time.Millisecond, Timeout: 2 * time.Second},
		},
		{
			Capability: "safe.open", Class: contract.Compensable,
			Inverse: &contract.Inverse{Call: "safe.shut", Attempts: 1, Timeout: 200 * time.Millisecond},
		},
		{Capability: "mail.send", Class: contract.Irreversible},
	}
}

func protected(context.Context, api.Command) (worker.Result, error) {
	return worker.Result{}, worker.Stop(errors.New("the room is protected"))
}

func newScene(t *testing.T, args ...string) *scene {
	t.Helper()
	s := &scene{Served: cmdtest.ServeFor(t, cmdtest.DataDir(t), args...), free: cmdtest.Done,
		refund: cmdtest.Done, shut: cmdtest.Done, seen: 1}
	s.conn = cmdtest.Dial(t, s.URL)
	w, err := worker.New(worker.Config{Conn: s.conn, Tenant: "default", Name: "hotel"})
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		w.Handle("room.free",
			func(ctx context.Context, c api.Command) (worker.Result, error) { return s.handler(&s.free)(ctx, c) }),
		w.Handle("card.refund", func(ctx context.Context, c api.Command) (worker.Result, error) {
			return s.handler(&s.refund)(ctx, c)
		}),
		w.Handle("safe.shut",
			func(ctx context.Context, c api.Command) (worker.Result, error) { return s.handler(&s.shut)(ctx, c) }),
		w.Answer("room.look", func(context.Context, api.Command) (worker.Answer, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.seen == 0 {
				return worker.Absent(), nil
			}
			return worker.Present("room-1"), nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	s.agent, err = coordinator.New(coordinator.Config{Conn: s.conn, Tenant: "default", Agent: "traveller",
		Contracts: tripContracts()})
	if err != nil {
		t.Fatal(err)
	}
	s.worker = w
	return s
}

// stop ends agent, worker and server, in this order. It is called before the test
// ends, for then the server is killed.
func (s *scene) stop(t *testing.T) {
	t.Helper()
	if err := errors.Join(s.agent.Close(t.Context()), s.worker.Close(t.Context())); err != nil {
		t.Error(err)
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

func (s *scene) handler(h *worker.Handler) worker.Handler {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *h
}

// now changes what the worker does.
func (s *scene) now(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *scene) begin(t *testing.T, plan coordinator.PlanSpec) *coordinator.Plan {
	t.Helper()
	open, err := s.agent.Begin(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	return open
}

// report says that something has happened.
func report(t *testing.T, plan *coordinator.Plan, capability string) {
	t.Helper()
	action := coordinator.Action{Capability: capability, Input: map[string]any{"room": 7, "amount": 120}}
	if err := plan.Report(t.Context(), action,
		coordinator.Outcome{Output: map[string]any{"id": "pi_1"}, Before: json.RawMessage("null")}); err != nil {
		t.Fatal(err)
	}
}

// doubt leaves an action that may have happened.
func doubt(t *testing.T, plan *coordinator.Plan, capability string) {
	t.Helper()
	action := coordinator.Action{Capability: capability, Input: map[string]any{"room": 7, "amount": 120}}
	_, err := plan.Do(t.Context(), action, func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
		return coordinator.Outcome{}, errors.New("no answer")
	})
	if err == nil {
		t.Fatal("a forward without an answer ended well")
	}
}

// trip is a plan that booked a room, charged a card and sent a mail, as asked.
func (s *scene) trip(t *testing.T, plan coordinator.PlanSpec, capabilities ...string) *coordinator.Plan {
	t.Helper()
	open := s.begin(t, plan)
	for _, capability := range capabilities {
		report(t, open, capability)
	}
	if err := open.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return open
}

// run runs a command line against the scene's server and wants an exit code.
func (s *scene) run(t *testing.T, code int, line string, inStderr ...string) cmdtest.Result {
	t.Helper()
	r := s.Ask(t, "default", words(line)...)
	r.Wants(t, line, code, inStderr...)
	return r
}

// words splits a command line; what stands between two ' is one word.
func words(line string) (list []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			list = append(list, part)
		} else {
			list = append(list, strings.Fields(part)...)
		}
	}
	return list
}

func (s *scene) plan(t *testing.T, id string) api.Plan {
	t.Helper()
	return cmdtest.Decoded[api.Plan](t, s.Ask(t, "default", "plan", "show", id, "-o", "json"))
}

func says(t *testing.T, r cmdtest.Result, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.Stdout, text) {
			t.Errorf("stdout does not say %q:\n%s", text, r.Stdout)
		}
	}
}

// kept are the records of the ledger, but for the checkpoints that its host signs by itself.
func (s *scene) kept(t *testing.T) (records string) {
	t.Helper()
	for line := range strings.Lines(s.run(t, cli.ExitGood, "ledger tail --since 1 -o json").Stdout) {
		if !strings.Contains(line, `"kind":"checkpoint_signed"`) {
			records += line
		}
	}
	return records
}
