package ledger_test

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// staged is the pair of a staged act.
func staged(action string) []*pb.Record {
	return []*pb.Record{
		{Plan: "p1", Action: action, Payload: &pb.Payload{Input: []byte(`{"to":"ann"}`)},
			Kind: &pb.Record_ForwardRegistered{ForwardRegistered: &pb.ForwardRegistered{
				Capability: "mail.send", Class: pb.Class_CLASS_IRREVERSIBLE, SettleNs: 1e9,
				Deliver: &pb.CompensationRegistered{Capability: "mail.send", Attempts: 3, BackoffNs: 1e9,
					BackoffMaxNs: 2e9, JitterPercent: 10, TimeoutNs: 1e9, DedupeNs: 3600e9,
					Bindings: []*pb.Binding{{Name: "to", Expression: "input.to"}},
					Done:     `error == "sent"`, Stop: `error == "no such address"`,
					Probe:         &pb.Probe{Call: &pb.Call{Capability: "mail.find"}, Answer: `"absent"`},
					WorkerVersion: "2", UnservedAfterNs: 60e9, Page: "mail", Sealed: true},
			}}},
		{Plan: "p1", Action: action, Kind: &pb.Record_CompensationRegistered{
			CompensationRegistered: &pb.CompensationRegistered{
				Triggers: []*pb.Trigger{{Name: "late", Condition: "after(plan.deadline)"}}}}},
	}
}

// TestAStagedActIsRefusedByTheFieldThatIsWrong.
func TestAStagedActIsRefusedByTheFieldThatIsWrong(t *testing.T) {
	type forward = pb.ForwardRegistered
	type call = pb.CompensationRegistered
	const deliver, undo = "forward_registered.deliver", "compensation_registered."
	for _, c := range []struct {
		field  string
		change func(f *forward, d, undo *call)
	}{
		{"", func(*forward, *call, *call) {}},
		{"", func(f *forward, d, _ *call) { f.Deliver = &call{Capability: d.Capability} }},
		{"", func(_ *forward, _, c *call) { c.Triggers = nil }},
		{"", func(_ *forward, _, c *call) { c.Key = ledger.Key("t", "p1", "x1", ledger.PurposeUndo) }},
		{deliver, func(f *forward, _, _ *call) { f.Class = pb.Class_CLASS_COMPENSABLE }},
		{deliver, func(f *forward, _, _ *call) { f.Class = pb.Class_CLASS_EFFECTLESS }},
		{deliver, func(f *forward, _, _ *call) { f.EffectCrossed = true }},
		{deliver, func(f *forward, _, _ *call) { f.Pivot = true }},
		{deliver, func(f *forward, _, _ *call) { f.Review = true }},
		{deliver, func(f *forward, _, _ *call) { f.TimeoutNs = 1e9 }},
		{deliver, func(f *forward, _, _ *call) { f.GraceNs = 1e9 }},
		{deliver, func(f *forward, _, _ *call) { f.Late = pb.Late_LATE_REFUSED }},
		{deliver, func(f *forward, _, _ *call) { f.Late, f.SettleNs = pb.Late_LATE_NEVER, 0 }},
		{deliver + ".capability", func(_ *forward, d, _ *call) { d.Capability = "" }},
		{deliver + ".capability", func(_ *forward, d, _ *call) { d.Capability = "mail.queue" }},
		{deliver + ".key", func(_ *forward, d, _ *call) { d.Key = "k" }},
		{deliver + ".on_in_doubt", func(_ *forward, d, _ *call) { d.OnInDoubt = 1 }},
		{deliver + ".triggers", func(_ *forward, d, c *call) { d.Triggers = c.Triggers }},
		{deliver + ".valid_for_ns", func(_ *forward, d, _ *call) { d.ValidForNs = 1e9 }},
		{deliver + ".valid_until_ns", func(_ *forward, d, _ *call) { d.ValidUntilNs = 1e9 }},
		{deliver + ".warn_ns", func(_ *forward, d, _ *call) { d.WarnNs = 1e9 }},
		{deliver + ".fidelity", func(_ *forward, d, _ *call) { d.Fidelity = "exact" }},
		{deliver + ".actuator", func(_ *forward, d, _ *call) { d.Actuator = ledger.ActuatorNATS }},
		{deliver + ".verify", func(_ *forward, d, _ *call) { d.Verify = &pb.Verify{} }},
		{deliver + ".on_late", func(_ *forward, d, _ *call) { d.OnLate = 1 }},
		{deliver + ".agent", func(_ *forward, d, _ *call) { d.Agent = &pb.AgentTask{} }},
		{deliver + ".approve", func(_ *forward, d, _ *call) { d.Approve = true }},
		{deliver + ".handler_version", func(_ *forward, d, _ *call) { d.HandlerVersion = "1" }},
		{deliver + ".unchanged", func(_ *forward, d, _ *call) { d.Unchanged = "true" }},
		{deliver + ".ask_after_ns", func(_ *forward, d, _ *call) { d.AskAfterNs = 1e9 }},
		{deliver + ".dedupe_ns", func(_ *forward, d, _ *call) { d.DedupeNs = -1 }},
		{deliver + ".dedupe_ns", func(_ *forward, d, _ *call) { d.DedupeNs = 1 }}, // under a millisecond
		{deliver + ".attempts", func(_ *forward, d, _ *call) { d.Attempts = ledger.AttemptsMax + 1 }},
		{deliver + ".page", func(_ *forward, d, _ *call) { d.Page = "no page" }},
		{deliver + ".probe.call.capability", func(_ *forward, d, _ *call) { d.Probe.Call.Capability = "" }},
		{deliver + ".probe.call.timeout_ns", func(_ *forward, d, _ *call) { d.Probe.Call.TimeoutNs = 1 }},
		{deliver + ".bindings[1].name", func(_ *forward, d, _ *call) {
			d.Bindings = append(d.Bindings, &pb.Binding{Name: "to", Expression: "1"})
		}},
		{undo + "capability", func(_ *forward, _, c *call) { c.Capability = "mail.recall" }},
		{undo + "attempts", func(_ *forward, _, c *call) { c.Attempts = 1 }},
		{undo + "valid_for_ns", func(_ *forward, _, c *call) { c.ValidForNs = 1e9 }},
		{undo + "probe", func(_ *forward, d, c *call) { c.Probe = d.Probe }},
		{undo + "page", func(_ *forward, _, c *call) { c.Page = "mail" }},
	} {
		pair := staged("x1")
		f, undo := pair[0].GetForwardRegistered(), pair[1].GetCompensationRegistered()
		c.change(f, f.Deliver, undo)
		if got := refusedField(ledger.CheckCommit(pair, agentSource)); got != c.field {
			t.Errorf("refused is %q, want %q: %v", got, c.field, pair)
		}
	}
}

