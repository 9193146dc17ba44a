package coordinator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/coordinator/worker/agentloop"
	"github.com/sagenbaum/sagenbaum/executor/host"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// live is an agent with an executor and a worker on one server, each with the
// permissions that docs/agents.md and docs/workers.md give it.
type live struct {
	t     testing.TB
	agent *coordinator.Coordinator
	store *jetstream.Store // with every right
	work  *worker.Worker

	connect func(user string) *nats.Conn
	root    *nats.Conn
	url     string

	declared []contract.Contract // of the processes of Run

	mu     sync.Mutex
	undone []api.Command
}

func files() contract.Contract {
	return contract.Contract{
		Capability: "file.write", Class: contract.Compensable,
		Inverse: &contract.Inverse{Call: "file.delete", With: map[string]any{"path": "=input.path"}},
	}
}

func newLive(t testing.TB, config coordinator.Config) *live {
	t.Helper()
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1, Users: []embedded.User{
		{
			Name: "a1", Password: "secret",
			Publish:   []string{"saga.default.agent.a1.>", "query.default.plan.outcome", "query.default.contract.ls", "query.default.history.a1", "run.default.a1.>", "ask.default.>", "key.default.a1", "reply.default.*"},
			Subscribe: []string{"notice.default.a1.>", "undo.default.handler.a1.>", "run.default.a1.>", "reply.default.a1.*"},
		},
		{Name: "w1", Password: "secret", Publish: []string{"saga.default.worker.w1", "reply.default.>"}, Subscribe: []string{"undo.default.>", "ask.default.>"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	connect := func(user string) *nats.Conn {
		conn, err := nats.Connect(server.URL(), nats.UserInfo(user, "secret"), nats.CustomInboxPrefix(embedded.InboxPrefix(user)),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { t.Error(err) }))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		return conn
	}
	root, err := server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(root.Close)
	l := &live{t: t, connect: connect, root: root, url: server.URL()}
	h, err := host.New(host.Config{Conn: root, Tenants: []string{"default"}, Dir: t.TempDir(), DurableServer: server.DurableID(), MasterKey: make([]byte, host.MasterKeySize)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	<-h.Ready()
	if l.store, err = jetstream.Open(t.Context(), jetstream.Config{Conn: root, Tenant: "default", DurableServer: server.DurableID()}); err != nil {
		t.Fatal(err)
	}
	if l.work, err = worker.New(worker.Config{Conn: connect("w1"), Tenant: "default", Name: "w1"}); err != nil {
		t.Fatal(err)
	}
	l.undo("file.delete", func(context.Context, api.Command) (worker.Result, error) { return worker.Result{}, nil })
	config.Conn, config.Tenant, config.Agent = connect("a1"), "default", "a1"
	if l.agent, err = coordinator.New(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, close := range []func(context.Context) error{l.agent.Close, l.work.Close} {
			if err := close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	return l
}

// undo serves an inverse and keeps what it is told.
func (l *live) undo(capability string, h worker.Handler) {
	l.t.Helper()
	if err := l.work.Handle(capability, func(ctx context.Context, c api.Command) (worker.Result, error) {
		l.mu.Lock()
		l.undone = append(l.undone, c)
		l.mu.Unlock()
		return h(ctx, c)
	}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *live) undoneActions() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var actions []string
	for _, c := range l.undone {
		actions = append(actions, c.Action)
	}
	return strings.Join(actions, " ")
}

// append writes a record as someone else.
func (l *live) append(s ledger.Source, r *pb.Record) {
	l.t.Helper()
	data, err := ledger.EncodeCommit([]*pb.Record{r})
	if err == nil {
		s.Tenant = "default"
		_, err = l.store.Append(l.t.Context(), ledger.Append{Subject: s.Subject(), ID: jetstream.NewID(), Data: data})
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *live) rule(plan, action string, outcome pb.VerdictOutcome) {
	l.t.Helper()
	l.append(ledger.Source{Class: ledger.ClassVerdict, Name: "compliance"}, &pb.Record{Plan: plan, Action: action, Kind: &pb.Record_VerdictGiven{
		VerdictGiven: &pb.VerdictGiven{Outcome: outcome, Reason: "policy 7"},
	}})
}

func (l *live) begin(plan coordinator.PlanSpec) *coordinator.Plan {
	l.t.Helper()
	p, err := l.agent.Begin(l.t.Context(), plan)
	if err != nil {
		l.t.Fatal(err)
	}
	return p
}

func (l *live) do(p *coordinator.Plan, id string) {
	l.t.Helper()
	if _, err := p.Do(l.t.Context(), coordinator.Action{ID: id, Capability: "file.write", Input: map[string]string{"path": id}}, nothing); err != nil {
		l.t.Fatal(err)
	}
}

func nothing(context.Context, coordinator.Call) (coordinator.Outcome, error) {
	return coordinator.Outcome{}, nil
}

// ends waits for a plan's end.
func (l *live) ends(p *coordinator.Plan, want string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 20*time.Second)
	defer cancel()
	if end, err := p.Wait(ctx); err != nil || end.State != want {
		l.t.Errorf("the plan ended %+v, %v; want %s", end, err, want)
	} else if end.Final() != (want != ledger.StateQuarantined) {
		l.t.Errorf("a plan that is %s is final: %t", want, end.Final())
	}
}

func TestS61APlanGoesBackToASavepointAndOn(t *testing.T) {
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{files()}})
	p := l.begin(coordinator.PlanSpec{})
	l.do(p, "a")
	if err := p.Savepoint(t.Context(), "s1"); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		l.do(p, fmt.Sprint("b", round))
		l.do(p, fmt.Sprint("c", round))
		if err := p.UnwindTo(t.Context(), "s1", "wrong hotel"); err != nil {
			t.Fatal(err)
		}
	}
	l.do(p, "d")
	if err := p.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := l.undoneActions(); got != "c0 b0 c1 b1 c2 b2" {
		t.Errorf("undone %s", got)
	}
}

func TestS61AChildIsUndoneInItsPlaceAfterItsOwnCommit(t *testing.T) {
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{files()}})
	p := l.begin(coordinator.PlanSpec{})
	l.do(p, "a")
	child, err := p.Begin(t.Context(), coordinator.PlanSpec{ParentAction: "a"})
	if err != nil {
		t.Fatal(err)
	}
	l.do(child, "b")
	var refused *ledger.Refused
	if err := p.Commit(t.Context()); !errors.As(err, &refused) || !strings.Contains(err.Error(), "child plans") {
		t.Errorf("committed before its child: %v", err)
	}
	if err := child.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.do(p, "c")
	if err := p.Fail(t.Context(), "no room"); err != nil {
		t.Fatal(err)
	}
	l.ends(p, ledger.StateCompensated)
	if got := l.undoneActions(); got != "c b a" {
		t.Errorf("undone %s", got)
	}
}

func TestS77AVerdictBeforeTheBoundaryUndoesNothing(t *testing.T) {
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{files()}})
	p := l.begin(coordinator.PlanSpec{})
	l.do(p, "a")
	for id, outcome := range map[string]pb.VerdictOutcome{"allowed": pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW, "blocked": pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK} {
		done, ran := make(chan error, 1), false
		go func() {
			_, err := p.Do(t.Context(), coordinator.Action{ID: id, Capability: "file.write", Review: true}, func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
				ran = true
				return coordinator.Outcome{}, nil
			})
			done <- err
		}()
		l.registered(p.ID(), id)
		l.rule(p.ID(), id, outcome)
		err := <-done
		var verdict *coordinator.Verdict
		if id == "allowed" && (err != nil || !ran) {
			t.Errorf("allowed: ran %v, %v", ran, err)
		}
		if id == "blocked" && (!errors.As(err, &verdict) || *verdict != coordinator.Verdict{Action: id, Outcome: "block", Reason: "policy 7", By: "compliance"} || ran) {
			t.Errorf("blocked: ran %v, %v", ran, err)
		}
	}
	if err := p.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	if got := l.undoneActions(); got != "" {
		t.Errorf("undone %s", got)
	}
}

