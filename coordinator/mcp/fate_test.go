package mcp_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// brief is a report in one line: the actions that are undone, that stand and that can be undone.
func (r report) brief() string {
	list := func(actions []struct{ Action, Tool, How string }) (names []string) {
		for _, a := range actions {
			names = append(names, a.Action)
		}
		return names
	}
	undone := []string{}
	for _, a := range r.Undone {
		undone = append(undone, a.Action)
	}
	return fmt.Sprintf("%s: undone %v, stands %v, can %v", r.State, undone, list(r.Stands), list(r.Can))
}

func (r report) wants(t *testing.T, what, want string, says ...string) {
	t.Helper()
	if got := r.brief(); got != want {
		t.Errorf("%s: %s, want %s", what, got, want)
	}
	for _, text := range says {
		if !strings.Contains(fmt.Sprintf("%+v", r), text) {
			t.Errorf("%s does not say %q: %+v", what, text, r)
		}
	}
}

// What an undo could not undo is named with the reason, and so is what it did not get to. After the
// owner's answer the plan goes on, and what stands by that answer is not said to be undone.
func TestAnUndoThatStopsHalfWayNamesEachCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
	plan := planOf(c.call("add", map[string]any{"text": "one"}))
	for _, text := range []string{"two", "locked", "four"} {
		c.does("add", map[string]any{"text": text})
	}
	here := map[string]any{"plan": plan}
	c.reports("undo_last", map[string]any{"count": 3}).wants(t, "undo_last",
		"quarantined: undone [4], stands [3 2 1], can []", "it is locked", "quarantine show "+plan+" 3",
		"held until the plan's owner", "it was not to be undone")
	if r := c.call("undo_last", nil); !r.IsError || !strings.Contains(said(r), plan) {
		t.Errorf("undo_last of no plan: %s", said(r))
	}
	other := w.gateway(mcp.Config{}, nil, config)
	for _, c := range []*client{c, other} {
		if r := c.call("undo_last", here); !r.IsError || !strings.Contains(said(r), "nothing was undone now") {
			t.Errorf("undo_last of a plan that waits: %s", said(r))
		}
		c.reports("what_can_be_undone", here).wants(t, "what_can_be_undone",
			"quarantined: undone [4], stands [3 2 1], can []", "it is locked")
	}
	w.operates(&pb.Record{Plan: plan, Action: "3", Kind: &pb.Record_Resolved{Resolved: &pb.Resolved{
		Outcome: pb.Resolution_RESOLUTION_ACCEPTED, Reason: "let it be", Evidence: "seen", Actor: "ann"}}})
	if state := w.state(plan, ledger.StateOpen); state != ledger.StateOpen {
		t.Fatalf("the plan is %s", state)
	}
	const open = "open: undone [4 2], stands [3], can [1]"
	before := other.reports("what_can_be_undone", here)
	before.wants(t, "what_can_be_undone from elsewhere", open, "accepted by ann, let it be")
	if r := c.reports("what_can_be_undone", here); !reflect.DeepEqual(r, before) {
		t.Errorf("%+v, from elsewhere %+v", r, before)
	}
	if r := c.call("add", map[string]any{"text": "five"}, "sagenbaum/plan", plan); r.IsError {
		t.Error(said(r))
	}
	c.reports("undo_last", map[string]any{"plan": plan, "count": 2}).wants(t, "undo_last",
		"open: undone [5 1], stands [], can []")
	if got := lines(file); !slices.Equal(got, []string{"locked"}) {
		t.Errorf("there is %v", got)
	}
}

// TestACallThatCannotBeUndoneStopsAnUndo, also as the last one, unless its plan was begun otherwise:
// a later call may stand on what a tool without a contract did.
func TestACallThatCannotBeUndoneStopsAnUndo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, _ := w.notes(t)
	c := w.gateway(mcp.Config{ServeUndos: true, Unknown: mcp.RecordUnknown}, nil, config)
	for said, want := range map[string]string{
		"": "undone [], stands [2 1]", "halt": "undone [], stands [2 1]",
		"halt_unless_last": "undone [1], stands [2]", "continue": "undone [1], stands [2]",
	} {
		if said != "" {
			c.reports("plan_begin", map[string]any{"on_undo_failure": said})
		}
		c.does("add", map[string]any{"text": "one"})
		c.does("send", map[string]any{"text": "letter"})
		c.reports("plan_fail", nil).wants(t, "on_undo_failure "+said, "quarantined: "+want+", can []")
	}
	if r := c.call("plan_begin", map[string]any{"on_undo_failure": "stop"}); !r.IsError ||
		!strings.Contains(said(r), "on_undo_failure") {
		t.Errorf("plan_begin with a word that there is not: %s", said(r))
	}
}

