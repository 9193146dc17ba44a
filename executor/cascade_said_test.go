package executor_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// kindAt is the kind of the record at an address as views have it.
func (w *world) kindAt(at string) string {
	w.t.Helper()
	for _, m := range w.log {
		entries, err := ledger.Decode("t", m)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, e := range entries {
			if ledger.FormatAddress(e.Address) == at {
				return ledger.KindOf(e.Record).Name
			}
		}
	}
	return "no record at " + at
}

// TestWhyTellsWhoSaidWhat: who, what, why and the record of every first link that
// somebody asked for, also when the plan is open again.
func TestWhyTellsWhoSaidWhat(t *testing.T) {
	for play, want := range map[string]string{
		"a a+ fail turn":                            "compensated: failed by a1: step failed, plan_failed",
		"a a+ cancel turn":                          "compensated: cancelled by a1: changed my mind, plan_cancelled",
		"a a+ stop turn":                            "compensated: cancelled by ops: stop it, cancel_requested",
		"a a+ undo turn":                            "compensated: unwind by ops: undo it, compensation_requested",
		"a a+ save:s b b+ undo:s turn":              "open: unwind to s by ops: undo it, compensation_requested",
		"a a+ save:s b b+ back:s turn":              "open: unwind to s by a1: another way, unwind_requested",
		"a a+ judge:a=block* turn":                  "compensated: block by compliance: policy 7, verdict_given",
		"a judge:a=block* a+ turn":                  "compensated: block by compliance: policy 7, verdict_given",
		"a b judge:a=block* judge:b=block* a+ turn": "compensated: block by compliance: policy 7, verdict_given",
		"a a+ commit turn undo turn":                "committed: unwind by ops: undo it, compensation_requested, of p~1",
		"a a+ save:s b b? back:s turn b+ turn":      "open: late of b by : " + NoteLate + ", forward_completed",
	} {
		s := newSchedule(t)
		s.play("open " + play)
		why := s.why("p")
		if len(why.Steps) != 1 {
			t.Errorf("%s: %+v", play, why)
			continue
		}
		step := why.Steps[0]
		got := why.State + ": " + step.Said
		for _, f := range [...]struct{ name, value string }{{" to ", step.ToSavepoint}, {" of ", step.SaidOf}} {
			if f.value != "" {
				got += f.name + f.value
			}
		}
		got += " by " + step.Actor + ": " + step.Reason + ", " + s.kindAt(step.At)
		if why.UndoneAs != "" {
			got += ", of " + step.Plan
		}
		if got != want || step.TurnedNs == 0 {
			t.Errorf("%s: %q, want %q", play, got, want)
		}
		s.wantRefolded()
	}
}

// TestWhyOfTheUndoingPlanPointsBack to the committed one, and both tell one chain.
func TestWhyOfTheUndoingPlanPointsBack(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ commit turn undo turn")
	of, by := s.why("p"), s.why("p~1")
	if of.UndoneAs != "p~1" || of.Origin != "" || by.Origin != "p" || by.UndoneAs != "" ||
		fmt.Sprint(of.Steps) != fmt.Sprint(by.Steps) {
		t.Errorf("%+v and %+v", of, by)
	}
}

// TestWhyNamesAnActorAndTheOperatorOfTheSubject where they differ.
func TestWhyNamesAnActorAndTheOperatorOfTheSubject(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+")
	s.by("root", "", &pb.Record{Kind: &pb.Record_CancelRequested{CancelRequested: &pb.CancelRequested{Actor: "ana"}}})
	s.turn()
	if step := s.why("p").Steps[0]; step.Actor != "ana (operator root)" || step.Reason != "" {
		t.Errorf("%+v", step)
	}
}

