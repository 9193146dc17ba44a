package executor_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/memory"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Value implements Archive over the world's ledger.
func (w *world) Value(at *pb.Address, key string) (json.RawMessage, error) {
	w.recalls = append(w.recalls, key)
	if w.lost != nil {
		if err := w.lost(); err != nil {
			return nil, err
		}
	}
	return FactAt("t", w.log[at.Sequence-1], at, key)
}

// sensor is who asserts facts, holder who decides, ops who operates.
var (
	sensor = ledger.Source{Tenant: "t", Class: ledger.ClassFact, Name: "sensor"}
	holder = ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}
	ops    = ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: "ops"}
)

func asserted(key, value string) *pb.Record {
	return &pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: key, Value: []byte(value)}}}
}

func forgotten(key string) *pb.Record {
	return &pb.Record{Kind: &pb.Record_FactRetracted{FactRetracted: &pb.FactRetracted{Key: key}}}
}

func evictAsked(keys ...string) *pb.Record {
	return &pb.Record{Kind: &pb.Record_EvictRequested{EvictRequested: &pb.EvictRequested{Keys: keys, Reason: "room",
		Actor: "ops"}}}
}

func restoreAsked(keys ...string) *pb.Record {
	return &pb.Record{Kind: &pb.Record_RestoreRequested{RestoreRequested: &pb.RestoreRequested{Keys: keys, Actor: "ops"}}}
}

// factState is one fact as it is shown, without reading its value.
func (w *world) factState(key string) string {
	w.t.Helper()
	facts, _, err := view.NewReader(w.kv, "t", w).Facts(api.FactsQuery{Prefix: key, State: ""})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range facts {
		if f.Key == key {
			return f.State
		}
	}
	return api.FactRetracted
}

// entryAt is a record of the ledger.
func (w *world) entryAt(a *pb.Address) ledger.Entry {
	w.t.Helper()
	entries, err := ledger.Decode("t", w.log[a.Sequence-1])
	if err != nil {
		w.t.Fatal(err)
	}
	return entries[a.Index]
}

// overFacts are conditions over facts k0..k4 and what a plan is labelled with:
// constant and computed keys, the open and the closed world, times and counts.
var overFacts = []string{
	`facts["k0"].n > 6`, `facts["k" + plan.label].n == 3`, `facts["k" + string(facts["k0"].n)].n > 4`,
	`"k1" in facts && facts["k2"].n < 2`, `!("k1" in facts)`, `has(facts["k3"].n) && facts["k3"].n > 7`,
	`facts[?"k4"].orValue({"n": 0}).n > 7`, `facts["k1"].n > facts["k2"].n + 3`,
	`["k0","k1","k2"].exists(k, facts[k].n == 9)`, `elapsed(since("k3"), duration("40s"))`,
	`elapsed(at("k2"), duration("30s")) && facts["k2"].n > 1`, `at_least(3, "k4", duration("60s"))`,
	`seen("k4") && facts["k0"].n == 0`, `absent_for("k1", plan.opened_at, duration("50s")) && facts["k3"].n >= 0`,
	`after(plan.opened_at + duration("80s")) && facts["k0"].n + facts["k1"].n > 2`,
	`!has(facts["k0"].m) && count("k0", duration("30s")) > 1`,
	`facts.exists("k", k, v, v.n == 9)`, `facts.count("k") > 4`, `!facts.all("k", k, v, v.n < 8) && "k2" in facts`,
	`facts.count("k", k, v, v.n > 4 && v.n < 9) > 2`, `facts.exists("k" + plan.label, k, v, v.n == 3)`,
}

// deed is one step of a random life of facts and plans.
type deed struct {
	wait   time.Duration
	record *pb.Record
	open   string // plan
}

func randomDeeds(r *rand.Rand) (deeds []deed) {
	for i := range 60 {
		key := fmt.Sprintf("k%d", r.IntN(5))
		d := deed{wait: time.Duration(r.IntN(12)) * time.Second}
		switch n := r.IntN(10); {
		case n < 6:
			d.record = asserted(key, fmt.Sprintf(`{"n":%d,"pad":%q}`, r.IntN(10), strings.Repeat("x", r.IntN(8))))
		case n < 7:
			d.record = forgotten(key)
		default:
			d.open = fmt.Sprintf("p%d", i)
			opened := &pb.PlanOpened{Label: fmt.Sprint(r.IntN(5))}
			for j := range 1 + r.IntN(3) {
				opened.Triggers = append(opened.Triggers,
					&pb.Trigger{Name: fmt.Sprintf("l%d", j), Condition: overFacts[r.IntN(len(overFacts))]})
			}
			d.record = &pb.Record{Kind: &pb.Record_PlanOpened{PlanOpened: opened}}
		}
		deeds = append(deeds, d)
	}
	return deeds
}

