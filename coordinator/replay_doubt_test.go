package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/replay"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// lostInside runs "a", and loses the process inside the forward of "b", whose effect
// may have happened.
func lostInside(t *testing.T, w *tour, plan string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	first := w.l.process()
	err := first.Run(ctx, config(plan), func(ctx context.Context, p *replay.Plan) error {
		if err := w.act(ctx, p, "a"); err != nil {
			return err
		}
		waitCommitted(t, w.l, plan, 0)
		_, err := p.Do(ctx, w.action("b"), func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			w.l.registered(plan, "b")
			return coordinator.Outcome{}, first.lose(cancel)
		})
		return err
	})
	if !wasLost(err) {
		t.Fatalf("the first life ends with %v", err)
	}
}

// TestAForwardThatTheProcessDiedInFollowsItsRule is the table of docs/guide/replay.md.
func TestAForwardThatTheProcessDiedInFollowsItsRule(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	nobodyKnows := errors.New("the provider does not answer")
	for name, rule := range map[string]struct {
		change  func(*replay.Action)
		ran     string // in both lives, as far as counted
		is      error  // what Do returns for b
		output  string
		outcome string
		undone  string
	}{
		"nothing": {func(*replay.Action) {}, "a", coordinator.ErrInterrupted, "", "in_doubt", "b a"},
		"repeat": {func(a *replay.Action) { a.Repeat = true }, "a b", nil, string(oddOutput("b")), "completed",
			"b a"},
		"found": {func(a *replay.Action) { a.Find = finds(true, nil) }, "a", nil, `"found"`, "completed",
			"b a"},
		"not-found": {func(a *replay.Action) { a.Find = finds(false, nil) }, "a b", nil, string(oddOutput("b")),
			"completed", "b a"},
		"cannot-be-said": {func(a *replay.Action) { a.Find = finds(false, nobodyKnows) }, "a",
			coordinator.ErrInterrupted, "", "in_doubt", "b a"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTour(l)
			lostInside(t, w, "doubt-"+name)
			ctx, cancel := bounded(t)
			defer cancel()
			for range 2 { // the second finds it recorded
				err := l.process().Run(ctx, config("doubt-"+name), func(ctx context.Context, p *replay.Plan) error {
					if err := w.act(ctx, p, "a"); err != nil {
						return err
					}
					b := w.action("b")
					rule.change(&b)
					output, err := w.do(ctx, p, b, nil)
					if !errors.Is(err, rule.is) || string(output) != rule.output {
						t.Errorf("Do returns %s, %v", output, err)
					}
					return errNoRoom
				})
				wantUnwound(t, err, ledger.StateCompensated)
			}
			if w.ranText() != rule.ran || w.undoneText() != rule.undone {
				t.Errorf("ran %s, undone %s", w.ranText(), w.undoneText())
			}
			if b := l.shown("doubt-" + name).Actions[1]; b.Outcome != rule.outcome ||
				w.calls["b"].Blind != (rule.outcome == "in_doubt") {
				t.Errorf("recorded %s, the handler is told %+v", b.Outcome, w.calls["b"])
			}
			if key := ledger.Key("default", "doubt-"+name, "b", ledger.PurposeDo); w.calls["b"].ForwardKey != key {
				t.Errorf("the handler is told of forward %q, not %q", w.calls["b"].ForwardKey, key)
			}
		})
	}
}

