package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/internal/opening"
	"github.com/sagenbaum/sagenbaum/coordinator/internal/pause"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// A process that acts for an agent which lives elsewhere, and may outlive it: package door. What
// a forward of such an agent does is not known to have ended with the process that had
// registered it, and its outcome is told to the next one, under the same writer.

// openedSlack is how long an opening may take to the ledger, and how far the clocks may differ.
const openedSlack = time.Minute

// Recalled is a plan as its records say.
type Recalled struct {
	Plan   *Plan
	State  string // as in End, and open, committing or unwinding
	Reason string // of the state
}

// Recall goes on with a plan that this writer has begun or resumed in an earlier process. One
// that is not open any more takes outcomes, with Settle, and nothing else; where its commit
// waits, also Commit, Fail and Cancel.
//
// Where parts of the plan were undone, the next call that adds to it or commits it tells of all of
// them, as a PartUndone: the agent may not have heard of them.
//
// Errors: as of Resume; ErrSuperseded where another writer has resumed it.
func (c *Coordinator) Recall(ctx context.Context, plan string) (*Recalled, error) {
	r, err := c.recall(ctx, plan)
	if err != nil {
		return nil, fmt.Errorf("cannot go on with plan %q: %w", plan, err)
	}
	return r, nil
}

func (c *Coordinator) recall(ctx context.Context, id string) (*Recalled, error) {
	if c.bus == nil || !ledger.ValidToken(id) {
		return c.recalled(ctx, id) // which says what is wrong
	}
	history, err := c.history(ctx, api.HistoryQuery{Plan: id, Limit: 1}, false)
	if err != nil {
		return nil, err
	}
	switch {
	case history.Agent != c.agent:
		_, err = c.resumable(id, history)
		return nil, err
	case history.Writer != c.writer:
		return nil, Lost(id, c.agent, history.Agent, history.Writer, history.Handed)
	case history.State == ledger.StateOpen:
		r, err := c.recalled(ctx, id)
		if err == nil || !c.hasEnded(ctx, id, &history) {
			return r, err
		}
	}
	return c.recallEnded(ctx, id)
}

// hasEnded reports whether a plan is open no more.
func (c *Coordinator) hasEnded(ctx context.Context, id string, history *api.HistoryAnswer) bool {
	now, err := c.history(ctx, api.HistoryQuery{Plan: id, Limit: 1}, false)
	*history = now
	return err == nil && now.State != ledger.StateOpen
}

