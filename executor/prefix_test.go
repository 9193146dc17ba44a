package executor_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"

	. "github.com/sagenbaum/sagenbaum/executor"
)

const anyFailed = `facts.exists("job/", k, v, v.state == "failed")`

// TestConditionsOverThePrefixesOfFacts: as facts come, change and go.
func TestConditionsOverThePrefixesOfFacts(t *testing.T) {
	for _, c := range []struct{ name, condition, play, want string }{
		{"one of them", anyFailed, `fact:job/a={"state":"ok"} turn fact:job/b={"state":"failed"} turn`, "compensated"},
		{"none of them", anyFailed, `fact:job/a={"state":"ok"} fact:jobs={"state":"failed"} turn`, "open"},
		{"it changes", anyFailed, `fact:job/a={"state":"ok"} turn fact:job/a={"state":"failed"} turn`, "compensated"},
		{"one that is gone", `facts.count("job/") == 1`, `fact:job/a=1 fact:job/b=1 forget:job/a turn`, "compensated"},
		{"the last is gone", `seen("lock/a") && !facts.exists("lock/")`, `fact:lock/a=1 turn forget:lock/a turn`, "compensated"},
		{"a count", `facts.count("job/") >= 3`, `fact:job/a=1 fact:job/b=1 turn fact:job/b=2 turn`, "open"},
		{"a count that is reached", `facts.count("job/") >= 3`, `fact:job/a=1 fact:job/b=1 turn fact:job/c=2 turn`, "compensated"},
		{"a counted condition", `facts.count("job/", k, v, v > 1) >= 2`, `fact:job/a=1 fact:job/b=2 turn fact:job/a=3 turn`,
			"compensated"},
		{"an error beside", anyFailed, `fact:job/a=7 turn fact:job/b={"state":"failed"} turn`, "compensated"},
		{"an error", `!` + anyFailed + ` && facts.exists("job/")`, `fact:job/a=7 turn`, "open"},
		{"the error goes", `!` + anyFailed + ` && facts.exists("job/")`, `fact:job/a=7 turn fact:job/a={"state":"ok"} turn`,
			"compensated"},
		{"a name of the plan", `facts.exists("plan/" + plan.id + "/")`, `fact:plan/q/x=1 turn fact:plan/p/x=1 turn`, "compensated"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSchedule(t)
			s.must(s.agent("p", opened(0, when("halt", c.condition))))
			s.play("a a+")
			for _, word := range strings.Fields(c.play) {
				if key, is := strings.CutPrefix(word, "forget:"); is {
					s.must(s.append(sensor, forgotten(key)))
					continue
				}
				s.play(word)
			}
			if got := s.show("p").State; got != c.want {
				t.Errorf("the plan is %s, want %s", got, c.want)
			}
			s.state.Flush()
			if err := CheckRows(t, s.kv); err != nil {
				t.Error(err)
			}
			s.wantRefolded()
		})
	}
}

// TestAFiringByPrefixTellsWhichFactMadeItTrue: in its record, and as it is explained.
func TestAFiringByPrefixTellsWhichFactMadeItTrue(t *testing.T) {
	s := newSchedule(t)
	s.must(s.agent("p", opened(0, when("halt", anyFailed))))
	s.play(`a a+ fact:job/a={"state":"ok"}`)
	s.state.Flush()
	explained, err := view.NewReader(s.kv, "t", s).Explain(api.ExplainQuery{Plan: "p"})
	if err != nil {
		t.Fatal(err)
	}
	for _, lease := range explained.Leases {
		if lease.Name == "halt" && (!slices.Equal(lease.Keys, []string{"job/*"}) || lease.Truth != "false") {
			t.Errorf("it is explained as %+v", lease)
		}
	}
	s.play(`fact:job/b={"state":"failed"} fact:job/c={"state":"failed"} turn`)
	var told []string
	for _, m := range s.log {
		entries, err := ledger.Decode("t", m)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			for _, r := range e.Record.GetLeaseFired().GetReadings() {
				told = append(told, fmt.Sprintf("%s=%s", r.Name, r.Value))
			}
		}
	}
	if want := []string{`facts.exists("job/")="job/b"`, `facts["job/b"]={"state":"failed"}`}; !slices.Equal(told, want) {
		t.Errorf("the firing tells %q, want %q", told, want)
	}
}

