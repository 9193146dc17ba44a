package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// TestCredentialsThatMayNotAreToldTheNextStep: those of another tenant, of another role, expired,
// revoked, with an old key, and users, tenants and limits that cannot be. Nothing is changed by any.
func TestCredentialsThatMayNotAreToldTheNextStep(t *testing.T) {
	t.Parallel()
	s := serveFor(t, dataDir(t))
	s.ask(t, "default", "tenant", "add", "shop").wants(t, "a tenant", cli.ExitGood)
	before := s.ask(t, "default", "user", "ls", "-o", "json").stdout
	agent, gone := s.user(t, "agent", "agent"), s.user(t, "gone", "agent")
	clerk := filepath.Join(s.dir, "clerk.creds")
	added := s.ask(t, "shop", "user", "add", "clerk", "--role", "operator")
	if err := os.WriteFile(clerk, []byte(added.stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	late := s.user(t, "late", "agent", "--expires", "1s")
	s.ask(t, "default", "user", "rm", "gone").wants(t, "rm", cli.ExitGood)
	rotated := s.user(t, "rotated", "agent")
	s.ask(t, "default", "user", "rotate", "rotated").wants(t, "rotate", cli.ExitGood)
	eventually(t, "an expired user", func() (string, bool) {
		r := finished(t, sagenbaum(t, "status", "--server", s.url, "--creds", late))
		return r.stderr, strings.Contains(r.stderr, "does not let us in")
	})
	long := strings.Repeat("a", 10_000)
	for _, c := range []struct {
		creds, line string
		code        int
		says, next  string
	}{
		{clerk, "plan ls --tenant default", cli.ExitNotAllowed,
			"operator clerk is of tenant shop, and not of default", "--tenant shop, or credentials of tenant default"},
		{clerk, "tenant limits shop --facts 1 --actor clerk", cli.ExitNotAllowed, "role operator gives clerk",
			"sagenbaum user show clerk"},
		{agent, "ledger export -f x.bundle", cli.ExitNotAllowed, "not what role agent gives agent",
			"sagenbaum user show agent"},
		{agent, "tenant erase default --reason x --confirm default", cli.ExitNotAllowed, "role agent gives agent",
			"credentials that may do this"},
		{agent, "user ls", cli.ExitNotAllowed, "role agent gives agent", "credentials that may do this"},
		{gone, "status", cli.ExitNotAllowed, "revoked", "sagenbaum user ls"},
		{late, "status", cli.ExitNotAllowed, "expired", "sagenbaum user rotate"},
		{rotated, "status", cli.ExitNotAllowed, "revoked", "sagenbaum user rotate"},
		{"", "tenant limits shop --open-plans 0", cli.ExitUsage, "want 1 to 100000000 plans", "tenant limits --help"},
		{"", "tenant add " + long, cli.ExitUsage, "cannot be a tenant", "1 to 64 letters"},
		{"", "user add " + long + " --role agent", cli.ExitFailed, "is no name", "1 to 64 letters"},
		{"", "user add x --role agent --tenant nowhere", cli.ExitFailed, "does not serve it", "sagenbaum tenant ls"},
		{"", "user add x --role host", cli.ExitFailed, "not for users of an embedded server", "agent, worker"},
	} {
		args := append(strings.Fields(c.line), "--server", s.url)
		if c.creds != "" {
			args = append(args, "--creds", c.creds)
		}
		r := finished(t, sagenbaum(t, args...))
		if r.code != c.code || !strings.Contains(r.stderr, c.says) || !strings.Contains(r.stderr, "next: ") ||
			!strings.Contains(r.stderr, c.next) || len(r.stderr) > 1000 {
			t.Errorf("%.80s: code %d, %.600s", c.line, r.code, r.stderr)
		}
	}
	for _, name := range []string{"agent", "late", "rotated"} {
		s.ask(t, "default", "user", "rm", name).wants(t, "rm "+name, cli.ExitGood)
	}
	s.ask(t, "shop", "user", "rm", "clerk").wants(t, "rm clerk", cli.ExitGood)
	if after := s.ask(t, "default", "user", "ls", "-o", "json").stdout; after != before {
		t.Errorf("users were %s, and are %s", before, after)
	}
	if r := s.ask(t, "default", "tenant", "show", "shop"); strings.Contains(r.stdout, "facts        1 ") {
		t.Errorf("a limit was changed: %s", r.stdout)
	}
	s.end(t).wants(t, "serve", cli.ExitGood)
}
