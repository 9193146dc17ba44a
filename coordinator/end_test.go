package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

func TestCommitSaysWhatTheLedgerMadeOfIt(t *testing.T) {
	open := api.OutcomeAnswer{State: ledger.StateOpen}
	slow := api.OutcomeAnswer{Reason: "sequence 2 is not folded yet"}
	for _, c := range []struct {
		name   string
		script []api.OutcomeAnswer
		want   error
	}{
		{"committed", []api.OutcomeAnswer{{State: ledger.StateCommitted}}, nil},
		{"committed, after a while", []api.OutcomeAnswer{slow, open, {State: ledger.StateCommitted}}, nil},
		{"lost to a deadline", []api.OutcomeAnswer{{State: ledger.StateUnwinding, Reason: "deadline"}}, ErrUnwound},
		{"undone already", []api.OutcomeAnswer{{State: ledger.StateCompensated}}, ErrUnwound},
		{"quarantined already", []api.OutcomeAnswer{{State: ledger.StateQuarantined}}, ErrUnwound},
		{"never folded", []api.OutcomeAnswer{slow}, ErrUnconfirmed},
		{"no executor", nil, ErrUnconfirmed},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				store, e := memory(), &executor{script: c.script}
				p := begin(t, start(t, store, e), PlanSpec{})
				mustDo(t, p, write("a"))
				began := time.Now()
				err := p.Commit(t.Context())
				if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				if c.name == "undone already" {
					err := p.Fail(t.Context(), "no")
					if !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), "plan compensated") {
						t.Errorf("a plan that was undone is failed: %v", err)
					}
				}
				if took := time.Since(began); took > confirmTimeoutDefault {
					t.Errorf("it took %v", took)
				}
				wantLines(t, store, "plan_opened forward_registered/a compensation_registered/a",
					"forward_completed/a plan_committed")
				for _, q := range e.asked {
					if q.Plan != p.ID() || q.Sequence != 2 || q.Ended || q.WaitMs <= 0 || e.subject != "query.default.plan.outcome" {
						t.Errorf("asked %+v on %s", q, e.subject)
					}
				}
			})
		})
	}
}

func TestARefusedCommitSaysWhy(t *testing.T) {
	in(t, func(t *testing.T) {
		e := &executor{script: []api.OutcomeAnswer{{State: ledger.StateOpen, Refused: []string{"not the plan's agent"}}}}
		store := memory()
		c := start(t, store, e)
		p := begin(t, c, PlanSpec{})
		err := p.Commit(t.Context())
		wantRefused(t, err, "plan")
		if !strings.Contains(err.Error(), "not the plan's agent") {
			t.Error(err)
		}
		mustDo(t, p, write("a")) // the plan is open, and goes on
		e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateUnwinding})
		_, err = p.Do(t.Context(), write("b"), never(t))
		wantIs(t, err, ErrUnwinding)
		e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, Savepoint: "s"})
		e.say(api.OutcomeAnswer{State: ledger.StateCommitted})
		if err := p.Commit(t.Context()); err != nil {
			t.Error(err)
		}
		if n := len(c.openPlans()); n != 0 {
			t.Errorf("%d plans are kept", n)
		}
	})
}

func TestAnUnconfirmedCommitGoesOnWhereItWas(t *testing.T) {
	in(t, func(t *testing.T) {
		store, e := memory(), &executor{}
		p := begin(t, start(t, store, e), PlanSpec{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := p.Commit(ctx)
		wantIs(t, err, ErrUnconfirmed)
		wantIs(t, err, context.DeadlineExceeded)
		e.say(api.OutcomeAnswer{State: ledger.StateCommitted})
		if err := p.Commit(t.Context()); err != nil {
			t.Error(err)
		}
		wantLines(t, store, "plan_opened plan_committed")
	})
}

func TestWithoutAConnectionACommitIsStoredButUnconfirmed(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		p := begin(t, start(t, store, nil), PlanSpec{})
		wantIs(t, p.Commit(t.Context()), ErrUnconfirmed)
		wantLines(t, store, "plan_opened plan_committed")
		_, err := p.Wait(t.Context())
		wantRefused(t, err, "config.conn")
	})
}

