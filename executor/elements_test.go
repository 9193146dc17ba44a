package executor_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// openedWith opens a plan with an input.
func openedWith(input string) *pb.Record {
	r := opened(0)
	r.Payload = &pb.Payload{Input: []byte(input)}
	return r
}

// sentTo collects the arguments of the undos, by action.
func (s *schedule) sentTo() map[string]string {
	sent := map[string]string{}
	s.worker = func(c Command) *api.Reply {
		sent[c.Plan+"/"+c.Action] = string(c.Arguments)
		return &api.Reply{Status: api.StatusDone}
	}
	return sent
}

// TestS6S20AnUndoReadsWhatIsBesideItsAction: other actions of its plan that were registered before it,
// facts as they were then, and what the plan was opened with (S6, S20).
func TestS6S20AnUndoReadsWhatIsBesideItsAction(t *testing.T) {
	for _, c := range []struct{ expression, play, sent string }{
		{`actions["a"].output.ref`, "a+ fail", `"a"`},
		{`actions["a"].input.id`, "fail", `"a"`},
		{`actions["a"].external_ref`, "own:a=x7 fail", `"x7"`},
		{`actions["a"].output.ref`, "fail", `null`},                    // it has not completed
		{`actions["a"].output.none`, "a+ fail", `null`},                // S20
		{`actions["c"].output.ref`, "c c+ fail", `null`},               // it was registered later
		{`actions["b"].output.ref`, "fail", `null`},                    // it is the action itself
		{`actions["none"].output.ref`, "a+ fail", `null`},              // there is no such action
		{`actions["a"].output.ref`, "a+ fail", `"a"`},                  // it completed after the registration
		{`actions["a~1"].external_ref`, "a- effect:a=x7 fail", `null`}, // a duty has no name that can be read
		{`facts["rate"]`, "fail", `1.10`},
		{`facts["rate"]`, "fact:rate=2 fail", `1.10`}, // as it was
		{`facts["rate"]`, "forget:rate fail", `1.10`},
		{`facts["late"]`, "fact:late=2 fail", `null`},
		{`facts["ra" + "te"]`, "fail", `1.10`},
		{`has(facts["late"]) ? 1 : 2`, "fact:late=2 fail", `2`},
		{`plan.input.price`, "fail", `10.10`},
		{`plan.input`, "fail", `{"of":"b","price":10.10}`},
	} {
		s := newSchedule(t)
		sent := s.sentTo()
		s.play("fact:rate=1.10 fact:rate/b=7")
		s.must(s.agent("p", openedWith(`{"of":"b","price":10.10}`)))
		s.play("a")
		s.must(s.agent("p", pair("b", bind("id", "input.id", "x", c.expression))...))
		s.play(c.play + " turn @1m")
		if got, want := sent["p/b"], `{"id":"b","x":`+c.sent+`}`; got != want {
			t.Errorf("%s after %s: %s, want %s: %s", c.expression, c.play, got, want, s.outcome())
		}
		s.wantRefolded()
	}
}

// TestWhatIsBesideAnActionStaysWithIt: for an extra effect, and where the committed plan is undone.
func TestWhatIsBesideAnActionStaysWithIt(t *testing.T) {
	for play, want := range map[string]map[string]string{
		"b? effect:b=x7,x8 fact:rate=2 fail turn @1m": {"p/b": "x7", "p/b~1": "x8"},
		"own:b=x7 fact:rate=2 commit turn undo turn":  {"p~1/b": "x7"},
	} {
		s := newSchedule(t)
		sent := s.sentTo()
		s.play("fact:rate=1.10")
		s.must(s.agent("p", openedWith(`{"n":1}`)))
		s.play("a a+")
		s.must(s.agent("p", pair("b", bind("id", "meta.external_ref", "of", `actions["a"].output.ref`, "rate",
			`facts["rate"]`, "n", "plan.input.n"))...))
		s.play(play)
		for action, ref := range want {
			if got, want := sent[action], `{"id":"`+ref+`","of":"a","rate":1.10,"n":1}`; got != want {
				t.Errorf("%s of %s: %s, want %s: %s", action, play, got, want, s.outcome())
			}
		}
		s.wantRefolded()
	}
}

