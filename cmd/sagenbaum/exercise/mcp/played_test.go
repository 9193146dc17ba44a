//go:build exercise

package mcp

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// played is a server, and what a session in which something is killed does with it.
type played struct {
	name    string // of its pack
	command []string
	options []string // of the gateway
	env     map[string]string
	kills   int           // in a plain run
	often   int           // it calls between two kills, at most and two more
	within  time.Duration // of the beginning of a call something is killed
	call    func(random *rand.Rand) (tool string, with map[string]any)
	picture func() map[string]string
	of      func(text, name string) bool // what a call with this text may have changed
}

func oneOf(random *rand.Rand, list ...string) string { return list[random.IntN(len(list))] }

func playFiles(t *testing.T) played {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "sub/c"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Repeat(name+"\n", 3000)), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	call := func(random *rand.Rand) (string, map[string]any) {
		name := func() string {
			return filepath.Join(dir, oneOf(random, "", "", "x", "sub", "x/y"),
				oneOf(random, "a", "b", "c", "sub", "new"))
		}
		switch random.IntN(5) {
		case 0:
			return "create_directory", map[string]any{"path": name()}
		case 1, 2:
			return "move_file", map[string]any{"source": name(), "destination": name()}
		}
		return "write_file", map[string]any{"path": name(),
			"content": oneOf(random, "", "short\n", strings.Repeat("long\n", 4000))}
	}
	return played{name: "filesystem", command: filesServer(t, dir), env: map[string]string{}, kills: 8, often: 8,
		within: 40 * time.Millisecond, call: call,
		picture: func() map[string]string { return treeIn(t, dir) },
		of: func(path, name string) bool {
			return path == name || strings.HasPrefix(name, path+"/") || strings.HasPrefix(path, name+"/")
		}}
}

// treeIn is the files of a folder with bytes, mode and time, and its folders: their times are exact
// only where no call is in doubt.
func treeIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	tree := map[string]string{}
	var last string
	for line := range strings.Lines(treeOf(t, dir)) {
		if !strings.HasPrefix(line, dir) {
			tree[last] += line
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		if last = name; strings.HasPrefix(rest, "d") {
			rest, _, _ = strings.Cut(rest, " ")
		}
		tree[last] = rest
	}
	return tree
}

// graphIn is what a file of the memory server says, by the names of entities.
func graphIn(t *testing.T, file string) map[string]string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	said := map[string][]string{}
	for line := range strings.Lines(string(raw)) {
		var item struct {
			Name, EntityType, From, To, RelationType string
			Observations                             []string
		}
		if err := json.Unmarshal([]byte(line), &item); err != nil {
			t.Fatal(err)
		}
		slices.Sort(item.Observations)
		text := strings.Join(append(item.Observations, item.EntityType, item.From, item.To,
			item.RelationType), "|")
		for _, name := range slices.Compact([]string{item.Name, item.From, item.To}) {
			said[name] = append(said[name], text)
		}
	}
	delete(said, "") // it is no entity
	graph := map[string]string{}
	for name, list := range said {
		slices.Sort(list)
		graph[name] = strings.Join(list, "\n")
	}
	return graph
}

