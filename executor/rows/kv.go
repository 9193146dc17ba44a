package rows

import (
	"iter"
	"slices"
	"sort"
)

// KV is the ordered key-value transaction the fold writes to: Pebble in a host,
// memory in tests, the simulation and the verifier. What it holds is a cache of
// the fold; a KV that cannot answer panics with a *StoreError, and its owner
// throws the whole state away and folds again.
type KV interface {
	// Get returns the value of key. The value must not be changed; it is valid
	// until the next Set or Delete. No key is kept: it may be changed after each call.
	Get(key []byte) (value []byte, ok bool)
	// Set sets the value of key. The value is the KV's from then on, and must not be changed.
	Set(key, value []byte)
	Delete(key []byte)
	// Scan yields the pairs with from <= key < to in ascending order of key; both
	// slices are valid until the next step only.
	Scan(from, to []byte) iter.Seq2[[]byte, []byte]
}

// StoreError is what a KV panics with when its medium fails or contradicts
// itself. State is a cache, so the answer is always the same: rebuild.
type StoreError struct {
	Op  string // get, set, delete, scan, commit
	Err error
}

// Error reads "cannot get state: ...".
func (e *StoreError) Error() string { return "cannot " + e.Op + " state: " + e.Err.Error() }

// Unwrap gives the medium's error.
func (e *StoreError) Unwrap() error { return e.Err }

// MemoryKV is a KV in memory, for one goroutine.
//
// It is a B-tree of two levels: blocks of items, sorted in themselves and among
// each other. No block is empty. An item is found by two binary searches, and
// adding one moves part of one block; every so many items a block is split.
type MemoryKV struct {
	blocks []*block
	at     int // the block of the last search, which is often that of the next
}

type block struct{ items []item }

type item struct {
	key   string
	value []byte
}

// blockMax bounds the items of a block.
const blockMax = 256

// NewMemoryKV returns an empty MemoryKV.
func NewMemoryKV() *MemoryKV { return &MemoryKV{} }

// Empty reports whether m has no item.
func (m *MemoryKV) Empty() bool { return len(m.blocks) == 0 }

// find returns the block whose range key lies in, and the place of the first
// item at or after key there, which may be after its last. There must be a block.
func (m *MemoryKV) find(key []byte) (b *block, i int, found bool) {
	if !m.holds(m.at, key) {
		// The last block that begins at or before the key; the first, if none does.
		next := sort.Search(len(m.blocks), func(i int) bool {
			return m.blocks[i].items[0].key > string(key)
		})
		m.at = max(0, next-1)
	}
	b = m.blocks[m.at]
	i = sort.Search(len(b.items), func(i int) bool { return b.items[i].key >= string(key) })
	return b, i, i < len(b.items) && b.items[i].key == string(key)
}

// holds reports whether key lies between the first keys of block i and of the next.
func (m *MemoryKV) holds(i int, key []byte) bool {
	if i >= len(m.blocks) || m.blocks[i].items[0].key > string(key) {
		return false
	}
	return i+1 == len(m.blocks) || string(key) < m.blocks[i+1].items[0].key
}

// Get implements KV.
func (m *MemoryKV) Get(key []byte) ([]byte, bool) {
	if len(m.blocks) == 0 {
		return nil, false
	}
	b, i, found := m.find(key)
	if !found {
		return nil, false
	}
	return b.items[i].value, true
}

// Set implements KV.
func (m *MemoryKV) Set(key, value []byte) {
	if len(m.blocks) == 0 {
		m.blocks = []*block{{}}
		m.at = 0
		m.blocks[0].items = []item{{string(key), value}}
		return
	}
	b, i, found := m.find(key)
	if found {
		b.items[i].value = value
		return
	}
	b.items = slices.Insert(b.items, i, item{string(key), value})
	if len(b.items) > blockMax {
		m.split(i)
	}
}

// split parts the block at m.at, to which item i was just added: in the middle, or
// at its end where keys come in ascending order, so that blocks stay full.
func (m *MemoryKV) split(i int) {
	b := m.blocks[m.at]
	middle := len(b.items) / 2
	if i == len(b.items)-1 {
		middle = i
	}
	tail := &block{items: append(make([]item, 0, blockMax+1), b.items[middle:]...)}
	clear(b.items[middle:])
	b.items = b.items[:middle]
	m.blocks = slices.Insert(m.blocks, m.at+1, tail)
}

// Delete implements KV.
func (m *MemoryKV) Delete(key []byte) {
	if len(m.blocks) == 0 {
		return
	}
	b, i, found := m.find(key)
	if !found {
		return
	}
	if b.items = slices.Delete(b.items, i, i+1); len(b.items) == 0 {
		m.blocks = slices.Delete(m.blocks, m.at, m.at+1)
	}
}

// Scan implements KV. The KV may be changed between two steps.
func (m *MemoryKV) Scan(from, to []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		for next := from; len(m.blocks) > 0; {
			b, i, _ := m.find(next)
			if i == len(b.items) {
				if m.at+1 == len(m.blocks) {
					return
				}
				m.at++
				b, i = m.blocks[m.at], 0
			}
			p := b.items[i]
			if p.key >= string(to) || !yield([]byte(p.key), p.value) {
				return
			}
			next = append([]byte(p.key), 0)
		}
	}
}
