package supervisor_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/supervisor"
	"github.com/sagenbaum/sagenbaum/executor/host/inprocess"
	"github.com/sagenbaum/sagenbaum/ledger"
)

func started(t *testing.T) (*inprocess.Server, *nats.Conn) {
	t.Helper()
	server, err := inprocess.Start(t.Context(), inprocess.Config{Dir: filepath.Join(t.TempDir(), "data")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	nc, err := server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	return server, nc
}

func judge(t *testing.T, nc *nats.Conn, name string) *supervisor.Supervisor {
	t.Helper()
	s, err := supervisor.New(supervisor.Config{Conn: nc, Tenant: "default", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestAVerdictIsTakenOrRefused: what is wrong is said before anything is stored, and what the ledger
// does not take is no success. A verdict with an id counts once.
func TestAVerdictIsTakenOrRefused(t *testing.T) {
	_, nc := started(t)
	c, err := coordinator.New(coordinator.Config{Conn: nc, Tenant: "default", Agent: "writer",
		Contracts: []contract.Contract{{Capability: "mail.send", Class: contract.Irreversible},
			{Capability: "row.add", Class: contract.Compensable, Inverse: &contract.Inverse{Call: "row.drop"}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	plan, err := c.Begin(t.Context(), coordinator.PlanSpec{})
	if err != nil {
		t.Fatal(err)
	}
	happens := func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
		return coordinator.Outcome{}, nil
	}
	if _, err = plan.Do(t.Context(), coordinator.Action{ID: "a", Capability: "row.add"}, happens); err != nil {
		t.Fatal(err)
	}
	if err = plan.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := judge(t, nc, "law")
	for _, v := range []supervisor.Verdict{
		{Plan: plan.ID(), Action: "a", Outcome: "perhaps"},
		{Plan: plan.ID(), Action: "a", Outcome: supervisor.Allow, WholePlan: true},
		{Plan: plan.ID(), Outcome: supervisor.Block},
		{Plan: "no such", Action: "a", Outcome: supervisor.Block},
		{Plan: "none", Action: "a", Outcome: supervisor.Block},       // stored, and refused by the fold
		{Plan: plan.ID(), Action: "none", Outcome: supervisor.Block}, // likewise
		{Plan: plan.ID(), Action: "a", Outcome: supervisor.Allow, ID: "again"},
	} {
		given, err := s.Give(t.Context(), v)
		if refused := new(ledger.Refused); !errors.As(err, &refused) {
			t.Errorf("%+v: %+v, %v", v, given, err)
		}
	}
	v := supervisor.Verdict{Plan: plan.ID(), Action: "a", Outcome: supervisor.Allow, ID: ulid.Make().String()}
	for range 2 {
		if given, err := s.Give(t.Context(), v); err != nil || given.State != ledger.StateOpen {
			t.Fatalf("%+v, %v", given, err)
		}
	}
	if err := plan.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	given, err := s.Give(t.Context(), supervisor.Verdict{Plan: plan.ID(), Action: "a", Outcome: supervisor.Redirect,
		Reason: "another table", WholePlan: true})
	if err != nil || given.State != ledger.StateCommitted || given.UndoneAs != plan.ID()+"~1" {
		t.Errorf("of a committed plan: %+v, %v", given, err)
	}
}

// TestWhatASupervisorIsToldOfAClosedConnection: nothing hangs.
func TestWhatASupervisorIsToldOfAClosedConnection(t *testing.T) {
	_, nc := started(t)
	s := judge(t, nc, "law")
	nc.Close()
	_, err := s.Give(t.Context(), supervisor.Verdict{Plan: "p", Action: "a", Outcome: supervisor.Allow})
	if !errors.Is(err, supervisor.ErrConnectionClosed) {
		t.Errorf("Give: %v", err)
	}
	if _, err = s.Waiting(t.Context(), 0); !errors.Is(err, supervisor.ErrConnectionClosed) {
		t.Errorf("Waiting: %v", err)
	}
	for _, config := range []supervisor.Config{{Tenant: "default", Name: "law"}, {Conn: nc, Tenant: "default"},
		{Conn: nc, Name: "law"}, {Conn: nc, Tenant: "default", Name: "law", Timeout: -1}} {
		if refused := new(ledger.Refused); !errors.As(second(supervisor.New(config)), &refused) {
			t.Errorf("%+v is taken", config)
		}
	}
}

func second[T any](_ T, err error) error { return err }
