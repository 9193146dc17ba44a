package executor_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

func bind(bindings ...string) func(*pb.ForwardRegistered, *pb.CompensationRegistered) {
	return func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		for i := 0; i < len(bindings); i += 2 {
			c.Bindings = append(c.Bindings, &pb.Binding{Name: bindings[i], Expression: bindings[i+1]})
		}
	}
}

// TestWhatACompensationReceives: arguments from the frozen bindings, null where a
// path is missing (S20), and what is known of the forward (S19, S109).
func TestWhatACompensationReceives(t *testing.T) {
	binding := bind("id", "input.id", "ref", "output.ref", "none", "output.a.b.c", "key", "meta.key", "blind",
		"meta.blind_cleanup", "plan", "plan.id", "why", "plan.reason")
	for _, c := range []struct {
		name      string
		outcome   []*pb.Record
		arguments string
		blind     bool
	}{
		{"completed", []*pb.Record{completed("a")}, `{"id":"a","ref":"a","none":null,"key":"` + undoKey("a") +
			`","blind":false,"plan":"p","why":"step failed"}`, false},
		{"in doubt", []*pb.Record{inDoubt("a")}, `{"id":"a","ref":null,"none":null,"key":"` + undoKey("a") +
			`","blind":true,"plan":"p","why":"step failed"}`, true},
		{"no outcome", nil, `{"id":"a","ref":null,"none":null,"key":"` + undoKey("a") +
			`","blind":true,"plan":"p","why":"step failed"}`, true},
	} {
		w := newWorld(t)
		var got []Command
		w.worker = func(c Command) *api.Reply { got = append(got, c); return &api.Reply{Status: api.StatusDone} }
		w.must(w.agent("p", append([]*pb.Record{opened(0)}, pair("a", binding)...)...))
		if len(c.outcome) > 0 {
			w.must(w.agent("p", c.outcome...))
		}
		w.must(w.agent("p", planFailed()))
		w.turn()
		if len(got) != 1 || string(got[0].Arguments) != c.arguments || got[0].BlindCleanup != c.blind ||
			got[0].DirtyFailure != c.blind || got[0].HasForwardOutput == c.blind {
			b, _ := json.Marshal(got)
			t.Fatalf("%s: %s", c.name, b)
		}
		registered, _ := ledger.ParseAddress(got[0].Address)
		if registered.GetSequence() != 2 || registered.Index != 1 || got[0].Term != 1 || got[0].TimeoutMs != 30_000 ||
			got[0].Key != undoKey("a") {
			t.Fatalf("%+v", got[0])
		}
	}
}

// TestS19ADirtyFailureIsToldApartFromABlindUndo: an effect that an operator has reported is known, and
// its agent has not said that all of it is done (S19).
func TestADirtyFailureIsToldApartFromABlindUndo(t *testing.T) {
	for _, c := range []struct {
		what, setup, action string
		fold                uint32
		blind, dirty        bool
	}{
		{"completed", "a a+", "a", FoldVersion, false, false},
		{"in doubt", "a a?", "a", FoldVersion, true, true},
		{"its agent vanished", "a", "a", FoldVersion, true, true},
		{"in doubt, and completed", "a a? a+", "a", FoldVersion, false, false},
		{"reported", "a a? effect:a=x7", "a", FoldVersion, false, true},
		{"reported, its agent vanished", "a effect:a=x7", "a", FoldVersion, false, true},
		{"reported, and completed", "a a? effect:a=x7 own:a=x7", "a", FoldVersion, false, false},
		{"reported of another effect, which is owed", "a:probe a? effect:a=x7 own:a=x8", "a~1", FoldVersion, true, true},
		{"and its own", "a:probe a? effect:a=x7 own:a=x8", "a", FoldVersion, false, false},
		{"reported, under an earlier holder", "a effect:a=x7", "a", ledger.DirtySince - 1, false, false},
	} {
		s := newSchedule(t)
		if c.fold != FoldVersion {
			s.underHolder(c.fold)
		}
		got := map[string]Command{}
		s.worker = func(c Command) *api.Reply { got[c.Action] = c; return &api.Reply{Status: api.StatusDone} }
		s.play("open " + c.setup + " fail turn turn")
		k := got[c.action]
		if k.BlindCleanup != c.blind || k.DirtyFailure != c.dirty || k.Key == "" {
			t.Errorf("%s: blind %v, dirty %v, want %v, %v; sent: %v", c.what, k.BlindCleanup, k.DirtyFailure, c.blind,
				c.dirty, got)
		}
		s.wantRefolded()
	}
}

