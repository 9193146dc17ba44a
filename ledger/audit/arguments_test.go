package audit_test

import (
	"slices"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// bound is a pair whose undo takes the output, the before-image and the plan.
func boundPair(id string) []*pb.Record {
	records := pair(id, func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.Bindings = []*pb.Binding{
			{Name: "ref", Expression: "output.ref"}, {Name: "was", Expression: "before.n"},
			{Name: "who", Expression: "plan.id"},
		}
	})
	records[1].Payload = &pb.Payload{Before: []byte(`{"n":7}`)}
	return records
}

// probedBy is a pair with a probe that takes one argument, key.
func probedBy(id, expression string) []*pb.Record {
	return pair(id, func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.Probe = &pb.Probe{Call: &pb.Call{
			Capability: "find." + id, Bindings: []*pb.Binding{{Name: "key", Expression: expression}},
		}}
	})
}

// argued dispatches the undo of a completed action of bound with these arguments.
func (s *scribe) argued(id, arguments string) {
	s.t.Helper()
	s.agent(append(append([]*pb.Record{opened(0)}, boundPair(id)...), completed(id))...)
	s.agent(planFailed())
	s.altered(id, arguments)
}

// altered writes what the executor decides next up to a call about an action, with other arguments.
func (s *scribe) altered(id, arguments string) {
	s.t.Helper()
	records := s.state.Decide(executor.Input{EpochNs: s.now, SizeMax: 60 << 10})
	call := slices.IndexFunc(records, func(r *pb.Record) bool { return r.Action == id && r.Payload != nil })
	if call < 0 {
		s.t.Fatalf("no call about %s: %v", id, records)
	}
	records[call].Payload.Arguments = []byte(arguments)
	s.write(holder, records[:call+1]...)
}

// TestArgumentsAreComparedByValue: what the bindings make is right in any order and with
// any space, and a number is the one that is written.
func TestArgumentsAreComparedByValue(t *testing.T) {
	for arguments, right := range map[string]bool{
		`{"ref":1,"was":7,"who":"p"}`:     true,
		`{"who": "p", "was":7, "ref":1}`:  true,
		`{"ref":1.0,"was":7,"who":"p"}`:   false,
		`{"ref":"1","was":"7","who":"p"}`: false,
		``:                                false,
	} {
		s := newScribe(t)
		s.argued("a", arguments)
		_, found := s.audited()
		wrong := slices.ContainsFunc(found, func(v audit.Violation) bool { return v.Rule == "I30" })
		if wrong == right || right && len(found) > 0 {
			t.Errorf("%s: %+v", arguments, found)
		}
	}
}

// TestAnArgumentThatIsGivenTwiceIsAnother, at any depth, where it was not recorded so: a worker may
// take the one or the other.
func TestAnArgumentThatIsGivenTwiceIsAnother(t *testing.T) {
	for _, c := range []struct {
		output, arguments string
		right             bool
	}{
		{`{"n":1}`, `{"x":1}`, true},
		{`{"n":1}`, `{"x":2,"x":1}`, false},
		{`{"n":1}`, `{"x":1,"x":1}`, false},
		{`{"n":1}`, `{"x":1,"\u0078":1}`, false},
		{`{"n":{"a":1,"b":[{"c":2}]}}`, `{"x": {"b":[{"c":2}], "a":1}}`, true},
		{`{"n":{"a":1,"b":[{"c":2}]}}`, `{"x":{"a":2,"a":1,"b":[{"c":2}]}}`, false},
		{`{"n":{"a":1,"b":[{"c":2}]}}`, `{"x":{"a":1,"b":[{"c":3,"c":2}]}}`, false},
		{`{"n":{"a":2,"a":1}}`, `{"x": {"a":2,"a":1}}`, true},
		{`{"n":{"a":2,"a":1}}`, `{"x":{"a":1,"a":2}}`, false},
		{`{"n":{"a":2,"a":1}}`, `{"x":{"a":1}}`, false},
		{`{"n":2,"n":1}`, `{"x":1}`, true},
		{`{"n":2,"n":1}`, `{"x":2}`, false},
	} {
		s := newScribe(t)
		s.agent(opened(0))
		done := completed("a")
		done.Payload = &pb.Payload{Output: []byte(c.output)}
		s.agent(append(pair("a", func(_ *pb.ForwardRegistered, k *pb.CompensationRegistered) {
			k.Bindings = []*pb.Binding{{Name: "x", Expression: "output.n"}}
		}), done)...)
		s.agent(planFailed())
		s.altered("a", c.arguments)
		_, found := s.audited()
		wrong := slices.ContainsFunc(found, func(v audit.Violation) bool { return v.Rule == "I30" })
		if wrong == c.right || c.right && len(found) > 0 {
			t.Errorf("%s of %s: %+v", c.arguments, c.output, found)
		}
	}
}

