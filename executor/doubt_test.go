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

// doubts opens plans that each have eight actions in doubt, whose probes answer late.
func (s *schedule) doubts(plans string) {
	for _, p := range plans {
		s.play(fmt.Sprintf("%c/open", p))
		for j := range 8 {
			s.play(fmt.Sprintf("%c/a%d:probe %c/a%d? a%d.probe=late", p, j, p, j, j))
		}
	}
}

// TestRoomThatAPlanCannotTakeIsAnothers: of plan g one question may be out, and many of it wait.
func TestRoomThatAPlanCannotTakeIsAnothers(t *testing.T) {
	s := newSchedule(t)
	s.doubts("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef")
	s.play("turn @1m turn @2m g/open:1 h/open")
	for j := range 5 {
		s.play(fmt.Sprintf("g/g%d:probe g/g%d? g%d.probe=late", j, j, j))
	}
	s.play("@3m h/h:probe h/h? h.probe=late @6m turn")
	asked := func() (of string) {
		for _, c := range s.state.InFlight() {
			if strings.Contains("gh", c.Plan) {
				of += c.Action + " "
			}
		}
		return of
	}
	for _, c := range []struct{ words, want string }{
		{"turn", ""}, {"A/settle:a0=absent turn", "g0 "}, {"A/settle:a1=absent turn turn turn turn turn", "g0 h "},
		{"A/settle:a2=absent turn @1h turn", "g0 h "}, {"g/settle:g0=absent turn", "g1 h "},
	} {
		if s.play(c.words); asked() != c.want {
			t.Errorf("%s: asked about %q, want %q", c.words, asked(), c.want)
		}
	}
	s.wantRefolded()
}

// TestATenantAsksSoMuchAtOnce, whatever its plans are.
func TestATenantAsksSoMuchAtOnce(t *testing.T) {
	const most = 256
	s := newSchedule(t)
	s.doubts("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefgh")
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

// TestTheDoubtsOfACommittedChildStay until its root ends: nothing asks about them before.
func TestTheDoubtsOfACommittedChildStay(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ q/open^a q/x:probe q/x? q/y q/y? q/commit turn @1h turn")
	s.state.Flush()
	r := view.NewReader(s.kv, "t", s).At(s.now)
	for plan, prefix := range map[string]string{"p": "q/", "q": ""} {
		asked, stay := r.OpenDoubts(plan)
		want := []api.Doubt{
			{Action: prefix + "x", Waits: "the commit of plan p, which asks probe.x whether it has happened"},
			{Action: prefix + "y", Waits: "the end of plan p: it has no probe, and nothing else can be asked whether " +
				"it has happened"},
		}
		if len(asked) != 0 || !slices.Equal(stay, want) {
			t.Errorf("plan %s: asked about %+v, not about %+v; want %+v", plan, asked, stay, want)
		}
	}
	if got := s.show("q").Actions[0].WaitsFor; !strings.HasPrefix(got, "the commit of plan p") {
		t.Errorf("waits for %q", got)
	}
	s.play("fail turn")
	s.state.Flush()
	for _, plan := range []string{"p", "q"} {
		if asked, stay := view.NewReader(s.kv, "t", s).At(s.now).OpenDoubts(plan); len(asked)+len(stay) != 0 {
			t.Errorf("plan %s, which is undone: %+v, %+v", plan, asked, stay)
		}
	}
}

// TestAQuestionThatIsDueIsKeptWithItsPlan: what undoes a committed plan learns of a doubt by a record
// about that plan. A host that starts again then gives its question up with the others.
func TestAQuestionThatIsDueIsKeptWithItsPlan(t *testing.T) {
	s := newSchedule(t)
	s.play("open:accept a:for=1h+probe+later=5s commit turn undo a?")
	s.state.Flush()
	s.state = OpenWith(s.kv, "t", s, s.programs)
	s.play("turn @1h turn")
	s.wantState("p~1", ledger.StateCompensated, "a=compensated")
	if ns, wakes := s.state.NextWake(); wakes {
		t.Errorf("it is woken at %d, and it is %d", ns, s.now)
	}
}

// TestWhatIsOwedAsAnotherIsNotSentAgain: the undo of a duty for a doubt was sent blindly, and its forward
// turns out to have completed. That is owed by its name, and the blind undo is not tried again, under a
// key of its own: it would take the same effect back once more. Earlier holders tried it.
func TestWhatIsOwedAsAnotherIsNotSentAgain(t *testing.T) {
	const failed = "compensated: a=compensated a~1=skipped a~2=compensated [a a~2]; [a= a~1= a~2=x7]"
	for _, c := range []struct {
		answers, word string
		fold          uint32
		want          string
	}{
		{"fail,done", "own:a=x7", FoldVersion, failed},
		{"fail,done", "effect:a=x7", FoldVersion, failed},
		{"late", "effect:a=x7", FoldVersion,
			"unwinding: a=compensated a~1=dispatched a~2=compensated [a a~2]; [a= a~1= a~2=x7]"},
		{"late", "effect:a=x7 tell:a~1#1=done", FoldVersion,
			"compensated: a=compensated a~1=compensated a~2=compensated [a a~2]; [a= a~1= a~2=x7]"},
		{"late", "effect:a=x7 tell:a~1#1=fail", FoldVersion, failed},
		// It is its owner's: it has the name, and no other duty.
		{"stop,done", "effect:a=x7 turn retry:a~1", FoldVersion,
			"compensated: a=compensated a~1=compensated [a a~1]; [a= a~1= a~1=x7]"},
		{"fail,done", "own:a=x7", ledger.OwnerFirstSince - 1,
			"compensated: a=compensated a~1=compensated a~2=compensated [a a~2 a~1]; [a= a~1= a~2=x7 a~1=x7]"},
	} {
		s := newSchedule(t)
		s.deciding = true
		s.underHolder(c.fold)
		sent := s.seen("x7")
		s.play("open a:blind a~1=" + c.answers + " fail @5m turn @6m a? @7m turn " + c.word + " turn @30m turn @40m turn")
		if got := fmt.Sprintf("%s; %v", s.outcome(), *sent); got != c.want {
			t.Errorf("%s, %s, fold %d:\n%s, want\n%s", c.answers, c.word, c.fold, got, c.want)
		}
		s.wantRefolded()
	}
}

// TestANoteOnADoubtEndsWithIt: what the probe did not find is no word on what has completed since.
func TestANoteOnADoubtEndsWithIt(t *testing.T) {
	s := newSchedule(t)
	s.play("open a:probe+may a? a.probe=absent turn @10m turn")
	note := func() string { return s.show("p").Actions[0].Note }
	if !strings.HasPrefix(note(), "in doubt; its probe has found nothing") {
		t.Errorf("in doubt it says %q", note())
	}
	if s.play("a+ turn"); note() != "" {
		t.Errorf("completed it says %q", note())
	}
	s.wantRefolded()
}
