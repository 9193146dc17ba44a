package console

import (
	"net/http"
	"sync"
)

// streams bounds the pages that follow the fold: of one operator, of all who have not
// signed in from one address, and in all.
type streams struct {
	mu  sync.Mutex
	all int
	by  map[string]int
}

// begin takes a place; the status says why there is none.
func (s *streams) begin(of string, most int) (status int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.by[of] >= most:
		return http.StatusTooManyRequests, false
	case s.all >= streamsMax:
		return http.StatusServiceUnavailable, false
	}
	if s.by == nil {
		s.by = map[string]int{}
	}
	s.all++
	s.by[of]++
	return 0, true
}

func (s *streams) end(of string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.by[of]--; s.by[of] == 0 {
		delete(s.by, of)
	}
}