// TestADeliveryReadsWhatIsBesideIt: other actions are in the plan that was committed.
func TestADeliveryReadsWhatIsBesideIt(t *testing.T) {
	s := newSchedule(t)
	sent := s.sentTo()
	s.play("fact:rate=1.10")
	s.must(s.agent("p", openedWith(`{"n":1}`)))
	s.play("a")
	s.must(s.agent("p", pair("b", staged(), func(f *pb.ForwardRegistered, _ *pb.CompensationRegistered) {
		f.Deliver.Bindings = []*pb.Binding{{Name: "of", Expression: `actions["a"].output.ref`},
			{Name: "rate", Expression: `facts["rate"]`}, {Name: "n", Expression: "plan.input.n"}}
	})...))
	s.must(s.agent("p", pair("c", staged(), func(f *pb.ForwardRegistered, _ *pb.CompensationRegistered) {
		f.Deliver.Bindings = []*pb.Binding{{Name: "of", Expression: `actions["b"].output.id`},
			{Name: "ref", Expression: `actions["b"].external_ref`}}
	})...))
	s.worker = func(c Command) *api.Reply {
		sent[c.Plan+"/"+c.Action] = string(c.Arguments)
		return &api.Reply{Status: api.StatusDone, Output: json.RawMessage(`{"id":"` + c.Action + `"}`), ExternalRef: "x7"}
	}
	s.play("a+ fact:rate=2 commit turn @1m")
	for action, want := range map[string]string{"b": `{"of":"a","rate":1.10,"n":1}`, "c": `{"of":"b","ref":"x7"}`} {
		if got := sent["p~0/"+action]; got != want {
			t.Errorf("%s: %s, want %s: %s", action, got, want, s.outcome())
		}
	}
	s.wantRefolded()
}

// TestAnAnswerIsNotReadFromWhatIsSealed: what would be compared is not what the probe has found.
func TestAnAnswerIsNotReadFromWhatIsSealed(t *testing.T) {
	card := string(seal.Seal(seal.Key{1}, seal.Place{Tenant: "t", Plan: "p", Action: "a", Field: "output.card"},
		json.RawMessage(`"4111"`)))
	s := newSchedule(t)
	s.must(s.agent("p", append([]*pb.Record{opened(0)}, pair("a")...)...))
	s.must(s.agent("p", pair("b", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.Probe = &pb.Probe{Call: &pb.Call{Capability: "probe.b", Attempts: 1},
			Answer: `actions["a"].output.card == probe.card ? "present" : "absent"`}
	})...))
	done := completed("a")
	done.Payload.Output = []byte(`{"card":` + card + `}`)
	s.must(s.agent("p", done, inDoubt("b")))
	s.worker = func(c Command) *api.Reply {
		return &api.Reply{Status: api.StatusDone, Output: json.RawMessage(`{"card":"4111"}`)}
	}
	s.play("fail turn @1m turn @2m turn")
	if b := s.show("p").Actions[1]; b.Undo == "skipped" {
		t.Errorf("%s: %s, %s", b.Undo, b.Note, s.outcome())
	}
}

// TestPlanInputNamesTheEffectWhereThereIsOne: else nothing does, as before there was one.
func TestPlanInputNamesTheEffectWhereThereIsOne(t *testing.T) {
	for _, c := range []struct {
		input string
		sent  bool
	}{{`{"n":1}`, true}, {"", false}} {
		s := newSchedule(t)
		sent := s.sentTo()
		s.must(s.agent("p", openedWith(c.input)))
		s.must(s.agent("p", pair("b", bind("id", "output.ref", "n", "plan.input.n"))...))
		s.play("b? fail turn @1m")
		if _, was := sent["p/b"]; was != c.sent {
			t.Errorf("opened with %q: sent %v: %s", c.input, was, s.outcome())
		}
	}
}

// TestAFrozenFactIsKeptWhateverBecomesOfIt: evicted before, or lost, also in what undoes the plan.
func TestAFrozenFactIsKeptWhateverBecomesOfIt(t *testing.T) {
	s := newSchedule(t)
	sent := s.sentTo()
	s.play("fact:rate=1.10 fact:large=\"" + strings.Repeat("x", ledger.FrozenFactMax) + "\"")
	s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: "ana"}, &pb.Record{
		Kind: &pb.Record_EvictRequested{EvictRequested: &pb.EvictRequested{Keys: []string{"rate"}, Actor: "ana",
			Reason: "room"}}}))
	s.play("turn")
	if row := s.state.FactRow("rate"); row.Evicted == nil {
		t.Fatal("the fact is in memory")
	}
	s.play("open")
	s.must(s.agent("p", pair("b", bind("id", "input.id", "x", `facts["rate"]`))...))
	s.must(s.agent("p", pair("c", bind("id", "input.id", "x", `facts["large"].x`))...))
	s.play("b+ c+ commit turn forget:rate undo turn @1m")
	if c := s.show("p~1").Actions[1]; !strings.Contains(c.Note, "too large to be kept") {
		t.Errorf("%s: %s", c.Undo, c.Note)
	}
	s.play("p~1/skip:c turn")
	if got := sent["p~1/b"]; got != `{"id":"b","x":1.10}` {
		t.Errorf("%s: %s", got, s.outcome())
	}
	s.wantRefolded()
}

