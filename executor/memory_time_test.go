package executor_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Every function answers of a fact that was evicted as it did before, and as it does once
// the value is back: two states fold one history of a fact, and one of them evicts it and
// brings it back in between. All histories of a few steps are tried.

// answered are conditions whose answers tell when a fact was asserted, changed and
// occurred: by their truth, by the instant at which they wake, and by what they read.
var answered = []string{
	`elapsed(since("k"), duration("1h"))`,
	`elapsed(at("k"), duration("1h"))`,
	`elapsed(first_at("k"), duration("1h"))`,
	`elapsed(last_at("k"), duration("1h"))`,
	`since("k") == at("k")`,
	`first_at("k") == last_at("k")`,
	`at("k") == last_at("k")`,
	`since("k") > plan.opened_at + duration("15s")`,
	`count("k", duration("1h")) > 100`,
	`count("k", duration("15s")) == 1`,
	`at_least(2, "k", duration("25s"))`,
	`at_least(3, "k", duration("1h"))`,
	`within("k", plan.opened_at + duration("15s"), duration("10s"))`,
	`absent_for("k", plan.opened_at + duration("15s"), duration("1h"))`,
	`absent_for("k", since("k"), duration("10s"))`,
	`seen("k")`,
	`size(latest(3, "k", plan.opened_at, duration("1h"))) == 2`,
	`"k" in facts`,
	`has(facts["k"].n)`,
	`facts["k"].n == 2`,
	`facts[?"k"].orValue({"n": 7}).n == 7`,
	`facts["k"].n == 2 && elapsed(since("k"), duration("15s"))`,
	`facts["k"].n == 1 && elapsed(at("k"), duration("15s"))`,
	`facts["k" + string(facts["k"].n)].m == 1`,
}

// steps of a history. The twin of a state that evicts and brings back stores another
// fact there, so that both have the same records at the same places.
const (
	assertOne = iota // with the value 1
	assertTwo
	retract
	evict
	reingest     // with the value in the record
	reingestRead // with the value read from the ledger
	stepKinds
)

// pairOfStates folds one history twice.
type pairOfStates struct {
	t      *testing.T
	log    [2][]ledger.Message
	kv     [2]*rows.MemoryKV
	states [2]*State // of the one that evicts, and of its twin
	cache  *triggers.Cache
	held   []*triggers.Held
	stamp  int64
}

// Value implements Archive over the ledger of the state that evicts.
func (p *pairOfStates) Value(at *pb.Address, key string) (json.RawMessage, error) {
	return FactAt("t", p.log[0][at.Sequence-1], at, key)
}

func newPairOfStates(t *testing.T, cache *triggers.Cache) *pairOfStates {
	p := &pairOfStates{t: t, cache: cache, stamp: epoch0}
	for i := range p.states {
		p.kv[i] = rows.NewMemoryKV()
		p.states[i] = OpenWith(p.kv[i], "t", p, cache)
	}
	term := &pb.Record{Term: 1,
		Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h", FoldVersion: FoldVersion}}}
	p.store(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, term, term)
	plan := opened(0)
	for i, text := range answered[:ledger.TriggersMax] {
		plan.GetPlanOpened().Triggers = append(plan.GetPlanOpened().Triggers, when(fmt.Sprint("l", i), text))
	}
	plan.Plan = "p"
	agent := ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "a1", Plan: "p"}
	p.store(agent, plan, plan)
	rest := pair("a", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		for i, text := range answered[ledger.TriggersMax:] {
			c.Triggers = append(c.Triggers, when(fmt.Sprint("l", i), text))
		}
	})
	for _, r := range rest {
		r.Plan = "p"
	}
	p.fold(agent, rest, rest)
	scope := triggers.Scope{ArmedNs: p.stamp, Plan: triggers.Plan{ID: "p", Status: "open", OpenedNs: p.stamp}}
	for _, text := range answered {
		c, err := cache.Condition(text)
		if err != nil {
			t.Fatal(err)
		}
		p.held = append(p.held, c.Hold(scope))
	}
	return p
}

func (p *pairOfStates) store(source ledger.Source, one, twin *pb.Record) {
	p.t.Helper()
	p.fold(source, []*pb.Record{one}, []*pb.Record{twin})
}

// fold stores one commit in each ledger and folds it.
func (p *pairOfStates) fold(source ledger.Source, one, twin []*pb.Record) {
	p.t.Helper()
	for i, records := range [][]*pb.Record{one, twin} {
		data, err := ledger.EncodeCommit(records)
		if err != nil {
			p.t.Fatal(err)
		}
		subject := source.Subject()
		if records[0].GetFactAsserted() != nil {
			subject = sensor.Subject()
		}
		m := ledger.Message{Sequence: uint64(len(p.log[i]) + 1), StampNs: p.stamp, Subject: subject, Data: data}
		p.log[i] = append(p.log[i], m)
		for _, r := range foldMessage(p.t, p.states[i], m) {
			if r.Verdict != Effective {
				p.t.Fatalf("%d: %+v", i, r)
			}
		}
	}
}

