package executor_test

import (
	options "flag"
	"fmt"
	"runtime"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// One agent may register as many conditions as it likes, no two of one shape. What they
// cost is bounded: a held one in memory, a new one in compilations, a fact in both.

var distinctHeld = options.Int("distinct", 16_000, "conditions that TestAHeldConditionIsSmall holds")

// distinct are conditions of which no two have one shape; all but those of one key read
// facts of their own.
var distinct = map[string]func(i int) string{
	"of one key": func(i int) string { return fmt.Sprintf(`facts["a"].f%d == 1`, i) },
	"of its key": func(i int) string { return fmt.Sprintf(`facts["a%d"].f%d == 1`, i, i) },
	"of a list": func(i int) string {
		return fmt.Sprintf(`facts["o%d"].s in ["x%d", "y"] && plan.status == "open"`, i, i)
	},
	"of a window": func(i int) string {
		return fmt.Sprintf(`facts["t%d"].l%d > 3 && absent_for("c%d", at("t%d"), duration("1h"))`, i, i, i, i)
	},
	"of a loop": func(i int) string { return fmt.Sprintf(`["c1","c2"].exists(c, facts["s%d/" + c].s%d == 1)`, i, i) },
	"of terms": func(i int) string {
		var b strings.Builder
		for n := range 18 {
			if n > 0 {
				b.WriteString([]string{" || ", " && "}[i>>(n-1)&1])
			}
			fmt.Fprintf(&b, `facts["k%d"].f == %d`, n, n)
		}
		return b.String()
	},
	"of a long text": func(i int) string {
		return fmt.Sprintf(`facts["a%d"].f%d == 1 // %s`, i, i, strings.Repeat("-", 3500))
	},
}

// distinctPlan opens a plan with TriggersMax of them, from number n on.
func distinctPlan(t testing.TB, sequence uint64, n int, text func(i int) string) []ledger.Entry {
	t.Helper()
	r := opened(0)
	for j := range ledger.TriggersMax {
		r.GetPlanOpened().Triggers = append(r.GetPlanOpened().Triggers, when(fmt.Sprintf("t%02d", j), text(n+j)))
	}
	return agentEntries(t, sequence, fmt.Sprintf("p%06d", n), r)
}

// agentEntries is one commit of agent a1.
func agentEntries(t testing.TB, sequence uint64, plan string, records ...*pb.Record) []ledger.Entry {
	t.Helper()
	for _, r := range records {
		r.Plan = plan
	}
	source := ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "a1", Plan: plan}
	return sourceEntries(t, sequence, source, records...)
}

func sourceEntries(t testing.TB, sequence uint64, source ledger.Source, records ...*pb.Record) []ledger.Entry {
	t.Helper()
	data, err := ledger.EncodeCommit(records)
	if err != nil {
		t.Fatal(err)
	}
	m := ledger.Message{Sequence: sequence, StampNs: epoch0 + int64(sequence), Subject: source.Subject(), Data: data}
	entries, err := ledger.Decode("t", m)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func applyAll(t testing.TB, s *State, entries []ledger.Entry) {
	t.Helper()
	for _, e := range entries {
		if r := s.Apply(e); r.Verdict != Effective {
			t.Fatal(r)
		}
	}
}

// holdDistinct folds plans that hold so many distinct conditions.
func holdDistinct(t testing.TB, s *State, held int, text func(i int) string) (sequence uint64) {
	t.Helper()
	for n := 0; n < held; n += ledger.TriggersMax {
		sequence++
		applyAll(t, s, distinctPlan(t, sequence, n, text))
		if sequence%64 == 0 {
			s.Flush()
		}
	}
	s.Flush()
	return sequence
}

func heapInUse() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// stateBytes is what a state keeps in memory, beside its rows, with so many distinct
// conditions held.
func stateBytes(t *testing.T, held int, text func(i int) string) int {
	t.Helper()
	kv := rows.NewMemoryKV()
	s := OpenWith(kv, "t", nil, triggers.NewCache(ExpressionsMax))
	holdDistinct(t, s, held, text)
	with := heapInUse()
	runtime.KeepAlive(s)
	s = nil
	without := heapInUse()
	runtime.KeepAlive(kv)
	return with - without
}

// TestAHeldConditionIsSmall: a condition that is held takes less than 1 KiB of memory,
// however many are held, and the compiled ones no more than their cache may have.
func TestAHeldConditionIsSmall(t *testing.T) {
	const each, programs, rows, absent = 1 << 10, ExpressionsMax * 3 << 10, CachedLargeMax, 8 << 20
	for name, text := range distinct {
		if !testenv.Long() && *distinctHeld < 72_000 && name != "of a window" && name != "of a long text" {
			continue // a plain run has those that take most, for one more and in all
		}
		if *distinctHeld < 72_000 && (name == "of a list" || name == "of a loop" || name == "of one key") {
			continue // they take less than the others
		}
		t.Run(name, func(t *testing.T) {
			held := *distinctHeld
			if name == "of a long text" {
				held /= 4
			}
			half, whole := stateBytes(t, held/2, text), stateBytes(t, held, text)
			more := (whole - half) / (held - held/2)
			t.Logf("%d bytes each, %d for one more; %d in all", whole/held, more, whole)
			if more > each {
				t.Errorf("one more takes %d bytes, want at most %d", more, each)
			}
			if most := 2*(programs+rows+absent) + held*each; whole > most {
				t.Errorf("%d conditions take %d bytes, want at most %d", held, whole, most)
			}
			if held >= 72_000 && whole/held > each {
				t.Errorf("%d conditions take %d bytes each, want at most %d", held, whole/held, each)
			}
		})
	}
}

// TestAConditionIsCompiledOnce where it is armed, however many are; and one made of known
// terms is not compiled at all.
func TestAConditionIsCompiledOnce(t *testing.T) {
	t.Parallel()
	kept := testenv.Cases(ExpressionsMax/4, ExpressionsMax)
	held := 2 * kept // more than the cache has
	all := uint64(held)
	wants := map[string]uint64{"of one key": all, "of its key": all, "of a window": all, "of terms": 18}
	for name, most := range wants {
		programs := triggers.NewCache(kept)
		s := OpenWith(rows.NewMemoryKV(), "t", nil, programs)
		holdDistinct(t, s, held, distinct[name])
		if n := programs.Compilations(); n > most+2 { // and the two that every plan has
			t.Errorf("%d conditions %s: %d compilations, want %d", held, name, n, most)
		}
	}
}

// TestWhatDoesNotTouchAConditionCompilesNothing: facts that it does not read, and actions
// of a plan whose conditions do not count them.
func TestWhatDoesNotTouchAConditionCompilesNothing(t *testing.T) {
	t.Parallel()
	const held = 8000
	programs := triggers.NewCache(ExpressionsMax)
	kv := rows.NewMemoryKV()
	s := OpenWith(kv, "t", nil, programs)
	sequence := holdDistinct(t, s, held, distinct["of its key"])
	before := programs.Compilations()
	fact := func(key string) {
		t.Helper()
		sequence++
		source := ledger.Source{Tenant: "t", Class: ledger.ClassFact, Name: "s"}
		r := &pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: key, Value: []byte(`{"f":0}`)}}}
		applyAll(t, s, sourceEntries(t, sequence, source, r))
		s.Flush()
	}
	compiled := func(what string, want uint64) {
		t.Helper()
		if n := programs.Compilations() - before; n != want {
			t.Errorf("%s: %d compilations, want %d", what, n, want)
		}
		before = programs.Compilations()
	}
	for i := range 100 {
		fact(fmt.Sprintf("other%d", i))
	}
	compiled("facts that nobody reads", 0)
	for plan := range 50 {
		for _, id := range []string{"x", "y"} {
			sequence++
			name := fmt.Sprintf("p%06d", plan*ledger.TriggersMax)
			applyAll(t, s, agentEntries(t, sequence, name, append(pair(id), completed(id))...))
		}
	}
	s.Flush()
	compiled("actions of plans that do not count them", 0)
	fact(fmt.Sprintf("a%d", held-1))
	compiled("a fact that a condition reads whose program is there", 0)
	fact("a0")
	compiled("a fact that a condition reads whose program is gone", 1)
	fact("a0")
	compiled("the same fact again", 0)
	s = OpenWith(kv, "t", nil, programs)
	compiled("a start", 0)
	fact("a1")
	compiled("a fact after the start", 1)
	fact("a1")
	compiled("the same fact again", 0)
}

