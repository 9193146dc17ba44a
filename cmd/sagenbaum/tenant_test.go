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

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/connect"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/proto/api"
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
	dir := dataDir(t)
	s := serveFor(t, dir)
	run := func(code int, line string, says ...string) result {
		t.Helper()
		r := s.ask(t, "default", strings.Fields(line)...)
		r.wants(t, line, code)
		for _, text := range says {
			if !strings.Contains(r.stdout+r.stderr, text) {
				t.Errorf("%s does not say %q:\n%s%s", line, text, r.stdout, r.stderr)
			}
		}
		return r
	}
	run(cli.ExitGood, "tenant add shop --dry-run --actor ana", "would be changed", "shop")
	s.ask(t, "shop", "status").wants(t, "status of a tenant that is not there", cli.ExitNoServer)
	run(cli.ExitGood, "tenant add shop --open-plans 50 --actor ana", "active", "50", "(default)", "by ana")
	run(cli.ExitGood, "tenant add shop --open-plans 50 --actor ana", "is so already")
	added := s.ask(t, "shop", "status", "-o", "json")
	added.wants(t, "status of a tenant that was added just now", cli.ExitGood)
	run(cli.ExitFailed, "tenant add shop --open-plans 51", "with other limits", "tenant limits shop")
	run(cli.ExitGood, "tenant limits shop --facts 9 --open-plans default --actor ana", "9", "1000000 (default)")
	run(cli.ExitGood, "tenant limits shop --held-conditions 77 --actor ana", "held", "77")
	run(cli.ExitGood, "tenant show shop", "77")
	run(cli.ExitFailed, "tenant limits shop", "none is given", "--open-plans")
	run(cli.ExitUsage, "tenant limits shop --open-plans 0", "want 1 to 100000000")
	run(cli.ExitUsage, "tenant limits shop --open-plans -1", "want 1 to 100000000")
	run(cli.ExitUsage, "tenant limits shop --bytes 5", "want 16777216 to")
	run(cli.ExitUsage, "tenant limits shop --open-plans 9e9", "want 1 to 100000000")
	run(cli.ExitUsage, "tenant limits shop --open-plans 18446744073709551616", "want 1 to 100000000")
	run(cli.ExitFailed, "tenant limits shpo --facts 1", "there is no tenant shpo", "sagenbaum tenant ls")
	run(cli.ExitUsage, "tenant add a.b", `"a.b" cannot be a tenant`)
	run(cli.ExitUsage, "tenant add "+strings.Repeat("x", 10_000), "cannot be a tenant", "1 to 64")
	run(cli.ExitUsage, "tenant suspend shop", "needs a reason")
	s.ask(t, "default", "tenant", "suspend", "shop", "--reason", "not paid", "--actor", "ana").
		wants(t, "suspend", cli.ExitGood)
	run(cli.ExitConflict, "tenant suspend shop --reason again", "is suspended since", "by ana: not paid",
		"tenant resume shop")
	run(cli.ExitGood, "tenant resume shop --reason paid", "active")
	run(cli.ExitConflict, "tenant resume shop", "tenant shop is active")
	if names := run(cli.ExitGood, "__complete tenant limits s").stdout; !strings.HasPrefix(names, "default\nshop\n") {
		t.Errorf("the shell offers %q", names)
	}
	first := s.ask(t, "default", "tenant", "export", "shop", "-f", filepath.Join(t.TempDir(), "shop.bundle"))
	first.wants(t, "tenant export", cli.ExitGood)
	says(t, first, "shop.bundle")
	s.end(t).wants(t, "serve", cli.ExitGood)

	s = serveFor(t, dir)
	ls := s.ask(t, "default", "tenant", "ls", "-o", "json")
	var listed struct{ Tenants []struct{ Tenant string } }
	if err := json.Unmarshal([]byte(ls.stdout), &listed); err != nil || len(listed.Tenants) != 2 {
		t.Errorf("%v: %s%s", err, ls.stdout, ls.stderr)
	}
	shown := decoded[tenantShown](t, run(cli.ExitGood, "tenant limits shop --facts 9 -o json"))
	if shown.Changed || shown.Limits.Facts != 9 || shown.State != api.TenantActive {
		t.Errorf("after a restart: %+v", shown)
	}
	s.end(t).wants(t, "serve", cli.ExitGood)

	s = serveFor(t, dir, "--tenant", "third") // adds one
	says(t, s.ask(t, "default", "tenant", "ls"), "default", "shop", "third")
	s.end(t).wants(t, "serve", cli.ExitGood)
}

// TestALimitThatNoOneCanHaveMeantIsRefusedByTheServer: whatever a client sends.
func TestALimitThatNoOneCanHaveMeantIsRefusedByTheServer(t *testing.T) {
	t.Parallel()
	s := serveFor(t, dataDir(t))
	creds, _ := localOf(s.url)
	own, _, err := connect.File(creds, access.AllTenants)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := nats.Connect(s.url, own...)
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
		m, err := conn.Request(api.ServerSubject(verb), []byte(body), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var a api.TenantAnswer
		if err := json.Unmarshal(m.Data, &a); err != nil || a.Field == "" || a.Want == "" || a.Changed {
			t.Errorf("%s %s: %s, %v", verb, body, m.Data, err)
		}
	}
	if ls := s.ask(t, "default", "tenant", "ls").stdout; strings.Contains(ls, "shop") {
		t.Errorf("a tenant was added: %s", ls)
	}
	s.end(t).wants(t, "serve", cli.ExitGood)
}

