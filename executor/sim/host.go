package sim

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// host is a process that runs the tenant's actor, turn by turn as executor/host
// does: attach, read, fold, send what became valid, decide, append. Its limits and
// pauses are those of that package.
type host struct {
	w    *world
	n    int
	name string
	kv   Store

	up      bool
	paused  bool
	cut     bool // it does not reach the stream
	halted  *ledger.Halted
	session uint64 // counts attachments and crashes: what belongs to an earlier one is dropped
	backlog []func()

	state    *executor.State
	attached uint64 // last sequence when the session began
	heard    uint64 // delivered to its reader
	wants    bool   // it has the lease
	term     uint64
	fence    uint64
	holding  bool
	pending  *pending
	misses   int
	sent     map[callID]bool

	flights map[about]*flight
	answers []executor.Answer
	letters map[pageKey]*letter
	taken   []*letter // pages that hooks have taken
	gone    []string  // plans whose keys are destroyed
	clock   clock
	wakes   uint64 // counts the arming of the wake timer
}

// pending is an append that has not been folded back yet.
type pending struct {
	commit commit
	claim  bool
	stored uint64
	delay  int64
}

const (
	retryMin      = 50 * millisecond
	retryMax      = 2 * second
	guardPoll     = second
	missesMax     = 3
	commitSizeMax = 60 << 10
	workerWaitMin = 100 * millisecond
	workerWaitMax = 5 * second
)

func newHost(w *world, n int) *host {
	h := &host{w: w, n: n, name: fmt.Sprintf("host%d", n+1)}
	if w.options.Open != nil {
		h.kv = w.options.Open()
	} else {
		h.kv = newMemory(w.faults&Of(FaultPowerCut, FaultCrash, FaultArchive) != 0)
	}
	h.clock = clock{w: w}
	if w.faults.Has(FaultRivals) { // no two agree on the time
		h.clock.offset = int64(n) * 2 * second
	}
	return h
}

// run lets f happen in the host's session: not if that has ended, later if the host
// stands still.
func (h *host) run(session uint64, f func()) {
	if !h.up || h.session != session {
		return
	}
	if h.paused {
		h.backlog = append(h.backlog, func() { h.run(session, f) })
		return
	}
	defer h.survive()
	f()
}

// in lets f happen in d ns, in this session.
func (h *host) in(d int64, f func()) {
	session := h.session
	h.w.after(d, func() { h.run(session, f) })
}

// survive ends the session after a panic of the core: one of an archive that did not
// answer is a session that starts again, any other breaks a rule.
func (h *host) survive() {
	r := recover()
	if r == nil {
		return
	}
	broken, ok := r.(*executor.StoreError)
	var halted *ledger.Halted
	switch {
	case ok && errors.As(broken, &halted):
		h.halt(halted)
	case ok && errors.Is(broken, executor.ErrArchive):
		h.w.say(h.name, "interrupted: %v", broken)
		h.kv.Crash(0)
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
	h.session++
	h.up, h.paused, h.cut, h.halted = true, false, false, nil
	h.clock.begin()
	h.sent = map[callID]bool{}
	h.attend()
}

// interrupt ends a session; the next one begins after a pause.
func (h *host) interrupt() {
	h.session++
	h.stepDown()
	h.state = nil
	h.in(retryMin, h.attend)
}

// attend begins a session: it attaches, and reads.
func (h *host) attend() {
	defer h.survive()
	if h.cut || h.w.stream.mute {
		h.in(retryMax, h.attend)
		return
	}
	h.pending, h.misses, h.term, h.fence, h.holding = nil, 0, 0, 0, false
	h.state = executor.OpenWith(h.kv, tenant, h.w.archive, h.w.programs)
	head, err := h.w.stream.memory.Head(background)
	if err == nil {
		err = h.checkAnchor(head)
	}
	var halted *ledger.Halted
	if errors.As(err, &halted) {
		h.halt(halted)
		return
	}
	if err != nil {
		panic("sim: " + err.Error())
	}
	h.attached, h.heard = head.Last, head.Last
	h.w.say(h.name, "attached at %d of %d", h.cursor(), head.Last)
	h.turn(true)
}

// checkAnchor holds the stream against the state that was folded from it (guards G1
// and G2), as executor/host does.
func (h *host) checkAnchor(head ledger.Head) error {
	meta := h.state.Meta()
	cursor := meta.GetApplied().GetSequence()
	switch {
	case head.Deleted != 0 || head.First > 1:
		return &ledger.Halted{Guard: "G1", Sequence: head.First, Problem: fmt.Sprintf("the stream misses %d records", head.Deleted)}
	case cursor == 0:
		return nil
	case cursor > head.Last:
		return &ledger.Halted{Guard: "G2", Sequence: cursor, Problem: fmt.Sprintf("the stream ends at %d, but %d was folded", head.Last, cursor)}
	}
	m, err := h.w.stream.read(cursor)
	if err != nil {
		return err
	}
	last := m.entries[len(m.entries)-1].Address
	if last.Index != meta.Applied.Index || !bytes.Equal(last.Leaf, meta.Applied.Leaf) {
		return &ledger.Halted{Guard: "G2", Sequence: cursor, Problem: "the stream has another record where one was folded"}
	}
	return nil
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
		h.turn(true)
	}
}

