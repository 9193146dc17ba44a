package host

import (
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/actuators"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// Actuator takes a command to whoever carries it out; see actuators.NATS.
type Actuator interface {
	Send(c ledger.Command, done func(actuators.Result))
}

// Delays between tries while no worker serves a capability.
const (
	workerWaitMin = 100 * time.Millisecond
	workerWaitMax = 5 * time.Second
)

// attemptID names one attempt.
type attemptID struct {
	plan, action string
	attempt      uint32
}

// flight is one command on its way.
type flight struct {
	command executor.Command
	since   time.Time
	tries   int // sendings that found no worker
	working bool
	again   *time.Timer
}

// dispatcher sends the commands of one tenant and collects their answers. Its
// callbacks run on the actuator's goroutines; stop ends them.
type dispatcher struct {
	actuator Actuator
	wake     chan struct{} // buffered 1: there are answers

	mu      sync.Mutex
	flights map[attemptID]*flight
	answers []executor.Answer
	stopped bool
}

func newDispatcher(a Actuator) *dispatcher {
	return &dispatcher{actuator: a, wake: make(chan struct{}, 1), flights: map[attemptID]*flight{}}
}

// send takes a command on its way, once per attempt.
func (d *dispatcher) send(c executor.Command) {
	id := attemptID{c.Plan, c.Action, c.Attempt}
	d.mu.Lock()
	if _, ok := d.flights[id]; ok || d.stopped {
		d.mu.Unlock()
		return
	}
	f := &flight{command: c, since: time.Now()}
	d.flights[id] = f
	d.mu.Unlock()
	d.try(id, f)
}

func (d *dispatcher) try(id attemptID, f *flight) {
	d.actuator.Send(f.command.Command, func(r actuators.Result) { d.result(id, f, r) })
}

// result handles what became of one sending.
func (d *dispatcher) result(id attemptID, f *flight, r actuators.Result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped || d.flights[id] != f {
		return
	}
	switch r.Fate {
	case actuators.NoWorker:
		// Not a failure: it waits for a worker, visibly.
		f.tries++
		wait := min(workerWaitMin<<min(f.tries-1, 10), workerWaitMax)
		f.again = time.AfterFunc(wait, func() { d.retry(id, f) })
		return
	case actuators.Silent:
		if f.working {
			f.again = time.AfterFunc(workerWaitMax, func() { d.retry(id, f) })
			return
		}
		d.land(id, executor.Answer{Plan: id.plan, Number: f.command.Number, Attempt: id.attempt})
	case actuators.Replied:
		if r.Reply.Status == ledger.StatusWorking && time.Since(f.since) > workingMax {
			d.land(id, executor.Answer{Plan: id.plan, Number: f.command.Number, Attempt: id.attempt}) // as silent
			return
		}
		if r.Reply.Status == ledger.StatusWorking {
			// Its report comes as a record; ask again if it does not.
			f.working, f.tries = true, 0
			wait := min(max(time.Until(time.UnixMilli(r.Reply.UntilMs)), time.Second), workingMax)
			f.again = time.AfterFunc(wait, func() { d.retry(id, f) })
			return
		}
		queued := r.Took.Nanoseconds() - r.Reply.WorkNs
		d.land(id, executor.Answer{Plan: id.plan, Number: f.command.Number, Attempt: id.attempt, Reply: &r.Reply, QueuedNs: max(queued, 0)})
	default:
		panic("host: unknown fate of a sending")
	}
}

// land hands an answer to the actor; d.mu is held.
func (d *dispatcher) land(id attemptID, a executor.Answer) {
	delete(d.flights, id)
	d.answers = append(d.answers, a)
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *dispatcher) retry(id attemptID, f *flight) {
	d.mu.Lock()
	live := !d.stopped && d.flights[id] == f
	d.mu.Unlock()
	if live {
		d.try(id, f)
	}
}

// take returns the answers that have come since the last call.
func (d *dispatcher) take() []executor.Answer {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.answers
	d.answers = nil
	return out
}

// forget drops a flight that the ledger has settled, by its own answer or by
// other means such as a worker's report.
func (d *dispatcher) forget(id attemptID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.flights[id]; f != nil {
		if f.again != nil {
			f.again.Stop()
		}
		delete(d.flights, id)
	}
}

// waiting lists the commands that found no worker yet.
func (d *dispatcher) waiting() []executor.WaitingView {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []executor.WaitingView
	for id, f := range d.flights {
		if f.tries > 0 || f.working {
			out = append(out, executor.WaitingView{
				Working:    f.working,
				Capability: f.command.Capability, Plan: id.plan, Action: f.command.Action,
				SinceNs: f.since.UnixNano(), Tries: f.tries,
			})
		}
	}
	return out
}

// stop forgets everything: the term is lost or the host ends. Whoever holds the
// next term sends the same commands again, with the same keys.
func (d *dispatcher) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	for _, f := range d.flights {
		if f.again != nil {
			f.again.Stop()
		}
	}
	clear(d.flights)
	d.answers = nil
}
