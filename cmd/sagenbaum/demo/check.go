package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// check prints one thing that the demo verified by itself and remembers whether
// it held.
func (d *Demo) check(holds bool, what string, detail ...string) {
	mark := d.pen.In("32", "ok  ")
	if !holds {
		d.broken++
		mark = d.pen.In("31;1", "FAIL")
	}
	fmt.Fprintf(d.out, "  %s %s\n", mark, what)
	if !holds {
		for _, line := range detail {
			fmt.Fprintf(d.out, "       %s\n", line)
		}
	}
}

// checkWorld compares the repositories with a snapshot taken before.
func (d *Demo) checkWorld(ctx context.Context, what string, before []string) error {
	after, err := Snapshot(ctx, d.World)
	if err != nil {
		return err
	}
	d.check(slices.Equal(before, after),
		fmt.Sprintf("%s (%d refs, worktrees, settings and files compared)", what, len(before)),
		Difference(before, after)...)
	return nil
}

func (d *Demo) checkState(plan api.Plan, want string) {
	d.check(plan.State == want, fmt.Sprintf("plan %s is %s", plan.Plan, want), "it is "+plan.State)
}

// history is what the ledger says about one plan, in its order.
type history struct {
	dispatched []string       // action ids, first attempts only, in order
	blind      []string       // those of them that were told that no one knows what happened
	Succeeded  map[string]int // action id -> records of success
	ends       []pb.PlanEnd
}

// ReadHistory reads the whole ledger; the demo's is short.
func (d *Demo) ReadHistory(ctx context.Context, plan string) (history, error) {
	h := history{Succeeded: map[string]int{}}
	last, err := d.Client.LastSequence(ctx)
	if err != nil {
		return h, err
	}
	for m, err := range d.Client.ReadLedger(ctx, 1, last, false) {
		if err != nil {
			return h, err
		}
		entries, err := ledger.Decode(Tenant, m)
		if err != nil {
			return h, err
		}
		for _, e := range entries {
			if e.Err == nil && e.Record.Plan == plan {
				h.add(e.Record)
			}
		}
	}
	return h, nil
}

func (h *history) add(r *pb.Record) {
	switch k := r.Kind.(type) {
	case *pb.Record_CompensationDispatched:
		if k.CompensationDispatched.Attempt == 1 {
			h.dispatched = append(h.dispatched, r.Action)
			if k.CompensationDispatched.BlindCleanup && k.CompensationDispatched.DirtyFailure {
				h.blind = append(h.blind, r.Action)
			}
		}
	case *pb.Record_CompensationSucceeded:
		h.Succeeded[r.Action]++
	case *pb.Record_PlanEnded:
		h.ends = append(h.ends, k.PlanEnded.End)
	}
}

// checkUnwound wants these actions (by number) undone in this order, each
// recorded as undone exactly once.
func (d *Demo) checkUnwound(ctx context.Context, plan api.Plan, numbers ...int) error {
	h, err := d.ReadHistory(ctx, plan.Plan)
	if err != nil {
		return err
	}
	var want, capabilities []string
	once := true
	for _, n := range numbers {
		if n > len(plan.Actions) {
			return fmt.Errorf("plan %s has %d actions, no %d", plan.Plan, len(plan.Actions), n)
		}
		a := plan.Actions[n-1]
		want = append(want, a.Action)
		capabilities = append(capabilities, fmt.Sprint(n))
		once = once && h.Succeeded[a.Action] == 1
	}
	d.check(slices.Equal(h.dispatched, want),
		"undone latest first: "+strings.Join(capabilities, ", "),
		fmt.Sprint("dispatched ", h.dispatched))
	d.check(once && len(h.Succeeded) == len(numbers),
		"each undo is recorded as done exactly once, and no other", fmt.Sprint(h.Succeeded))
	return nil
}
