package executor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/view"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// when is a condition that undoes its plan, on an action, too.
func when(name, condition string) *pb.Trigger {
	return &pb.Trigger{Name: name, Condition: condition, Scope: pb.Scope_SCOPE_PLAN}
}

// TestConditionsOverFacts: true fires, unknown waits, false does not fire.
func TestConditionsOverFacts(t *testing.T) {
	for _, c := range []struct{ name, condition, play, want string }{
		{"open world waits", `facts["x"].v == 1`, "turn", "open"},
		{"unknown to true", `facts["x"].v == 1`, `fact:x={"v":1} turn`, "compensated"},
		{"false does not fire", `facts["x"].v == 1`, `fact:x={"v":2} turn`, "open"},
		{"false to true", `facts["x"].v == 1`, `fact:x={"v":2} turn fact:x={"v":1} turn`, "compensated"},
		{"another fact", `facts["x"].v == 1`, `fact:y={"v":1} turn`, "open"},
		{"closed world", `!("ok" in facts)`, "turn", "compensated"},
		{"closed world, known", `!("ok" in facts)`, "turn", "compensated"},
		{"a fact is retracted", `"gate" in facts && !("ok" in facts)`, `fact:ok=1 fact:gate=1 turn forget:ok turn`,
			"compensated"},
		{"flapping within one turn fires", `facts["x"].v == 1`, `fact:x={"v":1} fact:x={"v":2} turn`, "compensated"},
		{"flapping down to false does not", `facts["x"].v == 1`, `fact:x={"v":2} fact:x={"v":3} turn`, "open"},
		{"an error waits", `facts["x"].v == 1`, `fact:x="text" turn`, "open"},
		{"an error, then true", `facts["x"].v == 1`, `fact:x="text" turn fact:x={"v":1} turn`, "compensated"},
		{"over the plan's status", `plan.status == "failed" && facts["x"].v == 1`, `fact:x={"v":1} turn`, "open"},
		{"a window that closes", `absent_for("ok", plan.opened_at, duration("5s"))`, "@4999ms", "open"},
		{"a window that closed", `absent_for("ok", plan.opened_at, duration("5s"))`, "@6s", "compensated"},
		{"a window that was met", `absent_for("ok", plan.opened_at, duration("5s"))`, "@4s fact:ok=1 @6s", "open"},
		{"count, and true for a moment only", `at_least(2, "x", duration("1s"))`, "fact:x=1 fact:x=2 turn", "compensated"},
		{"count, too slow", `at_least(2, "x", duration("1s"))`, "fact:x=1 @2s fact:x=2 turn @9s", "open"},
		{"count, true for a moment after a turn", `at_least(2, "x", duration("1s"))`, "turn @1s fact:x=1 fact:x=2 turn",
			"compensated"},
		{"in time and true for a record only", `before(timestamp("2030-01-01T00:00:00Z")) && facts["x"] == 1`,
			"fact:x=1 fact:x=2 turn", "compensated"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSchedule(t)
			s.must(s.agent("p", opened(0, when("mine", c.condition))))
			s.play("a a+ " + c.play)
			if got := s.show("p").State; got != c.want {
				t.Fatalf("%s: %s, want %s", c.condition, got, c.want)
			}
			fired := 0
			for _, r := range s.effective() {
				if k := r.GetLeaseFired(); k != nil && k.Lease == "mine" {
					fired++
				}
			}
			if want := map[string]int{"open": 0, "compensated": 1}[c.want]; fired != want {
				t.Fatalf("fired %d times", fired)
			}
		})
	}
}