// costOfAFact is how many rows are read, and how many allocations made, to fold one fact beside so
// many leases of other prefixes that are as long as one of its own.
func costOfAFact(t *testing.T, leases int) (read int, allocations uint64) {
	kv := &readRows{MemoryKV: rows.NewMemoryKV()}
	c := &crowd{t: t, state: OpenWith(kv, "t", nil, triggers.NewCache(100)), nowNs: epoch0}
	c.store(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, &pb.Record{
		Term: 1, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h1", FoldVersion: FoldVersion}}})
	for n := range leases {
		r := opened(0, when("halt", fmt.Sprintf(`facts.exists("other/%05d/", k, v, v == 1)`, n)))
		r.Plan = fmt.Sprintf("p%05d", n)
		c.store(ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "a1", Plan: r.Plan}, r)
	}
	c.store(sensor, asserted("jobs/00000/warm", `1`))
	c.state.Flush()
	kv.read = 0
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.store(sensor, asserted("jobs/00000/x", `1`))
	runtime.ReadMemStats(&after)
	if leases > 0 {
		c.nowNs += second
		c.store(sensor, asserted("other/00007/x", `1`))
		if c.state.Decide(Input{EpochNs: c.nowNs, SizeMax: 60 << 10}) == nil {
			t.Error("the fact of a prefix turns no lease")
		}
	}
	return kv.read, after.Mallocs - before.Mallocs
}

// TestAFactCostsNothingForLeasesOfOtherPrefixes: however many there are.
func TestAFactCostsNothingForLeasesOfOtherPrefixes(t *testing.T) {
	few, some := costOfAFact(t, 10)
	many, all := costOfAFact(t, 10_000)
	t.Logf("%d rows are read and %d allocations made for a fact beside 10 leases, %d and %d beside 10,000",
		few, some, many, all)
	if many > few+2 || all > some+some/2 {
		t.Errorf("%d rows and %d allocations beside 10 leases, %d and %d beside 10,000", few, some, many, all)
	}
}

// TestFactsThatAreGoneCostAPrefixNothing: a tombstone stays for each, and none is read.
func TestFactsThatAreGoneCostAPrefixNothing(t *testing.T) {
	kv := &readRows{MemoryKV: rows.NewMemoryKV()}
	c := &crowd{t: t, state: OpenWith(kv, "t", nil, triggers.NewCache(100)), nowNs: epoch0}
	for n := range 2000 {
		key := fmt.Sprintf("job/%04d", n)
		c.store(sensor, asserted(key, `1`), forgotten(key))
	}
	c.store(sensor, asserted("job/x", `1`))
	c.state.Flush()
	kv.read = 0
	r := opened(0, when("halt", `facts.count("job/") == 2`))
	r.Plan = "p"
	c.store(ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "a1", Plan: "p"}, r)
	if kv.read > 40 {
		t.Errorf("%d rows are read for one fact that is there", kv.read)
	}
	c.store(sensor, asserted("job/0001", `1`))
	c.state.Flush()
	if p := c.state.Reading().Plan("p"); p.Row.Turned == nil {
		t.Error("a fact that is there again does not count")
	}
}

// TestMoreFactsOfAPrefixThanAreReadAreListed: the lease is in error until some are gone.
func TestMoreFactsOfAPrefixThanAreReadAreListed(t *testing.T) {
	s := newSchedule(t)
	s.must(s.agent("p", opened(0, when("halt", `facts.count("job/") == 511 && facts.exists("go")`))))
	s.play("a a+ fact:go=1")
	for n := range 512 {
		s.must(s.append(sensor, asserted(fmt.Sprintf("job/%04d", n), `1`)))
	}
	s.play("turn")
	if got, faulty := s.show("p").State, s.state.Meta().Faulty; got != "open" || faulty != 1 {
		t.Fatalf("the plan is %s, and %d leases are in error", got, faulty)
	}
	for n := range 3 {
		s.must(s.append(sensor, forgotten(fmt.Sprintf("job/%04d", n))))
	}
	if faulty := s.state.Meta().Faulty; faulty != 0 {
		t.Errorf("%d leases are in error, and the facts are few again", faulty)
	}
	s.wantRefolded()
}

