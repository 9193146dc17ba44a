package coordinator_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestS7TheOneWorkerOfTheRightVersionUndoesAllAtTheFirstAttempt among five of another one, also where
// it comes last.
func TestS7TheOneWorkerOfTheRightVersionUndoesAllAtTheFirstAttempt(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{{Capability: "page.edit",
		Class: contract.Compensable, Inverse: &contract.Inverse{Call: "page.restore", WorkerVersion: "2", Attempts: 1}}}})
	serve := func(version string, undo worker.Handler) {
		w, err := worker.New(worker.Config{Conn: l.connect("w1"), Tenant: "default", Name: "w1", Version: version})
		if err == nil {
			err = w.Handle("page.restore", undo)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := w.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	for range 5 {
		serve("1", func(context.Context, api.Command) (worker.Result, error) {
			t.Error("a worker of another version undoes")
			return worker.Result{}, nil
		})
	}
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	for n := range 5 {
		if _, err := p.Do(t.Context(), coordinator.Action{ID: fmt.Sprint("a", n), Capability: "page.edit",
			Input: map[string]any{}}, nothing); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Fail(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	l.showsAction("p", "a4", func(a api.Action) bool { // a worker of another version has answered
		return strings.Contains(a.WaitsFor, `a worker of version "2": none serves page.restore`)
	})
	serve("2", func(context.Context, api.Command) (worker.Result, error) { return worker.Result{}, nil })
	l.ends(p, ledger.StateCompensated)
	for _, a := range l.shown("p").Actions {
		if a.Attempt != 1 || a.Failure != "" {
			t.Errorf("%s: %d attempts, %s", a.Action, a.Attempt, a.Failure)
		}
	}
}