// TestATriggerOfAnAction reads what its contract lifted.
func TestATriggerOfAnAction(t *testing.T) {
	s := newSchedule(t)
	s.play("open")
	s.must(s.agent("p", pair("a", func(f *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		f.Lifted = []byte(`{"order":"o7"}`)
		c.Triggers = []*pb.Trigger{when("paid", `facts["paid/" + action.order] > action.output.price`)}
	})...))
	done := completed("a")
	done.GetForwardCompleted().Lifted = []byte(`{"price":10}`)
	s.must(s.agent("p", done))
	s.play("fact:paid/o8=11 fact:paid/o7=10 turn")
	s.wantState("p", "open", "a=held")
	s.play("fact:paid/o7=11 turn")
	s.wantState("p", "compensated", "a=compensated")
	for _, r := range s.effective() {
		if k := r.GetLeaseFired(); k != nil && (k.Lease != "paid" || r.Action != "a" || len(k.ConditionDigest) != 32 ||
			len(k.Readings) == 0) {
			t.Fatalf("%v", r)
		}
	}
}

// TestABadConditionIsShownAndBlocksNothing: one that meets a fact of another kind.
func TestABadConditionIsShownAndBlocksNothing(t *testing.T) {
	s := newSchedule(t)
	s.must(s.agent("p", opened(0, when("bad", `facts["x"] + "!" == "!"`), when("good", `facts["x"] == 1`))))
	s.play("a a+ fact:x=2 turn")
	for _, l := range s.show("p").Leases {
		if l.Name == "bad" && (l.Error == "" || l.Truth != "unknown") {
			t.Fatalf("%+v", l)
		}
	}
	s.play("fact:x=1 turn")
	s.wantState("p", "compensated", "a=compensated")
}

// TestADeclaredTriggerTakesNoStandingLeasesPlace, whatever it is called.
func TestADeclaredTriggerTakesNoStandingLeasesPlace(t *testing.T) {
	var declared []*pb.Trigger
	for _, name := range []string{LeaseFailed, LeaseCancelled, LeaseDeadline, LeaseVerdict} {
		if ledger.ValidToken(name) {
			t.Errorf("%s can be declared", name)
		}
		declared = append(declared, when(name[strings.Index(name, ".")+1:], "false"))
	}
	s := newSchedule(t)
	s.must(s.agent("p", opened(epoch0+5*second, declared...)))
	s.must(s.agent("p",
		pair("a", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) { c.Triggers = declared })...))
	s.play("judge:a=block* turn")
	s.wantState("p", "open", "a=held") // it may not have crossed yet
	s.play("a+ turn")
	s.wantState("p", "compensated", "a=compensated")
}

// TestTheClockGuardHoldsTheClockOnly: deadlines and windows wait while it holds,
// failures and facts do not, and retries go on (I16).
func TestTheClockGuardHoldsTheClockOnly(t *testing.T) {
	for name, c := range map[string]struct{ play, want string }{
		"deadline":               {"@6s", "open"},
		"deadline, then failed":  {"@6s fail turn", "compensated"},
		"turned by a record":     {"@6s judge:a=allow fail turn", "compensated"},
		"held by a fact":         {"fact:x=1 turn", "open"},
		"held by a fact, failed": {"fact:x=1 turn fail turn", "compensated"},
		"verdict":                {"@6s judge:a=block* turn", "compensated"},
		"retries":                {"a=fail,done fail turn @9s", "compensated"},
	} {
		s := newSchedule(t)
		s.hold = true
		r := opened(epoch0+5*second, when("burst", `at_least(1, "x", duration("1h"))`))
		s.must(s.agent("p", r))
		s.play("a a+ " + c.play)
		if got := s.show("p").State; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		s.hold = false
		s.play("@10s")
		if got := s.show("p").State; got != "compensated" {
			t.Errorf("%s, released: %s", name, got)
		}
	}
}