func TestAPlanEndsOnce(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		c := start(t, store, nil)
		p := begin(t, c, PlanSpec{})
		for range 2 { // the second joins the first
			if err := p.Cancel(t.Context(), "not wanted"); err != nil {
				t.Fatal(err)
			}
		}
		wantIs(t, p.Fail(t.Context(), "x"), ErrClosed)
		wantIs(t, p.Commit(t.Context()), ErrClosed)
		wantIs(t, p.Report(t.Context(), write("a"), Outcome{}), ErrClosed)
		_, err := p.Do(t.Context(), write("a"), happens)
		wantIs(t, err, ErrClosed)
		wantLines(t, store, "plan_opened plan_cancelled")
		if n := len(c.openPlans()); n != 0 {
			t.Errorf("%d plans are kept", n)
		}
		if reason := find(t, store, "plan_cancelled").GetPlanCancelled().Reason; reason != "not wanted" {
			t.Errorf("reason %q", reason)
		}
	})
}

func TestACommitInDoubtIsTheOnlyEndThatMayBeTriedAgain(t *testing.T) {
	in(t, func(t *testing.T) {
		store, e := memory(), &executor{script: []api.OutcomeAnswer{{State: ledger.StateCommitted}}}
		g := newGate(store)
		p := begin(t, start(t, g, e), PlanSpec{})
		wantIs(t, p.Commit(t.Context()), ledger.ErrInDoubt)
		wantIs(t, p.Fail(t.Context(), "x"), ErrClosed)
		close(g.open)
		if err := p.Commit(t.Context()); err != nil {
			t.Error(err)
		}
		wantLines(t, store, "plan_opened plan_committed")
	})
}

// TestNoTextForPeopleStopsAnAct: a reason is often what a tool has printed.
func TestNoTextForPeopleStopsAnAct(t *testing.T) {
	stderr := strings.Repeat("caf\xe9 \U0001F600 ", ledger.CommitSizeMax)
	for what, act := range map[string]func(*testing.T, *Plan) error{
		"plan_failed":    func(t *testing.T, p *Plan) error { return p.Fail(t.Context(), stderr) },
		"plan_cancelled": func(t *testing.T, p *Plan) error { return p.Cancel(t.Context(), stderr) },
		"unwind_requested": func(t *testing.T, p *Plan) error {
			mustSet(t, p, "s1")
			return p.UnwindTo(t.Context(), "s1", stderr)
		},
	} {
		in(t, func(t *testing.T) {
			store := memory()
			e := &executor{script: []api.OutcomeAnswer{isOpen}}
			p := begin(t, start(t, store, e), PlanSpec{Label: stderr})
			if err := act(t, p); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			found := 0
			for _, c := range stored(t, store) {
				for _, r := range c.records {
					for _, text := range []string{r.GetPlanOpened().GetLabel(), r.GetPlanFailed().GetReason(),
						r.GetPlanCancelled().GetReason(), r.GetUnwindRequested().GetReason()} {
						if text == "" {
							continue
						}
						if found++; text != ledger.Text(stderr) {
							t.Errorf("%s: %d bytes, %.20q", what, len(text), text)
						}
					}
				}
			}
			if found != 2 {
				t.Errorf("%s: %d texts are recorded, want its label and its reason", what, found)
			}
		})
	}
}

func TestFailInterruptsForwardsAndTakesTheirOutcomesAlong(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		p := begin(t, start(t, store, nil), PlanSpec{})
		done := make(chan error, 1)
		go func() {
			_, err := p.Do(t.Context(), write("a"), func(ctx context.Context, _ Call) (Outcome, error) {
				<-ctx.Done()
				return Outcome{}, context.Cause(ctx)
			})
			done <- err
		}()
		synctest.Wait()
		wantRefused(t, p.Commit(t.Context()), "plan")
		if err := p.Fail(t.Context(), "no room"); err != nil {
			t.Fatal(err)
		}
		wantIs(t, <-done, ErrClosed)
		wantLines(t, store, "plan_opened forward_registered/a compensation_registered/a", "forward_in_doubt/a plan_failed")
	})
}

