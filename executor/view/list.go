package view

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// A list of plans has those first that are being undone, and then all others, each the latest
// opened first. Both are read from the lists of a find, so a batch costs what it shows.
//
// Plans are opened and move while someone reads on. A list goes on after a plan, and remembers
// the sequence at which it began: what was opened since comes before that plan, and what has
// begun to unwind since stays among the others. So no plan of the beginning is left out. One
// whose unwind ends between two batches may come twice, the second time as it is then.

// moving is the part of a list with the plans that are being undone, as a Next has it.
const moving = ledger.StateUnwinding

// place is where a list of plans goes on.
type place struct {
	asOf   uint64 // the sequence at which the list began
	moving bool   // among the plans that are being undone
	plan   string // the batch starts after it; empty: with the first
}

// PlaceOf is where a list goes on that ends with the plan of an answer at an index.
func PlaceOf(answer api.PlansAnswer, i int) string {
	return place{answer.AsOf, i < answer.Moving, answer.Plans[i].Plan}.String()
}

func (at place) String() string {
	if at.moving {
		return fmt.Sprintf("%d/%s/%s", at.asOf, moving, at.plan)
	}
	return fmt.Sprintf("%d/%s", at.asOf, at.plan)
}

// placeIn reads a place, and returns it also as the lists of a find have it. One that is only
// a plan's id is that of a list that begins now.
func (r *Reader) placeIn(after string) (at place, listed []byte, err error) {
	if after == "" {
		return place{asOf: r.Applied(), moving: true}, nil, nil
	}
	at, whole, err := parsePlace(after)
	if err != nil {
		return at, nil, err
	}
	row := rows.Plans.Find(r.tx, at.plan)
	switch {
	case row == nil:
		return at, nil, ledger.Refuse("after", "there is no plan "+at.plan, placeWanted)
	case !whole:
		at.asOf, at.moving = r.Applied(), row.Phase == rowspb.Phase_PHASE_UNWINDING
	}
	key := rows.Orders.Key(rows.Listed{
		Dimension: rows.ListAll, Opened: rows.At(row.Opened), Plan: at.plan,
	})
	return at, key[len(rows.ListPrefix(rows.ListAll, "")):], nil
}

const placeWanted = "the next of the batch before, or the id of a plan"

// CheckPlace refuses what can be no place in a list of plans.
func CheckPlace(after string) error {
	_, _, err := parsePlace(after)
	return err
}

// parsePlace reads a place; it is not whole where it is only the id of a plan.
func parsePlace(after string) (at place, whole bool, err error) {
	first, rest, whole := strings.Cut(after, "/")
	if at.plan = first; whole {
		at.asOf, err = strconv.ParseUint(first, 10, 64)
		at.plan = strings.TrimPrefix(rest, moving+"/")
		at.moving = at.plan != rest
	}
	if err != nil || !ledger.ValidDerived(at.plan) {
		return at, whole, ledger.Refuse("after", fmt.Sprintf("%.80q is no place in the list", after),
			placeWanted)
	}
	return at, whole, nil
}

// List returns one batch of plans: those that are being undone, then all others, each the latest
// opened first; with a state, those in it. The error is a *ledger.Refused.
func (r *Reader) List(q api.Filter) (api.PlansAnswer, error) {
	at, after, err := r.placeIn(q.After)
	if err != nil {
		return api.PlansAnswer{Plans: []api.Plan{}}, err
	}
	f := &finding{r: r, list: newBatch[api.Plan](q.Limit),
		q: api.FindQuery{State: q.State, Agent: q.Agent, Label: q.Label}}
	f.cursor = func(id string, _ []byte) string {
		at.plan = id
		return at.String()
	}
	labelled := func(row *rowspb.PlanRow) bool { // Find takes the other labels for one, too
		return q.Label == "" || row.Declared.GetLabel() == q.Label
	}
	if f.only = labelled; q.State != "" {
		if f.phase, err = phaseNamed(q.State); err != nil {
			return api.PlansAnswer{Plans: []api.Plan{}}, err
		}
		at.moving = false
		f.byList(after)
		return f.plans(at, 0), nil
	}
	wasMoving := func(row *rowspb.PlanRow) bool {
		begun := max(row.Unwinding.GetSequence(), row.Resumed.GetSequence())
		return row.Phase == rowspb.Phase_PHASE_UNWINDING && begun <= at.asOf
	}
	moved := 0
	if at.moving {
		f.q.State, f.phase = moving, rowspb.Phase_PHASE_UNWINDING
		f.only = func(row *rowspb.PlanRow) bool { return labelled(row) && wasMoving(row) }
		done := f.byList(after)
		if moved = len(f.list.list); !done {
			return f.plans(at, moved), nil
		}
		f.q.State, f.phase, at.moving, after = "", 0, false, nil
	}
	f.only = func(row *rowspb.PlanRow) bool { return labelled(row) && !wasMoving(row) }
	f.byList(after)
	return f.plans(at, moved), nil
}

func (f *finding) plans(at place, moved int) api.PlansAnswer {
	return api.PlansAnswer{Plans: append([]api.Plan{}, f.list.list...), Next: f.list.next,
		AsOf: at.asOf, Moving: moved}
}
