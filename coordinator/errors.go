package coordinator

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Refused says which field of an input breaks which rule: nothing was queued, or the ledger
// took nothing. Its Want says what would be right. Find it with errors.As.
type Refused = ledger.Refused

// Errors that a caller branches on, with errors.Is, beside *Refused. What a call returns
// wraps them in a text that names the plan or the action.
var (
	// ErrInDoubt means that the records may be stored, and no answer came in time. Call
	// again with the same IDs: there never is a second copy.
	ErrInDoubt = ledger.ErrInDoubt

	// ErrBusy means that too many calls wait. Nothing was queued; call again later.
	ErrBusy = ledger.ErrBusy

	// ErrNoLedger means that no stream takes the records of the tenant: there is no such tenant on
	// this server, its ledger is not ready, or its account is new to a server of NATS' own that was
	// reloaded only once since. It comes with ErrInDoubt: the records are stored once
	// there is one, unless the coordinator is closed before.
	ErrNoLedger = errors.New("it has no ledger on this server, none that is ready, or none " +
		"that its account reaches before the server is reloaded once more")

	// ErrNotTaken marks a forward's error as a known failure: the effect did not
	// cross the boundary. Return NotTaken(err) from the forward.
	ErrNotTaken = errors.New("the effect did not happen")

	// ErrClosed means that this process has ended the plan, or closed the
	// coordinator. Nothing was queued.
	ErrClosed = errors.New("closed in this process")

	// ErrConnectionClosed means that the connection is closed for good: the program has closed
	// it, or its client has given up. Every call that needs the ledger or an executor has it from
	// then on, at once, and Lost says when. Nothing was queued, unless it is ErrInDoubt too. Go on
	// over another connection, with another Coordinator: Resume takes up the plans.
	ErrConnectionClosed = jetstream.ErrConnectionClosed

	// ErrUnwinding means that the executor is undoing the plan: no action of it
	// starts, unless it is open again after it went back to a savepoint, and the
	// contexts of running forwards are cancelled. It rests on a notice, which comes at
	// best effort; without it the ledger still decides.
	ErrUnwinding = errors.New("the plan is being undone")

	// ErrPartUndone is what an *PartUndone is: an action and what came after it were undone,
	// and the plan goes on. A *Recorded of an action that was undone is one, too.
	ErrPartUndone = errors.New("a part of the plan was undone")

	// ErrUnwound means that the plan is undone instead of what was asked for: a Commit
	// lost the race in the log, or an UnwindTo did not end with an open plan.
	ErrUnwound = errors.New("the plan was undone instead")

	// ErrCommitWaits is what a *CommitWaits is: a Commit is stored, and waits until it is
	// known of each action whether it happened. Call Commit again to ask again; Wait
	// returns when the plan has ended.
	ErrCommitWaits = errors.New("the commit waits for actions in doubt")

	// ErrUnconfirmed means that a Commit, or what a Preview has to know, is stored, and
	// no executor has answered in time. Call again to ask again.
	ErrUnconfirmed = errors.New("stored, but not confirmed by an executor")

	// ErrLedgerReplaced means that the ledger lacks records that it had acknowledged to this process:
	// a backup of before was restored. What was done since is undone by no one: look for it at the
	// providers. No call works any more, as where the connection is closed: it is
	// ErrConnectionClosed, too. Go on with another Coordinator: Resume takes up the plans as the
	// ledger has them.
	ErrLedgerReplaced = errors.New("the ledger lacks records that it has acknowledged")

	// ErrNotCaptured means that what a contract wants to know before the forward
	// crosses could not be found out. Nothing was registered and the forward did not
	// run; call again with the same Action, unless the error is a *ledger.Refused, too.
	ErrNotCaptured = errors.New("the state before the effect was not captured")

	// ErrKeyAway means that the key of the plan's sensitive fields cannot be had now: no executor
	// answers, or its store of keys does not. Nothing was registered and the forward did not run;
	// call again with the same Action.
	ErrKeyAway = errors.New("the key of the plan cannot be had now")

	// ErrErased means that the plan was erased: the key of its sensitive fields is
	// destroyed, so that nothing of them can be read or recorded any more. It never
	// will be: run what is left to do under another plan.
	ErrErased = errors.New("the plan was erased")

	// ErrBlocked is what a *Verdict is when it kept the forward from running. An earlier process
	// may have run it where the error is a *Recorded as well.
	ErrBlocked = errors.New("blocked by a supervisor")

	// ErrNotStarted means that an action was registered too long ago for its forward to
	// be called: it could land after its plan has ended. The effect did not happen, and the ledger
	// says so, unless the error is a *Recorded as well; call again with another ID.
	ErrNotStarted = errors.New("its forward was not started in time")

	// ErrUnheard means that a forward without a timeout was interrupted because no executor
	// has said for long that its plan is still open: for half of its contract's settle, and
	// at least for its grace. The action is in doubt.
	ErrUnheard = errors.New("no executor has said that the plan is still open")

	// ErrNoVerdict means that an action that needs a supervisor's verdict got none in
	// time. The forward did not run, unless the error is a *Recorded as well.
	ErrNoVerdict = errors.New("no supervisor has given a verdict")

	// ErrPlanExists means that Begin was given the ID of a plan that exists. Nothing of
	// it was done here; Resume goes on with one that is open.
	ErrPlanExists = errors.New("the plan exists already")

	// ErrSuperseded means that another process has resumed the plan, or claimed that of a
	// Run, or that an operator has handed the plan to another agent. This one registers
	// nothing under it any more, and starts no forward, from when it has heard of it:
	// see Config.Accepted.
	ErrSuperseded = errors.New("another process has taken over the plan")

	// ErrRunning means that another Run, of this process or another one, runs the plan now, or one
	// that does not answer has not been found gone yet. Nothing was done.
	ErrRunning = errors.New("the plan is run already")

	// ErrInterrupted means that the process ended while the forward may have been
	// under way, and that nothing says whether its effect happened. The action is in
	// doubt.
	ErrInterrupted = errors.New("the process ended before the outcome was known")

	errNobody = errors.New("no executor answers")
)

