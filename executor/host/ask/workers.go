package ask

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/actuators"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
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

	mu    sync.Mutex
	ns    map[string]int64     // by capability
	other map[versionOf]string // what a worker of another version has said last

	refused notCounted // answers
	unread  notCounted // fields of answers that count
}

// notCounted are answers, or parts of them, that did not count.
type notCounted struct {
	count  uint64
	last   api.RefusedReply
	logged time.Time // when the last one went into the log
	silent uint64    // since then
}

// add reports whether the log gets a line of it, and of how many it has none.
func (n *notCounted) add(last api.RefusedReply) (silent uint64, loud bool) {
	n.count++
	n.last = last
	silent, loud = n.silent, time.Since(n.logged) >= refusalLogPause
	if loud {
		n.logged, n.silent = time.Now(), 0
	} else {
		n.silent++
	}
	return silent, loud
}

// right notes that whoever was the last one has answered as it should since. One that has not said
// its name may be any that serves the capability.
func (n *notCounted) right(capability, worker string, ns int64) {
	if n.count > 0 && n.last.RightNs == 0 && n.last.Capability == capability &&
		(n.last.Worker == worker || n.last.Worker == "") {
		n.last.RightNs = ns
	}
}

// view is what status says; nil: there was nothing.
func (n *notCounted) view() *api.RefusedReplies {
	if n.count == 0 {
		return nil
	}
	return &api.RefusedReplies{Count: n.count, Last: n.last}
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

// Refused handles each message on a reply subject that is no answer, or no whole one. The
// command that it claims to answer, if there is one, goes on waiting unless the rest counts.
func (w *Workers) Refused(r actuators.Refusal) {
	w.meter.RefusedReply(r.Reason)
	of, text := &w.refused, "an answer of a worker was refused; its command stays unanswered"
	switch r.Reason {
	case actuators.RefusedUnknown:
		w.log.Debug("an answer that no command waits for")
		return
	case actuators.RefusedField:
		of, text = &w.unread, "a field of a worker's answer cannot be read; the rest of it counts"
	}
	c := r.Command
	last := api.RefusedReply{
		AtNs: w.now().UnixNano(), Capability: c.Capability, Plan: c.Plan, Action: c.Action,
		Worker: clipText(r.Worker), Problem: r.Err.Error(),
	}
	w.mu.Lock()
	silent, loud := of.add(last)
	w.mu.Unlock()
	if loud {
		w.log.Warn(text, "capability", c.Capability, "plan", c.Plan, "action", c.Action,
			"attempt", c.Attempt, "worker", last.Worker, "error", r.Err, "more", silent)
	}
}

// Counted notes an answer that counts; whole: with each of its fields. A worker that was refused
// before is one that answers as it should.
func (w *Workers) Counted(c api.Command, worker string, whole bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ns := w.now().UnixNano()
	w.refused.right(c.Capability, clipText(worker), ns)
	if whole {
		w.unread.right(c.Capability, clipText(worker), ns)
	}
}

// Read notes a worker's record that has just come, and whether it is folded without a part of it.
func (w *Workers) Read(e ledger.Entry) {
	switch {
	case !e.Partial && e.Source.Class == ledger.ClassWorker && e.Record != nil:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.unread.right(ledger.KindOf(e.Record).Name, clipText(e.Source.Name), w.now().UnixNano())
	case e.Partial:
		w.Refused(actuators.Refusal{Reason: actuators.RefusedField, Worker: e.Source.Name, Err: e.Err,
			Command: api.Command{Capability: ledger.KindOf(e.Record).Name, Plan: e.Record.Plan,
				Action: e.Record.Action}})
	}
}

// notCounted is what status says of answers that did not count, and of parts of those that
// did; nil: there were none.
func (w *Workers) notCounted() (refused, unread *api.RefusedReplies) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused.view(), w.unread.view()
}

// clipText shortens what a worker says of itself.
func clipText(text string) string {
	if len(text) > workerNameShown {
		return text[:workerNameShown]
	}
	return text
}

func (d *Desk) workers() (answer api.WorkersAnswer, err error) {
	answer.Workers = []api.Worker{}
	d.look(func(r *view.Reader) {
		views, partial := r.Workers()
		answer.Workers, answer.Partial = append(answer.Workers, views...), partial
	})
	subjects := make([]string, len(answer.Workers))
	for i, w := range answer.Workers {
		subjects[i] = api.UndoSubject(d.Tenant, w.Capability)
	}
	services := d.services(subjects)
	for i := range answer.Workers {
		w := &answer.Workers[i]
		w.HeardNs = d.Workers.at(w.Capability)
		w.Served = d.served(services[i], w.HeardNs)
	}
	return answer, nil
}

func (d *Desk) services(subjects []string) []actuators.Service {
	return actuators.Services(context.Background(), d.Conn, subjects)
}

// served says in a word who has what is sent. One outside a queue group is a worker if it has
// just answered.
func (d *Desk) served(s actuators.Service, heardNs int64) string {
	switch {
	case s == actuators.ServiceWorker:
		return api.ServedYes
	case s == actuators.ServiceHeard && d.Now().UnixNano()-heardNs < int64(actuators.PlainKept):
		return api.ServedYes
	case s == actuators.ServiceHeard:
		return api.ServedListener
	case s == actuators.ServiceNone:
		return api.ServedNo
	default:
		return api.ServedUnknown
	}
}

// whoServes says which calls have a worker, also of contracts without registrations.
func (d *Desk) whoServes(q api.ServedQuery) (answer api.ServedAnswer, err error) {
	if len(q.Calls) > servedMax {
		return answer, alone{fmt.Errorf("calls: %d; want at most %d", len(q.Calls), servedMax)}
	}
	answer.Calls = []api.Served{}
	waiting := d.Board.unserved()
	subjects := make([]string, len(q.Calls))
	for i, call := range q.Calls {
		subjects[i] = api.AskSubject(d.Tenant, call.Capability)
		if call.Undo {
			subjects[i] = api.UndoSubject(d.Tenant, call.Capability)
		}
	}
	services := d.services(subjects)
	for i, call := range q.Calls {
		heardNs := d.Workers.at(call.Capability)
		shown := api.Served{ServedCall: call, HeardNs: heardNs,
			Served: d.served(services[i], heardNs)}
		for _, w := range waiting { // as good as asked: the last try has found no one
			if w.Capability == call.Capability && !w.Working && w.Problem == "" &&
				shown.Served == api.ServedUnknown {
				shown.Served = api.ServedNo
			}
		}
		if shown.Served != api.ServedNo && call.Version != "" {
			shown.OtherVersion = d.Workers.otherVersion(call.Capability, call.Version)
		}
		answer.Calls = append(answer.Calls, shown)
	}
	return answer, nil
}
