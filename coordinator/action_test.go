package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

func TestS64TheForwardRunsOnlyWhenItsPairIsStored(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		p := begin(t, start(t, store, nil), PlanSpec{Label: "upload", Owner: "web"})
		ran := false
		output, err := p.Do(t.Context(), write("a"), func(ctx context.Context, call Call) (Outcome, error) {
			ran = true
			wantLines(t, store, "plan_opened forward_registered/a compensation_registered/a")
			want := Call{Plan: p.ID(), Action: "a", Capability: "file.write", Key: ledger.Key(tenant, p.ID(), "a", "do"),
				Input: json.RawMessage(`{"path":"/tmp/a"}`), Number: 1, Sequence: 1}
			if fmt.Sprint(call) != fmt.Sprint(want) {
				t.Errorf("call %+v, want %+v", call, want)
			}
			return Outcome{Output: []int{1, 2}}, nil
		})
		if err != nil || !ran || string(output) != "[1,2]" {
			t.Errorf("ran %v, output %s, %v", ran, output, err)
		}
		if subject := stored(t, store)[0].subject; subject != "saga.default.agent.a1._" {
			t.Errorf("subject %s", subject)
		}
	})
}

func TestThePairHoldsWhatTheContractDeclares(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		p := begin(t, start(t, store, nil), PlanSpec{})
		mustDo(t, p, write("a"))
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		forward, inverse := find(t, store, "forward_registered/a"), find(t, store, "compensation_registered/a")
		f, c := forward.GetForwardRegistered(), inverse.GetCompensationRegistered()
		digest := compiled(t, contracts()[0]).Digest
		if f.Class != pb.Class_CLASS_COMPENSABLE || string(f.ContractDigest) != string(digest[:]) || f.EffectCrossed ||
			string(f.Lifted) != `{"path":"/tmp/a"}` {
			t.Errorf("forward %v", f)
		}
		if string(forward.Payload.Input) != `{"path":"/tmp/a"}` {
			t.Errorf("input %s", forward.Payload.Input)
		}
		if c.Capability != "file.delete" || c.Key != ledger.Key(tenant, p.ID(), "a", "undo") || c.Attempts != 5 ||
			c.BackoffNs != int64(time.Second) || c.BackoffMaxNs != int64(time.Minute) || c.TimeoutNs != int64(30*time.Second) ||
			c.OnInDoubt != pb.OnInDoubt_ON_IN_DOUBT_COMPENSATE || c.JitterPercent != 20 || len(c.Bindings) != 1 ||
			c.Bindings[0].Expression != "input.path" {
			t.Errorf("compensation %v", c)
		}
		completed := find(t, store, "forward_completed/a")
		if d := completed.GetForwardCompleted(); d.ExternalRef != "inode-7" || string(d.Lifted) != `{"size":7}` ||
			string(completed.Payload.Output) != `{"size":7}` {
			t.Errorf("completed %v", completed)
		}
	})
}

func TestIrreversibleAndEffectlessActionsAreRegisteredWithoutAnInverse(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		p := begin(t, start(t, store, nil), PlanSpec{})
		mustDo(t, p, Action{ID: "m", Capability: "mail.send"})
		mustDo(t, p, Action{ID: "r", Capability: "file.read"})
		for id, class := range map[string]pb.Class{"m": pb.Class_CLASS_IRREVERSIBLE, "r": pb.Class_CLASS_EFFECTLESS} {
			if got := find(t, store, "forward_registered/"+id).GetForwardRegistered().Class; got != class {
				t.Errorf("%s: class %v", id, got)
			}
			if c := find(t, store, "compensation_registered/"+id).GetCompensationRegistered(); c.Capability != "" {
				t.Errorf("%s: inverse %q", id, c.Capability)
			}
		}
	})
}

