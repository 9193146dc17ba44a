package sim

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// checker holds the rules against what neither the fold nor the audit can see: the
// provider's ledger, what hosts send, what writers were told, and the clocks. What the
// records alone can break, package audit judges.
type checker struct {
	w          *world
	violations []Violation
	records    int
	audit      *auditor // nil: there is none

	judged  [][]executor.Result        // of the records of a message, by sequence - 1
	calls   map[turn.Attempt]callCheck // effective dispatches and questions
	came    map[turn.Attempt]bool      // a copy has come to a worker
	waiting map[string]bool            // plans whose commit waits
	asked   map[executor.About]bool    // actions that their open plan has asked about
	failed  map[executor.About]bool    // actions of which a failure was recorded
	judges  map[executor.About]bool    // actions about which someone is paged for a verdict
	acks    []acked
	counted map[string]bool // ids of records
	held    uint32          // version of the holder's fold
	heldAt  uint64          // the last sequence without a holder
	resumed map[string]bool // plan and process: it has become the plan's writer

	broken   bool // the stream has lost or changed something
	lostAt   uint64
	lostBy   Fault
	mustHalt []*host
	guard    *ledger.Halted
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
	c := &checker{
		w: w, calls: map[turn.Attempt]callCheck{}, came: map[turn.Attempt]bool{},
		judges:  map[executor.About]bool{},
		waiting: map[string]bool{}, asked: map[executor.About]bool{},
		failed:  map[executor.About]bool{},
		resumed: map[string]bool{}, counted: map[string]bool{},
	}
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
		c.w.trace = append(c.w.trace, Line{AtNs: c.w.now - epoch0, Actor: "check", Text: v.String(),
			Fault: "!" + rule})
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
		c.judged = append(c.judged, nil)
	}
	results := &c.judged[at-1]
	if index == len(*results) {
		*results = append(*results, result)
		c.judge(e, result)
		if e.Record.GetProbeAsked() != nil && result.Verdict == executor.Effective {
			c.asksFew(h, at, e.Record.Plan)
		}
		if c.audit != nil {
			c.audit.judged(c, e, result)
		}
	}
	if first := (*results)[index]; first != result {
		c.fail("I7", at, "%s says %s %q of record %d, and another host %s %q", h.name,
			verdictName(result.Verdict), result.Reason, index, verdictName(first.Verdict),
			first.Reason)
	}
	if c.audit == nil {
		return
	}
	if got, want := h.state.Meta().TimeNs, c.audit.entries[at-1][index].TimeNs; got != want {
		c.fail("I8", at, "logical time is %d, and stamps and epochs say %d", got, want)
	}
}

// judge holds one record against what the world knows, at its place in the ledger.
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
		return
	}
	at := e.Address.Sequence
	if c.w.stream.stored[at-1].unusable {
		c.fail("I17", at, "%s can never be carried out, and is effective", kind.Name)
	}
	if e.Record.GetPlanResumed() != nil { // each process of this world resumes its plan once
		process := e.Record.Plan + " " + e.Record.Writer
		if c.resumed[process] {
			c.fail("I31", at, "process %s has taken plan %s back", e.Record.Writer, e.Record.Plan)
		}
		c.resumed[process] = true
	}
	if id := e.Record.Id; id != "" && c.held == executor.FoldVersion {
		if c.counted[id] {
			c.fail("I5", at, "a copy of %s %s counts", kind.Name, id)
		}
		c.counted[id] = true
	}
	if c.held = cmp.Or(e.Record.GetTermStarted().GetFoldVersion(), c.held); c.held == 0 {
		c.heldAt = e.Address.GetSequence()
	}
	k, limit := e.Record.GetLeaseFired(), c.w.settings.cascade.OrDefault().Depth
	if k.GetDepth() > limit && !strings.Contains(k.Lease, ".") {
		c.fail("I25", at, "lease %s of plan %s fires at depth %d of %d", k.Lease, e.Record.Plan,
			k.Depth, limit)
	}
}

// asksFew: a question of an open plan finds room among the calls of it that are out (L1).
func (c *checker) asksFew(h *host, at uint64, plan string) {
	p := executor.Live(h.state).Plan(plan)
	out, most := p.Row.InFlight, p.Concurrency()
	if p.Row.Phase == rowspb.Phase_PHASE_OPEN && out > most {
		c.fail("L1", at, "open plan %s has %d calls out, and may have %d", plan, out, most)
	}
}