// TestWhyTellsTheFactThatAChainBeganWith: source, value and record of the last that
// the condition read, as it was then.
func TestWhyTellsTheFactThatAChainBeganWith(t *testing.T) {
	for _, c := range []struct{ condition, play, want string }{
		{`facts["x"] == 1`, "fact:x=1 turn fact:x=2", "x sensor 1 fact_asserted"},
		{`facts["x"] == 1 && facts["y"] == 2`, "fact:y=2 fact:x=1 turn", "x sensor 1 fact_asserted"},
		{`facts["x"] == 1 && facts["y"] == 2`, "fact:x=1 fact:y=2 turn", "y sensor 2 fact_asserted"},
		{`!("x" in facts)`, "forget:x turn", "x sensor  retracted fact_retracted"},
		{`facts["x"] == "` + strings.Repeat("v", ReadingMax) + `"`, `fact:x="` + strings.Repeat("v", ReadingMax) + `" turn`,
			"x sensor  fact_asserted"},
	} {
		s := newSchedule(t)
		s.play("fact:x=0")
		s.must(s.agent("p", opened(0, when("watch", c.condition))))
		s.play("a a+ " + c.play)
		s.wantState("p", "compensated", "a=compensated")
		step := s.why("p").Steps[0]
		got := step.Key + " " + step.Source + " " + step.Value + flag(" retracted", step.Retracted) + " " +
			s.kindAt(step.Fact)
		if got != c.want || step.By != "" || step.FactNs != step.TurnedNs || step.FactNs == 0 {
			t.Errorf("%.40s: %q, want %q; %+v", c.condition, got, c.want, step)
		}
		s.wantRefolded()
	}
}

// TestWhyTellsTheTimeOfADeadline, where it was set, and when time alone turned a
// condition.
func TestWhyTellsTheTimeOfADeadline(t *testing.T) {
	s := newSchedule(t)
	s.play("open@9s a a+ @9s turn")
	step := s.why("p").Steps[0]
	if step.Lease != LeaseDeadline || step.DeadlineNs != epoch0+9*second || s.kindAt(step.At) != "plan_opened" ||
		step.TurnedNs < step.DeadlineNs {
		t.Errorf("%+v", step)
	}
	s = newSchedule(t)
	s.play("open@5s a a+ move:9s @9s turn")
	step = s.why("p").Steps[0]
	if step.Lease != LeaseDeadline || step.DeadlineNs != epoch0+9*second || s.kindAt(step.At) != "deadline_moved" ||
		step.Said != "moved" || step.Actor == "" || step.Reason == "" {
		t.Errorf("%+v", step)
	}
	s.must(s.agent("q", opened(0, when("late", `elapsed(plan.opened_at, duration("5s"))`))))
	s.do("q", "b")
	s.play("@20s turn")
	if step := s.why("q").Steps[0]; step.Lease != "late" || step.TurnedNs < epoch0+14*second || step.Key != "" {
		t.Errorf("%+v", step)
	}
}

// TestWhyKeepsTheOwnersAnswer after a lease was given up, and after it was resumed:
// who, why, when, and the chain behind the cut.
func TestWhyKeepsTheOwnersAnswer(t *testing.T) {
	for _, resume := range []bool{false, true} {
		r := newRing(t, 2, CascadeLimits{Depth: 2})
		r.kick(0)
		chain := r.why("w0-2").Steps
		r.must(r.owner("ann", "w0-2", resume))
		r.run()
		why := r.why("w0-2")
		if len(why.Answers) != 1 || len(why.Cuts) != 0 {
			t.Fatalf("%+v", why)
		}
		a := why.Answers[0]
		want := map[bool]string{false: "give-up", true: "resume"}[resume]
		if a.Answer != want || a.By != "ann" || a.Reason != "seen" || r.kindAt(a.At) != "cascade_answered" ||
			r.kindAt(a.Cut) != "cascade_cut" || a.AtNs == 0 || a.Why != "depth 3 of 2" {
			t.Errorf("%+v", a)
		}
		last := why.Steps[len(why.Steps)-1]
		if !resume && fmt.Sprint(why.Steps) != fmt.Sprint(chain) {
			t.Errorf("%+v\nwas %+v", why.Steps, chain)
		}
		if resume && (len(why.Steps) != len(chain) || last.Fired == "" || last.Resumed == nil || *last.Resumed != a.Word) {
			t.Errorf("%+v", last)
		}
		if !resume { // a committed plan tells it, too; one that fails tells why it did
			r.must(r.agent("w0-2", planCommitted()))
			r.turn()
			if after := r.why("w0-2"); len(after.Steps) != len(chain) || len(after.Answers) != 1 {
				t.Errorf("%+v", after)
			}
		}
		r.wantRefolded()
	}
}

