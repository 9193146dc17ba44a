package audit

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// tick moves logical time: the maximum of the stamps and of the epochs that holders
// of the present term, or of a later one, have written (I8).
func (b *book) tick(e ledger.Entry) {
	b.now = max(earliest(e, b.before, b.rules), e.StampNs)
	if e.Err == nil && e.Record != nil && e.Source.Class == ledger.ClassExecutor &&
		e.Record.Term >= b.term {
		b.now = max(b.now, e.Record.EpochNs)
	}
}

// earliest is the first instant of logical time that a record may have, by the one before it
// and the rules of its term. A message whose stamp is before that comes a nanosecond after the
// message before; so does a fact of the same stamp.
func earliest(e ledger.Entry, before int64, rules uint32) int64 {
	comes := e.StampNs < before || e.StampNs == before && e.Source.Class == ledger.ClassFact
	if comes && e.Address.GetIndex() == 0 && before < epochMax && rules >= ledger.LaterSince {
		return before + 1
	}
	return before
}

func (b *book) addPlan(e ledger.Entry, declared *pb.PlanOpened) *plan {
	p := &plan{
		id: e.Record.Plan, agent: e.Source.Name, opened: e.Address, openedNs: b.now, activeNs: b.now,
		declared: declared, phase: ledger.StateOpen,
		deadlineNs: dueAt(b, declared), deadlineAt: e.Address,
		writer: e.Record.Writer, opener: e.Record.Writer, proposals: map[string]*proposal{},
		lastGoes: declared.OnUndoFailure == pb.OnUndoFailure_ON_UNDO_FAILURE_HALT_UNLESS_LAST ||
			declared.OnUndoFailure == pb.OnUndoFailure_ON_UNDO_FAILURE_CONTINUE &&
				b.rules >= ledger.LastActSince,
	}
	p.input = inputOf(b, e)
	b.found(p)
	b.spent.opened("", p.phase)
	b.holdLeases(p)
	if declared.ParentPlan != "" {
		b.joinParent(e, p)
	}
	return p
}

// addAction gives a plan its next action, or the entry of a child plan.
func (p *plan) addAction(a *action) *action {
	a.n = uint32(len(p.actions) + 1)
	if a.undo == "" {
		a.undo = held
	}
	if a.outcome == "" {
		a.outcome = unheardOf
	}
	p.actions = append(p.actions, a)
	return a
}

func (b *book) page(p *plan, a *action, kind string, at *pb.Address) {
	b.pages[page{p.id, numberOf(a), kind}] = at
}

func numberOf(a *action) uint32 {
	if a == nil {
		return 0
	}
	return a.n
}

// goOn takes a plan that had ended back into its unwind: something is owed again.
func (b *book) goOn(p *plan) {
	switch p.phase {
	case ledger.StateResolved, ledger.StateCompensated, ledger.StateFailed, ledger.StateQuarantined:
		p.ended = nil
		b.setPhase(p, ledger.StateUnwinding)
	}
}

// addFailedPlan opens the plan of an opening that was refused, and fails it at once: a pair
// that follows is undone, and the plan has an end and an owner.
func (b *book) addFailedPlan(e ledger.Entry) {
	k := e.Record.GetPlanOpened()
	if k == nil || e.Source.Class != ledger.ClassAgent || b.plan(e.Record.Plan) != nil {
		return
	}
	id, writer, subject := e.Record.Plan, e.Record.Writer, e.Source.Plan
	switch {
	case id == ledger.ManyPlans, !ledger.ValidToken(id), subject != id &&
		subject != ledger.ManyPlans:
		return
	case writer != "" && !ledger.ValidToken(writer):
		return
	}
	declared := &pb.PlanOpened{SecondApprover: k.SecondApprover}
	for _, text := range []struct {
		from string
		to   *string
	}{{k.Label, &declared.Label}, {k.Owner, &declared.Owner}} {
		if len(text.from) <= ledger.TextMax && utf8.ValidString(text.from) {
			*text.to = text.from
		}
	}
	p := b.addPlan(e, declared)
	p.unopened = true
	b.wants(p, signalFailed, "its opening was refused", back{})
}

// noteVerdict keeps a supervisor's verdict on an action.
func noteVerdict(b *book, c *claim) {
	k, a := c.Record.GetVerdictGiven(), c.a
	root, to := c.reaches()
	a.verdict, a.verdictBy, a.verdictReason, a.verdictNs = k.Outcome, c.Source.Name, k.Reason, b.now
	wantVerdict(b, c.p, a)
	stopsDelivery(b, c)
	if isCommitted(b, c.p) && b.rules >= ledger.ReachesSince {
		if root != nil {
			c.undoCommitted(root, to, verdictText(a)+ofChild(root, c.p))
			return
		}
		b.lookAction(c.p, a)
		noteReads(b, c.p)
		return
	}
	if findLease(a.leases, leaseVerdict) == nil {
		a.leases = append(a.leases, &lease{name: leaseVerdict, armedNs: b.now, ofStaged: a.isStaged()},
			&lease{name: leaseUnheard, armedNs: b.now})
	}
	for _, name := range []string{leaseVerdict, leaseUnheard} {
		if l := findLease(a.leases, name); a.blocked() {
			widened := !l.single && !l.fired && c.p.turnOf(a.n, name) != nil
			l.single = undoesOne(b, k.Scope) && !widened // what turned is not narrowed
		}
	}
	b.lookAction(c.p, a)
	besidePart(b, c)
}

