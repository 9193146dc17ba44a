package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// peerMain joins package peer to the harness. It is built in a module of its own, because the
// harness is none that this module could require.
//
//go:embed peer/main.go.txt
var peerMain []byte

// peerSystems are the other systems of a harness: a folder with a run.sh, and its flags.
var peerSystems = []struct {
	name, folder string
	flags        []string
}{
	{"DBOS on SQLite", "dbos", []string{"-store", "sqlite"}},
	{"DBOS on PostgreSQL", "dbos", nil},
	{"Restate", "restate", nil},
	{"dtm on BoltDB", "dtm", nil},
}

const (
	peersOurs   = "Sagenbaum"
	peersInside = "Sagenbaum in process" // agent, server and worker
	peersModule = "github.com/sagenbaum/sagenbaum"
)

// peerFigure is one line of a harness, as far as it is shown.
type peerFigure struct {
	Workload    string  `json:"workload"`
	Concurrency int     `json:"concurrency"`
	PerSecond   float64 `json:"sagas_per_s"`
	Processor   float64 `json:"cpu_s_per_1000"` // s per 1,000 plans
	Undo        float64 `json:"undo_p50_ms"`
	Disk        float64 `json:"bytes_per_saga"`
	Others      float64 `json:"other_cpu_cores"` // that other programs had meanwhile
	Errors      float64 `json:"errors"`
	Disordered  float64 `json:"order_violations"`
	Extra       float64 `json:"extra_calls"`
}

// peersRun runs a harness: every system in turns, each round.
type peersRun struct {
	out     io.Writer
	harness string
	cache   string // what the harness downloads and builds
	dir     string
	bench   *benching
	figures map[string]map[int][]peerFigure // by system and concurrency
}

// benchPeers measures undo5 of this version beside other systems, in turns, with the harness
// in a folder: one folder for each system with a run.sh that prints a line of JSON per figure.
func benchPeers(ctx context.Context, out io.Writer, b *benching, dir string) error {
	harness, err := filepath.Abs(b.peers)
	if err != nil {
		return err
	}
	r := &peersRun{out: out, harness: harness, cache: filepath.Join(dir, "cache"), dir: dir, bench: b,
		figures: map[string]map[int][]peerFigure{}}
	ours, err := r.build(ctx)
	if err != nil {
		return cli.Fail(cli.ExitFailed, "--peers FOLDER, a harness with common and sagenbaum in it, "+
			"in a checkout of the source", "cannot build the harness: %v", err)
	}
	for round := range b.rounds {
		fmt.Fprintf(out, "round %d of %d, %s\n", round+1, b.rounds, time.Now().UTC().Format(time.RFC3339))
		if err := r.measure(ctx, peersOurs, ours[0], ours[1:]...); err != nil {
			return err
		}
		inside := []string{"-server", "", "-server-version", cli.ReadVersion().Version}
		if err := r.measure(ctx, peersInside, ours[0], inside...); err != nil {
			return err
		}
		for _, s := range peerSystems {
			script := filepath.Join(harness, s.folder, "run.sh")
			if err := r.measure(ctx, s.name, "sh", append([]string{script}, s.flags...)...); err != nil {
				if ctx.Err() != nil {
					return err
				}
				fmt.Fprintf(out, "  %-22s not measured: %v\n", s.name, err)
			}
		}
	}
	r.table()
	return nil
}

// build builds this version's server and its side of the harness, and returns the command.
func (r *peersRun) build(ctx context.Context) ([]string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", peersModule).Output()
	if err != nil {
		return nil, fmt.Errorf("this is no checkout of the source: %w", err)
	}
	source := strings.TrimSpace(string(root))
	server, err := serverBinary(ctx, r.bench.server, r.dir)
	if err != nil {
		return nil, err
	}
	module := filepath.Join(r.dir, "harness")
	if err := os.MkdirAll(module, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(module, "main.go"), peerMain, 0o600); err != nil {
		return nil, err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(r.harness, "sagenbaum", name))
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(module, name), data, 0o600); err != nil {
			return nil, err
		}
	}
	binary := filepath.Join(r.dir, "peer")
	for _, args := range [][]string{
		{"mod", "edit", "-replace", peersModule + "=" + source,
			"-replace", "peers/common=" + filepath.Join(r.harness, "common")},
		{"build", "-mod=mod", "-o", binary, "."},
	} {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = module
		if said, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("go %s: %w: %s", args[0], err, said)
		}
	}
	return []string{binary, "-server", server, "-server-version", cli.ReadVersion().Version}, nil
}

