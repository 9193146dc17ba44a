package audit

import (
	"container/list"
	"maps"
	"slices"
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

// codeDoubt is what was asked, or told, of the effect of an action while its plan was open.
func codeDoubt(c *coder, a *action) {
	number(c, &a.askNs)
	c.flag(&a.extra)
	c.flag(&a.told)
	record(c, &a.toldAt)
	number(c, &a.wordAt)
	number(c, &a.doubtedAs)
}
