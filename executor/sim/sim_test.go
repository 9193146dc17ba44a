package sim_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/sim"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/triggers"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "first seed of TestNewSeeds; 0: one that differs from run to run")
	seedsFlag = flag.Int("seeds", 0, "seeds that TestNewSeeds runs; 0: as many as there is time for")
	allFlag   = flag.Bool("all", false, "TestNewSeeds goes on after a seed that fails")
	forFlag   = flag.Duration("for", 0, "time for TestNewSeeds; 0: 20 s in a long run, else a few fixed seeds")
)

const programs = 4096

// TestMain collects less often: worlds are short-lived.
func TestMain(m *testing.M) {
	debug.SetGCPercent(1600)
	os.Exit(m.Run())
}

// fail prints a failing run, and how to repeat it.
func fail(t *testing.T, o sim.Options, r sim.Result) {
	t.Helper()
	lines := []string{fmt.Sprintf("%s: faults %s", o, r.Faults)}
	for _, v := range r.Violations {
		lines = append(lines, v.String())
	}
	t.Errorf("%s\nrepeat it: go run ./cmd/sagenbaum-lab sim %s --trace\nmake it smaller: go run ./cmd/sagenbaum-lab sim "+
		"%s --shrink", strings.Join(lines, "\n"), flags(o), flags(o))
}

// flags are the options as the command line takes them.
func flags(o sim.Options) string {
	var list []string
	for word := range strings.FieldsSeq(o.String()) {
		name, value, ok := strings.Cut(word, "=")
		if list = append(list, "--"+name); ok {
			list = append(list, value)
		}
	}
	return strings.Join(list, " ")
}

// graveyard are the runs that have failed before.
func graveyard(t *testing.T) (list []sim.Options) {
	t.Helper()
	f, err := os.Open("testdata/seeds/graveyard.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if line := lines.Text(); line != "" && line[0] != '#' {
			o, err := sim.ParseOptions(line)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			list = append(list, o)
		}
	}
	return list
}

// runSeeds runs worlds on all processors until next has no more, and returns how many,
// and what they have seen.
func runSeeds(t *testing.T, next func() (sim.Options, bool)) (runs, records, halted int, seen *sim.Seen) {
	t.Helper()
	var mu sync.Mutex
	var group sync.WaitGroup
	seen = sim.NewSeen()
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			cache, mine := triggers.NewCache(programs), sim.NewSeen()
			for {
				mu.Lock()
				o, ok := next()
				mu.Unlock()
				if !ok {
					break
				}
				o.Programs, o.Seen = cache, mine
				r := sim.Run(o)
				mu.Lock()
				if runs, records = runs+1, records+r.Records; r.Halted != "" {
					halted++
				}
				if len(r.Violations) > 0 {
					fail(t, o, r)
				}
				mu.Unlock()
				if o.Seed%100 == 0 { // a share of all runs twice (I9)
					if again := sim.Run(o); again.TraceHash != r.TraceHash {
						t.Errorf("seed %d: trace hash %s, and run again %s (I9)", o.Seed, r.TraceHash, again.TraceHash)
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			seen.Add(mine)
		})
	}
	group.Wait()
	return runs, records, halted, seen
}

// TestGraveyard runs what has failed before: none of it may fail again.
func TestGraveyard(t *testing.T) {
	list := graveyard(t)
	runSeeds(t, func() (sim.Options, bool) {
		if len(list) == 0 {
			return sim.Options{}, false
		}
		o := list[0]
		list = list[1:]
		return o, true
	})
}

// Worlds of TestNewSeeds in a plain run: the same each time, so that what fails is the
// change and not the day. They are none of TestEverythingHappens.
const (
	plainSeed  = 1_000_000
	plainSeeds = 100
)

// TestNewSeeds runs as many new worlds as there is time for; in a plain run a few that
// are fixed.
func TestNewSeeds(t *testing.T) {
	first, seeds, limit := *seedFlag, *seedsFlag, *forFlag
	if limit == 0 {
		limit = 20 * time.Second
		if !testenv.Long() && first == 0 && seeds == 0 {
			first, seeds = plainSeed, plainSeeds
		}
	}
	if first == 0 {
		first = uint64(time.Now().UnixNano()) / 1e6 * 1e4
	}
	fmt.Printf("simulation: seeds from %d\n", first)
	start, n := time.Now(), uint64(0)
	runs, records, halted, seen := runSeeds(t, func() (sim.Options, bool) {
		done := seeds > 0 && n >= uint64(seeds) || seeds == 0 && time.Since(start) > limit
		n++
		return sim.Options{Seed: first + n - 1}, !done && (*allFlag || !t.Failed())
	})
	took := time.Since(start)
	t.Logf("%d worlds from seed %d, %d records, %.0f worlds a second on %d processors, %d found halted; plans %v, "+
		"runs %v", runs, first, records, float64(runs)/took.Seconds(), runtime.GOMAXPROCS(0), halted, seen.Ends,
		seen.Runs)
}

