package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

func tools(c *client) (names []string) {
	c.t.Helper()
	for tool, err := range c.session.Tools(c.t.Context(), nil) {
		if err != nil {
			c.t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}

func TestWhatAServerSaysPassesThrough(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, _ := w.notes(t)
	progress := make(chan *sdk.ProgressNotificationParams, 10)
	c := w.gateway(mcp.Config{ServeUndos: true}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *sdk.ProgressNotificationClientRequest) {
			progress <- req.Params
		},
		ElicitationHandler: func(_ context.Context, req *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			if req.Params.Message != "sure about x?" {
				t.Errorf("asked %q", req.Params.Message)
			}
			return &sdk.ElicitResult{Action: "accept"}, nil
		},
	}, config)
	init := c.session.InitializeResult()
	if init.ServerInfo.Name != "notes-server" || !strings.HasPrefix(init.Instructions, "take notes\n\nTools of") {
		t.Errorf("the server is %+v", init)
	}
	all, err := c.session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all.Tools, func(tool *sdk.Tool) bool { return tool.Name == "add" })
	schema, err := json.Marshal(all.Tools[i].InputSchema)
	if err != nil || all.Tools[i].Description != "the tool add" || !strings.Contains(string(schema), "x-kept") {
		t.Errorf("add is %+v, %s, %v", all.Tools[i], schema, err)
	}
	if names := tools(c); !slices.Contains(names, "undo_last") || slices.Contains(names, "send") ||
		slices.Contains(names, "look") || !slices.Contains(names, "peek") {
		t.Errorf("tools: %v", names)
	}
	// Numbers pass as they are written, in both directions.
	result, err := c.session.CallTool(t.Context(), &sdk.CallToolParams{Name: "add",
		Arguments: json.RawMessage(`{"text":"x","amount":10.10,"big":123456789012345678901234567890}`)})
	if err != nil || !strings.Contains(said(result), `"amount":10.10,"big":123456789012345678901234567890`) {
		t.Errorf("add: %v, %s", err, said(result))
	}
	if got, err := c.session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "note://all"}); err != nil ||
		got.Contents[0].Text != "all notes" {
		t.Errorf("resource: %+v, %v", got, err)
	}
	if list, err := c.session.ListResources(t.Context(), nil); err != nil || len(list.Resources) != 1 {
		t.Errorf("resources: %+v, %v", list, err)
	}
	if list, err := c.session.ListResourceTemplates(t.Context(), nil); err != nil || len(list.ResourceTemplates) != 0 {
		t.Errorf("templates: %+v, %v", list, err)
	}
	if got, err := c.session.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "summarise"}); err != nil ||
		got.Description != "a summary" {
		t.Errorf("prompt: %+v, %v", got, err)
	}
	if list, err := c.session.ListPrompts(t.Context(), nil); err != nil || len(list.Prompts) != 1 {
		t.Errorf("prompts: %+v, %v", list, err)
	}
	if r := c.call("slow", map[string]any{"text": "p"}, "progressToken", "mine"); r.IsError {
		t.Error(said(r))
	}
	if p := receive(t, progress); p.ProgressToken != "mine" || p.Message != "p" {
		t.Errorf("progress %+v", p)
	}
	if got := c.does("ask", map[string]any{"text": "x"}); got != "accept" {
		t.Errorf("asked: %s", got)
	}
	_, err = c.session.CallTool(t.Context(), &sdk.CallToolParams{Name: "none"})
	if wireCode(err) != jsonrpc.CodeInvalidParams {
		t.Errorf("a tool that is not there: %v", err)
	}
}

func TestNewToolsOfAServerAreSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	changed := make(chan bool, 10)
	c := w.gateway(mcp.Config{ServeUndos: true, TrustHints: true}, &sdk.ClientOptions{
		ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { changed <- true }}, config)
	c.does("grow", nil) // it says that it has no effect
	receive(t, changed)
	if !slices.Contains(tools(c), "shy") {
		t.Errorf("tools: %v", tools(c))
	}
	c.does("shy", map[string]any{"text": "s"})
	if r := c.reports("plan_fail", nil); r.State != "compensated" || len(lines(file)) != 0 {
		t.Errorf("%+v, %v", r, lines(file))
	}
}

