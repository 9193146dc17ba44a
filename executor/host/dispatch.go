package host

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/actuators"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
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

// about is an action of a plan. It has at most one command on its way.
type about struct{ plan, action string }

// attemptID names one attempt: of an undo, or of a question about it.
type attemptID struct {
	about
	purpose string // as ledger.Command.Purpose
	attempt uint32
}

// flight is one command on its way.
type flight struct {
	id      attemptID
	command executor.Command
	since   time.Time
	tries   int    // sendings that found no worker
	problem string // why the last one was not sent; empty: it was
	working bool
	told    bool // that it is stuck
	reached bool // a copy may have come to a worker
	// alone is since when nobody has taken it, as this process has seen without a break;
	// zero: it has not.
	alone time.Time
	again *time.Timer
}

// dispatcher sends the commands of one tenant and collects their answers. Its
// callbacks run on the actuator's goroutines; stop ends them.
type dispatcher struct {
	actuator Actuator
	now      func() time.Time // the host's guarded clock
	wake     chan struct{}    // buffered 1: there are answers
	// open gives what a command takes in the clear, and the single values that it
	// opened; nil: as it stands. It may take a while.
	open func(executor.Command) (json.RawMessage, []json.RawMessage, error)

	mu      sync.Mutex
	flights map[about]*flight
	answers []executor.Answer
	stopped bool
	meter   *meter // nil: none
	heard   *heard // nil: nobody listens

	stuckAfter time.Duration
	stuck      func(f *flight, since time.Time) // called once for a command, mu is held; nil: nobody is
	unstuck    func(f *flight)                  // called when one that was stuck has an end, mu is held
}

func newDispatcher(a Actuator, now func() time.Time, m *meter) *dispatcher {
	return &dispatcher{actuator: a, now: now, wake: make(chan struct{}, 1), flights: map[about]*flight{}, meter: m}
}

// send takes a command on its way, once per attempt. It takes the place of an
// earlier command for the same action, which nobody waits for any more.
func (d *dispatcher) send(c executor.Command) { d.fly(c, false) }

// resend is send for a command of an earlier term or process, which may have
// reached a worker then.
func (d *dispatcher) resend(c executor.Command) { d.fly(c, true) }

func (d *dispatcher) fly(c executor.Command, reached bool) {
	id := attemptID{about{c.Plan, c.Action}, c.Purpose, c.Attempt}
	d.mu.Lock()
	old := d.flights[id.about]
	if d.stopped || old != nil && old.id == id {
		d.mu.Unlock()
		return
	}
	if old != nil {
		d.drop(old)
	}
	f := &flight{id: id, command: c, since: time.Now(), reached: reached}
	d.flights[id.about] = f
	d.meter.flying(1, 0)
	d.mu.Unlock()
	d.try(f)
}

// try sends a copy of the command, unless the provider may have forgotten the key
// under which an earlier copy was carried out: that is for a probe to find out.
func (d *dispatcher) try(f *flight) {
	if !d.mayBeSent(f) {
		return
	}
	actuator := d.actuator
	if f.command.Actuator == ledger.ActuatorMemory {
		actuator = actuators.Memory{}
	}
	if d.open != nil && f.command.Actuator != ledger.ActuatorMemory && seal.Sealed(f.command.Arguments) {
		go d.unsealed(f, actuator) // ends with the sending, or with keyTimeout
		return
	}
	actuator.Send(f.command.Command, func(r actuators.Result) { d.result(f, r) })
}

// mayBeSent reports whether a copy of the command may leave now. One that may not because
// its key may be forgotten gets no answer.
func (d *dispatcher) mayBeSent(f *flight) bool {
	until := f.command.ResendUntilNs
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped || d.flights[f.id.about] != f {
		return false
	}
	if until != 0 && f.reached && d.now().UnixNano() > until {
		d.land(f, nil, 0)
		return false
	}
	return true
}

// codeSealed is the code of a call whose sealed values cannot be opened.
const codeSealed = "sealed"

// unsealed sends a command with its sealed values in the clear. What a worker says of
// them is taken out of its answer, which is recorded.
func (d *dispatcher) unsealed(f *flight, actuator Actuator) {
	arguments, opened, err := d.open(f.command)
	problem := ""
	if err != nil {
		problem = "what " + f.command.Capability + " takes: " + err.Error()
	}
	switch {
	case !d.mayBeSent(f): // opening takes a while
	case err == nil:
		c := f.command.Command
		c.Arguments, c.Opened = arguments, seal.Pointers(c.Arguments)
		actuator.Send(c, func(r actuators.Result) {
			r.Reply = seal.ScrubReply(r.Reply, opened)
			d.result(f, r)
		})
	case gone(err):
		d.result(f, actuators.Result{Fate: actuators.Replied, Reply: ledger.Reply{Status: ledger.StatusStop, Code: codeSealed, Message: problem}})
	default:
		d.result(f, actuators.Result{Fate: actuators.Unsent, Problem: problem})
	}
}

