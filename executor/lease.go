package executor

import (
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// The leases every plan has. There is no other way to an unwind than a lease
// that turned true (S70): failure, cancel and deadline are conditions like any
// other (S74).
//
// Their names are no tokens, so that no declared trigger can take their place.
const (
	leaseFailed    = "plan.failed"
	leaseCancelled = "plan.cancelled"
	leaseDeadline  = "plan.deadline"
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
	if text := standing(l.Name); text != "" {
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
	case leaseDeadline:
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
func (s *State) armPlan(p *plan, at *pb.Address) {
	add := func(name string) {
		p.row.Leases = append(p.row.Leases, &rowspb.LeaseRow{Name: name, ArmedNs: s.meta.TimeNs})
	}
	add(leaseFailed)
	add(leaseCancelled)
	if p.row.Declared.DeadlineNs > 0 {
		add(leaseDeadline)
	}
	for _, t := range p.row.Declared.Triggers {
		add(t.Name)
	}
	s.evaluatePlan(p, at)
}

// armAction takes out the leases that an action's registration declares.
func (s *State) armAction(p *plan, a *action, at *pb.Address) {
	if !armed(p.row) || len(a.fixed.Compensation.Triggers) == 0 {
		return
	}
	for _, t := range a.fixed.Compensation.Triggers {
		a.row.Leases = append(a.row.Leases, &rowspb.LeaseRow{Name: t.Name, ArmedNs: s.meta.TimeNs})
		if s.counts(t.Condition) {
			p.row.Counting = insert(p.row.Counting, a.id.N)
		}
	}
	s.watch(p, a)
	s.evaluateAction(p, a, at)
}

// counts reports whether a condition reads the number of its plan's actions.
func (s *State) counts(condition string) bool {
	if !strings.Contains(condition, "actions") && !strings.Contains(condition, "step") {
		return false // no name is written otherwise, so most need not be compiled
	}
	c, err := s.condition(condition)
	return err == nil && c.Reads("plan.actions", "plan.step")
}

func (s *State) watch(p *plan, a *action) {
	p.row.Watchers = insert(p.row.Watchers, a.id.N)
	s.mark(p, a)
}

// mark notes that a lease has changed.
func (s *State) mark(p *plan, a *action) {
	s.touch(p)
	if a != nil {
		s.change(a)
	}
}

// evaluatePlan looks at all leases of a plan and its actions; its status has
// changed.
func (s *State) evaluatePlan(p *plan, at *pb.Address) {
	for _, l := range p.row.Leases {
		s.evaluate(p, nil, l, at)
	}
	s.evaluateActions(p, p.row.Watchers, at)
}

func (s *State) evaluateActions(p *plan, numbers []uint32, at *pb.Address) {
	for _, n := range numbers {
		s.evaluateAction(p, s.action(p.id, n), at)
	}
}

// evaluateCounting looks at the leases that may read the number of a plan's
// actions, which has changed. The standing ones do not.
func (s *State) evaluateCounting(p *plan, at *pb.Address) {
	for _, l := range p.row.Leases {
		if standing(l.Name) == "" && s.counts(conditionOf(p, nil, l)) {
			s.evaluate(p, nil, l, at)
		}
	}
	s.evaluateActions(p, p.row.Counting, at)
}

// evaluateAction looks at the leases of one action.
func (s *State) evaluateAction(p *plan, a *action, at *pb.Address) {
	for _, l := range a.row.Leases {
		s.evaluate(p, a, l, at)
	}
}

// inTime reports whether a lease is the deadline of a plan whose commit waits: its agent
// has ended it before.
func inTime(p *plan, l *rowspb.LeaseRow) bool {
	return l.Name == leaseDeadline && p.row.Phase == rowspb.Phase_PHASE_COMMITTING
}

// live reports whether a lease waits for its condition.
func (s *State) live(p *plan, a *action, l *rowspb.LeaseRow, ref rows.Lease) bool {
	return armed(p.row) && !inTime(p, l) && !l.Fired && !l.Moot && !stopped(l) &&
		turnedBy(p, ref) == nil && (a == nil || !settled(a.row.Undo))
}

// evaluate looks at one lease whose plan, action or facts have changed, at the
// logical time of this record.
func (s *State) evaluate(p *plan, a *action, l *rowspb.LeaseRow, at *pb.Address) {
	ref := rows.Lease{Plan: p.id, Name: l.Name}
	if a != nil {
		ref.N = a.id.N
	}
	if l.Node != nil || !s.live(p, a, l, ref) {
		return // what a node reads is the same for its leases, whatever becomes of them
	}
	held := s.hold(p, a, l)
	if held == nil {
		s.mark(p, a)
		s.index(ref, l, 0, nil, true)
		return // it waits for ever; doctor warns, plan show says why
	}
	if l.WakeNs == 0 && len(l.Keys) == 0 {
		if node, shared := held.Shared(); shared && s.joinNode(ref, l, held, node[:]) {
			s.mark(p, a)
			return
		}
	}
	s.consider(p, a, l, ref, held, at)
}

// consider asks a lease and keeps its indexes true: the facts it reads, the
// instant at which time could change it.
func (s *State) consider(p *plan, a *action, l *rowspb.LeaseRow, ref rows.Lease,
	held *triggers.Held, at *pb.Address) {
	result := s.ask(held, s.meta.TimeNs)
	if result.Truth == triggers.True {
		clocked := held.ReadsClock()
		full := held.Evaluate(s.meta.TimeNs, factView{s})
		s.turn(p, ref, at, clocked, full.Readings)
		s.noteTurning(p, ref, l, full.Keys)
		s.mark(p, a)
		if clocked {
			s.index(ref, l, wakeNow, nil, false)
		} else {
			s.index(ref, l, 0, nil, false)
		}
		return
	}
	keys := held.Watched(result, s.meta.TimeNs, factView{s})
	if result.Moot {
		keys = nil
	}
	if l.Moot != result.Moot || l.WakeNs != result.WakeNs || l.Faulty != faulty(result) ||
		!slices.Equal(l.Keys, keys) {
		s.mark(p, a)
	}
	l.Moot = result.Moot
	s.index(ref, l, result.WakeNs, keys, faulty(result))
	if len(keys) > 0 {
		w, eager := newWatcher(string(ref.Append(nil)), held, l.WakeNs, l.Keys, l.Faulty)
		s.remember(w, l.Keys, eager)
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
func (s *State) turn(p *plan, ref rows.Lease, at *pb.Address, clocked bool,
	readings []triggers.Reading) {
	if p.row.Fired != nil || turnOf(p, ref) != nil {
		return
	}
	t := &rowspb.Turned{Action: ref.N, Lease: ref.Name, At: at, Ns: s.meta.TimeNs, Clocked: clocked,
		Readings: readingsOf(readings)}
	had := p.row.Turned
	if had == nil || had.Clocked && !clocked {
		p.row.Turned, t = t, had
	}
	if t != nil && len(p.row.Behind) < behindMax {
		p.row.Behind = append(p.row.Behind, t)
	}
	s.touch(p)
}

// behindMax bounds the leases that are remembered behind the first one that turned.
const behindMax = 16

// nextTurn gives up the turn that is noted, and takes the next of those behind it
// that allows and still waits: it turned true, whatever it is by now.
func (s *State) nextTurn(p *plan, allows func(*rowspb.Turned) bool) {
	p.row.Turned = nil
	for len(p.row.Behind) > 0 && p.row.Turned == nil {
		t := p.row.Behind[0]
		p.row.Behind = p.row.Behind[1:]
		if l, _ := s.lease(p, rows.Lease{Plan: p.id, N: t.Action, Name: t.Lease}); l != nil && !l.Fired &&
			!stopped(l) && allows(t) {
			p.row.Turned = t
		}
	}
	s.touch(p)
}

func anyTurn(*rowspb.Turned) bool { return true }

// turnedBy returns what is noted of this lease's turn, or nil.
func turnedBy(p *plan, ref rows.Lease) *rowspb.Turned {
	if t := p.row.Turned; t != nil && t.Action == ref.N && t.Lease == ref.Name {
		return t
	}
	return nil
}

// turnOf is turnedBy, also of a lease behind the first.
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
			s.dropDue(l.WakeNs, rows.DueLease, ref)
		}
		if wakeNs != 0 {
			s.setDue(wakeNs, rows.DueLease, ref)
		}
		l.WakeNs = wakeNs
	} else if wakeNs != 0 {
		s.rouse(rows.Due.Key(rows.Instant{Ns: wakeNs, Kind: rows.DueLease, Lease: ref}))
	}
	s.setWatches(string(ref.Append(nil)), l.Keys, keys)
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
func (s *State) disarmPlan(p *plan) {
	for _, l := range p.row.Leases {
		s.index(rows.Lease{Plan: p.id, Name: l.Name}, l, 0, nil, false)
	}
	s.uncut(p, rowspb.Cascade_CASCADE_NONE, ofPlan)
	s.touch(p)
}

// disarm gives up all leases of a plan: it committed, or its unwind began.
func (s *State) disarm(p *plan) {
	s.disarmPlan(p)
	s.dropWarnings(p)
	for _, n := range p.row.Watchers {
		a := s.action(p.id, n)
		for _, l := range a.row.Leases {
			s.index(rows.Lease{Plan: p.id, N: n, Name: l.Name}, l, 0, nil, false)
		}
		s.change(a)
	}
	s.uncut(p, rowspb.Cascade_CASCADE_NONE, anyCut)
	s.touch(p)
}

// lease finds a lease by name; a is nil for a lease of the plan.
func (s *State) lease(p *plan, ref rows.Lease) (l *rowspb.LeaseRow, a *action) {
	list := p.row.Leases
	if ref.N > p.row.Actions {
		return nil, nil
	}
	if ref.N != 0 {
		a = s.action(p.id, ref.N)
		list = a.row.Leases
	}
	for _, l := range list {
		if l.Name == ref.Name {
			return l, a
		}
	}
	return nil, nil
}