// TestAStampAheadFiresNothingEarly: the server's clock jumped for one record; the
// decider's did not. Nor does it delay what is due later by the right clock.
func TestAStampAheadFiresNothingEarly(t *testing.T) {
	for name, words := range map[string]string{
		"armed before": "open@5s a a+ JUMP judge:a=allow BACK",
		"armed after":  "JUMP open@5s a a+ BACK",
		"a fact":       "open@5s a JUMP a+ fact:x=1 BACK",
	} {
		s := newSchedule(t)
		for word := range strings.FieldsSeq(words) {
			switch word {
			case "JUMP":
				s.now += int64(1000 * time.Hour)
			case "BACK":
				s.now = epoch0
			default:
				s.play(word)
			}
		}
		s.play("turn @4999ms")
		if got := s.show("p").State; got != "open" {
			t.Fatalf("%s: early: %s", name, got)
		}
		if wake, ok := s.state.NextWake(); !ok || wake > epoch0+5*second {
			t.Fatalf("%s: wakes at %d", name, wake-epoch0)
		}
		s.play("a=fail,done @5s")
		if got := s.show("p").State; got != "unwinding" {
			t.Fatalf("%s: late: %s", name, got)
		}
		s.play("@6s")
		if got := s.show("p").State; got != "compensated" {
			t.Fatalf("%s: the retry follows the jump: %s", name, got)
		}
	}
}

// TestAStampSlightlyAhead: clocks of two machines differ. What facts alone have turned true fires
// at once, for they are in the ledger; what waits for an instant too fires when the decider's
// clock gets there, and wakes for it.
func TestAStampSlightlyAhead(t *testing.T) {
	s := newSchedule(t)
	s.must(s.agent("p", opened(0, when("burst", `at_least(2, "x", duration("1s"))`))))
	s.must(s.agent("q", opened(0, when("late",
		`seen("x") && after(timestamp("2026-01-02T03:04:05.002Z"))`))))
	s.do("p", "a")
	s.do("q", "a")
	s.now += int64(3 * time.Millisecond)
	s.play("fact:x=1 fact:x=2")
	s.now = epoch0 + int64(time.Millisecond)
	s.turn()
	s.wantState("p", "compensated", "a=compensated")
	s.wantState("q", "open", "a=held")
	if wake, ok := s.state.NextWake(); !ok || wake != epoch0+int64(2*time.Millisecond) {
		t.Fatalf("wakes at %d, %v", wake-epoch0, ok)
	}
	s.play("@2ms")
	s.wantState("q", "compensated", "a=compensated")
}

// TestMoreIsDueThanOneTurnLooksAt: what is due but not true does not keep what is
// behind it from its turn.
func TestMoreIsDueThanOneTurnLooksAt(t *testing.T) {
	kv := rows.NewMemoryKV()
	s := Open(kv, "t", nil)
	seq := uint64(0)
	apply := func(source ledger.Source, stamp int64, records ...*pb.Record) {
		t.Helper()
		data, err := ledger.EncodeCommit(records)
		if err != nil {
			t.Fatal(err)
		}
		seq++
		for _, r := range foldMessage(t, s, ledger.Message{Sequence: seq, StampNs: stamp, Subject: source.Subject(),
			Data: data}) {
			if r.Verdict != Effective {
				t.Fatalf("%+v", r)
			}
		}
	}
	apply(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, epoch0,
		&pb.Record{Term: 1, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h"}}})
	agent := ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "a1", Plan: ledger.ManyPlans}
	condition := `after(timestamp("2026-01-02T03:04:10Z")) && facts["x"] == 1`
	for i := range DuePerTurn + 100 {
		r := opened(0, when("mine", condition))
		r.Plan = fmt.Sprintf("a%05d", i)
		apply(agent, epoch0, r)
	}
	last := opened(epoch0 + 5*second)
	last.Plan = "z"
	apply(agent, epoch0, last)
	for range 4 {
		if records := s.Decide(Input{EpochNs: epoch0 + 6*second, SizeMax: 60 << 10}); len(records) > 0 {
			if records[0].Plan != "z" {
				t.Fatalf("%v", records[0])
			}
			return
		}
	}
	t.Fatal("a deadline starves behind conditions that are not true")
}

// TestCommitAgainstDeadline: whoever lands first wins; the claim of the other is
// void, harmless and explained on the plan.
func TestCommitAgainstDeadline(t *testing.T) {
	for _, commitFirst := range []bool{true, false} {
		s := newSchedule(t)
		s.play("open@5s a a+")
		s.now = epoch0 + 5*second
		claims := s.decide(nil)
		holder := ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}
		if commitFirst {
			s.play("commit")
			for _, r := range s.append(holder, claims...) {
				if r.Verdict != Void {
					t.Fatalf("%+v", r)
				}
			}
		} else {
			s.must(s.append(holder, claims...))
			s.play("!commit")
		}
		if commands := len(s.state.Commands()); (commands == 0) != commitFirst {
			t.Fatalf("%d commands", commands)
		}
		shown := s.show("p")
		if commitFirst {
			s.turn()
			s.wantState("p", "committed", "a=retired")
			if len(shown.Refused) != len(claims) || !shown.Refused[0].Void || shown.Refused[0].Reason == "" ||
				shown.Refused[0].Kind != "lease_fired" {
				t.Fatalf("%+v", shown.Refused)
			}
			continue
		}
		if len(shown.Refused) != 1 || shown.Refused[0].Void || shown.Refused[0].Kind != "plan_committed" {
			t.Fatalf("%+v", shown.Refused)
		}
	}
}

