package coordinator

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestAnIDIsOfOneAction: the same id with another capability is another action, and what has
// run does not run again under it, whatever has become of it.
func TestAnIDIsOfOneAction(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		p := begin(t, start(t, store, nil), PlanSpec{})
		other := write("a")
		other.Capability = "file.read"
		mustDo(t, p, write("a"))
		_, err := p.Do(t.Context(), other, never(t))
		wantRefused(t, err, "action.id")
		wantRefused(t, p.Report(t.Context(), other, Outcome{}), "action.id")
		_, err = p.Do(t.Context(), write("a"), never(t))
		wantRefused(t, err, "action.id")
		wantRefused(t, p.Report(t.Context(), write("a"), Outcome{}), "action.id")
		_, err = p.Do(t.Context(), write("b"), func(context.Context, Call) (Outcome, error) {
			return Outcome{}, fmt.Errorf("no: %w", ErrNotTaken)
		})
		wantIs(t, err, ErrNotTaken)
		_, err = p.Do(t.Context(), write("b"), never(t))
		wantRefused(t, err, "action.id")
		if err := p.Commit(t.Context()); err == nil {
			t.Error("a commit that nobody confirms is no error")
		}
		want := "plan_opened forward_registered/a compensation_registered/a forward_completed/a " +
			"forward_registered/b compensation_registered/b forward_failed/b plan_committed"
		if got := effective(t, store, p.ID()); got != want {
			t.Errorf("the ledger holds %s", got)
		}
	})
}

// TestAReportIsRepeatedAsItWas: what it says of the effect is a part of it.
func TestAReportIsRepeatedAsItWas(t *testing.T) {
	in(t, func(t *testing.T) {
		p := begin(t, start(t, memory(), nil), PlanSpec{})
		mustDo(t, p, write("z"))
		a, was := write("a"), Outcome{Output: 1, ExternalRef: "r"}
		a.After = []string{"z"}
		for range 2 {
			if err := p.Report(t.Context(), a, was); err != nil {
				t.Fatal(err)
			}
		}
		for _, other := range []Outcome{{Output: 2, ExternalRef: "r"}, {Output: 1}, {ExternalRef: "r"}} {
			wantRefused(t, p.Report(t.Context(), a, other), "action.id")
		}
		branch, pivot, after := a, a, a
		branch.Branch, pivot.Pivot, after.After = true, true, nil
		for _, other := range []Action{branch, pivot, after} {
			wantRefused(t, p.Report(t.Context(), other, was), "action.id")
		}
	})
}

// TestARetryIsOfTheSameAction: a call that has given up has left its pair after. The next
// one with that id runs under it, and so must be of the same capability and input.
func TestARetryIsOfTheSameAction(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		g := newGate(store)
		p := begin(t, start(t, g, nil), PlanSpec{})
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Do(soon, write("a"), never(t))
		wantIs(t, err, ledger.ErrInDoubt)
		close(g.open)
		synctest.Wait()
		capability, input := write("a"), write("a")
		capability.Capability, input.Input = "file.read", map[string]any{"path": "/tmp/b"}
		for _, other := range []Action{capability, input} {
			_, err := p.Do(t.Context(), other, never(t))
			wantRefused(t, err, "action.id")
			wantRefused(t, p.Report(t.Context(), other, Outcome{}), "action.id")
		}
		wantRefused(t, p.Report(t.Context(), write("a"), Outcome{}), "action.id")
		mustDo(t, p, write("a"))
	})
}

// TestNothingComesAfterAnActionThatIsNotThere: one whose pair the ledger has refused is none.
func TestNothingComesAfterAnActionThatIsNotThere(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		p := begin(t, start(t, store, nil), PlanSpec{})
		mustDo(t, p, write("a"))
		store.Fault = func(ledger.Append) ledger.Fault { return ledger.FaultRefused }
		_, err := p.Do(t.Context(), write("b"), never(t))
		wantRefused(t, err, "stream")
		store.Fault = nil
		for _, after := range []string{"b", "c", "nobody"} {
			c := write("c")
			c.After = []string{"a", after}
			_, err := p.Do(t.Context(), c, never(t))
			wantRefused(t, err, "action.after[1]")
		}
		c := write("c")
		c.After = []string{"a"}
		mustDo(t, p, c)
	})
}

// TestAnAnswerThatTookLongIsAskedForAgain: that the plan was open when an executor looked
// says nothing of now.
func TestAnAnswerThatTookLongIsAskedForAgain(t *testing.T) {
	in(t, func(t *testing.T) {
		asked := 0
		e := &executor{serve: map[string]func([]byte) any{
			api.QuerySubject(tenant, "plan.outcome"): func([]byte) any {
				if asked++; asked == 1 {
					elapse(startSlack + 1)
					return api.OutcomeAnswer{State: ledger.StateOpen}
				}
				return api.OutcomeAnswer{State: ledger.StateUnwinding, Reason: "sold"}
			},
		}}
		g := newGate(memory())
		p := begin(t, startLimited(t, g, e, limited(0, time.Hour)), PlanSpec{})
		time.AfterFunc(startSlack+1, func() { close(g.open) })
		_, err := p.Do(t.Context(), write("a"), never(t))
		wantIs(t, err, ErrUnwinding)
		if asked != 2 {
			t.Errorf("%d questions", asked)
		}
	})
}

// TestWhatHasHappenedWaitsForNoVerdict: where a contract asks for a review, a report is no
// exception to the report: the effect has crossed, and a verdict on it is like any other.
func TestWhatHasHappenedWaitsForNoVerdict(t *testing.T) {
	in(t, func(t *testing.T) {
		store, c := memory(), contracts()[0]
		c.Review = true
		p := begin(t, startLimited(t, store, nil, c), PlanSpec{})
		if err := p.Report(t.Context(), write("a"), Outcome{}); err != nil {
			t.Fatal(err)
		}
		f := find(t, store, "forward_registered/a").GetForwardRegistered()
		if f.Review || !f.EffectCrossed {
			t.Errorf("registered %v", f)
		}
	})
}

// TestACommitHasSoManyRecordsAtMost: of small ones, too, no more are queued for one commit
// than a commit takes.
func TestACommitHasSoManyRecordsAtMost(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		g := newGate(store)
		c := start(t, g, nil)
		p := begin(t, c, PlanSpec{})
		first := make(chan error, 1)
		go func() { first <- p.Savepoint(t.Context(), "first") }() // ends with its answer
		synctest.Wait()
		var wait sync.WaitGroup
		const more = ledger.CommitLenMax + 20 // a record of 20 bytes each
		for i := range more {
			wait.Go(func() {
				q := begin(t, c, PlanSpec{})
				if err := q.Savepoint(t.Context(), fmt.Sprint(i)); err != nil {
					t.Errorf("savepoint %d: %v", i, err)
				}
			})
		}
		synctest.Wait()
		close(g.open)
		wait.Wait()
		if err := <-first; err != nil {
			t.Error(err)
		}
		records, commits := 0, stored(t, store)
		for _, c := range commits {
			if records += len(c.records); len(c.records) > ledger.CommitLenMax {
				t.Errorf("a commit of %d records", len(c.records))
			}
		}
		if want := 2 * (more + 1); records != want {
			t.Errorf("%d records in %d commits, want %d", records, len(commits), want)
		}
	})
}
