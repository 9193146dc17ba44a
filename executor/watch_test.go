package executor

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// checkWatches recounts who watches which fact, and the nodes.
func checkWatches(s *State, plans []*plan, actions map[string][]*action, indexes map[string]bool) error {
	watching, leases := map[string][]string{}, map[string]uint64{}
	note := func(planID string, n uint32, list []*rowspb.LeaseRow) {
		for _, l := range list {
			for _, k := range l.Keys {
				watching[k] = append(watching[k], string(rows.Lease{Plan: planID, N: n, Name: l.Name}.Append(nil)))
			}
			if l.Node != nil {
				leases[string(l.Node)]++
			}
		}
	}
	for _, p := range plans {
		note(p.id, 0, p.row.Leases)
		for n := uint32(1); int(n) < len(actions[p.id]); n++ {
			note(p.id, n, actions[p.id][n].row.Leases)
		}
	}
	for k := range s.tx.Scan(rows.Nodes.Prefix(), rows.After(rows.Nodes.Prefix())) {
		node := k[1:]
		row := s.nodeRow(node)
		if row.Leases == 0 || row.Leases != leases[string(node)] {
			return fmt.Errorf("node %x of %d leases, counted %d", node, row.Leases, leases[string(node)])
		}
		delete(leases, string(node))
		if row.WakeNs != 0 {
			indexes[string(rows.Due.Key(rows.Instant{Ns: row.WakeNs, Kind: rows.DueNode, Node: node}))] = true
		}
		indexes[string(rows.FaultyNodes.Key(node))] = true
		if _, on := rows.FaultyNodes.Get(s.tx, node); !on { // TestALeaseInErrorIsListed knows which
			delete(indexes, string(rows.FaultyNodes.Key(node)))
		}
		for _, key := range row.Keys {
			watching[key] = append(watching[key], nodeID(node))
		}
	}
	if len(leases) > 0 {
		return fmt.Errorf("leases of %d nodes that are not there", len(leases))
	}
	count := 0
	for k := range s.tx.Scan(rows.Watchers.Prefix(), rows.After(rows.Watchers.Prefix())) {
		key := string(k[1:])
		want := watching[key]
		slices.Sort(want)
		if got := s.watching(key); !slices.Equal(got, want) {
			return fmt.Errorf("fact %s is watched by %q, counted %q", key, got, want)
		}
		if row := s.watchersRow(key); row.many > 0 {
			if int(row.many) != len(want) {
				return fmt.Errorf("fact %s has %d watchers, counted %d", key, row.many, len(want))
			}
			count += len(want)
		}
		delete(watching, key)
	}
	if len(watching) > 0 {
		return fmt.Errorf("facts without the row of their watchers: %q", slices.Sorted(maps.Keys(watching)))
	}
	for range s.tx.Scan(rows.Watches.Prefix(), rows.After(rows.Watches.Prefix())) {
		count--
	}
	if count != 0 {
		return fmt.Errorf("%d rows of watchers are missing", count)
	}
	return nil
}

// checkKept holds what a state keeps in memory of its watchers and facts against
// the rows: what it remembers must change no answer.
func checkKept(s *State) error {
	defer func(missed []string) { s.misses = missed }(slices.Clone(s.misses)) // looking is no miss
	fresh := open(s.tx.KV(), s.tenant, s.archive, s.programs)
	remembered, _ := s.watchers.Recent()
	for _, key := range remembered {
		kept, _ := s.watchers.Get(key)
		list, _ := kept.all()
		want := fresh.watchersOf(key)
		if len(list) != len(want) {
			return fmt.Errorf("fact %s: %d watchers kept, %d in the rows", key, len(list), len(want))
		}
		for i, w := range list {
			f := want[i]
			same := w.id == f.id && w.wakeNs == f.wakeNs && w.faulty == f.faulty
			if !same || w.keys != nil && !slices.Equal(w.keys, f.keys) {
				return fmt.Errorf("fact %s: kept %q %d %q, in the rows %q %d %q", key, w.id, w.wakeNs, w.keys, f.id, f.wakeNs,
					f.keys)
			}
			anew, keys := fresh.heldBy(f), f.keys
			held := s.heldBy(w)
			if keys != nil != (w.keys != nil) {
				return fmt.Errorf("fact %s: %q keeps the keys %q, want %q", key, w.id, w.keys, keys)
			}
			for _, ns := range []int64{s.meta.TimeNs, s.meta.TimeNs + 3600*second} {
				kept, read := held.Evaluate(ns, factView{s}), anew.Evaluate(ns, factView{fresh})
				if !reflect.DeepEqual(kept, read) {
					return fmt.Errorf("fact %s: %q answers %+v as it is kept, %+v from the rows", key, w.id, kept, read)
				}
			}
		}
	}
	return nil
}

// TestManyWatchersOfAFactAreRowsOfTheirOwn, and few of them one row; both are
// given up whole.
func TestManyWatchersOfAFactAreRowsOfTheirOwn(t *testing.T) {
	s := newSchedule(t)
	for i := range 3 * watchersInline {
		plan := fmt.Sprintf("p%02d", i)
		s.must(s.agent(plan, opened(0, when("halt", fmt.Sprintf(`facts["x"].n == %d`, i)))))
	}
	s.state.Flush()
	if row := s.state.watchersRow("x"); row.many != 3*watchersInline || len(row.few) != 0 {
		t.Fatalf("%+v", row)
	}
	for i := range 3 * watchersInline {
		s.must(s.agent(fmt.Sprintf("p%02d", i), planCommitted()))
		s.state.Flush()
		if err := checkRows(t, s.kv); err != nil {
			t.Fatalf("after %d: %v", i, err)
		}
		if err := checkKept(s.state); err != nil {
			t.Fatalf("after %d: %v", i, err)
		}
	}
	if row := s.state.watchersRow("x"); row.many != 0 {
		t.Fatalf("%+v", row)
	}
}

