package rows

import "iter"

// Stored is what a Pending lies over: a store, as far as it is read.
type Stored interface {
	Get(key []byte) (value []byte, ok bool)
	Scan(from, to []byte) iter.Seq2[[]byte, []byte]
}

// Pending is a KV that keeps what is written in memory, over a store that it only reads,
// until Drain moves it there. A row that is written many times meanwhile is moved once.
type Pending struct {
	stored Stored
	wrote  MemoryKV // a nil value: deleted
	bytes  int
}

// NewPending is a Pending over a store, with nothing written.
func NewPending(stored Stored) *Pending { return &Pending{stored: stored} }

// Get implements KV.
func (p *Pending) Get(key []byte) ([]byte, bool) {
	if v, ok := p.wrote.Get(key); ok {
		return v, v != nil
	}
	return p.stored.Get(key)
}

// Set implements KV.
func (p *Pending) Set(key, value []byte) {
	if value == nil {
		value = []byte{}
	}
	p.bytes += len(key) + len(value)
	p.wrote.Set(key, value)
}

// Delete implements KV.
func (p *Pending) Delete(key []byte) {
	p.bytes += len(key)
	p.wrote.Set(key, nil)
}

// Scan implements KV. It yields what was written and what is stored as one.
func (p *Pending) Scan(from, to []byte) iter.Seq2[[]byte, []byte] {
	if p.wrote.Empty() {
		return p.stored.Scan(from, to)
	}
	return func(yield func([]byte, []byte) bool) {
		// written yields what was written below a key, from where it left off.
		written := func(below []byte) bool {
			for k, v := range p.wrote.Scan(from, below) {
				from = append(k, 0)
				if v != nil && !yield(k, v) {
					return false
				}
			}
			return true
		}
		for k, v := range p.stored.Scan(from, to) {
			if !written(k) {
				return
			}
			if _, again := p.wrote.Get(k); again { // the next round has it, if it is not deleted
				continue
			}
			if !yield(k, v) {
				return
			}
		}
		written(to)
	}
}

// Bytes is about how much was written since the last Drain or Forget.
func (p *Pending) Bytes() int { return p.bytes }

// Drain hands over what was written, in ascending order of key, and forgets it; a nil value:
// deleted.
func (p *Pending) Drain(store func(key string, value []byte)) {
	for _, b := range p.wrote.blocks {
		for _, i := range b.items {
			store(i.key, i.value)
		}
	}
	p.Forget()
}

// Forget drops what was written.
func (p *Pending) Forget() { p.wrote, p.bytes = MemoryKV{}, 0 }