// TestWhatIsBesideAnActionIsThereOrItsOwners (I37): nothing is sent with null in the place of what
// could not be kept.
func TestWhatIsBesideAnActionIsThereOrItsOwners(t *testing.T) {
	large := `"` + strings.Repeat("x", ledger.FrozenFactMax) + `"`
	for _, c := range []struct{ expression, note string }{
		{`actions["a"].output.ref`, ""},
		{`actions["a"].output.other`, "actions.a.output.other is not there as a whole"},
		{`actions["a"].output`, "actions.a.output is not there as a whole"},
		{`actions["a"].output.?other`, ""},
		{`actions["a"].input.none`, ""},
		{`actions["a"].external_ref`, ""},
		{`facts["large"]`, "facts.large is not there as a whole: it was too large to be kept"},
		{`facts["large"] + "x"`, "facts.large is not there as a whole"},
	} {
		s := newSchedule(t)
		sent := s.sentTo()
		s.play("fact:large=" + large)
		s.must(s.agent("p", append([]*pb.Record{opened(0)}, pair("a")...)...))
		s.must(s.agent("p", pair("b", bind("id", "input.id", "x", c.expression))...))
		s.must(s.agent("p", partly("a", `{"ref":"a"}`)))
		s.play("b+ fail turn @1m")
		b := s.show("p").Actions[1]
		if _, was := sent["p/b"]; was != (c.note == "") || !strings.Contains(b.Note, c.note) {
			t.Errorf("%s: sent %v, %s: %s, want %q", c.expression, was, b.Undo, b.Note, c.note)
		}
		s.wantRefolded()
	}
}

// TestANameThatCouldNotBeKeptIsNoneForOthers (I37): an undo that reads it of another action is its owner's.
func TestANameThatCouldNotBeKeptIsNoneForOthers(t *testing.T) {
	for _, c := range []struct {
		name string
		lost bool
		note string
	}{{"x", false, ""}, {"", false, ""}, {"", true, "actions.a.external_ref is not there as a whole"}} {
		s := newSchedule(t)
		sent := s.sentTo()
		s.must(s.agent("p", append([]*pb.Record{opened(0)}, pair("a")...)...))
		s.must(s.agent("p", pair("b", bind("id", "input.id", "x", `actions["a"].external_ref`))...))
		done := completed("a")
		done.GetForwardCompleted().ExternalRef, done.GetForwardCompleted().ReferenceIncomplete = c.name, c.lost
		s.must(s.agent("p", done))
		s.play("b+ fail turn @1m")
		b := s.show("p").Actions[1]
		if _, was := sent["p/b"]; was != (c.note == "") || !strings.Contains(b.Note, c.note) {
			t.Errorf("%q: sent %v, %s: %s, want %q", c.name, was, b.Undo, b.Note, c.note)
		}
		s.wantRefolded()
	}
}

// TestWhatAnotherActionHasSealedStaysSealed: it is taken whole, for the worker to open, and nothing
// is computed from it, nor put into a fact.
func TestWhatAnotherActionHasSealedStaysSealed(t *testing.T) {
	card := string(seal.Seal(seal.Key{1}, seal.Place{Tenant: "t", Plan: "p", Action: "a", Field: "output.card"},
		json.RawMessage(`{"number":"4111"}`)))
	for _, c := range []struct{ expression, note string }{
		{`actions["a"].output.card`, ""},
		{`{"card": actions["a"].output.card}`, ""},
		{`actions["a"].output.ref`, ""},
		{`"card-" + actions["a"].output.ref`, ""},
		{`actions["a"].output.card.number`, "actions.a.output.card is sealed"},
		{`"card-" + actions["a"].output.card`, "actions.a.output.card is sealed"},
		{`size(actions["a"].output)`, "actions.a.output is sealed"},
	} {
		for _, inMemory := range []bool{false, true} {
			s := newSchedule(t)
			sent := s.sentTo()
			s.must(s.agent("p", append([]*pb.Record{opened(0)}, pair("a")...)...))
			binds := bind("id", "input.id", "x", c.expression)
			if inMemory {
				binds = byFact(ledger.CapabilityAssert, "key", `"k"`, "value", c.expression)
			}
			b := pair("b", binds)
			b[0].Payload = &pb.Payload{Input: []byte(`{"id":"b","of":"a"}`)}
			s.must(s.agent("p", b...))
			done := completed("a")
			done.Payload.Output = []byte(`{"ref":"r","card":` + card + `}`)
			s.must(s.agent("p", done))
			s.play("b+ fail turn @1m")
			is, want := s.show("p").Actions[1], c.note
			if inMemory && want == "" && strings.Contains(c.expression, "output.card") {
				want = "an argument is sealed, and facts are in the clear"
			}
			if _, was := sent["p/b"]; was != (want == "") || !strings.Contains(is.Note, want) ||
				(is.Undo == "compensated") != (want == "") {
				t.Errorf("%s, in memory %v: sent %v, %s: %q, want %q", c.expression, inMemory, was, is.Undo, is.Note, want)
			}
			s.wantRefolded()
		}
	}
}

