package audit

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/RaduBerinde/btreemap"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit/ids"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// family are plans that lead to each other: a root, the plans below it, and those that
// undo them. They are at hand together, or none of them is.
type family struct {
	id     string // of its first plan
	plans  []*plan
	listed int // how many of them the shelf knows as being of this family
}

// Kinds of keys on the shelf, after the name of the book.
const (
	shelfFamily = "f" // id of a family
	shelfPlan   = "p" // id of a plan: id of its family, where that is another
	shelfFact   = "k" // key of a fact
	shelfTimes  = "t" // key of a fact, and the number of a run of its times
	shelfFiring = "x" // place of a firing

	shelfMessage = "m" // sum of a message of a holder
)

// store is where plans, facts and firings are kept. Beside a shelf its memory follows what
// is under way.
type store struct {
	plans    map[string]*plan // of the families at hand
	families shelved[*family] // by id
	// plans with declared conditions in force, by what lists them; these are not changed
	asking   map[string][]string
	listings *btreemap.BTreeMap[listing, struct{}]
	ends     map[string]int64 // when a committed plan gives up the next condition that it holds
	endings  endings          // the same in their order, and some that are no more
	// of committed plans, by plan and by fact, what their conditions wait for; lists are not changed
	reads, readers map[string][]string
	byPrefix       int            // how many of these are prefixes
	facts          shelved[*fact] // by key
	// the keys of those that are there; nil: no condition has asked for any by its prefix
	names   *btreemap.BTreeMap[string, struct{}]
	firings shelved[*firing] // by place
	shelf   Shelf            // nil: everything stays at hand
	name    string           // begins its keys there
	under   *store           // of a fold on trial: what it began from
}

// newBook is an empty book; name keeps apart the books that share a shelf.
func newBook(tenant string, programs *triggers.Cache, m Memory, name string) *book {
	hand := cmp.Or(m.HandMax, handMax)
	b := &book{
		tenant: tenant, pages: map[page]*pb.Address{}, contracts: map[string][]byte{},
		programs: programs, ids: new(ids.ByWriter),
		store: store{plans: map[string]*plan{}, asking: map[string][]string{}, shelf: m.Shelf,
			listings: newListings(),
			ends:     map[string]int64{}, reads: map[string][]string{}, readers: map[string][]string{},
			name: name},
	}
	b.families = shelved[*family]{
		shelf: m.Shelf, prefix: name + shelfFamily, values: map[string]*item[*family]{}, max: hand,
		coded: codeFamily, copied: (*family).clone, loaded: b.loaded, rested: b.rested,
		stays: b.stays,
	}
	b.facts = shelved[*fact]{
		shelf: m.Shelf, prefix: name + shelfFact, values: map[string]*item[*fact]{}, max: hand,
		coded: codeFact, copied: (*fact).clone,
	}
	b.firings = shelved[*firing]{
		shelf: m.Shelf, prefix: name + shelfFiring, values: map[string]*item[*firing]{},
		max:   hand / 8,
		coded: codeFiringAt, constant: true, copied: func(f *firing) *firing { return f },
	}
	return b
}

// trial is a book that may be folded further on trial. It takes a copy of what it is
// asked for; parts of records are never changed and stay shared.
func (b *book) trial() *book {
	c := *b
	c.plans, c.under, c.shelf, c.names = map[string]*plan{}, &b.store, nil, nil
	c.families, c.facts, c.firings = b.families.trial(), b.facts.trial(), b.firings.trial()
	c.families.loaded = c.loaded
	c.pages, c.contracts, c.asking = maps.Clone(b.pages), maps.Clone(b.contracts),
		maps.Clone(b.asking)
	c.listings = b.listings.Clone()
	c.reads, c.readers = maps.Clone(b.reads), maps.Clone(b.readers)
	c.ends, c.endings = maps.Clone(b.ends), slices.Clone(b.endings)
	c.spent.rates, c.ids = maps.Clone(b.spent.rates), b.ids.Trial()
	return &c
}

// plan finds a plan; nil: there is none of that id.
func (s *store) plan(id string) *plan {
	if p := s.plans[id]; p != nil {
		if s.shelf != nil {
			s.families.get(p.family.id)
		}
		return p
	}
	if of := s.familyOf(id); of != "" {
		s.families.get(of)
	}
	return s.plans[id]
}

// familyOf finds the family of a plan that is not at hand; empty: there is none.
func (s *store) familyOf(id string) string {
	switch {
	case id == "":
		return ""
	case s.under != nil:
		if p := s.under.plan(id); p != nil {
			return p.family.id
		}
		return ""
	case s.shelf == nil:
		return ""
	}
	id, _, _ = strings.Cut(id, "~") // one that undoes another plan is of its family
	if of, known := s.shelf.Get(s.name + shelfPlan + id); known {
		return string(of)
	}
	return id
}

