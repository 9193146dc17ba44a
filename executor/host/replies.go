package host

import (
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/actuators"
	"github.com/sagenbaum/sagenbaum/executor/view"
)

// refusals counts the answers of workers that did not count, while this process runs,
// and keeps the last one for people. Late answers are counted in the metrics only: they
// are part of at-least-once delivery.
type refusals struct {
	mu     sync.Mutex
	count  uint64
	last   view.RefusedReply
	logged time.Time // when the last one went into the log
	silent uint64    // refused since then
}

// openActuator takes commands to workers for as long as this host holds the tenant.
func (a *actor) openActuator() (*actuators.NATS, error) {
	return actuators.NewNATS(actuators.Config{
		Conn: a.host.cfg.Conn, Tenant: a.tenant, Refused: a.refusedReply,
	})
}

// refusedReply handles each message on a reply subject that is no answer. The command
// that it claims to answer, if there is one, goes on waiting.
func (a *actor) refusedReply(r actuators.Refusal) {
	a.meter.refusedReply(r.Reason)
	if r.Reason == actuators.RefusedUnknown {
		a.log.Debug("an answer that no command waits for")
		return
	}
	now := a.host.clock.now()
	f := &a.refusals
	f.mu.Lock()
	f.count++
	f.last = view.RefusedReply{
		AtNs: now.UnixNano(), Capability: r.Command.Capability, Plan: r.Command.Plan,
		Action: r.Command.Action, Worker: clipText(r.Worker), Problem: r.Err.Error(),
	}
	silent, loud := f.silent, time.Since(f.logged) >= refusalLogPause
	if loud {
		f.logged, f.silent = time.Now(), 0
	} else {
		f.silent++
	}
	f.mu.Unlock()
	if loud {
		c := r.Command
		a.log.Warn("an answer of a worker was refused; its command stays unanswered",
			"capability", c.Capability, "plan", c.Plan, "action", c.Action, "attempt", c.Attempt,
			"worker", clipText(r.Worker), "error", r.Err, "more", silent)
	}
}

// view is what status says; nil: nothing was refused.
func (f *refusals) view() *view.RefusedReplies {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count == 0 {
		return nil
	}
	return &view.RefusedReplies{Count: f.count, Last: f.last}
}

// clipText shortens what a worker says of itself.
func clipText(text string) string {
	if len(text) > workerNameShown {
		return text[:workerNameShown]
	}
	return text
}
