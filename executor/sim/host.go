package sim

import (
	"errors"
	"fmt"

	"github.com/sagenbaum/sagenbaum/executor"
	facts "github.com/sagenbaum/sagenbaum/executor/memory"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// host is a process around a session of package turn, as executor/host is: it attaches,
// reads, and carries out what the machine says. It may die at any point of that.
type host struct {
	w    *world
	n    int
	name string
	kv   Store

	up         bool
	paused     bool
	cut        bool // it does not reach the stream
	halted     *ledger.Halted
	attachment uint64 // counts attachments and crashes: what belongs to an earlier one is dropped
	backlog    []func()

	state     *executor.State
	session   *turn.Session
	heard     uint64  // delivered to its reader
	wants     bool    // it has the lease
	safeNs    int64   // and is told that it has it for sure until then
	commit    *commit // the last append
	erasing   bool    // a key is being destroyed
	copy      copied  // on disk
	clock     clock
	secret    []byte // of the process, for the tokens of its commands
	governed  uint64 // revision of what it knows of the tenant
	confirmed int    // words of operators about the clock, folded since the last step
	confirms  bool   // the machine has taken the clock as right since then
	wakes     uint64 // counts the arming of the wake timer
}

func newHost(w *world, n int) *host {
	h := &host{w: w, n: n, name: fmt.Sprintf("host%d", n+1)}
	if w.options.Open != nil {
		h.kv = w.options.Open()
	} else {
		h.kv = newMemory(w.faults.Has(FaultPowerCut))
	}
	h.clock, h.copy = clock{w: w}, copied{h: h}
	if w.faults.Has(FaultRivals) { // no two agree on the time
		h.clock.offset = int64(n) * 2 * second
	}
	return h
}

// run lets f happen in the host's session: not if that has ended, later if the host
// is paused.
func (h *host) run(attachment uint64, f func()) {
	if !h.up || h.attachment != attachment {
		return
	}
	if h.paused {
		h.backlog = append(h.backlog, func() { h.run(attachment, f) })
		return
	}
	defer h.survive()
	f()
}

// in lets f happen in d ns, in this session.
func (h *host) in(d int64, f func()) {
	attachment := h.attachment
	h.w.after(d, func() { h.run(attachment, f) })
}

// survive ends the session after a panic of the core: one of an archive that did not
// answer is a session that starts again, any other breaks a rule.
func (h *host) survive() {
	r := recover()
	if r == nil {
		return
	}
	broken, ok := r.(*rows.StoreError)
	var halted *ledger.Halted
	switch {
	case ok && errors.As(broken, &halted):
		h.forget()
		h.halt(halted)
	case ok && errors.Is(broken, facts.ErrArchive):
		h.w.say(h.name, "interrupted: %v", broken)
		h.forget()
		h.interrupt()
	default:
		if _, injected := r.(death); injected {
			return
		}
		h.w.check.fail("panic", 0, "%s: %v", h.name, r)
		h.w.over = true
	}
}

// death unwinds a turn in which its host dies.
type death struct{}

// start begins the process: it attaches to the stream.
func (h *host) start() {
	h.attachment++
	h.up, h.paused, h.cut, h.halted = true, false, false, nil
	h.clock.begin()
	h.secret = fmt.Appendf(nil, "%d %s %d", h.w.options.Seed, h.name, h.attachment)
	h.attend()
}

// forget drops what was folded and not written.
func (h *host) forget() {
	h.session, h.copy.mayDie = nil, false
	h.kv.Crash(0)
}

// interrupt ends a session; the next one begins after a pause.
func (h *host) interrupt() {
	h.endSession()
	h.in(int64(turn.RetryMin), h.attend)
}

func (h *host) endSession() {
	h.attachment++
	h.erasing = false
	if h.session != nil {
		h.flush(true)
	}
	h.state, h.session = nil, nil
}

// attend begins a session: it attaches, and reads.
func (h *host) attend() {
	defer h.survive()
	if h.cut || h.w.stream.mute {
		h.in(int64(turn.RetryMax), h.attend)
		return
	}
	h.state = executor.OpenWith(h.kv, tenant, h.w.archive, h.w.programs)
	head, err := h.w.stream.memory.Head(background)
	if err == nil {
		err = h.checkAnchor(head)
	}
	if err == nil {
		err = h.copy.attach(head)
	}
	var halted *ledger.Halted
	if errors.As(err, &halted) {
		h.halt(halted)
		return
	}
	if err != nil {
		panic("sim: " + err.Error())
	}
	h.confirmed, h.confirms = 0, false
	h.w.check.attached(h)
	h.session = turn.NewSession(turn.Config{
		Tenant: tenant, Holder: h.name, Cascade: h.w.settings.cascade, MemoryMax: h.w.settings.memoryMax,
		Messages: h.w.settings.batch, Ahead: h.w.settings.ahead, Secret: h.secret,
		NewID:   func() string { return newID(h.w.net) },
		Decided: func(in executor.Input, records []*pb.Record) { h.w.check.decided(h, in, records) },
		Sent:    func() { h.dies("sent, not noted") },
	}, h.state, head.Last)
	if known := h.w.control.last; known != nil && h.w.control.r.percent(80) { // it has read so far
		h.governed = known.Revision
		h.session.Govern(known)
	} else {
		h.governed = 0
	}
	h.session.Lead(h.wants, "")
	h.heard = head.Last
	h.w.say(h.name, "attached at %d of %d", h.cursor(), head.Last)
	h.turn()
}

// checkAnchor holds the stream against the state that was folded from it (guards G1
// and G2). Nothing is ever repaired here, so that a stream begins with its first record.
func (h *host) checkAnchor(head ledger.Head) error {
	if head.First > 1 {
		return &ledger.Halted{Guard: "G1", Sequence: head.First,
			Problem: fmt.Sprintf("the stream begins with %d", head.First)}
	}
	return turn.CheckAnchor(head, h.state.Meta(), func(sequence uint64) ([]ledger.Entry, error) {
		m, err := h.w.stream.read(sequence)
		if err != nil {
			return nil, err
		}
		return m.entries, nil
	})
}

// hears schedules the delivery of a message to the host's reader.
func (h *host) hears(sequence uint64) {
	if !h.up || h.state == nil {
		return
	}
	h.in(h.w.net.between(millisecond/4, 5*millisecond), func() { h.delivered(sequence) })
}

func (h *host) delivered(sequence uint64) {
	if h.state == nil {
		return
	}
	if h.cut {
		h.in(second, func() { h.delivered(sequence) })
		return
	}
	if sequence > h.heard {
		h.heard = sequence
		h.turn()
	}
}

// turn folds what is there, and carries out what the machine says, until it has nothing
// more to say.
func (h *host) turn() {
	for more := h.state != nil; more; {
		if h.cursor() < h.heard && !h.foldBatch() {
			return
		}
		if err := h.session.Turn(shell{h}); err != nil {
			panic("sim: " + err.Error())
		}
		h.w.check.onItsWay(h)
		h.write(h.w.ties.below(8) == 0) // as where someone asks
		more = h.cursor() < h.heard
	}
}

// foldBatch folds a bounded run of messages as one turn of the store. False: the
// session has ended.
func (h *host) foldBatch() bool {
	for !h.session.Full() && h.cursor() < h.heard {
		m, err := h.w.stream.read(h.cursor() + 1)
		if err == nil {
			err = h.copy.add(m.message)
		}
		if err == nil {
			err = h.session.Begin(m.message.Sequence, len(m.message.Data))
		}
		if err != nil {
			var halted *ledger.Halted
			if errors.As(err, &halted) {
				h.halt(halted)
			} else { // the reader is ahead of a stream that has lost its tail: it breaks off
				h.interrupt()
			}
			return false
		}
		for _, e := range m.entries {
			result := h.session.Fold(e)
			if e.Record.GetClockConfirmed() != nil && result.Verdict == executor.Effective &&
				e.Address.Sequence > h.session.Attached() {
				h.confirmed++
			}
			h.w.check.folded(h, e, result)
		}
	}
	h.dies("folded, not sent")
	return true
}

// write makes what was folded durable, if it is time; where the host dies meanwhile, its
// second copy has it and its state has not.
func (h *host) write(now bool) {
	h.copy.mayDie = true
	written := h.flush(now)
	h.copy.mayDie = false
	if written {
		h.dies("committed")
	}
}

func (h *host) flush(now bool) bool {
	written, err := h.session.Write(h.clock.instant().MonoNs, now, &h.copy, h.kv)
	if err != nil {
		panic("sim: a copy that cannot be written: " + err.Error())
	}
	return written
}

// reader answers a question: of what is written, as a host does.
func (h *host) reader() *view.Reader {
	h.flush(true)
	return view.NewReaderWith(h.kv, tenant, h.w.archive, h.w.programs)
}

// inARun is where a host dies with a run half sent, of which nothing is recorded.
const inARun = "one of a run sent, the one before not recorded"

// dies may end the process at a named place of a turn.
func (h *host) dies(where string) {
	percent := 1
	if where == "folded, not committed" || where == "folded, not sent" || where == "committed" ||
		where == "sent, not noted" {
		percent = 0
		if h.w.ties.below(250) == 0 {
			percent = 100
		}
	}
	if where == inARun {
		percent = 5
	}
	if !h.w.chance(h.w.strike, FaultCrash, percent) {
		return
	}
	h.w.point("host: " + where)
	h.w.sayFault(FaultCrash, h.name, "dies: %s", where)
	h.die()
	panic(death{})
}

// acknowledged hands the result of an append to the machine.
func (h *host) acknowledged(c *commit, sequence uint64, err error) {
	switch h.session.Acknowledged(sequence, err, !h.cut, h.clock.instant().MonoNs) {
	case turn.Stored:
		h.w.check.acknowledged(c, sequence)
	case turn.Beaten:
		h.w.say(h.name, "another holder has begun a term")
	case turn.Mute:
		h.w.say(h.name, "the stream is mute: %d appends without a reply", turn.MissesMax)
		h.die()
		h.w.restartStream()
		return
	case turn.InDoubt, turn.Refused, turn.Stale:
	}
	h.turn()
}