// TestArgumentsOfAReasonThatChanged: an undo is under way to the ledger with the reason of
// a rewind when the whole plan is cancelled. Its holder had not read that; nothing is wrong.
// A holder that had is wrong.
func TestArgumentsOfAReasonThatChanged(t *testing.T) {
	for _, read := range []bool{false, true} {
		s := newScribe(t)
		s.agent(opened(0))
		s.agent(&pb.Record{Kind: &pb.Record_SavepointSet{SavepointSet: &pb.SavepointSet{Name: "s", Number: 1}}})
		s.agent(append(pair("a", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			c.Bindings = []*pb.Binding{{Name: "why", Expression: "plan.reason"}}
		}), completed("a"))...)
		s.agent(append(pair("b"), completed("b"))...)
		s.agent(&pb.Record{Kind: &pb.Record_UnwindRequested{UnwindRequested: &pb.UnwindRequested{
			ToSavepoint: "s", Reason: "back", Number: 1,
		}}})
		s.turns(1)
		decided := s.state.Decide(executor.Input{EpochNs: s.now, SizeMax: 60 << 10, Answers: []executor.Answer{{
			Plan: "p", Number: 2, Purpose: ledger.PurposeUndo, Attempt: 1,
			Reply: &api.Reply{Status: api.StatusDone},
		}}})
		s.agent(&pb.Record{Kind: &pb.Record_PlanCancelled{PlanCancelled: &pb.PlanCancelled{Reason: "all"}}})
		if read {
			s.forge(&pb.Record{Kind: &pb.Record_CheckpointSigned{CheckpointSigned: &pb.CheckpointSigned{}}})
		}
		s.write(holder, decided...)
		l, found := s.audited()
		wrong := len(found) > 0 && found[len(found)-1].Rule == "I30"
		last := l.Entries()[len(decided)-1]
		if last.Kind != "compensation_dispatched" || last.Verdict != audit.Effective || wrong != read ||
			len(found) > 1 {
			t.Errorf("read=%v: %+v, %+v", read, last, found)
		}
	}
}

// TestTheCopyOfACommittedPlanTakesWhatTheOriginRecorded: the undo of a committed plan takes
// output and before-image of the forward, and the key that the forward carried.
func TestTheCopyOfACommittedPlanTakesWhatTheOriginRecorded(t *testing.T) {
	s := newScribe(t)
	records := boundPair("a")
	c := records[1].GetCompensationRegistered()
	c.Bindings = append(c.Bindings, &pb.Binding{Name: "fk", Expression: "meta.forward_key"})
	s.agent(append(append([]*pb.Record{opened(0)}, records...), completed("a"))...)
	s.agent(planCommitted())
	s.decide()
	s.write(ops, &pb.Record{Plan: "p", Kind: &pb.Record_CompensationRequested{
		CompensationRequested: &pb.CompensationRequested{},
	}})
	s.decide()
	want := `{"ref":1,"was":7,"who":"p~1","fk":"` + ledger.Key("t", "p", "a", ledger.PurposeDo) + `"}`
	if r := s.last("compensation_dispatched"); string(r.Payload.GetArguments()) != want {
		t.Errorf("%s, want %s", r.Payload.GetArguments(), want)
	}
	if l, found := s.audited(); len(found) > 0 || len(l.End()) > 0 {
		t.Errorf("%+v", found)
	}
}