func (c *checker) sayJudged(e ledger.Entry, kind ledger.Kind, result executor.Result) {
	text := fmt.Sprintf("%s %s: %s", ledger.FormatAddress(e.Address), describe(e),
		verdictName(result.Verdict))
	if result.Reason != "" {
		text += ", " + result.Reason
	}
	c.w.say("ledger", "%s", text)
}

// sent sees every command that leaves a host: its record is effective, read back, and
// has the same key (I18).
func (c *checker) sent(h *host, command executor.Command) {
	c.w.mark(uint64(command.Attempt), uint64(h.n), uint64(c.w.now))
	c.w.say(h.name, "sends %s %s of %s %s, attempt %d, term %d", command.Purpose,
		command.Capability, command.Plan, command.Action, command.Attempt, command.Term)
	if c.broken {
		if c.lostBy != FaultRotten && slices.Contains(c.mustHalt, h) { // a scrub comes later
			c.fail("G1", c.lostAt, "%s sends a command after the stream came back with %s", h.name,
				c.lostBy)
		}
		return
	}
	if c.audit == nil {
		return // no one says which records count
	}
	purpose := command.Purpose
	call, known := c.calls[attemptOf(command.Plan, command.Action, purpose, command.Attempt)]
	switch {
	case !known:
		c.fail("I18", h.cursor(),
			"%s sends attempt %d of the %s of %s %s without an effective record", h.name,
			command.Attempt, purpose, command.Plan, command.Action)
	case call.sequence > h.cursor():
		c.fail("I18", call.sequence,
			"%s sends attempt %d of %s %s before it has read the record back", h.name,
			command.Attempt, command.Plan, command.Action)
	case call.key != command.Key:
		c.fail("I18", call.sequence, "%s sends key %s of %s %s, and the record has %s", h.name,
			command.Key, command.Plan, command.Action, call.key)
	case command.Term >= c.w.workers.term && c.came[attemptOf(command.Plan, command.Action, purpose,
		command.Attempt)] && command.ResendUntilNs != 0 &&
		h.clock.instant().EpochNs > command.ResendUntilNs:
		c.fail("E2", h.cursor(), "%s sends attempt %d of %s %s again, and its key may be forgotten",
			h.name, command.Attempt, command.Plan, command.Action)
	case command.Tenant != tenant:
		c.fail("I27", call.sequence, "%s sends a command of tenant %q", h.name, command.Tenant)
	case c.early(h, command):
		c.sentEarly(h, command)
	case !h.state.Outstanding(command.Plan, command.Number, purpose, command.Attempt):
		c.fail("I18", h.cursor(),
			"%s sends attempt %d of the %s of %s %s, and it waits for no answer", h.name,
			command.Attempt, purpose, command.Plan, command.Action)
	case h.state.Meta().Holder != h.name:
		c.fail("I18", h.cursor(), "%s sends a command, and the ledger names %s as the holder",
			h.name, h.state.Meta().Holder)
	case !h.holding() || command.Term != h.session.Term():
		c.fail("I18", call.sequence, "%s sends a command of term %d and holds term %d", h.name,
			command.Term, h.session.Term())
	}
}

// early reports whether a command was recorded ahead and does not count yet.
func (c *checker) early(h *host, command executor.Command) bool {
	return command.Behind != "" &&
		h.state.Expected(command.Plan, command.Number, command.Purpose, command.Attempt) &&
		!h.state.Outstanding(command.Plan, command.Number, command.Purpose, command.Attempt)
}

// sentEarly: the undo before is done, and as far as the host can know it holds the tenant.
func (c *checker) sentEarly(h *host, command executor.Command) {
	c.w.options.Seen.run("sent early")
	at := h.cursor()
	switch epoch := h.clock.instant().EpochNs; {
	case h.state.Meta().Holder != h.name || !h.holding() || command.Term != h.session.Term():
		c.fail("I18", at, "%s sends a command of term %d early, and does not hold it", h.name,
			command.Term)
	case c.w.now >= h.safeNs:
		c.fail("I26", at, "%s sends %s of %s early, and others may have its lease", h.name,
			command.Action, command.Plan)
	case c.w.stream.termAt(h.heard) > h.session.Term():
		c.fail("I26", at, "%s sends %s of %s early, and has read of term %d", h.name, command.Action,
			command.Plan, c.w.stream.termAt(h.heard))
	case epoch > command.UntilNs:
		c.fail("I21", at, "%s sends %s of %s early at %d, and may until %d", h.name, command.Action,
			command.Plan, epoch, command.UntilNs)
	}
	action := executor.Live(h.state).Plan(command.Plan).Action(command.Number)
	if n := action.Row.Blockers; n != 1 {
		c.fail("I21", at, "%s sends %s of %s early, and %d that came after it are not undone", h.name,
			command.Action, command.Plan, n)
	}
	before := c.w.workers.spec(command.Plan, command.Behind)
	if before == nil || before.mistaken || c.clocksWrong() {
		return
	}
	for _, e := range c.w.provider.forward[before.key] {
		if e.stands && !e.extra && !e.renamed {
			c.fail("I21", at, "%s sends the undo of %s of plan %s, and %s of action %s is there", h.name,
				command.Action, command.Plan, e.ref, command.Behind)
		}
	}
}

