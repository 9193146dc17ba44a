package mcp_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Of a committed plan a person may undo a part, or more later: the status says what became of each call,
// in the gateway that has made it and in another one.
func TestTheStatusOfACommittedPlanSaysWhatWasUndoneSince(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, _ := w.notes(t)
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
	for _, text := range []string{"a", "b", "c"} {
		c.does("add", map[string]any{"text": text})
	}
	plan := c.reports("plan_commit", nil).Plan
	w.operates(&pb.Record{Plan: plan, Kind: &pb.Record_CompensationRequested{
		CompensationRequested: &pb.CompensationRequested{Reason: "wrong", Actor: "ann", FromAction: "2"}}})
	if state := w.state(plan+"~1", "compensated"); state != "compensated" {
		t.Fatal(state)
	}
	other := w.gateway(mcp.Config{}, nil, config)
	for _, asked := range []*client{c, other} {
		r := asked.reports("plan_status", map[string]any{"plan": plan})
		if len(r.Undone) != 2 || len(r.Stands) != 1 || r.Stands[0].Action != "1" || r.Plan != plan ||
			r.State != "committed" || !strings.Contains(r.Message, plan+"~1 undoes it, and is compensated") {
			t.Errorf("the status says %+v", r)
		}
	}
	if told := said(other.call("plan_fail", map[string]any{"plan": plan})); !strings.Contains(told, `"undone":[`) {
		t.Errorf("plan_fail says %s", told)
	}
}

// A call that says something of its plan or its key, and says it wrong, is not made without it.
func TestMetadataThatIsNoTextIsRefused(t *testing.T) {
	t.Parallel()
	_, file, c := session(t)
	for _, name := range []string{"sagenbaum/key", "sagenbaum/plan"} {
		for _, wrong := range []any{5, true, map[string]any{"a": 1}, "", nil} {
			_, err := c.session.CallTool(t.Context(), &sdk.CallToolParams{Name: "add",
				Arguments: map[string]any{"text": "x"}, Meta: sdk.Meta{name: wrong}})
			if err == nil || !strings.Contains(err.Error(), "refused: _meta["+name+"]: ") {
				t.Errorf("%s %v: %v", name, wrong, err)
			}
		}
	}
	if got := lines(file); len(got) > 0 {
		t.Errorf("the notes are %v", got)
	}
}

// The time of an attempt that no server has started in is no doubt: nothing has got the call. Its error
// has what the server said when it ended.
func TestAServerThatDoesNotStartIsSaidInTimeAndIsNoDoubt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	if err := appendNote(file+brokenSuffix, note{}); err != nil {
		t.Fatal(err)
	}
	config.Errors = t.Output()
	server, err := mcp.NewServer(config)
	if err != nil {
		t.Fatal(err)
	}
	worker, err := mcp.NewWorker(t.Context(), mcp.WorkerConfig{Conn: w.conn, Tenant: "default", Name: "idle",
		Servers: []*mcp.Server{server}, Idle: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close(t.Context())
	for name, makes := range map[string]func(context.Context, api.Command) error{
		"an undo": server.Undoes, "a call that was staged": server.Delivers} {
		attempt, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		err = makes(attempt, api.Command{Arguments: []byte("{}")})
		var coded interface{ Code() string }
		if attempt.Err() != nil || errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &coded) ||
			coded.Code() != "not_started" || !strings.Contains(err.Error(), "it says: notes are broken") {
			t.Errorf("%s, after all of its time: %v; %v", name, attempt.Err(), err)
		}
		cancel()
	}
}

// What its owner has answered for a staged call is in the plan that makes it.
func TestTheStatusSaysWhatTheOwnerOfAStagedCallHasAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, _ := w.stages(t, map[string]string{"fail": ""})
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
	call := c.call("fail", map[string]any{"text": "x"})
	plan, action := planOf(call), call.Meta["sagenbaum/action"].(string)
	if r := c.reports("plan_commit", nil); !strings.Contains(r.Message, "1 its owner's to look at") {
		t.Fatalf("the commit says %+v", r)
	}
	w.operates(&pb.Record{Plan: plan + "~0", Action: action, Kind: &pb.Record_Resolved{Resolved: &pb.Resolved{
		Outcome: pb.Resolution_RESOLUTION_ACCEPTED, Reason: "let it be", Evidence: "seen", Actor: "ann"}}})
	if state := w.state(plan+"~0", "resolved"); state != "resolved" {
		t.Fatal(state)
	}
	r := c.reports("plan_status", map[string]any{"plan": plan})
	if len(r.Stands) != 1 || r.Stands[0].How != "its owner has answered for it: accepted by ann, let it be" {
		t.Errorf("the status says %+v", r)
	}
}

// A call that comes after the undo of its plan hears what has become of that, not what was heard first.
func TestACallAfterTheUndoOfItsPlanSaysThatItIsUndone(t *testing.T) {
	t.Parallel()
	w, _, c := session(t)
	plan := planOf(c.call("add", map[string]any{"text": "a"}))
	w.undoes(plan, "")
	for _, named := range [][]any{nil, {"sagenbaum/plan", plan}} {
		told := said(c.call("add", map[string]any{"text": "b"}, named...))
		if !strings.Contains(told, "compensated: wrong") || strings.Contains(told, "is being undone") {
			t.Errorf("the call says %s", told)
		}
	}
}

// Users with a gateway each, of an agent of its own, reach neither the plans nor the keys of each other,
// though both gateways have one server and one folder of states.
func TestGatewaysOfSeveralAgentsDoNotReachEachOthersPlans(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	ann := w.gateway(mcp.Config{Agent: "ann", ServeUndos: true}, nil, config)
	bo := w.gateway(mcp.Config{Agent: "bo", ServeUndos: true}, nil, config)
	plan := planOf(ann.call("add", map[string]any{"text": "a"}, "sagenbaum/key", "k"))
	for _, tool := range []string{"plan_status", "plan_commit", "undo_last", "plan_fail"} {
		if r := bo.call(tool, map[string]any{"plan": plan}); !r.IsError || strings.Contains(said(r), `"tool"`) {
			t.Errorf("%s of another agent's plan: %s", tool, said(r))
		}
	}
	if r := bo.call("add", map[string]any{"text": "b"}, "sagenbaum/plan", plan); !r.IsError {
		t.Errorf("a call in another agent's plan: %s", said(r))
	}
	again := bo.call("add", map[string]any{"text": "a"}, "sagenbaum/key", "k")
	if again.IsError || planOf(again) == plan {
		t.Errorf("a key of another agent: %s of plan %s", said(again), planOf(again))
	}
	if got := lines(file); !slices.Equal(got, []string{"a", "a"}) {
		t.Errorf("there is %v", got)
	}
	if r := ann.reports("plan_status", nil); r.State != ledger.StateOpen || len(r.Can) != 1 {
		t.Errorf("the plan is %+v", r)
	}
}
