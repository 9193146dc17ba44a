package host

import (
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// shift has the wall clock be so far ahead of the machine's.
func (c *Clock) shift(ahead time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = func() time.Time { return time.Now().Round(0).Add(ahead) }
}

// A jump of the wall clock calls the operators, once, and shows in the numbers.
func TestAJumpOfTheClockCallsTheOperators(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h := testenv.NewHook[api.Page](t, testenv.Takes)
	r.webhooks = map[string]string{api.PageOperators: h.URL + "/operators", api.PageDefault: h.URL + "/owners"}
	host, _ := r.host("a")
	r.eventually("holding", func() bool { return r.status().Mode == api.ModeHolding })
	host.clock.shift(time.Hour)
	r.plan("p", 1, time.Minute)
	got := h.Next(t)
	if got.Path != "/operators" || got.Body.Kind != api.PageClockGuard ||
		!strings.Contains(got.Body.Reason, "1h0m0s ahead") || got.Body.Tenant != "t" {
		t.Errorf("%+v", got)
	}
	r.eventually("the guard", func() bool { return r.status().Mode == api.ModeGuard })
	if n := len(h.Posts); n != 0 {
		t.Errorf("%d further posts", n)
	}
	host.clock.shift(0)
	r.eventually("holding again", func() bool { return r.status().Mode == api.ModeHolding })
}

// A host that follows another in one process does not take a clock for right that the
// first one has seen jump.
func TestTheClockOfAProcessOutlivesItsHosts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.clock = NewClock()
	first, stop := r.host("a")
	r.eventually("holding", func() bool { return r.status().Mode == api.ModeHolding })
	first.clock.shift(time.Hour)
	r.plan("p", 1, 30*time.Minute)
	r.eventually("the guard", func() bool { return r.status().Mode == api.ModeGuard })
	stop()
	r.host("a")
	r.eventually("the guard again", func() bool { return r.status().Mode == api.ModeGuard })
	if v := r.show("p"); v.State != ledger.StateOpen {
		t.Errorf("the plan is %s", v.State)
	}
}
