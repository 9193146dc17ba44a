// Mutants plants bugs, one at a time, and lets the simulator look for those in the core, and
// the tests of a package for those around it: what finds nothing proves nothing.
//
//	go run ./executor/sim/mutants [-seeds 10000] [-only NAME|PACKAGE|core]
//
// Each mutant of the catalogue is a change of one place in one file. The package
// of the simulator is built with that file replaced (go build -overlay; the tree
// stays as it is) and runs seeds from 1 on until one fails, or a package's tests run with it. A
// mutant that nothing finds is a promise that no one checks: the exit code is 1 then.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
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
	only := flag.String("only", "", "the one mutant to try, or all of a package, or of the core; empty: all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	survived, err := hunt(ctx, *seeds, *only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if survived > 0 {
		os.Exit(1)
	}
}

// hunt tries mutants and prints a line for each; it returns how many survived.
func hunt(ctx context.Context, seeds int, only string) (survived int, err error) {
	top, err := moduleFolder(ctx)
	if err != nil {
		return 0, err
	}
	work, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return 0, fmt.Errorf("cannot make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	g := ground{top: top, work: work, seeds: seeds}
	tried := 0
	each := func(in string, m mutant, run func(context.Context, string) (string, error)) error {
		if only != "" && m.name != only && in != only {
			return nil
		}
		tried++
		start := time.Now()
		overlay, err := g.plant(m)
		if err != nil {
			return fmt.Errorf("mutant %q: %w", m.name, err)
		}
		found, err := run(ctx, overlay)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil: // it does not build, or nothing says what happened
			survived++
			found = "NOT TRIED: " + err.Error()
		case found == "":
			survived++
			found = "SURVIVED"
		}
		fmt.Printf("%-46s %-84s %5.1fs\n", m.name, found, time.Since(start).Seconds())
		return nil
	}
	for _, m := range catalogue {
		if err := each("core", m, g.simulate); err != nil {
			return survived, err
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(shell)) {
		if err := g.sound(ctx, folder, only); err != nil {
			return survived, err
		}
		for _, m := range shell[folder] {
			err := each(folder, m, func(ctx context.Context, overlay string) (string, error) {
				return g.test(ctx, overlay, folder)
			})
			if err != nil {
				return survived, err
			}
		}
	}
	if tried == 0 {
		return 0, fmt.Errorf("no mutant is called %q", only)
	}
	fmt.Printf("%d mutants, %d found, %d survived\n", tried, tried-survived, survived)
	return survived, nil
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

// sound runs the tests of a package, of which a mutant is asked for, without any: tests that fail
// anyway find nothing.
func (g ground) sound(ctx context.Context, folder, only string) error {
	asked := only == "" || only == folder ||
		slices.ContainsFunc(shell[folder], func(m mutant) bool { return m.name == only })
	if !asked {
		return nil
	}
	none := filepath.Join(g.work, "none.json")
	if err := os.WriteFile(none, []byte("{}"), 0o600); err != nil {
		return fmt.Errorf("cannot write: %w", err)
	}
	found, err := g.test(ctx, none, folder)
	if err == nil && found != "" {
		err = errors.New(found)
	}
	if err != nil {
		return fmt.Errorf("the tests of %s fail without a mutant: %w", folder, err)
	}
	return nil
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
