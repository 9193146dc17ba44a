package door_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/door"
)

// TestNoTenantTakesAllPlacesOfTheDoor, and no user those of its tenant: whoever comes finds some, and
// what was given back is there for others.
func TestNoTenantTakesAllPlacesOfTheDoor(t *testing.T) {
	t.Parallel()
	s := door.NewShares(4096)
	take := func(tenant, name string) (n int, err error) {
		for ; err == nil; n++ {
			err = s.Enter(door.Caller{Tenant: tenant, Name: name})
		}
		return n - 1, err
	}
	for _, c := range []struct {
		tenant, name string
		want         int
	}{{"a", "1", 1024}, {"a", "2", 512}, {"a", "3", 256}, {"b", "1", 576}, {"a", "1", 0}} {
		n, err := take(c.tenant, c.name)
		var refused *door.Error
		if n != c.want || !errors.As(err, &refused) || refused.Status != http.StatusTooManyRequests ||
			refused.Limit != "requests" || !strings.Contains(refused.Problem, "of tenant "+c.tenant) {
			t.Errorf("user %s of tenant %s takes %d, want %d: %v", c.name, c.tenant, n, c.want, err)
		}
	}
	for range 1024 {
		s.Leave(door.Caller{Tenant: "a", Name: "1"})
	}
	if n, _ := take("c", "1"); n < 500 {
		t.Errorf("a tenant that comes then takes %d", n)
	}
}

// deadlines is a response that notes whether each write has a deadline.
type deadlines struct {
	*httptest.ResponseRecorder
	late    time.Time
	flushed func()
	without int
}

func (d *deadlines) SetWriteDeadline(late time.Time) error {
	d.late = late
	return nil
}

func (d *deadlines) FlushError() error {
	if d.late.Before(time.Now()) {
		d.without++
	}
	d.flushed()
	return nil
}

// TestAStreamThatIsNotReadEnds: what is written has a deadline, or it would outlive its user.
func TestAStreamThatIsNotReadEnds(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/default/tripper/plans/p/events", http.NoBody)
	r.Header.Set("Authorization", "Bearer "+l.token("tripper"))
	out := &deadlines{ResponseRecorder: httptest.NewRecorder(), flushed: cancel}
	l.web.Handler().ServeHTTP(out, r)
	if out.Code != http.StatusOK || out.without != 0 || out.late.IsZero() {
		t.Errorf("%d, %d writes without a deadline, the last %v", out.Code, out.without, out.late)
	}
}
