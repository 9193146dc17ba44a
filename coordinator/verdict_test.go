package coordinator

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

func reviewed(id string) Action {
	a := write(id)
	a.Review = true
	return a
}

// never is a forward that must not run.
func never(t *testing.T) Forward {
	return func(context.Context, Call) (Outcome, error) {
		t.Error("the forward ran")
		return Outcome{}, nil
	}
}

const pairOfA = "plan_opened forward_registered/a compensation_registered/a"

func TestS77AVerdictBeforeTheBoundaryDecides(t *testing.T) {
	for _, c := range []struct {
		outcome, code string
		err           error
	}{
		{"allow", "", nil},
		{"block", "blocked", ErrBlocked},
		{"redirect", "redirected", ErrBlocked},
		{"", "no_verdict", ErrNoVerdict},
		{"perhaps", "no_verdict", ErrNoVerdict},
	} {
		for _, how := range []string{"notice", "answer"} {
			t.Run(c.outcome+" by "+how, func(t *testing.T) {
				in(t, func(t *testing.T) {
					store, e := memory(), &executor{script: []api.OutcomeAnswer{{State: ledger.StateOpen}}}
					p := begin(t, start(t, store, e), PlanSpec{})
					ran := false
					done := make(chan error, 1)
					go func() {
						_, err := p.Do(t.Context(), reviewed("a"), func(ctx context.Context, c Call) (Outcome, error) {
							ran = true
							return happens(ctx, c)
						})
						done <- err
					}()
					elapse(time.Minute)
					wantLines(t, store, pairOfA) // durable, and waiting
					switch {
					case c.outcome == "":
					case how == "notice":
						e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, Action: "a", Verdict: c.outcome, Reason: "policy 7",
							By: "compliance"})
					default:
						e.say(api.OutcomeAnswer{State: ledger.StateOpen, Verdict: c.outcome, VerdictReason: "policy 7",
							VerdictBy: "compliance"})
					}
					err := <-done
					if ran != (c.err == nil) || (err == nil) != (c.err == nil) || !errors.Is(err, c.err) {
						t.Fatalf("ran %v, %v", ran, err)
					}
					var v *Verdict
					if errors.Is(err, ErrBlocked) && (!errors.As(err, &v) || *v != Verdict{Action: "a", Outcome: c.outcome,
						Reason: "policy 7", By: "compliance"}) {
						t.Errorf("verdict %+v", v)
					}
					if !find(t, store, "forward_registered/a").GetForwardRegistered().Review {
						t.Error("the registration does not say that it waits")
					}
					elapse(LingerMax)
					if c.code == "" {
						wantLines(t, store, pairOfA, "forward_completed/a")
						return
					}
					wantLines(t, store, pairOfA, "forward_failed/a")
					if code := find(t, store, "forward_failed/a").GetForwardFailed().Code; code != c.code {
						t.Errorf("code %s, want %s", code, c.code)
					}
					_, again := p.Do(t.Context(), reviewed("a"), never(t)) // it stays what it is
					wantIs(t, again, c.err)
					mustDo(t, p, write("b"))
				})
			})
		}
	}
}

// TestWhatWaitsForAVerdictIsUndoneWithAPartOfItsPlan: the news of that may be lost, and someone may
// have allowed it before, or allow it since. Its forward is not called.
func TestWhatWaitsForAVerdictIsUndoneWithAPartOfItsPlan(t *testing.T) {
	undone := api.OutcomeAnswer{State: ledger.StateOpen, Parts: 1, FromAction: "a", PartReason: "a fact",
		Undone: []api.UndonePart{{Number: 1, Action: "a", Reason: "a fact", At: 1000}}}
	for how, allow := range map[string]func(*testing.T, *executor, string){
		"it is asked for": func(_ *testing.T, e *executor, _ string) { e.say(undone) },
		"it was allowed before": func(_ *testing.T, e *executor, _ string) {
			answer := undone
			answer.Verdict = "allow"
			e.say(answer)
		},
		"it hears that it is allowed": func(t *testing.T, e *executor, plan string) {
			e.say(undone)
			e.notify(t, api.Notice{Plan: plan, State: ledger.StateOpen, Action: "a", Verdict: "allow"})
		},
		"with all after a savepoint": func(_ *testing.T, e *executor, _ string) {
			e.say(api.OutcomeAnswer{State: ledger.StateOpen, Undo: "skipped"})
		},
	} {
		t.Run(how, func(t *testing.T) {
			in(t, func(t *testing.T) {
				store, e := memory(), &executor{script: []api.OutcomeAnswer{{State: ledger.StateOpen, Undo: "held"}}}
				p := begin(t, start(t, store, e), PlanSpec{})
				done := make(chan error, 1)
				go func() {
					_, err := p.Do(t.Context(), reviewed("a"), never(t))
					done <- err
				}()
				elapse(time.Minute)
				allow(t, e, p.ID())
				err := <-done
				var part *PartUndone
				if !errors.As(err, &part) || part.Action != "a" || part.Reason != "a fact" && how != "with all after a savepoint" {
					t.Fatalf("got %v", err)
				}
				elapse(LingerMax)
				wantLines(t, store, pairOfA, "forward_failed/a")
				if code := find(t, store, "forward_failed/a").GetForwardFailed().Code; code != "undone" {
					t.Errorf("code %s", code)
				}
				_, again := p.Do(t.Context(), reviewed("a"), never(t)) // it stays what it is
				wantIs(t, again, ErrPartUndone)
			})
		})
	}
}

