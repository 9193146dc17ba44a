package turn

import (
	"maps"
	"slices"
)

// Erasures are the plans of one term whose keys are to be destroyed. Each is tried until
// the store says that its key is gone; a record asks for it, and until another one says
// that it is done, the next term asks again. The zero value has none.
type Erasures struct {
	asked map[string]bool // plans under way, or destroyed and not yet recorded
	queue []string
	gone  []string // destroyed, not yet recorded
}

// Add takes plans whose keys are to be destroyed, each once.
func (e *Erasures) Add(plans []string) {
	for _, plan := range plans {
		if e.asked[plan] {
			continue
		}
		if e.asked == nil {
			e.asked = map[string]bool{}
		}
		e.asked[plan] = true
		e.queue = append(e.queue, plan)
	}
}

// All are the plans whose keys are to be destroyed, or were and are not recorded as destroyed, in
// order.
func (e *Erasures) All() []string { return slices.Sorted(maps.Keys(e.asked)) }

// Next is the plan whose key is to be destroyed next; false: none. It is tried until
// [Erasures.Result] says what became of it.
func (e *Erasures) Next() (plan string, ok bool) {
	if len(e.queue) == 0 {
		return "", false
	}
	return e.queue[0], true
}

// Result takes what became of the try for the plan that Next named. After a failure the
// other plans come first.
func (e *Erasures) Result(plan string, destroyed bool) {
	at := slices.Index(e.queue, plan)
	if at < 0 {
		return
	}
	e.queue = slices.Delete(e.queue, at, at+1)
	if destroyed {
		e.gone = append(e.gone, plan)
	} else {
		e.queue = append(e.queue, plan)
	}
}

// Destroyed are the plans whose keys are gone and not yet recorded as gone: for [Inputs].
func (e *Erasures) Destroyed() []string { return slices.Clone(e.gone) }

// Recorded forgets a plan that the ledger has as destroyed.
func (e *Erasures) Recorded(plan string) {
	delete(e.asked, plan)
	e.queue = slices.DeleteFunc(e.queue, func(p string) bool { return p == plan })
	e.gone = slices.DeleteFunc(e.gone, func(p string) bool { return p == plan })
}