func receive[T any](t *testing.T, from chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(testenv.Patience):
		t.Fatal("nothing has come")
		panic("not reached")
	}
}

func wireCode(err error) int64 {
	var wire *jsonrpc.Error
	if errors.As(err, &wire) {
		return wire.Code
	}
	return 0
}

func TestToolsWithoutAContract(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		config  mcp.Config
		answer  string // of the client's user; empty: it cannot be asked
		listed  bool
		refused string // why; empty: it is called
	}{
		{"refuse", mcp.Config{}, "accept", false, "has no contract"},
		{"record", mcp.Config{Unknown: mcp.RecordUnknown}, "", true, ""},
		{"ask and yes", mcp.Config{Unknown: mcp.AskUnknown}, "accept", true, ""},
		{"ask and no", mcp.Config{Unknown: mcp.AskUnknown}, "decline", true, "did not agree"},
		{"ask in vain", mcp.Config{Unknown: mcp.AskUnknown}, "", true, "no way to ask"},
		{"hints say nothing of it", mcp.Config{TrustHints: true}, "accept", false, "has no contract"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			config, file := w.notes(t)
			options := &sdk.ClientOptions{}
			if test.answer != "" {
				options.ElicitationHandler = func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
					return &sdk.ElicitResult{Action: test.answer}, nil
				}
			}
			test.config.ServeUndos = true
			c := w.gateway(test.config, options, config)
			if listed := slices.Contains(tools(c), "send"); listed != test.listed {
				t.Errorf("listed: %v", listed)
			}
			r := c.call("send", map[string]any{"text": "s"})
			if r.IsError != (test.refused != "") || !strings.Contains(said(r), test.refused) {
				t.Errorf("send: %v %s", r.IsError, said(r))
			}
			if test.refused != "" {
				if len(lines(file)) != 0 {
					t.Error("it was called")
				}
				return
			}
			c.does("add", map[string]any{"text": "a"})
			if can := c.reports("what_can_be_undone", nil); len(can.Stands) != 1 || can.Stands[0].How != "nothing undoes it" {
				t.Errorf("%+v", can)
			}
			if undone := c.reports("undo_last", nil); len(undone.Undone) != 1 || undone.Undone[0].Tool != "add" {
				t.Errorf("%+v", undone)
			}
			r2 := c.reports("plan_fail", nil)
			if r2.State != "quarantined" || len(r2.Stands) != 1 || !slices.Equal(lines(file), []string{"s"}) {
				t.Errorf("%+v %v", r2, lines(file))
			}
		})
	}
}

