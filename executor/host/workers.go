package host

import (
	"sync"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// heard remembers when a worker last answered for a capability of a tenant, while this
// process runs. It is for people; nothing is decided by it.
type heard struct {
	mu sync.Mutex
	ns map[string]int64 // by capability
}

// note keeps at most heardMax capabilities: those that came first.
func (h *heard) note(capability string, ns int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ns == nil {
		h.ns = map[string]int64{}
	}
	if _, known := h.ns[capability]; known || len(h.ns) < heardMax {
		h.ns[capability] = ns
	}
}

func (h *heard) at(capability string) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ns[capability]
}

func (a *actor) askWorkers() any {
	answer := executor.WorkersAnswer{Workers: []executor.WorkerView{}}
	a.look(func(r *executor.Reader) {
		views, partial := r.Workers()
		answer.Workers, answer.Partial = append(answer.Workers, views...), partial
	})
	for i := range answer.Workers {
		w := &answer.Workers[i]
		w.HeardNs = a.heard.at(w.Capability)
		if a.host.cfg.Interest == nil {
			continue
		}
		w.Served = "no"
		if a.host.cfg.Interest(ledger.UndoSubject(a.tenant, w.Capability)) {
			w.Served = "yes"
		}
	}
	return answer
}
