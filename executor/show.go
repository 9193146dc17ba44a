package executor

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Reader answers questions about a flushed state, over any snapshot of its KV.
// It may run beside the actor and changes nothing.
type Reader struct {
	s       *State
	asked   int   // conditions so far
	clockNs int64 // unix ns; 0: the logical time of the state
}

// NewReader reads the state of tenant in kv.
func NewReader(kv rows.KV, tenant string, archive Archive) *Reader {
	return NewReaderWith(kv, tenant, archive, nil)
}

// NewReaderWith is NewReader with the caller's compiled conditions; nil: its own.
func NewReaderWith(kv rows.KV, tenant string, archive Archive, programs *triggers.Cache) *Reader {
	s := look(kv, tenant)
	s.archive, s.programs = archive, programs
	return &Reader{s: s}
}

// At has the reader answer as of a clock (unix ns), as what waits for time does. It
// never goes back behind the logical time of the state.
func (r *Reader) At(clockNs int64) *Reader {
	r.clockNs = clockNs
	return r
}

// nowNs is the instant at which conditions are asked.
func (r *Reader) nowNs() int64 { return max(r.clockNs, r.s.meta.TimeNs) }

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
	list := newBatch[PlanView](f.Limit)
	from := append(rows.Plans.Key(f.After), 0)
	if f.After == "" {
		from = rows.Plans.Prefix()
	}
	for k, v := range r.s.tx.Scan(from, rows.After(rows.Plans.Prefix())) {
		row := new(rowspb.PlanRow)
		rows.Decode("scan", v, row)
		if f.State != "" && stateName(row) != f.State || f.Agent != "" && row.Agent != f.Agent || f.Label != "" && row.Declared.Label != f.Label {
			continue
		}
		view := viewOf(string(k[1:]), row)
		view.WindowClosesNs = r.windowCloses(view.Plan, row)
		if !list.add(view.Plan, view) {
			break
		}
	}
	return list.list, list.next
}

// windowsShown bounds the windows that one plan's view looks at.
const windowsShown = 64

// windowCloses is the end of the first undo window of a plan's held actions.
func (r *Reader) windowCloses(id string, row *rowspb.PlanRow) (first int64) {
	for _, n := range row.Windows[:min(len(row.Windows), windowsShown)] {
		if ns := r.s.action(id, n).row.ClosesNs; first == 0 || ns < first {
			first = ns
		}
	}
	return first
}

// Plan returns one plan with its actions, leases and refusals; ok is false when
// there is none of that id.
func (r *Reader) Plan(id string) (view PlanView, ok bool) {
	p := r.s.plan(id)
	if p == nil {
		return PlanView{}, false
	}
	view = r.controlView(p)
	for i := range view.Actions {
		a := &view.Actions[i]
		payload := r.s.payload(rows.Action{Plan: id, N: uint32(a.Number)})
		a.Input, a.Output, a.Before = json.RawMessage(payload.Input), json.RawMessage(payload.Output), json.RawMessage(payload.Before)
		if command := r.s.commandRow(r.s.action(id, uint32(a.Number))); command != nil {
			a.Arguments = json.RawMessage(command.Arguments)
		}
	}
	prefix := rows.Refusals.Within(id)
	for k := range r.s.tx.Scan(prefix, rows.After(prefix)) {
		if len(view.Refused) == refusedShown {
			view.Omitted = append(view.Omitted, "further refused records")
			break
		}
		place := k[len(prefix):]
		view.Refused = append(view.Refused, r.refused(binary.BigEndian.Uint64(place), binary.BigEndian.Uint32(place[8:])))
	}
	fit(&view)
	return view, true
}

// NoPlan says that there is no plan of an id, and why, where records about it were
// refused: its opening may be one of them.
func (r *Reader) NoPlan(id string) string {
	text := "there is no plan " + id
	if !ledger.ValidDerived(id) {
		return text
	}
	prefix := rows.Refusals.Within(id)
	for k := range r.s.tx.Scan(prefix, rows.After(prefix)) {
		place := k[len(prefix):]
		first := r.refused(binary.BigEndian.Uint64(place), binary.BigEndian.Uint32(place[8:]))
		return fmt.Sprintf("%s: the record at %d.%d on %s has no effect: %s", text, first.Sequence, first.Index, first.Subject, first.Reason)
	}
	return text
}

