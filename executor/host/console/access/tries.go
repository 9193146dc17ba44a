package access

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

// TooMany says that a token was not looked at, and how long to wait.
type TooMany struct{ Wait time.Duration }

func (e *TooMany) Error() string {
	return fmt.Sprintf("too many tokens were shown: try again in %s s", e.Seconds())
}

// Seconds is the wait as the head Retry-After has it.
func (e *TooMany) Seconds() string {
	return strconv.Itoa(int((e.Wait + time.Second - 1) / time.Second))
}

// bucket holds tries, which come back with time.
type bucket struct {
	left float64
	at   time.Time // when that was so
}

func (b *bucket) fill(now time.Time, most int, every time.Duration) {
	if b.at.IsZero() {
		b.left = float64(most)
	} else if gone := now.Sub(b.at); gone > 0 {
		b.left = min(float64(most), b.left+gone.Seconds()/every.Seconds())
	}
	b.at = now
}

// wait is how long it takes until there is a try; 0: there is one.
func (b *bucket) wait(every time.Duration) time.Duration {
	return max(0, time.Duration((1-b.left)*float64(every)))
}

// buckets are tries of many, each by a key.
type buckets[K comparable] struct {
	most  int
	by    map[K]*bucket // at most triesKept
	since time.Time     // when they were last looked through
}

// of is the bucket of a key; nil: too many are remembered.
func (b *buckets[K]) of(key K, now time.Time) *bucket {
	if own := b.by[key]; own != nil {
		own.fill(now, b.most, tryEvery)
		return own
	}
	b.forget(now)
	if len(b.by) >= triesKept {
		return nil
	}
	if b.by == nil {
		b.by = map[K]*bucket{}
	}
	own := new(bucket)
	own.fill(now, b.most, tryEvery)
	b.by[key] = own
	return own
}

// forget drops those that have all of their tries again; now and then.
func (b *buckets[K]) forget(now time.Time) {
	if len(b.by) < triesKept && now.Sub(b.since) < time.Duration(b.most)*tryEvery {
		return
	}
	b.since = now
	for key, own := range b.by {
		if own.fill(now, b.most, tryEvery); own.left >= float64(b.most) {
			delete(b.by, key)
		}
	}
}

// known is a name that was right from an address.
type known struct {
	from netip.Prefix
	name string
}

// tries bounds how often a visitor may show a token: for each address, for each name, and in
// all. A token that is right gives its try back. Who has shown the right one from an address
// is not kept out there by what others try under that name.
type tries struct {
	mu    sync.Mutex
	all   bucket
	from  buckets[netip.Prefix]
	names buckets[string]
	known map[known]time.Time // at most knownKept; when it was last right
}

// begin takes a try; wait is how long to wait where there is none.
func (t *tries) begin(who known, now time.Time) (wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.from.most, t.names.most = triesMost, triesMostName
	t.all.fill(now, triesMostAll, tryEveryAll)
	own, named := t.from.of(who.from, now), new(bucket{left: 1})
	if _, ok := t.known[who]; !ok && who.name != "" {
		named = t.names.of(who.name, now)
	}
	if own == nil || named == nil {
		return tryEvery
	}
	wait = max(own.wait(tryEvery), named.wait(tryEvery), t.all.wait(tryEveryAll))
	if wait == 0 {
		own.left--
		named.left--
		t.all.left--
	}
	return wait
}

// right gives a try back, and remembers who was right.
func (t *tries) right(who known, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all.left++
	if own := t.from.by[who.from]; own != nil {
		own.left++
	}
	if _, ok := t.known[who]; !ok {
		if named := t.names.by[who.name]; named != nil {
			named.left++
		}
		t.drop()
	}
	if t.known == nil {
		t.known = map[known]time.Time{}
	}
	t.known[who] = now
}

// drop makes room for one more who was right.
func (t *tries) drop() {
	if len(t.known) < knownKept {
		return
	}
	var oldest known
	var at time.Time
	for who, when := range t.known {
		if at.IsZero() || when.Before(at) {
			oldest, at = who, when
		}
	}
	delete(t.known, oldest)
}

// Address is whom a request comes from: of IPv6 the network, which is given out whole.
func Address(r *http.Request) netip.Prefix {
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