// turn folds what is there, sends what became valid, decides and appends.
func (h *host) turn(read bool) {
	if h.state == nil {
		return
	}
	for read && h.cursor() < h.heard {
		if !h.foldBatch() {
			return
		}
	}
	if h.pending != nil && h.pending.stored != 0 && h.cursor() >= h.pending.stored {
		h.pending = nil
	}
	if h.pending == nil {
		h.act()
	}
	h.armWake()
}

// foldBatch folds a bounded run of messages as one turn of the store. False: the
// session has ended.
func (h *host) foldBatch() bool {
	for n := 0; n < h.w.settings.batch && h.cursor() < h.heard; n++ {
		m, err := h.w.stream.read(h.cursor() + 1)
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
			result := h.state.Apply(e)
			h.w.check.folded(h, e, result)
			if result.Verdict == executor.Effective {
				h.folded(e)
			}
		}
	}
	h.state.Flush()
	h.dies("folded, not committed")
	h.kv.Commit()
	h.dies("committed, not sent")
	commands, notices, pages := h.state.Commands(), h.state.Notices(), h.state.Pages()
	held := h.holding
	h.applyTerm()
	if held && h.holding {
		for _, c := range commands {
			h.send(c, false)
		}
		h.dies("sent, not noted")
		h.tend(pages, h.state.Erasures())
		h.w.notify(notices)
	}
	return true
}

// dies may end the process at a named place of a turn.
func (h *host) dies(where string) {
	percent := 1
	if where == "folded, not committed" || where == "committed, not sent" {
		percent = 0
		if h.w.ties.below(250) == 0 {
			percent = 100
		}
	}
	if !h.w.chance(h.w.strike, FaultCrash, percent) {
		return
	}
	h.w.point("host: " + where)
	h.w.sayFault(FaultCrash, h.name, "dies: %s", where)
	if where == "folded, not committed" {
		h.kv.Crash(0)
	}
	h.die()
	panic(death{})
}

// folded lets the host follow what the ledger says.
func (h *host) folded(e ledger.Entry) {
	of := about{e.Record.Plan, e.Record.Action}
	switch k := e.Record.Kind.(type) {
	case *pb.Record_CompensationSucceeded:
		h.forget(callID{of, ledger.PurposeUndo, k.CompensationSucceeded.Attempt})
	case *pb.Record_CompensationFailed:
		h.forget(callID{of, ledger.PurposeUndo, k.CompensationFailed.Attempt})
	case *pb.Record_ProbeAsked:
		if done := k.ProbeAsked.Done; done != nil {
			h.forget(callID{of, ledger.PurposeUndo, done.Attempt})
		}
	case *pb.Record_ProbeAnswered:
		purpose := ledger.PurposeProbe
		if k.ProbeAnswered.Question == pb.Question_QUESTION_VERIFY {
			purpose = ledger.PurposeVerify
		}
		h.forget(callID{of, purpose, k.ProbeAnswered.Attempt})
	case *pb.Record_CompensationSkipped, *pb.Record_ActionQuarantined:
		delete(h.flights, of)
	case *pb.Record_Resolved, *pb.Record_RetryRequested:
		h.ownerSaid(of)
	case *pb.Record_OwnerPaged:
		delete(h.letters, pageKey{of, k.OwnerPaged.Kind, k.OwnerPaged.Hook})
	case *pb.Record_ClockConfirmed:
		if e.Address.Sequence > h.attached {
			h.clock.confirm()
		}
	}
}