// recalled is recall for an open plan.
func (c *Coordinator) recalled(ctx context.Context, id string) (*Recalled, error) {
	p, err := c.resume(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := p.TellAgain(ctx); err != nil {
		p.Forget()
		return nil, err
	}
	return &Recalled{Plan: p, State: ledger.StateOpen}, nil
}

// recallEnded is recall for a plan that is open no more.
func (c *Coordinator) recallEnded(ctx context.Context, id string) (*Recalled, error) {
	history, err := c.history(ctx, api.HistoryQuery{Plan: id}, true)
	if err != nil {
		return nil, err
	}
	if history.State == ledger.StateOpen { // it is back at a savepoint meanwhile
		return c.recalled(ctx, id)
	}
	p, err := c.asRecorded(ctx, id, history)
	if err != nil {
		return nil, err
	}
	switch history.State {
	case ledger.StateUnwinding:
		p.unwound = fmt.Errorf("%w%s", ErrUnwinding, because(history.Reason))
	case ledger.StateCommitting:
		p.end = &ending{verb: "committed", bundle: storedAt(id, 0), waits: true}
	default:
		p.end = &ending{verb: history.State}
	}
	return &Recalled{Plan: p, State: history.State, Reason: history.Reason}, nil
}

// Outlived is a plan that another process of the agent has taken over from this writer, for which
// an earlier process acted: Settle tells what an action has done that it has registered, and the
// plan takes nothing else. Errors: as of Recall.
func (c *Coordinator) Outlived(ctx context.Context, plan string) (*Plan, error) {
	history, err := c.history(ctx, api.HistoryQuery{Plan: plan}, true)
	if err != nil {
		return nil, err
	}
	p, err := c.asRecorded(ctx, plan, history)
	if err != nil {
		return nil, err
	}
	p.lost = Lost(plan, c.agent, history.Agent, history.Writer, history.Handed)
	return p, nil
}

// asRecorded is a plan of this agent as its records say, to which this process adds no opening.
func (c *Coordinator) asRecorded(ctx context.Context, id string, history api.HistoryAnswer) (*Plan,
	error) {
	opened, err := c.opened(id, history)
	if err != nil {
		return nil, err
	}
	p := newPlan(c, opening.Recorded(id, opened, history.Input))
	p.opening, p.asked, p.resumed, p.confirmed = nil, true, true, true
	if err := p.recall(ctx, history); err != nil {
		return nil, err
	}
	return p, nil
}

// Opened is how the plan was opened, or will be. It is not to be changed.
func (p *Plan) Opened() *pb.PlanOpened { return p.opened }

// Forget has the coordinator forget an open plan of it: Recall and Resume take it up again. What
// the plan has queued is stored.
func (p *Plan) Forget() { p.c.forget(p) }

// Accepted returns when an executor has said that the ledger has taken all that the plan is known
// to have stored, with its opening; it asks until ctx ends. Errors: *Refused, ErrPlanExists,
// ErrSuperseded, ErrUnconfirmed.
func (p *Plan) Accepted(ctx context.Context) error {
	if p.c.bus == nil {
		return fmt.Errorf("%w: no connection to ask over", ErrUnconfirmed)
	}
	ctx, cancel := context.WithTimeout(ctx, p.c.confirmTimeout)
	defer cancel()
	last := errNobody
	for ctx.Err() == nil {
		answer, err := p.ask(ctx, api.OutcomeQuery{Plan: p.id, Sequence: p.Stored()})
		if err == nil {
			if err := p.taken(answer); err != nil {
				return fmt.Errorf("plan %q is not taken: %w", p.id, err)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.confirmed = true
			return nil
		}
		if last = err; errors.Is(err, ErrConnectionClosed) {
			break
		}
		pause.For(ctx, askDelay)
	}
	return unconfirmed(last)
}

// Same refuses a declaration that is not that of the plan: a *Refused that names the field. Of a
// plan that another process has begun, a deadline that is given as a duration may differ by a
// minute: it is held against when the ledger took the opening.
func (p *Plan) Same(declared PlanSpec) error {
	record, err := p.c.planOpened(declared, time.Now())
	if err != nil {
		return err
	}
	now := record.GetPlanOpened()
	if declared.Deadline > 0 && p.opened.DeadlineNs > 0 && isDeadline(p, declared.Deadline) {
		now.DeadlineNs = p.opened.DeadlineNs
	}
	was := opening.Recorded(p.id, p.opened, p.input)
	if d, differs := opening.Compare(was, record, "function"); differs {
		return ledger.Refuse(d.Field, "it was opened with another value",
			"what it was opened with, or an id of its own for each plan")
	}
	return nil
}

// isDeadline reports whether a time from Begin is the deadline of the plan, as far as known.
func isDeadline(p *Plan, deadline time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.resumed && p.openedNs == 0:
		return true
	case p.resumed:
		return (time.Duration(p.opened.DeadlineNs-p.openedNs) - deadline).Abs() <= openedSlack
	}
	return deadline == p.within
}

// DoAgain is Do where an earlier process under the same writer may have registered the action
// and called its forward, of which nothing is recorded: the forward is called, with the key that
// it has, unless the action was undone. For everything else it is Do.
func (p *Plan) DoAgain(ctx context.Context, declared Action, forward Forward) (json.RawMessage,
	error) {
	return DoFor(ctx, p, declared, nil, forward)
}

// DoFor is Plan.DoAgain for a caller who is not always there, as between two requests: the forward
// is called only once something comes from caller, and a verdict that blocks the action counts
// until then. A nil caller is always there.
func DoFor(ctx context.Context, p *Plan, declared Action, caller <-chan struct{},
	forward Forward) (json.RawMessage, error) {
	a, err := p.adoptPast(ctx, declared)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot go on with action %q: %w", declared.ID, err)
	case a == nil:
		return p.do(ctx, declared, caller, forward)
	}
	return a.execute(ctx, caller, forward)
}

