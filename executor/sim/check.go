package sim

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// checker holds the rules against what happens. It reads records and what the fold
// says of each, the provider's ledger, and what hosts send.
type checker struct {
	w          *world
	violations []Violation
	records    int
	audit      *auditor // nil: there is none

	judged []judgement // by sequence - 1
	timeNs int64       // logical time, told from the records alone (I8)
	term   uint64
	plans  map[string]*planCheck
	order  []*planCheck
	calls  map[turn.Attempt]*callCheck // effective dispatches and questions
	came   map[turn.Attempt]bool       // a copy has come to a worker
	wins   map[string]uint64           // by key: where its undo succeeded
	acks   []acked

	broken   bool // the stream has lost or changed something
	lostAt   uint64
	lostBy   Fault
	mustHalt []*host
	guard    *ledger.Halted
}

// judgement is what became of the records of one message.
type judgement struct {
	results []executor.Result
	times   []int64
}

type callCheck struct {
	sequence uint64
	key      string
}

type acked struct {
	sequence uint64
	id       string
	subject  string
	data     []byte
}

func newChecker(w *world) *checker {
	c := &checker{w: w, plans: map[string]*planCheck{}, calls: map[turn.Attempt]*callCheck{}, came: map[turn.Attempt]bool{}, wins: map[string]uint64{}}
	if !w.options.Unaudited {
		c.audit = newAuditor(w.programs)
	}
	return c
}

// violationsMax bounds what one run keeps; the first is what matters.
const violationsMax = 20

func (c *checker) fail(rule string, sequence uint64, format string, args ...any) {
	if len(c.violations) >= violationsMax {
		return
	}
	v := Violation{Rule: rule, Sequence: sequence, Problem: fmt.Sprintf(format, args...)}
	c.violations = append(c.violations, v)
	if c.w.options.Trace {
		c.w.trace = append(c.w.trace, Line{AtNs: c.w.now - epoch0, Actor: "check", Text: v.String(), Fault: "!" + rule})
	}
}

// stored sees a message as the stream has it.
func (c *checker) stored(m *stored) {
	c.records += len(m.entries)
	if c.audit != nil && !c.broken {
		c.audit.add(c, m)
	}
}

// acknowledged remembers what a writer was told to be stored (E1).
func (c *checker) acknowledged(m *commit, sequence uint64) {
	c.acks = append(c.acks, acked{sequence, m.append.ID, m.append.Subject, m.append.Data})
}

// folded sees what a host makes of one record: the first host's word is judged, and
// all others must say the same (I7).
func (c *checker) folded(h *host, e ledger.Entry, result executor.Result) {
	if c.broken {
		return
	}
	at, index := e.Address.Sequence, int(e.Address.Index)
	if at == uint64(len(c.judged))+1 && index == 0 {
		c.judged = append(c.judged, judgement{})
	}
	j := &c.judged[at-1]
	if index == len(j.results) {
		c.advance(e)
		j.results, j.times = append(j.results, result), append(j.times, c.timeNs)
		c.judge(e, result)
		if c.audit != nil {
			c.audit.judged(c, e, result)
		}
	}
	if first := j.results[index]; first != result {
		c.fail("I7", at, "%s says %s %q of record %d, and another host %s %q", h.name, verdictName(result.Verdict), result.Reason, index, verdictName(first.Verdict), first.Reason)
	}
	if got := h.state.Meta().TimeNs; got != j.times[index] {
		c.fail("I8", at, "logical time is %d, and stamps and epochs say %d", got, j.times[index])
	}
}

// advance keeps the logical time: the largest stamp or epoch so far.
func (c *checker) advance(e ledger.Entry) {
	c.timeNs = max(c.timeNs, e.StampNs)
	if e.Err == nil && e.Source.Class == ledger.ClassExecutor && e.Record.Term >= c.term {
		c.timeNs = max(c.timeNs, e.Record.EpochNs)
	}
}

// judge holds one record against the rules, at its place in the ledger.
func (c *checker) judge(e ledger.Entry, result executor.Result) {
	kind := ledger.Kind{}
	if e.Record != nil {
		kind = ledger.KindOf(e.Record)
	}
	c.w.mark(uint64(result.Verdict), e.Address.Sequence)
	c.w.options.Seen.record(kind.Name, result)
	if c.w.options.Trace {
		c.sayJudged(e, kind, result)
	}
	if result.Verdict != executor.Effective {
		c.openRefused(e, result)
		c.claimed(e, result)
		return
	}
	at := e.Address.Sequence
	if c.w.stream.stored[at-1].unusable {
		c.fail("I17", at, "%s can never be carried out, and is effective", kind.Name)
	}
	if e.Err != nil {
		c.fail("I4", at, "%s was no record (%v), and is effective", kind.Name, e.Err)
		return
	}
	holders := e.Source.Class == ledger.ClassExecutor && (kind.Class == ledger.ClassFact || e.Record.GetPlanErased() != nil)
	if e.Source.Class != kind.Class && !holders {
		c.fail("I4", at, "%s on a subject of class %s", kind.Name, e.Source.Class)
	}
	c.copies(e, kind)
	c.references(e, kind)
	c.terms(e)
	c.effective(e)
}

