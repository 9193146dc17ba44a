package executor_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// effect is what an operator reports of an action of the plan of the word, or else of plan p.
func (s *schedule) effect(operator, action, ref string, duplicates ...string) Result {
	s.t.Helper()
	r := &pb.Record{Kind: &pb.Record_EffectReported{EffectReported: &pb.EffectReported{ExternalRef: ref,
		Duplicates: duplicates, Reason: "seen", Actor: operator}}}
	if ref != "" {
		r.Payload = &pb.Payload{Output: []byte(`{"id":"` + ref + `"}`)}
	}
	return s.by(operator, action, r)[0]
}

// names has workers do as they are told, and returns the names of the effects that they undo, in order.
func (s *schedule) names() *[]string {
	list := &[]string{}
	s.worker = func(c Command) *api.Reply {
		if c.Purpose == ledger.PurposeUndo {
			*list = append(*list, c.ExternalRef)
		}
		return s.answer(c)
	}
	return list
}

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
		{"its owner has said that it is not there", "open a:askme a? fail turn resolve:a turn", "turn",
			"quarantined: a=resolved a~1=quarantined []"},
	} {
		s := newSchedule(t)
		s.play(c.before)
		if r := s.effect("ops", "a", "x7"); r.Verdict != Effective {
			t.Fatalf("%s: %+v", c.name, r)
		}
		if r := s.effect("ana", "a", "x7"); r.Verdict != Repeated {
			t.Fatalf("%s, once more: %+v", c.name, r)
		}
		s.play(c.after)
		if got := s.outcome(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		s.wantRefolded()
	}
}

