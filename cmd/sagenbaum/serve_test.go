package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// dial connects a test's own client to a server.
func dial(t *testing.T, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	conn, err := asLocal(url, append(options, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// openPlan leaves an open plan with one irreversible action in the ledger, which
// nothing but its owner can end once it is cancelled.
func openPlan(t *testing.T, conn *nats.Conn, tenant, id string) {
	t.Helper()
	ctx := t.Context()
	agent, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: tenant, Agent: "tester",
		Contracts: []contract.Contract{
			{Capability: "mail.send", Class: contract.Irreversible},
		}})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := agent.Begin(ctx, coordinator.PlanSpec{ID: id, Owner: "operator1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Report(ctx, coordinator.Action{Capability: "mail.send"}, coordinator.Outcome{}); err != nil {
		t.Fatal(err)
	}
	if err := agent.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestAQuarantineIsShownResolvedOnceAndExplained(t *testing.T) {
	t.Parallel()
	s := serveFor(t, dataDir(t), "--listen", "127.0.0.1:0", "--tenant", "default", "--tenant", "second")
	openPlan(t, dial(t, s.url), "default", "p1")
	cancelled := s.ask(t, "default", "plan", "cancel", "p1", "--reason", "sold out", "--wait", "-o", "json")
	cancelled.wants(t, "plan cancel --wait", cli.ExitLook)
	if a := decoded[api.OutcomeAnswer](t, cancelled); a.State != ledger.StateQuarantined {
		t.Errorf("a cancelled plan with an irreversible action is %+v, want quarantined", a)
	}
	for _, line := range []string{"plan show p1", "plan tree p1", "quarantine ls", "status", "doctor"} {
		s.ask(t, "default", strings.Fields(line)...).wants(t, line, cli.ExitLook)
	}
	s.ask(t, "second", "quarantine", "ls").wants(t, "another tenant", cli.ExitGood)
	resolve := []string{"quarantine", "resolve", "p1", "1", "--as", "accepted", "--reason", "it was only a mail",
		"--evidence", "ticket:7", "--actor", "operator1"}
	s.ask(t, "default", resolve...).wants(t, "resolve", cli.ExitGood)
	s.ask(t, "default", resolve...).wants(t, "resolve again", cli.ExitConflict)
	plan := decoded[view.Plan](t, s.ask(t, "default", "plan", "show", "p1", "-o", "json"))
	if plan.State != ledger.StateResolved || plan.Actions[0].ResolvedBy != "operator1" ||
		plan.Actions[0].Evidence != "ticket:7" {
		t.Errorf("the resolved plan is %+v", plan)
	}
	s.end(t).wants(t, "serve", cli.ExitGood)
}

func TestServeSurvivesKillAndEndsWellOnASignal(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	first := serveFor(t, dir, "--listen", "127.0.0.1:0")
	openPlan(t, dial(t, first.url), "default", "p1")
	first.command.Process.Kill()
	first.command.Wait()
	second := serveFor(t, dir, "--listen", "127.0.0.1:0")
	if all := decoded[view.PlansAnswer](t,
		second.ask(t, "default", "plan", "ls", "-o", "json")); len(all.Plans) != 1 || all.Plans[0].Held != 1 {
		t.Errorf("after kill -9 the plans are %+v", all.Plans)
	}
	if err := second.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	second.end(t).wants(t, "serve after SIGTERM", cli.ExitGood)
}

func TestServeRefusesWhatWouldBeUnsafe(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	open := finished(t, sagenbaum(t, "serve", "--data", dir, "--listen", "0.0.0.0:0", "--open"))
	open.wants(t, "an open address", cli.ExitUsage, "without TLS and credentials", "next: --listen", "without --open")
	s := serveFor(t, dir, "--listen", "127.0.0.1:0")
	twice := finished(t, sagenbaum(t, "serve", "--data", dir, "--listen", "127.0.0.1:0"))
	twice.wants(t, "a second server on one folder", cli.ExitFailed, "cannot lock folder", "next: stop the other server",
		"--data DIR")
	s.end(t).wants(t, "serve", cli.ExitGood)
	lossy := serveFor(t, dir, "--listen", "127.0.0.1:0", "--no-sync")
	if r := lossy.end(t); !strings.Contains(r.stderr, "LOST") {
		t.Errorf("--no-sync does not warn: %s", r.stderr)
	}
}

func TestAnExternalServerMustKeepWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	refused := finished(t, sagenbaum(t, "serve", "--data", dataDir(t), "--nats", server.URL()))
	refused.wants(t, "a lossy external server", cli.ExitFailed, "accept")
	s := serveFor(t, dataDir(t), "--nats", server.URL(), "--accept-lossy-broker")
	s.ask(t, "default", "status").wants(t, "status over an external server", cli.ExitGood)
	s.end(t).wants(t, "serve", cli.ExitGood)
}

// A foreign client that misspells a field, and one whose opening is refused, so that its
// plan has failed: who looks at the plan reads the field and what would be right.
func TestWhatIsRefusedOfAPlanIsToldWithIt(t *testing.T) {
	t.Parallel()
	s := serveFor(t, dataDir(t), "--listen", "127.0.0.1:0")
	conn := dial(t, s.url)
	openPlan(t, conn, "default", "p1")
	send := func(plan, record string) {
		t.Helper()
		m := &nats.Msg{Subject: "saga.default.agent.tester." + plan,
			Header: nats.Header{"Content-Type": {ledger.ContentTypeJSON}},
			Data:   []byte(`{"records":[` + record + `]}`)}
		if _, err := conn.RequestMsgWithContext(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	send("p1", `{"plan":"p1","planFailed":{"because":"no seats"}}`)
	send("p2", `{"plan":"p2","planOpened":{"triggers":[{"name":"late","condition":"affter(plan.deadline)"}]}}`)
	const misspelt = "records[0].planFailed.because: there is no such field; want reason"
	const unopened = `plan_opened.triggers[0].condition: does not compile: 1:7: undeclared name "affter"; want did you mean after?`
	for _, c := range []struct {
		args []string
		exit int
		want string
	}{
		{[]string{"plan", "why", "p1"}, cli.ExitGood, misspelt},
		{[]string{"plan", "show", "p1"}, cli.ExitGood, misspelt},
		{[]string{"plan", "why", "p2"}, cli.ExitGood, unopened},
		{[]string{"plan", "show", "p2"}, cli.ExitGood, unopened},
		{[]string{"plan", "show", "p2"}, cli.ExitGood, "(its opening was refused)"},
		{[]string{"doctor"}, cli.ExitLook, "records[0].planFailed.because: there is no such field"},
		{[]string{"ledger", "tail", "--since", "1"}, cli.ExitGood, misspelt},
	} {
		r := s.ask(t, "default", c.args...)
		r.wants(t, strings.Join(c.args, " "), c.exit)
		if !strings.Contains(r.stdout+r.stderr, c.want) {
			t.Errorf("%s says\n%s%s\nwant %s", strings.Join(c.args, " "), r.stdout, r.stderr, c.want)
		}
	}
	s.end(t)
}

// A foreign client that sends a forward without its registration: the record is
// refused, the doctor says so, and the plan's owner has the last word on it.
func TestAForwardWithoutItsRegistrationGoesToItsOwner(t *testing.T) {
	t.Parallel()
	s := serveFor(t, dataDir(t), "--listen", "127.0.0.1:0")
	conn := dial(t, s.url)
	openPlan(t, conn, "default", "p1")
	half := &nats.Msg{Subject: "saga.default.agent.tester.p1",
		Header: nats.Header{"Content-Type": {ledger.ContentTypeJSON}},
		Data: []byte(
			`{"records":[{"plan":"p1","action":"half","forwardRegistered":{"capability":"mail.send","class":"CLASS_IRREVERSIBLE"}}]}`)}
	if _, err := conn.RequestMsgWithContext(t.Context(), half); err != nil {
		t.Fatal(err)
	}
	doctor := s.ask(t, "default", "doctor")
	doctor.wants(t, "doctor", cli.ExitLook)
	if !strings.Contains(doctor.stdout, "half of a pair") {
		t.Errorf("the doctor says\n%s", doctor.stdout)
	}
	s.ask(t, "default", "plan", "cancel", "p1", "--wait").wants(t, "cancel", cli.ExitLook)
	waiting := s.ask(t, "default", "quarantine", "ls")
	if !strings.Contains(waiting.stdout, "half") || !strings.Contains(waiting.stdout, "its record was refused") {
		t.Errorf("quarantine ls says\n%s", waiting.stdout)
	}
	for _, action := range []string{"half", "1"} {
		r := s.ask(t, "default", "quarantine", "resolve", "p1", action, "--as", "accepted", "--reason", "only a mail",
			"--evidence", "ticket:8")
		r.wants(t, "resolve "+action, cli.ExitGood)
	}
	plan := decoded[view.Plan](t, s.ask(t, "default", "plan", "show", "p1", "-o", "json"))
	if plan.State != ledger.StateResolved || len(plan.Orphans) != 0 {
		t.Errorf("the plan is %s with orphans %v", plan.State, plan.Orphans)
	}
	s.end(t)
}
