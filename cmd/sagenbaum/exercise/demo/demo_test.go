//go:build exercise

package demo

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/demo"
	ledgercmd "github.com/sagenbaum/sagenbaum/cmd/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

const demoMax = time.Minute

// The demo checks the repositories itself; here it must say so, in time, and
// leave a ledger behind that the rest of the command line explains.
func TestTheDemoHoldsAndItsLedgerCanBeRead(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "demo")
	started := time.Now()
	r := cmdtest.Run(t, "demo", "--dir", dir)
	r.Wants(t, "demo", cli.ExitGood)
	if took := time.Since(started); took > demoMax {
		t.Errorf("the demo took %s, at most %s", took, demoMax)
	}
	for _, want := range []string{"Act one", "Act two", "Act three", "byte-identical", "quarantined",
		"kill -9 of the server", "PROVEN", "the first breaks I2", "all checks hold"} {
		if !strings.Contains(r.Stdout, want) {
			t.Errorf("the demo does not say %q", want)
		}
	}
	if strings.Contains(r.Stdout, "FAIL") || strings.Contains(r.Stdout, "\x1b[") {
		t.Errorf("a failed check, or colours in a pipe:\n%s", r.Stdout)
	}
	s := cmdtest.ServeFor(t, filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--tenant", demo.Tenant)
	t.Run("lists", func(t *testing.T) { readLists(t, s) })
	t.Run("plans", func(t *testing.T) { readPlans(t, s) })
	t.Run("ledger", func(t *testing.T) { readLedger(t, s) })
	t.Run("export", func(t *testing.T) { exportLedger(t, s) })
	t.Run("refusals", func(t *testing.T) { tryWhatIsTooLate(t, s) })
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

func readLists(t *testing.T, s *cmdtest.Served) {
	all := cmdtest.Decoded[api.PlansAnswer](t, s.Ask(t, demo.Tenant, "plan", "ls", "-o", "json"))
	if len(all.Plans) != 4 {
		t.Errorf("plan ls has %d plans, want 4", len(all.Plans))
	}
	one := cmdtest.Decoded[api.PlansAnswer](t,
		s.Ask(t, demo.Tenant, "plan", "ls", "--state", ledger.StateResolved, "-o", "json"))
	if len(one.Plans) != 1 || one.Plans[0].Plan != "act-three" {
		t.Errorf("resolved plans are %+v, want act-three", one.Plans)
	}
	short := s.Ask(t, demo.Tenant, "plan", "ls", "--limit", "3")
	short.Wants(t, "plan ls --limit 3", cli.ExitGood, "there are more: sagenbaum plan ls --after")
	if lines := strings.Count(short.Stdout, "\n"); lines != 4 {
		t.Errorf("plan ls --limit 3 prints %d lines, want a head and 3", lines)
	}
	empty := cmdtest.Decoded[api.PlansAnswer](t,
		s.Ask(t, demo.Tenant, "plan", "ls", "--state", ledger.StateOpen, "-o", "json"))
	if empty.Plans == nil || len(empty.Plans) != 0 {
		t.Errorf("no open plans must be an empty list, not %v", empty.Plans)
	}
	s.Ask(t, demo.Tenant, "quarantine", "ls").Wants(t, "quarantine ls", cli.ExitGood, "nothing is quarantined")
	s.Ask(t, demo.Tenant, "quarantine", "ls", "--after", "zz").Wants(t, "those after one", cli.ExitGood,
		"nothing is listed after zz")
	s.Ask(t, demo.Tenant, "host", "ls", "--filter", "host.mode == 'x'").Wants(t, "those that pass", cli.ExitGood,
		"nothing passes --filter")
	s.Ask(t, demo.Tenant, "serve", "--data", "").Wants(t, "no folder", cli.ExitUsage, "--data names no folder")
	status := s.Ask(t, demo.Tenant, "status", "-o", "json")
	status.Wants(t, "status", cli.ExitGood)
	if v := cmdtest.Decoded[api.Status](t, status); v.Held != 0 || v.Ended != 4 || v.Mode != api.ModeHolding {
		t.Errorf("status is %+v", v)
	}
	doctor := s.Ask(t, demo.Tenant, "doctor", "-o", "json")
	doctor.Wants(t, "doctor", cli.ExitGood)
	for _, f := range doctor.Checks(t) {
		if f.State != "ok" {
			t.Errorf("doctor found %+v", f)
		}
	}
}

func readPlans(t *testing.T, s *cmdtest.Served) {
	plan := cmdtest.Decoded[api.Plan](t, s.Ask(t, demo.Tenant, "plan", "show", "act-one", "-o", "json"))
	if len(plan.Actions) != 5 || plan.State != ledger.StateCompensated {
		t.Errorf("act-one is %+v", plan)
	}
	tree := s.Ask(t, demo.Tenant, "plan", "tree", "act-three")
	tree.Wants(t, "plan tree", cli.ExitGood)
	if !strings.Contains(tree.Stdout, "└─ 4 git.push") ||
		!strings.Contains(tree.Stdout, "resolved as accepted by release-manager") {
		t.Errorf("the tree of act-three is\n%s", tree.Stdout)
	}
	show := s.Ask(t, demo.Tenant, "plan", "show", "act-three").Stdout
	for _, a := range cmdtest.Decoded[api.Plan](t,
		s.Ask(t, demo.Tenant, "plan", "show", "act-three", "-o", "json")).Actions {
		if !strings.Contains(show, a.Registered) || !strings.Contains(show, a.Key) {
			t.Errorf("plan show leaves out the address or key of action %d", a.Number)
		}
	}
	unknown := s.Ask(t, demo.Tenant, "plan", "show", "nothing")
	unknown.Wants(t, "an unknown plan", cli.ExitFailed, "nothing", "next: sagenbaum plan ls")
	s.Ask(t, demo.Tenant, "plan", "show", "a.b").Wants(t, "no plan id", cli.ExitUsage, "next: sagenbaum plan ls")
	s.Ask(t, "elsewhere", "plan", "ls").Wants(t, "an unserved tenant", cli.ExitNoServer, "elsewhere",
		"next: sagenbaum serve")
}

func readLedger(t *testing.T, s *cmdtest.Served) {
	lines := strings.Split(strings.TrimSpace(s.Ask(t, demo.Tenant, "ledger", "tail", "--since", "1", "-o",
		"json").Stdout), "\n")
	kinds := map[string]int{}
	last := uint64(0)
	for _, text := range lines {
		line := cmdtest.Decoded[ledgercmd.TailLine](t, cmdtest.Result{Stdout: text})
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
	people := s.Ask(t, demo.Tenant, "ledger", "tail", "--since", "1", "--plan", "sibling")
	people.Wants(t, "ledger tail", cli.ExitGood)
	for text := range strings.Lines(people.Stdout) {
		if !strings.Contains(text, " sibling ") {
			t.Errorf("--plan sibling prints %s", text)
		}
	}
	s.Ask(t, "elsewhere", "ledger", "tail").Wants(t, "a tenant without a host", cli.ExitNoServer, "no executor serves")
}

func tryWhatIsTooLate(t *testing.T, s *cmdtest.Served) {
	late := s.Ask(t, demo.Tenant, "plan", "cancel", "act-one", "--reason", "too late")
	late.Wants(t, "cancel of an ended plan", cli.ExitConflict, "next: sagenbaum plan show act-one")
	again := s.Ask(t, demo.Tenant, "quarantine", "resolve", "act-three", "4", "--as", "done", "--reason", "again",
		"--evidence", "ticket:1")
	again.Wants(t, "resolving twice", cli.ExitConflict, "next: sagenbaum plan tree act-three")
	none := s.Ask(t, demo.Tenant, "quarantine", "resolve", "act-three", "9", "--as", "done", "--reason", "x",
		"--evidence", "ticket:1")
	none.Wants(t, "an unknown action", cli.ExitFailed, "1, 2, 3, 4")
	s.Ask(t, demo.Tenant, "plan", "cancel", "nothing").Wants(t, "cancel of an unknown plan", cli.ExitFailed,
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
	command := cmdtest.Sagenbaum(t, "demo")
	command.Env = append(command.Env, "PATH="+bin+":"+os.Getenv("PATH"))
	r := cmdtest.Finished(t, command)
	r.Wants(t, "demo with a lying git", cli.ExitLook, "checks failed")
	if !strings.Contains(r.Stdout, "FAIL repository and remote are byte-identical") ||
		strings.Contains(r.Stdout, "all checks hold") {
		t.Errorf("the demo did not notice:\n%s", r.Stdout)
	}
	if left, _ := filepath.Glob(filepath.Join(command.Dir, "sagenbaum-demo-*")); len(left) != 0 {
		t.Errorf("the demo left %v behind", left)
	}
}

func TestTheDemoRefusesAFolderThatIsInUse(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "precious"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmdtest.Run(t, "demo", "--dir", dir).Wants(t, "demo in a used folder", cli.ExitUsage, "not empty")
}
