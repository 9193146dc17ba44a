package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// stages is the configuration of the server of notes in which calls of tools are staged, each with
// further lines of its contract.
func (w *world) stages(t testing.TB, tools map[string]string) (config mcp.ServerConfig, file string) {
	t.Helper()
	config, file = w.notes(t)
	for tool, more := range tools {
		config.Packs[0].Tools[tool] = staged(t, more)
	}
	return config, file
}

// staged is the contract of a tool whose calls are.
func staged(t testing.TB, more string) mcp.Tool {
	t.Helper()
	pack, err := parseStaged("{class: irreversible, stage: commit, timeout: 2s" + more + "}")
	if err != nil {
		t.Fatal(err)
	}
	return pack.Tools["send"]
}

func parseStaged(tool string) (mcp.Pack, error) {
	return mcp.ParsePack("staged.yaml", []byte("apiVersion: sagenbaum/v1\nkind: MCPPack\nserver: s\ntools:\n  send: "+
		tool+"\n"))
}

// found is a probe of a call that is staged.
const found = ", probe: {tool: peek}, done: input.text in probe.notes"

// The model is told that its call was not made, and when it is; then it is, after the commit.
func TestACallThatIsStagedIsMadeOnceItsPlanIsCommitted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.stages(t, map[string]string{"send": ""})
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
	all, err := c.session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all.Tools, func(tool *sdk.Tool) bool { return tool.Name == "send" })
	if send := all.Tools[i]; send.OutputSchema != nil ||
		!strings.Contains(send.Description, "the tool send\n\nA call is staged") {
		t.Errorf("send is listed as %+v", send)
	}
	c.does("add", map[string]any{"text": "a"})
	result := c.call("send", map[string]any{"text": "m"})
	told := said(result)
	for _, part := range []string{"send was NOT made", `{"text":"m"}`, "plan_commit", "undo_last", planOf(result)} {
		if !strings.Contains(told, part) {
			t.Errorf("the model is told %q, without %q", told, part)
		}
	}
	if result.IsError || result.Meta["sagenbaum/staged"] != true || !slices.Equal(lines(file), []string{"a"}) {
		t.Errorf("error %t, %v; the notes are %v", result.IsError, result.Meta, lines(file))
	}
	if again := c.call("send", map[string]any{"text": "m"}); !again.IsError ||
		!strings.Contains(said(again), "staged already") {
		t.Errorf("the same call says %s", said(again))
	}
	if keyed := c.call("send", map[string]any{"text": "m"}, "sagenbaum/key", "k"); keyed.IsError {
		t.Errorf("the same call with a key says %s", said(keyed))
	}
	if keyed := c.call("send", map[string]any{"text": "m"}, "sagenbaum/key", "k"); keyed.IsError {
		t.Errorf("and repeated %s", said(keyed))
	}
	can := c.reports("what_can_be_undone", nil)
	if len(can.Can) != 3 || !strings.Contains(can.Can[0].How, "not made yet") || len(can.Stands) > 0 {
		t.Errorf("what can be undone: %+v", can)
	}
	if other := c.call("add", map[string]any{"text": "b"}); other.IsError {
		t.Errorf("a call that is not staged: %s", said(other))
	}
	done := c.reports("plan_commit", nil)
	if done.State != "committed" || !strings.Contains(done.Message, "2 calls stay as they are. Of the calls that were "+
		"staged: 2 made") || len(done.Stands) != 2 || !strings.Contains(done.Stands[0].How, "it was made") {
		t.Errorf("the commit says %+v", done)
	}
	if got := lines(file); !slices.Equal(got, []string{"a", "b", "m", "m"}) {
		t.Errorf("the notes are %v", got)
	}
	if late := c.reports("plan_status", map[string]any{"plan": done.Plan}); len(late.Stands) != 4 {
		t.Errorf("later: %+v", late)
	}
}