// TestWhoeverUndoesAPlanItsForwardsAreToldTheSame: the executor, Fail and Cancel interrupt a forward
// with what its Do returns then, beside what the forward itself says.
func TestWhoeverUndoesAPlanItsForwardsAreToldTheSame(t *testing.T) {
	for name, undo := range map[string]func(*testing.T, *Plan, *executor) error{
		"fail":   func(t *testing.T, p *Plan, _ *executor) error { return p.Fail(t.Context(), "no room") },
		"cancel": func(t *testing.T, p *Plan, _ *executor) error { return p.Cancel(t.Context(), "no room") },
		"notice": func(t *testing.T, p *Plan, e *executor) error {
			e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateUnwinding, Reason: "no room"})
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				e, done := &executor{}, make(chan error, 2)
				p := begin(t, start(t, memory(), e), PlanSpec{})
				for id, forward := range map[string]Forward{
					"waits": func(ctx context.Context, _ Call) (Outcome, error) {
						<-ctx.Done()
						wantIs(t, context.Cause(ctx), ErrUnwinding)
						return Outcome{}, ctx.Err()
					},
					"fails": func(context.Context, Call) (Outcome, error) {
						<-time.After(ledger.GraceDefault / 2) // before it is interrupted
						return Outcome{}, fmt.Errorf("broken: %w", context.Canceled)
					},
				} {
					go func() {
						_, err := p.Do(t.Context(), write(id), forward)
						done <- err
					}()
				}
				synctest.Wait()
				if err := undo(t, p, e); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					err := <-done
					wantIs(t, err, ErrUnwinding)
					wantIs(t, err, context.Canceled)
					if here := name != "notice"; errors.Is(err, ErrClosed) != here {
						t.Errorf("it is ErrClosed, or not: %v", err)
					}
					if !strings.Contains(err.Error(), "no room") {
						t.Errorf("no reason in %v", err)
					}
				}
			})
		})
	}
}

func TestFailDoesNotWaitLongForAForwardThatGoesOn(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		p := begin(t, start(t, store, nil), PlanSpec{})
		finish, done := make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := p.Do(t.Context(), write("a"), func(ctx context.Context, c Call) (Outcome, error) {
				<-finish
				return happens(ctx, c)
			})
			done <- err
		}()
		synctest.Wait()
		began := time.Now()
		if err := p.Fail(t.Context(), "no room"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != ledger.GraceDefault+ForwardGrace {
			t.Errorf("it took %v", took)
		}
		close(finish)
		if err := <-done; err != nil {
			t.Errorf("the forward completed, and Do says %v", err)
		}
		elapse(LingerMax) // a late outcome is told all the same
		wantLines(t, store, "plan_opened forward_registered/a compensation_registered/a", "plan_failed",
			"forward_completed/a")
	})
}

func TestWhatWasRegisteredAndNeverCalledIsKnownNotToHaveHappened(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		g := newGate(store)
		p := begin(t, start(t, g, nil), PlanSpec{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Do(ctx, write("a"), happens)
		wantIs(t, err, ledger.ErrInDoubt)
		close(g.open)
		if err := p.Fail(t.Context(), "no room"); err != nil {
			t.Fatal(err)
		}
		if got := effective(t, store, p.ID()); got != "plan_opened forward_registered/a compensation_registered/a "+
			"forward_failed/a plan_failed" {
			t.Errorf("the ledger holds %s", got)
		}
		if code := find(t, store, "forward_failed/a").GetForwardFailed().Code; code != "not_started" {
			t.Errorf("code %s", code)
		}
	})
}

