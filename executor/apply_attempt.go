package executor

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/arguments"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/writers"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// The attempts of an undo, from dispatch to outcome.

func (s about) dispatched(k *pb.CompensationDispatched) Result {
	if k.Behind != nil {
		return s.dispatchedAhead(k)
	}
	a := s.a
	waiting := a.row.Undo == rowspb.Undo_UNDO_WAITING &&
		a.row.Asking == pb.Question_QUESTION_UNSPECIFIED
	if !begins(a) && !waiting {
		return void("the undo of action %s is %s", a.fixed.Id, a.undoName())
	}
	if next, why := a.nextStep(); next != stepDispatch {
		return void("action %s must not be compensated: %s", a.fixed.Id, why)
	}
	if why := s.misdispatched(k); why != "" {
		return void("%s", why)
	}
	if why := s.settles(); why != "" {
		return void("%s", why)
	}
	a.dropRetry()
	a.row.Blind = k.BlindCleanup && !isSeen(a)
	a.row.Attempt, a.row.Dispatched, a.row.DispatchedNs = k.Attempt, s.e.Address, s.e.Record.EpochNs
	a.row.Unserved, a.row.Change, a.row.Progress = false, pb.Change_CHANGE_UNSPECIFIED, nil
	s.out = a.id
	if a.row.SentNs == 0 {
		a.row.SentNs = s.e.Record.EpochNs
	}
	a.attempts().MayForget(k.Attempt, s.e.Record.EpochNs)
	a.move(rowspb.Undo_UNDO_DISPATCHED)
	a.fly(&rowspb.CommandRow{Dispatched: k, Arguments: s.e.Record.Payload.GetArguments()})
	s.attemptDispatched(k, "dispatched")
	return effective
}

// misdispatched says what of a dispatch is not as its action wants it, or "".
func (s about) misdispatched(k *pb.CompensationDispatched) string {
	a := s.a
	switch c := a.fixed.Compensation; {
	case k.Attempt != a.row.Attempt+1:
		return fmt.Sprintf("attempt %d, but attempt %d is next", k.Attempt, a.row.Attempt+1)
	case k.Capability != c.Capability || k.Key != a.key():
		return fmt.Sprintf("%s with key %q is not the compensation of action %s", k.Capability, k.Key,
			a.fixed.Id)
	case k.BlindCleanup != blind(a): // its arguments were resolved for another outcome
		return fmt.Sprintf("the outcome of action %s became %s before the dispatch landed", a.fixed.Id,
			outcomeName(a.row.Outcome))
	}
	return s.unheard(k)
}

// fly notes a call that is out, and lets it be sent.
func (a *action) fly(row *rowspb.CommandRow) {
	s := a.plan.s
	rows.Commands.Set(s.tx, a.id, row)
	rows.Flights.Add(s.tx, a.id)
	if s.base == nil { // a scratch fold sends nothing
		s.commands = append(s.commands, a.command(row))
	}
}

// dropRetry takes back the due entry of an action that waits for its next call.
func (a *action) dropRetry() {
	if a.row.DueNs != 0 {
		a.plan.s.due.Drop(a.row.DueNs, rows.DueRetry, rows.Lease{Plan: a.plan.id, N: a.id.N})
		a.row.DueNs = 0
	}
}

// wait lets an action wait for its next call until dueNs.
func (a *action) wait(dueNs int64) {
	s := a.plan.s
	a.dropRetry()
	rows.Flights.Delete(s.tx, a.id)
	a.row.DueNs = dueNs
	s.due.Set(dueNs, rows.DueRetry, rows.Lease{Plan: a.plan.id, N: a.id.N})
	a.move(rowspb.Undo_UNDO_WAITING)
}

// inFlight reports whether an answer about this attempt may still settle it: an
// earlier attempt that turns out to have succeeded did undo the effect.
func inFlight(a *action, attempt uint32) bool {
	again := a.row.Undo == rowspb.Undo_UNDO_OWED || begins(a) // its owner wants it tried again
	return (flying(a.row.Undo) || again) && made(a, attempt) && !isDelivered(a)
}

// made reports whether an attempt of an undo was ever dispatched.
func made(a *action, attempt uint32) bool {
	return a.fixed.Child == "" && attempt >= 1 && attempt <= a.row.Attempt
}

// saidDone says who has called the undo of an action done, if that waits to be recorded, or "".
func (a *action) saidDone() string {
	if !a.attempts().ReportedDone() {
		return ""
	}
	return "the undo of action " + a.fixed.Id + " was reported done at " +
		ledger.FormatAddress(a.row.ReportedAt)
}

