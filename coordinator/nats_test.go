package coordinator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/ledger/testenv/served"
	"github.com/sagenbaum/sagenbaum/proto/api"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// serve starts a server with a ledger for tenant default, on which agent a1 has the
// permissions of docs/agents.md and nothing else.
func serve(t *testing.T) (agent, root *nats.Conn, store *jetstream.Store) {
	t.Helper()
	agent, _, root, store = serveWorker(t)
	return agent, root, store
}

// serveWorker is serve with a worker w1 beside the agent.
func serveWorker(t *testing.T) (agent, worker, root *nats.Conn, store *jetstream.Store) {
	t.Helper()
	users := testenv.Users(t, access.User{Name: "a1", Role: access.Agent, Tenant: "default",
		Capabilities: []string{"calendar.get"}}, access.User{Name: "w1", Role: access.Worker, Tenant: "default",
		Capabilities: []string{"calendar.get"}})
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1, Users: users.Directory})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	root, err = server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(root.Close)
	agent = users.Connect(server.URL(), "a1",
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { t.Error(err) }))
	worker = users.Connect(server.URL(), "w1")
	store, err = jetstream.Open(t.Context(), jetstream.Config{Conn: root, Tenant: "default",
		DurableServer: server.DurableID()})
	if err != nil {
		t.Fatal(err)
	}
	return agent, worker, root, store
}

