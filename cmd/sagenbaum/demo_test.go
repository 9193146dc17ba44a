package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/demo"
	doctorcmd "github.com/sagenbaum/sagenbaum/cmd/sagenbaum/doctor"
	ledgercmd "github.com/sagenbaum/sagenbaum/cmd/sagenbaum/ledger"
)

const demoMax = time.Minute

// The demo checks the repositories itself; here it must say so, in time, and
// leave a ledger behind that the rest of the command line explains.
func TestTheDemoHoldsAndItsLedgerCanBeRead(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "demo")
	started := time.Now()
	r := finished(t, sagenbaum(t, "demo", "--dir", dir))
	r.wants(t, "demo", cli.ExitGood)
	if took := time.Since(started); took > demoMax {
		t.Errorf("the demo took %s, at most %s", took, demoMax)
	}
	for _, want := range []string{"Act one", "Act two", "Act three", "byte-identical", "quarantined",
		"kill -9 of the server", "PROVEN", "the first breaks I2", "all checks hold"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("the demo does not say %q", want)
		}
	}
	if strings.Contains(r.stdout, "FAIL") || strings.Contains(r.stdout, "\x1b[") {
		t.Errorf("a failed check, or colours in a pipe:\n%s", r.stdout)
	}
	s := serveFor(t, filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--tenant", demo.Tenant)
	t.Run("lists", func(t *testing.T) { readLists(t, s) })
	t.Run("plans", func(t *testing.T) { readPlans(t, s) })
	t.Run("ledger", func(t *testing.T) { readLedger(t, s) })
	t.Run("export", func(t *testing.T) { exportLedger(t, s) })
	t.Run("refusals", func(t *testing.T) { tryWhatIsTooLate(t, s) })
	s.end(t).wants(t, "serve", cli.ExitGood)
}

func readLists(t *testing.T, s *served) {
	all := decoded[view.PlansAnswer](t, s.ask(t, demo.Tenant, "plan", "ls", "-o", "json"))
	if len(all.Plans) != 4 {
		t.Errorf("plan ls has %d plans, want 4", len(all.Plans))
	}
	one := decoded[view.PlansAnswer](t,
		s.ask(t, demo.Tenant, "plan", "ls", "--state", ledger.StateResolved, "-o", "json"))
	if len(one.Plans) != 1 || one.Plans[0].Plan != "act-three" {
		t.Errorf("resolved plans are %+v, want act-three", one.Plans)
	}
	short := s.ask(t, demo.Tenant, "plan", "ls", "--limit", "3")
	short.wants(t, "plan ls --limit 3", cli.ExitGood, "there are more: sagenbaum plan ls --after")
	if lines := strings.Count(short.stdout, "\n"); lines != 4 {
		t.Errorf("plan ls --limit 3 prints %d lines, want a head and 3", lines)
	}
	empty := decoded[view.PlansAnswer](t,
		s.ask(t, demo.Tenant, "plan", "ls", "--state", ledger.StateOpen, "-o", "json"))
	if empty.Plans == nil || len(empty.Plans) != 0 {
		t.Errorf("no open plans must be an empty list, not %v", empty.Plans)
	}
	s.ask(t, demo.Tenant, "quarantine", "ls").wants(t, "quarantine ls", cli.ExitGood, "nothing is quarantined")
	status := s.ask(t, demo.Tenant, "status", "-o", "json")
	status.wants(t, "status", cli.ExitGood)
	if v := decoded[view.Status](t, status); v.Held != 0 || v.Ended != 4 || v.Mode != view.ModeHolding {
		t.Errorf("status is %+v", v)
	}
	doctor := s.ask(t, demo.Tenant, "doctor", "-o", "json")
	doctor.wants(t, "doctor", cli.ExitGood)
	for _, f := range decoded[map[string][]doctorcmd.Finding](t, doctor)["checks"] {
		if f.State != "ok" {
			t.Errorf("doctor found %+v", f)
		}
	}
}

