package rows

import (
	"maps"
	"slices"
)

// Recent remembers values that rows have, by key, and forgets those that were not
// asked for since about half of its size was. What it forgets is read again.
type Recent[T any] struct {
	max        int // entries of both
	young, old map[string]T

	weigh     func(T) int // bytes of a value; nil: they are all small
	weightMax int         // bytes of both, 0: no bound
	weight    int         // of young
}

// NewRecent returns one of at most max entries. weigh is how many bytes a value takes, and
// weightMax bounds them all; nil: the values are all small.
func NewRecent[T any](max, weightMax int, weigh func(T) int) *Recent[T] {
	return &Recent[T]{max: max, young: map[string]T{}, weigh: weigh, weightMax: weightMax}
}

// Get returns what is remembered under key.
func (k *Recent[T]) Get(key string) (value T, ok bool) {
	if value, ok = k.young[key]; ok {
		return value, true
	}
	if value, ok = k.old[key]; ok {
		delete(k.old, key)
		k.Put(key, value)
	}
	return value, ok
}

// Put remembers value under key.
func (k *Recent[T]) Put(key string, value T) {
	weight := 0
	if k.weigh != nil {
		weight = k.weigh(value)
		if had, again := k.young[key]; again {
			k.weight -= k.weigh(had)
		}
	}
	if len(k.young) >= k.max/2 || k.weightMax > 0 && k.weight+weight > k.weightMax/2 {
		k.old, k.young, k.weight = k.young, make(map[string]T, min(k.max/4, len(k.young))), 0
	}
	k.weight += weight
	k.young[key] = value
	delete(k.old, key)
}

// Grown notes that the weight of a value, which Get or Put was called with last, has
// changed by so many bytes.
func (k *Recent[T]) Grown(bytes int) { k.weight += bytes }

// Remove forgets what is remembered under key.
func (k *Recent[T]) Remove(key string) {
	if had, ok := k.young[key]; ok && k.weigh != nil {
		k.weight -= k.weigh(had)
	}
	delete(k.young, key)
	delete(k.old, key)
}

// Recent returns the keys that were asked for since the last half was forgotten, in
// ascending order, and how many bytes their values take.
func (k *Recent[T]) Recent() (keys []string, bytes int) {
	return slices.Sorted(maps.Keys(k.young)), k.weight
}

// Len is how many values are remembered.
func (k *Recent[T]) Len() int { return len(k.young) + len(k.old) }