// TestTwoDecidersOneLog: every decision is proposed by two holders of one state;
// the second copy is void and nothing is done twice (I14, I19).
func TestTwoDecidersOneLog(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ b b+ fail")
	holder := ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}
	sent := 0
	var answers []Answer
	for range 10 {
		records := s.decide(answers)
		if len(records) == 0 {
			break
		}
		s.must(s.append(holder, records...))
		for _, r := range s.append(holder, records...) {
			if r.Verdict != Void || r.Reason == "" {
				t.Fatalf("%+v", r)
			}
		}
		answers = nil
		for _, c := range s.state.Commands() {
			sent++
			answers = append(answers, Answer{Plan: c.Plan, Number: c.Number, Purpose: c.Purpose, Attempt: c.Attempt,
				Reply: &api.Reply{Status: api.StatusDone}})
		}
	}
	s.wantState("p", "compensated", "a=compensated b=compensated")
	if sent != 2 {
		t.Fatalf("%d commands for two actions", sent)
	}
}

// TestAHugeFactFitsItsFiring: what a firing read is kept within a commit.
func TestAHugeFactFitsItsFiring(t *testing.T) {
	s := newSchedule(t)
	var terms []string
	for i := range 8 {
		terms = append(terms, fmt.Sprintf(`facts["big%d"].v == 1`, i))
	}
	s.must(s.agent("p", opened(0, when("all", strings.Join(terms, " && ")))))
	s.play("a a+")
	for i := range 8 {
		s.play(fmt.Sprintf(`fact:big%d={"v":1,"x":"%s"}`, i, strings.Repeat("y", 60<<10)))
	}
	s.play("turn")
	s.wantState("p", "compensated", "a=compensated")
	for _, r := range s.effective() {
		if k := r.GetLeaseFired(); k != nil {
			for _, reading := range k.Readings {
				if reading.Sequence == 0 || len(reading.Value) != 0 {
					t.Fatalf("%s at %d, %d bytes", reading.Name, reading.Sequence, len(reading.Value))
				}
			}
			if len(k.Readings) != 8 {
				t.Fatalf("%d readings", len(k.Readings))
			}
		}
	}
}

// TestAFiringOfManyReadingsFits: their number is bounded too.
func TestAFiringOfManyReadingsFits(t *testing.T) {
	t.Parallel()
	s := newSchedule(t)
	long := strings.Repeat("k", 200)
	condition := `[` + strings.TrimSuffix(strings.Repeat("N,", 90), ",") + `].all(i, facts["` + long + `" + i].n == 1)`
	for i := range 90 {
		condition = strings.Replace(condition, "N", fmt.Sprintf(`"%d"`, i), 1)
	}
	s.must(s.agent("p", opened(0, when("all", condition))))
	s.play("a a+")
	var facts []*pb.Record
	for i := range 90 {
		facts = append(facts, asserted(fmt.Sprint(long, i), fmt.Sprintf(`{"n":1,"v":"%s"}`, strings.Repeat("v", 900))))
	}
	for commit := range slices.Chunk(facts, 45) { // every commit has all that is kept looked at
		s.must(s.append(sensor, commit...))
	}
	s.play("turn")
	s.wantState("p", "compensated", "a=compensated")
}

