package audit

import (
	"container/list"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Shelf keeps what an audit has no need of at hand, so that its memory does not grow
// with the ledger. A caller keeps it in files.
type Shelf interface {
	// Put keeps a value; a later one takes the place of an earlier one of the same key.
	Put(key string, value []byte)
	// Get returns what was put last; it is the caller's until the next call.
	Get(key string) (value []byte, ok bool)
	// Each calls each with every key that begins with a prefix and what was put last
	// under it, in any order that is always the same.
	Each(prefix string, each func(key string, value []byte))
}

// Memory is where an audit keeps what it knows. The zero Memory keeps everything at hand.
type Memory struct {
	Leaves Leaves // of every record; nil: at hand
	Shelf  Shelf  // of plans and facts that are not at hand; nil: all are
	// HandMax bounds what is at hand beside a shelf, of plans and of facts each, in
	// bytes; 0: 8 MiB. Plans whose conditions wait for facts are at hand beyond it.
	HandMax int
}

const handMax = 8 << 20

// shelved are values of one kind by key: at hand, and beyond a bound on a shelf. On
// trial they are copies of those of another fold, taken as they are asked for.
type shelved[T any] struct {
	shelf  Shelf  // nil: everything stays at hand
	prefix string // of its keys there
	values map[string]*item[T]
	order  list.List // of items; what was not used for the longest time comes first
	bytes  int
	max    int

	constant bool // no value changes once it was put

	under  *shelved[T] // of a trial: whose values these are; nil: it is none
	copied func(T) T   // for a trial
	coded  func(c *coder, v *T)
	loaded func(T)      // it is at hand now; nil: no one asks
	rested func(T)      // it is not any more
	stays  func(T) bool // it is asked for all the time
}

type item[T any] struct {
	key   string
	value T
	bytes int
	clean bool // as the shelf has it
	place *list.Element
}

// get returns the value of a key.
func (s *shelved[T]) get(key string) (v T, ok bool) {
	if i := s.values[key]; i != nil {
		s.use(i)
		return i.value, true
	}
	switch {
	case s.under != nil:
		from, ok := s.under.get(key)
		if !ok {
			return v, false
		}
		v = s.copied(from)
	case s.shelf != nil:
		data, ok := s.shelf.Get(s.prefix + key)
		if !ok {
			return v, false
		}
		v = s.decode(data)
		s.add(&item[T]{key: key, value: v, bytes: 2 * len(data), clean: s.constant})
	default:
		return v, false
	}
	if s.under != nil {
		s.values[key] = &item[T]{key: key, value: v}
	}
	if s.loaded != nil {
		s.loaded(v)
	}
	return v, true
}

// decode makes a value of what encode wrote.
func (s *shelved[T]) decode(data []byte) (v T) {
	c := coder{data: data, reads: true}
	if s.coded(&c, &v); c.bad || len(c.data) > 0 {
		panic("audit: the shelf gives back what was never put there")
	}
	return v
}

func (s *shelved[T]) add(i *item[T]) {
	s.values[i.key] = i
	if s.shelf != nil {
		i.place = s.order.PushBack(i)
		s.bytes += i.bytes
	}
}

// put keeps a value at hand, whatever stood under its key.
func (s *shelved[T]) put(key string, v T, bytes int) {
	s.drop(key)
	s.add(&item[T]{key: key, value: v, bytes: bytes})
}

// drop forgets a value at hand.
func (s *shelved[T]) drop(key string) {
	if i := s.values[key]; i != nil {
		if delete(s.values, key); i.place != nil {
			s.order.Remove(i.place)
			s.bytes -= i.bytes
		}
	}
}

func (s *shelved[T]) use(i *item[T]) {
	if i.place != nil {
		s.order.MoveToBack(i.place)
	}
}

// grows says that a value at hand is larger than it was.
func (s *shelved[T]) grows(key string, bytes int) {
	if i := s.values[key]; i != nil && i.place != nil {
		i.bytes += bytes
		s.bytes += bytes
	}
}

// passedMax bounds how many values that stay are passed over at one rest.
const passedMax = 16

// rest puts on the shelf what is too much at hand. No one may hold a value across it.
func (s *shelved[T]) rest() {
	for passed := 0; s.bytes > s.max && s.order.Len() > 1 && passed < passedMax; {
		i := s.order.Front().Value.(*item[T])
		if s.stays != nil && s.stays(i.value) {
			s.order.MoveToBack(i.place)
			passed++
			continue
		}
		if !i.clean {
			c := coder{}
			s.coded(&c, &i.value)
			s.shelf.Put(s.prefix+i.key, c.data)
		}
		s.drop(i.key)
		if s.rested != nil {
			s.rested(i.value)
		}
	}
}

// each calls each with all values: in the order of their keys where there is no shelf.
func (s *shelved[T]) each(each func(key string, v T)) {
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		each(key, s.values[key].value)
	}
	if s.shelf == nil {
		return
	}
	s.shelf.Each(s.prefix, func(key string, data []byte) {
		if key = key[len(s.prefix):]; s.values[key] == nil {
			each(key, s.decode(slices.Clone(data)))
		}
	})
}

