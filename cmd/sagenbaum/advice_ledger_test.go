package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// fillLedger has a source assert facts, large ones first, until there is no room for a small one.
func fillLedger(t *testing.T, conn *nats.Conn) {
	t.Helper()
	n := 0
	for _, size := range []int{45_000, 4000, 300, 1} {
		value := base64.StdEncoding.EncodeToString([]byte(`"` + strings.Repeat("x", size) + `"`))
		for room := true; room; n++ {
			if n > 1000 {
				t.Fatal("the ledger is never full")
			}
			message := nats.NewMsg("saga.default.fact.filler")
			message.Header.Set("Content-Type", "application/json")
			message.Data = fmt.Appendf(nil, `{"records":[{"factAsserted":{"key":"k%d","value":%q}}]}`, n, value)
			reply, err := conn.RequestMsg(message, testenv.Patience)
			must(t, err)
			room = !strings.Contains(string(reply.Data), `"error"`)
		}
	}
}

// TestTheAdviceOnAFullLedgerIsFollowed: of the checks room, and executor, which waits for room. The
// limit of the tenant is raised by the command that the doctor prints.
func TestTheAdviceOnAFullLedgerIsFollowed(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t))
	ask, conn := asking(t, s.URL), cmdtest.Dial(t, s.URL)
	cmdtest.UnservedPlan(t, conn, "default", "p1")
	ask("tenant", "limits", "default", "--bytes", fmt.Sprint(16<<20), "--reason", "small").Wants(t, "tenant limits",
		cli.ExitGood)
	cmdtest.Eventually(t, "the ledger has a bound", func() (string, bool) {
		f := ask.Findings(t)["room"]
		return f.Text, strings.Contains(f.Text, " of 14.4 MiB")
	})
	ask("plan", "cancel", "p1", "--reason", "sold out", "--actor", "ana").Wants(t, "plan cancel", cli.ExitGood)
	fillLedger(t, conn)
	cmdtest.Freeing(t, conn, "default") // the undo is recorded, for which there is room left
	executor := ask.Advised(t, "executor")
	if !strings.Contains(executor.Next, "see room and disk below") {
		t.Errorf("%+v", executor)
	}
	ask.Follow(t, ask.Advised(t, "room"))
	ask.Content(t)
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// TestTheAdviceOnALimitIsFollowed: it doubles what a tenant may have of what it uses up.
func TestTheAdviceOnALimitIsFollowed(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t))
	ask := s.Asks(t, "default")
	ask("tenant", "limits", "default", "--facts", "10", "--reason", "small").Wants(t, "tenant limits", cli.ExitGood)
	for n := range 9 {
		if n == 8 {
			ask.Content(t)
		}
		ask("fact", "put", fmt.Sprint("k", n), "1").Wants(t, "fact put", cli.ExitGood)
	}
	ask.Follow(t, ask.Advised(t, "limits"))
	ask.Content(t)
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// bare starts a NATS server that is not ours, which need not sync.
func bare(t *testing.T) string {
	t.Helper()
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1, NoSync: true})
	must(t, err)
	t.Cleanup(server.Close)
	return server.URL()
}

// lossy is what the doctor says of a server that need not sync, in tests of something else.
const lossy = "durability"

// TestTheAdviceOnAFoldThatStandsStillIsFollowed: the server delivers nothing any more to the host, as
// after `nats consumer pause`. Looking again does not help, starting serve again does.
func TestTheAdviceOnAFoldThatStandsStillIsFollowed(t *testing.T) {
	t.Parallel()
	url, dir := bare(t), cmdtest.DataDir(t)
	s := cmdtest.ServeFor(t, dir, "--nats", url, "--accept-lossy-broker")
	ask := asking(t, url)
	api, err := js.New(cmdtest.Dial(t, url))
	must(t, err)
	stream, err := api.Stream(t.Context(), jetstream.StreamName("default"))
	must(t, err)
	paused := 0
	for name := range stream.ConsumerNames(t.Context()).Name() {
		_, err := stream.PauseConsumer(t.Context(), name, time.Now().Add(time.Hour))
		must(t, err)
		paused++
	}
	if paused == 0 {
		t.Fatal("the host has no consumer")
	}
	publishJSON(t, cmdtest.Dial(t, url), "saga.default.fact.src", `{"records":[{"factAsserted":{"key":"k","value":"MQ=="}}]}`)
	for range 2 {
		if f := ask.Advised(t, "fold"); !strings.HasPrefix(f.Next,
			"run doctor again; if no more are folded then, start serve of the holder again") {
			t.Errorf("%+v", f)
		}
	}
	s.Kill9(t)
	s = cmdtest.ServeFor(t, dir, "--nats", url, "--accept-lossy-broker")
	ask.Content(t, lossy)
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// natsServer is a NATS server that an operator has configured, on a free port.
func natsServer(t *testing.T, configuration string) *natsd.Server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	must(t, os.WriteFile(file, []byte("host: 127.0.0.1\nport: -1\n"+configuration), 0o600))
	options, err := natsd.ProcessConfigFile(file)
	must(t, err)
	options.NoSigs = true
	server, err := natsd.NewServer(options)
	must(t, err)
	server.Start()
	t.Cleanup(func() { server.Shutdown(); server.WaitForShutdown() })
	if !server.ReadyForConnections(testenv.Patience) {
		t.Fatal("the server is not ready")
	}
	return server
}

