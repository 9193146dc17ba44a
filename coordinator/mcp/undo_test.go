package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// undoesSend is the configuration of the server of notes with a contract of its tool send, which adds the
// text that it is given, and with further lines of the pack.
func (w *world) undoesSend(t testing.TB, undo, more string) (config mcp.ServerConfig, file string) {
	t.Helper()
	return w.packed(t, "  send: {class: compensable, timeout: 2s, "+undo+"}\n"+more)
}

func (w *world) packed(t testing.TB, tools string) (config mcp.ServerConfig, file string) {
	t.Helper()
	config, file = w.notes(t)
	pack, err := mcp.ParsePack("p.yaml", []byte(notesPack+tools))
	if err != nil {
		t.Fatal(err)
	}
	config.Packs = []mcp.Pack{pack}
	return config, file
}

// An undo that has acted and whose answer is lost is not made again, unless something says that a
// second call is safe.
func TestAnUndoWhoseAnswerIsLostIsMadeOnce(t *testing.T) {
	t.Parallel()
	const no = "  add: {class: irreversible, not_taken: 'result == \"no\"'}\n"
	for _, test := range []struct {
		name, undo, more string
		notes            []string
		how              string
	}{
		{"the server dies", "undo: [{tool: die, with: {text: u}}]", "", []string{"a", "u"}, "die may have been made"},
		{"an error after acting", "undo: [{tool: fail, with: {text: =input.text}}]", "", []string{"a", "a"},
			"fail may have been made"},
		{"the second of two is not made", "undo: [{tool: send, with: {text: u}}, {tool: add, with: {text: no}}]", no,
			[]string{"a", "u"}, "send was made"},
		{"the second of two is refused", "undo: [{tool: send, with: {text: u}}, {tool: add, with: {text: refused}}]", "",
			[]string{"a", "u"}, "send was made"},
		{"done without a probe", "undo: [{tool: send, with: {text: u}}], done: 'input.text == \"x\"'", "",
			[]string{"a", "u"}, "still there after its undo: send was made"},
		{"it is not made", "undo: [{tool: add, with: {text: no}}]", no, []string{"a"}, "error: add: no"},
		{"it is refused", "undo: [{tool: add, with: {text: refused}}]", "", []string{"a"}, "refused: add: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			config, file := w.undoesSend(t, test.undo, test.more)
			c := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
			c.does("send", map[string]any{"text": "a"})
			r := c.reports("plan_fail", nil)
			if len(r.Stands) != 1 || !strings.Contains(r.Stands[0].How, test.how) {
				t.Errorf("it says %+v, want %s", r, test.how)
			}
			if got := lines(file); !slices.Equal(got, test.notes) {
				t.Errorf("the notes are %v, want %v", got, test.notes)
			}
		})
	}
}

// A not_taken that reads what an error does not have is never true, and it is said.
func TestANotTakenWithoutAnAnswerIsSaid(t *testing.T) {
	t.Parallel()
	for condition, silent := range map[string]bool{"result.code == 3": false, "result == \"3\"": true} {
		w := newWorld(t)
		config, _ := w.packed(t, "  fail: {class: irreversible, not_taken: '"+condition+"'}\n")
		var log strings.Builder
		config.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c := w.gateway(mcp.Config{}, nil, config)
		if r := c.call("fail", map[string]any{"text": "x"}); !r.IsError {
			t.Error(said(r))
		}
		if can := c.reports("what_can_be_undone", nil).Stands; len(can) != 1 {
			t.Errorf("%s: it is taken for one that has not happened: %+v", condition, can)
		}
		if quiet := !strings.Contains(log.String(), "not_taken"); quiet != silent ||
			!silent && !strings.Contains(log.String(), "result.code == 3") {
			t.Errorf("%s: the log has %q", condition, log.String())
		}
	}
}

