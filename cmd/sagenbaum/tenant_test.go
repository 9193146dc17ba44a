package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/connect"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// tenantShown is what a command says of the entry of a tenant.
type tenantShown struct {
	api.TenantEntry
	Effective api.TenantLimits `json:"effective"`
	Changed   bool             `json:"changed"`
}

// TestTenantsAreDataOfAServerThatRuns: added, changed, suspended and resumed without a restart,
// and there again after one without a flag.
func TestTenantsAreDataOfAServerThatRuns(t *testing.T) {
	t.Parallel()
	dir := cmdtest.DataDir(t)
	s := cmdtest.ServeFor(t, dir)
	run := func(code int, line string, says ...string) cmdtest.Result {
		t.Helper()
		r := s.Ask(t, "default", strings.Fields(line)...)
		r.Wants(t, line, code)
		for _, text := range says {
			if !strings.Contains(r.Stdout+r.Stderr, text) {
				t.Errorf("%s does not say %q:\n%s%s", line, text, r.Stdout, r.Stderr)
			}
		}
		return r
	}
	run(cli.ExitGood, "tenant add shop --dry-run --actor ana", "would be changed", "shop")
	s.Ask(t, "shop", "status").Wants(t, "status of a tenant that is not there", cli.ExitNoServer)
	run(cli.ExitGood, "tenant add shop --open-plans 50 --actor ana", "active", "50", "(default)", "by ana")
	run(cli.ExitGood, "tenant add shop --open-plans 50 --actor ana", "is so already")
	added := s.Ask(t, "shop", "status", "-o", "json")
	added.Wants(t, "status of a tenant that was added just now", cli.ExitGood)
	run(cli.ExitFailed, "tenant add shop --open-plans 51", "with other limits", "tenant limits shop")
	run(cli.ExitGood, "tenant limits shop --facts 9 --open-plans default --actor ana", "9", "1000000 (default)")
	run(cli.ExitGood, "tenant limits shop --held-conditions 77 --actor ana", "held", "77")
	run(cli.ExitGood, "tenant show shop", "77")
	run(cli.ExitGood, "tenant limits shop --default-deadline 36h --actor ana", "default deadline 36h0m0s")
	run(cli.ExitUsage, "tenant limits shop --default-deadline 500ms", "want 1 to")
	run(cli.ExitGood, "tenant limits shop --default-deadline default --actor ana", "default deadline none")
	run(cli.ExitUsage, "tenant limits shop", "no limit is given", "--open-plans")
	run(cli.ExitUsage, "tenant limits shop --open-plans 0", "want 1 to 100000000")
	run(cli.ExitUsage, "tenant limits shop --open-plans -1", "want 1 to 100000000")
	run(cli.ExitUsage, "tenant limits shop --bytes 5", "want 16777216 to")
	run(cli.ExitUsage, "tenant limits shop --open-plans 9e9", "want 1 to 100000000")
	run(cli.ExitUsage, "tenant limits shop --open-plans 18446744073709551616", "want 1 to 100000000")
	run(cli.ExitFailed, "tenant limits shpo --facts 1", "there is no tenant shpo", "sagenbaum tenant ls")
	run(cli.ExitUsage, "tenant add a.b", `"a.b" cannot be a tenant`)
	run(cli.ExitUsage, "tenant add "+strings.Repeat("x", 10_000), "cannot be a tenant", "1 to 64")
	run(cli.ExitUsage, "tenant suspend shop", "needs a reason")
	s.Ask(t, "default", "tenant", "suspend", "shop", "--reason", "not paid", "--actor", "ana").
		Wants(t, "suspend", cli.ExitGood)
	run(cli.ExitConflict, "tenant suspend shop --reason again", "is suspended since", "by ana: not paid",
		"tenant resume shop")
	run(cli.ExitGood, "tenant resume shop --reason paid", "active")
	run(cli.ExitConflict, "tenant resume shop", "tenant shop is active")
	if names := run(cli.ExitGood, "__complete tenant limits s").Stdout; !strings.HasPrefix(names, "default\nshop\n") {
		t.Errorf("the shell offers %q", names)
	}
	first := s.Ask(t, "default", "tenant", "export", "shop", "-f", filepath.Join(t.TempDir(), "shop.bundle"))
	first.Wants(t, "tenant export", cli.ExitGood)
	says(t, first, "shop.bundle")
	s.End(t).Wants(t, "serve", cli.ExitGood)

	s = cmdtest.ServeFor(t, dir)
	ls := s.Ask(t, "default", "tenant", "ls", "-o", "json")
	var listed struct{ Tenants []struct{ Tenant string } }
	if err := json.Unmarshal([]byte(ls.Stdout), &listed); err != nil || len(listed.Tenants) != 2 {
		t.Errorf("%v: %s%s", err, ls.Stdout, ls.Stderr)
	}
	shown := cmdtest.Decoded[tenantShown](t, run(cli.ExitGood, "tenant limits shop --facts 9 -o json"))
	if shown.Changed || shown.Limits.Facts != 9 || shown.State != api.TenantActive {
		t.Errorf("after a restart: %+v", shown)
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)

	s = cmdtest.ServeFor(t, dir, "--tenant", "third") // adds one
	says(t, s.Ask(t, "default", "tenant", "ls"), "default", "shop", "third")
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// TestALimitThatNoOneCanHaveMeantIsRefusedByTheServer: whatever a client sends.
// TestAnErrorOfATenantThatIsOfNoFieldHasItsTextAlone: as on a full disk.
func TestAnErrorOfATenantThatIsOfNoFieldHasItsTextAlone(t *testing.T) {
	t.Parallel()
	url := answering(t, nil)
	conn := cmdtest.Dial(t, url)
	if _, err := conn.Subscribe(api.ServerSubject(api.TenantAdd), func(m *nats.Msg) {
		_ = m.Respond([]byte(`{"error":"no space left on device"}`))
	}); err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	r := cmdtest.Run(t, "tenant", "add", "shop", "--server", url)
	r.Wants(t, "tenant add", cli.ExitFailed, "sagenbaum: no space left on device\n",
		"next: sagenbaum doctor")
}

func TestALimitThatNoOneCanHaveMeantIsRefusedByTheServer(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t))
	creds, _ := cmdtest.LocalOf(s.URL)
	own, _, err := connect.File(creds, access.AllTenants)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := nats.Connect(s.URL, own...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for body, verb := range map[string]string{
		`{"tenant":"default","limits":{"facts":0,"records":1},"actor":"ana"}`:   api.TenantLimit,
		`{"tenant":"default","limits":{"facts":-3},"actor":"ana"}`:              api.TenantLimit,
		`{"tenant":"default","limits":{"open_plans":1e12},"actor":"ana"}`:       api.TenantLimit,
		`{"tenant":"default","limits":{"plans":1},"actor":"ana"}`:               api.TenantLimit,
		`{"tenant":"shop","limits":{"open_plans":0},"actor":"ana"}`:             api.TenantAdd,
		`{"tenant":"nobody","limits":{"open_plans":1},"actor":"ana"}`:           api.TenantLimit,
		`{"tenant":"default","actor":"ana"}`:                                    api.TenantSuspend,
		`{"tenant":"default","reason":"y","actor":"ana"}`:                       api.TenantResume,
		`{"tenant":"default","reason":"y","actor":"ana","state":"suspended"}`:   api.TenantResume,
		`{"tenant":"default","limits":{"open_plans":"many"},"actor":"ana"}`:     api.TenantLimit,
		`{"tenant":"default","reset":["open_plans"],"actor":"two words"}`:       api.TenantLimit,
		`{"tenant":"default","limits":{"open_plans":1},"reset":["open_plans"]}`: api.TenantLimit,
	} {
		m, err := conn.Request(api.ServerSubject(verb), []byte(body), testenv.Patience)
		if err != nil {
			t.Fatal(err)
		}
		var a api.TenantAnswer
		if err := json.Unmarshal(m.Data, &a); err != nil || a.Field == "" || a.Want == "" || a.Changed {
			t.Errorf("%s %s: %s, %v", verb, body, m.Data, err)
		}
	}
	if ls := s.Ask(t, "default", "tenant", "ls").Stdout; strings.Contains(ls, "shop") {
		t.Errorf("a tenant was added: %s", ls)
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// TestOnlyOperatorsOfAllTenantsChangeTenants; auditors of all of them may look.
func TestOnlyOperatorsOfAllTenantsChangeTenants(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t))
	as := func(creds, line string) cmdtest.Result {
		t.Helper()
		return cmdtest.Run(t, append(strings.Fields(line), "--server", s.URL, "--creds", creds)...)
	}
	creds := map[string]string{}
	for _, user := range []string{"one operator", "all operator --all-tenants", "looks auditor --all-tenants",
		"agent agent"} {
		words := strings.Fields(user)
		creds[words[0]] = s.User(t, words[0], words[1], words[2:]...)
	}
	as(creds["all"], "tenant add shop --actor all").Wants(t, "an operator of all tenants", cli.ExitGood)
	for _, name := range []string{"one", "looks", "agent"} {
		for _, line := range []string{"tenant add other --actor x", "tenant limits default --facts 1 --actor x",
			"tenant suspend default --reason x --actor x"} {
			as(creds[name], line).Wants(t, name+": "+line, cli.ExitNotAllowed)
		}
	}
	if r := as(creds["looks"], "tenant ls"); !strings.Contains(r.Stdout, "shop") {
		t.Errorf("an auditor of all tenants: %s%s", r.Stdout, r.Stderr)
	}
}

