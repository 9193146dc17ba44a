package coordinator_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/replay"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// doubtful are two contracts without a probe and with one; both say that nothing lands
// after the call.
func doubtful() []contract.Contract {
	probed := contract.Contract{
		Capability: "seat.book", Class: contract.Compensable, Late: "never",
		Inverse: &contract.Inverse{Call: "seat.free"}, Probe: &contract.Probe{Call: "seat.get"},
	}
	plain := probed
	plain.Capability, plain.Probe = "mail.send", nil
	return []contract.Contract{probed, plain}
}

// lose runs an action whose forward has no answer.
func lose(t *testing.T, p *coordinator.Plan, capability, id string) {
	t.Helper()
	_, err := p.Do(t.Context(), coordinator.Action{ID: id, Capability: capability},
		func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			return coordinator.Outcome{}, context.DeadlineExceeded
		})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func (l *live) resolve(plan, action string, outcome pb.Resolution) {
	l.append(ledger.Source{Tenant: "default", Class: ledger.ClassOperator, Name: "ops"},
		&pb.Record{Plan: plan, Action: action, Kind: &pb.Record_Resolved{
			Resolved: &pb.Resolved{Outcome: outcome, Reason: "looked", Evidence: "ticket 7", Actor: "ops"}}})
}

// TestACommitWaitsForItsOwner says for what, goes on after the owner's word, and Wait
// returns then.
func TestACommitWaitsForItsOwner(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: doubtful()})
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	lose(t, p, "mail.send", "a")
	for range 2 {
		err := p.Commit(t.Context())
		var waits *coordinator.CommitWaits
		if !errors.As(err, &waits) || !errors.Is(err, coordinator.ErrCommitWaits) || !waits.Owner() || waits.Plan != "p" ||
			len(waits.Doubts) != 1 || waits.Doubts[0].Action != "a" {
			t.Fatalf("%v", err)
		}
		if text := err.Error(); !strings.Contains(text, "a for its owner's word") ||
			!strings.Contains(text, "mail.send has no probe") {
			t.Error(text)
		}
	}
	if _, err := p.Do(t.Context(), coordinator.Action{Capability: "mail.send"}, unasked(t)); !errors.Is(err,
		coordinator.ErrClosed) {
		t.Errorf("an action joins: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if end, err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v, %v", end, err)
	}
	ended := make(chan coordinator.End, 1)
	go func() {
		end, err := p.Wait(t.Context())
		if err != nil {
			t.Error(err)
		}
		ended <- end
	}()
	l.resolve("p", "a", pb.Resolution_RESOLUTION_ACCEPTED)
	if end := <-ended; end.State != ledger.StateCommitted {
		t.Errorf("%+v", end)
	}
	if err := p.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}

func unasked(t *testing.T) coordinator.Forward {
	return func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
		t.Error("a forward runs")
		return coordinator.Outcome{}, nil
	}
}

// answers serves a probe.
func (l *live) answers(capability, output string) {
	l.t.Helper()
	if err := l.work.Answer(capability, func(context.Context, api.Command) (worker.Answer, error) {
		return worker.Answer{Output: json.RawMessage(output)}, nil
	}); err != nil {
		l.t.Fatal(err)
	}
}

func isRetired(a api.Action) bool { return a.Undo == "retired" }

// accepting is a Run whose commit accepts what is in doubt.
func accepting(plan string) replay.Config {
	c := config(plan)
	c.Plan.DoubtAtCommit = coordinator.AcceptDoubtAtCommit
	return c
}

// TestACommitAsksTheWorld, and returns when it has answered.
func TestACommitAsksTheWorld(t *testing.T) {
	t.Parallel()
	for _, presence := range []string{"present", "absent"} {
		l := newLive(t, coordinator.Config{Contracts: doubtful()})
		l.answers("seat.get", `{"presence":"`+presence+`"}`)
		p := l.begin(coordinator.PlanSpec{ID: "p"})
		lose(t, p, "seat.book", "a")
		if err := p.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if a := l.showsAction("p", "a", isRetired); a.Presence != presence {
			t.Errorf("%+v", a)
		}
	}
}

// TestACommitThatWaitsLongerSaysSo: no one serves the probe.
func TestACommitThatWaitsLongerSaysSo(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: doubtful(), ConfirmTimeout: 300 * time.Millisecond})
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	lose(t, p, "seat.book", "a")
	err := p.Commit(t.Context())
	var waits *coordinator.CommitWaits
	if !errors.As(err, &waits) || waits.Owner() || len(waits.Doubts) != 1 || !strings.Contains(err.Error(), "seat.get") {
		t.Fatalf("%v", err)
	}
	// It can still be undone: nothing is retired.
	if err := p.Fail(t.Context(), "too long"); err != nil {
		t.Fatal(err)
	}
	l.answers("seat.get", `{"presence":"absent"}`)
	l.ends(p, ledger.StateFailed)
}

// TestAPlanMayAcceptDoubt: it is committed at once, and its retirement says what of.
func TestAPlanMayAcceptDoubt(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: doubtful()})
	p := l.begin(coordinator.PlanSpec{ID: "p", DoubtAtCommit: coordinator.AcceptDoubtAtCommit})
	lose(t, p, "mail.send", "a")
	if err := p.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.showsAction("p", "a", isRetired)
	for _, r := range l.keeps(t) {
		if k := r.GetHeldSetRetired(); k != nil && (len(k.InDoubt) != 1 || k.InDoubt[0] != "a") {
			t.Errorf("%v", k)
		}
	}
	for _, plan := range []coordinator.PlanSpec{{DoubtAtCommit: 7},
		{DoubtAtCommit: coordinator.AcceptDoubtAtCommit, Parent: "p"}} {
		var refused *ledger.Refused
		if _, err := l.agent.Begin(t.Context(), plan); !errors.As(err, &refused) || refused.Field != "plan.doubt_at_commit" {
			t.Errorf("%v", err)
		}
	}
}

