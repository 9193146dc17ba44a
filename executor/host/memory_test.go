package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

var (
	desk = ledger.Source{Tenant: "t", Class: ledger.ClassFact, Name: "desk"}
	ops  = ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: "ops"}
)

func (r *rig) assert(key, value string) uint64 {
	r.t.Helper()
	return r.append(desk,
		&pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: key, Value: []byte(value)}}})
}

// standing opens a plan that unwinds when a condition turns true.
func (r *rig) standing(plan, condition string) {
	r.t.Helper()
	r.append(ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "agent", Plan: plan},
		&pb.Record{Plan: plan, Kind: &pb.Record_PlanOpened{
			PlanOpened: &pb.PlanOpened{Triggers: []*pb.Trigger{{Name: "x", Condition: condition}}}}})
}

func (r *rig) fact(key string) api.Fact {
	r.t.Helper()
	var answer api.FactAnswer
	if err := r.ask("fact.get", api.FactQuery{Key: key}, &answer); err != nil {
		r.t.Fatalf("fact %s: %v", key, err)
	}
	return answer.Fact
}

// inState waits until a fact is in a state.
func (r *rig) inState(key, state string) api.Fact {
	r.t.Helper()
	var fact api.Fact
	r.eventually("fact "+key+" is "+state, func() bool {
		var answer api.FactAnswer
		err := r.ask("fact.get", api.FactQuery{Key: key}, &answer)
		fact = answer.Fact
		return err == nil && fact.State == state
	})
	return fact
}

func (r *rig) rebuild() api.RebuildAnswer {
	r.t.Helper()
	var answer api.RebuildAnswer
	if err := r.ask("memory.rebuild", struct{}{}, &answer); err != nil {
		r.t.Fatalf("rebuild: %v", err)
	}
	return answer
}

// TestMemoryOverItsCapacityIsEvictedReadThroughAndBroughtBack, over restarts.
func TestMemoryOverItsCapacityIsEvictedReadThroughAndBroughtBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.memoryBytes = 100
	_, stop := r.host("h1")
	r.assert("old", `{"n":1}`) // 10 bytes
	for i := range 10 {
		r.assert(fmt.Sprintf("k%d", i), `{"n":20}`)
	}
	gone := r.inState("old", api.FactEvicted)
	if string(gone.Value) != `{"n":1}` || gone.ReadFrom != gone.Asserted || gone.Evicted == "" {
		t.Fatalf("%+v", gone)
	}
	stop()
	_, stop = r.host("h1") // evicted as before; a question brings nothing back
	if r.caughtUp(); r.fact("old").State != api.FactEvicted {
		t.Fatal("a restart or a question brought it back")
	}
	r.standing("p", `facts["old"].n == 1 && facts["k9"].n == 21`)
	r.inState("old", api.FactInMemory)
	r.assert("k9", `{"n":21}`)
	if got := r.ended("p"); got.State != ledger.StateFailed {
		t.Fatalf("%+v", got)
	}
	var history api.FactHistoryAnswer
	if err := r.ask("fact.history", api.FactQuery{Key: "old"}, &history); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, e := range history.Events {
		kinds = append(kinds, e.Kind)
	}
	if got := strings.Join(kinds, " "); !strings.HasPrefix(got, "fact_asserted fact_evicted fact_reingested") ||
		history.Events[2].Compensates != history.Events[1].At {
		t.Fatalf("%s: %+v", got, history.Events)
	}
	var queue api.QueueAnswer
	if err := r.ask("memory.queue", api.QueueQuery{}, &queue); err != nil || len(queue.Next) == 0 ||
		len(queue.Latest) == 0 || queue.Memory.Capacity != 100 {
		t.Fatalf("%v %+v", err, queue)
	}
	if queue.Latest[0].Key != "old" || queue.Latest[0].Kind != "fact_evicted" {
		t.Fatalf("%+v", queue.Latest)
	}
	r.caughtUp()
	stop()
	before, folded := digest(t, filepath.Join(r.dir, "h1"))
	if err := os.RemoveAll(filepath.Join(r.dir, "h1", "state")); err != nil {
		t.Fatal(err)
	}
	_, stop = r.host("h1") // the fold reads evicted values where it did before
	r.caughtUp()
	stop()
	after, again := digest(t, filepath.Join(r.dir, "h1"))
	if folded == again && before != after {
		t.Fatalf("digest %s, folded anew %s", before, after)
	}
}

// TestOperatorsEvictAndRestore, and the second of two is told.
func TestOperatorsEvictAndRestore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.host("h1")
	r.assert("a", `1`)
	r.append(ops,
		&pb.Record{Kind: &pb.Record_EvictRequested{EvictRequested: &pb.EvictRequested{Keys: []string{"a"}, Actor: "ops"}}})
	r.inState("a", api.FactEvicted)
	again := r.append(ops,
		&pb.Record{Kind: &pb.Record_EvictRequested{EvictRequested: &pb.EvictRequested{Keys: []string{"a"}, Actor: "ops"}}})
	var answer api.FactAnswer
	if err := r.ask("fact.get", api.FactQuery{Key: "a", Sequence: again}, &answer); err != nil ||
		len(answer.Refused) != 1 || !strings.Contains(answer.Refused[0], "evicted already") {
		t.Fatalf("%v %+v", err, answer)
	}
	r.append(ops,
		&pb.Record{Kind: &pb.Record_RestoreRequested{RestoreRequested: &pb.RestoreRequested{Keys: []string{"a"},
			Actor: "ops"}}})
	if back := r.inState("a", api.FactInMemory); back.Reingested == "" || string(back.Value) != "1" {
		t.Fatalf("%+v", back)
	}
	var facts api.FactsAnswer
	if err := r.ask("fact.ls", api.FactsQuery{Prefix: "a"}, &facts); err != nil || len(facts.Facts) != 1 {
		t.Fatalf("%v %+v", err, facts)
	}
	if err := r.ask("fact.ls", api.FactsQuery{State: "lost"}, &facts); !strings.Contains(says(err), "state") {
		t.Fatalf("%v %+v", err, facts)
	}
}

