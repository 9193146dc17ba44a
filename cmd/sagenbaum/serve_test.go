package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

func TestAQuarantineIsShownResolvedOnceAndExplained(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--listen", "127.0.0.1:0", "--tenant", "default", "--tenant", "second")
	cmdtest.OpenPlan(t, cmdtest.Dial(t, s.URL), "default", "p1")
	cancelled := s.Ask(t, "default", "plan", "cancel", "p1", "--reason", "sold out", "--wait", "-o", "json")
	cancelled.Wants(t, "plan cancel --wait", cli.ExitLook)
	if a := cmdtest.Decoded[api.OutcomeAnswer](t, cancelled); a.State != ledger.StateQuarantined {
		t.Errorf("a cancelled plan with an irreversible action is %+v, want quarantined", a)
	}
	for _, line := range []string{"plan show p1", "plan tree p1", "quarantine ls", "status", "doctor"} {
		s.Ask(t, "default", strings.Fields(line)...).Wants(t, line, cli.ExitLook)
	}
	s.Ask(t, "second", "quarantine", "ls").Wants(t, "another tenant", cli.ExitGood)
	resolve := []string{"quarantine", "resolve", "p1", "1", "--as", "accepted", "--reason", "it was only a mail",
		"--evidence", "ticket:7", "--actor", "operator1"}
	s.Ask(t, "default", resolve...).Wants(t, "resolve", cli.ExitGood)
	s.Ask(t, "default", resolve...).Wants(t, "resolve again", cli.ExitConflict)
	plan := cmdtest.Decoded[api.Plan](t, s.Ask(t, "default", "plan", "show", "p1", "-o", "json"))
	if plan.State != ledger.StateResolved || plan.Actions[0].ResolvedBy != "operator1" ||
		plan.Actions[0].Evidence != "ticket:7" {
		t.Errorf("the resolved plan is %+v", plan)
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

func TestServeSurvivesKillAndEndsWellOnASignal(t *testing.T) {
	t.Parallel()
	dir := cmdtest.DataDir(t)
	first := cmdtest.ServeFor(t, dir, "--listen", "127.0.0.1:0")
	cmdtest.OpenPlan(t, cmdtest.Dial(t, first.URL), "default", "p1")
	first.Command.Process.Kill()
	first.Command.Wait()
	second := cmdtest.ServeFor(t, dir, "--listen", "127.0.0.1:0")
	if all := cmdtest.Decoded[api.PlansAnswer](t,
		second.Ask(t, "default", "plan", "ls", "-o", "json")); len(all.Plans) != 1 || all.Plans[0].Held != 1 {
		t.Errorf("after kill -9 the plans are %+v", all.Plans)
	}
	if err := second.Command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	second.End(t).Wants(t, "serve after SIGTERM", cli.ExitGood)
}

// TestServeOnAllAddressesIsReachedEveryWay that documents name: by what serve says, by its context,
// and by the credentials of a user.
func TestServeOnAllAddressesIsReachedEveryWay(t *testing.T) {
	t.Parallel()
	dir := cmdtest.DataDir(t)
	s := cmdtest.ServeFor(t, dir, "--listen", "0.0.0.0:0")
	if !strings.HasPrefix(s.URL, "tls://127.0.0.1:") {
		t.Errorf("serve says %s", s.URL)
	}
	local := filepath.Join(dir, "auth", "local.creds")
	s.Ask(t, "default", "plan", "ls").Wants(t, "by its URL", cli.ExitGood)
	cmdtest.Run(t, "plan", "ls", "--creds", local).Wants(t, "by local.creds", cli.ExitGood)
	user := s.User(t, "reader", "auditor")
	args := []string{"plan", "ls", "--creds", user}
	if name, err := os.Hostname(); err != nil {
		t.Fatal(err)
	} else if _, err := net.DefaultResolver.LookupHost(t.Context(), name); err != nil {
		args = append(args, "--server", s.URL) // this machine does not know its own name
	}
	cmdtest.Run(t, args...).Wants(t, "by a user's credentials", cli.ExitGood)
	s.End(t).Wants(t, "serve", cli.ExitGood)

	// Not started by a program, it also makes a context, which is found without a setting.
	command := cmdtest.Sagenbaum(t, "serve", "--data", dir, "--console", "off", "--http", "off", "--listen",
		"0.0.0.0:0", "-o", "json")
	again, err := cmdtest.StartServed(dir, command)
	if err != nil {
		t.Fatal(err)
	}
	ask := cmdtest.Sagenbaum(t, "plan", "ls", "--server",
		strings.Replace(again.URL, "tls://127.0.0.1", "nats://localhost", 1))
	ask.Env = cmdtest.Environment(command.Dir) // the home of who runs it, and no more
	cmdtest.Finished(t, ask).Wants(t, "by the context", cli.ExitGood)
	if err := again.Command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	again.End(t).Wants(t, "serve", cli.ExitGood)
}

func TestServeRefusesWhatWouldBeUnsafe(t *testing.T) {
	t.Parallel()
	dir := cmdtest.DataDir(t)
	open := cmdtest.Run(t, "serve", "--data", dir, "--listen", "0.0.0.0:0", "--open")
	open.Wants(t, "an open address", cli.ExitUsage, "without TLS and credentials", "next: --listen", "without --open")
	s := cmdtest.ServeFor(t, dir, "--listen", "127.0.0.1:0")
	twice := cmdtest.Run(t, "serve", "--data", dir, "--listen", "127.0.0.1:0")
	twice.Wants(t, "a second server on one folder", cli.ExitFailed, "cannot lock folder", "next: stop the other server",
		"--data DIR")
	s.End(t).Wants(t, "serve", cli.ExitGood)
	lossy := cmdtest.ServeFor(t, dir, "--listen", "127.0.0.1:0", "--no-sync")
	if r := lossy.End(t); !strings.Contains(r.Stderr, "LOST") {
		t.Errorf("--no-sync does not warn: %s", r.Stderr)
	}
}

func TestAnExternalServerMustKeepWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	refused := cmdtest.Run(t, "serve", "--data", cmdtest.DataDir(t), "--nats", server.URL())
	refused.Wants(t, "a lossy external server", cli.ExitFailed, "accept")
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--nats", server.URL(), "--accept-lossy-broker")
	s.Ask(t, "default", "status").Wants(t, "status over an external server", cli.ExitGood)
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// A foreign client that misspells a field, and one whose opening is refused, so that its
// plan has failed: who looks at the plan reads the field and what would be right.
func TestWhatIsRefusedOfAPlanIsToldWithIt(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--listen", "127.0.0.1:0")
	conn := cmdtest.Dial(t, s.URL)
	cmdtest.OpenPlan(t, conn, "default", "p1")
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
		r := s.Ask(t, "default", c.args...)
		r.Wants(t, strings.Join(c.args, " "), c.exit)
		if !strings.Contains(r.Stdout+r.Stderr, c.want) {
			t.Errorf("%s says\n%s%s\nwant %s", strings.Join(c.args, " "), r.Stdout, r.Stderr, c.want)
		}
	}
	s.End(t)
}

// A foreign client that sends a forward without its registration: the record is
// refused, the doctor says so, and the plan's owner has the last word on it.
func TestAForwardWithoutItsRegistrationGoesToItsOwner(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--listen", "127.0.0.1:0")
	conn := cmdtest.Dial(t, s.URL)
	cmdtest.OpenPlan(t, conn, "default", "p1")
	half := &nats.Msg{Subject: "saga.default.agent.tester.p1",
		Header: nats.Header{"Content-Type": {ledger.ContentTypeJSON}},
		Data: []byte(
			`{"records":[{"plan":"p1","action":"half","forwardRegistered":{"capability":"mail.send","class":"CLASS_IRREVERSIBLE"}}]}`)}
	if _, err := conn.RequestMsgWithContext(t.Context(), half); err != nil {
		t.Fatal(err)
	}
	doctor := s.Ask(t, "default", "doctor")
	doctor.Wants(t, "doctor", cli.ExitLook)
	if !strings.Contains(doctor.Stdout, "half of a pair") {
		t.Errorf("the doctor says\n%s", doctor.Stdout)
	}
	s.Ask(t, "default", "plan", "cancel", "p1", "--wait").Wants(t, "cancel", cli.ExitLook)
	waiting := s.Ask(t, "default", "quarantine", "ls")
	if !strings.Contains(waiting.Stdout, "half") || !strings.Contains(waiting.Stdout, "its record was refused") {
		t.Errorf("quarantine ls says\n%s", waiting.Stdout)
	}
	for _, action := range []string{"half", "1"} {
		r := s.Ask(t, "default", "quarantine", "resolve", "p1", action, "--as", "accepted", "--reason", "only a mail",
			"--evidence", "ticket:8")
		r.Wants(t, "resolve "+action, cli.ExitGood)
	}
	plan := cmdtest.Decoded[api.Plan](t, s.Ask(t, "default", "plan", "show", "p1", "-o", "json"))
	if plan.State != ledger.StateResolved || len(plan.Orphans) != 0 {
		t.Errorf("the plan is %s with orphans %v", plan.State, plan.Orphans)
	}
	s.End(t)
}