// An undo, of the last call or of all, drops what is staged.
func TestAnUndoDropsACallThatIsStaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.stages(t, map[string]string{"send": ""})
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
	c.does("add", map[string]any{"text": "a"})
	c.does("send", map[string]any{"text": "m"})
	c.does("send", map[string]any{"text": "n"})
	r := c.reports("undo_last", nil)
	if len(r.Undone) != 1 || r.Undone[0].Tool != "send" || !strings.Contains(r.Undone[0].How, "never made") {
		t.Errorf("undo_last says %+v", r)
	}
	if r := c.reports("plan_commit", nil); !strings.Contains(r.Message, "1 made, or answered for by the owner, "+
		"1 dropped") {
		t.Errorf("the commit says %+v", r)
	}
	if got := lines(file); !slices.Equal(got, []string{"a", "m"}) {
		t.Errorf("the notes are %v", got)
	}
	c.does("send", map[string]any{"text": "x"})
	if refused := c.call("plan_begin", nil); !refused.IsError {
		t.Errorf("a plan with a staged call is replaced: %s", said(refused))
	}
	if r := c.reports("plan_fail", nil); r.State != "failed" || len(r.Undone) != 1 || len(r.Stands) > 0 {
		t.Errorf("plan_fail says %+v", r)
	}
	if got := lines(file); !slices.Equal(got, []string{"a", "m"}) {
		t.Errorf("after plan_fail the notes are %v", got)
	}
}

// The gateway is gone when its plan is committed: another process makes the call, once.
func TestAWorkerMakesWhatIsStaged(t *testing.T) {
	t.Parallel()
	for name, idle := range map[string]time.Duration{"worker": 0, "host": time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			config, file := w.stages(t, map[string]string{"send": ""})
			c := w.gateway(mcp.Config{OnDisconnect: mcp.CommitPlan}, nil, config)
			plan := planOf(c.call("send", map[string]any{"text": "m"}))
			c.leave()
			if state := w.state(plan, "committed"); state != "committed" || len(lines(file)) > 0 {
				t.Fatalf("%s is %s; the notes are %v", plan, state, lines(file))
			}
			work, err := mcp.NewWorker(t.Context(), mcp.WorkerConfig{Conn: w.conn, Tenant: "default", Name: "w1",
				Servers: []*mcp.Server{w.server(config)}, Idle: idle})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = work.Close(context.Background()) })
			if state := w.state(plan+"~0", "delivered"); state != "delivered" {
				t.Errorf("it is %s", state)
			}
			if got := lines(file); !slices.Equal(got, []string{"m"}) {
				t.Errorf("the notes are %v", got)
			}
		})
	}
}

// What a call that is staged may have done is not done twice, and the model is told what is known.
func TestACallThatIsStagedIsNotMadeTwice(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		tool, more, text string
		notes            int
		says, how        string
	}{
		{"die", "", "x", 1, "1 its owner's to look at", "in doubt"},
		{"fail", "", "x", 1, "1 its owner's to look at", "failed half way"},
		{"hang", "", "x", 1, "1 its owner's to look at", "in doubt"},
		{"die", found, "x", 1, "1 made", "it was made"},
		{"add", "", "refused", 0, "1 its owner's to look at", "not that"},
		{"add", `, not_taken: 'result == "no"'`, "no", 0, "1 its owner's to look at", "failed: error: no"},
	} {
		t.Run(test.tool+test.more, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			config, file := w.stages(t, map[string]string{test.tool: test.more})
			c := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
			c.does(test.tool, map[string]any{"text": test.text})
			r := c.reports("plan_commit", nil)
			if !strings.Contains(r.Message, test.says) || len(r.Stands) != 1 || !strings.Contains(r.Stands[0].How, test.how) {
				t.Errorf("it says %+v, want %s, %s", r, test.says, test.how)
			}
			if got := lines(file); len(got) != test.notes {
				t.Errorf("the notes are %v, want %d", got, test.notes)
			}
		})
	}
}

