package executor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// calls names the actions that a question, or an undo, is out about.
func (s *schedule) calls() string {
	var names []string
	for _, c := range s.state.InFlight() {
		names = append(names, c.Action)
	}
	return strings.Join(names, " ")
}

// TestAnOpenPlanAsksNoMoreAtOnceThanItUndoes: the next in order is asked about when one that is out
// is answered, or is wanted no more.
func TestAnOpenPlanAsksNoMoreAtOnceThanItUndoes(t *testing.T) {
	s := newSchedule(t)
	s.play("open:2 a:probe b:probe c:probe d:probe e:probe a? b? c? d? e? " +
		"a.probe=late b.probe=late c.probe=late d.probe=late e.probe=late turn @1m")
	for _, c := range []struct{ then, asked string }{
		{"turn", "a b"},
		{"settle:b=absent turn", "a c"},
		{"@10m", "a c"},
		{"c+ turn", "a d"}, // its caller says better
		{"e+ turn", "a d"},
		{"settle:d=present turn", "a"},
		{"f:probe g:probe f? g? f.probe=late g.probe=late turn @11m", "a f"},
		{"settle:a=present turn", "f g"},
		{"settle:f=absent settle:g=absent turn", ""},
	} {
		if s.play(c.then); s.calls() != c.asked {
			t.Fatalf("after %s it asks about %q, want %q", c.then, s.calls(), c.asked)
		}
		s.wantRefolded()
	}
}

// TestWhatWaitsToBeAskedSaysSo: its plan has as many questions out as it may have.
func TestWhatWaitsToBeAskedSaysSo(t *testing.T) {
	s := newSchedule(t)
	s.play("open:1 a:probe b:probe a? b? a.probe=late b.probe=late turn")
	if got, want := s.show("p").Actions[1].WaitsFor, "a question to probe.b at "; !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	s.play("@1m turn")
	if got, want := s.show("p").Actions[1].WaitsFor, "a question to probe.b, whether it has happened, once one of those "+
		"that are out is answered"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestATenantAsksSoMuchAtOnce, whatever its plans are.
func TestATenantAsksSoMuchAtOnce(t *testing.T) {
	const plans, each, most = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefgh", 8, 256
	s := newSchedule(t)
	for _, p := range plans {
		s.play(fmt.Sprintf("%c/open", p))
		for j := range each {
			s.play(fmt.Sprintf("%c/a%d:probe %c/a%d? a%d.probe=late", p, j, p, j, j))
		}
	}
	s.play("turn @1m")
	asked := func(want string) {
		t.Helper()
		calls := s.state.InFlight()
		if last := calls[len(calls)-1]; len(calls) != most || last.Plan+last.Action != want {
			t.Fatalf("%d questions are out, the last about %s of plan %s; want %d and %s", len(calls), last.Action,
				last.Plan, most, want)
		}
	}
	asked("fa7")
	s.play("A/settle:a7=absent turn B/a1+ turn")
	asked("ga1")
	s.wantRefolded()
}

// TestAnUnservedQuestionIsAskedOn under a holder of this version; an earlier one gave it up.
func TestAnUnservedQuestionIsAskedOn(t *testing.T) {
	const words = "open b:probe+offer=10m b? b.probe=nobody turn @1m @11m @20m59s b.probe=present turn"
	s := newSchedule(t)
	s.play(words)
	if got := s.actionOf("p", "b").Row; got.Asked != 1 || !strings.Contains(got.Note, "no worker serves probe.b") {
		t.Fatalf("asked %d times: %s", got.Asked, got.Note)
	}
	s.play("@21m b.probe=late commit turn")
	if got := s.outcome(); got != "committed: b=retired []" {
		t.Error(got)
	}
	s.wantRefolded()

	s = newSchedule(t)
	s.underHolder(ledger.AskedOnSince - 1)
	s.play(words + " @3h")
	if got := s.actionOf("p", "b"); got.Row.Asked != 1 || got.Row.AskNs != 0 {
		t.Errorf("under an earlier holder it is asked %d times", got.Row.Asked)
	}
}

// unaskable begins plan p with an action in doubt whose probe reads what is not there.
func unaskable(t *testing.T, expression string) *schedule {
	s := newSchedule(t)
	s.must(s.agent("p", opened(0)))
	s.must(s.agent("p", pair("a", func(f *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.Probe = &pb.Probe{Call: &pb.Call{Capability: "probe.a",
			Bindings: []*pb.Binding{{Name: "n", Expression: expression}}}}
	})...))
	return s
}

// TestWhatCannotBeAskedSaysWhy, and is not due: no time makes the question possible.
func TestWhatCannotBeAskedSaysWhy(t *testing.T) {
	s := unaskable(t, "input.id + 1")
	s.play("a? turn")
	s.state.Flush()
	for _, due := range view.NewReader(s.kv, "t", s).At(s.now).Upcoming(0).Due {
		if due.Kind == "ask" {
			t.Errorf("%+v is due", due)
		}
	}
	s.play("@1m turn")
	const want = "the end of its plan: probe.a cannot be asked: argument n: "
	if got := s.show("p").Actions[0].WaitsFor; !strings.HasPrefix(got, want) {
		t.Errorf("waits for %q, want %q", got, want)
	}
	s.state.Flush()
	r := view.NewReader(s.kv, "t", s).At(s.now)
	why, err := r.Why(api.WhyQuery{Plan: "p"})
	if err != nil || len(why.Waits) != 1 || !strings.HasPrefix(why.Waits[0].For, want) {
		t.Errorf("%+v, %v", why, err)
	}
	if ns := r.Status().NextDueNs; ns != 0 {
		t.Errorf("what calls for a decision next is due at %d", ns)
	}
	if ns, ok := s.state.NextWake(); ok && ns <= s.now {
		t.Errorf("its holder wakes at %d for it", ns)
	}
}

// TestWhatAnOpenPlanDoesNotAskSaysSo: there is no probe, or it has told nothing.
func TestWhatAnOpenPlanDoesNotAskSaysSo(t *testing.T) {
	for _, c := range []struct{ words, want string }{
		{"open a a? turn", "the end of its plan: it has no probe, and nothing else can be asked whether it has happened"},
		{"open a turn", ""},
		{"open a turn @1m b b+", "its outcome, or the end of its plan: it has no probe"},
		{"open a:probe turn", "its outcome, or a question to probe.a at "},
		{"open a:probe a? turn", "a question to probe.a at "},
		{"open a:probe a? a.probe=absent turn @1m", "the end of its plan, which asks probe.a whether it has happened"},
		{"open a:probe a? a.probe=present turn @1m", ""},
		{"open a a+ turn @1h", ""},
		{"open a a- turn @1h", ""},
	} {
		s := newSchedule(t)
		s.play(c.words)
		got := s.show("p").Actions[0].WaitsFor
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: waits for %q, want %q", c.words, got, c.want)
		}
	}
}

