package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

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

// raced reports whether the holder's last message was followed by one about a plan, or about
// a part of it, from which the record may not have been decided. Reports of workers, facts and
// verdicts change nothing that is owed at its end.
func (l *Ledger) raced(p *plan, r *pb.Record) bool {
	ended := r.GetPlanEnded() != nil
	if p == nil || !ended && r.GetUnwindStarted() == nil {
		return false
	}
	spoken := func(e ledger.Entry) bool {
		people := e.Source.Class == ledger.ClassAgent || e.Source.Class == ledger.ClassOperator
		return (people || !ended) && e.Record.GetPlan() == p.id
	}
	return slices.ContainsFunc(l.behind,
		func(entries []ledger.Entry) bool { return slices.ContainsFunc(entries, spoken) }) ||
		slices.ContainsFunc(p.actions,
			func(a *action) bool { return a.child != nil && l.raced(a.child, r) })
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
