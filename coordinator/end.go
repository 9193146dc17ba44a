package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/internal/pause"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// ending is how this process ends a plan; calls of the same verb join it.
type ending struct {
	verb   string  // "committed", "failed" or "cancelled"
	bundle *bundle // nil until it is queued
	waits  bool    // a commit that has not retired anything yet: it may still be failed
	became string  // where the ledger has ended it otherwise: its state
	cause  error   // what interrupts forwards, and Do says of those that fail; nil for a commit
}

// End is what became of a plan.
type End struct {
	State       string   // committed, compensated, quarantined, failed or resolved
	Reason      string   // why
	Outstanding []string // quarantined: the actions that wait for their owner
	// Refused is set where its tenant took no more of it: the limit that was reached, or that it
	// is suspended. Its Want says who can change that.
	Refused *Refused
}

// Final reports whether the plan stays so by itself and for good: all but quarantined.
func (e End) Final() bool { return e.State != ledger.StateQuarantined }

// Commit ends the plan well: its compensations are retired, all at once.
// It is durable first; then an executor is asked what the ledger made of it. A plan with
// actions in doubt is committed once it is known of each whether it happened.
//
// Errors: *Refused (forwards still run, child plans are open, or the ledger
// took nothing: the plan goes on; or the plan's ID had been committed before, and what
// was done under it now is not held: undo it by other means), ErrInDoubt, ErrBusy, ErrClosed
// (Fail or Cancel ended it, or the coordinator is closed), ErrUnwinding (it goes back
// to a savepoint, or a part of it is being undone), *PartUndone, ErrUnwound (the plan was
// being undone already), *CommitWaits (stored; it waits for its owner, or for longer than
// Config.ConfirmTimeout for the world to answer), ErrUnconfirmed (stored; no executor
// answered). After ErrInDoubt, *CommitWaits and ErrUnconfirmed call Commit again: it goes on
// where it was.
func (p *Plan) Commit(ctx context.Context) error {
	record := &pb.Record{Plan: p.id,
		Kind: &pb.Record_PlanCommitted{PlanCommitted: &pb.PlanCommitted{}}}
	p.lookAgain(ctx)
	seq, err := p.finishPlan(ctx, "committed", record)
	if err == nil {
		err = p.confirm(ctx, seq)
	}
	if err != nil {
		return fmt.Errorf("cannot commit plan %q: %w", p.id, err)
	}
	return nil
}

// Fail ends the plan badly: the executor undoes what happened. It waits for forwards
// that still run: for the grace of their contracts, and at most ForwardGrace more once
// it has interrupted them. The failure is durable when it returns nil; Wait tells when everything
// is undone. Errors as of Commit, without the executor's.
func (p *Plan) Fail(ctx context.Context, reason string) error {
	record := &pb.Record{Plan: p.id,
		Kind: &pb.Record_PlanFailed{PlanFailed: &pb.PlanFailed{Reason: reason}}}
	if _, err := p.finishPlan(ctx, "failed", record); err != nil {
		return fmt.Errorf("cannot fail plan %q: %w", p.id, err)
	}
	return nil
}

// Cancel is Fail for a plan that is no longer wanted.
func (p *Plan) Cancel(ctx context.Context, reason string) error {
	record := &pb.Record{Plan: p.id,
		Kind: &pb.Record_PlanCancelled{PlanCancelled: &pb.PlanCancelled{Reason: reason}}}
	if _, err := p.finishPlan(ctx, "cancelled", record); err != nil {
		return fmt.Errorf("cannot cancel plan %q: %w", p.id, err)
	}
	return nil
}