// TestACallThatCannotBeBuiltIsItsOwners, at once and on a later attempt: a plan
// never sits unwinding with no command out (S26).
func TestACallThatCannotBeBuiltIsItsOwners(t *testing.T) {
	big := `{"x":"` + strings.Repeat("y", 40<<10) + `"}`
	for name, c := range map[string]struct {
		change func(*pb.ForwardRegistered, *pb.CompensationRegistered)
		output string
		want   string
	}{
		"wrong type": {bind("x", "output.n + 1"), `{"n":"seven"}`, "cannot build the call of undo.a: argument x"},
		"too large": {bind("x", "output", "y", "output", "z", "input.id"), big,
			"cannot build the call of undo.a: the arguments take"},
		"a large version": {func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			c.WorkerVersion = strings.Repeat("v", ledger.TextMax)
			bind("x", "output", "z", "input.id")(nil, c)
		}, `{"x":"` + strings.Repeat("y", 61_300) + `"}`, "cannot build the call of undo.a: its record takes"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.must(w.agent("p", opened(0)))
			w.must(w.agent("p", pair("a", c.change)...))
			done := completed("a")
			done.Payload.Output = []byte(c.output)
			w.must(w.agent("p", done))
			w.must(w.agent("p", planFailed()))
			w.turn()
			w.wantState("p", "quarantined", "a=quarantined")
			if note := w.show("p").Actions[0].Note; !strings.HasPrefix(note, c.want) {
				t.Fatalf("note %q", note)
			}
		})
		t.Run(name+", later", func(t *testing.T) {
			w := newWorld(t)
			w.worker = func(Command) *api.Reply { return &api.Reply{Status: api.StatusFailed} }
			w.must(w.agent("p", opened(0)))
			w.must(w.agent("p", pair("a", c.change)...))
			w.must(w.agent("p", planFailed()))
			if name != "wrong type" {
				w.turn()
				w.wantState("p", "unwinding", "a=waiting")
			}
			done := completed("a")
			done.Payload.Output = []byte(c.output)
			w.must(w.agent("p", done))
			w.at(2e9)
			if name == "wrong type" {
				w.wantState("p", "quarantined", "a=quarantined")
			} else {
				w.wantState("p", "quarantined", "a=skipped a~1=quarantined")
			}
		})
	}
}

// TestTheSecondCallIsBuiltFromWhatIsKnownThen: output that arrives between two
// attempts reaches the second.
func TestTheSecondCallIsBuiltFromWhatIsKnownThen(t *testing.T) {
	w := newWorld(t)
	var arguments []string
	w.worker = func(c Command) *api.Reply {
		arguments = append(arguments, fmt.Sprintf("%s %v", c.Arguments, c.BlindCleanup))
		return &api.Reply{Status: api.StatusFailed}
	}
	w.must(w.agent("p", opened(0)))
	w.must(w.agent("p", pair("a", bind("ref", "output.?ref"))...))
	w.must(w.agent("p", planFailed()))
	w.turn()
	w.must(w.agent("p", completed("a")))
	w.at(2e9)
	if got := strings.Join(arguments, ", "); got != `{"ref":null} true, {"ref":"a"} false` {
		t.Fatal(got)
	}
}

// TestADispatchThatLostToTheOutcome: decided while the outcome was unknown, the
// claim is void where it lands behind the outcome, nothing is sent for it, and
// the next decision has the arguments right.
func TestADispatchThatLostToTheOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		outcome *pb.Record
		want    string
	}{
		"completed": {completed("a"), "compensated: a=compensated [a]"},
		"failed":    {failedForward("a"), "failed: a=skipped []"}, // S15: nothing crossed after all
	} {
		s := newSchedule(t)
		s.play("open a:refused fail")
		records := s.decide(nil)
		s.must(s.agent("p", c.outcome))
		results := s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, records...)
		if last := results[len(results)-1]; last.Verdict != Void {
			t.Fatalf("%s: %+v", name, results)
		}
		if len(s.state.Commands()) != 0 {
			t.Fatalf("%s: a void dispatch was sent", name)
		}
		s.turn()
		if got := s.outcome(); got != c.want {
			t.Fatalf("%s: %s", name, got)
		}
	}
}

// TestARestartSendsAgainWhatIsInFlight, with the same key and arguments (S21).
func TestARestartSendsAgainWhatIsInFlight(t *testing.T) {
	s := newSchedule(t)
	s.play("open a< a+ b< b+ a=late b=late fail turn tell:b#1=done turn")
	again := Open(s.kv, "t", nil).InFlight()
	if len(again) != 1 || again[0].Action != "a" || again[0].Key != undoKey("a") || again[0].Attempt != 1 ||
		string(again[0].Arguments) != "{}" {
		t.Fatalf("%+v", again)
	}
	waits := func(plan string, n, attempt uint32) bool {
		return s.state.Outstanding(plan, n, ledger.PurposeUndo, attempt)
	}
	if !waits("p", 1, 1) || waits("p", 2, 1) || waits("p", 1, 2) || waits("p", 9, 1) || waits("q", 1, 1) ||
		s.state.Outstanding("p", 1, api.PurposeProbe, 1) {
		t.Fatal("outstanding")
	}
}

