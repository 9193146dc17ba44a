package host

import (
	"context"
	"log/slog"
	"sync"

	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/executor/turn"
)

// eraser destroys the keys of erased plans during one term, as turn.Erasures has it, one
// after the other.
type eraser struct {
	keys *keyring
	log  *slog.Logger
	wake chan struct{} // buffered 1: keys were destroyed

	until   context.Context // ends with stop
	end     context.CancelFunc
	workers *sync.WaitGroup // the session's

	mu    sync.Mutex
	plans turn.Erasures
	busy  bool
}

func (a *actor) newEraser() *eraser {
	until, end := context.WithCancel(a.session)
	return &eraser{keys: a.keys, log: a.log, wake: make(chan struct{}, 1), until: until, end: end,
		workers: &a.paging}
}

// add takes plans whose keys are to be destroyed, each once. The goroutine that it
// starts ends with the queue, or with stop.
func (e *eraser) add(plans []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.plans.Add(plans)
	if _, waits := e.plans.Next(); waits && !e.busy && e.until.Err() == nil {
		e.busy = true
		e.workers.Go(e.run)
	}
}

func (e *eraser) run() {
	delay := retryDelayMin
	for plan, more := e.next(); more; plan, more = e.next() {
		ctx, cancel := context.WithTimeout(e.until, keyTimeout)
		err := e.keys.destroy(ctx, plan)
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
			delay = min(delay*2, retryDelayMax)
			continue
		}
		delay = retryDelayMin
		e.log.Info("the key of an erased plan was destroyed", "plan", plan)
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
}

// next is the plan whose key comes next; more is false when the goroutine is to end.
func (e *eraser) next() (plan string, more bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	plan, more = e.plans.Next()
	e.busy = more && e.until.Err() == nil
	return plan, e.busy
}

// destroyed are the plans whose keys are gone and not yet recorded as gone.
func (e *eraser) destroyed() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.plans.Destroyed()
}

// recorded forgets a plan that the ledger has as destroyed.
func (e *eraser) recorded(plan string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.plans.Recorded(plan)
}

func (e *eraser) stop() { e.end() }
