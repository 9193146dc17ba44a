package triggers

import "container/list"

// Cache keeps compiled expressions by their text, so that a million leases with
// one expression share one program. It belongs to one goroutine; what it returns
// may be shared. Refusals are kept too.
type Cache struct {
	language   *language
	conditions shelf[Condition]
	shapes     shelf[shape] // by the text without its literals
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
		shapes:     shelf[shape]{max: max, items: map[string]*list.Element{}},
		bindings:   shelf[Binding]{max: max, items: map[string]*list.Element{}},
		readers:    shelf[Binding]{max: max, items: map[string]*list.Element{}},
	}
}

// Condition is Compile, remembered.
func (c *Cache) Condition(expression string) (*Condition, error) {
	return c.conditions.get(expression, c.condition)
}

// condition finds the shape of a text, or compiles it: once for all texts that
// differ only in literals.
func (c *Cache) condition(text string) (*Condition, error) {
	if len(text) > textMax {
		_, err := c.language.newShape(text, nil)
		return nil, err
	}
	key, literals := lift(text)
	if s := c.shapes.peek(key); s != nil {
		if len(s.params) > 0 || len(literals) == 0 {
			if condition := s.instance(text, literals); condition != nil {
				return condition, nil
			}
		}
		literals = nil // its literals cannot be parameters, or one of them is wrong
	}
	s, err := c.language.newShape(text, literals)
	if err != nil {
		return nil, err
	}
	if c.shapes.peek(key) == nil {
		c.shapes.keep(key, s)
	}
	if condition := s.instance(text, literals); condition != nil {
		return condition, nil
	}
	if s, err = c.language.newShape(text, nil); err != nil {
		return nil, err
	}
	return s.instance(text, nil), nil
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

// peek returns what is kept under text, or nil.
func (s *shelf[T]) peek(text string) *T {
	element, ok := s.items[text]
	if !ok {
		return nil
	}
	s.order.MoveToFront(element)
	return element.Value.(*volume[T]).value
}

// keep puts value under text, and drops what was not asked for longest.
func (s *shelf[T]) keep(text string, value *T) { s.put(&volume[T]{text: text, value: value}) }

func (s *shelf[T]) put(v *volume[T]) {
	if had, ok := s.items[v.text]; ok {
		s.order.Remove(had)
	}
	s.items[v.text] = s.order.PushFront(v)
	if s.order.Len() > s.max {
		oldest := s.order.Remove(s.order.Back()).(*volume[T])
		delete(s.items, oldest.text)
	}
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
	s.put(v)
	return v.value, v.err
}
