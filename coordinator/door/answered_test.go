package door_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestWhatAnOwnerLeavesIsNotUndone: of an action in a part of a plan that goes on, only the answer that
// its effect is gone says so; a skip claims nothing.
func TestWhatAnOwnerLeavesIsNotUndone(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.publish(contract.Contract{Capability: "room.book", Class: contract.Compensable, Late: contract.LateNever,
		Inverse: &contract.Inverse{Call: "room.free", With: map[string]any{"room": "=input.room"}}})
	if err := l.work.Handle("room.free", func(context.Context, api.Command) (worker.Result, error) {
		return worker.Result{}, worker.Stop(errors.New("it is locked"))
	}); err != nil {
		t.Fatal(err)
	}
	for as, gone := range map[pb.Resolution]bool{pb.Resolution_RESOLUTION_DONE: true,
		pb.Resolution_RESOLUTION_LOST: false, pb.Resolution_RESOLUTION_ACCEPTED: false,
		pb.Resolution_RESOLUTION_SKIPPED: false} {
		p := fmt.Sprintf("p%d", as)
		body := func(more string) string { return fmt.Sprintf(`{"plan":%q%s}`, p, more) }
		l.good(l.post, "tripper", "plan.begin", body(""))
		l.good(l.post, "tripper", "plan.savepoint", body(`,"savepoint":"s"`))
		l.good(l.post, "tripper", "plan.report", body(`,"action":"a","capability":"room.book","input":{"room":1}`))
		for back, status := body(`,"savepoint":"s","number":1,"wait":"200ms"`), 0; status != http.StatusOK; {
			status, _ = l.post("tripper", "plan.unwind_to", back) // it may not be stored in time, and is repeated
		}
		l.shows(p, func(got map[string]any) bool { return got["state"] == "quarantined" })
		l.write(&pb.Record{Plan: p, Action: "a", Kind: &pb.Record_Resolved{Resolved: &pb.Resolved{Outcome: as,
			Reason: "r", Evidence: "e", Actor: "ann"}}})
		got := l.shows(p, func(got map[string]any) bool { return got["state"] == "open" })
		if acts, _ := got["acts"].([]any); (acts[0].(map[string]any)["undone"] == true) != gone {
			t.Errorf("%v: %v", as, acts)
		}
	}
}