// refusedShown bounds the refusals that one plan shows.
const refusedShown = 200

// fit leaves out what would not fit into one answer, and says so.
func fit(view *PlanView) {
	if len(mustJSON(*view)) <= batchBytesMax {
		return
	}
	for i := range view.Actions {
		a := &view.Actions[i]
		a.Input, a.Output, a.Before, a.Arguments = nil, nil, nil, nil
	}
	view.Omitted = append(view.Omitted, "inputs, outputs and arguments")
	whole := len(view.Actions)
	for len(view.Actions) > 1 && len(mustJSON(*view)) > batchBytesMax {
		view.Actions = view.Actions[:len(view.Actions)/2]
	}
	if shown := len(view.Actions); shown < whole {
		view.Omitted = append(view.Omitted, fmt.Sprintf("actions %d to %d", shown+1, whole))
	}
}

// controlView is a plan with its actions and leases, without customer data.
func (r *Reader) controlView(p *plan) PlanView {
	view := viewOf(p.id, p.row)
	view.Owner = r.s.owner(p)
	view.WindowClosesNs = r.windowCloses(p.id, p.row)
	for n := uint32(1); n <= p.row.Actions; n++ {
		view.Actions = append(view.Actions, r.action(p, r.s.action(p.id, n)))
	}
	view.Leases = r.leases(p, nil)
	view.Cuts = r.cuts(p)
	return view
}

// Quarantined returns one page of the plans that wait for their owner, in order
// of id, with the actions that wait, and the id to continue after.
func (r *Reader) Quarantined(q ListQuery) (views []PlanView, next string) {
	list := newBatch[PlanView](q.Limit)
	from := append(rows.Owners.Key(q.After), 0)
	if q.After == "" {
		from = rows.Owners.Prefix()
	}
	for k := range r.s.tx.Scan(from, rows.After(rows.Owners.Prefix())) {
		p := r.s.plan(string(k[1:]))
		view := viewOf(p.id, p.row)
		view.Owner, view.Cuts = r.s.owner(p), r.cuts(p)
		for n := uint32(1); n <= p.row.Actions && len(view.Actions) < int(p.row.Quarantined); n++ {
			if a := r.s.action(p.id, n); a.row.Undo == rowspb.Undo_UNDO_QUARANTINED && a.fixed.Child == "" {
				view.Actions = append(view.Actions, r.action(p, a))
			}
		}
		if !list.add(p.id, view) {
			break
		}
	}
	return list.list, list.next
}

// Refusals returns refused and void records behind a sequence, in order.
func (r *Reader) Refusals(afterSequence uint64, limit int) []RefusedView {
	var views []RefusedView
	from := rows.Refused.Key(rows.Place{Sequence: afterSequence + 1, Index: 0})
	for k := range r.s.tx.Scan(from, rows.After(rows.Refused.Prefix())) {
		if len(views) == limitOf(limit) {
			break
		}
		views = append(views, r.refused(binary.BigEndian.Uint64(k[1:]), binary.BigEndian.Uint32(k[9:])))
	}
	return views
}

// RefusedAt returns what was refused or void of one message.
func (r *Reader) RefusedAt(sequence uint64) []RefusedView {
	var views []RefusedView
	for k := range r.s.tx.Scan(rows.Refused.Key(rows.Place{Sequence: sequence, Index: 0}), rows.Refused.Key(rows.Place{Sequence: sequence + 1, Index: 0})) {
		views = append(views, r.refused(sequence, binary.BigEndian.Uint32(k[9:])))
	}
	return views
}

// Applied returns the last sequence that is folded.
func (r *Reader) Applied() uint64 { return r.s.meta.Applied.GetSequence() }

