package turn

import (
	"maps"
	"slices"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Fate says what became of one sending of a command.
type Fate uint8

// Fates of a sending.
const (
	Replied  Fate = iota // Reply is set
	NoWorker             // no worker serves the capability: nothing happened
	Silent               // no reply in time: what was asked for may have happened
	Unsent               // it did not leave: nothing happened, and it is not known who serves it
	// Overheard: no reply in time, and only such have it as are not known as workers. What was
	// asked for may have happened all the same.
	Overheard
	// OtherVersion: only a worker of another version had it, which it refused: nothing happened.
	OtherVersion
)

// Result is what became of one sending.
type Result struct {
	Fate    Fate
	Reply   api.Reply
	Problem string        // Unsent: why; may be empty
	Took    time.Duration // from sending to the result
}

// Attempt names one attempt: of an undo, or of a question about it.
type Attempt struct {
	About
	Purpose string // as api.Command.Purpose
	Number  uint32
}

// Flight is one command on its way.
type Flight struct {
	Attempt Attempt
	Command executor.Command
	SinceNs int64  // monotonic, of its first sending in this term
	Tries   int    // sendings that found no worker, since it was last taken
	Heard   bool   // the last of them was overheard
	Other   bool   // the last of them came to a worker of another version
	Problem string // why the last one was not sent; empty: it was
	Working bool   // a worker has said so
	AgainNs int64  // when it is asked again, unix ns
	Reached bool   // a copy may have come to a worker
	out     bool   // one has left, and what became of it is not known yet
	waits   bool   // that it has no worker is being recorded: no copy leaves meanwhile
	alone   bool   // no worker takes it, as this process has seen without a break
	aloneNs int64  // since then, monotonic
	early   bool   // it was recorded ahead and does not count yet
	run     *Run   // that it is part of; nil: none
}

// Run is commands that go one behind the other. Its answers are handed over together, so that
// they share a commit.
type Run struct {
	answers []executor.Answer
	waits   bool // a call of HandOver is on its way
}

// Flights are the commands of one term on their way. A command is sent until it has an
// answer, or until the ledger says that none is waited for any more. One that was recorded
// ahead is held until the worker of the one before has said done, or until it counts.
type Flights struct {
	// MayRun reports whether a command may leave that does not count yet: whether no other host
	// can have taken the tenant over, as far as this one can know. nil: none may.
	MayRun func() bool

	flights map[About]*Flight
	held    map[About]Sending // by the action that is to be undone first
	first   map[About]About   // the key in held, by the action itself
	early   map[About]Attempt // that have landed and do not count yet
	waiting []*Flight         // that wait for what is recorded of them
}

// Verdict is what follows from the result of a sending.
type Verdict struct {
	Answers []executor.Answer // for Machine.Answer
	Ended   bool              // the flight has landed
	Again   bool              // it is sent once more, in so many ns
	InNs    int64
	// Next was held behind the flight and is to be sent now; nil: none.
	Next *Flight
	// Run is to be handed over in RunHoldMax; nil: it is not.
	Run *Run
}

// Len is how many commands are on their way.
func (f *Flights) Len() int { return len(f.flights) }

// All are the commands on their way, by plan and action.
func (f *Flights) All() []*Flight {
	all := make([]*Flight, 0, len(f.flights))
	for _, of := range slices.SortedFunc(maps.Keys(f.flights), About.Compare) {
		all = append(all, f.flights[of])
	}
	return all
}

// Take takes a command on its way, once per attempt: nil if it is already. It takes the
// place of an earlier command for the same action, which is returned too.
func (f *Flights) Take(s Sending, monoNs int64) (taken, replaced *Flight) {
	attempt := Attempt{About{Plan: s.Plan, Action: s.Action}, s.Purpose, s.Attempt}
	f.drop(attempt.About)
	if f.early[attempt.About] == attempt {
		delete(f.early, attempt.About) // its answer is on its way
		return nil, nil
	}
	replaced = f.flights[attempt.About]
	if replaced != nil && replaced.Attempt == attempt {
		replaced.early = false
		return nil, nil
	}
	return f.fly(s, monoNs), replaced
}

func (f *Flights) fly(s Sending, monoNs int64) *Flight {
	if f.flights == nil {
		f.flights = map[About]*Flight{}
	}
	attempt := Attempt{About{Plan: s.Plan, Action: s.Action}, s.Purpose, s.Attempt}
	x := &Flight{Attempt: attempt, Command: s.Command, SinceNs: monoNs, Reached: s.Resent}
	f.flights[attempt.About] = x
	return x
}

// Hold keeps a command that was recorded ahead. It is known before the one that it goes behind
// is taken, so that no answer of that one comes before it.
func (f *Flights) Hold(s Sending) {
	if f.held == nil {
		f.held, f.first = map[About]Sending{}, map[About]About{}
	}
	of, first := About{Plan: s.Plan, Action: s.Action}, About{Plan: s.Plan, Action: s.Behind}
	f.held[first], f.first[of] = s, first
}

// drop forgets what is held of an action.
func (f *Flights) drop(of About) {
	if first, held := f.first[of]; held {
		delete(f.held, first)
		delete(f.first, of)
	}
}

// Flies reports whether a flight is still waited for.
func (f *Flights) Flies(x *Flight) bool { return f.flights[x.Attempt.About] == x }

// MaySend reports whether a copy of the command may leave now. One whose provider may
// have forgotten the key under which an earlier one was carried out may not: it lands
// without an answer, and a probe finds out. By then the first copy leaves only of a host that no
// other one can have taken over from: that would have sent one of its own.
func (f *Flights) MaySend(x *Flight, epochNs int64) (may bool, v Verdict) {
	if !f.Flies(x) {
		return false, v
	}
	if x.waits {
		v.again(int64(WorkerWaitMin))
		return false, v
	}
	if x.early && !f.mayRun(x.Command, epochNs) {
		v.again(int64(WorkerWaitMin)) // by then it counts, or it was called back
		return false, v
	}
	sent, until := x.Reached || x.Command.Unsure, x.Command.ResendUntilNs
	forgotten := until != 0 && epochNs > until
	if (x.Command.Delivers || forgotten && !sent) && (f.MayRun == nil || !f.MayRun()) {
		v.again(int64(WorkerWaitMin)) // another host may hold the tenant by now, and have sent it
		return false, v
	}
	if forgotten && sent {
		f.land(x, nil, 0, &v)
		return false, v
	}
	x.out = true
	return true, v
}

// Decide returns the answers that a step may decide on, before it does: that a command has no
// worker must still be so when it is recorded. One of which a copy is on its way goes without; of
// the others none leaves until Resume.
func (f *Flights) Decide(answers []executor.Answer) []executor.Answer {
	if !slices.ContainsFunc(answers, func(a executor.Answer) bool { return a.Unserved }) {
		return answers
	}
	type named struct {
		plan    string
		n       uint32
		purpose string
		attempt uint32
	}
	flying := map[named]*Flight{}
	for _, x := range f.All() {
		flying[named{x.Attempt.Plan, x.Command.Number, x.Attempt.Purpose, x.Attempt.Number}] = x
	}
	var kept []executor.Answer
	for _, a := range answers {
		if a.Unserved {
			x := flying[named{a.Plan, a.Number, a.Purpose, a.Attempt}]
			if x == nil || x.out {
				continue
			}
			x.waits, a.Reached = true, a.Reached || x.Reached
			f.waiting = append(f.waiting, x)
		}
		kept = append(kept, a)
	}
	return kept
}

// Resume has copies leave again of what has waited for its record.
func (f *Flights) Resume() {
	for _, x := range f.waiting {
		x.waits = false
	}
	f.waiting = nil
}

// mayRun reports whether a command may leave that does not count yet.
func (f *Flights) mayRun(c executor.Command, epochNs int64) bool {
	return epochNs <= c.UntilNs && f.MayRun != nil && f.MayRun()
}

// handOver has the answers before that of a flight come first: it has none yet, or is the last
// of its run.
func (f *Flights) handOver(x *Flight, v *Verdict) {
	if x.run != nil {
		v.Answers = append(v.Answers, f.HandOver(x.run)...)
	}
}

// HandOver returns the answers of a run that wait for those after them.
func (f *Flights) HandOver(run *Run) (answers []executor.Answer) {
	answers, run.answers, run.waits = run.answers, nil, false
	return answers
}

// Result takes what became of one sending.
func (f *Flights) Result(x *Flight, r Result, now Instant) (v Verdict) {
	x.out = false
	if !f.Flies(x) {
		// An undo is done that no one waits for any more, as its owner was faster: the
		// core decides what that means.
		if x.Attempt.Purpose == ledger.PurposeUndo && r.Fate == Replied &&
			r.Reply.Status == api.StatusDone {
			v.Answers = append(v.Answers, x.answer(&r.Reply, r.Took))
		}
		return v
	}
	if r.Fate == Replied && r.Reply.Status == api.StatusFailed &&
		r.Reply.Code == api.CodeWorkerVersion && x.Command.WorkerVersion != "" {
		r = Result{Fate: OtherVersion}
	}
	x.Problem = r.Problem
	x.Heard, x.Other = r.Fate == Overheard, r.Fate == OtherVersion
	x.Reached = x.Reached || x.Heard
	if r.Fate == NoWorker || r.Fate == Unsent || x.Other || x.Heard {
		x.Tries++ // not a failure: it waits for a worker, visibly
		f.handOver(x, &v)
		x.unserved(r.Fate, now, &v)
		v.again(workerWait(r.Fate, x.Tries))
		return v
	}
	copied := x.Reached
	x.Reached, x.alone = true, false
	if r.Fate == Replied && r.Reply.Status == api.StatusDone && f.goOn(x, r, now, &v) {
		return v
	}
	switch {
	case r.Fate == Silent && x.Working:
		x.askedAgain(int64(WorkerWaitMax), now, &v)
	case r.Fate == Silent:
		f.land(x, nil, 0, &v)
	case r.Fate != Replied:
		panic("turn: unknown fate of a sending")
	case r.Reply.Status != api.StatusWorking:
		f.land(x, &r.Reply, r.Took, &v)
		v.Answers[len(v.Answers)-1].Reached = copied
	case now.MonoNs-x.SinceNs > int64(WorkingMax):
		f.land(x, nil, 0, &v) // as silent
	default: // its report comes as a record; it is asked again if that does not come
		x.Working, x.Tries = true, 0
		f.handOver(x, &v)
		until := min(r.Reply.UntilMs, ledger.InstantMax/1_000_000)*1_000_000 - now.EpochNs
		if x.early {
			until = 0 // a report that it has failed does not count before the attempt does
		}
		x.askedAgain(min(max(until, int64(WorkingMin)), int64(WorkingMax)), now, &v)
	}
	return v
}

// askedAgain has a worker that has said working be asked again, in so many ns.
func (x *Flight) askedAgain(inNs int64, now Instant, v *Verdict) {
	x.AgainNs = now.EpochNs + inNs
	v.again(inNs)
}

// workerWait is how long a command waits that has found no worker so many times, in ns. Where there
// are workers of another version, chance decides which one it comes to, so it is tried more often.
func workerWait(fate Fate, tries int) int64 {
	doubled := tries - 1
	if fate == OtherVersion {
		doubled /= otherVersionTries
	}
	return min(int64(WorkerWaitMin)<<min(doubled, 10), int64(WorkerWaitMax))
}

// goOn takes the next command of a run on its way, after one that is done. False: there is
// none, or it has to wait until it counts.
func (f *Flights) goOn(x *Flight, r Result, now Instant, v *Verdict) bool {
	next, held := f.held[x.Attempt.About]
	if !held || !f.mayRun(next.Command, now.EpochNs) {
		return false
	}
	if x.run == nil {
		x.run = new(Run)
	}
	run := x.run
	f.gone(x)
	run.answers = append(run.answers, x.answer(&r.Reply, r.Took))
	v.Ended = true
	f.drop(About{Plan: next.Plan, Action: next.Action})
	v.Next = f.fly(next, now.MonoNs)
	v.Next.early, v.Next.run = true, run
	if !run.waits {
		run.waits, v.Run = true, run
	}
	return true
}

// unserved says, again and again, of a command that no worker has taken it for as long as
// its contract allows. It goes on waiting for a worker until the ledger says that it is
// over.
func (x *Flight) unserved(fate Fate, now Instant, v *Verdict) {
	if fate == Unsent {
		x.alone = false
		return
	}
	if !x.alone {
		x.alone, x.aloneNs = true, now.MonoNs
	}
	c := x.Command
	if c.UnservedNs == 0 || now.EpochNs < c.UnservedNs ||
		now.MonoNs-x.aloneNs < min(c.UnservedAfterNs, int64(UnservedSeen)) {
		return
	}
	answer := x.answer(nil, 0)
	answer.Unserved, answer.Reached = true, x.Reached
	v.Answers = append(v.Answers, answer)
}

// Prune drops what flies for an action if its call waits for no answer any more. waits is
// State.Expected.
func (f *Flights) Prune(of About,
	waits func(plan string, n uint32, purpose string, attempt uint32) bool) (dropped *Flight) {
	delete(f.early, of)
	if first, held := f.first[of]; held {
		if s := f.held[first]; !waits(of.Plan, s.Number, s.Purpose, s.Attempt) {
			f.drop(of)
		}
	}
	x := f.flights[of]
	if x == nil || waits(of.Plan, x.Command.Number, x.Attempt.Purpose, x.Attempt.Number) {
		return nil
	}
	delete(f.flights, of)
	return x
}

// land ends a flight with an answer; a nil reply is silence.
func (f *Flights) land(x *Flight, reply *api.Reply, took time.Duration, v *Verdict) {
	f.gone(x)
	v.Ended = true
	f.handOver(x, v)
	v.Answers = append(v.Answers, x.answer(reply, took))
}

// gone takes a flight off that has an answer.
func (f *Flights) gone(x *Flight) {
	delete(f.flights, x.Attempt.About)
	if !x.early {
		return
	}
	if f.early == nil {
		f.early = map[About]Attempt{}
	}
	f.early[x.Attempt.About] = x.Attempt
}

func (v *Verdict) again(inNs int64) { v.Again, v.InNs = true, inNs }

// answer is for the core. A sending that took longer than the worker's work has waited in
// a queue for the rest.
func (x *Flight) answer(reply *api.Reply, took time.Duration) executor.Answer {
	a := executor.Answer{
		Plan: x.Attempt.Plan, Number: x.Command.Number, Purpose: x.Attempt.Purpose,
		Attempt: x.Attempt.Number, Reply: reply,
	}
	if reply != nil {
		a.QueuedNs = max(took.Nanoseconds()-reply.WorkNs, 0)
	}
	return a
}
