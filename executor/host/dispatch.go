package host

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/actuators"
	"github.com/sagenbaum/sagenbaum/executor/host/observe"
	"github.com/sagenbaum/sagenbaum/executor/host/vault"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Actuator takes a command to whoever carries it out; see actuators.NATS.
type Actuator interface {
	Send(c api.Command, done func(actuators.Result))
}

// flight is one command on its way, with its timer.
type flight struct {
	*turn.Flight
	since time.Time // of its first sending in this term
	told  bool      // that it is stuck
	again *time.Timer
}

// dispatcher sends the commands of one tenant and collects their answers, as turn.Flights
// has it. Its callbacks run on the actuator's goroutines; stop ends them.
type dispatcher struct {
	actuator Actuator
	now      func() turn.Instant
	wake     chan struct{} // buffered 1: there are answers
	// open gives what a command takes in the clear, and the single values that it
	// opened; nil: the arguments are sent as they are. It may take a while.
	open func(executor.Command) (json.RawMessage, []json.RawMessage, error)
	// stays is false from when the tenant is another host's to send for, although its loop, which
	// waits for room, has not stopped this dispatcher yet; nil: it stays.
	stays func() bool

	mu      sync.Mutex
	flights *turn.Flights
	flying  map[*turn.Flight]*flight // the same ones
	answers []executor.Answer
	stopped bool
	meter   *observe.Meter // nil: none
	// notes an answer, at an instant in unix ns; nil: nothing is remembered
	heard func(c api.Command, reply api.Reply, ns int64)

	stuckAfter time.Duration
	stuck      func(f *flight, since time.Time) // called once for a command, mu is held; may be nil
	// called when one that was stuck has an end, mu is held
	unstuck func(f *flight)
}

func newDispatcher(flights *turn.Flights, a Actuator, now func() turn.Instant,
	m *observe.Meter) *dispatcher {
	return &dispatcher{flights: flights, actuator: a, now: now, wake: make(chan struct{}, 1),
		flying: map[*turn.Flight]*flight{}, meter: m}
}

// Lock keeps the flights from everyone else.
func (d *dispatcher) Lock() { d.mu.Lock() }

// Unlock lets others have the flights.
func (d *dispatcher) Unlock() { d.mu.Unlock() }

// Send sends a command that was taken on its way, until it has an end.
func (d *dispatcher) Send(taken *turn.Flight) {
	d.mu.Lock()
	if d.stopped {
		d.mu.Unlock()
		return
	}
	f := d.fly(taken)
	d.mu.Unlock()
	d.try(f)
}

// fly follows a command that was taken on its way; d.mu is held.
func (d *dispatcher) fly(taken *turn.Flight) *flight {
	f := &flight{Flight: taken, since: time.Now()}
	d.flying[taken] = f
	d.meter.Flying(1, 0)
	return f
}

// try sends a copy of the command, if it may leave.
func (d *dispatcher) try(f *flight) {
	if !d.mayBeSent(f) {
		return
	}
	actuator := d.actuator
	if f.Command.Actuator == ledger.ActuatorMemory {
		actuator = actuators.Memory{}
	}
	if d.open != nil && f.Command.Actuator != ledger.ActuatorMemory &&
		(seal.Sealed(f.Command.Arguments) || seal.Blobby(f.Command.Arguments)) {
		go d.unsealed(f, actuator) // ends with the sending, or after seconds
		return
	}
	actuator.Send(f.Command.Command, func(r actuators.Result) { d.result(f, r) })
}

// mayBeSent reports whether a copy of the command may leave now.
func (d *dispatcher) mayBeSent(f *flight) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return false
	}
	if d.stays != nil && !d.stays() {
		return false // the term has ended, and stop comes
	}
	may, verdict := d.flights.MaySend(f.Flight, d.now().EpochNs)
	d.follow(f, verdict)
	return may
}

// codeSealed is the code of a call whose sealed values cannot be opened.
const codeSealed = "sealed"