// result handles what became of one sending.
func (d *dispatcher) result(f *flight, r actuators.Result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return
	}
	if d.flights[f.id.about] != f {
		d.tellLate(f, r)
		return
	}
	f.problem = r.Problem
	if r.Fate == actuators.NoWorker || r.Fate == actuators.Unsent {
		// Not a failure: it waits for a worker, visibly.
		if f.tries++; f.tries == 1 {
			d.meter.flying(0, 1)
		}
		d.tellStuck(f)
		d.tellUnserved(f, r.Fate)
		d.later(f, min(workerWaitMin<<min(f.tries-1, 10), workerWaitMax))
		return
	}
	f.reached, f.alone = true, time.Time{}
	if r.Fate == actuators.Replied && d.heard != nil {
		d.heard.note(f.command.Command, r.Reply, d.now().UnixNano())
	}
	switch {
	case r.Fate == actuators.Silent && f.working:
		d.later(f, workerWaitMax)
	case r.Fate == actuators.Silent:
		d.land(f, nil, 0)
	case r.Fate != actuators.Replied:
		panic("host: unknown fate of a sending")
	case r.Reply.Status != ledger.StatusWorking:
		d.land(f, &r.Reply, max(r.Took.Nanoseconds()-r.Reply.WorkNs, 0))
	case time.Since(f.since) > workingMax:
		d.land(f, nil, 0) // as silent
	default:
		// Its report comes as a record; ask again if it does not.
		d.meter.flying(0, -lost(f))
		f.working, f.tries = true, 0
		d.tellStuck(f)
		d.later(f, min(max(time.Until(time.UnixMilli(r.Reply.UntilMs)), time.Second), workingMax))
	}
}

// unservedSeen is for how long a process looks itself before it says that nobody takes a
// command: after a restart of everything, workers may need a while.
const unservedSeen = time.Minute

// tellUnserved says, again and again, of a command that nobody has taken it for as long
// as its contract allows. It goes on waiting for a worker until the ledger says that it
// is over; d.mu is held.
func (d *dispatcher) tellUnserved(f *flight, fate actuators.Fate) {
	switch {
	case fate != actuators.NoWorker:
		f.alone = time.Time{}
		return
	case f.alone.IsZero():
		f.alone = time.Now()
	}
	c := f.command
	if c.UnservedNs == 0 || d.now().UnixNano() < c.UnservedNs || time.Since(f.alone) < min(time.Duration(c.UnservedAfterNs), unservedSeen) {
		return
	}
	answer := f.answer(nil, 0)
	answer.Unserved, answer.Reached = true, f.reached
	d.answered(answer)
}

// tellLate hands on that an undo is done which nobody waits for any more, because its
// owner has answered first: the core decides what that means. d.mu is held.
func (d *dispatcher) tellLate(f *flight, r actuators.Result) {
	if f.id.purpose == ledger.PurposeUndo && r.Fate == actuators.Replied && r.Reply.Status == ledger.StatusDone {
		d.answered(f.answer(&r.Reply, max(r.Took.Nanoseconds()-r.Reply.WorkNs, 0)))
	}
}

// tellStuck says once of a command that it has waited for too long; d.mu is held.
func (d *dispatcher) tellStuck(f *flight) {
	since := f.since
	if f.command.SentNs != 0 {
		since = time.Unix(0, f.command.SentNs) // by an earlier process, perhaps
	}
	if d.stuck != nil && !f.told && time.Since(since) >= d.stuckAfter {
		f.told = true
		d.stuck(f, since)
	}
}

// later tries again after a while; d.mu is held.
func (d *dispatcher) later(f *flight, wait time.Duration) {
	f.again = time.AfterFunc(wait, func() { d.try(f) })
}

// land hands an answer to the actor, nil for silence; d.mu is held.
func (d *dispatcher) land(f *flight, reply *ledger.Reply, queuedNs int64) {
	delete(d.flights, f.id.about)
	d.meter.flying(-1, -lost(f))
	d.ended(f)
	d.answered(f.answer(reply, queuedNs))
}

func (f *flight) answer(reply *ledger.Reply, queuedNs int64) executor.Answer {
	return executor.Answer{
		Plan: f.id.plan, Number: f.command.Number, Purpose: f.id.purpose, Attempt: f.id.attempt,
		Reply: reply, QueuedNs: queuedNs,
	}
}

// answered hands an answer to the actor; d.mu is held.
func (d *dispatcher) answered(answer executor.Answer) {
	d.answers = append(d.answers, answer)
	select {
	case d.wake <- struct{}{}:
	default:
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
	if f := d.flights[id.about]; f != nil && f.id == id {
		d.drop(f)
	}
}

// outdated drops what flies for an action if its call waits for no answer any more, as
// when its owner has answered.
func (d *dispatcher) outdated(a about, waits func(plan string, n uint32, purpose string, attempt uint32) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.flights[a]; f != nil && !waits(a.plan, f.command.Number, f.id.purpose, f.id.attempt) {
		d.drop(f)
	}
}

// abandon drops whatever flies for an action that nothing is asked about any
// more.
func (d *dispatcher) abandon(a about) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.flights[a]; f != nil {
		d.drop(f)
	}
}

// drop forgets a flight; d.mu is held.
func (d *dispatcher) drop(f *flight) {
	if f.again != nil {
		f.again.Stop()
	}
	delete(d.flights, f.id.about)
	d.meter.flying(-1, -lost(f))
	d.ended(f)
}

// ended says of a command that was stuck that it is no more; d.mu is held.
func (d *dispatcher) ended(f *flight) {
	if f.told && d.unstuck != nil {
		d.unstuck(f)
	}
}

// lost is 1 for a command that no worker has taken, else 0.
func lost(f *flight) int { return min(f.tries, 1) }

// waiting lists the commands that found no worker yet.
func (d *dispatcher) waiting() []executor.WaitingView {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []executor.WaitingView
	for id, f := range d.flights {
		if f.tries > 0 || f.working {
			out = append(out, executor.WaitingView{
				Working:    f.working && f.tries == 0,
				UnservedNs: f.command.UnservedNs,
				Handler:    f.command.Handler,
				Capability: f.command.Capability, Plan: id.plan, Action: id.action,
				SinceNs: f.since.UnixNano(), Tries: f.tries, Problem: f.problem,
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
		d.meter.flying(-1, -lost(f))
	}
	clear(d.flights)
	d.answers = nil
}
