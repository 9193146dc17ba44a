package executor

import (
	"encoding/binary"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// cachedRowsMax bounds the decoded plans and actions that are kept between flushes, and
// cachedLargeMax the bytes of those of more than largeRow; the rest is read from the KV
// again. A decoded row takes about twice its bytes, and leaseBytes for each lease.
const (
	cachedRowsMax  = 50_000
	cachedLargeMax = 8 << 20
	largeRow       = 4 << 10
	leaseBytes     = 300
)

// What is kept in memory of what the rows have: watchedMax bounds the facts whose
// watchers are, watcherBytesMax what these take; factsMax the facts, factBytesMax what
// these take, of which a row takes about keptFactBytes beside its value; absentMax the
// keys that were asked for and have no row; viewedBytesMax the values that are kept
// decoded until the next Flush.
const (
	watchedMax      = 1 << 21
	watcherBytesMax = 1 << 30
	factsMax        = 1 << 20
	factBytesMax    = 256 << 20
	keptFactBytes   = 384
	absentMax       = 1 << 16
	viewedBytesMax  = 8 << 20
)

// expressionsMax bounds the compiled conditions and bindings that are kept.
const expressionsMax = 4096

// plan is a decoded PlanRow. row is owned by this state and may be changed.
type plan struct {
	id    string
	row   *rowspb.PlanRow
	dirty bool
	work  string // its entry in the to-do set
	bytes int    // that it takes, if it is large

	listed rowspb.Phase // as its entries in the lists have it; unspecified: it has none

	numbers map[string]uint32 // of its actions by id, as far as they were asked for
	all     bool              // numbers has every action: the plan was opened under this State
}

func newPlan(id string, row *rowspb.PlanRow) *plan {
	return &plan{id: id, row: row, work: todoPlan + id}
}

// action is a decoded action. fixed is shared and never changed.
type action struct {
	id    rows.Action
	fixed *rowspb.ActionStatic
	row   *rowspb.ActionRow
	dirty bool
	begun bool   // fixed was written since the last Flush
	bytes [2]int // that fixed and row take, if they are large
}

// State is one tenant's folded ledger over a KV. It belongs to one goroutine.
type State struct {
	tenant string
	tx     *rows.Tx // a fork's is an overlay
	// archive gives the values of evicted facts; nil where there are none
	archive Archive
	base    *State // set in a fork: reads go through to it, writes stay here
	meta    *rowspb.Meta

	plans   map[string]*plan
	actions map[rows.Action]*action
	large   int       // bytes that the large ones of them take
	fresh   []*plan   // dirty plans, in the order in which they became so
	changed []*action // dirty actions, likewise
	todo    todo

	between  func(costly bool) // of Between; nil: none
	room     triggers.Scratch
	programs *triggers.Cache
	beforeNs int64 // logical time before the record that is applied
	// the last one that unusable let pass, of a pair that comes twice
	usable      *pb.CompensationRegistered
	watchers    *rows.Recent[*watchList] // by fact; nil in a fork, which reads the rows
	recalled    triggers.Held            // of the watcher that was asked last
	facts       *rows.Recent[*keptFact]  // by key
	absent      *rows.Recent[struct{}]   // keys that were never asserted
	facted      map[string]*keptFact     // those that changed since the last Flush
	viewed      []*keptFact              // those with a view
	viewedBytes int                      // of their values
	factKeys    []string                 // of facted, in the order in which they did

	commands []Command
	notices  []Notice
	pages    []Page
	closed   []Page
	landed   []About  // whose answer is waited for no more
	erasures []string // plans whose keys are to be destroyed
	misses   []string // evicted facts that leases have read

	occurred []occurrence // what a scratch fold has asserted

	// Every due entry with a key below dueFrom was looked at, or is in snoozed.
	dueFrom   string
	answered  uint64 // last message whose refusal is to be recorded
	halfClaim string // action and message of the forward_registered that was refused last
	nextDue   int64  // instant of the first due entry at or behind dueFrom; 0: to be read, noDue: none
	snoozed   snoozeHeap
	roused    []string // keys below dueFrom that a fact or a state calls for again, ascending
}

// Open reads a tenant's state from kv. An empty kv is an empty ledger. archive has
// what is folded; nil is enough for a ledger without evictions.
func Open(kv rows.KV, tenant string, archive Archive) *State {
	return open(kv, tenant, archive, triggers.NewCache(expressionsMax))
}

// OpenWith is Open with compiled conditions and bindings that other states of the
// same goroutine have, too: what they are compiled to depends on their text alone.
func OpenWith(kv rows.KV, tenant string, archive Archive, programs *triggers.Cache) *State {
	return open(kv, tenant, archive, programs)
}

func open(kv rows.KV, tenant string, archive Archive, programs *triggers.Cache) *State {
	s := look(kv, tenant)
	s.archive, s.programs = archive, programs
	from := rows.Todo.Prefix()
	for k := range kv.Scan(from, rows.After(from)) {
		s.todo.load(string(k[1:]))
	}
	return s
}

// look reads the head only: the to-do set stays where it is, and no condition
// can be asked.
func look(kv rows.KV, tenant string) *State {
	s := &State{
		tenant: tenant, tx: rows.Over(kv),
		plans: map[string]*plan{}, actions: map[rows.Action]*action{},
		watchers: newWatchers(), facts: newFacts(), absent: rows.NewRecent[struct{}](absentMax, 0, nil),
		facted: map[string]*keptFact{},
		meta:   &rowspb.Meta{FoldVersion: FoldVersion},
	}
	if head := rows.Head.Find(s.tx, struct{}{}); head != nil {
		s.meta = head
	}
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
func (s *State) Between(call func(costly bool)) { s.between = call }

// ask answers a held condition at an instant.
func (s *State) ask(held *triggers.Held, nowNs int64) triggers.Result {
	if s.between != nil {
		s.between(held.Costly())
	}
	return held.Ask(&s.room, nowNs, factView{s})
}

// answerAt asks whether a lease would fire at an epoch. A firing lands at logical
// time, which a stamp may have put ahead of it: what is true at one of the two only
// does not fire.
func (s *State) answerAt(held *triggers.Held, epochNs int64) triggers.Result {
	result := s.ask(held, epochNs)
	if landing := s.meta.TimeNs; result.Truth == triggers.True && landing > epochNs {
		return s.ask(held, landing)
	}
	return result
}

// fork returns a scratch state over s. Folding into it leaves s untouched.
func (s *State) fork() *State {
	return &State{
		tenant: s.tenant, tx: s.tx.Fork(), archive: s.archive, base: s, meta: s.meta.CloneVT(),
		plans: map[string]*plan{}, actions: map[rows.Action]*action{},
		between: s.between, programs: s.programs, facts: newFacts(),
		absent: rows.NewRecent[struct{}](absentMax, 0, nil),
		facted: map[string]*keptFact{},
	}
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
			p = newPlan(id, rows.ClonePlan(b.row))
		}
	} else if v, ok := s.tx.Get(rows.Plans.Key(id)); ok {
		row := rows.Plans.Decode("get", v)
		p = newPlan(id, row)
		p.numbers, p.listed = map[string]uint32{}, row.Phase
		s.cache(&p.bytes, len(v), len(row.Leases))
	}
	if p != nil {
		s.plans[id] = p
	}
	return p
}

