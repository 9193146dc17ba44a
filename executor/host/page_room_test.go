package host

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestAHookWhosePagesNoOneTakesKeepsNoOthersOut: neither where the other one listens over
// NATS, nor where both are posted to one webhook.
func TestAHookWhosePagesNoOneTakesKeepsNoOthersOut(t *testing.T) {
	t.Parallel()
	var ignored []executor.Page
	for i := range pageQueueMax + 1 {
		ignored = append(ignored, quarantinePage(i+1, "ignored"))
	}
	heard := quarantinePage(pageQueueMax+10, "payments")
	t.Run("over NATS", func(t *testing.T) {
		r := newRig(t)
		sub, err := r.conn.Subscribe(api.PageSubject("t", "payments"), func(m *nats.Msg) { _ = m.Respond(m.Data) })
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sub.Unsubscribe() }()
		p := pagerOn(t, r, nil)
		p.add(append(ignored, heard))
		if paged := waitTaken(t, p, 1); paged[0].Number != heard.Number || paged[0].Hook != "payments" {
			t.Errorf("%+v is taken", paged)
		}
	})
	t.Run("at one webhook", func(t *testing.T) {
		h := newHook(t, takes)
		p := pagerOn(t, newRig(t), map[string]string{api.PageDefault: h.URL})
		p.mu.Lock()
		p.lane("ignored").until = time.Now().Add(time.Hour) // it fails for long
		p.mu.Unlock()
		p.add(append(ignored, heard))
		p.mu.Lock()
		defer p.mu.Unlock()
		if n := len(p.letters); n != pageQueueMax+1 {
			t.Errorf("%d pages wait", n)
		}
	})
}

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
	const hooks = pagesMax / pageQueueMax
	for i := range hooks {
		if n := fill(fmt.Sprint("hook", i), 2*pageQueueMax); n != pageQueueMax {
			t.Errorf("hook %d: %d", i, n)
		}
	}
	if n := fill("late", pageQueueMax); n != pageQueueMin {
		t.Errorf("%d pages of a late hook have room", n)
	}
	freed := 0
	for range pageQueueMin {
		if r.leave("late") {
			freed++
		}
	}
	if freed != 1 || !r.free {
		t.Errorf("there is room again %d times, %v", freed, r.free)
	}
	if n := fill("late", pageQueueMax); n != pageQueueMin {
		t.Errorf("%d more pages of a late hook have room", n)
	}
	for i, freed := 0, 0; i < hooks; i++ {
		for range pageQueueMax {
			if r.leave(fmt.Sprint("hook", i)) {
				freed++
			}
		}
		if freed < i+1 || freed > i+2 { // once for each, and once for all
			t.Errorf("after hook %d there is room again %d times", i, freed)
		}
	}
	if n := fill("late", pageQueueMax); n != pageQueueMax-pageQueueMin || len(r.of) != 1 || r.letters != pageQueueMax {
		t.Errorf("%d of a late hook have room, %d in all, of %d hooks", n, r.letters, len(r.of))
	}
}
