package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/review"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// blocksACommittedChild blocks an action of a plan that is committed in one that is open: all of it is
// undone there.
func blocksACommittedChild(t *testing.T, s *cmdtest.Served, door func(verb, body, key, want string)) {
	t.Helper()
	door("plan.begin", `{"plan":"p2"}`, "state", "open")
	door("plan.begin", `{"plan":"c2","parent":"p2"}`, "state", "open")
	door("plan.act", `{"plan":"c2","action":"a","capability":"email.send","input":{"to":"a"}}`, "state", "accepted")
	door("plan.outcome", `{"plan":"c2","action":"a","outcome":"completed"}`, "outcome", "completed")
	door("plan.commit", `{"plan":"c2"}`, "state", "committed")
	child := s.Ask(t, "default", "review", "block", "c2", "a", "--by", "boss", "--reason", "no")
	child.Wants(t, "a verdict on a committed child", cli.ExitGood)
	if strings.Contains(child.Stdout, "plan committed") && !strings.Contains(child.Stdout, "child plan in plan p2") {
		t.Errorf("review block: %s", child.Stdout)
	}
}

// TestASupervisorAnswersWhatWaitsForAVerdict: an agent waits by the door, and a supervisor answers
// on the command line.
func TestASupervisorAnswersWhatWaitsForAVerdict(t *testing.T) {
	t.Parallel()
	dir := cmdtest.DataDir(t)
	s := cmdtest.ServeFor(t, dir, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
	writeContractFile(t, dir, "send.yaml", sendContract)
	s.Ask(t, "default", "contract", "apply", "-f", filepath.Join(dir, "send.yaml"), "--actor", "op").Wants(t,
		"contract apply", cli.ExitGood)
	s.Ask(t, "default", "review", "ls").Wants(t, "review ls", cli.ExitGood, "no action waits")
	local := filepath.Join(dir, "auth", "local.creds")
	door := func(verb, body, key, want string) {
		t.Helper()
		if status, a := askDoor(t, local, verb, body); status != http.StatusOK || a[key] != want {
			t.Fatalf("%s %s: %d %v, want %s", verb, body, status, a, want)
		}
	}
	act := func(action, key, want string) {
		t.Helper()
		door("plan.act", `{"plan":"p1","action":"`+action+`","capability":"email.send","input":{"to":"`+action+
			`"},"review":true,"wait":"20ms"}`, key, want)
	}
	door("plan.begin", `{"plan":"p1","owner":"travel"}`, "state", "open")
	for _, action := range []string{"a", "b", "c"} {
		act(action, "state", "waiting")
	}
	var ls cmdtest.Result
	cmdtest.Eventually(t, "three reviews", func() (string, bool) { // the door may be ahead of the list
		ls = s.Ask(t, "default", "review", "ls", "-o", "json")
		return ls.Stdout, ls.Code == cli.ExitLook && strings.Count(ls.Stdout, `"capability"`) == 3
	})
	if got := cmdtest.Decoded[api.ReviewAnswer](t, ls); len(got.Reviews) != 3 || got.Reviews[0].Action != "a" ||
		!strings.Contains(string(got.Reviews[0].Input), `"to": "a"`) || got.Reviews[0].Agent != "tripper" {
		t.Errorf("review ls: %+v", got)
	}
	saysWhatWaits(t, s)
	s.Ask(t, "default", "review", "show", "p1", "x").Wants(t, "review show x", cli.ExitFailed, "review ls")
	s.Ask(t, "default", "review", "block", "p1", "b").Wants(t, "block without a reason", cli.ExitUsage, "--reason")
	s.Ask(t, "default", "review", "allow", "p1", "a", "--by", "a b").Wants(t, "no name", cli.ExitUsage, "--by")
	s.Ask(t, "default", "review", "allow", "p1", "nobody", "--by", "boss").Wants(t, "no action", cli.ExitConflict)
	s.Ask(t, "default", "review", "allow", "none", "a", "--by", "boss").Wants(t, "no plan", cli.ExitConflict)
	for _, v := range [][]string{{"allow", "a"}, {"block", "b"}, {"redirect", "c"}} {
		r := s.Ask(t, "default", "review", v[0], "p1", v[1], "--by", "boss", "--reason", "as agreed", "-o", "json")
		r.Wants(t, v[0], cli.ExitGood)
		if got := cmdtest.Decoded[review.Given](t, r); got.Verdict != v[0] || got.By != "boss" || got.Record == 0 {
			t.Errorf("%s: %+v", v[0], got)
		}
	}
	s.Ask(t, "default", "review", "ls").Wants(t, "review ls", cli.ExitGood)
	act("a", "state", "accepted")
	act("b", "code", "blocked")
	act("c", "code", "redirected")
	door("plan.outcome", `{"plan":"p1","action":"a","outcome":"completed"}`, "outcome", "completed")
	tooLate := s.Ask(t, "default", "review", "allow", "p1", "b", "--by", "boss")
	tooLate.Wants(t, "what is not made any more", cli.ExitConflict, "b has failed", "plan show p1")
	door("plan.commit", `{"plan":"p1"}`, "state", "committed")
	s.Ask(t, "default", "review", "block", "p1", "b", "--by", "boss", "--reason", "after all").Wants(t,
		"a verdict that undoes nothing", cli.ExitConflict, "p1 is committed", "nothing to undo")
	late := s.Ask(t, "default", "review", "block", "p1", "a", "--by", "boss", "--reason", "after all")
	late.Wants(t, "a verdict on what is committed", cli.ExitGood)
	if !strings.Contains(late.Stdout, "plan committed, undone by plan p1~1") {
		t.Errorf("review block: %s", late.Stdout)
	}
	blocksACommittedChild(t, s, door)
	s.End(t)
}

// saysWhatWaits looks at three actions of plan p1 that wait for a verdict.
func saysWhatWaits(t *testing.T, s *cmdtest.Served) {
	t.Helper()
	shown := s.Ask(t, "default", "review", "show", "p1", "b")
	shown.Wants(t, "review show", cli.ExitGood, "review allow|block|redirect p1 b")
	for _, want := range []string{`{"to":"b"}`, "waits for a verdict since", "wanted by", "tripper",
		"an unwind of b and what came after it now", "email.send may have happened"} {
		if !strings.Contains(shown.Stdout, want) {
			t.Errorf("review show without %q: %s", want, shown.Stdout)
		}
	}
	for _, c := range []struct{ line, want string }{
		{"plan show p1", "a verdict since"}, {"status", "3 actions wait for a verdict"},
		{"doctor", "3 actions wait for a verdict"}, {"review show p1 2", `{"to":"b"}`},
	} {
		if r := s.Ask(t, "default", strings.Fields(c.line)...); !strings.Contains(r.Stdout, c.want) {
			t.Errorf("%s without %q: %s", c.line, c.want, r.Stdout)
		}
	}
	s.Ask(t, "default", "review", "block", "p1", "b", "--by", "boss", "--reason", "no", "--scope", "all").Wants(t,
		"no scope", cli.ExitUsage, "--scope plan")
}
