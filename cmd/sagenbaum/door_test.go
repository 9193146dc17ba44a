package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/access"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// askDoor asks the door of a server over HTTP with the credentials in a file.
func askDoor(t *testing.T, creds, verb, body string) (int, map[string]any) {
	t.Helper()
	c, err := access.ReadCredentials(creds)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		c.Door+"/v1/default/tripper/"+verb, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+c.Token)
	return answerOf(t, r)
}

// answerOf is what a door answers to a request.
func answerOf(t *testing.T, r *http.Request) (int, map[string]any) {
	t.Helper()
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	answer := map[string]any{}
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil {
		t.Fatalf("%s: %q: %v", r.URL, text, err)
	}
	return response.StatusCode, answer
}

// TestAnAgentOfAnotherLanguageOutlivesAKillOfItsHost: the host is killed between any two steps, and
// each step is asked once more of the next one.
func TestAnAgentOfAnotherLanguageOutlivesAKillOfItsHost(t *testing.T) {
	t.Parallel()
	dir := cmdtest.DataDir(t)
	s := cmdtest.ServeFor(t, dir, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
	writeContractFile(t, dir, "send.yaml", sendContract)
	s.Ask(t, "default", "contract", "apply", "-f", filepath.Join(dir, "send.yaml"), "--actor", "op").Wants(t,
		"contract apply", cli.ExitGood)
	local := filepath.Join(dir, "auth", "local.creds")
	again := func() {
		if err := s.Command.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		s.Command.Wait()
		s = cmdtest.ServeFor(t, dir, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
	}
	for _, step := range []struct{ verb, body, key, want string }{
		{"plan.begin", `{"plan":"p1","owner":"travel","deadline":"2h"}`, "state", "open"},
		{"plan.act", `{"plan":"p1","action":"a","capability":"email.send","input":{"to":"x"}}`, "state", "accepted"},
		{"plan.outcome", `{"plan":"p1","action":"a","outcome":"completed","output":{"id":10.10}}`, "outcome", "completed"},
		{"plan.act", `{"plan":"p1","action":"a","capability":"email.send","input":{"to":"x"}}`, "state", "recorded"},
		{"plan.commit", `{"plan":"p1"}`, "state", "committed"},
		{"plan.wait", `{"plan":"p1"}`, "state", "committed"},
	} {
		var first string
		for range 2 {
			status, a := askDoor(t, local, step.verb, step.body)
			if status != http.StatusOK || a[step.key] != step.want {
				t.Fatalf("%s: %d %v, want %s", step.verb, status, a, step.want)
			}
			if key := fmt.Sprint(a["key"], a["output"], a["sequence"]); first == "" {
				first = key
			} else if step.want != "recorded" && key != first {
				t.Errorf("%s: %s after the kill, %s before", step.verb, key, first)
			}
			again()
		}
	}
	for _, args := range [][]string{{"--listen", "0.0.0.0:0", "--http", "0.0.0.0:0"}, {"--http", "nowhere"},
		{"--http-cert", "x"}, {"--nats", "nats://127.0.0.1:1", "--http", "127.0.0.1:0"}} {
		cmdtest.Run(t, append([]string{"serve", "--data", t.TempDir()}, args...)...).Wants(t,
			fmt.Sprint(args), cli.ExitUsage, "--http")
	}
	user := s.Ask(t, "default", "user", "add", "tripper", "--role", "agent")
	user.Wants(t, "user add", cli.ExitGood)
	file := filepath.Join(dir, "tripper.creds")
	if err := os.WriteFile(file, []byte(user.Stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, a := askDoor(t, file, "plan.get", `{"plan":"p1"}`); status != http.StatusOK || a["state"] != "committed" {
		t.Errorf("an agent with credentials of its own: %d %v", status, a)
	}
	token := cmdtest.Run(t, "user", "token", "--creds", file, "--expires", "1h")
	token.Wants(t, "user token", cli.ExitGood)
	if c, err := access.ReadCredentials(file); err != nil || len(token.Stdout) < 100 || c.Token == token.Stdout {
		t.Errorf("user token says %q: %v", token.Stdout, err)
	}
	oneTokenEnds(t, s, file, strings.TrimSpace(token.Stdout),
		strings.TrimPrefix(strings.TrimSpace(token.Stderr), "token "))
	s.End(t)
}

// oneTokenEnds revokes a token of the user tripper by its id, and no other.
func oneTokenEnds(t *testing.T, s *cmdtest.Served, file, token, id string) {
	t.Helper()
	c, err := access.ReadCredentials(file)
	if err != nil {
		t.Fatal(err)
	}
	with := func(token string) string {
		c.Token = token
		text, err := c.Format()
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(t.TempDir(), "with.creds")
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	s.Ask(t, "default", "user", "token", "revoke", "tripper", "x").Wants(t, "no id", cli.ExitUsage,
		"is no id of a token", "sagenbaum user token ls")
	s.Ask(t, "default", "user", "token", "revoke", "tripper", id).Wants(t, "an id that no one has shown",
		cli.ExitFailed, "was shown", "--unseen")
	s.Ask(t, "default", "user", "token", "revoke", "other", id).Wants(t, "no user", cli.ExitFailed,
		"there is no user")
	if status, a := askDoor(t, with(token), "plan.get", `{"plan":"p1"}`); status != http.StatusOK {
		t.Fatalf("%d %v", status, a)
	}
	if ls := s.Ask(t, "default", "user", "token", "ls", "tripper"); ls.Code != cli.ExitGood ||
		!strings.Contains(ls.Stdout, id) {
		t.Errorf("ls: %+v", ls)
	}
	if end := s.Ask(t, "default", "user", "token", "revoke", "tripper", id); end.Code != cli.ExitGood ||
		!strings.Contains(end.Stdout, "revoked") {
		t.Errorf("revoke: %+v", end)
	}
	if status, a := askDoor(t, with(token), "plan.get", `{"plan":"p1"}`); status != http.StatusUnauthorized {
		t.Errorf("a revoked token: %d %v", status, a)
	}
	if status, a := askDoor(t, file, "plan.get", `{"plan":"p1"}`); status != http.StatusOK {
		t.Errorf("another token of the same user: %d %v", status, a)
	}
}
