package coordinator

import (
	"context"
	"fmt"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// The forward that a process died in. It may still land: a process that is killed stops no
// provider. Only what is found later than that proves that the effect is not there.

// doubted says what runs in the place of a forward that may have been under way
// when its process ended.
func (r *run) doubted(
	ctx context.Context, a *action, declared Action, past *api.PastAction, forward Forward,
) (Forward, error) {
	switch {
	case a.reviewTimeout > 0 && past.Verdict == "", declared.Repeat:
		return forward, nil // it has not started, or may do so twice
	case declared.Find == nil && past.Outcome == api.OutcomeInDoubt:
		return nil, &Recorded{
			Action: past.Action, Outcome: past.Outcome, Code: past.Code, Message: past.Message,
		}
	case declared.Find == nil:
		return func(context.Context, Call) (Outcome, error) { return Outcome{}, ErrInterrupted }, nil
	}
	for until := r.landsBy(past.Action); ; {
		asked := time.Now()
		outcome, found, err := declared.Find(ctx, a.call)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			return func(context.Context, Call) (Outcome, error) {
				return Outcome{}, fmt.Errorf("%w: %w", ErrInterrupted, err)
			}, nil
		case found:
			return func(context.Context, Call) (Outcome, error) { return outcome, nil }, nil
		case !asked.Before(until):
			return forward, nil
		}
		if over, err := a.waitFor(ctx, until); over || err != nil {
			return forward, err // start says why it does not run
		}
	}
}

// landsBy is the instant from which on the forward of an action that an earlier process may
// have called can no longer land, as it was registered. That process called it before this
// one had claimed the plan.
func (r *run) landsBy(action string) time.Time {
	f := r.forwards[action]
	if f.Late == pb.Late_LATE_REFUSED || f.Late == pb.Late_LATE_NEVER {
		return time.Time{} // one effect for one key; an effect that ended with its process
	}
	settle := ledger.SettleNs(f.SettleNs, f.TimeoutNs)
	return r.fenced.Add(time.Duration(f.TimeoutNs)).Add(time.Duration(settle))
}

// waitFor waits until an instant. over: the forward of the action must not be started any
// more, and there is nothing to wait for.
func (a *action) waitFor(ctx context.Context, until time.Time) (over bool, err error) {
	p := a.plan
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