// TestAStagedActNeedsAReaderThatKnowsOfIt: a holder of before refuses both halves of its pair, or
// takes it for an act of which it does not know how it is made, where the commit hides that.
func TestAStagedActNeedsAReaderThatKnowsOfIt(t *testing.T) {
	term := &pb.Record{Term: 1, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h",
		FoldVersion: ledger.StagedSince}}}
	m := message(agentSource, "", encode(t, staged("x1")...))
	if got, of := m.Data[1], encode(t, term)[1]; got != 15 || of != 15 {
		t.Errorf("the pair needs reader %d, and the first term of this version %d, want 15", got, of)
	}
	const pair = `{"records":[{"plan":"p1","action":"x1","forwardRegistered":{"capability":"mail.send",` +
		`"class":"CLASS_IRREVERSIBLE","deliver":{"capability":"mail.send"}}},` +
		`{"plan":"p1","action":"x1","compensationRegistered":{}}]}`
	hidden := message(agentSource, "", encode(t, staged("x1")...))
	hidden.Data[1] = 1
	json := message(agentSource, ledger.ContentTypeJSON, []byte(pair))
	for _, c := range []struct {
		message        ledger.Message
		fold           uint32
		refused, knows bool
	}{
		{m, ledger.StagedSince, false, true}, {m, ledger.StagedSince - 1, true, true},
		{m, ledger.TextsSince - 1, true, true}, {m, 0, false, true}, // 0: before the first holder
		{hidden, ledger.StagedSince, false, true}, {hidden, ledger.StagedSince - 1, false, false},
		{hidden, ledger.AfterCommitSince - 1, false, false}, {hidden, 1, false, false},
		{hidden, 0, false, true},
		{json, ledger.StagedSince, false, true}, {json, ledger.StagedSince - 1, true, true},
	} {
		for _, e := range ledger.Under(decode(t, c.message), c.fold) {
			f := e.Record.GetForwardRegistered()
			if e.Pair.GetForwardRegistered() != nil {
				f = e.Pair.GetForwardRegistered()
			}
			if (e.Err != nil) != c.refused || f != nil && (f.Deliver != nil) != c.knows {
				t.Errorf("under fold version %d: %v, %v; want %+v", c.fold, e.Err, f, c)
			}
		}
	}
}

// TestWhatIsWrongWithAHiddenDeliveryRefusesNothingUnderEarlierHolders: they took the pair for one of
// an irreversible act, and so it counts.
func TestWhatIsWrongWithAHiddenDeliveryRefusesNothingUnderEarlierHolders(t *testing.T) {
	wrong, both, alone := staged("x1"), staged("x1"), staged("x1")
	wrong[0].GetForwardRegistered().Deliver.Capability = "mail.queue"
	both[0].GetForwardRegistered().Deliver.Capability = "mail.queue"
	both[0].GetForwardRegistered().Lifted = []byte("no object")
	alone[1].GetCompensationRegistered().Page = "mail"
	for _, c := range []struct {
		what  string
		pair  []*pb.Record
		taken bool
	}{{"a delivery that is wrong", wrong, true}, {"a pair that is wrong as one", alone, true},
		{"more is wrong", both, false}} {
		m := message(agentSource, "", encode(t, c.pair...))
		m.Data[1] = 1
		for _, fold := range []uint32{1, ledger.TextsSince, ledger.StagedSince - 1, ledger.StagedSince} {
			for _, e := range ledger.Under(decode(t, m), fold) {
				want := c.taken && fold < ledger.StagedSince
				if (e.Err == nil) != want || want && e.Pair == nil {
					t.Errorf("%s, under fold version %d: %v", c.what, fold, e.Err)
				}
			}
		}
	}
}
