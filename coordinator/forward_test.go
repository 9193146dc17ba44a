package coordinator

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// limited is the contract of file.write with a timeout and a grace.
func limited(timeout, grace time.Duration) contract.Contract {
	c := contracts()[0]
	c.Timeout, c.Grace = timeout, grace
	return c
}

// ended has a forward end with its caller.
func ended(c contract.Contract) contract.Contract {
	c.Late = contract.LateNever
	return c
}

func startLimited(t *testing.T, store Appender, b bus, c contract.Contract) *Coordinator {
	t.Helper()
	agent, err := newCoordinator(Config{Appender: store, Tenant: tenant, Agent: "a1", Contracts: []contract.Contract{c}},
		b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = agent.Close(context.Background()) })
	return agent
}

// waits is a forward that ends with its context, and says when that was.
func waits(began time.Time, took *time.Duration) Forward {
	return func(ctx context.Context, _ Call) (Outcome, error) {
		<-ctx.Done()
		*took = time.Since(began)
		return Outcome{}, context.Cause(ctx)
	}
}

func TestNoForwardStartsAfterTheDeadlineOfItsPlan(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		g := newGate(store)
		p := begin(t, start(t, g, nil), PlanSpec{Deadline: time.Second / 2})
		time.AfterFunc(time.Second/2, func() { close(g.open) }) // its pair is stored in that moment
		_, err := p.Do(t.Context(), write("a"), never(t))
		wantIs(t, err, ErrUnwinding)
		elapse(LingerMax)
		wantLines(t, store, "plan_opened forward_registered/a compensation_registered/a", "forward_failed/a")
	})
}

// TestADeadlineThatWasMovedIsAskedFor once it has passed as far as known: the notice of it was lost.
func TestADeadlineThatWasMovedIsAskedFor(t *testing.T) {
	in(t, func(t *testing.T) {
		e := &executor{script: []api.OutcomeAnswer{{State: ledger.StateOpen}}}
		p := begin(t, startLimited(t, memory(), e, limited(0, 0)), PlanSpec{Deadline: time.Second})
		ran := func(context.Context, Call) (Outcome, error) { return Outcome{}, nil }
		if _, err := p.Do(t.Context(), write("a"), ran); err != nil {
			t.Fatal(err)
		}
		elapse(2 * time.Second)
		e.say(api.OutcomeAnswer{State: ledger.StateOpen, DueNs: time.Now().Add(time.Minute).UnixNano(), DueSet: 9})
		if _, err := p.Do(t.Context(), write("b"), ran); err != nil {
			t.Error(err)
		}
		elapse(2 * time.Minute)
		_, err := p.Do(t.Context(), write("c"), never(t))
		wantIs(t, err, ErrUnwinding)
	})
}