func TestS76ABlockAfterTheBoundaryFiresTheCompensation(t *testing.T) {
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{files()}})
	p := l.begin(coordinator.PlanSpec{})
	l.do(p, "a")
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.rule(p.ID(), "a", pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK)
	l.ends(p, ledger.StateCompensated)
	if got := l.undoneActions(); got != "a" {
		t.Errorf("undone %s", got)
	}
}

// registered waits until an action's pair is in the ledger.
func (l *live) registered(plan, action string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 20*time.Second)
	defer cancel()
	for m, err := range l.store.Read(ctx, 1) {
		if err != nil {
			l.t.Fatal(err)
		}
		entries, err := ledger.Decode("default", m)
		if err != nil {
			l.t.Fatal(err)
		}
		for _, e := range entries {
			if e.Record != nil && e.Record.Plan == plan && e.Record.Action == action && e.Record.GetCompensationRegistered() != nil {
				return
			}
		}
	}
}

// TestS103APublishedContractUndoesWithTheBeforeImage: published by an operator,
// read by the agent, its question answered by a worker, its answer bound by the undo.
func TestS103APublishedContractUndoesWithTheBeforeImage(t *testing.T) {
	l := newLive(t, coordinator.Config{Published: true})
	moving := contract.Contract{
		Capability: "calendar.move", Class: contract.Compensable,
		Before:  &contract.Before{Call: "calendar.get", With: map[string]any{"id": "=input.id"}},
		Inverse: &contract.Inverse{Call: "calendar.put", With: map[string]any{"id": "=input.id", "at": "=before.at"}},
	}
	compiled, err := contract.Compile(moving, triggers.NewCache(1))
	if err != nil {
		t.Fatal(err)
	}
	l.append(ledger.Source{Class: ledger.ClassOperator, Name: "root"}, &pb.Record{Kind: &pb.Record_ContractPublished{
		ContractPublished: &pb.ContractPublished{Capability: moving.Capability, Digest: compiled.Digest[:], Contract: compiled.Canonical},
	}})
	if err := l.work.Answer("calendar.get", func(context.Context, api.Command) (worker.Answer, error) {
		return worker.Answer{Output: map[string]string{"at": "9:00"}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	l.undo("calendar.put", func(context.Context, api.Command) (worker.Result, error) { return worker.Result{}, nil })
	p := l.begin(coordinator.PlanSpec{})
	action := coordinator.Action{ID: "m", Capability: "calendar.move", Input: map[string]string{"id": "e1"}}
	for ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second); ; { // until the executor has folded the contract
		_, err := p.Do(ctx, action, nothing)
		if err == nil {
			cancel()
			break
		}
		var refused *ledger.Refused
		if !errors.As(err, &refused) || refused.Field != "action.capability" || ctx.Err() != nil {
			cancel()
			t.Fatal(err)
		}
	}
	if err := p.Fail(t.Context(), "cancelled"); err != nil {
		t.Fatal(err)
	}
	l.ends(p, ledger.StateCompensated)
	if len(l.undone) != 1 || string(l.undone[0].Arguments) != `{"at":"9:00","id":"e1"}` || l.undone[0].Forward != "calendar.move" {
		t.Errorf("undone %+v", l.undone)
	}
}

// TestS9AContractWithSeveralToolsIsUndoneByAModel: from the contract over the
// registration to the tools, with everything frozen on the way (S23).
func TestS9AContractWithSeveralToolsIsUndoneByAModel(t *testing.T) {
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{{
		Capability: "git.pr.open", Class: contract.Compensable,
		Inverse: &contract.Inverse{Call: "git.pr.undo", With: map[string]any{"pr": "=output.pr"}, Agent: &contract.Agent{
			Tools: []string{"git.pr.close", "git.branch.delete"}, Prompt: "Close it, then delete its branch.", MaxTurns: 5, Model: "frozen-1",
		}},
	}}})
	script := []string{
		`{"tool_calls":[{"id":"1","function":{"name":"git_pr_close","arguments":"{\"pr\":7}"}}]}`,
		`{"tool_calls":[{"id":"2","function":{"name":"git_branch_delete","arguments":"{}"}}]}`,
		`{"content":"{\"status\":\"done\",\"message\":\"closed and deleted\"}"}`,
	}
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"choices":[{"message":%s}]}`, script[0])
		script = script[1:]
	}))
	defer model.Close()
	var calls []string
	tool := agentloop.Tool{Call: func(_ context.Context, c agentloop.Call) (any, error) {
		calls = append(calls, c.Tool+" "+c.Key)
		return "ok", nil
	}}
	loop, err := agentloop.New(agentloop.Config{Endpoint: model.URL, Tools: map[string]agentloop.Tool{"git.pr.close": tool, "git.branch.delete": tool, "git.push": tool}})
	if err != nil {
		t.Fatal(err)
	}
	l.undo("git.pr.undo", loop)
	p := l.begin(coordinator.PlanSpec{})
	if _, err := p.Do(t.Context(), coordinator.Action{ID: "pr", Capability: "git.pr.open"}, func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
		return coordinator.Outcome{Output: map[string]int{"pr": 7}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := p.Fail(t.Context(), "rejected"); err != nil {
		t.Fatal(err)
	}
	l.ends(p, ledger.StateCompensated)
	key := ledger.Key("default", p.ID(), "pr", ledger.PurposeUndo)
	if got := strings.Join(calls, ", "); got != "git.pr.close "+key+", git.branch.delete "+key {
		t.Errorf("called %s", got)
	}
	c := l.undone[0]
	task, err := json.Marshal(c.Agent)
	if want := `{"tools":["git.branch.delete","git.pr.close"],"prompt":"Close it, then delete its branch.","max_turns":5,"model":"frozen-1"}`; err != nil || string(task) != want {
		t.Errorf("task %s, %v", task, err)
	}
}

// TestS61WhatAnUnwindToPromisesIsDoneWhenItReturns: also where the answer comes
// before the executor has begun, and a notice of the rewinding before comes late.
func TestS61WhatAnUnwindToPromisesIsDoneWhenItReturns(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{files()}})
	p := l.begin(coordinator.PlanSpec{})
	if err := p.Savepoint(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	want := ""
	for i := range 50 {
		id := fmt.Sprint("a", i)
		l.do(p, id)
		if err := p.UnwindTo(t.Context(), "s", ""); err != nil {
			t.Fatal(err)
		}
		want = strings.TrimSpace(want + " " + id)
		if got := l.undoneActions(); got != want {
			t.Fatalf("undone %s, want %s", got, want)
		}
	}
}