// trial are copies of these, for a fold on trial.
func (s *shelved[T]) trial() shelved[T] {
	return shelved[T]{values: map[string]*item[T]{}, under: s, copied: s.copied}
}

// log is what the checks remember of the records themselves, beside what they mean.
type log struct {
	sequence uint64
	part     bool // records are missing between those that come
	leaves   Leaves
	messages map[[32]byte]bool // of holders; on the shelf where there is one
	shelf    Shelf
	terms    uint64 // the latest of effective decisions
}

func newLog(m Memory) log {
	l := log{leaves: m.Leaves, messages: map[[32]byte]bool{}, shelf: m.Shelf}
	if l.leaves == nil {
		l.leaves = leafMap{}
	}
	return l
}

func (l *log) note(e ledger.Entry, v verdict) {
	if len(e.Address.Leaf) == ledger.LeafSize {
		l.leaves.Put(e.Address.Sequence, e.Address.Index, [ledger.LeafSize]byte(e.Address.Leaf),
			v.kind == Refused)
	}
}

// said remembers a message of a holder, and reports whether it was said before: a holder
// repeats an append until it knows that it is stored.
func (l *log) said(sum [32]byte) (before bool) {
	if l.shelf == nil {
		before = l.messages[sum]
		l.messages[sum] = true
		return before
	}
	key := shelfMessage + string(sum[:])
	if _, before = l.shelf.Get(key); !before {
		l.shelf.Put(key, nil)
	}
	return before
}

// contiguous is I1.
var contiguous = clause{id: "I1.next", says: "Each message comes next after the one before it."}

// next judges the place of a message.
func (l *Ledger) next(sequence uint64) (found []Violation) {
	if last := l.log.sequence; sequence <= last || sequence != last+1 && !l.log.part {
		at := ledger.Entry{Address: &pb.Address{Sequence: sequence}}
		found = []Violation{violation(&contiguous, at,
			fmt.Sprintf("sequence %d comes after sequence %d", last+1, last))}
	}
	l.log.sequence = sequence
	return found
}

// judged asks all clauses of a record, and returns those that it breaks.
func judged(clauses []clause, c *claim) (found []Violation) {
	for i := range clauses {
		k := &clauses[i]
		if j := k.judge(c); j.is == broken {
			found = append(found, violation(k, c.Entry, j.right))
		}
	}
	return found
}

// refers reports whether a reference names an earlier record, and whether the record at
// its place is known.
func (l *Ledger) refers(ref *pb.Address, c *claim) (found, known bool) {
	if ref.Sequence == 0 || ref.Sequence == c.Address.Sequence {
		i := slices.IndexFunc(c.commit,
			func(r ledger.Entry) bool { return r.Address.Index == ref.Index })
		within := ref.Index < c.Address.Index
		if i < 0 {
			return false, !within
		}
		return within && (len(ref.Leaf) == 0 || sameAddress(ref, c.commit[i].Address)), true
	}
	leaf, _, known := l.log.leaves.Get(ref.Sequence, ref.Index)
	if !known {
		return false, ref.Sequence >= c.Address.Sequence // what comes later is not withheld
	}
	return string(leaf[:]) == string(ref.Leaf), true
}