// TestWhatIsDueTogetherIsDecidedInOneOrder, whatever was asked before and is
// forgotten in a restart (I9).
func TestWhatIsDueTogetherIsDecidedInOneOrder(t *testing.T) {
	w := newWorld(t)
	at := func(s int) string {
		return `after(timestamp("` + time.Unix(0, epoch0+int64(s)*second).UTC().Format(time.RFC3339) + `"))`
	}
	w.must(w.agent("p", opened(0, when("x", at(1)+" && "+at(9)))))
	w.must(w.agent("q", opened(0, when("x", at(2)+" && "+at(5)))))
	for _, s := range []int{1, 2, 3} {
		w.at(time.Duration(s) * time.Second)
	}
	w.now = epoch0 + 20*second
	again := OpenWith(w.kv, "t", w, w.programs)
	live := w.decide(nil)
	if len(live) != 4 || !sameRecords(live, again.Decide(Input{EpochNs: w.now, SizeMax: 60 << 10})) {
		t.Fatalf("%v", live)
	}
}

// A condition over the number of actions is asked when that number changes.
func TestAConditionOverTheNumberOfActions(t *testing.T) {
	s := newSchedule(t)
	s.must(s.agent("p", opened(0, &pb.Trigger{Name: "many", Condition: "plan.actions >= 3"})))
	s.do("p", "a", "b")
	s.turn()
	s.wantState("p", "open", "a=held b=held")
	s.do("p", "c")
	s.turn()
	s.wantState("p", "compensated", "a=compensated b=compensated c=compensated")
}

// TestACopyOfAFiringIsNoneOfALaterTurn: an append whose reply was lost comes once more
// when its plan is back at a savepoint and has been asked to go back again.
func TestACopyOfAFiringIsNoneOfALaterTurn(t *testing.T) {
	w := newWorld(t)
	w.must(w.agent("p", opened(0)))
	w.do("p", "a")
	w.must(w.agent("p", &pb.Record{Kind: &pb.Record_SavepointSet{SavepointSet: &pb.SavepointSet{Name: "s", Number: 1}}}))
	back := func(n uint32) {
		w.must(w.agent("p",
			&pb.Record{Kind: &pb.Record_UnwindRequested{UnwindRequested: &pb.UnwindRequested{ToSavepoint: "s", Number: n}}}))
	}
	back(1)
	first := w.decide(nil)
	w.turn()
	w.wantState("p", "open", "a=held")
	w.do("p", "b")
	back(2)
	for _, r := range first {
		r.Folded = 0 // as earlier versions wrote them
	}
	holder := ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}
	if got := w.append(holder, first...); got[0].Verdict != Void || !strings.Contains(got[0].Reason, "turned at") {
		t.Errorf("the copy is %+v", got)
	}
	if w.decide(nil)[0].GetLeaseFired() == nil {
		t.Error("the second turn does not fire any more")
	}
	w.turn()
	w.wantState("p", "open", "a=held b=compensated")
}

// TestEitherOfTwoLeasesThatTurnedTogetherFires: a holder that had read less may have found
// only one of them true, and each of them was.
func TestEitherOfTwoLeasesThatTurnedTogetherFires(t *testing.T) {
	conditions := map[string]string{"one": `facts["x"] > 0`, "two": `facts["x"] < 2`}
	for _, other := range []bool{false, true} {
		s := newSchedule(t)
		s.must(s.agent("p", opened(0, when("one", conditions["one"]), when("two", conditions["two"]))))
		s.play("a a+ fact:x=1 forget:x")
		fired := s.decide(nil)[0]
		k := fired.GetLeaseFired()
		if other {
			k.Lease = map[string]string{"one": "two", "two": "one"}[k.Lease]
			k.Condition = conditions[k.Lease]
			compiled, err := s.programs.Condition(k.Condition)
			if err != nil {
				t.Fatal(err)
			}
			digest := compiled.Digest()
			k.ConditionDigest = digest[:]
		}
		s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, fired))
		s.turn()
		s.wantState("p", "compensated", "a=compensated")
	}
}

