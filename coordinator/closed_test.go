package coordinator_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/ledger/testenv/served"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// given is an agent and a worker over one connection, whose client gives up at once when its
// server is gone, and what they log.
type given struct {
	t      *testing.T
	server *embedded.Server
	conn   *nats.Conn
	agent  *coordinator.Coordinator
	worker *worker.Worker

	mu  sync.Mutex
	log strings.Builder
}

func (g *given) Write(line []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.log.Write(line)
}

func (g *given) logged() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.log.String()
}

// giveUp is an agent whose calls would wait for an hour.
func giveUp(t *testing.T) *given {
	t.Helper()
	g := &given{t: t}
	var err error
	if g.server, err = embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.server.Close)
	root, err := g.server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(root.Close)
	if _, err = jetstream.Open(t.Context(), jetstream.Config{Conn: root, Tenant: "default",
		DurableServer: g.server.DurableID()}); err != nil {
		t.Fatal(err)
	}
	g.conn, err = nats.Connect(g.server.URL(), nats.MaxReconnects(1), nats.ReconnectWait(10*time.Millisecond),
		nats.ReconnectJitter(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.conn.Close)
	logger := slog.New(slog.NewTextHandler(g, &slog.HandlerOptions{Level: slog.LevelError}))
	g.agent, err = coordinator.New(coordinator.Config{Conn: g.conn, Tenant: "default", Agent: "a1", Logger: logger,
		AppendTimeout: time.Hour, ConfirmTimeout: time.Hour, ReviewTimeout: time.Hour,
		Contracts: []contract.Contract{{Capability: "mail.send", Class: contract.Irreversible}}})
	if err != nil {
		t.Fatal(err)
	}
	g.worker, err = worker.New(worker.Config{Conn: g.conn, Tenant: "default", Name: "w1", Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// begin begins a plan whose opening is stored. No executor is here to say that it is.
func (g *given) begin(ctx context.Context, id string) *coordinator.Plan {
	g.t.Helper()
	plan, err := g.agent.Begin(ctx, coordinator.PlanSpec{Owner: "ana", ID: id})
	if err == nil {
		err = plan.Flush(ctx)
	}
	if err != nil {
		g.t.Fatal(err)
	}
	return plan
}

// lose takes the server away, and waits until agent and worker know of it.
func (g *given) lose(ctx context.Context) {
	g.t.Helper()
	g.server.Close()
	for who, lost := range map[string]<-chan struct{}{"agent": g.agent.Lost(), "worker": g.worker.Lost()} {
		select {
		case <-lost:
		case <-ctx.Done():
			g.t.Fatalf("the %s never heard that its connection is closed", who)
		}
	}
}

func undoMail(context.Context, api.Command) (worker.Result, error) { return worker.Result{}, nil }

func send(context.Context, coordinator.Call) (coordinator.Outcome, error) {
	return coordinator.Outcome{}, nil
}

// TestACallOverAClosedConnectionFailsAtOnce, each of agent and worker, with what is so; and both
// say once that it is.
func TestACallOverAClosedConnectionFailsAtOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	g := giveUp(t)
	plan := g.begin(ctx, "p1")
	if err := g.worker.Handle("mail.unsend", undoMail); err != nil {
		t.Fatal(err)
	}
	if g.agent.Err() != nil || g.worker.Err() != nil {
		t.Fatalf("with a server: %v, %v", g.agent.Err(), g.worker.Err())
	}
	g.lose(ctx)
	mail := coordinator.Action{ID: "a", Capability: "mail.send"}
	for what, call := range map[string]func() error{
		"New": func() error {
			_, err := coordinator.New(coordinator.Config{Conn: g.conn, Tenant: "default", Agent: "a1"})
			return err
		},
		"Begin": func() error {
			_, err := g.agent.Begin(ctx, coordinator.PlanSpec{Owner: "ana", ID: "p2"})
			return err
		},
		"Resume": func() error { _, err := g.agent.Resume(ctx, "p1"); return err },
		"Past":   func() error { _, err := g.agent.Past(ctx, "p1", 0); return err },
		"Do":     func() error { _, err := plan.Do(ctx, mail, send); return err },
		"Preview": func() error {
			_, err := plan.Preview(ctx, coordinator.Part{})
			return err
		},
		"Accepted": func() error { return plan.Accepted(ctx) },
		"Wait":     func() error { _, err := plan.Wait(ctx); return err },
		"worker.New": func() error {
			_, err := worker.New(worker.Config{Conn: g.conn, Tenant: "default", Name: "w2"})
			return err
		},
		"Handle": func() error { return g.worker.Handle("mail.unread", undoMail) },
		"Report": func() error {
			return g.worker.Report(ctx, api.Command{Tenant: "default", Plan: "p1", Action: "a", Key: "k", Attempt: 1},
				worker.Result{}, nil)
		},
		"agent.Err": g.agent.Err, "worker.Err": g.worker.Err,
	} {
		err := call()
		if !errors.Is(err, coordinator.ErrConnectionClosed) || !errors.Is(err, worker.ErrConnectionClosed) ||
			!errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, ledger.ErrInDoubt) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := plan.Fail(ctx, "no mail"); !errors.Is(err, coordinator.ErrConnectionClosed) {
		t.Errorf("Fail: %v", err)
	}
	_ = g.agent.Close(ctx)
	_ = g.worker.Close(ctx)
	if log := g.logged(); strings.Count(log, "no call of this agent works any more") != 1 ||
		strings.Count(log, "no command comes to this worker any more") != 1 {
		t.Errorf("they say\n%s", log)
	}
}

// TestACallThatWaitsEndsWithItsConnection: it is not kept until its time is over.
func TestACallThatWaitsEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	g := giveUp(t)
	ended := make(chan error)
	for what, call := range map[string]func(*coordinator.Plan) error{
		"Wait":   func(p *coordinator.Plan) error { _, err := p.Wait(ctx); return err },
		"Commit": func(p *coordinator.Plan) error { return p.Commit(ctx) },
		"Accepted": func(p *coordinator.Plan) error {
			return p.Accepted(ctx)
		},
	} {
		plan := g.begin(ctx, "of-"+what)
		go func() { ended <- call(plan) }() // ends with the connection
	}
	g.lose(ctx)
	for range 3 {
		select {
		case err := <-ended:
			if !errors.Is(err, coordinator.ErrConnectionClosed) {
				t.Error(err)
			}
		case <-ctx.Done():
			t.Fatal("a call waits for an answer that cannot come")
		}
	}
	_ = g.agent.Close(ctx)
}

// TestWhatWasSentStaysInDoubt: an append that a server may have stored before the client gave up.
func TestWhatWasSentStaysInDoubt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	conn, sent := silent(t)
	agent, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: "default", Agent: "a1",
		AppendTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := agent.Begin(ctx, coordinator.PlanSpec{Owner: "ana"})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- plan.Flush(ctx) }() // ends with the connection
	select {
	case <-sent:
	case <-ctx.Done():
		t.Fatal("nothing was sent")
	}
	conn.Close()
	if err := <-ended; !errors.Is(err, coordinator.ErrConnectionClosed) || !errors.Is(err, coordinator.ErrInDoubt) {
		t.Error(err)
	}
	_ = agent.Close(ctx)
}

// silent is a server that takes appends and says nothing, and what tells of the first.
func silent(t *testing.T) (*nats.Conn, <-chan struct{}) {
	t.Helper()
	server, root := served.NATS(t)
	sent := make(chan struct{})
	var once sync.Once
	if _, err := root.Subscribe("saga.>", func(*nats.Msg) { once.Do(func() { close(sent) }) }); err != nil {
		t.Fatal(err)
	}
	if err := root.Flush(); err != nil {
		t.Fatal(err)
	}
	conn, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn, sent
}

// TestAClosedCoordinatorLosesNothing: who closes it, and then its connection, hears of no loss.
func TestAClosedCoordinatorLosesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	g := giveUp(t)
	if err := errors.Join(g.agent.Close(ctx), g.worker.Close(ctx)); err != nil {
		t.Fatal(err)
	}
	g.conn.Close()
	if err := errors.Join(g.agent.Err(), g.worker.Err()); err != nil || g.logged() != "" {
		t.Errorf("%v, and they say %q", err, g.logged())
	}
}