func TestAForwardIsGivenUpAtTheEndOfItsTimeAndOfItsPlans(t *testing.T) {
	for name, c := range map[string]struct {
		contract contract.Contract
		plan     PlanSpec
		end      func(p *Plan, e *executor)
		want     time.Duration
	}{
		"timeout": {limited(time.Second, 0), PlanSpec{}, nil, time.Second},
		"deadline": {limited(0, 300*time.Millisecond), PlanSpec{Deadline: time.Second}, nil,
			1300 * time.Millisecond},
		"deadline and timeout": {limited(time.Second, 300*time.Millisecond), PlanSpec{Deadline: 900 * time.Millisecond}, nil,
			time.Second},
		"notice": {limited(0, 300*time.Millisecond), PlanSpec{}, func(p *Plan, e *executor) {
			e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateUnwinding})
		}, 800 * time.Millisecond},
		"deadline that is moved on": {limited(0, 300*time.Millisecond), PlanSpec{Deadline: time.Second},
			func(p *Plan, e *executor) {
				e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, At: 9,
					DueNs: time.Now().Add(2 * time.Second).UnixNano()})
			}, 2800 * time.Millisecond},
		"deadline that is moved here": {limited(0, 300*time.Millisecond), PlanSpec{Deadline: time.Minute},
			func(p *Plan, e *executor) {
				e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, At: 9,
					DueNs: time.Now().Add(time.Second).UnixNano()})
			}, 1800 * time.Millisecond},
		"first deadline": {limited(0, 300*time.Millisecond), PlanSpec{},
			func(p *Plan, e *executor) {
				e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, At: 9,
					DueNs: time.Now().Add(time.Second).UnixNano()})
				e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, At: 7, // late
					DueNs: time.Now().Add(time.Millisecond).UnixNano()})
			}, 1800 * time.Millisecond},
		"default grace": {limited(0, 0), PlanSpec{}, func(p *Plan, e *executor) {
			e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateUnwinding})
		}, 2500 * time.Millisecond},
		"missed notice": {limited(0, 0), PlanSpec{}, func(p *Plan, e *executor) {
			e.say(api.OutcomeAnswer{State: ledger.StateUnwinding})
			e.back()
		}, 500 * time.Millisecond},
		"lost notice": {limited(0, 0), PlanSpec{}, func(p *Plan, e *executor) {
			e.say(api.OutcomeAnswer{State: ledger.StateOpen}, api.OutcomeAnswer{State: ledger.StateUnwinding})
		}, 15 * time.Second}, // asked each 7.5 s
		"lost notice of what ends with its caller": {ended(limited(0, 0)), PlanSpec{}, func(p *Plan, e *executor) {
			e.say(api.OutcomeAnswer{State: ledger.StateOpen}, api.OutcomeAnswer{State: ledger.StateUnwinding})
		}, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				e, took := &executor{}, time.Duration(0)
				p := begin(t, startLimited(t, memory(), e, c.contract), c.plan)
				if c.end != nil {
					time.AfterFunc(500*time.Millisecond, func() { c.end(p, e) })
				}
				if _, err := p.Do(t.Context(), write("a"), waits(time.Now(), &took)); err == nil {
					t.Error("Do returns nil")
				}
				if took != c.want {
					t.Errorf("it was given up after %v, not %v", took, c.want)
				}
			})
		})
	}
}

// TestAForwardThatIsLongRegisteredStartsWhenItsPlanIsOpen: its plan may have been undone
// since, and an undo of what had not started yet have been sent.
func TestAForwardThatIsLongRegisteredStartsWhenItsPlanIsOpen(t *testing.T) {
	open, unwinding := api.OutcomeAnswer{State: ledger.StateOpen}, api.OutcomeAnswer{State: ledger.StateCompensated,
		Reason: "sold"}
	for name, c := range map[string]struct {
		stored  time.Duration // after its call
		timeout time.Duration
		answers []api.OutcomeAnswer
		runs    bool
		asked   bool
		err     error
	}{
		"soon": {startSlack, 0, nil, true, false, nil},
		"open": {startSlack + 1, 0, []api.OutcomeAnswer{open}, true, true, nil},
		"held": {startSlack + 1, 0, []api.OutcomeAnswer{{State: ledger.StateOpen, Undo: "held"}}, true, true, nil},
		"went back": {startSlack + 1, 0, []api.OutcomeAnswer{{State: ledger.StateOpen, Undo: "skipped"}}, false, true,
			ErrPartUndone},
		"undone":   {startSlack + 1, 0, []api.OutcomeAnswer{unwinding}, false, true, ErrUnwinding},
		"no word":  {startSlack + 1, 0, nil, false, false, ErrNotStarted},
		"too late": {startSlack, startSlack, nil, false, false, ErrNotStarted},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				store, e, ran := memory(), &executor{script: c.answers}, false
				g := newGate(store)
				p := begin(t, startLimited(t, g, e, limited(c.timeout, time.Hour)), PlanSpec{})
				time.AfterFunc(c.stored, func() { close(g.open) })
				_, err := p.Do(t.Context(), write("a"), func(ctx context.Context, call Call) (Outcome, error) {
					ran = true
					return happens(ctx, call)
				})
				wantIs(t, err, c.err)
				if ran != c.runs || len(e.asked) > 0 != c.asked {
					t.Errorf("it runs: %t, after questions %+v", ran, e.asked)
				}
				if elapse(LingerMax); !ran && effective(t, store, p.ID()) != "plan_opened forward_registered/a "+
					"compensation_registered/a forward_failed/a" {
					t.Errorf("the ledger holds %s", lines(t, store))
				}
			})
		})
	}
}