// finishPlan queues the record that ends the plan, after all it has queued, and
// returns its sequence once it is durable.
func (p *Plan) finishPlan(ctx context.Context, verb string, record *pb.Record) (uint64, error) {
	if err := p.c.check(p.id, record); err != nil {
		return 0, err
	}
	if err := p.c.committer.enter(ctx, p.c.appendTimeout); err != nil {
		return 0, err
	}
	p.mu.Lock()
	b, err := p.joinEnding(verb)
	if err != nil || b != nil {
		p.mu.Unlock()
		p.c.committer.leave() // nothing is queued with the place
		if err != nil {
			return 0, err
		}
		return p.c.wait(ctx, b)
	}
	if verb != "committed" {
		if p.c.bus != nil {
			p.told = p.c.ends.expect(p.id)
		}
		reason := cmp.Or(record.GetPlanFailed().GetReason(), record.GetPlanCancelled().GetReason())
		p.end.cause = fmt.Errorf("%w: %w", undone(ErrUnwinding, verb, reason), ErrClosed)
		p.settleForwards(ctx, p.end.cause, 0)
	}
	if err = p.lost; err == nil { // it may have gone to another process meanwhile
		b, err = p.queueEnding(verb, record)
	} else {
		p.end = nil
	}
	p.mu.Unlock()
	if err != nil {
		p.c.committer.leave()
		return 0, err
	}
	seq, err := p.c.wait(ctx, b)
	if err == nil {
		p.c.forget(p)
	}
	return seq, err
}

// joinEnding returns the ending under way, if it is of this verb, and claims the
// end of the plan otherwise. Called with mu held.
func (p *Plan) joinEnding(verb string) (*bundle, error) {
	if p.end != nil && p.end.verb == verb && p.end.bundle != nil && !p.end.bundle.failed() {
		return p.end.bundle, nil
	}
	if p.end != nil && p.end.waits && verb != "committed" {
		p.end = nil
	}
	if err := p.ended(); err != nil {
		return nil, err
	}
	if verb == "committed" && p.rewinding != nil && p.unwinding() != nil {
		return nil, p.unwound // it will be open again
	}
	if verb == "committed" && (p.partly || p.unwinding() == nil) {
		if err := p.astray(); err != nil {
			return nil, err
		}
	}
	if verb == "committed" && p.running > 0 {
		return nil, ledger.Refuse("plan",
			fmt.Sprintf("%d forwards still run: %s", p.running, p.runningNow()),
			"a commit after the last of them has returned")
	}
	p.end = &ending{verb: verb}
	p.change()
	return nil, nil
}

// queueEnding queues what was registered and never called, then the end. Called
// with mu held.
func (p *Plan) queueEnding(verb string, record *pb.Record) (*bundle, error) {
	if err := p.giveUp(func(*action) bool { return true }); err != nil {
		p.end = nil
		return nil, err
	}
	if k := record.GetPlanCommitted(); k != nil {
		k.Parts = p.parts.known
	}
	b, err := p.queueCall(record)
	if err != nil {
		p.end = nil
		return nil, err
	}
	p.end.bundle = b
	return b, nil
}

