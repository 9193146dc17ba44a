package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// refusedLine is a command line that is refused, and what it is told.
type refusedLine struct {
	creds, line string // creds: a file; empty: who runs the server
	code        int
	says, next  string
}

// usersThatCannotBe are those that no one is given credentials for. The user late has expired.
var usersThatCannotBe = []refusedLine{
	{"", "user add " + strings.Repeat("a", 10_000) + " --role agent", cli.ExitFailed, "is no name", "1 to 64 letters"},
	{"", "user add x --role agent --tenant nowhere", cli.ExitFailed, "does not serve it", "sagenbaum tenant ls"},
	{"", "user rotate late", cli.ExitFailed, "the user expired at", "--expires: a time to come"},
	{"", "user add x --role agnet", cli.ExitFailed, `"agnet" is no role`,
		"--role: one of agent, worker, source, supervisor, auditor, operator, pager\n"},
	{"", "user add x --role agent --ask git..x", cli.ExitFailed, "no capability", "next: --ask: dotted names"},
	{"", "user add x --role worker --serve git..x", cli.ExitFailed, "no capability", "next: --serve: dotted names"},
	{"", "user add x --role agent --out nowhere/x.creds", cli.ExitFailed, "cannot write to nowhere", "--out"},
	{"", "user add x --role agent --out .", cli.ExitUsage, "is no file", "--out"},
	{"", "user add x --role host", cli.ExitFailed, "not for users of an embedded server", "agent, worker"},
}

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
	late := filepath.Join(s.Dir, "late.creds")
	s.Brief(t, "late", "--role", "agent", "--out", late)
	s.Ask(t, "default", "user", "rm", "gone").Wants(t, "rm", cli.ExitGood)
	rotated := s.User(t, "rotated", "agent")
	s.Ask(t, "default", "user", "rotate", "rotated").Wants(t, "rotate", cli.ExitGood)
	cmdtest.Eventually(t, "an expired user", func() (string, bool) {
		r := cmdtest.Run(t, "status", "--server", s.URL, "--creds", late)
		return r.Stderr, strings.Contains(r.Stderr, "does not let us in")
	})
	long := strings.Repeat("a", 10_000)
	for _, c := range append([]refusedLine{
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
	}, usersThatCannotBe...) {
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

// TestAFileOfCredentialsIsWrittenWhenAllIsDone, and left as it is where the server refuses.
func TestAFileOfCredentialsIsWrittenWhenAllIsDone(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t))
	file := filepath.Join(s.Dir, "coder.creds")
	read := func() string {
		t.Helper()
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%v %v", info, err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	added := s.Brief(t, "coder", "--role", "auditor", "--out", file)
	added.Wants(t, "add", cli.ExitGood, "SAGENBAUM_CREDS="+file)
	if strings.Contains(added.Stdout, "SEED") {
		t.Error("what is in the file is printed as well")
	}
	first := read()
	s.Ask(t, "default", "user", "add", "coder", "--role", "auditor", "--out", file).Wants(t, "add again", cli.ExitFailed)
	if read() != first {
		t.Error("what was refused has changed the file")
	}
	cmdtest.Eventually(t, "an expired user", func() (string, bool) {
		r := s.Ask(t, "default", "user", "rotate", "coder", "--out", file)
		return r.Stderr, r.Code == cli.ExitFailed && strings.Contains(r.Stderr, "--expires")
	})
	s.Ask(t, "default", "user", "rotate", "coder", "--expires", "1d", "--out", file).Wants(t, "rotate", cli.ExitGood)
	if read() == first {
		t.Error("the key is the one of before")
	}
	cmdtest.Run(t, "status", "--creds", file).Wants(t, "status", cli.ExitGood)
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// TestAChangeOfUsersWithoutAnAnswerMayBeDone, and the command says so and where to look.
func TestAChangeOfUsersWithoutAnAnswerMayBeDone(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	conn := cmdtest.Dial(t, server.URL())
	if _, err := conn.SubscribeSync(api.ServerSubject(">")); err != nil { // it never answers
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	for line, says := range map[string]bool{"user add x --role agent": true, "user ls": false} {
		r := cmdtest.Run(t, append(strings.Fields(line), "--server", server.URL(), "--timeout", "200ms")...)
		r.Wants(t, line, cli.ExitNoServer)
		if strings.Contains(r.Stderr, "may be done all the same") != says ||
			strings.Contains(r.Stderr, "sagenbaum user ls shows") != says {
			t.Errorf("%s: %s", line, r.Stderr)
		}
	}
}

// TestCredentialsOfAnotherRoleAreRefusedAtOnce, before a server is asked: here there is none.
func TestCredentialsOfAnotherRoleAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	users := testenv.Users(t, access.User{Name: "coder", Role: access.Agent, Tenant: "default"},
		access.User{Name: "h1", Role: access.Host, Tenant: access.AllTenants})
	coder, host := users.File("coder"), users.File("h1")
	const nowhere = "nats://127.0.0.1:1"
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--creds", coder}, "coder, a user with role agent, and role host is needed"},
		{[]string{"--creds", host, "--system-creds", coder}, "coder, a user with role agent, and role system"},
	} {
		args := append([]string{"serve", "--data", cmdtest.DataDir(t), "--console", "off", "--nats", nowhere}, c.args...)
		cmdtest.Run(t, args...).Wants(t, strings.Join(c.args, " "), cli.ExitNotAllowed, c.want, "next: --")
	}
}
