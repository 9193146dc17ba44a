package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/access"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
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
		"4": {"nats\x00--server\x00nats://nats-1:4222", ""}, "5": {"git\x00--creds=" + worker, ""},
		"6": {"sagenbaum\x00serve", "SAGENBAUM_NATS=nats://host:s3cret@nats-1:4222"},
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
	if len(all) != 6 {
		t.Fatalf("%d programs", len(all))
	}
	arguments := judgeArguments(all)
	found := clientsBeside(all, local)
	if len(found) != 3 || found[0].pid != "2" || found[1].pid != "3" || found[2].pid != "5" {
		t.Fatalf("clients: %+v, want processes 2, 3 and 5", found)
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

// Each kind of secret is found in the arguments, and is not told again; what looks alike is none.
func TestSecretsInArgumentsAreFound(t *testing.T) {
	u := access.User{Name: "coder", Role: access.Agent, Tenant: "default"}
	c, err := access.NewCredentials(&u)
	if err != nil {
		t.Fatal(err)
	}
	for arguments, want := range map[string]string{
		"tool --token " + c.Token:                       "a token of the door",
		"curl -H Authorization:\\ Bearer\\ " + c.Token:  "a token of the door",
		"tool --seed " + string(c.Seed):                 "a seed",
		"tool --seed=" + string(c.Seed):                 "a seed",
		"nats --server nats://s3cret@nats-1:4222 sub x": "a password or a token in a URL",
		"nats -s tls://u:p@a:1,tls://u:p@b:1":           "a password or a token in a URL",
		"nats -s nats://a:1,nats://b:1 sub x@y":         "",
		"sagenbaum user show " + c.Key():                "",
		"git clone ssh://git@example.com/x":             "",
		"grep sbt1_ SUMMARY":                            "",
	} {
		f := judgeArguments([]program{{pid: "7", arguments: arguments}})
		if (f.State == "warn") != (want != "") || !strings.Contains(f.Text, want) ||
			strings.Contains(f.Text, "s3cret") || strings.Contains(f.Text, string(c.Seed)) {
			t.Errorf("%s: %+v", arguments, f)
		}
	}
}

// The key of who runs the server is found in a data folder that we can read, whatever our
// role is, and that of another server is none.
func TestAKeyThatAnyoneCanReadIsFound(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Chdir(t.TempDir())
	u := access.User{Name: access.LocalUser, Role: access.Local, Tenant: access.AllTenants}
	c, err := access.NewCredentials(&u)
	if err != nil {
		t.Fatal(err)
	}
	c.Servers, c.CA = "tls://127.0.0.1:4222", "its authority"
	text, err := c.Format()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "auth", "local.creds")
	if err := access.WriteSecret(file, text); err != nil {
		t.Fatal(err)
	}
	serving := program{pid: "1", local: file}
	for _, x := range []struct {
		all    []program
		server string
		ca     string
		state  string
	}{
		{[]program{serving}, "nats://localhost:4222", "", "warn"},
		{[]program{serving}, "tls://db-1:4222", "its authority", "warn"}, // under another name
		{[]program{{pid: "2", creds: []string{file}}}, "nats://localhost:4222", "", "warn"},
		{[]program{serving}, "nats://localhost:4223", "", "ok"},
		{[]program{serving}, "tls://db-2:4222", "another authority", "ok"},
		{nil, "nats://localhost:4222", "", "ok"},
	} {
		self := access.Credentials{Name: "coder", Role: access.Agent, CA: x.ca}
		f := judgeLocal(self, localKey(x.all, &cli.Settings{Server: x.server, Self: &self}))
		if f.State != x.state || f.State == "warn" && !strings.Contains(f.Text, "agent coder can do everything") {
			t.Errorf("%s: %+v", x.server, f)
		}
	}
}

// TestWhatOtherProgramsNameIsNotOpenedBlindly: who opens a pipe waits for ever, and a device has no
// end.
func TestWhatOtherProgramsNameIsNotOpenedBlindly(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	all := []program{{pid: "1", creds: []string{pipe, "/dev/zero"}, local: pipe}}
	if found := clientsBeside(all, ""); len(found) != 0 {
		t.Errorf("%+v", found)
	}
	if file := localKey(all, &cli.Settings{Server: "nats://127.0.0.1:1"}); file == pipe {
		t.Error(file)
	}
}