// TestWhyNamesBothApprovers of an answer that took two.
func TestWhyNamesBothApprovers(t *testing.T) {
	r := newGraph(t, [][]int{{1}, {0}}, CascadeLimits{Depth: 2})
	r.second = true
	r.kick(0)
	r.must(r.owner("ann", "w0-2", false))
	r.must(r.owner("bob", "w0-2", false))
	if a := r.why("w0-2").Answers; len(a) != 1 || a[0].By != "ann and bob" {
		t.Errorf("%+v", a)
	}
}

// TestAPlanKeepsThePlacesOfItsLastVerdicts only: of each action the last that blocks,
// of all the last 64; who said the others, and why, is told nevertheless.
func TestAPlanKeepsThePlacesOfItsLastVerdicts(t *testing.T) {
	s := newSchedule(t)
	s.play("open")
	for i := range VerdictsMax + 9 {
		s.play(fmt.Sprintf("b%d judge:b%d=redirect judge:b%d=block", i, i, i))
	}
	s.play("judge:b20=allow")
	words := s.planOf("p").Row.Verdicts
	if len(words) != VerdictsMax-1 || words[0].Action != "b9" ||
		words[len(words)-1].Action != fmt.Sprint("b", VerdictsMax+8) {
		t.Errorf("%d, from %v", len(words), words[0])
	}
	s.play("b3+ turn")
	if step := s.why("p").Steps[0]; step.Action != "b3" || step.Said != "block" || step.Actor != "compliance" ||
		step.Reason != "policy 7" || step.At != "" {
		t.Errorf("%+v", step)
	}
	s.wantRefolded()
}

// TestAResumedLeaseThatIsNotTrueAnyMore still tells its answer and its chain, and
// fires later as what was resumed.
func TestAResumedLeaseThatIsNotTrueAnyMore(t *testing.T) {
	l := newSchedule(t)
	l.limits.Depth = 1
	l.must(l.agent("o", opened(0)))
	l.do("o", "u")
	l.must(l.agent("p", opened(0, when("watch", `facts["x"] == 1`))))
	l.play("x x+")
	l.must(l.agent("o", planFailed()))
	l.turn()
	l.must(l.made("o", "u", "x", "1"))
	l.turn()
	l.must(l.made("o", "u", "x", "2")) // it is not true any more when the owner says so
	l.must(l.owner("ann", "p", true))
	l.turn()
	why := l.why("p")
	if len(why.Answers) != 1 || why.State != "open" || len(why.Steps) != 2 || why.Steps[1].Fired != "" {
		t.Errorf("%+v", why)
	}
	l.must(l.made("o", "u", "x", "1"))
	l.turn()
	if why := l.why("p"); why.State != "compensated" || why.Steps[1].Resumed == nil || why.Steps[1].Resumed.By != "ann" {
		t.Errorf("%+v", why)
	}
	l.wantRefolded()
}

