package view

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/writers"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Plans returns one batch of plans in order of id, and the id to continue after
// ("" when there are no more). It goes through all plans: for a check of all of them.
func (r *Reader) Plans(f api.Filter) (views []api.Plan, next string) {
	list := newBatch[api.Plan](f.Limit)
	from := append(rows.Plans.Key(f.After), 0)
	if f.After == "" {
		from = rows.Plans.Prefix()
	}
	for k, v := range r.tx.Scan(from, rows.After(rows.Plans.Prefix())) {
		p := r.core.PlanOf(string(k[1:]), rows.Plans.Decode("scan", v))
		if f.State != "" && p.State() != f.State || f.Agent != "" && p.Row.Agent != f.Agent ||
			f.Label != "" && p.Row.Declared.Label != f.Label {
			continue
		}
		seen := planView(p)
		seen.WindowClosesNs = windowCloses(p)
		if !list.add(p.ID, seen) {
			break
		}
	}
	return list.list, list.next
}

// windowsShown bounds the windows that one plan's view looks at.
const windowsShown = 64

// windowCloses is the end of the first undo window of a plan's held actions.
func windowCloses(p *executor.Plan) (first int64) {
	for _, n := range p.Row.Windows[:min(len(p.Row.Windows), windowsShown)] {
		if ns := p.Action(n).Row.ClosesNs; first == 0 || ns < first {
			first = ns
		}
	}
	return first
}

// Plan returns one plan with its actions, leases and refusals; ok is false for an unknown
// id.
func (r *Reader) Plan(id string) (seen api.Plan, ok bool) {
	p := r.core.Plan(id)
	if p == nil {
		return api.Plan{}, false
	}
	seen = r.controlView(p)
	seen.Input = inputOf(r, p)
	for i := range seen.Actions {
		a := &seen.Actions[i]
		action := rows.Action{Plan: id, N: uint32(a.Number)}
		payload := r.payload(action)
		a.Input, a.Output, a.Before = json.RawMessage(payload.Input), json.RawMessage(payload.Output),
			json.RawMessage(payload.Before)
		a.Found = json.RawMessage(payload.Found)
		if command := rows.Commands.Find(r.tx, action); command != nil {
			a.Arguments = json.RawMessage(command.Arguments)
		}
	}
	prefix := rows.Refusals.Within(id)
	for k := range r.tx.Scan(prefix, rows.After(prefix)) {
		if len(seen.Refused) == refusedShown {
			seen.Omitted = append(seen.Omitted, "further refused records")
			break
		}
		seen.Refused = append(seen.Refused, r.refused(rows.ParsePlace(k[len(prefix):])))
	}
	fit(&seen)
	return seen, true
}

// inputOf is what a plan was opened with, or the one that it undoes or delivers.
func inputOf(r *Reader, p *executor.Plan) json.RawMessage {
	return r.payload(rows.Action{Plan: cmp.Or(p.Row.Origin, p.ID)}).Input
}

// payload is what the action's process has sent along; never nil.
func (r *Reader) payload(id rows.Action) *pb.Payload {
	if payload := rows.Payloads.Find(r.tx, id); payload != nil {
		return payload
	}
	return new(pb.Payload)
}

// NoPlan says that there is no plan of an id, and why, where records about it were
// refused: its opening may be one of them.
func (r *Reader) NoPlan(id string) string {
	text := "there is no plan " + id
	if !ledger.ValidDerived(id) {
		return text
	}
	prefix := rows.Refusals.Within(id)
	for k := range r.tx.Scan(prefix, rows.After(prefix)) {
		first := r.refused(rows.ParsePlace(k[len(prefix):]))
		return fmt.Sprintf("%s: the record at %d.%d on %s has no effect: %s", text, first.Sequence,
			first.Index, first.Subject, first.Reason)
	}
	return text
}

// refusedShown bounds the refusals that one plan shows.
const refusedShown = 200

// fit leaves out what would not fit into one answer, and says so.
func fit(seen *api.Plan) {
	if sizeOf(*seen) <= batchBytesMax {
		return
	}
	seen.Input = nil
	for i := range seen.Actions {
		a := &seen.Actions[i]
		a.Input, a.Output, a.Before, a.Arguments, a.Found = nil, nil, nil, nil, nil
	}
	seen.Omitted = append(seen.Omitted, "inputs, outputs and arguments")
	whole := len(seen.Actions)
	for len(seen.Actions) > 1 && sizeOf(*seen) > batchBytesMax {
		seen.Actions = seen.Actions[:len(seen.Actions)/2]
	}
	if shown := len(seen.Actions); shown < whole {
		seen.Omitted = append(seen.Omitted, fmt.Sprintf("actions %d to %d", shown+1, whole))
	}
}

// controlView is a plan with its actions and leases, without customer data.
func (r *Reader) controlView(p *executor.Plan) api.Plan {
	seen := planView(p)
	seen.Owner = p.Owner()
	seen.WindowClosesNs = windowCloses(p)
	for a := range p.Actions() {
		seen.Actions = append(seen.Actions, r.action(p, a))
	}
	seen.Leases = r.leases(p.Leases())
	seen.Cuts = cuts(p)
	return seen
}

