package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/demo"
)

// play makes a world in which the first n forwards of the demo's plan have
// happened, and returns the state of the world before each of them, the last
// entry being the state after all.
func play(t *testing.T, n int) (world demo.World, arguments demo.UndoArguments, states [][]string) {
	t.Helper()
	ctx := t.Context()
	world, err := demo.MakeWorld(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	g := demo.Git{Dir: world.Clone()}
	base, err := g.Tip(ctx, "refs/heads/main")
	if err != nil {
		t.Fatal(err)
	}
	a := demo.UndoArguments{Repository: world.Clone(), Branch: "feature/x", Base: base,
		Path: filepath.Join(world.Worktrees(), "x"), Previous: base, Tag: "v1"}
	forwards := []func() error{
		func() error { return g.CreateBranch(ctx, demo.BranchInput{Branch: a.Branch, Base: base}) },
		func() error { return g.AddWorktree(ctx, demo.WorktreeInput{Path: a.Path, Branch: a.Branch}) },
		func() error {
			out, err := g.CommitFile(ctx,
				demo.CommitInput{Path: a.Path, Branch: a.Branch, Previous: base, File: "x.go", Text: "package main\n",
					Message: "add x"})
			a.SHA = out.SHA
			return err
		},
		func() error { return g.Push(ctx, demo.PushInput{Branch: a.Branch, SHA: a.SHA}) },
		func() error { return g.CreateTag(ctx, demo.TagInput{Tag: a.Tag, SHA: a.SHA}) },
	}
	for i := range n {
		states = append(states, cmdtest.Look(t, world))
		if err := forwards[i](); err != nil {
			t.Fatal(err)
		}
	}
	return world, a, append(states, cmdtest.Look(t, world))
}

func command(t *testing.T, arguments demo.UndoArguments) api.Command {
	t.Helper()
	raw, err := json.Marshal(arguments)
	if err != nil {
		t.Fatal(err)
	}
	return api.Command{Arguments: raw}
}

// The ends of an undo, as the executor is told.
const (
	undone    = "done"
	tryAgain  = "failed"
	neverWill = "stop"
)

// undo runs one inverse as the worker does and says how it ended.
func undo(t *testing.T, arguments demo.UndoArguments, run func(context.Context, demo.UndoArguments) error) (end string,
	err error) {
	t.Helper()
	_, err = demo.Handler(run)(t.Context(), command(t, arguments))
	var stop *demo.StopError
	switch {
	case err == nil:
		return undone, nil
	case errors.As(err, &stop):
		return neverWill, err
	default:
		return tryAgain, err
	}
}

// inversesInOrder are the demo's inverses in the order of their forwards.
var inversesInOrder = []string{"git.branch.delete", "git.worktree.remove", "git.commit.reset", "git.push.delete",
	"git.tag.delete"}

func inverse(t *testing.T, capability string) func(context.Context, demo.UndoArguments) error {
	t.Helper()
	for _, i := range demo.Inverses {
		if i.Capability == capability {
			return i.Undo
		}
	}
	t.Fatalf("no inverse %s", capability)
	return nil
}

func TestEveryInversePutsTheWorldBackAndCanRunTwice(t *testing.T) {
	t.Parallel()
	for i, capability := range inversesInOrder {
		t.Run(capability, func(t *testing.T) {
			world, arguments, states := play(t, i+1)
			if len(demo.Difference(states[i], states[i+1])) == 0 {
				t.Fatal("the forward changed nothing: the test would prove nothing")
			}
			for _, attempt := range []string{"first", "second"} {
				if end, err := undo(t, arguments, inverse(t, capability)); end != undone {
					t.Fatalf("%s run: %v", attempt, err)
				}
				cmdtest.SameState(t, attempt+" run", states[i], cmdtest.Look(t, world))
			}
		})
	}
}

func TestEveryInverseIsHarmlessWhenItsForwardNeverHappened(t *testing.T) {
	t.Parallel()
	for i, capability := range inversesInOrder {
		t.Run(capability, func(t *testing.T) {
			world, arguments, states := play(t, i)
			if i <= 2 {
				arguments.SHA = "" // what a missing output binds to
			}
			if end, err := undo(t, arguments, inverse(t, capability)); end != undone {
				t.Fatal(err)
			}
			cmdtest.SameState(t, "after a blind run", states[i], cmdtest.Look(t, world))
		})
	}
}

func TestABlindCommitResetFindsTheCommitItself(t *testing.T) {
	world, arguments, states := play(t, 3)
	arguments.SHA = ""
	if end, err := undo(t, arguments, demo.UndoCommit); end != undone {
		t.Fatal(err)
	}
	cmdtest.SameState(t, "after a blind run", states[2], cmdtest.Look(t, world))
}

type breaker struct {
	capability, name, end string
	make                  func(t *testing.T, world demo.World, a demo.UndoArguments)
}

// breakers make one inverse after the other impossible, by something that a
// real repository knows: work that came later, a lock, a hook.
var breakers = []breaker{
	{"git.branch.delete", "branch moved", neverWill,
		func(t *testing.T, w demo.World, a demo.UndoArguments) { commitOnTop(t, w, "refs/heads/"+a.Branch) }},
	{"git.branch.delete", "locked", tryAgain, func(t *testing.T, w demo.World, a demo.UndoArguments) {
		write(t, filepath.Join(w.Clone(), ".git", "refs", "heads", a.Branch+".lock"), "")
	}},
	{"git.worktree.remove", "foreign folder", neverWill, func(t *testing.T, w demo.World, a demo.UndoArguments) {
		run(t, w.Clone(), "worktree", "remove", "--force", a.Path)
		if err := os.Mkdir(a.Path, 0o755); err != nil {
			t.Fatal(err)
		}
	}},
	{"git.commit.reset", "branch moved", neverWill,
		func(t *testing.T, w demo.World, a demo.UndoArguments) { commitOnTop(t, w, "refs/heads/"+a.Branch) }},
	{"git.commit.reset", "locked", tryAgain, func(t *testing.T, w demo.World, a demo.UndoArguments) {
		write(t, filepath.Join(w.Clone(), ".git", "refs", "heads", a.Branch+".lock"), "")
	}},
	{"git.push.delete", "protected", neverWill, func(t *testing.T, w demo.World, a demo.UndoArguments) {
		if err := demo.Protect(w, a.Branch); err != nil {
			t.Fatal(err)
		}
	}},
	{"git.push.delete", "remote gone", tryAgain, func(t *testing.T, w demo.World, _ demo.UndoArguments) {
		if err := os.Rename(w.Remote(), w.Remote()+".away"); err != nil {
			t.Fatal(err)
		}
	}},
	{"git.tag.delete", "tag moved", neverWill, func(t *testing.T, w demo.World, a demo.UndoArguments) {
		commitOnTop(t, w, "refs/heads/main")
		run(t, w.Clone(), "push", "--force", "origin", "refs/heads/main:refs/tags/"+a.Tag)
	}},
	{"git.tag.delete", "remote gone", tryAgain, func(t *testing.T, w demo.World, _ demo.UndoArguments) {
		if err := os.Rename(w.Remote(), w.Remote()+".away"); err != nil {
			t.Fatal(err)
		}
	}},
}

// S50, S53: every kind of compensation, not only branches, says so when it
// cannot be done, and never claims that it was.
func TestAnInverseThatCannotBeDoneNeverClaimsItWas(t *testing.T) {
	for _, b := range breakers {
		t.Run(b.capability+" "+b.name, func(t *testing.T) {
			world, arguments, _ := play(t, slices.Index(inversesInOrder, b.capability)+1)
			b.make(t, world, arguments)
			end, err := undo(t, arguments, inverse(t, b.capability))
			var coded interface{ Code() string }
			if end != b.end || !errors.As(err, &coded) || coded.Code() == "" || err.Error() == "" {
				t.Errorf("ended %s (%v), want %s with a code and a message", end, err, b.end)
			}
		})
	}
	for _, capability := range inversesInOrder {
		if !slices.ContainsFunc(breakers, func(b breaker) bool { return b.capability == capability }) {
			t.Errorf("%s has no case in which it cannot be done", capability)
		}
	}
}

func commitOnTop(t *testing.T, world demo.World, ref string) {
	t.Helper()
	tree := run(t, world.Clone(), "rev-parse", ref+"^{tree}")
	sha := run(t, world.Clone(), "commit-tree", tree, "-p", ref, "-m", "someone else's work")
	run(t, world.Clone(), "update-ref", ref, sha)
}

func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := demo.Git{Dir: dir}.Run(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
