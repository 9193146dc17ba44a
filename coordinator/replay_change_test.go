package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/replay"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// play is a function that does actions one after the other.
func (w *tour) play(actions []replay.Action, end func() error) func(context.Context, *replay.Plan) error {
	return func(ctx context.Context, p *replay.Plan) error {
		for _, a := range actions {
			if _, err := w.do(ctx, p, a, nil); err != nil {
				return err
			}
		}
		return end()
	}
}

func (w *tour) actions(ids string) (all []replay.Action) {
	for _, id := range strings.Fields(ids) {
		all = append(all, w.action(id))
	}
	return all
}

// lost plays actions in a process that is stopped after them.
func (w *tour) lost(t *testing.T, plan string, actions []replay.Action) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	if err := w.l.process().Run(ctx, config(plan), w.play(actions, func() error {
		cancel()
		return ctx.Err()
	})); !errors.Is(err, context.Canceled) {
		t.Fatalf("the first life of %s ends with %v", plan, err)
	}
}

func ends(err error) func() error { return func() error { return err } }

// TestS39AFunctionThatTakesAnotherPathIsRefused with the first action that differs;
// nothing runs and nothing is undone, and the function as it was goes on.
func TestS39AFunctionThatTakesAnotherPathIsRefused(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	l.declared = []contract.Contract{{Capability: "tour.b", Class: contract.Compensable, Inverse: &contract.Inverse{Call: "file.delete"}}}
	for name, change := range map[string]struct {
		from, to      string // ids
		edit          func(all []replay.Action)
		action, field string
		end           error
	}{
		"another id":         {from: "a b c", to: "a x c", action: "b", field: "action"},
		"another first":      {from: "a b c", to: "x a b c", action: "a", field: "action"},
		"one more between":   {from: "a b c", to: "a b x c", action: "c", field: "action"},
		"another order":      {from: "a b c", to: "a c b", action: "b", field: "action"},
		"one less":           {from: "a b c", to: "a c", action: "b", field: "action"},
		"an end too early":   {from: "a b c", to: "a b", action: "c", field: "action"},
		"an error too early": {from: "a b c", to: "a", action: "b", field: "action", end: errNoRoom},
		"capability":         {from: "a b c", to: "a b c", edit: func(all []replay.Action) { all[1].Capability = "tour.x" }, action: "b", field: "capability"},
		"input":              {from: "a b c", to: "a b c", edit: func(all []replay.Action) { all[1].Input = "else" }, action: "b", field: "input"},
		"no input":           {from: "a b c", to: "a b c", edit: func(all []replay.Action) { all[1].Input = nil }, action: "b", field: "input"},
		"contract": {from: "a b c", to: "a b c", edit: func(all []replay.Action) {
			all[1].Undo = &replay.Undo{Handler: all[1].Undo.Handler, Contract: contract.Contract{ValidFor: time.Hour}}
		}, action: "b", field: "contract"},
		"after":      {from: "a b c", to: "a b c", edit: func(all []replay.Action) { all[2].After = []string{"a"} }, action: "c", field: "after"},
		"branch":     {from: "a b c", to: "a b c", edit: func(all []replay.Action) { all[1].Branch = true }, action: "b", field: "branch"},
		"pivot":      {from: "a b c", to: "a b c", edit: func(all []replay.Action) { all[1].Pivot = true }, action: "b", field: "pivot"},
		"review":     {from: "a b c", to: "a b c", edit: func(all []replay.Action) { all[1].Review = true }, action: "b", field: "review"},
		"version":    {from: "a b c", to: "a b c", edit: func(all []replay.Action) { all[1].Undo.Version = "2" }, action: "b", field: "version"},
		"no handler": {from: "a b c", to: "a b c", edit: func(all []replay.Action) { all[1].Undo, all[1].Capability = nil, "file.write" }, action: "b", field: "capability"},
		"a worker's": {from: "a b c", to: "a b c", edit: func(all []replay.Action) { all[1].Undo = nil }, action: "b", field: "version"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			w, plan := newTour(l), "s39-"+strings.NewReplacer(" ", "-", "'", "").Replace(name)
			w.lost(t, plan, w.actions(change.from))
			ctx, cancel := bounded(t)
			defer cancel()
			changed := w.actions(change.to)
			if change.edit != nil {
				change.edit(changed)
			}
			err := l.process().Run(ctx, config(plan), func(ctx context.Context, p *replay.Plan) error {
				if err := w.play(changed, ends(change.end))(ctx, p); err != nil {
					return fmt.Errorf("given up: %w", err)
				}
				return nil
			})
			wantDiverged(t, err, change.action, change.field)
			if after := l.shown(plan); after.State != ledger.StateOpen || after.ActionCount != 3 || w.ranText() != change.from {
				t.Errorf("ran %s, plan %s with %d actions", w.ranText(), after.State, after.ActionCount)
			}
			if err := l.process().Run(ctx, config(plan), w.play(w.actions(change.from+" d"), ends(nil))); err != nil || w.ranText() != change.from+" d" {
				t.Errorf("as it was: ran %s, %v", w.ranText(), err)
			}
		})
	}
}

