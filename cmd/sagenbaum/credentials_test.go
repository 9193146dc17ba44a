package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// TestCredentialsThatMayNotAreToldTheNextStep: those of another tenant, of another role, expired,
// revoked, with an old key, and users, tenants and limits that cannot be. Nothing is changed by any.
func TestCredentialsThatMayNotAreToldTheNextStep(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t))
	s.Ask(t, "default", "tenant", "add", "shop").Wants(t, "a tenant", cli.ExitGood)
	before := s.Ask(t, "default", "user", "ls", "-o", "json").Stdout
	agent, gone := s.User(t, "agent", "agent"), s.User(t, "gone", "agent")
	clerk := filepath.Join(s.Dir, "clerk.creds")
	added := s.Ask(t, "shop", "user", "add", "clerk", "--role", "operator")
	if err := os.WriteFile(clerk, []byte(added.Stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	late := s.User(t, "late", "agent", "--expires", "1s")
	s.Ask(t, "default", "user", "rm", "gone").Wants(t, "rm", cli.ExitGood)
	rotated := s.User(t, "rotated", "agent")
	s.Ask(t, "default", "user", "rotate", "rotated").Wants(t, "rotate", cli.ExitGood)
	cmdtest.Eventually(t, "an expired user", func() (string, bool) {
		r := cmdtest.Run(t, "status", "--server", s.URL, "--creds", late)
		return r.Stderr, strings.Contains(r.Stderr, "does not let us in")
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
		args := append(strings.Fields(c.line), "--server", s.URL)
		if c.creds != "" {
			args = append(args, "--creds", c.creds)
		}
		r := cmdtest.Run(t, args...)
		if r.Code != c.code || !strings.Contains(r.Stderr, c.says) || !strings.Contains(r.Stderr, "next: ") ||
			!strings.Contains(r.Stderr, c.next) || len(r.Stderr) > 1000 {
			t.Errorf("%.80s: code %d, %.600s", c.line, r.Code, r.Stderr)
		}
	}
	for _, name := range []string{"agent", "late", "rotated"} {
		s.Ask(t, "default", "user", "rm", name).Wants(t, "rm "+name, cli.ExitGood)
	}
	s.Ask(t, "shop", "user", "rm", "clerk").Wants(t, "rm clerk", cli.ExitGood)
	if after := s.Ask(t, "default", "user", "ls", "-o", "json").Stdout; after != before {
		t.Errorf("users were %s, and are %s", before, after)
	}
	if r := s.Ask(t, "default", "tenant", "show", "shop"); strings.Contains(r.Stdout, "facts        1 ") {
		t.Errorf("a limit was changed: %s", r.Stdout)
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
}
