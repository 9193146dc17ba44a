// Package executor is the pure core that decides what is undone.
//
// A tenant's State is a fold of its ledger: Apply takes one record after the
// other and is total, so that any bytes fold without a panic and what breaks a
// rule is refused or void with a reason. Decide looks at the state and an epoch
// and returns records to append; it never acts. The host (executor/host) appends
// them, reads them back, folds them, and only then sends the commands that Apply
// found valid: append, then act; valid where it lands, not where it was decided.
//
// Nothing here reads a clock, draws a random number, starts a goroutine or
// ranges over a map. The same records give the same state rows, byte for byte,
// whatever the batching, restarts or rebuilds in between (invariant I7).
package executor

import (
	"cmp"
	"encoding/binary"

	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/executor/expressions"
	"github.com/sagenbaum/sagenbaum/executor/leases"
	"github.com/sagenbaum/sagenbaum/executor/memory"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// FoldVersion names the rules of this fold. It changes when the same records
// would give another state.
const FoldVersion = 32

// cachedRowsMax bounds the decoded plans and actions that are kept between flushes, and
// cachedLargeMax the bytes of those of more than largeRow; the rest is read from the KV
// again. A decoded row takes about twice its bytes, and leaseBytes for each lease. releasedMax
// bounds the actions of a plan whose rows are not kept once it has ended.
const (
	cachedRowsMax  = 50_000
	cachedLargeMax = 8 << 20
	largeRow       = 4 << 10
	leaseBytes     = 300
	releasedMax    = 64
)

// expressionsMax bounds the compiled conditions and bindings that are kept.
const expressionsMax = 4096

// Prefixes of to-do entries.
const (
	todoPlan    = "p" // + plan: the plan needs a decision
	todoRefused = "r" // + sequence and index: a refusal to be recorded
	todoEvict   = "e" // + key: a fact that an operator wants evicted
	todoRestore = "m" // + key: one that an operator wants back in memory
)

// plan is a decoded PlanRow. row is owned by this state and may be changed.
type plan struct {
	s     *State
	id    string
	row   *rowspb.PlanRow
	dirty bool
	work  string // its entry in the to-do set
	bytes int    // that it takes, if it is large

	listed rowspb.Phase // as its entries in the lists have it; unspecified: it has none

	numbers map[string]uint32 // of its actions by id, as far as they were asked for
	all     bool              // numbers has every action: the plan was opened under this State
}

func newPlan(s *State, id string, row *rowspb.PlanRow) *plan {
	return &plan{s: s, id: id, row: row, work: todoPlan + id}
}

// action is a decoded action. fixed is shared and never changed.
type action struct {
	plan  *plan
	id    rows.Action
	fixed *rowspb.ActionStatic
	row   *rowspb.ActionRow
	dirty bool
	begun bool        // fixed was written since the last Flush
	bytes [2]int      // that fixed and row take, if they are large
	sent  *pb.Payload // what payload returns, once it was asked for and is not large
}

// State is one tenant's folded ledger over a KV. It belongs to one goroutine.
type State struct {
	tenant string
	tx     *rows.Tx // a fork's is an overlay
	base   *State   // set in a fork: reads go through to it, writes stay here
	meta   *rowspb.Meta

	plans   map[string]*plan
	actions map[rows.Action]*action
	large   int       // bytes that the large ones of them take
	fresh   []*plan   // dirty plans, in the order in which they became so
	changed []*action // dirty actions, likewise
	todo    rows.TodoSet

	room triggers.Scratch
	expressions.Compiler
	current  fold // the record that is applied
	memory   memory.Memory
	due      leases.Due
	watchers leases.Watchers
	recalled triggers.Held // of the watcher that was asked last

	commands []Command
	notices  []Notice
	pages    []Page
	closed   []Page
	landed   []About  // whose answer is waited for no more
	erasures []string // plans whose keys are to be destroyed

	out            rows.Action // of the last dispatch
	answered       uint64      // last message whose refusal is to be recorded
	refusedTo      uint64      // no later message has a record that was refused, or void
	refusedForward string      // action and message of the forward_registered that was refused last
}

// Open reads a tenant's state from kv. An empty kv is an empty ledger. archive has
// what is folded; nil is enough for a ledger without evictions.
func Open(kv rows.KV, tenant string, archive memory.Archive) *State {
	return OpenWith(kv, tenant, archive, triggers.NewCache(expressionsMax))
}

// OpenWith is Open with compiled conditions and bindings that other states of the
// same goroutine have, too: what they are compiled to depends on their text alone.
func OpenWith(kv rows.KV, tenant string, archive memory.Archive, programs *triggers.Cache) *State {
	s := look(kv, tenant, archive)
	s.Programs = programs
	from := rows.Todo.Prefix()
	for k := range kv.Scan(from, rows.After(from)) {
		s.todo.Load(string(k[1:]))
	}
	return s
}

// look reads the head only: the to-do set stays where it is, and no condition
// can be asked.
func look(kv rows.KV, tenant string, archive memory.Archive) *State {
	tx := rows.Over(kv)
	s := &State{
		tenant: tenant, tx: tx, due: leases.DueOver(tx),
		plans: map[string]*plan{}, actions: map[rows.Action]*action{},
		meta: &rowspb.Meta{FoldVersion: FoldVersion},
	}
	s.watchers = leases.WatchersOver(tx, storedLeases{s})
	if head := rows.Head.Find(s.tx, struct{}{}); head != nil {
		s.meta, s.refusedTo = head, head.Applied.GetSequence()
	}
	s.memory = memory.Over(tx, s.meta, archive)
	return s
}

// Meta returns the head of the state: cursor, clock, term, counters. It must
// not be changed.
func (s *State) Meta() *rowspb.Meta { return s.meta }

// Between sets what is called before each evaluation of a condition, and before each
// text that may have to be compiled, so that a host may give other tenants a processor
// between two of them. costly says that the next one may take milliseconds by itself.
// It must not touch the state; a panic of it leaves the state as unusable as a
// *StoreError does.
func (s *State) Between(call func(costly bool)) { s.Compiler.Between = call }

// ask answers a held condition at an instant.
func (s *State) ask(held *triggers.Held, nowNs int64) triggers.Result {
	if s.Compiler.Between != nil {
		s.Compiler.Between(held.Costly())
	}
	return held.Ask(&s.room, nowNs, s.memory.View())
}

// answerAt asks whether a lease would fire at an epoch. A firing lands at logical
// time, which a stamp may have put ahead of it: what is true at one of the two only
// does not fire.
func (s *State) answerAt(held *triggers.Held, epochNs, landing int64) triggers.Result {
	result := s.ask(held, epochNs)
	if result.Truth == triggers.True && landing > epochNs {
		return s.ask(held, landing)
	}
	return result
}

// fork returns a scratch state over s. Folding into it leaves s untouched.
func (s *State) fork() *State {
	tx := s.tx.Fork()
	f := &State{
		tenant: s.tenant, tx: tx, due: leases.DueOver(tx), base: s,
		meta: proto.CloneOf(s.meta), plans: map[string]*plan{}, actions: map[rows.Action]*action{},
		Compiler: expressions.Compiler{Programs: s.Programs, Between: s.Compiler.Between},
	}
	f.memory = s.memory.Fork(tx, f.meta)
	f.watchers = leases.WatchersOver(tx, storedLeases{f})
	return f
}

// plan returns a plan for reading and changing (call touch after a change), or
// nil when there is none of that id.
func (s *State) plan(id string) *plan {
	if p, ok := s.plans[id]; ok {
		return p
	}
	var p *plan
	if s.base != nil {
		if b := s.base.plan(id); b != nil {
			p = newPlan(s, id, rows.ClonePlan(b.row))
		}
	} else if v, ok := s.tx.Get(rows.Plans.Key(id)); ok {
		row := rows.Plans.Decode("get", v)
		p = newPlan(s, id, row)
		p.numbers, p.listed = map[string]uint32{}, row.Phase
		s.cache(&p.bytes, len(v), len(row.Leases))
	}
	if p != nil {
		s.plans[id] = p
	}
	return p
}

func (s *State) addPlan(id string, row *rowspb.PlanRow) *plan {
	p := newPlan(s, id, row)
	p.numbers, p.all = map[string]uint32{}, true
	s.plans[id] = p
	p.touch()
	return p
}

// touch marks a plan changed and keeps the to-do set true to it.
func (p *plan) touch() {
	s := p.s
	if !p.dirty {
		p.dirty = true
		s.fresh = append(s.fresh, p)
	}
	if p.hasWork() {
		s.todo.Add(p.work)
	} else {
		s.todo.Remove(p.work)
	}
}

// action returns action n of a plan. It must exist.
func (s *State) action(planID string, n uint32) *action {
	id := rows.Action{Plan: planID, N: n}
	if a, ok := s.actions[id]; ok {
		return a
	}
	a := &action{plan: s.plan(planID), id: id}
	if s.base != nil {
		b := s.base.action(planID, n)
		a.fixed, a.row, a.sent = b.fixed, rows.CloneAction(b.row), b.sent
	} else {
		var bytes [2]int
		a.fixed, bytes[0] = rows.Statics.Load(s.tx, id)
		a.row, bytes[1] = rows.Actions.Load(s.tx, id)
		s.cache(&a.bytes[0], bytes[0], 0)
		s.cache(&a.bytes[1], bytes[1], len(a.row.Leases))
	}
	s.actions[id] = a
	return a
}

// action returns action n of the plan. It must exist.
func (p *plan) action(n uint32) *action { return p.s.action(p.id, n) }

// cache counts what a decoded row of so many bytes and leases takes.
func (s *State) cache(counted *int, bytes, leases int) {
	if bytes = 2*bytes + leaseBytes*leases; bytes < largeRow {
		bytes = 0
	}
	s.large += bytes - *counted
	*counted = bytes
}

func (s *State) addAction(planID string, n uint32, fixed *rowspb.ActionStatic,
	row *rowspb.ActionRow) *action {
	p := s.plan(planID)
	a := &action{plan: p, id: rows.Action{Plan: planID, N: n}, fixed: fixed, row: row, begun: true,
		sent: noPayload}
	s.actions[a.id] = a
	if p.numbers == nil {
		p.numbers = map[string]uint32{}
	}
	p.numbers[fixed.Id] = n
	name := rows.Name{Plan: planID, Action: fixed.Id}
	rows.Numbers.Put(s.tx, name, binary.BigEndian.AppendUint32(nil, n))
	a.change()
	return a
}

// change marks an action changed.
func (a *action) change() {
	s := a.plan.s
	if !a.dirty {
		a.dirty = true
		s.changed = append(s.changed, a)
	}
}

// number returns the number of an action by its id; 0: unknown.
func (s *State) number(planID, actionName string) uint32 {
	if s.base != nil { // of a scratch fold, its plans have what it registers itself
		if p, ok := s.plans[planID]; ok {
			if n, ok := p.numbers[actionName]; ok {
				return n
			}
		}
		return s.base.number(planID, actionName)
	}
	p := s.plan(planID)
	if p == nil {
		return 0
	}
	n, ok := p.numbers[actionName]
	if ok || p.all {
		return n
	}
	v, ok := rows.Numbers.Get(s.tx, rows.Name{Plan: planID, Action: actionName})
	if !ok || len(v) != 4 {
		return 0
	}
	n = binary.BigEndian.Uint32(v)
	p.numbers[actionName] = n
	return n
}

// byName returns an action by its id, or nil.
func (s *State) byName(planID, actionName string) *action {
	if n := s.number(planID, actionName); n != 0 {
		return s.action(planID, n)
	}
	return nil
}

// payload is what the action's process has sent along; never nil, and not to be changed but in a
// copy (rows.ClonePayload).
func (a *action) payload() *pb.Payload {
	if a.sent != nil {
		return a.sent
	}
	return a.keep(cmp.Or(rows.Payloads.Find(a.plan.s.tx, a.id), noPayload))
}

func (a *action) setPayload(payload *pb.Payload) {
	rows.Payloads.Set(a.plan.s.tx, a.id, payload)
	a.keep(payload)
}

// keep has a payload at hand that is not large, and returns it.
func (a *action) keep(payload *pb.Payload) *pb.Payload {
	if a.sent = payload; payload.SizeVT() >= largeRow {
		a.sent = nil
	}
	return payload
}

var noPayload = new(pb.Payload)

// Flush writes what changed since the last Flush into the KV. State and cursor
// go together: the caller commits the KV as one batch.
func (s *State) Flush() {
	for _, p := range s.fresh {
		size := rows.Plans.Set(s.tx, p.id, p.row)
		s.cache(&p.bytes, size, len(p.row.Leases))
		p.list()
		p.dirty = false
	}
	for _, a := range s.changed {
		size := rows.Actions.Set(s.tx, a.id, a.row)
		s.cache(&a.bytes[1], size, len(a.row.Leases))
		if a.begun {
			s.cache(&a.bytes[0], rows.Statics.Set(s.tx, a.id, a.fixed), 0)
			a.list()
		}
		a.dirty, a.begun = false, false
	}
	for _, p := range s.fresh {
		s.release(p)
	}
	clear(s.fresh)
	clear(s.changed)
	s.fresh, s.changed = s.fresh[:0], s.changed[:0]
	s.memory.Flush()
	s.todo.Flush(s.tx)
	rows.Head.Set(s.tx, struct{}{}, s.meta)
	if len(s.plans)+len(s.actions) > cachedRowsMax || s.large > cachedLargeMax {
		s.plans, s.actions, s.large = map[string]*plan{}, map[rows.Action]*action{}, 0
	}
}

// release forgets the decoded rows of a plan that has ended, all at once: little comes after that,
// and is decoded then. Those of many actions go once the caches are full.
func (s *State) release(p *plan) {
	if !ledger.HasEnded(stateName(p.row)) || p.hasWork() || p.row.Actions > releasedMax {
		return
	}
	for n := uint32(1); n <= p.row.Actions; n++ {
		id := rows.Action{Plan: p.id, N: n}
		if a := s.actions[id]; a != nil {
			s.large -= a.bytes[0] + a.bytes[1]
			delete(s.actions, id)
		}
	}
	s.large -= p.bytes
	delete(s.plans, p.id)
}

// Plans are listed by what people ask for: all of them, by state, agent, capability
// and label. Each list is in order of opening, the latest first, so that a page of
// one is a scan from its key and nothing is counted.

// list keeps the entries of a plan in the lists true to its row.
func (p *plan) list() {
	was := p.listed
	if was == p.row.Phase {
		return
	}
	if p.listed = p.row.Phase; was == rowspb.Phase_PHASE_UNSPECIFIED {
		p.listIn(rows.ListAll, "")
		p.listIn(rows.ListAgent, p.row.Agent)
		for _, label := range rows.LabelsOf(p.row) {
			p.listIn(rows.ListLabel, label)
		}
	} else {
		rows.Orders.Delete(p.s.tx, p.entryIn(rows.ListState, rows.PhaseValue(was)))
	}
	p.listIn(rows.ListState, rows.PhaseValue(p.row.Phase))
}

// list lists the plan of a new action by its capability.
func (a *action) list() {
	if capability := a.fixed.Forward.GetCapability(); capability != "" {
		a.plan.listIn(rows.ListCapability, capability)
	}
}

// listIn adds the plan to one list.
func (p *plan) listIn(dimension byte, value string) {
	rows.Orders.Add(p.s.tx, p.entryIn(dimension, value))
}

// entryIn is the plan's entry in one list.
func (p *plan) entryIn(dimension byte, value string) rows.Listed {
	return rows.Listed{Dimension: dimension, Value: value, Opened: rows.At(p.row.Opened), Plan: p.id}
}
