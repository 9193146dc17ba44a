package mcp_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// The server of Git that the pack is tested against: the reference one is in Python.
const (
	gitPackage = "@cyanheads/git-mcp-server"
	gitVersion = "2.15.3"
)

var gitEnv = map[string]string{"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1",
	"GIT_AUTHOR_NAME": "ann", "GIT_AUTHOR_EMAIL": "ann@example.com", "GIT_COMMITTER_NAME": "ann",
	"GIT_COMMITTER_EMAIL": "ann@example.com"}

func (w *world) git(t testing.TB, dir string) mcp.ServerConfig {
	t.Helper()
	env := map[string]string{"MCP_TRANSPORT_TYPE": "stdio", "GIT_SIGN_COMMITS": "false",
		"MCP_LOG_LEVEL": "error", "LOGS_DIR": t.TempDir()}
	for name, value := range gitEnv {
		env[name] = value
	}
	return mcp.ServerConfig{Name: "git", Command: "node", Env: env, State: t.TempDir(), Roots: []string{dir},
		Args: []string{filepath.Join(testenv.NPM(t, gitPackage+"@"+gitVersion), "node_modules", gitPackage,
			"dist", "index.js")}}
}

// runGit runs a command of Git in a repository.
func runGit(t testing.TB, dir string, args ...string) string {
	t.Helper()
	c := exec.Command("git", append([]string{"-C", dir}, args...)...)
	c.Env = os.Environ()
	for name, value := range gitEnv {
		c.Env = append(c.Env, name+"="+value)
	}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// repository makes one with two branches and a tag; with work that is staged, work that is not, a
// file that is not known and one that is ignored.
func repository(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("SKIPPED: there is no git")
	}
	dir := filepath.Join(t.TempDir(), "project")
	furnish(t, dir)
	runGit(t, dir, "init", "-q", "-b", "main")
	writeIn(t, dir, ".gitignore", "ignored\n")
	runGit(t, dir, "add", "-A")
	runGit(t, dir, "commit", "-q", "-m", "one")
	runGit(t, dir, "branch", "side")
	runGit(t, dir, "tag", "v1")
	for branch, name := range map[string]string{"topic": "topic", "clash": "a.txt"} {
		runGit(t, dir, "checkout", "-q", "-b", branch, "v1")
		writeIn(t, dir, name, branch+"\n")
		runGit(t, dir, "add", "-A")
		runGit(t, dir, "commit", "-q", "-m", branch)
	}
	runGit(t, dir, "checkout", "-q", "main")
	writeIn(t, dir, "a.txt", "two\n")
	runGit(t, dir, "commit", "-q", "-a", "-m", "two")
	writeIn(t, dir, "sub/run.sh", "staged\n")
	runGit(t, dir, "add", "-A")
	writeIn(t, dir, "sub/run.sh", "not staged\n")
	writeIn(t, dir, "unknown", "unknown\n")
	writeIn(t, dir, "ignored", "ignored\n")
	if err := os.Symlink("a.txt", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// theirs gives a repository a remote with a commit that it does not have, and returns it.
func theirs(t testing.TB, dir string) (remote string) {
	t.Helper()
	remote, other := filepath.Join(t.TempDir(), "theirs.git"), filepath.Join(t.TempDir(), "other")
	runGit(t, dir, "clone", "-q", "--bare", dir, remote)
	runGit(t, dir, "clone", "-q", "-b", "main", remote, other)
	writeIn(t, other, "theirs", "theirs\n")
	runGit(t, other, "add", "-A")
	runGit(t, other, "commit", "-q", "-m", "theirs")
	runGit(t, other, "push", "-q", "origin", "main")
	runGit(t, dir, "remote", "add", "theirs", remote)
	return remote
}

func writeIn(t testing.TB, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
}

// gitPicture is all of a repository but its objects and the message of the last commit, with what
// the index says: whoever asks for the state of files writes that again.
func gitPicture(t testing.TB, dir string) map[string]string {
	t.Helper()
	tree := filesOnly(picture(t, dir))
	for name, line := range tree {
		switch {
		case strings.HasPrefix(name, ".git/objects"), name == ".git/COMMIT_EDITMSG":
			delete(tree, name)
		case name == ".git/index":
			tree[name] = runGit(t, dir, "ls-files", "--stage", "-v")
		case strings.HasPrefix(line, "L"):
			to, err := os.Readlink(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			tree[name] = to
		}
	}
	return tree
}

// gitCalls are calls of every tool that has a contract, each possible after those before it.
var gitCalls = []struct {
	tool string
	with map[string]any
}{
	{"fetch", map[string]any{"remote": "theirs"}},
	{"commit", map[string]any{"message": "three"}},
	{"stash", map[string]any{"mode": "push", "includeUntracked": true}},
	{"stash", map[string]any{"mode": "pop"}},
	{"clean", map[string]any{"force": true, "directories": true}},
	{"add", map[string]any{"all": true}},
	{"reset", map[string]any{"mode": "hard", "target": "HEAD", "confirmed": true}},
	{"cherry_pick", map[string]any{"commits": []string{"topic"}}},
	{"reset", map[string]any{"mode": "hard", "target": "HEAD~1", "confirmed": true}},
	{"merge", map[string]any{"branch": "topic"}},
	{"checkout", map[string]any{"target": "clash"}},
	{"rebase", map[string]any{"mode": "start", "upstream": "topic"}},
	{"pull", map[string]any{"remote": "theirs", "branch": "main", "rebase": true}},
	{"branch", map[string]any{"mode": "delete", "branchName": "main", "force": true}},
	{"tag", map[string]any{"mode": "delete", "tagName": "v1"}},
	{"remote", map[string]any{"mode": "add", "name": "origin", "url": "https://example.com/x.git"}},
}

// Work that was staged and is dropped, a commit, a branch that is deleted, a checkout: after the undo
// all of the repository is as before, byte for byte, and Git finds nothing wrong with it.
func TestASessionOnARepositoryIsUndoneAsItsTableSays(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t), repository(t)
	theirs(t, dir)
	start := gitPicture(t, dir)
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, w.git(t, dir))
	c.does("git_set_working_dir", map[string]any{"path": dir})
	measured := tally{}
	for _, call := range gitCalls {
		with := maps.Clone(call.with)
		with["path"] = dir
		c.does("git_"+call.tool, with)
		measured.count("git_"+call.tool, contract.Exact) // of all of them together, below
	}
	if r := c.call("git_add", map[string]any{"path": ".", "all": true}); !r.IsError ||
		!strings.Contains(said(r), "absolute path") {
		t.Errorf("of a folder that only the server knows: %s", said(r))
	}
	if strings.Contains(runGit(t, dir, "branch"), "main") {
		t.Fatal("the session has done nothing")
	}
	if r := c.reports("plan_fail", nil); r.State != "compensated" || len(r.Undone) != len(gitCalls) {
		t.Errorf("plan_fail: %+v", r)
	}
	if d := differ(start, gitPicture(t, dir)); d != "" {
		t.Errorf("left:\n%s", d)
	}
	runGit(t, dir, "fsck", "--strict")
	measured.tabled(t, gitPackage)
}

// What others have done in a repository since is never overwritten, and what is not there any more
// is not said to be put back: the undo is its owner's, and nothing of it is done.
func TestARepositoryThatOthersHaveChangedIsTheirs(t *testing.T) {
	t.Parallel()
	for why, change := range map[string]func(t *testing.T, dir string){
		"a ref: logs/HEAD was changed since": func(t *testing.T, dir string) {
			runGit(t, dir, "update-ref", "refs/heads/side", "main~1")
		},
		"a.txt was changed since": func(t *testing.T, dir string) { writeIn(t, dir, "a.txt", "other\n") },
		"HEAD: logs/HEAD was changed since": func(t *testing.T, dir string) {
			runGit(t, dir, "commit", "-q", "--allow-empty", "-m", "others")
		},
		"another process of Git": func(t *testing.T, dir string) { writeIn(t, dir, ".git/index.lock", "") },
		"is not there any more":  func(t *testing.T, dir string) { runGit(t, dir, "prune", "--expire=now") },
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			w, dir := newWorld(t), repository(t)
			c := w.gateway(mcp.Config{ServeUndos: true}, nil, w.git(t, dir))
			c.does("git_checkout", map[string]any{"path": dir, "target": "side", "force": true})
			pruned := gitPicture(t, dir)
			c.does("git_commit", map[string]any{"path": dir, "message": "x", "allowEmpty": true})
			plan := planOf(c.call("git_reset", map[string]any{"path": dir, "mode": "hard", "target": "main",
				"confirmed": true}))
			change(t, dir)
			left := gitPicture(t, dir)
			if why == "is not there any more" {
				left = pruned // what came after it is undone
			}
			w.operates(&pb.Record{Plan: plan, Kind: &pb.Record_CompensationRequested{
				CompensationRequested: &pb.CompensationRequested{Reason: "wrong", Actor: "ann"}}})
			if state := w.state(plan, "quarantined"); state != "quarantined" {
				t.Errorf("it is %s", state)
			}
			if said := w.shown(plan); !strings.Contains(said, strings.TrimPrefix(strings.TrimPrefix(why,
				"a ref: "), "HEAD: ")) {
				t.Errorf("it says %s", said)
			}
			if d := differ(left, gitPicture(t, dir)); d != "" {
				t.Errorf("it has changed\n%s", d)
			}
		})
	}
}

