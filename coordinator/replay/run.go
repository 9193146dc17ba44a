package replay

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/internal/opening"
	"github.com/sagenbaum/sagenbaum/coordinator/internal/pause"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Run runs a function under a plan that survives its process. Run again
// with the same plan ID, after a crash, it calls the function again; actions that
// are recorded return what is recorded, and their forwards do not run. The function
// must therefore call the same actions with the same inputs in the same order: what
// else it does is done again. When it returns nil the plan is committed, when it
// returns an error the plan fails, and handlers in code undo it as well as workers;
// when ctx ends, or the process, nothing is said to the ledger: run it again.
//
// An action whose forward was under way when the process ended is in doubt. Repeat
// has it run again, under the same key; Find looks for its effect; without them Do
// records the doubt and returns coordinator.ErrInterrupted, and the function decides.
//
// Errors: *Unwound (the plan is undone; it may be undone already), *Diverged (the function does
// something else than recorded), and those of package coordinator: *Refused, ErrRunning,
// ErrSuperseded, ErrClosed, ErrInDoubt, ctx's. After all but the first two it may be run again as
// it is. A plan that was committed before: nil, and nothing runs.
func Run(ctx context.Context, c *coordinator.Coordinator, config Config,
	function func(ctx context.Context, p *Plan) error) error {
	r := &run{c: c, config: config, called: map[string]bool{},
		past: map[string]*coordinator.PastAction{}}
	claim, err := c.Claim(ctx, coordinator.ClaimConfig{Plan: config.Plan, Function: config.Function,
		TakeOver: config.TakeOver, Same: r.same})
	if err == nil {
		r.claim, r.handlers = claim, newHandlers(claim, config)
		defer func() { claim.Release(r.linger, r.handlers.close) }()
		err = r.all(ctx, function)
	}
	var unwound *Unwound
	if err == nil || errors.As(err, &unwound) {
		return err
	}
	return fmt.Errorf("cannot run %s under plan %q: %w", config.Function, config.Plan.ID, err)
}

// run is one call of Run. mu guards what the function's calls change; the fields
// above it are set before the function starts.
type run struct {
	c        *coordinator.Coordinator
	claim    *coordinator.Claim
	config   Config
	ctx      context.Context // of Run
	linger   bool            // the handlers may be needed when Run has returned
	past     map[string]*coordinator.PastAction
	handlers *handlers

	mu     sync.Mutex
	called map[string]bool
	next   int   // all of claim.Past before it are called
	broken error // after which the function cannot go on
}

// all is Run between its start and its release.
func (r *run) all(ctx context.Context, function func(context.Context, *Plan) error) error {
	ctx, cancel := r.claim.Context(ctx)
	defer cancel()
	r.ctx = ctx
	if err := r.claim.Open(ctx); err != nil {
		return err
	}
	if r.claim.Serves == "" {
		return r.over()
	}
	for i := range r.claim.Past {
		r.past[r.claim.Past[i].Action] = &r.claim.Past[i]
	}
	r.handlers.owe(r.past, r.claim.Owed)
	err := function(ctx, &Plan{r})
	r.mu.Lock()
	broken := r.broken
	if broken == nil {
		r.broken = fmt.Errorf("function %s: %w", r.config.Function, coordinator.ErrClosed)
	}
	r.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("nothing is said of its end: %w", context.Cause(ctx))
	case broken != nil:
		return broken
	}
	if missing := r.missing(err); missing != nil {
		return missing
	}
	switch {
	case r.claim.Plan != nil:
		return r.end(ctx, err)
	case r.claim.State == ledger.StateCommitting:
		return r.awaitCommit(ctx)
	}
	return r.await(ctx, err)
}

// over is what Run returns of a plan of which nothing is left to do.
func (r *run) over() error {
	if r.claim.Ended.State == ledger.StateCommitted {
		return nil
	}
	return &Unwound{Plan: r.claim.EndedPlan, End: r.claim.Ended}
}

// same refuses a plan that was begun as another one. Each process declares its place below another
// plan, and its deadline, for itself.
func (r *run) same(recorded, now *pb.Record) error {
	if d, differs := opening.Compare(recorded, now, "deadline_ns", "parent_plan", "parent_action",
		"attach_digest", "parent_token"); differs {
		return &Diverged{Plan: r.config.Plan.ID, Field: d.Field, Recorded: d.Recorded, Now: d.Now}
	}
	return nil
}

// end commits the plan, or fails it and waits.
func (r *run) end(ctx context.Context, cause error) error {
	for {
		var err error
		unwinding := r.claim.Unwinding()
		switch {
		case unwinding:
		case cause == nil:
			err = r.claim.Plan.Commit(ctx)
		default:
			err = r.claim.Plan.Fail(ctx, ledger.Text(cause.Error()))
		}
		switch {
		case err == nil && cause == nil && !unwinding:
			return nil
		case err == nil, errors.Is(err, coordinator.ErrUnwound):
			return r.await(ctx, cause)
		case errors.Is(err, coordinator.ErrUnwinding):
			if r.claim.Unwinding() {
				return r.await(ctx, cause)
			}
			if ctx.Err() != nil {
				return err
			}
			pause.For(ctx, askDelay) // a part of it is undone, and it goes on without that
		case errors.Is(err, coordinator.ErrCommitWaits):
			return r.awaitCommit(ctx)
		case errors.Is(err, coordinator.ErrSuperseded):
			return coordinator.ErrSuperseded
		case errors.Is(err, coordinator.ErrConnectionClosed):
			return err
		case ctx.Err() == nil && (errors.Is(err, coordinator.ErrUnconfirmed) ||
			errors.Is(err, coordinator.ErrInDoubt) || errors.Is(err, coordinator.ErrBusy)):
			pause.For(ctx, askDelay)
		default:
			return err
		}
	}
}

// awaitCommit waits until a commit that waits is made, or the plan is undone instead. The
// handlers are offered meanwhile.
func (r *run) awaitCommit(ctx context.Context) error {
	r.linger = true
	for {
		err := r.claim.Confirm(ctx)
		var waits *coordinator.CommitWaits
		switch mayWait := r.config.Until != UntilFailed; {
		case err == nil:
			r.linger = false
			return nil
		case errors.Is(err, coordinator.ErrUnwound):
			return r.await(ctx, nil)
		case ctx.Err() != nil:
			return err
		case errors.As(err, &waits) && (!mayWait || waits.Owner() && r.config.Until != UntilResolved):
			return err
		case waits == nil && !errors.Is(err, coordinator.ErrUnconfirmed):
			return err
		}
		pause.For(ctx, askDelayMax)
	}
}

// await waits for the end of a plan that is being undone, as Until says.
func (r *run) await(ctx context.Context, cause error) error {
	unwound := &Unwound{Plan: r.claim.Serves, Cause: cause,
		End: coordinator.End{State: ledger.StateUnwinding}}
	if r.config.Until == UntilFailed {
		r.linger = true
		return unwound
	}
	for {
		end, err := r.c.Wait(ctx, r.claim.Serves)
		switch {
		case err != nil && unwound.State == ledger.StateQuarantined:
			return fmt.Errorf("%v: %w", unwound, err) // for whose answer it has waited
		case err != nil:
			return err
		}
		unwound.End, r.linger = end, !end.Final()
		if end.State != ledger.StateQuarantined || r.config.Until == UntilUnwound {
			return unwound
		}
		pause.For(ctx, askDelayMax)
	}
}
