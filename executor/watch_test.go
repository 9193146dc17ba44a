package executor_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestManyWatchersOfAFactAreRowsOfTheirOwn, and few of them one row; both are
// given up whole.
func TestManyWatchersOfAFactAreRowsOfTheirOwn(t *testing.T) {
	s := newSchedule(t)
	for i := range 3 * WatchersInline {
		plan := fmt.Sprintf("p%02d", i)
		s.must(s.agent(plan, opened(0, when("halt", fmt.Sprintf(`facts["x"].n == %d`, i)))))
	}
	s.state.Flush()
	if few, many := s.state.Watching("x"); many != 3*WatchersInline || few != 0 {
		t.Fatal(few, many)
	}
	for i := range 3 * WatchersInline {
		s.must(s.agent(fmt.Sprintf("p%02d", i), planCommitted()))
		s.state.Flush()
		if err := CheckRows(t, s.kv); err != nil {
			t.Fatalf("after %d: %v", i, err)
		}
		if err := CheckKept(s.state, s); err != nil {
			t.Fatalf("after %d: %v", i, err)
		}
	}
	if few, many := s.state.Watching("x"); many != 0 {
		t.Fatal(few, many)
	}
}

// TestEqualConditionsAreAskedOnce: a hundred plans hold one condition; a fact asks
// it once, and when it turns true they all unwind.
func TestEqualConditionsAreAskedOnce(t *testing.T) {
	s := newSchedule(t)
	const plans = 100
	for i := range plans {
		s.must(s.agent(fmt.Sprintf("p%03d", i),
			opened(0, when("halt", fmt.Sprintf(`facts["market"].halted == true // %d`, i)))))
	}
	s.state.Flush()
	if !s.state.OneNode("market") {
		t.Fatal("another watcher than a node")
	}
	s.play(`fact:market={"halted":false} turn`)
	if got := s.show("p000").State; got != "open" {
		t.Fatal(got)
	}
	s.play(`fact:market={"halted":true} turn`)
	for i := range plans {
		if got := s.show(fmt.Sprintf("p%03d", i)).State; got != "failed" { // nothing to undo
			t.Fatal(i, got)
		}
	}
	if err := CheckRows(t, s.kv); err != nil {
		t.Fatal(err)
	}
}

// TestALeaseOfAnActionCountsActions: it turns when a later action is registered.
func TestALeaseOfAnActionCountsActions(t *testing.T) {
	s := newSchedule(t)
	s.play("open")
	s.must(s.agent("p", pair("a", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.Triggers = []*pb.Trigger{when("third", "plan.step >= 3")}
	})...))
	s.play("a+ b b+ turn")
	s.wantState("p", "open", "a=held b=held")
	s.play("c c+ turn")
	s.wantState("p", "compensated", "a=compensated b=compensated c=compensated")
}

// TestALeaseJoinsEqualOnesAfterTheirFlip: what time has made true since the others
// were asked is true for the one that is armed now.
func TestALeaseJoinsEqualOnesAfterTheirFlip(t *testing.T) {
	s := newSchedule(t)
	condition := `absent_for("c", at("a"), duration("5s"))`
	s.play(`fact:a=1`)
	s.must(s.agent("p", opened(0, when("mine", condition))))
	s.now = epoch0 + 6*second // nobody looks at 5 s
	s.must(s.agent("q", opened(0, when("mine", condition))))
	s.play(`fact:a=1 turn`) // the window is open again
	for plan, want := range map[string]string{"p": "open", "q": "failed"} {
		if got := s.show(plan).State; got != want {
			t.Errorf("plan %s is %s, want %s", plan, got, want)
		}
	}
}

// TestAComputedKeyBehindAFlipIsWatched: a key that is read only once time has flipped
// what stands before it wakes its lease all the same.
func TestAComputedKeyBehindAFlipIsWatched(t *testing.T) {
	s := newSchedule(t)
	r := opened(0, when("mine", `elapsed(plan.opened_at, duration("5s")) ? facts[plan.labels.l] == 1 : false`))
	r.GetPlanOpened().Labels = []*pb.Label{{Key: "l", Value: "x"}}
	s.must(s.agent("p", r))
	s.play("@5s @6s")
	if got := s.show("p").State; got != "open" {
		t.Fatal(got)
	}
	s.play("fact:x=1 turn")
	if got := s.show("p").State; got != "failed" {
		t.Fatalf("it sleeps: %s", got)
	}
}

// TestAChildPlanCountsAsAnActionOfItsParent, and wakes who counts them.
func TestAChildPlanCountsAsAnActionOfItsParent(t *testing.T) {
	s := newSchedule(t)
	s.must(s.agent("p", opened(0, when("many", "plan.actions >= 2"))))
	s.play("a a+ turn q/open^ turn")
	if got := s.show("p").State; got == "open" {
		t.Fatal("it sleeps")
	}
}