// settled is a contract without a timeout whose forward may land for a while.
func settled(settle, grace time.Duration) contract.Contract {
	c := limited(0, grace)
	c.Settle = settle
	return c
}

// TestAForwardOfAnAgentThatIsCutOffIsInterrupted: its plan may be undone where the agent
// hears nothing, and the executor counts on it having given the forward up.
func TestAForwardOfAnAgentThatIsCutOffIsInterrupted(t *testing.T) {
	open := api.OutcomeAnswer{State: ledger.StateOpen}
	for name, c := range map[string]struct {
		contract contract.Contract
		hears    time.Duration // for so long an executor answers
		within   [2]time.Duration
	}{
		"from the start": {settled(0, 0), 0, [2]time.Duration{15 * time.Second, 15 * time.Second}},
		"after a while":  {settled(0, 0), time.Minute, [2]time.Duration{time.Minute, 75 * time.Second}},
		"settle":         {settled(time.Minute, 0), 0, [2]time.Duration{30 * time.Second, 30 * time.Second}},
		"grace":          {settled(2*time.Second, 5*time.Second), 0, [2]time.Duration{5 * time.Second, 5 * time.Second}},
		"short":          {settled(time.Millisecond, time.Millisecond), 0, [2]time.Duration{time.Second, time.Second}},
		"late never":     {ended(limited(0, 0)), 0, [2]time.Duration{2 * time.Second, 2 * time.Second}},
		"never, short":   {ended(limited(0, 300*time.Millisecond)), 0, [2]time.Duration{2 * time.Second, 2 * time.Second}},
		"never, a while": {ended(limited(0, 0)), time.Minute, [2]time.Duration{time.Minute, 62 * time.Second}},
		"after minutes":  {settled(time.Minute, 0), 10 * time.Minute, [2]time.Duration{10 * time.Minute, 630 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				store, e, took := memory(), &executor{}, time.Duration(0)
				if c.hears > 0 {
					e.say(open)
					time.AfterFunc(c.hears, func() { e.say() })
				}
				p := begin(t, startLimited(t, store, e, c.contract), PlanSpec{})
				began := time.Now()
				_, err := p.Do(t.Context(), write("a"), func(ctx context.Context, _ Call) (Outcome, error) {
					<-ctx.Done()
					took = time.Since(began)
					return Outcome{}, ctx.Err() // as a client that knows no cause
				})
				wantIs(t, err, ErrUnheard)
				wantIs(t, err, context.Canceled)
				if took < c.within[0] || took > c.within[1] {
					t.Errorf("it was given up after %v, not within %v", took, c.within)
				}
				elapse(askDelayMax)
				grace := find(t, store, "forward_registered/a").GetForwardRegistered().GraceNs
				if never := c.contract.Late == contract.LateNever; never && grace != 0 && took > time.Duration(grace)+c.hears {
					t.Errorf("it was given up after %v, and an executor counts on %v", took, time.Duration(grace))
				}
				if code := find(t, store, "forward_in_doubt/a").GetForwardInDoubt().Code; code != codeCancelled {
					t.Errorf("it is recorded as %s", code)
				}
			})
		})
	}
}