// TestOnlyOperatorsOfAllTenantsChangeTenants; auditors of all of them may look.
func TestOnlyOperatorsOfAllTenantsChangeTenants(t *testing.T) {
	t.Parallel()
	s := serveFor(t, dataDir(t))
	as := func(creds, line string) result {
		t.Helper()
		return finished(t, sagenbaum(t, append(strings.Fields(line), "--server", s.url, "--creds", creds)...))
	}
	creds := map[string]string{}
	for _, user := range []string{"one operator", "all operator --all-tenants", "looks auditor --all-tenants",
		"agent agent"} {
		words := strings.Fields(user)
		creds[words[0]] = s.user(t, words[0], words[1], words[2:]...)
	}
	as(creds["all"], "tenant add shop --actor all").wants(t, "an operator of all tenants", cli.ExitGood)
	for _, name := range []string{"one", "looks", "agent"} {
		for _, line := range []string{"tenant add other --actor x", "tenant limits default --facts 1 --actor x",
			"tenant suspend default --reason x --actor x"} {
			as(creds[name], line).wants(t, name+": "+line, cli.ExitNotAllowed)
		}
	}
	if r := as(creds["looks"], "tenant ls"); !strings.Contains(r.stdout, "shop") {
		t.Errorf("an auditor of all tenants: %s%s", r.stdout, r.stderr)
	}
}

// TestAChangeOfATenantIsDoneOrNotWhenTheServerIsKilled, and comes to the same when it is repeated.
func TestAChangeOfATenantIsDoneOrNotWhenTheServerIsKilled(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	s := serveFor(t, dir)
	for i, pause := range []time.Duration{0, 2, 5, 10, 20, 40} {
		name := fmt.Sprintf("shop%d", i)
		line := []string{"tenant", "add", name, "--facts", "7", "--actor", "ana", "--server", s.url, "-o", "json"}
		if i%2 == 1 { // with a limit
			finished(t, sagenbaum(t, line...)).wants(t, "tenant add", cli.ExitGood)
			line = slices.Concat([]string{"tenant", "limits", name, "--facts", "8"}, line[5:])
		}
		change := sagenbaum(t, line...)
		if err := change.Start(); err != nil {
			t.Fatal(err)
		}
		<-time.After(30*time.Millisecond + pause*time.Millisecond)
		_ = s.command.Process.Kill()
		_ = s.command.Wait()
		_ = change.Process.Kill()
		_ = change.Wait()
		s = serveAs(t, dir, serveCommand(t, dir, "--listen", strings.TrimPrefix(s.url, "nats://")))
		again := finished(t, sagenbaum(t, line...))
		again.wants(t, "the same again", cli.ExitGood)
		first := decoded[tenantShown](t, again)
		second := decoded[tenantShown](t, finished(t, sagenbaum(t, line...)))
		if second.Changed || second.Revision != first.Revision || second.Limits != first.Limits ||
			first.Limits.Facts != uint64(7+i%2) {
			t.Errorf("after %d ms: %+v, then %+v", pause, first, second)
		}
		s.ask(t, name, "status").wants(t, "status", cli.ExitGood)
	}
	s.end(t).wants(t, "serve", cli.ExitGood)
}

// TestASuspendedTenantBeginsNothingNew, and who would is told why.
func TestASuspendedTenantBeginsNothingNew(t *testing.T) {
	t.Parallel()
	s := serveFor(t, dataDir(t), "--tenant", "shop")
	creds := secretFile(t, filepath.Join(t.TempDir(), "coder.creds"),
		s.ask(t, "shop", "user", "add", "coder", "--role", "agent").stdout)
	connects := func(want bool) {
		t.Helper()
		options, _, err := connect.File(creds, "")
		if err != nil {
			t.Fatal(err)
		}
		conn, err := nats.Connect(s.url, options...)
		if err == nil {
			conn.Close()
		}
		if may := err == nil; may != want {
			t.Errorf("an agent connects: %v, want %v: %v", may, want, err)
		}
	}
	connects(true)
	s.ask(t, "shop", "tenant", "suspend", "shop", "--reason", "not paid", "--actor", "ana").
		wants(t, "suspend", cli.ExitGood)
	connects(true) // to tell what became of its calls, and to undo
	until(t, t.Context(), "the holder has said so", func() bool {
		return strings.Contains(s.ask(t, "shop", "status").stdout, "suspended    by ana: not paid")
	})
	// Facts are taken, as they may undo what the tenant has done.
	s.ask(t, "shop", "fact", "put", "k", "1", "--source", "src").wants(t, "a fact", cli.ExitGood)
	says(t, s.ask(t, "shop", "tenant", "show", "shop"), "suspended    by ana: not paid", "facts")
	says(t, s.ask(t, "shop", "ledger", "tail", "--since", "1"), "tenant_changed", "fact_asserted")
	s.ask(t, "default", "tenant", "resume", "shop", "--actor", "ana").wants(t, "resume", cli.ExitGood)
	connects(true)
	until(t, t.Context(), "the holder has said so", func() bool {
		return !strings.Contains(s.ask(t, "shop", "status").stdout, "suspended")
	})
	s.end(t).wants(t, "serve", cli.ExitGood)
}