func TestANoticeStopsThePlan(t *testing.T) {
	for _, state := range []string{ledger.StateUnwinding, ledger.StateCompensated, ledger.StateQuarantined,
		ledger.StateFailed} {
		t.Run(state, func(t *testing.T) {
			in(t, func(t *testing.T) {
				store, e := memory(), &executor{}
				c := start(t, store, e)
				p, other := begin(t, c, PlanSpec{}), begin(t, c, PlanSpec{})
				done := make(chan error, 1)
				go func() {
					_, err := p.Do(t.Context(), write("a"), func(ctx context.Context, _ Call) (Outcome, error) {
						<-ctx.Done()
						return Outcome{}, NotTaken(context.Cause(ctx))
					})
					done <- err
				}()
				synctest.Wait()
				e.notify(t, api.Notice{Plan: p.ID(), State: state, Reason: "deadline"})
				err := <-done
				wantIs(t, err, ErrUnwinding)
				wantIs(t, err, ErrNotTaken)
				_, err = p.Do(t.Context(), write("b"), happens)
				wantIs(t, err, ErrUnwinding)
				if !strings.Contains(err.Error(), "deadline") {
					t.Errorf("no reason in %v", err)
				}
				mustDo(t, other, write("a"))
				// What has happened is told even now: it must be undone too.
				if err := p.Report(t.Context(), write("c"), Outcome{}); err != nil {
					t.Error(err)
				}
				elapse(LingerMax)
				want := "plan_opened forward_registered/a compensation_registered/a forward_failed/a forward_registered/c " +
					"compensation_registered/c forward_completed/c"
				if got := effective(t, store, p.ID()); got != want {
					t.Errorf("the plan is %s", got)
				}
			})
		})
	}
}

func TestANoticeBeforeTheForwardKeepsItFromRunning(t *testing.T) {
	in(t, func(t *testing.T) {
		store, e := memory(), &executor{}
		g := newGate(store)
		p := begin(t, start(t, g, e), PlanSpec{})
		done := make(chan error, 1)
		go func() {
			_, err := p.Do(t.Context(), write("a"), func(context.Context, Call) (Outcome, error) {
				t.Error("the forward ran")
				return Outcome{}, nil
			})
			done <- err
		}()
		synctest.Wait()
		e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateUnwinding})
		close(g.open)
		wantIs(t, <-done, ErrUnwinding)
		elapse(LingerMax)
		wantLines(t, store, "plan_opened forward_registered/a compensation_registered/a", "forward_failed/a")
	})
}

func TestNoticesThatAreNoneOfOursAreIgnored(t *testing.T) {
	in(t, func(t *testing.T) {
		e := &executor{}
		c := start(t, memory(), e)
		p := begin(t, c, PlanSpec{})
		c.notice([]byte("no JSON"))
		c.notice(nil)
		e.notify(t, api.Notice{Plan: "another", State: ledger.StateUnwinding})
		e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen})
		e.notify(t, api.Notice{Plan: p.ID(), State: "of a later version"})
		mustDo(t, p, write("a"))
	})
}

func TestCloseEndsTheSubscription(t *testing.T) {
	in(t, func(t *testing.T) {
		e := &executor{}
		if err := start(t, memory(), e).Close(t.Context()); err != nil || len(e.notices) != 0 {
			t.Errorf("%d subscriptions, %v", len(e.notices), err)
		}
	})
}

func TestWaitReturnsThePlansEnd(t *testing.T) {
	in(t, func(t *testing.T) {
		e := &executor{}
		p := begin(t, start(t, memory(), e), PlanSpec{})
		_, err := p.Wait(t.Context())
		wantRefused(t, err, "plan")
		if err := p.Fail(t.Context(), "no room"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = p.Wait(ctx) // no executor
		wantIs(t, err, context.DeadlineExceeded)
		e.say(api.OutcomeAnswer{Reason: "unknown plan"}, api.OutcomeAnswer{State: ledger.StateUnwinding},
			api.OutcomeAnswer{State: ledger.StateQuarantined, Reason: "attempts spent", Outstanding: []string{"a"}})
		end, err := p.Wait(t.Context())
		if err != nil || end.State != ledger.StateQuarantined || end.Reason != "attempts spent" || len(end.Outstanding) != 1 {
			t.Errorf("%+v, %v", end, err)
		}
		if q := e.asked[0]; !q.Ended || q.Sequence != 1 {
			t.Errorf("asked %+v", q)
		}
	})
}

// TestAWaitThatEndsSaysWhatItWaitedFor, and not that its last question was cut off with it.
func TestAWaitThatEndsSaysWhatItWaitedFor(t *testing.T) {
	for name, call := range map[string]func(context.Context, *Plan) error{
		"Wait":      func(ctx context.Context, p *Plan) error { _, err := p.Wait(ctx); return err },
		"Settled":   func(ctx context.Context, p *Plan) error { _, err := p.Settled(ctx); return err },
		"Delivered": func(ctx context.Context, p *Plan) error { _, err := p.Delivered(ctx); return err },
		"Commit":    func(ctx context.Context, p *Plan) error { return p.Commit(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				e := &executor{script: []api.OutcomeAnswer{{State: ledger.StateOpen}}}
				p := begin(t, start(t, memory(), e), PlanSpec{})
				mustDo(t, p, write("a"))
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				asked := false
				e.serve = map[string]func([]byte) any{api.QuerySubject(tenant, "plan.outcome"): func(body []byte) any {
					if asked = !asked; asked && !strings.Contains(string(body), `"wait_ms":750`) {
						t.Errorf("there is no time for its answer: %s", body)
					}
					if !asked { // the second one
						<-ctx.Done()
						return ctx.Err()
					}
					return api.OutcomeAnswer{State: ledger.StateCommitting, Doubts: []api.Doubt{{Action: "a", Waits: "its probe"}}}
				}}
				err := call(ctx, p)
				wantIs(t, err, context.DeadlineExceeded)
				var waits *CommitWaits
				if !errors.As(err, &waits) || len(waits.Doubts) != 1 || !strings.Contains(err.Error(), "a for its probe") {
					t.Error(err)
				}
			})
		})
	}
}