// live plays deeds; meddle may evict and restore in between.
func (w *world) live(deeds []deed, meddle func()) {
	w.t.Helper()
	for _, d := range deeds {
		w.now += int64(d.wait)
		w.turn()
		if d.open != "" {
			w.must(w.agent(d.open, d.record))
			w.must(w.agent(d.open, pair("a")...))
			w.must(w.agent(d.open, completed("a")))
		} else {
			w.must(w.append(sensor, d.record))
		}
		meddle()
		w.turn()
	}
	w.now += int64(1000 * second)
	w.turn()
}

// story is what leases did and how plans ended, without the addresses that
// evictions move.
func (w *world) story() string {
	w.t.Helper()
	var out strings.Builder
	for _, m := range w.log {
		entries, err := ledger.Decode("t", m)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, e := range entries {
			k := e.Record.GetLeaseFired()
			if k == nil {
				continue
			}
			cause := w.entryAt(e.Record.Cause)
			fmt.Fprintf(&out, "%s/%s %s epoch %d cause %s %v", e.Record.Plan, e.Record.Action, k.Lease, e.Record.EpochNs,
				ledger.KindOf(cause.Record).Name, cause.StampNs)
			for _, r := range k.Readings {
				fmt.Fprintf(&out, " %s=%s", r.Name, r.Value)
			}
			out.WriteByte('\n')
		}
	}
	plans, _ := view.NewReader(w.kv, "t", w).Plans(api.Filter{Limit: 1000})
	for _, p := range plans {
		fmt.Fprintf(&out, "%s %s: %s\n", p.Plan, p.State, w.undos(p.Plan))
	}
	return out.String()
}

func count[T any](w *world) (n int) {
	for _, m := range w.log {
		entries, _ := ledger.Decode("t", m)
		for _, e := range entries {
			if _, ok := any(e.Record.Kind).(T); ok {
				n++
			}
		}
	}
	return n
}

// TestAnEvictionNeverChangesAnAnswer plays the same life with all facts in memory,
// with room for one or two of them, and with facts that are evicted and restored at
// random: the leases that fire, when and why, and the ends of the plans are the same.
func TestAnEvictionNeverChangesAnAnswer(t *testing.T) {
	t.Parallel()
	programs := triggers.NewCache(ExpressionsMax)
	seeds, evicted, restored, fired := testenv.Cases(5, 60), 0, 0, 0
	for seed := range uint64(seeds) {
		deeds := randomDeeds(rand.New(rand.NewPCG(seed, 1)))
		plain := newWorldWith(t, programs)
		plain.live(deeds, func() {})
		want := plain.story()
		fired += count[*pb.Record_LeaseFired](plain)
		tiny := newWorldWith(t, programs)
		tiny.memoryMax = 45
		tiny.live(deeds, func() {})
		asked := newWorldWith(t, programs)
		random := rand.New(rand.NewPCG(seed, 2))
		asked.live(deeds, func() {
			key := fmt.Sprintf("k%d", random.IntN(5))
			if random.IntN(2) == 0 {
				asked.append(ops, evictAsked(key)) // refused where there is nothing to evict
			} else {
				asked.append(ops, restoreAsked(key))
			}
		})
		for name, w := range map[string]*world{"tiny": tiny, "asked": asked} {
			if got := w.story(); got != want {
				t.Fatalf("seed %d, %s: evictions changed what happened\n%s\nwant\n%s", seed, name, got, want)
			}
			evicted += count[*pb.Record_FactEvicted](w)
			restored += count[*pb.Record_FactReingested](w)
			for _, batch := range []int{1, 9} {
				if rows.Digest(w.refold(batch)) != rows.Digest(w.kv) {
					t.Fatalf("seed %d, %s: another state when folded anew", seed, name)
				}
			}
		}
	}
	t.Logf("%d leases fired, %d evictions, %d re-ingestions", fired, evicted, restored)
	if evicted < 20*seeds || restored < 5*seeds || fired < 5*seeds {
		t.Fatalf("too little happened: %d evictions, %d re-ingestions, %d leases fired", evicted, restored, fired)
	}
}

