package rows

import "container/heap"

// TodoSet is the set of things that need a decision. It is state (rows of [Todo]), so that a
// restart between fold and decision forgets nothing; the heap gives the entries in key order
// without a scan.
type TodoSet struct {
	in      map[string]bool // entries; value: already written to the KV
	heap    stringHeap      // may hold removed entries and duplicates
	dropped []string        // written to the KV, removed since
	added   []string        // not yet written
}

// heapSlack is how many stale entries the heap may hold before it is compacted.
const heapSlack = 1024

type stringHeap []string

func (h stringHeap) Len() int           { return len(h) }
func (h stringHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h stringHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *stringHeap) Push(x any) { *h = append(*h, x.(string)) }

// Pop implements heap.Interface.
func (h *stringHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// Load takes in an entry that is a row already.
func (t *TodoSet) Load(entry string) {
	if t.in == nil {
		t.in = map[string]bool{}
	}
	t.in[entry] = true
	heap.Push(&t.heap, entry)
}

// Add puts an entry in, once.
func (t *TodoSet) Add(entry string) {
	if t.in == nil {
		t.in = map[string]bool{}
	}
	if _, ok := t.in[entry]; ok {
		return
	}
	t.in[entry] = false
	t.added = append(t.added, entry)
	heap.Push(&t.heap, entry)
}

// Remove takes an entry out, if it is in.
func (t *TodoSet) Remove(entry string) {
	written, ok := t.in[entry]
	if !ok {
		return
	}
	delete(t.in, entry)
	if written {
		t.dropped = append(t.dropped, entry)
	}
	if len(t.heap) > 2*len(t.in)+heapSlack {
		t.compact()
	}
}

// compact drops removed entries from the heap; a state that folds without
// deciding (a standby) never pops them.
func (t *TodoSet) compact() {
	live := t.heap[:0]
	for _, e := range t.heap {
		if _, ok := t.in[e]; ok {
			live = append(live, e)
		}
	}
	clear(t.heap[len(live):])
	t.heap = live
	heap.Init(&t.heap)
}

// Len counts the entries.
func (t *TodoSet) Len() int { return len(t.in) }

// First returns up to n entries in ascending order, leaving them in.
func (t *TodoSet) First(n int) []string {
	var out []string
	for len(out) < n && len(t.heap) > 0 {
		e := heap.Pop(&t.heap).(string)
		if _, ok := t.in[e]; ok && (len(out) == 0 || out[len(out)-1] != e) {
			out = append(out, e)
		}
	}
	for _, e := range out {
		heap.Push(&t.heap, e)
	}
	return out
}

// Flush writes the difference since the last flush. An entry that came and went
// in between never reaches the KV.
func (t *TodoSet) Flush(tx *Tx) {
	for _, e := range t.dropped {
		if _, again := t.in[e]; !again {
			Todo.Delete(tx, e)
		}
	}
	for _, e := range t.added {
		if _, ok := t.in[e]; ok {
			Todo.Add(tx, e)
			t.in[e] = true
		}
	}
	t.dropped, t.added = t.dropped[:0], t.added[:0]
}