func TestWhatAForwardsErrorMeans(t *testing.T) {
	broken := errors.New("tool broke")
	for _, c := range []struct {
		name, want, code string
		err              error
	}{
		{"known failure", "forward_failed/a", "not_taken", NotTaken(broken)},
		{"known failure, wrapped", "forward_failed/a", "not_taken", fmt.Errorf("deeper: %w", NotTaken(broken))},
		{"its own sentinel", "forward_failed/a", "not_taken", fmt.Errorf("%w: %w", ErrNotTaken, broken)},
		{"any other error", "forward_in_doubt/a", "error", broken},
		{"deadline", "forward_in_doubt/a", "deadline", fmt.Errorf("%w: %w", broken, context.DeadlineExceeded)},
		{"cancelled", "forward_in_doubt/a", "cancelled", fmt.Errorf("%w: %w", broken, context.Canceled)},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				store := memory()
				p := begin(t, start(t, store, nil), PlanSpec{})
				_, err := p.Do(t.Context(), write("a"), func(context.Context, Call) (Outcome, error) { return Outcome{}, c.err })
				if err != c.err {
					t.Errorf("Do returned %v, want the forward's error as it is", err)
				}
				mustDo(t, p, write("b")) // a tool error undoes nothing
				r := find(t, store, c.want)
				code, message := r.GetForwardFailed().GetCode()+r.GetForwardInDoubt().GetCode(),
					r.GetForwardFailed().GetMessage()+r.GetForwardInDoubt().GetMessage()
				if code != c.code || message != c.err.Error() {
					t.Errorf("record %v", r)
				}
			})
		})
	}
	if NotTaken(nil) != nil {
		t.Error("NotTaken(nil) is an error")
	}
}

func TestAForwardThatDoesNotReturnIsInDoubtAndItsPanicGoesOn(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		p := begin(t, start(t, store, nil), PlanSpec{})
		func() {
			defer func() {
				if got := recover(); got != "boom" {
					t.Errorf("recovered %v", got)
				}
				// The record is durable before the panic goes on: the process may end.
				if r := find(t, store, "forward_in_doubt/a").GetForwardInDoubt(); r.Code != "panic" {
					t.Errorf("record %v", r)
				}
			}()
			_, _ = p.Do(t.Context(), write("a"), func(context.Context, Call) (Outcome, error) { panic("boom") })
		}()
		var wait sync.WaitGroup
		wait.Go(func() {
			_, _ = p.Do(t.Context(), write("b"), func(context.Context, Call) (Outcome,
				error) {
				runtime.Goexit()
				return Outcome{}, nil
			})
		})
		wait.Wait()
		find(t, store, "forward_in_doubt/b")
		if err := p.Fail(t.Context(), "panicked"); err != nil {
			t.Error(err) // no forward counts as running any more
		}
	})
}

func TestWhatIsRefusedQueuesNothing(t *testing.T) {
	big := strings.Repeat("x", ledger.CommitSizeMax)
	for _, c := range []struct {
		name, field string
		action      Action
	}{
		{"undeclared capability", "action.capability", Action{ID: "b", Capability: "rocket.launch"}},
		{"input too large", "records", Action{ID: "b", Capability: "file.write", Input: big}},
		{"input no JSON", "action.input", Action{ID: "b", Capability: "file.write", Input: json.RawMessage(`{"a":`)}},
		{"input that cannot be encoded", "action.input", Action{ID: "b", Capability: "file.write", Input: func() {}}},
		{"bad id", "action", Action{ID: "a.b", Capability: "file.write"}},
		{"unknown dependency", "action.after[0]", Action{ID: "b", Capability: "file.write", After: []string{"z"}}},
		{"dependency on itself", "action.after[0]", Action{ID: "b", Capability: "file.write", After: []string{"b"}}},
		{"an id that has run", "action.id", write("a")},
		{"an id that is another action", "action.id", Action{ID: "a", Capability: "mail.send"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				store := memory()
				p := begin(t, start(t, store, nil), PlanSpec{})
				mustDo(t, p, write("a"))
				elapse(LingerMax)
				before := lines(t, store)
				_, err := p.Do(t.Context(), c.action, func(context.Context, Call) (Outcome, error) {
					t.Error("the forward ran")
					return Outcome{}, nil
				})
				wantRefused(t, err, c.field)
				if c.action.ID != "a" {
					wantRefused(t, p.Report(t.Context(), c.action, Outcome{}), c.field)
				}
				elapse(time.Second)
				wantLines(t, store, before)
				if n := len(p.c.committer.places); n != 0 {
					t.Errorf("%d places are taken", n)
				}
				mustDo(t, p, write("c"))
			})
		})
	}
}

