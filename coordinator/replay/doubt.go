package replay

import (
	"context"
	"fmt"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// The forward that a process died in. It may still land: a process that is killed stops no
// provider. Only what is found later than that proves that the effect is not there.

// doubted says what runs in the place of a forward that may have been under way
// when its process ended.
func (r *run) doubted(
	ctx context.Context, a *coordinator.Adopted, declared Action, past *coordinator.PastAction,
	forward coordinator.Forward,
) (coordinator.Forward, error) {
	switch {
	case a.Uncalled, declared.Repeat:
		return forward, nil // it has not started, or may do so twice
	case declared.Find == nil && past.Outcome == api.OutcomeInDoubt:
		return nil, &coordinator.Recorded{
			Action: past.Action, Outcome: past.Outcome, Code: past.Code, Message: past.Message,
		}
	case declared.Find == nil:
		return returns(coordinator.Outcome{}, coordinator.ErrInterrupted), nil
	}
	for until := r.landsBy(past.Registered); ; {
		asked := time.Now()
		outcome, found, err := declared.Find(ctx, a.Call())
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			return returns(coordinator.Outcome{}, fmt.Errorf("%w: %w", coordinator.ErrInterrupted, err)), nil
		case found:
			return returns(outcome, nil), nil
		case !asked.Before(until):
			return forward, nil
		}
		if over, err := a.WaitUntil(ctx, until); over || err != nil {
			return forward, err // start says why it does not run
		}
	}
}

// landsBy is the instant from which on the forward of an action that an earlier process may
// have called can no longer land, as it was registered. That process called it before this
// one had claimed the plan.
func (r *run) landsBy(f *pb.ForwardRegistered) time.Time {
	if f.Late == pb.Late_LATE_REFUSED || f.Late == pb.Late_LATE_NEVER {
		return time.Time{} // one effect for one key; an effect that ended with its process
	}
	settle := ledger.SettleNs(f.SettleNs, f.TimeoutNs)
	return r.claim.Fenced.Add(time.Duration(f.TimeoutNs)).Add(time.Duration(settle))
}

// returns is a forward that does nothing and returns what is known.
func returns(outcome coordinator.Outcome, err error) coordinator.Forward {
	return func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
		return outcome, err
	}
}