// TestNoCompilationComesWithoutAPause: a host may give other tenants a processor before
// each text that is compiled, and is warned that it may take long.
func TestNoCompilationComesWithoutAPause(t *testing.T) {
	programs := triggers.NewCache(4) // nothing stays compiled for long
	s := OpenWith(rows.NewMemoryKV(), "t", nil, programs)
	compiled, most := uint64(0), uint64(0)
	pause := func(costly bool) {
		if costly {
			most = max(most, programs.Compilations()-compiled)
			compiled = programs.Compilations()
		}
	}
	s.Between(pause)
	counting := func(i int) string { return fmt.Sprintf(`plan.actions > %d && facts["k"].f%d == 1`, 100+i, i) }
	sequence := uint64(0)
	fold := func(entries []ledger.Entry) {
		t.Helper()
		pause(true)
		most = 0
		applyAll(t, s, entries)
		s.Flush()
		if pause(true); most > 1 {
			t.Fatalf("%d compilations without a pause", most)
		}
	}
	next := func() uint64 { sequence++; return sequence }
	fold(distinctPlan(t, next(), 0, counting))
	for _, id := range []string{"x", "y", "z"} {
		records := pair(id, func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			for j := range ledger.TriggersMax {
				c.Triggers = append(c.Triggers, when(fmt.Sprintf("t%d", j), counting(100+j)))
			}
		})
		fold(agentEntries(t, next(), "p000000", records...))
		fold(agentEntries(t, next(), "p000000", completed(id)))
	}
	r := &pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: "k", Value: []byte(`{"f":0}`)}}}
	fold(sourceEntries(t, next(), ledger.Source{Tenant: "t", Class: ledger.ClassFact, Name: "s"}, r))
	fold(agentEntries(t, next(), "p000000", planFailed()))
}

// BenchmarkArmDistinct is the fold of plans with 16 conditions each, no two of one shape.
func BenchmarkArmDistinct(b *testing.B) {
	for _, name := range []string{"of one key", "of its key", "of a list", "of a window", "of a loop", "of terms"} {
		b.Run(strings.ReplaceAll(name, " ", "_"), func(b *testing.B) {
			s := OpenWith(rows.NewMemoryKV(), "t", nil, triggers.NewCache(ExpressionsMax))
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				b.StopTimer()
				entries := distinctPlan(b, uint64(n+1), n*ledger.TriggersMax, distinct[name])
				b.StartTimer()
				applyAll(b, s, entries)
				if n%64 == 63 {
					s.Flush()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*ledger.TriggersMax), "ns/condition")
		})
	}
}
