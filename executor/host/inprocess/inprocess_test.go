package inprocess

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/executor/host"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

func startLocal(t *testing.T, cfg Config) (*Server, *nats.Conn) {
	t.Helper()
	l, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	conn, err := l.Connect()
	if err != nil {
		t.Fatal(err)
	}
	return l, conn
}

// localPlan takes one action under a plan with this ID.
func localPlan(t *testing.T, conn *nats.Conn, tenant, id string) *coordinator.Plan {
	t.Helper()
	c, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: tenant, Agent: "a",
		Contracts: []contract.Contract{{Capability: "x.make", Class: contract.Compensable,
			Inverse: &contract.Inverse{Call: "x.unmake"}}}})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := c.Begin(t.Context(), coordinator.PlanSpec{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Do(t.Context(), coordinator.Action{Capability: "x.make"},
		func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			return coordinator.Outcome{}, nil
		}); err != nil {
		t.Fatal(err)
	}
	return plan
}

func unmakes(t *testing.T, conn *nats.Conn, tenant string) {
	t.Helper()
	w, err := worker.New(worker.Config{Conn: conn, Tenant: tenant, Name: "w"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Handle("x.unmake", func(context.Context, api.Command) (worker.Result, error) {
		return worker.Result{}, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// What is to be undone when a program closes is undone when the next one starts on its folder.
func TestTheNextStartUndoesWhatIsLeft(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, conn := startLocal(t, Config{Dir: dir})
	if err := localPlan(t, conn, "default", "p").Fail(t.Context(), "no worker is there"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-l.Ended():
	default:
		t.Error("the host goes on after Close")
	}
	if !conn.IsClosed() {
		t.Error("a connection of Connect is open after Close")
	}
	l, conn = startLocal(t, Config{Dir: dir})
	unmakes(t, conn, "default")
	answer, err := l.Host().Ask("default", api.PlanOutcome.Name,
		api.OutcomeQuery{Plan: "p", Ended: true, WaitMs: time.Minute.Milliseconds()})
	if end, ok := answer.(api.OutcomeAnswer); err != nil || !ok ||
		end.State != ledger.StateCompensated {
		t.Errorf("%+v (%v), want a compensated plan", answer, err)
	}
}

// By default no other process can connect; with an address any can that the server lets in.
func TestALocalServerListensWhereItIsTold(t *testing.T) {
	t.Parallel()
	l, conn := startLocal(t, Config{Dir: t.TempDir(), Tenants: []string{"a", "b"},
		Server: embedded.Config{NoSync: true}})
	if l.URL() != "" {
		t.Errorf("it listens at %s", l.URL())
	}
	for _, tenant := range []string{"a", "b"} {
		localPlan(t, conn, tenant, "p")
	}
	l, _ = startLocal(t, Config{Dir: t.TempDir(), Server: embedded.Config{Port: -1}})
	outside, err := nats.Connect(l.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	localPlan(t, outside, "default", "p")
}

func TestABadConfigIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "Dir"},
		{Config{Dir: dir, Server: embedded.Config{Dir: "elsewhere"}}, "Server"},
		{Config{Dir: dir, Server: embedded.Config{NoStreams: true}}, "Server"},
		{Config{Dir: dir, Host: host.Config{Dir: "elsewhere"}}, "Host"},
		{Config{Dir: dir, Host: host.Config{Tenants: []string{"t"}}}, "Host"},
		{Config{Dir: dir, Tenants: []string{"a b"}}, "Tenants"},
		{Config{Dir: dir, Server: embedded.Config{Host: "0.0.0.0"}}, "host"},
	} {
		l, err := Start(t.Context(), c.cfg)
		var refused *ledger.Refused
		if !errors.As(err, &refused) || refused.Field != c.want {
			t.Errorf("%+v: %v, want %s refused", c.cfg, err, c.want)
		}
		if l != nil {
			_ = l.Close()
		}
	}
	startLocal(t, Config{Dir: dir})
	if _, err := Start(t.Context(), Config{Dir: dir}); !errors.Is(err, embedded.ErrInUse) {
		t.Errorf("a second start on the folder: %v", err)
	}
}

// A start whose context ends leaves nothing behind: the folder is free.
func TestAStartThatIsGivenUpFreesTheFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Config{Dir: dir}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := embedded.CheckFolder(ServerDir(dir)); err != nil {
		t.Error(err)
	}
	startLocal(t, Config{Dir: dir})
}

// A server that can store nothing any more ends the host, which says so.
func TestALocalHostEndsWithItsServer(t *testing.T) {
	t.Parallel()
	l, _ := startLocal(t, Config{Dir: t.TempDir()})
	l.server.Close()
	<-l.Ended()
	if err := l.Close(); !errors.Is(err, host.ErrMute) {
		t.Errorf("%v, want %v", err, host.ErrMute)
	}
}

// A tenant whose ledger is gone is halted, and Start says so.
func TestStartNamesTheTenantsThatAreHalted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, conn := startLocal(t, Config{Dir: dir, Tenants: []string{"lost"}})
	localPlan(t, conn, "lost", "p")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(ServerDir(dir)); err != nil {
		t.Fatal(err)
	}
	if l, err := Start(t.Context(), Config{Dir: dir, Tenants: []string{"lost"}}); err == nil ||
		!strings.Contains(err.Error(), "tenant lost is halted") {
		t.Errorf("Start says %v", err)
		if l != nil {
			_ = l.Close()
		}
	}
}