// Whoever has ended a plan, its tools say so, at every gateway, and the next call begins another.
func TestAPlanThatHasEndedStaysReadable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	c := w.gateway(mcp.Config{ServeUndos: true, Unknown: mcp.RecordUnknown}, nil, config)
	other := w.gateway(mcp.Config{Unknown: mcp.RecordUnknown}, nil, config)
	adds := func() (plan string) {
		plan = planOf(c.call("add", map[string]any{"text": "one"}))
		return plan
	}
	read := func(what, plan, want string, says ...string) {
		t.Helper()
		here := map[string]any{"plan": plan}
		c.reports("what_can_be_undone", here).wants(t, what, want, says...)
		other.reports("plan_status", here).wants(t, what+" from elsewhere", want, says...)
	}
	plan := adds()
	w.undoes(plan, "")
	c.reports("what_can_be_undone", nil).wants(t, "undone by a person",
		"compensated: undone [1], stands [], can []", "wrong")
	read("undone by a person", plan, "compensated: undone [1], stands [], can []")

	c.reports("plan_begin", map[string]any{"on_undo_failure": "halt_unless_last"})
	failed := adds()
	if failed == plan {
		t.Error("a call has joined a plan that has ended")
	}
	w.until("the executor tells of the call", func() bool {
		return len(other.reports("what_can_be_undone", map[string]any{"plan": failed}).Can) == 1
	})
	other.reports("what_can_be_undone", map[string]any{"plan": failed}).wants(t, "looked at",
		"open: undone [], stands [], can [1]")
	c.does("send", map[string]any{"text": "letter"}) // a look from elsewhere does not take it over
	other.reports("plan_fail", map[string]any{"plan": failed}).wants(t, "plan_fail from elsewhere",
		"quarantined: undone [1], stands [2], can []")
	read("failed from elsewhere", failed, "quarantined: undone [1], stands [2], can []", "has no inverse")

	kept := adds()
	c.does("plan_commit", nil)
	read("committed", kept, "committed: undone [], stands [1], can []", "its plan is committed")
	if r := c.call("undo_last", map[string]any{"plan": kept}); !r.IsError ||
		!strings.Contains(said(r), "nothing was undone now: it is committed") {
		t.Errorf("undo_last of a committed plan: %s", said(r))
	}
	if r := c.call("plan_status", map[string]any{"plan": "none"}); !r.IsError ||
		!strings.Contains(said(r), "no such plan") {
		t.Errorf("a plan that is not there: %s", said(r))
	}
	if got := lines(file); !slices.Equal(got, []string{"letter", "one"}) {
		t.Errorf("there is %v", got)
	}
}

// The tools of a gateway count what the ledger has: calls of another gateway under the same plan,
// and what a person has undone.
func TestPlansAreCountedByTheLedger(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
	other := w.gateway(mcp.Config{}, nil, config)
	plan := c.reports("plan_begin", nil).Plan
	here := map[string]any{"plan": plan}
	if r := other.call("add", map[string]any{"text": "one"}, "sagenbaum/plan", plan); r.IsError {
		t.Fatal(said(r))
	}
	w.until("the executor tells of the call", func() bool { return len(c.reports("plan_status", nil).Can) == 1 })
	if r := c.call("plan_begin", nil); !r.IsError || !strings.Contains(said(r), "has done something") {
		t.Errorf("plan_begin over calls of another gateway: %s", said(r))
	}
	c.reports("what_can_be_undone", nil).wants(t, "what_can_be_undone", "open: undone [], stands [], can [1]")
	if r := other.reports("plan_commit", here); r.Message != "1 calls stay as they are" {
		t.Errorf("plan_commit from elsewhere: %+v", r)
	}
	if r := c.reports("plan_commit", nil); r.State != "committed" ||
		!strings.Contains(r.Message, "nothing was committed now: it is committed") {
		t.Errorf("plan_commit of a plan that is committed: %+v", r)
	}
	kept := planOf(c.call("add", map[string]any{"text": "two"}))
	c.does("add", map[string]any{"text": "three"})
	w.undoes(kept, "2")
	if r := c.call("plan_commit", nil); !r.IsError || !strings.Contains(said(r), "a part of the plan was undone") {
		t.Errorf("plan_commit does not tell of a person's undo: %s", said(r))
	}
	if r := c.reports("plan_commit", map[string]any{"plan": kept}); r.Message != "1 calls stay as they are" {
		t.Errorf("plan_commit after a person's undo: %+v", r)
	}
	undone := planOf(c.call("add", map[string]any{"text": "four"}))
	w.undoes(undone, "")
	if r := c.reports("plan_begin", nil); r.Plan == undone || r.State != "open" {
		t.Errorf("plan_begin where all is undone: %+v", r)
	}
	if got := lines(file); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("there is %v", got)
	}
}

