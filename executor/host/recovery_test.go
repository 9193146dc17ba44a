package host

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// digest reads the state of a stopped host, and how far it was folded.
func digest(t *testing.T, dir string) (digest string, applied uint64) {
	t.Helper()
	h, err := New(Config{Conn: new(nats.Conn), Tenants: []string{"t"}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	kv := h.roster.order[0].kv
	return rows.FormatDigest(rows.Digest(kv)), view.NewReader(kv, "t", nil).Applied()
}

func (r *rig) caughtUp() {
	r.t.Helper()
	r.mu.Lock()
	appended := r.appended
	r.mu.Unlock()
	r.eventually("the fold catches up", func() bool {
		s := r.status()
		return s.Mode == api.ModeHolding && s.Applied == s.Last && s.Applied >= appended
	})
}

// stored waits until h's store has what was folded, which is written behind the fold.
func (r *rig) stored(h *Host) (applied uint64) {
	r.t.Helper()
	r.eventually("the rows are written", func() bool {
		s := h.db.NewSnapshot()
		applied = view.NewReader(store.NewView(s, "t"), "t", nil).Applied()
		if err := s.Close(); err != nil {
			r.t.Error(err)
		}
		return applied == r.status().Applied
	})
	return applied
}

// eventually asks again until something holds.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(testenv.Patience); !ok(); <-time.After(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("not in time: %s; status %+v", what, r.status())
		}
	}
}

func TestDeletingTheStateFolderGivesTheIdenticalState(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(done)
	_, stop := r.host("h1")
	r.plan("p", 3, 0)
	r.fail("p")
	r.ended("p")
	r.plan("open", 2, time.Hour)
	r.append(ledger.Source{Tenant: "t", Class: ledger.ClassFact, Name: "src"},
		&pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: "k", Value: []byte("1")}}})
	r.caughtUp()
	stop()
	before, folded := digest(t, filepath.Join(r.dir, "h1"))
	r.wantDigest(before, folded)
	if err := os.RemoveAll(filepath.Join(r.dir, "h1", "state")); err != nil {
		t.Fatal(err)
	}
	_, stop = r.host("h1")
	r.caughtUp()
	stop()
	after, folded := digest(t, filepath.Join(r.dir, "h1"))
	r.wantDigest(after, folded)
}

// wantDigest folds the ledger up to a sequence from nothing and compares.
func (r *rig) wantDigest(want string, upTo uint64) {
	r.t.Helper()
	kv := rows.NewMemoryKV()
	foldTo(r.t, r, kv, upTo)
	if got := rows.FormatDigest(rows.Digest(kv)); got != want {
		r.t.Fatalf("digest at %d is %s, folded anew %s", upTo, want, got)
	}
}

// foldTo folds the stream into kv, up to a sequence.
func foldTo(t *testing.T, r *rig, kv rows.KV, upTo uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	store, err := jetstream.Open(ctx, jetstream.Config{Conn: r.conn, Tenant: "t", DurableServer: r.srv.DurableID()})
	if err != nil {
		t.Fatal(err)
	}
	s := executor.Open(kv, "t", nil)
	for m, err := range store.Read(ctx, 1) {
		if err != nil {
			t.Fatal(err)
		}
		entries, err := ledger.Decode("t", m)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			s.Apply(e)
		}
		if m.Sequence == upTo {
			break
		}
	}
	s.Flush()
}

func TestASecondHostIsHarmlessAndTakesOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	release := make(chan struct{})
	r.serve(func(api.Command) *api.Reply {
		<-release
		return &api.Reply{Status: api.StatusDone}
	})
	_, stop1 := r.host("h1")
	r.eventually("h1 holds", func() bool { return r.status().Mode == api.ModeHolding })
	term := r.status().Term
	r.host("h2")
	r.plan("p", 3, 0)
	r.fail("p")
	r.eventually("a command is out", func() bool {
		return r.anyStatus(func(s api.Status) bool { return s.InFlight == 1 })
	})
	stop1()
	close(release)
	if got := r.ended("p"); got.State != ledger.StateCompensated {
		t.Fatalf("%+v", got)
	}
	r.wantOrder("a3", "a2", "a1")
	if !r.anyStatus(func(s api.Status) bool { return s.Mode == api.ModeHolding && s.Term > term }) {
		t.Fatalf("h2 does not hold a newer term: %+v", r.status())
	}
}

