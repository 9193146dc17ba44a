package executor

import (
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/deadlines"
	"github.com/sagenbaum/sagenbaum/executor/leases"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// The leases every plan has. There is no other way to an unwind than a lease
// that turned true: failure, cancel and deadline are conditions like any other, and
// a tool error by itself undoes nothing.
//
// Their names are no tokens, so that no declared trigger can take their place.
const (
	leaseFailed    = "plan.failed"
	leaseCancelled = "plan.cancelled"
	LeaseDeadline  = "plan.deadline"
	leaseVerdict   = "action.verdict"
	leaseUnheard   = "action.verdict.unheard"
	leaseDuplicate = "action.duplicate"
)

// wakeNow is the wake instant of a condition on the clock that turned true in
// the fold: Decide looks at it at its own, guarded clock (I16).
const wakeNow int64 = 1

// conditionOf returns a lease's CEL text: that of a standing lease, or as the plan
// (a is nil) or the action's registration declared it.
func conditionOf(p *plan, a *action, l *rowspb.LeaseRow) string {
	if text := standingOf(a, l.Name); text != "" {
		return text
	}
	declared := p.row.Declared.Triggers
	if a != nil {
		declared = a.fixed.Compensation.Triggers
	}
	for _, t := range declared {
		if t.Name == l.Name {
			return t.Condition
		}
	}
	panic("executor: a lease without a condition: " + l.Name)
}

// standing returns the condition of a lease that every plan or verdict has, or
// nothing. It says what an outsider asked for, and no cascade limit cuts it.
func standing(name string) string {
	switch name {
	case leaseFailed:
		return `plan.status == "failed"`
	case leaseCancelled:
		return `plan.status == "cancelled"`
	case LeaseDeadline:
		return `after(plan.deadline)`
	case leaseVerdict:
		// Before the boundary the forward is refused, and there is nothing to undo (S77).
		return `verdict.outcome in ["block", "redirect"] && action.outcome in ["completed", "in_doubt"]`
	case leaseUnheard:
		// Whether it crossed is not known yet; some time later it is taken to have.
		return `verdict.outcome in ["block", "redirect"] && action.outcome == "unknown" && elapsed(verdict.at, duration("30s"))`
	case leaseDuplicate:
		return `action.presence == "duplicate"`
	default:
		return ""
	}
}

// armPlan takes out the leases of a plan and looks at each once: a condition
// that already holds fires at registration.
func (p *plan) armPlan(at *pb.Address) {
	add := func(name string) {
		p.row.Leases = append(p.row.Leases, &rowspb.LeaseRow{Name: name,
			ArmedNs: p.s.meta.TimeNs, Exact: p.s.readsExactly()})
	}
	add(leaseFailed)
	add(leaseCancelled)
	if deadlines.Of(p.row) > 0 {
		add(LeaseDeadline)
	}
	for _, t := range p.row.Declared.Triggers {
		add(t.Name)
	}
	holds(p, len(p.row.Declared.Triggers))
	p.evaluatePlan(at)
}

// armAction takes out the leases that an action's registration declares.
func (a *action) armAction(at *pb.Address) {
	p := a.plan
	s := p.s
	if !armed(p.row) || len(a.fixed.Compensation.Triggers) == 0 {
		return
	}
	for _, t := range a.fixed.Compensation.Triggers {
		a.row.Leases = append(a.row.Leases, &rowspb.LeaseRow{Name: t.Name, ArmedNs: s.meta.TimeNs,
			OfAction: s.ofAction(t.Scope), Exact: s.readsExactly()})
		if s.Counts(t.Condition) {
			p.row.Counting = rows.Insert(p.row.Counting, a.id.N)
		}
		if s.Idles(t.Condition) {
			p.row.Idling = rows.Insert(p.row.Idling, a.id.N)
		}
	}
	holds(p, len(a.fixed.Compensation.Triggers))
	a.watch()
	a.evaluateAction(at)
}

// readsExactly reports whether what is read under this holder is read by the value of its numbers.
func (s *State) readsExactly() bool { return s.meta.HolderFold >= ledger.NumbersSince }

// holds counts declared conditions that a plan holds as leases, or gives up.
func holds(p *plan, count int) {
	p.row.Conditions = uint32(int(p.row.Conditions) + count)
	if armed(p.row) {
		p.s.meta.Conditions += uint64(count) // a negative one takes away
	}
}

// turnsArmed counts the conditions of a plan that has become armed, or is not any more.
func turnsArmed(p *plan, was bool) {
	switch is := armed(p.row); {
	case is && !was:
		p.s.meta.Conditions += uint64(p.row.Conditions)
	case was && !is:
		p.s.meta.Conditions -= uint64(p.row.Conditions)
	}
}

// conditions counts the leases of an action that its registration has declared.
func (a *action) conditions() (count int) {
	for _, l := range a.row.Leases {
		if standing(l.Name) == "" {
			count++
		}
	}
	return count
}

func (a *action) watch() {
	p := a.plan
	p.row.Watchers = rows.Insert(p.row.Watchers, a.id.N)
	p.mark(a)
}

func isDuplicate(l *rowspb.LeaseRow) bool { return l.Name == leaseDuplicate }

// mark notes that a lease has changed.
func (p *plan) mark(a *action) {
	p.touch()
	if a != nil {
		a.change()
	}
}

// evaluatePlan looks at all leases of a plan and its actions; its status has
// changed.
func (p *plan) evaluatePlan(at *pb.Address) {
	for _, l := range p.row.Leases {
		p.evaluate(nil, l, at)
	}
	p.evaluateActions(p.row.Watchers, at)
}

func (p *plan) evaluateActions(numbers []uint32, at *pb.Address) {
	for _, n := range numbers {
		p.action(n).evaluateAction(at)
	}
}

// evaluateReading looks at the leases of a plan that read what has changed, and at those of the
// actions of which some do. The standing ones do not.
func (p *plan) evaluateReading(reads func(string) bool, actions []uint32, at *pb.Address) {
	for _, l := range p.row.Leases {
		if standing(l.Name) == "" && reads(conditionOf(p, nil, l)) {
			p.evaluate(nil, l, at)
		}
	}
	p.evaluateActions(actions, at)
}

// evaluateAction looks at the leases of one action.
func (a *action) evaluateAction(at *pb.Address) {
	for _, l := range a.row.Leases {
		a.plan.evaluate(a, l, at)
	}
}

// inTime reports whether a lease is the deadline of a plan whose commit waits: its agent
// has ended it before.
func inTime(p *plan, l *rowspb.LeaseRow) bool {
	return l.Name == LeaseDeadline && p.row.Phase == rowspb.Phase_PHASE_COMMITTING
}

// live reports whether a lease waits for its condition; for extra effects an answer fires it. A
// child's own went with its commit.
func (p *plan) live(a *action, l *rowspb.LeaseRow, ref rows.Lease) bool {
	held := armed(p.row) && (a != nil || !givenUp(p)) || l.UntilNs > p.s.meta.TimeNs ||
		l.UntilNs != 0 && l.Cascade == rowspb.Cascade_CASCADE_RESUMED
	return held && !inTime(p, l) && !l.Fired && !l.Moot && !stopped(l) && !isDuplicate(l) &&
		turnedBy(p, ref) == nil && (a == nil || !settled(a.row.Undo))
}

// evaluate looks at one lease whose plan, action or facts have changed, at the
// logical time of this record.
func (p *plan) evaluate(a *action, l *rowspb.LeaseRow, at *pb.Address) {
	s := p.s
	ref := rows.Lease{Plan: p.id, Name: l.Name}
	if a != nil {
		ref.N = a.id.N
	}
	if l.Node != nil || !p.live(a, l, ref) {
		return // what a node reads is the same for its leases, whatever becomes of them
	}
	held := p.hold(a, l)
	if held == nil {
		p.mark(a)
		s.index(ref, l, 0, nil, true)
		return // it waits for ever; doctor warns, plan show says why
	}
	if l.WakeNs == 0 && len(l.Keys) == 0 {
		if node, shared := held.Shared(); shared && s.joinNode(ref, l, held, node[:]) {
			p.mark(a)
			return
		}
	}
	p.consider(a, l, ref, held, at)
}

// consider asks a lease and keeps its indexes true: the facts it reads, the
// instant at which time could change it.
func (p *plan) consider(a *action, l *rowspb.LeaseRow, ref rows.Lease,
	held *triggers.Held, at *pb.Address) {
	s := p.s
	result := s.ask(held, asOf(l, s.meta.TimeNs))
	if result.Truth == triggers.True {
		clocked := held.ReadsClock()
		full := held.Evaluate(asOf(l, s.meta.TimeNs), s.memory.View())
		p.turn(ref, at, clocked, full.Readings)
		p.noteTurning(ref, l, full.Keys)
		keepTurned(p, l)
		p.mark(a)
		if clocked {
			s.index(ref, l, wakeNow, nil, false)
		} else {
			s.index(ref, l, 0, nil, false)
		}
		return
	}
	keys := held.Watched(result, s.meta.TimeNs, s.memory.View())
	if result.Moot {
		keys = nil
	}
	if l.Moot != result.Moot || l.WakeNs != result.WakeNs || l.Faulty != faulty(result) ||
		!slices.Equal(l.Keys, keys) {
		p.mark(a)
	}
	l.Moot = result.Moot
	s.index(ref, l, result.WakeNs, keys, faulty(result))
	if len(keys) > 0 {
		w, eager := leases.NewWatcher(ref.ID(), held, l.WakeNs, l.Keys, l.Faulty)
		s.watchers.Remember(w, l.Keys, eager)
	}
}

// readingsMax bounds the readings of one firing, and readingMax the value of one,
// in bytes: a commit must hold them. A longer value of a fact is found at its
// sequence.
const (
	readingsMax = 16 << 10
	readingMax  = 1 << 10
)

func readingsOf(list []triggers.Reading) []*pb.Reading {
	var out []*pb.Reading
	size := 0
	for _, r := range list {
		reading := &pb.Reading{Name: r.Name, Value: r.Value, Sequence: r.Sequence}
		if len(r.Value) > readingMax {
			reading.Value = nil
		}
		if size += reading.SizeVT(); size > readingsMax {
			break
		}
		out = append(out, reading)
	}
	return out
}

// turn notes the first lease of the plan that turned true; Decide fires it. One
// on the clock may be held back, so it makes room for one that is not.
func (p *plan) turn(ref rows.Lease, at *pb.Address, clocked bool,
	readings []triggers.Reading) {
	if p.row.Fired != nil && !p.s.keepsTurns() || turnOf(p, ref) != nil {
		return
	}
	t := &rowspb.Turned{Action: ref.N, Lease: ref.Name, At: at, Ns: p.s.meta.TimeNs, Clocked: clocked,
		Readings: readingsOf(readings)}
	had := p.row.Turned
	if p.row.Fired == nil && (had == nil || had.Clocked && !clocked) {
		p.row.Turned, t = t, had
	}
	if t != nil && len(p.row.Behind) < behindMax {
		p.row.Behind = append(p.row.Behind, t)
	}
	p.touch()
}

// behindMax bounds the leases that are remembered after the first one that turned.
const behindMax = 16

// nextTurn gives up the turn that is noted, and takes the next of those after it
// that allows and still waits: it turned true, whatever it is by now.
func (p *plan) nextTurn(allows func(*rowspb.Turned) bool) {
	p.row.Turned = nil
	for len(p.row.Behind) > 0 && p.row.Turned == nil {
		t := p.row.Behind[0]
		p.row.Behind = p.row.Behind[1:]
		if l, _ := p.lease(rows.Lease{Plan: p.id, N: t.Action, Name: t.Lease}); l != nil && !l.Fired &&
			!stopped(l) && allows(t) {
			p.row.Turned = t
		}
	}
	p.touch()
}

func anyTurn(*rowspb.Turned) bool { return true }

// turnedBy returns what is noted of this lease's turn, or nil.
func turnedBy(p *plan, ref rows.Lease) *rowspb.Turned {
	if t := p.row.Turned; t != nil && t.Action == ref.N && t.Lease == ref.Name {
		return t
	}
	return nil
}

// firstTurn is turnedBy, also of a lease that turned at the same record as the first one: which
// of them is asked first is no rule, and a holder that has read less may have fired either.
func firstTurn(p *plan, ref rows.Lease) *rowspb.Turned {
	first, t := p.row.Turned, turnOf(p, ref)
	if t == nil || t == first || first != nil && t.Clocked == first.Clocked &&
		sameAddress(t.At, first.At) {
		return t
	}
	return nil
}

// turnOf is turnedBy, also of a lease after the first.
func turnOf(p *plan, ref rows.Lease) *rowspb.Turned {
	if t := turnedBy(p, ref); t != nil {
		return t
	}
	for _, t := range p.row.Behind {
		if t.Action == ref.N && t.Lease == ref.Name {
			return t
		}
	}
	return nil
}

// faulty reports whether a condition can give no answer, as things are, and might
// have fired.
func faulty(r triggers.Result) bool { return r.Err != nil && !r.Moot }

// index moves a lease to the wake instant and the facts it waits for now, and on or
// off the list of those in error.
func (s *State) index(ref rows.Lease, l *rowspb.LeaseRow, wakeNs int64, keys []string,
	faulty bool) {
	if l.Node != nil {
		s.leaveNode(ref, l)
	}
	if l.WakeNs != wakeNs {
		if l.WakeNs != 0 {
			s.due.Drop(l.WakeNs, rows.DueLease, ref)
		}
		if wakeNs != 0 {
			s.due.Set(wakeNs, rows.DueLease, ref)
		}
		l.WakeNs = wakeNs
	} else if wakeNs != 0 {
		s.due.AskAgain(rows.Due.Key(rows.Instant{Ns: wakeNs, Kind: rows.DueLease, Lease: ref}))
	}
	s.watchers.Move(ref.ID(), l.Keys, keys)
	l.Keys = keys
	if l.Faulty != faulty {
		s.setFaulty(rows.Faulty.Key(ref), faulty)
		l.Faulty = faulty
	}
}

// setFaulty puts a lease or a node on the list of those in error, which doctor warns
// of, or takes it off.
func (s *State) setFaulty(key []byte, on bool) {
	if on {
		s.tx.Set(key, nil)
		s.meta.Faulty++
		return
	}
	s.tx.Delete(key)
	s.meta.Faulty--
}

// disarmPlan gives up the leases that a plan holds for itself.
func (p *plan) disarmPlan() {
	dropLeases(p, nil, p.row.Leases)
	p.uncut(rowspb.Cascade_CASCADE_NONE, ofPlan)
	p.touch()
}

// disarm gives up all leases of a plan: it committed, or its unwind began.
func (p *plan) disarm() {
	p.disarmPlan()
	p.dropWarnings()
	for _, n := range p.row.Watchers {
		a := p.action(n)
		dropLeases(p, a, a.row.Leases)
		a.change()
	}
	p.uncut(rowspb.Cascade_CASCADE_NONE, anyCut)
	p.touch()
}

// lease finds a lease by name; a is nil for a lease of the plan.
func (p *plan) lease(ref rows.Lease) (l *rowspb.LeaseRow, a *action) {
	list := p.row.Leases
	if ref.N > p.row.Actions {
		return nil, nil
	}
	if ref.N != 0 {
		a = p.action(ref.N)
		list = a.row.Leases
	}
	for _, l := range list {
		if l.Name == ref.Name {
			return l, a
		}
	}
	return nil, nil
}
