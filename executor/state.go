package executor

import (
	"encoding/binary"
	"slices"

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

type actionID struct {
	plan string
	n    uint32
}

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
	id    actionID
	fixed *rowspb.ActionStatic
	row   *rowspb.ActionRow
	dirty bool
	begun bool   // fixed was written since the last Flush
	bytes [2]int // that fixed and row take, if they are large
}

// State is one tenant's folded ledger over a KV. It belongs to one goroutine.
type State struct {
	tenant string
	kv     KV
	// archive gives the values of evicted facts; nil where there are none
	archive Archive
	base    *State // set in a fork: reads go through to it, writes stay here
	meta    *rowspb.Meta

	plans   map[string]*plan
	actions map[actionID]*action
	large   int       // bytes that the large ones of them take
	fresh   []*plan   // dirty plans, in the order in which they became so
	changed []*action // dirty actions, likewise
	todo    todo

	between     func(costly bool) // of Between; nil: none
	room        triggers.Scratch
	programs    *triggers.Cache
	beforeNs    int64                      // logical time before the record that is applied
	usable      *pb.CompensationRegistered // the last one that unusable let pass, of a pair that comes twice
	watchers    *kept[*watchList]          // by fact; nil in a fork, which reads the rows
	recalled    triggers.Held              // of the watcher that was asked last
	facts       *kept[*keptFact]           // by key
	absent      *kept[struct{}]            // keys that were never asserted
	facted      map[string]*keptFact       // those that changed since the last Flush
	viewed      []*keptFact                // those with a view
	viewedBytes int                        // of their values
	factKeys    []string                   // of facted, in the order in which they did

	commands []Command
	notices  []Notice
	pages    []Page
	closed   []Page
	landed   []About  // whose answer is waited for no more
	erasures []string // plans whose keys are to be destroyed
	misses   []string // evicted facts that leases have read

	// overlay of a fork: what a scratch fold would have written
	wrote    map[string][]byte // nil value: deleted
	occurred []occurrence      // what it asserted

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
func Open(kv KV, tenant string, archive Archive) *State {
	return open(kv, tenant, archive, triggers.NewCache(expressionsMax))
}

// OpenWith is Open with compiled conditions and bindings that other states of the
// same goroutine have, too: what they are compiled to depends on their text alone.
func OpenWith(kv KV, tenant string, archive Archive, programs *triggers.Cache) *State {
	return open(kv, tenant, archive, programs)
}

func open(kv KV, tenant string, archive Archive, programs *triggers.Cache) *State {
	s := look(kv, tenant)
	s.archive, s.programs = archive, programs
	from := []byte{keyTodo}
	for k := range kv.Scan(from, after(from)) {
		s.todo.load(string(k[1:]))
	}
	return s
}

// look reads the head only: the to-do set stays where it is, and no condition
// can be asked.
func look(kv KV, tenant string) *State {
	s := &State{
		tenant: tenant, kv: kv,
		plans: map[string]*plan{}, actions: map[actionID]*action{},
		watchers: newWatchers(), facts: newFacts(), absent: newKept[struct{}](absentMax),
		facted: map[string]*keptFact{},
		meta:   &rowspb.Meta{FoldVersion: FoldVersion},
	}
	if v, ok := kv.Get([]byte(keyMeta)); ok {
		decode("get", v, s.meta)
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
		tenant: s.tenant, kv: s.kv, archive: s.archive, base: s, meta: s.meta.CloneVT(),
		plans: map[string]*plan{}, actions: map[actionID]*action{},
		between: s.between, programs: s.programs, facts: newFacts(), absent: newKept[struct{}](absentMax),
		facted: map[string]*keptFact{}, wrote: map[string][]byte{},
	}
}

// get reads a row that has no decoded cache.
func (s *State) get(key []byte) ([]byte, bool) {
	if s.base != nil {
		if v, ok := s.wrote[string(key)]; ok {
			return v, v != nil
		}
		return s.base.get(key)
	}
	return s.kv.Get(key)
}

func (s *State) set(key, value []byte) {
	if s.base != nil {
		s.wrote[string(key)] = append([]byte{}, value...)
		return
	}
	s.kv.Set(key, value)
}

func (s *State) delete(key []byte) {
	if s.base != nil {
		s.wrote[string(key)] = nil
		return
	}
	s.kv.Delete(key)
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
			p = newPlan(id, clonePlan(b.row))
		}
	} else if v, ok := s.kv.Get(planKey(keyPlan, id)); ok {
		row := new(rowspb.PlanRow)
		decode("get", v, row)
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
	id := actionID{planID, n}
	if a, ok := s.actions[id]; ok {
		return a
	}
	a := &action{id: id}
	if s.base != nil {
		b := s.base.action(planID, n)
		a.fixed, a.row = b.fixed, cloneAction(b.row)
	} else {
		a.fixed, a.row = new(rowspb.ActionStatic), new(rowspb.ActionRow)
		s.cache(&a.bytes[0], s.load(actionKey(keyStatic, planID, n), a.fixed), 0)
		s.cache(&a.bytes[1], s.load(actionKey(keyAction, planID, n), a.row), len(a.row.Leases))
	}
	s.actions[id] = a
	return a
}

