package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	undocmd "github.com/sagenbaum/sagenbaum/cmd/sagenbaum/undo"
)

// TestUndoTakesPlansByWhatTheyAre: the one that was opened last is undone first, also a committed
// one; what is undone already, or did nothing, does not count.
func TestUndoTakesPlansByWhatTheyAre(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	for _, id := range []string{"p1", "p2", "p3", "p4", "p5"} {
		s.trip(t, coordinator.PlanSpec{ID: id}, "room.book")
	}
	s.trip(t, coordinator.PlanSpec{ID: "p6"}) // has done nothing
	s.run(t, cli.ExitGood, "plan unwind p5 --reason first --wait")
	ask := func(code int, line string) undocmd.Answer {
		t.Helper()
		return cmdtest.Decoded[undocmd.Answer](t, s.run(t, code, "undo "+line+" -o json"))
	}
	chosen := func(a undocmd.Answer) (ids []string) {
		for _, p := range a.Plans {
			ids = append(ids, p.Plan)
		}
		return ids
	}
	for line, want := range map[string][]string{
		"--last 2":                          {"p4", "p3"},
		"--last 99":                         {"p4", "p3", "p2", "p1"},
		"--since 1h":                        {"p4", "p3", "p2", "p1"},
		"--since 2020-01-01 --last 1":       {"p4"},
		"--agent traveller --last 1":        {"p4"},
		"--agent another":                   nil,
		"--plan p2":                         {"p2"},
		"--plan p5":                         nil,
		"--since 2020-01-01T00:00:00+02:00": {"p4", "p3", "p2", "p1"},
	} {
		a := ask(cli.ExitGood, line+" --dry-run")
		if got := chosen(a); !slices.Equal(got, want) {
			t.Errorf("undo %s takes %v, want %v", line, got, want)
		}
	}
	if a := ask(cli.ExitGood, "--plan p5 --dry-run"); len(a.Past) != 1 || a.Past[0].Why != "it is compensated" {
		t.Errorf("of p5: %+v", a.Past)
	}
	if state := s.plan(t, "p4").State; state != ledger.StateOpen {
		t.Fatalf("after --dry-run p4 is %s", state)
	}
	a := ask(cli.ExitGood, "--last 2 --reason 'wrong town' --actor operator1 --yes")
	if got := chosen(a); !slices.Equal(got, []string{"p4", "p3"}) || a.Plans[0].Unwound == nil ||
		a.Plans[0].Unwound.State != ledger.StateCompensated ||
		a.Plans[0].Unwound.Record >= a.Plans[1].Unwound.Record {
		t.Errorf("undone: %+v", a)
	}
	if r := s.run(t, cli.ExitGood, "undo --last 9 --dry-run"); strings.Contains(r.Stdout, "no worker") {
		t.Errorf("these are served: %s", r.Stdout)
	}
	says(t, s.run(t, cli.ExitGood, "undo --last 9 --reason 'wrong town' --yes"),
		"p2  open, of agent traveller, opened ", "1  room.book  ", "would: ", "p2 compensated · record", "p1 compensated",
		"not p4: it is compensated")
	says(t, s.run(t, cli.ExitGood, "undo --last 1 --reason again --yes"), "nothing is to be undone")
}

// TestUndoStopsAtAPlanThatIsNotUndone: what came before it may be what it was built on.
func TestUndoStopsAtAPlanThatIsNotUndone(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	s.now(func() {
		s.refund = func(context.Context, api.Command) (worker.Result, error) {
			return worker.Result{}, worker.Stop(errors.New("the bank is closed"))
		}
	})
	s.trip(t, coordinator.PlanSpec{ID: "p1"}, "room.book")
	s.trip(t, coordinator.PlanSpec{ID: "p2"}, "card.charge")
	r := s.run(t, cli.ExitLook, "undo --last 2 --reason no --yes", "next: sagenbaum doctor --plan p2",
		"stopped here: 1 not begun")
	says(t, r, "p2 quarantined")
	if state := s.plan(t, "p1").State; state != ledger.StateOpen {
		t.Errorf("p1 is %s", state)
	}
	s.trip(t, coordinator.PlanSpec{ID: "p3"}, "card.charge")
	r = s.run(t, cli.ExitLook, "undo --last 2 --reason no --yes --keep-going", "next: sagenbaum doctor --plan p3")
	says(t, r, "p3 quarantined", "p1 compensated")
}