// TestNotFoundIsBelievedOnlyOnceTheForwardCanNoLongerLand: killing a process stops no
// provider, and what is not there yet may be there a moment later.
func TestNotFoundIsBelievedOnlyOnceTheForwardCanNoLongerLand(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	const settle = 2 * time.Second
	for name, c := range map[string]struct {
		contract contract.Contract
		lands    int // the question that finds it, from 1; 0: none does
		asked    int
		after    time.Duration // of the second forward, at least
		ran      string        // in both lives, as far as counted
	}{
		"lands late":     {contract.Contract{Settle: settle}, 2, 2, 0, "a"},
		"never lands":    {contract.Contract{Settle: settle}, 0, 2, settle, "a b"},
		"within timeout": {contract.Contract{Timeout: settle, Settle: settle / 2}, 0, 2, settle * 3 / 2, "a b"},
		"timeout alone":  {contract.Contract{Timeout: settle}, 0, 2, 2 * settle, "a b"},
		"late never":     {contract.Contract{Late: contract.LateNever, Timeout: 5 * time.Second}, 0, 1, 0, "a b"},
		"late refused":   {contract.Contract{Late: contract.LateRefused}, 0, 1, 0, "a b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, plan := newTour(l), "lands-"+strings.ReplaceAll(name, " ", "-")
			w.changes = func(u *replay.Undo) {
				inverse := u.Contract.Inverse
				u.Contract = c.contract
				u.Contract.Grace, u.Contract.Inverse = 50*time.Millisecond, inverse
			}
			lostInside(t, w, plan)
			ctx, cancel := bounded(t)
			defer cancel()
			began, asked, after := time.Now(), 0, time.Duration(0)
			err := l.process().Run(ctx, config(plan), func(ctx context.Context, p *replay.Plan) error {
				if err := w.act(ctx, p, "a"); err != nil {
					return err
				}
				b := w.action("b")
				b.Find = func(context.Context, coordinator.Call) (coordinator.Outcome, bool, error) {
					asked++
					return coordinator.Outcome{Output: "found"}, c.lands > 0 && asked >= c.lands, nil
				}
				_, err := p.Do(ctx, b, func(ctx context.Context, call coordinator.Call) (coordinator.Outcome, error) {
					after = time.Since(began)
					return w.forward(oddOutput("b"), nil)(ctx, call)
				})
				return err
			})
			if err != nil || w.ranText() != c.ran || asked != c.asked || after < c.after {
				t.Errorf("%v; ran %s after %v, asked %d times", err, w.ranText(), after, asked)
			}
		})
	}
}

// TestWhatIsWaitedForBeforeASecondForwardEndsWithThePlan: nothing may be started then.
func TestWhatIsWaitedForBeforeASecondForwardEndsWithThePlan(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	w := newTour(l)
	w.changes = func(u *replay.Undo) { u.Contract.Late, u.Contract.Settle = "", time.Minute }
	lostInside(t, w, "waits")
	ctx, cancel := bounded(t)
	defer cancel()
	until := config("waits")
	until.Until = replay.UntilFailed // its undo settles, too
	err := l.process().Run(ctx, until, func(ctx context.Context, p *replay.Plan) error {
		if err := w.act(ctx, p, "a"); err != nil {
			return err
		}
		b := w.action("b")
		b.Find = func(context.Context, coordinator.Call) (coordinator.Outcome, bool, error) {
			time.AfterFunc(50*time.Millisecond, func() { l.cancelPlan("waits") })
			return coordinator.Outcome{}, false, nil
		}
		_, err := w.do(ctx, p, b, nil)
		return err
	})
	if !errors.Is(err, coordinator.ErrUnwinding) || w.ranText() != "a" {
		t.Errorf("Run returns %v; ran %s", err, w.ranText())
	}
}