// TestAnswersThatNoLongerMatterAreIgnored: to other attempts, settled actions,
// numbers and plans that are none.
func TestAnswersThatNoLongerMatterAreIgnored(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ a=late fail turn")
	done := &api.Reply{Status: api.StatusDone}
	for _, a := range []Answer{
		{Plan: "p", Number: 1, Purpose: "undo", Attempt: 2, Reply: done},
		{Plan: "p", Number: 0, Purpose: "undo", Attempt: 1, Reply: done},
		{Plan: "p", Number: 2, Purpose: "undo", Attempt: 1, Reply: done},
		{Plan: "q", Number: 1, Purpose: "undo", Attempt: 1, Reply: done}, {Plan: "p", Number: 1, Purpose: "probe", Attempt: 1,
			Reply: done},
	} {
		if records := s.decide([]Answer{a}); len(records) != 0 {
			t.Fatalf("%+v gives %v", a, records)
		}
	}
	twice := []Answer{{Plan: "p", Number: 1, Purpose: "undo", Attempt: 1, Reply: done},
		{Plan: "p", Number: 1, Purpose: "undo", Attempt: 1, Reply: nil},
		{Plan: "p", Number: 1, Purpose: "undo", Attempt: 1, Reply: done}}
	records := s.decide(twice)
	if len(records) != 2 || records[0].GetCompensationSucceeded() == nil || records[1].GetPlanEnded() == nil {
		t.Fatalf("%v", records)
	}
}

// TestAReportNamesTheKey of its command: a worker that mixes up two commands
// settles neither.
func TestAReportNamesTheKey(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ a=late fail turn")
	if r := s.report("a", 1, undoKey("b"), pb.Answer_ANSWER_DONE); r[0].Verdict != Refused {
		t.Fatalf("%+v", r)
	}
	if r := s.report("b", 1, undoKey("a"), pb.Answer_ANSWER_DONE); r[0].Verdict != Refused {
		t.Fatalf("%+v", r)
	}
	s.turn()
	s.wantState("p", "unwinding", "a=dispatched")
}

// TestAReportBeatsATimeout that is decided or on its way when it lands.
func TestAReportBeatsATimeout(t *testing.T) {
	timeout := []Answer{{Plan: "p", Number: 1, Purpose: ledger.PurposeUndo, Attempt: 1}}
	s := newSchedule(t)
	s.play("open a a+ a=late fail turn")
	onItsWay := s.decide(timeout)
	s.play("tell:a#1=done")
	if records := s.decide(timeout); len(records) == 0 || records[0].GetCompensationSucceeded() == nil {
		t.Fatalf("%v", records)
	}
	if r := s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, onItsWay...); r[0].Verdict != Void {
		t.Fatalf("%+v", r)
	}
	s.turn()
	s.wantState("p", "compensated", "a=compensated")
}

// TestAWorkersTextIsClipped: an answer of any size and bytes fits into a record.
func TestAWorkersTextIsClipped(t *testing.T) {
	bad := strings.Repeat("\xff", 100<<10)
	for _, reply := range []*api.Reply{
		{Status: api.StatusDone, Output: []byte(`"` + strings.Repeat("x", 100<<10) + `"`), ExternalRef: bad, Worker: bad},
		{Status: api.StatusDone, Output: []byte("not JSON")},
		{Status: api.StatusStop, Code: bad, Message: bad, Worker: bad},
		{Status: "nonsense", Message: bad},
		{},
	} {
		w := newWorld(t)
		w.worker = func(Command) *api.Reply { return reply }
		w.must(w.agent("p", opened(0)))
		w.do("p", "a")
		w.must(w.agent("p", planFailed()))
		w.turn()
		w.at(2e9)
		if state := w.show("p").State; state != "compensated" && state != "quarantined" {
			t.Fatalf("%+v: %s", reply.Status, state)
		}
	}
}

// TestACommitHoldsWhatFits: more decisions than one commit takes come in several,
// and none is lost.
func TestACommitHoldsWhatFits(t *testing.T) {
	t.Parallel()
	const plans = 120
	w := newWorld(t)
	for i := range plans {
		id := fmt.Sprintf("p%03d", i)
		p := pair("a", bind("x", "input", "forward", "meta.forward_key"),
			func(f *pb.ForwardRegistered, _ *pb.CompensationRegistered) {
				f.Late = pb.Late_LATE_REFUSED
			})
		if i%10 == 0 {
			p[0].Payload.Input = []byte(`"` + strings.Repeat("x", 15<<10) + `"`)
		}
		w.must(w.agent(id, opened(0), p[0], p[1], planFailed()))
	}
	in := Input{EpochNs: w.now, SizeMax: 20 << 10}
	for {
		records := w.state.Decide(in)
		if len(records) == 0 {
			break
		}
		data, err := ledger.EncodeCommit(records)
		if err != nil || len(data) > in.SizeMax+16 {
			t.Fatalf("%d bytes, %v", len(data), err)
		}
		w.must(w.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, records...))
	}
	if n := len(w.state.Commands()); n != plans {
		t.Fatalf("%d commands", n)
	}
}
