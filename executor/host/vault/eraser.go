package vault

import (
	"context"
	"log/slog"
	"sync"

	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/executor/turn"
)

// Eraser destroys the keys of erased plans during one term, as turn.Erasures has it, one
// after the other.
type Eraser struct {
	keys *Keyring
	log  *slog.Logger
	wake chan struct{} // buffered 1: keys were destroyed

	until   context.Context // ends with stop
	end     context.CancelFunc
	workers *sync.WaitGroup // the session's

	mu    sync.Mutex
	plans *turn.Erasures
	busy  bool
}

// NewEraser makes the eraser of a term, for its plans. It ends with Stop, or with the session's
// ctx; its goroutine is counted in workers.
func NewEraser(ctx context.Context, plans *turn.Erasures, keys *Keyring, workers *sync.WaitGroup,
	log *slog.Logger) *Eraser {
	e := &Eraser{plans: plans, keys: keys, log: log, wake: make(chan struct{}, 1), workers: workers}
	e.until, e.end = context.WithCancel(ctx)
	return e
}

// Wake has a value when keys were destroyed.
func (e *Eraser) Wake() <-chan struct{} { return e.wake }

// Lock keeps the plans from everyone else.
func (e *Eraser) Lock() { e.mu.Lock() }

// Unlock lets others have the plans.
func (e *Eraser) Unlock() { e.mu.Unlock() }

// Destroy destroys the keys that wait for it. The goroutine that it starts ends with the
// queue, or with Stop.
func (e *Eraser) Destroy() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, waits := e.plans.Next(); waits && !e.busy && e.until.Err() == nil {
		e.busy = true
		e.workers.Go(e.run)
	}
}

func (e *Eraser) run() {
	delay := turn.RetryMin
	for plan, more := e.next(); more; plan, more = e.next() {
		ctx, cancel := context.WithTimeout(e.until, keyTimeout)
		err := e.keys.Destroy(ctx, plan)
		cancel()
		e.mu.Lock()
		e.plans.Result(plan, err == nil)
		e.mu.Unlock()
		if err != nil {
			if e.until.Err() == nil {
				e.log.Warn("the key of an erased plan is not destroyed yet; it is tried again",
					"plan", plan, "error", err, "in", delay)
			}
			pause.For(e.until, delay)
			delay = min(delay*2, turn.RetryMax)
			continue
		}
		delay = turn.RetryMin
		e.log.Info("the key of an erased plan was destroyed", "plan", plan)
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
}

// next is the plan whose key comes next; more is false when the goroutine is to end.
func (e *Eraser) next() (plan string, more bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	plan, more = e.plans.Next()
	e.busy = more && e.until.Err() == nil
	return plan, e.busy
}

// Stop ends the term: no further key is destroyed.
func (e *Eraser) Stop() { e.end() }