// What an answer of a tool means: whether the call is in the plan, and as what.
func TestOutcomesOfCalls(t *testing.T) {
	t.Parallel()
	_, file, c := session(t)
	c.does("add", map[string]any{"text": "first"})
	for text, problem := range map[string]string{"no": "no", "refused": "not that"} {
		result, err := c.session.CallTool(t.Context(), &sdk.CallToolParams{Name: "add", Arguments: note{Text: text}})
		if err == nil && (!result.IsError || said(result) != problem) || err != nil &&
			(wireCode(err) != jsonrpc.CodeInvalidParams || !strings.Contains(err.Error(), problem)) {
			t.Errorf("add %s: %+v %v", text, result, err)
		}
	}
	for _, arguments := range []any{[]string{"a"}, "a", 7} {
		_, err := c.session.CallTool(t.Context(), &sdk.CallToolParams{Name: "add", Arguments: arguments})
		if wireCode(err) != jsonrpc.CodeInvalidParams || !strings.Contains(err.Error(), "want an object") {
			t.Errorf("arguments %v: %v", arguments, err)
		}
	}
	if got := c.call("add", map[string]any{"text": "dry", "dry": true}); said(got) != "would add" {
		t.Errorf("dry: %s", said(got))
	}
	if got := c.reports("what_can_be_undone", nil); len(got.Can) != 1 {
		t.Errorf("only one call has had an effect: %+v", got)
	}
	if got := c.call("fail", map[string]any{"text": "half"}); !got.IsError || said(got) != "failed half way" {
		t.Errorf("fail: %+v", got)
	}
	if got := c.call("fail", map[string]any{"text": "half"}); !got.IsError ||
		!strings.Contains(said(got), "no one knows") {
		t.Errorf("the same call while it is in doubt: %s", said(got))
	}
	if got := c.call("die", map[string]any{"text": "dead"}); !got.IsError || !strings.Contains(said(got), "in doubt") {
		t.Errorf("die: %s", said(got))
	}
	if got := c.call("hang", map[string]any{"text": "hung"}); !got.IsError || !strings.Contains(said(got), "in doubt") {
		t.Errorf("hang: %s", said(got))
	}
	c.does("add", map[string]any{"text": "last"}) // the server was started again
	if got := lines(file); !slices.Equal(got, []string{"first", "half", "dead", "hung", "last"}) {
		t.Errorf("there is %v", got)
	}
	got := c.reports("what_can_be_undone", nil)
	if len(got.Can) != 5 || !strings.Contains(got.Can[1].How, "no one knows") || got.Can[0].How != "exact" {
		t.Errorf("%+v", got)
	}
	if r := c.reports("undo_to", map[string]any{"action": got.Can[4].Action}); len(r.Undone) != 4 ||
		!slices.Equal(lines(file), []string{"first"}) {
		t.Errorf("undo_to: %+v, left %v", r, lines(file))
	}
	if r := c.reports("plan_fail", nil); r.State != "compensated" || len(lines(file)) != 0 {
		t.Errorf("%+v, left %v", r, lines(file))
	}
	if got := c.call("plan_status", nil); !got.IsError || !strings.Contains(said(got), "no plan is open") {
		t.Errorf("status after the end: %s", said(got))
	}
}

// A call that its contract refuses is not passed on, nor one of which that is not known.
func TestACallThatItsContractRefusesIsNotMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	c := w.gateway(mcp.Config{}, nil, config)
	for want, with := range map[string]map[string]any{"be quiet. Nothing": {"text": "quiet"},
		"refuses this call of shout. Nothing": {"text": ""}, "is not known": {"note": "text"}} {
		if r := c.call("shout", with); !r.IsError || !strings.Contains(said(r), want) || planOf(r) != "" ||
			!strings.Contains(said(r), "Nothing was done") || len(lines(file)) != 0 {
			t.Errorf("%v: %.200s", with, said(r))
		}
	}
}

// Clients call tools at the same time: the first calls share a plan, and of two undos each takes
// what the other has left.
func TestCallsAtTheSameTimeShareAPlan(t *testing.T) {
	t.Parallel()
	_, file, c := session(t)
	const n = 6
	together := func(tool string, arguments func(i int) any) []*sdk.CallToolResult {
		results, errs := make([]*sdk.CallToolResult, n), make([]error, n)
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				results[i], errs[i] = c.session.CallTool(t.Context(),
					&sdk.CallToolParams{Name: tool, Arguments: arguments(i)})
			})
		}
		all.Wait()
		for i, r := range results {
			if errs[i] != nil || r.IsError {
				t.Fatalf("%s: %v %+v", tool, errs[i], r)
			}
		}
		return results
	}
	plans := map[string]bool{}
	for _, r := range together("add", func(i int) any { return note{Text: fmt.Sprint("n", i)} }) {
		plans[planOf(r)] = true
	}
	if len(plans) != 1 || len(lines(file)) != n {
		t.Fatalf("the calls are of %d plans: %v", len(plans), lines(file))
	}
	undone := map[string]bool{}
	for _, r := range together("undo_last", func(int) any { return map[string]any{} }) {
		var got report
		if err := json.Unmarshal([]byte(said(r)), &got); err != nil || len(got.Undone) != 1 {
			t.Fatalf("undo_last: %v %+v", err, got)
		}
		undone[got.Undone[0].Action] = true
	}
	if len(undone) != n || len(lines(file)) != 0 {
		t.Errorf("%d different calls are undone, and there is %v", len(undone), lines(file))
	}
	begun := c.reports("plan_begin", nil).Plan
	if plans[begun] {
		t.Errorf("plan_begin begins plan %s again", begun)
	}
}