// NotTaken marks a forward's error as a known failure: the tool refused, and the
// effect did not cross the boundary. Every other error of a forward leaves the
// action in doubt, because a call that failed may still have happened. A nil
// error stays nil.
func NotTaken(err error) error {
	if err == nil {
		return nil
	}
	return &notTaken{err}
}

type notTaken struct{ cause error }

func (e *notTaken) Error() string   { return e.cause.Error() }
func (e *notTaken) Unwrap() []error { return []error{e.cause, ErrNotTaken} }

// replaced is ErrLedgerReplaced.
type replaced struct {
	tenant string
	had    uint64 // a sequence that was acknowledged
	gave   uint64 // that of a later append; 0: there is another one at had
}

func (e *replaced) Error() string {
	what := "sequence %d has another commit now"
	of := []any{e.had}
	if e.gave > 0 {
		what, of = "sequence %d was acknowledged, and a later commit has %d", append(of, e.gave)
	}
	return fmt.Sprintf("%v: of tenant %s, "+what+": was a backup restored? Start this agent again",
		append([]any{ErrLedgerReplaced, e.tenant}, of...)...)
}

func (e *replaced) Is(target error) bool {
	return target == ErrLedgerReplaced || target == ErrConnectionClosed
}

// unconfirmed is ErrUnconfirmed for a reason. That the connection is closed stays what it is.
func unconfirmed(err error) error {
	if errors.Is(err, ErrConnectionClosed) {
		return fmt.Errorf("%w: %w", ErrUnconfirmed, err)
	}
	return fmt.Errorf("%w: %v", ErrUnconfirmed, err)
}

// superseded says that the fence has moved. doubt: an earlier try of the same bytes
// had no answer, and may have been stored.
func superseded(doubt bool) error {
	if doubt {
		return fmt.Errorf("%w: %w", ErrInDoubt, ErrSuperseded)
	}
	return ErrSuperseded
}

// HandedOver means that an operator has handed a plan to another agent, or back to this one, of
// which a process resumes it first. It is ErrSuperseded.
type HandedOver struct {
	Plan   string
	Agent  string // that has it now
	By     string // the operator
	Reason string
}

func (e *HandedOver) Error() string {
	return fmt.Sprintf("%v: operator %s has handed it to agent %s%s", ErrSuperseded, e.By, e.Agent,
		because(e.Reason))
}

func (e *HandedOver) Unwrap() error { return ErrSuperseded }

// Lost is why an agent's process does not write a plan, by what an executor says of the agent and
// the process that do: a *HandedOver, or ErrSuperseded.
func Lost(plan, own, agent, writer string, handed *api.Adoption) error {
	if handed != nil && (agent != own || strings.HasSuffix(writer, "/")) {
		return &HandedOver{Plan: plan, Agent: agent, By: handed.By, Reason: handed.Reason}
	}
	return ErrSuperseded
}

func closed(what string) error { return fmt.Errorf("%s: %w", what, ErrClosed) }

// CommitWaits is the error of a Commit that is stored and waits. Nothing is retired
// until it is settled, and no action joins the plan any more. What it waits for settles by
// itself, with the answer of a probe, or by the owner's word; until then Fail, Cancel, a
// trigger or a verdict undoes the plan. It is ErrCommitWaits.
type CommitWaits struct {
	Plan string
	// the first 100: in the order of registration, then acts that refused records claim
	Doubts []api.Doubt
}

// Error names the actions and what each waits for.
func (e *CommitWaits) Error() string {
	text := ErrCommitWaits.Error()
	for i, d := range e.Doubts {
		if i == doubtsNamed {
			return text + fmt.Sprintf("; and %d more", len(e.Doubts)-i)
		}
		sign := "; "
		if i == 0 {
			sign = ": "
		}
		text += sign + d.Action + " for " + d.Waits
	}
	return text
}

// Is reports whether target is ErrCommitWaits.
func (e *CommitWaits) Is(target error) bool { return target == ErrCommitWaits }

// Owner reports whether nothing but its owner's word lets the commit go on.
func (e *CommitWaits) Owner() bool {
	return !slices.ContainsFunc(e.Doubts, func(d api.Doubt) bool { return !d.Owner })
}

// isRefused reports whether nothing was stored because a rule was broken.
func isRefused(err error) bool {
	var refused *ledger.Refused
	return errors.As(err, &refused)
}