// TestEvictionGoesDownToNineTenths: what is over the capacity goes, what was asserted
// longest ago first, and what a lease reads only when the rest is not enough.
func TestEvictionGoesDownToNineTenths(t *testing.T) {
	w := newWorld(t)
	w.memoryMax = 100 // a fact below takes 10
	w.must(w.agent("p", opened(0, &pb.Trigger{Name: "x", Condition: `facts["f0"].n == 1 || facts["f1"].n == 1`})))
	const value = `{"n": 2}`
	for i := range 11 {
		w.now += ResidentStep
		w.must(w.append(sensor, asserted(fmt.Sprintf("f%d", i%10), value)))
	}
	w.turn()
	if w.state.Meta().FactBytes != 100 || count[*pb.Record_FactEvicted](w) != 0 {
		t.Fatalf("evicted at the capacity: %v", w.state.Meta())
	}
	w.must(w.append(sensor, asserted("g0", value)))
	w.turn()
	var states []string
	for i := range 10 {
		states = append(states, w.factState(fmt.Sprintf("f%d", i)))
	}
	want := slices.Repeat([]string{api.FactInMemory}, 10)
	want[2], want[3] = api.FactEvicted, api.FactEvicted // f0 was asserted last, f1 is watched
	if !slices.Equal(states, want) || w.state.Meta().FactBytes != 90 {
		t.Fatalf("%v, %d bytes", states, w.state.Meta().FactBytes)
	}
	w.memoryMax = 15
	w.turn()
	if w.factState("f1") != api.FactEvicted || w.factState("g0") != api.FactInMemory &&
		w.factState("f0") != api.FactInMemory {
		t.Fatal("what is watched never goes, or all goes")
	}
	w.memoryMax = 0
	w.turn() // without a limit nothing is evicted, and nothing comes back that nobody reads
	if count[*pb.Record_FactReingested](w) != 0 {
		t.Fatal("a fact came back that nobody reads")
	}
}

// TestAReadOfAnEvictedFactBringsItBackOnceThereIsRoom.
func TestAReadOfAnEvictedFactBringsItBackOnceThereIsRoom(t *testing.T) {
	w := newWorld(t)
	w.must(w.append(sensor, asserted("a", `{"n":1}`)))
	w.must(w.append(ops, evictAsked("a")))
	w.turn()
	w.must(w.agent("q",
		opened(0, &pb.Trigger{Name: "x", Condition: `"a" in facts && elapsed(at("a"), duration("1h")) && !("b" in facts)`})))
	w.turn()
	if len(w.recalls) != 0 || w.factState("a") != api.FactEvicted {
		t.Fatalf("the value was read to know whether and when: %v, %s", w.recalls, w.factState("a"))
	}
	w.memoryMax = 8
	w.must(w.append(sensor, asserted("cc", `{"n":1}`))) // 9 bytes: it goes, and memory is empty
	w.must(w.agent("p", opened(0, &pb.Trigger{Name: "x", Condition: `facts["a"].n == 2`})))
	w.turn()
	if !slices.Equal(w.recalls[:1], []string{"a"}) || w.factState("a") != api.FactInMemory ||
		w.factState("cc") != api.FactEvicted {
		t.Fatalf("recalls %v, a is %s, cc is %s", w.recalls, w.factState("a"), w.factState("cc"))
	}
	w.must(w.append(ops, evictAsked("a")))
	w.turn()
	w.memoryMax = 7 // a takes 8
	w.must(w.agent("r", opened(0, &pb.Trigger{Name: "x", Condition: `facts["a"].n == 3`})))
	w.turn()
	if w.factState("a") != api.FactEvicted {
		t.Fatal("it came back where there is no room for it")
	}
}

