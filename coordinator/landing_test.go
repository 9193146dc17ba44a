package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// slowProvider makes an effect a while after it was asked, whether its caller still
// waits or not. It takes one key for one effect.
type slowProvider struct {
	mu       sync.Mutex
	takes    time.Duration
	refuses  bool            // a forward whose undo came first
	standing map[string]bool // by the forward's key
	undone   map[string]bool // forwards whose undo has come
	asked    map[string]bool // undos by their key
}

func newSlowProvider(takes time.Duration, refuses bool) *slowProvider {
	return &slowProvider{takes: takes, refuses: refuses, standing: map[string]bool{}, undone: map[string]bool{},
		asked: map[string]bool{}}
}

// do is a forward over a client that hangs up with its context.
func (s *slowProvider) do(ctx context.Context, call coordinator.Call) (coordinator.Outcome, error) {
	landed := make(chan bool, 1)
	time.AfterFunc(s.takes, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		refused := s.refuses && s.undone[call.Key]
		s.standing[call.Key] = !refused
		landed <- !refused
	})
	select {
	case <-ctx.Done():
		return coordinator.Outcome{}, ctx.Err()
	case happened := <-landed:
		if !happened {
			return coordinator.Outcome{}, coordinator.NotTaken(errors.New("its undo came first"))
		}
		return coordinator.Outcome{}, nil
	}
}

func (s *slowProvider) undo(_ context.Context, c api.Command) (worker.Result, error) {
	_, key, _ := strings.Cut(string(c.Arguments), `"forward":"`)
	key = key[:32]
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked[c.Key] { // an undo that comes again is answered and not done
		s.asked[c.Key], s.undone[key] = true, true
		delete(s.standing, key)
	}
	return worker.Result{}, nil
}

func (s *slowProvider) look(_ context.Context, c api.Command) (worker.Answer, error) {
	_, key, _ := strings.Cut(string(c.Arguments), `"forward":"`)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.standing[key[:32]] {
		return worker.Present("r"), nil
	}
	return worker.Absent(), nil
}

// landingTakes is how long a forward of the tests takes to land.
const landingTakes = 300 * time.Millisecond

// slowContracts declares forwards that land late, each with a provider and with and
// without a probe: what the contract says keeps the provider's word.
func slowContracts() ([]contract.Contract, map[string]*slowProvider) {
	var declared []contract.Contract
	providers := map[string]*slowProvider{}
	for name, base := range map[string]contract.Contract{
		"settle":  {Settle: 2 * landingTakes},
		"refused": {Late: contract.LateRefused},
		"timeout": {Timeout: landingTakes, Settle: 2 * landingTakes},
	} {
		for _, probe := range []bool{false, true} {
			c := base
			c.Capability, c.Class, c.Grace = fmt.Sprintf("slow.%s.%t", name, probe), contract.Compensable, 50*time.Millisecond
			forward := map[string]any{"forward": "=meta.forward_key"}
			c.Inverse = &contract.Inverse{Call: c.Capability + ".undo", With: forward}
			if probe {
				c.Probe = &contract.Probe{Call: c.Capability + ".get", With: forward}
			}
			declared = append(declared, c)
			providers[c.Capability] = newSlowProvider(landingTakes, name == "refused")
		}
	}
	return declared, providers
}

// TestS85AForwardThatLandsAfterItsCallerHasHungUp: a provider takes 300 ms, its caller
// gives up before, and the plan is undone: no end of the plan leaves the effect there.
func TestS85AForwardThatLandsAfterItsCallerHasHungUp(t *testing.T) {
	t.Parallel()
	declared, providers := slowContracts()
	l := newLive(t, coordinator.Config{Contracts: declared})
	for capability, s := range providers {
		l.undo(capability+".undo", s.undo)
		if err := l.work.Answer(capability+".get", s.look); err != nil {
			t.Fatal(err)
		}
	}
	var wait sync.WaitGroup
	var hungUp atomic.Int32
	for capability, s := range providers {
		for end, strike := range map[string]func(p *coordinator.Plan){
			"trigger": func(p *coordinator.Plan) {
				l.append(ledger.Source{Class: ledger.ClassFact, Name: "sensor"}, &pb.Record{
					Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: p.ID(), Value: []byte("1")}},
				})
			},
			"deadline": func(*coordinator.Plan) {},
			"cancel":   func(p *coordinator.Plan) { l.cancelPlan(p.ID()) },
			"fail": func(p *coordinator.Plan) {
				if err := p.Fail(t.Context(), "no room"); err != nil {
					t.Error(err)
				}
			},
		} {
			plan := coordinator.PlanSpec{ID: strings.ReplaceAll(capability, ".", "-") + "-" + end}
			plan.Triggers = map[string]string{"sold": fmt.Sprintf("%q in facts", plan.ID)}
			if end == "deadline" {
				plan.Deadline = landingTakes / 3
			}
			wait.Go(func() { // ends with the plan
				if l.leavesNothing(plan, capability, s, strike) {
					hungUp.Add(1)
				}
			})
		}
	}
	if wait.Wait(); hungUp.Load() < 12 { // of 24: on a slow machine some forwards are faster than what strikes
		t.Errorf("only %d forwards were given up before they landed", hungUp.Load())
	}
}

// leavesNothing runs a forward that lands late, has its plan undone meanwhile, and wants
// nothing of it to be there afterwards. It reports whether its caller gave it up first.
func (l *live) leavesNothing(plan coordinator.PlanSpec, capability string, s *slowProvider,
	strike func(p *coordinator.Plan)) (hungUp bool) {
	p := l.begin(plan)
	said := make(chan error, 1)
	go func() { // ends with the forward
		_, err := p.Do(l.t.Context(), coordinator.Action{ID: "a", Capability: capability}, s.do)
		said <- err
	}()
	l.registered(plan.ID, "a")
	strike(p)
	hungUp = <-said != nil
	ctx, cancel := context.WithTimeout(l.t.Context(), testenv.Patience)
	defer cancel()
	end, err := p.Wait(ctx)
	if err != nil || end.State != ledger.StateCompensated && end.State != ledger.StateFailed {
		l.t.Errorf("%s ends %+v, %v", plan.ID, end, err)
	}
	<-time.After(2 * landingTakes) // what can land has landed
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.standing[ledger.Key("default", plan.ID, "a", ledger.PurposeDo)] {
		l.t.Errorf("%s is %s, and its effect is there", plan.ID, end.State)
	}
	return hungUp
}
