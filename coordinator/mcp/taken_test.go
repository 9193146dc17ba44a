package mcp_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
)

// TestARecalledResultLeavesThePlanToItsGateway: a call that is made again with its key, on another gateway
// while the first one is there, is read, whether it names the plan or not. The first one goes on.
func TestARecalledResultLeavesThePlanToItsGateway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.stages(t, map[string]string{"send": ""})
	c, d := w.gateway(mcp.Config{}, nil, config), w.gateway(mcp.Config{}, nil, config)
	const key = "sagenbaum/key"
	plan := planOf(c.call("add", map[string]any{"text": "one"}))
	for tool, text := range map[string]string{"add": "two", "send": "three", "fail": "half"} {
		arguments := map[string]any{"text": text}
		first := c.call(tool, arguments, key, text)
		for _, named := range [][]any{{key, text}, {key, text, "sagenbaum/plan", plan}} {
			again := d.call(tool, arguments, named...)
			if again.IsError != first.IsError || tool != "fail" && (planOf(again) != plan ||
				again.Meta["sagenbaum/action"] != first.Meta["sagenbaum/action"]) {
				t.Errorf("%s again: %s %v, first %s %v", tool, said(again), again.Meta, said(first), first.Meta)
			}
		}
	}
	for _, r := range w.records(plan) {
		if r.GetPlanResumed() != nil {
			t.Error("the plan was resumed")
		}
	}
	if r := c.call("add", map[string]any{"text": "four"}); r.IsError || planOf(r) != plan {
		t.Errorf("the first gateway does not go on: %s", said(r))
	}
	if got := lines(file); !slices.Equal(got, []string{"one", "two", "half", "four"}) &&
		!slices.Equal(got, []string{"one", "half", "two", "four"}) {
		t.Errorf("there is %v", got)
	}
}

// TestAPlanThatAnotherGatewayHasTakenOverIsTakenBack by who names it, after one call that says so.
func TestAPlanThatAnotherGatewayHasTakenOverIsTakenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	c := w.gateway(mcp.Config{ServeUndos: true, OnDisconnect: mcp.CommitPlan}, nil, config)
	d := w.gateway(mcp.Config{}, nil, config)
	plan := planOf(c.call("add", map[string]any{"text": "one"}))
	here := map[string]any{"plan": plan}
	take := func(text string) {
		t.Helper()
		if r := d.call("add", map[string]any{"text": text}, "sagenbaum/plan", plan); r.IsError {
			r = d.call("add", map[string]any{"text": text}, "sagenbaum/plan", plan)
			if r.IsError {
				t.Fatal(said(r))
			}
		}
	}
	for i, call := range []func() *sdk.CallToolResult{
		func() *sdk.CallToolResult {
			return c.call("add", map[string]any{"text": "ours"}, "sagenbaum/plan", plan)
		},
		func() *sdk.CallToolResult { return c.call("undo_last", here) },
	} {
		take(fmt.Sprint("theirs ", i))
		r := call()
		if !r.IsError || !strings.Contains(said(r), "another process has taken over the plan") ||
			!strings.Contains(said(r), "a call that names it (plan, or _meta sagenbaum/plan) goes on with it here") {
			t.Errorf("it says %s", said(r))
		}
		if r := call(); r.IsError {
			t.Errorf("again it says %s", said(r))
		}
	}
	if got := lines(file); !slices.Equal(got, []string{"one", "theirs 0", "ours"}) {
		t.Errorf("there is %v", got)
	}
	if r := c.call("add", map[string]any{"text": "other"}); r.IsError || planOf(r) == plan {
		t.Errorf("a call that names no plan: %s under %s", said(r), planOf(r))
	}
	c.leave()
	if state := w.state(plan, "committed"); state != "committed" || c.end != nil {
		t.Errorf("once its client has gone the plan is %s, %v", state, c.end)
	}
}

// TestAPlanThatAnotherGatewayHasIsNotEnded by the end of the client that began it, which says so.
func TestAPlanThatAnotherGatewayHasIsNotEnded(t *testing.T) {
	t.Parallel()
	for _, heard := range []bool{false, true} {
		w := newWorld(t)
		config, _ := w.notes(t)
		c := w.gateway(mcp.Config{OnDisconnect: mcp.FailPlan}, nil, config)
		d := w.gateway(mcp.Config{}, nil, config)
		plan := planOf(c.call("add", map[string]any{"text": "one"}))
		if r := d.call("add", map[string]any{"text": "two"}, "sagenbaum/plan", plan); r.IsError {
			t.Fatal(said(r))
		}
		if heard {
			c.call("plan_commit", nil)
		}
		c.leave()
		if c.end == nil || !strings.Contains(c.end.Error(), "not ended: another process has taken over the plan") {
			t.Errorf("its client has heard of it %v: the end says %v", heard, c.end)
		}
		if r := d.call("add", map[string]any{"text": "three"}, "sagenbaum/plan", plan); r.IsError {
			t.Error(said(r))
		}
	}
}
