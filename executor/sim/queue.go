package sim

// Spans of virtual time, ns.
const (
	millisecond = int64(1e6)
	second      = int64(1e9)
	minute      = 60 * second
)

// epoch0 is when every world begins, unix ns.
const epoch0 = int64(1_800_000_000) * second

// event is something that happens at an instant. Events of one instant come in the
// order of tie, which the seed draws.
type event struct {
	at    int64
	tie   uint32
	n     uint32
	after func()
}

// queue is a heap of events.
type queue struct {
	events []event
	count  uint32
}

func (q *queue) less(i, j int) bool {
	a, b := &q.events[i], &q.events[j]
	switch {
	case a.at != b.at:
		return a.at < b.at
	case a.tie != b.tie:
		return a.tie < b.tie
	default:
		return a.n < b.n
	}
}

func (q *queue) push(at int64, tie uint32, f func()) {
	q.count++
	q.events = append(q.events, event{at, tie, q.count, f})
	for i := len(q.events) - 1; i > 0; {
		parent := (i - 1) / 2
		if !q.less(i, parent) {
			break
		}
		q.events[i], q.events[parent] = q.events[parent], q.events[i]
		i = parent
	}
}

func (q *queue) pop() event {
	first, last := q.events[0], len(q.events)-1
	q.events[0] = q.events[last]
	q.events[last] = event{}
	q.events = q.events[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && q.less(child+1, child) {
			child++
		}
		if !q.less(child, i) {
			break
		}
		q.events[i], q.events[child] = q.events[child], q.events[i]
		i = child
	}
	return first
}
