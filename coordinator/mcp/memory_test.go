package mcp_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
)

// Calls with as many items as a command of their undo carries are undone; the guards of the pack
// compare each item with each. A call with more is refused before it has an effect.
func TestCallsOfManyItemsOnMemoryAreUndone(t *testing.T) {
	t.Parallel()
	w, file := newWorld(t), filepath.Join(t.TempDir(), "memory.jsonl")
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, w.memory(file))
	const n = 150
	name := func(i int) string { return fmt.Sprint("N", i) }
	var entities, relations []map[string]any
	var names, facts []string
	for i := range n {
		entities = append(entities, map[string]any{"name": name(i), "entityType": "t", "observations": []string{"o"}})
		relations = append(relations, map[string]any{"from": name(i), "to": name((i + 1) % n), "relationType": "r"})
		names, facts = append(names, name(i)), append(facts, fmt.Sprint("fact ", i))
	}
	long := map[string]any{"entities": []map[string]any{{"name": "long", "entityType": "t",
		"observations": []string{strings.Repeat("o", 30_000)}}}}
	for _, call := range []struct {
		tool  string
		with  map[string]any
		keeps bool // for the calls that come after it
	}{
		{"create_entities", map[string]any{"entities": entities}, true},
		{"create_entities", long, false},
		{"create_relations", map[string]any{"relations": relations}, true},
		{"delete_relations", map[string]any{"relations": relations}, false},
		{"add_observations", map[string]any{"observations": []map[string]any{
			{"entityName": name(0), "contents": facts}}}, true},
		{"delete_observations", map[string]any{"deletions": []map[string]any{
			{"entityName": name(0), "observations": facts}}}, false},
		{"delete_entities", map[string]any{"entityNames": names}, false},
	} {
		start := c.graph()
		c.does(call.tool, call.with)
		if c.graph() == start {
			t.Fatalf("%s has no effect", call.tool)
		}
		if r := c.reports("undo_last", nil); len(r.Undone) != 1 {
			t.Fatalf("%s: %.600s", call.tool, fmt.Sprintf("%+v", r))
		}
		if c.graph() != start {
			t.Errorf("%s is not undone", call.tool)
		}
		if call.keeps {
			c.does(call.tool, call.with)
			c.does("plan_commit", nil)
		}
	}
	start := c.graph()
	for tool, with := range map[string]map[string]any{
		"create_entities": {"entities": []map[string]any{{"name": "huge", "entityType": "t",
			"observations": []string{strings.Repeat("o", 60_500)}}}},
		"delete_entities": {"entityNames": append(names, strings.Repeat("n", 50_000))},
	} {
		r := c.call(tool, with)
		if !r.IsError || !strings.Contains(said(r), "Nothing was done") ||
			!strings.Contains(said(r), "at most 61440 bytes") {
			t.Errorf("%s: %.600s", tool, said(r))
		}
	}
	if c.graph() != start {
		t.Error("a call that was refused has an effect")
	}
}

// An observation that an entity has twice, as the server lets it be created, is there twice again.
func TestAnObservationThatWasThereTwiceIsThereTwiceAgain(t *testing.T) {
	t.Parallel()
	w, file := newWorld(t), filepath.Join(t.TempDir(), "memory.jsonl")
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, w.memory(file))
	c.does("create_entities", map[string]any{"entities": []map[string]any{{"name": "Ada", "entityType": "t",
		"observations": []string{"tall", "tall", "quick"}}}})
	start := c.graph()
	c.does("delete_observations", map[string]any{"deletions": []map[string]any{
		{"entityName": "Ada", "observations": []string{"tall"}}}})
	if r := c.reports("undo_last", nil); len(r.Undone) != 1 || c.graph() != start {
		t.Errorf("undo_last: %+v: the graph is\n%s\nwant\n%s", r, c.graph(), start)
	}
	if r := c.reports("plan_fail", nil); r.State != "compensated" || c.graph() != "" {
		t.Errorf("plan_fail: %+v: the graph is\n%s", r, c.graph())
	}
}

// The server lets two entities have one name, and changes the observations of the first: what the
// other one has is no reason to leave it.
func TestTheFirstOfTwoEntitiesOfOneNameIsAsBefore(t *testing.T) {
	t.Parallel()
	w, file := newWorld(t), filepath.Join(t.TempDir(), "memory.jsonl")
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, w.memory(file))
	entity := func(observations ...string) map[string]any {
		return map[string]any{"name": "Ada", "entityType": "t", "observations": observations}
	}
	c.does("create_entities", map[string]any{"entities": []map[string]any{entity("quick"), entity("quick", "tall")}})
	for tool, with := range map[string]map[string]any{
		"add_observations":    {"observations": []map[string]any{{"entityName": "Ada", "contents": []string{"tall"}}}},
		"delete_observations": {"deletions": []map[string]any{{"entityName": "Ada", "observations": []string{"quick"}}}},
		"delete_entities":     {"entityNames": []string{"Ada"}},
	} {
		start := c.graph()
		if c.does(tool, with); c.graph() == start {
			t.Fatalf("%s has no effect", tool)
		}
		if r := c.reports("undo_last", nil); len(r.Undone) != 1 || c.graph() != start {
			t.Errorf("%s: %+v: the graph is\n%s\nwant\n%s", tool, r, c.graph(), start)
		}
	}
	if r := c.reports("plan_fail", nil); r.State != "compensated" || c.graph() != "" {
		t.Errorf("plan_fail: %+v: the graph is\n%s", r, c.graph())
	}
}