// TestARunWhoseCommitWaits returns why, and when it is called again, what has become of
// it.
func TestARunWhoseCommitWaits(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: doubtful()})
	ctx, cancel := bounded(t)
	defer cancel()
	function := func(ctx context.Context, p *replay.Plan) error {
		_, err := p.Do(ctx, replay.Action{ID: "a", Capability: "mail.send"},
			func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
				return coordinator.Outcome{}, context.DeadlineExceeded
			})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		return nil
	}
	for range 2 {
		if err := replay.Run(ctx, l.agent, config("r"), function); !errors.Is(err, coordinator.ErrCommitWaits) {
			t.Fatalf("%v", err)
		}
	}
	l.resolve("r", "a", pb.Resolution_RESOLUTION_DONE)
	l.showsAction("r", "a", isRetired)
	if err := replay.Run(ctx, l.agent, config("r"), function); err != nil {
		t.Error(err)
	}
}

// TestSettledWaitsForTheWorld: for an answer of a probe, after the doubt has lasted, and for no action
// that nothing asks about.
func TestSettledWaitsForTheWorld(t *testing.T) {
	t.Parallel()
	contracts := doubtful()
	contracts[0].AskAfter, contracts[0].Timeout = time.Millisecond, time.Minute // not before it is in doubt
	l := newLive(t, coordinator.Config{Contracts: contracts})
	l.answers("seat.get", `{"presence":"present"}`)
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	lose(t, p, "seat.book", "a")
	unknown, err := p.Settled(t.Context())
	if err != nil || len(unknown) != 0 {
		t.Fatalf("%+v, %v", unknown, err)
	}
	if a := l.showsAction("p", "a", func(api.Action) bool { return true }); a.Presence != "present" {
		t.Errorf("%+v", a)
	}
	lose(t, p, "mail.send", "b")
	unknown, err = p.Settled(t.Context())
	if err != nil || len(unknown) != 1 || unknown[0].Action != "b" || !strings.Contains(unknown[0].Waits, "no probe") {
		t.Errorf("%+v, %v", unknown, err)
	}
}

// TestSettledGoesOnWithItsPlan while an extra effect is undone, and says what a committed child leaves
// open, of the child and of its root.
func TestSettledGoesOnWithItsPlan(t *testing.T) {
	t.Parallel()
	contracts := doubtful()
	contracts[0].AskAfter, contracts[0].Timeout = time.Millisecond, time.Minute // not before it is in doubt
	contracts[0].Inverse = &contract.Inverse{Call: "seat.free", With: map[string]any{"seat": "=meta.external_ref"}}
	l := newLive(t, coordinator.Config{Contracts: contracts})
	l.answers("seat.get", `{"presence":"duplicate","external_ref":"x2"}`)
	begun, goOn := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	defer release() // the worker ends with its handlers
	l.undo("seat.free", func(context.Context, api.Command) (worker.Result, error) {
		close(begun)
		<-goOn
		return worker.Result{}, nil
	})
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	lose(t, p, "seat.book", "a")
	<-begun
	settledWaitsFor(t, p, "a part of it is being undone (its effect is there more than once")
	release()
	if list, err := p.Settled(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	p = l.begin(coordinator.PlanSpec{ID: "r"})
	q := l.begin(coordinator.PlanSpec{ID: "q", Parent: "r"})
	lose(t, q, "mail.send", "b")
	if err := q.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for want, plan := range map[string]*coordinator.Plan{"b": q, "q/b": p} {
		list, err := plan.Settled(t.Context())
		if err != nil || len(list) != 1 || list[0].Action != want || !strings.Contains(list[0].Waits, "the end of plan r") {
			t.Errorf("%+v, %v", list, err)
		}
	}
}

// settledWaitsFor wants Settled to say, when its context ends, that it waits for something. What it
// says is the executor's last answer, of which it has none when there was no time for one.
func settledWaitsFor(t *testing.T, p *coordinator.Plan, text string) {
	t.Helper()
	for patience := 300 * time.Millisecond; ; patience *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err := p.Settled(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), text) {
			return
		}
		if !errors.Is(err, context.DeadlineExceeded) || patience > testenv.Patience {
			t.Fatalf("%v, want %q", err, text)
		}
	}
}

// TestSettledSaysWhatItWaitsFor when its context ends, and gives up with its plan.
func TestSettledSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: doubtful()})
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	lose(t, p, "seat.book", "a")
	settledWaitsFor(t, p, "action a waits for a question to seat.get at ")
	waits := make(chan error, 1)
	go func() {
		_, err := p.Settled(t.Context())
		waits <- err
	}()
	l.answers("seat.get", `{"presence":"absent"}`)
	if err := p.Fail(t.Context(), "too long"); err != nil {
		t.Fatal(err)
	}
	if err := <-waits; !errors.Is(err, coordinator.ErrUnwound) && !errors.Is(err, coordinator.ErrClosed) {
		t.Errorf("%v", err)
	}
}