// TestAnUndoInWorkingMemoryNeedsNoWorker.
func TestAnUndoInWorkingMemoryNeedsNoWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.host("h1")
	source := ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "agent", Plan: "p"}
	r.append(source, &pb.Record{Plan: "p", Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{}}})
	r.append(source,
		&pb.Record{Plan: "p", Action: "a",
			Kind: &pb.Record_ForwardRegistered{ForwardRegistered: &pb.ForwardRegistered{Capability: "seat.book",
				Class: pb.Class_CLASS_COMPENSABLE}}},
		&pb.Record{Plan: "p", Action: "a",
			Kind: &pb.Record_CompensationRegistered{CompensationRegistered: &pb.CompensationRegistered{
				Capability: ledger.CapabilityAssert, Actuator: ledger.ActuatorMemory, Attempts: 2,
				Bindings: []*pb.Binding{{Name: "key", Expression: `"seat/" + output.seat`},
					{Name: "value", Expression: `"free"`}}}}},
		&pb.Record{Plan: "p", Action: "a", Payload: &pb.Payload{Output: []byte(`{"seat":"12A"}`)},
			Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{}}})
	r.fail("p")
	if got := r.ended("p"); got.State != ledger.StateCompensated {
		t.Fatalf("%+v", got)
	}
	if fact := r.fact("seat/12A"); string(fact.Value) != `"free"` || !fact.Compensates || fact.Plan != "p" ||
		fact.Action != "a" || fact.About == "" || fact.Cause == "" {
		t.Fatalf("%+v", fact)
	}
}

// TestRebuildComparesStateAndLedger, beside the running actor: equal as it is, and
// not when a row was tampered with.
func TestRebuildComparesStateAndLedger(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.memoryBytes = 30
	h, _ := r.host("h1")
	r.serve(done)
	r.plan("p", 3, 0)
	r.fail("p")
	r.standing("q", `facts["k1"].n == 99`)
	for i := range 20 {
		r.assert(fmt.Sprintf("k%d", i%5), fmt.Sprintf(`{"n":%d}`, i))
	}
	r.ended("p")
	r.caughtUp()
	got := r.rebuild()
	if !got.Equal || got.State != got.Rebuilt || got.Facts != got.Refolded || got.Applied == 0 || got.Rows != 5 ||
		len(got.Differ) != 0 {
		t.Fatalf("%+v", got)
	}
	left, err := filepath.Glob(filepath.Join(r.dir, "h1", "rebuild-*"))
	if err != nil || len(left) != 0 {
		t.Fatalf("left behind: %v %v", left, err)
	}
	key := append(store.TenantPrefix("t"), "fk1"...)
	if err := h.db.Set(key, []byte{8, 1}, nil); err != nil {
		t.Fatal(err)
	}
	if got := r.rebuild(); got.Equal || got.State == got.Rebuilt || got.Facts == got.Refolded || len(got.Differ) != 1 ||
		got.Differ[0] != `fact "k1": not the same` {
		t.Fatalf("%+v", got)
	}
}

// TestALedgerWithAnotherRecordHaltsTheTenant: a value that is not the one that was
// folded is never taken for it, and the rows are kept.
func TestALedgerWithAnotherRecordHaltsTheTenant(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h, stop := r.host("h1")
	r.assert("a", `{"n":1}`)
	r.assert("b", `2`)
	r.append(ops,
		&pb.Record{Kind: &pb.Record_EvictRequested{EvictRequested: &pb.EvictRequested{Keys: []string{"a"}, Actor: "ops"}}})
	r.inState("a", api.FactEvicted)
	key := append(store.TenantPrefix("t"), "fa"...)
	v, _ := store.Get(h.db, key)
	row := new(rowspb.FactRow)
	if err := row.UnmarshalVT(v); err != nil {
		t.Fatal(err)
	}
	row.Source.Leaf[0]++
	v, err := row.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.db.Set(key, v, nil); err != nil {
		t.Fatal(err)
	}
	stop()
	r.host("h1") // which has nothing of it in memory
	r.standing("p", `facts["a"].n == 1`)
	r.eventually("the tenant halts", func() bool {
		s := r.status()
		return s.Mode == api.ModeHalted && strings.Contains(s.Problem, `fact "a" was folded from`)
	})
	if fact := r.fact("b"); string(fact.Value) != "2" {
		t.Fatalf("%+v", fact)
	}
	var answer api.FactAnswer
	if err := r.ask("fact.get", api.FactQuery{Key: "a"}, &answer); !strings.Contains(says(err), "cannot be read back") {
		t.Fatalf("%v %+v", err, answer)
	}
}