// TestEvictionsAndReingestionsThatDoNotHoldAreVoid.
func TestEvictionsAndReingestionsThatDoNotHoldAreVoid(t *testing.T) {
	w := newWorld(t)
	w.must(w.append(sensor, asserted("a", `1`)))
	first := w.state.FactRow("a").Source
	w.must(w.append(sensor, asserted("a", `2`)))
	source := w.state.FactRow("a").Source
	evicted := func(key string, at, cause *pb.Address) *pb.Record {
		return &pb.Record{Term: 1, EpochNs: w.now, Cause: cause,
			Kind: &pb.Record_FactEvicted{FactEvicted: &pb.FactEvicted{Key: key, Fact: at, Bytes: 2}}}
	}
	back := func(value string, at, evicted, cause *pb.Address) *pb.Record {
		return &pb.Record{Term: 1, EpochNs: w.now, Cause: cause,
			Kind: &pb.Record_FactReingested{FactReingested: &pb.FactReingested{
				Key: "a", Fact: at, Value: []byte(value), Evicted: evicted}}}
	}
	void := func(r *pb.Record, want string) {
		t.Helper()
		if got := w.append(holder, r)[0]; got.Verdict != Void || !strings.Contains(got.Reason, want) {
			t.Fatalf("%+v, want void: %s", got, want)
		}
	}
	void(evicted("b", source, nil), `there is no fact "b"`)
	void(evicted("a", first, nil), "was asserted at 3.0-")
	void(evicted("a", source, first), "nobody asked at 2.0-")
	void(back("2", source, source, source), "is in memory")
	w.must(w.append(holder, evicted("a", source, nil)))
	gone := w.state.FactRow("a").Evicted
	void(evicted("a", source, nil), "was evicted at")
	void(back("2", first, gone, gone), "was evicted at")
	void(back("2", source, gone, first), "nobody asked at 2.0")
	void(back("3", source, gone, gone), "not the one that fact")
	digest := rows.Digest(w.kv)
	w.must(w.append(holder, back("", source, gone, gone))) // too large for its record: read where it stands
	if row := w.state.FactRow("a"); string(row.Value) != "2" || row.Evicted != nil || rows.Digest(w.kv) == digest {
		t.Fatalf("%v", row)
	}
	void(back("2", source, gone, gone), "is in memory")
	w.must(w.append(sensor, forgotten("a")))
	void(evicted("a", source, nil), "was retracted at")
	void(back("2", source, gone, gone), "was retracted at")
}

// TestARequestAboutFactsIsTakenWholeOrRefusedWithItsReason.
func TestARequestAboutFactsIsTakenWholeOrRefusedWithItsReason(t *testing.T) {
	w := newWorld(t)
	w.must(w.append(sensor, asserted("a", `1`), asserted("b", `2`), asserted("c", `3`), forgotten("c")))
	refuse := func(r *pb.Record, want string) {
		t.Helper()
		if got := w.append(ops, r)[0]; got.Verdict != Refused || !strings.Contains(got.Reason, want) {
			t.Fatalf("%+v, want refused: %s", got, want)
		}
	}
	refuse(evictAsked("a", "x"), `there is no fact "x"`)
	refuse(evictAsked("c"), `fact "c" was retracted at`)
	refuse(restoreAsked("a"), `fact "a" is in memory`)
	refuse(evictAsked(), "evict_requested.keys: 0")
	refuse(evictAsked("a", "a"), `evict_requested.keys[1]: "a" is given twice`)
	w.must(w.append(ops, evictAsked("a", "b")))
	asked := w.state.FactRow("a").Asked
	refuse(evictAsked("b"), "the same was asked at")
	w.turn()
	row := w.state.FactRow("b")
	if w.factState("a") != api.FactEvicted || row.Evicted == nil ||
		!SameAddress(w.entryAt(row.Evicted).Record.Cause, asked) {
		t.Fatalf("%v", row)
	}
	refuse(evictAsked("a"), `fact "a" is evicted already`)
	w.must(w.append(ops, restoreAsked("b")))
	w.must(w.append(sensor, asserted("b", `7`))) // the request is about what is no more
	w.turn()
	if row := w.state.FactRow("b"); string(row.Value) != "7" || row.Asked != nil || row.Reingested != nil {
		t.Fatalf("%v", row)
	}
	w.must(w.append(ops, restoreAsked("a")))
	w.turn()
	if row := w.state.FactRow("a"); row.Reingested == nil || string(row.Value) != "1" {
		t.Fatalf("%v", row)
	}
}

