package ask

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/actuators"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Bounds of what is remembered of workers.
const (
	servedMax       = 1000             // calls that one question about workers names
	heardMax        = 1000             // capabilities of which it is known when a worker answered
	refusalLogPause = 10 * time.Second // between two lines of the log about refused answers
	workerNameShown = 64               // bytes of a worker's name in such a line
)

// Workers remembers for people, while this process runs, when a worker last answered for a
// capability of a tenant, and the answers that did not count. Late answers are counted in
// the metrics only: they are part of at-least-once delivery. Nothing is decided by it.
type Workers struct {
	meter Meter
	now   func() time.Time
	log   *slog.Logger

	mu     sync.Mutex
	ns     map[string]int64     // by capability
	other  map[versionOf]string // what a worker of another version has said last
	count  uint64               // of refused answers
	last   view.RefusedReply
	logged time.Time // when the last one went into the log
	silent uint64    // refused since then
}

// NewWorkers knows of no worker yet.
func NewWorkers(meter Meter, now func() time.Time, log *slog.Logger) *Workers {
	return &Workers{meter: meter, now: now, log: log, ns: map[string]int64{},
		other: map[versionOf]string{}}
}

// versionOf is a capability, of a worker's version that registrations ask for.
type versionOf struct{ capability, version string }

// Heard notes an answer, at an instant in unix ns. It keeps at most heardMax capabilities,
// and versions: those that came first.
func (w *Workers) Heard(c api.Command, reply api.Reply, ns int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.ns[c.Capability]; known || len(w.ns) < heardMax {
		w.ns[c.Capability] = ns
	}
	of := versionOf{c.Capability, c.WorkerVersion}
	delete(w.other, of)
	if reply.Code == api.CodeWorkerVersion && len(w.other) < heardMax {
		w.other[of] = clipText(reply.Message)
	}
}

func (w *Workers) at(capability string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ns[capability]
}

// otherVersion is what a worker of another version has said last, if that is so still.
func (w *Workers) otherVersion(capability, version string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.other[versionOf{capability, version}]
}

// Refused handles each message on a reply subject that is no answer. The command
// that it claims to answer, if there is one, goes on waiting.
func (w *Workers) Refused(r actuators.Refusal) {
	w.meter.RefusedReply(r.Reason)
	if r.Reason == actuators.RefusedUnknown {
		w.log.Debug("an answer that no command waits for")
		return
	}
	now := w.now()
	w.mu.Lock()
	w.count++
	w.last = view.RefusedReply{
		AtNs: now.UnixNano(), Capability: r.Command.Capability, Plan: r.Command.Plan,
		Action: r.Command.Action, Worker: clipText(r.Worker), Problem: r.Err.Error(),
	}
	silent, loud := w.silent, time.Since(w.logged) >= refusalLogPause
	if loud {
		w.logged, w.silent = time.Now(), 0
	} else {
		w.silent++
	}
	w.mu.Unlock()
	if loud {
		c := r.Command
		w.log.Warn("an answer of a worker was refused; its command stays unanswered",
			"capability", c.Capability, "plan", c.Plan, "action", c.Action, "attempt", c.Attempt,
			"worker", clipText(r.Worker), "error", r.Err, "more", silent)
	}
}

// refusedReplies is what status says; nil: nothing was refused.
func (w *Workers) refusedReplies() *view.RefusedReplies {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count == 0 {
		return nil
	}
	return &view.RefusedReplies{Count: w.count, Last: w.last}
}

// clipText shortens what a worker says of itself.
func clipText(text string) string {
	if len(text) > workerNameShown {
		return text[:workerNameShown]
	}
	return text
}

func (d *Desk) workers() any {
	answer := view.WorkersAnswer{Workers: []view.Worker{}}
	d.look(func(r *view.Reader) {
		views, partial := r.Workers()
		answer.Workers, answer.Partial = append(answer.Workers, views...), partial
	})
	for i := range answer.Workers {
		w := &answer.Workers[i]
		w.HeardNs = d.Workers.at(w.Capability)
		w.Served = d.served(api.UndoSubject(d.Tenant, w.Capability))
	}
	return answer
}

// served says whether a subject has a subscriber now.
func (d *Desk) served(subject string) string {
	switch {
	case d.Interest == nil:
		return "unknown"
	case d.Interest(subject):
		return "yes"
	default:
		return "no"
	}
}

// whoServes says which calls have a worker, also of contracts without registrations.
func (d *Desk) whoServes(q view.ServedQuery) any {
	if len(q.Calls) > servedMax {
		problem := fmt.Sprintf("calls: %d; want at most %d", len(q.Calls), servedMax)
		return view.ErrorAnswer{Error: problem}
	}
	answer := view.ServedAnswer{Calls: []view.Served{}}
	waiting := d.Board.unserved()
	for _, call := range q.Calls {
		subject := api.AskSubject(d.Tenant, call.Capability)
		if call.Undo {
			subject = api.UndoSubject(d.Tenant, call.Capability)
		}
		shown := view.Served{ServedCall: call, Served: d.served(subject),
			HeardNs: d.Workers.at(call.Capability)}
		for _, w := range waiting { // as good as asked: the last try has found no one
			if w.Capability == call.Capability && !w.Working && w.Problem == "" &&
				shown.Served == "unknown" {
				shown.Served = "no"
			}
		}
		if shown.Served != "no" && call.Version != "" {
			shown.OtherVersion = d.Workers.otherVersion(call.Capability, call.Version)
		}
		answer.Calls = append(answer.Calls, shown)
	}
	return answer
}
