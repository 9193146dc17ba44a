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

// Verdict is a supervisor's word on an action. As an error it says that the
// forward did not run; errors.Is(err, ErrBlocked) then holds.
type Verdict struct {
	Action  string
	Outcome string // block or redirect; allow is no error
	Reason  string // the supervisor's; of a redirect: where to
	By      string // the supervisor
}

// Error reads "action a: block by compliance (policy 7)".
func (v *Verdict) Error() string {
	by := ""
	if v.By != "" {
		by = " by " + v.By
	}
	return "action " + v.Action + ": " + v.Outcome + by + because(v.Reason)
}

// Is makes a verdict that keeps the forward from running an ErrBlocked.
func (v *Verdict) Is(target error) bool { return target == ErrBlocked && v.blocks() }

const (
	verdictAllow    = "allow"
	verdictBlock    = "block"
	verdictRedirect = "redirect"
)

func (v *Verdict) blocks() bool { return v.Outcome == verdictBlock || v.Outcome == verdictRedirect }

// rule takes a verdict on an action of this plan. What is none is ignored. One that
// keeps a forward from running is recorded at once: an executor takes a blocked
// action without an outcome for one that may have crossed.
func (p *Plan) rule(v Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.actions[v.Action]
	if a == nil || !v.blocks() && v.Outcome != verdictAllow {
		return
	}
	a.verdict = &v
	if a.state == actionRegistered && p.ended() == nil {
		_ = a.bar() // start says it again
	}
	p.change()
}

// review returns when there is a verdict on an action, or there is no use in
// waiting for one any longer; start says which. The notice of a verdict may be
// lost, so an executor is asked too.
func (a *action) review(ctx context.Context) error {
	p := a.plan
	p.mu.Lock()
	if a.reviewBy.IsZero() {
		a.reviewBy = time.Now().Add(a.reviewTimeout)
	}
	p.mu.Unlock()
	ctx, cancel := context.WithDeadline(ctx, a.reviewBy)
	defer cancel()
	for delay := askDelay; ctx.Err() == nil; delay = min(2*delay, askDelayMax) {
		decided, changed := a.decided()
		if decided {
			return nil
		}
		if err := a.askVerdict(ctx, changed); err != nil {
			return err
		}
		pause.Until(ctx, changed, delay)
	}
	return nil
}

// decided reports whether an action needs to wait no longer; changed is closed
// when it is worth to look again.
func (a *action) decided() (decided bool, changed <-chan struct{}) {
	p := a.plan
	p.mu.Lock()
	defer p.mu.Unlock()
	return a.verdict != nil || p.unwound != nil || p.ended() != nil || a.state != actionRegistered,
		p.changed
}

// askVerdict asks an executor once, until changed. The error is a *Refused (the ledger did not
// take the pair), or ErrConnectionClosed.
func (a *action) askVerdict(ctx context.Context, changed <-chan struct{}) error {
	p := a.plan
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with the question
		select {
		case <-changed:
			cancel()
		case <-ctx.Done():
		}
	}()
	answer, err := p.ask(ctx, api.OutcomeQuery{Plan: p.id, Sequence: a.pair.seq,
		Action: a.call.Action})
	switch {
	case errors.Is(err, ErrConnectionClosed):
		return err
	case err != nil:
		return nil // asked again
	case a.wentWith(answer):
		return nil // start says it
	case answer.Verdict != "":
		p.rule(verdictOf(a.call.Action, answer))
	case answer.State != ledger.StateOpen:
		hearEnd(p, answer)
	case len(answer.Refused) > 0:
		return refusedBy(answer, "action", "an action that the plan still allows")
	}
	return nil
}

// verdictOf is the last verdict on the action that an executor was asked about.
func verdictOf(action string, answer api.OutcomeAnswer) Verdict {
	return Verdict{Action: action, Outcome: answer.Verdict, Reason: answer.VerdictReason,
		By: answer.VerdictBy}
}

// awaitCaller returns when a caller is there for the forward of an action, or there is no use in
// waiting for one any longer, as the action was blocked or given up; start says which.
func (a *action) awaitCaller(ctx context.Context, caller <-chan struct{}) error {
	p := a.plan
	for caller != nil {
		p.mu.Lock()
		over := a.state != actionRegistered || p.unwound != nil || p.ended() != nil
		changed := p.changed
		p.mu.Unlock()
		if over {
			return nil
		}
		select {
		case <-caller:
			return nil
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// wentWith reports whether an action whose forward was not called yet was undone meanwhile with a
// part of its plan, or back to a savepoint, and the plan goes on: its forward is not called any
// more, whoever allows it.
func (a *action) wentWith(answer api.OutcomeAnswer) bool {
	p := a.plan
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, part := range undoneAfter(answer, 0) {
		if !a.waited() {
			break
		}
		if part.At == 0 || a.state != actionRegistered || !a.pair.before(part.At) || !a.isIn(part) {
			continue
		}
		a.wentWithPart(undonePart(part))
		return true
	}
	// An executor of before answers nothing about the action itself.
	gone := answer.State == ledger.StateOpen && answer.Undo != "" && answer.Undo != undoHeld
	if gone && a.state == actionRegistered && a.doubt == nil {
		a.wentWithPart(UndonePart{Action: a.call.Action})
		return true
	}
	return false
}

// isIn reports whether an action was undone with a part of its plan. Called with mu held.
func (a *action) isIn(part api.UndonePart) bool {
	if part.Savepoint != "" {
		to := a.plan.savepoint(part.Savepoint)
		return to != nil && a.number > to.at
	}
	return a.plan.actions[part.Action] != nil && a.plan.reached(part.Action)(a)
}

// undoHeld is how an executor calls the undo of an action that nothing has undone yet.
const undoHeld = "held"

// wentWithPart records that the forward of an action is not called, as a part of its plan was
// undone. Called with mu held.
func (a *action) wentWithPart(part UndonePart) {
	_ = a.refuse(codeUndone, &PartUndone{Plan: a.plan.id, Action: part.Action, Reason: part.Reason,
		Parts: []UndonePart{part}})
}

// barred returns why a registered action must not start, after recording that it
// did not, or nil. Called with mu held.
func (a *action) bar() error {
	switch {
	case a.verdict != nil && a.verdict.blocks():
		code := codeBlocked
		if a.verdict.Outcome == verdictRedirect {
			code = codeRedirected
		}
		return a.refuse(code, a.doubted(a.verdict))
	case a.reviewTimeout > 0 && a.verdict == nil:
		return a.refuse(codeNoVerdict,
			a.doubted(fmt.Errorf("%w within %v", ErrNoVerdict, a.reviewTimeout)))
	}
	return nil
}

// doubted is why a forward does not run, with the *Recorded of its doubt where an earlier process
// may have run it; nil is nil. Called with mu held.
func (a *action) doubted(cause error) error {
	if a.doubt == nil || cause == nil {
		return cause
	}
	doubt := a.known()
	doubt.Outcome, doubt.Code, doubt.Message = api.OutcomeInDoubt, a.doubt.Code, a.doubt.Message
	return fmt.Errorf("%w; %w", cause, &doubt)
}

// refuse ends a registered action whose forward must not run. It returns the
// cause, as later calls with the action's ID do. Called with mu held.
func (a *action) refuse(code string, cause error) error {
	p := a.plan
	a.said = a.uncalled(code, ledger.Text(cause.Error()))
	if err := p.queueOutcome(a.said); err != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	a.state, a.barred = actionEnded, cause
	return cause
}
