package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/observe"
	"github.com/sagenbaum/sagenbaum/executor/host/proof"
	"github.com/sagenbaum/sagenbaum/executor/host/vault"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// rig is an embedded server, hosts on it, and a worker that counts its effects.
type rig struct {
	t    *testing.T
	dir  string
	srv  *embedded.Server
	conn *nats.Conn

	webhooks    map[string]string // of hosts that start from now on
	metrics     *observe.Metrics  // likewise; nil: none
	cascade     executor.CascadeLimits
	memoryBytes int64
	witness     proof.Witness
	leaseTTL    time.Duration // 0: a second
	signAfter   time.Duration // 0: as always
	master      []byte        // key of hosts that start from now on
	keys        func(context.Context, string) (vault.KeyStore, error)
	clock       *Clock
	erasing     func(step string) error // likewise
	restarted   bool                    // hosts have started since the tenant was erased
	ownKeys     bool                    // each host has a folder of tenants' keys of its own

	mu      sync.Mutex
	effects map[string]int // by key
	order   []string       // actions, in order of their first effect
	calls   []api.Command

	follow  bool // the control stream
	first   string
	tenants []string // nil: t

	maxBytes int64 // of a new ledger; 0: no bound

	appended uint64 // last sequence that this test has appended
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), effects: map[string]int{}}
	r.startServer()
	return r
}

func (r *rig) startServer() {
	r.t.Helper()
	srv, err := embedded.Start(embedded.Config{Dir: filepath.Join(r.dir, "nats"), Port: -1})
	if err != nil {
		r.t.Fatal(err)
	}
	conn, err := srv.Connect()
	if err != nil {
		r.t.Fatal(err)
	}
	r.srv, r.conn = srv, conn
	r.t.Cleanup(func() { conn.Close(); srv.Close() })
}

func (r *rig) stopServer() {
	r.conn.Close()
	r.srv.Close()
}

// host runs a host until the returned stop is called.
func (r *rig) host(name string) (*Host, func()) {
	r.t.Helper()
	var shown slog.Handler = slog.DiscardHandler
	if os.Getenv("SAGENBAUM_TEST_LOG") != "" {
		shown = slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}).
			WithAttrs([]slog.Attr{slog.String("host", name)})
	}
	keys := filepath.Join(r.dir, "keys")
	if r.ownKeys {
		keys += "-" + name
	}
	log := slog.New(testenv.KeysOnce(r.t, shown))
	tenants := r.tenants
	if tenants == nil {
		tenants = []string{"t"}
	}
	h, err := New(Config{Conn: r.conn, Tenants: tenants, Follow: r.follow, First: r.first, Dir: filepath.Join(r.dir, name),
		LeaseTTL: cmp.Or(r.leaseTTL, time.Second), Logger: log, DurableServer: r.srv.DurableID(),
		StoreDir: filepath.Join(r.dir, "nats"), Webhooks: r.webhooks, Metrics: r.metrics, Cascade: r.cascade,
		MemoryBytes: r.memoryBytes, Witness: r.witness, MasterKey: r.master, Keys: r.keys, Clock: r.clock,
		TenantKeysDir: keys, erasing: r.erasing, MaxBytes: r.maxBytes,
		signing: proof.Times{After: r.signAfter, Retry: r.signAfter, WitnessRetry: r.signAfter}})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil && !errors.Is(err, ErrMute) {
				r.t.Errorf("host %s: %v", name, err)
			}
			if err := h.Close(); err != nil {
				r.t.Errorf("host %s: %v", name, err)
			}
		})
	}
	r.t.Cleanup(stop)
	<-h.Ready()
	return h, stop
}