// TestWaitTakesTheNoticeOfAnEnd asks only what a notice does not say: where it is not the last word,
// leaves something to the owner, came before the call, or never comes.
func TestWaitTakesTheNoticeOfAnEnd(t *testing.T) {
	room := ledger.OverLimit(tenant, ledger.LimitFacts, 5, 5).Error()
	undone := api.Notice{State: ledger.StateCompensated, Reason: room, At: 9}
	for name, c := range map[string]struct {
		before, during *api.Notice
		asked          int
		after          time.Duration // until Wait returns
	}{
		"undone":                 {during: &undone},
		"not the last word":      {during: &api.Notice{State: ledger.StateCompensated, At: 1}, asked: 1},
		"of an executor of old":  {during: &api.Notice{State: ledger.StateCompensated}, asked: 1},
		"left to its owner":      {during: &api.Notice{State: ledger.StateQuarantined, At: 9}, asked: 1},
		"told before":            {before: &undone, asked: 1},
		"it only begins":         {during: &api.Notice{State: ledger.StateUnwinding}, asked: 1, after: hearMax},
		"of another":             {during: &api.Notice{Plan: "x", State: ledger.StateCompensated}, asked: 1, after: hearMax},
		"the notice was lost":    {asked: 1, after: hearMax},
		"told twice, it is done": {before: &undone, during: &undone, asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				e := &executor{script: []api.OutcomeAnswer{{State: ledger.StateCompensated, Reason: room}}}
				c0 := start(t, memory(), e)
				p := begin(t, c0, PlanSpec{})
				tell := func(n *api.Notice) {
					if n != nil {
						told := *n
						told.Plan = cmp.Or(told.Plan, p.ID())
						e.notify(t, told)
					}
				}
				if err := p.Fail(t.Context(), "no room"); err != nil {
					t.Fatal(err)
				}
				tell(c.before)
				began, ended := time.Now(), make(chan struct{})
				go func() {
					defer close(ended)
					end, err := p.Wait(t.Context())
					if err != nil || end.State != ledger.StateCompensated || end.Reason != room || !end.Final() || end.Refused == nil {
						t.Errorf("%+v, %v", end, err)
					}
				}()
				synctest.Wait()
				tell(c.during)
				<-ended
				if took := time.Since(began); len(e.asked) != c.asked || took != c.after {
					t.Errorf("asked %d times, after %v; want %d, %v", len(e.asked), took, c.asked, c.after)
				}
				if kept := len(c0.ends.of); kept > 1 || kept == 1 && c.after == 0 {
					t.Errorf("%d ends are waited for that were told", kept)
				}
			})
		})
	}
}

