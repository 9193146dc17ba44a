package executor_test

import (
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/ledger"
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
	const noOutput, noBefore = "reads output, and nothing has been called yet; want input, plan, meta, actions and facts",
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

// TestWhatIsStagedIsDroppedWithItsPlan: whatever asks for the unwind, nothing is sent, asked or in
// doubt, and no one waits.
func TestWhatIsStagedIsDroppedWithItsPlan(t *testing.T) {
	const dropped = "compensated: a=compensated m=dropped [a]"
	playAll(t, []scheduled{
		{"fail", "open a a+ m:staged fail turn", dropped},
		{"cancel", "open a a+ m:staged cancel turn", dropped},
		{"an operator", "open a a+ m:staged stop turn", dropped},
		{"the deadline", "open@5s a a+ m:staged @6s", dropped},
		{"a condition on it that undoes the plan", "open a a+ m:own*+staged fact:m=1 turn", dropped},
		{"before the others", "open m:staged a a+ fail turn", "compensated: m=dropped a=compensated [a]"},
		{"nothing but that", "open m:staged n:staged fail turn", "failed: m=dropped n=dropped []"},
		{"registered when it unwinds", "open a a+ fail m:staged turn", dropped},
		{"and when it has", "open a a+ fail turn m:staged turn", dropped},
		{"with what is in doubt", "open a a? m:staged fail turn", dropped},
		{"in a child", "open a a+ q/open^ q/m:staged q/commit fail turn",
			"compensated: a=compensated plan:q=skipped [a]"},
		{"in a child that is open", "open a a+ q/open^ q/m:staged fail turn",
			"compensated: a=compensated plan:q=skipped [a]"},
	})
}

// TestAPartOfAPlanDropsWhatIsStagedInIt, and nothing else: the plan is open again without it.
func TestAPartOfAPlanDropsWhatIsStagedInIt(t *testing.T) {
	playAll(t, []scheduled{
		{"from before it", "open a a+ m:staged undo:!a turn b b+", "open: a=compensated m=dropped b=held [a]"},
		{"from after it", "open m:staged a a+ undo:!a turn", "open: m=staged a=compensated [a]"},
		{"from it on", "open a a+ m:staged b b+ n:staged undo:!m turn",
			"open: a=held m=dropped b=held n=dropped []"},
		{"beside it", "open a a+ m:staged b< b+ undo:!b turn", "open: a=held m=staged b=compensated [b]"},
		{"a savepoint before it", "open a a+ save:s m:staged back:s turn", "open: a=held m=dropped []"},
		{"a savepoint after it", "open m:staged save:s a a+ back:s turn", "open: m=staged a=compensated [a]"},
		{"a condition", "open a a+ m:own+staged fact:m=1 turn", "open: a=held m=dropped []"},
		{"a block", "open a a+ m:staged judge:m=block turn", "open: a=held m=dropped []"},
		{"a block of the plan", "open a a+ m:staged judge:m=block* turn",
			"compensated: a=compensated m=dropped [a]"},
		{"a block before the commit", "open m:staged judge:m=block !commit turn !commit commit:1",
			"committed: m=dropped []"},
		{"a block that was taken back", "open m:staged judge:m=block judge:m=allow turn", "open: m=dropped []"},
		{"registered again", "open m:staged undo:!m turn !m n:staged", "open: m=dropped n=staged []"},
	})
}

// TestWhatIsStagedComesLast: nothing else comes after it, and it is nothing that a commit waits for.
func TestWhatIsStagedComesLast(t *testing.T) {
	playAll(t, []scheduled{
		{"after one that is", "open m:staged !a<m q/open^m a a+ n<m:staged turn",
			"open: m=staged a=held n=staged []"},
		{"its agent has no word", "open m:staged !m- turn", "open: m=staged []"},
		{"nor an operator", "open m:staged !effect:m=x turn", "open: m=staged []"},
		{"no review", "open !m:review+staged", "open:  []"},
	})
	s := newSchedule(t)
	s.play("open a a+ m:staged b b+ n:staged x<:staged c c+")
	for action, want := range map[string]string{"a": "", "m": "a", "b": "a", "n": "m b", "x": "", "c": "b"} {
		var before []string
		for _, n := range s.actionOf("p", action).Fixed.Before {
			before = append(before, s.planOf("p").Action(n).Fixed.Id)
		}
		if got := strings.Join(before, " "); got != want {
			t.Errorf("%s comes after %q, want %q", action, got, want)
		}
	}
	s.play("commit turn")
	if got := s.show("p"); got.State != ledger.StateCommitted || strings.Join(s.undone, " ") != "m n x" {
		t.Errorf("%s: delivered %q", got.State, s.undone)
	}
}

// TestAStagedPairThatIsRefusedClaimsNothing: no one calls anything for it. That its agent says it
// happened is another thing.
func TestAStagedPairThatIsRefusedClaimsNothing(t *testing.T) {
	for _, c := range []struct {
		what, words, orphans string
	}{
		{"after the commit", "open commit !m:staged", ""},
		{"that is another one", "open m:staged !m:settle=5s+own+staged", ""},
		{"for a plan that is a part of none", "open a a+ !m<b:staged", ""},
		{"one that is not staged", "open m:staged !m", "m"},
		{"what was claimed of that name before", "open !m<b m:staged", "m"},
		{"what was claimed, and is registered", "open !m<b m", ""},
		{"whose agent says that it happened", "open m:staged !m+", "m"},
		{"whose agent says that it may have", "open m:staged !m?", "m"},
		{"whose agent says that it has not", "open m:staged !m-", ""},
	} {
		s := newSchedule(t)
		s.play(c.words)
		var orphans []string
		for _, name := range s.show("p").Orphans {
			name, _, _ = strings.Cut(name, "@")
			orphans = append(orphans, name)
		}
		if got := strings.Join(orphans, " "); got != c.orphans {
			t.Errorf("%s: claimed is %q, want %q", c.what, got, c.orphans)
		}
		s.wantRefolded()
	}
}
