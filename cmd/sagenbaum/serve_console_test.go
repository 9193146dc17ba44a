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

	"github.com/sagenbaum/sagenbaum/executor/host/console"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// TestServeShowsAConsoleInWhichOperatorsAct with the token that its first start makes.
func TestServeShowsAConsoleInWhichOperatorsAct(t *testing.T) {
	dir := dataDir(t)
	s := serveFor(t, dir, "--listen", "127.0.0.1:0", "--console", "127.0.0.1:0")
	openPlan(t, dial(t, s.url), "default", "p1")
	file := filepath.Join(dir, "console", "operators")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(string(text))
	name, token := words[len(words)-2], words[len(words)-1]
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
	signed := page(client.PostForm(base+"login", url.Values{"token": {token}, "next": {"/t/default/plans/p1"}}))
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
	end := s.end(t)
	end.wants(t, "serve", cli.ExitGood)
	if strings.Contains(end.stderr, token) {
		t.Error("the token is in the log")
	}
}

func TestServeRefusesAConsoleThatOthersReachInTheClear(t *testing.T) {
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
