package executor

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/view"
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

// Plans returns one page of plans in order of id, and the id to continue after
// ("" when there are no more).
func (r *Reader) Plans(f view.Filter) (views []view.Plan, next string) {
	list := newBatch[view.Plan](f.Limit)
	from := append(rows.Plans.Key(f.After), 0)
	if f.After == "" {
		from = rows.Plans.Prefix()
	}
	for k, v := range r.s.tx.Scan(from, rows.After(rows.Plans.Prefix())) {
		row := new(rowspb.PlanRow)
		rows.Decode("scan", v, row)
		if f.State != "" && stateName(row) != f.State || f.Agent != "" && row.Agent != f.Agent ||
			f.Label != "" && row.Declared.Label != f.Label {
			continue
		}
		seen := viewOf(string(k[1:]), row)
		seen.WindowClosesNs = r.windowCloses(seen.Plan, row)
		if !list.add(seen.Plan, seen) {
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
func (r *Reader) Plan(id string) (seen view.Plan, ok bool) {
	p := r.s.plan(id)
	if p == nil {
		return view.Plan{}, false
	}
	seen = r.controlView(p)
	for i := range seen.Actions {
		a := &seen.Actions[i]
		payload := r.s.payload(rows.Action{Plan: id, N: uint32(a.Number)})
		a.Input, a.Output, a.Before = json.RawMessage(payload.Input), json.RawMessage(payload.Output),
			json.RawMessage(payload.Before)
		if command := r.s.commandRow(r.s.action(id, uint32(a.Number))); command != nil {
			a.Arguments = json.RawMessage(command.Arguments)
		}
	}
	prefix := rows.Refusals.Within(id)
	for k := range r.s.tx.Scan(prefix, rows.After(prefix)) {
		if len(seen.Refused) == refusedShown {
			seen.Omitted = append(seen.Omitted, "further refused records")
			break
		}
		place := k[len(prefix):]
		seen.Refused = append(seen.Refused,
			r.refused(binary.BigEndian.Uint64(place), binary.BigEndian.Uint32(place[8:])))
	}
	fit(&seen)
	return seen, true
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
		return fmt.Sprintf("%s: the record at %d.%d on %s has no effect: %s", text, first.Sequence,
			first.Index, first.Subject, first.Reason)
	}
	return text
}

// refusedShown bounds the refusals that one plan shows.
const refusedShown = 200

// fit leaves out what would not fit into one answer, and says so.
func fit(seen *view.Plan) {
	if len(mustJSON(*seen)) <= batchBytesMax {
		return
	}
	for i := range seen.Actions {
		a := &seen.Actions[i]
		a.Input, a.Output, a.Before, a.Arguments = nil, nil, nil, nil
	}
	seen.Omitted = append(seen.Omitted, "inputs, outputs and arguments")
	whole := len(seen.Actions)
	for len(seen.Actions) > 1 && len(mustJSON(*seen)) > batchBytesMax {
		seen.Actions = seen.Actions[:len(seen.Actions)/2]
	}
	if shown := len(seen.Actions); shown < whole {
		seen.Omitted = append(seen.Omitted, fmt.Sprintf("actions %d to %d", shown+1, whole))
	}
}

// controlView is a plan with its actions and leases, without customer data.
func (r *Reader) controlView(p *plan) view.Plan {
	seen := viewOf(p.id, p.row)
	seen.Owner = r.s.owner(p)
	seen.WindowClosesNs = r.windowCloses(p.id, p.row)
	for n := uint32(1); n <= p.row.Actions; n++ {
		seen.Actions = append(seen.Actions, r.action(p, r.s.action(p.id, n)))
	}
	seen.Leases = r.leases(p, nil)
	seen.Cuts = r.cuts(p)
	return seen
}

// Quarantined returns one page of the plans that wait for their owner, in order
// of id, with the actions that wait, and the id to continue after.
func (r *Reader) Quarantined(q view.ListQuery) (views []view.Plan, next string) {
	list := newBatch[view.Plan](q.Limit)
	from := append(rows.Owners.Key(q.After), 0)
	if q.After == "" {
		from = rows.Owners.Prefix()
	}
	for k := range r.s.tx.Scan(from, rows.After(rows.Owners.Prefix())) {
		p := r.s.plan(string(k[1:]))
		seen := viewOf(p.id, p.row)
		seen.Owner, seen.Cuts = r.s.owner(p), r.cuts(p)
		for n := uint32(1); n <= p.row.Actions && len(seen.Actions) < int(p.row.Quarantined); n++ {
			if a := r.s.action(p.id, n); a.row.Undo == rowspb.Undo_UNDO_QUARANTINED && a.fixed.Child == "" {
				seen.Actions = append(seen.Actions, r.action(p, a))
			}
		}
		if !list.add(p.id, seen) {
			break
		}
	}
	return list.list, list.next
}

// Refusals returns refused and void records behind a sequence, in order.
func (r *Reader) Refusals(afterSequence uint64, limit int) []view.Refused {
	var views []view.Refused
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
func (r *Reader) RefusedAt(sequence uint64) []view.Refused {
	var views []view.Refused
	for k := range r.s.tx.Scan(rows.Refused.Key(rows.Place{Sequence: sequence, Index: 0}),
		rows.Refused.Key(rows.Place{Sequence: sequence + 1, Index: 0})) {
		views = append(views, r.refused(sequence, binary.BigEndian.Uint32(k[9:])))
	}
	return views
}

// Applied returns the last sequence that is folded.
func (r *Reader) Applied() uint64 { return r.s.meta.Applied.GetSequence() }

// Status returns the counters of the state; the host adds what it knows.
func (r *Reader) Status() view.Status {
	m := r.s.meta
	seen := view.Status{
		Tenant: r.s.tenant, Holder: m.Holder, Term: m.Term, Applied: m.Applied.GetSequence(),
		Records: m.Records,
		TimeNs:  m.TimeNs, Held: m.Held, Open: m.Open, Unwinding: m.Unwinding, Quarantined: m.Quarantined,
		Ended: m.Ended, Refused: m.Refused, Void: m.Voided, Cut: m.Cut, Faulty: m.Faulty,
	}
	if m.TimeNs/hourNs == m.CascadeHour {
		seen.Cascaded = m.Cascaded
	}
	seen.NextDueNs = r.nextDue()
	for range r.s.tx.Scan(rows.Flights.Prefix(), rows.After(rows.Flights.Prefix())) {
		seen.InFlight++
	}
	for k, v := range r.s.tx.Scan(rows.Pages.Prefix(), rows.After(rows.Pages.Prefix())) {
		seen.Unpaged++
		row := new(rowspb.PageRow)
		if rows.Decode("scan", v, row); seen.OldestPage == nil || row.AtNs < seen.OldestPage.AtNs {
			id := rows.ParseAction(k[:len(k)-len(row.Kind)])
			plan, n := id.Plan, id.N
			seen.OldestPage = &view.Page{Kind: row.Kind, Hook: row.Hook, Plan: plan, Reason: row.Reason,
				AtNs: row.AtNs}
			if n != 0 {
				seen.OldestPage.Action = r.s.action(plan, n).fixed.Id
			}
		}
	}
	if m.Faulty > 0 {
		seen.FaultyPlans = r.faultyPlans(faultyShown)
	}
	return seen
}

func (r *Reader) refused(sequence uint64, index uint32) view.Refused {
	row, _ := rows.Refused.Load(r.s.tx, rows.Place{Sequence: sequence, Index: index})
	return view.Refused{
		Sequence: sequence, Index: index, Kind: row.Kind, Plan: row.Plan, Subject: row.Subject,
		Reason: row.Reason, Void: row.Voided, StampNs: row.StampNs,
	}
}

func viewOf(id string, row *rowspb.PlanRow) view.Plan {
	seen := view.Plan{
		Plan: id, Agent: row.Agent, Label: row.Declared.Label, Owner: row.Declared.Owner,
		State: stateName(row), Reason: row.Reason,
		OpenedNs: row.OpenedNs, DeadlineNs: row.Declared.DeadlineNs, EndedNs: row.EndedNs,
		LastNs:      row.LastNs,
		ActionCount: int(row.Actions), Compensated: int(row.Compensated), Skipped: int(row.Skipped),
		Quarantined: int(row.Quarantined),
		Opened:      ledger.FormatAddress(row.Opened), Orphans: orphans(row),
		ToSavepoint: row.ToSavepoint, OnUndoFailure: onUndoFailureName(row.Declared.OnUndoFailure),
		SecondApprover: row.Declared.SecondApprover,
		Origin:         row.Origin, UndoneAs: row.UndoneAs, Erasure: erasure(row),
	}
	for _, q := range row.Proposals {
		seen.Proposals = append(seen.Proposals, view.Proposal{Action: q.Orphan, Answer: answerOf(q),
			Operator: q.Operator})
	}
	if child(row) {
		seen.Parent = row.Declared.ParentPlan
	}
	for _, sp := range row.Savepoints {
		seen.Savepoints = append(seen.Savepoints, view.Savepoint{Name: sp.Name, Actions: int(sp.Actions),
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
		if keeps(row) {
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

func (r *Reader) action(p *plan, a *action) view.Action {
	f, c, row := a.fixed.Forward, a.fixed.Compensation, a.row
	seen := view.Action{
		Number: int(a.id.N), Action: a.fixed.Id, Capability: f.GetCapability(),
		Class:  className(f.GetClass()),
		Asking: questionName(row.Asking), Presence: presenceName(row.Presence), Fidelity: c.GetFidelity(),
		ClosesNs: row.ClosesNs,
		Pivot:    f.GetPivot(), Approve: c.GetApprove(), Child: a.fixed.Child, AliveNs: row.AliveUntilNs,
		Contract: hex.EncodeToString(f.GetContractDigest()),
		Outcome:  outcomeName(row.Outcome), Undo: undoOf(p.row, row), Compensation: c.GetCapability(),
		Handler: c.GetHandlerVersion(),
		Attempt: int(row.Attempt), AtNs: a.fixed.AtNs, DueNs: row.DueNs, SettledNs: row.SettledNs,
		Note: row.Note, Failure: row.Failure, Incomplete: row.OutputIncomplete,
		Verdict:    verdictName(row.Verdict),
		Registered: ledger.FormatAddress(a.fixed.Registered),
		About:      ledger.FormatFullAddress(a.fixed.Registered), Leases: r.leases(p, a),
	}
	if c != nil {
		seen.Sealed = c.Sealed
		seen.Key = r.s.key(a)
		seen.Attempts = int(attemptsOf(c))
	}
	if a.fixed.DutyOf != 0 {
		seen.DutyOf = r.s.action(p.id, a.fixed.DutyOf).fixed.Id
	}
	if _, refusal := r.s.answerable(p, a.fixed.Id); refusal.Verdict == Effective {
		seen.Owed = true
	}
	if q := row.Proposal; q != nil {
		seen.Proposal = answerOf(q) + " by " + q.Operator + " at " + ledger.FormatAddress(q.At)
	}
	for _, n := range a.fixed.Before {
		seen.After = append(seen.After, int(n))
	}
	for _, at := range []struct {
		to   *string
		from *pb.Address
	}{{&seen.OutcomeAt, row.OutcomeAt}, {&seen.Dispatched, row.Dispatched},
		{&seen.Settled, row.Settled}} {
		if at.from != nil {
			*at.to = ledger.FormatAddress(at.from)
		}
	}
	if row.Resolution != nil {
		seen.Resolution, seen.ResolvedBy, seen.Evidence = resolutionName(row.Resolution.Outcome),
			row.Resolution.Actor, row.Resolution.Evidence
		// the subject proves who; the text says whom they call themselves
		if by := row.ResolvedBy; by != row.Resolution.Actor {
			seen.ResolvedBy += " (operator " + by + ")"
		}
		seen.ResolvedReason = row.Resolution.Reason
	}
	if row.Undo == rowspb.Undo_UNDO_QUARANTINED && row.Settled != nil {
		seen.QuarantinedAt = ledger.FormatFullAddress(row.Settled)
	}
	seen.WaitsFor = r.waitOf(p, a)
	return seen
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
