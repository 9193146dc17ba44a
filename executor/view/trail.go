package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Trail is the places of the records that a plan's story is told from, as far as the rows
// know them. Whoever reads the ledger finds the others between From and UntilNs.
type Trail struct {
	Places  []rows.Place
	From    uint64 // sequence at which the plan was opened
	Turned  uint64 // sequence at which its last unwind began; 0: none
	UntilNs int64  // stamp of the last record of the plan (unix ns)

	tenant string
	plans  []string // the plan, and those that deliver what is staged in it, and undo it
	action string
	duties []string // of that action
}

// trailActions bounds the actions of a plan whose records a trail names.
const trailActions = 256

// Trail names the places of a plan's story, or of one action of it. There must be such
// a plan and action (see Why).
func (r *Reader) Trail(q api.WhyQuery) Trail {
	p := r.core.Plan(q.Plan)
	t := Trail{tenant: r.tenant, From: p.Row.Opened.GetSequence(), UntilNs: p.Row.LastNs}
	if q.Action != "" {
		a, _ := which(p, q.Action)
		t.action = a.Fixed.Id
	}
	for _, id := range []string{p.ID, p.Row.DeliveredAs, p.Row.UndoneAs} {
		if id == "" {
			continue
		}
		next := r.core.Plan(id)
		t.plans, t.UntilNs = append(t.plans, next.ID), max(t.UntilNs, next.Row.LastNs)
		r.trailPlan(&t, next)
	}
	return t
}

func (t *Trail) add(list ...*pb.Address) {
	for _, at := range list {
		if at != nil && at.Sequence != 0 {
			t.Places = append(t.Places, rows.At(at))
		}
	}
}

func (r *Reader) trailPlan(t *Trail, p *executor.Plan) {
	row := p.Row
	t.add(row.Opened, row.Signalled, row.Fired, row.Unwinding, row.Committed, row.Resumed, row.Ended,
		row.Asked.GetAt(), row.Stopped)
	if at := row.Unwinding.GetSequence(); at != 0 {
		t.Turned = at
	}
	for _, c := range slices.Concat(row.Cuts, row.Answered) {
		t.add(c.At, c.Answer.GetAt())
	}
	if f := row.Firing; f != nil {
		for _, g := range append(r.core.Before(f), f) {
			t.add(g.Fired, g.Said.GetAt(), g.Read.GetAt(), g.By.GetFact(), g.Resumed.GetAt())
		}
	}
	for n := uint32(1); n <= row.Actions && n <= trailActions; n++ {
		a := p.Action(n)
		if t.action == "" {
			t.add(a.Row.Settled, a.Row.Dispatched)
			continue
		}
		base, _, _ := strings.Cut(a.Fixed.Id, executor.DutySign)
		if a.Fixed.Id != t.action && base != t.action {
			continue
		}
		t.duties = append(t.duties, a.Fixed.Id)
		t.add(a.Fixed.Registered, a.Row.OutcomeAt, a.Row.Settled, a.Row.Dispatched, a.Row.PresenceAt)
		prefix := rows.Attempts.WithinAction(p.ID, n)
		for _, v := range r.tx.Scan(prefix, rows.After(prefix)) {
			attempt := new(rowspb.AttemptRow)
			rows.Decode("scan", v, attempt)
			t.add(attempt.Dispatched, attempt.Ended)
		}
	}
	if t.action != "" {
		return
	}
	prefix := rows.Refusals.Within(p.ID)
	for k := range r.tx.Scan(prefix, rows.After(prefix)) {
		if len(t.Places) < refusedShown {
			t.Places = append(t.Places, rows.ParsePlace(k[len(prefix):]))
		}
	}
}

// Wants reports whether a record belongs to the story wherever it is: what is said
// and decided of the plan; of the action that was asked for, all of it. What agents say
// of actions that came to nothing special is not told of a whole plan.
func (t Trail) Wants(r *pb.Record) bool {
	if r == nil || !slices.Contains(t.plans, r.Plan) {
		return false
	}
	if t.action != "" {
		return r.Action == "" && aboutUnwind(r) || slices.Contains(t.duties, r.Action)
	}
	switch r.Kind.(type) {
	case *pb.Record_ForwardRegistered, *pb.Record_CompensationRegistered, *pb.Record_ForwardCompleted,
		*pb.Record_CompensationProgressed, *pb.Record_OwnerPaged:
		return false
	}
	return true
}

