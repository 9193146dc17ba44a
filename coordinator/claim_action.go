package coordinator

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"
	"github.com/sagenbaum/sagenbaum/coordinator/internal/value"
)

// Contract returns the contract in force for a capability, as Do finds it.
func (cl *Claim) Contract(ctx context.Context, capability string) (*compile.Compiled, error) {
	return cl.c.registry.find(ctx, capability, time.Time{}, false)
}

// Compile checks a contract that is written beside an action.
func (cl *Claim) Compile(written contract.Contract) (*compile.Compiled, error) {
	return cl.c.language.contract(written)
}

// With returns the action under a contract that is given, not found by its capability; version
// is that of the handler that undoes it, empty for a worker.
func (cl *Claim) With(declared Action, under *compile.Compiled, version string) Action {
	declared.compiled, declared.version = under, version
	return declared
}

// Draft is an action that was checked as its registration would check it.
type Draft struct {
	Contract *compile.Compiled
	Input    json.RawMessage

	// Digest is the SHA-256 of Input as it is recorded, Plain that of Input as it is, for an
	// action that was registered under a contract without the sensitive field; nil for no input.
	Digest, Plain []byte
}

// Draft checks an action that With has returned. Errors as of Do, before it registers.
func (cl *Claim) Draft(ctx context.Context, declared Action) (Draft, error) {
	t := declared.compiled
	var input json.RawMessage
	if cl.Plan != nil {
		d, err := cl.Plan.draft(ctx, declared, nil)
		if err != nil {
			return Draft{}, err
		}
		input = d.input
	} else { // nothing will be registered
		if len(t.Sensitive) > 0 {
			if err := cl.vault.unlock(ctx); err != nil {
				return Draft{}, err
			}
		}
		var err error
		if input, err = value.Encode("action.input", declared.Input); err != nil {
			return Draft{}, err
		}
	}
	return Draft{Contract: t, Input: input, Plain: inputDigest(input),
		Digest: inputDigest(cl.vault.seal(t, declared.ID, "input", input))}, nil
}

func inputDigest(input json.RawMessage) []byte {
	if len(input) == 0 {
		return nil
	}
	sum := sha256.Sum256(input)
	return sum[:]
}

// Before is the before-image of an action that this process has registered.
func (cl *Claim) Before(action string) json.RawMessage {
	cl.Plan.mu.Lock()
	defer cl.Plan.mu.Unlock()
	return cl.Plan.actions[action].before
}

// Unwinding reports whether all of the plan is being undone, as far as is known. A plan of which
// a part is undone is open again after that.
func (cl *Claim) Unwinding() bool {
	cl.Plan.mu.Lock()
	defer cl.Plan.mu.Unlock()
	return cl.Plan.unwinding() != nil && !cl.Plan.partly
}

// Confirm asks an executor what became of the commit of the plan Serves. Errors as of Commit,
// after it is stored.
func (cl *Claim) Confirm(ctx context.Context) error {
	return (&Plan{c: cl.c, id: cl.Serves, changed: make(chan struct{})}).confirm(ctx, 0)
}

// Adopted is an action of an earlier process, whose outcome is open.
type Adopted struct {
	// Uncalled: the forward was waiting for a verdict when its process ended.
	Uncalled bool

	a *action
}

// Adopt makes an action of an earlier process ready to run.
func (cl *Claim) Adopt(declared Action, past *PastAction) (*Adopted, error) {
	a, err := cl.Plan.adopted(declared, past)
	if err != nil {
		return nil, err
	}
	return &Adopted{a: a, Uncalled: a.reviewTimeout > 0 && !past.MayBeAllowed()}, nil
}

// Call is what the forward is given.
func (a *Adopted) Call() Call { return a.a.call }

// Do runs a forward in the place of the one whose outcome is open. It returns what Plan.Do does.
func (a *Adopted) Do(ctx context.Context, forward Forward) (json.RawMessage, error) {
	return a.a.execute(ctx, nil, forward)
}

// WaitUntil waits until an instant. over: the forward of the action must not be started any
// more, and there is nothing to wait for.
func (w *Adopted) WaitUntil(ctx context.Context, until time.Time) (over bool, err error) {
	a, p := w.a, w.a.plan
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	for {
		p.mu.Lock()
		changed := p.changed
		over = p.unwinding() != nil || p.ended() != nil || a.state != actionRegistered
		p.mu.Unlock()
		if over {
			return true, nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// ErrLeftOpen has the outcome of a forward not recorded when the forward returns it: what is
// known of the action is what would be after a crash.
var ErrLeftOpen = errors.New("the run has ended")

// leaveOpen ends an action of this process and says nothing to the ledger, which may know of it.
func (a *action) leaveOpen(cause error) {
	p := a.plan
	p.mu.Lock()
	defer p.mu.Unlock()
	if done := new(happened); errors.As(cause, &done) {
		a.past, a.registered = done.as.past, done.as.registered
		a.pastInput, a.pastBefore = done.as.pastInput, done.as.pastBefore
	}
	a.state = actionEnded
	p.running--
	a.cancel(nil)
	close(a.finished)
}
