package turn

// How many pages that are not taken are kept in memory; the state has the rest. Each hook has
// room of its own: one whose pages no one takes keeps no other hook's pages out.

// room is that of one hook.
type room struct {
	deliveries int // of pages of this hook that are not taken
	// pages were left in the state: when there are fewer deliveries, there is room again; 0: none were
	refill int
}

// rooms counts the pages of all hooks.
type rooms struct {
	of         map[string]*room // by hook, with deliveries or refill; nil: none
	deliveries int              // in all of them
	crowded    bool             // pages were left in the state because there were PagesMax deliveries
	free       bool             // there is room again for pages that were left in the state
}

// fits reports whether one more page of a hook has room. Where all hooks together have no
// room left, one with few pages still has.
func (r *rooms) fits(hook string) bool {
	at := r.of[hook]
	switch {
	case at == nil:
		return true
	case at.deliveries >= PageQueueMax:
		at.refill = PageQueueMax / 2
	case at.deliveries >= PageQueueMin && r.deliveries >= PagesMax:
		at.refill, r.crowded = PageQueueMin/2, true
	default:
		return true
	}
	return false
}

func (r *rooms) enter(hook string) {
	if r.of == nil {
		r.of = map[string]*room{}
	}
	if r.of[hook] == nil {
		r.of[hook] = &room{}
	}
	r.of[hook].deliveries++
	r.deliveries++
}

// leave counts a page that is taken, or has no reason any more. It reports whether pages
// that were left in the state have room now.
func (r *rooms) leave(hook string) bool {
	at := r.of[hook]
	at.deliveries--
	r.deliveries--
	freed := at.deliveries < at.refill || r.crowded && r.deliveries < PagesMax/2
	if at.deliveries < at.refill {
		at.refill = 0
	}
	if r.deliveries < PagesMax/2 {
		r.crowded = false
	}
	if at.deliveries == 0 {
		delete(r.of, hook)
	}
	r.free = r.free || freed
	return freed
}
