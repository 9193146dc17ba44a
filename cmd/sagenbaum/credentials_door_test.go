package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger/access"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// refusedAtDoor asks a door over HTTP for what it refuses, and holds that the answer has a status,
// a field, a text and a next step.
func refusedAtDoor(t *testing.T, token, url string, status int, says, want string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"plan":"p1"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	got, answer := answerOf(t, r)
	e, _ := answer["error"].(map[string]any)
	problem, _ := e["problem"].(string)
	next, _ := e["want"].(string)
	if got != status || e["field"] == nil || e["stored"] != "nothing" || !strings.Contains(problem, says) ||
		!strings.Contains(next, want) || len(problem)+len(next) > 600 {
		t.Errorf("%.80s: %d %.600v, want %d, %q and %q", url, got, answer, status, says, want)
	}
}

func readCreds(t *testing.T, file string) access.Credentials {
	t.Helper()
	c, err := access.ReadCredentials(file)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func signed(t *testing.T, c access.Credentials, until time.Time) string {
	t.Helper()
	token, err := c.Sign(until)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TestTokensThatMayNotAreToldTheNextStep: over HTTP, too, those of another tenant, expired, revoked,
// with an old key or another role are told what is wrong and what to do, and nothing is changed.
func TestTokensThatMayNotAreToldTheNextStep(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
	s.Ask(t, "default", "tenant", "add", "shop").Wants(t, "a tenant", cli.ExitGood)
	read := func(file string) access.Credentials { return readCreds(t, file) }
	agent := read(s.User(t, "agent", "agent"))
	rotated, gone := read(s.User(t, "rotated", "agent")), read(s.User(t, "gone", "agent"))
	auditor, source := read(s.User(t, "auditor", "auditor")), read(s.User(t, "source", "source"))
	s.Ask(t, "default", "user", "rotate", "rotated").Wants(t, "rotate", cli.ExitGood)
	s.Ask(t, "default", "user", "rm", "gone").Wants(t, "rm", cli.ExitGood)
	late := filepath.Join(s.Dir, "late.creds")
	s.Brief(t, "late", "--role", "agent", "--out", late)
	clerk := filepath.Join(s.Dir, "clerk.creds")
	added := s.Ask(t, "shop", "user", "add", "clerk", "--role", "agent")
	if err := os.WriteFile(clerk, []byte(added.Stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	audits := signed(t, auditor, time.Time{}) // a file of credentials of such a role has none
	leaked, ended := signed(t, agent, time.Time{}), signed(t, agent, time.Now().Add(-time.Minute))
	s.Ask(t, "default", "user", "token", "revoke", "agent", agent.TokenID(leaked), "--unseen").Wants(t, "revoke",
		cli.ExitGood)
	url := func(tenant, name, verb string) string { return agent.Door + "/v1/" + tenant + "/" + name + "/" + verb }
	mine := url("default", "agent", "plan.cancel")
	cmdtest.Eventually(t, "an expired user", func() (string, bool) {
		status, answer := askDoor(t, late, "plan.get", `{"plan":"p1"}`)
		return "", status == http.StatusUnauthorized && answer["error"] != nil
	})
	before := kept(t, s)
	for _, c := range []struct {
		token, url string
		status     int
		says, want string
	}{
		{"", mine, http.StatusUnauthorized, "the token is missing", "sagenbaum user token"},
		{"nothing", mine, http.StatusUnauthorized, "of no user that may ask", "sagenbaum user ls"},
		{gone.Token, url("default", "gone", "plan.cancel"), http.StatusUnauthorized, "its user was removed",
			"sagenbaum user ls"},
		{rotated.Token, url("default", "rotated", "plan.cancel"), http.StatusUnauthorized, "another key",
			"sagenbaum user token"},
		{read(late).Token, url("default", "late", "plan.cancel"), http.StatusUnauthorized,
			"user default.late has expired at", "sagenbaum user rotate late"},
		{ended, mine, http.StatusUnauthorized, "has ended at", "sagenbaum user token"},
		{leaked, mine, http.StatusUnauthorized, "was revoked at", "sagenbaum user token"},
		{audits, url("default", "auditor", "plan.get"), http.StatusUnauthorized, "another key or role", "sagenbaum user ls"},
		{read(clerk).Token, mine, http.StatusForbidden, "user clerk of tenant shop", "shop"},
		{read(clerk).Token, url("default", "clerk", "plan.cancel"), http.StatusForbidden, "user clerk of tenant shop",
			"shop"},
		{source.Token, url("default", "source", "plan.cancel"), http.StatusForbidden, "with role source",
			"a verb of its role"},
		{agent.Token, url(longName, "agent", "plan.cancel"), http.StatusForbidden, "of tenant aaaa",
			"default"},
	} {
		refusedAtDoor(t, c.token, c.url, c.status, c.says, c.want)
	}
	if after := kept(t, s); after != before {
		t.Errorf("what was refused has changed\n%s\nto\n%s", before, after)
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
}