func (c *checker) sayJudged(e ledger.Entry, kind ledger.Kind, result executor.Result) {
	text := fmt.Sprintf("%s %s: %s", ledger.FormatAddress(e.Address), describe(e), verdictName(result.Verdict))
	if result.Reason != "" {
		text += ", " + result.Reason
	}
	c.w.say("ledger", "%s", text)
}

// copies: of one append at most one copy counts (I5). What an observation, a request
// or a checkpoint says again is a new one.
func (c *checker) copies(e ledger.Entry, kind ledger.Kind) {
	m := &c.w.stream.stored[e.Address.Sequence-1]
	if m.copyOf == 0 || kind.Name == "record_refused" || kind.Name == "compensation_progressed" || kind.Name == "checkpoint_signed" {
		return
	}
	first := c.judged[m.copyOf-1].results
	if int(e.Address.Index) < len(first) && first[e.Address.Index].Verdict != executor.Effective {
		return // what was refused or void before may be right now
	}
	if p := c.plans[e.Record.Plan]; e.Source.Class != ledger.ClassExecutor && p != nil && p.resumed > m.copyOf {
		return // it goes on since
	}
	switch e.Source.Class {
	case ledger.ClassAgent, ledger.ClassExecutor, ledger.ClassWorker:
		c.fail("I5", e.Address.Sequence, "%s is effective, and so was its copy at %d", kind.Name, m.copyOf)
	}
}

// references: whatever a record points back to is an earlier record (I6).
func (c *checker) references(e ledger.Entry, kind ledger.Kind) {
	for _, ref := range [...]*pb.Address{e.Record.About, e.Record.Cause} {
		if ref == nil {
			continue
		}
		at := ref.Sequence
		if at == 0 && ref.Index < e.Address.Index {
			continue // of its own commit: it has no leaf yet
		}
		switch {
		case at == 0 || at > e.Address.Sequence || at == e.Address.Sequence && ref.Index >= e.Address.Index:
			c.fail("I6", e.Address.Sequence, "%s points to %s, which is not before it", kind.Name, ledger.FormatAddress(ref))
		case int(ref.Index) >= len(c.w.stream.stored[at-1].entries) || !bytes.Equal(c.w.stream.stored[at-1].entries[ref.Index].Address.Leaf, ref.Leaf):
			c.fail("I6", e.Address.Sequence, "%s points to %s, and another record stands there", kind.Name, ledger.FormatAddress(ref))
		}
	}
}

// terms never go back, and no record of an older one counts (I26).
func (c *checker) terms(e ledger.Entry) {
	if e.Source.Class != ledger.ClassExecutor {
		return
	}
	term := e.Record.Term
	if _, ok := e.Record.Kind.(*pb.Record_TermStarted); ok {
		if term <= c.term {
			c.fail("I26", e.Address.Sequence, "term %d begins after term %d", term, c.term)
		}
		c.term = term
	} else if term != c.term {
		c.fail("I26", e.Address.Sequence, "decided in term %d, effective in term %d", term, c.term)
	}
}

