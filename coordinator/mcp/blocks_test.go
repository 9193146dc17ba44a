package mcp_test

import (
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// blocks has a supervisor block an action that has happened, and waits until it is undone.
func (w *world) blocks(plan, action, file string, left ...string) {
	w.t.Helper()
	w.appends(ledger.Source{Tenant: "default", Class: ledger.ClassVerdict, Name: "compliance"},
		&pb.Record{Plan: plan, Action: action, Kind: &pb.Record_VerdictGiven{VerdictGiven: &pb.VerdictGiven{
			Outcome: pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK, Reason: "policy 7"}}})
	w.until("the call is undone", func() bool { return slices.Equal(lines(file), left) })
	if state := w.state(plan, ledger.StateOpen); state != ledger.StateOpen {
		w.t.Fatal(state)
	}
}

// secondBlocked makes two calls in a plan, and has the second one blocked.
func (w *world) secondBlocked(c *client, file string) (plan string) {
	w.t.Helper()
	plan = planOf(c.call("add", map[string]any{"text": "one"}))
	c.does("add", map[string]any{"text": "two"})
	w.blocks(plan, "2", file, "one")
	return plan
}

// tellsOf wants a call to have said that the second action was undone, and to have done nothing.
func tellsOf(t *testing.T, r *sdk.CallToolResult, ends string) {
	t.Helper()
	if !r.IsError || !strings.Contains(said(r), "a part of the plan was undone: action 2 and what came after it") ||
		!strings.HasSuffix(said(r), ends) {
		t.Errorf("%s", said(r))
	}
}

// A client hears of a block before it goes on or commits, also where a savepoint of the gateway has
// heard it first. The next call can be undone alone.
func TestAClientHearsOfABlockBeforeItGoesOn(t *testing.T) {
	t.Parallel()
	for name, looks := range map[string]bool{"after a look": true, "without one": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, file, c := session(t)
			w.secondBlocked(c, file)
			if looks {
				c.reports("what_can_be_undone", nil).wants(t, "answered", "open: undone [2], stands [], can [1]")
			}
			tellsOf(t, c.call("add", map[string]any{"text": "three"}), "Nothing was done.")
			c.does("add", map[string]any{"text": "three"})
			c.reports("undo_last", nil).wants(t, "undo_last", "open: undone [3], stands [], can []")
			if got := lines(file); !slices.Equal(got, []string{"one"}) {
				t.Errorf("there is %v", got)
			}
		})
	}
}

// What only the savepoint after a call has heard keeps a client from committing until it knows.
func TestAClientHearsOfABlockBeforeItCommits(t *testing.T) {
	t.Parallel()
	w, file, c := session(t)
	plan := w.secondBlocked(c, file)
	w.until("a savepoint has heard it", func() bool { return c.gateway.MarksLater(plan) })
	tellsOf(t, c.call("plan_commit", nil), "Nothing was committed")
	if r := c.call("plan_commit", nil); r.IsError {
		t.Error(said(r))
	}
	if got := w.state(plan, ledger.StateCommitted); got != ledger.StateCommitted {
		t.Error(got)
	}
}

// A gateway that goes on with a plan does not know whether its client has heard of a block.
func TestAClientOfAnotherGatewayHearsOfABlock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
	plan := w.secondBlocked(c, file)
	c.leave()
	if err := c.gateway.Close(); err != nil {
		t.Log(err)
	}
	c = w.gateway(mcp.Config{ServeUndos: true}, nil, config)
	tellsOf(t, c.call("plan_commit", with(plan)), "Nothing was committed")
	if r := c.call("plan_commit", with(plan)); r.IsError {
		t.Error(said(r))
	}
}

