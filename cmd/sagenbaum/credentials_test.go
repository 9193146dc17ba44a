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
	{"", "user add " + strings.Repeat("a", 10_000) + " --role agent", cli.ExitUsage, "is no name", "1 to 64 letters"},
	{"", "user add x --role agent --tenant nowhere", cli.ExitFailed, "does not serve it", "sagenbaum tenant ls"},
	{"", "user rotate late", cli.ExitFailed, "the user expired at", "--expires: a time to come"},
	{"", "user add x --role agnet", cli.ExitUsage, `"agnet" is no role`,
		"--role: one of agent, worker, source, supervisor, auditor, operator, pager\n"},
	{"", "user add x --role agent --ask git..x", cli.ExitUsage, "no capability", "next: --ask: dotted names"},
	{"", "user add x --role worker --serve git..x", cli.ExitUsage, "no capability", "next: --serve: dotted names"},
	{"", "user add x --role agent --out nowhere/x.creds", cli.ExitFailed, "cannot write to nowhere", "--out"},
	{"", "user add x --role agent --out .", cli.ExitUsage, "is no file", "--out"},
	{"", "user add x --role host", cli.ExitUsage, "with role host here", "agent, worker"},
}

// kept is what no refused line may change: the file of users, and what is in the ledgers. Their
// hosts write down the limits of a tenant first, and later sign checkpoints by themselves.
func kept(t *testing.T, s *cmdtest.Served) string {
	t.Helper()
	users, err := os.ReadFile(filepath.Join(s.Dir, "auth", "users"))
	if err != nil {
		t.Fatal(err)
	}
	all := string(users)
	for _, tenant := range []string{"default", "shop"} {
		cmdtest.Eventually(t, "the limits of "+tenant, func() (string, bool) {
			r := s.Ask(t, tenant, "ledger", "tail", "--since", "0", "-o", "json")
			r.Wants(t, "ledger tail", cli.ExitGood)
			if !strings.Contains(r.Stdout, `"revision":`) {
				return r.Stdout, false
			}
			for line := range strings.Lines(r.Stdout) {
				if !strings.Contains(line, `"checkpoint_signed"`) {
					all += line
				}
			}
			return "", true
		})
	}
	return all
}

// wantRefused runs lines: each is refused with its code, its text and a next step, and after each
// all is as it was.
func wantRefused(t *testing.T, s *cmdtest.Served, lines []refusedLine) {
	t.Helper()
	before := kept(t, s)
	for _, c := range lines {
		args := append(strings.Fields(c.line), "--server", s.URL)
		if c.creds != "" {
			args = append(args, "--creds", c.creds)
		}
		r := cmdtest.Run(t, args...)
		if r.Code != c.code || !strings.Contains(r.Stderr, c.says) || !strings.Contains(r.Stderr, "next: ") ||
			!strings.Contains(r.Stderr, c.next) || len(r.Stderr) > 1000 || r.Stdout != "" {
			t.Errorf("%.80s: code %d, %.600s%.200s", c.line, r.Code, r.Stderr, r.Stdout)
		}
		if after := kept(t, s); after != before {
			t.Fatalf("%.80s has changed\n%s\nto\n%s", c.line, before, after)
		}
	}
}

// tenantsThatCannotBe have a name of 10,000 characters.
var tenantsThatCannotBe = []refusedLine{
	{"", "tenant show " + longName, cli.ExitUsage, "is no tenant", "sagenbaum tenant ls"},
	{"", "tenant add " + longName, cli.ExitUsage, "cannot be a tenant", "1 to 64 letters"},
	{"", "tenant limits " + longName + " --facts 1", cli.ExitUsage, "cannot be a tenant", "1 to 64 letters"},
	{"", "tenant erase " + longName + " --reason x --confirm x", cli.ExitUsage, "is no tenant", "sagenbaum tenant ls"},
	{"", "status --tenant " + longName, cli.ExitUsage, "is no tenant", "next: --tenant: 1 to 64 letters"},
	{"", "user add x --role agent --tenant " + longName, cli.ExitUsage, "is no tenant", "next: --tenant: 1 to 64 letters"},
	{"", "user export --with " + longName, cli.ExitUsage, "is no tenant", "next: --with: 1 to 64 letters"},
}

var longName = strings.Repeat("a", 10_000)

