package console

import (
	"net/http"
	"net/netip"
	"testing"
	"time"
)

func TestTriesComeBackWithTimeAndAreBoundedInAll(t *testing.T) {
	var tr tries
	now := time.Unix(1_900_000_000, 0)
	one := netip.MustParsePrefix("192.0.2.1/32")
	for range triesMost {
		if _, ok := tr.begin(one, now); !ok {
			t.Fatal("refused within the bound")
		}
	}
	if wait, ok := tr.begin(one, now); ok || wait != tryEvery {
		t.Errorf("one more: %v, wait %v", ok, wait)
	}
	if _, ok := tr.begin(one, now.Add(tryEvery)); !ok {
		t.Error("no try has come back")
	}
	if _, ok := tr.begin(one, now.Add(tryEvery)); ok {
		t.Error("two have come back at once")
	}
	allowed := 0
	for i := range 4 * triesMostAll { // each from an address of its own
		of := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)
		if _, ok := tr.begin(of, now.Add(tryEvery)); ok {
			allowed++
		}
	}
	if allowed > triesMostAll {
		t.Errorf("%d tries of all, want at most %d", allowed, triesMostAll)
	}
}

func TestAddressesAreForgottenWhenTheyHaveAllTheirTries(t *testing.T) {
	var tr tries
	now := time.Unix(1_900_000_000, 0)
	for i := range 3 * triesKept {
		now = now.Add(tryEveryAll)
		of := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
		if _, ok := tr.begin(of, now); !ok {
			t.Fatalf("try %d was refused", i)
		}
		if len(tr.by) > triesKept {
			t.Fatalf("%d addresses are kept", len(tr.by))
		}
	}
	if few := int(triesMost*tryEvery/tryEveryAll) * 3; len(tr.by) > few {
		t.Errorf("%d addresses are kept, want at most %d", len(tr.by), few)
	}
}

func TestAnAddressOfIPv6IsItsNetwork(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.7:1234": "192.0.2.7/32", "[2001:db8:1:2:3:4:5:6]:1": "2001:db8:1:2::/64", "[::1]:9": "::1/128",
		"[::ffff:192.0.2.7]:9": "192.0.2.7/32", "[fe80::1%eth0]:9": "fe80::/64", "odd": "invalid Prefix",
	} {
		if got := address(&http.Request{RemoteAddr: remote}).String(); got != want {
			t.Errorf("%s: %s, want %s", remote, got, want)
		}
	}
}

func TestStreamsAreBoundedForEachAndInAll(t *testing.T) {
	var s streams
	for range 3 {
		if _, ok := s.begin("a", 3); !ok {
			t.Fatal("refused within the bound")
		}
	}
	if status, ok := s.begin("a", 3); ok || status != http.StatusTooManyRequests {
		t.Errorf("one more of the same: %v, %d", ok, status)
	}
	s.end("a")
	if _, ok := s.begin("a", 3); !ok {
		t.Error("a place that was given back is not there")
	}
	for s.all < streamsMax {
		if _, ok := s.begin("others", streamsMax); !ok {
			t.Fatal("refused within the bound of all")
		}
	}
	if status, ok := s.begin("b", 3); ok || status != http.StatusServiceUnavailable {
		t.Errorf("one more of all: %v, %d", ok, status)
	}
	for range 3 {
		s.end("a")
	}
	if _, kept := s.by["a"]; kept {
		t.Error("who follows nothing is kept")
	}
}
