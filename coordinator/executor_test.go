package coordinator_test

import (
	"cmp"
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
	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/coordinator/worker/agentloop"
	"github.com/sagenbaum/sagenbaum/executor/host"
	"github.com/sagenbaum/sagenbaum/executor/host/vault"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
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
	host  *host.Host

	connect func(user string, options ...nats.Option) *nats.Conn
	root    *nats.Conn
	url     string
	creds   string // file of agent a1

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

func newLive(t testing.TB, config coordinator.Config, adjust ...func(*host.Config)) *live {
	t.Helper()
	users := testenv.Users(t,
		access.User{Name: "a1", Role: access.Agent, Tenant: "default", Run: true, Capabilities: []string{">"}},
		access.User{Name: "a2", Role: access.Agent, Tenant: "default", Capabilities: []string{">"}},
		access.User{Name: "w1", Role: access.Worker, Tenant: "default", Capabilities: []string{">"}})
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1, Users: users.Directory})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	connect := func(user string, options ...nats.Option) *nats.Conn {
		return users.Connect(server.URL(), user, append(options,
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { t.Error(err) }))...)
	}
	root, err := server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(root.Close)
	l := &live{t: t, connect: connect, root: root, url: server.URL(),
		creds: users.File("a1")}
	hosted := host.Config{Conn: root, Tenants: []string{"default"}, Follow: true, Dir: t.TempDir(),
		DurableServer: server.DurableID(), MasterKey: make([]byte, vault.MasterKeySize), TenantKeysDir: t.TempDir(),
		BlobAgain: time.Millisecond}
	for _, change := range adjust {
		change(&hosted)
	}
	h, err := host.New(hosted)
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
	h.Await(ctx) // until then no holder says what it knows, and newer pairs are refused
	l.host = h
	if l.store, err = jetstream.Open(t.Context(), jetstream.Config{Conn: root, Tenant: "default", DurableServer: server.DurableID()}); err != nil {
		t.Fatal(err)
	}
	if l.work, err = worker.New(worker.Config{Conn: connect("w1"), Tenant: "default", Name: "w1"}); err != nil {
		t.Fatal(err)
	}
	l.undo("file.delete", func(context.Context, api.Command) (worker.Result, error) { return worker.Result{}, nil })
	config.Conn, config.Tenant, config.Agent = connect("a1"), "default", "a1"
	config.AppendTimeout = cmp.Or(config.AppendTimeout, testenv.Patience)
	config.ConfirmTimeout = cmp.Or(config.ConfirmTimeout, testenv.Patience)
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
	ctx, cancel := context.WithTimeout(l.t.Context(), testenv.Patience)
	defer cancel()
	if end, err := p.Wait(ctx); err != nil || end.State != want {
		l.t.Errorf("the plan ended %+v, %v; want %s", end, err, want)
	} else if end.Final() != (want != ledger.StateQuarantined) {
		l.t.Errorf("a plan that is %s is final: %t", want, end.Final())
	}
}

