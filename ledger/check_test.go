package ledger_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

func TestEveryKindIsKnownByItsFieldAndAcceptedOnItsSubjectOnly(t *testing.T) {
	fields := (&pb.Record{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	records := good()
	if fields.Len() != len(records) {
		t.Fatalf("%d kinds, %d of them tried", fields.Len(), len(records))
	}
	everywhere := []ledger.Source{agentSource, factSource, verdictSource, operatorSource, workerSource, holderSource,
		termSource}
	for i, g := range records {
		kind := ledger.KindOf(g.record)
		if want := string(fields.Get(i).Name()); kind.Name != want {
			t.Errorf("kind %q, want %q", kind.Name, want)
		}
		if err := ledger.Check(g.record, g.source); err != nil {
			t.Errorf("%s: %v", kind.Name, err)
		}
		for _, other := range everywhere {
			want := kind.Name
			if kind.Class == ledger.ClassFact && other == holderSource {
				want = "plan" // a fact of the holder is about an action, and in its term
			}
			if kind.Name == "plan_erased" && other == holderSource {
				want = "term" // the holder's is its word that the key is gone
			}
			if kind.Name == "deadline_moved" && other == agentSource {
				want = "deadline_moved.actor" // an agent moves it too, and has no other name
			}
			if err := ledger.Check(g.record, other); other != g.source && refusedField(err) != want {
				t.Errorf("%s on a subject of class %v (term %v): %v", kind.Name, other.Class, other.Term, err)
			}
		}
		if kind.NeedsPlan {
			checkRefused(t, g.source, g.record, "plan", func(r *pb.Record) { r.Plan = "" })
			checkRefused(t, g.source, g.record, "plan", func(r *pb.Record) { r.Plan = "a.b" })
			checkRefused(t, g.source, g.record, "plan", func(r *pb.Record) { r.Plan = ledger.ManyPlans })
		}
		if kind.NeedsAction {
			checkRefused(t, g.source, g.record, "action", func(r *pb.Record) { r.Action = "" })
			checkRefused(t, g.source, g.record, "action",
				func(r *pb.Record) { r.Action = strings.Repeat("x", ledger.TokenLenMax+1) })
		}
		if g.source.Class == ledger.ClassExecutor {
			checkRefused(t, g.source, g.record, "term", func(r *pb.Record) { r.Term = 0 })
			checkRefused(t, g.source, g.record, "epoch_ns", func(r *pb.Record) { r.EpochNs = -1 })
		} else {
			checkRefused(t, g.source, g.record, "term", func(r *pb.Record) { r.Term = 1 })
			checkRefused(t, g.source, g.record, "term", func(r *pb.Record) { r.EpochNs = 1 })
			checkRefused(t, g.source, g.record, "term", func(r *pb.Record) { r.Folded = 1 })
		}
		checkRefused(t, g.source, g.record, "address.leaf",
			func(r *pb.Record) { r.Cause = &pb.Address{Leaf: []byte("short")} })
		checkRefused(t, g.source, g.record, "payload.arguments",
			func(r *pb.Record) { r.Payload = &pb.Payload{Arguments: []byte("{")} })
	}
}

// checkRefused changes a copy of a good record and expects one field to be named.
func checkRefused(t *testing.T, s ledger.Source, good *pb.Record, field string, change func(*pb.Record)) {
	t.Helper()
	bad := proto.CloneOf(good)
	change(bad)
	if err := ledger.Check(bad, s); refusedField(err) != field {
		t.Errorf("%s: want %s refused, got %v", ledger.KindOf(good).Name, field, err)
	}
}

// breach is one broken rule of one kind, and the field that says so.
type breach struct {
	kind, field string
	change      func(*pb.Record)
}

// TestAFactOfTheHolderIsAboutAnAction: it is the compensation of one.
func TestAFactOfTheHolderIsAboutAnAction(t *testing.T) {
	for _, r := range []*pb.Record{
		{Plan: "p1~1", Action: "x1~2", Term: 1, Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: "k",
			Value: []byte("1")}}},
		{Plan: "p1", Action: "x1", Term: 1, Kind: &pb.Record_FactRetracted{FactRetracted: &pb.FactRetracted{Key: "k"}}},
	} {
		if err := ledger.Check(r, holderSource); err != nil {
			t.Error(err)
		}
		checkRefused(t, holderSource, r, "plan", func(r *pb.Record) { r.Plan = "" })
		checkRefused(t, holderSource, r, "action", func(r *pb.Record) { r.Action = "" })
		checkRefused(t, holderSource, r, "term", func(r *pb.Record) { r.Term = 0 })
	}
}

