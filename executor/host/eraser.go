package host

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/sagenbaum/sagenbaum/executor/host/pause"
)

// eraser destroys the keys of erased plans, during one term, until the store says that
// they are gone. It remembers nothing: a record asks for each of them, and until another
// record says that it is done, the next term asks again.
type eraser struct {
	keys *keyring
	log  *slog.Logger
	wake chan struct{} // buffered 1: keys were destroyed

	until   context.Context // ends with stop
	end     context.CancelFunc
	workers *sync.WaitGroup // the session's

	mu    sync.Mutex
	asked map[string]bool // plans under way, or destroyed and not yet recorded
	queue []string
	busy  bool
	gone  []string // destroyed, not yet recorded
}

func (a *actor) newEraser() *eraser {
	until, end := context.WithCancel(a.session)
	return &eraser{keys: a.keys, log: a.log, wake: make(chan struct{}, 1), until: until, end: end, workers: &a.paging, asked: map[string]bool{}}
}

// add takes plans whose keys are to be destroyed, each once. The goroutine that it
// starts ends with the queue, or with stop.
func (e *eraser) add(plans []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, plan := range plans {
		if !e.asked[plan] {
			e.asked[plan] = true
			e.queue = append(e.queue, plan)
		}
	}
	if !e.busy && len(e.queue) > 0 && e.until.Err() == nil {
		e.busy = true
		e.workers.Go(e.run)
	}
}

func (e *eraser) run() {
	delay := retryDelayMin
	for {
		e.mu.Lock()
		if len(e.queue) == 0 || e.until.Err() != nil {
			e.busy = false
			e.mu.Unlock()
			return
		}
		plan := e.queue[0]
		e.mu.Unlock()
		ctx, cancel := context.WithTimeout(e.until, keyTimeout)
		err := e.keys.destroy(ctx, plan)
		cancel()
		if err != nil {
			if e.until.Err() == nil {
				e.log.Warn("the key of an erased plan is not destroyed yet; it is tried again", "plan", plan, "error", err, "in", delay)
			}
			e.mu.Lock()
			e.queue = append(e.queue[1:], plan) // the others first
			e.mu.Unlock()
			pause.For(e.until, delay)
			delay = min(delay*2, retryDelayMax)
			continue
		}
		delay = retryDelayMin
		e.log.Info("the key of an erased plan was destroyed", "plan", plan)
		e.mu.Lock()
		e.queue, e.gone = e.queue[1:], append(e.gone, plan)
		e.mu.Unlock()
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
}

// destroyed are the plans whose keys are gone and not yet recorded as gone.
func (e *eraser) destroyed() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.gone)
}

// recorded forgets a plan that the ledger has as destroyed.
func (e *eraser) recorded(plan string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.asked, plan)
	e.gone = slices.DeleteFunc(e.gone, func(p string) bool { return p == plan })
}

func (e *eraser) stop() { e.end() }
