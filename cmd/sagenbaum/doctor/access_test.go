package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/access"
)

// A password in the arguments of a program, and an agent beside the key of who runs the server,
// are found; what is in a file, of another role or of another server is not.
func TestProgramsThatShowSecretsAreFound(t *testing.T) {
	dir := t.TempDir()
	var users []access.User
	creds := func(name string, role access.Role) string {
		u := access.User{Name: name, Role: role, Tenant: "default"}
		c, err := access.NewCredentials(&u)
		if err != nil {
			t.Fatal(err)
		}
		users = append(users, u)
		text, err := c.Format()
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, name+".creds")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	local, agent := filepath.Join(dir, "local.creds"), creds("coder", access.Agent)
	worker := creds("git", access.Worker)
	proc := filepath.Join(dir, "proc")
	for pid, p := range map[string][2]string{ // the last does what the advice about the first says
		"1": {"sagenbaum\x00serve\x00--nats\x00nats://host:s3cret@nats-1:4222", ""},
		"2": {"coder", "A=1\x00SAGENBAUM_CREDS=" + agent}, "3": {"git", "SAGENBAUM_CREDS=" + worker},
		"4": {"nats\x00--server\x00nats://nats-1:4222", ""},
		"5": {"sagenbaum\x00serve", "SAGENBAUM_NATS=nats://host:s3cret@nats-1:4222"},
	} {
		folder := filepath.Join(proc, pid)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"cmdline": p[0], "environ": p[1]} {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := programs(proc)
	if len(all) != 5 {
		t.Fatalf("%d programs", len(all))
	}
	arguments := judgeArguments(all)
	found := clientsBeside(all, local)
	if len(found) != 2 || found[0].pid != "2" || found[1].pid != "3" {
		t.Fatalf("clients: %+v, want processes 2 and 3", found)
	}
	seed := judgeSeed(found, local, users)
	if arguments.State != "warn" || !strings.HasSuffix(arguments.Text, "arguments of process 1") ||
		strings.Contains(arguments.Text, "s3cret") {
		t.Errorf("%+v", arguments)
	}
	if seed.State != "warn" || !strings.HasPrefix(seed.Text, "agent coder, process 2,") {
		t.Errorf("%+v", seed)
	}
	if arguments.Check != "arguments" || !strings.Contains(arguments.Next, "SAGENBAUM_NATS") {
		t.Errorf("%+v", arguments)
	}
	for _, f := range []Finding{judgeArguments(all[3:]), judgeSeed(clientsBeside(all[2:], local), local, users),
		judgeSeed(found, local, users[1:])} { // the server does not know coder
		if f.State != "ok" {
			t.Errorf("%+v", f)
		}
	}
}