// adoptPast makes an action of an earlier process ready to run; nil: there is none, or its
// outcome is known.
func (p *Plan) adoptPast(ctx context.Context, declared Action) (*action, error) {
	open := func() *action {
		if a := p.actions[declared.ID]; a != nil && a.past != nil && a.registered.Deliver == nil &&
			a.past.Outcome == api.OutcomeUnknown && !a.past.Undone {
			return a
		}
		return nil
	}
	p.mu.Lock()
	a := open()
	p.mu.Unlock()
	if a == nil {
		return nil, nil
	}
	d, err := p.draft(ctx, declared, nil)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if open() == nil {
		return nil, nil
	}
	if err := a.admitPast(d); err != nil {
		return nil, err
	}
	a.call.Input, a.contract, a.state, a.past = d.input, d.contract, actionRegistered, nil
	if a.reviewed { // as it was registered, whatever its contract has become
		a.reviewTimeout = max(d.contract.ReviewTimeout, 0)
		if a.reviewTimeout == 0 {
			a.reviewTimeout = p.c.reviewTimeout
		}
	}
	if a.reviewTimeout == 0 || a.ruled { // without its verdict it was not called
		a.doubt = &pb.ForwardInDoubt{Code: codeInterrupted,
			Message: "the process that had registered it has ended, and it was not called again"}
	}
	return a, nil
}

// Happened is what a forward returns of an action that happened as another process has told: one
// that had the plan before, or an operator. nil: nothing like it is recorded up to a sequence. The
// forward's action ends with that as a *Recorded, and nothing more is recorded of it.
func Happened(ctx context.Context, p *Plan, call Call, sequence uint64) error {
	a, err := recordedNow(ctx, p, call.Action, call.Number, sequence)
	if err != nil || a == nil || a.past.Outcome != api.OutcomeCompleted {
		return err
	}
	return &happened{a}
}

// AskedAgain is what a forward returns whose caller asks once more whether to call the tool: what
// Happened says, or, where a verdict blocks the action by now, that verdict beside a *Recorded of
// the doubt, as an earlier answer may have had the tool called. nil: it may be called.
func AskedAgain(ctx context.Context, p *Plan, call Call, sequence uint64) error {
	if err := Happened(ctx, p, call, sequence); err != nil {
		return err
	}
	answer, err := p.ask(ctx, api.OutcomeQuery{Plan: p.id, Sequence: max(sequence, p.Stored()),
		Action: call.Action})
	verdict := verdictOf(call.Action, answer)
	if err != nil || !verdict.blocks() {
		return err
	}
	return fmt.Errorf("%w; %w", &verdict, &Recorded{Action: call.Action, Capability: call.Capability,
		Outcome: api.OutcomeInDoubt, Code: codeInterrupted, By: verdict.By,
		Message: "its agent was told before that it may call the tool"})
}

// Now is what counts of an action that has ended here, as it is recorded up to a sequence: this
// process, another one or an operator may have said otherwise since then. nil: nothing is recorded.
func Now(ctx context.Context, p *Plan, action string, sequence uint64) (*Recorded, error) {
	number := 0
	p.mu.Lock()
	if a := p.actions[action]; a != nil {
		number = a.number
	}
	p.mu.Unlock()
	if number == 0 {
		return nil, nil
	}
	now, err := recordedNow(ctx, p, action, number, sequence)
	if err != nil || now == nil {
		return nil, err
	}
	return now.past, nil
}

