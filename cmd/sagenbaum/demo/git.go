package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Git runs the real git program in one folder, cut off from the machine's own
// configuration so that the demo behaves the same everywhere.
type Git struct {
	Dir string
}

// gitError is a git command that failed, with what git said about it.
type gitError struct {
	args   []string
	stderr string
}

func (e *gitError) Error() string {
	return fmt.Sprintf("git %s: %s", e.args[0], e.reason())
}

// reason is the line in which git says why: the one about a reference that was
// rejected, else the last.
func (e *gitError) reason() string {
	for line := range strings.Lines(e.stderr) {
		if said, ok := strings.CutPrefix(strings.TrimSpace(line), "! "); ok {
			return strings.Join(strings.Fields(said), " ")
		}
	}
	return lastLine(e.stderr)
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// Run returns what git printed, without the last newline.
func (g Git) Run(ctx context.Context, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", args...)
	command.Dir = g.Dir
	command.Env = append(gitEnvironment(),
		"GIT_AUTHOR_NAME=Coding Agent", "GIT_AUTHOR_EMAIL=agent@demo.invalid",
		"GIT_COMMITTER_NAME=Coding Agent", "GIT_COMMITTER_EMAIL=agent@demo.invalid")
	var out, problem strings.Builder
	command.Stdout, command.Stderr = &out, &problem
	err := command.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("git %s: %w", args[0], ctx.Err())
	case errors.As(err, &exit):
		return "", &gitError{args: args, stderr: problem.String()}
	case err != nil:
		return "", fmt.Errorf("cannot run git: %w", err)
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

// gitEnvironment is the caller's, without any GIT_* variable that would point
// git at another repository, and without the machine's configuration files.
func gitEnvironment() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GIT_") {
			env = append(env, e)
		}
	}
	return append(env, "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0", "LC_ALL=C")
}

// Tip returns the commit a full reference points to, "" when there is none.
func (g Git) Tip(ctx context.Context, ref string) (string, error) {
	return g.Run(ctx, "for-each-ref", "--format=%(objectname)", ref)
}

// remoteTip asks the remote itself, not what this clone remembers of it.
func (g Git) remoteTip(ctx context.Context, ref string) (string, error) {
	out, err := g.Run(ctx, "ls-remote", "origin", ref)
	sha, _, _ := strings.Cut(out, "\t")
	return sha, err
}

// makeRepositories makes a bare remote with one commit, and a clone of it.
func makeRepositories(ctx context.Context, remote, clone string) error {
	top := Git{filepath.Dir(remote)}
	if _, err := top.Run(ctx, "init", "--bare", "--initial-branch=main", remote); err != nil {
		return err
	}
	if _, err := top.Run(ctx, "clone", remote, clone); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(clone, "main.go"),
		[]byte("package main\n\nfunc main() {}\n"), 0o644); err != nil {
		return err
	}
	repository := Git{clone}
	for _, args := range [][]string{
		{"checkout", "-B", "main"},
		{"add", "main.go"},
		{"commit", "-m", "first"},
		{"push", "origin", "main"},
		{"remote", "set-head", "origin", "main"},
	} {
		if _, err := repository.Run(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// The forwards: what the agent does. None of them knows how to undo itself.

// BranchInput is the input of git.branch.create.
type BranchInput struct {
	Repository string `json:"repository"`
	Branch     string `json:"branch"`
	Base       string `json:"base"` // commit
}

// CreateBranch makes a branch at its base.
func (g Git) CreateBranch(ctx context.Context, in BranchInput) error {
	_, err := g.Run(ctx, "branch", "--no-track", in.Branch, in.Base)
	return err
}

// WorktreeInput is the input of git.worktree.add.
type WorktreeInput struct {
	Repository string `json:"repository"`
	Path       string `json:"path"`
	Branch     string `json:"branch"`
}

// AddWorktree checks a branch out into a folder of its own.
func (g Git) AddWorktree(ctx context.Context, in WorktreeInput) error {
	_, err := g.Run(ctx, "worktree", "add", in.Path, in.Branch)
	return err
}

// CommitInput is the input of git.commit.
type CommitInput struct {
	Repository string `json:"repository"`
	Path       string `json:"path"` // of the worktree
	Branch     string `json:"branch"`
	Previous   string `json:"previous"` // tip before
	File       string `json:"file"`
	Text       string `json:"text"`
	Message    string `json:"message"`
}

type commitOutput struct {
	SHA string `json:"sha"`
}

// CommitFile writes a file in a worktree and commits it.
func (g Git) CommitFile(ctx context.Context, in CommitInput) (commitOutput, error) {
	if err := os.WriteFile(filepath.Join(in.Path, in.File), []byte(in.Text), 0o644); err != nil {
		return commitOutput{}, err
	}
	tree := Git{in.Path}
	for _, args := range [][]string{{"add", in.File}, {"commit", "-m", in.Message}} {
		if _, err := tree.Run(ctx, args...); err != nil {
			return commitOutput{}, err
		}
	}
	sha, err := tree.Run(ctx, "rev-parse", "HEAD")
	return commitOutput{SHA: sha}, err
}

// PushInput is the input of git.push.
type PushInput struct {
	Repository string `json:"repository"`
	Branch     string `json:"branch"`
	SHA        string `json:"sha"`
}

// Push sends a branch to the remote.
func (g Git) Push(ctx context.Context, in PushInput) error {
	_, err := g.Run(ctx, "push", "origin", in.SHA+":refs/heads/"+in.Branch)
	return err
}

// TagInput is the input of git.tag.create.
type TagInput struct {
	Repository string `json:"repository"`
	Tag        string `json:"tag"`
	SHA        string `json:"sha"`
}

// CreateTag opens the tag on the remote first: when the remote refuses it,
// nothing has happened anywhere and the failure is known.
func (g Git) CreateTag(ctx context.Context, in TagInput) error {
	ref := "refs/tags/" + in.Tag
	if _, err := g.Run(ctx, "push", "--force-with-lease="+ref+":", "origin",
		in.SHA+":"+ref); err != nil {
		return err
	}
	_, err := g.Run(ctx, "update-ref", ref, in.SHA)
	return err
}

// Protect installs a pre-receive hook on the remote that refuses to delete the
// branch, as a hosting service does for a protected one.
func Protect(world World, branch string) error {
	script := `#!/bin/sh
while read -r old new ref; do
	case "$new $ref" in
	*[!0]*" refs/heads/` + branch + `") ;;
	*" refs/heads/` + branch + `") echo "branch ` + branch +
		` is protected: deletion refused" >&2; exit 1 ;;
	esac
done
`
	return os.WriteFile(filepath.Join(world.Remote(), "hooks", "pre-receive"), []byte(script),
		0o755)
}
