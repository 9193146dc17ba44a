// Package ids is what an audit keeps of the ids of records, as the rules of copies say: those
// that were made last (ledger.IDsKept).
package ids

import (
	"bytes"
	"container/heap"
	"maps"
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Set has ids and the digests of the records that counted under them. The zero Set is empty.
type Set struct {
	digests map[ledger.RecordID][16]byte
	order   oldestFirst
	before  ledger.RecordID // the last one that was dropped
	dropped bool
}

// Find returns the digest of the record that counted under an id.
func (s *Set) Find(id ledger.RecordID) (digest [16]byte, known bool) {
	digest, known = s.digests[id]
	return digest, known
}

// TooOld reports whether an id is from before those that are kept.
func (s *Set) TooOld(id ledger.RecordID) bool {
	return s.dropped && bytes.Compare(id[:], s.before[:]) <= 0
}

// Keep adds an id, and drops the oldest where there are more than max.
func (s *Set) Keep(id ledger.RecordID, digest [16]byte, max int) {
	if s.digests == nil {
		s.digests = map[ledger.RecordID][16]byte{}
	}
	s.digests[id] = digest
	heap.Push(&s.order, id)
	if len(s.order) > max {
		s.before, s.dropped = heap.Pop(&s.order).(ledger.RecordID), true
		delete(s.digests, s.before)
	}
}

func (s *Set) clone() *Set {
	return &Set{maps.Clone(s.digests), slices.Clone(s.order), s.before, s.dropped}
}

// ByWriter has the Set of each writer. The zero ByWriter is empty.
type ByWriter struct {
	sets  map[string]*Set
	under *ByWriter // of a trial: what it began with
}

// Trial begins with what b has; what it keeps is its own. b is not changed while it is used.
func (b *ByWriter) Trial() *ByWriter { return &ByWriter{under: b} }

// Of is the set of a writer, to be read.
func (b *ByWriter) Of(writer string) *Set {
	for ; b != nil; b = b.under {
		if set := b.sets[writer]; set != nil {
			return set
		}
	}
	return new(Set)
}

// Keep is Set.Keep of a writer's set.
func (b *ByWriter) Keep(writer string, id ledger.RecordID, digest [16]byte, max int) {
	set := b.sets[writer]
	if set == nil {
		if b.sets == nil {
			b.sets = map[string]*Set{}
		}
		set = b.Of(writer).clone()
		b.sets[writer] = set
	}
	set.Keep(id, digest, max)
}

// oldestFirst is a heap.Interface.
type oldestFirst []ledger.RecordID

func (o oldestFirst) Len() int           { return len(o) }
func (o oldestFirst) Less(i, j int) bool { return bytes.Compare(o[i][:], o[j][:]) < 0 }
func (o oldestFirst) Swap(i, j int)      { o[i], o[j] = o[j], o[i] }

// Push implements heap.Interface.
func (o *oldestFirst) Push(id any) { *o = append(*o, id.(ledger.RecordID)) }

// Pop implements heap.Interface.
func (o *oldestFirst) Pop() any {
	last := len(*o) - 1
	id := (*o)[last]
	*o = (*o)[:last]
	return id
}
