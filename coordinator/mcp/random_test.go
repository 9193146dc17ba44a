package mcp_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// messy calls a tool of the filesystem server at random. Many calls are refused by the server, and
// some by the gateway: outside of the folder, on what is no file, without a parent.
func messy(c *client, random *rand.Rand, dir string) (done bool) {
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	name := func() string {
		path := pick("a.txt", "windows.txt", "empty", "new", "ünï", "sub", "sub/b.txt", "sub/run.sh", "x")
		if random.IntN(3) == 0 {
			path = pick("sub", "x", "x/y", "new", "sub/deep") + "/" + path
		}
		if random.IntN(40) == 0 {
			return "/etc/none"
		}
		if random.IntN(10) == 0 {
			return path // relative
		}
		return filepath.Join(dir, path)
	}
	content := pick("", "short", "line\nline\n", strings.Repeat("long ", 3000), "<&> \" é \u2028")
	var result *sdk.CallToolResult
	switch random.IntN(6) {
	case 0, 1:
		result = c.call("write_file", map[string]any{"path": name(), "content": content})
	case 2:
		result = c.call("edit_file", map[string]any{"path": name(), "dryRun": random.IntN(5) == 0,
			"edits": []map[string]any{{"oldText": pick("line", "one", "short", "t", "nothing"),
				"newText": pick("other", "", "two\nlines")}}})
	case 3:
		result = c.call("create_directory", map[string]any{"path": name()})
	default:
		result = c.call("move_file", map[string]any{"source": name(), "destination": name()})
	}
	return !result.IsError
}

// A session of calls at random and undos between them, then all of it is undone: every byte, mode
// and time as before.
func TestRandomSessionsOnFilesAreUndone(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testenv.Cases(1, 20)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w, dir := newWorld(t), t.TempDir()
			random := rand.New(rand.NewPCG(seed, 1))
			furnish(t, dir)
			start := picture(t, dir)
			c := w.gateway(mcp.Config{ServeUndos: true}, nil, w.files(dir))
			done := 0
			for range 200 {
				if messy(c, random, dir) {
					done++
				}
				if random.IntN(15) > 0 {
					continue
				}
				can := c.call("what_can_be_undone", nil)
				if can.IsError || !strings.Contains(said(can), "can_be_undone") {
					continue
				}
				if r := c.call("undo_last", nil); r.IsError {
					t.Fatalf("undo_last: %s", said(r))
				}
			}
			if done < 30 {
				t.Errorf("only %d of 200 calls were done: the session proves little", done)
			}
			r := c.reports("plan_fail", nil)
			if r.State != "compensated" || len(r.Stands) > 0 {
				t.Errorf("plan_fail: %+v", r)
			}
			if d := differ(start, picture(t, dir)); d != "" {
				t.Errorf("left:\n%s", d)
			}
		})
	}
}

// graph is what the memory server has, each list sorted: an undo of a deletion appends.
type graph struct {
	Entities []struct {
		Name, EntityType string
		Observations     []string
	}
	Relations []struct{ From, To, RelationType string }
}

func (c *client) graph() string {
	c.t.Helper()
	var g graph
	if err := json.Unmarshal([]byte(c.does("read_graph", map[string]any{})), &g); err != nil {
		c.t.Fatal(err)
	}
	var lines []string
	for _, e := range g.Entities {
		slices.Sort(e.Observations)
		lines = append(lines, fmt.Sprintf("entity %q %q %q", e.Name, e.EntityType, e.Observations))
	}
	for _, r := range g.Relations {
		lines = append(lines, fmt.Sprintf("relation %q", r))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// muse calls one of the first tools of the memory server at random: the undo of the first two keeps
// the order of the file, the next one creates entities, the last three delete.
func muse(c *client, random *rand.Rand, tools int) {
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	name := func() string { return pick("Ada", "Bert", "Cleo", "Dan", "Eve", "Ghost") }
	fact := func() string { return pick("tall", "quick", "10.10", "likes <b>", "é") }
	relation := func() map[string]any {
		return map[string]any{"from": name(), "to": name(), "relationType": pick("knows", "owes")}
	}
	switch random.IntN(tools) {
	case 0:
		c.call("create_relations", map[string]any{"relations": []any{relation(), relation()}})
	case 1:
		c.call("add_observations", map[string]any{"observations": []map[string]any{
			{"entityName": name(), "contents": []string{fact(), fact()}}}})
	case 2:
		c.call("create_entities", map[string]any{"entities": []map[string]any{
			{"name": name(), "entityType": pick("person", "cat"), "observations": []string{fact(), fact()}},
			{"name": name(), "entityType": "person", "observations": []string{}}}})
	case 3:
		c.call("delete_entities", map[string]any{"entityNames": []string{name()}})
	case 4:
		c.call("delete_observations", map[string]any{"deletions": []map[string]any{
			{"entityName": name(), "observations": []string{fact(), fact()}}}})
	case 5:
		c.call("delete_relations", map[string]any{"relations": []any{relation()}})
	}
}

func TestRandomSessionsOnMemoryAreUndone(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testenv.Cases(3, 18)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w, file := newWorld(t), filepath.Join(t.TempDir(), "memory.jsonl")
			random := rand.New(rand.NewPCG(seed, 2))
			tools := []int{2, 3, 6}[seed%3]
			seedling := w.gateway(mcp.Config{}, nil, w.memory(file))
			for range 20 {
				muse(seedling, random, 3)
			}
			seedling.does("plan_commit", nil)
			start, bytes := seedling.graph(), read(t, file)
			c := w.gateway(mcp.Config{ServeUndos: true}, nil, w.memory(file))
			for range 100 {
				muse(c, random, tools)
			}
			if c.graph() == start {
				t.Fatal("nothing has changed: the session proves nothing")
			}
			r := c.reports("plan_fail", nil)
			if r.State != "compensated" || len(r.Stands) > 0 {
				t.Errorf("plan_fail: %+v", r)
			}
			if now := c.graph(); now != start {
				t.Errorf("the graph is\n%s\nwant\n%s", now, start)
			}
			if tools == 2 && read(t, file) != bytes {
				t.Errorf("the file is\n%s\nwant\n%s", read(t, file), bytes)
			}
		})
	}
}

func read(t testing.TB, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
