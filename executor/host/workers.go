package host

import (
	"fmt"
	"sync"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// heard remembers when a worker last answered for a capability of a tenant, while this
// process runs. It is for people; nothing is decided by it.
type heard struct {
	mu      sync.Mutex
	ns      map[string]int64     // by capability
	refused map[versionOf]string // what a worker of another version has said last
}

// versionOf is a capability, of a worker's version that registrations ask for.
type versionOf struct{ capability, version string }

// note keeps at most heardMax capabilities, and versions: those that came first.
func (h *heard) note(c api.Command, reply api.Reply, ns int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ns == nil {
		h.ns, h.refused = map[string]int64{}, map[versionOf]string{}
	}
	if _, known := h.ns[c.Capability]; known || len(h.ns) < heardMax {
		h.ns[c.Capability] = ns
	}
	of := versionOf{c.Capability, c.WorkerVersion}
	delete(h.refused, of)
	if reply.Code == api.CodeWorkerVersion && len(h.refused) < heardMax {
		h.refused[of] = clipText(reply.Message)
	}
}

func (h *heard) at(capability string) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ns[capability]
}

// otherVersion is what a worker of another version has said last, if that is so still.
func (h *heard) otherVersion(capability, version string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refused[versionOf{capability, version}]
}

func (a *actor) askWorkers() any {
	answer := view.WorkersAnswer{Workers: []view.Worker{}}
	a.look(func(r *executor.Reader) {
		views, partial := r.Workers()
		answer.Workers, answer.Partial = append(answer.Workers, views...), partial
	})
	for i := range answer.Workers {
		w := &answer.Workers[i]
		w.HeardNs, w.Served = a.heard.at(w.Capability), a.served(api.UndoSubject(a.tenant, w.Capability))
	}
	return answer
}

// served says whether anybody subscribes a subject now.
func (a *actor) served(subject string) string {
	switch {
	case a.host.cfg.Interest == nil:
		return "unknown"
	case a.host.cfg.Interest(subject):
		return "yes"
	default:
		return "no"
	}
}

// askServed says who takes calls, of contracts that perhaps no one has registered under.
func (a *actor) askServed(q view.ServedQuery) any {
	if len(q.Calls) > servedMax {
		return view.ErrorAnswer{Error: fmt.Sprintf("calls: %d; want at most %d", len(q.Calls), servedMax)}
	}
	answer := view.ServedAnswer{Calls: []view.Served{}}
	waiting := a.waitingCommands()
	for _, call := range q.Calls {
		subject := api.AskSubject(a.tenant, call.Capability)
		if call.Undo {
			subject = api.UndoSubject(a.tenant, call.Capability)
		}
		shown := view.Served{ServedCall: call, Served: a.served(subject),
			HeardNs: a.heard.at(call.Capability)}
		for _, w := range waiting { // as good as asked: the last try has found no one
			if w.Capability == call.Capability && !w.Working && w.Problem == "" &&
				shown.Served == "unknown" {
				shown.Served = "no"
			}
		}
		if shown.Served != "no" && call.Version != "" {
			shown.OtherVersion = a.heard.otherVersion(call.Capability, call.Version)
		}
		answer.Calls = append(answer.Calls, shown)
	}
	return answer
}