// TestADutyForAnExtraEffectDoesNotTakeTheOutputOfItsOrigin: nobody has told what the extra
// effect returned, so that its undo takes null, and the reference that the probe found.
func TestADutyForAnExtraEffectDoesNotTakeTheOutputOfItsOrigin(t *testing.T) {
	s := newScribe(t)
	s.agent(append(append([]*pb.Record{opened(0)},
		pair("a", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			c.Bindings = []*pb.Binding{
				{Name: "ref", Expression: "output.ref"}, {Name: "xref", Expression: "meta.external_ref"},
			}
			c.Probe = &pb.Probe{Call: &pb.Call{Capability: "find.a"}}
		})...), completed("a"))...)
	s.agent(planFailed())
	s.turns(1)
	said := func(purpose string, reply *api.Reply) {
		records := s.state.Decide(executor.Input{EpochNs: s.now, SizeMax: 60 << 10, Answers: []executor.Answer{{
			Plan: "p", Number: 1, Purpose: purpose, Attempt: 1, Reply: reply,
		}}})
		s.write(holder, records...)
		s.turns(1)
	}
	said(ledger.PurposeUndo, nil) // silence: was it carried out?
	said(api.PurposeProbe, &api.Reply{
		Status: api.StatusDone, Output: []byte(`{"presence":"duplicate","external_ref":["x2","x3"]}`),
	})
	s.now += 10 * second
	s.turns(1)
	var duties []string
	for _, m := range s.log {
		entries, err := ledger.Decode("t", m)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if k := e.Record.GetCompensationDispatched(); k != nil && e.Record.Action != "a" {
				duties = append(duties, e.Record.Action+" "+string(e.Record.Payload.GetArguments()))
			}
		}
	}
	if len(duties) == 0 || duties[0] != `a~1 {"ref":null,"xref":"x3"}` {
		t.Errorf("%q", duties)
	}
	if _, found := s.audited(); len(found) > 0 {
		t.Errorf("%+v", found)
	}
}

// last is the last record of a kind.
func (s *scribe) last(kind string) *pb.Record {
	s.t.Helper()
	for _, m := range slices.Backward(s.log) {
		entries, err := ledger.Decode("t", m)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, e := range slices.Backward(entries) {
			if e.Record != nil && ledger.KindOf(e.Record).Name == kind {
				return e.Record
			}
		}
	}
	s.t.Fatalf("no %s", kind)
	return nil
}

// TestArgumentsOfWhatIsBesideTheAction: other actions that were registered before, facts as they were
// at the registration, and what the plan was opened with; nothing else.
func TestArgumentsOfWhatIsBesideTheAction(t *testing.T) {
	for expression, sent := range map[string][2]string{ // right, and wrong
		`actions["a"].output.ref`: {`1`, `null`},
		`actions["c"].output.ref`: {`null`, `1`},
		`facts["rate"]`:           {`1.10`, `2`},
		`facts["late"]`:           {`null`, `2`},
		`plan.input.n`:            {`7`, `null`},
	} {
		for i, value := range sent {
			s := newScribe(t)
			s.rules = ledger.OthersSince
			s.begin(2)
			s.write(sensor, asserted("rate", `1.10`))
			open := opened(0)
			open.Payload = &pb.Payload{Input: []byte(`{"n":7}`)}
			s.agent(append([]*pb.Record{open}, pair("a")...)...)
			s.agent(pair("b", bound("[input.id, "+expression+"]"))...)
			s.write(sensor, asserted("rate", `2`), asserted("late", `2`))
			s.agent(append(pair("c", func(f *pb.ForwardRegistered, c *pb.CompensationRegistered) {
				f.Class, c.Capability = pb.Class_CLASS_EFFECTLESS, ""
			}), completed("a"), completed("b"), completed("c"))...)
			s.agent(planFailed())
			s.turns(0)
			s.altered("b", `{"x":[null,`+value+`]}`)
			if _, found := s.audited(); slices.ContainsFunc(found,
				func(v audit.Violation) bool { return v.Rule == "I30" }) != (i == 1) || i == 0 && len(found) > 0 {
				t.Errorf("%s is %s: %+v", expression, value, found)
			}
		}
	}
}