// Of a merge that stops at a conflict no one knows what it has done and what others: it is its
// owner's, and the repository stays as it is.
func TestAMergeWithAConflictIsItsOwners(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t), repository(t)
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, w.git(t, dir))
	if r := c.call("git_merge", map[string]any{"path": dir, "branch": "clash"}); !r.IsError {
		t.Errorf("there is no conflict: %s", said(r))
	}
	left := gitPicture(t, dir)
	r := c.reports("plan_fail", nil)
	if r.State != "quarantined" || len(r.Stands) != 1 || !strings.Contains(r.Stands[0].How, "no one knows what") {
		t.Errorf("plan_fail: %+v", r)
	}
	if d := differ(left, gitPicture(t, dir)); d != "" {
		t.Errorf("it has changed\n%s", d)
	}
}

// A push is made once its plan is committed, and dropped by an undo before; of a folder that only
// the server knows now none is taken. Worktrees are listed, and none is made.
func TestAPushIsMadeOnceItsPlanIsCommitted(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t), repository(t)
	remote := theirs(t, dir)
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, w.git(t, dir))
	c.does("git_set_working_dir", map[string]any{"path": dir})
	for _, with := range []map[string]any{{}, {"path": "."}} {
		if r := c.call("git_push", with); !r.IsError || !strings.Contains(said(r), "absolute path") {
			t.Errorf("%v: %s", with, said(r))
		}
	}
	c.does("git_worktree", map[string]any{"path": dir, "mode": "list"})
	if r := c.call("git_worktree", map[string]any{"path": dir, "mode": "add", "worktreePath": dir + "-2"}); !r.IsError ||
		!strings.Contains(said(r), "cannot be undone. Nothing was done") {
		t.Errorf("a worktree: %s", said(r))
	}
	push := map[string]any{"path": dir, "remote": "theirs", "branch": "topic", "remoteBranch": "pushed"}
	branches := func() string { return runGit(t, dir, "--git-dir", remote, "branch", "--list", "pushed") }
	for _, end := range []string{"plan_fail", "plan_commit"} {
		if r := c.call("git_push", push); !strings.Contains(said(r), "NOT made") || branches() != "" {
			t.Errorf("it is made: %s", said(r))
		}
		if r := c.reports(end, nil); (branches() == "") != (end == "plan_fail") {
			t.Errorf("%s: %+v: %q", end, r, branches())
		}
	}
}
