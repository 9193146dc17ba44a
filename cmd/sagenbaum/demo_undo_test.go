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
)

// play makes a world in which the first n forwards of the demo's plan have
// happened, and returns the state of the world before each of them, the last
// entry being the state after all.
func play(t *testing.T, n int) (world demoWorld, arguments undoArguments, states [][]string) {
	t.Helper()
	ctx := t.Context()
	world, err := makeWorld(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	g := git{world.clone()}
	base, err := g.tip(ctx, "refs/heads/main")
	if err != nil {
		t.Fatal(err)
	}
	a := undoArguments{Repository: world.clone(), Branch: "feature/x", Base: base, Path: filepath.Join(world.worktrees(), "x"), Previous: base, Tag: "v1"}
	forwards := []func() error{
		func() error { return g.createBranch(ctx, branchInput{Branch: a.Branch, Base: base}) },
		func() error { return g.addWorktree(ctx, worktreeInput{Path: a.Path, Branch: a.Branch}) },
		func() error {
			out, err := g.commitFile(ctx, commitInput{Path: a.Path, Branch: a.Branch, Previous: base, File: "x.go", Text: "package main\n", Message: "add x"})
			a.SHA = out.SHA
			return err
		},
		func() error { return g.push(ctx, pushInput{Branch: a.Branch, SHA: a.SHA}) },
		func() error { return g.createTag(ctx, tagInput{Tag: a.Tag, SHA: a.SHA}) },
	}
	for i := range n {
		states = append(states, look(t, world))
		if err := forwards[i](); err != nil {
			t.Fatal(err)
		}
	}
	return world, a, append(states, look(t, world))
}

func look(t *testing.T, world demoWorld) []string {
	t.Helper()
	state, err := snapshot(t.Context(), world)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func command(t *testing.T, arguments undoArguments) api.Command {
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
func undo(t *testing.T, arguments undoArguments, run func(context.Context, undoArguments) error) (end string, err error) {
	t.Helper()
	_, err = handler(run)(t.Context(), command(t, arguments))
	var stop *stopError
	switch {
	case err == nil:
		return undone, nil
	case errors.As(err, &stop):
		return neverWill, err
	default:
		return tryAgain, err
	}
}

func sameState(t *testing.T, what string, want, got []string) {
	t.Helper()
	if lines := difference(want, got); len(lines) != 0 {
		t.Errorf("%s: the world differs:\n%q", what, lines)
	}
}

// inversesInOrder are the demo's inverses in the order of their forwards.
var inversesInOrder = []string{"git.branch.delete", "git.worktree.remove", "git.commit.reset", "git.push.delete", "git.tag.delete"}

func inverse(t *testing.T, capability string) func(context.Context, undoArguments) error {
	t.Helper()
	for _, i := range inverses {
		if i.capability == capability {
			return i.undo
		}
	}
	t.Fatalf("no inverse %s", capability)
	return nil
}

func TestEveryInversePutsTheWorldBackAndCanRunTwice(t *testing.T) {
	for i, capability := range inversesInOrder {
		t.Run(capability, func(t *testing.T) {
			world, arguments, states := play(t, i+1)
			if len(difference(states[i], states[i+1])) == 0 {
				t.Fatal("the forward changed nothing: the test would prove nothing")
			}
			for _, attempt := range []string{"first", "second"} {
				if end, err := undo(t, arguments, inverse(t, capability)); end != undone {
					t.Fatalf("%s run: %v", attempt, err)
				}
				sameState(t, attempt+" run", states[i], look(t, world))
			}
		})
	}
}

func TestEveryInverseIsHarmlessWhenItsForwardNeverHappened(t *testing.T) {
	for i, capability := range inversesInOrder {
		t.Run(capability, func(t *testing.T) {
			world, arguments, states := play(t, i)
			if i <= 2 {
				arguments.SHA = "" // what a missing output binds to
			}
			if end, err := undo(t, arguments, inverse(t, capability)); end != undone {
				t.Fatal(err)
			}
			sameState(t, "after a blind run", states[i], look(t, world))
		})
	}
}

func TestABlindCommitResetFindsTheCommitItself(t *testing.T) {
	world, arguments, states := play(t, 3)
	arguments.SHA = ""
	if end, err := undo(t, arguments, undoCommit); end != undone {
		t.Fatal(err)
	}
	sameState(t, "after a blind run", states[2], look(t, world))
}

type breaker struct {
	capability, name, end string
	make                  func(t *testing.T, world demoWorld, a undoArguments)
}

// breakers make one inverse after the other impossible, by something that a
// real repository knows: work that came later, a lock, a hook.
var breakers = []breaker{
	{"git.branch.delete", "branch moved", neverWill, func(t *testing.T, w demoWorld, a undoArguments) { commitOnTop(t, w, "refs/heads/"+a.Branch) }},
	{"git.branch.delete", "locked", tryAgain, func(t *testing.T, w demoWorld, a undoArguments) {
		write(t, filepath.Join(w.clone(), ".git", "refs", "heads", a.Branch+".lock"), "")
	}},
	{"git.worktree.remove", "foreign folder", neverWill, func(t *testing.T, w demoWorld, a undoArguments) {
		run(t, w.clone(), "worktree", "remove", "--force", a.Path)
		if err := os.Mkdir(a.Path, 0o755); err != nil {
			t.Fatal(err)
		}
	}},
	{"git.commit.reset", "branch moved", neverWill, func(t *testing.T, w demoWorld, a undoArguments) { commitOnTop(t, w, "refs/heads/"+a.Branch) }},
	{"git.commit.reset", "locked", tryAgain, func(t *testing.T, w demoWorld, a undoArguments) {
		write(t, filepath.Join(w.clone(), ".git", "refs", "heads", a.Branch+".lock"), "")
	}},
	{"git.push.delete", "protected", neverWill, func(t *testing.T, w demoWorld, a undoArguments) {
		if err := protect(w, a.Branch); err != nil {
			t.Fatal(err)
		}
	}},
	{"git.push.delete", "remote gone", tryAgain, func(t *testing.T, w demoWorld, _ undoArguments) {
		if err := os.Rename(w.remote(), w.remote()+".away"); err != nil {
			t.Fatal(err)
		}
	}},
	{"git.tag.delete", "tag moved", neverWill, func(t *testing.T, w demoWorld, a undoArguments) {
		commitOnTop(t, w, "refs/heads/main")
		run(t, w.clone(), "push", "--force", "origin", "refs/heads/main:refs/tags/"+a.Tag)
	}},
	{"git.tag.delete", "remote gone", tryAgain, func(t *testing.T, w demoWorld, _ undoArguments) {
		if err := os.Rename(w.remote(), w.remote()+".away"); err != nil {
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

func TestBadArgumentsStopAWorker(t *testing.T) {
	_, err := handler(undoBranch)(t.Context(), api.Command{Arguments: json.RawMessage(`[`)})
	var stop *stopError
	if !errors.As(err, &stop) {
		t.Errorf("ended with %v, want a stop", err)
	}
}

func commitOnTop(t *testing.T, world demoWorld, ref string) {
	t.Helper()
	tree := run(t, world.clone(), "rev-parse", ref+"^{tree}")
	sha := run(t, world.clone(), "commit-tree", tree, "-p", ref, "-m", "someone else's work")
	run(t, world.clone(), "update-ref", ref, sha)
}

func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := git{dir}.run(t.Context(), args...)
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
