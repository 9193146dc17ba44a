package supervisor_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/supervisor"
	"github.com/sagenbaum/sagenbaum/executor/host/inprocess"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
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

// begun is a plan of an agent that has these contracts.
func begun(t *testing.T, nc *nats.Conn, contracts ...contract.Contract) *coordinator.Plan {
	t.Helper()
	plan, err := agent(t, nc, contracts...).Begin(t.Context(), coordinator.PlanSpec{})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// agent is one that has these contracts.
func agent(t *testing.T, nc *nats.Conn, contracts ...contract.Contract) *coordinator.Coordinator {
	t.Helper()
	c, err := coordinator.New(coordinator.Config{Conn: nc, Tenant: "default", Agent: "writer",
		Contracts: contracts, AppendTimeout: testenv.Patience, ConfirmTimeout: testenv.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) }) // what is not recorded ends with the server
	return c
}

// TestAVerdictIsTakenOrRefused: what is wrong is said before anything is stored, and what the ledger
// does not take is no success. A verdict with an id counts once.
func TestAVerdictIsTakenOrRefused(t *testing.T) {
	_, nc := started(t)
	plan := begun(t, nc, contract.Contract{Capability: "mail.send", Class: contract.Irreversible},
		contract.Contract{Capability: "row.add", Class: contract.Compensable,
			Inverse: &contract.Inverse{Call: "row.drop"}})
	happens := func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
		return coordinator.Outcome{}, nil
	}
	if _, err := plan.Do(t.Context(), coordinator.Action{ID: "a", Capability: "row.add"}, happens); err != nil {
		t.Fatal(err)
	}
	if err := plan.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := judge(t, nc, "law")
	for _, v := range []supervisor.Verdict{
		{Plan: plan.ID(), Action: "a", Outcome: "perhaps"},
		{Plan: plan.ID(), Action: "a", Outcome: supervisor.Allow, WholePlan: true},
		{Plan: plan.ID(), Outcome: supervisor.Block, Reason: "no"},
		{Plan: plan.ID(), Action: "a", Outcome: supervisor.Block}, // without a reason
		{Plan: plan.ID(), Action: "a", Outcome: supervisor.Block, Reason: " \t"},
		{Plan: plan.ID(), Action: "a", Outcome: supervisor.Redirect},
		{Plan: "no such", Action: "a", Outcome: supervisor.Block, Reason: "no"},
		{Plan: "none", Action: "a", Outcome: supervisor.Block, Reason: "no"},       // stored, and refused by the fold
		{Plan: plan.ID(), Action: "none", Outcome: supervisor.Block, Reason: "no"}, // likewise
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
	if err != nil || given.State != ledger.StateCommitted || given.Outcome != "completed" ||
		given.UndoneAs != plan.ID()+"~1" {
		t.Errorf("of a committed plan: %+v, %v", given, err)
	}
}