// found says what is at the place of a record that is not there.
func (l *Ledger) found(ref *pb.Address) string {
	leaf, _, known := l.log.leaves.Get(ref.Sequence, ref.Index)
	if !known {
		return "no earlier record of this ledger is there"
	}
	at := &pb.Address{Sequence: ref.Sequence, Index: ref.Index, Leaf: leaf[:]}
	return "another record is there: " + ledger.FormatAddress(at)
}

// excuse reports whether a record was right, as a function says, and would have counted at a place
// after its holder's last message.
func (l *Ledger) excuse(e ledger.Entry, commit []ledger.Entry, right func(*claim) bool) bool {
	trial := l.late.trial()
	for _, earlier := range l.behind {
		if trial.wouldBe(e, commit, right) {
			return true
		}
		trial.foldAll(earlier)
	}
	return false
}

// wouldBe reports whether a record would be right and count here, after what comes before it in its
// commit.
func (b *book) wouldBe(e ledger.Entry, commit []ledger.Entry, right func(*claim) bool) bool {
	trial := b.trial()
	for _, r := range commit {
		if r.StampNs = 0; r.Address.Index == e.Address.Index {
			c := trial.begin(r)
			_, v := trial.judge(c)
			return v.ok() && right(c)
		}
		trial.fold(r)
	}
	return false
}

// wouldHold reports whether all records of a message would count at this place, and be true, at
// the instant of their epochs.
func (b *book) wouldHold(entries []ledger.Entry) bool {
	trial := b.trial()
	for _, e := range entries {
		e.StampNs = 0
		if !saysItsPart(trial.plan(e.Record.GetPlan()), e.Record) || !trial.fold(e).ok() {
			return false
		}
	}
	return true
}

// Leaves remembers the leaf of every record, for the references to it, and whether the
// record was refused. It is the only memory of an audit that grows with the records and
// not with the plans, so that the caller may keep it elsewhere.
type Leaves interface {
	// Put is called once for each record, in order.
	Put(sequence uint64, index uint32, leaf [ledger.LeafSize]byte, refused bool)
	// Get returns what was put; known is false where nothing was.
	Get(sequence uint64, index uint32) (leaf [ledger.LeafSize]byte, refused, known bool)
}

type leafRow struct {
	leaf    [ledger.LeafSize]byte
	refused bool
}

// leafMap is Leaves in memory.
type leafMap map[place]leafRow

// Put implements Leaves.
func (m leafMap) Put(sequence uint64, index uint32, leaf [ledger.LeafSize]byte, refused bool) {
	m[place{sequence, index}] = leafRow{leaf, refused}
}

// Get implements Leaves.
func (m leafMap) Get(
	sequence uint64, index uint32,
) (leaf [ledger.LeafSize]byte, refused, known bool) {
	k, known := m[place{sequence, index}]
	return k.leaf, k.refused, known
}

func (b *book) hasTurned(p *plan, a *action, l *lease) bool {
	if t := p.turnedBy(numberOf(a), l.name); t != nil && !t.clocked {
		return true
	}
	truth, _ := b.truth(p, a, l)
	return truth == triggers.True
}

// End judges what must hold once nothing is under way any more: every unwind has ended
// (L1), every lease that is true and every deadline that has passed has fired (I13, L2),
// ended plans owe nothing (I22) and nothing is held that was retired (I24).
func (l *Ledger) End() (found []Violation) {
	l.EachAtEnd(nil, func(v Violation) { found = append(found, v) })
	slices.SortStableFunc(found,
		func(a, b Violation) int { return strings.Compare(a.Plan, b.Plan) })
	return found
}

// EachAtEnd is End for a ledger of any size: it calls each with what is wrong, plan by
// plan in any order, and seen with every plan as it is; nil: no one asks.
func (l *Ledger) EachAtEnd(seen func(Plan), each func(Violation)) {
	l.book.families.each(func(_ string, f *family) {
		for _, p := range f.plans {
			c := &claim{Entry: ledger.Entry{Address: p.opened, Record: &pb.Record{Plan: p.id}},
				b: l.book, p: p, of: l}
			for _, v := range judged(atEnd, c) {
				each(v)
			}
			if seen != nil {
				seen(l.view(p))
			}
		}
	})
}
