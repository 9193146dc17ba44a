package coordinator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

var (
	isOpen      = api.OutcomeAnswer{State: ledger.StateOpen}
	isUnwinding = api.OutcomeAnswer{State: ledger.StateUnwinding, Reason: "wrong hotel"}
)

func mustSet(t *testing.T, p *Plan, name string) {
	t.Helper()
	if err := p.Savepoint(t.Context(), name); err != nil {
		t.Fatal(err)
	}
}

func TestS61APlanGoesOnAfterItWentBackToASavepoint(t *testing.T) {
	in(t, func(t *testing.T) {
		store, e := memory(), &executor{script: []api.OutcomeAnswer{isUnwinding, isUnwinding, isOpen}}
		p := begin(t, start(t, store, e), PlanSpec{})
		mustDo(t, p, write("a"))
		mustSet(t, p, "s1")
		mustDo(t, p, write("b"))
		done := make(chan error, 1)
		go func() { done <- p.UnwindTo(t.Context(), "s1", "wrong hotel") }()
		synctest.Wait()
		_, err := p.Do(t.Context(), write("c"), never(t))
		wantIs(t, err, ErrUnwinding)
		wantIs(t, p.Savepoint(t.Context(), "s2"), ErrUnwinding)
		wantIs(t, p.Commit(t.Context()), ErrUnwinding)
		_, err = p.Begin(t.Context(), PlanSpec{})
		wantIs(t, err, ErrUnwinding)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		mustDo(t, p, write("d"))
		wantLines(t, store, pairOfA,
			"forward_completed/a savepoint_set",
			"forward_registered/b compensation_registered/b",
			"forward_completed/b unwind_requested",
			"forward_registered/d compensation_registered/d")
		if u := find(t, store, "unwind_requested").GetUnwindRequested(); u.ToSavepoint != "s1" || u.Reason != "wrong hotel" ||
			u.Number != 1 {
			t.Errorf("asked for %v", u)
		}
		if q := e.asked[0]; q.Sequence != 4 || q.Plan != p.ID() || q.Ended {
			t.Errorf("asked %+v", q)
		}
	})
}

func TestS61ANoticeSaysThatThePlanIsOpenAgain(t *testing.T) {
	in(t, func(t *testing.T) {
		e := &executor{script: []api.OutcomeAnswer{isUnwinding}}
		p := begin(t, start(t, memory(), e), PlanSpec{})
		mustSet(t, p, "s1")
		done := make(chan error, 1)
		go func() { done <- p.UnwindTo(t.Context(), "s1", "x") }()
		elapse(time.Minute)
		began := time.Now()
		e.say(isOpen)
		e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateUnwinding})
		e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, Savepoint: "another"}) // of an unwind before
		e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, Savepoint: "s1"})
		if err := <-done; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it waited %v after the notice", took)
		}
		mustDo(t, p, write("a"))
	})
}

// TestLateNoticesOfARewindingStopNothing: the answer to a question may come before
// the notices that were sent before it.
func TestLateNoticesOfARewindingStopNothing(t *testing.T) {
	in(t, func(t *testing.T) {
		e := &executor{script: []api.OutcomeAnswer{isOpen}}
		p := begin(t, start(t, memory(), e), PlanSpec{})
		mustSet(t, p, "s1")
		done := make(chan error, 1)
		go func() { done <- p.UnwindTo(t.Context(), "s1", "x") }()
		synctest.Wait()
		e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateUnwinding})
		e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, Savepoint: "s1"})
		if err := <-done; err != nil {
			t.Error(err)
		}
		mustDo(t, p, write("a"))
	})
}