// A call that has not reached its server has not happened, and one without an effect is made again
// where its server ends under it.
func TestAServerThatEndsLosesNoMoreThanItMust(t *testing.T) {
	t.Parallel()
	_, file, c := session(t)
	c.does("add", map[string]any{"text": "first"})
	if err := os.WriteFile(file+onceSuffix, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := c.does("peek", nil); !strings.Contains(got, "first") || there(file+onceSuffix) {
		t.Errorf("peek: %s", got)
	}
	if err := os.WriteFile(file+brokenSuffix, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c.call("die", map[string]any{"text": "dead"})
	for range 2 { // it is no call in doubt that is made again, either
		if got := c.call("add", map[string]any{"text": "lost"}); !got.IsError ||
			!strings.Contains(said(got), "Nothing was done") {
			t.Errorf("add: %s", said(got))
		}
	}
	if err := os.Remove(file + brokenSuffix); err != nil {
		t.Fatal(err)
	}
	c.does("add", map[string]any{"text": "last"})
	if got := lines(file); !slices.Equal(got, []string{"first", "dead", "last"}) {
		t.Errorf("there is %v", got)
	}
	if r := c.reports("plan_fail", nil); r.State != "compensated" || len(lines(file)) != 0 {
		t.Errorf("%+v, left %v", r, lines(file))
	}
}

// One key is one effect: in one connection, under a plan of another gateway, and never with other
// arguments.
func TestAKeyHasOneEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	c := w.gateway(mcp.Config{}, nil, config)
	const key = "sagenbaum/key"
	first := c.call("add", map[string]any{"text": "one"}, key, "k1")
	again := c.call("add", map[string]any{"text": "one"}, key, "k1")
	if first.IsError || said(first) != said(again) || len(lines(file)) != 1 {
		t.Errorf("first %s, again %s, there is %v", said(first), said(again), lines(file))
	}
	if !strings.Contains(said(first), `"key":"`) || strings.Contains(said(first), `"key":""`) {
		t.Errorf("the tool got no key: %s", said(first))
	}
	if other := c.call("add", map[string]any{"text": "two"}, key, "k1"); !other.IsError ||
		!strings.Contains(said(other), "key of another call") {
		t.Errorf("the key of another call: %s", said(other))
	}
	if refused := c.call("add", map[string]any{"text": "no"}, key, "k2"); !refused.IsError {
		t.Error("not refused")
	}
	doubt := c.call("fail", map[string]any{"text": "half"}, key, "k3")
	if repeat := c.call("fail", map[string]any{"text": "half"}, key, "k3"); said(repeat) != said(doubt) ||
		len(lines(file)) != 2 {
		t.Errorf("%s, %s", said(doubt), said(repeat))
	}
	plan := planOf(first)
	c.leave()
	later := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
	r := later.call("add", map[string]any{"text": "one"}, key, "k1", "sagenbaum/plan", plan)
	if r.IsError || !strings.Contains(said(r), "10.10") || len(lines(file)) != 2 {
		t.Errorf("from another gateway: %s, there is %v", said(r), lines(file))
	}
	if r := later.call("fail", map[string]any{"text": "half"}, key, "k3", "sagenbaum/plan", plan); !r.IsError ||
		!strings.Contains(said(r), "made before") || len(lines(file)) != 2 {
		t.Errorf("a doubt from another gateway: %s", said(r))
	}
	if r := later.reports("plan_fail", map[string]any{"plan": plan}); r.State != "compensated" || len(lines(file)) != 0 {
		t.Errorf("%+v, left %v", r, lines(file))
	}
}

// A call that is made again on another connection, with another plan, is the same one: while its
// effect is there, and where key and arguments are equal.
func TestAKeyHasOneEffectOnAllConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	const key = "sagenbaum/key"
	connect := func() *client { return w.gateway(mcp.Config{ServeUndos: true}, nil, config) }
	add := func(c *client, text, k string) (*sdk.CallToolResult, int) {
		return c.call("add", map[string]any{"text": text}, key, k), strings.Count(read(t, file), text+"\n")
	}
	c := connect()
	first, _ := add(c, "one", "k1")
	c.leave()
	c = connect()
	if again, n := add(c, "one", "k1"); n != 1 || again.IsError || planOf(first) == "" ||
		!strings.Contains(said(again), "10.10") {
		t.Errorf("on another connection: %s, %d times", said(again), n)
	}
	if other, n := add(c, "two", "k1"); n != 1 || other.IsError || planOf(other) == planOf(first) {
		t.Errorf("with other arguments: %s, %d times under %s", said(other), n, planOf(other))
	}
	c.reports("plan_commit", nil)
	if again, n := add(c, "two", "k1"); n != 1 || !strings.Contains(said(again), "is committed. Nothing was done now") {
		t.Errorf("once it is committed: %s, %d times", said(again), n)
	}
	doubt := c.call("fail", map[string]any{"text": "half"}, key, "k2")
	c.leave()
	if again := connect().call("fail", map[string]any{"text": "half"}, key, "k2"); planOf(doubt) == "" ||
		!strings.Contains(said(again), "was made before") || strings.Count(read(t, file), "half\n") != 1 {
		t.Errorf("in doubt: %s, %s", said(doubt), said(again))
	}
	c = connect()
	undone, _ := add(c, "three", "k3")
	c.reports("plan_fail", nil)
	if again, n := add(c, "three", "k3"); n != 1 || again.IsError || planOf(again) == planOf(undone) {
		t.Errorf("once it is undone: %s, %d times", said(again), n)
	}
	var all sync.WaitGroup
	for range 3 {
		c := connect()
		all.Go(func() { add(c, "four", "k4") })
	}
	all.Wait()
	if n := strings.Count(read(t, file), "four\n"); n != 1 {
		t.Errorf("at the same time: %d times", n)
	}
	if err := os.WriteFile(filepath.Join(config.State, "keys", "draft-1"), nil, 0o600); err != nil {
		t.Fatal(err) // of a gateway that was killed
	}
	kept, err := filepath.Glob(filepath.Join(config.State, "keys", "*"))
	long := time.Now().Add(-3 * mcp.KeyKept)
	for _, path := range kept {
		err = errors.Join(err, os.Chtimes(path, long, long))
	}
	if err = errors.Join(err, w.server(config).PruneKeys()); err != nil || len(kept) != 9 {
		t.Errorf("of the keys is kept %v, %v", kept, err)
	}
	if kept, _ := filepath.Glob(filepath.Join(config.State, "keys", "*")); len(kept) != 0 {
		t.Errorf("too old, and kept: %v", kept)
	}
}