// act decides and appends, while this host holds the tenant.
func (h *host) act() {
	if !h.holding {
		h.claim()
		return
	}
	live := h.answers[:0]
	for _, a := range h.answers {
		if h.state.Awaits(a) {
			live = append(live, a)
		}
	}
	h.answers = live
	h.taken = slices.DeleteFunc(h.taken, func(l *letter) bool { return h.letters[l.key] != l })
	now, held := h.clock.epoch()
	due, waits := h.state.NextWake()
	working := h.state.HasWork() || h.state.MemoryWork(h.w.settings.memoryMax)
	if len(h.answers) == 0 && len(h.taken) == 0 && !working && !h.signs() && len(h.destroyed()) == 0 && (!waits || due > now) {
		return
	}
	in := executor.Input{
		EpochNs: now, HoldClock: held, Answers: h.answers, Paged: paged(h.taken), Destroyed: h.gone,
		Cascade: h.w.settings.cascade, MemoryMax: h.w.settings.memoryMax, SizeMax: commitSizeMax,
	}
	records := h.state.Decide(in)
	h.w.check.decided(h, in, records)
	h.answers = slices.DeleteFunc(h.answers, func(a executor.Answer) bool { return a.Unserved })
	records = append(records, h.proof()...)
	if len(records) == 0 {
		h.taken = nil // they are about what is settled by now
		return
	}
	h.dies("decided, not appended")
	h.append(records, false)
	h.dies("appended, reply not heard")
}

func (h *host) append(records []*pb.Record, claim bool) {
	data, err := ledger.EncodeCommit(records)
	if err != nil {
		panic("sim: decisions that cannot be encoded: " + err.Error())
	}
	term := ledger.Source{Tenant: tenant, Class: ledger.ClassExecutor, Term: true}
	source, fence := ledger.Source{Tenant: tenant, Class: ledger.ClassExecutor}, h.fence
	if claim {
		source, fence = term, h.state.Meta().Fence
	}
	p := &pending{claim: claim, delay: retryMin, commit: commit{from: h.name, host: h, append: ledger.Append{
		Subject: source.Subject(), ID: newID(h.w.net), Data: data, FenceSubject: term.Subject(), Fence: fence,
	}}}
	h.pending = p
	h.publish(p)
}

func (h *host) publish(p *pending) {
	session := h.session
	h.w.try(&p.commit, func(sequence uint64, err error) {
		h.run(session, func() { h.acknowledged(p, sequence, err) })
	})
}

// acknowledged handles the result of the append in flight, as executor/host does.
func (h *host) acknowledged(p *pending, sequence uint64, err error) {
	if h.pending != p {
		return
	}
	switch {
	case err == nil:
		h.misses, p.stored = 0, sequence
		h.w.check.acknowledged(&p.commit, sequence)
	case errors.Is(err, ledger.ErrConflict):
		h.w.say(h.name, "another holder has begun a term")
		h.pending = nil
		h.stepDown()
	case errors.Is(err, ledger.ErrInDoubt) && !h.cut:
		if h.misses++; h.misses >= missesMax {
			h.w.say(h.name, "the stream is mute: %d appends without a reply", h.misses)
			h.die()
			h.w.restartStream()
			return
		}
		fallthrough
	default: // in doubt, busy or no room: the same commit again
		h.in(p.delay, func() { h.publish(p) })
		p.delay = min(p.delay*2, retryMax)
	}
	h.turn(false)
}

// armWake sets the timer to the next instant that matters.
func (h *host) armWake() {
	h.wakes++
	if h.state == nil || !h.holding || h.pending != nil {
		return // the next message or reply comes by itself
	}
	wakes, wait := h.wakes, int64(0)
	now, held := h.clock.epoch()
	due, waits := h.state.NextWake()
	switch {
	case held:
		wait = guardPoll
	case waits:
		wait = max(due-now, 0)
	case h.state.HasWork():
		wait = guardPoll // held back by a stamp ahead of this clock
	default:
		return
	}
	h.in(wait, func() {
		if h.wakes == wakes {
			h.turn(false)
		}
	})
}