// TestAnUnwindThatHasNotBegunIsNotOver: the plan is open until the executor begins,
// and a late notice of the rewinding before says nothing about this one.
func TestAnUnwindThatHasNotBegunIsNotOver(t *testing.T) {
	in(t, func(t *testing.T) {
		store, e := memory(), &executor{script: []api.OutcomeAnswer{{State: ledger.StateOpen,
			Reason: "back to savepoint s1"}}}
		p := begin(t, start(t, store, e), PlanSpec{})
		mustSet(t, p, "s1")
		done := make(chan error, 1)
		go func() { done <- p.UnwindTo(t.Context(), "s1", "") }()
		synctest.Wait()
		e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, Savepoint: "s1"}) // of one before
		elapse(time.Minute)
		select {
		case err := <-done:
			t.Fatalf("it is over before it began: %v", err)
		default:
		}
		_, err := p.Do(t.Context(), write("a"), never(t))
		wantIs(t, err, ErrUnwinding)
		if u := find(t, store, "unwind_requested").GetUnwindRequested(); u.Reason != "back to savepoint s1" {
			t.Errorf("asked for %v", u) // without a reason, no one could tell that it has not begun
		}
		e.say(isUnwinding, isOpen)
		if err := <-done; err != nil {
			t.Error(err)
		}
		mustDo(t, p, write("a"))
	})
}

// TestANoticeOpensAPlanThatNoCallWaitsFor: its UnwindTo has given up.
func TestANoticeOpensAPlanThatNoCallWaitsFor(t *testing.T) {
	in(t, func(t *testing.T) {
		e := &executor{script: []api.OutcomeAnswer{isUnwinding}}
		p := begin(t, start(t, memory(), e), PlanSpec{})
		mustSet(t, p, "s1")
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		e.serve = map[string]func([]byte) any{api.QuerySubject(tenant, "plan.outcome"): func([]byte) any {
			if time.Since(began) < 59*time.Second || ctx.Err() != nil {
				return isUnwinding
			}
			<-ctx.Done() // the last question is cut off
			return ctx.Err()
		}}
		err := p.UnwindTo(ctx, "s1", "x")
		if wantIs(t, err, context.DeadlineExceeded); !strings.Contains(err.Error(), "it is still unwinding") {
			t.Error(err)
		}
		_, err = p.Do(t.Context(), write("a"), never(t))
		wantIs(t, err, ErrUnwinding)
		e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, Savepoint: "s1"})
		mustDo(t, p, write("a"))
	})
}

// TestWhatARewindingGivesUpSaysSo: its forward was waiting for a verdict.
func TestWhatARewindingGivesUpSaysSo(t *testing.T) {
	in(t, func(t *testing.T) {
		store, e := memory(), &executor{script: []api.OutcomeAnswer{isOpen}}
		p := begin(t, start(t, store, e), PlanSpec{})
		mustSet(t, p, "s1")
		reviewed := write("b")
		reviewed.Review = true
		done := make(chan error, 1)
		go func() {
			_, err := p.Do(t.Context(), reviewed, never(t))
			done <- err
		}()
		synctest.Wait()
		if err := p.UnwindTo(t.Context(), "s1", "x"); err != nil {
			t.Fatal(err)
		}
		wantIs(t, <-done, ErrUnwinding)
		if f := find(t, store, "forward_failed/b").GetForwardFailed(); f.Code != codeNotStarted {
			t.Errorf("recorded %v", f)
		}
		_, err := p.Do(t.Context(), reviewed, never(t))
		wantRefused(t, err, "action.id")
	})
}