// TestS39APlanDeclaredOtherwiseIsRefused: another function, owner or trigger under
// the same ID, a plan of Begin, and a plan of another agent.
func TestS39APlanDeclaredOtherwiseIsRefused(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{files()}})
	w := newTour(l)
	w.lost(t, "declared", w.actions("a"))
	ctx, cancel := bounded(t)
	defer cancel()
	for field, edit := range map[string]func(*replay.Config){
		"function":      func(c *replay.Config) { c.Function = "other" },
		"plan.owner":    func(c *replay.Config) { c.Plan.Owner = "other" },
		"plan.label":    func(c *replay.Config) { c.Plan.Label = "other" },
		"plan.labels":   func(c *replay.Config) { c.Plan.Labels = map[string]string{"a": "b"} },
		"plan.triggers": func(c *replay.Config) { c.Plan.Triggers = map[string]string{"t": `facts["a"] == 1`} },
	} {
		other := config("declared")
		edit(&other)
		wantDiverged(t, l.process().Run(ctx, other, w.play(nil, ends(nil))), "", field)
	}
	begun := l.begin(coordinator.PlanSpec{ID: "begun"})
	l.do(begun, "a")
	var refused *ledger.Refused
	if err := l.process().Run(ctx, config("begun"), w.play(nil, ends(nil))); !errors.As(err, &refused) || refused.Field != "run.plan.id" {
		t.Errorf("a plan of Begin: %v", err)
	}
	l.append(ledger.Source{Class: ledger.ClassAgent, Name: "a2", Plan: "theirs"}, &pb.Record{Plan: "theirs", Kind: &pb.Record_PlanOpened{
		PlanOpened: &pb.PlanOpened{Label: "secret"},
	}})
	if err := l.process().Run(ctx, config("theirs"), w.play(nil, ends(nil))); !errors.As(err, &refused) || refused.Problem != "a plan of agent a2" {
		t.Errorf("a plan of another agent: %v", err)
	}
	var theirs api.HistoryAnswer
	if l.ask("history.a1", api.HistoryQuery{Plan: "theirs"}, &theirs); theirs.Agent != "a2" || theirs.State != "" || theirs.Opened != nil || theirs.Actions != nil {
		t.Errorf("told of another agent's plan: %+v", theirs)
	}
}