// TestADoubtedActionThatIsNotCalledAgainStaysInDoubt: its process died in its forward,
// and the next one learns that the plan is cancelled, or the action blocked, before it
// has found out what happened. That is no proof that nothing did.
func TestADoubtedActionThatIsNotCalledAgainStaysInDoubt(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	for name, strike := range map[string]func(ctx context.Context, w *tour, p *replay.Plan, plan string){
		"cancelled": func(ctx context.Context, w *tour, p *replay.Plan, plan string) {
			l.cancelPlan(plan)
			for n := 0; ; n++ { // until this process knows
				if _, err := p.Do(ctx, w.action(fmt.Sprint("x", n)),
					w.forward(nil, coordinator.NotTaken(errNoRoom))); errors.Is(err, coordinator.ErrUnwinding) || ctx.Err() != nil {
					return
				}
				select {
				case <-time.After(10 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		},
		"blocked": func(_ context.Context, _ *tour, _ *replay.Plan, plan string) {
			l.rule(plan, "b", pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK)
			l.showsAction(plan, "b", func(a api.Action) bool { return a.Outcome != api.OutcomeUnknown })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, plan := newTour(l), "stays-"+name
			lostInside(t, w, plan)
			ctx, cancel := bounded(t)
			defer cancel()
			err := l.process().Run(ctx, config(plan), func(ctx context.Context, p *replay.Plan) error {
				if err := w.act(ctx, p, "a"); err != nil {
					return err
				}
				b := w.action("b")
				b.Find = func(context.Context, coordinator.Call) (coordinator.Outcome, bool, error) {
					strike(ctx, w, p, plan)
					return coordinator.Outcome{}, false, nil
				}
				_, err := w.do(ctx, p, b, nil)
				return err
			})
			wantUnwound(t, err, ledger.StateCompensated)
			// Unknown: the undo was done before the process could say that it is in doubt.
			if b := l.shown(plan).Actions[1]; b.Outcome != api.OutcomeInDoubt && b.Outcome != api.OutcomeUnknown ||
				!w.calls["b"].Blind || strings.Contains(w.ranText(), "b") {
				t.Errorf("recorded %s, the handler is told %+v; ran %s", b.Outcome, w.calls["b"], w.ranText())
			}
		})
	}
}

func finds(found bool, err error) replay.Find {
	return func(_ context.Context, call coordinator.Call) (coordinator.Outcome, bool, error) {
		if call.Key != ledger.Key("default", call.Plan, "b", ledger.PurposeDo) || string(call.Input) != `{"for":"b"}` {
			return coordinator.Outcome{}, false, errors.New("called with " + call.Key + string(call.Input))
		}
		return coordinator.Outcome{Output: "found"}, found, err
	}
}

// TestWhatFailedIsReturnedAsItWasRecorded: the kind of the error, so that the function
// takes the same path.
func TestWhatFailedIsReturnedAsItWasRecorded(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	w := newTour(l)
	ctx, cancel := bounded(t)
	defer cancel()
	ctx1, lose := context.WithCancel(ctx)
	first := l.process()
	kinds := []error{coordinator.ErrNotTaken, context.DeadlineExceeded}
	function := func(end func() error) func(context.Context, *replay.Plan) error {
		return func(ctx context.Context, p *replay.Plan) error {
			for i, failure := range []error{coordinator.NotTaken(errNoRoom), context.DeadlineExceeded} {
				if _, err := w.do(ctx, p, w.action([]string{"no", "late"}[i]), failure); !errors.Is(err, kinds[i]) ||
					errors.Is(err, kinds[1-i]) {
					t.Errorf("Do returns %v, want %v", err, kinds[i])
				}
			}
			if err := w.act(ctx, p, "c"); err != nil {
				return err
			}
			return end()
		}
	}
	_ = first.Run(ctx1, accepting("failed"),
		function(func() error { waitCommitted(t, l, "failed", 1); return first.lose(lose) }))
	if err := l.process().Run(ctx, accepting("failed"), function(func() error { return nil })); err != nil {
		t.Error(err)
	}
	if got := w.ranText(); got != "no late c" {
		t.Errorf("ran %s", got)
	}
}

// TestAForwardThatEndsWithItsRunIsLeftOpen: an agent that is stopped in good order
// leaves no more after than one that is killed.
func TestAForwardThatEndsWithItsRunIsLeftOpen(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	w := newTour(l)
	ctx, cancel := bounded(t)
	defer cancel()
	ctx1, stop := context.WithCancel(ctx)
	a := w.action("a")
	a.Repeat = true
	err := l.process().Run(ctx1, config("stopped"), func(ctx context.Context, p *replay.Plan) error {
		_, err := p.Do(ctx, a, func(ctx context.Context, _ coordinator.Call) (coordinator.Outcome, error) {
			stop()
			return coordinator.Outcome{}, ctx.Err()
		})
		return err
	})
	if !errors.Is(err, context.Canceled) || l.shown("stopped").State != ledger.StateOpen {
		t.Errorf("ends with %v, plan %s", err, l.shown("stopped").State)
	}
	if err := l.process().Run(ctx, config("stopped"), func(ctx context.Context, p *replay.Plan) error {
		_, err := w.do(ctx, p, a, nil)
		return err
	}); err != nil || w.ranText() != "a" {
		t.Errorf("ran %s, %v", w.ranText(), err)
	}
}

// TestAReviewedActionThatWasNotRuledOnHasNotStarted: it waits for its verdict again.
func TestAReviewedActionThatWasNotRuledOnHasNotStarted(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	w := newTour(l)
	ctx, cancel := bounded(t)
	defer cancel()
	ctx1, lose := context.WithCancel(ctx)
	first := l.process()
	a := w.action("a")
	a.Review = true
	claimed := make(chan struct{}, 2) // a life that knows what was recorded before it
	function := func(ctx context.Context, p *replay.Plan) error {
		claimed <- struct{}{}
		_, err := w.do(ctx, p, a, nil)
		return err
	}
	go func() { // ends with the first life
		l.registered("review", "a")
		_ = first.lose(lose)
	}()
	if err := first.Run(ctx1, config("review"), function); !wasLost(err) {
		t.Fatal(err)
	}
	<-claimed
	done := make(chan error, 1)
	go func() { done <- l.process().Run(ctx, config("review"), function) }() // ends with the second life
	select {
	case <-claimed:
	case err := <-done:
		t.Fatal("the second life ended before its function: ", err)
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
	l.rule("review", "a", pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW)
	if err := <-done; err != nil || w.ranText() != "a" {
		t.Errorf("ran %q, %v", w.ranText(), err)
	}
}

// shown is a plan as `plan show` has it.
func (l *live) shown(plan string) api.Plan {
	l.t.Helper()
	var answer api.PlanAnswer
	l.ask("plan.show", api.PlanQuery{Plan: plan}, &answer)
	return answer.Plan
}

// showsAction waits until an action is shown as wanted.
func (l *live) showsAction(plan, action string, want func(api.Action) bool) api.Action {
	l.t.Helper()
	var last api.Action
	for by := time.Now().Add(testenv.Patience); time.Now().Before(by); {
		for _, a := range l.shown(plan).Actions {
			if last = a; a.Action == action && want(a) {
				return a
			}
		}
		<-time.After(5 * time.Millisecond) // the one that is asked has other work
	}
	l.t.Fatalf("action %s of plan %s stays %+v", action, plan, last)
	return last
}

// TestB4AnUndoOfAnActionWithoutOutput: with a handler beside it, before and after a
// crash.
func TestB4AnUndoOfAnActionWithoutOutput(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	w := newTour(l)
	ctx, cancel := bounded(t)
	defer cancel()
	ctx1, lose := context.WithCancel(ctx)
	first := l.process()
	function := func(end func() error) func(context.Context, *replay.Plan) error {
		return func(ctx context.Context, p *replay.Plan) error {
			a := w.action("a")
			a.Input = nil
			if output, err := p.Do(ctx, a, w.forward(nil, nil)); err != nil || output != nil {
				t.Errorf("Do returns %s, %v", output, err)
			}
			return end()
		}
	}
	_ = first.Run(ctx1, config("b4"), function(func() error { waitCommitted(t, l, "b4", 1); return first.lose(lose) }))
	wantUnwound(t, l.process().Run(ctx, config("b4"), function(func() error { return errNoRoom })),
		ledger.StateCompensated)
	if u := w.calls["a"]; w.ranText() != "a" || w.undoneText() != "a" || u.Output != nil || u.Input != nil || u.Blind {
		t.Errorf("ran %s, undone %s, told %+v", w.ranText(), w.undoneText(), u)
	}
}

// TestB3BranchesStartedInAnyOrderHaveOneUndoOrder: they are started in every order,
// the process is lost, they are started in the reverse order, and what came after
// them is undone first, what came before them last.
func TestB3BranchesStartedInAnyOrderHaveOneUndoOrder(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	for _, order := range []string{"bcd", "bdc", "cbd", "cdb", "dbc", "dcb"} {
		w := newTour(l)
		ctx, cancel := bounded(t)
		ctx1, lose := context.WithCancel(ctx)
		first := l.process()
		function := func(first bool, order string, end func() error) func(context.Context, *replay.Plan) error {
			return func(ctx context.Context, p *replay.Plan) error {
				if err := w.act(ctx, p, "a"); err != nil {
					return err
				}
				var finish []chan struct{}
				done := make(chan error, len(order))
				for _, id := range strings.Split(order, "") { // started in this order, finished in the reverse one
					branch := w.action(id)
					branch.After, branch.Branch = []string{"a"}, true
					started, may := make(chan struct{}), make(chan struct{})
					finish = append(finish, may)
					go func() { // ends with its action
						_, err := p.Do(ctx, branch, func(ctx context.Context, call coordinator.Call) (coordinator.Outcome, error) {
							close(started)
							<-may
							return w.forward(oddOutput(id), nil)(ctx, call)
						})
						done <- err
					}()
					if first {
						<-started
					}
				}
				for i := len(finish) - 1; i >= 0; i-- {
					close(finish[i])
				}
				for range finish {
					if err := <-done; err != nil {
						return err
					}
				}
				join := w.action("e")
				join.After, join.Branch = []string{"b", "c", "d"}, true
				if _, err := w.do(ctx, p, join, nil); err != nil {
					return err
				}
				return end()
			}
		}
		plan := "b3-" + order
		_ = first.Run(ctx1, config(plan),
			function(true, order, func() error { waitCommitted(t, l, plan, 5); return first.lose(lose) }))
		reversed := order[2:] + order[1:2] + order[:1]
		wantUnwound(t, l.process().Run(ctx, config(plan), function(false, reversed, func() error { return errNoRoom })),
			ledger.StateCompensated)
		undone := strings.ReplaceAll(w.undoneText(), " ", "")
		if len(w.ran) != 5 || len(undone) != 5 || undone[0] != 'e' || undone[4] != 'a' || !strings.Contains(undone, "b") ||
			!strings.Contains(undone, "c") {
			t.Errorf("started %s: ran %s, undone %s", order, w.ranText(), undone)
		}
		cancel()
	}
}

// TestAContractBesideAHandlerHolds: its before-image, its attempts and its probe.
func TestAContractBesideAHandlerHolds(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	w := newTour(l)
	ctx, cancel := bounded(t)
	defer cancel()
	conn := l.connect("a1")
	c, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: "default", Agent: "a1",
		Answers: map[string]coordinator.Answer{
			"tour.before": func(context.Context, api.Command) (any, error) { return map[string]int{"seats": 3}, nil },
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	failures := 2
	a := w.action("a")
	a.Undo = &replay.Undo{
		Contract: contract.Contract{Before: &contract.Before{Call: "tour.before"},
			Inverse: &contract.Inverse{Attempts: 3, Backoff: time.Millisecond}},
		Handler: func(ctx context.Context, u replay.UndoCall) error {
			if failures--; failures >= 0 {
				return errNoRoom
			}
			return w.handler("")(ctx, u)
		},
	}
	err = replay.Run(ctx, c, config("contract"), func(ctx context.Context, p *replay.Plan) error {
		if _, err := w.do(ctx, p, a, nil); err != nil {
			return err
		}
		return errNoRoom
	})
	wantUnwound(t, err, ledger.StateCompensated)
	if u := w.calls["a"]; u.Attempt != 3 || string(u.Before) != `{"seats":3}` {
		t.Errorf("told %+v", u)
	}
}

// forgetful loses the reply of every second append that it has stored.
type forgetful struct {
	coordinator.Appender
	count int
}

func (f *forgetful) Append(ctx context.Context, a ledger.Append) (uint64, error) {
	sequence, err := f.Appender.Append(ctx, a)
	if f.count++; err == nil && f.count%2 == 0 {
		return 0, fmt.Errorf("%w: the reply was lost", ledger.ErrInDoubt)
	}
	return sequence, err
}

// TestALostReplyIsNoOtherWriter: what is stored has moved the fence of its own retry, which a
// server looks at first.
func TestALostReplyIsNoOtherWriter(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	w := newTour(l)
	conn := l.connect("a1")
	appender, err := jetstream.Attach(conn, "default")
	if err != nil {
		t.Fatal(err)
	}
	lossy := &forgetful{Appender: appender}
	c, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: "default", Agent: "a1", Contracts: l.declared,
		Appender: lossy})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{c, conn}
	t.Cleanup(p.end)
	ctx, cancel := bounded(t)
	defer cancel()
	err = p.Run(ctx, config("lossy"), w.play(w.actions("a b c d"), ends(nil)))
	if err != nil || w.ranText() != "a b c d" || lossy.count < 4 {
		t.Errorf("%d appends, ran %q, %v", lossy.count, w.ranText(), err)
	}
}
