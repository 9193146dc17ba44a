// Mutants plants bugs into the core, one at a time, and lets the simulator look
// for each: a simulator that finds nothing proves nothing.
//
//	go run ./executor/sim/mutants [-seeds 1000] [-only NAME]
//
// Each mutant of the catalogue is a change of one place in one file. The package
// of the simulator is built with that file replaced (go build -overlay; the tree
// stays as it is) and runs seeds from 1 on until one fails. A mutant that no seed
// finds is an invariant that no one checks: the exit code is 1 then.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	seeds := flag.Int("seeds", 1000, "seeds that a mutant may survive")
	only := flag.String("only", "", "name of the one mutant to try; empty: all")
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
	tried := 0
	for _, m := range catalogue {
		if only != "" && m.name != only {
			continue
		}
		tried++
		start := time.Now()
		found, err := try(ctx, top, work, m, seeds)
		if err != nil {
			return survived, fmt.Errorf("mutant %q: %w", m.name, err)
		}
		if found == "" {
			survived++
			found = fmt.Sprintf("SURVIVED %d seeds", seeds)
		}
		fmt.Printf("%-46s %-84s %5.1fs\n", m.name, found, time.Since(start).Seconds())
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

// failure is what the simulator's test prints of a seed that failed: the seed, and
// the rule that broke first. A panic in a world is a rule of that name.
var failure = regexp.MustCompile(`seed=(\d+)[^\n]*\n\s*([^\n]*)`)

// try builds the simulator with one mutant and runs it; found says which seed
// failed and how, or is empty.
func try(ctx context.Context, top, work string, m mutant, seeds int) (found string, err error) {
	path := filepath.Join(top, filepath.FromSlash(m.file))
	source, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("cannot read its file: %w", err)
	}
	mutated, err := m.apply(source)
	if err != nil {
		return "", err
	}
	replaced, overlay, binary := filepath.Join(work, "mutant.go"), filepath.Join(work, "overlay.json"),
		filepath.Join(work, "sim.test")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {path: replaced}})
	if err != nil {
		return "", fmt.Errorf("cannot list the file: %w", err)
	}
	if err := errors.Join(os.WriteFile(replaced, mutated, 0o600), os.WriteFile(overlay, list, 0o600)); err != nil {
		return "", fmt.Errorf("cannot write the mutant: %w", err)
	}
	build := exec.CommandContext(ctx, "go", "test", "-vet=off", "-c", "-overlay", overlay, "-o",
		binary, "./executor/sim")
	build.Dir = top
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build it: %w\n%s", err, out)
	}
	run := exec.CommandContext(ctx, binary, "-test.run", "^TestNewSeeds$", "-test.timeout", "10m",
		"-seed", "1", "-seeds", fmt.Sprint(seeds))
	run.Dir = filepath.Join(top, "executor", "sim")
	out, err := run.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "", nil
	case !errors.As(err, &exit) || ctx.Err() != nil:
		return "", fmt.Errorf("cannot run it: %w", err)
	}
	if parts := failure.FindSubmatch(out); parts != nil {
		return fmt.Sprintf("seed %5s  %.70s", parts[1], parts[2]), nil
	}
	return "", fmt.Errorf("it ends without a seed:\n%.2000s", out)
}
