package door

import (
	"fmt"
	"sync"
)

// shares are places that users of tenants take. A tenant may have as many as are left for others,
// and a user as many as are left for the others of its tenant then: so no one takes all, and
// whoever comes finds some.
type shares struct {
	limit, are string // as in: 7 requests are worked on
	max        int

	mu  sync.Mutex
	all int
	of  map[string]int // by tenant
	by  map[Caller]int
}

func newShares(limit, are string, max int) *shares {
	return &shares{limit: limit, are: are, max: max, of: map[string]int{}, by: map[Caller]int{}}
}

// enter takes a place, until leave. The error is an *Error: there is none.
func (s *shares) enter(who Caller) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[who] >= s.room(who.Tenant) {
		return tooMany(s.limit, fmt.Sprintf("%d %s %s, %d of them of tenant %s, and %d of %s",
			s.all, s.limit, s.are, s.of[who.Tenant], who.Tenant, s.by[who], who.Name))
	}
	s.all++
	s.of[who.Tenant]++
	s.by[who]++
	return nil
}

// room is how many more a tenant may take.
func (s *shares) room(tenant string) int { return (s.max - s.all - s.of[tenant] + 1) / 2 }

func (s *shares) leave(who Caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.of[who.Tenant]--; s.of[who.Tenant] == 0 {
		delete(s.of, who.Tenant)
	}
	if s.by[who]--; s.by[who] == 0 {
		delete(s.by, who)
	}
}