// TestAnExtraEffectThatIsReportedIsUndone at once, alone, and each once.
func TestAnExtraEffectThatIsReportedIsUndone(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ b:probe b+ turn effect:b=,x0")
	if r := s.effect("ops", "b", "", "x8"); r.Verdict != Effective {
		t.Fatalf("%+v", r)
	}
	if r := s.effect("ops", "b", "", "x8"); r.Verdict != Repeated {
		t.Errorf("before it is owed: %+v", r)
	}
	if r := s.effect("ana", "b", "", "x8", "x9"); r.Verdict != Effective {
		t.Errorf("one more: %+v", r)
	}
	s.play("turn")
	if r := s.effect("ops", "b", "", "x9"); r.Verdict != Repeated {
		t.Errorf("it is undone: %+v", r)
	}
	const want = "open: a=held b=held b~1=compensated b~2=compensated b~3=compensated [b~3 b~2 b~1]"
	if got := s.outcome(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.wantRefolded()
}

// TestTheAgentsOwnWordAfterAReport: of two names both effects are undone, each once, and of one name
// one, whatever came when.
func TestTheAgentsOwnWordAfterAReport(t *testing.T) {
	for _, c := range []struct{ name, script, undone string }{
		{"the same", "open a:probe turn effect:a=x7 own:a=x7 fail turn", "x7"},
		{"without a name", "open a:probe turn effect:a=x7 own:a= =own:a= fail turn", "x7"},
		{"reported without a name", "open a:probe turn effect:a= own:a=x7 =own:a=x7 fail turn", "x7"},
		{"another", "open a:probe turn effect:a=x7 own:a=x8 turn fail turn", "x7 x8"},
		{"another, and a commit", "open a:probe turn effect:a=x7 own:a=x8 turn commit turn", "x7"},
		{"one that is owed", "open a:probe turn effect:a=x7,x8 turn =own:a=x8 fail turn", "x8 x7"},
		{"one that is to be owed", "open a:probe turn effect:a=x7,x8 =own:a=x8 turn fail turn", "x8 x7"},
		{"one that is owed, and a commit", "open a:probe turn effect:a=x7,x8 turn =own:a=x8 commit turn", "x8"},
		{"a third", "open a:probe turn effect:a=x7,x8 own:a=x9 turn fail turn", "x8 x7 x9"},
		{"after the undo", "open a:probe turn effect:a=x7 fail turn own:a=x8 turn", "x7 x8"},
		{"the same after the undo", "open a:probe turn effect:a=x7 fail turn =own:a=x7 =own:a= turn", "x7"},
		{"a failure", "open a:probe turn effect:a=x7 =a- =a? fail turn", "x7"},
		{"while a commit waits", "open a:probe b b? effect:a=x7 commit turn own:a=x8 turn", "x7"},
		{"after the commit", "open a:probe+for=240h effect:a=x7 commit turn own:a=x8 turn undo: turn", "x7 x8"},
		{"after the commit, while it is undone", "open a:probe+for=240h effect:a=x7 commit turn undo: turn own:a=x8 turn",
			"x7 x8"},
		{"after a blind undo", "open a:probe+blind a? fail turn effect:a=x7 a~1.probe=present turn own:a=x8 turn", " x7 x8"},
		{"while its owner has it", "open a:probe+approve effect:a=x7 fail turn own:a=x8 turn retry:a retry:a~1 turn",
			"x8 x7"},
		{"of what the world was asked about", "open a:probe a? turn @1m turn effect:a=x7 own:a=x8 turn fail turn", "x7 x8"},
	} {
		s := newSchedule(t)
		names := s.names()
		s.play(c.script)
		if got := strings.Join(*names, " "); got != c.undone {
			t.Errorf("%s: undone are %q, want %q; %s", c.name, got, c.undone, s.outcome())
		}
		s.wantRefolded()
	}
}

// atProvider has workers act at a provider that has effects of one forward, by name: a question finds
// them all. by counts the undos of each.
func (s *schedule) atProvider(names ...string) (by map[string]int) {
	by = map[string]int{}
	s.worker = func(c Command) *api.Reply {
		name := c.ExternalRef
		if name == "" && len(names) > 0 {
			name = names[0]
		}
		found := map[string]any{"presence": "absent"}
		switch {
		case c.Purpose == ledger.PurposeUndo:
			by[name]++
			names = slices.DeleteFunc(names, func(x string) bool { return x == name })
			return &api.Reply{Status: api.StatusDone}
		case c.ExternalRef == "" && len(names) > 1:
			found = map[string]any{"presence": "duplicate", "external_ref": names}
		case slices.Contains(names, name):
			found = map[string]any{"presence": "present", "external_ref": name}
		}
		output, err := json.Marshal(found)
		if err != nil {
			s.t.Fatal(err)
		}
		return &api.Reply{Status: api.StatusDone, Output: output}
	}
	return by
}

// TestAnEffectThatIsOwedIsUndoneOnce: what a probe has found to be an extra effect, neither a report
// nor the agent's own word makes the action's own.
func TestAnEffectThatIsOwedIsUndoneOnce(t *testing.T) {
	const both, extra = "map[x7:1 x8:1]", "map[x8:1]"
	for _, c := range []struct{ script, undone string }{
		{"open a:probe a? turn @10m turn !effect:a=x8 fail turn @3h turn", both},
		{"open a:probe a? turn @10m turn !effect:a=x8,x7 fail turn @3h turn", both},
		{"open a:probe a? turn @10m turn !effect:a=x8 own:a=x7 fail turn @3h turn", both},
		{"open a:probe a? turn @10m turn effect:a=x7 fail turn @3h turn", both},
		{"open a:probe a? turn @10m turn !effect:a=x8 commit turn @3h turn", extra},
		{"open a:probe a? turn @10m turn own:a=x8 =own:a=x8 fail turn @3h turn", both},
		{"open a:probe a? turn @10m turn own:a=x8 commit turn @3h turn", extra},
		{"open a:probe a? turn @10m turn own:a=x7 =own:a=x8 fail turn @3h turn", both},
		{"open a:probe a? turn @10m turn effect:a= =own:a=x8 fail turn @3h turn", both},
		{"open:accept a:probe+for=240h a? turn @10m turn own:a=x8 commit turn undo: turn @3h turn", both},
		{"open:accept a:probe+for=240h a? turn @10m turn commit turn undo: own:a=x8 turn @3h turn", both},
		{"open a:probe turn effect:a=x7 fail turn own:a=x8 turn =own:a=x8 =own:a=x7 own:a=x9 turn", both},
	} {
		s := newSchedule(t)
		by := s.atProvider("x7", "x8")
		s.play(c.script)
		if got := fmt.Sprint(by); got != c.undone {
			t.Errorf("%s: %s, want %s; %s", c.script, got, c.undone, s.outcome())
		}
		s.wantRefolded()
	}
	s := newSchedule(t)
	names := s.names()
	s.play("open a:probe a? a.probe=duplicate turn @10m turn !effect:a=extra-a own:a=extra-a fail turn")
	if got := fmt.Sprintf("%q", *names); got != `["extra-a" ""]` {
		t.Errorf("of an action without a name: %s", got)
	}
	s.wantRefolded()
	s = newSchedule(t)
	s.underHolder(ledger.EffectsSince - 1)
	by := s.atProvider("x7", "x8")
	s.play("open a:probe a? turn @10m turn own:a=x8 fail turn @3h turn")
	if got := fmt.Sprint(by); got != "map[x8:2]" {
		t.Errorf("under an earlier holder it is folded as it was decided: %s", got)
	}
	s.wantRefolded()
}

// TestAReportIsAddedToUntilItsUndoIsSent: what its effect is called, and what its forward returned,
// by its agent or by an operator. Its undo reads both.
func TestAReportIsAddedToUntilItsUndoIsSent(t *testing.T) {
	for _, c := range []struct{ script, sent string }{
		{"effect:a= effect:a=x7 =effect:a=x7 fail turn", `{"of":"x7"} x7`},
		{"effect:a= effect:a=x7,x8 turn fail turn", `{"of":""} x8, {"of":"x7"} x7`},
		{"effect:a= effect:a=x7 !effect:a=x9 fail turn !effect:a=x9", `{"of":"x7"} x7`},
		{"effect:a= fail turn effect:a=x7 retry:a turn", `{"of":"x7"} x7`},
		{"a- fail turn effect:a= effect:a=x7 turn", `{"of":"x7"} x7`},
		{"a- fail turn effect:a= turn own:a=x7 retry:a~1 turn", `{"of":"x7"} x7`},
		{"a- fail turn effect:a= own:a=x7 =own:a=x7 turn", `{"of":"x7"} x7`},
	} {
		s := newSchedule(t)
		var sent []string
		s.worker = func(c Command) *api.Reply {
			sent = append(sent, string(c.Arguments)+" "+c.ExternalRef)
			return s.answer(c)
		}
		s.play("open:1")
		s.must(s.agent("p", pair("a", func(_ *pb.ForwardRegistered, k *pb.CompensationRegistered) {
			k.Bindings = []*pb.Binding{{Name: "of", Expression: `output.?id.orValue(meta.?external_ref.orValue("") == "x8" ? "" : meta.external_ref)`}}
		})...))
		s.play(c.script)
		if got := strings.Join(sent, ", "); got != c.sent {
			t.Errorf("%s: sent %s, want %s; %s", c.script, got, c.sent, s.outcome())
		}
		s.wantRefolded()
	}
}

// TestWhatAForwardReturnedCountsUntilItsUndoIsSent: also while the world is asked before that. What
// it says of another effect is owed beside it, as when the undo is out.
func TestWhatAForwardReturnedCountsUntilItsUndoIsSent(t *testing.T) {
	for _, c := range []struct {
		ref, sent string
		fold      uint32
	}{
		{"x7", `{"of":"mine"} x7`, FoldVersion},
		{"x7", `{"of":""} x7`, ledger.ReturnedSince - 1},
		{"x8", `{"of":""} x7`, FoldVersion},
	} {
		s := newSchedule(t)
		s.underHolder(c.fold)
		var sent []string
		s.worker = func(c Command) *api.Reply {
			if c.Purpose == ledger.PurposeUndo {
				sent = append(sent, string(c.Arguments)+" "+c.ExternalRef)
			}
			return s.answer(c)
		}
		s.play("open")
		s.must(s.agent("p", pair("a", func(_ *pb.ForwardRegistered, k *pb.CompensationRegistered) {
			k.Bindings = []*pb.Binding{{Name: "of", Expression: `output.?id.orValue(meta.external_ref == "" ? "" : "")`}}
			k.Probe, k.Unchanged = &pb.Probe{Call: &pb.Call{Capability: "probe.a", Attempts: 2}}, "probe.same"
		})...))
		told := &pb.EffectReported{ExternalRef: "x7", Reason: "seen", Actor: "ops"}
		s.must(s.by("ops", "a", &pb.Record{Kind: &pb.Record_EffectReported{EffectReported: told}}))
		s.play("fail a.probe=late turn")
		own := completed("a")
		own.Payload, own.GetForwardCompleted().ExternalRef = &pb.Payload{Output: []byte(`{"id":"mine"}`)}, c.ref
		if got := s.agent("p", own)[0].Verdict; (got == Effective) != (c.fold == FoldVersion) {
			t.Errorf("under fold version %d the own word of %s is %v", c.fold, c.ref, got)
		}
		s.play("settle:a=same turn")
		if got := strings.Join(sent, ", "); got != c.sent {
			t.Errorf("under fold version %d, of %s: sent %s, want %s; %s", c.fold, c.ref, got, c.sent, s.outcome())
		}
		s.wantRefolded()
	}
}

// TestTheOwnersAnswerIsOfTheEffectThatHeWasPagedAbout, and not of one that the agent names meanwhile.
func TestTheOwnersAnswerIsOfTheEffectThatHeWasPagedAbout(t *testing.T) {
	for _, script := range []string{
		"open a:probe+approve effect:a=x7 fail turn own:a=x8 turn resolve:a turn",
		"open:second a:probe+approve effect:a=x7 effect:a@ana=x7 fail turn resolve:a own:a=x8 turn resolve:a@ana turn",
	} {
		s := newSchedule(t)
		s.play(script)
		if got := s.outcome(); got != "quarantined: a=resolved a~1=quarantined []" {
			t.Errorf("%s: %s", script, got)
		}
		a, owed := s.actionOf("p", "a").Row, s.actionOf("p", "a~1").Row
		if a.ExternalRef != "x7" || owed.ExternalRef != "x8" {
			t.Errorf("%s: %q is resolved, and %q is owed", script, a.ExternalRef, owed.ExternalRef)
		}
		s.wantRefolded()
	}
}

// TestAnOwnWordEndsTheWaitOfItsCommit, unless a probe has found more than that.
func TestAnOwnWordEndsTheWaitOfItsCommit(t *testing.T) {
	s := newSchedule(t)
	s.play("open a:probe b a? b? a.probe=lost commit turn own:a=x7 =effect:a= turn own:b= turn")
	if got := s.outcome(); got != "committed: a=retired b=retired []" {
		t.Error(got)
	}
	s.wantRefolded()
}

// TestWhatAForwardReturnedIsOfItsOwnEffect: an undo never reads what another effect has returned.
func TestWhatAForwardReturnedIsOfItsOwnEffect(t *testing.T) {
	for _, c := range []struct{ ref, output, want string }{
		{"x8", `{"id":"mine"}`, `{"of":"none"} x7, {"of":"mine"} x8`},
		{"x8", "", `{"of":"none"} x8, {"of":"none"} x7`},
		{"", "", `{"of":"x7"} x7`},
		{"", `{"id":"mine"}`, `{"of":"mine"} x7`},
		{"x7", "", `{"of":"x7"} x7`},
	} {
		s := newSchedule(t)
		var sent []string
		s.worker = func(c Command) *api.Reply {
			sent = append(sent, string(c.Arguments)+" "+c.ExternalRef)
			return s.answer(c)
		}
		s.play("open")
		s.must(s.agent("p", pair("a", func(_ *pb.ForwardRegistered, k *pb.CompensationRegistered) {
			k.Bindings = []*pb.Binding{{Name: "of",
				Expression: `output.?id.orValue(meta.?external_ref.orValue("") == "" ? "" : "none")`}}
		})...))
		s.play("effect:a=x7")
		own := completed("a")
		own.Payload, own.GetForwardCompleted().ExternalRef = &pb.Payload{Output: []byte(c.output)}, c.ref
		s.must(s.agent("p", own))
		s.play("fail turn")
		slices.Sort(sent)
		slices.Reverse(sent)
		if got := strings.Join(sent, ", "); got != c.want {
			t.Errorf("own word %q %s: sent %s, want %s", c.ref, c.output, got, c.want)
		}
		s.wantRefolded()
	}
}

// TestWhatCannotBeReported and why.
func TestWhatCannotBeReported(t *testing.T) {
	for _, c := range []struct{ script, action, names, reason string }{
		{"open a", "z", "x", "not registered"},
		{"open a:eff", "a", "x", "has no effect"},
		{"open a:sealed", "a", "x", "are sealed"},
		{"open a q/open^a", "plan:q", "x", "is not an action id"},
		{"open a:probe a? a.probe=duplicate turn @1m turn", "a~1", "x", "report of action a"},
		{"open:accept a:for=9h a? commit turn undo: turn", "a", "x", "report of plan p~1, which undoes it"},
		{leavesOut + "b? commit turn undo:!a turn", "p~1/b", "x", "was not asked to be undone: it is committed"},
		{leavesOut + "b? commit turn undo:!a turn", "b", "x", "was not asked to be undone: it is committed"},
		{"open a a+ fail turn", "a", "", "nothing follows: action a is compensated since 7"},
		{"open a:refused a? fail turn", "a", "x", "nothing follows: action a is compensated"},
		{"open a:askme a? fail turn lost:a turn", "a", "x", "nothing follows: action a is resolved"},
		{"open a own:a=x1", "a", "x9", `known as "x1"; name what is there beside it`},
		{"open a a+", "a", "x9", `known as ""`},
		{"open a effect:a=x1", "a", "x9", `known as "x1"`},
		{"open a", "a", ",x9", "want the name of the effect beside which"},
		{"open a effect:a=", "a", ",x9", "want the name of the effect beside which"},
		{"open a:probe a? a.probe=duplicate commit turn", "a", "x1", "waits for its owner"},
	} {
		s := newSchedule(t)
		s.play(c.script)
		names := strings.Split(c.names, ",")
		plan, action, of := strings.Cut(c.action, "/")
		if !of {
			plan, action = "p", c.action
		}
		s.plan = plan
		if r := s.effect("ops", action, names[0], names[1:]...); r.Verdict != Refused ||
			!strings.Contains(r.Reason, c.reason) {
			t.Errorf("%s, and then %s: %+v, want %q", c.script, c.names, r, c.reason)
		}
		s.wantRefolded()
	}
	s := newSchedule(t)
	s.underHolder(ledger.EffectsSince - 1)
	s.play("open a a?")
	if r := s.effect("ops", "a", "x"); r.Verdict != Refused || !strings.Contains(r.Reason, "does not know of it") {
		t.Errorf("%+v", r)
	}
}

// leavesOut opens a plan of which the undo of a leaves out b.
const leavesOut = "open:accept a:for=1h a+ b<:probe+for=1h "

// TestWhatTheUndoOfAPartLeavesOutStays, whatever becomes known of it, and whoever says so.
func TestWhatTheUndoOfAPartLeavesOutStays(t *testing.T) {
	const part = "commit turn undo:!a turn "
	for play, undone := range map[string]string{
		"b? " + part + "b+":                "a",
		"b? " + part + "own:b=x8":          "a",
		"b? " + part + "b-":                "a",
		"b? " + part + "!p~1/effect:b=x8":  "a",
		part + "b?":                        "a",
		part + "b+":                        "a",
		part + "b-":                        "a",
		"effect:b=x7 " + part + "own:b=x8": "a",
		"b? b.probe=duplicate @10m " + part + "own:b=x9": "b~1 a",
	} {
		s := newSchedule(t)
		s.play(leavesOut + play + " turn @30m turn @9h turn")
		if got := strings.Join(s.undone, " "); got != undone || s.show("p~1").State != ledger.StateCompensated {
			t.Errorf("%s: %s, %s", play, got, s.undos("p~1"))
		}
		s.wantRefolded()
	}
	s := newSchedule(t)
	s.underHolder(ledger.LeftOutSince - 1)
	s.play(leavesOut + "b? " + part + "b+ turn")
	if got := strings.Join(s.undone, " "); got != "a b~1" {
		t.Errorf("under an earlier holder it is folded as it was decided: %s", got)
	}
	s.wantRefolded()
}

// TestOnlyAnOperatorReports: a worker's or an agent's record says nothing.
func TestOnlyAnOperatorReports(t *testing.T) {
	r := &pb.Record{Plan: "p", Action: "a",
		Kind: &pb.Record_EffectReported{EffectReported: &pb.EffectReported{Reason: "seen", Actor: "w1"}}}
	for _, class := range []ledger.Class{ledger.ClassWorker, ledger.ClassAgent, ledger.ClassFact, ledger.ClassVerdict} {
		source := ledger.Source{Tenant: "t", Class: class, Name: "w1", Plan: "p"}
		if err := ledger.Check(r, source); err == nil {
			t.Errorf("taken of class %v", class)
		}
	}
}

// TestAReportNeedsASecondOperator where its plan asks for one, and the same names and output.
func TestAReportNeedsASecondOperator(t *testing.T) {
	s := newSchedule(t)
	s.play("open:second a b b+ a? commit turn effect:a=x7 effect:a=x7 effect:a@ana=x8 turn")
	if got := s.planOf("p").Row.Phase.String(); got != "PHASE_COMMITTING" {
		t.Errorf("one operator has committed it: %s", got)
	}
	s.play("effect:a@bob=x8 =effect:a@ops=x8 turn")
	if got := s.outcome(); got != "committed: a=retired b=retired []" {
		t.Error(got)
	}
	s = newSchedule(t)
	s.play("open:second a:probe a+ effect:a=,x8 effect:a=,x8 turn")
	if got := s.outcome(); got != "open: a=held []" {
		t.Errorf("one operator has moved money: %s", got)
	}
	s.play("effect:a@ana=,x8 turn")
	if got := s.outcome(); got != "open: a=held a~1=compensated [a~1]" {
		t.Error(got)
	}
	s.wantRefolded()
	s = newSchedule(t)
	s.play("open:second a:probe a+ effect:a=,x8,x9")
	if got := s.show("p").Actions[0].Proposal; !strings.HasPrefix(got, `present +"x8" +"x9" `) {
		t.Errorf("the second one sees %s", got)
	}
	s.play("effect:a@ana=,x9,x8 turn")
	if got := s.outcome(); got != "open: a=held a~1=compensated a~2=compensated [a~2 a~1]" {
		t.Errorf("in another order: %s", got)
	}
	s = newSchedule(t)
	s.play("open:second a:askme a? fail turn resolve:a resolve:a@ana turn effect:a=x7 turn")
	if got := s.outcome(); got != "resolved: a=resolved []" {
		t.Errorf("one operator has gone over what two said: %s", got)
	}
	s.play("effect:a@ana=x7 turn")
	if got := s.outcome(); got != "quarantined: a=resolved a~1=quarantined []" {
		t.Error(got)
	}
	s.wantRefolded()
}

// TestTheExtraEffectsOfAnActionAreBounded, whoever reports them.
func TestTheExtraEffectsOfAnActionAreBounded(t *testing.T) {
	s := newSchedule(t)
	s.worker = func(Command) *api.Reply { return nil }
	s.play("open:1 a:probe a+ turn")
	for i := range 8 {
		names := make([]string, 32)
		for j := range names {
			names[j] = fmt.Sprintf("v%d-%d", i, j)
		}
		if r := s.effect("ops", "a", "", names...); r.Verdict != Effective {
			t.Fatalf("report %d: %+v", i, r)
		}
	}
	s.play("turn")
	owed := slices.DeleteFunc(s.show("p").Actions, func(a api.Action) bool { return a.DutyOf == "" })
	if got := len(owed); got != 256 {
		t.Errorf("%d duties", got)
	}
	if r := s.effect("ops", "a", "", "v7-31"); r.Verdict != Repeated {
		t.Errorf("one of them again: %+v", r)
	}
	if r := s.effect("ops", "a", "", "one more"); r.Verdict != Refused || !strings.Contains(r.Reason, "at most 256") {
		t.Errorf("%+v", r)
	}
}

// TestReportsLeaveRoomForTheAgentsOwnWord: what the agent says that it has done is owed, however many
// effects others have reported beside it.
func TestReportsLeaveRoomForTheAgentsOwnWord(t *testing.T) {
	for _, c := range []struct {
		fold    uint32
		owns    int // words of the agent that are owed
		refused string
	}{
		{FoldVersion, 256, "512 duties of action a are owed; want at most 512"},
		{ledger.SeenSince - 1, 0, "256 duties of action a are owed; want at most 256"},
	} {
		s := newSchedule(t)
		s.underHolder(c.fold)
		s.worker = func(Command) *api.Reply { return nil }
		s.play("open:1 a:probe turn effect:a=x7 fail turn")
		for i := range 8 {
			names := make([]string, 32)
			for j := range names {
				names[j] = fmt.Sprintf("v%d-%d", i, j)
			}
			s.must([]Result{s.effect("ops", "a", "", names...)})
		}
		s.play("turn")
		for i := range c.owns {
			s.play(fmt.Sprintf("own:a=o%d", i))
		}
		r := s.word("own:a=more")
		if r[len(r)-1].Verdict != Refused || r[len(r)-1].Reason != c.refused {
			t.Errorf("after %d words of its agent under fold %d: %+v", c.owns, c.fold, r)
		}
	}
}

// TestAReportedEffectIsUndoneUnderItsActionsKeys: where it is the name of another plan's effect, the
// provider can tell the two undos apart.
func TestAReportedEffectIsUndoneUnderItsActionsKeys(t *testing.T) {
	s := newSchedule(t)
	var sent []Command
	s.worker = func(c Command) *api.Reply {
		sent = append(sent, c)
		return s.answer(c)
	}
	s.play("q/open q/a:probe q/own:a=x7 open a:probe a+ effect:a=,x7 turn q/fail turn")
	if len(sent) != 2 || sent[0].Plan != "p" || sent[1].Plan != "q" || sent[0].Key == sent[1].Key {
		t.Errorf("%+v", sent)
	}
}

// TestReportsOwnWordsAndProbesInEveryOrder: an effect that a report or the agent has named, or that a
// probe finds, is undone once, and none of them is there after the end, whatever came when.
func TestReportsOwnWordsAndProbesInEveryOrder(t *testing.T) {
	for _, report := range []string{"x8", "x8,x7", ""} {
		for _, own := range []string{"own:a=x7", "own:a=x8", "own:a=", "a-"} {
			for _, order := range orders("ROPF") {
				for _, start := range []string{"open a:probe", "open a:probe+blind a?"} {
					wantEachUndoneOnce(t, start, order, map[rune]string{'R': report, 'O': own,
						'P': "@2m turn", 'F': "fail turn"})
				}
			}
		}
	}
}

// TestReportsAroundACommitInEveryOrder: of a plan that is undone after it, or instead of it.
func TestReportsAroundACommitInEveryOrder(t *testing.T) {
	const commit, undo = "commit:1 turn", "undo: turn"
	for _, c := range []struct{ start, commit, undo string }{
		{"open a:probe+for=9h", commit, undo},
		{"open:accept a:probe+blind+for=9h a?", commit, undo},
		{"open a:probe+for=9h b b?", commit, undo}, // the commit waits
		{"r/open open^r. a:probe+for=9h r/b r/b?", commit + " r/" + commit, "r/" + undo},
	} {
		for _, report := range []string{"x8", "x8,x7", "x7,x8"} {
			for _, own := range []string{"own:a=x7", "own:a=x8", "a-"} {
				for _, order := range orders("ROCU") {
					wantEachUndoneOnce(t, c.start, order, map[rune]string{'R': report, 'O': own,
						'C': c.commit, 'U': c.undo})
				}
			}
		}
	}
}

func orders(steps string) (all []string) {
	if steps == "" {
		return []string{""}
	}
	for i := range steps {
		for _, rest := range orders(steps[:i] + steps[i+1:]) {
			all = append(all, steps[i:i+1]+rest)
		}
	}
	return all
}

// seenOf is what an operator sees of effects, named as listed, at a provider that has those which are
// here; "": nothing is to be seen.
func seenOf(list string, here []string) string {
	gone := func(x string) bool { return x != "" && !slices.Contains(here, x) }
	names := slices.DeleteFunc(strings.Split(list, ","), gone)
	if len(here) == 0 || len(names) == 0 {
		return ""
	}
	return "effect:a=" + strings.Join(names, ",")
}

// wantEachUndoneOnce plays an order of words at a provider that has made x7 and x8 under one key. What
// names no effect is about the first one that is there.
func wantEachUndoneOnce(t *testing.T, start, order string, words map[rune]string) {
	t.Helper()
	s := newSchedule(t)
	here, by, named, want := []string{"x7", "x8"}, map[string]int{}, map[string]bool{}, "compensated"
	s.worker = func(c Command) *api.Reply {
		ref := c.ExternalRef
		if c.Action == "b" {
			return &api.Reply{Status: api.StatusDone}
		}
		if ref == "" && len(here) > 0 {
			ref = here[0]
		}
		found := slices.Contains(here, ref)
		switch {
		case c.Purpose == ledger.PurposeUndo:
			by[ref]++
			here = slices.DeleteFunc(here, func(x string) bool { return x == ref })
			return &api.Reply{Status: api.StatusDone}
		case found:
			return &api.Reply{Status: api.StatusDone, Output: []byte(`{"presence":"present"}`)}
		default:
			return &api.Reply{Status: api.StatusDone, Output: []byte(`{"presence":"absent"}`)}
		}
	}
	s.play(start)
	for _, step := range order {
		said := words[step]
		if step == 'R' {
			said = seenOf(said, here)
		}
		for word := range strings.FieldsSeq(said) {
			_, list, _ := strings.Cut(word, "=")
			for _, r := range s.word(word) {
				for name := range strings.SplitSeq(list, ",") {
					named[name] = named[name] || r.Verdict == Effective
				}
			}
		}
	}
	s.play("turn @3h turn")
	if words['O'] == "a-" && len(by) == 0 && !named["x7"] && !named["x8"] { // no one says that anything is there
		want = "failed"
	}
	got := s.outcome()
	if strings.HasPrefix(got, "committed") {
		got = s.show("p~1").State + ", committed before: " + got
	}
	for _, name := range []string{"x7", "x8"} {
		if by[name] > 1 || named[name] && by[name] != 1 {
			t.Errorf("%s %s %v: %s is undone %d times: %s", start, order, words, name, by[name], got)
		}
	}
	if !strings.HasPrefix(got, want) {
		t.Errorf("%s %s %v: %s", start, order, words, got)
	}
}

// TestAWordBetweenADecisionAndItsRecordIsHeard: an undo that was decided for the effect that an
// operator has reported is not sent for another that its agent names since.
func TestAWordBetweenADecisionAndItsRecordIsHeard(t *testing.T) {
	for _, c := range []struct{ before, word string }{
		{"open a:probe effect:a=x7 fail", "own:a=x8"}, {"open a:probe effect:a=x7 fail turn", "own:a=x8"},
		{"open a:probe effect:a=x7 fail", "own:a=x7"}, {"open a:probe effect:a= fail", "effect:a=x7"},
	} {
		s := newSchedule(t)
		names := s.names()
		s.play(c.before)
		decided := s.decide(nil)
		s.word(c.word)
		if len(decided) > 0 {
			s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, decided...)
		}
		s.turn()
		slices.Sort(*names)
		if twice := len(slices.Compact(slices.Clone(*names))) != len(*names); twice || s.show("p").State != "compensated" {
			t.Errorf("%s, %s: %s, undone %v", c.before, c.word, s.outcome(), *names)
		}
		s.wantRefolded()
	}
}