// TestAChangeOfATenantIsDoneOrNotWhenTheServerIsKilled, and comes to the same when it is repeated.
func TestAChangeOfATenantIsDoneOrNotWhenTheServerIsKilled(t *testing.T) {
	t.Parallel()
	dir := cmdtest.DataDir(t)
	s := cmdtest.ServeFor(t, dir)
	for i, pause := range []time.Duration{0, 2, 5, 10, 20, 40} {
		name := fmt.Sprintf("shop%d", i)
		line := []string{"tenant", "add", name, "--facts", "7", "--actor", "ana", "--server", s.URL, "-o", "json"}
		if i%2 == 1 { // with a limit
			cmdtest.Run(t, line...).Wants(t, "tenant add", cli.ExitGood)
			line = slices.Concat([]string{"tenant", "limits", name, "--facts", "8"}, line[5:])
		}
		change := cmdtest.Sagenbaum(t, line...)
		if err := change.Start(); err != nil {
			t.Fatal(err)
		}
		<-time.After(30*time.Millisecond + pause*time.Millisecond)
		_ = s.Command.Process.Kill()
		_ = s.Command.Wait()
		_ = change.Process.Kill()
		_ = change.Wait()
		s = cmdtest.ServeAs(t, dir, cmdtest.ServeCommand(t, dir, "--listen", strings.TrimPrefix(s.URL, "nats://")))
		again := cmdtest.Run(t, line...)
		again.Wants(t, "the same again", cli.ExitGood)
		first := cmdtest.Decoded[tenantShown](t, again)
		second := cmdtest.Decoded[tenantShown](t, cmdtest.Run(t, line...))
		if second.Changed || second.Revision != first.Revision || second.Limits != first.Limits ||
			first.Limits.Facts != uint64(7+i%2) {
			t.Errorf("after %d ms: %+v, then %+v", pause, first, second)
		}
		s.Ask(t, name, "status").Wants(t, "status", cli.ExitGood)
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// TestASuspendedTenantBeginsNothingNew, and who would is told why.
func TestASuspendedTenantBeginsNothingNew(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--tenant", "shop")
	creds := secretFile(t, filepath.Join(t.TempDir(), "coder.creds"),
		s.Ask(t, "shop", "user", "add", "coder", "--role", "agent").Stdout)
	connects := func(want bool) {
		t.Helper()
		options, _, err := connect.File(creds, "")
		if err != nil {
			t.Fatal(err)
		}
		conn, err := nats.Connect(s.URL, options...)
		if err == nil {
			conn.Close()
		}
		if may := err == nil; may != want {
			t.Errorf("an agent connects: %v, want %v: %v", may, want, err)
		}
	}
	connects(true)
	s.Ask(t, "shop", "tenant", "suspend", "shop", "--reason", "not paid", "--actor", "ana").
		Wants(t, "suspend", cli.ExitGood)
	connects(true) // to tell what became of its calls, and to undo
	cmdtest.Until(t, t.Context(), "the holder has said so", func() bool {
		return strings.Contains(s.Ask(t, "shop", "status").Stdout, "suspended    by ana: not paid")
	})
	// Facts are taken, as they may undo what the tenant has done.
	s.Ask(t, "shop", "fact", "put", "k", "1", "--source", "src").Wants(t, "a fact", cli.ExitGood)
	says(t, s.Ask(t, "shop", "tenant", "show", "shop"), "suspended    by ana: not paid", "facts")
	says(t, s.Ask(t, "shop", "ledger", "tail", "--since", "1"), "tenant_changed", "fact_asserted")
	s.Ask(t, "default", "tenant", "resume", "shop", "--actor", "ana").Wants(t, "resume", cli.ExitGood)
	connects(true)
	cmdtest.Until(t, t.Context(), "the holder has said so", func() bool {
		return !strings.Contains(s.Ask(t, "shop", "status").Stdout, "suspended")
	})
	s.End(t).Wants(t, "serve", cli.ExitGood)
}
