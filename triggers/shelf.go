package triggers

import (
	"container/list"
	"math"
)

// shelf is a least-recently-used map of what a text compiles to.
type shelf[T any] struct {
	cache *Cache
	max   int
	items map[string]*list.Element
	order list.List // of *volume[T], last used first
}

type volume[T any] struct {
	text   string
	value  *T
	err    error
	shape  *shape // that value needs, or that it is; nil: none
	weight int    // in bytes, without the shape
	tick   uint64 // of the last look-up
}

// volumeBytes is what keeping a volume takes beside what it holds, and refusalBytes
// what a refusal takes beside its text.
const (
	volumeBytes  = 200
	refusalBytes = 300
)

func (s *shelf[T]) init(c *Cache, max int) {
	s.cache, s.max, s.items = c, max, map[string]*list.Element{}
}

// look returns what is kept under a text, or nil.
func (s *shelf[T]) look(text string) *volume[T] {
	s.cache.tick++
	element, ok := s.items[text]
	if !ok {
		return nil
	}
	s.order.MoveToFront(element)
	v := element.Value.(*volume[T])
	v.tick = s.cache.tick
	return v
}

// put keeps a volume that look did not find, and lets go of what must go for it. What
// a text beyond any bound compiles to is a refusal that is cheaper to repeat.
func (s *shelf[T]) put(v *volume[T]) {
	if len(v.text) > textMax {
		return
	}
	s.cache.tick++
	v.tick = s.cache.tick
	s.items[v.text] = s.order.PushFront(v)
	s.cache.weight += v.weight + volumeBytes
	s.cache.pin(v.shape)
	for s.order.Len() > s.max {
		s.drop()
	}
	s.cache.trim()
}

func (s *shelf[T]) oldest() uint64 {
	last := s.order.Back()
	if last == nil {
		return math.MaxUint64
	}
	return last.Value.(*volume[T]).tick
}

// drop lets go of the volume that was not asked for longest. A shape that was used
// from beside the cache in the meantime gets another round.
func (s *shelf[T]) drop() {
	last := s.order.Back()
	v := last.Value.(*volume[T])
	if v.value == nil && v.shape != nil && v.shape.used {
		v.shape.used = false
		s.cache.tick++
		v.tick = s.cache.tick
		s.order.MoveToFront(last)
		return
	}
	s.order.Remove(last)
	delete(s.items, v.text)
	s.cache.weight -= v.weight + volumeBytes
	s.cache.unpin(v.shape)
}