// Of a plan that another has committed no tool says that it was undone.
func TestAPlanThatAnotherHasCommittedIsCommitted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, _ := w.notes(t)
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
	other := w.gateway(mcp.Config{}, nil, config)
	for name, look := range map[string]string{"at once": "", "after a look": "what_can_be_undone"} {
		plan := planOf(c.call("add", map[string]any{"text": name}))
		other.does("plan_commit", map[string]any{"plan": plan})
		if look != "" {
			c.reports(look, nil).wants(t, look, "committed: undone [], stands [1], can []")
		}
		r := c.call("add", map[string]any{"text": "more"}, "sagenbaum/plan", plan)
		if !r.IsError || strings.Contains(said(r), "undone") || !strings.Contains(said(r), "Nothing was done") {
			t.Errorf("%s: %s", name, said(r))
		}
		if r := c.call("undo_last", map[string]any{"plan": plan}); !r.IsError ||
			!strings.Contains(said(r), "sagenbaum plan unwind "+plan) {
			t.Errorf("%s: undo_last: %s", name, said(r))
		}
	}
}

// An action that its owner lets stand is one to go back to.
func TestUndoToAnActionThatIsLetStand(t *testing.T) {
	t.Parallel()
	w, file, c := session(t)
	plan := planOf(c.call("add", map[string]any{"text": "one"}))
	for _, text := range []string{"locked", "three"} {
		c.does("add", map[string]any{"text": text})
	}
	here := map[string]any{"plan": plan}
	c.reports("undo_last", map[string]any{"count": 2})
	w.operates(&pb.Record{Plan: plan, Action: "2", Kind: &pb.Record_Resolved{Resolved: &pb.Resolved{
		Outcome: pb.Resolution_RESOLUTION_ACCEPTED, Reason: "let it be", Evidence: "seen", Actor: "ann"}}})
	if state := w.state(plan, ledger.StateOpen); state != ledger.StateOpen {
		t.Fatal(state)
	}
	c.reports("what_can_be_undone", here).wants(t, "answered", "open: undone [3], stands [2], can [1]")
	if r := c.call("add", map[string]any{"text": "four"}, "sagenbaum/plan", plan); r.IsError {
		t.Fatal(said(r))
	}
	if r := c.call("undo_to", map[string]any{"plan": plan, "action": "3"}); !r.IsError ||
		!strings.Contains(said(r), "the last one before it is 2") {
		t.Errorf("undo_to what is undone: %s", said(r))
	}
	c.reports("undo_to", map[string]any{"plan": plan, "action": "2"}).wants(t, "undo_to",
		"open: undone [4], stands [], can []")
	if got := lines(file); !slices.Equal(got, []string{"one", "locked"}) {
		t.Errorf("there is %v", got)
	}
}

func TestArgumentsOfTheGatewaysToolsAreReadStrictly(t *testing.T) {
	t.Parallel()
	_, file, c := session(t)
	for _, text := range []string{"one", "two"} {
		c.does("add", map[string]any{"text": text})
	}
	for _, test := range []struct {
		tool string
		with map[string]any
		says string
	}{
		{"undo_last", map[string]any{"cuont": 2}, `undo_last has no "cuont"`},
		{"undo_last", map[string]any{"Count": 2}, `undo_last has no "Count"`},
		{"undo_last", map[string]any{"action": "1"}, "only count, plan"},
		{"undo_last", map[string]any{"count": 0}, "at least 1"},
		{"undo_last", map[string]any{"count": -1}, "at least 1"},
		{"undo_last", map[string]any{"count": "1"}, "those of the schema"},
		{"undo_last", map[string]any{"count": 3}, "1 to 2"},
		{"undo_to", map[string]any{}, "what_can_be_undone lists"},
		{"plan_fail", map[string]any{"why": "so"}, `plan_fail has no "why"`},
	} {
		if r := c.call(test.tool, test.with); !r.IsError || !strings.Contains(said(r), test.says) {
			t.Errorf("%s %v: %s, want %q", test.tool, test.with, said(r), test.says)
		}
	}
	if got := lines(file); len(got) != 2 {
		t.Errorf("there is %v", got)
	}
	c.reports("undo_last", map[string]any{"count": 2}).wants(t, "undo_last",
		"open: undone [2 1], stands [], can []")
	if r := c.reports("undo_last", nil); r.Message != "there is nothing to undo" {
		t.Errorf("%+v", r)
	}
}