// ofThisProgram is the version of handlers that give none.
func ofThisProgram(t *testing.T) string {
	t.Helper()
	version, err := replay.BuildVersion()
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// TestS40AnotherProgramIsRefused: what gives no version has that of its program, and another build
// is told what would have outlived it; so is the version that earlier releases gave to all.
func TestS40AnotherProgramIsRefused(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	for plan, version := range map[string]string{"v-build": "0123456789ab", "v-before": "1"} {
		w := newTour(l)
		earlier := w.actions("a b")
		for i := range earlier {
			earlier[i].Undo = w.undo(version)
		}
		w.lost(t, plan, earlier)
		ctx, cancel := bounded(t)
		defer cancel()
		err := l.process().Run(ctx, config(plan), w.play(w.actions("a b"), ends(errNoRoom)))
		wantDiverged(t, err, "a", "version")
		if want := "version is now " + ofThisProgram(t) + ", that of this program, as Undo.Version is " +
			"empty, recorded is " + version; !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestS40AChangedHandlerIsRefusedOrPinned: the version that is recorded undoes the
// action, whatever the code has become.
func TestS40AChangedHandlerIsRefusedOrPinned(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	newer := func(w *tour) []replay.Action {
		all := w.actions("a b")
		for i := range all {
			all[i].Undo = w.undo("2")
		}
		return all
	}
	t.Run("refused", func(t *testing.T) {
		w := newTour(l)
		w.lost(t, "v-refused", w.actions("a b"))
		ctx, cancel := bounded(t)
		defer cancel()
		wantDiverged(t, l.process().Run(ctx, config("v-refused"), w.play(newer(w), ends(errNoRoom))), "a", "version")
	})
	t.Run("earlier handler kept", func(t *testing.T) {
		w := newTour(l)
		w.lost(t, "v-earlier", w.actions("a b"))
		ctx, cancel := bounded(t)
		defer cancel()
		all := append(newer(w), w.action("c"))
		for i := range all {
			all[i].Undo = w.undo("2")
			all[i].Undo.Earlier = map[string]replay.Handler{ofThisProgram(t): w.handler("")}
		}
		wantUnwound(t, l.process().Run(ctx, config("v-earlier"), w.play(all, ends(errNoRoom))), ledger.StateCompensated)
		if got := w.undoneText(); got != "c2 b a" {
			t.Errorf("undone %s", got)
		}
	})
	t.Run("left to another process", func(t *testing.T) {
		w := newTour(l)
		w.lost(t, "v-pinned", w.actions("a b"))
		ctx, cancel := bounded(t)
		defer cancel()
		pinned := config("v-pinned")
		pinned.OnChange, pinned.Until = replay.KeepRecorded, replay.UntilFailed
		c := w.action("c")
		c.Undo = w.undo("2")
		newest := l.process()
		wantUnwound(t, newest.Run(ctx, pinned, w.play(append(newer(w), c), ends(errNoRoom))), ledger.StateUnwinding)
		l.showsAction("v-pinned", "b", func(a api.Action) bool {
			return a.WaitsFor != "" && strings.HasPrefix(a.WaitsFor, "the handler of b, version "+ofThisProgram(t)+
				", of agent a1: no process offers it, tries: ")
		})
		// b was sent ahead: until the success of c is recorded, its handler may be needed
		l.showsAction("v-pinned", "c", func(a api.Action) bool { return a.Undo == "compensated" })
		if got := w.undoneText(); got != "c2" {
			t.Errorf("undone %s", got)
		}
		pinned.Until = replay.UntilUnwound
		wantUnwound(t, l.process().Run(ctx, pinned, w.play(w.actions("a b"), ends(errNoRoom))), ledger.StateCompensated)
		if got := w.undoneText(); got != "c2 b a" {
			t.Errorf("undone %s", got)
		}
	})
}

// TestS36TheExecutorWaitsVisiblyForHandlers: the process is gone when its plan is
// cancelled; run again, it runs no forward and offers what is still to be undone.
func TestS36TheExecutorWaitsVisiblyForHandlers(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	w := newTour(l)
	w.lost(t, "gone", w.actions("a b c"))
	l.cancelPlan("gone")
	waits := "the handler of c, version " + ofThisProgram(t) + ", of agent a1"
	l.showsAction("gone", "c", func(a api.Action) bool {
		return strings.HasPrefix(a.WaitsFor, waits+": no process offers it")
	})
	var status api.StatusAnswer
	l.ask("status", struct{}{}, &status)
	if v := status.Status.Waiting; len(v) != 1 || v[0].Handler != waits {
		t.Errorf("waiting %+v", v)
	}
	ctx, cancel := bounded(t)
	defer cancel()
	wantDiverged(t, l.process().Run(ctx, config("gone"), w.play(w.actions("a b"), ends(nil))), "c", "action")
	wantDiverged(t, l.process().Run(ctx, config("gone"), w.play(w.actions("a x b c"), ends(nil))), "b", "action")
	if got := w.undoneText(); got != "" {
		t.Errorf("a process without all handlers has undone %s", got)
	}
	err := l.process().Run(ctx, config("gone"), w.play(w.actions("a b c d"), ends(nil)))
	wantUnwound(t, err, ledger.StateCompensated)
	if w.ranText() != "a b c" || w.undoneText() != "c b a" || !errors.Is(err, coordinator.ErrUnwinding) {
		t.Errorf("ran %s, undone %s, %v", w.ranText(), w.undoneText(), err)
	}
}

// TestHandlersAreWaitedForLongerThanWorkers: for as long as a contract can say, if it says nothing.
// What was registered while handlers had the default of workers is replayed as it is.
func TestHandlersAreWaitedForLongerThanWorkers(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	w := newTour(l)
	earlier, own := w.actions("a b"), w.actions("d")[0]
	for _, a := range earlier {
		a.Undo.Contract.UnservedAfter = ledger.UnservedDefault // recorded as nothing, as it was
	}
	own.Undo.Contract.UnservedAfter = 2 * time.Hour
	w.lost(t, "waited", earlier)
	ctx, cancel := bounded(t)
	defer cancel()
	again := append(w.actions("a b c"), own)
	wantUnwound(t, l.process().Run(ctx, config("waited"), w.play(again, ends(errNoRoom))),
		ledger.StateCompensated)
	if w.ranText() != "a b c d" || w.undoneText() != "d c b a" {
		t.Errorf("ran %s, undone %s", w.ranText(), w.undoneText())
	}
	waited := map[string]time.Duration{}
	for _, r := range l.keeps(t) {
		if c := r.GetCompensationRegistered(); c != nil {
			waited[r.Action] = time.Duration(c.UnservedAfterNs)
		}
	}
	want := map[string]time.Duration{"a": 0, "b": 0, "c": ledger.UnservedMax, "d": 2 * time.Hour}
	if !maps.Equal(waited, want) {
		t.Errorf("unserved_after is %v, want %v", waited, want)
	}
}

func (l *live) cancelPlan(plan string) {
	l.t.Helper()
	l.append(ledger.Source{Class: ledger.ClassOperator, Name: "root"}, &pb.Record{Plan: plan, Kind: &pb.Record_CancelRequested{
		CancelRequested: &pb.CancelRequested{Reason: "not wanted", Actor: "ana"},
	}})
}

// TestS36OnlyWhatIsOwedNeedsItsHandler: of a plan that is half undone the function
// may have lost the handlers of what is undone.
func TestS36OnlyWhatIsOwedNeedsItsHandler(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	w := newTour(l)
	ctx, cancel := context.WithCancel(t.Context())
	first := l.process()
	all := w.actions("a b c")
	all[0].Undo.Handler = func(context.Context, replay.UndoCall) error { // "c" and "b" are undone by then
		_ = first.lose(cancel)
		runtime.Goexit() // it never answers
		return nil
	}
	all[0].Undo.Contract.Inverse.Timeout = 300 * time.Millisecond
	_ = first.Run(ctx, config("half"), w.play(all, ends(errNoRoom)))
	l.showsAction("half", "a", func(a api.Action) bool { return a.Attempt > 1 })
	ctx, cancel = bounded(t)
	defer cancel()
	again := w.actions("a")
	again[0].Undo.Contract.Inverse.Timeout = 300 * time.Millisecond
	wantUnwound(t, l.process().Run(ctx, config("half"), w.play(again, ends(errNoRoom))), ledger.StateCompensated)
	if got := w.undoneText(); got != "c b a" {
		t.Errorf("undone %s", got)
	}
}

// TestASecondProcessDoesNotStartBesideTheFirst: it finds it there, or takes over, and
// then the first stores and starts nothing any more.
func TestASecondProcessDoesNotStartBesideTheFirst(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	w := newTour(l)
	ctx, cancel := bounded(t)
	defer cancel()
	first, inside, goOn := l.process(), make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() { // ends with the first process's run
		ended <- first.Run(ctx, config("two"), func(ctx context.Context, p *replay.Plan) error {
			if err := w.act(ctx, p, "a"); err != nil {
				return err
			}
			close(inside)
			<-goOn
			if err := w.act(ctx, p, "b"); !errors.Is(err, coordinator.ErrSuperseded) {
				t.Errorf("the first process goes on: %v", err)
			}
			return nil
		})
	}()
	<-inside
	waitCommitted(t, l, "two", 1)
	function := w.play(w.actions("a b"), ends(nil))
	if err := l.process().Run(ctx, config("two"), function); !errors.Is(err, coordinator.ErrRunning) {
		t.Errorf("beside it: %v", err)
	}
	if err := first.Run(ctx, config("two"), function); !errors.Is(err, coordinator.ErrRunning) {
		t.Errorf("in the same process: %v", err)
	}
	over := config("two")
	over.TakeOver = true
	if err := l.process().Run(ctx, over, w.play(w.actions("a b"), func() error {
		close(goOn)
		if err := <-ended; !errors.Is(err, coordinator.ErrSuperseded) {
			t.Errorf("the first process ends with %v", err)
		}
		return nil
	})); err != nil {
		t.Errorf("taken over: %v", err)
	}
	if got := w.ranText(); got != "a b" {
		t.Errorf("ran %s", got)
	}
	if err := l.process().Run(ctx, config("two"), function); err != nil || w.ranText() != "a b" {
		t.Errorf("committed before: ran %s, %v", w.ranText(), err)
	}
	if refused := l.shown("two").Refused; len(refused) > 0 {
		t.Errorf("the ledger has refused %+v", refused)
	}
}

// waitsForTheOwner wants a Run that is to wait for the owner, too, and whose time is short, to say so.
func waitsForTheOwner(ctx context.Context, t *testing.T, l *live, plan string,
	function func(context.Context, *replay.Plan) error) {
	t.Helper()
	resolved := config(plan)
	resolved.Until = replay.UntilResolved
	for within, said := time.Second/8, false; !said; within *= 2 { // until it has come so far
		short, end := context.WithTimeout(ctx, within)
		err := l.process().Run(short, resolved, function)
		end()
		if said = strings.Contains(err.Error(), ledger.StateQuarantined); !errors.Is(err, context.DeadlineExceeded) ||
			ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// TestS38HandlersOutliveTheirRun: they are offered until the plan has ended for good,
// or the coordinator is closed.
func TestS38HandlersOutliveTheirRun(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	ctx, cancel := bounded(t)
	defer cancel()
	t.Run("until failed", func(t *testing.T) {
		w := newTour(l)
		leaving := config("leaving")
		leaving.Until = replay.UntilFailed
		p := l.process()
		wantUnwound(t, p.Run(ctx, leaving, w.play(w.actions("a b"), ends(errNoRoom))), ledger.StateUnwinding)
		wantUnwound(t, p.Run(ctx, config("leaving"), w.play(w.actions("a b"), ends(errNoRoom))), ledger.StateCompensated)
		if w.undoneText() != "b a" || w.ranText() != "a b" {
			t.Errorf("ran %s, undone %s", w.ranText(), w.undoneText())
		}
	})
	t.Run("through a quarantine", func(t *testing.T) {
		w := newTour(l)
		stubborn := true
		all := w.actions("a b")
		all[1].Undo.Handler = func(ctx context.Context, u replay.UndoCall) error {
			if stubborn {
				return worker.Stop(errNoRoom)
			}
			return w.handler("")(ctx, u)
		}
		wantUnwound(t, l.process().Run(ctx, config("parked"), w.play(all, ends(errNoRoom))), ledger.StateQuarantined)
		waitsForTheOwner(ctx, t, l, "parked", w.play(all, ends(errNoRoom)))
		stubborn = false
		about := l.showsAction("parked", "b", func(a api.Action) bool { return a.QuarantinedAt != "" })
		at, err := ledger.ParseAddress(about.QuarantinedAt)
		if err != nil {
			t.Fatal(err)
		}
		l.append(ledger.Source{Class: ledger.ClassOperator, Name: "root"}, &pb.Record{Plan: "parked", Action: "b", Cause: at, Kind: &pb.Record_RetryRequested{
			RetryRequested: &pb.RetryRequested{Reason: "there is room now", Actor: "ana"},
		}})
		for l.shown("parked").State != ledger.StateCompensated {
			if ctx.Err() != nil {
				t.Fatal(ctx.Err())
			}
		}
		if w.undoneText() != "b a" {
			t.Errorf("undone %s", w.undoneText())
		}
	})
	t.Run("until close", func(t *testing.T) {
		w := newTour(l)
		p := l.process()
		closed := make(chan error, 1)
		err := p.Run(ctx, config("closing"), func(ctx context.Context, plan *replay.Plan) error {
			if err := w.act(ctx, plan, "a"); err != nil {
				return err
			}
			go func() { closed <- p.Close(context.Background()) }() // ends with this run
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, coordinator.ErrClosed) {
			t.Errorf("a run under a coordinator that is closed ends with %v", err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		l.cancelPlan("closing")
		l.showsAction("closing", "a", func(a api.Action) bool { return strings.Contains(a.WaitsFor, "no process offers it") })
		wantUnwound(t, l.process().Run(ctx, config("closing"), w.play(w.actions("a"), ends(nil))), ledger.StateCompensated)
	})
}

// TestAPlanThatWasUndoneAfterItsCommitAsksForItsHandlers: Run offers them again.
func TestAPlanThatWasUndoneAfterItsCommitAsksForItsHandlers(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	w := newTour(l)
	ctx, cancel := bounded(t)
	defer cancel()
	if err := l.process().Run(ctx, config("sold"), w.play(w.actions("a b"), ends(nil))); err != nil {
		t.Fatal(err)
	}
	l.append(ledger.Source{Class: ledger.ClassOperator, Name: "root"}, &pb.Record{Plan: "sold", Kind: &pb.Record_CompensationRequested{
		CompensationRequested: &pb.CompensationRequested{Reason: "returned", Actor: "ana"},
	}})
	l.showsAction("sold~1", "b", func(a api.Action) bool { return strings.Contains(a.WaitsFor, "no process offers it") })
	wantUnwound(t, l.process().Run(ctx, config("sold"), w.play(w.actions("a b"), ends(nil))), ledger.StateCompensated)
	wantUnwound(t, l.process().Run(ctx, config("sold"), nil), ledger.StateCompensated)
	if w.ranText() != "a b" || w.undoneText() != "b a" {
		t.Errorf("ran %s, undone %s", w.ranText(), w.undoneText())
	}
}

// TestALongHistoryIsReadInPages: as large as it may be, every byte of it is there.
func TestALongHistoryIsReadInPages(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	w := newTour(l)
	const count = 300
	large := strings.Repeat("<é>", 4000) // 16 KB
	actions := make([]replay.Action, count)
	for i := range actions {
		actions[i] = replay.Action{Capability: "tour.large", Input: i, Undo: w.undo("")}
	}
	ctx, cancel := bounded(t)
	defer cancel()
	ctx1, lose := context.WithCancel(ctx)
	first := l.process()
	function := func(end func() error) func(context.Context, *replay.Plan) error {
		return func(ctx context.Context, p *replay.Plan) error {
			for i, a := range actions {
				want := fmt.Sprintf("[ %d, %q]", i, large)
				output, err := p.Do(ctx, a, w.forward(rawJSON(want), nil))
				if err != nil || string(output) != want {
					return fmt.Errorf("action %d: %d bytes, %w", i, len(output), err)
				}
			}
			return end()
		}
	}
	err := first.Run(ctx1, config("large"), function(func() error {
		waitCommitted(t, l, "large", count)
		return first.lose(lose)
	}))
	if !wasLost(err) {
		t.Fatalf("the first life ends with %v", err)
	}
	if err = l.process().Run(ctx, config("large"), function(ends(nil))); err != nil || len(w.ran) != count {
		t.Errorf("ran %d, %v", len(w.ran), err)
	}
}

// slowConn is a connection to a server whose words come late.
type slowConn struct {
	net.Conn
	by *atomic.Int64 // nanoseconds
}

func (c slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	<-time.After(time.Duration(c.by.Load()))
	return n, err
}

// Dial makes it a nats.CustomDialer.
func (c slowConn) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return slowConn{conn, c.by}, err
}

// TestASlowServerIsNotAProcessThatRunsThePlan: its word that no one runs the plan may come
// later than a process would have had to answer.
func TestASlowServerIsNotAProcessThatRunsThePlan(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	w := newTour(l)
	ctx, cancel := bounded(t)
	defer cancel()
	slow := slowConn{by: new(atomic.Int64)}
	conn := l.connect("a1", nats.SetCustomDialer(slow))
	c, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: "default", Agent: "a1", Contracts: l.declared})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{c, conn}
	t.Cleanup(p.end)
	slow.by.Store(int64(coordinator.PresenceMax + 100*time.Millisecond))
	if err := p.Run(ctx, config("slow"), func(ctx context.Context, p *replay.Plan) error {
		slow.by.Store(0)
		return w.act(ctx, p, "a")
	}); err != nil || w.ranText() != "a" {
		t.Errorf("ran %q, %v", w.ranText(), err)
	}
}