// sent sees every command that leaves a host: its record is effective, read back, and
// has the same key (I18).
func (c *checker) sent(h *host, command executor.Command) {
	c.w.mark(uint64(command.Attempt), uint64(h.n), uint64(c.w.now))
	c.w.say(h.name, "sends %s %s of %s %s, attempt %d, term %d", command.Purpose, command.Capability, command.Plan, command.Action, command.Attempt, command.Term)
	if c.broken {
		if c.lostBy != FaultRotten && slices.Contains(c.mustHalt, h) { // a scrub comes later
			c.fail("G1", c.lostAt, "%s sends a command after the stream came back with %s", h.name, c.lostBy)
		}
		return
	}
	purpose := command.Purpose
	call := c.calls[attemptOf(command.Plan, command.Action, purpose, command.Attempt)]
	switch {
	case call == nil:
		c.fail("I18", h.cursor(), "%s sends attempt %d of the %s of %s %s without an effective record", h.name, command.Attempt, purpose, command.Plan, command.Action)
	case call.sequence > h.cursor():
		c.fail("I18", call.sequence, "%s sends attempt %d of %s %s before it has read the record back", h.name, command.Attempt, command.Plan, command.Action)
	case call.key != command.Key:
		c.fail("I18", call.sequence, "%s sends key %s of %s %s, and the record has %s", h.name, command.Key, command.Plan, command.Action, call.key)
	case command.Term >= c.w.workers.term && c.came[attemptOf(command.Plan, command.Action, purpose, command.Attempt)] && command.ResendUntilNs != 0 && h.clock.instant().EpochNs > command.ResendUntilNs:
		c.fail("E2", h.cursor(), "%s sends attempt %d of %s %s again, and its key may be forgotten", h.name, command.Attempt, command.Plan, command.Action)
	case command.Tenant != tenant:
		c.fail("I27", call.sequence, "%s sends a command of tenant %q", h.name, command.Tenant)
	case !h.state.Outstanding(command.Plan, command.Number, purpose, command.Attempt):
		c.fail("I18", h.cursor(), "%s sends attempt %d of the %s of %s %s, and it waits for no answer", h.name, command.Attempt, purpose, command.Plan, command.Action)
	case h.state.Meta().Holder != h.name:
		c.fail("I18", h.cursor(), "%s sends a command, and the ledger names %s as the holder", h.name, h.state.Meta().Holder)
	case !h.holding() || command.Term != h.machine.Term():
		c.fail("I18", call.sequence, "%s sends a command of term %d and holds term %d", h.name, command.Term, h.machine.Term())
	}
}

// reached notes that a command has come to a worker.
func (c *checker) reached(command api.Command) {
	c.came[attemptOf(command.Plan, command.Action, command.Purpose, command.Attempt)] = true
}

// askedTwice: of so many seeds one is asked every decision twice.
const askedTwice = 3

// decided sees every decision. Asked again it must be the same (I9); while the clock
// is held no deadline fires (I16).
func (c *checker) decided(h *host, in executor.Input, records []*pb.Record) {
	if c.w.options.Seed%askedTwice == 0 {
		again := h.state.Decide(in)
		if !slices.EqualFunc(records, again, sameRecord) {
			c.fail("I9", h.cursor(), "%s decides %d records, and asked again %d others", h.name, len(records), len(again))
		}
	}
	for _, r := range records {
		if k := r.GetLeaseFired(); k != nil && in.HoldClock && k.Lease == "plan.deadline" {
			c.fail("I16", h.cursor(), "%s fires the deadline of %s while its clock is held", h.name, r.Plan)
		}
		if k := r.GetLeaseFired(); k != nil && k.Lease == "plan.deadline" && r.EpochNs > c.w.now+h.clock.guard.MayBeAhead() {
			c.fail("I16", h.cursor(), "%s fires the deadline of %s at %d ms, and it is %d ms", h.name, r.Plan, (r.EpochNs-epoch0)/millisecond, (c.w.now-epoch0)/millisecond)
		}
	}
}

func sameRecord(a, b *pb.Record) bool {
	x, err := a.MarshalVT()
	y, err2 := b.MarshalVT()
	return err == nil && err2 == nil && bytes.Equal(x, y)
}

// tampered notes that the stream has lost or changed records from a sequence on.
// Every host that has folded one of them must find it before it sends anything; a
// gap is there for all to find.
func (c *checker) tampered(f Fault, sequence uint64) {
	c.broken, c.lostAt, c.lostBy = true, sequence, f
	for _, h := range c.w.hosts {
		folded := h.up && h.halted == nil && h.state != nil && h.cursor() >= sequence
		if f == FaultChangedRecord {
			folded = h.up && h.halted == nil && h.state != nil && h.cursor() == sequence
		}
		if f == FaultLostRecord || folded {
			c.mustHalt = append(c.mustHalt, h)
		}
	}
	if len(c.mustHalt) == 0 {
		c.w.over = true // nobody has folded it: nobody can know
	}
}

// halted notes that a guard has found it; once all that must have, the run ends.
func (c *checker) halted(h *ledger.Halted) {
	if !c.broken {
		c.fail("L4", h.Sequence, "halted, and the stream is as it was: %s", h.Error())
		c.w.over = true
		return
	}
	c.guard = h
	if c.lostBy == FaultRotten {
		return // it goes on after its restarts
	}
	for _, host := range c.mustHalt {
		if host.halted == nil && host.up {
			return
		}
	}
	c.w.over = true
}
