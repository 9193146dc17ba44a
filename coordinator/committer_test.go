package coordinator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
)

func TestAnOutcomeSharesTheCommitOfTheNextPair(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		p := begin(t, start(t, store, nil), PlanSpec{})
		mustDo(t, p, write("a"))
		mustDo(t, p, write("b"))
		if err := p.Fail(t.Context(), "no room"); err != nil {
			t.Fatal(err)
		}
		wantLines(t, store,
			"plan_opened forward_registered/a compensation_registered/a",
			"forward_completed/a forward_registered/b compensation_registered/b",
			"forward_completed/b plan_failed")
	})
}

func TestAnOutcomeThatNothingFollowsIsStoredAfterTheLinger(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		p := begin(t, start(t, store, nil), PlanSpec{})
		began := time.Now()
		mustDo(t, p, write("a"))
		if waited := time.Since(began); waited != 0 {
			t.Errorf("Do waited %v for its outcome", waited)
		}
		elapse(LingerMax - 1)
		wantLines(t, store, "plan_opened forward_registered/a compensation_registered/a")
		elapse(1)
		wantLines(t, store, "plan_opened forward_registered/a compensation_registered/a", "forward_completed/a")
	})
}

func TestFlushMakesTheOpeningAndTheOutcomesDurable(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		p := begin(t, start(t, store, nil), PlanSpec{})
		elapse(time.Second)
		wantLines(t, store, "")
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantLines(t, store, "plan_opened")
		mustDo(t, p, write("a"))
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantLines(t, store, "plan_opened", "forward_registered/a compensation_registered/a", "forward_completed/a")
	})
}

func TestConcurrentCallsShareCommits(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		g := newGate(store)
		c := start(t, g, nil)
		var wait sync.WaitGroup
		for range 100 {
			p := begin(t, c, PlanSpec{})
			wait.Go(func() { mustDo(t, p, write("a")) })
			synctest.Wait() // the first append is in flight, the other pairs wait
		}
		close(g.open)
		wait.Wait()
		commits := stored(t, store)
		if len(commits) > 3 {
			t.Errorf("%d commits for 100 concurrent actions", len(commits))
		}
		for _, commit := range commits { // of one plan or of many: one subject
			if commit.subject != "saga.default.agent.a1._" {
				t.Errorf("a commit stands on %s", commit.subject)
			}
		}
	})
}

func TestS64CommitsStayBelowTheCapAndPairsWhole(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		g := newGate(store)
		p := begin(t, start(t, g, nil), PlanSpec{})
		var wait sync.WaitGroup
		for i := range 40 {
			wait.Go(func() {
				a := Action{ID: fmt.Sprintf("a%d", i), Capability: "file.write", Branch: true,
					Input: strings.Repeat("x", 1000*(1+i%30))}
				mustDo(t, p, a)
			})
		}
		synctest.Wait()
		close(g.open)
		wait.Wait()
		total := 0
		for _, c := range stored(t, store) { // Decode refuses half a pair
			total += c.size
			if c.size > ledger.CommitSizeMax {
				t.Errorf("a commit of %d bytes", c.size)
			}
		}
		if n := len(stored(t, store)); n > 3+total/(ledger.CommitSizeMax/2) {
			t.Errorf("%d commits for %d bytes", n, total)
		}
	})
}

// faulty fails chosen appends, counted from 1 over all tries, and sees to it that
// a commit is tried again with the same bytes under the same ID.
type faulty struct {
	t     *testing.T
	store *ledger.Memory
	plan  map[int]ledger.Fault
	tries int
	last  ledger.Append
	doubt bool
}

func newFaulty(t *testing.T, plan map[int]ledger.Fault) *faulty {
	f := &faulty{t: t, store: memory(), plan: plan}
	f.store.Fault = func(a ledger.Append) ledger.Fault {
		f.tries++
		if f.doubt && (a.ID != f.last.ID || string(a.Data) != string(f.last.Data) || a.Subject != f.last.Subject) {
			t.Errorf("append %d is another one, before the last was known", f.tries)
		}
		fault := f.plan[f.tries]
		f.last, f.doubt = a, fault != ledger.FaultNone && fault != ledger.FaultRefused
		return fault
	}
	return f
}

// script is a plan of three actions and its end; it returns how often each
// forward ran.
func script(t *testing.T, p *Plan) map[string]int {
	ran := map[string]int{}
	for _, id := range []string{"a", "b", "c"} {
		forward := func(ctx context.Context, call Call) (Outcome, error) {
			ran[id]++
			return happens(ctx, call)
		}
		_, err := p.Do(t.Context(), write(id), forward)
		if isRefused(err) { // nothing was stored: the agent may call again
			_, err = p.Do(t.Context(), write(id), forward)
		}
		if err != nil {
			t.Error(err)
		}
	}
	err := p.Fail(t.Context(), "enough")
	if isRefused(err) {
		err = p.Fail(t.Context(), "enough")
	}
	if err != nil {
		t.Error(err)
	}
	return ran
}

