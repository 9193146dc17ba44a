package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor/sim"
	"github.com/sagenbaum/sagenbaum/triggers"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// simPrograms bounds the compiled conditions that worlds on one processor share.
const simPrograms = 4096

// simFailuresMax is how many failing worlds are shown, and end a run of many.
const simFailuresMax = 10

// simView is one world, as it is shown.
type simView struct {
	sim.Result
	Options string `json:"options"`
	Repeat  string `json:"repeat"` // the command
}

// simsView is what many worlds came to.
type simsView struct {
	First    uint64    `json:"first_seed"`
	Worlds   int       `json:"worlds"`
	Records  int       `json:"records"`
	Steps    int       `json:"steps"`
	Halted   int       `json:"halted"`
	TookNs   int64     `json:"took_ns"`
	Faults   []counted `json:"faults"`
	Ends     []counted `json:"plans"`
	Failures []simView `json:"failures"`
}

type counted struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

// simFlags are the flags of sim.
type simFlags struct {
	seed, seeds   uint64
	trace, shrink bool
	without, drop string
	hosts         int
	alone         bool
}

func newSim(s *cli.Settings) *cobra.Command {
	f := new(simFlags)
	cmd := &cobra.Command{
		Use: "sim",
		Short: "Run worlds by seed in which the executor meets every fault, offline (exit code 1 " +
			"when a rule is broken)",
		Long: `Run worlds by seed: agents, workers with an outside world whose effects are counted,
supervisors, operators and one to three hosts, over a stream and a network that lose,
double and reorder. Everything is decided by the seed; the executor, the ledger and the
triggers are the real ones. Rules are checked after every record and at the end.
docs/guide/simulation.md explains what a trace shows.`,
		Example: `  sagenbaum-lab sim --seed 7                        # one world
  sagenbaum-lab sim --seed 7 --trace                # and all that happens in it
  sagenbaum-lab sim --seed 1 --seeds 10000          # many, on all processors
  sagenbaum-lab sim --seed 7 --shrink               # what is left of a failing one
  sagenbaum-lab sim --seed 7 --without crash,mute --drop 0,2 --hosts 1 --alone --trace`,
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			if f.seeds > 1 {
				return runSims(cmd, s, o, f.seeds)
			}
			return runSim(cmd, s, o, f.shrink)
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&f.seed, "seed", 1, "`SEED` of the world, or of the first")
	flags.Uint64Var(&f.seeds, "seeds", 1, "how many worlds, one seed after the other")
	flags.BoolVar(&f.trace, "trace", false, "show all that happens")
	flags.BoolVar(&f.shrink, "shrink", false,
		"leave out plans, actors and faults while the same rule fails")
	flags.StringVar(&f.without, "without", "",
		"`FAULTS` of the seed that do not happen, with commas between them")
	flags.StringVar(&f.drop, "drop", "", "numbers of `PLANS` to leave out, as in 0,2")
	flags.IntVar(&f.hosts, "hosts", 0, "at most so many hosts; 0: as the seed says")
	flags.BoolVar(&f.alone, "alone", false,
		"without sources, supervisors, operators and foreign writers")
	return cmd
}

// options checks the flags.
func (f *simFlags) options() (o sim.Options, err error) {
	o = sim.Options{Seed: f.seed, Hosts: f.hosts, Alone: f.alone, Trace: f.trace}
	if o.Without, err = sim.ParseFaults(f.without); err != nil {
		return o, cli.Fail(cli.ExitUsage, "one or more of "+sim.AllFaults.String(), "--without: %v",
			err)
	}
	if o.Drop, err = sim.ParseDrop(f.drop); err != nil {
		return o, cli.Fail(cli.ExitUsage, "--drop 0,2", "--drop: %v", err)
	}
	switch {
	case f.hosts < 0:
		return o, cli.Fail(cli.ExitUsage, "--hosts 1", "--hosts %d: a world has 1 to 3 hosts",
			f.hosts)
	case f.seeds == 0:
		return o, cli.Fail(cli.ExitUsage, "--seeds 1000", "--seeds 0 runs nothing")
	case f.seeds > 1 && (f.trace || f.shrink):
		return o, cli.Fail(cli.ExitUsage, "--seed N --trace",
			"--trace and --shrink are for one world, not for %d", f.seeds)
	}
	return o, nil
}

// simCommand is how a world is run again.
func simCommand(o sim.Options, more string) string {
	words := []string{"sagenbaum-lab", "sim"}
	for word := range strings.FieldsSeq(o.String()) {
		words = append(words, "--"+strings.Replace(word, "=", " ", 1))
	}
	return strings.Join(append(words, more), " ")
}

func runSim(cmd *cobra.Command, s *cli.Settings, o sim.Options, shrink bool) error {
	result := sim.Run(o)
	if shrink && len(result.Violations) > 0 {
		trace := o.Trace
		o, result = sim.Shrink(o)
		if o.Trace = trace; trace {
			result = sim.Run(o)
		}
	}
	out := cmd.OutOrStdout()
	if s.JSON() {
		if err := cli.PrintJSON(out,
			simView{result, o.String(), simCommand(o, "--trace")}); err != nil {
			return cli.Failed("print the world", err)
		}
	} else {
		writeTrace(out, s.Pen(cmd), result.Trace)
		writeSim(out, s.Pen(cmd), o, result)
	}
	return cli.Look(nil, len(result.Violations) > 0)
}

// actorWidth is the column of actors in a trace.
const actorWidth = 13

