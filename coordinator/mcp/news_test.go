package mcp_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
)

// session is one of a gateway that undoes, with the file of its notes.
func session(t *testing.T) (w *world, file string, c *client) {
	t.Helper()
	w = newWorld(t)
	config, file := w.notes(t)
	return w, file, w.gateway(mcp.Config{ServeUndos: true}, nil, config)
}

// sessions are two of one gateway, with the file of its notes.
func sessions(t *testing.T) (w *world, file string, a, b *client) {
	t.Helper()
	return sessionsOf(t, mcp.Config{ServeUndos: true})
}

func sessionsOf(t *testing.T, gateway mcp.Config) (w *world, file string, a, b *client) {
	t.Helper()
	w = newWorld(t)
	config, file := w.notes(t)
	first := w.gateway(gateway, nil, config)
	server := serves(t, first.gateway.Handler(""))
	connect := func() *client {
		return &client{t: t, gateway: first.gateway, session: connects(t, server.URL, nil)}
	}
	return w, file, connect(), connect()
}

// An agent hears once what another session has done to its plan, as it hears of what a person has: with
// its next call, which is not made.
func TestAnAgentHearsWhatAnotherSessionHasDoneToItsPlan(t *testing.T) {
	t.Parallel()
	w, file, a, b := sessions(t)
	for name, c := range map[string]struct {
		does func(plan string)
		want string // of what A is told; empty: of nothing
	}{
		"failed":       {func(plan string) { b.reports("plan_fail", with(plan, "reason", "by B")) }, "compensated: by B"},
		"committed":    {func(plan string) { b.reports("plan_commit", with(plan)) }, "it is committed"},
		"a part":       {func(plan string) { b.reports("undo_last", with(plan)) }, "a part of the plan was undone: add"},
		"looked at":    {func(plan string) { w.undoes(plan, ""); b.reports("plan_status", with(plan)) }, "compensated"},
		"by a person":  {func(plan string) { w.undoes(plan, "") }, "compensated: wrong"},
		"by itself":    {func(plan string) { a.reports("plan_fail", with(plan)) }, ""},
		"its own part": {func(string) { a.reports("undo_last", nil) }, ""},
	} {
		plan := planOf(a.call("add", map[string]any{"text": "earlier"}))
		c.does(plan)
		next := a.call("add", map[string]any{"text": name})
		told := said(next)
		if c.want == "" {
			if next.IsError {
				t.Errorf("%s: %s", name, told)
			}
			a.does("plan_fail", nil)
			continue
		}
		if !next.IsError || !strings.Contains(told, c.want) || !strings.Contains(told, "Nothing was done") {
			t.Errorf("%s: the next call says %s", name, told)
		}
		if strings.Contains(read(t, file), name) {
			t.Errorf("%s: the call was made: %s", name, read(t, file))
		}
		again := a.call("add", map[string]any{"text": name})
		if again.IsError || (planOf(again) == plan) != (name == "a part") {
			t.Errorf("%s: the call after that, under %s after %s, says %s", name, planOf(again), plan, said(again))
		}
		a.does("plan_fail", nil)
	}
}

// A plan that is not over yet is not called undone: what stays would be done again.
func TestAnAgentHearsOfAPlanThatIsNotOverYet(t *testing.T) {
	t.Parallel()
	w, file, a, b := sessionsOf(t, mcp.Config{})
	b.gateway.WaitsForUndos(time.Millisecond)
	plan := planOf(a.call("add", map[string]any{"text": "earlier"}))
	b.does("plan_fail", with(plan))
	if r := a.call("add", map[string]any{"text": "more"}); !strings.Contains(said(r), "the plan is being undone") {
		t.Errorf("while it is being undone: %s", said(r))
	}
	plan = planOf(a.call("add", map[string]any{"text": "earlier"}))
	w.leaves(a, "lazy", "error", file)
	a.does("add", map[string]any{"text": "next"}) // once the other call is in doubt
	_ = b.call("plan_commit", with(plan))         // which waits for the owner
	b.does("plan_status", with(plan))
	if r := a.call("add", map[string]any{"text": "more"}); !strings.Contains(said(r), "it is committed") {
		t.Errorf("while its commit waits: %s", said(r))
	}
}

// What another session has done is also heard by a call of the gateway's own tools, which would do
// something else than is meant.
func TestTheGatewaysToolsSayWhatAnotherSessionHasDone(t *testing.T) {
	t.Parallel()
	_, file, a, b := sessions(t)
	a.does("add", map[string]any{"text": "one"})
	plan := planOf(a.call("add", map[string]any{"text": "two"}))
	for _, tool := range []string{"undo_last", "plan_commit"} {
		b.reports("undo_last", with(plan))
		if r := a.call(tool, nil); !r.IsError || !strings.Contains(said(r), "a part of the plan was undone: add") {
			t.Errorf("%s after an undo of a part: %s", tool, said(r))
		}
		if left := len(lines(file)); left != 1 {
			t.Errorf("%s: there is %v", tool, lines(file))
		}
		a.does("add", map[string]any{"text": "three"})
	}
	b.reports("plan_fail", with(plan, "reason", "by B"))
	if r := a.call("undo_last", nil); !r.IsError || !strings.Contains(said(r), "compensated: by B") {
		t.Errorf("undo_last after plan_fail: %s", said(r))
	}
	plan = planOf(a.call("add", map[string]any{"text": "four"}))
	b.reports("plan_fail", with(plan, "reason", "by B"))
	if r := a.reports("plan_begin", nil); !strings.Contains(r.Message, "compensated: by B") {
		t.Errorf("plan_begin after plan_fail: %+v", r)
	}
	if r := a.call("add", map[string]any{"text": "five"}); r.IsError {
		t.Errorf("it is told twice: %s", said(r))
	}
}

// with are arguments of a tool of the gateway.
func with(plan string, more ...string) map[string]any {
	arguments := map[string]any{"plan": plan}
	for i := 0; i+1 < len(more); i += 2 {
		arguments[more[i]] = more[i+1]
	}
	return arguments
}

// A gateway that leaves the undos to a worker says so where none has made them.
func TestAnUndoThatNoWorkerMakesSaysWhichOneItWaitsFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, _ := w.notes(t)
	c := w.gateway(mcp.Config{Worker: "sagenbaum mcp worker -- notes"}, nil, config)
	c.gateway.WaitsForUndos(time.Second)
	for _, tool := range []string{"plan_fail", "undo_last"} {
		plan := planOf(c.call("add", map[string]any{"text": "x"}))
		r := c.reports(tool, nil)
		if r.Plan != plan || !strings.Contains(r.Message, "no worker has within 1s: it waits until one runs, as "+
			"sagenbaum mcp worker -- notes") {
			t.Errorf("%s of plan %s: %+v", tool, plan, r)
		}
	}
}