// TestAnUndoInWorkingMemoryTakesItsArgumentsAndNoOthers.
func TestAnUndoInWorkingMemoryTakesItsArgumentsAndNoOthers(t *testing.T) {
	good := registration("x1")
	c := good.GetCompensationRegistered()
	c.Actuator, c.Capability = ledger.ActuatorMemory, ledger.CapabilityAssert
	c.Bindings = []*pb.Binding{{Name: "value", Expression: "output"}, {Name: "key", Expression: "input.key"}}
	if err := ledger.Check(good, agentSource); err != nil {
		t.Fatal(err)
	}
	const at = "compensation_registered."
	for field, change := range map[string]func(*pb.CompensationRegistered){
		at + "capability": func(c *pb.CompensationRegistered) { c.Capability = "fact.erase" },
		at + "bindings":   func(c *pb.CompensationRegistered) { c.Capability = ledger.CapabilityRetract },
		at + "agent":      func(c *pb.CompensationRegistered) { c.Agent = &pb.AgentTask{} },
		at + "dedupe_ns":  func(c *pb.CompensationRegistered) { c.DedupeNs = 1 },
		at + "verify": func(c *pb.CompensationRegistered) {
			c.Verify = &pb.Verify{Ok: "true", Call: &pb.Call{Capability: "a.b"}}
		},
	} {
		checkRefused(t, agentSource, good, field, func(r *pb.Record) { change(r.GetCompensationRegistered()) })
	}
}

func TestWhatBreaksARuleIsRefusedByItsField(t *testing.T) {
	records := good()
	byKind := map[string]int{}
	for i, g := range records {
		byKind[ledger.KindOf(g.record).Name] = i
	}
	for _, c := range append(planBreaches, otherBreaches...) {
		g := records[byKind[c.kind]]
		checkRefused(t, g.source, g.record, c.field, c.change)
	}
}

var tooLong = strings.Repeat("x", ledger.TextMax+1)

func triggers(n int) []*pb.Trigger {
	var all []*pb.Trigger
	for i := range n {
		all = append(all, &pb.Trigger{Name: "n" + strings.Repeat("x", i), Condition: "true"})
	}
	return all
}

func opened(f func(*pb.PlanOpened)) func(*pb.Record) {
	return func(r *pb.Record) { f(r.GetPlanOpened()) }
}

func forwarded(f func(*pb.ForwardRegistered)) func(*pb.Record) {
	return func(r *pb.Record) { f(r.GetForwardRegistered()) }
}

func registered(f func(*pb.CompensationRegistered)) func(*pb.Record) {
	return func(r *pb.Record) { f(r.GetCompensationRegistered()) }
}