// TestSavepointsAndRequestsAreNumberedUpwards: none is taken for a copy of another,
// also where one before was refused.
func TestSavepointsAndRequestsAreNumberedUpwards(t *testing.T) {
	in(t, func(t *testing.T) {
		refusal := api.OutcomeAnswer{State: ledger.StateOpen, Refused: []string{"no"}}
		store, e := memory(), &executor{script: []api.OutcomeAnswer{refusal}}
		p := begin(t, start(t, store, e), PlanSpec{})
		mustSet(t, p, "s1")
		store.Fault = func(ledger.Append) ledger.Fault { return ledger.FaultRefused }
		for range 2 {
			wantRefused(t, p.Savepoint(t.Context(), "s2"), "stream")
		}
		if err := p.UnwindTo(t.Context(), "s1", "x"); !isRefused(err) {
			t.Error(err)
		}
		store.Fault = nil
		mustSet(t, p, "s3")
		wantRefused(t, p.UnwindTo(t.Context(), "s1", "x"), "unwind_requested.to_savepoint")
		e.say(isOpen)
		for range 2 {
			if err := p.UnwindTo(t.Context(), "s1", "x"); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for _, c := range stored(t, store) {
			for _, r := range c.records {
				switch k := r.Kind.(type) {
				case *pb.Record_SavepointSet:
					got = append(got, fmt.Sprint(k.SavepointSet.Name, k.SavepointSet.Number))
				case *pb.Record_UnwindRequested:
					got = append(got, fmt.Sprint(">", k.UnwindRequested.Number))
				}
			}
		}
		if text := strings.Join(got, " "); text != "s11 s34 >2 >3 >4" {
			t.Errorf("the ledger holds %s", text)
		}
	})
}

func TestAnOperatorsRewindingIsANoticeToo(t *testing.T) {
	in(t, func(t *testing.T) {
		e := &executor{}
		p := begin(t, start(t, memory(), e), PlanSpec{})
		mustSet(t, p, "s1")
		mustDo(t, p, write("a"))
		mustSet(t, p, "s2")
		e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateUnwinding})
		_, err := p.Do(t.Context(), write("b"), never(t))
		wantIs(t, err, ErrUnwinding)
		e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, Savepoint: "s1"})
		mustDo(t, p, write("b"))
		wantRefused(t, p.UnwindTo(t.Context(), "s2", "x"), "unwind_requested.to_savepoint") // gone with what came before it
		mustSet(t, p, "s2")
	})
}

// TestAnAgentHearsOfAnothersRewinding once, by the next call; not of its own, whose notice may come
// late or twice.
func TestAnAgentHearsOfAnothersRewinding(t *testing.T) {
	in(t, func(t *testing.T) {
		e := &executor{}
		p := begin(t, start(t, memory(), e), PlanSpec{})
		mustSet(t, p, "s1")
		mustDo(t, p, write("a"))
		e.say(isOpen)
		if err := p.UnwindTo(t.Context(), "s1", "x"); err != nil {
			t.Fatal(err)
		}
		e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, Savepoint: "s1", Asked: p.wentBack[0], At: 1 << 40})
		mustDo(t, p, write("b"))
		operators := api.Notice{Plan: p.ID(), State: ledger.StateOpen, Savepoint: "s1", Asked: 1 << 50, At: 1 << 51,
			Reason: "wrong dates"}
		e.notify(t, operators)
		var part *PartUndone
		_, err := p.Do(t.Context(), write("c"), never(t))
		if !errors.As(err, &part) || part.Savepoint != "s1" || len(part.Parts) != 1 || part.Reason != "wrong dates" ||
			!strings.Contains(part.Error(), "all that came after savepoint s1 (wrong dates)") {
			t.Errorf("told %v", err)
		}
		e.notify(t, operators)
		mustDo(t, p, write("c"))
	})
}

// TestAPartTakesItsSavepointsWithIt, as the ledger does; one that was set after it stays, although
// the notice comes later.
func TestAPartTakesItsSavepointsWithIt(t *testing.T) {
	for _, late := range []bool{false, true} {
		in(t, func(t *testing.T) {
			store, e := memory(), &executor{}
			p := begin(t, start(t, store, e), PlanSpec{})
			mustDo(t, p, write("a"))
			mustSet(t, p, "before")
			mustDo(t, p, write("b"))
			mustSet(t, p, "s")
			at := uint64(1 << 40)
			if late {
				at = p.savepoint("s").bundle.seq
			}
			e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, FromAction: "b", Parts: 1, At: at})
			wantIs(t, p.Savepoint(t.Context(), "after"), ErrPartUndone)
			if _, ok := p.HasSavepoint("before"); !ok {
				t.Error("a savepoint before the part is gone")
			}
			if _, ok := p.HasSavepoint("s"); ok != late {
				t.Errorf("late %v: there is a savepoint %v", late, ok)
			}
			if !late {
				wantRefused(t, p.UnwindTo(t.Context(), "s", "x"), "unwind_requested.to_savepoint")
				mustSet(t, p, "s")
			}
		})
	}
}

