package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/internal/pause"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// What cannot be undone is staged: the executor makes the act once the plan has been committed.

// Stage registers an act that is made once the plan, and the root that it is a part of, have been
// committed: by a worker, as the contract's deliver says, after all that is staged before it. What
// undoes the plan before drops it, and nothing was called. It has no output, and no action that
// is not staged comes after it. Delivered tells what became of it.
//
// It returns when an executor has said that the ledger has taken the act. A call with the ID of an
// act that is staged already is a repetition, also after a Resume. Errors as of Do, before its
// forward has run; *Refused where the contract says nothing of a delivery; a *Recorded, which is
// ErrPartUndone, where it was dropped with a part of the plan; ErrUnconfirmed (stored, and no
// executor has answered: call again).
func (p *Plan) Stage(ctx context.Context, declared Action) error {
	p.lookAgain(ctx)
	lookDue(ctx, p)
	declared.staged = true
	a, err := p.register(ctx, declared, nil)
	if err != nil {
		return fmt.Errorf("cannot stage action %q: %w", named(declared), err)
	}
	if _, err = p.c.wait(ctx, a.pair); err == nil {
		err = a.isStaged(ctx)
	}
	if err != nil {
		return fmt.Errorf("cannot stage action %q: %w", a.call.Action, err)
	}
	return nil
}

// Staged returns a declaration as Stage takes it, for a Claim's With and Draft.
func Staged(declared Action) Action {
	declared.staged = true
	return declared
}

// StagedCall is the call of a staged act, which a worker makes; ok is false where the plan has
// staged none of this ID.
func StagedCall(p *Plan, id string) (call Call, ok bool) {
	p.mu.Lock()
	a := p.actions[id]
	p.mu.Unlock()
	if a == nil || a.registered.GetDeliver() == nil {
		return Call{}, false
	}
	call = a.call
	call.Number, call.Sequence = a.number, a.pair.seq
	return call, true
}

// isStaged returns when an executor has said that the ledger has taken a staged act.
func (a *action) isStaged(ctx context.Context) error {
	p := a.plan
	p.mu.Lock()
	past := a.past
	if past != nil && past.Undone {
		past = &Recorded{}
		*past = *a.past
	}
	p.mu.Unlock()
	switch {
	case past != nil && past.Undone:
		return past
	case past != nil:
		return nil
	case p.c.bus == nil:
		return fmt.Errorf("%w: no connection to ask over", ErrUnconfirmed)
	}
	ctx, cancel := context.WithTimeout(ctx, p.c.confirmTimeout)
	defer cancel()
	last := errNobody
	for ctx.Err() == nil {
		answer, err := p.ask(ctx, api.OutcomeQuery{Plan: p.id, Sequence: a.pair.seq,
			Action: a.call.Action})
		if err == nil {
			return a.stagedAs(answer)
		}
		if last = err; errors.Is(err, ErrConnectionClosed) {
			break
		}
		pause.For(ctx, askDelay)
	}
	return unconfirmed(last)
}