// wantVerdict has whoever is to judge paged about an action whose tool is not called before a
// supervisor has allowed it, or ends that page, as is known of the action now.
func wantVerdict(b *book, p *plan, a *action) {
	waits := p.phase == ledger.StateOpen && a.undo == held && a.forward.GetReview() && a.dutyOf == 0 &&
		a.verdict == pb.VerdictOutcome_VERDICT_OUTCOME_UNSPECIFIED && a.outcome == unheardOf
	switch {
	case !waits:
		delete(b.pages, page{p.id, a.n, api.PageVerdictWanted})
	case b.rules >= ledger.VerdictWantedSince:
		b.page(p, a, api.PageVerdictWanted, a.registered)
	}
}

// verdictText is the reason of what a verdict on an action undoes.
func verdictText(a *action) string {
	text := "verdict " + verdictNames[a.verdict] + " on action " + a.id + " by " + a.verdictBy
	if a.verdictReason != "" {
		text += ": " + a.verdictReason
	}
	return text
}

func ofChild(root, p *plan) string {
	if root == p {
		return ""
	}
	return " (child plan " + p.id + ")"
}

// undoesOne: what is on an action undoes that action, and not its plan.
func undoesOne(b *book, s pb.Scope) bool {
	if s == pb.Scope_SCOPE_UNSPECIFIED {
		return b.rules >= ledger.ScopedSince
	}
	return s == pb.Scope_SCOPE_ACTION
}

func asRefused(err error, to **ledger.Refused) bool { return errors.As(err, to) }

// message is a type parameter, not the type of a value: for an interface the linker would keep
// the encoder of every kind of record in the verifier.
type message[T any] interface {
	*T
	MarshalVT() ([]byte, error)
	UnmarshalVT([]byte) error
}

