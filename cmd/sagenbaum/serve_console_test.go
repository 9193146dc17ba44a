package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/console"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// TestServeShowsAConsoleInWhichOperatorsAct with the token that its first start makes.
func TestServeShowsAConsoleInWhichOperatorsAct(t *testing.T) {
	t.Parallel()
	dir := cmdtest.DataDir(t)
	s := cmdtest.ServeFor(t, dir, "--listen", "127.0.0.1:0", "--console", "127.0.0.1:0")
	cmdtest.OpenPlan(t, cmdtest.Dial(t, s.URL), "default", "p1")
	var kept []string
	users := filepath.Join(dir, "console", "users")
	tokens, err := filepath.Glob(filepath.Join(dir, "console", "*.token"))
	if err != nil || len(tokens) != 1 {
		t.Fatalf("%v, %v", tokens, err)
	}
	if !strings.Contains(s.Said, `"console_token":"`+tokens[0]+`"`) {
		t.Errorf("serve says %s, and the token is in %s", s.Said, tokens[0])
	}
	for _, file := range []string{users, tokens[0]} {
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%v, %v", info, err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, string(text))
	}
	words := strings.Fields(kept[1])
	name, token := words[0], words[1]
	if strings.Contains(kept[0], token) || !strings.Contains(kept[0], "argon2id") {
		t.Errorf("the file of users is %s", kept[0])
	}
	jar, _ := cookiejar.New(nil)
	client := &http.Client{Jar: jar, Transport: &http.Transport{DialContext: console.DialContext}}
	page := func(answer *http.Response, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", answer.Request.URL, answer.Status, err)
		}
		return string(body)
	}
	base := s.Console
	open := page(client.Get(base + "t/default/plans/p1"))
	if strings.Contains(open, token) || strings.Contains(open, `name="csrf"`) {
		t.Error("a page for whoever is on this machine has what an operator needs")
	}
	form := url.Values{"name": {name}, "token": {token}, "next": {"/t/default/plans/p1"}}
	signed := page(client.PostForm(base+"login", form))
	csrf := regexp.MustCompile(`name="csrf" value="([^"]+)"`).FindStringSubmatch(signed)
	if csrf == nil || !strings.Contains(signed, name) {
		t.Fatal("nobody has signed in")
	}
	page(client.PostForm(base+"t/default/plans/p1/cancel", url.Values{"csrf": {csrf[1]}, "reason": {"sold out"}}))
	var said api.OutcomeAnswer
	r := s.Ask(t, "default", "plan", "show", "p1", "-o", "json")
	if err := json.Unmarshal([]byte(r.Stdout), &said); err != nil || !strings.Contains(said.Reason, "sold out ("+name) {
		t.Errorf("the plan is %s: %q, %v", said.State, said.Reason, err)
	}
	consoleByCommand(t, base, users, name+" "+token)
	end := s.End(t)
	end.Wants(t, "serve", cli.ExitGood)
	if strings.Contains(end.Stderr, token) {
		t.Error("the token is in the log")
	}
}

func TestServeRefusesAConsoleThatOthersReachInTheClear(t *testing.T) {
	t.Parallel()
	dir := cmdtest.DataDir(t)
	open := cmdtest.Run(t, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--console", "0.0.0.0:0")
	open.Wants(t, "an open console", cli.ExitUsage, "no certificate", "--console-cert")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	twice := cmdtest.Run(t, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--console", taken.Addr().String())
	twice.Wants(t, "a console on a port that is taken", cli.ExitFailed, "--console 127.0.0.1:0")
}

// consoleByCommand adds a user, whose session is then listed and ended.
func consoleByCommand(t *testing.T, base, users, admin string) {
	t.Helper()
	run := func(args ...string) cmdtest.Result {
		t.Helper()
		command := cmdtest.Sagenbaum(t, append([]string{"console"}, args...)...)
		command.Env = append(command.Env, "SAGENBAUM_CONSOLE_TOKEN="+admin)
		return cmdtest.Finished(t, command)
	}
	added := run("users", "add", "bo", "--role", "reader", "--on", "default", "--expires", "90d", "--file", users)
	added.Wants(t, "adding a user", cli.ExitGood, "shown once")
	token := strings.TrimSpace(added.Stdout)
	run("users", "add", "bo", "--on", "default", "--file", users).Wants(t, "the same name", cli.ExitUsage, "there twice")
	run("users", "add", "eve", "--file", users).Wants(t, "no tenant", cli.ExitUsage, "tenants")
	run("users", "rm", "eve", "--file", users).Wants(t, "no such user", cli.ExitFailed, "no user")
	if list := run("users", "ls", "--file", users); !strings.Contains(list.Stdout, "bo") ||
		strings.Contains(list.Stdout, "argon2") {
		t.Errorf("the users are %s", list.Stdout)
	}
	signIn := func(want int) *http.Client {
		t.Helper()
		jar, _ := cookiejar.New(nil)
		client := &http.Client{Jar: jar, Transport: &http.Transport{DialContext: console.DialContext}}
		for end := time.Now().Add(testenv.Patience); ; <-time.After(50 * time.Millisecond) {
			form := url.Values{"name": {"bo"}, "token": {token}, "next": {"/t/default/"}}
			answer, err := client.PostForm(base+"login", form)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if answer.StatusCode == want {
				return client
			}
			if time.Now().After(end) {
				t.Fatalf("the user gets %s, want %d", answer.Status, want)
			}
		}
	}
	signIn(http.StatusOK)
	list := run("sessions", "ls", "--url", base)
	list.Wants(t, "sessions", cli.ExitGood)
	if !strings.Contains(list.Stdout, "reader of default") || !strings.Contains(list.Stdout, "admin of all tenants") {
		t.Errorf("the sessions are %s", list.Stdout)
	}
	ended := run("sessions", "end", "--user", "bo", "--url", base)
	ended.Wants(t, "ending a session", cli.ExitGood)
	if !strings.Contains(ended.Stdout, "1 session ended") {
		t.Errorf("it says %s", ended.Stdout)
	}
	if list := run("sessions", "ls", "--url", base); strings.Contains(list.Stdout, "reader of default") {
		t.Errorf("the sessions are %s", list.Stdout)
	}
	run("sessions", "end", "nothing", "--url", base).Wants(t, "no such session", cli.ExitFailed, "no session")
	rotated := run("users", "rotate", "bo", "--file", users)
	rotated.Wants(t, "another token", cli.ExitGood, "shown once")
	signIn(http.StatusForbidden)
	token = strings.TrimSpace(rotated.Stdout)
	signIn(http.StatusOK)
	run("users", "rm", "bo", "--file", users).Wants(t, "removing a user", cli.ExitGood)
	admin = "bo " + token
	run("sessions", "ls", "--url", base).Wants(t, "as no admin", cli.ExitNotAllowed, "token")
}