// confirm asks an executor what the ledger made of the commit at seq.
func (p *Plan) confirm(ctx context.Context, seq uint64) error {
	if p.c.bus == nil {
		return fmt.Errorf("%w: no connection to ask over", ErrUnconfirmed)
	}
	bounded, cancel := context.WithTimeout(ctx, p.c.confirmTimeout)
	defer cancel()
	var last error
	var waits *CommitWaits
	for bounded.Err() == nil {
		answer, err := p.ask(bounded, api.OutcomeQuery{Plan: p.id, Sequence: seq, Parts: p.knownParts()})
		switch {
		case errors.Is(err, ErrConnectionClosed):
			return unconfirmed(err)
		case err != nil:
			last = heardLast(bounded, last, err)
		case answer.State == ledger.StateCommitted && len(answer.Outstanding) > 0:
			return ledger.Refuse("plan.id",
				"it is committed, and does not hold "+strings.Join(answer.Outstanding,
					", "), "an id that no plan had before")
		case answer.State == ledger.StateCommitted:
			became(p, answer.State)
			return nil
		case answer.State == ledger.StateCommitting:
			if waits = p.waits(answer); waits.Owner() {
				return waits
			}
		case answer.State == ledger.StateUnwinding && answer.FromAction != "":
			p.goOn(seq)
			p.unwind(api.Notice{State: answer.State, Reason: answer.Reason,
				FromAction: answer.FromAction})
			return fmt.Errorf("%w: action %s and what came after it%s", ErrUnwinding,
				answer.FromAction, because(answer.Reason))
		case answer.State == ledger.StateUnwinding:
			p.goOn(seq)
			p.unwind(api.Notice{State: answer.State, Reason: answer.Reason})
			return undone(ErrUnwound, answer.State, answer.Reason)
		case answer.State != ledger.StateOpen:
			became(p, answer.State)
			return undone(ErrUnwound, answer.State, answer.Reason)
		case len(answer.Refused) > 0 && answer.Turned:
			last = errors.New("a lease of it has turned true, and has not fired yet")
		case len(answer.Refused) > 0:
			p.goOn(seq)
			if err := p.partOf(answer); err != nil {
				return err
			}
			return refusedBy(answer, "plan", "a commit that the plan still allows")
		default:
			last = errors.New("the plan is still open")
		}
		pause.For(bounded, askDelay)
	}
	switch {
	case waits != nil && ctx.Err() != nil:
		return fmt.Errorf("%w (%w)", waits, ctx.Err())
	case waits != nil:
		return waits
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ErrUnconfirmed, ctx.Err())
	}
	return fmt.Errorf("%w within %v: %v", ErrUnconfirmed, p.c.confirmTimeout, last)
}

// became notes how the ledger has ended a plan that this process has ended.
func became(p *Plan, state string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		p.end.became, p.end.waits = state, false
	}
}

// waits notes that the commit of the plan waits.
func (p *Plan) waits(answer api.OutcomeAnswer) *CommitWaits {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		p.end.waits = true
	}
	return &CommitWaits{Plan: p.id, Doubts: answer.Doubts}
}

// Wait returns when the plan has ended, or waits for its owner: End.Final says which. It needs an
// executor and waits for one until ctx ends; the error then wraps ctx's and says what is missing,
// such as a *CommitWaits. The end is of after all that this process knows to be stored of the plan;
// what an operator reports, or a child's late forward, may change it later.
func (p *Plan) Wait(ctx context.Context) (End, error) {
	p.mu.Lock()
	opening := p.opening != nil
	p.mu.Unlock()
	switch {
	case p.c.bus == nil:
		return End{}, fmt.Errorf("cannot wait for plan %q: %w", p.id,
			ledger.Refuse("config.conn", "missing", "a connection to NATS"))
	case opening:
		return End{}, fmt.Errorf("cannot wait for plan %q: %w", p.id,
			ledger.Refuse("plan", "not in the ledger yet", "an action, a Flush or an end first"))
	}
	if end, all := hear(ctx, p); all {
		return end, nil
	}
	var last error
	for ctx.Err() == nil {
		answer, err := p.ask(ctx, api.OutcomeQuery{Plan: p.id, Sequence: p.Stored(), Ended: true})
		switch {
		case errors.Is(err, ErrConnectionClosed):
			return End{}, fmt.Errorf("cannot wait for plan %q: %w", p.id, err)
		case err != nil:
			last = heardLast(ctx, last, err)
		case answer.State == ledger.StateCommitting:
			last = p.waits(answer)
		case ledger.HasEnded(answer.State):
			became(p, answer.State)
			return End{State: answer.State, Reason: answer.Reason, Outstanding: answer.Outstanding,
				Refused: ledger.TenantRefusal(answer.Reason)}, nil
		default:
			last = errors.New("it is " + answer.State)
		}
		pause.For(ctx, askDelay)
	}
	return End{}, fmt.Errorf("cannot wait for plan %q: %w", p.id, inVain(ctx, last))
}