// TestWhatIsKeptOfAKeyIsOneFileOrTheOther: nothing is written into the one that is there, so that
// neither a crash nor another gateway finds half of it.
func TestWhatIsKeptOfAKeyIsOneFileOrTheOther(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path, before := filepath.Join(folder, "k.json"), filepath.Join(folder, "before")
	if err := errors.Join(mcp.KeepKey(path, "p1"), os.Link(path, before)); err != nil {
		t.Fatal(err)
	}
	was := read(t, before)
	if err := mcp.KeepKey(path, "p2"); err != nil {
		t.Fatal(err)
	}
	if got := read(t, before); got != was || !strings.Contains(got, "p1") {
		t.Errorf("the file of before is now %q, was %q", got, was)
	}
	if got := read(t, path); !strings.Contains(got, "p2") {
		t.Errorf("kept is %q", got)
	}
	if left, _ := os.ReadDir(folder); len(left) != 2 {
		t.Errorf("there is also %v", left)
	}
	if err := mcp.KeepKey(filepath.Join(folder, "no folder", "k.json"), "p1"); err == nil {
		t.Error("what cannot be kept is said to be")
	}
}

// TestAResumedPlanSaysTheSame: what was done, what is in doubt and how each can be undone, and the
// call that is in doubt is not made again.
func TestAResumedPlanSaysTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	c := w.gateway(mcp.Config{ServeUndos: true, Unknown: mcp.RecordUnknown}, nil, config)
	plan := planOf(c.call("add", map[string]any{"text": "one"}))
	c.does("send", map[string]any{"text": "letter"})
	c.call("add", map[string]any{"text": "no"})
	c.call("fail", map[string]any{"text": "half"})
	c.does("add", map[string]any{"text": "two"})
	here := map[string]any{"plan": plan}
	before := c.reports("what_can_be_undone", here)
	c.leave()
	later := w.gateway(mcp.Config{ServeUndos: true, Unknown: mcp.RecordUnknown}, nil, config)
	if got := later.reports("what_can_be_undone", here); !reflect.DeepEqual(got, before) || len(got.Can) != 3 {
		t.Errorf("%+v, before %+v", got, before)
	}
	if r := later.call("fail", map[string]any{"text": "half"}, "sagenbaum/plan", plan); !r.IsError ||
		!strings.Contains(said(r), "no one knows") {
		t.Errorf("the same call while it is in doubt: %s", said(r))
	}
	if r := later.call("add", map[string]any{"text": "three"}, "sagenbaum/plan", plan); r.IsError {
		t.Error(said(r))
	}
	if r := later.reports("undo_last", map[string]any{"plan": plan, "count": 3}); len(r.Undone) != 3 ||
		!slices.Equal(lines(file), []string{"one", "letter"}) {
		t.Errorf("undo_last: %+v, left %v", r, lines(file))
	}
}

