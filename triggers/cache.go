package triggers

import (
	"container/list"
	"math"
	"strings"
)

// Cache keeps compiled expressions by their text, so that a million leases with
// one expression share one program. It belongs to one goroutine; what it returns
// may be shared. Refusals are kept too.
//
// What it keeps is bounded in number and in bytes, whatever the texts are. Nothing
// else needs to hold a compiled condition for long: see Kept.
type Cache struct {
	language   *language
	conditions shelf[Condition]
	shapes     shelf[shape] // by the text without its literals
	bindings   shelf[Binding]
	readers    shelf[Binding]
	sound      shelf[struct{}] // shapes of bindings that compile, whatever their literals

	own *[2]dialect // of CheckOwn: of arguments and of readers

	tick         uint64 // one a look-up
	weight       int    // of all that is kept, in bytes
	weightMax    int
	compilations uint64
}

// entryBytes is how many bytes an expression may take on average, of as many as a
// cache may keep. A condition of ten nodes takes about three thousand.
const entryBytes = 3 << 10

// NewCache returns a cache of at most max conditions, max bindings and max readers,
// and of about max times 3 KiB; the ones not asked for longest go first. max below 1
// is 1.
func NewCache(max int) *Cache { return newCache(max, newLanguage()) }

func newCache(max int, l *language) *Cache {
	if max < 1 {
		max = 1
	}
	c := &Cache{language: l, weightMax: max * entryBytes}
	c.conditions.init(c, max)
	c.shapes.init(c, max)
	c.bindings.init(c, max)
	c.readers.init(c, max)
	c.sound.init(c, max)
	return c
}

// Condition is Compile, remembered.
func (c *Cache) Condition(expression string) (*Condition, error) {
	if v := c.conditions.look(expression); v != nil {
		return v.value, v.err
	}
	condition, err := c.condition(expression)
	v := &volume[Condition]{text: expression, value: condition, err: err}
	if v.weight = refusalBytes + len(expression); condition != nil {
		v.weight, v.shape = condition.weight(), condition.shape
	}
	c.conditions.put(v)
	return condition, err
}

// Knows reports whether a condition is at hand, so that Condition only finds it.
func (c *Cache) Knows(expression string) bool {
	_, known := c.conditions.items[expression]
	return known
}

// condition finds the shape of a text, or compiles it: once for all texts that
// differ only in literals.
func (c *Cache) condition(text string) (*Condition, error) {
	if len(text) > textMax {
		_, err := c.language.newShape(text, nil)
		return nil, err
	}
	key, literals := lift(text)
	known := c.shapes.look(key)
	if known != nil {
		if s := known.shape; len(s.params) > 0 || len(literals) == 0 {
			if condition := s.instance(text, literals); condition != nil {
				return condition, nil
			}
		}
		literals = nil // its literals cannot be parameters, or one of them is wrong
	}
	var s *shape
	var err error
	if known == nil {
		s = c.join(text, literals)
	}
	if s == nil {
		if s, err = c.compile(text, literals); err != nil {
			return nil, err
		}
	}
	if known == nil {
		c.shapes.put(&volume[shape]{text: key, weight: len(key), shape: s})
	}
	if condition := s.instance(text, literals); condition != nil {
		return condition, nil
	}
	if s, err = c.compile(text, nil); err != nil {
		return nil, err
	}
	return s.instance(text, nil), nil
}

func (c *Cache) compile(text string, literals []literal) (*shape, error) {
	c.compilations++
	return c.language.newShape(text, literals)
}

// Compilations returns how many expressions were parsed, checked and planned: one for
// each look-up that found nothing to share.
func (c *Cache) Compilations() uint64 { return c.compilations }

// Binding is CompileBinding, remembered.
func (c *Cache) Binding(expression string) (*Binding, error) {
	return c.binding(&c.bindings, expression, c.language.compileBinding)
}

// CheckBinding is the error of Binding: whether a text compiles, for a caller with no use for
// it yet. Texts that differ in literals only are compiled once, if nothing in them is
// called: a call may refuse a literal.
func (c *Cache) CheckBinding(expression string) error {
	if v := c.bindings.look(expression); v != nil {
		return v.err
	}
	if len(expression) > textMax {
		_, err := c.language.compileBinding(expression)
		return err
	}
	key, literals := lift(expression)
	if len(literals) == 0 || strings.ContainsRune(key, '(') {
		_, err := c.Binding(expression)
		return err
	}
	if c.sound.look(key) != nil {
		return nil
	}
	if _, err := c.Binding(expression); err != nil {
		return err
	}
	c.sound.put(&volume[struct{}]{text: key, weight: len(key)})
	return nil
}

// Reader is CompileReader, remembered.
func (c *Cache) Reader(expression string) (*Binding, error) {
	return c.binding(&c.readers, expression, c.language.compileReader)
}

// CheckOwn is the error of Binding, or of Reader, for those that know of an action only what is its
// own: there, actions and facts are no variables.
func (c *Cache) CheckOwn(expression string, reader bool) error {
	if c.own == nil {
		own := bindingVariables[:5:5]
		c.own = &[2]dialect{newBindingDialect(own),
			newBindingDialect(append(own, bindingVariables[argumentVariables:]...))}
	}
	d := c.own[0]
	if reader {
		d = c.own[1]
	}
	_, err := c.language.check(d, expression, rewriteOwn)
	return err
}

func (c *Cache) binding(
	s *shelf[Binding], text string, compile func(string) (*Binding, error),
) (*Binding, error) {
	if v := s.look(text); v != nil {
		return v.value, v.err
	}
	c.compilations++
	v := &volume[Binding]{text: text, weight: refusalBytes + len(text)}
	if v.value, v.err = compile(text); v.err == nil {
		v.weight = v.value.weight
	}
	s.put(v)
	return v.value, v.err
}

// pin counts a shape that something in the cache needs.
func (c *Cache) pin(s *shape) {
	if s == nil {
		return
	}
	if s.pins++; s.pins == 1 {
		c.weight += s.weight
		for _, term := range s.terms {
			c.pin(term)
		}
	}
}

// unpin takes that back. Whoever keeps a condition beside the cache learns that its
// program is gone.
func (c *Cache) unpin(s *shape) {
	if s == nil {
		return
	}
	if s.pins--; s.pins == 0 {
		c.weight -= s.weight
		s.home.shape = nil
		for _, term := range s.terms {
			c.unpin(term)
		}
	}
}

// trim lets go of what was not asked for longest until the bound is met. What came
// last stays, however much it is.
func (c *Cache) trim() {
	for c.weight > c.weightMax {
		oldest, first := drawer(nil), c.tick
		for _, d := range []drawer{&c.conditions, &c.shapes, &c.bindings, &c.readers, &c.sound} {
			if tick := d.oldest(); tick < first {
				oldest, first = d, tick
			}
		}
		if oldest == nil {
			return
		}
		oldest.drop()
	}
}

// drawer is a shelf of any kind.
type drawer interface {
	oldest() (tick uint64) // of the volume that would go first; the largest number: none
	drop()                 // that volume, or gives it another round
}

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
