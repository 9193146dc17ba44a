package executor

// kept remembers values that rows have, by key, and forgets those that were not
// asked for since about half of its size was. What it forgets is read again.
type kept[T any] struct {
	max        int // entries of both
	young, old map[string]T

	weigh     func(T) int // bytes of a value; nil: they are all small
	weightMax int         // bytes of both, 0: no bound
	weight    int         // of young
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

// grown notes that the weight of a value, which get or put was called with last, has
// changed by so many bytes.
func (k *kept[T]) grown(bytes int) { k.weight += bytes }

// remove forgets what is remembered under key.
func (k *kept[T]) remove(key string) {
	if had, ok := k.young[key]; ok && k.weigh != nil {
		k.weight -= k.weigh(had)
	}
	delete(k.young, key)
	delete(k.old, key)
}
