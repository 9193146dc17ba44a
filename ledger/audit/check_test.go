package audit

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestEveryCheckCanFail: the checks behind the fold look at what it has become. Each of
// them finds a fold that has let through what it must not.
func TestEveryCheckCanFail(t *testing.T) {
	record := &pb.Record{Plan: "p", Action: "a", Term: 1, Kind: &pb.Record_PlanFailed{PlanFailed: &pb.PlanFailed{}}}
	e := ledger.Entry{Address: &pb.Address{Sequence: 9}, Record: record, Source: ledger.Source{Tenant: "t", Class: ledger.ClassFact}}
	a := &action{n: 1, id: "a", undo: owed, outcome: completed, forward: &pb.ForwardRegistered{Class: pb.Class_CLASS_COMPENSABLE}}
	c := &action{n: 2, id: "c", before: []uint32{1}, undo: owed, outcome: completed, forward: a.forward}
	p := &plan{id: "p", phase: ledger.StateUnwinding, declared: &pb.PlanOpened{}, actions: []*action{a, c}}
	l := New("t")
	l.log.terms = 2
	undone := *p
	undone.actions = []*action{{n: 1, id: "a", undo: compensated, forward: a.forward}}
	over := undone
	over.actions = []*action{{n: 1, id: "a", undo: skipped, forward: a.forward}}
	child := undone
	child.actions = []*action{{n: 1, id: "plan:c", undo: owed, child: &plan{id: "c", phase: ledger.StateOpen}}}
	compensatedEnd := &pb.PlanEnded{End: pb.PlanEnd_PLAN_END_COMPENSATED}
	open, gone, committed := *p, *p, *p
	committed.phase, committed.actions = ledger.StateCommitted, []*action{{n: 1, id: "a", undo: held, outcome: inDoubt, doubt: doubtDue, forward: a.forward}}
	stuck := committed
	stuck.phase = ledger.StateCommitting
	open.phase, open.fired = ledger.StateOpen, e.Address
	gone.phase, gone.retired = ledger.StateUnwinding, true
	ended := *p
	ended.phase = ledger.StateCompensated
	for name, problem := range map[string]string{
		"I4":                         ledgerRule(e),
		"I8":                         timeRule(e, before{now: 7}, l.book),
		"I12":                        edgeRule(e, before{turned: &turn{at: &pb.Address{Sequence: 3}}}),
		"I15":                        terminalRule(before{plan: ledger.StateCompensated}),
		"I17":                        pairRule(a),
		"I18":                        dispatchRule(a, &pb.CompensationSucceeded{Attempt: 1}),
		"I19":                        keyRule("t", p, a, &pb.CompensationDispatched{Key: "k"}),
		"I20":                        boundaryRule(a, before{crossed: false}),
		"I21":                        orderRule(p, a, before{undo: owed}),
		"I22 of an action":           successRule(&action{successes: 2}),
		"I22 without its success":    endRule(&undone, compensatedEnd),
		"I22 with a skip":            endRule(&over, compensatedEnd),
		"I22 with what is owed":      endRule(p, compensatedEnd),
		"I22 with a child":           endRule(&child, compensatedEnd),
		"I22 at the end":             settledRule(&ended),
		"I23":                        outstandingRule(p, &pb.PlanEnded{Outstanding: []string{"a"}}, false),
		"I24":                        retiredRule(p),
		"I36":                        doubtRule(&committed, &pb.HeldSetRetired{InDoubt: []string{"a"}}),
		"L1 of a commit that waits":  liveRule(&plan{phase: ledger.StateCommitting}),
		"L1 of what it waits for":    liveRule(&stuck),
		"I24 at the end":             heldRule(&gone),
		"I25":                        depthRule(&pb.LeaseFired{Lease: "x", Depth: DepthMax + 1}),
		"I26":                        l.termRule(e),
		"L1":                         liveRule(p),
		"L1 of a firing":             liveRule(&open),
		"L1 of a commit":             liveRule(&plan{phase: ledger.StateCommitted}),
		"L2":                         (&book{now: 9}).deadlineRule(&plan{phase: ledger.StateOpen, declared: &pb.PlanOpened{DeadlineNs: 9}}),
		"I11, another condition":     conditionRule(p, record, &pb.LeaseFired{Lease: leaseFailed, Condition: "true"}),
		"I13, a deadline is a lease": (&book{now: 9}).completeRule(&plan{phase: ledger.StateOpen, declared: &pb.PlanOpened{}, leases: []*lease{{name: leaseDeadline}}}),
	} {
		if problem == "" {
			t.Errorf("%s finds nothing", name)
		}
	}
	first := onceRule(e, p, &pb.LeaseFired{Lease: "x"})
	if again := onceRule(e, p, &pb.LeaseFired{Lease: "x"}); first != "" || again == "" {
		t.Errorf("I14: %q, %q", first, again)
	}
	if p.hasFired = nil; onceRule(e, p, &pb.LeaseFired{Lease: "x"}) != "" {
		t.Error("I14: a plan that is open again may fire again")
	}
}