// TestAChainThatEndedWellIsNoCycle, however alike its plans are called; it is one
// where something of it was cut, or the same plan comes again.
func TestAChainThatEndedWellIsNoCycle(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		trigger := when("watch", fmt.Sprintf(`"done/%d" in facts`, i-1))
		plan := fmt.Sprint("ch", i)
		w.must(w.agent(plan, opened(0, trigger)))
		w.do(plan, "a")
	}
	w.worker = func(c Command) *api.Reply {
		w.must(w.made(c.Plan, c.Action, "done/"+c.Plan[2:], "1"))
		return &api.Reply{Status: api.StatusDone}
	}
	w.limits.Depth = 4
	w.must(w.agent("ch0", planFailed()))
	w.turn()
	if why := w.why("ch3"); len(why.Steps) != 4 || why.Cycle != nil {
		t.Errorf("%v", why.Cycle)
	}
	if why := w.why("ch4"); len(why.Cuts) != 1 ||
		why.Cycle.String() != "cycle of 1: ch1 -> ch2, went round 3 times, with other plans and facts each time" {
		t.Errorf("%+v", why)
	}
	s := rewindingPlan(t, CascadeLimits{})
	if c := s.why("p").Cycle; c == nil || c.Others != "actions" {
		t.Errorf("%v", c)
	}
}

// TestAPlanKeepsItsLastAnswers, the last 16 of them.
func TestAPlanKeepsItsLastAnswers(t *testing.T) {
	w := newWorld(t)
	w.limits.Depth = 1
	w.must(w.agent("o", opened(0)))
	w.do("o", "u")
	w.must(w.agent("p", opened(0)))
	for i := range AnswersMax + 3 {
		w.must(w.agent("p", pair(fmt.Sprint("a", i), func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			c.Triggers = []*pb.Trigger{when("watch", `"x" in facts`)}
		})...))
		w.must(w.agent("p", completed(fmt.Sprint("a", i))))
	}
	w.must(w.agent("o", planFailed()))
	w.turn()
	w.must(w.made("o", "u", "x", "1"))
	w.turn()
	w.must(w.owner("ann", "p", false))
	if a := w.why("p").Answers; len(a) != AnswersMax || a[0].Action != "a3" {
		t.Errorf("%+v", a)
	}
	w.wantRefolded()
}

// TestARefusedAnswerNamesTheAction that it is about, and those that wait.
func TestARefusedAnswerNamesTheAction(t *testing.T) {
	s := newSchedule(t)
	s.limits.Depth = 1
	s.must(s.agent("o", opened(0)))
	s.do("o", "u")
	s.play("open a a+")
	s.must(s.agent("p", pair("c", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.Triggers = []*pb.Trigger{when("watch", `"x" in facts`)}
	})...))
	s.must(s.agent("p", completed("c")))
	s.must(s.agent("o", planFailed()))
	s.turn()
	s.must(s.made("o", "u", "x", "1"))
	s.turn()
	answer := func(action, lease string) Result {
		return s.by("ann", action,
			&pb.Record{Kind: &pb.Record_CascadeAnswered{CascadeAnswered: &pb.CascadeAnswered{Lease: lease, Reason: "no",
				Actor: "ann"}}})[0]
	}
	for _, c := range [][3]string{
		{"a", "", "action a of plan p is not cut; cut: watch of action c"},
		{"a", "watch", "lease watch of action a of plan p is not cut; cut: watch of action c"},
		{"", "other", "lease other of plan p is not cut; cut: watch of action c"},
	} {
		if r := answer(c[0], c[1]); r.Verdict != Refused || r.Reason != c[2] {
			t.Errorf("%+v, want %q", r, c[2])
		}
	}
	if cut := s.show("p").Cuts[0]; cut.Number != 2 || cut.Action != "c" {
		t.Errorf("%+v", cut)
	}
	if r := answer("c", ""); r.Verdict != Effective || s.why("p").Answers[0].Action != "c" {
		t.Errorf("%+v", r)
	}
}

// TestWhyACommittedPlanIsUndoneForAnActionOfAPart names the part: another action of its parent may
// have the same id.
func TestWhyACommittedPlanIsUndoneForAnActionOfAPart(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ b b+ q/open^a q/b q/b+ q/commit commit turn q/judge:b=block turn")
	why, err := view.NewReader(s.kv, "t", nil).Why(api.WhyQuery{Plan: "p"})
	if err != nil || len(why.Steps) != 1 || why.Steps[0].SaidOf != "b" || why.Steps[0].SaidPlan != "q" {
		t.Errorf("%+v, %v", why.Steps, err)
	}
}