type decoder interface{ UnmarshalVT([]byte) error }

// decode reads a row that was got or scanned, as op says.
func decode(op string, v []byte, row decoder) {
	if err := row.UnmarshalVT(v); err != nil {
		panic(&StoreError{op, err})
	}
}

// find reads a row that may not be there, and reports whether it is.
func (s *State) find(key []byte, row decoder) bool {
	v, ok := s.get(key)
	if ok {
		decode("get", v, row)
	}
	return ok
}

// load reads a row that must be there, past what a fork has written, and returns its
// size in bytes.
func (s *State) load(key []byte, row decoder) (bytes int) {
	v, ok := s.kv.Get(key)
	if !ok {
		panic(&StoreError{"get", errMissingRow})
	}
	decode("get", v, row)
	return len(v)
}

// cache counts what a decoded row of so many bytes and leases takes.
func (s *State) cache(counted *int, bytes, leases int) {
	if bytes = 2*bytes + leaseBytes*leases; bytes < largeRow {
		bytes = 0
	}
	s.large += bytes - *counted
	*counted = bytes
}

func (s *State) addAction(planID string, n uint32, fixed *rowspb.ActionStatic, row *rowspb.ActionRow) *action {
	a := &action{id: actionID{planID, n}, fixed: fixed, row: row, begun: true}
	s.actions[a.id] = a
	if p := s.plan(planID); p.numbers != nil {
		p.numbers[fixed.Id] = n
	}
	s.set(numberKey(planID, fixed.Id), binary.BigEndian.AppendUint32(nil, n))
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
	if s.base != nil { // a scratch fold registers duties only
		if v, ok := s.wrote[string(numberKey(planID, actionName))]; ok && len(v) == 4 {
			return binary.BigEndian.Uint32(v)
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
	v, ok := s.get(numberKey(planID, actionName))
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

type encoder interface {
	SizeVT() int
	MarshalToSizedBufferVT([]byte) (int, error)
}

func encode(row encoder) []byte {
	buf := make([]byte, row.SizeVT())
	if _, err := row.MarshalToSizedBufferVT(buf); err != nil {
		panic("executor: cannot encode a row: " + err.Error())
	}
	return buf
}

// Flush writes what changed since the last Flush into the KV. State and cursor
// go together: the caller commits the KV as one batch.
func (s *State) Flush() {
	for _, p := range s.fresh {
		row := encode(p.row)
		s.kv.Set(planKey(keyPlan, p.id), row)
		s.cache(&p.bytes, len(row), len(p.row.Leases))
		s.list(p)
		p.dirty = false
	}
	for _, a := range s.changed {
		row := encode(a.row)
		s.kv.Set(actionKey(keyAction, a.id.plan, a.id.n), row)
		s.cache(&a.bytes[1], len(row), len(a.row.Leases))
		if a.begun {
			fixed := encode(a.fixed)
			s.kv.Set(actionKey(keyStatic, a.id.plan, a.id.n), fixed)
			s.cache(&a.bytes[0], len(fixed), 0)
			s.listAction(a)
		}
		a.dirty, a.begun = false, false
	}
	s.fresh, s.changed = s.fresh[:0], s.changed[:0]
	s.flushFacts()
	s.todo.flush(s.kv)
	s.kv.Set([]byte(keyMeta), encode(s.meta))
	if len(s.plans)+len(s.actions) > cachedRowsMax || s.large > cachedLargeMax {
		s.plans, s.actions, s.large = map[string]*plan{}, map[actionID]*action{}, 0
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