// TestOpenDoubts: what will be known by itself is apart from what will not.
func TestOpenDoubts(t *testing.T) {
	s := newSchedule(t)
	s.play("open a:probe b c c+ d d? a? turn")
	s.state.Flush()
	names := func(list []api.Doubt) (names []string) {
		for _, d := range list {
			names = append(names, d.Action)
		}
		return names
	}
	asked, stay := view.NewReader(s.kv, "t", s).At(s.now).OpenDoubts("p")
	if !slices.Equal(names(asked), []string{"a"}) || !slices.Equal(names(stay), []string{"b", "d"}) {
		t.Errorf("asked about %+v, not about %+v", asked, stay)
	}
}

// effect is what an operator, or a worker, reports of an action of plan p.
func (s *schedule) effect(source ledger.Source, action, ref string, duplicates ...string) Result {
	s.t.Helper()
	output := []byte(`{"id":"` + ref + `"}`)
	return s.append(source, &pb.Record{Plan: "p", Action: action, Payload: &pb.Payload{Output: output},
		Kind: &pb.Record_EffectReported{EffectReported: &pb.EffectReported{ExternalRef: ref, Duplicates: duplicates,
			Reason: "seen", Actor: "ops"}}})[0]
}

var workerW1 = ledger.Source{Tenant: "t", Class: ledger.ClassWorker, Name: "w1"}