// TestWhatIsBesideAnActionIsNotReadByEarlierHolders: they refuse the pair, as they did.
func TestWhatIsBesideAnActionIsNotReadByEarlierHolders(t *testing.T) {
	for _, c := range []struct {
		version uint32
		refused string
	}{{ledger.OthersSince - 1, `does not compile: 1:1: undeclared name "facts"; want it may read input, output, ` +
		`before, plan and meta`}, {ledger.OthersSince, ""}} {
		s := newSchedule(t)
		sent := s.sentTo()
		s.play("fact:rate=1.10")
		s.underHolder(c.version)
		s.must(s.agent("p", openedWith(`{"n":1}`)))
		results := s.agent("p", pair("b", bind("id", "input.id", "x", `facts["rate"]`))...)
		if (results[0].Verdict == Effective) != (c.refused == "") || !strings.Contains(results[0].Reason, c.refused) {
			t.Errorf("under %d: %+v", c.version, results)
		}
		s.must(s.agent("p", pair("c", bind("id", "input.id", "x", `plan.input.n`))...))
		s.play("c+")
		s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, &pb.Record{Term: 3,
			Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h2", FoldVersion: FoldVersion}}}))
		s.play("fail turn @1m")
		want := `{"id":"c","x":null}`
		if c.refused == "" {
			want = `{"id":"c","x":1}`
		}
		if got := sent["p/c"]; got != want {
			t.Errorf("under %d: %s, want %s: %s", c.version, got, want, s.outcome())
		}
		s.wantRefolded()
	}
}

// TestWhatARegistrationMayReadIsBounded: how many others, and how much a plan is opened with.
func TestWhatARegistrationMayReadIsBounded(t *testing.T) {
	reads := func(variable string, n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf("%s.k%d", variable, i))
		}
		return "[" + strings.Join(list, ",") + "]"
	}
	for _, c := range []struct{ expression, refused string }{
		{reads("facts", ledger.ElementsMax), ""},
		{reads("actions", ledger.ElementsMax), ""},
		{reads("facts", ledger.ElementsMax+1), "its expressions read 17 facts; want at most 16"},
		{reads("actions", ledger.ElementsMax+1), "its expressions read 17 actions; want at most 16"},
		{`facts[output.key]`, "which of facts is computed"},
		{`facts`, "all of facts at once"},
	} {
		s := newSchedule(t)
		s.play("open")
		for _, r := range s.agent("p", pair("b", bind("id", "input.id", "x", c.expression))...) {
			if (r.Verdict == Effective) != (c.refused == "") || !strings.Contains(r.Reason, c.refused) {
				t.Errorf("%s: %+v, want %q", c.expression, r, c.refused)
			}
		}
	}
	for _, c := range []struct{ input, refused string }{
		{`"` + strings.Repeat("x", ledger.PlanInputMax-2) + `"`, ""},
		{`"` + strings.Repeat("x", ledger.PlanInputMax-1) + `"`, "payload.input: 16385 bytes; want at most 16384"},
		{`"\ud800"`, "payload.input: it has text that is no UTF-8"},
	} {
		s := newSchedule(t)
		r := s.agent("p", openedWith(c.input))[0]
		if (r.Verdict == Effective) != (c.refused == "") || !strings.Contains(r.Reason, c.refused) {
			t.Errorf("%.20s: %+v, want %q", c.input, r, c.refused)
		}
		if again := s.agent("p", openedWith(c.input))[0]; c.refused == "" && again.Verdict != Repeated {
			t.Errorf("%.20s again: %+v", c.input, again)
		}
		if other := s.agent("p", openedWith(`1`))[0]; c.refused == "" && other.Verdict != Refused {
			t.Errorf("another input: %+v", other)
		}
	}
}