// Quarantined returns one batch of the plans that wait for their owner, in order
// of id, with the actions that wait, and the id to continue after.
func (r *Reader) Quarantined(q api.ListQuery) (views []api.Plan, next string) {
	list := newBatch[api.Plan](q.Limit)
	from := append(rows.Owners.Key(q.After), 0)
	if q.After == "" {
		from = rows.Owners.Prefix()
	}
	for k := range r.tx.Scan(from, rows.After(rows.Owners.Prefix())) {
		p := r.core.Plan(string(k[1:]))
		seen := planView(p)
		seen.Owner, seen.Cuts = p.Owner(), cuts(p)
		for n := uint32(1); n <= p.Row.Actions && len(seen.Actions) < int(p.Row.Quarantined); n++ {
			if a := p.Action(n); a.Row.Undo == rowspb.Undo_UNDO_QUARANTINED && a.Fixed.Child == "" {
				seen.Actions = append(seen.Actions, r.action(p, a))
			}
		}
		if !list.add(p.ID, seen) {
			break
		}
	}
	return list.list, list.next
}

func planView(p *executor.Plan) api.Plan {
	row := p.Row
	deadline, _ := p.Deadline()
	seen := api.Plan{
		Plan: p.ID, Agent: row.Agent, Label: row.Declared.Label, Owner: row.Declared.Owner,
		State: p.State(), Reason: row.Reason,
		OpenedNs: row.OpenedNs, DeadlineNs: deadline, EndedNs: row.EndedNs,
		LastNs:      row.LastNs,
		NoWriter:    writers.Bare(row.Writer) == "" && !writers.Awaited(row) && row.Origin == "",
		ActionCount: int(row.Actions), Compensated: int(row.Compensated), Skipped: int(row.Skipped),
		Quarantined: int(row.Quarantined),
		Opened:      ledger.FormatAddress(row.Opened), Orphans: orphanNames(p),
		ToSavepoint: row.ToSavepoint, FromAction: row.FromAction,
		OnUndoFailure:  onUndoFailureName(row.Declared.OnUndoFailure, row.LastGoes),
		SecondApprover: row.Declared.SecondApprover,
		Origin:         row.Origin, UndoneAs: row.UndoneAs, Erasure: erasure(row),
		Delivers: row.Delivers, DeliveredAs: row.DeliveredAs,
		HeldConditions: int(row.HeldOn), HeldUntilNs: row.EndsNs,
	}
	if m := row.Moved; m.GetAt() != nil {
		seen.DeadlineMoved = &api.DeadlineMove{By: m.By, Reason: m.Reason,
			At: ledger.FormatAddress(m.At)}
	}
	for _, a := range row.Adoptions {
		seen.Adopted = append(seen.Adopted, adoptionOf(a))
	}
	seen.Awaited = writers.Awaited(row)
	seen.DefaultDeadline = row.Moved != nil && row.Moved.At == nil
	if row.Stopped != nil {
		seen.Stopped = ledger.FormatAddress(row.Stopped)
	}
	for _, q := range row.Proposals {
		seen.Proposals = append(seen.Proposals, api.Proposal{Action: q.Orphan, Answer: answerOf(q),
			Operator: q.Operator})
	}
	if row.ParentEntry != 0 {
		seen.Parent = row.Declared.ParentPlan
	}
	for _, sp := range row.Savepoints {
		seen.Savepoints = append(seen.Savepoints, api.Savepoint{Name: sp.Name, Actions: int(sp.Actions),
			At: ledger.FormatAddress(sp.At)})
	}
	for _, l := range row.Declared.Labels {
		if seen.Labels == nil {
			seen.Labels = map[string]string{}
		}
		seen.Labels[l.Key] = l.Value
	}
	switch row.Phase {
	case rowspb.Phase_PHASE_OPEN, rowspb.Phase_PHASE_COMMITTING, rowspb.Phase_PHASE_UNWINDING,
		rowspb.Phase_PHASE_QUARANTINED:
		seen.Held = int(row.Unsettled)
	case rowspb.Phase_PHASE_COMMITTED:
		if p.Keeps() {
			seen.Held = int(row.Unsettled)
		}
	}
	if row.Fired != nil {
		seen.Fired = ledger.FormatAddress(row.Fired)
	}
	if row.Ended != nil {
		seen.Ended = ledger.FormatAddress(row.Ended)
	}
	if row.Phase == rowspb.Phase_PHASE_COMMITTED {
		seen.Ended = ledger.FormatAddress(row.Committed)
	}
	return seen
}

// answerOf is a proposal as its command line has it: "skipped --halt".
func answerOf(q *rowspb.Proposal) string {
	answer := q.Answer
	if q.Halt {
		answer += " --halt"
	}
	if q.Force {
		answer += " --force"
	}
	return answer
}