// same reports whether two messages have the same bytes.
func same[T any, P message[T]](a, b P) bool {
	x, err1 := a.MarshalVT()
	y, err2 := b.MarshalVT()
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

func join(code, text string) string {
	if code == "" || text == "" {
		return code + text
	}
	return code + ": " + text
}

const epochMax = math.MaxInt64 - 4*int64(ledger.BackoffMax)

// setWindow is the end of an action's undo window: by the calendar, or some time after
// it completed.
func (b *book) setWindow(p *plan, a *action) {
	closes := a.compensation.GetValidUntilNs()
	if d := a.compensation.GetValidForNs(); d > 0 && a.outcome == completed {
		if end := b.now + min(d, epochMax-b.now); closes == 0 || end < closes {
			closes = end
		}
	}
	if closes != a.closesNs { // its owner was warned of another end
		delete(b.pages, page{p.id, a.n, api.PageWindowClosing})
		a.warned = false
	}
	a.closesNs = closes
}

// dropWarnings gives up the warnings of a plan that no hook has taken: its actions are held no
// more. One that is held again is warned of again.
func (b *book) dropWarnings(p *plan) {
	for _, a := range p.actions {
		if key := (page{p.id, a.n, api.PageWindowClosing}); b.pages[key] != nil {
			delete(b.pages, key)
			a.warned = false
		}
	}
}

// What was asked of an open plan.
const (
	signalFailed    = "failed"
	signalCancelled = "cancelled"
)

// savepointsMax is how many savepoints a plan takes.
const savepointsMax = 256

type savepoint struct {
	name    string
	actions uint32
}

func (p *plan) savepoint(name string) *savepoint {
	for i := range p.savepoints {
		if p.savepoints[i].name == name {
			return &p.savepoints[i]
		}
	}
	return nil
}

func (p *plan) countOpenChildren() (count int) {
	for _, a := range p.actions {
		if a.child != nil && a.child.parent == p && !a.child.isClosed() {
			count++
		}
	}
	return count
}

// noteForward registers an action. It joins a plan that is open, and also one that
// unwinds or has unwound: a forward on its way must be undone like the others.
func noteForward(b *book, c *claim) {
	r, p, f := c.Record, c.p, c.Record.GetForwardRegistered()
	var before []uint32
	if !f.Branch {
		before = p.newest(f.Deliver != nil)
	}
	for _, id := range f.After {
		before = append(before, p.numberNamed(id))
	}
	slices.Sort(before)
	b.registersClaim(p, r, c.process())
	a := p.addAction(&action{
		id: r.Action, registered: c.Address, atNs: b.now, writer: c.process(), forward: f,
		before: slices.Compact(before), input: r.Payload.GetInput(),
	})
	if !p.holdsLeases() || b.asks(p) {
		lookReading(b, p, countNames...)
	}
	if p.phase != ledger.StateOpen {
		b.goOn(p)
		a.undo = owed
	}
	b.failsAway(p, c.begins())
}

// noteUndo is the other half of the pair (I17).
func noteUndo(b *book, c *claim) {
	p, a, k := c.p, c.a, c.Record.GetCompensationRegistered()
	a.compensation, a.image = k, c.Record.Payload.GetBefore()
	keepFacts(b, p, a)
	b.setWindow(p, a)
	askLater(b, p, a)
	wantVerdict(b, p, a)
	if p.holdsLeases() {
		why := c.adds(k.Triggers)
		b.spent.leases += uint64(len(k.Triggers))
		for _, t := range k.Triggers {
			a.leases = append(a.leases, &lease{name: t.Name, text: t.Condition, armedNs: b.now,
				single: undoesOne(b, t.Scope), exact: readsExactly(b.rules), after: t.AfterCommit})
			p.idles = p.idles || idles(t.Condition)
		}
		if len(k.Triggers) > 0 {
			b.noteAsking(p)
		}
		b.lookAction(p, a)
		b.failsAway(p, why)
	}
}

// noteOutcome keeps what became of a forward, or takes back an act that was claimed. The
// first definite outcome is kept; doubt may become known, and a completion is believed
// even after a failure, or the doubt of a process that may have called again.
func noteOutcome(b *book, c *claim) {
	if c.takesBack() {
		b.takeBack(c.p, c.Entry)
		return
	}
	b.becomes(c.Entry, c.p, c.a)
}

// becomes is the outcome of an action of the forward: the registered one, the duty for a
// doubt about it, or its copy in the plan that undoes a committed one.
func (b *book) becomes(e ledger.Entry, p *plan, a *action) {
	if mayBecome(b, p, a, e).is != kept {
		return
	}
	if !a.told && namesExtra(b, p, a, e.Record) { // the action's own effect has another name
		e.Record = &pb.Record{Plan: e.Record.Plan, Action: e.Record.Action,
			Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{}}}
	}
	defer alsoBecomes(b, e, p, a)
	if a.told {
		b.addsWord(e, p, a)
		return
	}
	now, failure, though := saidOf(b, a, e.Record)
	a.outcome, a.failure, a.outcomeNs = now, failure, b.now
	a.outcomeAt = e.Address.GetSequence()
	other, seen := completesOther(b, p, a, e.Record), namedOtherwise(b, p, a, e.Record)
	if k := e.Record.GetForwardCompleted(); k != nil && !other {
		a.returns(k, e.Record.Payload.GetOutput())
	}
	switch now {
	case completed:
		b.setWindow(p, a)
		b.completedAfterAll(e, p, a, other)
		owesBeside(b, p, a, e.Address, seen)
	case failed: // nothing to undo: what waits for another call is skipped next
		if a.undo == waiting || a.undo == dispatched && a.asking == pb.Question_QUESTION_EFFECT {
			a.dropCall()
			a.undo = owed
		}
	case inDoubt:
		if a.asking == pb.Question_QUESTION_EFFECT &&
			a.askedNs >= b.now { // it was asked before this
			a.askedNs = b.now - 1
		}
		if !though {
			b.doubtedAfterAll(e, p, a)
		}
	}
	b.reviewDoubt(p, a)
	askLater(b, p, a)
	wantVerdict(b, p, a)
	if a.doubtedAs != 0 && now != inDoubt {
		d := p.actions[a.doubtedAs-1]
		b.becomes(e, p, d)
		d.late = d.late || now == completed && !d.isSettled() // the blind undo may have undone it
	}
	b.lookAction(p, a)
	if now == failed {
		releaseOf(b, p, a)
	}
	noteReads(b, p)
}

// returns keeps what a forward has returned, and calls its effect.
func (a *action) returns(k *pb.ForwardCompleted, output []byte) {
	a.externalRef, a.lifted, a.incomplete = k.ExternalRef, k.Lifted, k.OutputIncomplete
	a.unnamed = k.ReferenceIncomplete
	if k.ExternalRef != "" {
		a.foundRef = ""
	}
	if len(output) > 0 {
		a.output = output
	}
}

func noteSavepoint(b *book, c *claim) {
	k := c.Record.GetSavepointSet()
	c.p.savepointsSet = k.Number
	c.p.savepoints = append(c.p.savepoints, savepoint{k.Name, uint32(len(c.p.actions))})
}

// noteCommit retires the whole held set of a root at once, or lets the commit wait for
// what is in doubt. A child's set stays held, for its root.
func noteCommit(b *book, c *claim) {
	p := c.p
	switch {
	case p.parent == nil && !p.accepts() && undecided(b, p) > 0:
		b.letCommitWait(c.Entry, p)
		return
	case p.parent == nil:
		p.committed = c.Address
		b.commitTree(p)
		return
	case p.turned == nil || p.turned.number == 0: // the leases of a child's actions are held on
		b.takeNextTurn(p, func(t *turn) bool { return t.number != 0 })
	}
	p.committed = c.Address
	stopAsking(b, p)
	b.releaseCuts(p, "", func(c *cut) bool { return c.number == 0 })
	b.setPhase(p, ledger.StateCommitted)
	b.lookActions(p)
}