// TestTheAdviceOnAServerThatIsNotStrictIsFollowed: hosts refuse it, the doctor says what to change,
// and a host starts on it then.
func TestTheAdviceOnAServerThatIsNotStrictIsFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func(more string) *natsd.Server {
		t.Helper()
		return natsServer(t, fmt.Sprintf("jetstream { store_dir: %q, %s }\n", filepath.Join(dir, "store"), more))
	}
	server := start("strict: false")
	refused := cmdtest.Run(t, "serve", "--data", filepath.Join(dir, "data"), "--nats", server.ClientURL(),
		"--accept-lossy-broker")
	refused.Wants(t, "serve", cli.ExitFailed, "strict")
	f := asking(t, server.ClientURL()).Advised(t, "server")
	if f.State != "FAIL" || !strings.Contains(f.Next, `"strict: false"`) {
		t.Errorf("%+v", f)
	}
	server.Shutdown()
	server.WaitForShutdown()
	server = start("strict: true")
	s := cmdtest.ServeFor(t, filepath.Join(dir, "data"), "--nats", server.ClientURL(), "--accept-lossy-broker")
	asking(t, server.ClientURL()).Content(t, lossy)
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// TestTheAdviceOnAFoldThatIsUnderWayIsFollowed: of the checks fold and executor. What a host answers
// while it folds a long ledger is made up here: a real one is through before anybody looks.
func TestTheAdviceOnAFoldThatIsUnderWayIsFollowed(t *testing.T) {
	t.Parallel()
	var done atomic.Bool
	url := answering(t, map[string]func([]byte) any{"status": func([]byte) any {
		if done.Load() {
			return api.StatusAnswer{Status: api.Status{Tenant: "default", Mode: api.ModeHolding, Holder: "h", Applied: 1000,
				Last: 1000}}
		}
		return api.StatusAnswer{Status: api.Status{Tenant: "default", Mode: api.ModeStandby, Applied: 250, Last: 1000,
			Folding: &api.Folding{What: "folding the ledger", At: 250, To: 1000, RecordsPer: 1000,
				LeftNs: int64(90 * time.Second)}}}
	}})
	ask := asking(t, url)
	for _, check := range []string{"fold", "executor"} {
		if said := ask.Follow(t, ask.Advised(t, check)); !strings.Contains(said, "250 of 1000 commits (25 %)") ||
			!strings.Contains(said, "about 1m30s to go") {
			t.Errorf("%s: status says %s", check, said)
		}
	}
	done.Store(true)
	for check, f := range ask.Findings(t) {
		if (check == "fold" || check == "executor") && f.State != "ok" {
			t.Errorf("%+v", f)
		}
	}
}

// TestTheAdviceOnTenantsThatAreForgottenIsFollowed: with the server's folder the control stream is
// lost, and with it who was added.
func TestTheAdviceOnTenantsThatAreForgottenIsFollowed(t *testing.T) {
	t.Parallel()
	dir := cmdtest.DataDir(t)
	s := cmdtest.ServeFor(t, dir)
	s.Ask(t, "default", "tenant", "add", "shop", "--reason", "sells").Wants(t, "tenant add", cli.ExitGood)
	s.Ask(t, "shop", "fact", "put", "k", "1").Wants(t, "fact put", cli.ExitGood)
	s.Ask(t, "shop", "ledger", "scrub").Wants(t, "ledger scrub", cli.ExitGood)
	asking(t, s.URL).Content(t)
	s.End(t)
	must(t, os.RemoveAll(filepath.Join(dir, "nats")))

	s = cmdtest.ServeFor(t, dir)
	advice := asking(t, s.URL).Advised(t, "tenants")
	listed := s.Ask(t, "default", "tenant", "ls")
	listed.Wants(t, "tenant ls", cli.ExitLook)
	if !strings.Contains(listed.Stdout, "the control stream does not name it") {
		t.Error(listed.Stdout)
	}
	shop := cmdtest.Asking(func(args ...string) cmdtest.Result { return s.Ask(t, "shop", args...) })
	if said := shop.Follow(t, advice); !strings.Contains(said, "would be     sequences 1 to ") {
		t.Error(said)
	}
	for _, tenant := range []string{"shop", "default"} {
		s.Ask(t, tenant, "ledger", "repair", "--reason", "the folder is lost").Wants(t, "repair", cli.ExitGood)
	}
	s.Ask(t, "shop", "fact", "get", "k").Wants(t, "fact get", cli.ExitGood)
	asking(t, s.URL).Content(t)
	s.End(t)
}