// unsealed sends a command with its sealed values in the clear. What a worker says of
// them is taken out of its answer, which is recorded.
func (d *dispatcher) unsealed(f *flight, actuator Actuator) {
	arguments, opened, err := d.open(f.Command)
	problem := ""
	if err != nil {
		problem = "what " + f.Command.Capability + " takes: " + err.Error()
	}
	code := codeOf(err, vault.Gone(err))
	switch {
	case !d.mayBeSent(f): // opening takes a while
	case err == nil:
		c := f.Command.Command
		c.Arguments, c.Opened = arguments, seal.Pointers(c.Arguments)
		actuator.Send(c, func(r actuators.Result) {
			r.Reply = seal.ScrubReply(r.Reply, opened)
			d.result(f, r)
		})
	case code != "":
		d.result(f, actuators.Result{Fate: actuators.Replied,
			Reply: api.Reply{Status: api.StatusStop, Code: code, Message: problem}})
	default:
		d.result(f, actuators.Result{Fate: actuators.Unsent, Problem: problem})
	}
}

// result handles what became of one sending.
func (d *dispatcher) result(f *flight, r actuators.Result) {
	if next := d.noted(f, r); next != nil {
		d.try(next)
	}
}

// noted is result; next is a command that may leave now, after the one that is done.
func (d *dispatcher) noted(f *flight, r actuators.Result) (next *flight) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return nil
	}
	now, before, flies := d.now(), waits(f), d.flights.Flies(f.Flight)
	if flies && r.Fate == actuators.Replied && d.heard != nil {
		d.heard(f.Command.Command, r.Reply, now.EpochNs)
	}
	verdict := d.flights.Result(f.Flight, r, now)
	if flies && !verdict.Ended {
		d.meter.Flying(0, waits(f)-before)
		if f.Tries > 0 || r.Fate == actuators.Replied {
			d.tellStuck(f)
		}
	}
	d.follow(f, verdict)
	if verdict.Next == nil {
		return nil
	}
	return d.fly(verdict.Next)
}

// follow does what follows from the result of a sending; d.mu is held.
func (d *dispatcher) follow(f *flight, v turn.Verdict) {
	if v.Ended {
		d.Drop(f.Flight)
	}
	if v.Again {
		f.again = time.AfterFunc(time.Duration(v.InNs), func() { d.try(f) })
	}
	if run := v.Run; run != nil {
		time.AfterFunc(turn.RunHoldMax, func() { d.handOver(run) })
	}
	d.hear(v.Answers)
}

// handOver takes the answers of a run that have waited long enough for those after them.
func (d *dispatcher) handOver(run *turn.Run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.stopped {
		d.hear(d.flights.HandOver(run))
	}
}

// hear has the tenant's loop take answers; d.mu is held.
func (d *dispatcher) hear(answers []executor.Answer) {
	if len(answers) == 0 {
		return
	}
	d.answers = append(d.answers, answers...)
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// tellStuck says once of a command that it has waited for too long; d.mu is held.
func (d *dispatcher) tellStuck(f *flight) {
	since := f.since
	if f.Command.SentNs != 0 {
		since = time.Unix(0, f.Command.SentNs) // by an earlier process, perhaps
	}
	if d.stuck != nil && !f.told && time.Since(since) >= d.stuckAfter {
		f.told = true
		d.stuck(f, since)
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

// Drop forgets a flight that is over; d.mu is held.
func (d *dispatcher) Drop(x *turn.Flight) {
	f := d.flying[x]
	if f.again != nil {
		f.again.Stop()
	}
	delete(d.flying, x)
	d.meter.Flying(-1, -waits(f))
	if f.told && d.unstuck != nil {
		d.unstuck(f)
	}
}

// waits is 1 for a command that no worker has taken, else 0.
func waits(f *flight) int { return min(f.Tries, 1) }

// waiting lists the commands that found no worker yet.
func (d *dispatcher) waiting() []api.Waiting {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []api.Waiting
	for _, f := range d.flying {
		if f.Tries > 0 || f.Working {
			version := ""
			if f.Other {
				version = f.Command.WorkerVersion
			}
			working, again := f.Working && f.Tries == 0, int64(0)
			if working {
				again = f.AgainNs
			}
			out = append(out, api.Waiting{
				Version:    version,
				Working:    working,
				AgainNs:    again,
				UnservedNs: f.Command.UnservedNs,
				Handler:    f.Command.Handler,
				Capability: f.Command.Capability, Plan: f.Attempt.Plan, Action: f.Attempt.Action,
				SinceNs: f.since.UnixNano(), Tries: f.Tries, Heard: f.Heard, Problem: f.Problem,
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
	for _, f := range d.flying {
		if f.again != nil {
			f.again.Stop()
		}
		d.meter.Flying(-1, -waits(f))
	}
	clear(d.flying)
	*d.flights, d.answers = turn.Flights{}, nil
}
