package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// The inverses of the demo's five actions, as a worker runs them. Each is safe
// to run twice and safe to run when the forward never happened: what is gone is
// done. None destroys work that came after the action: a branch or tag that
// moved since is left alone and the worker says so.

// undoArguments are the arguments of all five; each inverse reads some of them.
type undoArguments struct {
	Repository string `json:"repository"`
	Branch     string `json:"branch"`
	Base       string `json:"base"`
	Path       string `json:"path"`
	Previous   string `json:"previous"`
	SHA        string `json:"sha"` // null when the forward left no output
	Tag        string `json:"tag"`
}

// inverses maps the capabilities of the demo's worker to what carries them out.
var inverses = []struct {
	capability string
	undo       func(context.Context, undoArguments) error
}{
	{"git.branch.delete", undoBranch},
	{"git.worktree.remove", undoWorktree},
	{"git.commit.reset", undoCommit},
	{"git.push.delete", undoPush},
	{"git.tag.delete", undoTag},
}

// stopError says that trying again will not help.
type stopError struct {
	code, message string
}

func (e *stopError) Error() string { return e.message }

// Code is what the executor records beside the message.
func (e *stopError) Code() string { return e.code }

// Code is what the executor records when git itself failed.
func (e *gitError) Code() string { return "git" }

// handler serves one inverse: it reads the command's arguments and tells the
// executor whether trying again makes sense.
func handler(undo func(context.Context, undoArguments) error) worker.Handler {
	return func(ctx context.Context, command api.Command) (worker.Result, error) {
		var arguments undoArguments
		if err := json.Unmarshal(command.Arguments, &arguments); err != nil {
			return worker.Result{}, worker.Stop(&stopError{"arguments", "cannot read arguments: " + err.Error()})
		}
		err := undo(ctx, arguments)
		var stop *stopError
		if errors.As(err, &stop) {
			err = worker.Stop(err)
		}
		return worker.Result{}, err
	}
}

// newDemoWorker serves the five inverses until its input ends.
func newDemoWorker(s *settings) *cobra.Command {
	return &cobra.Command{
		Use: "demo-worker", Hidden: true, Short: "The demo's worker", Example: "  sagenbaum demo",
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := untilInputEnds(cmd.Context(), cmd.InOrStdin())
			defer cancel()
			return failed("play the worker", playWorker(ctx, s, cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
}

func playWorker(ctx context.Context, s *settings, out, log io.Writer) error {
	c, err := s.connect()
	if err != nil {
		return err
	}
	defer c.close()
	w, err := worker.New(worker.Config{Conn: c.conn, Tenant: s.tenant, Name: "git", Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		return err
	}
	for _, i := range inverses {
		if err := w.Handle(i.capability, handler(i.undo)); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "serving")
	<-ctx.Done()
	return w.Close(context.WithoutCancel(ctx))
}

// undoBranch deletes the branch if it still points where it was created.
func undoBranch(ctx context.Context, in undoArguments) error {
	g, ref := git{in.Repository}, "refs/heads/"+in.Branch
	tip, err := g.tip(ctx, ref)
	switch {
	case err != nil || tip == "":
		return err
	case tip != in.Base:
		return &stopError{"moved", fmt.Sprintf("branch %s has moved to %s; deleting it would lose commits", in.Branch, shortSHA(tip))}
	}
	_, err = g.run(ctx, "update-ref", "-d", ref, in.Base)
	return err
}

// undoWorktree removes the worktree with what is in it, also one that a killed
// git left half made.
func undoWorktree(ctx context.Context, in undoArguments) error {
	g := git{in.Repository}
	list, err := g.run(ctx, "worktree", "list", "--porcelain")
	if err != nil {
		return err
	}
	known := strings.Contains(list+"\n", "worktree "+in.Path+"\n")
	_, missing := os.Stat(in.Path)
	switch {
	case known && missing == nil:
		_, err = g.run(ctx, "worktree", "remove", "--force", "--force", in.Path)
		return err
	case known:
		_, err = g.run(ctx, "worktree", "prune")
		return err
	case missing == nil:
		return &stopError{"foreign", fmt.Sprintf("%s exists and is no worktree of this repository", in.Path)}
	}
	return nil
}

// undoCommit sets the branch back to the commit before, and the worktree with it.
func undoCommit(ctx context.Context, in undoArguments) error {
	g, ref := git{in.Repository}, "refs/heads/"+in.Branch
	tip, err := g.tip(ctx, ref)
	if err != nil || tip == "" {
		return err
	}
	if in.SHA == "" && tip != in.Previous {
		// The forward left no output: its commit is the one right on top of the previous.
		if parent, err := g.run(ctx, "rev-parse", tip+"^"); err == nil && parent == in.Previous {
			in.SHA = tip
		}
	}
	if tip != in.Previous && tip != in.SHA {
		return &stopError{"moved", fmt.Sprintf("branch %s has moved to %s; resetting it would lose commits", in.Branch, shortSHA(tip))}
	}
	if _, err := os.Stat(in.Path); err != nil {
		_, err := g.run(ctx, "update-ref", ref, in.Previous, tip)
		return err
	}
	tree := git{in.Path}
	if _, err := tree.run(ctx, "reset", "--hard", in.Previous); err != nil {
		return err
	}
	_, err = tree.run(ctx, "clean", "-fdq")
	return err
}

// undoPush deletes the branch on the remote if it still points where it was pushed.
func undoPush(ctx context.Context, in undoArguments) error {
	g, ref := git{in.Repository}, "refs/heads/"+in.Branch
	if err := deleteOnRemote(ctx, g, ref, in.SHA); err != nil {
		return err
	}
	_, err := g.run(ctx, "update-ref", "-d", "refs/remotes/origin/"+in.Branch)
	return err
}

// undoTag deletes the tag on the remote and here.
func undoTag(ctx context.Context, in undoArguments) error {
	g, ref := git{in.Repository}, "refs/tags/"+in.Tag
	if err := deleteOnRemote(ctx, g, ref, in.SHA); err != nil {
		return err
	}
	tip, err := g.tip(ctx, ref)
	if err != nil || tip != in.SHA {
		return err
	}
	_, err = g.run(ctx, "update-ref", "-d", ref, in.SHA)
	return err
}

func deleteOnRemote(ctx context.Context, g git, ref, sha string) error {
	tip, err := g.remoteTip(ctx, ref)
	switch {
	case err != nil || tip == "":
		return err
	case tip != sha:
		return &stopError{"moved", fmt.Sprintf("%s has moved to %s on the remote; deleting it would lose commits", ref, shortSHA(tip))}
	}
	_, err = g.run(ctx, "push", "--force-with-lease="+ref+":"+sha, "origin", ":"+ref)
	var refused *gitError
	if errors.As(err, &refused) && strings.Contains(refused.stderr, "hook declined") {
		return &stopError{"protected", "the remote refused: " + hookMessage(refused.stderr)}
	}
	return err
}

// hookMessage finds what a hook of the remote printed in what git reports.
func hookMessage(stderr string) string {
	for line := range strings.Lines(stderr) {
		if said, ok := strings.CutPrefix(strings.TrimSpace(line), "remote: "); ok {
			return strings.TrimSpace(said)
		}
	}
	return lastLine(stderr)
}

func shortSHA(sha string) string { return sha[:min(len(sha), 9)] }