// TestEverythingHappens: a world in which nothing happens proves nothing. Over fixed
// seeds every fault strikes, every kind of record that this world can produce comes
// up, effective and refused or void where it can be, every state of a plan is an end
// of some, and hosts die at every named place. What is too rare for that many worlds
// has one of its own.
func TestEverythingHappens(t *testing.T) {
	worlds, n := testenv.Cases(1000, 1500), 0
	rare := []uint64{8118} // an owner answers for a lease that was cut short
	_, _, halted, seen := runSeeds(t, func() (sim.Options, bool) {
		n++
		if i := n - worlds - 1; i >= 0 && i < len(rare) {
			return sim.Options{Seed: rare[i]}, true
		}
		return sim.Options{Seed: uint64(6400 + n)}, n <= worlds
	})
	some := func(what string, counts map[string]int, names ...string) {
		t.Helper()
		for _, name := range names {
			if counts[name] == 0 {
				t.Errorf("no %s %q in %d worlds", what, name, worlds)
			}
		}
	}
	for _, f := range sim.AllFaults.List() {
		some("fault", seen.Faults, f.String())
	}
	some("record", seen.Records,
		"plan_opened effective", "forward_registered effective", "compensation_registered effective",
		"forward_completed effective", "forward_failed effective",
		"forward_in_doubt effective", "savepoint_set effective", "plan_committed effective", "plan_failed effective",
		"plan_cancelled effective", "unwind_requested effective",
		"fact_asserted effective", "fact_retracted effective", "verdict_given effective", "verdict_given refused",
		"compensation_requested effective",
		"cancel_requested effective",
		"retry_requested effective", "resolved effective", "contract_published effective", "clock_confirmed effective",
		"evict_requested effective",
		"restore_requested effective", "cascade_answered effective", "effect_reported effective",
		"deadline_moved effective", "deadline_moved refused", "deadline_moved repeated",
		"plan_adopted effective", "plan_adopted refused", "plan_adopted repeated",
		"effect_reported repeated", "compensation_reported effective",
		"compensation_progressed effective", "term_started effective",
		"lease_fired effective", "unwind_started effective", "compensation_dispatched effective",
		"compensation_succeeded effective", "compensation_failed effective",
		"compensation_skipped effective", "probe_asked effective", "probe_answered effective", "action_quarantined effective",
		"held_set_retired effective",
		"plan_ended effective", "fact_evicted effective", "fact_reingested effective", "record_refused effective",
		"plan_rewound effective",
		"undo_window_closing effective", "owner_paged effective", "cascade_cut effective",
		"plan_opened repeated", "forward_registered repeated", "plan_committed refused", "plan_failed refused",
		"forward_registered refused", "none refused",
		"lease_fired void", "unwind_started void", "compensation_dispatched void", "compensation_succeeded void",
		"compensation_failed void", "compensation_skipped void",
		"probe_asked void", "probe_answered void", "action_quarantined void", "plan_ended void", "owner_paged void")
	some("commit", seen.Commits, "waits", "settled", "accepts", "lost", "completed though found too much")
	some("doubt of an open plan", seen.Commits, "asked while open", "present while open", "absent while open",
		"duplicate of an open plan", "unspecified while open", "asked again", "failed though found",
		"in doubt though failed", "extra though committed")
	some("commit", seen.Commits, "undone for a condition")
	some("end", seen.Ends, "open", "committing", "committed", "compensated", "failed", "quarantined", "resolved")
	some("death", seen.Points,
		"host: between turns", "host: folded, not committed", "host: folded, not sent",
		"host: committed", "host: sent, not noted",
		"host: decided, not appended",
		"host: appended, reply not heard", "host: term claimed, not heard", "worker: before its effect",
		"worker: after its effect", "host: one of a run sent, the one before not recorded")
	some("run", seen.Runs, "recorded", "held", "sent early", "called back on its way")
	some("staged act", seen.Deliveries, "dropped", "delivered", "delivered, as a probe says", "sent again", "stopped",
		"its owner's", "found present", "found absent", "found unspecified")
	if halted < worlds/75 {
		t.Errorf("only %d of %d worlds found what their stream had lost", halted, worlds)
	}
	t.Logf("%d kinds of records and verdicts, %d reasons", len(seen.Records), len(seen.Reasons))
}