func TestSavepointsThatNothingWasUndoneBeforeStay(t *testing.T) {
	in(t, func(t *testing.T) {
		e := &executor{script: []api.OutcomeAnswer{isOpen}}
		c := start(t, memory(), e)
		p := begin(t, c, PlanSpec{})
		mustSet(t, p, "s1")
		mustSet(t, p, "same")
		child, err := p.Begin(t.Context(), PlanSpec{})
		if err != nil {
			t.Fatal(err)
		}
		mustDo(t, child, write("a"))
		mustSet(t, p, "behind-a-child")
		if err := p.UnwindTo(t.Context(), "s1", "x"); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, p.UnwindTo(t.Context(), "behind-a-child", "x"), "unwind_requested.to_savepoint")
		if err := p.UnwindTo(t.Context(), "same", "x"); err != nil {
			t.Error(err)
		}
	})
}

func TestBadSavepointsAreRefusedAndNothingChanges(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		e := &executor{script: []api.OutcomeAnswer{isOpen}}
		p := begin(t, start(t, store, e), PlanSpec{})
		mustSet(t, p, "s1")
		before := lines(t, store)
		for _, bad := range []struct {
			field string
			err   error
		}{
			{"savepoint_set.name", p.Savepoint(t.Context(), "s1")},
			{"savepoint_set.name", p.Savepoint(t.Context(), "a b")},
			{"unwind_requested.to_savepoint", p.UnwindTo(t.Context(), "s9", "x")},
			{"unwind_requested.to_savepoint", p.UnwindTo(t.Context(), "", "x")},
		} {
			wantRefused(t, bad.err, bad.field)
		}
		wantLines(t, store, before)
		elapse(time.Second) // a call returns before its place is given back
		if n := len(p.c.committer.places); n != 0 {
			t.Errorf("%d places are taken", n)
		}
		mustDo(t, p, write("a"))
		lonely := begin(t, start(t, memory(), nil), PlanSpec{})
		mustSet(t, lonely, "s1")
		wantRefused(t, lonely.UnwindTo(t.Context(), "s1", "x"), "config.conn")
	})
}

func TestTheLedgersRefusalOfASavepointIsTyped(t *testing.T) {
	in(t, func(t *testing.T) {
		e := &executor{script: []api.OutcomeAnswer{{State: ledger.StateOpen, Refused: []string{"plan p has no savepoint"}}}}
		p := begin(t, start(t, memory(), e), PlanSpec{})
		mustSet(t, p, "s1")
		err := p.UnwindTo(t.Context(), "s1", "x")
		wantRefused(t, err, "unwind_requested.to_savepoint")
		if !strings.Contains(err.Error(), "plan p has no savepoint") {
			t.Error(err)
		}
		mustDo(t, p, write("a")) // nothing has changed
	})
}

func TestARewindingThatDoesNotOpenThePlan(t *testing.T) {
	for _, state := range []string{ledger.StateCompensated, ledger.StateQuarantined} {
		in(t, func(t *testing.T) {
			e := &executor{script: []api.OutcomeAnswer{isUnwinding, {State: state, Reason: "deadline"}}}
			p := begin(t, start(t, memory(), e), PlanSpec{})
			mustSet(t, p, "s1")
			err := p.UnwindTo(t.Context(), "s1", "x")
			wantIs(t, err, ErrUnwound)
			if !strings.Contains(err.Error(), state) {
				t.Error(err)
			}
			_, err = p.Do(t.Context(), write("a"), never(t))
			wantIs(t, err, ErrUnwinding)
			e.say(isOpen) // its owner has ended the quarantine
			if err := p.UnwindTo(t.Context(), "s1", "x"); err != nil {
				t.Error(err)
			}
			mustDo(t, p, write("a"))
		})
	}
}

