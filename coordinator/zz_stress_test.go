package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

func TestZZStress(t *testing.T) {
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{files()}, ReviewTimeout: 300 * time.Millisecond})
	for round := range 15 {
		stress(t, l, uint64(round), round%2 == 0)
	}
}

func stress(t *testing.T, l *live, seed uint64, commit bool) {
	l.mu.Lock()
	l.undone = nil
	l.mu.Unlock()
	p := l.begin(coordinator.Plan{})
	l.do(p, "first")
	if err := p.Savepoint(t.Context(), "s0"); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	ran := map[string]bool{}
	kids := []*coordinator.OpenPlan{}
	errs := map[string]int{}
	one := 1
	gen, gens := &one, map[string]int{}
	note := func(what string, err error) {
		if err == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, k := range []error{coordinator.ErrUnwinding, coordinator.ErrBlocked, coordinator.ErrNoVerdict, coordinator.ErrClosed, coordinator.ErrUnwound, context.Canceled} {
			if errors.Is(err, k) {
				errs[what+": "+k.Error()]++
				return
			}
		}
		errs[what+": "+err.Error()]++
	}
	fwd := func(plan, id string) coordinator.Forward {
		return func(ctx context.Context, c coordinator.Call) (coordinator.Outcome, error) {
			mu.Lock()
			ran[plan+"/"+id] = true
			mu.Unlock()
			return coordinator.Outcome{Output: map[string]string{"x": id}}, nil
		}
	}
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := rand.New(rand.NewPCG(seed, uint64(g)))
			for i := range 12 {
				id := fmt.Sprintf("g%d_%d", g, i)
				switch k := r.IntN(10); {
				case k < 6:
					br := r.IntN(2) == 0
					for try := 0; ; try++ {
						id := fmt.Sprintf("%s_%d", id, try)
						_, err := p.Do(t.Context(), coordinator.Action{ID: id, Capability: "file.write", Branch: br}, fwd("p", id))
						note("do", err)
						mu.Lock()
						if err == nil && gen != nil {
							gens[id] = *gen
						}
						mu.Unlock()
						if err == nil || try > 200 {
							break
						}
						time.Sleep(time.Millisecond)
					}
				case k < 8:
					say := r.IntN(2) == 0
					go func() {
						if say {
							l.rule(p.ID(), id, pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW)
						}
					}()
					_, err := p.Do(t.Context(), coordinator.Action{ID: id, Capability: "file.write", Review: true}, fwd("p", id))
					note("review", err)
				case k == 8:
					child, err := p.Begin(t.Context(), coordinator.Plan{})
					note("begin", err)
					if err == nil {
						_, err = child.Do(t.Context(), coordinator.Action{ID: id, Capability: "file.write"}, fwd("c", id))
						note("child do", err)
						note("child commit", child.Commit(t.Context()))
						mu.Lock()
						kids = append(kids, child)
						mu.Unlock()
					}
				default:
					err := p.Report(t.Context(), coordinator.Action{ID: id, Capability: "file.write"}, coordinator.Outcome{})
					note("report", err)
					if err == nil {
						mu.Lock()
						ran["p/"+id] = true
						mu.Unlock()
					}
				}
			}
		}()
	}
	wg.Add(1)
	go func() {
		defer wg.Done()
		for range 4 {
			time.Sleep(3 * time.Millisecond)
			mu.Lock()
			before := []string{}
			for id := range gens {
				before = append(before, id)
			}
			mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			uerr := p.UnwindTo(ctx, "s0", "again")
			note("unwind", uerr)
			cancel()
			if uerr == nil {
				l.mu.Lock()
				u := map[string]bool{}
				for _, c := range l.undone {
					u[c.Action] = true
				}
				l.mu.Unlock()
				for _, id := range before {
					if !u[id] {
						t.Errorf("%s not undone by UnwindTo", id)
					}
				}
			}
		}
	}()
	wg.Wait()
	if commit {
		err := p.Commit(t.Context())
		t.Log("commit", err)
		if err != nil {
			note("fail", p.Fail(t.Context(), "end"))
			commit = false
		}
	} else {
		note("fail", p.Fail(t.Context(), "end"))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	end, err := p.Wait(ctx)
	if err != nil {
		t.Error(err)
	}
	undone := map[string]int{}
	l.mu.Lock()
	for _, c := range l.undone {
		w := "p"
		if c.Plan != p.ID() {
			w = "c"
		}
		undone[w+"/"+c.Action]++
	}
	l.mu.Unlock()
	t.Log(seed, end, len(ran), len(undone), errs)
	for id, n := range undone {
		if n != 1 {
			t.Errorf("seed %d: %s undone %d times", seed, id, n)
		}
		if !ran[id] && id != "p/first" {
			t.Errorf("seed %d: %s undone, never ran", seed, id)
		}
	}
	if !commit {
		for id := range ran {
			if undone[id] == 0 {
				t.Errorf("seed %d: %s ran, never undone; end %v", seed, id, end)
			}
		}
	}
	if end.State == ledger.StateCommitted != commit {
		t.Errorf("end %v", end)
	}
}