// serve answers every undo with reply; nil replies are silence.
func (r *rig) serve(reply func(api.Command) *api.Reply) {
	r.t.Helper()
	_, err := r.conn.QueueSubscribe("undo.t.>", "workers", func(m *nats.Msg) {
		var c api.Command
		if err := json.Unmarshal(m.Data, &c); err != nil {
			r.t.Errorf("command: %v", err)
			return
		}
		answer := reply(c)
		r.mu.Lock()
		r.calls = append(r.calls, c)
		if answer != nil && answer.Status == api.StatusDone {
			if r.effects[c.Key] == 0 {
				r.order = append(r.order, c.Action)
			}
			r.effects[c.Key]++
		}
		r.mu.Unlock()
		if answer != nil {
			b, _ := json.Marshal(c.Answer(*answer))
			_ = m.Respond(b)
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func done(api.Command) *api.Reply { return &api.Reply{Status: api.StatusDone} }

func (r *rig) append(source ledger.Source, records ...*pb.Record) uint64 {
	r.t.Helper()
	data, err := ledger.EncodeCommit(records)
	if err != nil {
		r.t.Fatal(err)
	}
	appender, err := jetstream.Attach(r.conn, "t")
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	sequence, err := appender.Append(ctx, ledger.Append{Subject: source.Subject(), ID: jetstream.NewID(), Data: data})
	if err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.appended = max(r.appended, sequence)
	return sequence
}

// plan registers and completes n actions a1..an in one commit each.
func (r *rig) plan(id string, n int, deadline time.Duration) uint64 {
	r.t.Helper()
	source := ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "agent", Plan: id}
	open := &pb.PlanOpened{}
	if deadline > 0 {
		open.DeadlineNs = time.Now().Add(deadline).UnixNano()
	}
	r.append(source, &pb.Record{Plan: id, Kind: &pb.Record_PlanOpened{PlanOpened: open}})
	var last uint64
	for i := 1; i <= n; i++ {
		action := fmt.Sprintf("a%d", i)
		last = r.append(source,
			&pb.Record{Plan: id, Action: action,
				Kind: &pb.Record_ForwardRegistered{ForwardRegistered: &pb.ForwardRegistered{Capability: "do.x",
					Class: pb.Class_CLASS_COMPENSABLE}}},
			&pb.Record{Plan: id, Action: action,
				Kind: &pb.Record_CompensationRegistered{CompensationRegistered: &pb.CompensationRegistered{
					Capability: "x", Key: ledger.Key("t", id, action, "undo"), Attempts: 2, BackoffNs: int64(10 * time.Millisecond),
					TimeoutNs: int64(2 * time.Second)}}},
			&pb.Record{Plan: id, Action: action, Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{}}},
		)
	}
	return last
}

func (r *rig) fail(id string) uint64 {
	return r.append(ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "agent", Plan: id},
		&pb.Record{Plan: id, Kind: &pb.Record_PlanFailed{PlanFailed: &pb.PlanFailed{Reason: "test"}}})
}

// askAgain is how long a question waits before it is put again: whom it was put to may have gone.
const askAgain = 2 * time.Second

// ask asks the query API and decodes the answer.
func (r *rig) ask(verb string, question, answer any) error {
	body, _ := json.Marshal(question)
	for deadline := time.Now().Add(testenv.Patience); ; {
		m, err := r.conn.Request(api.QuerySubject("t", verb), body, askAgain)
		switch {
		case err == nil:
			return readAnswer(m.Data, answer)
		case !errors.Is(err, nats.ErrTimeout) || time.Now().After(deadline):
			return err
		}
	}
}

// readAnswer reads an answer, or what came instead of it, or beside it.
func readAnswer(text []byte, answer any) error {
	problem := new(api.Problem)
	if err := errors.Join(json.Unmarshal(text, problem), json.Unmarshal(text, answer)); err != nil {
		return err
	}
	if problem.Text != "" {
		return problem
	}
	return nil
}

// says is what an error says, empty: none.
func says(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// ended waits for a plan's end.
func (r *rig) ended(plan string) api.OutcomeAnswer {
	r.t.Helper()
	deadline := time.Now().Add(testenv.Patience)
	for {
		var answer api.OutcomeAnswer
		err := r.ask("plan.outcome", api.OutcomeQuery{Plan: plan, Ended: true, WaitMs: 1000}, &answer)
		if err == nil && answer.State != ledger.StateOpen && answer.State != ledger.StateUnwinding {
			return answer
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("plan %s does not end: %+v, %v", plan, answer, err)
		}
	}
}

func (r *rig) status() api.Status {
	r.t.Helper()
	var answer api.StatusAnswer
	if err := r.ask("status", struct{}{}, &answer); err != nil {
		r.t.Fatalf("status: %v %+v", err, answer)
	}
	return answer.Status
}

func (r *rig) wantOrder(want ...string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if fmt.Sprint(r.order) != fmt.Sprint(want) {
		r.t.Fatalf("undone %v, want %v", r.order, want)
	}
}

func TestAFailedPlanIsUndoneThroughAWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(done)
	r.host("h1")
	r.plan("p", 4, 0)
	r.fail("p")
	if got := r.ended("p"); got.State != ledger.StateCompensated {
		t.Fatalf("%+v", got)
	}
	r.wantOrder("a4", "a3", "a2", "a1")
}

func TestADeadlineFiresWhileNobodyIsThere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(done)
	r.host("h1")
	r.plan("p", 2, 300*time.Millisecond)
	if got := r.ended("p"); got.State != ledger.StateCompensated {
		t.Fatalf("%+v", got)
	}
	r.wantOrder("a2", "a1")
}

// TestAHostEndsOnAServerWithoutStreams, also where no flag names a tenant, whose ledger it would open.
func TestAHostEndsOnAServerWithoutStreams(t *testing.T) {
	t.Parallel()
	srv, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1, NoStreams: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	conn, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	h, err := New(Config{Conn: conn, Dir: t.TempDir(), Follow: true, First: "default", AcceptLossyBroker: true})
	if err != nil {
		t.Fatal(err)
	}
	var refused *ledger.Refused
	if err := h.Run(t.Context()); !errors.As(err, &refused) || refused.Field != "server" {
		t.Errorf("%v", err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}
