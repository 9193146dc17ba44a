package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// instants are what a page cannot have as it was printed.
var instants = regexp.MustCompile(`20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z(, in [0-9dhms.]+)?`)

// The page shows what explain prints of a plan like that, but for the instants.
func TestThePageShowsWhatExplainPrints(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	open := s.begin(t, coordinator.PlanSpec{ID: "trip", Deadline: 72 * time.Hour, Triggers: map[string]string{
		"approved": `"approval/a1" in facts && facts["limit/eu"] < 100`,
		"team":     `plan.labels.team == "x" && facts["limit/eu"] < 100`,
	}})
	report(t, open, "card.charge")
	s.run(t, cli.ExitGood, "fact put approval/a1 true")
	got := s.run(t, cli.ExitGood, "trigger explain trip").Stdout
	page, err := os.ReadFile("../../docs/triggers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "    $ sagenbaum trigger explain trip\n")
	var want strings.Builder
	for line := range strings.Lines(block) {
		text, indented := strings.CutPrefix(line, "    ")
		if !indented && line != "\n" {
			break
		}
		want.WriteString(text)
	}
	plain := func(text string) string {
		return regexp.MustCompile(`record \d+`).ReplaceAllString(instants.ReplaceAllString(strings.TrimSpace(text),
			"INSTANT"), "record N")
	}
	if plain(got) != plain(want.String()) {
		t.Errorf("explain prints\n%s\nand the page shows\n%s", got, want.String())
	}
	asked := cmdtest.Decoded[api.Explain](t, s.run(t, cli.ExitGood, "trigger explain trip -o json")).TimeNs
	if status := cmdtest.Decoded[api.Status](t, s.run(t, cli.ExitGood, "status -o json")); asked <= status.TimeNs {
		t.Errorf("asked as of %d, and the last record is of %d", asked, status.TimeNs)
	}
	if one := s.run(t, cli.ExitGood, "trigger explain trip --action 1").Stdout; !strings.HasPrefix(one,
		"plan trip is open; answers as of ") {
		t.Error(one)
	}
	s.run(t, cli.ExitFailed, "trigger explain nope", "sagenbaum: there is no plan nope\n", "next: sagenbaum plan ls")
	s.run(t, cli.ExitFailed, "trigger explain trip --action 9", "plan trip has no action 9")
}

// After its plan is undone or committed no lease fires, as with the executor.
func TestATimelineRetiresItsLeaseWithThePlan(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"condition: after(plan.deadline)\nplan: {deadline: 1h}\nsteps: [{at: 8s, plan: cancelled}]\nexpect: {fires: " +
			"never}\n": "ok never fires, retired at 8s\n",
		"condition: after(plan.deadline)\nplan: {deadline: 1h}\nsteps: [{at: 8s, plan: committed}]\nexpect: {fires: " +
			"1h}\n": "FAIL never fires, retired at 8s; expected to fire at 1h\n",
		"condition: plan.status == 'failed'\nsteps: [{at: 8s, plan: failed}, {at: 9s, plan: compensated}]\nexpect: " +
			"{fires: 8s}\n": "ok fires at 8s\n",
		"condition: facts['k'] == 1\nsteps: [{at: 8s, plan: cancelled}, {at: 9s, fact: k, value: 1}, {at: 20s, plan: " +
			"open}]\nexpect: {fires: 20s}\n": "ok fires at 20s\n",
	} {
		code := cli.ExitGood
		if strings.HasPrefix(want, "FAIL") {
			code = cli.ExitLook
		}
		svg := filepath.Join(t.TempDir(), "strip.svg")
		r := cmdtest.Run(t, "trigger", "test", timelineFile(t, text), "--svg", svg)
		if r.Wants(t, text, code); !strings.Contains(r.Stdout, want) || strings.Contains(want, "retired") &&
			(!strings.Contains(r.Stdout, "retired with the plan") || !strings.Contains(r.Stdout, "R")) {
			t.Errorf("%s prints\n%s", text, r.Stdout)
		}
		if drawn, err := os.ReadFile(svg); err != nil ||
			strings.Contains(want, "retired") != strings.Contains(string(drawn), "retired at 8s") {
			t.Errorf("%s draws %s (%v)", text, drawn, err)
		}
	}
}

// Steps that no ledger has are refused, as is a condition over an action without one.
func TestATimelineHasOnlyWhatCanHappen(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"action: {}\nsteps: [{at: 1s, outcome: completed}, {at: 2s, outcome: failed}]": "steps[1].outcome: the " +
			"forward is completed already; one outcome",
		"action: {}\nsteps: [{at: 2s, outcome: failed}, {at: 1s, outcome: completed}]": "steps[0].outcome: the " +
			"forward is completed already",
		"action: {}\nsteps: [{at: 1s, outcome: in_doubt}, {at: 2s, outcome: in_doubt}]": "steps[1].outcome: the " +
			"forward is in_doubt already",
		"steps: [{at: 1s, actions: 3}, {at: 2s, actions: 2}]": "steps[1].actions: 2, " +
			"after 3; a number that never goes down",
		"plan: {actions: 3}\nsteps: [{at: 2s, actions: 2}]":                              "steps[0].actions: 2, after 3",
		"action: {}\nsteps: [{at: 1s, outcome: in_doubt}, {at: 2s, outcome: completed}]": "",
		"action: {}\nsteps: [{at: 1s, outcome: failed}, {at: 2s, outcome: completed}]":   "",
	} {
		r := cmdtest.Run(t, "trigger", "test", timelineFile(t, "condition: 'true'\n"+text+"\n"))
		if want == "" {
			r.Wants(t, text, cli.ExitGood)
		} else {
			r.Wants(t, text, cli.ExitFailed, want)
		}
	}
	for text, want := range map[string]string{
		"condition: action.order == 'o7'\n": ":1:12: error: condition: the condition " +
			"reads action, and there is none; add action: {}",
		"condition: action.order == 'o7'\ncases: [{}, {action: {}}]\n": "cases[0].action: the condition reads " +
			"action, and there is none; add action: {}",
	} {
		cmdtest.Run(t, "trigger", "test", timelineFile(t, text)).Wants(t, text, cli.ExitFailed, want,
			"1 error")
	}
}

func TestTriggerLintReadsFilesAsEditorsWriteThem(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "condition.cel")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("\ufeffafter(plan.deadline)\r\n")
	r := cmdtest.Run(t, "trigger", "lint", "--file", file)
	if r.Wants(t, "a byte order mark", cli.ExitGood); !strings.Contains(r.Stdout, "after(plan.deadline)") {
		t.Error(r.Stdout)
	}
	write(strings.Repeat("a", 200_000))
	cmdtest.Run(t, "trigger", "lint", "--file", file).Wants(t, "a large file", cli.ExitFailed,
		"200000 bytes", "at most 4096")
	for expression, want := range map[string]string{
		`plan.status = "failed"`:             "refused 1:13: a single =; use ==",
		`elapsed(action.at, duration("1d"))`: `invalid duration argument; the largest unit is the hour, as in duration("24h")`,
	} {
		r := cmdtest.Run(t, "trigger", "lint", expression)
		if r.Wants(t, expression, cli.ExitLook); !strings.Contains(r.Stdout, want) {
			t.Errorf("lint %s prints\n%s", expression, r.Stdout)
		}
	}
}
