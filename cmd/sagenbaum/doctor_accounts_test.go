package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// TestTheAdviceOnAConfigurationIsFollowed: what user export writes is in order, included in another
// file, too; what was edited is told with its next step, without a server, and the same as data,
// until there is what the command of the advice prints.
func TestTheAdviceOnAConfigurationIsFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	users, conf := filepath.Join(dir, "users"), filepath.Join(dir, "nats.conf")
	for _, u := range []string{"coder --role agent --tenant shop", "h1 --role host", "sys --role system"} {
		args := append([]string{"user", "add", "--file", users, "--out", filepath.Join(dir, u[:2]+".creds")},
			strings.Fields(u)...)
		cmdtest.Run(t, args...).Wants(t, u, cli.ExitGood)
	}
	exported := cmdtest.Run(t, "user", "export", "--file", users)
	exported.Wants(t, "user export", cli.ExitGood)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("nats.conf", "jetstream { store_dir: \"/nowhere\" }\ninclude accounts.conf\n")
	write("accounts.conf", exported.Stdout)
	line := []string{"doctor", "--accounts", conf, "--users", users, "--server", "nats://127.0.0.1:1"}
	r := cmdtest.Run(t, line...)
	r.Wants(t, "an export", cli.ExitGood)
	if strings.Contains(r.Stdout, "warn") || strings.Contains(r.Stdout, "FAIL") {
		t.Errorf("an export: %s", r.Stdout)
	}
	edits := strings.NewReplacer("permissions: {", "permissions: { allow_responses: true",
		"C_shop {", "C_shop {\n    jetstream: enabled", `subject: "key.shop.*"`, `subject: "key.*.*"`,
		"SYS {\n    users: [\n", "SYS {\n    users: [ { user: admin, password: admin }\n",
		"    users: [\n    ]", "    users: [ { user: guest, password: \"\" } ]")
	write("accounts.conf", "no_auth_user: guest\n"+edits.Replace(exported.Stdout))
	checks := []string{"accounts", "roles", "passwords", "responses", "jetstream", "imports"}
	asks := cmdtest.Asking(func(args ...string) cmdtest.Result { return cmdtest.Run(t, append(line, args[1:]...)...) })
	for _, check := range checks {
		if f := asks.Advised(t, check); f.State != "FAIL" {
			t.Errorf("%+v", f)
		}
	}
	r = cmdtest.Run(t, line...)
	r.Wants(t, "edits", cli.ExitLook)
	for _, says := range []string{"FAIL responses", "C_shop coder (U", "next: take allow_responses out"} {
		if !strings.Contains(r.Stdout, says) {
			t.Errorf("%q is not in %s", says, r.Stdout)
		}
	}
	data := cmdtest.Run(t, append(line, "-o", "json")...)
	data.Wants(t, "as data", cli.ExitLook)
	all := cmdtest.Decoded[struct {
		Checks []struct{ Check, State, Next string }
	}](t, data)
	if len(all.Checks) != 6 || all.Checks[3].Check != "responses" || all.Checks[3].State != "FAIL" {
		t.Errorf("%+v", all)
	}
	next := asks.Advised(t, "imports").Next
	lines := cmdtest.Commands(strings.Replace(next, "--file users", "--file "+users, 1))
	if len(lines) != 1 {
		t.Fatal(next)
	}
	write("accounts.conf", cmdtest.Run(t, lines[0]...).Stdout)
	cmdtest.Run(t, line...).Wants(t, "what the advice prints", cli.ExitGood)
	for args, says := range map[string]string{"--accounts nowhere.conf": "cannot read nowhere.conf",
		"--accounts " + conf + " --plan p": "do not go together", "--users " + users: "next: --accounts FILE",
		"--accounts " + conf + " --users nowhere": "nowhere"} {
		cmdtest.Run(t, append([]string{"doctor"}, strings.Fields(args)...)...).Wants(t, args, cli.ExitUsage, says, "next:")
	}
}

// TestWhatIsWrittenForServersIsInOrder: what user export writes for a callout, and each server's
// configuration of a cluster, with the users that were given and without.
func TestWhatIsWrittenForServersIsInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	folder := filepath.Join(dir, "cluster")
	config := []string{"cluster", "config", folder}
	cmdtest.Run(t, append(config, "--server", "n1=192.0.2.1", "--server", "n2=192.0.2.2", "--server", "n3=192.0.2.3",
		"--host", "a", "--host", "b", "--tenant", "shop")...).Wants(t, "cluster config", cli.ExitGood)
	users := filepath.Join(folder, "users")
	for i, u := range []string{"coder --role agent --tenant shop --run", "git --role worker --tenant shop --serve git.>",
		"ana --role operator --tenant shop --reveal", "phone --role pager --tenant shop", "out --role callout"} {
		args := append([]string{"user", "add", "--file", users, "--out", filepath.Join(dir, string(rune('a'+i))+".creds")},
			strings.Fields(u)...)
		cmdtest.Run(t, args...).Wants(t, u, cli.ExitGood)
	}
	cmdtest.Run(t, config...).Wants(t, "cluster config", cli.ExitGood)
	issuer, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	key, err := issuer.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	exported := cmdtest.Run(t, "user", "export", "--file", users, "--issuer", key)
	exported.Wants(t, "user export", cli.ExitGood)
	files := []string{filepath.Join(dir, "callout.conf")}
	if err := os.WriteFile(files[0], []byte(exported.Stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, server := range []string{"n1", "n2", "n3"} {
		files = append(files, filepath.Join(folder, server, "nats.conf"))
	}
	for _, file := range files {
		for _, known := range [][]string{nil, {"--users", users}} {
			r := cmdtest.Run(t, append([]string{"doctor", "--accounts", file}, known...)...)
			r.Wants(t, file, cli.ExitGood)
			if strings.Count(r.Stdout, "ok   ") != 6 || !strings.Contains(r.Stdout, "users may do what the table") {
				t.Errorf("%s: %s", file, r.Stdout)
			}
		}
	}
}