// step takes a step, and reports whether it makes a history that is new.
func (p *pairOfStates) step(kind int) bool {
	p.t.Helper()
	row := p.states[0].FactRow("k")
	value := map[int]string{assertOne: `{"n":1}`, assertTwo: `{"n":2}`}[kind]
	other := asserted("z", `0`)
	p.stamp += 10 * second
	switch {
	case value != "":
		p.store(sensor, asserted("k", value), asserted("k", value))
	case kind == retract && row != nil && !row.Retracted:
		p.store(sensor, forgotten("k"), forgotten("k"))
	case kind == evict && row != nil && Resident(row):
		p.store(holder, &pb.Record{Term: 1, EpochNs: p.stamp, Kind: &pb.Record_FactEvicted{FactEvicted: &pb.FactEvicted{
			Key: "k", Fact: row.Source, Bytes: SizeOfFact("k", row)}}}, other)
	case kind >= reingest && row != nil && row.Evicted != nil:
		back := &pb.FactReingested{Key: "k", Fact: row.Source, Evicted: row.Evicted}
		if kind == reingest {
			back.Value = p.states[1].FactRow("k").Value
		}
		p.store(holder, &pb.Record{Term: 1, EpochNs: p.stamp, Cause: row.Evicted,
			Kind: &pb.Record_FactReingested{FactReingested: back}}, other)
	default:
		return false
	}
	return true
}

// compare holds the answers of both states against each other, now and later, and what
// became of the leases.
func (p *pairOfStates) compare() error {
	for i, held := range p.held {
		for _, later := range []int64{0, 5 * second, 3600 * second} {
			one, twin := held.Evaluate(p.stamp+later, p.states[0].Facts()), held.Evaluate(p.stamp+later, p.states[1].Facts())
			if got, want := fmt.Sprintf("%+v", one), fmt.Sprintf("%+v", twin); got != want {
				return fmt.Errorf("%s in %d s:\n%s\nwithout evictions:\n%s", answered[i], later/second, got, want)
			}
		}
	}
	rows := [2][]string{}
	for i, s := range p.states {
		plan := s.Reading().Plan("p")
		for _, l := range append(slices.Clone(plan.Row.Leases), plan.Action(1).Row.Leases...) {
			rows[i] = append(rows[i], fmt.Sprintf("%s wakes %d watches %q moot %v faulty %v", l.Name, l.WakeNs, l.Keys, l.Moot,
				l.Faulty))
		}
		for _, turn := range append([]*rowspb.Turned{plan.Row.Turned}, plan.Row.Behind...) {
			rows[i] = append(rows[i], fmt.Sprintf("turned: %v", turn))
		}
	}
	if one, twin := strings.Join(rows[0], "\n"), strings.Join(rows[1], "\n"); one != twin {
		return fmt.Errorf("leases:\n%s\nwithout evictions:\n%s", one, twin)
	}
	return nil
}

// TestEveryFunctionAnswersAlikeOfAnEvictedFact, whatever happens to it before, in
// between and after, also after a restart.
func TestEveryFunctionAnswersAlikeOfAnEvictedFact(t *testing.T) {
	t.Parallel()
	steps := testenv.Cases(4, 5)
	cache := triggers.NewCache(ExpressionsMax)
	histories, evictions, returns := 0, 0, 0
	var walk func(history []int)
	play := func(history []int) bool {
		p := newPairOfStates(t, cache)
		for n, kind := range history {
			if !p.step(kind) {
				return false
			}
			if n < len(history)-1 {
				continue // it was compared as a history of its own
			}
			for range 2 {
				if err := p.compare(); err != nil {
					t.Fatalf("after %v: %v", history, err)
				}
				for i := range p.states {
					p.states[i] = OpenWith(p.kv[i], "t", p, cache)
				}
			}
		}
		return true
	}
	walk = func(history []int) {
		for kind := range stepKinds {
			next := append(slices.Clone(history), kind)
			if !play(next) {
				continue
			}
			histories++
			switch {
			case kind == evict:
				evictions++
			case kind >= reingest:
				returns++
			}
			if len(next) < steps {
				walk(next)
			}
		}
	}
	walk(nil)
	if evictions == 0 || returns == 0 {
		t.Fatal("nothing is evicted, or nothing comes back")
	}
	t.Logf("%d histories, %d end with an eviction and %d with a re-ingestion", histories, evictions, returns)
}
