package mcp_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
)

var update = flag.Bool("update", false, "write the tables of tools in docs/guide/mcp.md")

// guide has a table for each server, from its pack and from what is measured here against the real
// server.
const guide = "../../docs/guide/mcp.md"

// tally is how exactly calls of each tool were undone.
type tally map[string][]contract.Fidelity

func (m tally) count(tool string, f contract.Fidelity) { m[tool] = append(m[tool], f) }

// tabled holds the tools of a server, and the guide, against what was measured.
func (m tally) tabled(t *testing.T, server string) {
	t.Helper()
	packs, err := mcp.BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	pack := packs[slices.IndexFunc(packs, func(p mcp.Pack) bool { return p.Server == server })]
	calls, rows, order := map[string]int{}, map[string][]string{}, []string{}
	for _, name := range undoable(pack) {
		tool := pack.Tools[name]
		found := contract.Exact
		if slices.Contains(m[name], contract.Semantic) {
			found = contract.Semantic
		}
		if len(m[name]) == 0 || found != tool.Fidelity || tool.Says.Before == "" || tool.Says.Undo == "" ||
			(tool.Says.Left == "") != (found == contract.Exact) {
			t.Errorf("%s is measured %q, its contract says %+v", name, m[name], tool)
		}
		left := string(found)
		if tool.Says.Left != "" {
			left += ": " + tool.Says.Left
		}
		row := fmt.Sprintf("| %s | %s | %s", tool.Says.Before, tool.Says.Undo, left)
		if calls[row] == 0 {
			order = append(order, row)
		}
		calls[row] += len(m[name])
		rows[row] = append(rows[row], "`"+name+"`")
	}
	table := "| tool | before | undo | fidelity | calls |\n|---|---|---|---|---|\n"
	for _, row := range order {
		table += fmt.Sprintf("| %s %s | %d |\n", strings.Join(rows[row], ", "), row, calls[row])
	}
	inGuide(t, server, table)
}

// undoable are the tools of a pack that can be undone.
func undoable(p mcp.Pack) (names []string) {
	for name, tool := range p.Tools {
		if tool.Class == contract.Compensable {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

var guideMu sync.Mutex

func inGuide(t *testing.T, server, table string) {
	t.Helper()
	guideMu.Lock()
	defer guideMu.Unlock()
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- tools of "+server+" -->\n\n", "\n<!-- end -->"
	before, rest, found := strings.Cut(string(text), begin)
	was, after, ended := strings.Cut(rest, end)
	switch {
	case !found || !ended:
		t.Errorf("%s has no %q with %q after it", guide, begin, end)
	case was == table:
	case *update:
		if err := os.WriteFile(guide, []byte(before+begin+table+end+after), 0o644); err != nil {
			t.Error(err)
		}
	default:
		t.Errorf("%s has\n%s\nwhat was measured:\n%s\ngo test ./coordinator/mcp -run AsItsTableSays -update",
			guide, was, table)
	}
}

// measured is a call of a tool.
type measured struct {
	tool string
	with map[string]any
}

// measure makes each call, undoes it, and says how exactly all is as before.
func measure(t *testing.T, c *client, calls []measured, look func() (exact, semantic string)) tally {
	t.Helper()
	m := tally{}
	for _, call := range calls {
		exact, semantic := look()
		c.does(call.tool, call.with)
		if now, _ := look(); now == exact {
			t.Errorf("%s %v has no effect", call.tool, call.with)
		}
		if r := c.reports("undo_last", nil); len(r.Undone) != 1 {
			t.Errorf("%s %v: %+v", call.tool, call.with, r)
		}
		switch nowExact, now := look(); {
		case nowExact == exact:
			m.count(call.tool, contract.Exact)
		case now == semantic:
			m.count(call.tool, contract.Semantic)
		default:
			t.Errorf("%s %v is not undone: there is\n%s\nwant\n%s", call.tool, call.with, now, semantic)
		}
	}
	return m
}

func TestEachToolOfFilesIsUndoneAsItsTableSays(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t), t.TempDir()
	furnish(t, dir)
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, w.files(dir))
	in := func(name string) string { return filepath.Join(dir, name) }
	edits := func(from, to string) []map[string]any { return []map[string]any{{"oldText": from, "newText": to}} }
	measure(t, c, []measured{
		{"write_file", map[string]any{"path": in("a.txt"), "content": "new"}},
		{"write_file", map[string]any{"path": in("new"), "content": "new"}},
		{"write_file", map[string]any{"path": in("sub/run.sh"), "content": strings.Repeat("long ", 5000)}},
		{"write_file", map[string]any{"path": in("sub/b.txt"), "content": ""}},
		{"edit_file", map[string]any{"path": in("a.txt"), "edits": edits("two", "2")}},
		{"edit_file", map[string]any{"path": in("windows.txt"), "edits": edits("one", "1")}},
		{"edit_file", map[string]any{"path": in("sub/b.txt"), "edits": edits("line", "other")}},
		{"create_directory", map[string]any{"path": in("new")}},
		{"create_directory", map[string]any{"path": in("sub/x/y/z")}},
		{"move_file", map[string]any{"source": in("a.txt"), "destination": in("sub/a")}},
		{"move_file", map[string]any{"source": in("sub"), "destination": in("moved")}},
		{"move_file", map[string]any{"source": in("sub/run.sh"), "destination": in("run")}},
	}, func() (string, string) {
		all := differ(nil, picture(t, dir))
		return all, all
	}).tabled(t, "secure-filesystem-server")
}

// The graph is such that what is put back is elsewhere in its list, where it can be.
func TestEachToolOfMemoryIsUndoneAsItsTableSays(t *testing.T) {
	t.Parallel()
	w, file := newWorld(t), filepath.Join(t.TempDir(), "memory.jsonl")
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, w.memory(file))
	entity := func(name string) map[string]any {
		return map[string]any{"name": name, "entityType": "t", "observations": []string{"tall", "quick"}}
	}
	relation := func(from, to string) map[string]any {
		return map[string]any{"from": from, "to": to, "relationType": "knows"}
	}
	c.does("create_entities", map[string]any{"entities": []map[string]any{entity("Ada"), entity("Bert"), entity("Cleo")}})
	c.does("create_relations", map[string]any{"relations": []any{relation("Ada", "Dan"), relation("Ada", "Bert"),
		relation("Bert", "Cleo")}})
	c.does("plan_commit", nil)
	about := func(of string, facts ...string) []map[string]any {
		return []map[string]any{{"entityName": "Ada", of: facts}}
	}
	measure(t, c, []measured{
		{"create_entities", map[string]any{"entities": []map[string]any{entity("Eve")}}},
		{"create_entities", map[string]any{"entities": []map[string]any{entity("Dan"), entity("Ada")}}},
		{"create_relations", map[string]any{"relations": []any{relation("Cleo", "Ada"), relation("Ada", "Bert")}}},
		{"add_observations", map[string]any{"observations": about("contents", "tall", "new")}},
		{"delete_relations", map[string]any{"relations": []any{relation("Ada", "Bert")}}},
		{"delete_observations", map[string]any{"deletions": about("observations", "tall")}},
		{"delete_entities", map[string]any{"entityNames": []string{"Ada", "None"}}},
	}, func() (string, string) { return read(t, file), c.graph() }).tabled(t, "memory-server")
}
