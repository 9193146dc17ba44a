package door

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

func compareKeys(a, b writerKey) int {
	return cmp.Or(cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.agent, b.agent),
		cmp.Compare(a.name, b.name))
}

// writer is the coordinator of one writer. It outlives no process, and needs not: what it knows
// is in the ledger.
type writer struct {
	door        *Door
	key         writerKey
	conn        *nats.Conn // of its tenant, as long as that is open
	coordinator *coordinator.Coordinator
	used        atomic.Int64 // when, unix ns
	life        context.Context
	end         context.CancelFunc

	mu    sync.Mutex
	plans map[string]*held
}

// held is a plan that this process goes on with.
type held struct {
	taking sync.Mutex // held while the plan is begun or recalled

	mu     sync.Mutex
	plan   *coordinator.Plan // nil: not yet
	state  string            // when it was recalled
	reason string
	past   map[string]bool // actions of an earlier process whose outcome was not known
	acts   map[string]*act
	back   map[int]string // savepoints of plan.unwind_to, by its number
	used   time.Time
	users  int // requests that work on it
	life   context.Context
	end    context.CancelFunc
}

func (w *writer) use() { w.used.Store(time.Now().UnixNano()) }

// held is the entry of a plan, which drop gives back.
func (w *writer) held(id string) *held {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.plans[id]
	if h == nil {
		h = &held{acts: map[string]*act{}, past: map[string]bool{}, back: map[int]string{}}
		h.life, h.end = context.WithCancel(w.life)
		w.plans[id] = h
	}
	h.mu.Lock()
	h.used = time.Now()
	h.users++
	h.mu.Unlock()
	return h
}

// fresh is held with taking locked. An entry that was recalled in a state which passes is let go
// first: the plan may be open again, or have ended, since then.
func (w *writer) fresh(id string) *held {
	for {
		h := w.held(id)
		h.taking.Lock()
		if h.plan == nil || !h.passes() {
			return h
		}
		h.taking.Unlock()
		w.drop(id, h, true)
	}
}

// passes reports whether the plan was recalled in a state that may pass without this process. Not
// while tools of it are being called: their outcomes are still to come.
func (h *held) passes() bool {
	if h.calls() {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch h.state {
	case ledger.StateCommitting, ledger.StateUnwinding, ledger.StateQuarantined:
		return true
	}
	return false
}

// calls reports whether tools of the plan are being called.
func (h *held) calls() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.acts {
		if a.calling() {
			return true
		}
	}
	return false
}

// acting is an act of a plan that is being called; nil: none is.
func (w *writer) acting(plan, action string) (*held, *act) {
	w.mu.Lock()
	h := w.plans[plan]
	w.mu.Unlock()
	if h == nil {
		return nil, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.acts[action]; a != nil && a.calling() {
		return h, a
	}
	return nil, nil
}

// take is held for a plan that there is: it is recalled from the ledger where this process does
// not know it. done gives it back.
func (w *writer) take(ctx context.Context, id string) (h *held, done func(), err error) {
	h = w.fresh(id)
	done = func() { w.drop(id, h, false) }
	defer h.taking.Unlock()
	if h.plan != nil {
		return h, done, nil
	}
	if err := w.recall(ctx, id, h); err != nil {
		w.drop(id, h, true)
		return nil, nil, err
	}
	return h, done, nil
}

// recall goes on with a plan from the ledger. h.taking is held.
func (w *writer) recall(ctx context.Context, id string, h *held) error {
	ctx, cancel := context.WithTimeout(ctx, askMax)
	defer cancel()
	r, err := w.coordinator.Recall(ctx, id)
	if err != nil {
		return unheard(err)
	}
	h.known(r.Plan, r.State, r.Reason)
	return nil
}

// unheard says that nothing was stored where a plan could not be looked up in time.
func unheard(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		e := explain(err)
		e.Stored = StoredNothing
		return e
	}
	return err
}

// known has an entry know its plan.
func (h *held) known(p *coordinator.Plan, state, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.plan, h.state, h.reason = p, state, reason
	for _, past := range p.Recorded() {
		if past.Outcome == api.OutcomeUnknown && !past.Staged {
			h.past[past.Action] = true
		}
	}
}

// drop gives an entry back. It is forgotten where there is no plan, or gone is set: then what
// this process knows of it is of no use any more.
func (w *writer) drop(id string, h *held, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.users--
	if (gone || h.plan == nil) && w.plans[id] == h && (h.plan != nil || h.users == 0) {
		w.release(id, h)
	}
}

// release forgets an entry; w.mu and h.mu are held.
func (w *writer) release(id string, h *held) {
	delete(w.plans, id)
	h.end()
	if h.plan != nil {
		h.plan.Forget()
	}
}

// over forgets a plan that has ended, unless tools of it are being called: their outcomes are
// still to come.
func (w *writer) over(id string, h *held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.acts {
		if a.calling() {
			return
		}
	}
	if w.plans[id] == h {
		w.release(id, h)
	}
}

// storedOf is the sequence of what this writer knows to have stored of a plan; 0: nothing.
func (w *writer) storedOf(plan string) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.plans[plan]
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.plan == nil {
		return 0
	}
	return h.plan.Stored()
}

// superseded forgets a plan that another writer has resumed, so that it is looked up again. Not
// while tools of it are being called: what became of them is still to come, and is taken only where
// the plan is known.
func (w *writer) superseded(id string, h *held, err error) {
	if !errors.Is(err, coordinator.ErrSuperseded) ||
		h.plan != nil && coordinator.Superseded(h.plan) && h.calls() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.plans[id] == h {
		w.release(id, h)
	}
}

// forget forgets the plans that no one has asked about since an instant, and reports whether the
// writer is idle altogether.
func (w *writer) forget(since time.Time) (idle bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, h := range w.plans {
		h.mu.Lock()
		if h.users == 0 && h.used.Before(since) {
			w.release(id, h)
		}
		h.mu.Unlock()
	}
	return len(w.plans) == 0 && time.Unix(0, w.used.Load()).Before(since)
}

// close ends the writer; what it has queued is stored.
func (w *writer) close() {
	w.end()
	ctx, cancel := context.WithTimeout(context.Background(), closeMax)
	defer cancel()
	if err := w.coordinator.Close(ctx); err != nil {
		w.door.log.Warn("a writer of the door was not closed well", "tenant", w.key.tenant,
			"agent", w.key.agent, "writer", w.key.name, "error", err)
	}
}
