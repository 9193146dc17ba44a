package executor

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Trail says where the records stand that a plan's story is told from, as far as the
// rows know it. Whoever reads the ledger finds the others between From and UntilNs.
type Trail struct {
	Places  []Place
	From    uint64 // sequence at which the plan was opened
	Turned  uint64 // sequence at which its last unwind began; 0: none
	UntilNs int64  // stamp of the last record of the plan (unix ns)

	tenant string
	plans  []string // the plan, and the one that undoes it
	action string
	duties []string // of that action
}

// trailActions bounds the actions of a plan whose records a trail names.
const trailActions = 256

// Trail names the places of a plan's story, or of one action of it. There must be such
// a plan and action (see Why).
func (r *Reader) Trail(q view.WhyQuery) Trail {
	p := r.s.plan(q.Plan)
	t := Trail{tenant: r.s.tenant, From: p.row.Opened.GetSequence(), UntilNs: p.row.LastNs}
	if q.Action != "" {
		t.action = r.numbered(p, q.Action).fixed.Id
	}
	for next := p; next != nil; next = r.s.plan(next.row.UndoneAs) {
		t.plans, t.UntilNs = append(t.plans, next.id), max(t.UntilNs, next.row.LastNs)
		r.trailPlan(&t, next)
		if next.row.UndoneAs == "" {
			break
		}
	}
	return t
}

func (t *Trail) add(list ...*pb.Address) {
	for _, at := range list {
		if at != nil && at.Sequence != 0 {
			t.Places = append(t.Places, Place{at.Sequence, at.Index})
		}
	}
}

func (r *Reader) trailPlan(t *Trail, p *plan) {
	row := p.row
	t.add(row.Opened, row.Signalled, row.Fired, row.Unwinding, row.Committed, row.Resumed, row.Ended,
		row.Asked.GetAt())
	if at := row.Unwinding.GetSequence(); at != 0 {
		t.Turned = at
	}
	for _, c := range slices.Concat(row.Cuts, row.Answered) {
		t.add(c.At, c.Answer.GetAt())
	}
	if f := row.Firing; f != nil {
		for _, g := range append(r.s.before(f), f) {
			t.add(g.Fired, g.Said.GetAt(), g.Read.GetAt(), g.By.GetFact(), g.Resumed.GetAt())
		}
	}
	for n := uint32(1); n <= row.Actions && n <= trailActions; n++ {
		a := r.s.action(p.id, n)
		if t.action == "" {
			t.add(a.row.Settled, a.row.Dispatched)
			continue
		}
		if base, _, _ := strings.Cut(a.fixed.Id, dutySign); a.fixed.Id != t.action && base != t.action {
			continue
		}
		t.duties = append(t.duties, a.fixed.Id)
		t.add(a.fixed.Registered, a.row.OutcomeAt, a.row.Settled, a.row.Dispatched, a.row.PresenceAt)
		prefix := rows.Attempts.WithinAction(p.id, n)
		for _, v := range r.s.tx.Scan(prefix, rows.After(prefix)) {
			attempt := new(rowspb.AttemptRow)
			rows.Decode("scan", v, attempt)
			t.add(attempt.Dispatched, attempt.Ended)
		}
	}
	if t.action != "" {
		return
	}
	prefix := rows.Refusals.Within(p.id)
	for k := range r.s.tx.Scan(prefix, rows.After(prefix)) {
		if place := k[len(prefix):]; len(t.Places) < refusedShown {
			t.Places = append(t.Places,
				Place{binary.BigEndian.Uint64(place), binary.BigEndian.Uint32(place[8:])})
		}
	}
}

// Wants reports whether a record belongs to the story wherever it stands: what is said
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

// waitsMax bounds the actions that a WhyView names as waiting.
const waitsMax = 64

// waits tells what holds up the undos of a plan, or of one action of it.
func (r *Reader) waits(p *plan, of *action) (views []view.Wait) {
	if r.s.committing(p) {
		return r.commitWaits(p, of)
	}
	if closed(p.row.Phase) || p.row.Phase == rowspb.Phase_PHASE_OPEN {
		return nil
	}
	for n := uint32(1); n <= p.row.Actions && len(views) < waitsMax; n++ {
		a := r.s.action(p.id, n)
		if of != nil && a.id.N != of.id.N || !outstanding(a) {
			continue
		}
		views = append(views, view.Wait{Number: int(n), Action: a.fixed.Id, Undo: undoName(a.row.Undo),
			For: r.waitsFor(p, a)})
	}
	return views
}

// commitWaits tells what holds up the commit of a plan, and of what is part of it.
func (r *Reader) commitWaits(root *plan, of *action) (views []view.Wait) {
	r.s.retirable(root, func(p *plan, a *action) bool {
		if unanswered(a) && (of == nil || a == of) {
			why := joinText(r.waitOf(p, a), a.row.Note)
			views = append(views, view.Wait{
				Number: int(a.id.N), Action: treeName(root, p, a), Undo: undoOf(p.row, a.row), For: why,
			})
		}
		return len(views) < waitsMax
	})
	if of == nil {
		r.s.orphansOf(root, func(name, why string) bool {
			if len(views) < waitsMax {
				views = append(views, view.Wait{Number: 0, Action: name, Undo: "quarantined", For: why})
			}
			return len(views) < waitsMax
		})
	}
	return views
}

func (r *Reader) waitsFor(p *plan, a *action) string {
	switch {
	case a.row.Undo == rowspb.Undo_UNDO_QUARANTINED:
		return "its owner: " + a.row.Note
	case a.row.Undo == rowspb.Undo_UNDO_OWED:
		return "what came after it: " + strings.Join(r.blocking(p, a), ", ")
	case a.row.Undo == rowspb.Undo_UNDO_WAITING:
		return fmt.Sprintf("attempt %d: %s", a.row.Attempt+1, a.row.Note)
	}
	if shown := r.action(p, a); shown.WaitsFor != "" {
		return shown.WaitsFor
	}
	return "the next turn of the executor"
}

// blocking names the actions that came after one and are not settled.
func (r *Reader) blocking(p *plan, a *action) (names []string) {
	for n := a.id.N + 1; n <= p.row.Actions && len(names) < waitsMax; n++ {
		if b := r.s.action(p.id, n); slices.Contains(b.fixed.Before, a.id.N) && !settled(b.row.Undo) {
			names = append(names, fmt.Sprintf("action %s is %s", b.fixed.Id, undoName(b.row.Undo)))
		}
	}
	return names
}
