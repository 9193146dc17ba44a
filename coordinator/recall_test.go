package coordinator

import (
	"errors"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestAPlanThatOpensWhileItIsRecalledIsOpen: it was unwinding when it was asked for first.
func TestAPlanThatOpensWhileItIsRecalledIsOpen(t *testing.T) {
	in(t, func(t *testing.T) {
		opened, err := (&pb.PlanOpened{Label: "trip"}).MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		var c *Coordinator
		asked := 0
		e := &executor{serve: map[string]func([]byte) any{
			api.HistorySubject(tenant, "a1"): func([]byte) any {
				state := ledger.StateOpen
				if asked++; asked == 1 {
					state = ledger.StateUnwinding
				}
				return api.HistoryAnswer{Agent: "a1", State: state, Opened: opened, Writer: c.writer}
			},
		}}
		c = start(t, memory(), e)
		r, err := c.Recall(t.Context(), "p")
		if err != nil || r.State != ledger.StateOpen {
			t.Fatalf("%+v, %v", r, err)
		}
		if err := r.Plan.Savepoint(t.Context(), "s"); err != nil {
			t.Error(err)
		}
	})
}

// recalled is an open plan with an action a of an earlier process, whose outcome is not known.
func recalled(t *testing.T, store Appender, registered *pb.ForwardRegistered,
	past api.PastAction) (*Recalled, *executor) {
	t.Helper()
	opened, err := (&pb.PlanOpened{Label: "trip"}).MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	if past.Forward, err = registered.MarshalVT(); err != nil {
		t.Fatal(err)
	}
	past.Number, past.Action, past.Outcome = 1, "a", api.OutcomeUnknown
	var c *Coordinator
	e := &executor{serve: map[string]func([]byte) any{
		api.HistorySubject(tenant, "a1"): func([]byte) any {
			return api.HistoryAnswer{Agent: "a1", State: ledger.StateOpen, Opened: opened, Writer: c.writer,
				Actions: []api.PastAction{past}}
		},
	}}
	c = start(t, store, e)
	r, err := c.Recall(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	return r, e
}

// TestAForwardThatWasUndoneIsNotCalledAgain, although nothing is recorded of its outcome.
func TestAForwardThatWasUndoneIsNotCalledAgain(t *testing.T) {
	in(t, func(t *testing.T) {
		r, _ := recalled(t, memory(), &pb.ForwardRegistered{Capability: write("a").Capability},
			api.PastAction{Undone: true})
		declared := write("a")
		declared.Input = nil
		var recorded *Recorded
		if _, err := r.Plan.DoAgain(t.Context(), declared, happens); !errors.As(err, &recorded) || !recorded.Undone {
			t.Errorf("%v", err)
		}
	})
}

// TestWhatAnEarlierProcessMayHaveCalledIsInDoubt, whatever keeps this one from calling it: that it did
// not happen is not said.
func TestWhatAnEarlierProcessMayHaveCalledIsInDoubt(t *testing.T) {
	for name, c := range map[string]struct {
		review  bool
		verdict string // that this process hears of
		want    error
	}{
		"blocked": {true, verdictBlock, ErrBlocked}, "redirected": {true, verdictRedirect, ErrBlocked},
		"no verdict": {true, "", ErrNoVerdict}, "no executor": {false, "", ErrNotStarted},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				past := api.PastAction{}
				if c.review {
					past.Verdict = verdictAllow
				}
				store := memory()
				r, e := recalled(t, store, &pb.ForwardRegistered{Capability: write("a").Capability, Review: c.review}, past)
				if c.verdict != "" {
					e.notify(t, api.Notice{Plan: "p", State: ledger.StateOpen, Action: "a", Verdict: c.verdict, By: "boss"})
				}
				elapse(startSlack + 1) // its plan may have been undone since
				declared := write("a")
				declared.Input, declared.Review = nil, c.review
				calls := 1
				if c.review {
					calls++ // and it stays what it is
				}
				for range calls {
					var recorded *Recorded
					_, err := r.Plan.DoAgain(t.Context(), declared, never(t))
					if !errors.Is(err, c.want) || !errors.As(err, &recorded) || recorded.Outcome != api.OutcomeInDoubt ||
						c.verdict != "" && recorded.By != "boss" {
						t.Errorf("%v", err)
					}
				}
				elapse(LingerMax)
				wantLines(t, store, "plan_resumed", "forward_in_doubt/a")
			})
		})
	}
}