// Status returns the counters of the state; the host adds what it knows.
func (r *Reader) Status() StatusView {
	m := r.s.meta
	view := StatusView{
		Tenant: r.s.tenant, Holder: m.Holder, Term: m.Term, Applied: m.Applied.GetSequence(), Records: m.Records,
		TimeNs: m.TimeNs, Held: m.Held, Open: m.Open, Unwinding: m.Unwinding, Quarantined: m.Quarantined,
		Ended: m.Ended, Refused: m.Refused, Void: m.Voided, Cut: m.Cut, Faulty: m.Faulty,
	}
	if m.TimeNs/hourNs == m.CascadeHour {
		view.Cascaded = m.Cascaded
	}
	view.NextDueNs = r.nextDue()
	for range r.s.tx.Scan(rows.Flights.Prefix(), rows.After(rows.Flights.Prefix())) {
		view.InFlight++
	}
	for k, v := range r.s.tx.Scan(rows.Pages.Prefix(), rows.After(rows.Pages.Prefix())) {
		view.Unpaged++
		row := new(rowspb.PageRow)
		if rows.Decode("scan", v, row); view.OldestPage == nil || row.AtNs < view.OldestPage.AtNs {
			id := rows.ParseAction(k[:len(k)-len(row.Kind)])
			plan, n := id.Plan, id.N
			view.OldestPage = &PageView{Kind: row.Kind, Hook: row.Hook, Plan: plan, Reason: row.Reason, AtNs: row.AtNs}
			if n != 0 {
				view.OldestPage.Action = r.s.action(plan, n).fixed.Id
			}
		}
	}
	if m.Faulty > 0 {
		view.FaultyPlans = r.faultyPlans(faultyShown)
	}
	return view
}

func (r *Reader) refused(sequence uint64, index uint32) RefusedView {
	row, _ := rows.Refused.Load(r.s.tx, rows.Place{Sequence: sequence, Index: index})
	return RefusedView{
		Sequence: sequence, Index: index, Kind: row.Kind, Plan: row.Plan, Subject: row.Subject,
		Reason: row.Reason, Void: row.Voided, StampNs: row.StampNs,
	}
}