// heard notes that an action's undo was answered by other means than a reply:
// Decide records it.
func (a *action) heard(report *pb.CompensationReported, at *pb.Address) {
	p := a.plan
	a.row.Reported, a.row.ReportedAt = report, at
	p.row.Reported = rows.Insert(p.row.Reported, a.id.N)
	a.change()
	p.touch()
}

func (a *action) unheard() {
	p := a.plan
	p.row.Reported = rows.Without(p.row.Reported, a.id.N)
	a.row.Reported, a.row.ReportedAt, a.row.Confirmed = nil, nil, false
}

// epochMax leaves room after an epoch for any backoff.
const epochMax = math.MaxInt64 - 4*int64(ledger.BackoffMax)

// land takes an action out of flight; the caller moves it on.
func (a *action) land() {
	s := a.plan.s
	a.dropRetry()
	landOpenly(a)
	a.unheard()
	a.row.Asking, a.row.Pending = pb.Question_QUESTION_UNSPECIFIED, nil
	rows.Commands.Delete(s.tx, a.id)
	rows.Flights.Delete(s.tx, a.id)
}

func (s about) succeeded(k *pb.CompensationSucceeded) Result {
	a := s.a
	if !inFlight(a, k.Attempt) {
		return void("attempt %d of action %s is not in flight: its undo is %s", k.Attempt, a.fixed.Id,
			undoName(a.row.Undo))
	}
	switch claims := k.Verified || k.Probed; {
	case claims && !a.row.Confirmed:
		return void("no question found the effect of action %s gone", a.fixed.Id)
	case !claims && a.fixed.Compensation.Verify != nil:
		return void("the contract of action %s asks for a check after the undo", a.fixed.Id)
	}
	if why := a.withoutFact(); why != "" {
		return void("%s", why)
	}
	s.attemptEnded(k.Attempt, attemptEnd{state: "done", worker: k.Worker, code: k.Code,
		timing: k.Timing})
	a.land()
	a.row.Note, a.row.AliveUntilNs = "", 0
	if delivers(a) {
		return s.delivered(k)
	}
	twice := a.attempts().SentAnew(k.Attempt) // another one may have done it once more
	if twice && s.meta.HolderFold >= ledger.OwnerFirstSince {
		a.callBackBehind()
	}
	if a.settle(rowspb.Undo_UNDO_COMPENSATED, s.e.Address); twice {
		a.attempts().NoteDone(k.Attempt)
		s.owedUndone()
	}
	return effective
}

func (s about) failed(k *pb.CompensationFailed) Result {
	a, asking := s.a, s.a.row.Asking
	out := a.row.Undo == rowspb.Undo_UNDO_DISPATCHED && asking == pb.Question_QUESTION_UNSPECIFIED
	unchecked := k.Code == codeUnverified && k.Final && inFlight(a, k.Attempt) && // as its worker says
		asking != pb.Question_QUESTION_VERIFY && s.meta.HolderFold >= ledger.OwnerFirstSince
	if !out && !unchecked || k.Attempt != a.row.Attempt {
		return void("attempt %d of action %s is not in flight: its undo is %s", k.Attempt, a.fixed.Id,
			undoName(a.row.Undo))
	}
	// it was done, and the check that follows cannot be made
	if why := a.saidDone(); why != "" && k.Code != codeUnverified {
		return void("%s", why)
	}
	if k.Unserved {
		if why := unserved(s.e, a, k.InDoubt); why != "" {
			return void("%s", why)
		}
	}
	end := attemptEnd{state: "failed", worker: k.Worker, code: k.Code, message: k.Message,
		timing: k.Timing}
	if k.InDoubt {
		end.state = "in_doubt"
	}
	s.attemptEnded(k.Attempt, end)
	a.row.Note, a.row.Pending = joinText(k.Code, k.Message), nil
	switch {
	case k.Unserved:
		a.row.Note, a.row.Unserved = k.Message, true
	case !k.InDoubt:
		a.row.Answered = k.Attempt
	}
	if k.Changed {
		s.changedAsTold(k)
	}
	a.unheard()
	epoch := min(s.e.Record.EpochNs, epochMax)
	if k.InDoubt { // its worker may be at work for as long again
		a.row.AliveUntilNs = max(a.row.AliveUntilNs, epoch+a.attempts().LandsIn())
	}
	a.afterFailure(k, epoch)
	return effective
}