func (r *rig) anyStatus(ok func(api.Status) bool) bool { return ok(r.status()) }

func TestTwoHostsThatBothBelieveTheyHoldAreHarmless(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(done)
	h1, _ := r.host("h1")
	r.eventually("h1 holds", func() bool { return r.status().Mode == api.ModeHolding })
	// A zombie: a second host that claims without asking for the lease.
	h2, stop2 := r.host("h2")
	zombie(t, r, h2)
	for i := range 20 {
		id := fmt.Sprintf("p%d", i)
		r.plan(id, 2, 0)
		r.fail(id)
	}
	for i := range 20 {
		if got := r.ended(fmt.Sprintf("p%d", i)); got.State != ledger.StateCompensated {
			t.Fatalf("plan %d: %+v", i, got)
		}
	}
	stop2()
	_ = h1
	r.wantOnce(t)
}

// zombie makes a host believe that it holds the lease, whoever has it.
func zombie(t *testing.T, r *rig, h *Host) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	current, err := h.holders.Current(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	lease, ok, _, err := h.holders.Acquire(ctx, "t", current.Holder) // as the holder itself would
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := h.holders.Release(ctx, lease); err != nil {
		t.Fatal(err)
	}
}

// wantOnce checks from the ledger that every action has exactly one effective
// success, and that no key was used for two actions.
func (r *rig) wantOnce(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	keys := map[string]string{}
	for _, c := range r.calls {
		if was, ok := keys[c.Key]; ok && was != c.Plan+"/"+c.Action {
			t.Errorf("key %s serves %s and %s/%s", c.Key, was, c.Plan, c.Action)
		}
		keys[c.Key] = c.Plan + "/" + c.Action
	}
	r.mu.Unlock()
	kv := rows.NewMemoryKV()
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	store, err := jetstream.Open(ctx, jetstream.Config{Conn: r.conn, Tenant: "t", DurableServer: r.srv.DurableID()})
	if err != nil {
		t.Fatal(err)
	}
	head, _ := store.Head(ctx)
	s := executor.Open(kv, "t", nil)
	won := map[string]int{}
	for m, err := range store.Read(ctx, 1) {
		if err != nil {
			t.Fatal(err)
		}
		entries, _ := ledger.Decode("t", m)
		for _, e := range entries {
			if s.Apply(e).Verdict == executor.Effective && e.Record.GetCompensationSucceeded() != nil {
				won[e.Record.Plan+"/"+e.Record.Action]++
			}
		}
		if m.Sequence == head.Last {
			break
		}
	}
	for _, id := range keys {
		if won[id] != 1 {
			t.Errorf("%s has %d successes", id, won[id])
		}
	}
}

func TestAnythingOnAnAllowedSubjectIsRefusedAndExplained(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(done)
	r.host("h1")
	r.plan("p", 1, 0)
	js, err := r.conn.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"saga.t.agent.x.p", "saga.t.fact.f", "saga.t.verdict.v", "saga.t.operator.o",
		"saga.t.worker.w", "saga.t.executor", "saga.t.executor.term", "saga.t.nonsense"} {
		for i, body := range []string{"", "garbage", `{"records":[{}]}`, "\x08\x01\x12\x02\x0a\x00", "\x08\x02"} {
			if i == 4 && strings.HasPrefix(subject, "saga.t.executor") {
				continue // a newer version from the holder halts, as it must
			}
			if _, err := js.Publish(subject, []byte(body)); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.fail("p")
	if got := r.ended("p"); got.State != ledger.StateCompensated {
		t.Fatalf("%+v", got)
	}
	var answer api.RefusedAnswer
	if err := r.ask("refused.ls", api.ListQuery{Limit: 1000}, &answer); err != nil || len(answer.Refused) < 32 {
		t.Fatalf("%v: %d refused", err, len(answer.Refused))
	}
	for _, refusal := range answer.Refused {
		if refusal.Reason == "" || refusal.Subject == "" {
			t.Errorf("refused without a reason: %+v", refusal)
		}
	}
}

func TestAJSONCommitOfAForeignClientIsFolded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(done)
	r.host("h1")
	m := nats.NewMsg("saga.t.agent.py.p")
	m.Header.Set("Content-Type", "application/json")
	m.Data = []byte(`{"records":[
		{"plan":"p","planOpened":{"label":"from a foreign client"}},
		{"plan":"p","action":"a","forwardRegistered":{"capability":"do.x","class":"CLASS_COMPENSABLE"},"payload":{"input":"eyJpZCI6MX0="}},
		{"plan":"p","action":"a","compensationRegistered":{"capability":"x","bindings":[{"name":"id","expression":"input.id"}]}},
		{"plan":"p","action":"a","forwardCompleted":{}},
		{"plan":"p","planFailed":{"reason":"because"}}]}`)
	js, err := r.conn.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.PublishMsg(m); err != nil {
		t.Fatal(err)
	}
	if got := r.ended("p"); got.State != ledger.StateCompensated {
		t.Fatalf("%+v", got)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.calls) != 1 || string(r.calls[0].Arguments) != `{"id":1}` ||
		r.calls[0].Key != ledger.Key("t", "p", "a", ledger.PurposeUndo) {
		t.Fatalf("%+v", r.calls)
	}
}

