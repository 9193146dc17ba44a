package executor_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	. "github.com/sagenbaum/sagenbaum/executor"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// partly completes an action whose output was too large; output is what was kept of it.
func partly(id, output string) *pb.Record {
	r := &pb.Record{Action: id,
		Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{OutputIncomplete: true}}}
	if output != "" {
		r.Payload = &pb.Payload{Output: []byte(output)}
	}
	return r
}

// TestWhatTheUndoNeedsIsThereOrItsOwners (I37): an argument below an incomplete output is
// what was kept, or the action is its owner's and nothing is sent.
func TestWhatTheUndoNeedsIsThereOrItsOwners(t *testing.T) {
	for _, c := range []struct{ expression, kept, sent, note string }{
		{"output.id", `{"id":7}`, `{"x":7}`, ""},
		{"output.id", `{"id":null}`, `{"x":null}`, ""},
		{"output.id", "", "", "cannot build the call of undo.a: argument x: cannot evaluate binding: output.id is not " +
			"there: the output could not be kept (too large, nested too deep, or not exact)"},
		{"output.id", `{"other":7}`, "", "output.id is not there"},
		{"output", `{"id":7}`, "", "output is not there as a whole"},
		{"output.?id", "", `{"x":null}`, ""},
		{"output.?id.orValue(input.id)", "", `{"x":"a"}`, ""},
		{"input.id", "", `{"x":"a"}`, ""},
	} {
		for _, calls := range []string{"undo", "probe", "verify"} {
			s := newSchedule(t)
			s.must(s.agent("p", opened(0)))
			s.must(s.agent("p", pair("a", func(_ *pb.ForwardRegistered, k *pb.CompensationRegistered) {
				bindings := []*pb.Binding{{Name: "x", Expression: c.expression}}
				switch calls {
				case "undo":
					k.Bindings = bindings
				case "probe":
					k.Probe = &pb.Probe{Call: &pb.Call{Capability: "probe.a", Bindings: bindings}}
				case "verify":
					k.Verify = &pb.Verify{Ok: "verify.gone", Call: &pb.Call{Capability: "verify.a", Bindings: bindings}}
				}
			})...))
			s.must(s.agent("p", partly("a", c.kept)))
			if calls == "probe" {
				s.play("a=lost")
			}
			s.play("fail turn @1s")
			var sent string
			for _, r := range s.effective() {
				if r.GetCompensationDispatched() != nil && calls == "undo" || r.GetProbeAsked() != nil && calls != "undo" {
					sent = string(r.Payload.GetArguments())
				}
			}
			shown := s.show("p")
			note := shown.Actions[0].Note
			if sent != c.sent || !shown.Actions[0].Incomplete || (shown.State == "quarantined") != (c.note != "") &&
				calls != "probe" {
				t.Errorf("%s of %s, %q kept: sent %s, want %s; the plan is %s: %s", calls, c.expression, c.kept, sent, c.sent,
					shown.State, note)
			}
			if calls == "undo" && !strings.Contains(note, c.note) {
				t.Errorf("%s: %s, want %s", c.expression, note, c.note)
			}
		}
	}
}

// TestAnIncompleteOutputStaysSo: for a duty, in the plan that undoes a committed one, and
// against a copy that says otherwise.
func TestAnIncompleteOutputStaysSo(t *testing.T) {
	binds := func(_ *pb.ForwardRegistered, k *pb.CompensationRegistered) {
		k.Bindings = []*pb.Binding{{Name: "x", Expression: "output.id"}, {Name: "y", Expression: "input.id"}}
	}
	s := newSchedule(t)
	s.must(s.agent("p", append([]*pb.Record{opened(0)}, pair("a", binds)...)...))
	s.play("fail turn")
	s.must(s.agent("p", partly("a", ""))) // after the blind undo
	s.play("turn")
	if got := s.outcome(); got != "quarantined: a=compensated a~1=quarantined [a]" {
		t.Error(got)
	}
	s = newSchedule(t)
	s.must(s.agent("p", append([]*pb.Record{opened(0)}, pair("a", binds)...)...))
	s.must(s.agent("p", partly("a", "")))
	if got := s.agent("p", partly("a", ""))[0].Verdict; got != Repeated {
		t.Error(got)
	}
	whole := partly("a", "")
	whole.GetForwardCompleted().OutputIncomplete = false
	if got := s.agent("p", whole)[0].Verdict; got != Refused {
		t.Error(got)
	}
	s.play("resolve:" + s.show("p").Orphans[0] + " commit turn undo turn") // it has said that it completed, twice
	if got := s.show("p~1"); got.State != "quarantined" ||
		!strings.Contains(got.Actions[0].Note, "output.id is not there") {
		t.Errorf("%+v", got)
	}
}

