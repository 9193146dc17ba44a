package triggers

import "container/list"

// Cache keeps compiled expressions by their text, so that a million leases with
// one expression share one program. It belongs to one goroutine; what it returns
// may be shared. Refusals are kept too.
type Cache struct {
	language   *language
	conditions shelf[Condition]
	bindings   shelf[Binding]
	readers    shelf[Binding]
}

// NewCache returns a cache of at most max conditions, max bindings and max readers;
// the ones not asked for longest go first. max below 1 is 1.
func NewCache(max int) *Cache {
	if max < 1 {
		max = 1
	}
	return &Cache{
		language:   newLanguage(),
		conditions: shelf[Condition]{max: max, items: map[string]*list.Element{}},
		bindings:   shelf[Binding]{max: max, items: map[string]*list.Element{}},
		readers:    shelf[Binding]{max: max, items: map[string]*list.Element{}},
	}
}

// Condition is Compile, remembered.
func (c *Cache) Condition(expression string) (*Condition, error) {
	return c.conditions.get(expression, c.language.compileCondition)
}

// Binding is CompileBinding, remembered.
func (c *Cache) Binding(expression string) (*Binding, error) {
	return c.bindings.get(expression, c.language.compileBinding)
}

// Reader is CompileReader, remembered.
func (c *Cache) Reader(expression string) (*Binding, error) {
	return c.readers.get(expression, c.language.compileReader)
}

// shelf is a least-recently-used map of what a text compiles to.
type shelf[T any] struct {
	max   int
	items map[string]*list.Element
	order list.List // of *volume[T], last used first
}

type volume[T any] struct {
	text  string
	value *T
	err   error
}

func (s *shelf[T]) get(text string, compile func(string) (*T, error)) (*T, error) {
	if element, ok := s.items[text]; ok {
		s.order.MoveToFront(element)
		v := element.Value.(*volume[T])
		return v.value, v.err
	}
	v := &volume[T]{text: text}
	v.value, v.err = compile(text)
	if len(text) > textMax {
		return v.value, v.err // a refusal that is cheaper to repeat than to keep
	}
	s.items[text] = s.order.PushFront(v)
	if s.order.Len() > s.max {
		oldest := s.order.Remove(s.order.Back()).(*volume[T])
		delete(s.items, oldest.text)
	}
	return v.value, v.err
}