func TestALedgerThatLostItsTailHaltsTheTenant(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(done)
	_, stop := r.host("h1")
	r.plan("p", 2, 0)
	r.caughtUp()
	stop()
	// Another history on the same subjects: the stream is made anew.
	r.deleteStream(jetstream.StreamName("t"))
	r.host("h1")
	r.eventually("halted", func() bool { return r.status().Mode == api.ModeHalted })
	if s := r.status(); !strings.Contains(s.Problem, "G2") {
		t.Fatalf("%+v", s)
	}
	r.plan("q", 2, 0)
	r.fail("q")
	var answer api.OutcomeAnswer
	err := r.ask("plan.outcome", api.OutcomeQuery{Plan: "q", Ended: true, WaitMs: 300}, &answer)
	if !strings.Contains(says(err), "there is no plan q") || answer.State != "" {
		t.Fatalf("a halted tenant went on: %+v, %v", answer, err)
	}
	if len(r.calls) != 0 {
		t.Fatalf("a halted tenant dispatched %v", r.calls)
	}
}

func TestNoWorkerIsNoFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.host("h1")
	r.plan("p", 1, 0)
	r.fail("p")
	r.eventually("it waits visibly", func() bool {
		return len(r.status().Waiting) == 1 && r.status().Waiting[0].Tries > 1
	})
	var answer api.PlanAnswer
	if err := r.ask("plan.show", api.PlanQuery{Plan: "p"}, &answer); err != nil ||
		answer.Plan.State != ledger.StateUnwinding || !strings.Contains(answer.Plan.Actions[0].WaitsFor, "a worker") {
		t.Fatalf("%+v %v", answer.Plan, err)
	}
	r.serve(done)
	if got := r.ended("p"); got.State != ledger.StateCompensated {
		t.Fatalf("%+v", got)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.calls) != 1 || r.calls[0].Attempt != 1 {
		t.Fatalf("%+v", r.calls)
	}
}

func TestASilentWorkerIsAskedAgainWithTheSameKeyAndThenQuarantined(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(func(api.Command) *api.Reply { return nil })
	r.host("h1")
	source := ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "agent", Plan: "p"}
	r.append(source,
		&pb.Record{Plan: "p", Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{}}},
		&pb.Record{Plan: "p", Action: "a", Kind: &pb.Record_ForwardRegistered{ForwardRegistered: &pb.ForwardRegistered{
			Capability: "do.x", Class: pb.Class_CLASS_COMPENSABLE, Late: pb.Late_LATE_NEVER, GraceNs: int64(time.Millisecond),
		}}},
		&pb.Record{Plan: "p", Action: "a",
			Kind: &pb.Record_CompensationRegistered{CompensationRegistered: &pb.CompensationRegistered{
				Capability: "x", Attempts: 2, BackoffNs: int64(time.Millisecond), TimeoutNs: int64(50 * time.Millisecond)}}},
	)
	r.fail("p")
	if got := r.ended("p"); got.State != ledger.StateQuarantined || len(got.Outstanding) != 1 {
		t.Fatalf("%+v", got)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.calls) != 2 || r.calls[0].Key != ledger.Key("t", "p", "a", ledger.PurposeUndo) ||
		r.calls[1].Key != r.calls[0].Key || !r.calls[0].BlindCleanup || !r.calls[0].DirtyFailure {
		t.Fatalf("%+v", r.calls)
	}
}