// stagedAs is what an executor says of a staged act.
func (a *action) stagedAs(answer api.OutcomeAnswer) error {
	p := a.plan
	switch {
	case answer.Undo == "": // it is not registered
		if err := p.taken(answer); err != nil {
			return err
		}
		return refusedBy(answer, "action", "an act that the plan takes")
	case answer.State == ledger.StateOpen && answer.Undo == undoDropped:
		return &Recorded{Action: a.call.Action, Capability: a.call.Capability,
			Outcome: api.OutcomeUnknown, Undone: true}
	case answer.State != ledger.StateOpen && answer.State != ledger.StateCommitted &&
		answer.State != ledger.StateCommitting && answer.Whole:
		return undone(ErrUnwinding, answer.State, answer.Reason)
	case answer.Undo == undoDropped && answer.State != ledger.StateCommitted:
		return undone(ErrUnwound, answer.State, answer.Reason)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.confirmed = true
	return nil
}

// undoDropped is the undo of a staged act that is not made any more.
const undoDropped = "dropped"

// Delivered returns when what is staged in the plan has been delivered, dropped or left to its
// owner, after the commit, of a child plan after that of its root. A plan in which nothing was
// staged has an empty Delivery. Errors:
// *Refused (the plan is open), ErrUnwound (it was undone instead), ErrConnectionClosed, and ctx's,
// with what is waited for.
func (p *Plan) Delivered(ctx context.Context) (api.Delivery, error) {
	d, err := awaitDelivered(ctx, p)
	if err != nil {
		return d, fmt.Errorf("cannot wait for the deliveries of plan %q: %w", p.id, err)
	}
	return d, nil
}

// Delivered is Plan.Delivered for a plan of this tenant, whichever process began it.
func (c *Coordinator) Delivered(ctx context.Context, plan string) (api.Delivery, error) {
	if !ledger.ValidDerived(plan) {
		return api.Delivery{}, ledger.Refuse("plan.id", fmt.Sprintf("%q is not a name", plan),
			"the id of a plan")
	}
	return (&Plan{c: c, id: plan}).Delivered(ctx)
}

func awaitDelivered(ctx context.Context, p *Plan) (d api.Delivery, err error) {
	if p.c.bus == nil {
		return d, ledger.Refuse("config.conn", "missing", "a connection to NATS")
	}
	var last error
	for ctx.Err() == nil {
		answer, err := p.ask(ctx, api.OutcomeQuery{Plan: p.id, Sequence: p.Stored()})
		switch {
		case errors.Is(err, ErrConnectionClosed):
			return d, err
		case err != nil:
			last = heardLast(ctx, last, err)
		case answer.State == ledger.StateOpen:
			return d, ledger.Refuse("plan", "it is open", "Delivered after a Commit")
		case answer.State == ledger.StateCommitting:
			last = &CommitWaits{Plan: p.id, Doubts: answer.Doubts}
		case answer.State != ledger.StateCommitted:
			return d, undone(ErrUnwound, answer.State, answer.Reason)
		case answer.Delivery == nil:
			return d, nil
		case answer.Delivery.State != ledger.StateDelivering:
			return *answer.Delivery, nil
		default:
			d = *answer.Delivery
			if d.Plan == "" {
				last = errors.New("the plan that it is a part of has yet to commit")
				break
			}
			last = fmt.Errorf("plan %s is %s", d.Plan, d.State)
			_, err := (&Plan{c: p.c, id: d.Plan}).ask(ctx, api.OutcomeQuery{Plan: d.Plan, Ended: true})
			if err == nil {
				continue
			}
		}
		pause.For(ctx, askDelay)
	}
	return d, inVain(ctx, last)
}

// maySay refuses a call of an action in another way than its contract, or its act, allows.
func (d *draft) maySay() error {
	switch t := d.contract; {
	case d.staged && !t.MayStage():
		return ledger.Refuse("contract["+t.Capability+"].deliver", "missing, and the act is staged",
			"deliver, which says how it is made; or an act that is not staged")
	case !d.staged && t.Stages():
		return ledger.Refuse("action.stage", "not given, and each act of "+t.Capability+" is staged",
			"Plan.Stage")
	case d.staged && (d.Review || t.Review):
		return ledger.Refuse("action.review", "given for what is staged",
			"none: a verdict on it drops it until its plan has been committed")
	case d.staged && d.Pivot:
		return ledger.Refuse("action.pivot", "given for what is staged", "none: nothing comes after it")
	}
	return nil
}

// isLast refuses what comes after a staged act without being one, by the field that says so.
func isLast(field string, before *action) error {
	if before.registered.GetDeliver() == nil {
		return nil
	}
	return ledger.Refuse(field, fmt.Sprintf("%q is staged: it happens when the plan is committed",
		before.call.Action), "an action that is not staged, or to stage this one, too")
}

// lastOf are the actions that the next one comes after by default: the last one that is not
// staged, and for one that is, the last one that is, too. Called with mu held.
func (all *acts) lastOf(staged bool) (ids []string) {
	found := [2]bool{}
	for i := len(all.order) - 1; i >= 0; i-- {
		a, of := all.order[i], 0
		if a.registered.GetDeliver() != nil {
			of = 1
		}
		if !found[of] && (of == 0 || staged) {
			ids = append(ids, a.call.Action)
		}
		if found[of] = true; found[0] && (found[1] || !staged) {
			break
		}
	}
	return ids
}

// passed refuses an act whose plan has a deadline that has passed.
func passed(p *Plan) error {
	if !p.deadline.IsZero() && !time.Now().Before(p.deadline) {
		return fmt.Errorf("%w: its deadline has passed", ErrUnwinding)
	}
	return nil
}
