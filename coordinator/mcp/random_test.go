//go:build exercise

package mcp_test

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
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
			t.Parallel()
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

// A session that is committed has left what it leaves without a gateway: every byte and mode.
func TestACommittedSessionIsAsWithoutTheGateway(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testenv.Cases(1, 10)) {
		w, here, there := newWorld(t), t.TempDir(), t.TempDir()
		furnish(t, here)
		furnish(t, there)
		config := w.files(there)
		session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
			&sdk.CommandTransport{Command: exec.Command(config.Command, config.Args...)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = session.Close() })
		c, direct := w.gateway(mcp.Config{ServeUndos: true}, nil, w.files(here)), &client{t: t, session: session}
		a, b := rand.New(rand.NewPCG(seed, 6)), rand.New(rand.NewPCG(seed, 6))
		done := 0
		for range 200 {
			through, past := messy(c, a, here), messy(direct, b, there)
			if through != past {
				t.Fatalf("seed %d: a call is done: %v, and without the gateway: %v", seed, through, past)
			}
			if past {
				done++
			}
		}
		if r := c.reports("plan_commit", nil); r.State != "committed" || done < 30 {
			t.Errorf("seed %d: %+v, %d calls were done", seed, r, done)
		}
		if d := differ(untimed(picture(t, there)), untimed(picture(t, here))); d != "" {
			t.Errorf("seed %d: without the gateway, and with it:\n%s", seed, d)
		}
	}
}

// untimed leaves the times of a picture out.
func untimed(tree map[string]string) map[string]string {
	for name, line := range tree {
		words := strings.SplitN(line, " ", 3) // mode, time, the rest
		tree[name] = strings.Join(append(words[:1:1], words[2:]...), " ")
	}
	return tree
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
			t.Parallel()
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
			for range testenv.Cases(100, 200) {
				muse(c, random, tools)
			}
			if c.graph() == start {
				t.Fatal("nothing has changed: the session proves nothing")
			}
			r := c.reports("plan_fail", nil)
			t.Logf("%d calls undone", len(r.Undone))
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

// untidy calls a tool of Git, or writes a file, at random.
func untidy(c *client, random *rand.Rand, dir string) (done bool) {
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	branch := func() string { return pick("main", "side", "b1", "b2", "b3") }
	target := func() string { return pick("HEAD", "HEAD~1", "main", "side", "v1", "b1") }
	flag := func() bool { return random.IntN(2) == 0 }
	call := func(tool string, with map[string]any) *sdk.CallToolResult {
		with["path"] = dir
		return c.call("git__git_"+tool, with)
	}
	var r *sdk.CallToolResult
	switch random.IntN(14) {
	case 0, 1, 2:
		r = c.call("filesystem__write_file", map[string]any{"content": pick("x", "y\n", "z\nz\n"),
			"path": filepath.Join(dir, pick("a.txt", "sub/b.txt", "new", "unknown"))})
	case 3, 4:
		r = call("add", map[string]any{"all": true})
	case 5, 6:
		r = call("commit", map[string]any{"message": pick("one", "two"), "allowEmpty": flag(), "amend": random.IntN(4) == 0})
	case 7:
		r = call("branch", map[string]any{"mode": "create", "branchName": branch(), "startPoint": target()})
	case 8:
		r = call("branch", map[string]any{"mode": pick("delete", "rename"), "branchName": branch(),
			"newBranchName": branch(), "force": flag()})
	case 9, 10:
		r = call("checkout", map[string]any{"target": branch(), "force": flag(), "createBranch": random.IntN(4) == 0})
	case 11:
		r = call("reset", map[string]any{"mode": pick("soft", "mixed", "hard"), "target": target(), "confirmed": true})
	case 12:
		r = call("stash", map[string]any{"mode": pick("push", "drop"), "includeUntracked": flag()})
	case 13:
		r = call("tag", map[string]any{"mode": pick("create", "delete"), "tagName": pick("v1", "v2"), "force": flag()})
	}
	return !r.IsError
}

// A session of calls at random on a repository, with files that another server writes between them,
// is undone: every ref, HEAD, index, reflog, and all of the work tree as before.
func TestRandomSessionsOnARepositoryAreUndone(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testenv.Cases(1, 10)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w, dir := newWorld(t), repository(t)
			random := rand.New(rand.NewPCG(seed, 4))
			start := gitPicture(t, dir)
			c := w.gateway(mcp.Config{ServeUndos: true}, nil, w.git(t, dir), w.files(dir))
			done, calls := 0, testenv.Cases(25, 200)
			for range calls {
				if untidy(c, random, dir) {
					done++
				}
				if random.IntN(8) == 0 { // whoever asks for the state has the index written again
					runGit(t, dir, "status", "--short")
				}
			}
			if done < calls/3 {
				t.Errorf("only %d of %d calls were done: the session proves little", done, calls)
			}
			r := c.reports("plan_fail", nil)
			t.Logf("%d of %d calls done, %d undone", done, calls, len(r.Undone))
			if r.State != "compensated" || len(r.Stands) > 0 {
				t.Errorf("plan_fail: %+v", r)
			}
			if d := differ(start, gitPicture(t, dir)); d != "" {
				t.Errorf("left:\n%s", d)
			}
			runGit(t, dir, "fsck", "--strict")
		})
	}
}