func readPlans(t *testing.T, s *served) {
	plan := decoded[view.Plan](t, s.ask(t, demo.Tenant, "plan", "show", "act-one", "-o", "json"))
	if len(plan.Actions) != 5 || plan.State != ledger.StateCompensated {
		t.Errorf("act-one is %+v", plan)
	}
	tree := s.ask(t, demo.Tenant, "plan", "tree", "act-three")
	tree.wants(t, "plan tree", cli.ExitGood)
	if !strings.Contains(tree.stdout, "└─ 4 git.push") ||
		!strings.Contains(tree.stdout, "resolved as accepted by release-manager") {
		t.Errorf("the tree of act-three is\n%s", tree.stdout)
	}
	show := s.ask(t, demo.Tenant, "plan", "show", "act-three").stdout
	for _, a := range decoded[view.Plan](t,
		s.ask(t, demo.Tenant, "plan", "show", "act-three", "-o", "json")).Actions {
		if !strings.Contains(show, a.Registered) || !strings.Contains(show, a.Key) {
			t.Errorf("plan show leaves out the address or key of action %d", a.Number)
		}
	}
	unknown := s.ask(t, demo.Tenant, "plan", "show", "nothing")
	unknown.wants(t, "an unknown plan", cli.ExitFailed, "nothing", "next: sagenbaum plan ls")
	s.ask(t, demo.Tenant, "plan", "show", "a.b").wants(t, "no plan id", cli.ExitFailed, "next: sagenbaum plan ls")
	s.ask(t, "elsewhere", "plan", "ls").wants(t, "an unserved tenant", cli.ExitNoServer, "elsewhere",
		"next: sagenbaum serve")
}

func readLedger(t *testing.T, s *served) {
	lines := strings.Split(strings.TrimSpace(s.ask(t, demo.Tenant, "ledger", "tail", "--since", "1", "-o",
		"json").stdout), "\n")
	kinds := map[string]int{}
	last := uint64(0)
	for _, text := range lines {
		line := decoded[ledgercmd.TailLine](t, result{stdout: text})
		kinds[line.Kind]++
		if line.Sequence < last || line.Address == "" || line.Refused != "" {
			t.Errorf("ledger tail prints %s", text)
		}
		last = line.Sequence
	}
	// 5+4+4+4 actions; act one 4 undos, act two 4, act three 3 after its owner, the sibling 4.
	for kind, want := range map[string]int{"forward_registered": 17, "compensation_registered": 17,
		"compensation_succeeded": 15, "action_quarantined": 1, "resolved": 1} {
		if kinds[kind] != want {
			t.Errorf("%d records %s, want %d", kinds[kind], kind, want)
		}
	}
	people := s.ask(t, demo.Tenant, "ledger", "tail", "--since", "1", "--plan", "sibling")
	people.wants(t, "ledger tail", cli.ExitGood)
	for text := range strings.Lines(people.stdout) {
		if !strings.Contains(text, " sibling ") {
			t.Errorf("--plan sibling prints %s", text)
		}
	}
	s.ask(t, "elsewhere", "ledger", "tail").wants(t, "a tenant without a host", cli.ExitNoServer, "no executor serves")
}

func tryWhatIsTooLate(t *testing.T, s *served) {
	late := s.ask(t, demo.Tenant, "plan", "cancel", "act-one", "--reason", "too late")
	late.wants(t, "cancel of an ended plan", cli.ExitConflict, "next: sagenbaum plan show act-one")
	again := s.ask(t, demo.Tenant, "quarantine", "resolve", "act-three", "4", "--as", "done", "--reason", "again",
		"--evidence", "ticket:1")
	again.wants(t, "resolving twice", cli.ExitConflict, "next: sagenbaum plan tree act-three")
	none := s.ask(t, demo.Tenant, "quarantine", "resolve", "act-three", "9", "--as", "done", "--reason", "x",
		"--evidence", "ticket:1")
	none.wants(t, "an unknown action", cli.ExitFailed, "1, 2, 3, 4")
	s.ask(t, demo.Tenant, "plan", "cancel", "nothing").wants(t, "cancel of an unknown plan", cli.ExitFailed,
		"next: sagenbaum plan ls")
}

// A git that only pretends to remove worktrees must not get past the demo's own
// checks.
func TestTheDemoFailsWhenAnUndoDidNotHappen(t *testing.T) {
	t.Parallel()
	real, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\n[ \"$1 $2\" = \"worktree remove\" ] && exit 0\nexec %q \"$@\"\n", real)
	if err := os.WriteFile(filepath.Join(bin, "git"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	command := sagenbaum(t, "demo")
	command.Env = append(command.Env, "PATH="+bin+":"+os.Getenv("PATH"))
	r := finished(t, command)
	r.wants(t, "demo with a lying git", cli.ExitLook, "checks failed")
	if !strings.Contains(r.stdout, "FAIL repository and remote are byte-identical") ||
		strings.Contains(r.stdout, "all checks hold") {
		t.Errorf("the demo did not notice:\n%s", r.stdout)
	}
	if left, _ := filepath.Glob(filepath.Join(command.Dir, "sagenbaum-demo-*")); len(left) != 0 {
		t.Errorf("the demo left %v behind", left)
	}
}

func TestTheDemoRefusesAFolderThatIsInUse(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "precious"), "x")
	finished(t, sagenbaum(t, "demo", "--dir", dir)).wants(t, "demo in a used folder", cli.ExitUsage, "not empty")
}
