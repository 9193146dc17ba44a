package mcp_test

import (
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
)

// Of an answer that is too large for a record what its undo reads is kept.
func TestWhatAnUndoReadsOfALargeAnswerIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
	var plan string
	for _, size := range []int{10, 13 << 10, 30 << 10, 58 << 10, 60 << 10, 100 << 10, 2 << 20} {
		first := c.call("long", map[string]any{"text": "x", "bytes": size}, "sagenbaum/key", "k")
		plan = planOf(first)
		if can := c.reports("what_can_be_undone", nil).Can; len(can) != 1 || can[0].How != "exact" {
			t.Errorf("%d bytes: can be undone %+v", size, can)
		}
		// In another gateway only the ledger knows of it.
		again := said(w.gateway(mcp.Config{}, nil, config).call("long", map[string]any{"text": "x", "bytes": size},
			"sagenbaum/key", "k", "sagenbaum/plan", plan))
		if strings.Contains(again, `"pad"`) == (size >= 60<<10) ||
			size >= 60<<10 && !strings.Contains(again, "its result was too large to be kept") {
			t.Errorf("%d bytes: repeated with its key: %.200s", size, again)
		}
		other := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
		if got := other.reports("plan_fail", with(plan)); len(got.Undone) != 1 || got.State != "compensated" ||
			len(lines(file)) != 0 {
			t.Errorf("%d bytes: %+v, left %v", size, got, lines(file))
		}
		c.call("add", map[string]any{"text": "y"}) // is told that the plan is undone
	}
}

// What its undo reads and the answer does not have, or has too large, is said at once.
func TestAnUndoThatLacksWhatItReadsIsNotCalledExact(t *testing.T) {
	t.Parallel()
	_, file, c := session(t)
	for text, want := range map[string]string{
		"none":   "not exact: its undo reads output.result.id, which its answer did not have",
		"itself": "not exact: its undo reads output.result.id, which was too large to be kept",
	} {
		c.does("long", map[string]any{"text": text, "bytes": 100 << 10})
		can := c.reports("what_can_be_undone", nil).Can
		if len(can) != 1 || can[0].How != want {
			t.Errorf("%s: can be undone %+v, want %s", text, can, want)
		}
		if got := c.reports("plan_fail", nil); got.State != "quarantined" || !strings.Contains(got.Stands[0].How,
			"nothing names the effect") {
			t.Errorf("%s: %+v, left %v", text, got, lines(file))
		}
	}
}