// Most plans that are undone are so within milliseconds, and the holder tells of it by itself.
// hearMax is for how long that is waited for, instead of asking; endsMax bounds the plans that a
// process listens for: agents that may not listen at all are told nothing.
const (
	hearMax = 500 * time.Millisecond
	endsMax = 1024
)

// told is the end of one plan.
type told struct {
	done   chan struct{} // closed when notice is set
	notice api.Notice
}

// ends are those that are told by notices, of plans that this process has failed or cancelled.
type ends struct {
	mu sync.Mutex
	of map[string]*told // by plan, until they are told
}

// expect listens for the end of a plan.
func (e *ends) expect(plan string) *told {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.of) == endsMax {
		clear(e.of) // who waits for one of them asks
	}
	t := &told{done: make(chan struct{})}
	e.of[plan] = t
	return t
}

// tell takes a notice.
func (e *ends) tell(n api.Notice) {
	if !ledger.HasEnded(n.State) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.of[n.Plan]; t != nil {
		delete(e.of, n.Plan)
		t.notice = n
		close(t.done)
	}
}

// hear waits a little for a notice that a plan is undone. all is whether that says it all. What
// came before the call may have changed since, an end may leave something to its owner or come
// before the last that this process has stored of the plan: those are asked about.
func hear(ctx context.Context, p *Plan) (end End, all bool) {
	p.mu.Lock()
	t := p.told
	p.mu.Unlock()
	if t == nil {
		return End{}, false
	}
	select {
	case <-t.done:
		return End{}, false
	default:
	}
	limit := hearMax
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)/4)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-t.done:
		n := &t.notice
		all = n.State == ledger.StateCompensated && n.At > p.Stored()
		return End{State: n.State, Reason: n.Reason, Refused: ledger.TenantRefusal(n.Reason)}, all
	case <-p.c.lost.done:
	case <-ctx.Done():
	}
	return End{}, false
}

// goOn takes calls again after the ledger has not taken the commit at seq: the plan
// is open, or will be when it is back at a savepoint.
func (p *Plan) goOn(seq uint64) {
	p.mu.Lock()
	ours := p.end != nil && p.end.bundle != nil && p.end.bundle.settled() && p.end.bundle.seq == seq
	if ours {
		p.end = nil
	}
	p.mu.Unlock()
	if !ours {
		return // another call has done so
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if p.c.plans[p.id] == nil {
		p.c.plans[p.id] = p
	}
}

// Stored is the sequence of the latest commit with records of the plan that this process
// knows to be stored; 0: none. An executor that has folded it knows who writes the plan.
func (p *Plan) Stored() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteStored(p.last)
	return p.known
}

// ask sends one question about the plan and returns its answer, which says a
// state.
func (p *Plan) ask(ctx context.Context, query api.OutcomeQuery) (api.OutcomeAnswer, error) {
	query.WaitMs = askWaitMax.Milliseconds()
	if deadline, ok := ctx.Deadline(); ok { // the rest is for the way of the answer
		query.WaitMs = min(query.WaitMs, max(1, time.Until(deadline).Milliseconds()*3/4))
	}
	ctx, cancel := context.WithTimeout(ctx, askWaitMax+askSlack)
	defer cancel()
	answer, err := ask(ctx, p.c.bus, p.c.tenant, api.PlanOutcome, query)
	if err == nil && answer.State == "" {
		err = errors.New("executor: no state")
	}
	if err == nil {
		setDeadline(p, answer.DueNs, answer.DueSet)
	}
	return answer, err
}

// undone is the error of a plan that is in a state for a reason. It is a *Refused, too, where
// its tenant takes no more.
func undone(what error, state, reason string) error {
	if refused := ledger.TenantRefusal(reason); refused != nil {
		return fmt.Errorf("%w (%s): %w", what, state, refused)
	}
	if reason == "" {
		return fmt.Errorf("%w (%s)", what, state)
	}
	return fmt.Errorf("%w (%s: %s)", what, state, reason)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}