// givesUp cancels a call of a tool once it has left its line in a file.
func (w *world) givesUp(c *client, tool, file string) {
	w.t.Helper()
	w.leaves(c, tool, "x", file)
}

func (w *world) leaves(c *client, tool, text, file string) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	called := make(chan error, 1)
	go func() {
		_, err := c.session.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: note{Text: text}})
		called <- err
	}()
	w.until("it is called", func() bool { return slices.Contains(lines(file), text) })
	cancel()
	if <-called == nil {
		w.t.Error("it has answered")
	}
}

// A call that its client cancels, or leaves, is in doubt; the undo finds out.
func TestACancelledCallIsInDoubt(t *testing.T) {
	t.Parallel()
	w, file, c := session(t)
	w.givesUp(c, "hang", file)
	got := c.reports("plan_fail", nil)
	if got.State != "compensated" || len(lines(file)) != 0 {
		t.Errorf("%+v, left %v", got, lines(file))
	}
}

func TestWhatBecomesOfThePlanOfAClientThatGoes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		what  mcp.Disconnect
		state string
		left  int
	}{{mcp.LeavePlan, "open", 1}, {mcp.CommitPlan, "committed", 1}, {mcp.FailPlan, "compensated", 0}} {
		t.Run(string(test.what), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			config, file := w.notes(t)
			c := w.gateway(mcp.Config{ServeUndos: true, OnDisconnect: test.what}, nil, config)
			plan := planOf(c.call("add", map[string]any{"text": "a"}))
			c.leave()
			c.gateway.Close() // as its process ends then: no one else undoes anything
			if left := lines(file); len(left) != test.left || c.end != nil {
				t.Errorf("left %v, %v", left, c.end)
			}
			if state := w.state(plan, test.state); state != test.state {
				t.Errorf("the plan is %s", state)
			}
		})
	}
}