// TestAnEffectThatIsReportedIsThere at any time, whatever was known before.
func TestAnEffectThatIsReportedIsThere(t *testing.T) {
	for _, c := range []struct{ name, before, after, want string }{
		{"in doubt", "open a a? turn", "turn commit turn", "committed: a=retired []"},
		{"and undone", "open a a? turn", "fail turn", "compensated: a=compensated [a]"},
		{"it runs", "open a turn", "turn commit turn", "committed: a=retired []"},
		{"it has failed", "open a a- turn", "fail turn", "compensated: a=compensated [a]"},
		{"the world is asked about it", "open a:probe a? a.probe=late turn @1m", "turn commit turn",
			"committed: a=retired []"},
		{"its commit waits", "open a a? commit turn", "turn", "committed: a=retired []"},
		{"it was found not to be there, and skipped", "open a:probe a? a.probe=absent fail turn", "turn",
			"compensated: a=skipped a~1=compensated [a~1]"},
		{"it was undone blindly", "open a a? fail turn", "turn", "compensated: a=compensated a~1=compensated [a a~1]"},
		{"its undo waits for it to land", "open a:settle=1h a? fail turn", "turn", "compensated: a=compensated [a]"},
		{"its plan was committed with the doubt accepted", "open:accept a a? commit turn", "undo: turn",
			"committed: a=retired [a]"},
	} {
		for _, source := range []ledger.Source{ops, workerW1} {
			s := newSchedule(t)
			s.play(c.before)
			if r := s.effect(source, "a", "x7"); r.Verdict != Effective {
				t.Fatalf("%s: %+v", c.name, r)
			}
			if r := s.effect(source, "a", "x7"); r.Verdict != Repeated {
				t.Fatalf("%s, once more: %+v", c.name, r)
			}
			s.play(c.after)
			if got := s.outcome(); got != c.want {
				t.Errorf("%s: %s, want %s", c.name, got, c.want)
			}
			s.wantRefolded()
		}
	}
}

// TestAnAgentsOwnWordCountsAfterAReport: what it returned; and no failure takes the effect away.
func TestAnAgentsOwnWordCountsAfterAReport(t *testing.T) {
	s := newSchedule(t)
	s.play("open a b c a? turn")
	for _, id := range []string{"a", "b", "c"} {
		if r := s.effect(ops, id, "x7"); r.Verdict != Effective {
			t.Fatalf("%+v", r)
		}
	}
	said := completed("a")
	said.GetForwardCompleted().ExternalRef = "mine"
	s.must(s.agent("p", said))
	if r := s.agent("p", said)[0]; r.Verdict != Repeated {
		t.Errorf("the same once more is %+v", r)
	}
	s.play("=b- =c? fail turn")
	const want = "compensated: a=compensated b=compensated c=compensated [c b a]"
	if got, a := s.outcome(), s.actionOf("p", "a").Row; got != want || a.ExternalRef != "mine" {
		t.Errorf("%s, and a is %s", got, a.ExternalRef)
	}
	s.wantRefolded()
}

// TestAnExtraEffectThatIsReportedIsUndone at once, alone, and each once.
func TestAnExtraEffectThatIsReportedIsUndone(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ b:probe b+ turn")
	if r := s.effect(ops, "b", "x7", "x8"); r.Verdict != Effective {
		t.Fatalf("%+v", r)
	}
	if r := s.effect(workerW1, "b", "x7", "x8"); r.Verdict != Repeated {
		t.Errorf("before it is owed: %+v", r)
	}
	if r := s.effect(workerW1, "b", "x7", "x8", "x9"); r.Verdict != Effective {
		t.Errorf("one more: %+v", r)
	}
	s.play("turn")
	if r := s.effect(ops, "b", "x7", "x9"); r.Verdict != Repeated {
		t.Errorf("it is undone: %+v", r)
	}
	if got, want := s.outcome(), "open: a=held b=held b~1=compensated b~2=compensated [b~2 b~1]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.play("commit turn")
	if r := s.effect(ops, "b", "x7", "x10"); r.Verdict != Refused || !strings.Contains(r.Reason, "is committed") {
		t.Errorf("%+v", r)
	}
	s.wantRefolded()
}

// TestWhatCannotBeReported: there is no such effect, or no holder that knows of reports.
func TestWhatCannotBeReported(t *testing.T) {
	s := newSchedule(t)
	s.play("open a:eff b:sealed c:probe c? c.probe=duplicate turn @1m turn")
	for action, reason := range map[string]string{"z": "not registered", "a": "has no effect", "b": "are sealed",
		"c~1": "report of action c"} {
		if r := s.effect(ops, action, "x"); r.Verdict != Refused || !strings.Contains(r.Reason, reason) {
			t.Errorf("%s: %+v, want %s", action, r, reason)
		}
	}
	s = newSchedule(t)
	s.underHolder(ledger.EffectsSince - 1)
	s.play("open a a?")
	if r := s.effect(ops, "a", "x"); r.Verdict != Refused || !strings.Contains(r.Reason, "does not know of it") {
		t.Errorf("%+v", r)
	}
}