// writeTrace shows a time line: when, who, what; faults and broken rules stand out.
func writeTrace(out io.Writer, p cli.Pen, lines []sim.Line) {
	for _, l := range lines {
		at := fmt.Sprintf("%10.3f", float64(l.AtNs)/1e9)
		actor := fmt.Sprintf("%-*s", actorWidth, cli.Printable(l.Actor))
		text := cli.Printable(l.Text)
		switch {
		case strings.HasPrefix(l.Fault, "!"):
			actor, text = p.In("31;1", actor), p.In("31;1", text)
		case l.Fault != "":
			text = p.In("33", "! "+l.Fault+": "+text)
		case l.Actor == "ledger" && !strings.HasSuffix(l.Text, ": effective"):
			text = p.Dim(text)
		case l.Actor == "ledger":
			actor = p.Bold(actor)
		}
		fmt.Fprintf(out, "%s  %s  %s\n", p.Dim(at), actor, text)
	}
	if len(lines) > 0 {
		fmt.Fprintln(out)
	}
}

func writeSim(out io.Writer, p cli.Pen, o sim.Options, r sim.Result) {
	fmt.Fprintf(out, "%s: %s on %s, %d records in %d steps and %s of its own time\n", o,
		cli.CountOf(r.Plans, "plan"), cli.CountOf(r.Hosts, "host"), r.Records, r.Steps,
		time.Duration(r.SpanNs).Round(time.Second))
	fmt.Fprintf(out, "faults  %s\n", strings.ReplaceAll(r.Faults, ",", ", "))
	fmt.Fprintf(out, "trace   %s\n", r.TraceHash)
	if r.Halted != "" {
		fmt.Fprintf(out, "halted  %s: what the stream lost was found before anything was sent\n",
			cli.Printable(r.Halted))
	}
	if len(r.Violations) == 0 {
		fmt.Fprintln(out, p.In(cli.StateColors["ok"], "ok")+"      no rule is broken")
		return
	}
	for _, v := range r.Violations {
		fmt.Fprintf(out, "%s    %s\n", p.In(cli.StateColors["FAIL"], "FAIL"),
			cli.Printable(v.String()))
	}
	fmt.Fprintf(out, "  next: %s\n", simCommand(o, "--trace"))
}

// runSims runs many worlds on all processors; it ends early when many fail.
func runSims(cmd *cobra.Command, s *cli.Settings, o sim.Options, seeds uint64) error {
	view, seen := simsView{First: o.Seed, Failures: []simView{}}, sim.NewSeen()
	started := time.Now()
	var mu sync.Mutex
	var group sync.WaitGroup
	next := o.Seed
	take := func() (sim.Options, bool) {
		mu.Lock()
		defer mu.Unlock()
		one := o
		one.Seed = next
		if next-o.Seed == seeds || len(view.Failures) >= simFailuresMax ||
			cmd.Context().Err() != nil {
			return one, false
		}
		next++
		return one, true
	}
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() { // ends with the seeds
			programs, mine := triggers.NewCache(simPrograms), sim.NewSeen()
			for one, ok := take(); ok; one, ok = take() {
				one.Programs, one.Seen = programs, mine
				r := sim.Run(one)
				mu.Lock()
				view.add(one, r)
				mu.Unlock()
			}
			mu.Lock()
			defer mu.Unlock()
			seen.Add(mine)
		})
	}
	group.Wait()
	view.TookNs = time.Since(started).Nanoseconds()
	view.Faults, view.Ends = countedOf(seen.Faults), countedOf(seen.Ends)
	slices.SortFunc(view.Failures,
		func(a, b simView) int { return strings.Compare(a.Options, b.Options) })
	out := cmd.OutOrStdout()
	if s.JSON() {
		if err := cli.PrintJSON(out, view); err != nil {
			return cli.Failed("print the worlds", err)
		}
	} else {
		view.write(out, s.Pen(cmd))
	}
	switch {
	case len(view.Failures) > 0:
		return cli.ErrLook
	case cmd.Context().Err() != nil:
		return cmd.Context().Err()
	default:
		return nil
	}
}

func (v *simsView) add(o sim.Options, r sim.Result) {
	v.Worlds++
	v.Records += r.Records
	v.Steps += r.Steps
	if r.Halted != "" {
		v.Halted++
	}
	if len(r.Violations) > 0 && len(v.Failures) < simFailuresMax {
		v.Failures = append(v.Failures, simView{r, o.String(), simCommand(o, "--trace")})
	}
}

func countedOf(counts map[string]int) []counted {
	list := []counted{}
	for name, n := range counts {
		list = append(list, counted{name, n})
	}
	slices.SortFunc(list, func(a, b counted) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (v *simsView) write(out io.Writer, p cli.Pen) {
	took := time.Duration(v.TookNs)
	fmt.Fprintf(out,
		"seeds %d to %d: %d worlds, %d records, %d steps in %s, %.0f worlds a second\n",
		v.First, v.First+uint64(max(v.Worlds, 1))-1, v.Worlds, v.Records, v.Steps,
		took.Round(10*time.Millisecond), float64(v.Worlds)/took.Seconds())
	line := func(name string, counts []counted) {
		var words []string
		for _, c := range counts {
			words = append(words, fmt.Sprintf("%s %d", c.Name, c.Count))
		}
		fmt.Fprintf(out, "%-7s %s\n", name, strings.Join(words, ", "))
	}
	line("faults", v.Faults)
	line("plans", v.Ends)
	fmt.Fprintf(out, "halted  %d: what their stream lost was found before anything was sent\n",
		v.Halted)
	if len(v.Failures) == 0 {
		fmt.Fprintln(out, p.In(cli.StateColors["ok"], "ok")+"      no rule is broken")
		return
	}
	for _, f := range v.Failures {
		fmt.Fprintf(out, "%s    seed %d: %s\n        faults %s\n        %s\n",
			p.In(cli.StateColors["FAIL"], "FAIL"), f.Seed, cli.Printable(f.Violations[0].String()),
			f.Faults, f.Repeat)
	}
}