// TestWaitAsksAtOnceWhatNoNoticeWillTell: of a plan that this process has not ended, one that it has
// committed, and where its connection or its caller has gone.
func TestWaitAsksAtOnceWhatNoNoticeWillTell(t *testing.T) {
	in(t, func(t *testing.T) {
		e := &executor{script: []api.OutcomeAnswer{{State: ledger.StateCommitted}}}
		c := start(t, memory(), e)
		began := time.Now()
		open := begin(t, c, PlanSpec{})
		if err := open.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		committed := begin(t, c, PlanSpec{})
		if err := committed.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, wait := range map[string]func() (End, error){
			"open":       func() (End, error) { return open.Wait(t.Context()) },
			"committed":  func() (End, error) { return committed.Wait(t.Context()) },
			"of another": func() (End, error) { return c.Wait(t.Context(), "another") },
		} {
			if end, err := wait(); err != nil || end.State != ledger.StateCommitted || time.Since(began) != 0 {
				t.Errorf("%s: %+v, %v, after %v", name, end, err, time.Since(began))
			}
		}
		if len(c.ends.of) != 0 {
			t.Error("a notice is waited for")
		}
		if err := open.Fail(t.Context(), "no room"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			cancel()
		}()
		if _, err := open.Wait(ctx); !errors.Is(err, context.Canceled) || time.Since(began) != 0 {
			t.Errorf("%v, after %v", err, time.Since(began))
		}
	})
}

// TestANoticeOfAnEndIsOlderThanWhatWasStoredMeanwhile: a forward returns after its plan was failed,
// and what it says is stored while Wait listens, before the notice of an end that came first.
func TestANoticeOfAnEndIsOlderThanWhatWasStoredMeanwhile(t *testing.T) {
	in(t, func(t *testing.T) {
		e := &executor{script: []api.OutcomeAnswer{{State: ledger.StateQuarantined, Reason: "asked"}}}
		p := begin(t, start(t, memory(), e), PlanSpec{})
		release := make(chan struct{})
		go func() {
			_, _ = p.Do(context.Background(), write("a"), func(context.Context, Call) (Outcome, error) {
				<-release
				return Outcome{Output: 1}, nil
			})
		}()
		synctest.Wait()
		if err := p.Fail(t.Context(), "no room"); err != nil {
			t.Fatal(err)
		}
		failed := p.Stored()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if end, err := p.Wait(t.Context()); err != nil || end.Reason != "asked" {
				t.Errorf("%+v, %v", end, err)
			}
		}()
		synctest.Wait()
		if err := begin(t, p.c, PlanSpec{}).Flush(t.Context()); err != nil { // takes the place of the end
			t.Fatal(err)
		}
		close(release)
		<-time.After(hearMax / 2) // the outcome lingers, and is stored
		if p.Stored() < failed+2 {
			t.Fatalf("stored up to %d", p.Stored())
		}
		e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateCompensated, At: failed + 1})
		<-ended
	})
}

// TestEndsThatNoOneTellsAreBounded: of an agent that may not hear its notices, and of one that has
// no connection, which waits for none.
func TestEndsThatNoOneTellsAreBounded(t *testing.T) {
	in(t, func(t *testing.T) {
		deaf, alone := start(t, memory(), &executor{}), start(t, memory(), nil)
		for range endsMax + 10 {
			for _, c := range [...]*Coordinator{deaf, alone} {
				if err := begin(t, c, PlanSpec{}).Cancel(t.Context(), "not wanted"); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n, none := len(deaf.ends.of), len(alone.ends.of); n == 0 || n > endsMax || none != 0 {
			t.Errorf("%d and %d ends are waited for, want %d at most, and none", n, none, endsMax)
		}
	})
}

// TestWaitAsksInTimeForItsCaller: who has little time hears what an executor says, not only that
// the time is over.
func TestWaitAsksInTimeForItsCaller(t *testing.T) {
	in(t, func(t *testing.T) {
		e := &executor{script: []api.OutcomeAnswer{{State: ledger.StateCompensated}}}
		p := begin(t, start(t, memory(), e), PlanSpec{})
		if err := p.Fail(t.Context(), "no room"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), hearMax/5)
		defer cancel()
		if end, err := p.Wait(ctx); err != nil || end.State != ledger.StateCompensated {
			t.Errorf("%+v, %v", end, err)
		}
	})
}