func (s *State) addPlan(id string, row *rowspb.PlanRow) *plan {
	p := newPlan(id, row)
	p.numbers, p.all = map[string]uint32{}, true
	s.plans[id] = p
	s.touch(p)
	return p
}

// touch marks a plan changed and keeps the to-do set true to it.
func (s *State) touch(p *plan) {
	if !p.dirty {
		p.dirty = true
		s.fresh = append(s.fresh, p)
	}
	if hasWork(p.row) && !s.heldByOrphans(p) {
		s.todo.add(p.work)
	} else {
		s.todo.remove(p.work)
	}
}

// action returns action n of a plan. It must exist.
func (s *State) action(planID string, n uint32) *action {
	id := rows.Action{Plan: planID, N: n}
	if a, ok := s.actions[id]; ok {
		return a
	}
	a := &action{id: id}
	if s.base != nil {
		b := s.base.action(planID, n)
		a.fixed, a.row = b.fixed, rows.CloneAction(b.row)
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
	a := &action{id: rows.Action{Plan: planID, N: n}, fixed: fixed, row: row, begun: true}
	s.actions[a.id] = a
	p := s.plan(planID)
	if p.numbers == nil {
		p.numbers = map[string]uint32{}
	}
	p.numbers[fixed.Id] = n
	name := rows.Name{Plan: planID, Action: fixed.Id}
	rows.Numbers.Put(s.tx, name, binary.BigEndian.AppendUint32(nil, n))
	s.change(a)
	return a
}

// change marks an action changed.
func (s *State) change(a *action) {
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
	n := s.number(planID, actionName)
	if n == 0 {
		return nil
	}
	return s.action(planID, n)
}

// payload is what the action's process has sent along; never nil.
func (s *State) payload(id rows.Action) *pb.Payload { return s.payloadAt(rows.Payloads.Key(id)) }

func (s *State) payloadAt(key []byte) *pb.Payload {
	if payload := rows.Payloads.FindKey(s.tx, key); payload != nil {
		return payload
	}
	return new(pb.Payload)
}

// Flush writes what changed since the last Flush into the KV. State and cursor
// go together: the caller commits the KV as one batch.
func (s *State) Flush() {
	for _, p := range s.fresh {
		size := rows.Plans.Set(s.tx, p.id, p.row)
		s.cache(&p.bytes, size, len(p.row.Leases))
		s.list(p)
		p.dirty = false
	}
	for _, a := range s.changed {
		size := rows.Actions.Set(s.tx, a.id, a.row)
		s.cache(&a.bytes[1], size, len(a.row.Leases))
		if a.begun {
			s.cache(&a.bytes[0], rows.Statics.Set(s.tx, a.id, a.fixed), 0)
			s.listAction(a)
		}
		a.dirty, a.begun = false, false
	}
	s.fresh, s.changed = s.fresh[:0], s.changed[:0]
	s.flushFacts()
	s.todo.flush(s.tx)
	rows.Head.Set(s.tx, struct{}{}, s.meta)
	if len(s.plans)+len(s.actions) > cachedRowsMax || s.large > cachedLargeMax {
		s.plans, s.actions, s.large = map[string]*plan{}, map[rows.Action]*action{}, 0
	}
}

// insert adds n to an ascending list, once.
func insert(list []uint32, n uint32) []uint32 {
	at, found := slices.BinarySearch(list, n)
	if found {
		return list
	}
	return slices.Insert(list, at, n)
}

// without removes n from an ascending list.
func without(list []uint32, n uint32) []uint32 {
	at, found := slices.BinarySearch(list, n)
	if !found {
		return list
	}
	return slices.Delete(list, at, at+1)
}