func TestARewindingInDoubtGoesOnWhereItWas(t *testing.T) {
	in(t, func(t *testing.T) {
		store, e := memory(), &executor{script: []api.OutcomeAnswer{isUnwinding}}
		g := newGate(store)
		p := begin(t, start(t, g, e), PlanSpec{})
		err := p.Savepoint(t.Context(), "s1")
		wantIs(t, err, ledger.ErrInDoubt)
		close(g.open)
		mustSet(t, p, "s1") // the same one
		wantRefused(t, p.Savepoint(t.Context(), "s1"), "savepoint_set.name")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		wantIs(t, p.UnwindTo(ctx, "s1", "x"), context.DeadlineExceeded)
		_, err = p.Do(t.Context(), write("a"), never(t))
		wantIs(t, err, ErrUnwinding)
		e.say(isOpen)
		if err := p.UnwindTo(t.Context(), "s1", "x"); err != nil {
			t.Error(err)
		}
		wantLines(t, store, "plan_opened savepoint_set", "unwind_requested")
	})
}

func TestARewindingInterruptsWhatCameAfterTheSavepointOnly(t *testing.T) {
	in(t, func(t *testing.T) {
		store, e := memory(), &executor{script: []api.OutcomeAnswer{isOpen}}
		p := begin(t, start(t, store, e), PlanSpec{})
		finish, done := make(chan struct{}), make(chan error, 2)
		long := func(ctx context.Context, c Call) (Outcome, error) {
			select {
			case <-ctx.Done():
				return Outcome{}, context.Cause(ctx)
			case <-finish:
				return happens(ctx, c)
			}
		}
		do := func(id string) {
			go func() {
				_, err := p.Do(t.Context(), write(id), long)
				done <- err
			}()
			synctest.Wait()
		}
		do("a")
		mustSet(t, p, "s1")
		do("b")
		if err := p.UnwindTo(t.Context(), "s1", "x"); err != nil {
			t.Fatal(err)
		}
		wantIs(t, <-done, ErrUnwinding)
		close(finish)
		if err := <-done; err != nil {
			t.Error(err)
		}
		elapse(LingerMax)
		if got := effective(t, store, p.ID()); !strings.HasSuffix(got,
			"forward_in_doubt/b unwind_requested forward_completed/a") {
			t.Errorf("the ledger holds %s", got)
		}
	})
}

func TestARewindingGivesUpWhatWasNeverCalled(t *testing.T) {
	in(t, func(t *testing.T) {
		store, e := memory(), &executor{script: []api.OutcomeAnswer{isOpen}}
		p := begin(t, start(t, store, e), PlanSpec{})
		hold := func(id string) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := p.Do(ctx, reviewed(id), never(t))
			wantIs(t, err, context.DeadlineExceeded)
		}
		hold("a")
		mustSet(t, p, "s1")
		hold("b")
		if err := p.UnwindTo(t.Context(), "s1", "x"); err != nil {
			t.Fatal(err)
		}
		if code := find(t, store, "forward_failed/b").GetForwardFailed().Code; code != "not_started" {
			t.Errorf("code %s", code)
		}
		e.say(api.OutcomeAnswer{State: ledger.StateOpen, Verdict: "allow"})
		if _, err := p.Do(t.Context(), reviewed("a"), happens); err != nil {
			t.Error(err)
		}
	})
}

