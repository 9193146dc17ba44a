package coordinator_test

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// held are undos that a worker has, until they are released.
type held struct {
	mu    sync.Mutex
	until map[string]chan struct{} // by action
}

func (h *held) undo(ctx context.Context, c api.Command) (worker.Result, error) {
	done := make(chan struct{})
	h.mu.Lock()
	h.until[c.Action] = done
	h.mu.Unlock()
	select {
	case <-done:
		return worker.Result{}, nil
	case <-ctx.Done():
		return worker.Result{}, ctx.Err()
	}
}

// has reports whether these are the undos that the worker has.
func (h *held) has(actions []string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, action := range actions {
		if h.until[action] == nil {
			return false
		}
	}
	return len(actions) == len(h.until)
}

func (h *held) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for action, done := range h.until {
		close(done)
		delete(h.until, action)
	}
}

// order says in the guide's words what of a plan is undone when, and what is left.
func (h *held) order(l *live, plan string) string {
	var steps, left []string
	l.eventually("all is undone", func() bool {
		shown, out := l.shown(plan), []string{}
		left = nil
		for _, a := range slices.Backward(shown.Actions) {
			switch a.Undo {
			case "dispatched":
				out = append(out, a.Action)
			case "held":
				left = append(left, a.Action)
			}
		}
		if len(out) > 0 && h.has(out) {
			step := strings.Join(out, " and ")
			if len(out) > 1 {
				step += " side by side"
			}
			steps = append(steps, step)
			h.release()
		}
		return len(steps) > 0 && len(out) == 0 && shown.State != ledger.StateUnwinding
	})
	order := strings.Join(steps, ", then ")
	if slices.Reverse(left); len(left) > 0 {
		order += "; " + strings.Join(left, " and ") + " stay"
	}
	return order
}

// TestTheExamplesOfTheGuideAreUndoneAsItSays: the plans of docs/guide/order.md.
func TestTheExamplesOfTheGuideAreUndoneAsItSays(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../docs/guide/order.md")
	if err != nil {
		t.Fatal(err)
	}
	h := &held{until: map[string]chan struct{}{}}
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{{Capability: "page.put",
		Class: contract.Compensable, Inverse: &contract.Inverse{Call: "page.drop"}}}})
	l.undo("page.drop", h.undo)
	call := regexp.MustCompile(`plan\.Do\(ctx, coordinator\.Action\{ID: "(\w)"` +
		`(?:, After: \[\]string\{"(\w)"\})?(, Branch: true)?`)
	told := regexp.MustCompile(`// (unwind|a block of (\w)): (.*)`)
	p, found := l.begin(coordinator.PlanSpec{}), 0
	for line := range strings.Lines(string(guide)) {
		if c := call.FindStringSubmatch(line); c != nil {
			a := coordinator.Action{ID: c[1], Capability: "page.put", Branch: c[3] != ""}
			if c[2] != "" {
				a.After = []string{c[2]}
			}
			if _, err := p.Do(t.Context(), a, nothing); err != nil {
				t.Fatal(err)
			}
		}
		says := told.FindStringSubmatch(line)
		if says == nil {
			continue
		}
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if says[2] != "" {
			l.rule(p.ID(), says[2], pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK)
		} else if err := p.Fail(t.Context(), "unwind"); err != nil {
			t.Fatal(err)
		}
		if order := h.order(l, p.ID()); order != says[3] {
			t.Errorf("%s: %s; the guide says %s", says[1], order, says[3])
		}
		p, found = l.begin(coordinator.PlanSpec{}), found+1
	}
	if found != 2 {
		t.Errorf("the guide has %d examples", found)
	}
}