const scripted = "plan_opened forward_registered/a compensation_registered/a forward_completed/a " +
	"forward_registered/b compensation_registered/b forward_completed/b " +
	"forward_registered/c compensation_registered/c forward_completed/c plan_failed"

func TestS65EachAppendFailedInEveryWayGivesTheSamePlan(t *testing.T) {
	faults := map[string]ledger.Fault{"lost": ledger.FaultLost, "kept": ledger.FaultKept, "refused": ledger.FaultRefused,
		"busy": ledger.FaultBusy}
	for name, fault := range faults {
		for n := 1; n <= 4; n++ {
			for _, forgets := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s at append %d, dedupe %v", name, n, !forgets), func(t *testing.T) {
					in(t, func(t *testing.T) {
						f := newFaulty(t, map[int]ledger.Fault{n: fault})
						var appender Appender = f.store
						if forgets {
							appender = forgetful{f.store}
						}
						p := begin(t, start(t, appender, nil), PlanSpec{})
						for id, times := range script(t, p) {
							if times != 1 {
								t.Errorf("forward %s ran %d times", id, times)
							}
						}
						if got := effective(t, f.store, p.ID()); got != scripted {
							t.Errorf("the plan is\n%s\nwant\n%s", got, scripted)
						}
						if f.tries != 5 {
							t.Errorf("%d appends, want one more than commits", f.tries)
						}
					})
				})
			}
		}
	}
}

// forgetful is a store whose memory of commit IDs has always run out.
type forgetful struct{ *ledger.Memory }

func (f forgetful) Append(ctx context.Context, a ledger.Append) (uint64, error) {
	f.Forget()
	return f.Memory.Append(ctx, a)
}

func TestNothingOvertakesAnAppendInDoubt(t *testing.T) {
	in(t, func(t *testing.T) {
		plan := map[int]ledger.Fault{}
		for n := 1; n < 12; n++ {
			plan[n] = ledger.FaultLost
		}
		f := newFaulty(t, plan)
		c := start(t, f.store, nil)
		var wait sync.WaitGroup
		for _, id := range []string{"p1", "p2", "p3"} {
			p := begin(t, c, PlanSpec{ID: id})
			wait.Go(func() {
				for i := range 5 {
					mustDo(t, p, write(fmt.Sprint("a", i)))
				}
				if err := p.Fail(t.Context(), "done"); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		want := "plan_opened"
		for i := range 5 {
			want += fmt.Sprintf(" forward_registered/a%d compensation_registered/a%d forward_completed/a%d", i, i, i)
		}
		for _, id := range []string{"p1", "p2", "p3"} {
			if got := effective(t, f.store, id); got != want+" plan_failed" {
				t.Errorf("plan %s is %s", id, got)
			}
		}
	})
}

func TestARefusalAfterADoubtKeepsTheDoubt(t *testing.T) {
	in(t, func(t *testing.T) {
		f := newFaulty(t, map[int]ledger.Fault{1: ledger.FaultKept, 2: ledger.FaultRefused})
		f.store.Fault = func(ledger.Append) ledger.Fault { f.tries++; return f.plan[f.tries] }
		p := begin(t, start(t, f.store, nil), PlanSpec{})
		mustDo(t, p, write("a"))
		wantLines(t, f.store, "plan_opened forward_registered/a compensation_registered/a")
	})
}

func TestARefusedOutcomeIsNotLost(t *testing.T) {
	in(t, func(t *testing.T) {
		var full atomic.Bool
		store := memory()
		store.Fault = func(ledger.Append) ledger.Fault {
			if full.Load() {
				return ledger.FaultRefused
			}
			return ledger.FaultNone
		}
		p := begin(t, start(t, store, nil), PlanSpec{})
		mustDo(t, p, write("a"))
		full.Store(true)
		elapse(LingerMax) // the outcome is refused
		_, err := p.Do(t.Context(), write("b"), happens)
		wantRefused(t, err, "stream")
		wantRefused(t, p.Flush(t.Context()), "stream")
		wantRefused(t, p.Fail(t.Context(), "full"), "stream")
		full.Store(false)
		mustDo(t, p, write("b"))
		if err := p.Fail(t.Context(), "enough"); err != nil {
			t.Error(err)
		}
		wantLines(t, store,
			"plan_opened forward_registered/a compensation_registered/a",
			"forward_completed/a forward_registered/b compensation_registered/b",
			"forward_completed/b plan_failed")
	})
}

func TestARefusedOpeningIsNotLostAndNothingStandsWithoutIt(t *testing.T) {
	in(t, func(t *testing.T) {
		f := newFaulty(t, map[int]ledger.Fault{1: ledger.FaultRefused})
		g := newGate(f.store)
		p := begin(t, start(t, g, nil), PlanSpec{})
		big := strings.Repeat("x", 40_000) // so that two pairs need two commits
		var wait sync.WaitGroup
		for _, id := range []string{"a", "b"} {
			wait.Go(func() {
				_, err := p.Do(t.Context(), Action{ID: id, Capability: "file.write", Input: big}, happens)
				wantRefused(t, err, "stream")
			})
		}
		synctest.Wait()
		close(g.open)
		wait.Wait()
		wantLines(t, f.store, "")
		mustDo(t, p, Action{ID: "b", Capability: "file.write", Input: big})
		wantLines(t, f.store, "plan_opened forward_registered/b compensation_registered/b")
	})
}

func TestCloseStoresWhatIsQueuedAndRefusesTheRest(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		c := start(t, store, nil)
		used, unused := begin(t, c, PlanSpec{}), begin(t, c, PlanSpec{})
		mustDo(t, used, write("a"))
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantLines(t, store, "plan_opened forward_registered/a compensation_registered/a", "forward_completed/a")
		_, err := used.Do(t.Context(), write("b"), happens)
		wantIs(t, err, ErrClosed)
		wantIs(t, used.Fail(t.Context(), "late"), ErrClosed)
		wantIs(t, unused.Flush(t.Context()), ErrClosed)
		elapse(time.Second) // a call returns before its place is given back
		if n := len(c.committer.places); n != 0 {
			t.Errorf("%d places are taken", n)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Errorf("closed twice: %v", err)
		}
	})
}

func TestCloseGivesUpWithItsContext(t *testing.T) {
	in(t, func(t *testing.T) {
		g := newGate(memory())
		c := start(t, g, nil)
		p, q := begin(t, c, PlanSpec{}), begin(t, c, PlanSpec{})
		sent, waiting := make(chan error, 1), make(chan error, 1)
		go func() { _, err := p.Do(t.Context(), write("a"), happens); sent <- err }()
		synctest.Wait() // its append hangs
		go func() { _, err := q.Do(t.Context(), write("a"), happens); waiting <- err }()
		synctest.Wait() // its pair waits after
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantIs(t, c.Close(ctx), context.DeadlineExceeded)
		wantIs(t, <-sent, ledger.ErrInDoubt)
		err := <-waiting
		wantIs(t, err, ErrClosed)
		if errors.Is(err, ledger.ErrInDoubt) {
			t.Error("in doubt, though it was never sent")
		}
	})
}

func TestAForwardThatEndsAfterCloseSaysThatItsOutcomeIsNotRecorded(t *testing.T) {
	in(t, func(t *testing.T) {
		c := start(t, memory(), nil)
		p := begin(t, c, PlanSpec{})
		output, err := p.Do(t.Context(), write("a"), func(context.Context, Call) (Outcome, error) {
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
			return Outcome{Output: 1}, nil
		})
		wantIs(t, err, ErrClosed)
		if string(output) != "1" {
			t.Errorf("output %s", output)
		}
	})
}

// TestRandomFaultsKeepEveryPlanWhole runs concurrent plans over a store that
// fails at random, and looks at each plan as the fold would.
func TestS65RandomFaultsKeepEveryPlanWhole(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			in(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 7))
				store := memory()
				store.Fault = func(ledger.Append) ledger.Fault {
					if random.IntN(3) > 0 {
						return ledger.FaultNone
					}
					return ledger.Fault(random.IntN(int(ledger.FaultBusy) + 1))
				}
				c := start(t, forgetful{store}, nil)
				var wait sync.WaitGroup
				for range 1 + random.IntN(6) {
					p := begin(t, c, PlanSpec{})
					wait.Go(func() { insist(t, store, p) })
				}
				wait.Wait()
			})
		})
	}
}