// TestCredentialsThatMayNotAreToldTheNextStep: those of another tenant, of another role, expired,
// revoked, with an old key, and users, tenants and limits that cannot be. Nothing is changed by any.
func TestCredentialsThatMayNotAreToldTheNextStep(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t))
	s.Ask(t, "default", "tenant", "add", "shop").Wants(t, "a tenant", cli.ExitGood)
	agent, gone := s.User(t, "agent", "agent"), s.User(t, "gone", "agent")
	clerk := filepath.Join(s.Dir, "clerk.creds")
	added := s.Ask(t, "shop", "user", "add", "clerk", "--role", "operator")
	if err := os.WriteFile(clerk, []byte(added.Stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	late := filepath.Join(s.Dir, "late.creds")
	s.Brief(t, "late", "--role", "operator", "--out", late)
	s.Ask(t, "default", "user", "rm", "gone").Wants(t, "rm", cli.ExitGood)
	rotated := s.User(t, "rotated", "source")
	s.Ask(t, "default", "user", "rotate", "rotated").Wants(t, "rotate", cli.ExitGood)
	cmdtest.Eventually(t, "an expired user", func() (string, bool) {
		r := cmdtest.Run(t, "status", "--server", s.URL, "--creds", late)
		return r.Stderr, strings.Contains(r.Stderr, "does not let us in")
	})
	bundle := filepath.Join(s.Dir, "x.bundle")
	wantRefused(t, s, append([]refusedLine{
		{clerk, "plan ls --tenant default", cli.ExitNotAllowed,
			"operator clerk is of tenant shop, and not of default", "--tenant shop, or credentials of tenant default"},
		{clerk, "plan cancel p1 --reason x --tenant default", cli.ExitNotAllowed,
			"operator clerk is of tenant shop, and not of default", "--tenant shop, or credentials of tenant default"},
		{clerk, "tenant limits shop --facts 1 --actor clerk", cli.ExitNotAllowed, "role operator gives clerk",
			"sagenbaum user show clerk"},
		{agent, "ledger export -f " + bundle, cli.ExitNotAllowed, "not what role agent gives agent",
			"sagenbaum user show agent"},
		{agent, "user export", cli.ExitNotAllowed, "role agent gives agent", "credentials that may do this"},
		{agent, "tenant erase default --reason x --confirm default", cli.ExitNotAllowed, "role agent gives agent",
			"credentials that may do this"},
		{agent, "user ls", cli.ExitNotAllowed, "role agent gives agent", "credentials that may do this"},
		{gone, "status", cli.ExitNotAllowed, "revoked", "sagenbaum user ls"},
		{late, "status", cli.ExitNotAllowed, "expired", "sagenbaum user rotate"},
		{late, "plan cancel p1 --reason x", cli.ExitNotAllowed, "expired", "sagenbaum user rotate"},
		{rotated, "status", cli.ExitNotAllowed, "revoked", "sagenbaum user rotate"},
		{rotated, "fact put k 1", cli.ExitNotAllowed, "revoked", "sagenbaum user rotate"},
		{"", "tenant limits shop --open-plans 0", cli.ExitUsage, "want 1 to 100000000 plans", "tenant limits --help"},
	}, usersThatCannotBe...))
	wantRefused(t, s, tenantsThatCannotBe)
	wantKept(t, s, agent, clerk)
	if _, err := os.Stat(bundle); !os.IsNotExist(err) {
		t.Errorf("an export without rights has left a file: %v", err)
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

// TestWorkOnTheLedgerWaitsForNoHostThatStandsBy: it may take an hour, and a host without the tenant
// never answers.
func TestWorkOnTheLedgerWaitsForNoHostThatStandsBy(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	conn := cmdtest.Dial(t, server.URL())
	for _, subject := range []string{api.QuerySubject("default", ">"), api.AdminSubject("default", ">")} {
		if _, err := conn.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"ledger scrub", "rebuild --check", "ledger repair --dry-run --reason look"} {
		r := cmdtest.Run(t, append(strings.Fields(line), "--server", server.URL(), "--timeout", "200ms")...)
		r.Wants(t, line, cli.ExitNoServer, "no answer to ", " within 200ms")
	}
	standby := func([]byte) any {
		return api.StatusAnswer{Status: api.Status{Tenant: "default", Mode: api.ModeStandby, Problem: "held by no one"}}
	}
	url := answering(t, map[string]func([]byte) any{"status": standby})
	cmdtest.Run(t, "rebuild", "--check", "--server", url).Wants(t, "a host that stands by", cli.ExitNoServer,
		"no host holds tenant default: held by no one", "sagenbaum doctor")
}

// inMode answers the status of the tenant.
func inMode(mode string) func([]byte) any {
	return func([]byte) any { return api.StatusAnswer{Status: api.Status{Tenant: "default", Mode: mode}} }
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

// TestAHostWhoseServersAreNotThereSaysThat, and not that its credentials are wrong: as where it boots
// before them.
func TestAHostWhoseServersAreNotThereSaysThat(t *testing.T) {
	t.Parallel()
	users := testenv.Users(t, access.User{Name: "h1", Role: access.Host, Tenant: access.AllTenants},
		access.User{Name: "s1", Role: access.System, Tenant: access.AllTenants})
	host, system := users.File("h1"), users.File("s1")
	for _, more := range [][]string{nil, {"--creds", host}, {"--creds", host, "--system-creds", system}} {
		args := append([]string{"serve", "--data", cmdtest.DataDir(t), "--console", "off", "--nats",
			"nats://127.0.0.1:1,nats://127.0.0.1:2"}, more...)
		cmdtest.Run(t, args...).Wants(t, strings.Join(more, " "), cli.ExitNoServer,
			"no server at nats://127.0.0.1:1,nats://127.0.0.1:2: ", "next: start the NATS servers")
	}
}

// wantKept holds that no user is made or given another key whose credentials would take the place of
// those of another, or of another file. Its own are replaced.
func wantKept(t *testing.T, s *cmdtest.Served, agent, clerk string) {
	t.Helper()
	notes := filepath.Join(s.Dir, "notes.txt")
	must(t, os.WriteFile(notes, []byte("buy milk\n"), 0o600))
	for file, has := range map[string]string{agent: "agent agent of tenant default", notes: "other things",
		clerk: "operator clerk of tenant shop"} {
		before, err := os.ReadFile(file)
		must(t, err)
		wantRefused(t, s, []refusedLine{
			{"", "user add second --role agent --out " + file, cli.ExitFailed, has + ", maybe their only copy",
				"--out with another file"},
			{"", "user rotate late --out " + file, cli.ExitFailed, has, "--out with another file"},
		})
		if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
			t.Errorf("%s was %s, and is %s: %v", file, before, after, err)
		}
	}
	s.Ask(t, "default", "user", "rotate", "agent", "--out", agent).Wants(t, "its own file", cli.ExitGood)
	empty := filepath.Join(s.Dir, "empty")
	must(t, os.WriteFile(empty, nil, 0o600))
	s.Ask(t, "default", "user", "rotate", "agent", "--out", empty).Wants(t, "an empty file", cli.ExitGood)
}

// TestWhoIsRemovedIsToldWhatIsStillGood: at once at the embedded server, and after an export elsewhere.
func TestWhoIsRemovedIsToldWhatIsStillGood(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t))
	file := filepath.Join(t.TempDir(), "users")
	export := "servers let its credentials in until they have the accounts of sagenbaum user export --file " + file
	for _, test := range []struct {
		add, rm []string
		says    string
	}{
		{nil, nil, "its connections are closed within a second, and its key and all of its tokens are refused"},
		{[]string{"--file", file, "--url", s.URL}, []string{"--file", file}, export + ", and are reloaded"},
		{[]string{"--file", file, "--url", s.URL}, []string{"--file", file, "--operator", "op"},
			export + " --format jwt --operator op"},
	} {
		add := append([]string{"user", "add", "coder", "--role", "agent"}, test.add...)
		s.Ask(t, "default", add...).Wants(t, "user add", cli.ExitGood)
		r := s.Ask(t, "default", append([]string{"user", "rm", "coder"}, test.rm...)...)
		r.Wants(t, "user rm", cli.ExitGood)
		if want := "agent coder of tenant default is removed: " + test.says + "\n"; r.Stdout != want {
			t.Errorf("%v: it says %q, want %q", test.rm, r.Stdout, want)
		}
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// TestAUserIsRemovedOnceThereIsRoom: on a full disk it is said that the user stays one.
func TestAUserIsRemovedOnceThereIsRoom(t *testing.T) {
	disk := cmdtest.SmallDisk(t)
	s := cmdtest.ServeFor(t, filepath.Join(disk, "data"))
	s.Ask(t, "default", "user", "add", "coder", "--role", "agent").Wants(t, "user add", cli.ExitGood)
	empty := cmdtest.FillDisk(t, disk)
	s.Ask(t, "default", "user", "rm", "coder").Wants(t, "user rm on a full disk", cli.ExitFailed, "no space left")
	s.Ask(t, "default", "user", "show", "coder").Wants(t, "user show", cli.ExitGood)
	empty()
	s.Ask(t, "default", "user", "rm", "coder").Wants(t, "user rm", cli.ExitGood)
	s.End(t)
}

// TestUsersAreListedOfOneTenant where one is named, and of all else.
func TestUsersAreListedOfOneTenant(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users")
	for name, tenant := range map[string]string{"anne": "books", "ben": "shop"} {
		cmdtest.Run(t, "user", "add", name, "--role", "agent", "--tenant", tenant, "--file", file).
			Wants(t, "user add", cli.ExitGood)
	}
	all := cmdtest.Run(t, "user", "ls", "--file", file)
	one := cmdtest.Run(t, "user", "ls", "--file", file, "--tenant", "shop")
	if !strings.Contains(all.Stdout, "anne") || !strings.Contains(all.Stdout, "ben") {
		t.Errorf("all: %s%s", all.Stdout, all.Stderr)
	}
	if strings.Contains(one.Stdout, "anne") || !strings.Contains(one.Stdout, "ben") {
		t.Errorf("of shop: %s%s", one.Stdout, one.Stderr)
	}
}
