package executor

import (
	"encoding/binary"
	"encoding/json"
	"iter"
	"math"

	"github.com/sagenbaum/sagenbaum/executor/memory"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Reading is a flushed state that is only read: what the fold and the decisions make of
// its rows, for those who show it. It may be used beside the actor, over any snapshot of
// the KV, and belongs to one goroutine. Rows that it returns must not be changed.
type Reading struct{ s *State }

// NewReading reads the state of tenant in kv. programs has compiled conditions; nil: it
// compiles its own.
func NewReading(
	kv rows.KV, tenant string, archive memory.Archive, programs *triggers.Cache,
) *Reading {
	s := look(kv, tenant, archive)
	s.Programs = programs
	return &Reading{s}
}

// Live reads a state that is folded into, what is not flushed included. It is for the
// goroutine of that state.
func Live(s *State) *Reading { return &Reading{s} }

// Meta returns the head of the state.
func (r *Reading) Meta() *rowspb.Meta { return r.s.meta }

// Key returns the verifier key in force, as State.Key.
func (r *Reading) Key() string { return r.s.Key() }

// Signed returns the largest checkpoint in the ledger, as State.Signed.
func (r *Reading) Signed() *rowspb.CheckpointRow { return r.s.Signed() }

// Plan returns a plan; nil: there is none of that id.
func (r *Reading) Plan(id string) *Plan { return readPlan(r.s, r.s.plan(id)) }

// PlanOf is a plan whose row was read by a scan.
func (r *Reading) PlanOf(id string, row *rowspb.PlanRow) *Plan {
	return readPlan(r.s, newPlan(r.s, id, row))
}

// Action returns an action, which must be there.
func (r *Reading) Action(id rows.Action) *Action {
	return readAction(r.s, r.s.action(id.Plan, id.N))
}

// Member returns the first lease of a node; nil: the node has none.
func (r *Reading) Member(node []byte) *Lease {
	p, a, l := r.s.member(node)
	if l == nil {
		return nil
	}
	return readLease(r.s, p, a, l)
}

// Before returns the firings that led to one, oldest first, at most CascadeDepthMax.
func (r *Reading) Before(f *rowspb.Firing) []*rowspb.Firing { return r.s.before(f) }

// Cascaded counts the leases that fired at a depth above 1 in this hour of logical time.
func (r *Reading) Cascaded() uint64 {
	if m := r.s.meta; m.TimeNs/hourNs == m.CascadeHour {
		return m.Cascaded
	}
	return 0
}

// Recall reads the value of an evicted fact from the archive. It panics with a
// *rows.StoreError where the archive does not answer.
func (r *Reading) Recall(key string, row *rowspb.FactRow) json.RawMessage {
	return r.s.memory.Recall(key, row)
}

// Watched reports whether a held lease is indexed by a fact.
func (r *Reading) Watched(key string) bool { return r.s.watched(key) }

// Evictable is a fact that may be evicted.
type Evictable struct {
	Key      string
	Row      *rowspb.FactRow
	Oversize bool // larger than the capacity
}

// Evictable lists facts in the order in which they would be evicted from a memory of so
// many bytes (0: no limit).
func (r *Reading) Evictable(capacity uint64) (list []Evictable) {
	for _, c := range r.s.memory.EvictionOrder(evictScanMax, capacity, r.s.watched) {
		list = append(list, Evictable{c.Key, c.Row, c.Oversize})
	}
	return list
}

// Plan is a plan of a Reading.
type Plan struct {
	ID  string
	Row *rowspb.PlanRow

	s *State
	p *plan
}

func readPlan(s *State, p *plan) *Plan {
	if p == nil {
		return nil
	}
	return &Plan{p.id, p.row, s, p}
}

// State is the state of the plan as people read it.
func (p *Plan) State() string { return stateName(p.Row) }

// Reason is why the plan ended or unwinds; of an opening that was refused it has the
// field.
func (p *Plan) Reason() string {
	reason := p.Row.Reason
	if !unopened(p.Row) {
		return reason
	}
	if row := rows.Refused.Find(p.s.tx, rows.At(p.Row.Opened)); row != nil {
		return clip(reason + ": " + ledger.WhyRefused(row.Reason))
	}
	return reason
}

// Owner answers for the plan: a child without an owner of its own is its parent's.
func (p *Plan) Owner() string { return p.p.owner() }

// Stops reports whether the plan can still be undone as it is: it is open, or
// its commit waits.
func (p *Plan) Stops() bool { return stops(p.Row) }

// Keeps reports whether the plan is committed and still holds its set, for its root.
func (p *Plan) Keeps() bool { return keeps(p.Row) }

// Committing reports whether the commit of the tree that the plan is part of waits.
func (p *Plan) Committing() bool { return p.p.committing() }

// InDoubt reports whether a commit waits for something in the plan, or a part of it.
func (p *Plan) InDoubt() bool { return p.p.doubtsIn() }

// Outstanding names the actions that are owed and not undone, as the record of the plan's
// end does: at most 256.
func (p *Plan) Outstanding() []string { return p.p.outstanding() }

// Orphans are the acts that were claimed by refused records and wait for the owner.
func (p *Plan) Orphans() (list []*rowspb.Orphan) {
	for _, o := range p.Row.Orphans {
		if waits(o) {
			list = append(list, o)
		}
	}
	return list
}

// Parts yields the plan and then all that are committed with it.
func (p *Plan) Parts() iter.Seq[*Plan] {
	return func(yield func(*Plan) bool) {
		if yield(p) {
			p.p.descendants(func(c *plan) bool { return !keeps(c.row) || yield(readPlan(p.s, c)) })
		}
	}
}

// NameOf is what the root of a tree calls an action of it.
func (p *Plan) NameOf(a *Action) string { return treeName(p.p, p.s.plan(a.a.id.Plan), a.a) }

// Action returns action n, 1..Row.Actions.
func (p *Plan) Action(n uint32) *Action { return readAction(p.s, p.s.action(p.ID, n)) }

// Actions yields the actions in the order of registration.
func (p *Plan) Actions() iter.Seq[*Action] {
	return func(yield func(*Action) bool) {
		for n := uint32(1); n <= p.Row.Actions && yield(p.Action(n)); n++ {
		}
	}
}

// Named returns the action of an id; nil: there is none.
func (p *Plan) Named(id string) *Action { return readAction(p.s, p.s.byName(p.ID, id)) }

// Leases are the plan's own leases.
func (p *Plan) Leases() []*Lease { return readLeases(p.s, p.p, nil, p.Row.Leases) }

// Lease finds a lease of action n by its name, with n = 0 one of the plan itself; nil:
// there is none.
func (p *Plan) Lease(n uint32, name string) *Lease {
	l, a := p.p.lease(rows.Lease{Plan: p.ID, N: n, Name: name})
	if l == nil {
		return nil
	}
	return readLease(p.s, p.p, a, l)
}

// Action is an action of a Reading.
type Action struct {
	N     uint32 // in its plan, from 1
	Fixed *rowspb.ActionStatic
	Row   *rowspb.ActionRow

	s *State
	a *action
}

func readAction(s *State, a *action) *Action {
	if a == nil {
		return nil
	}
	return &Action{a.id.N, a.fixed, a.row, s, a}
}

func (a *Action) plan() *plan { return a.s.plan(a.a.id.Plan) }

// Undo is the undo of the action as people read it: held, owed, compensated and so on. A
// whole held set is retired by its plan.
func (a *Action) Undo() string { return undoShown(a.a) }

func undoOf(p *rowspb.PlanRow, a *rowspb.ActionRow) string {
	if a.Undo == rowspb.Undo_UNDO_HELD && p.Phase == rowspb.Phase_PHASE_COMMITTED && !keeps(p) {
		return undoName(rowspb.Undo_UNDO_RETIRED)
	}
	if (stops(p) || keeps(p)) && !settled(a.Undo) && a.Undo != rowspb.Undo_UNDO_QUARANTINED {
		return undoName(rowspb.Undo_UNDO_HELD) // also while a commit asks about it
	}
	if a.Ahead != nil {
		return "ahead"
	}
	return undoName(a.Undo)
}

// Outcome is what is known of the forward: unknown, completed, failed, in_doubt.
func (a *Action) Outcome() string { return outcomeName(a.Row.Outcome) }

// Presence is what a probe found: present, absent, duplicate; empty: nothing yet.
func (a *Action) Presence() string { return presenceName(a.Row.Presence) }

// Verdict is a supervisor's last verdict: allow, block, redirect; empty: none.
func (a *Action) Verdict() string { return verdictName(a.Row.Verdict) }

// Resolution is the owner's answer, as done or lost; empty: none.
func (a *Action) Resolution() string { return resolutionName(a.Row.Resolution.GetOutcome()) }

// Key is the idempotency key of the undo.
func (a *Action) Key() string { return a.a.key() }

// Attempts is how often the undo is tried.
func (a *Action) Attempts() uint32 { return attemptsOf(a.Fixed.Compensation) }

// Call is the call that asks a question about the action; nil: its contract has none.
func (a *Action) Call(q pb.Question) *pb.Call { return callOf(a.Fixed.Compensation, q) }

// InMemory reports whether the action is undone in working memory.
func (a *Action) InMemory() bool { return inMemory(a.a) }

// Settled reports whether the action's part in the held set has ended.
func (a *Action) Settled() bool { return settled(a.Row.Undo) }

// Outstanding reports whether the action is owed and not undone.
func (a *Action) Outstanding() bool { return outstanding(a.a) }

// Unanswered reports whether a commit has to settle the action first.
func (a *Action) Unanswered() bool { return unanswered(a.a) }

// Answerable reports whether its owner may answer for the action: it is quarantined, or
// owed and not dealt with yet.
func (a *Action) Answerable() bool {
	_, refusal := a.plan().answerable(a.Fixed.Id)
	return refusal.Verdict == Effective
}

// NamedSince reports whether its owner was called because nothing named its effect, and something
// has named it since: a retry would send the undo.
func (a *Action) NamedSince() bool {
	if a.Row.Undo != rowspb.Undo_UNDO_QUARANTINED || a.Row.Note != noteNameless {
		return false
	}
	compiling(a.s)
	c := a.Fixed.Compensation
	return !a.a.nameless(c.Bindings) && !a.a.nameless(c.GetProbe().GetCall().GetBindings())
}

// LandsBy is the instant (unix ns) from which on a forward in doubt can no longer land.
func (a *Action) LandsBy() int64 { return landsBy(a.plan(), a.a) }

// Leases are the leases of the action.
func (a *Action) Leases() []*Lease { return readLeases(a.s, a.plan(), a.a, a.Row.Leases) }

// Lease is a standing condition of a Reading.
type Lease struct {
	Row *rowspb.LeaseRow

	s *State
	p *plan
	a *action // nil: a lease of the plan
}

func readLease(s *State, p *plan, a *action, l *rowspb.LeaseRow) *Lease {
	return &Lease{l, s, p, a}
}

func readLeases(s *State, p *plan, a *action, list []*rowspb.LeaseRow) (leases []*Lease) {
	for _, l := range list {
		leases = append(leases, readLease(s, p, a, l))
	}
	return leases
}

// Plan is the plan that holds the lease, for itself or for an action.
func (l *Lease) Plan() *Plan { return readPlan(l.s, l.p) }

// Action is the action that the lease is held for; nil: the plan.
func (l *Lease) Action() *Action { return readAction(l.s, l.a) }

// Condition is the CEL text of the lease.
func (l *Lease) Condition() string { return conditionOf(l.p, l.a, l.Row) }

// Cascade says what a cascade limit has made of the lease: cut, resumed or given up;
// empty: nothing.
func (l *Lease) Cascade() string { return cascadeName(l.Row.Cascade) }

// Rests reports whether the lease is not asked, as its plan and its action are now.
func (l *Lease) Rests() bool {
	return inTime(l.p, l.Row) || !isHeld(l.p, l.Row) || l.a != nil && settled(l.a.row.Undo)
}

// Turned reports whether the lease has turned true and waits to be fired.
func (l *Lease) Turned() bool {
	return turnedBy(l.p, rows.Lease{Plan: l.p.id, N: number(l.a), Name: l.Row.Name}) != nil
}

// Stopped reports whether the lease fires no more by itself: it was cut, or given up.
func (l *Lease) Stopped() bool { return stopped(l.Row) }

// Evaluate asks the condition at an instant (unix ns). The error says why it does not
// compile.
func (l *Lease) Evaluate(nowNs int64) (triggers.Result, error) {
	condition, err := compiling(l.s).Condition(l.Condition())
	if err != nil {
		return triggers.Result{}, err
	}
	return condition.Hold(scopeOf(l.p, l.a, l.Row)).Evaluate(nowNs, l.s.memory.View()), nil
}

// readingPrograms bounds what a Reading keeps compiled by itself.
const readingPrograms = 256

// compiling is s with programs of its own where the Reading was given none.
func compiling(s *State) *State {
	if s.Programs == nil {
		s.Programs = triggers.NewCache(readingPrograms)
	}
	return s
}

// askedMax bounds the entries whose time has come that one look at the status asks.
const askedMax = 256

// NextDue is the first instant (unix ns) at which time calls for a decision, as of a
// clock (unix ns), or 0. One that has come and was not true stays in the index until a
// fact changes it: it is not due. An instant in the past is of something that waits to be
// decided.
func (r *Reading) NextDue(clock int64) (next int64) {
	earlier := func(ns int64) {
		if ns != 0 && (next == 0 || ns < next) {
			next = ns
		}
	}
	future := rows.DueFrom(uint64(clock) + 1)
	asked := 0
	for k := range r.s.tx.Scan(rows.Due.Prefix(), future) {
		if asked++; asked > askedMax {
			break
		}
		earlier(r.again([]byte(k), clock))
		if next != 0 && next <= clock {
			return next
		}
	}
	if ns := r.s.due.First(string(future)); ns != math.MaxInt64 {
		earlier(ns)
	}
	return next
}

// again is when an entry whose time has come by the clock calls for a decision: now,
// later, or with 0 only when a fact changes.
func (r *Reading) again(key []byte, clock int64) int64 {
	if key[9] == rows.DueNode {
		ns := int64(binary.BigEndian.Uint64(key[1:]))
		row := r.s.nodeRow(key[10:])
		p, a, l := r.s.member(key[10:])
		if row == nil || row.WakeNs != ns || l == nil {
			return 0
		}
		return r.trueAt(p, a, l, ns, clock)
	}
	at := rows.ParseInstant(key)
	ns, kind, ref := at.Ns, at.Kind, at.Lease
	if kind != rows.DueLease {
		return r.calls(ns, kind, ref)
	}
	p := r.s.plan(ref.Plan)
	if p == nil || p.row.Fired != nil {
		return 0
	}
	l, a := p.lease(ref)
	if l == nil || l.WakeNs != ns || !isHeld(p, l) {
		return 0
	}
	again := int64(0)
	if turned := turnedBy(p, ref); turned != nil {
		if again = turned.Ns; again <= clock {
			return again
		}
	}
	if ns == wakeNow {
		ns = clock
	}
	if due := r.trueAt(p, a, l, ns, clock); due != 0 && (again == 0 || due < again) {
		again = due
	}
	return again
}

// trueAt is ns where a condition is true by the clock, and else when time alone could, or 0.
func (r *Reading) trueAt(p *plan, a *action, l *rowspb.LeaseRow, ns, clock int64) int64 {
	condition, err := compiling(r.s).Condition(conditionOf(p, a, l))
	if err != nil {
		return 0
	}
	held := condition.Hold(scopeOf(p, a, l))
	result := r.s.answerAt(held, asOf(l, clock), asOf(l, r.s.meta.TimeNs))
	if result.Truth == triggers.True {
		return ns
	}
	return result.WakeNs
}
