package demo

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

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/process"
)

// The inverses of the demo's five actions, as a worker runs them. Each is safe
// to run twice and safe to run when the forward never happened: what is gone is
// done. None destroys work that came after the action: a branch or tag that
// moved since is left alone and the worker says so.

// UndoArguments are the arguments of all five; each inverse reads some of them.
type UndoArguments struct {
	Repository string `json:"repository"`
	Branch     string `json:"branch"`
	Base       string `json:"base"`
	Path       string `json:"path"`
	Previous   string `json:"previous"`
	SHA        string `json:"sha"` // null when the forward left no output
	Tag        string `json:"tag"`
}

// Inverses maps the capabilities of the demo's worker to what carries them out.
var Inverses = []struct {
	Capability string
	Undo       func(context.Context, UndoArguments) error
}{
	{"git.branch.delete", undoBranch},
	{"git.worktree.remove", undoWorktree},
	{"git.commit.reset", UndoCommit},
	{"git.push.delete", undoPush},
	{"git.tag.delete", undoTag},
}

// StopError says that trying again will not help.
type StopError struct {
	code, message string
}

func (e *StopError) Error() string { return e.message }

// Code is what the executor records beside the message.
func (e *StopError) Code() string { return e.code }

// Code is what the executor records when git itself failed.
func (e *gitError) Code() string { return "git" }

// Handler serves one inverse: it reads the command's arguments and tells the
// executor whether trying again makes sense.
func Handler(undo func(context.Context, UndoArguments) error) worker.Handler {
	return func(ctx context.Context, command api.Command) (worker.Result, error) {
		var arguments UndoArguments
		if err := json.Unmarshal(command.Arguments, &arguments); err != nil {
			return worker.Result{}, worker.Stop(&StopError{"arguments",
				"cannot read arguments: " + err.Error()})
		}
		err := undo(ctx, arguments)
		var stop *StopError
		if errors.As(err, &stop) {
			err = worker.Stop(err)
		}
		return worker.Result{}, err
	}
}

// WorkerCommand serves the five inverses until its input ends.
func WorkerCommand(s *cli.Settings) *cobra.Command {
	return &cobra.Command{
		Use: "demo-worker", Hidden: true, Short: "The demo's worker", Example: "  sagenbaum demo",
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := process.UntilInputEnds(cmd.Context(), cmd.InOrStdin())
			defer cancel()
			return cli.Failed("play the worker",
				playWorker(ctx, s, cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
}

func playWorker(ctx context.Context, s *cli.Settings, out, log io.Writer) error {
	return s.With(func(c *cli.Client) error {
		w, err := worker.New(worker.Config{Conn: c.Conn, Tenant: s.Tenant, Name: "git",
			Logger: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			return err
		}
		for _, i := range Inverses {
			if err := w.Handle(i.Capability, Handler(i.Undo)); err != nil {
				return err
			}
		}
		fmt.Fprintln(out, "serving")
		<-ctx.Done()
		return w.Close(context.WithoutCancel(ctx))
	})
}

// undoBranch deletes the branch if it still points where it was created.
func undoBranch(ctx context.Context, in UndoArguments) error {
	g, ref := Git{in.Repository}, "refs/heads/"+in.Branch
	tip, err := g.Tip(ctx, ref)
	switch {
	case err != nil || tip == "":
		return err
	case tip != in.Base:
		return &StopError{"moved",
			fmt.Sprintf("branch %s has moved to %s; deleting it would lose commits", in.Branch,
				shortSHA(tip))}
	}
	_, err = g.Run(ctx, "update-ref", "-d", ref, in.Base)
	return err
}

// undoWorktree removes the worktree with what is in it, also one that a killed
// git left half made.
func undoWorktree(ctx context.Context, in UndoArguments) error {
	g := Git{in.Repository}
	list, err := g.Run(ctx, "worktree", "list", "--porcelain")
	if err != nil {
		return err
	}
	known := strings.Contains(list+"\n", "worktree "+in.Path+"\n")
	_, missing := os.Stat(in.Path)
	switch {
	case known && missing == nil:
		_, err = g.Run(ctx, "worktree", "remove", "--force", "--force", in.Path)
		return err
	case known:
		_, err = g.Run(ctx, "worktree", "prune")
		return err
	case missing == nil:
		return &StopError{"foreign",
			fmt.Sprintf("%s exists and is no worktree of this repository", in.Path)}
	}
	return nil
}

// UndoCommit sets the branch back to the commit before, and the worktree with it.
func UndoCommit(ctx context.Context, in UndoArguments) error {
	g, ref := Git{in.Repository}, "refs/heads/"+in.Branch
	tip, err := g.Tip(ctx, ref)
	if err != nil || tip == "" {
		return err
	}
	if in.SHA == "" && tip != in.Previous {
		// The forward left no output: its commit is the one right on top of the previous.
		if parent, err := g.Run(ctx, "rev-parse", tip+"^"); err == nil && parent == in.Previous {
			in.SHA = tip
		}
	}
	if tip != in.Previous && tip != in.SHA {
		return &StopError{"moved",
			fmt.Sprintf("branch %s has moved to %s; resetting it would lose commits", in.Branch,
				shortSHA(tip))}
	}
	if _, err := os.Stat(in.Path); err != nil {
		_, err := g.Run(ctx, "update-ref", ref, in.Previous, tip)
		return err
	}
	tree := Git{in.Path}
	if _, err := tree.Run(ctx, "reset", "--hard", in.Previous); err != nil {
		return err
	}
	_, err = tree.Run(ctx, "clean", "-fdq")
	return err
}

// undoPush deletes the branch on the remote if it still points where it was pushed.
func undoPush(ctx context.Context, in UndoArguments) error {
	g, ref := Git{in.Repository}, "refs/heads/"+in.Branch
	if err := deleteOnRemote(ctx, g, ref, in.SHA); err != nil {
		return err
	}
	_, err := g.Run(ctx, "update-ref", "-d", "refs/remotes/origin/"+in.Branch)
	return err
}

// undoTag deletes the tag on the remote and here.
func undoTag(ctx context.Context, in UndoArguments) error {
	g, ref := Git{in.Repository}, "refs/tags/"+in.Tag
	if err := deleteOnRemote(ctx, g, ref, in.SHA); err != nil {
		return err
	}
	tip, err := g.Tip(ctx, ref)
	if err != nil || tip != in.SHA {
		return err
	}
	_, err = g.Run(ctx, "update-ref", "-d", ref, in.SHA)
	return err
}

func deleteOnRemote(ctx context.Context, g Git, ref, sha string) error {
	tip, err := g.remoteTip(ctx, ref)
	switch {
	case err != nil || tip == "":
		return err
	case tip != sha:
		return &StopError{"moved",
			fmt.Sprintf("%s has moved to %s on the remote; deleting it would lose commits", ref,
				shortSHA(tip))}
	}
	_, err = g.Run(ctx, "push", "--force-with-lease="+ref+":"+sha, "origin", ":"+ref)
	var refused *gitError
	if errors.As(err, &refused) && strings.Contains(refused.stderr, "hook declined") {
		return &StopError{"protected", "the remote refused: " + hookMessage(refused.stderr)}
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