// onItsWay: after each turn, a holder has on its way what its state says: every page that no
// record has as taken and every key that none has as destroyed, and nothing else, and no command
// whose answer no one waits for.
func (c *checker) onItsWay(h *host) {
	out := h.session.Outbound()
	if out == nil {
		return
	}
	for _, f := range out.Flights.All() {
		if a := f.Attempt; !h.state.Expected(a.Plan, f.Command.Number, a.Purpose, a.Number) {
			c.fail("I18", h.cursor(), "%s has attempt %d of the %s of %s %s on its way, and it waits for "+
				"no answer", h.name, a.Number, a.Purpose, a.Plan, a.Action)
		}
	}
	pages := h.state.Unpaged()
	for _, p := range pages {
		if l := out.Pages.At(turn.KeyOf(p.Page)); l == nil || l.Page.ID != p.ID {
			c.fail("L1", h.cursor(), "%s does not send page %s about %s %s", h.name, p.Kind, p.Plan,
				p.Action)
		}
	}
	if n := out.Pages.Len(); n != len(pages) {
		c.fail("L1", h.cursor(), "%s has %d pages on their way, and %d are not taken", h.name, n,
			len(pages))
	}
	c.wanted(h, pages)
	if got, want := out.Erasures.All(), h.state.Unerased(); !slices.Equal(got, want) {
		c.fail("L1", h.cursor(), "%s destroys the keys of %v, and those of %v are to be destroyed",
			h.name, got, want)
	}
}

// wanted: of what waits for a verdict whoever is to judge is paged, and of nothing else.
func (c *checker) wanted(h *host, pages []executor.Page) {
	live := executor.Live(h.state)
	for _, p := range pages {
		if p.Kind != api.PageVerdictWanted {
			continue
		}
		c.judges[executor.About{Plan: p.Plan, Action: p.Action}] = true
		if !live.Plan(p.Plan).Action(p.Number).WaitsForVerdict() {
			c.fail("L1", h.cursor(), "%s pages for a verdict on %s %s, which waits for none", h.name,
				p.Plan, p.Action)
		}
	}
	if live.Meta().Reviews == 0 || c.broken { // what was registered without a holder is not known then
		return
	}
	answer, err := view.Live(h.state, h.kv, tenant).Reviews(api.ReviewQuery{}, c.w.now)
	if err != nil {
		c.fail("L1", h.cursor(), "%s lists nothing that waits for a verdict: %v", h.name, err)
	}
	for _, v := range answer.Reviews {
		since := live.Plan(v.Plan).Action(uint32(v.Number)).Fixed.Registered.GetSequence()
		if since > c.heldAt && !c.judges[executor.About{Plan: v.Plan, Action: v.Action}] {
			c.fail("L1", h.cursor(), "%s pages no one for a verdict on %s %s", h.name, v.Plan, v.Action)
		}
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
			c.fail("I9", h.cursor(), "%s decides %d records, and asked again %d others", h.name,
				len(records), len(again))
		}
	}
	for _, r := range records {
		if k := r.GetLeaseFired(); k != nil && in.HoldClock && k.Lease == "plan.deadline" {
			c.fail("I16", h.cursor(), "%s fires the deadline of %s while its clock is held", h.name,
				r.Plan)
		}
		if k := r.GetLeaseFired(); k != nil && k.Lease == "plan.deadline" &&
			r.EpochNs > c.w.now+h.clock.guard.MayBeAhead() {
			c.fail("I16", h.cursor(), "%s fires the deadline of %s at %d ms, and it is %d ms",
				h.name, r.Plan, (r.EpochNs-epoch0)/millisecond, (c.w.now-epoch0)/millisecond)
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
		c.w.over = true // no one has folded it: no one can know
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