func newAgent(t *testing.T, conn *nats.Conn) *coordinator.Coordinator {
	t.Helper()
	c, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: "default", Agent: "a1",
		Contracts: []contract.Contract{
			{Capability: "file.write", Class: contract.Compensable, Inverse: &contract.Inverse{Call: "file.delete"}},
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

// answer serves a question to the executor, or to a worker, from the server's side.
func answer(t *testing.T, conn *nats.Conn, subject string, f func(body []byte) any) {
	t.Helper()
	if _, err := conn.Subscribe(subject, func(m *nats.Msg) {
		body, err := json.Marshal(f(m.Data))
		if err == nil {
			err = m.Respond(body)
		}
		if err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
}

func last(t *testing.T, store ledger.Store) uint64 {
	t.Helper()
	head, err := store.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return head.Last
}

func TestAnAgentNeedsOnlyItsDocumentedPermissions(t *testing.T) {
	agent, root, store := serve(t)
	answer := api.OutcomeAnswer{State: ledger.StateCommitted}
	asked := make(chan api.OutcomeQuery, 10)
	if _, err := root.Subscribe("query.default.plan.outcome", func(m *nats.Msg) {
		var q api.OutcomeQuery
		if err := json.Unmarshal(m.Data, &q); err != nil {
			t.Error(err)
		}
		asked <- q
		body, err := json.Marshal(answer)
		if err != nil {
			t.Error(err)
		}
		if err := m.Respond(body); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	c := newAgent(t, agent)
	plan, err := c.Begin(t.Context(), coordinator.PlanSpec{Label: "upload"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Do(t.Context(), coordinator.Action{ID: "a", Capability: "file.write"},
		func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			if n := last(t, store); n != 1 {
				t.Errorf("%d commits before the forward", n)
			}
			return coordinator.Outcome{}, nil
		}); err != nil {
		t.Fatal(err)
	}
	if err := plan.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if q := <-asked; q.Sequence != last(t, store) || q.Plan != plan.ID() {
		t.Errorf("asked %+v with %d commits", q, last(t, store))
	}
	if end, err := plan.Wait(t.Context()); err != nil || end.State != ledger.StateCommitted {
		t.Errorf("%+v, %v", end, err)
	}
}

func TestANoticeOverNATSInterruptsTheForward(t *testing.T) {
	agent, root, _ := serve(t)
	plan, err := newAgent(t, agent).Begin(t.Context(), coordinator.PlanSpec{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	_, err = plan.Do(ctx, coordinator.Action{ID: "a", Capability: "file.write"},
		func(ctx context.Context, call coordinator.Call) (coordinator.Outcome, error) {
			body, err := json.Marshal(api.Notice{Plan: call.Plan, State: ledger.StateUnwinding,
				Reason: "cancelled by the owner"})
			if err != nil {
				t.Error(err)
			}
			if err := root.PublishRequest(api.NoticeSubject("default", "a1", call.Plan), api.NoAnswer, body); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return coordinator.Outcome{}, context.Cause(ctx)
		})
	if !errors.Is(err, coordinator.ErrUnwinding) || !strings.Contains(err.Error(), "cancelled by the owner") {
		t.Errorf("got %v", err)
	}
}

// TestABeforeImageAndAPublishedContractOverNATS: the contract comes from the
// registry, what it wants to know from a worker, and both are in the pair.
func TestABeforeImageAndAPublishedContractOverNATS(t *testing.T) {
	agent, hands, root, store := serveWorker(t)
	published, err := compile.Contract(contract.Contract{
		Capability: "calendar.move", Class: contract.Compensable,
		Before:  &contract.Before{Call: "calendar.get", With: map[string]any{"id": "=input.id"}},
		Inverse: &contract.Inverse{Call: "calendar.move", With: map[string]any{"to": "=before.at"}},
	}, triggers.NewCache(1))
	if err != nil {
		t.Fatal(err)
	}
	answer(t, root, "query.default.contract.ls", func([]byte) any {
		return map[string]any{"contracts": []any{map[string]any{
			"capability": "calendar.move", "digest": fmt.Sprintf("%x",
				published.Digest), "revision": 1, "current": true, "contract": json.RawMessage(published.Canonical),
		}}}
	})
	w, err := worker.New(worker.Config{Conn: hands, Tenant: "default", Name: "w1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Answer("calendar.get", func(_ context.Context, c api.Command) (worker.Answer, error) {
		return worker.Answer{Output: map[string]any{"at": "9:00", "asked": c.Arguments, "for": c.Forward}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	c, err := coordinator.New(coordinator.Config{Conn: agent, Tenant: "default", Agent: "a1", Published: true})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := c.Begin(t.Context(), coordinator.PlanSpec{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Do(t.Context(), coordinator.Action{ID: "m", Capability: "calendar.move",
		Input: map[string]string{"id": "e1"}}, func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
		return coordinator.Outcome{}, nil
	}); err != nil {
		t.Fatal(err)
	}
	m, err := store.Get(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := ledger.Decode("default", m)
	if err != nil || len(entries) != 3 {
		t.Fatalf("%d records, %v", len(entries), err)
	}
	if digest := entries[1].Record.GetForwardRegistered().ContractDigest; string(digest) != string(published.Digest[:]) {
		t.Errorf("digest %x", digest)
	}
	if before := entries[2].Record.Payload.GetBefore(); string(
		before) != `{"asked":{"id":"e1"},"at":"9:00","for":"calendar.move"}` {
		t.Errorf("before %s", before)
	}
	for _, close := range []func(context.Context) error{c.Close, w.Close} {
		if err := close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestS77AVerdictOverNATSKeepsTheForwardFromRunning(t *testing.T) {
	agent, root, _ := serve(t)
	// an executor that has no verdict yet, and says so
	answer(t, root, "query.default.plan.outcome", func(body []byte) any {
		var q api.OutcomeQuery
		if err := json.Unmarshal(body, &q); err != nil || q.Action != "a" {
			t.Errorf("asked %+v, %v", q, err)
		}
		notice, err := json.Marshal(api.Notice{Plan: q.Plan, State: ledger.StateOpen, Action: "a", Verdict: "redirect",
			Reason: "use the test account", By: "compliance"})
		if err == nil {
			err = root.PublishRequest(api.NoticeSubject("default", "a1", q.Plan), api.NoAnswer, notice)
		}
		if err != nil {
			t.Error(err)
		}
		return api.OutcomeAnswer{State: ledger.StateOpen}
	})
	plan, err := newAgent(t, agent).Begin(t.Context(), coordinator.PlanSpec{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	_, err = plan.Do(ctx, coordinator.Action{ID: "a", Capability: "file.write", Review: true},
		func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			t.Error("the forward ran")
			return coordinator.Outcome{}, nil
		})
	var verdict *coordinator.Verdict
	if !errors.Is(err, coordinator.ErrBlocked) || !errors.As(err, &verdict) || verdict.Outcome != "redirect" ||
		verdict.Reason != "use the test account" {
		t.Errorf("got %v", err)
	}
}

func TestManyCallsOverNATSShareCommits(t *testing.T) {
	agent, _, store := serve(t)
	c := newAgent(t, agent)
	const plans, actions = 32, 10
	var wait sync.WaitGroup
	for range plans {
		wait.Go(func() {
			plan, err := c.Begin(t.Context(), coordinator.PlanSpec{})
			if err != nil {
				t.Error(err)
				return
			}
			for range actions {
				if _, err := plan.Do(t.Context(), coordinator.Action{Capability: "file.write"},
					func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
						return coordinator.Outcome{}, nil
					}); err != nil {
					t.Error(err)
				}
			}
			if err := plan.Fail(t.Context(), "enough"); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	records, n := 0, last(t, store)
	for seq := uint64(1); seq <= n; seq++ {
		m, err := store.Get(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		entries, err := ledger.Decode("default", m)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Err != nil {
				t.Error(e.Err)
			}
		}
		records += len(entries)
	}
	if want := plans * (2 + 3*actions); records != want {
		t.Errorf("%d records, want %d", records, want)
	}
	if n >= plans*actions {
		t.Errorf("%d commits for %d actions: nothing was shared", n, plans*actions)
	}
}

func BenchmarkDo(b *testing.B) {
	for _, concurrency := range []int{1, 16, 128} {
		b.Run(map[int]string{1: "1", 16: "16", 128: "128"}[concurrency], func(b *testing.B) { benchmarkDo(b, concurrency) })
	}
}

func benchmarkDo(b *testing.B, concurrency int) {
	server, conn := served.NATS(b)
	if _, err := jetstream.Open(b.Context(), jetstream.Config{Conn: conn, Tenant: "default",
		DurableServer: server.DurableID()}); err != nil {
		b.Fatal(err)
	}
	c, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: "default", Agent: "a1",
		Contracts: []contract.Contract{
			{Capability: "file.write", Class: contract.Compensable,
				Inverse: &contract.Inverse{Call: "file.delete", With: map[string]any{"path": "=input.path"}}},
		}})
	if err != nil {
		b.Fatal(err)
	}
	left := make(chan struct{}, b.N)
	for range b.N {
		left <- struct{}{}
	}
	close(left)
	b.ResetTimer()
	var wait sync.WaitGroup
	for range concurrency {
		wait.Go(func() {
			plan, err := c.Begin(b.Context(), coordinator.PlanSpec{})
			if err != nil {
				b.Error(err)
				return
			}
			for range left {
				if _, err := plan.Do(b.Context(), coordinator.Action{Capability: "file.write",
					Input: json.RawMessage(`{"path":"/tmp/x"}`)}, func(context.Context, coordinator.Call) (
					coordinator.Outcome, error) {
					return coordinator.Outcome{}, nil
				}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wait.Wait()
	b.StopTimer()
	if err := c.Close(context.Background()); err != nil {
		b.Error(err)
	}
}