var planBreaches = []breach{
	{"plan_opened", "plan_opened.deadline_ns", opened(func(p *pb.PlanOpened) { p.DeadlineNs = -1 })},
	{"plan_opened", "plan_opened.concurrency",
		opened(func(p *pb.PlanOpened) { p.Concurrency = ledger.ConcurrencyMax + 1 })},
	{"plan_opened", "plan_opened.labels[0].value", opened(func(p *pb.PlanOpened) { p.Labels[0].Value = tooLong })},
	{"plan_opened", "plan_opened.labels[0].key", opened(func(p *pb.PlanOpened) { p.Labels[0].Key = "\xff" })},
	{"plan_opened", "plan_opened.on_undo_failure", opened(func(p *pb.PlanOpened) { p.OnUndoFailure = 9 })},
	{"plan_opened", "plan_opened.parent_plan", opened(func(p *pb.PlanOpened) { p.ParentPlan = "p1~1" })},
	{"plan_opened", "plan_opened.function", opened(func(p *pb.PlanOpened) { p.Function = "a b" })},
	{"plan_opened", "plan_opened.parent_action", opened(func(p *pb.PlanOpened) { p.ParentAction = "a" })},
	{"plan_opened", "plan_opened.owner", opened(func(p *pb.PlanOpened) { p.Owner = "\xff" })},
	{"plan_opened", "plan_opened.triggers",
		opened(func(p *pb.PlanOpened) { p.Triggers = triggers(ledger.TriggersMax + 1) })},
	{"plan_opened", "plan_opened.triggers[1].name",
		opened(func(p *pb.PlanOpened) { p.Triggers = append(triggers(1), triggers(1)...) })},
	{"plan_opened", "plan_opened.triggers[0].name", opened(func(p *pb.PlanOpened) { p.Triggers[0].Name = "a b" })},
	{"plan_opened", "plan_opened.triggers[0].condition", opened(func(p *pb.PlanOpened) { p.Triggers[0].Condition = "" })},
	{"plan_opened", "plan_opened.triggers[0].condition",
		opened(func(p *pb.PlanOpened) { p.Triggers[0].Condition = strings.Repeat("x", ledger.ExpressionMax+1) })},
	{"plan_opened", "plan_opened.triggers[0].after_commit", opened(func(p *pb.PlanOpened) {
		p.ParentPlan = "up"
		p.Triggers[0].AfterCommit = true
	})},
	{"compensation_registered", "compensation_registered.triggers[0].after_commit",
		registered(func(c *pb.CompensationRegistered) {
			c.Triggers = triggers(1)
			c.Triggers[0].AfterCommit, c.ValidForNs, c.ValidUntilNs = true, 0, 0
		})},
	{"forward_registered", "forward_registered.capability",
		forwarded(func(f *pb.ForwardRegistered) { f.Capability = "" })},
	{"forward_registered", "forward_registered.capability",
		forwarded(func(f *pb.ForwardRegistered) { f.Capability = "git..create" })},
	{"forward_registered", "forward_registered.class", forwarded(func(f *pb.ForwardRegistered) { f.Class = 0 })},
	{"forward_registered", "forward_registered.class", forwarded(func(f *pb.ForwardRegistered) { f.Class = 99 })},
	{"forward_registered", "forward_registered.after",
		forwarded(func(f *pb.ForwardRegistered) { f.After = make([]string, ledger.AfterMax+1) })},
	{"forward_registered", "forward_registered.after[0]",
		forwarded(func(f *pb.ForwardRegistered) { f.After = []string{""} })},
	{"forward_registered", "forward_registered.lifted",
		forwarded(func(f *pb.ForwardRegistered) { f.Lifted = []byte(`[]`) })},
	{"forward_registered", "forward_registered.trace",
		forwarded(func(f *pb.ForwardRegistered) { f.Trace = make([]byte, ledger.TraceMax+1) })},
	{"forward_registered", "forward_registered.lifted",
		forwarded(func(f *pb.ForwardRegistered) { f.Lifted = []byte(`null`) })},
	{"forward_registered", "payload.input", func(r *pb.Record) { r.Payload.Input = []byte(`{"a":}`) }},
	{"compensation_registered", "compensation_registered.capability",
		registered(func(c *pb.CompensationRegistered) { c.Capability = ">" })},
	{"compensation_registered", "compensation_registered.key",
		registered(func(c *pb.CompensationRegistered) { c.Key = ledger.Key("t", "p1", "another", ledger.PurposeUndo) })},
	{"compensation_registered", "compensation_registered.attempts",
		registered(func(c *pb.CompensationRegistered) { c.Attempts = ledger.AttemptsMax + 1 })},
	{"compensation_registered", "compensation_registered.backoff_ns",
		registered(func(c *pb.CompensationRegistered) { c.BackoffNs = -1 })},
	{"compensation_registered", "compensation_registered.backoff_max_ns",
		registered(func(c *pb.CompensationRegistered) { c.BackoffMaxNs = int64(ledger.BackoffMax) + 1 })},
	{"compensation_registered", "compensation_registered.timeout_ns",
		registered(func(c *pb.CompensationRegistered) { c.TimeoutNs = int64(ledger.TimeoutMax) + 1 })},
	{"compensation_registered", "compensation_registered.valid_for_ns",
		registered(func(c *pb.CompensationRegistered) { c.ValidForNs = -1 })},
	{"compensation_registered", "compensation_registered.bindings",
		registered(func(c *pb.CompensationRegistered) { c.Bindings = make([]*pb.Binding, ledger.BindingsMax+1) })},
	{"compensation_registered", "compensation_registered.bindings[0]",
		registered(func(c *pb.CompensationRegistered) { c.Bindings[0].Name = "" })},
	{"compensation_registered", "compensation_registered.bindings[1].name", registered(func(c *pb.CompensationRegistered) {
		c.Bindings = []*pb.Binding{{Name: "amount", Expression: "1"}, {Name: "amount", Expression: "2"}}
	})},
	{"compensation_registered", "compensation_registered.bindings[0].expression",
		registered(func(c *pb.CompensationRegistered) { c.Bindings[0].Expression = "\xff" })},
	{"compensation_registered", "compensation_registered.on_in_doubt",
		registered(func(c *pb.CompensationRegistered) { c.OnInDoubt = 9 })},
	{"compensation_registered", "compensation_registered.on_late",
		registered(func(c *pb.CompensationRegistered) { c.OnLate = 9 })},
	{"compensation_registered", "compensation_registered.probe",
		registered(func(c *pb.CompensationRegistered) { c.OnInDoubt = pb.OnInDoubt_ON_IN_DOUBT_PROBE })},
	{"compensation_registered", "compensation_registered.probe.call.capability",
		registered(func(c *pb.CompensationRegistered) { c.Probe = &pb.Probe{} })},
	{"compensation_registered", "compensation_registered.probe.call.attempts",
		registered(func(c *pb.CompensationRegistered) {
			c.Probe = &pb.Probe{Call: &pb.Call{Capability: "x", Attempts: ledger.AttemptsMax + 1}}
		})},
	{"compensation_registered", "compensation_registered.probe.call.bindings[0]",
		registered(func(c *pb.CompensationRegistered) {
			c.Probe = &pb.Probe{Call: &pb.Call{Capability: "x", Bindings: []*pb.Binding{{}}}}
		})},
	{"compensation_registered", "compensation_registered.verify.ok",
		registered(func(c *pb.CompensationRegistered) { c.Verify = &pb.Verify{Call: &pb.Call{Capability: "x"}} })},
	{"compensation_registered", "compensation_registered.done",
		registered(func(c *pb.CompensationRegistered) { c.Done = strings.Repeat("x", ledger.ExpressionMax+1) })},
	{"compensation_registered", "compensation_registered.stop",
		registered(func(c *pb.CompensationRegistered) { c.Stop = "\xff" })},
	{"compensation_registered", "compensation_registered.fidelity",
		registered(func(c *pb.CompensationRegistered) { c.Fidelity = "perfect" })},
	{"compensation_registered", "compensation_registered.jitter_percent",
		registered(func(c *pb.CompensationRegistered) { c.JitterPercent = 101 })},
	{"compensation_registered", "compensation_registered.dedupe_ns",
		registered(func(c *pb.CompensationRegistered) { c.DedupeNs = -1 })},
	{"compensation_registered", "compensation_registered.valid_until_ns",
		registered(func(c *pb.CompensationRegistered) { c.ValidUntilNs = -1 })},
	{"compensation_registered", "compensation_registered.handler_version",
		registered(func(c *pb.CompensationRegistered) { c.HandlerVersion = "1.0" })},
	{"compensation_registered", "compensation_registered.page",
		registered(func(c *pb.CompensationRegistered) { c.Page = "a b" })},
	{"compensation_registered", "compensation_registered.actuator",
		registered(func(c *pb.CompensationRegistered) { c.Actuator = "carrier pigeon" })},
	{"compensation_registered", "compensation_registered.agent",
		registered(func(c *pb.CompensationRegistered) { c.Agent = &pb.AgentTask{} })},
	{"compensation_registered", "compensation_registered.agent.tools", registered(func(c *pb.CompensationRegistered) {
		c.Actuator, c.Agent = ledger.ActuatorAgent, &pb.AgentTask{Tools: []string{"one"}}
	})},
	{"compensation_registered", "compensation_registered.worker_version",
		registered(func(c *pb.CompensationRegistered) { c.WorkerVersion = "\xff" })},
	{"compensation_registered", "compensation_registered.triggers[0].condition",
		registered(func(c *pb.CompensationRegistered) { c.Triggers[0].Condition = "\xff" })},
}