// TestAShortOutageInterruptsNoForward: a host that is started again answers in time.
func TestAShortOutageInterruptsNoForward(t *testing.T) {
	in(t, func(t *testing.T) {
		e := &executor{}
		p := begin(t, startLimited(t, memory(), e, settled(0, 0)), PlanSpec{})
		open := api.OutcomeAnswer{State: ledger.StateOpen}
		for at := time.Duration(0); at < 5*time.Minute; at += 20 * time.Second { // silent for 12 s of each 20
			time.AfterFunc(at+12*time.Second, func() { e.say(open) })
			time.AfterFunc(at+20*time.Second, func() { e.say() })
		}
		if _, err := p.Do(t.Context(), write("a"), func(ctx context.Context, call Call) (Outcome, error) {
			select {
			case <-ctx.Done():
				return Outcome{}, context.Cause(ctx)
			case <-time.After(5 * time.Minute):
				return happens(ctx, call)
			}
		}); err != nil {
			t.Error(err)
		}
		elapse(time.Minute)
	})
}

// TestAForwardWithAnotherBoundNeedsNoExecutor: its timeout ends it, or its provider
// refuses it once its undo is there.
func TestAForwardWithAnotherBoundNeedsNoExecutor(t *testing.T) {
	refused := limited(0, 0)
	refused.Late = contract.LateRefused
	refused.Inverse = &contract.Inverse{Call: "file.delete", With: map[string]any{"key": "=meta.forward_key"}}
	for name, c := range map[string]contract.Contract{"timeout": limited(time.Hour, 0), "late refused": refused} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				p := begin(t, startLimited(t, memory(), &executor{}, c), PlanSpec{})
				if _, err := p.Do(t.Context(), write("a"), func(ctx context.Context, call Call) (Outcome, error) {
					select {
					case <-ctx.Done():
						return Outcome{}, context.Cause(ctx)
					case <-time.After(50 * time.Minute):
						return happens(ctx, call)
					}
				}); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestNothingIsAskedAfterAnOutageWithoutForwards of any plan: only what runs needs to know. One
// question is whether the ledger is the one of before, whatever plans there are.
func TestNothingIsAskedAfterAnOutageWithoutForwards(t *testing.T) {
	in(t, func(t *testing.T) {
		e := &executor{script: []api.OutcomeAnswer{{State: ledger.StateUnwinding}}}
		c := start(t, memory(), e)
		begin(t, c, PlanSpec{})
		p := begin(t, c, PlanSpec{})
		mustDo(t, p, write("a"))
		e.back()
		synctest.Wait()
		if len(e.asked) != 1 || e.asked[0].Digest == "" || e.asked[0].Sequence != p.Stored() {
			t.Errorf("asked %+v", e.asked)
		}
		mustDo(t, p, write("b"))
	})
}

// What a forward writes is its caller's again once Do has returned, whatever has ended meanwhile.
func TestDoReturnsNoSoonerThanItsForward(t *testing.T) {
	for name, end := range map[string]func(p *Plan, cancel func()){
		"its context":     func(_ *Plan, cancel func()) { cancel() },
		"its plan":        func(p *Plan, _ func()) { _ = p.Fail(context.Background(), "no room") },
		"its coordinator": func(p *Plan, _ func()) { _ = p.c.Close(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				p := begin(t, start(t, memory(), nil), PlanSpec{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				finish, returned := make(chan struct{}), make(chan bool, 1)
				go func() {
					done := false
					_, _ = p.Do(ctx, write("a"), func(ctx context.Context, c Call) (Outcome, error) {
						<-finish
						done = true
						return happens(ctx, c)
					})
					returned <- done
				}()
				synctest.Wait()
				end(p, cancel)
				elapse(time.Hour)
				if len(returned) != 0 {
					t.Fatal("it has returned while its forward runs")
				}
				close(finish)
				if !<-returned {
					t.Error("it has returned without its forward")
				}
			})
		})
	}
}