// A gateway that is closed while its clients are there sees to their plans, too, and says what it
// could not undo.
func TestAGatewayThatIsClosedSeesToThePlansOfItsClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	c := w.gateway(mcp.Config{ServeUndos: true, OnDisconnect: mcp.FailPlan}, nil, config)
	plan := planOf(c.call("add", map[string]any{"text": "locked"}))
	c.does("add", map[string]any{"text": "open"})
	c.gateway.Close()
	c.leave()
	if got := lines(file); !slices.Equal(got, []string{"locked"}) {
		t.Errorf("there is %v", got)
	}
	if c.end == nil || !strings.Contains(c.end.Error(), plan) ||
		!strings.Contains(c.end.Error(), "add as action 1 (its undo needs the plan's owner: ") {
		t.Errorf("it says %v", c.end)
	}
}

// What is locked since its creation stays, and the answer says so.
func TestAnUndoThatIsNotPossibleIsSaid(t *testing.T) {
	t.Parallel()
	_, file, c := session(t)
	c.does("add", map[string]any{"text": "locked"})
	c.does("add", map[string]any{"text": "open"})
	r := c.reports("plan_fail", nil)
	if r.State != "quarantined" || len(r.Stands) != 1 || r.Stands[0].Action != "1" ||
		!slices.Equal(lines(file), []string{"locked"}) {
		t.Errorf("%+v, left %v", r, lines(file))
	}
}

// What another has had undone is not told as done: not to a repeated key, nor in the list of what
// can be undone, of this gateway and of a later one.
func TestWhatAPersonHadUndoneIsSaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
	const key = "sagenbaum/key"
	first := c.call("add", map[string]any{"text": "one"}, key, "k1")
	c.call("add", map[string]any{"text": "two"}, key, "k2")
	plan := planOf(first)
	can := c.reports("what_can_be_undone", nil).Can
	if len(can) != 2 {
		t.Fatalf("%+v", can)
	}
	w.undoes(plan, can[0].Action)
	for _, c := range []*client{c, w.gateway(mcp.Config{}, nil, config)} {
		r := c.call("add", map[string]any{"text": "two"}, key, "k2", "sagenbaum/plan", plan)
		if !r.IsError || !strings.Contains(said(r), "undone") {
			t.Errorf("undone, and told as %s", said(r))
		}
		if can := c.reports("what_can_be_undone", map[string]any{"plan": plan}).Can; len(can) != 1 {
			t.Errorf("%+v", can)
		}
		if r := c.call("add", map[string]any{"text": "one"}, key, "k1", "sagenbaum/plan", plan); r.IsError {
			t.Errorf("it is there: %s", said(r))
		}
	}
	if len(lines(file)) != 1 {
		t.Errorf("there is %v", lines(file))
	}
}

// TestWhatIsHiddenIsNamed to people and to the agent: a server without a pack would have no tools, and
// nothing would say why.
func TestWhatIsHiddenIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, _ := w.notes(t)
	config.Packs = nil
	for _, unknown := range []mcp.Unknown{mcp.RefuseUnknown, mcp.RecordUnknown} {
		var log bytes.Buffer
		c := w.gateway(mcp.Config{Unknown: unknown, Logger: slog.New(slog.NewTextHandler(&log, nil))}, nil, config)
		said, logged := c.session.InitializeResult().Instructions, log.String()
		for _, text := range []string{said, logged} {
			if named := strings.Contains(text, "peek"); named != (unknown == mcp.RefuseUnknown) {
				t.Errorf("%s: it says %q", unknown, text)
			}
		}
		c.leave()
	}
}