func TestS61APlanGoesBackToASavepointAndOn(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{files()}})
	p := l.begin(coordinator.PlanSpec{})
	l.do(p, "a")
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.rule(p.ID(), "a", pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK)
	// Its agent is told once, by whichever call comes next, and the plan goes on.
	told := func(call func() error) (part *coordinator.PartUndone) {
		t.Helper()
		for deadline := time.Now().Add(testenv.Patience); time.Now().Before(deadline); {
			err := call()
			if errors.As(err, &part) && errors.Is(err, coordinator.ErrPartUndone) {
				return part
			}
			// Between the verdict and the start of its unwind a commit is refused.
			var refused *ledger.Refused
			if !errors.Is(err, coordinator.ErrUnwinding) && !(errors.As(err, &refused) &&
				strings.Contains(refused.Problem, "turned true")) {
				t.Fatal(err)
			}
			select {
			case <-t.Context().Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
		t.Fatal("nobody is told")
		return nil
	}
	part := told(func() error { return p.Commit(t.Context()) })
	if part.Action != "a" || part.Plan != p.ID() || part.Reason != "verdict block on action a by compliance: policy 7" {
		t.Errorf("%+v", part)
	}
	l.do(p, "b")
	if err := p.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	if got := l.undoneActions(); got != "a" {
		t.Errorf("undone %s", got)
	}
}

// TestAnAgentHearsOfEveryPartSinceItsLastCall, in one error; then its commit counts them.
func TestAnAgentHearsOfEveryPartSinceItsLastCall(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{files()}})
	p := l.begin(coordinator.PlanSpec{})
	for _, id := range []string{"a", "b", "c"} {
		l.do(p, id)
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n, id := range []string{"c", "b"} {
		l.rule(p.ID(), id, pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK)
		for answer := (api.OutcomeAnswer{}); len(answer.Undone) <= n; {
			l.ask("plan.outcome", api.OutcomeQuery{Plan: p.ID()}, &answer)
			select {
			case <-t.Context().Done():
				t.Fatal(t.Context().Err())
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	var part *coordinator.PartUndone
	for err := error(coordinator.ErrUnwinding); part == nil; err = p.Commit(t.Context()) {
		if !errors.As(err, &part) && !errors.Is(err, coordinator.ErrUnwinding) {
			t.Fatal(err)
		}
	}
	if len(part.Parts) != 2 || part.Parts[0].Action != "c" || part.Parts[1].Action != "b" || part.Action != "b" ||
		strings.Count(part.Error(), "what came after it") != 2 {
		t.Errorf("%+v", part)
	}
}

// TestAnAgentAsksWhatAnUndoWouldDo of its plan, with no more than its permissions, while it is
// open and when it is committed; nothing is done.
func TestAnAgentAsksWhatAnUndoWouldDo(t *testing.T) {
	t.Parallel()
	exact := files()
	exact.Fidelity, exact.ValidFor = contract.Exact, time.Hour
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{exact}})
	p := l.begin(coordinator.PlanSpec{})
	l.do(p, "a")
	l.do(p, "b")
	began := time.Now()
	looks := func(ends string) {
		t.Helper()
		preview, err := p.Preview(t.Context(), coordinator.Part{Action: "b"})
		if err != nil || len(preview.Steps) != 1 || string(preview.Steps[0].Arguments) != `{"path":"b"}` ||
			preview.End != ends {
			t.Errorf("%+v, %v", preview, err)
		}
		u, err := p.Undoable(t.Context(), "a")
		if left := u.Until.Sub(began); err != nil || !u.Can || u.Fidelity != "exact" || len(u.With) != 1 ||
			left < 50*time.Minute || left > 70*time.Minute {
			t.Errorf("%+v, %v", u, err)
		}
	}
	looks(ledger.StateOpen)
	var refused *ledger.Refused
	if _, err := p.Undoable(t.Context(), "c"); !errors.As(err, &refused) || refused.Field != "action.id" {
		t.Errorf("an action that is not there: %v", err)
	}
	if err := p.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	looks(ledger.StateCompensated)
	if got := l.undoneActions(); got != "" {
		t.Errorf("undone %s", got)
	}
}

// TestAForwardThatIsNotUndoneRunsOn while another branch is.
func TestAForwardThatIsNotUndoneRunsOn(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{files()}})
	p := l.begin(coordinator.PlanSpec{})
	l.do(p, "a")
	act := func(id string, forward coordinator.Forward) error {
		_, err := p.Do(t.Context(), coordinator.Action{ID: id, Capability: "file.write", Branch: true,
			After: []string{"a"}}, forward)
		return err
	}
	if err := act("b", nothing); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := act("c", func(ctx context.Context, _ coordinator.Call) (coordinator.Outcome, error) {
		l.rule(p.ID(), "b", pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK)
		select {
		case <-ctx.Done():
			return coordinator.Outcome{}, context.Cause(ctx)
		case <-time.After(ledger.GraceDefault + time.Second):
			return coordinator.Outcome{}, nil
		}
	})
	if err != nil {
		t.Error(err)
	}
	if err := p.Commit(t.Context()); !errors.Is(err, coordinator.ErrPartUndone) {
		t.Error(err)
	}
	if err := p.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	if got := l.undoneActions(); got != "b" {
		t.Errorf("undone %s", got)
	}
}

// registered waits until an action's pair is in the ledger.
func (l *live) registered(plan, action string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), testenv.Patience)
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
	t.Parallel()
	l := newLive(t, coordinator.Config{Published: true})
	moving := contract.Contract{
		Capability: "calendar.move", Class: contract.Compensable,
		Before:  &contract.Before{Call: "calendar.get", With: map[string]any{"id": "=input.id"}},
		Inverse: &contract.Inverse{Call: "calendar.put", With: map[string]any{"id": "=input.id", "at": "=before.at"}},
	}
	compiled, err := compile.Contract(moving, triggers.NewCache(1))
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
	for ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience); ; { // until the contract is folded
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
	t.Parallel()
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