// TestEqualConditionsAreAskedOnce: a hundred plans hold one condition; a fact asks
// it once, and when it turns true they all unwind.
func TestEqualConditionsAreAskedOnce(t *testing.T) {
	s := newSchedule(t)
	const plans = 100
	for i := range plans {
		s.must(s.agent(fmt.Sprintf("p%03d", i),
			opened(0, when("halt", fmt.Sprintf(`facts["market"].halted == true // %d`, i)))))
	}
	s.state.Flush()
	if list := s.state.watchersOf("market"); len(list) != 1 || !list[0].isNode() {
		t.Fatalf("%d watchers", len(list))
	}
	s.play(`fact:market={"halted":false} turn`)
	if got := s.show("p000").State; got != "open" {
		t.Fatal(got)
	}
	s.play(`fact:market={"halted":true} turn`)
	for i := range plans {
		if got := s.show(fmt.Sprintf("p%03d", i)).State; got != "failed" { // nothing to undo
			t.Fatal(i, got)
		}
	}
	if err := checkRows(t, s.kv); err != nil {
		t.Fatal(err)
	}
}

// TestALeaseOfAnActionCountsActions: it turns when a later action is registered.
func TestALeaseOfAnActionCountsActions(t *testing.T) {
	s := newSchedule(t)
	s.play("open")
	s.must(s.agent("p", pair("a", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.Triggers = []*pb.Trigger{when("third", "plan.step >= 3")}
	})...))
	s.play("a+ b b+ turn")
	s.wantState("p", "open", "a=held b=held")
	s.play("c c+ turn")
	s.wantState("p", "compensated", "a=compensated b=compensated c=compensated")
}

// TestLargeFactsDoNotFillTheMemory: what is remembered of facts is bounded in bytes.
func TestLargeFactsDoNotFillTheMemory(t *testing.T) {
	facts := newFacts()
	value := make([]byte, 60<<10)
	for i := range 9000 {
		facts.Put(fmt.Sprint(i), &keptFact{row: &rowspb.FactRow{Value: value}})
	}
	if n := facts.Len(); n == 0 || n*len(value) > factBytesMax {
		t.Fatalf("%d facts are remembered", n)
	}
	if f, kept := facts.Get("8999"); !kept || f == nil {
		t.Fatal("the latest is not")
	}
}

// TestALeaseJoinsEqualOnesAfterTheirFlip: what time has made true since the others
// were asked is true for the one that is armed now.
func TestALeaseJoinsEqualOnesAfterTheirFlip(t *testing.T) {
	s := newSchedule(t)
	condition := `absent_for("c", at("a"), duration("5s"))`
	s.play(`fact:a=1`)
	s.must(s.agent("p", opened(0, when("mine", condition))))
	s.now = epoch0 + 6*second // nobody looks at 5 s
	s.must(s.agent("q", opened(0, when("mine", condition))))
	s.play(`fact:a=1 turn`) // the window is open again
	for plan, want := range map[string]string{"p": "open", "q": "failed"} {
		if got := s.show(plan).State; got != want {
			t.Errorf("plan %s is %s, want %s", plan, got, want)
		}
	}
}

// TestAComputedKeyBehindAFlipIsWatched: a key that is read only once time has flipped
// what stands before it wakes its lease all the same.
func TestAComputedKeyBehindAFlipIsWatched(t *testing.T) {
	s := newSchedule(t)
	r := opened(0, when("mine", `elapsed(plan.opened_at, duration("5s")) ? facts[plan.labels.l] == 1 : false`))
	r.GetPlanOpened().Labels = []*pb.Label{{Key: "l", Value: "x"}}
	s.must(s.agent("p", r))
	s.play("@5s @6s")
	if got := s.show("p").State; got != "open" {
		t.Fatal(got)
	}
	s.play("fact:x=1 turn")
	if got := s.show("p").State; got != "failed" {
		t.Fatalf("it sleeps: %s", got)
	}
}

// TestAChildPlanCountsAsAnActionOfItsParent, and wakes who counts them.
func TestAChildPlanCountsAsAnActionOfItsParent(t *testing.T) {
	s := newSchedule(t)
	s.must(s.agent("p", opened(0, when("many", "plan.actions >= 2"))))
	s.play("a a+ turn q/open^ turn")
	if got := s.show("p").State; got == "open" {
		t.Fatal("it sleeps")
	}
}

// TestAFiringMustHoldWhereItLands: a stamp ahead of the decider's clock has closed the
// guard; nothing is decided that the ledger would not take.
func TestAFiringMustHoldWhereItLands(t *testing.T) {
	s := newSchedule(t)
	s.must(s.agent("p",
		opened(0, when("mine", `elapsed(plan.opened_at, duration("2s")) && before(timestamp("2026-01-02T03:04:10Z"))`))))
	s.now = epoch0 + 20*second
	s.play("fact:x=1")
	s.play("@3s @30s")
	if got := s.show("p").State; got != "open" {
		t.Fatal(got)
	}
}

// TestWhatTurnedOutlivesTheCommitOfAChild: a lease of a child's action that a fact
// made true fires, though the child was committed before anybody looked.
func TestWhatTurnedOutlivesTheCommitOfAChild(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ q/open^a")
	s.must(s.agent("q", pair("b", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.Triggers = []*pb.Trigger{when("burst", `count("x", duration("1s")) == 1`)}
	})...))
	s.play("q/b+ fact:x=1")
	s.now = epoch0 + 9*second
	s.play("q/commit turn")
	if got := s.show("p").State; got != "compensated" {
		t.Fatal(got)
	}
}