// found begins a family with a plan that is the first of it.
func (s *store) found(p *plan) {
	p.family = &family{id: p.id, plans: []*plan{p}}
	s.plans[p.id] = p
	s.families.put(p.id, p.family, 0)
}

// join takes a plan into another family; it may have been the first of its own.
func (s *store) join(p *plan, f *family) {
	if p.family != nil {
		s.families.drop(p.family.id)
	}
	p.family = f
	f.plans = append(f.plans, p)
	s.plans[p.id] = p
}

func (s *store) loaded(f *family) {
	for _, p := range f.plans {
		s.plans[p.id] = p
	}
}

func (s *store) rested(f *family) {
	for _, p := range f.plans[f.listed:] {
		if p.id != f.id && p.origin == "" {
			s.shelf.Put(s.name+shelfPlan+p.id, []byte(f.id))
		}
	}
	for _, p := range f.plans {
		delete(s.plans, p.id)
	}
}

// stays: a fact may be of interest to it at any time.
func (s *store) stays(f *family) bool {
	return slices.ContainsFunc(f.plans, s.asks)
}

func (s *store) asks(p *plan) bool { _, asks := s.asking[p.id]; return asks }

// touched notes that a record has changed a plan, or made it larger.
func (s *store) touched(p *plan, bytes int) { s.families.grows(p.family.id, bytes) }

// rest puts away what is too much at hand, between two messages.
func (s *store) rest() {
	if s.shelf != nil {
		s.families.rest()
		s.facts.rest()
		s.firings.rest()
	}
}

// About how much memory a firing, and a record beside its bytes, take.
const (
	firingLen = 256
	recordLen = 512
)

// firing finds a firing by the place of its record.
func (s *store) firing(at *pb.Address) *firing {
	f, _ := s.firings.get(firingKey(placeOf(at)))
	return f
}

func firingKey(p place) string {
	return strconv.FormatUint(p.sequence, 10) + "." + strconv.FormatUint(uint64(p.index), 10)
}

// fact is what is held under a key; nil: nothing ever was.
func (s *store) fact(key string) *fact {
	f, _ := s.facts.get(key)
	return f
}

// runLen is how many assertions of a fact are kept at hand beside a shelf.
const runLen = 4096

// run is assertions of a fact, one after the other, by their instants.
type run struct{ from, to int64 }

// asserted notes another assertion of a fact.
func (s *store) asserted(f *fact, key string, now int64) {
	if s.shelf != nil && len(f.times) >= runLen {
		c := coder{}
		codeTimes(&c, &f.times)
		s.shelf.Put(s.runKey(key, len(f.runs)), c.data)
		f.runs = append(f.runs, run{f.times[0], f.times[len(f.times)-1]})
		f.times = nil
	}
	f.times = append(f.times, now)
}

func (s *store) runKey(key string, n int) string {
	return s.name + shelfTimes + key + "\x00" + strconv.Itoa(n)
}

// times are the instants of a run.
func (s *store) times(key string, n int) (times []int64) {
	for s.under != nil {
		s = s.under
	}
	data, ok := s.shelf.Get(s.runKey(key, n))
	c := coder{data: data, reads: true}
	if codeTimes(&c, &times); !ok || c.bad {
		return nil
	}
	return times
}

// clone is a copy that may be changed, and leads to itself only.
func (f *family) clone() *family {
	c := &family{id: f.id, listed: f.listed}
	for _, p := range f.plans {
		q := p.clone()
		q.family = c
		c.plans = append(c.plans, q)
	}
	c.link(func(p *plan) string { return p.parent.id },
		func(a *action) string { return a.child.id })
	return c
}

// link lets plans lead to those of their own family, by the ids of whom they led to.
func (f *family) link(parent func(*plan) string, child func(*action) string) {
	byID := map[string]*plan{}
	for _, p := range f.plans {
		byID[p.id] = p
	}
	for _, p := range f.plans {
		if p.parent != nil {
			p.parent = byID[parent(p)]
		}
		for _, a := range p.actions {
			if a.child != nil {
				a.child = byID[child(a)]
			}
		}
	}
}

func (p *plan) clone() *plan {
	c := *p
	c.orphans, c.savepoints, c.inDoubt = slices.Clone(p.orphans), slices.Clone(p.savepoints),
		slices.Clone(p.inDoubt)
	c.proposals, c.hasFired = maps.Clone(p.proposals), maps.Clone(p.hasFired)
	c.leases, c.actions, c.cuts, c.behind = cloneLeases(p.leases), nil, nil, nil
	c.paths = nil
	if p.turned != nil {
		t := *p.turned
		c.turned = &t
	}
	for _, t := range p.behind {
		u := *t
		c.behind = append(c.behind, &u)
	}
	for _, x := range p.cuts {
		y := *x
		c.cuts = append(c.cuts, &y)
	}
	for _, a := range p.actions {
		d := *a
		d.leases, d.duplicates = cloneLeases(a.leases), slices.Clone(a.duplicates)
		d.surplus = slices.Clone(a.surplus)
		c.actions = append(c.actions, &d)
	}
	return &c
}

