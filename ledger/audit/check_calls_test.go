package audit

import (
	"slices"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// fooled is a fold that has let something through: a plan p of actions a and b, of which b
// came after a, as a record about a leaves it.
type fooled struct {
	l      *Ledger
	p      *plan
	a, b   *action
	was    before
	record *pb.Record
	source ledger.Source
	stamp  int64
}

func newFooled() *fooled {
	forward := &pb.ForwardRegistered{Class: pb.Class_CLASS_COMPENSABLE}
	undo := &pb.CompensationRegistered{Capability: "undo"}
	act := func(n uint32, id string) *action {
		return &action{
			n: n, id: id, registered: &pb.Address{Sequence: uint64(n)}, forward: forward, compensation: undo,
			outcome: completed, output: []byte("1"), undo: owed,
		}
	}
	f := &fooled{
		l: New("t"), a: act(1, "a"), b: act(2, "b"), was: before{known: true, crossed: true, undo: owed},
		source: ledger.Source{Tenant: "t", Class: ledger.ClassExecutor},
		record: &pb.Record{Plan: "p", Action: "a", Term: 1},
	}
	f.b.before, f.b.undo = []uint32{1}, compensated
	f.p = &plan{id: "p", phase: ledger.StateUnwinding, declared: &pb.PlanOpened{}, actions: []*action{f.a, f.b}}
	f.l.book.plans["p"] = f.p
	return f
}

func (f *fooled) rules() (rules []string) {
	e := ledger.Entry{Address: &pb.Address{Sequence: 9}, Record: f.record, Source: f.source, StampNs: f.stamp}
	for _, v := range f.l.check(e, f.was, []ledger.Entry{e}) {
		rules = append(rules, v.Rule)
	}
	return rules
}

func (f *fooled) dispatches() {
	f.record.Kind = &pb.Record_CompensationDispatched{CompensationDispatched: &pb.CompensationDispatched{
		Attempt: 1, Capability: "undo", TimeoutNs: 30e9, HasForwardOutput: true,
		Key: ledger.Key("t", "p", "a", ledger.PurposeUndo),
	}}
	f.a.undo, f.a.attempt, f.a.dispatched = dispatched, 1, &pb.Address{Sequence: 9}
}

func (f *fooled) succeeds() {
	f.record.Kind = &pb.Record_CompensationSucceeded{CompensationSucceeded: &pb.CompensationSucceeded{Attempt: 1}}
	f.a.undo, f.a.attempt, f.a.dispatched, f.a.successes = compensated, 1, &pb.Address{Sequence: 8}, 1
}

func (f *fooled) skips() {
	f.record.Kind = &pb.Record_CompensationSkipped{CompensationSkipped: &pb.CompensationSkipped{}}
	f.a.undo, f.a.presence = skipped, pb.Presence_PRESENCE_ABSENT
}

func (f *fooled) ends() {
	f.record.Action = ""
	f.record.Kind = &pb.Record_PlanEnded{PlanEnded: &pb.PlanEnded{End: pb.PlanEnd_PLAN_END_COMPENSATED, Compensated: 2}}
	f.was.plan, f.p.phase = ledger.StateUnwinding, ledger.StateCompensated
	for _, a := range f.p.actions {
		a.undo, a.successes = compensated, 1
	}
}

func (f *fooled) unwinds() {
	f.record.Action, f.record.Kind = "", &pb.Record_UnwindStarted{UnwindStarted: &pb.UnwindStarted{}}
	f.was.plan = ledger.StateOpen
}

func (f *fooled) commits() {
	f.record.Action, f.record.Kind = "", &pb.Record_PlanCommitted{PlanCommitted: &pb.PlanCommitted{}}
	f.source = ledger.Source{Tenant: "t", Class: ledger.ClassAgent}
	f.was.plan, f.p.phase = ledger.StateOpen, ledger.StateCommitted
}

func (f *fooled) fires() {
	f.record.Action = ""
	f.record.Kind = &pb.Record_LeaseFired{LeaseFired: &pb.LeaseFired{Lease: "low", Condition: "true"}}
	f.p.leases = []*lease{{name: "low", text: "true"}}
	low := &turn{lease: "low", at: &pb.Address{Sequence: 3}}
	f.was.turned, f.was.noted = low, low
	f.record.Cause = &pb.Address{Sequence: 3}
}

// TestTheSecondLayerLooksAtEveryRecord: each check behind the fold is asked of the records
// that can break its rule. Where the fold is right and its checks are asked, nothing is
// found; where it was fooled in one way, the rule is named, and no other one.
func TestTheSecondLayerLooksAtEveryRecord(t *testing.T) {
	for _, c := range []struct {
		name, rule string
		record     func(*fooled)
		fool       func(*fooled)
	}{
		{"a kind on a foreign subject", "I4", (*fooled).skips, func(f *fooled) { f.source.Class = ledger.ClassAgent }},
		{"an answer to what was not refused", "I6", func(f *fooled) {
			f.record.Kind = &pb.Record_RecordRefused{RecordRefused: &pb.RecordRefused{Sequence: 2}}
			f.was.refused = true
		}, func(f *fooled) { f.was.refused = false }},
		{"a time that nobody has recorded", "I8", (*fooled).skips, func(f *fooled) { f.l.book.now = 5 }},
		{"a stamp that was passed over", "I8", (*fooled).skips, func(f *fooled) { f.stamp = 5 }},
		{"another condition", "I11", (*fooled).fires, func(f *fooled) { f.p.leases[0].text = "false" }},
		{"a later record", "I12", (*fooled).fires, func(f *fooled) { f.record.Cause = &pb.Address{Sequence: 4} }},
		{"a second firing", "I14", (*fooled).fires, func(f *fooled) { f.p.hasFired = map[string]place{"\x00low": {7, 0}} }},
		{"a cascade too deep", "I25", (*fooled).fires, func(f *fooled) { f.record.GetLeaseFired().Depth = DepthMax + 1 }},
		{"an unwind of a plan that has ended", "I15", (*fooled).unwinds, func(f *fooled) { f.was.plan = ledger.StateFailed }},
		{"a commit of a plan that has ended", "I15", (*fooled).commits, func(f *fooled) { f.was.plan = ledger.StateFailed }},
		{"a commit that leaves a held set", "I24", (*fooled).commits, func(f *fooled) { f.p.phase = ledger.StateOpen }},
		{"a retirement of fewer", "I24", func(f *fooled) {
			f.record.Action, f.p.gaveUp = "", 2
			f.p.phase = ledger.StateCommitted
			f.record.Kind = &pb.Record_HeldSetRetired{HeldSetRetired: &pb.HeldSetRetired{Count: 2}}
		}, func(f *fooled) { f.p.gaveUp = 3 }},
		{"an older term", "I26", (*fooled).skips, func(f *fooled) { f.l.log.terms = 2 }},
		{"an undo of half a pair", "I17", (*fooled).dispatches, func(f *fooled) { f.a.compensation = nil }},
		{"an undo with another timeout", "I17", (*fooled).dispatches, func(f *fooled) {
			f.record.GetCompensationDispatched().TimeoutNs++
		}},
		{"another key", "I19", (*fooled).dispatches, func(f *fooled) { f.record.GetCompensationDispatched().Key = "k" }},
		{"the key of the plan that undoes", "I19", (*fooled).dispatches, func(f *fooled) { f.p.origin, f.a.key = "o", "k" }},
		{"an undo of what was known to be absent", "I20", (*fooled).dispatches, func(f *fooled) { f.was.crossed = false }},
		{"an undo of what had failed", "I20", (*fooled).dispatches, func(f *fooled) {
			f.a.outcome = failed
			k := f.record.GetCompensationDispatched()
			k.DirtyFailure, k.HasForwardOutput = true, false
		}},
		{"an undo before its time", "I21", (*fooled).dispatches, func(f *fooled) { f.b.undo = dispatched }},
		{"a skip before its time", "I21", (*fooled).skips, func(f *fooled) { f.b.undo = waiting }},
		{"other arguments", "I30", (*fooled).dispatches, func(f *fooled) { f.was.argued = fault{"I30", "others"} }},
		{"other arguments of a question", "I30", func(f *fooled) {
			f.record.Kind = &pb.Record_ProbeAsked{ProbeAsked: &pb.ProbeAsked{Attempt: 1}}
		}, func(f *fooled) { f.was.argued = fault{"I30", "others"} }},
		{"a success without a dispatch", "I18", (*fooled).succeeds, func(f *fooled) { f.a.dispatched = nil }},
		{"a second success", "I22", (*fooled).succeeds, func(f *fooled) { f.a.successes = 2 }},
		{"an end without a success", "I22", (*fooled).ends, func(f *fooled) { f.b.successes = 0 }},
		{"an end that skips what crossed", "I22", (*fooled).ends, func(f *fooled) {
			f.b.undo = skipped
			k := f.record.GetPlanEnded()
			k.Compensated, k.Skipped = 1, 1
		}},
		{"an end that counts fewer", "I22", (*fooled).ends, func(f *fooled) { f.record.GetPlanEnded().Compensated = 1 }},
		{"an end that names what is not outstanding", "I23", (*fooled).ends, func(f *fooled) {
			f.record.GetPlanEnded().Outstanding = []string{"a"}
		}},
	} {
		f := newFooled()
		if c.record(f); len(f.rules()) > 0 {
			t.Errorf("%s: a fold that is right breaks %v", c.name, f.rules())
		}
		f = newFooled()
		c.record(f)
		c.fool(f)
		if rules := f.rules(); !slices.Equal(rules, []string{c.rule}) {
			t.Errorf("%s: %v is found, want %s", c.name, rules, c.rule)
		}
	}
}
