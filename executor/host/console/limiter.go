package console

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// bucket holds tries, which come back with time.
type bucket struct {
	left float64
	at   time.Time // when that was so
}

// take takes one try; false: none is left.
func (b *bucket) take(now time.Time, most int, every time.Duration) bool {
	b.fill(now, most, every)
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

func (b *bucket) fill(now time.Time, most int, every time.Duration) {
	if b.at.IsZero() {
		b.left = float64(most)
	} else if gone := now.Sub(b.at); gone > 0 {
		b.left = min(float64(most), b.left+gone.Seconds()/every.Seconds())
	}
	b.at = now
}

// tries bounds how often a visitor may show a token: for each address, and in all. A token
// that is right gives its try back.
type tries struct {
	mu    sync.Mutex
	all   bucket
	by    map[netip.Prefix]*bucket // at most triesKept
	since time.Time                // when they were last looked through
}

// begin takes a try; wait is how long to wait where there is none.
func (t *tries) begin(from netip.Prefix, now time.Time) (wait time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = map[netip.Prefix]*bucket{}
	}
	own := t.by[from]
	if own == nil {
		t.forget(now)
		if len(t.by) >= triesKept {
			return tryEvery, false
		}
		own = new(bucket)
		t.by[from] = own
	}
	switch {
	case !own.take(now, triesMost, tryEvery):
		return tryEvery, false
	case !t.all.take(now, triesMostAll, tryEveryAll):
		own.left++
		return tryEveryAll, false
	}
	return 0, true
}

// right gives a try back.
func (t *tries) right(from netip.Prefix) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all.left++
	if own := t.by[from]; own != nil {
		own.left++
	}
}

// forget drops the addresses that have all of their tries again; now and then.
func (t *tries) forget(now time.Time) {
	if len(t.by) < triesKept && now.Sub(t.since) < triesMost*tryEvery {
		return
	}
	t.since = now
	for from, b := range t.by {
		if b.fill(now, triesMost, tryEvery); b.left >= triesMost {
			delete(t.by, from)
		}
	}
}

// address is whom a request comes from: of IPv6 the network, which is given out whole.
func address(r *http.Request) netip.Prefix {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Prefix{} // all of those are one
	}
	ip = ip.Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() && !ip.IsLoopback() {
		bits = 64
	}
	of, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return of
}

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
