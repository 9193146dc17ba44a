package audit_test

import (
	"fmt"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"google.golang.org/protobuf/proto"
)

// asked is a ledger of n plans with a condition, and what adds the next value of a fact to it.
func asked(t *testing.T, n int, condition string) (l *audit.Ledger, assert func(key string, value uint64)) {
	t.Helper()
	l = audit.New("t")
	sequence := uint64(0)
	add := func(subject string, r *pb.Record) {
		sequence++
		data, err := proto.Marshal(&pb.Commit{MinReader: 1, Records: []*pb.Record{r}})
		if err != nil {
			t.Fatal(err)
		}
		l.Add(ledger.Message{Sequence: sequence, StampNs: 1e18, Subject: subject, Data: data})
		for _, e := range l.Entries() {
			if e.Verdict != audit.Effective {
				t.Fatalf("%+v", e)
			}
		}
	}
	for i := range n {
		add("saga.t.agent.a._", &pb.Record{Plan: fmt.Sprint("p", i), Kind: &pb.Record_PlanOpened{
			PlanOpened: &pb.PlanOpened{Owner: "o", Triggers: []*pb.Trigger{{Name: "x", Condition: condition,
				Scope: pb.Scope_SCOPE_PLAN}}}}})
	}
	return l, func(key string, value uint64) {
		add("saga.t.fact.s", &pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: key,
			Value: fmt.Append(nil, value)}}})
	}
}

// TestAFactCostsWhatItMayTurn: plans that wait for others cost it nothing, and a condition that many
// plans have is asked once.
func TestAFactCostsWhatItMayTurn(t *testing.T) {
	const plans = 2000
	for _, c := range []struct {
		name, condition, key string
		most                 float64 // allocations of a fact
	}{
		{"of another fact", `facts["k"] == 7`, "other", 200},
		{"of another prefix", `facts.exists("k.", k, v, v == 7)`, "other", 200},
		{"all of one condition", `facts["k"] == 7`, "k", 3 * plans},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, assert := asked(t, plans, c.condition)
			n := uint64(0)
			next := func(key string) { n += 10; assert(key, n) }
			next("k")
			if got := testing.AllocsPerRun(10, func() { next(c.key) }); got > c.most {
				t.Errorf("a fact takes %v allocations beside %d plans, want at most %v", got, plans, c.most)
			}
		})
	}
}

// TestAFactIsHeldAgainstEachConditionThatItTurns, and against no other one: the plan owes its undo.
func TestAFactIsHeldAgainstEachConditionThatItTurns(t *testing.T) {
	for _, c := range []struct {
		condition, key string
		owe            int // of three plans
	}{
		{`facts["k"] == 7`, "k", 3}, {`facts["k"] == 7`, "other", 0},
		{`facts.exists("k", k, v, v == 7)`, "k", 3}, {`facts.exists("k.", k, v, v == 7)`, "k.a", 3},
		{`facts.exists("k.", k, v, v == 7)`, "k", 0}, {`facts["k"] == 7 && plan.id == "p1"`, "k", 1},
		{`facts["k"] == 7 || facts["other"] == 7`, "other", 3},
		{`facts["first"] != null && facts["k"] == 7`, "k", 3},
	} {
		l, assert := asked(t, 3, c.condition)
		assert("first", 1)
		assert(c.key, 7)
		assert(c.key, 8) // it was true
		owe := 0
		for _, v := range l.End() {
			if v.Clause == "I13.fires" {
				owe++
			}
		}
		if owe != c.owe {
			t.Errorf("%s: fact %s has %d plans owe an undo, want %d", c.condition, c.key, owe, c.owe)
		}
	}
}