// TestOfAPlanThatIsKeptNothingIsStored, which would be refused. What else the process that has it says
// is a hint.
func TestOfAPlanThatIsKeptNothingIsStored(t *testing.T) {
	opened, err := (&pb.PlanOpened{Label: "trip"}).MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	for name, said := range map[string]struct {
		answer any
		kept   bool
	}{
		"kept":    {api.Problem{Text: "this process has resumed plan p since", Again: true}, true},
		"let go":  {[]byte(nil), false},
		"refused": {api.Problem{Text: "there is no such field", Field: "request.more"}, false},
		"unread":  {[]byte("?"), false},
	} {
		in(t, func(t *testing.T) {
			var c *Coordinator
			store, asked := memory(), 0
			c = start(t, store, &executor{serve: map[string]func([]byte) any{
				api.HistorySubject(tenant, "a1"): func([]byte) any {
					history := api.HistoryAnswer{Agent: "a1", State: ledger.StateOpen, Opened: opened, Writer: "w", WriterAt: 7}
					if asked++; asked > 1 {
						history.Writer = c.writer
					}
					return history
				},
				api.YieldSubject(tenant, "a1", "w"): func([]byte) any { return said.answer },
			}})
			if _, err = c.Resume(t.Context(), "p"); said.kept {
				wantIs(t, err, ErrSuperseded)
				wantLines(t, store)
				_, err = c.Resume(t.Context(), "p") // now its own
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			wantLines(t, store, "plan_resumed")
		})
	}
}

// TestOnlyWhatHappenedEndsItsForward: of anything else its own process may know better.
func TestOnlyWhatHappenedEndsItsForward(t *testing.T) {
	for outcome, happened := range map[string]bool{api.OutcomeCompleted: true, api.OutcomeFailed: false,
		api.OutcomeInDoubt: false, api.OutcomeUnknown: false} {
		in(t, func(t *testing.T) {
			r, e := recalled(t, memory(), &pb.ForwardRegistered{Capability: write("a").Capability}, api.PastAction{})
			asked := e.serve[api.HistorySubject(tenant, "a1")]
			e.serve[api.HistorySubject(tenant, "a1")] = func(body []byte) any {
				history := asked(body).(api.HistoryAnswer)
				history.Actions[0].Outcome = outcome
				return history
			}
			err := Happened(t.Context(), r.Plan, Call{Plan: "p", Action: "a", Number: 1}, 0)
			if errors.As(err, new(*Recorded)) != happened || !happened && err != nil {
				t.Errorf("%s: %v", outcome, err)
			}
		})
	}
}

// TestWhatIsNoNameIsNotAskedToLetAPlanGo: any client may have recorded it, and it would be a part of
// the subject.
func TestWhatIsNoNameIsNotAskedToLetAPlanGo(t *testing.T) {
	in(t, func(t *testing.T) {
		e := &executor{}
		c := start(t, memory(), e)
		for _, writer := range []string{"", "*", "w.>", "w x", c.writer} {
			e.serve = map[string]func([]byte) any{api.YieldSubject(tenant, "a1", writer): func([]byte) any {
				t.Errorf("%q is asked", writer)
				return []byte(nil)
			}}
			if err := c.askToYield(t.Context(), "p", api.HistoryAnswer{Agent: "a1", Writer: writer}); err != nil {
				t.Error(err)
			}
		}
	})
}
