// Mutants plants bugs, one at a time, and lets the simulator look for those in the core, and
// the tests of a package for those around it: what finds nothing proves nothing.
//
//	go run ./executor/sim/mutants [-seeds 10000] [-only NAME|PACKAGE|core] [-from NAME]
//
// Each mutant of the catalogue is a change of one place in one file. The package
// of the simulator is built with that file replaced (go build -overlay; the tree
// stays as it is) and runs seeds from 1 on until one fails, or a package's tests run with it. A
// mutant that nothing finds is a promise that no one checks: the exit code is 1 then. The same
// seeds, or tests, are run without a mutant first: if they fail, no mutant is tried, and the exit
// code is 2.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	seeds := flag.Int("seeds", 10000, "seeds that a mutant may survive")
	only := flag.String("only", "", "a mutant, or all of a package, or of the core; empty: all")
	from := flag.String("from", "", "the mutant to go on with, of those that are asked for")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	survived, err := hunt(ctx, *seeds, *only, *from)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if survived > 0 {
		os.Exit(1)
	}
}

// search is for the mutants of one catalogue, by the tests that are to find them.
type search struct {
	in      string // a package, or "core"
	mutants []mutant
	// look runs the tests over the tree with an overlay; found says what failed, or is empty.
	look func(ctx context.Context, overlay string) (found string, err error)
}

// asked are the mutants that are to be tried.
func (s search) asked(only string) []mutant {
	if only == "" || only == s.in {
		return s.mutants
	}
	at := slices.IndexFunc(s.mutants, func(m mutant) bool { return m.name == only })
	if at < 0 {
		return nil
	}
	return s.mutants[at : at+1]
}

// after are some searches without the mutants before the one called from; empty: all of them.
func after(from string, searches []search) ([]search, error) {
	for i, s := range searches {
		at := slices.IndexFunc(s.mutants, func(m mutant) bool { return m.name == from })
		if from == "" || at >= 0 {
			rest := slices.Clone(searches[i:])
			rest[0].mutants = s.mutants[max(at, 0):]
			return rest, nil
		}
	}
	return nil, fmt.Errorf("no mutant is called %q", from)
}

// hunt tries mutants and prints a line for each; it returns how many survived.
func hunt(ctx context.Context, seeds int, only, from string) (survived int, err error) {
	top, err := moduleFolder(ctx)
	if err != nil {
		return 0, err
	}
	work, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return 0, fmt.Errorf("cannot make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	g := ground{top: top, work: work, seeds: seeds, out: os.Stdout}
	searches := []search{{"core", slices.Concat(catalogue, ofTurns), g.simulate}}
	for _, folder := range slices.Sorted(maps.Keys(shell)) {
		run := func(ctx context.Context, overlay string) (string, error) {
			return g.test(ctx, overlay, folder)
		}
		searches = append(searches, search{folder, shell[folder], run})
	}
	if searches, err = after(from, searches); err != nil {
		return 0, err
	}
	return g.hunt(ctx, only, searches)
}

// hunt tries the mutants that are asked for of each search, and says how many survived.
func (g ground) hunt(ctx context.Context, only string, searches []search,
) (survived int, err error) {
	tried := 0
	for _, s := range searches {
		asked := s.asked(only)
		if len(asked) == 0 {
			continue
		}
		if err := g.sound(ctx, s); err != nil {
			return survived, err
		}
		for _, m := range asked {
			tried++
			found, err := g.try(ctx, m, s.look)
			if err != nil {
				return survived, err
			}
			if !found {
				survived++
			}
		}
	}
	if tried == 0 {
		return 0, fmt.Errorf("no mutant is called %q", only)
	}
	_, err = fmt.Fprintf(g.out, "%d mutants, %d found, %d survived\n", tried, tried-survived, survived)
	return survived, err
}

// sound runs the tests of a search without any mutant: what fails anyway finds nothing.
func (g ground) sound(ctx context.Context, s search) error {
	none := filepath.Join(g.work, "none.json")
	if err := os.WriteFile(none, []byte("{}"), 0o600); err != nil {
		return fmt.Errorf("cannot write: %w", err)
	}
	found, err := s.look(ctx, none)
	if err == nil && found != "" {
		err = errors.New(found)
	}
	if err != nil {
		return fmt.Errorf("the tests of %s fail without a mutant: %w", s.in, err)
	}
	return nil
}

// try plants a mutant, and prints what finds it.
func (g ground) try(ctx context.Context, m mutant,
	look func(context.Context, string) (string, error)) (found bool, err error) {
	start := time.Now()
	overlay, err := g.plant(m)
	if err != nil {
		return false, fmt.Errorf("mutant %q: %w", m.name, err)
	}
	what, err := look(ctx, overlay)
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil: // it does not build, or nothing says what happened
		what = "NOT TRIED: " + err.Error()
	case what == "":
		what = "SURVIVED"
	default:
		found = true
	}
	_, err = fmt.Fprintf(g.out, "%-46s %-84s %5.1fs\n", m.name, what, time.Since(start).Seconds())
	return found, err
}