// A recipe that was frozen before steps had key and idempotent says nothing of a second call.
func TestAnUndoOfAnOldRecipeIsMadeOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	config.Packs = []mcp.Pack{{Server: "notes-server", Tools: map[string]mcp.Tool{"send": {Class: "compensable",
		Undo: []mcp.Step{{Tool: "fail", With: map[string]any{"text": "u", "key": "=meta.key"}}}}}}}
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
	c.does("send", map[string]any{"text": "a"})
	if r := c.reports("plan_fail", nil); len(r.Stands) != 1 || !strings.Contains(r.Stands[0].How, "not made again") {
		t.Errorf("it says %+v", r)
	}
	if got := lines(file); !slices.Equal(got, []string{"a", "u"}) {
		t.Errorf("the notes are %v", got)
	}
}

// A step is not made of which nothing says what it means.
func TestAnUndoThatNothingNamesIsNotSent(t *testing.T) {
	t.Parallel()
	const unnamed = `argument "text" of remove`
	for _, test := range []struct {
		name, forward, contract string
		undone                  bool
	}{
		{"the answer has no such field", "add", "undo: [{tool: remove, with: {text: =output.result.id}}]", false},
		{"in doubt", "die", "undo: [{tool: remove, with: {text: =output.result.id}}]", false},
		{"in a list", "add", "undo: [{tool: remove, with: {text: [=output.result.id]}}]", false},
		{"the second step", "add",
			"undo: [{tool: send, with: {text: =input.text}}, {tool: remove, with: {text: =output.result.id}}]", false},
		{"a probe that does not name it", "add", "probe: {tool: peek}, undo: [{tool: remove, with: {text: =probe.id}}]",
			false},
		{"a question that nothing names", "add", "probe: {tool: remove, with: {text: =output.result.id}}, " +
			"done: 'probe != null', undo: [{tool: send, with: {text: =input.text}}]", false},
		{"what is kept of a probe", "add", "probe: {tool: tell, keep: {notes: {like: '=[{\"text\": output.result.id}]', " +
			"by: [text]}}}, done: 'probe.notes.size() == 0', undo: [{tool: remove, with: {text: =output.result.id}}]", false},
		{"a list of a probe", "add", "probe: {tool: tell, lists: [{name: left, of: =probe.notes, " +
			"like: '=[output.result.id]', any: [text]}]}, done: 'probe.left.size() == 0', " +
			"undo: [{tool: remove, with: {text: =output.result.id}}]", false},
		{"the input tells it", "add", "undo: [{tool: remove, with: {text: =input.text, key: =output.result.id}}]", true},
		{"nothing is to be undone", "add", "probe: {tool: peek}, done: 'input.text in probe.notes', " +
			"undo: [{tool: remove, with: {text: =output.result.id}}]", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			config, file := w.packed(t, "  "+test.forward+": {class: compensable, timeout: 2s, "+test.contract+"}\n")
			c := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
			c.call(test.forward, map[string]any{"text": "a"})
			r := c.reports("plan_fail", nil)
			if test.undone {
				if len(r.Undone) != 1 {
					t.Errorf("it says %+v", r)
				}
				return
			}
			if len(r.Stands) != 1 || !strings.Contains(r.Stands[0].How, unnamed) {
				t.Errorf("it says %+v, want %s", r, unnamed)
			}
			if got := lines(file); !slices.Equal(got, []string{"a"}) {
				t.Errorf("the notes are %v", got)
			}
		})
	}
}

// Where a second call is known to be safe an undo is made again, in doubt, under the same key.
func TestAnUndoThatMayBeMadeAgainIs(t *testing.T) {
	t.Parallel()
	for name, undo := range map[string]string{
		"idempotent": "[{tool: fail, with: {text: u}, idempotent: true}]",
		"key":        "[{tool: send, with: {text: first}, key: key}, {tool: fail, with: {text: u}, key: key}]",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			config, file := w.undoesSend(t, "undo: "+undo, "")
			c := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
			plan := planOf(c.call("send", map[string]any{"text": "a"}))
			r := c.reports("plan_fail", nil)
			if len(r.Stands) != 1 || !strings.Contains(r.Stands[0].How, "failed half way") ||
				strings.Contains(r.Stands[0].How, "not made again") {
				t.Errorf("it says %+v", r)
			}
			var made []string
			for _, line := range lines(file) {
				if strings.HasPrefix(line, "u") {
					made = append(made, line)
				}
			}
			if len(made) < 2 || len(slices.Compact(slices.Clone(made))) != 1 || (name == "key") != (len(made[0]) > 30) {
				t.Errorf("the undo was made as %q", made)
			}
			for _, attempt := range w.undosOf(plan) {
				if attempt.State != "in_doubt" {
					t.Errorf("attempt %+v", attempt)
				}
			}
		})
	}
}

