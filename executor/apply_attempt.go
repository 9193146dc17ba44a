package executor

import (
	"math"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// The attempts of an undo, from dispatch to outcome.

func (s *State) dispatched(e ledger.Entry, p *plan, a *action,
	k *pb.CompensationDispatched) Result {
	waiting := a.row.Undo == rowspb.Undo_UNDO_WAITING &&
		a.row.Asking == pb.Question_QUESTION_UNSPECIFIED
	if !begins(a) && !waiting {
		return void("the undo of action %s is %s", a.fixed.Id, undoName(a.row.Undo))
	}
	if k.Attempt != a.row.Attempt+1 {
		return void("attempt %d, but attempt %d is next", k.Attempt, a.row.Attempt+1)
	}
	if next, why := s.nextStep(a); next != stepDispatch {
		return void("action %s must not be compensated: %s", a.fixed.Id, why)
	}
	if c := a.fixed.Compensation; k.Capability != c.Capability || k.Key != s.key(a) {
		return void("%s with key %q is not the compensation of action %s", k.Capability, k.Key,
			a.fixed.Id)
	}
	if why := s.settles(e, p, a); why != "" {
		return void("%s", why)
	}
	// Its arguments were resolved for another outcome; they are resolved again.
	if k.BlindCleanup != blind(a) {
		return void("the outcome of action %s became %s before the dispatch landed", a.fixed.Id,
			outcomeName(a.row.Outcome))
	}
	s.dropRetry(p, a)
	a.row.Attempt, a.row.Blind, a.row.Dispatched, a.row.DispatchedNs = k.Attempt, k.BlindCleanup,
		e.Address, e.Record.EpochNs
	a.row.Unserved = false
	if a.row.SentNs == 0 {
		a.row.SentNs = e.Record.EpochNs
	}
	s.move(p, a, rowspb.Undo_UNDO_DISPATCHED)
	s.fly(p, a, &rowspb.CommandRow{Dispatched: k, Arguments: e.Record.Payload.GetArguments()})
	s.attemptDispatched(e, p, a, k)
	return effective
}

// fly notes a call that is out, and lets it be sent.
func (s *State) fly(p *plan, a *action, row *rowspb.CommandRow) {
	rows.Commands.Set(s.tx, a.id, row)
	rows.Flights.Add(s.tx, a.id)
	if s.base == nil { // a scratch fold sends nothing
		s.commands = append(s.commands, s.command(p, a, row))
	}
}

// dropRetry takes back the due entry of an action that waits for its next call.
func (s *State) dropRetry(p *plan, a *action) {
	if a.row.DueNs != 0 {
		s.dropDue(a.row.DueNs, rows.DueRetry, rows.Lease{Plan: p.id, N: a.id.N})
		a.row.DueNs = 0
	}
}

// wait lets an action wait for its next call until dueNs.
func (s *State) wait(p *plan, a *action, dueNs int64) {
	s.dropRetry(p, a)
	rows.Flights.Delete(s.tx, a.id)
	a.row.DueNs = dueNs
	s.setDue(dueNs, rows.DueRetry, rows.Lease{Plan: p.id, N: a.id.N})
	s.move(p, a, rowspb.Undo_UNDO_WAITING)
}

// inFlight reports whether an answer about this attempt may still settle it: an
// earlier attempt that turns out to have succeeded did undo the effect.
func inFlight(a *action, attempt uint32) bool {
	again := a.row.Undo == rowspb.Undo_UNDO_OWED || begins(a) // its owner wants it tried again
	return (flying(a.row.Undo) || again) && made(a, attempt)
}

// made reports whether an attempt of an undo was ever dispatched.
func made(a *action, attempt uint32) bool {
	return a.fixed.Child == "" && attempt >= 1 && attempt <= a.row.Attempt
}

// reportedDone reports whether a word that the undo is done waits to be recorded.
func reportedDone(a *action) bool { return a.row.Reported.GetAnswer() == pb.Answer_ANSWER_DONE }

// heard notes that an action's undo was answered by other means than a reply:
// Decide records it.
func (s *State) heard(p *plan, a *action, report *pb.CompensationReported, at *pb.Address) {
	a.row.Reported, a.row.ReportedAt = report, at
	p.row.Reported = insert(p.row.Reported, a.id.N)
	s.change(a)
	s.touch(p)
}

func (s *State) unheard(p *plan, a *action) {
	p.row.Reported = without(p.row.Reported, a.id.N)
	a.row.Reported, a.row.ReportedAt, a.row.Confirmed = nil, nil, false
}

// epochMax leaves room behind an epoch for any backoff.
const epochMax = math.MaxInt64 - 4*int64(ledger.BackoffMax)

// land takes an action out of flight; the caller moves it on.
func (s *State) land(p *plan, a *action) {
	s.dropRetry(p, a)
	s.unheard(p, a)
	a.row.Asking, a.row.Pending = pb.Question_QUESTION_UNSPECIFIED, nil
	rows.Commands.Delete(s.tx, a.id)
	rows.Flights.Delete(s.tx, a.id)
}

func (s *State) succeeded(e ledger.Entry, p *plan, a *action, k *pb.CompensationSucceeded) Result {
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
	if why := s.withoutFact(a); why != "" {
		return void("%s", why)
	}
	s.attemptEnded(e, a, k.Attempt, attemptEnd{state: "done", worker: k.Worker, code: k.Code,
		timing: k.Timing})
	s.land(p, a)
	a.row.Note, a.row.AliveUntilNs = "", 0
	s.settle(p, a, rowspb.Undo_UNDO_COMPENSATED, e.Address)
	return effective
}

func (s *State) failed(e ledger.Entry, p *plan, a *action, k *pb.CompensationFailed) Result {
	if a.row.Undo != rowspb.Undo_UNDO_DISPATCHED || k.Attempt != a.row.Attempt ||
		a.row.Asking != pb.Question_QUESTION_UNSPECIFIED {
		return void("attempt %d of action %s is not in flight: its undo is %s", k.Attempt, a.fixed.Id,
			undoName(a.row.Undo))
	}
	// it was done, and the check behind it cannot be made
	if reportedDone(a) && k.Code != codeUnverified {
		return void("the undo of action %s was reported done at %s", a.fixed.Id,
			ledger.FormatAddress(a.row.ReportedAt))
	}
	if k.Unserved {
		if why := unserved(e, a, k.InDoubt); why != "" {
			return void("%s", why)
		}
	}
	end := attemptEnd{state: "failed", worker: k.Worker, code: k.Code, message: k.Message,
		timing: k.Timing}
	if k.InDoubt {
		end.state = "in_doubt"
	}
	s.attemptEnded(e, a, k.Attempt, end)
	a.row.Note, a.row.Pending = joinText(k.Code, k.Message), nil
	switch {
	case k.Unserved:
		a.row.Note, a.row.Unserved = k.Message, true
	case !k.InDoubt:
		a.row.Answered = k.Attempt
	}
	s.unheard(p, a)
	epoch := min(e.Record.EpochNs, epochMax)
	if k.InDoubt { // its worker may be at work for as long again
		a.row.AliveUntilNs = max(a.row.AliveUntilNs, epoch+timeoutOf(a.fixed.Compensation))
	}
	s.afterFailure(p, a, k, epoch)
	return effective
}

// afterFailure decides what follows a failed attempt.
func (s *State) afterFailure(p *plan, a *action, k *pb.CompensationFailed, epoch int64) {
	c := a.fixed.Compensation
	switch {
	case superseded(a):
		s.land(p, a)
		s.owe(p, a) // there is nothing to try again: it is skipped
	case k.InDoubt && c.Probe != nil && !inMemory(a):
		a.row.Asking, a.row.AskedFrom = pb.Question_QUESTION_UNDO, a.row.Asked
		s.wait(p, a, epoch)
	case k.Final || spent(a):
		s.land(p, a)
		s.park(p, a)
	default:
		s.again(p, a, epoch)
	}
}

// again lets the next attempt follow after the contract's backoff. It counts from
// the holder's guarded clock: a server clock that jumped ahead and came back must
// not delay the attempt.
func (s *State) again(p *plan, a *action, epoch int64) {
	c := a.fixed.Compensation
	s.wait(p, a, epoch+backoffOf(c, s.key(a), a.row.Attempt-a.row.AttemptsFrom))
}