// TestAFiringMustHoldWhereItLands: a stamp ahead of the decider's clock has closed the
// guard; nothing is decided that the ledger would not take.
func TestAFiringMustHoldWhereItLands(t *testing.T) {
	s := newSchedule(t)
	s.must(s.agent("p",
		opened(0, when("mine", `elapsed(plan.opened_at, duration("2s")) && before(timestamp("2026-01-02T03:04:10Z"))`))))
	s.now = epoch0 + 20*second
	s.play("fact:x=1")
	s.play("@3s @30s")
	if got := s.show("p").State; got != "open" {
		t.Fatal(got)
	}
}

// TestWhatTurnedOutlivesTheCommitOfAChild: a lease of a child's action that a fact
// made true fires, though the child was committed before anybody looked.
func TestWhatTurnedOutlivesTheCommitOfAChild(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ q/open^a")
	s.must(s.agent("q", pair("b", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.Triggers = []*pb.Trigger{when("burst", `count("x", duration("1s")) == 1`)}
	})...))
	s.play("q/b+ fact:x=1")
	s.now = epoch0 + 9*second
	s.play("q/commit turn")
	if got := s.show("p").State; got != "compensated" {
		t.Fatal(got)
	}
}

// TestAVerdictTurnsWhatIsHeldAfterTheCommit, also where a holder has restarted between: what is kept
// of a condition is what the rows say.
func TestAVerdictTurnsWhatIsHeldAfterTheCommit(t *testing.T) {
	for _, line := range []string{
		"judge:b=allow fact:k=1 turn", "fact:k=1 judge:b=allow turn", "judge:b=allow turn fact:k=1 fact:k=2 turn",
		"judge:b=redirect fact:k=1 judge:b=allow turn",
	} {
		s := newSchedule(t)
		s.play("open")
		s.agent("p", pair("b", func(f *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			c.ValidForNs = int64(time.Hour)
			c.Triggers = append(c.Triggers, &pb.Trigger{Name: "x", AfterCommit: true,
				Condition: `"k" in facts && verdict.outcome == "allow"`})
		})...)
		s.play("b+ commit turn")
		for word := range strings.FieldsSeq(line) {
			s.play(word)
			s.state = OpenWith(s.kv, "t", s, s.programs)
		}
		if got := s.show("p~1").State; got != ledger.StateCompensated {
			t.Errorf("%s: %s, p~1 is %s", line, s.outcome(), got)
		}
		s.wantRefolded()
	}
}

// TestWhatComesAfterManyWindowsUndoesNothing: they close at one instant, more than are given up
// before one record, and the next record would turn the conditions of those that are left.
func TestWhatComesAfterManyWindowsUndoesNothing(t *testing.T) {
	for _, c := range []struct{ condition, late string }{
		{`elapsed(action.at, duration("1m")) && facts["k"] == 1`, "fact:k=1"},
		{`facts["k"] == 1`, "fact:k=1"},
		{`!("j" in facts)`, "forget:j"},
		{`verdict.outcome == "allow"`, "p65/judge:b=allow"},
	} {
		s := newSchedule(t)
		s.play("fact:j=1")
		for i := range 66 {
			id := fmt.Sprintf("p%02d", i)
			s.play(id + "/open")
			s.must(s.agent(id, pair("b", func(f *pb.ForwardRegistered, k *pb.CompensationRegistered) {
				k.ValidUntilNs = epoch0 + int64(time.Hour)
				k.Triggers = append(k.Triggers, &pb.Trigger{Name: "x", AfterCommit: true, Condition: c.condition})
			})...))
			s.play(id + "/b+ " + id + "/commit")
		}
		s.play("turn")
		s.now = epoch0 + int64(time.Hour) + int64(time.Minute)
		s.play(c.late + " turn fact:z=1 turn fact:z=2 turn")
		for i := range 66 {
			if id := fmt.Sprintf("p%02d~1", i); s.planOf(id) != nil {
				t.Fatalf("%s, %s: %s is %s", c.condition, c.late, id, s.show(id).State)
			}
		}
		if held := s.state.Meta().Conditions; held != 0 {
			t.Errorf("%s, %s: %d conditions are held", c.condition, c.late, held)
		}
		s.wantRefolded()
	}
}

// TestWhatWasTrueBeforeTheCommitTurnsWithIt: a condition on the clock that had turned when its plan
// was committed fires, also where it is one that others share, and is over by the next decision.
func TestWhatWasTrueBeforeTheCommitTurnsWithIt(t *testing.T) {
	s := newSchedule(t)
	s.play("open fact:k=1 fact:k=2 fact:k=3")
	s.must(s.agent("p", pair("a", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.ValidForNs = int64(time.Hour)
		c.Triggers = []*pb.Trigger{{Name: "own", AfterCommit: true,
			Condition: `at_least(3, "k", duration("60s"))`}}
	})...))
	s.play("a+ commit @2m turn")
	s.wantState("p~1", ledger.StateCompensated, "a=compensated")
	s.wantRefolded()
}