// afterFailure decides what follows a failed attempt.
func (a *action) afterFailure(k *pb.CompensationFailed, epoch int64) {
	switch {
	case delivers(a):
		afterDelivery(a, k, epoch)
	case superseded(a):
		a.land()
		a.owe() // there is nothing to try again: it is skipped
	case k.InDoubt && a.fixed.Compensation.Probe != nil && !inMemory(a):
		a.row.Asking, a.row.AskedFrom = pb.Question_QUESTION_UNDO, a.row.Asked
		a.wait(epoch)
	case k.Final || k.Changed || spent(a):
		a.land()
		a.park()
	default:
		a.again(epoch)
	}
}

// again lets the next attempt follow after the contract's backoff. It counts from
// the holder's guarded clock: a server clock that jumped ahead and came back must
// not delay the attempt.
func (a *action) again(epoch int64) {
	a.wait(epoch + backoffOf(a.fixed.Compensation, a.key(), a.row.Attempt-a.row.AttemptsFrom))
}

// Every attempt of an undo is a row of its own, by action and by the capability
// that it undoes, so that undos can be listed and their time explained (S31, S32).

func (s about) attemptDispatched(k *pb.CompensationDispatched, state string) {
	a := s.a
	if s.base != nil {
		return // a scratch fold shows no one its attempts
	}
	key := rows.Attempts.Key(rows.Attempt{Action: a.id, Attempt: k.Attempt})
	rows.Attempts.SetKey(s.tx, key, &rowspb.AttemptRow{
		Attempt: k.Attempt, Dispatched: s.e.Address, DispatchedNs: s.meta.TimeNs, WaitedNs: k.WaitedNs,
		State:        state,
		BlindCleanup: k.BlindCleanup, DirtyFailure: k.DirtyFailure, HasForwardOutput: k.HasForwardOutput,
		ReportDigest: k.ReportDigest,
	})
	undone := rows.NamedPlace{Name: a.fixed.Forward.Capability, At: rows.At(s.e.Address)}
	rows.Undone.Put(s.tx, undone, key[1:])
}

// attemptIs shows people what an attempt has become that goes on.
func (a *action) attemptIs(attempt uint32, state string) {
	s := a.plan.s
	if s.base != nil {
		return
	}
	key := rows.Attempts.Key(rows.Attempt{Action: a.id, Attempt: attempt})
	if row := rows.Attempts.FindKey(s.tx, key); row != nil {
		row.State = state
		rows.Attempts.SetKey(s.tx, key, row)
	}
}

// foreign says why a worker's own record about an attempt is none of the worker that was given
// the command, or "". A token that a record has shown is no secret any more: from then on it is
// that worker's.
func (s about) foreign(attempt uint32, token string) string {
	row := s.attemptRow(attempt)
	switch worker := s.e.Source.Name; {
	case row == nil || len(row.ReportDigest) == 0: // an earlier host has dispatched it
		return ""
	case !bytes.Equal(ledger.ReportDigest(token), row.ReportDigest):
		return fmt.Sprintf("not the report_token of attempt %d of action %s", attempt, s.a.fixed.Id)
	case row.Reporter != "" && row.Reporter != worker:
		return fmt.Sprintf("worker %s has shown that of attempt %d of action %s", row.Reporter, attempt,
			s.a.fixed.Id)
	}
	return ""
}

// reportedBy notes who has shown the token of an attempt.
func (s about) reportedBy(attempt uint32) {
	if row := s.attemptRow(attempt); row != nil && len(row.ReportDigest) > 0 && row.Reporter == "" {
		row.Reporter = s.e.Source.Name
		rows.Attempts.Set(s.tx, rows.Attempt{Action: s.a.id, Attempt: attempt}, row)
	}
}

func (s about) attemptRow(attempt uint32) *rowspb.AttemptRow {
	return rows.Attempts.Find(s.tx, rows.Attempt{Action: s.a.id, Attempt: attempt})
}

// attemptEnd is what became of an attempt.
type attemptEnd struct {
	state, worker, code, message string
	timing                       *pb.Timing
}

func (s about) attemptEnded(attempt uint32, end attemptEnd) {
	if s.base != nil {
		return
	}
	key := rows.Attempts.Key(rows.Attempt{Action: s.a.id, Attempt: attempt})
	row := rows.Attempts.FindKey(s.tx, key)
	if row == nil {
		return
	}
	row.Ended, row.EndedNs, row.State = s.e.Address, s.meta.TimeNs, end.state
	row.Message = end.message
	if end.code != "" || row.State == "failed" {
		row.Code = end.code
	}
	if end.worker != "" {
		row.Worker = end.worker
	}
	if end.timing != nil {
		row.Timing = end.timing
	}
	rows.Attempts.SetKey(s.tx, key, row)
}

