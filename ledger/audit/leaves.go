package audit

import "github.com/sagenbaum/sagenbaum/ledger"

// Leaves remembers the leaf of every record, for the references to it, and whether the
// record was refused. It is the only memory of an audit that grows with the records and
// not with the plans, so that the caller may keep it elsewhere.
type Leaves interface {
	// Put is called once for each record, in order.
	Put(sequence uint64, index uint32, leaf [ledger.LeafSize]byte, refused bool)
	// Get returns what was put; known is false where nothing was.
	Get(sequence uint64, index uint32) (leaf [ledger.LeafSize]byte, refused, known bool)
}

type kept struct {
	leaf    [ledger.LeafSize]byte
	refused bool
}

// leafMap is Leaves in memory.
type leafMap map[place]kept

// Put implements Leaves.
func (m leafMap) Put(sequence uint64, index uint32, leaf [ledger.LeafSize]byte, refused bool) {
	m[place{sequence, index}] = kept{leaf, refused}
}

// Get implements Leaves.
func (m leafMap) Get(sequence uint64, index uint32) (leaf [ledger.LeafSize]byte, refused, known bool) {
	k, known := m[place{sequence, index}]
	return k.leaf, k.refused, known
}
