package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/demo"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/plan"
)

const quarantinedID = "stop-1" // the undo of its action 1 stops

// quarantinedBesideNumbers is a server with a plan whose actions have ids that are numbers of others.
func quarantinedBesideNumbers(t *testing.T) *cmdtest.Served {
	t.Helper()
	s, conn, _, agent := withRaising(t)
	p, err := agent.Begin(t.Context(), coordinator.PlanSpec{ID: quarantinedID, Owner: "operator1"})
	if err != nil {
		t.Fatal(err)
	}
	for n, action := range []string{"3", "pay", "1"} {
		if err := p.Report(t.Context(), coordinator.Action{ID: action, Capability: demo.Contracts()[n].Capability},
			coordinator.Outcome{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Fail(t.Context(), "enough"); err != nil {
		t.Fatal(err)
	}
	c := &cli.Client{Conn: conn, Tenant: demo.Tenant, Server: s.URL, Timeout: testenv.Patience}
	if _, err := plan.AwaitEnd(t.Context(), c, quarantinedID, 0, testenv.Patience); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestAnIDThatIsTheNumberOfAnotherActionMeansNeither, whatever the command: an answer would be about an
// action that is not the one meant. The lists show both names.
func TestAnIDThatIsTheNumberOfAnotherActionMeansNeither(t *testing.T) {
	t.Parallel()
	s, id := quarantinedBesideNumbers(t), quarantinedID
	why := []string{"--reason", "seen", "--actor", "operator1"}
	before := s.Ask(t, demo.Tenant, "plan", "show", id).Stdout
	for _, command := range [][]string{
		{"quarantine", "show", id, "1"}, {"quarantine", "show", id, "3"},
		append([]string{"quarantine", "resolve", id, "1", "--as", "done", "--evidence", "ticket:1"}, why...),
		append([]string{"quarantine", "skip", id, "3"}, why...),
		append([]string{"quarantine", "retry", id, "3"}, why...),
		append([]string{"plan", "report", id, "1", "--present"}, why...),
		append([]string{"plan", "unwind", id, "--action", "1"}, why...),
		{"plan", "preview", id, "--action", "1"}, {"plan", "why", id, "1"}, {"undo", "show", id, "1"},
		{"undo", "ls", "--plan", id, "--action", "1"}, {"trigger", "explain", id, "--action", "1"},
		{"lease", "show", id, "deadline", "--action", "1"}, {"review", "show", id, "1"},
		{"review", "allow", id, "1", "--by", "boss"}, {"review", "block", id, "3", "--by", "boss", "--reason", "no"},
	} {
		s.Ask(t, demo.Tenant, command...).Wants(t, strings.Join(command, " "), cli.ExitFailed,
			"is the id of an action, and the number of action")
	}
	if after := s.Ask(t, demo.Tenant, "plan", "show", id).Stdout; after != before {
		t.Errorf("the plan was\n%s\nand is\n%s", before, after)
	}
	if !strings.Contains(before, "3 (1) ") || !strings.Contains(before, "2 (pay) ") {
		t.Errorf("the ids are not shown:\n%s", before)
	}
	ls := s.Ask(t, demo.Tenant, "quarantine", "ls")
	if !strings.Contains(ls.Stdout, "3 (1) ") || !strings.Contains(ls.Stderr, "quarantine show stop-1 id:1") {
		t.Errorf("%s%s", ls.Stdout, ls.Stderr)
	}
	for _, name := range []string{"id:1", "number:3"} {
		shown := s.Ask(t, demo.Tenant, "quarantine", "show", id, name)
		shown.Wants(t, name, cli.ExitLook)
		if !strings.Contains(shown.Stdout, "stop-1 3 (1) ") || !strings.Contains(shown.Stdout, "resolve stop-1 id:1 ") {
			t.Errorf("%s: %s", name, shown.Stdout)
		}
	}
	s.Ask(t, demo.Tenant, "quarantine", "show", id, "pay").Wants(t, "pay", cli.ExitGood)
	s.Ask(t, demo.Tenant, "quarantine", "show", id, "2").Wants(t, "2", cli.ExitGood)
	s.Ask(t, demo.Tenant, slices.Concat([]string{"quarantine", "skip", id, "id:1"}, why)...).Wants(t, "skip", cli.ExitGood)
	if now := s.Ask(t, demo.Tenant, "quarantine", "ls"); strings.Contains(now.Stdout, id) {
		t.Errorf("%s", now.Stdout)
	}
}