// arguments resolves frozen bindings of an action.
func (a *action) arguments(bindings []*pb.Binding) ([]byte, error) {
	if len(bindings) == 0 {
		return []byte("{}"), nil
	}
	compiled := make([]*triggers.Binding, len(bindings))
	for i, b := range bindings {
		binding, err := a.argument(b)
		if err != nil {
			return nil, fmt.Errorf("argument %s: %w", b.Name, err)
		}
		compiled[i] = binding
	}
	return arguments.Object(bindings, compiled, a.vars(compiled...), inMemory(a))
}

// vars are what expressions about an action read, which was found to be JSON when its records were
// read (ledger.Check); what none of them mentions is not prepared.
func (a *action) vars(readers ...*triggers.Binding) triggers.BindingVars {
	payload := a.payload()
	vars := triggers.BindingVars{Input: payload.Input, Output: payload.Output, Before: payload.Before,
		Incomplete: a.row.OutputIncomplete, Unnamed: a.row.ReferenceIncomplete && a.name() == "",
		Probe: payload.Found, Checked: true, Inexact: !a.plan.s.readsExactly()}
	others := false
	for _, r := range readers {
		if vars.Plan == nil && r.Reads("plan") {
			vars.Plan = a.plan.planJSON()
		}
		if vars.Meta == nil && r.Reads("meta") {
			vars.Meta = mustJSON(a.metaOf())
		}
		others = others || r.Reads("actions")
		if vars.Facts == nil && r.Reads("facts") {
			vars.Facts = a.fixed.Facts
			for _, key := range a.fixed.FactsLost {
				vars.Partial = append(vars.Partial, []string{"facts", key})
			}
		}
	}
	if others {
		readOthers(a, &vars, readers)
	}
	return vars
}

// read evaluates one of a contract's readers of an answer; fill adds the answer. What is
// computed from what is not there is triggers.ErrNotThere: an answer that says nothing is
// none. A value that only moves is null, which is no answer either.
func (a *action) read(expression string,
	fill func(*triggers.BindingVars)) (json.RawMessage, error) {
	reader, err := a.plan.s.Programs.Reader(expression)
	if err != nil {
		return nil, err
	}
	vars := a.vars(reader)
	vars.Strict = slices.ContainsFunc(reader.Paths(), func(r triggers.Read) bool { return !r.Copied })
	vars.Checked = false
	fill(&vars)
	if err := arguments.Opens(reader, vars.Actions); err != nil {
		return nil, err
	}
	return reader.Evaluate(vars)
}

func (p *plan) planJSON() []byte {
	return arguments.PlanJSON(p.id, writers.First(p.row), p.row.Declared, p.row.Reason, inputOf(p))
}

// metaOf is what an expression reads as meta, before any attempt.
func (a *action) metaOf() arguments.Meta {
	return arguments.Meta{
		Tenant: a.plan.s.tenant, Plan: a.plan.id, Action: a.fixed.Id,
		Capability: a.fixed.Forward.Capability,
		Attempt:    a.row.Attempt + 1,
		ForwardKey: a.forwardKey(), ForwardAtMs: a.fixed.AtNs / 1e6,
		Address: ledger.FormatFullAddress(a.fixed.Registered), Key: a.key(),
		ExternalRef:  a.name(),
		BlindCleanup: blind(a), DirtyFailure: dirty(a), HasForwardOutput: hasOutput(a),
	}
}

// forwardKey is the key that the forward of an action carried.
func (a *action) forwardKey() string {
	p := a.plan
	s := p.s
	plan, id := p.id, a.fixed.Id
	if p.row.Origin != "" {
		plan = p.row.Origin
	}
	if a.fixed.DutyOf != 0 {
		id = p.action(a.fixed.DutyOf).fixed.Id
	}
	return ledger.Key(s.tenant, plan, id, ledger.PurposeDo)
}

// inputOf is what a plan was opened with; of one that undoes or delivers another one, that one was.
func inputOf(p *plan) []byte {
	id := cmp.Or(p.row.Origin, p.id)
	return rows.Payloads.Find(p.s.tx, rows.Action{Plan: id}).GetInput()
}

// planInput is what the plan that a record opens is opened with.
func (s *fold) planInput() []byte {
	if !ledger.Knows(s.meta.HolderFold, ledger.OthersSince) {
		return nil
	}
	return s.e.Record.Payload.GetInput()
}
