package turn

import (
	"fmt"
	"testing"
)

// TestPagesInMemoryAreBounded: however many hooks there are, and each has some room.
func TestPagesInMemoryAreBounded(t *testing.T) {
	t.Parallel()
	r := rooms{of: map[string]*room{}}
	fill := func(hook string, n int) (entered int) {
		for range n {
			if r.fits(hook) {
				r.enter(hook)
				entered++
			}
		}
		return entered
	}
	const hooks = PagesMax / PageQueueMax
	for i := range hooks {
		if n := fill(fmt.Sprint("hook", i), 2*PageQueueMax); n != PageQueueMax {
			t.Errorf("hook %d: %d", i, n)
		}
	}
	if n := fill("late", PageQueueMax); n != PageQueueMin {
		t.Errorf("%d pages of a late hook have room", n)
	}
	freed := 0
	for range PageQueueMin {
		if r.leave("late") {
			freed++
		}
	}
	if freed != 1 || !r.free {
		t.Errorf("there is room again %d times, %v", freed, r.free)
	}
	if n := fill("late", PageQueueMax); n != PageQueueMin {
		t.Errorf("%d more pages of a late hook have room", n)
	}
	for i, freed := 0, 0; i < hooks; i++ {
		for range PageQueueMax {
			if r.leave(fmt.Sprint("hook", i)) {
				freed++
			}
		}
		if freed < i+1 || freed > i+2 { // once for each, and once for all
			t.Errorf("after hook %d there is room again %d times", i, freed)
		}
	}
	if n := fill("late", PageQueueMax); n != PageQueueMax-PageQueueMin || len(r.of) != 1 || r.deliveries != PageQueueMax {
		t.Errorf("%d of a late hook have room, %d in all, of %d hooks", n, r.deliveries, len(r.of))
	}
}