// TestAPlanWhoseLeaseHasFiredIsNotOpen for its agent, though its unwind has not started.
func TestAPlanWhoseLeaseHasFiredIsNotOpen(t *testing.T) {
	s := newSchedule(t)
	s.must(s.agent("p", opened(0, when("risk", `facts["x"] == 1`))))
	s.play("a a+ fact:x=1")
	records := s.state.Decide(Input{EpochNs: s.now, SizeMax: 60 << 10})
	if len(records) < 2 || records[0].GetLeaseFired() == nil {
		t.Fatalf("%v", records)
	}
	s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, records[0]))
	if state, _, _, _ := view.NewReader(s.kv, "t", s).Outcome("p"); state != ledger.StateUnwinding {
		t.Fatalf("the plan is %s", state)
	}
}

// TestAPlanWhoseAgentIsGoneIsUndone: what an agent writes that counts shows that it is at work, as
// does what that of a part of its plan writes; what is refused, a copy, and what others write do not.
func TestAPlanWhoseAgentIsGoneIsUndone(t *testing.T) {
	playAll(t, []scheduled{
		{"it writes nothing", "open:idle=1m a a+ @60s", "compensated: a=compensated [a]"},
		{"and not before", "open:idle=1m a a+ @59s", "open: a=held []"},
		{"it goes on", "open:idle=1m a a+ @50s b b+ @109s", "open: a=held b=held []"},
		{"and ends", "open:idle=1m a a+ @50s b b+ @110s", "compensated: a=compensated b=compensated [b a]"},
		{"of an action", "open a:idle=1m a+ @50s b b+ @109s", "open: a=held b=held []"},
		{"of an action, and ends", "open a:idle=1m a+ @50s b b+ @110s",
			"compensated: a=compensated b=compensated [b a]"},
		{"of an action that came late", "open @90s a:idle=1m a+ @149s", "open: a=held []"},
		{"an outcome", "open:idle=1m a @50s a+ @109s", "open: a=held []"},
		{"a savepoint", "open:idle=1m a a+ @50s save:s @109s", "open: a=held []"},
		{"what is refused", "open:idle=1m a a+ @50s !a- @60s", "compensated: a=compensated [a]"},
		{"a copy", "open:idle=1m a a+ @50s =again @60s", "compensated: a=compensated [a]"},
		{"a fact", "open:idle=1m a a+ @50s fact:k=1 @60s", "compensated: a=compensated [a]"},
		{"a verdict", "open:idle=1m a a+ @50s judge:a=allow @60s", "compensated: a=compensated [a]"},
		{"a part of the plan", "open:idle=1m a a+ q/open^ @50s q/b q/b+ @109s", "open: a=held plan:q=held []"},
		{"a part of the plan, and ends", "open:idle=1m a a+ q/open^ @50s q/b q/b+ @110s",
			"compensated: a=compensated plan:q=compensated [b a]"},
		{"a part that it opens", "open:idle=1m a a+ @50s q/open^ @109s", "open: a=held plan:q=held []"},
		{"a part knows nothing of the rest", "open a a+ q/open:idle=1m^ q/b q/b+ @50s p/c p/c+ @60s",
			"open: a=held plan:q=compensated c=held [b]"},
		{"after its commit", "open:idle=1m a a+ commit @70s", "committed: a=retired []"},
	})
}

