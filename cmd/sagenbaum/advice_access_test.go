package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/ledger/access"
)

// TestTheAdviceOnAnOpenServerIsFollowed: of the check entry. Without credentials there is nothing to
// try, which is said, too.
func TestTheAdviceOnAnOpenServerIsFollowed(t *testing.T) {
	t.Parallel()
	dir := cmdtest.DataDir(t)
	s := cmdtest.ServeFor(t, dir, "--open")
	if f := asking(t, s.URL).Findings(t)["entry"]; f.State != "skip" ||
		!strings.HasPrefix(f.Next, "serve without --open") {
		t.Errorf("%+v", f)
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
	s = cmdtest.ServeFor(t, dir)
	asking(t, s.URL).Content(t)
	if f := asking(t, s.URL).Findings(t)["entry"]; f.State != "ok" {
		t.Errorf("%+v", f)
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// TestTheAdviceOnALostTenantKeyIsFollowed: of the check sealed. The host works on with what it has in
// memory, and no undo is due that would show it.
func TestTheAdviceOnALostTenantKeyIsFollowed(t *testing.T) {
	t.Parallel()
	dir := keyed(t)
	s := cmdtest.ServeFor(t, dir)
	asking(t, s.URL).Content(t)
	for _, file := range []string{filepath.Join("tenants", "default.key"), "master.key"} {
		file = filepath.Join(dir+".keys", file)
		aside := filepath.Join(t.TempDir(), "aside")
		must(t, os.Rename(file, aside))
		if f := asking(t, s.URL).Advised(t, "sealed"); !strings.Contains(f.Next, "back as they were") {
			t.Errorf("%s: %+v", file, f)
		}
		must(t, os.Rename(aside, file))
		if f, found := asking(t, s.URL).Findings(t)["sealed"]; found {
			t.Errorf("%s is back: %+v", file, f)
		}
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// TestTheAdviceOnAWideRoleIsFollowed: of the checks role and entry. A server of someone's own lets an
// operator do everything, and everyone in, until it has what the command of the advice prints.
func TestTheAdviceOnAWideRoleIsFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	users, file := filepath.Join(dir, "users"), filepath.Join(dir, "ops.creds")
	added := cmdtest.Run(t, "user", "add", "ops", "--role", "operator", "--tenant", "default", "--file", users)
	added.Wants(t, "user add", cli.ExitGood)
	must(t, os.WriteFile(file, []byte(added.Stdout), 0o600))
	creds, err := access.ReadCredentials(file)
	must(t, err)
	store := fmt.Sprintf("jetstream { store_dir: %q }\n", filepath.Join(dir, "store"))
	as := func(url string) cmdtest.Asking {
		return func(args ...string) cmdtest.Result { return asking(t, url)(append(args, "--creds", file)...) }
	}
	server := natsServer(t, store+fmt.Sprintf("no_auth_user: anyone\n"+
		"authorization { users: [ { nkey: %s }, { user: anyone, password: x } ] }\n", creds.Key()))
	if f := as(server.ClientURL()).Advised(t, "entry"); !strings.HasSuffix(f.Next,
		"elsewhere users with roles (docs/security.md)") {
		t.Errorf("%+v", f)
	}
	f := as(server.ClientURL()).Advised(t, "role")
	server.Shutdown()
	server.WaitForShutdown()
	lines := cmdtest.Commands(strings.Replace(f.Next, "--file users", "--file "+users, 1))
	if len(lines) != 1 {
		t.Fatalf("%+v", f)
	}
	printed := cmdtest.Run(t, lines[0]...)
	printed.Wants(t, strings.Join(lines[0], " "), cli.ExitGood)
	server = natsServer(t, store+printed.Stdout)
	found := as(server.ClientURL()).Findings(t)
	if found["role"].State != "ok" || found["entry"].State != "ok" {
		t.Errorf("%+v", found)
	}
}

// TestTheAdviceOnDamagedUsersIsFollowed: of the check users. The server stays with the users that it
// has until an earlier copy of their file is there again.
func TestTheAdviceOnDamagedUsersIsFollowed(t *testing.T) {
	t.Parallel()
	dir := cmdtest.DataDir(t)
	s := cmdtest.ServeFor(t, dir)
	file := filepath.Join(dir, "auth", "users")
	copied, err := os.ReadFile(file)
	must(t, err)
	must(t, os.WriteFile(file, []byte("{"), 0o600))
	if f := s.Asks(t, "default").Advised(t, "users"); !strings.Contains(f.Next, "put an earlier copy there") {
		t.Errorf("%+v", f)
	}
	must(t, os.WriteFile(file, copied, 0o600))
	s.Asks(t, "default").Content(t)
	s.End(t).Wants(t, "serve", cli.ExitGood)
}