// undosOf are the attempts of the undos of a plan.
func (w *world) undosOf(plan string) []api.Undo {
	w.t.Helper()
	body, err := json.Marshal(api.UndoQuery{Plan: plan})
	if err != nil {
		w.t.Fatal(err)
	}
	reply, err := w.conn.RequestWithContext(w.t.Context(), api.UndoLs.Subject("default"), body)
	var answer api.UndosAnswer
	if err == nil {
		err = json.Unmarshal(reply.Data, &answer)
	}
	if err != nil || len(answer.Undos) == 0 {
		w.t.Fatalf("the attempts are %+v, %v", answer, err)
	}
	return answer.Undos
}

// An attempt whose time was over, as one whose process was killed, may have been made: the next one does
// not make it again, and that of its owner's answer does.
func TestAnUndoThatWasInterruptedIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.undoesSend(t, "undo: [{tool: hang, with: {text: u}}, {tool: remove}]", "")
	s := w.server(config)
	defer s.Close()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	const recipe = `{"recipe":"{\"tool\":\"send\",\"undo\":[{\"tool\":\"%s\",\"with\":{\"text\":\"u\"}}]}","input":{}}`
	command := func(tool string) api.Command {
		return api.Command{Key: strings.Repeat("0", 32), Arguments: json.RawMessage(fmt.Sprintf(recipe, tool))}
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Undoes(ctx, command("hang")) }()
	for len(lines(file)) == 0 {
		runtime.Gosched()
	}
	end()
	if err := <-ended; err == nil {
		t.Error("it was undone")
	}
	if err := s.Undoes(t.Context(), command("remove")); !errors.Is(err, worker.ErrStop) ||
		!strings.Contains(err.Error(), "interrupted") || !strings.Contains(err.Error(), "hang may have been made") {
		t.Errorf("the next attempt: %v", err)
	}
	if got := lines(file); !slices.Equal(got, []string{"u"}) {
		t.Errorf("the notes are %v", got)
	}
	for range 2 { // the owner's answer; and what has ended is not interrupted
		if err := s.Undoes(t.Context(), command("remove")); err != nil {
			t.Error(err)
		}
	}
}

// What an answer has in the place of a name, and is none: no undo is sent for it, no condition says that
// it is done, and the owner hears what it is, as the agent does before.
func TestAnAnswerThatNamesNothingIsNoName(t *testing.T) {
	t.Parallel()
	const undo = "undo: [{tool: remove, with: {text: =output.result.id}}]"
	contracts := map[string]string{
		"blind":     undo,
		"in":        "probe: {tool: peek}, done: '!(output.result.id in probe.notes)', " + undo,
		"exists":    "probe: {tool: peek}, done: '!probe.notes.exists(n, n == output.result.id)', " + undo,
		"has":       "probe: {tool: peek}, done: '!has(output.result.id)', " + undo,
		"choice":    "probe: {tool: peek}, done: '!(output.?result.?id.orValue(0) in probe.notes)', " + undo,
		"the probe": "probe: {tool: peek, with: {key: =output.result.id}}, done: 'probe.notes.size() == 0', " + undo,
		"keep": "probe: {tool: tell, keep: {notes: {like: '=[{\"text\": output.result.id}]', by: [text]}}}, " +
			"done: 'probe.notes.size() == 0', " + undo,
		"lists": "probe: {tool: tell, lists: [{name: left, of: =probe.notes, like: '=[output.result.id]', any: [text]}]}, " +
			"done: 'probe.left.size() == 0', " + undo,
	}
	for answer, is := range map[string]string{
		`{"id":null}`:       "null",
		`{"id":""}`:         "an empty string",
		`{"id":" "}`:        "an empty string",
		`{"id":[]}`:         "an empty array",
		`{"id":{}}`:         "an empty object",
		`{"id":["a"]}`:      "of type array, and it takes string",
		`{"id":{"text":1}}`: "of type object, and it takes string",
		`{"id":7}`:          "of type integer, and it takes string",
		`{"id":7.5}`:        "of type number, and it takes string",
		`{"id":true}`:       "of type boolean, and it takes string",
	} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			for name, contract := range contracts {
				config, file := w.packed(t, "  mint: {class: compensable, timeout: 2s, fidelity: exact, "+contract+"}\n")
				c := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
				plan := planOf(c.call("mint", map[string]any{"text": "a", "answer": json.RawMessage(answer)}))
				if r := c.reports("what_can_be_undone", nil); len(r.Can) != 1 ||
					r.Can[0].How != "not exact: its undo reads output.result.id, which is "+is {
					t.Errorf("%s: before: %+v", name, r.Can)
				}
				r := c.reports("plan_fail", nil)
				if len(r.Undone) > 0 || len(r.Stands) != 1 ||
					!strings.Contains(r.Stands[0].How, `argument "text" of remove reads is `+is+", so it was not called") {
					t.Errorf("%s: it says %+v", name, r)
				}
				if state := w.state(plan, ledger.StateQuarantined); state != ledger.StateQuarantined {
					t.Errorf("%s: the plan is %s", name, state)
				}
				if got := lines(file); !slices.Equal(got, []string{"a"}) {
					t.Errorf("%s: the notes are %v", name, got)
				}
			}
		})
	}
}