func viewOf(id string, row *rowspb.PlanRow) PlanView {
	view := PlanView{
		Plan: id, Agent: row.Agent, Label: row.Declared.Label, Owner: row.Declared.Owner, State: stateName(row), Reason: row.Reason,
		OpenedNs: row.OpenedNs, DeadlineNs: row.Declared.DeadlineNs, EndedNs: row.EndedNs, LastNs: row.LastNs,
		ActionCount: int(row.Actions), Compensated: int(row.Compensated), Skipped: int(row.Skipped), Quarantined: int(row.Quarantined),
		Opened: ledger.FormatAddress(row.Opened), Orphans: orphans(row),
		ToSavepoint: row.ToSavepoint, OnUndoFailure: onUndoFailureName(row.Declared.OnUndoFailure), SecondApprover: row.Declared.SecondApprover,
		Origin: row.Origin, UndoneAs: row.UndoneAs, Erasure: erasure(row),
	}
	for _, q := range row.Proposals {
		view.Proposals = append(view.Proposals, ProposalView{Action: q.Orphan, Answer: answerOf(q), Operator: q.Operator})
	}
	if child(row) {
		view.Parent = row.Declared.ParentPlan
	}
	for _, sp := range row.Savepoints {
		view.Savepoints = append(view.Savepoints, SavepointView{Name: sp.Name, Actions: int(sp.Actions), At: ledger.FormatAddress(sp.At)})
	}
	for _, l := range row.Declared.Labels {
		if view.Labels == nil {
			view.Labels = map[string]string{}
		}
		view.Labels[l.Key] = l.Value
	}
	switch row.Phase {
	case rowspb.Phase_PHASE_OPEN, rowspb.Phase_PHASE_COMMITTING, rowspb.Phase_PHASE_UNWINDING, rowspb.Phase_PHASE_QUARANTINED:
		view.Held = int(row.Unsettled)
	case rowspb.Phase_PHASE_COMMITTED:
		if keeps(row) {
			view.Held = int(row.Unsettled)
		}
	}
	if row.Fired != nil {
		view.Fired = ledger.FormatAddress(row.Fired)
	}
	if row.Ended != nil {
		view.Ended = ledger.FormatAddress(row.Ended)
	}
	if row.Phase == rowspb.Phase_PHASE_COMMITTED {
		view.Ended = ledger.FormatAddress(row.Committed)
	}
	return view
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

func (r *Reader) action(p *plan, a *action) ActionView {
	f, c, row := a.fixed.Forward, a.fixed.Compensation, a.row
	view := ActionView{
		Number: int(a.id.N), Action: a.fixed.Id, Capability: f.GetCapability(), Class: className(f.GetClass()),
		Asking: questionName(row.Asking), Presence: presenceName(row.Presence), Fidelity: c.GetFidelity(), ClosesNs: row.ClosesNs,
		Pivot: f.GetPivot(), Approve: c.GetApprove(), Child: a.fixed.Child, AliveNs: row.AliveUntilNs, Contract: hex.EncodeToString(f.GetContractDigest()),
		Outcome: outcomeName(row.Outcome), Undo: undoOf(p.row, row), Compensation: c.GetCapability(), Handler: c.GetHandlerVersion(),
		Attempt: int(row.Attempt), AtNs: a.fixed.AtNs, DueNs: row.DueNs, SettledNs: row.SettledNs,
		Note: row.Note, Failure: row.Failure, Incomplete: row.OutputIncomplete, Verdict: verdictName(row.Verdict),
		Registered: ledger.FormatAddress(a.fixed.Registered), About: ledger.FormatFullAddress(a.fixed.Registered), Leases: r.leases(p, a),
	}
	if c != nil {
		view.Sealed = c.Sealed
		view.Key = r.s.key(a)
		view.Attempts = int(attemptsOf(c))
	}
	if a.fixed.DutyOf != 0 {
		view.DutyOf = r.s.action(p.id, a.fixed.DutyOf).fixed.Id
	}
	if _, refusal := r.s.answerable(p, a.fixed.Id); refusal.Verdict == Effective {
		view.Owed = true
	}
	if q := row.Proposal; q != nil {
		view.Proposal = answerOf(q) + " by " + q.Operator + " at " + ledger.FormatAddress(q.At)
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
		if by := row.ResolvedBy; by != row.Resolution.Actor { // the subject proves who; the text says whom they call themselves
			view.ResolvedBy += " (operator " + by + ")"
		}
		view.ResolvedReason = row.Resolution.Reason
	}
	if row.Undo == rowspb.Undo_UNDO_QUARANTINED && row.Settled != nil {
		view.QuarantinedAt = ledger.FormatFullAddress(row.Settled)
	}
	view.WaitsFor = r.waitOf(p, a)
	return view
}

// waitOf says what an undo, or a commit, waits for before it goes on with an action.
func (r *Reader) waitOf(p *plan, a *action) string {
	c, row := a.fixed.Compensation, a.row
	commits := r.s.committing(p)
	if commits && a.fixed.Child != "" && r.s.doubtsIn(r.s.plan(a.fixed.Child)) {
		return "what is in doubt in plan " + a.fixed.Child
	}
	switch row.Undo {
	case rowspb.Undo_UNDO_OWED:
		if row.Blockers > 0 {
			return "what came after it"
		}
	case rowspb.Undo_UNDO_SETTLING:
		return settling(p, a)
	case rowspb.Undo_UNDO_QUARANTINED:
		if commits {
			return "its owner's word, before the plan is committed"
		}
	case rowspb.Undo_UNDO_WAITING, rowspb.Undo_UNDO_READY:
		if commits {
			return "the next question to " + callOf(c, pb.Question_QUESTION_EFFECT).GetCapability()
		}
	case rowspb.Undo_UNDO_DISPATCHED:
		switch {
		case a.fixed.Child != "":
			return "the unwind of plan " + a.fixed.Child
		case row.Asking != pb.Question_QUESTION_UNSPECIFIED:
			return "an answer of " + callOf(c, row.Asking).GetCapability()
		case c.GetHandlerVersion() != "":
			return "an answer of " + api.HandlerText(a.fixed.Id, c.GetHandlerVersion(), p.row.Agent)
		}
		return "a worker of " + c.GetCapability()
	}
	return ""
}

// undoOf is the undo as people read it: a whole held set is retired by its plan.
func undoOf(p *rowspb.PlanRow, a *rowspb.ActionRow) string {
	if a.Undo == rowspb.Undo_UNDO_HELD && p.Phase == rowspb.Phase_PHASE_COMMITTED && !keeps(p) {
		return undoName(rowspb.Undo_UNDO_RETIRED)
	}
	if (stops(p) || keeps(p)) && !settled(a.Undo) && a.Undo != rowspb.Undo_UNDO_QUARANTINED {
		return undoName(rowspb.Undo_UNDO_HELD) // also while a commit asks about it
	}
	return undoName(a.Undo)
}
