package executor

// kept remembers values that rows have, by key, and forgets those that were not
// asked for since about half of its size was. What it forgets is read again.
type kept[T any] struct {
	max        int // entries of both
	young, old map[string]T
}

func newKept[T any](max int) *kept[T] {
	return &kept[T]{max: max, young: map[string]T{}}
}

// get returns what is remembered under key.
func (k *kept[T]) get(key string) (value T, ok bool) {
	if value, ok = k.young[key]; ok {
		return value, true
	}
	if value, ok = k.old[key]; ok {
		delete(k.old, key)
		k.put(key, value)
	}
	return value, ok
}

// put remembers value under key.
func (k *kept[T]) put(key string, value T) {
	if len(k.young) >= k.max/2 {
		k.old, k.young = k.young, make(map[string]T, k.max/4)
	}
	k.young[key] = value
	delete(k.old, key)
}