// A savepoint that could not be stored after a call is stored before the next one.
func TestASavepointThatFailedIsTriedAgain(t *testing.T) {
	t.Parallel()
	_, file, c := session(t)
	plan := planOf(c.call("add", map[string]any{"text": "one"}))
	if !c.gateway.FailMark(plan) {
		t.Fatal("no savepoint has failed")
	}
	c.does("add", map[string]any{"text": "two"})
	c.reports("undo_last", nil).wants(t, "undo_last", "open: undone [2], stands [], can []")
	if got := lines(file); !slices.Equal(got, []string{"one"}) {
		t.Errorf("there is %v", got)
	}
}

// A plan has as many savepoints as the ledger takes. A call after the last one is undone together
// with those before it, once the agent says so.
func TestCallsWithoutASavepointAreUndoneTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	first := w.gateway(mcp.Config{}, nil, config) // whose contracts are known then
	first.does("add", map[string]any{"text": "zero"})
	agent, err := coordinator.New(coordinator.Config{Conn: w.conn, Tenant: "default", Agent: "mcp"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := agent.Begin(t.Context(), coordinator.PlanSpec{Label: "long"})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range ledger.SavepointsMax - 2 {
		all.Go(func() {
			if err := p.Savepoint(t.Context(), fmt.Sprint("before-", i+1)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := agent.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
	here := map[string]any{"plan": p.ID()}
	for _, text := range []string{"one", "two", "three", "four"} {
		if r := c.call("add", map[string]any{"text": text}, "sagenbaum/plan", p.ID()); r.IsError {
			t.Fatal(said(r))
		}
	}
	const together = "undo_last with count 3 or more"
	if can := c.reports("what_can_be_undone", here).Can; len(can) != 4 || !strings.Contains(can[0].How, together) ||
		!strings.Contains(can[1].How, together) || can[2].How != "exact" {
		t.Errorf("%+v", can)
	}
	if r := c.call("undo_last", here); !r.IsError || !strings.Contains(said(r), together) {
		t.Errorf("undo_last: %s", said(r))
	}
	c.reports("undo_last", map[string]any{"plan": p.ID(), "count": 3}).wants(t, "undo_last",
		"open: undone [4 3 2], stands [], can []")
	if r := c.call("add", map[string]any{"text": "five"}, "sagenbaum/plan", p.ID()); r.IsError {
		t.Fatal(said(r))
	}
	c.reports("undo_last", here).wants(t, "undo_last", "open: undone [5], stands [], can []")
	if got := lines(file); !slices.Equal(got, []string{"zero", "one"}) {
		t.Errorf("there is %v", got)
	}
}

// An agent that undoes and does again for ever is stopped, in one plan or in one after the other, and
// told when it may go on. The undo of all of a plan is never refused.
func TestUndosOfAClientHaveABudget(t *testing.T) {
	t.Parallel()
	_, file, c := session(t)
	c.call("add", map[string]any{"text": "one"})
	now := time.Now()
	if wait := c.gateway.Spend(30, now.Add(-time.Hour)); wait != 0 {
		t.Errorf("the 30th undo waits %v", wait)
	}
	if wait := c.gateway.Spend(1, now.Add(-time.Hour+20*time.Second)); wait != 40*time.Second {
		t.Errorf("the next one 20 s later waits %v", wait)
	}
	c.gateway.Spend(29, now.Add(time.Hour)) // whenever the next call is: the minute is not over
	c.reports("plan_fail", nil).wants(t, "plan_fail", "compensated: undone [1], stands [], can []")
	for _, tool := range []string{"add", "plan_begin"} {
		with := map[string]any{"text": "two"}
		if tool == "plan_begin" {
			with = nil
		}
		if r := c.call(tool, with); !r.IsError || !strings.Contains(said(r), "the next plan in ") {
			t.Errorf("%s once 30 are spent: %s", tool, said(r))
		}
	}
	if got := lines(file); len(got) != 0 {
		t.Errorf("there is %v", got)
	}
}

// A part of a plan is not undone once they are spent, and all of it is.
func TestThePlanOfAClientWithoutAnUndoLeftCanFail(t *testing.T) {
	t.Parallel()
	_, file, c := session(t)
	c.call("add", map[string]any{"text": "one"})
	c.gateway.Spend(30, time.Now().Add(time.Hour))
	if r := c.call("undo_last", nil); !r.IsError || !strings.Contains(said(r), "the next undo in ") {
		t.Errorf("undo_last: %s", said(r))
	}
	c.reports("plan_fail", nil).wants(t, "plan_fail", "compensated: undone [1], stands [], can []")
	if got := lines(file); len(got) != 0 {
		t.Errorf("there is %v", got)
	}
}