func TestDoWithoutAForwardIsRefused(t *testing.T) {
	in(t, func(t *testing.T) {
		_, err := begin(t, start(t, memory(), nil), PlanSpec{}).Do(t.Context(), write("a"), nil)
		wantRefused(t, err, "forward")
	})
}

func TestAnOutputThatCannotBeRecordedStillCompletes(t *testing.T) {
	for _, c := range []struct {
		name, field string
		outcome     Outcome
	}{
		{"too large", "records", Outcome{Output: map[string]string{"size": strings.Repeat("x", ledger.CommitSizeMax)},
			ExternalRef: "r"}},
		{"no JSON", "outcome.output", Outcome{Output: json.RawMessage("{"), ExternalRef: "r"}},
		{"cannot be encoded", "outcome.output", Outcome{Output: make(chan int), ExternalRef: "r"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				store := memory()
				p := begin(t, start(t, store, nil), PlanSpec{})
				_, err := p.Do(t.Context(), write("a"), func(context.Context, Call) (Outcome, error) { return c.outcome, nil })
				wantRefused(t, err, c.field)
				elapse(LingerMax)
				r := find(t, store, "forward_completed/a")
				if !r.GetForwardCompleted().OutputIncomplete || len(r.Payload.Output) != 0 || len(r.Payload.Detail) == 0 ||
					r.GetForwardCompleted().ExternalRef != "r" {
					t.Errorf("record %v", r)
				}
			})
		})
	}
}

func TestTheInputMayBeChangedAfterDoHasReturned(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		g := newGate(store)
		c := start(t, g, nil)
		first, second := begin(t, c, PlanSpec{}), begin(t, c, PlanSpec{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := first.Do(ctx, write("x"), happens) // its append hangs, and the next waits after it
		wantIs(t, err, ledger.ErrInDoubt)
		input := json.RawMessage(`{"path":"a"}`)
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = second.Do(ctx, Action{ID: "a", Capability: "file.write", Input: input}, happens)
		wantIs(t, err, ledger.ErrInDoubt)
		copy(input, `{"path":"b"}`)
		close(g.open)
		if err := second.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		elapse(time.Second)
		if got := find(t, store, "forward_registered/a").Payload.Input; string(got) != `{"path":"a"}` {
			t.Errorf("input %s", got)
		}
	})
}

func TestS64AReportIsOneCommit(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		p := begin(t, start(t, store, nil), PlanSpec{})
		for range 2 { // the second call is the retry of one in doubt
			if err := p.Report(t.Context(), write("a"),
				Outcome{Output: map[string]int{"size": 1}, ExternalRef: "r"}); err != nil {
				t.Fatal(err)
			}
		}
		wantLines(t, store, "plan_opened forward_registered/a compensation_registered/a forward_completed/a")
		if !find(t, store, "forward_registered/a").GetForwardRegistered().EffectCrossed {
			t.Error("the effect is not said to have crossed")
		}
		// which is lifted
		wantRefused(t, p.Report(t.Context(), write("b"),
			Outcome{Output: map[string]string{"size": strings.Repeat("x", ledger.CommitSizeMax)}}), "records")
		wantLines(t, store, "plan_opened forward_registered/a compensation_registered/a forward_completed/a")
	})
}

