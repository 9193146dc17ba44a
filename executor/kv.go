package executor

import (
	"bytes"
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
	// until the next Set or Delete.
	Get(key []byte) (value []byte, ok bool)
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
type MemoryKV struct {
	values map[string][]byte
	keys   []string // sorted
}

// NewMemoryKV returns an empty MemoryKV.
func NewMemoryKV() *MemoryKV { return &MemoryKV{values: map[string][]byte{}} }

// Get implements KV.
func (m *MemoryKV) Get(key []byte) ([]byte, bool) {
	v, ok := m.values[string(key)]
	return v, ok
}

// Set implements KV.
func (m *MemoryKV) Set(key, value []byte) {
	k := string(key)
	if _, ok := m.values[k]; !ok {
		at := sort.SearchStrings(m.keys, k)
		m.keys = slices.Insert(m.keys, at, k)
	}
	m.values[k] = bytes.Clone(value)
}

// Delete implements KV.
func (m *MemoryKV) Delete(key []byte) {
	k := string(key)
	if _, ok := m.values[k]; !ok {
		return
	}
	delete(m.values, k)
	at := sort.SearchStrings(m.keys, k)
	m.keys = slices.Delete(m.keys, at, at+1)
}

// Scan implements KV.
func (m *MemoryKV) Scan(from, to []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		next := string(from)
		for {
			at := sort.SearchStrings(m.keys, next)
			if at == len(m.keys) || m.keys[at] >= string(to) {
				return
			}
			k := m.keys[at]
			if !yield([]byte(k), m.values[k]) {
				return
			}
			next = k + "\x00"
		}
	}
}
