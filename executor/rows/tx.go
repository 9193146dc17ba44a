package rows

import "iter"

// Tx is where one State reads and writes its rows. It belongs to one goroutine.
type Tx struct {
	kv    KV
	base  *Tx               // set in a fork: reads go through to it, writes stay here
	wrote map[string][]byte // what a fork has written; a nil value: deleted
	key   []byte            // of the call that is under way (Index.at)
}

// Over returns a Tx that writes to kv at once.
func Over(kv KV) *Tx { return &Tx{kv: kv} }

// Fork returns an overlay: what it writes leaves t as it is.
func (t *Tx) Fork() *Tx { return &Tx{kv: t.kv, base: t, wrote: map[string][]byte{}} }

// KV is the store that t reads, past all overlays.
func (t *Tx) KV() KV { return t.kv }

// Forked reports whether t is an overlay.
func (t *Tx) Forked() bool { return t.base != nil }

// Get returns the value of key, as KV.Get does.
func (t *Tx) Get(key []byte) ([]byte, bool) {
	if t.base != nil {
		if v, ok := t.wrote[string(key)]; ok {
			return v, v != nil
		}
		return t.base.Get(key)
	}
	return t.kv.Get(key)
}

// Set sets the value of key, which must not be changed from then on.
func (t *Tx) Set(key, value []byte) {
	if t.base != nil {
		if value == nil {
			value = []byte{}
		}
		t.wrote[string(key)] = value
		return
	}
	t.kv.Set(key, value)
}

// Delete removes key, if it is there.
func (t *Tx) Delete(key []byte) {
	if t.base != nil {
		t.wrote[string(key)] = nil
		return
	}
	t.kv.Delete(key)
}

// Scan yields the stored pairs with from <= key < to, as KV.Scan does. It does not see
// what a fork has written.
func (t *Tx) Scan(from, to []byte) iter.Seq2[[]byte, []byte] { return t.kv.Scan(from, to) }

// Stored returns the stored value of key. It does not see what a fork has written.
func (t *Tx) Stored(key []byte) ([]byte, bool) { return t.kv.Get(key) }
