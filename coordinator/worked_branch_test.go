package coordinator_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// gitHost is a host of one branch. It is tolerant: without a commit it makes a branch from
// HEAD. Its log has what each deletion removed, by the forward's key.
type gitHost struct {
	mu  sync.Mutex
	sha string // what the branch points at; empty: there is none
	log map[string]string
}

func (g *gitHost) get(_ context.Context, c api.Command) (worker.Answer, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var with struct{ Forward string }
	if err := json.Unmarshal(c.Arguments, &with); err != nil {
		return worker.Answer{}, err
	}
	out := map[string]any{"found": g.sha != ""}
	if g.sha != "" {
		out["sha"] = g.sha
	}
	if removed, ok := g.log[with.Forward]; ok {
		out["removed"] = removed
	}
	return worker.Answer{Output: out}, nil
}

func (g *gitHost) create(_ context.Context, c api.Command) (worker.Result, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var with struct{ SHA *string }
	if err := json.Unmarshal(c.Arguments, &with); err != nil {
		return worker.Result{}, err
	}
	if g.sha = "HEAD"; with.SHA != nil {
		g.sha = *with.SHA
	}
	return worker.Result{}, nil
}

// remove deletes the branch and returns what it pointed at.
func (g *gitHost) remove(forward string) map[string]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	removed := g.sha
	g.sha = ""
	if removed == "" {
		return map[string]string{}
	}
	g.log[forward] = removed
	return map[string]string{"sha": removed}
}

// branchContract is the worked contract, for a worker without a version, and fast.
func branchContract(t *testing.T) contract.Contract {
	t.Helper()
	sources, err := contract.LoadDir(os.DirFS("../docs/guide/contracts"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sources {
		if s.Capability == "git.branch.delete" {
			c := s.Contract
			c.Inverse.WorkerVersion, c.Settle = "", time.Millisecond
			c.Probe.Attempts = 1
			return c
		}
	}
	t.Fatal("the guide has no git.branch.delete")
	return contract.Contract{}
}

// TestTheWorkedBranchComesBackAsItWas: what was pushed after it was looked at is not lost, and
// what was not there is not made.
func TestTheWorkedBranchComesBackAsItWas(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{branchContract(t)}})
	g := &gitHost{log: map[string]string{}}
	if err := l.work.Answer("git.branch.get", g.get); err != nil {
		t.Fatal(err)
	}
	l.undo("git.branch.create", g.create)
	for _, c := range []struct {
		name, before, pushed string
		silent, lost         bool // the deletion says nothing; its reply was lost
		forgets              bool // and the host's log
		want, state          string
	}{
		{name: "answered", before: "a1", want: "a1", state: ledger.StateCompensated},
		{name: "pushed between", before: "a1", pushed: "b2", want: "b2", state: ledger.StateCompensated},
		{name: "pushed between, and lost", before: "a1", pushed: "b2", lost: true, want: "b2",
			state: ledger.StateCompensated},
		{name: "pushed between, and silent", before: "a1", pushed: "b2", silent: true, want: "b2",
			state: ledger.StateCompensated},
		{name: "not there", state: ledger.StateFailed},
		{name: "not there, and lost", lost: true, state: ledger.StateFailed},
		{name: "made between", pushed: "b2", want: "b2", state: ledger.StateCompensated},
		{name: "nobody knows what", before: "a1", pushed: "b2", lost: true, forgets: true,
			state: ledger.StateQuarantined},
	} {
		g.sha = c.before
		p := l.begin(coordinator.PlanSpec{})
		_, err := p.Do(t.Context(), coordinator.Action{ID: "d", Capability: "git.branch.delete",
			Input: map[string]string{"repo": "shop", "branch": "x"}},
			func(_ context.Context, call coordinator.Call) (coordinator.Outcome, error) {
				if c.pushed != "" {
					g.mu.Lock()
					g.sha = c.pushed
					g.mu.Unlock()
				}
				out := g.remove(call.Key)
				switch {
				case c.forgets:
					delete(g.log, call.Key)
					fallthrough
				case c.lost:
					return coordinator.Outcome{}, errors.New("connection reset")
				case c.silent:
					return coordinator.Outcome{Output: map[string]string{}}, nil
				}
				return coordinator.Outcome{Output: out}, nil
			})
		if (err != nil) != (c.lost || c.forgets) {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err := p.Fail(t.Context(), "step failed"); err != nil {
			t.Fatal(err)
		}
		l.ends(p, c.state)
		g.mu.Lock()
		if g.sha != c.want {
			t.Errorf("%s: the branch points at %q, want %q", c.name, g.sha, c.want)
		}
		g.mu.Unlock()
	}
}