// recordedNow looks an action up, and returns it as a process would recall it that is new; nil:
// no outcome of it is recorded.
func recordedNow(ctx context.Context, p *Plan, id string, number int, sequence uint64) (*action,
	error) {
	history, err := p.c.historyPage(ctx, api.HistoryQuery{Plan: p.id, Limit: 1,
		Sequence: max(sequence, p.Stored()), After: uint32(number - 1)})
	var now *Plan
	if err == nil && slices.ContainsFunc(history.Actions, func(past api.PastAction) bool {
		return past.Action == id && past.Outcome != api.OutcomeUnknown
	}) {
		now, err = p.c.asRecorded(ctx, p.id, history)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot look up action %q: %w", id, err)
	case now == nil:
		return nil, nil
	}
	return now.actions[id], nil
}

// happened is an action as it is recorded.
type happened struct{ as *action }

func (h *happened) Error() string { return h.as.past.Error() }
func (h *happened) Unwrap() error { return h.as.past }

// Settle records what became of an action that does not run in this process: one of an earlier
// process under the same writer, or one whose outcome here was doubt. cause is what a forward
// returns: nil, NotTaken, or anything else for doubt. With a cause it may also be an action that
// waits for its verdict here: its forward is not called any more, and Do returns a *Recorded. It
// is durable when it returns nil. What is recorded already is no error where it says the same.
//
// Errors: *Refused (no such action, or its forward runs in this process), *Recorded (it is known
// to have ended otherwise), as of Flush.
func (p *Plan) Settle(ctx context.Context, action string, outcome Outcome, cause error) error {
	if err := p.settle(ctx, action, outcome, cause); err != nil {
		return fmt.Errorf("cannot settle action %q: %w", action, err)
	}
	return nil
}