// A tool may mean the one value of a name that its answer has twice, and its undo read the other: none
// reads such an answer, whether it is structured or a text, and none says that it is done.
func TestAnUndoReadsNoAnswerWithANameTwice(t *testing.T) {
	t.Parallel()
	contracts := map[string]string{"blind": "", "in": "probe: {tool: peek}, done: '!(output.result.id in probe.notes)', ",
		"has": "probe: {tool: peek}, done: '!has(output.result.id)', "}
	for answer, at := range map[string]string{
		`{"id":"a","id":"b"}`:                    ".id",
		`{"id":"a","\u0069d":"b"}`:               ".id",
		`{"id":"b","more":[1,{"x":1,"x":null}]}`: ".more[1].x",
	} {
		for _, as := range []string{"written", "spoke"} {
			t.Run(as+" "+answer, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				for name, contract := range contracts {
					config, file := w.packed(t, "  send: {class: effectless}\n  mint: {class: compensable, timeout: 2s, "+
						"fidelity: exact, "+contract+"undo: [{tool: remove, with: {text: =output.result.id}}]}\n")
					c := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
					c.does("send", map[string]any{"text": "b"})
					c.call("mint", map[string]any{"text": "a", as: answer})
					if r := c.reports("what_can_be_undone", nil); len(r.Can) != 1 || r.Can[0].How !=
						"not exact: its undo reads output.result.id, as its answer has a name twice, at "+at {
						t.Errorf("%s: before: %+v", name, r.Can)
					}
					r := c.reports("plan_fail", nil)
					if len(r.Undone) > 0 || len(r.Stands) != 1 || !strings.Contains(r.Stands[0].How, `argument "text" of remove`) {
						t.Errorf("%s: it says %+v", name, r)
					}
					if got := lines(file); !slices.Equal(got, []string{"b", "a"}) {
						t.Errorf("%s: the notes are %v", name, got)
					}
				}
			})
		}
	}
}

// A tool may read the one of two arguments of a name, and its contract the other, which then says of a
// call with an effect that it has none, or lets one pass that it refuses.
func TestACallWithAnArgumentTwiceIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	c, _ := w.rawClient(t, config)
	for id, call := range []string{`"add","arguments":{"text":"a","dry":false,"dry":true}`,
		`"shout","arguments":{"text":"quiet","text":"a"}`, `"add","arguments":{"text":"a","x":{"y":1,"y":2}}`} {
		c.says(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%s}}`, id+2, call))
		if got := c.answer(id + 2); !strings.Contains(got, "given twice") || !strings.Contains(got, "Nothing was done.") {
			t.Errorf("%s: %s", call, got)
		}
	}
	if got := lines(file); len(got) != 0 {
		t.Errorf("the notes are %v", got)
	}
}