// TestAnArchiveThatDoesNotAnswerIsNoBrokenState: the error says so, the rows are as
// before, and the same fold goes through when the ledger is there again.
func TestAnArchiveThatDoesNotAnswerIsNoBrokenState(t *testing.T) {
	w := newWorld(t)
	w.must(w.append(sensor, asserted("a", `{"n":2}`)))
	w.must(w.append(ops, evictAsked("a")))
	w.turn()
	digest, cause := rows.Digest(w.kv), errors.New("timeout")
	w.lost = func() error { return cause }
	if err := w.reads("p", "a"); !errors.Is(err, memory.ErrArchive) || !errors.Is(err, cause) ||
		!strings.Contains(err.Error(), `fact "a" at 2.0-`) {
		t.Fatalf("%v", err)
	}
	if rows.Digest(w.kv) != digest {
		t.Fatal("rows were written before the archive was asked")
	}
	w.lost, w.state = nil, OpenWith(w.kv, "t", w, w.programs)
	foldMessage(t, w.state, w.log[len(w.log)-1])
	w.turn()
	w.wantState("p", ledger.StateFailed, "")
	w.must(w.append(ops, evictAsked("a")))
	w.turn()
	w.state = OpenWith(w.kv, "t", nil, w.programs)
	if err := w.reads("q", "a"); !errors.Is(err, memory.ErrArchive) {
		t.Fatalf("no archive: %v", err)
	}
}

// reads opens a plan that reads the value of a fact, and returns what the state
// panics with.
func (w *world) reads(plan, key string) (broken error) {
	w.t.Helper()
	defer func() {
		r := recover()
		if err, ok := r.(*rows.StoreError); ok {
			broken = err
		} else if r != nil {
			panic(r)
		}
	}()
	w.must(w.agent(plan, opened(0, &pb.Trigger{Name: "x", Condition: `facts["` + key + `"].n == 2`})))
	return nil
}

// TestFactAtHoldsTheRecordToItsLeaf.
func TestFactAtHoldsTheRecordToItsLeaf(t *testing.T) {
	w := newWorld(t)
	w.must(w.append(sensor, asserted("a", `1`), asserted("b", `2`)))
	at, m := w.state.FactRow("b").Source, w.log[1]
	if value, err := FactAt("t", m, at, "b"); err != nil || string(value) != "2" {
		t.Fatalf("%s %v", value, err)
	}
	other := m
	other.StampNs++
	foreign := &pb.Address{Sequence: at.Sequence, Index: 9, Leaf: at.Leaf}
	for name, try := range map[string]func() (json.RawMessage, error){
		"another stamp":    func() (json.RawMessage, error) { return FactAt("t", other, at, "b") },
		"another key":      func() (json.RawMessage, error) { return FactAt("t", m, at, "a") },
		"no such record":   func() (json.RawMessage, error) { return FactAt("t", m, foreign, "b") },
		"another sequence": func() (json.RawMessage, error) { return FactAt("t", w.log[0], at, "b") },
	} {
		var halted *ledger.Halted
		if value, err := try(); !errors.As(err, &halted) || halted.Guard != "G2" || value != nil {
			t.Errorf("%s: %s %v", name, value, err)
		}
	}
	w.must(w.append(ops, evictAsked("b")))
	w.turn()
	row := w.state.FactRow("b")
	row.Digest = bytes.Repeat([]byte{1}, 32)
	defer func() {
		broken, _ := recover().(*rows.StoreError)
		var halted *ledger.Halted
		if !errors.As(broken, &halted) {
			t.Errorf("another value than the one that was evicted: %v", broken)
		}
	}()
	w.state.Recall("b", row)
}

// TestTheLatestEvictionsAreKeptInAList that does not grow.
func TestTheLatestEvictionsAreKeptInAList(t *testing.T) {
	w := newWorld(t)
	for i := range LatestMax + 7 {
		key := fmt.Sprintf("f%03d", i)
		w.must(w.append(sensor, asserted(key, `1`)))
		w.must(w.append(ops, evictAsked(key)))
		w.turn()
	}
	_, latest := view.NewReader(w.kv, "t", w).Queue(api.QueueQuery{Limit: 1000}, 0)
	if len(latest) != LatestMax || w.state.Meta().Evictions != LatestMax+7 {
		t.Fatalf("%d, of %d", len(latest), w.state.Meta().Evictions)
	}
	last := w.entryAt(&pb.Address{Sequence: latest[LatestMax-1].Sequence, Index: latest[LatestMax-1].Index})
	if event, ok := view.Event(last); !ok || event.Key != "f106" || event.Kind != "fact_evicted" {
		t.Fatalf("%+v", event)
	}
}