func cloneLeases(list []*lease) (out []*lease) {
	for _, l := range list {
		m := *l
		out = append(out, &m)
	}
	return out
}

func (f *fact) clone() *fact {
	c := *f
	c.times, c.runs = slices.Clip(f.times), slices.Clip(f.runs) // further ones are the copy's own
	return &c
}

// ending is when a committed plan gives up the next of what it holds.
type ending struct {
	ns   int64
	plan string
}

// endings are a heap of them.
type endings []ending

func (h endings) Len() int { return len(h) }

func (h endings) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].ns, h[j].ns), strings.Compare(h[i].plan, h[j].plan)) < 0
}

func (h endings) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *endings) Push(x any) { *h = append(*h, x.(ending)) }

func (h *endings) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// deliveredWhole is asked at the end, of what a committed tree has staged.
var deliveredWhole = clause{"I38.whole",
	"What was staged when its root was committed is delivered, dropped after a stop, or its owner's.",
	func(c *claim) judgement {
		if !isRetired(c.p) || c.p.delivers || c.p.letBe {
			return judgement{}
		}
		d := c.b.plan(c.p.deliveredAs)
		for _, a := range c.p.actions {
			if !a.isStaged() || a.undo != held || a.dutyOf != 0 {
				continue
			}
			if d == nil || d.named(a.id) == nil {
				return breaks("a delivery of action %s", a.id)
			}
			x := d.named(a.id)
			dropped := x.undo == skipped && d.stopped == nil
			if !x.isSettled() && x.undo != quarantined && !letBe(d) || dropped {
				return breaks("an end of action %s of plan %s, which is %s", a.id, d.id, state{d, x})
			}
		}
		return judgement{}
	}}

// letBe: the owner of a delivery, or of what it is a part of, is to answer, or has let the rest be.
func letBe(p *plan) bool {
	for ; p != nil && p.delivers; p = p.parent {
		if p.letBe || p.phase == ledger.StateQuarantined || p.phase == ledger.StateResolved {
			return true
		}
	}
	return false
}

// isActive notes that an agent writes: its plan, and what that is a part of, are not idle.
func (p *plan) isActive(ns int64) {
	for ; p != nil; p = p.parent {
		p.activeNs = ns
	}
}

// lookIdling looks at the leases that read when an agent last wrote, from the root on.
func lookIdling(b *book, p *plan) {
	if p.parent != nil {
		lookIdling(b, p.parent)
	}
	if p.idles {
		lookReading(b, p, activeName)
	}
}

// activeName is read by what depends on when an agent last wrote.
const activeName = "plan.active_at"

// idles reports whether a condition may read it.
func idles(condition string) bool { return strings.Contains(condition, activeName[len("plan."):]) }

// What is asked of a plan: its end, or that of a part of it.

// mayTurnTo reports whether the end of a plan, or of a part of it, may be asked for. A plan
// that goes back still takes the end of all of it; one of which a lease has fired takes nothing
// less.
func (p *plan) mayTurnTo(to back, rules uint32) bool {
	all := to == back{}
	if !all && remembers(rules) && p.fired != nil {
		return false
	}
	return p.goesBack() && all || p.canStop() && p.signal == ""
}

// goesBack: a part of the plan is undone, or is about to be, and the plan goes on then.
func (p *plan) goesBack() bool { return p.wanted() != back{} && (p.canStop() || p.rewinding) }

// wants keeps the end that was asked of a plan, where it may be asked for.
func (b *book) wants(p *plan, signal, reason string, to back) bool {
	said := p.signal == signal && p.signalled && p.wanted() == to && p.reason == reason
	if said || !p.mayTurnTo(to, b.rules) {
		return false
	}
	p.signal, p.reason, p.signalled = signal, reason, true
	p.toSavepoint, p.fromAction, p.counted = to.savepoint, to.action, false
	b.lookPlan(p)
	return true
}

// besidePart: a verdict that is to undo the plan is on an action that happened, and which a part of
// it has undone, or undoes: no lease on it fires any more.
func besidePart(b *book, c *claim) {
	p, a := wholeOf(b, c.p), c.a
	part := p.canStop() && a.isSettled() || p.rewinding && a.undo != held
	if part && a.mayHaveCrossed() && a.blocked() && b.rules >= ledger.BesidePartSince &&
		!undoesOne(b, c.Record.GetVerdictGiven().Scope) {
		b.wants(p, signalCancelled, verdictText(a), back{})
	}
}

// isCommitted: the plan that a plan is a part of is committed.
func isCommitted(b *book, p *plan) bool { return wholeOf(b, p).phase == ledger.StateCommitted }

// wholeOf: a committed child goes with the plan that it is a part of, and is not one by itself.
func wholeOf(b *book, p *plan) *plan {
	for p.stillHolds() || p.parent != nil && p.committed != nil && b.rules >= ledger.WholeSince {
		p = p.parent
	}
	return p
}