func TestALongUndoReportsByRecord(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(func(c api.Command) *api.Reply {
		return &api.Reply{Status: api.StatusWorking, UntilMs: time.Now().Add(time.Hour).UnixMilli()}
	})
	r.host("h1")
	r.plan("p", 1, 0)
	r.fail("p")
	r.eventually("the worker works", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.calls) == 1 })
	r.mu.Lock()
	c := r.calls[0]
	r.mu.Unlock()
	report := func(worker, token string) {
		r.append(ledger.Source{Tenant: "t", Class: ledger.ClassWorker, Name: worker}, &pb.Record{Plan: "p", Action: "a1",
			Kind: &pb.Record_CompensationReported{CompensationReported: &pb.CompensationReported{Attempt: 1, Key: c.Key,
				Token: token, Answer: pb.Answer_ANSWER_DONE}}})
	}
	report("other", "") // it was not given the command
	refused := func(rec *pb.Record) bool { return rec.GetRecordRefused() != nil }
	r.eventually("it is refused", func() bool { return len(r.records(refused)) == 1 })
	report("w", c.ReportToken)
	if got := r.ended("p"); got.State != ledger.StateCompensated {
		t.Fatalf("%+v", got)
	}
}

func TestAServerRestartLosesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(done)
	_, stop := r.host("h1")
	r.plan("p", 3, 0)
	stop()
	r.stopServer()
	r.startServer()
	r.serve(done)
	r.host("h1")
	r.fail("p")
	if got := r.ended("p"); got.State != ledger.StateCompensated {
		t.Fatalf("%+v", got)
	}
}

func TestABrokenStateStoreIsFoldedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(done)
	_, stop := r.host("h1")
	r.plan("p", 3, 0)
	r.caughtUp()
	stop()
	state := filepath.Join(r.dir, "h1", "state")
	files, err := os.ReadDir(state)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		path := filepath.Join(state, f.Name())
		if b, err := os.ReadFile(path); err == nil && len(b) > 0 {
			for i := range b {
				b[i] ^= 0x5a
			}
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.host("h1")
	r.fail("p")
	if got := r.ended("p"); got.State != ledger.StateCompensated {
		t.Fatalf("%+v", got)
	}
	var answer api.PlansAnswer
	if err := r.ask("plan.ls", api.Filter{}, &answer); err != nil || len(answer.Plans) != 1 {
		b, _ := json.Marshal(answer)
		t.Fatalf("%s %v", b, err)
	}
}

// The state is deleted in the middle of an unwind, at every step of it: the
// rebuilt state goes on where the ledger is.
func TestDeletingTheStateInTheMiddleOfAnUnwind(t *testing.T) {
	t.Parallel()
	const actions = 4
	for undone := range actions {
		r := newRig(t)
		gate := make(chan struct{}, actions)
		for range undone {
			gate <- struct{}{}
		}
		answers := func(api.Command) *api.Reply {
			select {
			case <-gate:
				return &api.Reply{Status: api.StatusDone}
			default:
				return &api.Reply{Status: api.StatusWorking, UntilMs: time.Now().Add(time.Hour).UnixMilli()}
			}
		}
		r.serve(answers)
		_, stop := r.host("h1")
		r.plan("p", actions, 0)
		r.fail("p")
		r.eventually("it stops in the middle", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return len(r.calls) == undone+1
		})
		r.caughtUp()
		stop()
		digest, applied := digest(t, filepath.Join(r.dir, "h1"))
		r.wantDigest(digest, applied)
		if err := os.RemoveAll(filepath.Join(r.dir, "h1", "state")); err != nil {
			t.Fatal(err)
		}
		for range actions {
			gate <- struct{}{}
		}
		r.host("h1")
		if got := r.ended("p"); got.State != ledger.StateCompensated {
			t.Fatalf("after %d undos: %+v", undone, got)
		}
		r.wantOrder("a4", "a3", "a2", "a1")
		r.wantOnce(t)
	}
}