// TestAnAgentThatIsBackBeforeAnyoneLooksIsNotGone: as no one has acted yet, its plan goes on.
func TestAnAgentThatIsBackBeforeAnyoneLooksIsNotGone(t *testing.T) {
	s := newSchedule(t)
	s.play("open:idle=1m a a+")
	s.now = epoch0 + 90*second
	s.play("b b+ turn")
	if got, want := s.outcome(), "open: a=held b=held []"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestWhatItsOwnerHasLeftFiresNoMore: where the owner of what came after two actions says halt, the
// conditions of both are answered once, and none of them brings the other one back.
func TestWhatItsOwnerHasLeftFiresNoMore(t *testing.T) {
	for _, c := range []struct{ line, last string }{
		{"open a:own a+ b<:own b+ c<a,b c+ c=stop fact:a=1 turn halt:c turn", "fact:b=1"},
		{"open a:own a+ b<:own b+ d<:own d+ c<a,b,d c+ c=stop fact:b=1 turn halt:c turn fact:d=1 turn", "fact:a=1"},
	} {
		s := newSchedule(t)
		s.play(c.line + " " + c.last)
		for n := 0; ; n++ {
			records := s.decide(nil)
			if len(records) == 0 {
				break
			}
			if n == 9 {
				t.Fatalf("%s %s: decisions never end", c.line, c.last)
			}
			s.must(s.append(holder, records...))
		}
		if p := s.show("p"); p.State != ledger.StateOpen || !strings.Contains(s.undos("p"), "a=held b=held") {
			t.Errorf("%s %s: %s, %s", c.line, c.last, p.State, s.undos("p"))
		}
		s.play("fail turn")
		if got := s.show("p").State; got != ledger.StateResolved {
			t.Errorf("%s %s, and failed: %s", c.line, c.last, got)
		}
		s.wantRefolded()
	}
}

// TestAConditionOnTheClockTurnsInTheMiddleOfAMessage, whatever comes after it there: its firing tells
// what it has read, also of a committed plan.
func TestAConditionOnTheClockTurnsInTheMiddleOfAMessage(t *testing.T) {
	for _, facts := range [][]*pb.Record{
		{asserted("k", "4"), asserted("k", "9")},
		{asserted("k", "4"), asserted("k", "9"), asserted("k", "1")},
		{asserted("k", "4"), {Kind: &pb.Record_FactRetracted{FactRetracted: &pb.FactRetracted{
			Key: "k"}}}, asserted("k", "9")},
	} {
		s := newSchedule(t)
		s.play("open")
		s.must(s.agent("p", pair("a", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			c.ValidForNs = int64(time.Hour)
			c.Triggers = []*pb.Trigger{{Name: "own", AfterCommit: true,
				Condition: `elapsed(plan.active_at, duration("15s")) && facts["k"] > 3`}}
		})...))
		s.play("a+ commit turn @20s")
		s.must(s.append(sensor, facts...))
		s.play("turn @21s")
		s.wantState("p~1", ledger.StateCompensated, "a=compensated")
	}
}

// TestACommittedChildHoldsNoConditionOfItsOwn: they went with its commit, and no word of its agent
// after that brings one back that asks when that was.
func TestACommittedChildHoldsNoConditionOfItsOwn(t *testing.T) {
	s := newSchedule(t)
	s.play("open q/open:idle=15s^ q/a q/commit q/a+ turn @1m turn")
	s.wantState("q", ledger.StateCommitted, "a=held")
	s.wantState("p", ledger.StateOpen, "plan:q=held")
	s.wantRefolded()
}

// TestWhatAnEarlierHolderHasTakenUpAgainIsLeft: a condition of a committed child that it holds does
// not stop the tenant under the next one, nor wake it without end.
func TestWhatAnEarlierHolderHasTakenUpAgainIsLeft(t *testing.T) {
	s := newSchedule(t)
	s.audit = nil // it has never held it
	s.underHolder(ledger.GivenUpSince - 1)
	s.play("open q/open:idle=15s^ q/a q/commit q/a+")
	s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, &pb.Record{
		Term: 3, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h2", FoldVersion: FoldVersion}}}))
	s.play("@1m turn turn")
	s.wantState("q", ledger.StateCommitted, "a=held")
	if ns, wakes := s.state.NextWake(); wakes && ns <= s.now {
		t.Errorf("it is woken at %d, and it is %d", ns, s.now)
	}
	s.play("commit @2m turn")
	s.wantState("p", ledger.StateCommitted, "plan:q=retired")
}