func TestS77AContractWithReviewWaitsForEachAction(t *testing.T) {
	in(t, func(t *testing.T) {
		own := contracts()[0]
		own.Review, own.ReviewTimeout = true, time.Hour
		e := &executor{script: []api.OutcomeAnswer{{State: ledger.StateOpen}}}
		c, err := newCoordinator(Config{Appender: memory(), Tenant: tenant, Agent: "a1", Contracts: []contract.Contract{own}},
			e)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(t.Context())
		p := begin(t, c, PlanSpec{})
		began := time.Now()
		_, err = p.Do(t.Context(), write("a"), never(t))
		wantIs(t, err, ErrNoVerdict)
		if took := time.Since(began); took != time.Hour {
			t.Errorf("it waited %v", took)
		}
		// What has happened cannot wait any more.
		if err := p.Report(t.Context(), write("b"), Outcome{}); err != nil {
			t.Error(err)
		}
		wantRefused(t, p.Report(t.Context(), reviewed("c"), Outcome{}), "action.review")
		if q := e.asked[len(e.asked)-1]; q.Action != "a" || q.Sequence != 1 {
			t.Errorf("asked %+v", q)
		}
		if n := len(e.asked); n > 4000 {
			t.Errorf("asked %d times in an hour", n)
		}
	})
}

// TestS77ABlockThatComesBetweenPairAndForward: no review was asked for.
func TestS77ABlockThatComesBetweenPairAndForward(t *testing.T) {
	in(t, func(t *testing.T) {
		store, e := memory(), &executor{}
		g := newGate(store)
		p := begin(t, start(t, g, e), PlanSpec{})
		done := make(chan error, 1)
		go func() {
			_, err := p.Do(t.Context(), write("a"), never(t))
			done <- err
		}()
		synctest.Wait()
		e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, Action: "a", Verdict: "block", By: "compliance"})
		e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, Action: "z", Verdict: "block"}) // none of ours
		close(g.open)
		wantIs(t, <-done, ErrBlocked)
		elapse(LingerMax)
		wantLines(t, store, pairOfA, "forward_failed/a")
	})
}

func TestS76ABlockAfterTheBoundaryLeavesTheForwardAlone(t *testing.T) {
	in(t, func(t *testing.T) {
		store, e := memory(), &executor{}
		p := begin(t, start(t, store, e), PlanSpec{})
		if _, err := p.Do(t.Context(), write("a"), func(ctx context.Context, c Call) (Outcome, error) {
			e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, Action: "a", Verdict: "block"})
			return happens(ctx, c)
		}); err != nil {
			t.Error(err)
		}
		e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, Action: "a", Verdict: "block"})
		elapse(LingerMax)
		wantLines(t, store, pairOfA, "forward_completed/a") // the executor's lease undoes it
	})
}