var otherBreaches = []breach{
	{"evict_requested", "evict_requested.keys", func(r *pb.Record) { r.GetEvictRequested().Keys = nil }},
	{"evict_requested", "evict_requested.keys",
		func(r *pb.Record) { r.GetEvictRequested().Keys = make([]string, ledger.RequestKeysMax+1) }},
	{"evict_requested", "evict_requested.keys[1]", func(r *pb.Record) { r.GetEvictRequested().Keys[1] = "a" }},
	{"restore_requested", "restore_requested.keys[0]", func(r *pb.Record) { r.GetRestoreRequested().Keys[0] = "" }},
	{"restore_requested", "restore_requested.actor", func(r *pb.Record) { r.GetRestoreRequested().Actor = "\xff" }},
	{"forward_completed", "forward_completed.external_ref",
		func(r *pb.Record) { r.GetForwardCompleted().ExternalRef = tooLong }},
	{"forward_completed", "forward_completed.lifted", func(r *pb.Record) { r.GetForwardCompleted().Lifted = []byte("1") }},
	{"savepoint_set", "savepoint_set.name", func(r *pb.Record) { r.GetSavepointSet().Name = "" }},
	{"fact_asserted", "fact_asserted.key", func(r *pb.Record) { r.GetFactAsserted().Key = "" }},
	{"fact_asserted", "fact_asserted.key", func(r *pb.Record) {
		r.GetFactAsserted().Key = strings.Repeat("k",
			ledger.FactKeyMax+1)
	}},
	{"fact_asserted", "fact_asserted.value", func(r *pb.Record) { r.GetFactAsserted().Value = nil }},
	{"fact_asserted", "fact_asserted.value", func(r *pb.Record) { r.GetFactAsserted().Value = []byte("\"\xff\"") }},
	{"fact_retracted", "fact_retracted.key", func(r *pb.Record) { r.GetFactRetracted().Key = "\xff" }},
	{"verdict_given", "verdict_given.outcome", func(r *pb.Record) { r.GetVerdictGiven().Outcome = 0 }},
	{"cancel_requested", "cancel_requested.actor", func(r *pb.Record) { r.GetCancelRequested().Actor = "\xff" }},
	{"resolved", "resolved.outcome", func(r *pb.Record) { r.GetResolved().Outcome = 0 }},
	{"resolved", "resolved.reason", func(r *pb.Record) { r.GetResolved().Reason = "" }},
	{"resolved", "resolved.actor", func(r *pb.Record) { r.GetResolved().Actor = "" }},
	{"resolved", "resolved.evidence", func(r *pb.Record) { r.GetResolved().Evidence = "" }},
	{"retry_requested", "retry_requested.actor", func(r *pb.Record) { r.GetRetryRequested().Actor = "" }},
	{"compensation_requested", "compensation_requested.to_savepoint",
		func(r *pb.Record) { r.GetCompensationRequested().ToSavepoint = "a b" }},
	{"unwind_requested", "unwind_requested.to_savepoint", func(r *pb.Record) { r.GetUnwindRequested().ToSavepoint = "" }},
	{"contract_published", "contract_published.contract",
		func(r *pb.Record) { r.GetContractPublished().Contract = []byte("{") }},
	{"contract_published", "contract_published.digest", func(r *pb.Record) { r.GetContractPublished().Digest = nil }},
	{"contract_published", "contract_published.capability",
		func(r *pb.Record) { r.GetContractPublished().Capability = "" }},
	{"compensation_reported", "compensation_reported.answer",
		func(r *pb.Record) { r.GetCompensationReported().Answer = 0 }},
}