func playMemory(t *testing.T) played {
	file := filepath.Join(t.TempDir(), "memory.jsonl")
	if err := os.WriteFile(file, []byte(`{"type":"entity","name":"Ada","entityType":"cat","observations":["é"]}
{"type":"entity","name":"Bert","entityType":"cat","observations":["tall","quick"]}
{"type":"relation","from":"Ada","to":"Bert","relationType":"knows"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	call := func(random *rand.Rand) (string, map[string]any) {
		name := func() string { return oneOf(random, "Ada", "Bert", "Cleo", "Dan") }
		facts := func() []string { return []string{oneOf(random, "tall", "quick", "é"), oneOf(random, "10", "old")} }
		relations := map[string]any{"relations": []any{map[string]any{"from": name(), "to": name(),
			"relationType": oneOf(random, "knows", "owes")}}}
		switch random.IntN(6) {
		case 0:
			return "create_relations", relations
		case 1:
			return "delete_relations", relations
		case 2:
			return "create_entities", map[string]any{"entities": []any{map[string]any{"name": name(),
				"entityType": "cat", "observations": facts()}}}
		case 3:
			return "delete_entities", map[string]any{"entityNames": []string{name()}}
		case 4:
			return "delete_observations", map[string]any{"deletions": []any{map[string]any{"entityName": name(),
				"observations": facts()}}}
		}
		return "add_observations", map[string]any{"observations": []any{map[string]any{"entityName": name(),
			"contents": facts()}}}
	}
	files := filesServer(t, "")
	return played{name: "memory", command: []string{"node", strings.Replace(files[1], "server-filesystem",
		"server-memory", 1)}, env: map[string]string{"MEMORY_FILE_PATH": file}, kills: 8, often: 8,
		within: 40 * time.Millisecond, call: call,
		picture: func() map[string]string { return graphIn(t, file) },
		of:      func(text, name string) bool { return text == name }}
}

// The server of Git from npm.
const (
	gitPackage = "@cyanheads/git-mcp-server"
	gitVersion = "2.15.3"
)

func playGit(t *testing.T) played {
	dir := t.TempDir()
	env := map[string]string{"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1",
		"GIT_AUTHOR_NAME": "ann", "GIT_AUTHOR_EMAIL": "ann@example.com", "GIT_COMMITTER_NAME": "ann",
		"GIT_COMMITTER_EMAIL": "ann@example.com", "MCP_TRANSPORT_TYPE": "stdio", "GIT_SIGN_COMMITS": "false",
		"MCP_LOG_LEVEL": "error", "LOGS_DIR": t.TempDir()}
	git := func(args ...string) string {
		t.Helper()
		c := exec.Command("git", append([]string{"-C", dir}, args...)...)
		c.Env = os.Environ()
		for name, value := range env {
			c.Env = append(c.Env, name+"="+value)
		}
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q", "-b", "main")
	for _, content := range []string{"one\n", "two\n"} {
		write("a", content)
		git("add", "-A")
		git("commit", "-q", "-m", strings.TrimSpace(content))
	}
	git("branch", "side", "HEAD~1")
	write("b", "staged\n")
	git("add", "-A")
	write("b", "not staged\n")
	write("c", "unknown\n")
	picture := func() map[string]string {
		tree := treeIn(t, dir)
		for name := range tree {
			if strings.Contains(name, "/.git/objects") || strings.HasSuffix(name, "/.git/COMMIT_EDITMSG") {
				delete(tree, name)
			}
		}
		tree[dir+"/.git/index"] = git("ls-files", "--stage", "-v")
		return tree
	}
	command := []string{"node", filepath.Join(testenv.NPM(t, gitPackage+"@"+gitVersion), "node_modules",
		gitPackage, "dist", "index.js")}
	return played{name: "git", command: command, options: []string{"--root", dir}, env: env, kills: 6,
		often: 2, within: 200 * time.Millisecond, call: gitCalls(dir), picture: picture,
		of: func(text, _ string) bool { return text == dir }}
}

func gitCalls(dir string) func(random *rand.Rand) (string, map[string]any) {
	return func(random *rand.Rand) (string, map[string]any) {
		branch := func() string { return oneOf(random, "main", "side", "new") }
		tool, with := "add", map[string]any{"all": true}
		switch random.IntN(6) {
		case 0, 1:
			tool, with = "commit", map[string]any{"message": "three", "allowEmpty": true}
		case 2:
			tool, with = "branch", map[string]any{"mode": oneOf(random, "create", "delete"), "branchName": branch(),
				"force": true}
		case 3:
			tool, with = "checkout", map[string]any{"target": branch(), "force": true}
		case 4:
			tool, with = "reset", map[string]any{"mode": oneOf(random, "soft", "mixed", "hard"),
				"target": oneOf(random, "HEAD", "main", "side"), "confirmed": true}
		}
		with["path"] = dir
		return "git_" + tool, with
	}
}