// aboutUnwind are the records of a plan that the undo of each of its actions goes
// back to.
func aboutUnwind(r *pb.Record) bool {
	switch r.Kind.(type) {
	case *pb.Record_SavepointSet, *pb.Record_OwnerPaged, *pb.Record_RecordRefused:
		return false
	}
	return true
}

// Told is a record of the story with what this fold made of it.
func (r *Reader) Told(e ledger.Entry) ledger.Told {
	told := ledger.Told{Entry: e}
	for _, refused := range r.RefusedAt(e.Address.GetSequence()) {
		if refused.Index == e.Address.GetIndex() {
			told.Void = refused.Reason
		}
	}
	return told
}

// waitsMax bounds the actions that an api.Why names as waiting.
const waitsMax = 64

// waits tells what holds up the undos of a plan, or of one action of it.
func (r *Reader) waits(p *executor.Plan, of *executor.Action) (views []api.Wait) {
	if p.Committing() {
		return r.commitWaits(p, of)
	}
	switch p.Row.Phase {
	case rowspb.Phase_PHASE_OPEN:
		return r.openDoubts(p, of)
	case rowspb.Phase_PHASE_COMMITTING, rowspb.Phase_PHASE_UNWINDING, rowspb.Phase_PHASE_QUARANTINED:
	default:
		return nil
	}
	for n := uint32(1); n <= p.Row.Actions && len(views) < waitsMax; n++ {
		a := p.Action(n)
		if of != nil && a.N != of.N || !a.Outstanding() {
			continue
		}
		views = append(views, api.Wait{Number: int(n), Action: a.Fixed.Id, Undo: a.Undo(),
			For: r.waitsFor(p, a), ToDrop: a.ToDrop()})
	}
	return views
}

// openDoubts tells of which actions of an open plan it is not known whether they happened: when
// the world is asked, or that it is not.
func (r *Reader) openDoubts(p *executor.Plan, of *executor.Action) (views []api.Wait) {
	for n := uint32(1); n <= p.Row.Actions && len(views) < waitsMax; n++ {
		if of != nil && n != of.N {
			continue
		}
		a := p.Action(n)
		why, stays := r.openDoubt(p, a)
		if why == "" {
			continue
		}
		if stays {
			why = withNote(why, a.Row.Note)
		}
		views = append(views, api.Wait{Number: int(n), Action: a.Fixed.Id, Undo: a.Undo(), For: why})
	}
	return views
}

// commitWaits tells what holds up the commit of a plan, and of what is part of it.
func (r *Reader) commitWaits(root *executor.Plan, of *executor.Action) (views []api.Wait) {
	r.doubts(root, func(p *executor.Plan, a *executor.Action) bool {
		if of == nil || p.ID == root.ID && a.N == of.N {
			why := withNote(r.waitOf(p, a), a.Row.Note)
			views = append(views, api.Wait{
				Number: int(a.N), Action: root.NameOf(a), Undo: a.Undo(), For: why,
			})
		}
		return len(views) < waitsMax
	})
	if of == nil {
		claims(root, func(name, why string) bool {
			if len(views) < waitsMax {
				views = append(views, api.Wait{Number: 0, Action: name, Undo: "quarantined", For: why})
			}
			return len(views) < waitsMax
		})
	}
	return views
}

func (r *Reader) waitsFor(p *executor.Plan, a *executor.Action) string {
	switch {
	case a.Row.Undo == rowspb.Undo_UNDO_QUARANTINED:
		return "its owner: " + a.Row.Note
	case a.Row.Undo == rowspb.Undo_UNDO_OWED && a.Row.Ahead == nil:
		if p.Row.Delivers {
			return deliveredBefore(a) + ": " + strings.Join(blocking(p, a), ", ")
		}
		return "what came after it: " + strings.Join(blocking(p, a), ", ")
	case a.Row.Undo == rowspb.Undo_UNDO_WAITING:
		return fmt.Sprintf("attempt %d: %s", a.Row.Attempt+1, a.Row.Note)
	}
	if shown := r.action(p, a); shown.WaitsFor != "" {
		return shown.WaitsFor
	}
	return "the next turn of the executor"
}

// blocking names the actions that came after one and are not settled.
func blocking(p *executor.Plan, a *executor.Action) (names []string) {
	for n := a.N + 1; n <= p.Row.Actions && len(names) < waitsMax; n++ {
		if b := p.Action(n); slices.Contains(b.Fixed.Before, a.N) && !b.Settled() {
			names = append(names, fmt.Sprintf("action %s is %s", b.Fixed.Id, b.Undo()))
		}
	}
	return names
}
