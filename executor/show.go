package executor

import (
	"encoding/binary"
	"encoding/json"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Reader answers questions about a flushed state, over any snapshot of its KV.
// It may run beside the actor and changes nothing.
type Reader struct {
	s *State
}

// NewReader reads the state of tenant in kv.
func NewReader(kv KV, tenant string) *Reader { return &Reader{look(kv, tenant)} }

// listMax bounds one page.
const listMax = 1000

// Filter selects plans; empty fields select all.
type Filter struct {
	State string `json:"state,omitempty"`
	Agent string `json:"agent,omitempty"`
	Label string `json:"label,omitempty"`
	After string `json:"after,omitempty"` // plan id; the page starts behind it
	Limit int    `json:"limit,omitempty"` // 1..1000, default 100
}

// Plans returns one page of plans in order of id, and the id to continue after
// ("" when there are no more).
func (r *Reader) Plans(f Filter) (views []PlanView, next string) {
	if f.Limit <= 0 || f.Limit > listMax {
		f.Limit = 100
	}
	from := append(planKey(keyPlan, f.After), 0)
	if f.After == "" {
		from = []byte{keyPlan}
	}
	for k, v := range r.s.kv.Scan(from, after([]byte{keyPlan})) {
		row := new(pb.PlanRow)
		if err := row.UnmarshalVT(v); err != nil {
			panic(&StoreError{"scan", err})
		}
		if f.State != "" && stateName(row) != f.State || f.Agent != "" && row.Agent != f.Agent || f.Label != "" && row.Declared.Label != f.Label {
			continue
		}
		if len(views) == f.Limit {
			return views, views[len(views)-1].Plan
		}
		views = append(views, viewOf(string(k[1:]), row))
	}
	return views, ""
}

// Plan returns one plan with its actions, leases and refusals; ok is false when
// there is none of that id.
func (r *Reader) Plan(id string) (view PlanView, ok bool) {
	p := r.s.plan(id)
	if p == nil {
		return PlanView{}, false
	}
	view = viewOf(id, p.row)
	for n := uint32(1); n <= p.row.Actions; n++ {
		view.Actions = append(view.Actions, r.action(p, r.s.action(id, n)))
	}
	view.Leases = leaseViews(p.row.Leases)
	prefix := append(planKey(keyRefusal, id), 0)
	for k := range r.s.kv.Scan(prefix, after(prefix)) {
		place := k[len(prefix):]
		view.Refused = append(view.Refused, r.refused(binary.BigEndian.Uint64(place), binary.BigEndian.Uint32(place[8:])))
	}
	return view, true
}

// Quarantined returns the plans that wait for their owner, with their actions.
func (r *Reader) Quarantined(limit int) []PlanView {
	var ids []string
	for k := range r.s.kv.Scan([]byte{keyOwner}, after([]byte{keyOwner})) {
		if len(ids) == min(max(limit, 1), listMax) {
			break
		}
		ids = append(ids, string(k[1:]))
	}
	views := make([]PlanView, 0, len(ids))
	for _, id := range ids {
		view, _ := r.Plan(id)
		views = append(views, view)
	}
	return views
}

// Refusals returns refused and void records behind a sequence, in order.
func (r *Reader) Refusals(afterSequence uint64, limit int) []RefusedView {
	var views []RefusedView
	from := recordKey(keyRefused, afterSequence+1, 0)
	for k := range r.s.kv.Scan(from, after([]byte{keyRefused})) {
		if len(views) == min(max(limit, 1), listMax) {
			break
		}
		views = append(views, r.refused(binary.BigEndian.Uint64(k[1:]), binary.BigEndian.Uint32(k[9:])))
	}
	return views
}

// RefusedAt returns what was refused or void of one message.
func (r *Reader) RefusedAt(sequence uint64) []RefusedView {
	var views []RefusedView
	for k := range r.s.kv.Scan(recordKey(keyRefused, sequence, 0), recordKey(keyRefused, sequence+1, 0)) {
		views = append(views, r.refused(sequence, binary.BigEndian.Uint32(k[9:])))
	}
	return views
}

// Applied returns the last sequence that is folded.
func (r *Reader) Applied() uint64 { return r.s.meta.Applied.GetSequence() }

// Outcome returns a plan's state, why it is so, and the actions that wait for
// its owner; ok is false when there is no plan of that id.
func (r *Reader) Outcome(id string) (state, reason string, quarantined []string, ok bool) {
	p := r.s.plan(id)
	if p == nil {
		return "", "", nil, false
	}
	for n := uint32(1); n <= p.row.Actions && p.row.Quarantined > uint32(len(quarantined)); n++ {
		if a := r.s.action(id, n); a.row.Undo == pb.Undo_UNDO_QUARANTINED {
			quarantined = append(quarantined, a.fixed.Id)
		}
	}
	return stateName(p.row), p.row.Reason, append(quarantined, p.row.Orphans...), true
}

// Status returns the counters of the state; the host adds what it knows.
func (r *Reader) Status() StatusView {
	m := r.s.meta
	view := StatusView{
		Tenant: r.s.tenant, Holder: m.Holder, Term: m.Term, Applied: m.Applied.GetSequence(), Records: m.Records,
		TimeNs: m.TimeNs, Held: m.Held, Open: m.Open, Unwinding: m.Unwinding, Quarantined: m.Quarantined,
		Ended: m.Ended, Refused: m.Refused, Void: m.Voided,
	}
	view.NextDueNs, _ = r.s.NextWake()
	for range r.s.kv.Scan([]byte{keyFlight}, after([]byte{keyFlight})) {
		view.InFlight++
	}
	return view
}

func (r *Reader) refused(sequence uint64, index uint32) RefusedView {
	row := new(pb.RefusedRow)
	r.s.load(recordKey(keyRefused, sequence, index), row)
	return RefusedView{
		Sequence: sequence, Index: index, Kind: row.Kind, Plan: row.Plan, Subject: row.Subject,
		Reason: row.Reason, Void: row.Voided, StampNs: row.StampNs,
	}
}

func viewOf(id string, row *pb.PlanRow) PlanView {
	view := PlanView{
		Plan: id, Agent: row.Agent, Label: row.Declared.Label, Owner: row.Declared.Owner, State: stateName(row), Reason: row.Reason,
		OpenedNs: row.OpenedNs, DeadlineNs: row.Declared.DeadlineNs, EndedNs: row.EndedNs, LastNs: row.LastNs,
		ActionCount: int(row.Actions), Compensated: int(row.Compensated), Skipped: int(row.Skipped), Quarantined: int(row.Quarantined),
		Opened: ledger.FormatAddress(row.Opened), Orphans: row.Orphans,
	}
	for _, l := range row.Declared.Labels {
		if view.Labels == nil {
			view.Labels = map[string]string{}
		}
		view.Labels[l.Key] = l.Value
	}
	switch row.Phase {
	case pb.Phase_PHASE_OPEN:
		view.Held = int(row.Actions)
	case pb.Phase_PHASE_UNWINDING, pb.Phase_PHASE_QUARANTINED:
		view.Held = int(row.Unsettled)
	}
	if row.Fired != nil {
		view.Fired = ledger.FormatAddress(row.Fired)
	}
	if row.Ended != nil {
		view.Ended = ledger.FormatAddress(row.Ended)
	}
	if row.Committed != nil {
		view.Ended = ledger.FormatAddress(row.Committed)
	}
	return view
}

func (r *Reader) action(p *plan, a *action) ActionView {
	f, c, row := a.fixed.Forward, a.fixed.Compensation, a.row
	payload := r.s.payload(actionKey(keyPayload, p.id, a.id.n))
	view := ActionView{
		Number: int(a.id.n), Action: a.fixed.Id, Capability: f.Capability, Class: className(f.Class),
		Outcome: outcomeName(row.Outcome), Undo: undoOf(p.row, row), Compensation: c.GetCapability(),
		Attempt: int(row.Attempt), AtNs: a.fixed.AtNs, DueNs: row.DueNs, SettledNs: row.SettledNs,
		Note: row.Note, Failure: row.Failure, Verdict: verdictName(row.Verdict),
		Input: json.RawMessage(payload.Input), Output: json.RawMessage(payload.Output),
		Registered: ledger.FormatAddress(a.fixed.Registered), Leases: leaseViews(row.Leases),
	}
	if c != nil {
		view.Key = r.s.key(a)
		view.Attempts = int(attemptsOf(c))
	}
	for _, n := range a.fixed.Before {
		view.After = append(view.After, int(n))
	}
	for _, at := range []struct {
		to   *string
		from *pb.Address
	}{{&view.OutcomeAt, row.OutcomeAt}, {&view.Dispatched, row.Dispatched}, {&view.Settled, row.Settled}} {
		if at.from != nil {
			*at.to = ledger.FormatAddress(at.from)
		}
	}
	if row.Resolution != nil {
		view.Resolution, view.ResolvedBy, view.Evidence = resolutionName(row.Resolution.Outcome), row.Resolution.Actor, row.Resolution.Evidence
	}
	if row.Undo == pb.Undo_UNDO_OWED && row.Blockers > 0 {
		view.WaitsFor = "what came after it"
	}
	if row.Undo == pb.Undo_UNDO_DISPATCHED {
		view.WaitsFor = "a worker of " + c.GetCapability()
	}
	return view
}

// undoOf is the undo as people read it: a whole held set is retired by its plan.
func undoOf(p *pb.PlanRow, a *pb.ActionRow) string {
	if a.Undo == pb.Undo_UNDO_HELD && p.Phase == pb.Phase_PHASE_COMMITTED {
		return undoName(pb.Undo_UNDO_RETIRED)
	}
	return undoName(a.Undo)
}

func leaseViews(rows []*pb.LeaseRow) []LeaseView {
	var views []LeaseView
	for _, l := range rows {
		view := LeaseView{
			Name: l.Name, Condition: conditionOf(l), Truth: truthName(l.Truth), Fired: l.Fired, Moot: l.Moot,
			WakeNs: l.WakeNs, Waits: l.Waits, Error: l.Error,
		}
		if l.WakeNs == wakeNow {
			view.WakeNs = 0 // true already: it fires as soon as the clock allows
		}
		views = append(views, view)
	}
	return views
}