// Of two sessions with one plan, each hears of a block, and each once.
func TestEachSessionHearsOfABlock(t *testing.T) {
	t.Parallel()
	for _, stored := range []bool{false, true} { // by the savepoint after a call
		w, file, a, b := sessions(t)
		plan := w.secondBlocked(a, file)
		if stored {
			w.until("a savepoint has heard it", func() bool { return a.gateway.MarksLater(plan) })
		}
		tellsOf(t, b.call("add", map[string]any{"text": "three"}, "sagenbaum/plan", plan), "Nothing was done.")
		tellsOf(t, a.call("plan_commit", nil), "Nothing was committed")
		if r := b.call("add", map[string]any{"text": "three"}, "sagenbaum/plan", plan); r.IsError {
			t.Error(said(r))
		}
		if r := a.call("plan_commit", nil); r.IsError {
			t.Error(said(r))
		}
	}
}

// A client that has gone, and has not heard of a block, commits nothing.
func TestAClientThatGoesCommitsNothingThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for _, stored := range []bool{false, true} {
		w := newWorld(t)
		config, file := w.notes(t)
		c := w.gateway(mcp.Config{ServeUndos: true, OnDisconnect: mcp.CommitPlan}, nil, config)
		plan := w.secondBlocked(c, file)
		if stored {
			w.until("a savepoint has heard it", func() bool { return c.gateway.MarksLater(plan) })
		}
		if c.leave(); c.end == nil || !strings.Contains(c.end.Error(), "a part of the plan was undone") {
			t.Errorf("it has ended with %v", c.end)
		}
		if got := w.state(plan, ledger.StateOpen); got != ledger.StateOpen {
			t.Error(got)
		}
	}
}

// One whose holder has not heard what another session has, either.
func TestAHolderThatGoesCommitsNothingThatAnotherHasHeard(t *testing.T) {
	t.Parallel()
	w, file, a, b := sessionsOf(t, mcp.Config{ServeUndos: true, OnDisconnect: mcp.CommitPlan})
	plan := w.secondBlocked(a, file)
	tellsOf(t, b.call("add", map[string]any{"text": "three"}, "sagenbaum/plan", plan), "Nothing was done.")
	if err := a.session.Close(); err != nil {
		t.Fatal(err)
	}
	w.until("its plan is left as it is", func() bool { return a.gateway.Stood(plan) })
	if got := w.state(plan, ledger.StateOpen); got != ledger.StateOpen {
		t.Error(got)
	}
}

// plan_begin says it, too: its client would not hear of the plan before again.
func TestABeginOfAnotherPlanTellsOfABlock(t *testing.T) {
	t.Parallel()
	w, file, c := session(t)
	plan := planOf(c.call("add", map[string]any{"text": "one"}))
	w.blocks(plan, "1", file)
	if r := c.call("plan_begin", nil); !r.IsError || !strings.Contains(said(r), "undone: action 1 and what") ||
		!strings.HasSuffix(said(r), "No other plan was begun") {
		t.Error(said(r))
	}
	if r := c.reports("plan_begin", nil); r.Plan == plan || w.state(plan, ledger.StateCommitted) != ledger.StateCommitted {
		t.Errorf("%+v", r)
	}
}

// An undo after a block tells of it first, also where nothing is left to undo, and does not count as
// one of those that a client may make.
func TestAnUndoAfterABlockTellsOfItFirst(t *testing.T) {
	t.Parallel()
	w, file, c := session(t)
	plan := w.secondBlocked(c, file)
	tellsOf(t, c.call("undo_last", nil), "Nothing was undone now")
	if got := lines(file); !slices.Equal(got, []string{"one"}) {
		t.Errorf("there is %v", got)
	}
	if spent := c.gateway.Spent(); spent != 0 {
		t.Errorf("%d undos count", spent)
	}
	w.blocks(plan, "1", file)
	r := c.call("undo_last", nil)
	if !r.IsError || !strings.Contains(said(r), "a part of the plan was undone: action 1 and what came after it") {
		t.Errorf("with nothing left: %s", said(r))
	}
	if r := c.reports("undo_last", nil); r.Message != "there is nothing to undo" {
		t.Errorf("it is told twice: %+v", r)
	}
}