// TestARunRepeats: a seed is one run, with and without a trace, a shared cache and
// a count of what was seen.
func TestARunRepeats(t *testing.T) {
	cache := triggers.NewCache(programs)
	for seed := range uint64(testenv.Cases(12, 60)) {
		plain := sim.Run(sim.Options{Seed: seed})
		for _, o := range []sim.Options{{Seed: seed}, {Seed: seed, Trace: true}, {Seed: seed, Programs: cache},
			{Seed: seed, Seen: sim.NewSeen()}} {
			if r := sim.Run(o); r.TraceHash != plain.TraceHash || r.Steps != plain.Steps {
				t.Fatalf("seed %d: %d steps, hash %s; %+v has %d steps, hash %s", seed, plain.Steps, plain.TraceHash, o, r.Steps,
					r.TraceHash)
			}
		}
	}
}

// TestLeavingOutAPlanOrAFaultLeavesTheRest: what a plan is going to do does not depend
// on what else is there, which is what makes runs shrink.
func TestLeavingOutAPlanOrAFaultLeavesTheRest(t *testing.T) {
	whole := sim.Run(sim.Options{Seed: 5, Trace: true, Without: sim.AllFaults, Alone: true})
	less := sim.Run(sim.Options{Seed: 5, Trace: true, Without: sim.AllFaults, Alone: true, Drop: 1})
	opened := func(r sim.Result) (list []string) {
		for _, l := range r.Trace {
			if l.Actor == "ledger" && strings.Contains(l.Text, "plan_opened p") && strings.HasSuffix(l.Text, "effective") {
				_, text, _ := strings.Cut(l.Text, " ")
				list = append(list, text)
			}
		}
		slices.Sort(list)
		return list
	}
	all := opened(whole)
	rest := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return strings.Contains(s, " p0") })
	if got := opened(less); !slices.Equal(got, rest) || len(rest) == len(all) {
		t.Errorf("without plan 0: %q, want %q", got, rest)
	}
}

// stray is a store that has a row too many once it has one of plan p1.
type stray struct{ *rows.MemoryKV }

func (s stray) Set(key, value []byte) {
	s.MemoryKV.Set(key, value)
	if bytes.Contains(key, []byte("p1")) {
		s.MemoryKV.Set([]byte("\xfe stray"), []byte("row"))
	}
}

func (s stray) Commit()   {}
func (s stray) Crash(int) {}
func (s stray) Wipe()     {}
func (s stray) Close()    {}

// TestAFailingRunShrinks: a fault that a single plan shows is shrunk to few plans and
// no faults.
func TestAFailingRunShrinks(t *testing.T) {
	o := sim.Options{Seed: 16, Open: func() sim.Store { return stray{rows.NewMemoryKV()} }}
	if r := sim.Run(o); len(r.Violations) == 0 {
		t.Fatal("rows that differ are not seen")
	}
	small, r := sim.Shrink(o)
	if len(r.Violations) == 0 || r.Violations[0].Rule != "I7" {
		t.Fatalf("shrunk to %s, which shows %v", small, r.Violations)
	}
	if left := sim.FaultsOf(16) &^ small.Without; left != 0 || !small.Alone || r.Plans > 2 {
		t.Errorf("shrunk to %s: %d plans, faults %s", small, r.Plans, left)
	}
	again, err := sim.ParseOptions(small.String() + " # why")
	if err != nil || again.String() != small.String() {
		t.Errorf("%q reads as %q: %v", small, again, err)
	}
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, line := range []string{"", "seed=x", "without=crash", "seed=1 without=crush", "seed=1 drop=9", "seed=1 drop=a",
		"seed=1 hosts=x", "seed=1 loud"} {
		if o, err := sim.ParseOptions(line); err == nil {
			t.Errorf("%q reads as %+v", line, o)
		}
	}
}

// BenchmarkWorlds is one world after the other, on every processor.
func BenchmarkWorlds(b *testing.B) {
	var seed atomic.Uint64
	var records atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		cache := triggers.NewCache(programs)
		for pb.Next() {
			records.Add(int64(sim.Run(sim.Options{Seed: seed.Add(1), Programs: cache}).Records))
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "worlds/s")
	b.ReportMetric(float64(records.Load())/float64(b.N), "records/world")
}