// TestABlockOfACommittedChildIsUndoneInItsRoot: no plan of its own undoes it.
func TestABlockOfACommittedChildIsUndoneInItsRoot(t *testing.T) {
	_, nc := started(t)
	c := agent(t, nc, contract.Contract{Capability: "row.add", Class: contract.Compensable,
		Inverse: &contract.Inverse{Call: "row.drop"}})
	root, err := c.Begin(t.Context(), coordinator.PlanSpec{})
	if err != nil {
		t.Fatal(err)
	}
	child, err := c.Begin(t.Context(), coordinator.PlanSpec{Parent: root.ID()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := child.Do(t.Context(), coordinator.Action{ID: "a", Capability: "row.add"},
		func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			return coordinator.Outcome{}, nil
		}); err != nil {
		t.Fatal(err)
	}
	if err := child.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	given, err := judge(t, nc, "law").Give(t.Context(), supervisor.Verdict{Plan: child.ID(), Action: "a",
		Outcome: supervisor.Block, Reason: "no"})
	if err != nil || given.State == ledger.StateCommitted && given.UndoneIn != root.ID() {
		t.Errorf("%+v, %v", given, err)
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

// TestNothingIsAllowedUnseen: an agent that makes an input too large for a list does not have it
// allowed so; who asks for the action sees all of it, and of other actions no input or output.
func TestNothingIsAllowedUnseen(t *testing.T) {
	_, nc := started(t)
	plan := begun(t, nc, publish...)
	happens := func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
		return coordinator.Outcome{Output: map[string]string{"url": "/secret"}}, nil
	}
	ended := make(chan error, 1)
	do := func(id, text string) {
		_, err := plan.Do(context.Background(), coordinator.Action{ID: id, Capability: "page.publish", Input: text,
			Branch: true}, happens)
		ended <- err
	}
	s := judge(t, nc, "law")
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	waits := func() api.Review {
		t.Helper()
		for {
			waiting, err := s.Waiting(ctx, 0)
			if err != nil || len(waiting) > 1 {
				t.Fatalf("%+v, %v", waiting, err)
			}
			if len(waiting) == 1 {
				return waiting[0]
			}
		}
	}
	give := func(v supervisor.Verdict) error {
		t.Helper()
		if _, err := s.Give(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		return <-ended
	}
	go do("a", strings.Repeat(" ", 9<<10)+"of a customer")
	listed := waits()
	if v := verdictOn(listed); !listed.Omitted || v.Outcome != supervisor.Block {
		t.Errorf("unseen: %+v, %+v", listed, v)
	}
	shown, known, err := s.Show(t.Context(), plan.ID(), "a")
	if err != nil || !known || shown.Omitted || !strings.Contains(string(shown.Input), "of a customer") {
		t.Fatalf("%+v, %v, %v", shown, known, err)
	}
	if _, known, err := s.Show(t.Context(), plan.ID(), "1"); err != nil || known {
		t.Errorf("by its number: %v, %v", known, err)
	}
	verdict := new(coordinator.Verdict)
	if err := give(verdictOn(shown)); !errors.As(err, &verdict) || verdict.Reason != "it names a customer" {
		t.Errorf("seen: %v", err)
	}
	if _, known, err := s.Show(t.Context(), plan.ID(), "a"); err != nil || known {
		t.Errorf("after its verdict: %v, %v", known, err)
	}
	if _, _, err := s.Show(t.Context(), plan.ID(), "a b"); !errors.As(err, new(*ledger.Refused)) {
		t.Errorf("no id: %v", err)
	}
}

// TestWhoJudgesOneActionReadsNoOther: what a block would undo has the arguments of its action alone.
func TestWhoJudgesOneActionReadsNoOther(t *testing.T) {
	_, nc := started(t)
	plan := begun(t, nc, contract.Contract{Capability: "row.add", Class: contract.Compensable,
		Inverse: &contract.Inverse{Call: "row.drop", With: map[string]any{"row": "=output.row", "of": "=input.of"}}})
	ended := make(chan error, 1)
	go func() { // ends with the verdict
		_, err := plan.Do(context.Background(), coordinator.Action{ID: "a", Capability: "row.add", Review: true,
			Input: map[string]string{"of": "a"}}, func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			return coordinator.Outcome{Output: map[string]string{"row": "one"}}, nil
		})
		ended <- err
	}()
	s := judge(t, nc, "law")
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	shows := func(steps int) (shown api.Review) {
		t.Helper()
		for shown.Block == nil || len(shown.Block.Steps) != steps {
			var err error
			if shown, _, err = s.Show(ctx, plan.ID(), "a"); err != nil {
				t.Fatalf("%+v, %v", shown, err)
			}
		}
		return shown
	}
	shows(1)
	if _, err := plan.Do(t.Context(), coordinator.Action{ID: "b", Capability: "row.add",
		Input: map[string]string{"of": "b"}},
		func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			return coordinator.Outcome{Output: map[string]string{"row": "secret"}}, nil
		}); err != nil {
		t.Fatal(err)
	}
	if err := plan.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, step := range shows(2).Block.Steps {
		if step.Action != "a" && step.Arguments != nil {
			t.Errorf("%+v", step)
		}
	}
	_, err := s.Give(t.Context(), supervisor.Verdict{Plan: plan.ID(), Action: "a", Outcome: supervisor.Allow})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestWhoMayNotJudgeIsTold: it is no doubt, and who may is not taken for one of these afterwards.
func TestWhoMayNotJudgeIsTold(t *testing.T) {
	t.Parallel()
	users := testenv.Users(t, access.User{Name: "law", Role: access.Supervisor, Tenant: "default"},
		access.User{Name: "coder", Role: access.Agent, Tenant: "default"})
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1, Users: users.Directory})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	try := func(user, name string) (give, list error) {
		t.Helper()
		nc, err := nats.Connect(server.URL(), append(users.As(user),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		for _, as := range []string{name, user} { // the last error of the connection stays
			s, err := supervisor.New(supervisor.Config{Conn: nc, Tenant: "default", Name: as, Timeout: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Give(t.Context(), supervisor.Verdict{Plan: "p", Action: "a", Outcome: supervisor.Allow})
			if as == name {
				give = err
			} else if user == "law" && errors.Is(err, supervisor.ErrNotAllowed) {
				t.Errorf("law as law: %v", err)
			}
			_, list = s.Waiting(t.Context(), 0)
		}
		return give, list
	}
	give, list := try("law", "other")
	if !errors.Is(give, supervisor.ErrNotAllowed) || errors.Is(give, supervisor.ErrInDoubt) {
		t.Errorf("law as other: %v", give)
	}
	if list == nil || errors.Is(list, supervisor.ErrNotAllowed) { // no one answers
		t.Errorf("law lists: %v", list)
	}
	if give, list = try("coder", "law"); !errors.Is(give, supervisor.ErrNotAllowed) ||
		!errors.Is(list, supervisor.ErrNotAllowed) {
		t.Errorf("coder as law: %v; lists: %v", give, list)
	}
}

func second[T any](_ T, err error) error { return err }