// TestAnEvictedFactOfAPrefixCountsAsBefore: its value is read where it was asserted, and comes back.
func TestAnEvictedFactOfAPrefixCountsAsBefore(t *testing.T) {
	s := newSchedule(t)
	s.play(`fact:job/a={"state":"failed"}`)
	s.must(s.append(ops, evictAsked("job/a")))
	s.play("turn")
	if s.factState("job/a") != api.FactEvicted {
		t.Fatal("it is in memory")
	}
	s.must(s.agent("q", opened(0, when("halt", `facts.count("job/", k, v, k == "job/b") > 0`))))
	if len(s.recalls) != 0 {
		t.Errorf("%q are read for keys alone", s.recalls)
	}
	s.must(s.agent("p", opened(0, when("halt", `facts.exists("job/", k, v, v.state == "failed") && facts.count("job/") > 1`))))
	if !slices.Contains(s.recalls, "job/a") {
		t.Errorf("%q are read", s.recalls)
	}
	if got := s.show("p").State; got != "open" {
		t.Fatal(got)
	}
	s.play(`turn`)
	if got := s.factState("job/a"); got != api.FactInMemory {
		t.Errorf("the fact that a condition reads is %s", got)
	}
	fact, _ := view.NewReader(s.kv, "t", s).Fact("job/a")
	if !fact.Watched {
		t.Errorf("no lease seems to read %+v", fact)
	}
	s.play(`fact:job/b=1 turn`)
	if got := s.show("p").State; got != "failed" { // nothing to undo
		t.Errorf("the plan is %s", got)
	}
	s.wantRefolded()
}

// TestEqualConditionsOverAPrefixAreAskedOnce: they are one node, which turns them all.
func TestEqualConditionsOverAPrefixAreAskedOnce(t *testing.T) {
	s := newSchedule(t)
	for i := range 50 {
		s.must(s.agent(fmt.Sprintf("p%03d", i), opened(0, when("halt", anyFailed+fmt.Sprintf(" // %d", i)))))
	}
	s.state.Flush()
	if !s.state.OneNode(triggers.PrefixKey("job/")) {
		t.Fatal("another watcher than a node")
	}
	s.play(`fact:job/a={"state":"ok"} turn fact:job/b={"state":"failed"} turn`)
	for i := range 50 {
		if got := s.show(fmt.Sprintf("p%03d", i)).State; got != "failed" {
			t.Fatal(i, got)
		}
	}
	s.state.Flush()
	for k := range s.kv.Scan(rows.Lengths.Prefix(), rows.After(rows.Lengths.Prefix())) {
		t.Errorf("a prefix seems to be watched: %q", k)
	}
}

// TestAnEarlierHolderKnowsNoPrefixes: it refuses them, in the words in which it did.
func TestAnEarlierHolderKnowsNoPrefixes(t *testing.T) {
	for version, want := range map[uint32]Verdict{ledger.PrefixSince - 1: Refused, ledger.PrefixSince: Effective} {
		s := newSchedule(t)
		s.underHolder(version)
		got := s.agent("p", opened(0, when("halt", anyFailed)))[0]
		if got.Verdict != want || want == Refused && !strings.Contains(got.Reason,
			"plan_opened.triggers[0].condition: does not compile: all facts at once") {
			t.Errorf("under version %d: %+v", version, got)
		}
		r := pair("a", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			c.Triggers = []*pb.Trigger{when("any", anyFailed)}
		})
		if got := s.agent("p", r...)[0]; got.Verdict != want {
			t.Errorf("a pair under version %d: %+v", version, got)
		}
		s.wantRefolded()
	}
}

// TestAPrefixThatIsNoneIsRefusedByTheFieldOfItsCondition: before its forward runs.
func TestAPrefixThatIsNoneIsRefusedByTheFieldOfItsCondition(t *testing.T) {
	s := newSchedule(t)
	for condition, want := range map[string]string{
		`facts.exists(facts["k"])`: "triggers[0].condition: does not compile: 1:19: a prefix of facts that is not known at registration",
		`facts.exists("")`:         "triggers[0].condition: does not compile: 1:14: a prefix of 0 bytes",
	} {
		if got := s.agent("p", opened(0, when("halt", condition)))[0]; got.Verdict != Refused ||
			!strings.Contains(got.Reason, want) {
			t.Errorf("%s: %+v", condition, got)
		}
	}
}
