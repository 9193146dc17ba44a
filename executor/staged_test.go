package executor_test

import (
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// staged makes a pair one of an act that is staged, and delivered by its own capability.
func staged(change ...func(d *pb.CompensationRegistered)) func(*pb.ForwardRegistered, *pb.CompensationRegistered) {
	return func(f *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		*c = pb.CompensationRegistered{Triggers: c.Triggers}
		f.Late, f.GraceNs, f.Class = pb.Late_LATE_UNSPECIFIED, 0, pb.Class_CLASS_IRREVERSIBLE
		f.Deliver = &pb.CompensationRegistered{Capability: f.Capability, Attempts: 2, BackoffNs: second}
		for _, with := range change {
			with(f.Deliver)
		}
	}
}

// delivers has a binding of a delivery.
func delivers(expression string) func(*pb.CompensationRegistered) {
	return func(d *pb.CompensationRegistered) {
		d.Bindings = []*pb.Binding{{Name: "id", Expression: "input.id"}, {Name: "x", Expression: expression}}
	}
}

// found has a probe of a delivery.
func found(expression, answer, ref string) func(*pb.CompensationRegistered) {
	return func(d *pb.CompensationRegistered) {
		d.Probe = &pb.Probe{Call: questionTo("probe.a", expression), Answer: answer, ExternalRef: ref}
	}
}

// TestADeliveryReadsOnlyWhatIsThereBeforeIt: both halves of its pair are refused by the field that
// reads more, or does not compile.
func TestADeliveryReadsOnlyWhatIsThereBeforeIt(t *testing.T) {
	const noOutput, noBefore = "reads output, and nothing has been called yet; want input, plan and meta",
		"reads before, and nothing has been called yet"
	for _, c := range []struct {
		field, problem string
		change         func(*pb.CompensationRegistered)
	}{
		{"bindings[1].expression", `does not compile: 1:1: undeclared name "inptu"; want did you mean input?`,
			delivers("inptu.id")},
		{"bindings[1].expression", noOutput, delivers("output.id")},
		{"bindings[1].expression", noBefore, delivers("before")},
		{"probe.call.bindings[0].expression", noOutput, found("output.id", "", "")},
		{"probe.call.bindings[0].expression", noBefore, found("before.id", "", "")},
		{"probe.answer", noBefore, found("1", "before.state", "")},
		{"probe.external_ref", noOutput, found("1", "", "output.id")},
		{"done", noOutput, func(d *pb.CompensationRegistered) { d.Done = "error.code == output.code" }},
		{"stop", noBefore, func(d *pb.CompensationRegistered) { d.Stop = "error.code == before.code" }},
		{"stop", "the result is int; want a bool", func(d *pb.CompensationRegistered) { d.Stop = "1 + 1" }},
	} {
		w := newWorld(t)
		w.must(w.agent("p", opened(0)))
		for i, r := range w.agent("p", pair("a", staged(c.change))...) {
			want := "refused: forward_registered.deliver." + c.field + ": " + c.problem
			if r.Verdict != Refused || !strings.HasPrefix(r.Reason, want) {
				t.Errorf("record %d: %+v, want %s", i, r, want)
			}
		}
	}
}