func moduleFolder(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find the module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// ground is where mutants are planted: the tree stays as it is.
type ground struct {
	top, work string // the module's folder, and one for files
	seeds     int    // that a mutant of the core may survive
	out       io.Writer
}

// plant writes a mutant and returns the overlay with it for the go command.
func (g ground) plant(m mutant) (overlay string, err error) {
	path := filepath.Join(g.top, filepath.FromSlash(m.file))
	source, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("cannot read its file: %w", err)
	}
	mutated, err := m.apply(source)
	if err != nil {
		return "", err
	}
	replaced := filepath.Join(g.work, "mutant.go")
	overlay = filepath.Join(g.work, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {path: replaced}})
	if err != nil {
		return "", fmt.Errorf("cannot list the file: %w", err)
	}
	err = errors.Join(os.WriteFile(replaced, mutated, 0o600), os.WriteFile(overlay, list, 0o600))
	if err != nil {
		return "", fmt.Errorf("cannot write the mutant: %w", err)
	}
	return overlay, nil
}

// failure is what the simulator's test prints of a seed that failed: the seed, and
// the rule that broke first. A panic in a world is a rule of that name.
var failure = regexp.MustCompile(`seed=(\d+)[^\n]*\n\s*([^\n]*)`)

// simulate builds the simulator with a mutant and runs it; found says which seed failed and
// how, or is empty.
func (g ground) simulate(ctx context.Context, overlay string) (found string, err error) {
	binary := filepath.Join(g.work, "sim.test")
	build := exec.CommandContext(ctx, "go", "test", "-vet=off", "-c", "-overlay", overlay, "-o",
		binary, "./executor/sim")
	build.Dir = g.top
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build it: %w\n%s", err, out)
	}
	run := exec.CommandContext(ctx, binary, "-test.run", "^TestNewSeeds$", "-test.timeout", "10m",
		"-seed", "1", "-seeds", fmt.Sprint(g.seeds))
	run.Dir = filepath.Join(g.top, "executor", "sim")
	out, failed, err := ended(ctx, run)
	if err != nil || !failed {
		return "", err
	}
	if parts := failure.FindSubmatch(out); parts != nil {
		return fmt.Sprintf("seed %5s  %.70s", parts[1], parts[2]), nil
	}
	return "", fmt.Errorf("it ends without a seed:\n%.2000s", out)
}

// testFailure is the first line that says of a test that it failed, or of a process that it did.
var testFailure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^(panic: [^\n]*)`)

// test runs the tests of a package with a mutant; found names the first one that fails, or is
// empty.
func (g ground) test(ctx context.Context, overlay, folder string) (found string, err error) {
	run := exec.CommandContext(ctx, "go", "test", "-vet=off", "-count=1", "-failfast", "-timeout",
		"5m", "-overlay", overlay, "./"+folder)
	run.Dir = g.top
	out, failed, err := ended(ctx, run)
	if err != nil || !failed {
		return "", err
	}
	if bytes.Contains(out, []byte("panic: test timed out after")) {
		return "", fmt.Errorf("its tests have no end:\n%.2000s", out)
	}
	if parts := testFailure.FindSubmatch(out); parts != nil {
		return fmt.Sprintf("%s%.80s", parts[1], parts[2]), nil
	}
	return "", fmt.Errorf("no test fails, and go test does:\n%.2000s", out)
}

// ended runs a command; failed says that it ended with another exit code than 0.
func ended(ctx context.Context, run *exec.Cmd) (out []byte, failed bool, err error) {
	out, err = run.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return out, false, nil
	case !errors.As(err, &exit) || ctx.Err() != nil:
		return out, false, fmt.Errorf("cannot run it: %w", err)
	}
	return out, true, nil
}