func TestARewindingThatWasRefusedAfterItsCallerGaveUp(t *testing.T) {
	in(t, func(t *testing.T) {
		store, e := memory(), &executor{script: []api.OutcomeAnswer{isOpen}}
		var g *gate
		p := begin(t, start(t, appenderFunc(func(ctx context.Context, a ledger.Append) (uint64, error) {
			if g != nil {
				return g.Append(ctx, a)
			}
			return store.Append(ctx, a)
		}), e), PlanSpec{})
		mustSet(t, p, "s1")
		store.Fault = func(ledger.Append) ledger.Fault { return ledger.FaultRefused }
		g = newGate(store)
		done := make(chan error, 1)
		go func() { done <- p.UnwindTo(t.Context(), "s1", "x") }()
		elapse(appendAttemptMax / 2)
		close(g.open)
		if err := <-done; err == nil {
			t.Error("the ledger took nothing, and the plan was rewound")
		}
		store.Fault = nil
		mustDo(t, p, write("a"))
	})
}

type appenderFunc func(context.Context, ledger.Append) (uint64, error)

func (f appenderFunc) Append(ctx context.Context, a ledger.Append) (uint64, error) { return f(ctx, a) }

func TestS61AChildsParentIsInTheLedgerFirst(t *testing.T) {
	in(t, func(t *testing.T) {
		store, e := memory(), &executor{script: []api.OutcomeAnswer{{State: ledger.StateCommitted}}}
		c := start(t, store, e)
		parent := begin(t, c, PlanSpec{})
		mustDo(t, parent, write("a"))
		child, err := parent.Begin(t.Context(), PlanSpec{ParentAction: "a"})
		if err != nil {
			t.Fatal(err)
		}
		wantLines(t, store, pairOfA, "forward_completed/a")
		mustDo(t, child, write("b"))
		if err := child.Commit(t.Context()); err != nil {
			t.Error(err)
		}
		opened := stored(t, store)[2].records[0]
		if o := opened.GetPlanOpened(); opened.Plan != child.ID() || o.ParentPlan != parent.ID() || o.ParentAction != "a" {
			t.Errorf("opened %v", opened)
		}
		_, err = parent.Begin(t.Context(), PlanSpec{Parent: "another"})
		wantRefused(t, err, "plan.parent")
		_, err = parent.Begin(t.Context(), PlanSpec{ParentAction: "z"})
		wantRefused(t, err, "plan.parent_action")
		if _, err = c.Begin(t.Context(), PlanSpec{Parent: "unknown-here"}); err != nil {
			t.Error(err)
		}
		if err := parent.Fail(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		_, err = parent.Begin(t.Context(), PlanSpec{})
		wantIs(t, err, ErrClosed)
	})
}

func TestAPivotIsRegisteredAsOne(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		p := begin(t, start(t, store, nil), PlanSpec{})
		a := write("a")
		a.Pivot = true
		mustDo(t, p, a)
		mustDo(t, p, write("b"))
		if !find(t, store, "forward_registered/a").GetForwardRegistered().Pivot ||
			find(t, store, "forward_registered/b").GetForwardRegistered().Pivot {
			t.Error("not the one that was declared")
		}
	})
}

// TestAProcessOfAnotherAgentMayBeCalledTheSame: whose process writes a plan that was handed over is
// part of the answer.
func TestAProcessOfAnotherAgentMayBeCalledTheSame(t *testing.T) {
	in(t, func(t *testing.T) {
		p := begin(t, start(t, memory(), &executor{}), PlanSpec{})
		answer := api.OutcomeAnswer{State: ledger.StateOpen, Writer: p.c.writer, Agent: p.c.agent}
		p.heardAt(time.Now(), answer)
		mustDo(t, p, write("a"))
		answer.Agent = "heir"
		p.heardAt(time.Now(), answer)
		_, err := p.Do(t.Context(), write("b"), never(t))
		wantIs(t, err, ErrSuperseded)
	})
}