// A key goes to the tool, the same in each attempt.
func TestACallThatIsStagedHasTheKeyOfItsAction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, _ := w.stages(t, map[string]string{"add": ", key: key, dedupe: 1h"})
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
	call := c.call("add", map[string]any{"text": "a"})
	plan, action := planOf(call), call.Meta["sagenbaum/action"].(string)
	c.does("plan_commit", nil)
	body, err := json.Marshal(api.PlanQuery{Plan: plan + "~0"})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := w.conn.RequestWithContext(t.Context(), api.PlanShow.Subject("default"), body)
	if err != nil {
		t.Fatal(err)
	}
	if key := ledger.Key("default", plan, action, ledger.PurposeDo); !strings.Contains(string(reply.Data), key) {
		t.Errorf("%s is nowhere in %s", key, reply.Data)
	}
}

// The gateway waits for what it is to make when its client goes, and says what is not made.
func TestAClientThatGoesLeavesWhatIsStaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.stages(t, map[string]string{"send": "", "die": ""})
	c := w.gateway(mcp.Config{ServeUndos: true, OnDisconnect: mcp.CommitPlan}, nil, config)
	if told := said(c.call("send", map[string]any{"text": "m"})); !strings.Contains(told, "the end of this connection") {
		t.Errorf("the model is told %s", told)
	}
	if c.leave(); c.end != nil || !slices.Equal(lines(file), []string{"m"}) {
		t.Errorf("it has ended with %v; the notes are %v", c.end, lines(file))
	}
	c = w.gateway(mcp.Config{ServeUndos: true, OnDisconnect: mcp.CommitPlan}, nil, config)
	c.does("die", map[string]any{"text": "n"})
	if c.leave(); c.end == nil || !strings.Contains(c.end.Error(), "die as action") {
		t.Errorf("what is in doubt is not said: %v", c.end)
	}
}

func TestAPackSaysOfStagedCallsWhatMeansSomething(t *testing.T) {
	for tool, field := range map[string]string{
		"{class: irreversible, stage: now}":                                             "stage",
		"{class: compensable, stage: commit, undo: [{tool: unsend}]}":                   "stage",
		"{class: irreversible, stage: commit, review: true}":                            "review",
		"{class: irreversible, stage: commit, digest: [text]}":                          "digest",
		"{class: irreversible, stage: commit, dedupe: 1h}":                              "dedupe",
		"{class: irreversible, key: k, dedupe: 1h}":                                     "dedupe",
		"{class: irreversible, stage: commit, probe: {tool: peek}}":                     "done",
		"{class: irreversible, probe: {tool: peek}, done: input.text in probe.notes}":   "undo",
		"{class: irreversible, stage: commit, stop: [{when: input.x, message: never}]}": "undo",
	} {
		var refused *ledger.Refused
		if _, err := parseStaged(tool); !errors.As(err, &refused) || refused.Field != "staged.yaml: tools.send."+field {
			t.Errorf("%s: %v, want a refusal of %s", tool, err, field)
		}
	}
	if _, err := parseStaged("{class: irreversible, stage: commit, key: k, dedupe: 24h" + found + "}"); err != nil {
		t.Error(err)
	}
}

// Another gateway goes on with the plan: it knows what is staged, stages no equal call, and drops it.
func TestAnotherGatewayKnowsWhatIsStaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.stages(t, map[string]string{"send": ""})
	plan := planOf(w.gateway(mcp.Config{}, nil, config).call("send", map[string]any{"text": "m"}))
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
	with := map[string]any{"plan": plan}
	if r := c.reports("plan_status", with); len(r.Can) != 1 || r.Can[0].Tool != "send" ||
		!strings.Contains(r.Can[0].How, "not made yet") {
		t.Errorf("the other one knows %+v", r)
	}
	same := c.call("send", map[string]any{"text": "m"}, "sagenbaum/plan", plan)
	if !same.IsError || !strings.Contains(said(same), "staged already") {
		t.Errorf("the same call says %s", said(same))
	}
	if other := c.call("send", map[string]any{"text": "n"}, "sagenbaum/plan", plan); other.IsError {
		t.Errorf("another call says %s", said(other))
	}
	if r := c.reports("undo_last", with); len(r.Undone) != 1 {
		t.Errorf("undo_last says %+v", r)
	}
	c.does("plan_commit", with)
	if got := lines(file); !slices.Equal(got, []string{"m"}) {
		t.Errorf("the notes are %v", got)
	}
}