// insist runs the script and calls again whatever was refused.
func insist(t *testing.T, store *ledger.Memory, p *Plan) {
	again := func(call func() error) {
		err := call()
		for isRefused(err) {
			err = call()
		}
		if err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{"a", "b", "c"} {
		ran := 0
		again(func() error {
			_, err := p.Do(t.Context(), write(id), func(ctx context.Context, call Call) (Outcome, error) {
				ran++
				return happens(ctx, call)
			})
			return err
		})
		if ran != 1 {
			t.Errorf("forward %s ran %d times", id, ran)
		}
	}
	again(func() error { return p.Fail(t.Context(), "enough") })
	if got := effective(t, store, p.ID()); got != scripted {
		t.Errorf("the plan is\n%s\nwant\n%s", got, scripted)
	}
}

// silent never replies to its first append, as a connection that is gone.
type silent struct {
	*ledger.Memory
	ids []string
}

func (s *silent) Append(ctx context.Context, a ledger.Append) (uint64, error) {
	s.ids = append(s.ids, a.ID)
	if len(s.ids) == 1 {
		<-ctx.Done()
		return 0, fmt.Errorf("no reply: %w", ledger.ErrInDoubt)
	}
	return s.Memory.Append(ctx, a)
}

func TestAReconnectionEndsATryThatGetsNoReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &silent{Memory: memory()}
		c := start(t, store, nil)
		p := begin(t, c, PlanSpec{})
		began, done := time.Now(), make(chan error, 1)
		go func() {
			_, err := p.Do(t.Context(), write("a"), happens)
			done <- err
		}()
		synctest.Wait()
		c.committer.again()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took >= appendAttemptMax {
			t.Fatalf("it waited %s for a reply that was lost", took)
		}
		if len(store.ids) < 2 || store.ids[0] != store.ids[1] {
			t.Fatalf("not the same commit again: %v", store.ids)
		}
	})
}