func TestActionsWithoutAnIDAreNumbered(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		p := begin(t, start(t, store, nil), PlanSpec{})
		mustDo(t, p, write(""))
		mustDo(t, p, write("3"))
		mustDo(t, p, write(""))
		if got := effective(t, store, p.ID()); !strings.Contains(got, "forward_registered/1 ") ||
			!strings.Contains(got, "forward_registered/4 ") {
			t.Errorf("the ledger holds %s", got)
		}
	})
}

func TestBranchesSayWhatTheyComeAfter(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		p := begin(t, start(t, store, nil), PlanSpec{})
		mustDo(t, p, write("a"))
		mustDo(t, p, Action{ID: "b", Capability: "file.write", After: []string{"a"}, Branch: true})
		if f := find(t, store, "forward_registered/b").GetForwardRegistered(); !f.Branch ||
			strings.Join(f.After, " ") != "a" {
			t.Errorf("forward %v", f)
		}
	})
}

func TestACallThatGivesUpIsInDoubtAndItsRetryIsTheSameAction(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		g := newGate(store)
		p := begin(t, start(t, g, nil), PlanSpec{})
		ran := 0
		forward := func(context.Context, Call) (Outcome, error) { ran++; return Outcome{}, nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Do(ctx, write("a"), forward)
		wantIs(t, err, ledger.ErrInDoubt)
		wantIs(t, err, context.DeadlineExceeded)
		_, err = p.Do(t.Context(), write("a"), forward) // the append timeout ends this one
		wantIs(t, err, ledger.ErrInDoubt)
		if ran != 0 {
			t.Fatal("the forward ran before its pair was stored")
		}
		_, err = p.Do(t.Context(), Action{ID: "a", Capability: "file.write", Input: "another"}, forward)
		wantRefused(t, err, "action.id")
		close(g.open)
		if _, err := p.Do(t.Context(), write("a"), forward); err != nil || ran != 1 {
			t.Fatalf("ran %d times, %v", ran, err)
		}
		elapse(LingerMax)
		wantLines(t, store, "plan_opened forward_registered/a compensation_registered/a", "forward_completed/a")
	})
}

func TestOfSeveralCallsWithOneIDOneRunsTheForward(t *testing.T) {
	in(t, func(t *testing.T) {
		g := newGate(memory())
		p := begin(t, start(t, g, nil), PlanSpec{})
		var mu sync.Mutex
		ran, refused := 0, 0
		var wait sync.WaitGroup
		for range 5 {
			wait.Go(func() {
				_, err := p.Do(t.Context(), write("a"), func(context.Context, Call) (Outcome, error) {
					mu.Lock()
					defer mu.Unlock()
					ran++
					return Outcome{}, nil
				})
				mu.Lock()
				defer mu.Unlock()
				if isRefused(err) {
					refused++
				}
			})
		}
		synctest.Wait()
		close(g.open)
		wait.Wait()
		if ran != 1 || refused != 4 {
			t.Errorf("ran %d, refused %d", ran, refused)
		}
	})
}

func TestTheForwardIsNotCalledWhenItsContextHasEnded(t *testing.T) {
	in(t, func(t *testing.T) {
		p := begin(t, start(t, memory(), nil), PlanSpec{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := p.Do(ctx, write("a"), func(context.Context, Call) (Outcome, error) {
			t.Error("the forward ran")
			return Outcome{}, nil
		})
		wantIs(t, err, context.Canceled)
		mustDo(t, p, write("a"))
	})
}

func TestTooManyCallsWaitOrAreTurnedAway(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		c := start(t, store, nil)
		p := begin(t, c, PlanSpec{})
		for range CallsMax {
			c.committer.places <- struct{}{}
		}
		_, err := p.Do(t.Context(), write("a"), happens)
		wantIs(t, err, ledger.ErrBusy)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = p.Do(ctx, write("a"), happens)
		wantIs(t, err, context.DeadlineExceeded)
		if errors.Is(err, ledger.ErrInDoubt) {
			t.Error("in doubt, though nothing was queued")
		}
		wantLines(t, store, "")
		for range CallsMax {
			<-c.committer.places
		}
		mustDo(t, p, write("a"))
	})
}