func TestARecordStandsOnTheSubjectOfItsPlan(t *testing.T) {
	many := agentSource
	many.Plan = ledger.ManyPlans
	if err := ledger.Check(forward("x1"), many); err != nil {
		t.Errorf("on the subject of many plans: %v", err)
	}
	other := agentSource
	other.Plan = "p2"
	if err := ledger.Check(forward("x1"), other); refusedField(err) != "plan" {
		t.Errorf("on another plan's subject: %v", err)
	}
	if err := ledger.Check(&pb.Record{Plan: "p1"}, agentSource); refusedField(err) != "kind" {
		t.Errorf("without a kind: %v", err)
	}
}

// A kind that is set to nothing must not be a panic.
func TestAKindWithoutABodyIsNoPanic(t *testing.T) {
	for _, g := range good() {
		m := proto.CloneOf(g.record).ProtoReflect()
		m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			if field.ContainingOneof() != nil {
				m.Set(field, m.NewField(field))
			}
			return true
		})
		_ = ledger.Check(m.Interface().(*pb.Record), g.source)
	}
}

// TestADerivedNameIsNobodysToTake: duties and plans that undo a committed plan have
// names that operators and workers may speak of and agents cannot take.
func TestADerivedNameIsNobodysToTake(t *testing.T) {
	for name, want := range map[string]bool{"a": true, "a~1": true, "a~4294967295": true, "~1": false, "a~": false,
		"a~x": false, "a~1~2": false, "a~12345678901": false, "": false} {
		if got := ledger.ValidDerived(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
	for _, g := range good() {
		r := proto.CloneOf(g.record)
		r.Plan, r.Action = "p1~1", "x1~1"
		if err := ledger.Check(r, g.source); (g.source.Class == ledger.ClassAgent) != (refusedField(err) == "plan") {
			t.Errorf("%s: %v", ledger.KindOf(r).Name, err)
		}
	}
}

// TestErasuresAreAskedForByOperatorsAndDoneByTheHolder, and no one writes the other's.
func TestErasuresAreAskedForByOperatorsAndDoneByTheHolder(t *testing.T) {
	record := func(holder bool, k *pb.PlanErased) *pb.Record {
		r := &pb.Record{Plan: "p1", Kind: &pb.Record_PlanErased{PlanErased: k}}
		if holder {
			r.Term, r.EpochNs = 1, 5
		}
		return r
	}
	for _, c := range []struct {
		source ledger.Source
		erased *pb.PlanErased
		field  string
	}{
		{operatorSource, &pb.PlanErased{Reason: "r", Actor: "a", Force: true}, ""},
		{operatorSource, &pb.PlanErased{Actor: "a"}, "plan_erased.reason"},
		{operatorSource, &pb.PlanErased{Reason: "r"}, "plan_erased.actor"},
		{operatorSource, &pb.PlanErased{Reason: "r", Actor: "a", Destroyed: true}, "plan_erased.destroyed"},
		{holderSource, &pb.PlanErased{Destroyed: true}, ""},
		{holderSource, &pb.PlanErased{}, "plan_erased.destroyed"},
		{holderSource, &pb.PlanErased{Destroyed: true, Reason: "r"}, "plan_erased.destroyed"},
		{holderSource, &pb.PlanErased{Destroyed: true, Force: true}, "plan_erased.destroyed"},
	} {
		if err := ledger.Check(record(c.source == holderSource, c.erased), c.source); refusedField(err) != c.field {
			t.Errorf("%v on a subject of class %v: %v", c.erased, c.source.Class, err)
		}
	}
}