// measure runs one system once, and keeps its figures.
func (r *peersRun) measure(ctx context.Context, name, program string, args ...string) error {
	var at []string
	for _, n := range r.bench.concurrency {
		at = append(at, strconv.Itoa(n))
	}
	data := filepath.Join(r.dir, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(data) }()
	args = append(slices.Clone(args), "-work", "undo5", "-conc", strings.Join(at, ","), "-reps", "1",
		"-dur", r.bench.each.String(), "-dir", data)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "PEERS_CACHE="+r.cache)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	said, err := cmd.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(problems.String()), "\n")
		return fmt.Errorf("%w: %s", err, strings.Join(lines[max(0, len(lines)-3):], " / "))
	}
	return r.keep(name, said)
}

func (r *peersRun) keep(name string, said []byte) error {
	for lines := bufio.NewScanner(bytes.NewReader(said)); lines.Scan(); {
		var f peerFigure
		if err := json.Unmarshal(lines.Bytes(), &f); err != nil || f.Workload != "undo5" {
			continue
		}
		if f.Errors+f.Disordered+f.Extra > 0 {
			return fmt.Errorf("%s, %d at once: %g errors, %g undos in the wrong order, %g twice", name,
				f.Concurrency, f.Errors, f.Disordered, f.Extra)
		}
		fmt.Fprintf(r.out, "  %-22s %4d at once %8.0f plans/s %6.2f s per 1,000  undo %6.1f ms"+
			"  %5.1f kB a plan  others %.2f\n", name, f.Concurrency, f.PerSecond, f.Processor, f.Undo,
			f.Disk/1000, f.Others)
		if r.figures[name] == nil {
			r.figures[name] = map[int][]peerFigure{}
		}
		r.figures[name][f.Concurrency] = append(r.figures[name][f.Concurrency], f)
	}
	return nil
}

// median is the middle of what one quantity was measured at, with its range; false: it was not.
func (r *peersRun) median(name string, n int, of func(peerFigure) float64) (mid, low, high float64,
	ok bool) {
	var list []float64
	for _, f := range r.figures[name][n] {
		list = append(list, of(f))
	}
	if len(list) == 0 {
		return 0, 0, 0, false
	}
	slices.Sort(list)
	return list[len(list)/2], list[0], list[len(list)-1], true
}

// table prints medians, their spread and the ratio to the best other system, in Markdown.
func (r *peersRun) table() {
	perSecond := func(f peerFigure) float64 { return f.PerSecond }
	ours := []string{peersOurs}
	if r.figures[peersInside] != nil {
		ours = append(ours, peersInside)
	}
	names := slices.Clone(ours)
	for _, s := range peerSystems {
		if r.figures[s.name] != nil {
			names = append(names, s.name)
		}
	}
	r.head("undo5, plans/s")
	for _, name := range names {
		r.row(name, func(n int) string {
			mid, low, high, ok := r.median(name, n, perSecond)
			return cell(ok, "%.0f (%.0f to %.0f)", mid, low, high)
		})
	}
	for _, name := range ours {
		r.row(name+", times the best other system", func(n int) string {
			best := 0.0
			for _, other := range names[len(ours):] {
				mid, _, _, _ := r.median(other, n, perSecond)
				best = max(best, mid)
			}
			mid, _, _, ok := r.median(name, n, perSecond)
			return cell(ok && best > 0, "%.2f", mid/best)
		})
	}
	r.head("processor time, s per 1,000 plans")
	for _, name := range names {
		r.row(name, func(n int) string {
			mid, _, _, ok := r.median(name, n, func(f peerFigure) float64 { return f.Processor })
			return cell(ok, "%.2f", mid)
		})
	}
	fmt.Fprintf(r.out, "\nMedians of %d rounds, %s a figure; commit %.7s.\n", r.bench.rounds,
		r.bench.each, cmp.Or(cli.ReadVersion().Commit, "unknown"))
}

// head begins a table with a column for each concurrency.
func (r *peersRun) head(title string) {
	fmt.Fprintln(r.out)
	r.row(title, func(n int) string { return fmt.Sprintf("%d at once", n) })
	fmt.Fprint(r.out, "|---|", strings.Repeat("---|", len(r.bench.concurrency)), "\n")
}

func (r *peersRun) row(title string, at func(n int) string) {
	fmt.Fprintf(r.out, "| %s |", title)
	for _, n := range r.bench.concurrency {
		if text := at(n); text != "" {
			fmt.Fprint(r.out, " ", text)
		}
		fmt.Fprint(r.out, " |")
	}
	fmt.Fprintln(r.out)
}

// cell is empty where nothing was measured.
func cell(measured bool, format string, a ...any) string {
	if !measured {
		return ""
	}
	return fmt.Sprintf(format, a...)
}
