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
)

// TestServeShowsAConsoleInWhichOperatorsAct with the token that its first start makes.
func TestServeShowsAConsoleInWhichOperatorsAct(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	s := serveFor(t, dir, "--listen", "127.0.0.1:0", "--console", "127.0.0.1:0")
	openPlan(t, dial(t, s.url), "default", "p1")
	var kept []string
	users := filepath.Join(dir, "console", "users")
	tokens, err := filepath.Glob(filepath.Join(dir, "console", "*.token"))
	if err != nil || len(tokens) != 1 {
		t.Fatalf("%v, %v", tokens, err)
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
	base := s.console
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
	r := s.ask(t, "default", "plan", "show", "p1", "-o", "json")
	if err := json.Unmarshal([]byte(r.stdout), &said); err != nil || !strings.Contains(said.Reason, "sold out ("+name) {
		t.Errorf("the plan is %s: %q, %v", said.State, said.Reason, err)
	}
	consoleByCommand(t, base, users, name+" "+token)
	end := s.end(t)
	end.wants(t, "serve", cli.ExitGood)
	if strings.Contains(end.stderr, token) {
		t.Error("the token is in the log")
	}
}

func TestServeRefusesAConsoleThatOthersReachInTheClear(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	open := finished(t, sagenbaum(t, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--console", "0.0.0.0:0"))
	open.wants(t, "an open console", cli.ExitUsage, "no certificate", "--console-cert")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	twice := finished(t,
		sagenbaum(t, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--console", taken.Addr().String()))
	twice.wants(t, "a console on a port that is taken", cli.ExitFailed, "--console 127.0.0.1:0")
}

// consoleByCommand adds a user, whose session is then listed and ended.
func consoleByCommand(t *testing.T, base, users, admin string) {
	t.Helper()
	run := func(args ...string) result {
		t.Helper()
		command := sagenbaum(t, append([]string{"console"}, args...)...)
		command.Env = append(command.Env, "SAGENBAUM_CONSOLE_TOKEN="+admin)
		return finished(t, command)
	}
	added := run("users", "add", "bo", "--role", "reader", "--on", "default", "--expires", "90d", "--file", users)
	added.wants(t, "adding a user", cli.ExitGood, "shown once")
	token := strings.TrimSpace(added.stdout)
	run("users", "add", "bo", "--on", "default", "--file", users).wants(t, "the same name", cli.ExitUsage, "there twice")
	run("users", "add", "eve", "--file", users).wants(t, "no tenant", cli.ExitUsage, "tenants")
	run("users", "rm", "eve", "--file", users).wants(t, "no such user", cli.ExitFailed, "no user")
	if list := run("users", "ls", "--file", users); !strings.Contains(list.stdout, "bo") ||
		strings.Contains(list.stdout, "argon2") {
		t.Errorf("the users are %s", list.stdout)
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
	list.wants(t, "sessions", cli.ExitGood)
	if !strings.Contains(list.stdout, "reader of default") || !strings.Contains(list.stdout, "admin of all tenants") {
		t.Errorf("the sessions are %s", list.stdout)
	}
	ended := run("sessions", "end", "--user", "bo", "--url", base)
	ended.wants(t, "ending a session", cli.ExitGood)
	if !strings.Contains(ended.stdout, "1 session ended") {
		t.Errorf("it says %s", ended.stdout)
	}
	if list := run("sessions", "ls", "--url", base); strings.Contains(list.stdout, "reader of default") {
		t.Errorf("the sessions are %s", list.stdout)
	}
	run("sessions", "end", "nothing", "--url", base).wants(t, "no such session", cli.ExitFailed, "no session")
	rotated := run("users", "rotate", "bo", "--file", users)
	rotated.wants(t, "another token", cli.ExitGood, "shown once")
	signIn(http.StatusForbidden)
	token = strings.TrimSpace(rotated.stdout)
	signIn(http.StatusOK)
	run("users", "rm", "bo", "--file", users).wants(t, "removing a user", cli.ExitGood)
	admin = "bo " + token
	run("sessions", "ls", "--url", base).wants(t, "as no admin", cli.ExitNotAllowed, "token")
}