// TestAnEffectWithoutItsNameIsItsOwners: what its provider calls it could not be kept, and a part
// of a name is another one's. What does not read it is undone; so is what a probe names later.
func TestAnEffectWithoutItsNameIsItsOwners(t *testing.T) {
	for _, c := range []struct{ expression, sent, outcome string }{
		{"meta.external_ref", "", "quarantined: a=quarantined []"},
		{"{'all': meta}", "", "quarantined: a=quarantined []"},
		{"'/' + meta.external_ref", "", "quarantined: a=quarantined []"},
		{"has(output.no) ? output.no : meta.external_ref", "", "quarantined: a=quarantined []"},
		{"has(output.id) ? output.id : meta.external_ref", `{"x":7}`, "compensated: a=compensated [a]"},
		{"meta.?external_ref.orValue('none')", `{"x":"none"}`, "compensated: a=compensated [a]"},
		{"input.id", `{"x":"a"}`, "compensated: a=compensated [a]"},
	} {
		s := newSchedule(t)
		s.must(s.agent("p", append([]*pb.Record{opened(0)}, pair("a",
			func(_ *pb.ForwardRegistered, k *pb.CompensationRegistered) {
				k.Bindings = []*pb.Binding{{Name: "x", Expression: c.expression}}
			})...)...))
		unnamed := partly("a", `{"id":7}`)
		done := unnamed.GetForwardCompleted()
		done.OutputIncomplete, done.ReferenceIncomplete = false, true
		s.must(s.agent("p", unnamed))
		if got := s.agent("p", proto.CloneOf(unnamed))[0].Verdict; got != Repeated {
			t.Errorf("a copy is %v", got)
		}
		s.play("fail turn")
		sent := ""
		for _, r := range s.effective() {
			if r.GetCompensationDispatched() != nil {
				sent = string(r.Payload.GetArguments())
			}
		}
		if sent != "" {
			s.play("a=done turn")
		}
		if got := s.outcome(); sent != c.sent || got != c.outcome {
			t.Errorf("%s: sent %s, %s: %+v", c.expression, sent, got, s.show("p").Actions[0].Note)
		}
	}
}

// TestAnUndoThatIsDoneAndCannotBeCheckedIsItsOwners, whenever its worker says so: also while its next
// attempt waits, or a question about the last one does.
func TestAnUndoThatIsDoneAndCannotBeCheckedIsItsOwners(t *testing.T) {
	for _, c := range []struct {
		play  string
		probe bool
	}{
		{play: "a=done turn"},
		{play: "a=late turn tell:a#1=done turn"},
		{play: "a=lost turn tell:a#1=done turn"},
		{play: "a=fail turn tell:a#1=done turn"},
		{play: "a=lost a.probe=lost turn tell:a#1=done turn", probe: true},
		{play: "a=lost,late turn @2m turn tell:a#1=done turn"},
	} {
		s := newSchedule(t)
		s.deciding = true
		s.must(s.agent("p", append([]*pb.Record{opened(0)}, pair("a",
			func(_ *pb.ForwardRegistered, k *pb.CompensationRegistered) {
				k.Verify = &pb.Verify{Ok: "verify.gone", Call: &pb.Call{Capability: "verify.a",
					Bindings: []*pb.Binding{{Name: "x", Expression: "output.id"}}}}
				if c.probe {
					k.Probe = &pb.Probe{Call: &pb.Call{Capability: "probe.a"}}
				}
			})...)...))
		s.must(s.agent("p", partly("a", "")))
		s.play("fail " + c.play)
		note := s.show("p").Actions[0].Note
		if got := s.outcome(); !strings.HasPrefix(got, "quarantined: a=quarantined") ||
			!strings.Contains(note, "cannot build the check after the undo") {
			t.Errorf("%s: %s: %s", c.play, got, note)
		}
		s.wantRefolded()
	}
}
