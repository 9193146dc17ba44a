package coordinator

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// after serves what a host says that has folded the opening of a plan and not that this
// process has resumed it, as the host of another executor does that still catches up. It
// answers at once where nothing newer is asked for.
func behind(t *testing.T, c *Coordinator, e *executor, plan string, asked *int) {
	t.Helper()
	opened, err := (&pb.PlanOpened{}).MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.serve = map[string]func([]byte) any{
		api.HistorySubject(tenant, "a1"): func([]byte) any {
			return api.HistoryAnswer{Agent: "a1", State: ledger.StateOpen, Opened: opened, Writer: c.writer}
		},
		api.QuerySubject(tenant, "plan.outcome"): func(body []byte) any {
			var q api.OutcomeQuery
			if err := json.Unmarshal(body, &q); err != nil || q.Plan != plan {
				t.Errorf("asked %s, %v", body, err)
			}
			*asked++
			if q.Sequence == 0 {
				return api.OutcomeAnswer{State: ledger.StateOpen, Writer: "an earlier process"}
			}
			return api.OutcomeAnswer{State: ledger.StateOpen, Writer: c.writer}
		},
	}
}

// TestAHostThatStillCatchesUpTakesNoPlanFromItsWriter: it names the process before.
func TestAHostThatStillCatchesUpTakesNoPlanFromItsWriter(t *testing.T) {
	long := func(ctx context.Context, call Call) (Outcome, error) {
		select {
		case <-ctx.Done():
			return Outcome{}, context.Cause(ctx)
		case <-time.After(5 * time.Minute):
			return happens(ctx, call)
		}
	}
	for name, strike := range map[string]func(p *Plan, e *executor){
		"a question": func(*Plan, *executor) {},
		"an outage":  func(_ *Plan, e *executor) { e.back() },
		"a notice that comes late": func(p *Plan, e *executor) {
			e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, Writer: "an earlier process"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				e, asked := &executor{}, 0
				c := startLimited(t, memory(), e, settled(0, 0))
				behind(t, c, e, "p", &asked)
				p, err := c.Resume(t.Context(), "p")
				if err != nil {
					t.Fatal(err)
				}
				for _, id := range []string{"a", "b"} { // of the second one its pair is queued last
					time.AfterFunc(time.Second, func() { strike(p, e) })
					if _, err := p.Do(t.Context(), write(id), long); err != nil {
						t.Error(err)
					}
				}
				if err := p.Flush(t.Context()); err != nil {
					t.Error(err)
				}
				e.mu.Lock() // a question may be under way
				defer e.mu.Unlock()
				if asked == 0 {
					t.Error("nothing was asked")
				}
			})
		})
	}
}

// TestANoticeThatAnotherProcessHasResumedIsBelieved: at once by the process that has begun
// the plan, and once an executor says so by one that has resumed it.
func TestANoticeThatAnotherProcessHasResumedIsBelieved(t *testing.T) {
	for name, resumes := range map[string]bool{"begun": false, "resumed": true} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				e, asked := &executor{}, 0
				c := start(t, memory(), e)
				var p *Plan
				if resumes {
					behind(t, c, e, "p", &asked)
					var err error
					if p, err = c.Resume(t.Context(), "p"); err != nil {
						t.Fatal(err)
					}
					e.mu.Lock()
					e.serve = nil
					e.mu.Unlock()
					e.say(api.OutcomeAnswer{State: ledger.StateOpen, Writer: "a later process"})
				} else {
					p = begin(t, c, PlanSpec{})
					mustDo(t, p, write("a"))
				}
				e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, Writer: "a later process"})
				elapse(LingerMax)
				_, err := p.Do(t.Context(), write("b"), never(t))
				wantIs(t, err, ErrSuperseded)
			})
		})
	}
}