func TestWhoStopsWaitingForAVerdict(t *testing.T) {
	for _, c := range []struct {
		name string
		stop func(t *testing.T, p *Plan, e *executor, cancel func())
		want error
		code string // of the record; "": the action may be called again
	}{
		{"its caller", func(_ *testing.T, _ *Plan, _ *executor, cancel func()) { cancel() }, context.Canceled, ""},
		{"its caller, and then a notice", func(t *testing.T, p *Plan, e *executor, cancel func()) {
			cancel()
			synctest.Wait()
			e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateUnwinding})
		}, context.Canceled, "not_started"},
		{"its caller, and then who has the plan", func(_ *testing.T, p *Plan, _ *executor, cancel func()) {
			cancel()
			synctest.Wait()
			GiveUp(p)
		}, context.Canceled, "not_started"},
		{"the end of the plan", func(t *testing.T, p *Plan, _ *executor, _ func()) {
			if err := p.Fail(t.Context(), "enough"); err != nil {
				t.Error(err)
			}
		}, ErrClosed, "not_started"},
		{"a notice", func(t *testing.T, p *Plan, e *executor, _ func()) {
			e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateUnwinding})
		}, ErrUnwinding, "not_started"},
		{"an answer", func(_ *testing.T, _ *Plan, e *executor, _ func()) {
			e.say(api.OutcomeAnswer{State: ledger.StateUnwinding, Reason: "deadline"})
		}, ErrUnwinding, "not_started"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				store, e := memory(), &executor{script: []api.OutcomeAnswer{{State: ledger.StateOpen}}}
				p := begin(t, start(t, store, e), PlanSpec{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan error, 1)
				go func() {
					_, err := p.Do(ctx, reviewed("a"), never(t))
					done <- err
				}()
				elapse(time.Second)
				c.stop(t, p, e, cancel)
				wantIs(t, <-done, c.want)
				elapse(LingerMax)
				if c.code != "" {
					if code := find(t, store, "forward_failed/a").GetForwardFailed().Code; code != c.code {
						t.Errorf("code %s, want %s", code, c.code)
					}
					return
				}
				wantLines(t, store, pairOfA)
				e.say(api.OutcomeAnswer{State: ledger.StateOpen, Verdict: "allow"})
				if _, err := p.Do(t.Context(), reviewed("a"), happens); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestWhatNoCallComesBackToIsGivenUp: an action without an ID, whose caller has gone. An executor would
// take it for one that may have crossed.
func TestWhatNoCallComesBackToIsGivenUp(t *testing.T) {
	in(t, func(t *testing.T) {
		store, e := memory(), &executor{script: []api.OutcomeAnswer{{State: ledger.StateOpen}}}
		p := begin(t, start(t, store, e), PlanSpec{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Do(ctx, reviewed(""), never(t))
		wantIs(t, err, context.DeadlineExceeded)
		elapse(LingerMax)
		wantLines(t, store, "plan_opened forward_registered/1 compensation_registered/1", "forward_failed/1")
		if code := find(t, store, "forward_failed/1").GetForwardFailed().Code; code != "not_started" {
			t.Errorf("code %s", code)
		}
		e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, Action: "1", Verdict: "allow"}) // too late
		mustDo(t, p, write(""))
	})
}

// TestABlockIsRecordedThoughNobodyWaits: an executor would take the action for one
// that may have crossed.
func TestABlockIsRecordedThoughNobodyWaits(t *testing.T) {
	in(t, func(t *testing.T) {
		store, e := memory(), &executor{script: []api.OutcomeAnswer{{State: ledger.StateOpen}}}
		p := begin(t, start(t, store, e), PlanSpec{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Do(ctx, reviewed("a"), never(t))
		wantIs(t, err, context.DeadlineExceeded)
		e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, Action: "a", Verdict: "block"})
		elapse(LingerMax)
		wantLines(t, store, pairOfA, "forward_failed/a")
		e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, Action: "a", Verdict: "allow"}) // too late
		_, err = p.Do(t.Context(), reviewed("a"), never(t))
		wantIs(t, err, ErrBlocked)
	})
}

func TestAReviewNeedsAConnection(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		p := begin(t, start(t, store, nil), PlanSpec{})
		_, err := p.Do(t.Context(), reviewed("a"), never(t))
		wantRefused(t, err, "config.conn")
		wantLines(t, store, "")
	})
}

func TestAPairThatTheLedgerDoesNotTakeIsNotWaitedFor(t *testing.T) {
	in(t, func(t *testing.T) {
		e := &executor{script: []api.OutcomeAnswer{{State: ledger.StateOpen, Refused: []string{"not the plan's agent"}}}}
		p := begin(t, start(t, memory(), e), PlanSpec{})
		_, err := p.Do(t.Context(), reviewed("a"), never(t))
		wantRefused(t, err, "action")
	})
}
