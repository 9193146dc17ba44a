// Package tries counts how often a visitor shows a token that is not good, and says when to wait.
// The console looks at no token until then; the door lets a good one in all the same. It keeps no
// token.
package tries

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Bounds; each names what it bounds.
const (
	most      = 10                     // tokens that may be shown at once, from one address
	mostName  = 20                     // the same, for one name
	Every     = 5 * time.Second        // after which there is one more of either
	mostAll   = 100                    // tokens that all may show at once
	everyAll  = 500 * time.Millisecond // after which there is one more
	kept      = 10_000                 // addresses, and names, that are remembered for that
	knownKept = 1000                   // addresses that are remembered for having been right
)

// TooMany says that too many tokens were shown, and how long to wait.
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
	by    map[K]*bucket // at most kept
	since time.Time     // when they were last looked through
}

// of is the bucket of a key; nil: too many are remembered.
func (b *buckets[K]) of(key K, now time.Time) *bucket {
	if own := b.by[key]; own != nil {
		own.fill(now, b.most, Every)
		return own
	}
	b.forget(now)
	if len(b.by) >= kept {
		return nil
	}
	if b.by == nil {
		b.by = map[K]*bucket{}
	}
	own := new(bucket)
	own.fill(now, b.most, Every)
	b.by[key] = own
	return own
}

// forget drops those that have all of their tries again; now and then.
func (b *buckets[K]) forget(now time.Time) {
	if len(b.by) < kept && now.Sub(b.since) < time.Duration(b.most)*Every {
		return
	}
	b.since = now
	for key, own := range b.by {
		if own.fill(now, b.most, Every); own.left >= float64(b.most) {
			delete(b.by, key)
		}
	}
}

// Known is a name that is shown from an address.
type Known struct {
	From netip.Prefix
	Name string
}

// Tries bounds how often a visitor may show a token: for each address, for each name, and in
// all. A token that is right gives its try back. Who has shown the right one from an address
// is not kept out there by what others try under that name.
type Tries struct {
	mu    sync.Mutex
	all   bucket
	from  buckets[netip.Prefix]
	names buckets[string]
	known map[Known]time.Time // at most knownKept; when it was last right
}

// Begin takes a try; wait is how long to wait where there is none.
func (t *Tries) Begin(who Known, now time.Time) (wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.from.most, t.names.most = most, mostName
	t.all.fill(now, mostAll, everyAll)
	own, named := t.from.of(who.From, now), new(bucket{left: 1})
	if _, ok := t.known[who]; !ok && who.Name != "" {
		named = t.names.of(who.Name, now)
	}
	if own == nil || named == nil {
		return Every
	}
	wait = max(own.wait(Every), named.wait(Every), t.all.wait(everyAll))
	if wait == 0 {
		own.left--
		named.left--
		t.all.left--
	}
	return wait
}

// Right gives a try back, and remembers who was right.
func (t *Tries) Right(who Known, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all.left++
	if own := t.from.by[who.From]; own != nil {
		own.left++
	}
	if _, ok := t.known[who]; !ok {
		if named := t.names.by[who.Name]; named != nil {
			named.left++
		}
		t.drop()
	}
	if t.known == nil {
		t.known = map[Known]time.Time{}
	}
	t.known[who] = now
}

// Knows reports whether someone is remembered for having been right.
func (t *Tries) Knows(who Known) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.known[who]
	return ok
}

// drop makes room for one more who was right.
func (t *Tries) drop() {
	if len(t.known) < knownKept {
		return
	}
	var oldest Known
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

// Bearer is the token that a request shows: the scheme has any capitals, and one space or several
// follow it (RFC 9110, 11.4). ok is false where it shows none.
func Bearer(r *http.Request) (token string, ok bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.Trim(token, " "), true
}