func (p *Plan) settle(ctx context.Context, id string, outcome Outcome, cause error) error {
	p.mu.Lock()
	a := p.actions[id]
	p.mu.Unlock()
	if a == nil {
		return ledger.Refuse("action", fmt.Sprintf("%q is no action of this plan", id),
			"the id of an action that was registered")
	}
	if a.registered.GetDeliver() != nil {
		return ledger.Refuse("action", fmt.Sprintf("%q is staged", id),
			"none: it happens when the plan is committed, and Delivered tells of it")
	}
	contract, err := a.contract, error(nil)
	if contract == nil {
		contract, err = p.c.registry.find(ctx, a.call.Capability, time.Time{}, false)
	}
	if err == nil && len(contract.Sensitive) > 0 {
		err = p.vault.unlock(ctx)
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	left := a.state == actionRegistered && cause != nil // before its forward was called
	if a.state != actionEnded && !left {
		p.mu.Unlock()
		return ledger.Refuse("action", fmt.Sprintf("%q runs in this process", id),
			"its outcome from its forward")
	}
	a.contract = contract
	record, done := a.settled(outcome, cause)
	if !left {
		if said, err := a.contradicts(record, done); err != nil || said {
			p.mu.Unlock()
			return err
		}
	}
	b := newBundle(p.id, record)
	if err = p.queue(b); err == nil {
		a.note(record, done)
	}
	if err == nil && left {
		known := a.known()
		a.state, a.givenUp = actionEnded, &known
		p.change()
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	p.c.committer.hurry(b)
	if _, err = p.c.wait(ctx, b); err == nil && done.problem != nil && !done.kept {
		err = done.problem
	}
	return err
}

// settled is the record of an outcome, and what of it is a completion. Called with mu held.
func (a *action) settled(outcome Outcome, cause error) (*pb.Record, completion) {
	if cause == nil {
		done := a.completed(outcome)
		return done.record, done
	}
	record, message := a.outcome(), a.textOf(cause)
	if errors.Is(cause, ErrNotTaken) {
		record.Kind = &pb.Record_ForwardFailed{ForwardFailed: &pb.ForwardFailed{Code: codeNotTaken,
			Message: message}}
	} else {
		record.Kind = &pb.Record_ForwardInDoubt{ForwardInDoubt: &pb.ForwardInDoubt{Code: codeError,
			Message: message}}
	}
	return record, completion{record: record}
}

// contradicts holds an outcome against what is recorded of the action: said where it is the
// same, an error where the first one counts. A completion is believed after a failure, everything
// after doubt, and doubt after the failure of an earlier process: this one may have called the
// forward once more. Called with mu held.
func (a *action) contradicts(record *pb.Record, done completion) (said bool, err error) {
	known, now := a.known(), outcomeName(record)
	known.Undone = false // it is not asked what is there now
	switch {
	case known.Outcome == now && now == api.OutcomeCompleted:
		if known.Differs = a.completedWith(record, done); known.Differs == "" {
			return true, nil
		}
		return false, &known
	case known.Outcome == now:
		return true, nil
	case known.Outcome == api.OutcomeCompleted,
		known.Outcome == api.OutcomeFailed && now == api.OutcomeInDoubt && (!a.again || a.said != nil):
		return false, &known
	}
	return false, nil
}

// known is what is recorded of an action that has ended. Called with mu held.
func (a *action) known() Recorded {
	if a.past != nil {
		return *a.past
	}
	known := Recorded{Action: a.call.Action, Capability: a.call.Capability,
		Outcome: outcomeName(a.said)}
	if failed := a.said.GetForwardFailed(); failed != nil {
		known.Code, known.Message = failed.Code, failed.Message
	}
	if doubt := a.said.GetForwardInDoubt(); doubt != nil {
		known.Code, known.Message = doubt.Code, doubt.Message
	}
	if a.verdict != nil {
		known.By = a.verdict.By
	}
	return known
}

// completedWith names what a completion states otherwise than the one that is recorded; empty:
// nothing. Called with mu held.
func (a *action) completedWith(record *pb.Record, done completion) (other string) {
	if a.externalRef() != record.GetForwardCompleted().ExternalRef {
		return "external_ref"
	}
	same := bytes.Equal(a.said.GetPayload().GetOutput(), record.GetPayload().GetOutput())
	if a.past != nil {
		same = bytes.Equal(a.past.Output, done.output) || record.GetForwardCompleted().OutputIncomplete
	}
	if !same {
		return "output"
	}
	return ""
}

// note keeps what was recorded. Called with mu held.
func (a *action) note(record *pb.Record, done completion) {
	if a.said = record; a.past == nil {
		return
	}
	a.past.Outcome, a.past.Output = outcomeName(record), done.output
	a.past.ExternalRef, a.past.Code, a.past.Message = "", "", ""
	switch k := record.Kind.(type) {
	case *pb.Record_ForwardCompleted:
		a.past.ExternalRef = k.ForwardCompleted.ExternalRef
	case *pb.Record_ForwardFailed:
		a.past.Code, a.past.Message = k.ForwardFailed.Code, k.ForwardFailed.Message
	case *pb.Record_ForwardInDoubt:
		a.past.Code, a.past.Message = k.ForwardInDoubt.Code, k.ForwardInDoubt.Message
	}
}

func outcomeName(record *pb.Record) string {
	switch record.GetKind().(type) {
	case *pb.Record_ForwardCompleted:
		return api.OutcomeCompleted
	case *pb.Record_ForwardFailed:
		return api.OutcomeFailed
	case *pb.Record_ForwardInDoubt:
		return api.OutcomeInDoubt
	}
	return api.OutcomeUnknown
}

// Rewinds is how often this agent has asked that the plan goes back to a savepoint.
func (p *Plan) Rewinds() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(p.rewinds)
}

// HasSavepoint reports whether a savepoint of the name is durable, and how many actions and
// child plans are before it.
func (p *Plan) HasSavepoint(name string) (actions int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.savepoint(name); s != nil && s.told {
		return s.at, true
	}
	return 0, false
}