// TestUndoRefusesWhatIsNotClear: nothing is undone, and the text says what would be right.
func TestUndoRefusesWhatIsNotClear(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	s.trip(t, coordinator.PlanSpec{ID: "p1"}, "room.book")
	for line, want := range map[string]string{
		"--last 1":                                    "needs a reason",
		"--last 1 --reason no":                        "there is no one to ask here",
		"--last 1 --reason no -o json":                "--yes to undo it",
		"--last 0 --reason no --yes":                  "--last N of 1 to 1000",
		"--last -1 --reason no --yes":                 "--last N of 1 to 1000",
		"--since yesterday --reason no --yes":         `--since "yesterday" is no time`,
		"--since 2999-01-01 --reason no --yes":        "is later than now",
		"--plan p1 --last 1 --reason no --yes":        "--plan names one plan, and others as well",
		"--agent 'a b' --reason no --yes":             "is no agent",
		"--agent '' --reason no --yes":                "is no agent",
		"--plan '' --reason no --yes":                 "an empty flag chooses no plan",
		"--plan p1 --reason no --yes --actor 'a.b'":   "cannot act",
		"--last 1 --reason no --yes --wait-timeout 0": "a wait of 0s is none",
	} {
		s.run(t, cli.ExitUsage, "undo "+line, want)
	}
	s.run(t, cli.ExitFailed, "undo --plan nowhere --reason no --yes", "there is no plan nowhere")
	s.run(t, cli.ExitUsage, "undo lss", "sagenbaum undo ls")
	if state := s.plan(t, "p1").State; state != ledger.StateOpen {
		t.Errorf("p1 is %s", state)
	}
	if help := s.run(t, cli.ExitGood, "undo"); !strings.Contains(help.Stdout, "--dry-run") {
		t.Error("undo alone shows no help")
	}
}

// TestAnUndoThatCannotBeFails: what is quarantined, has closed windows, or was undone in part, ends
// the command as it ends plan unwind; what is undone already is no failure.
func TestAnUndoThatCannotBeFails(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	const why = " --reason x --yes"
	whole := s.trip(t, coordinator.PlanSpec{ID: "whole"}, "card.charge", "room.book")
	must(t, whole.Commit(t.Context()))
	s.run(t, cli.ExitGood, "plan unwind whole --reason x --wait")
	says(t, s.run(t, cli.ExitGood, "undo --plan whole"+why), "not whole: it is undone as whole~1\n")
	s.run(t, cli.ExitGood, "undo --last 5"+why)

	part := s.trip(t, coordinator.PlanSpec{ID: "part"}, "card.charge", "room.book")
	must(t, part.Commit(t.Context()))
	says(t, s.run(t, cli.ExitGood, "plan preview part --action 2"),
		"what this leaves cannot be undone afterwards")
	s.run(t, cli.ExitGood, "plan unwind part --action 2 --reason x --wait")
	r := s.run(t, cli.ExitConflict, "undo --plan part"+why, "nothing of part is undone now",
		"next: sagenbaum plan tree part~1")
	says(t, r, "not part: a part of it is undone as part~1, the rest is not and cannot be any more")
	s.run(t, cli.ExitLook, "undo --last 5"+why)
	s.run(t, cli.ExitLook, "undo --agent traveller --dry-run")
	s.run(t, cli.ExitGood, "undo --agent another --dry-run")

	s.trip(t, coordinator.PlanSpec{ID: "stuck"}, "mail.send")
	s.run(t, cli.ExitLook, "plan unwind stuck --reason x --wait")
	says(t, s.run(t, cli.ExitConflict, "undo --plan stuck"+why, "next: sagenbaum doctor --plan stuck"),
		"not stuck: it is quarantined")
	mailed := s.trip(t, coordinator.PlanSpec{ID: "mailed"}, "mail.send")
	must(t, mailed.Commit(t.Context()))
	s.run(t, cli.ExitLook, "plan unwind mailed --reason x --wait")
	r = s.run(t, cli.ExitConflict, "undo --plan mailed"+why, "next: sagenbaum doctor --plan mailed~1")
	says(t, r, "not mailed: it is undone as mailed~1; mailed~1 is quarantined")
	a := cmdtest.Decoded[undocmd.Answer](t, s.run(t, cli.ExitConflict, "undo --plan mailed -o json"+why))
	if len(a.Past) != 1 || a.Past[0].Undone || a.Past[0].Next == "" {
		t.Errorf("in JSON it is %+v", a.Past)
	}

	s.trip(t, coordinator.PlanSpec{ID: "last"}, "room.book")
	s.run(t, cli.ExitGood, "undo --last 5"+why) // one is undone, and ends compensated
}
