package access

import (
	"net/http"
	"net/netip"
	"strconv"
	"testing"
	"time"
)

func TestTriesComeBackWithTimeAndAreBoundedInAll(t *testing.T) {
	var tr tries
	now := time.Unix(1_900_000_000, 0)
	one := netip.MustParsePrefix("192.0.2.1/32")
	for range triesMost {
		if wait := tr.begin(known{one, ""}, now); wait != 0 {
			t.Fatal("refused within the bound")
		}
	}
	if wait := tr.begin(known{one, ""}, now); wait != tryEvery {
		t.Errorf("one more: wait %v", wait)
	}
	if wait := tr.begin(known{one, ""}, now.Add(tryEvery)); wait != 0 {
		t.Error("no try has come back")
	}
	if wait := tr.begin(known{one, ""}, now.Add(tryEvery)); wait == 0 {
		t.Error("two have come back at once")
	}
	allowed := 0
	for i := range 4 * triesMostAll { // each from an address of its own
		of := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)
		if wait := tr.begin(known{of, ""}, now.Add(tryEvery)); wait == 0 {
			allowed++
		}
	}
	if allowed > triesMostAll {
		t.Errorf("%d tries of all, want at most %d", allowed, triesMostAll)
	}
}

func TestAddressesAndNamesAreForgottenWhenTheyHaveAllTheirTries(t *testing.T) {
	var tr tries
	now := time.Unix(1_900_000_000, 0)
	for i := range 3 * triesKept {
		now = now.Add(tryEveryAll)
		of := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
		if wait := tr.begin(known{of, "n" + strconv.Itoa(i)}, now); wait != 0 {
			t.Fatalf("try %d was refused", i)
		}
		if kept := max(len(tr.from.by), len(tr.names.by)); kept > triesKept {
			t.Fatalf("%d are kept", kept)
		}
	}
	if few := int(triesMost*tryEvery/tryEveryAll) * 3; len(tr.from.by) > few || len(tr.names.by) > 2*few {
		t.Errorf("%d addresses and %d names are kept, want at most %d", len(tr.from.by), len(tr.names.by), few)
	}
}

func TestAnAddressOfIPv6IsItsNetwork(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.7:1234": "192.0.2.7/32", "[2001:db8:1:2:3:4:5:6]:1": "2001:db8:1:2::/64", "[::1]:9": "::1/128",
		"[::ffff:192.0.2.7]:9": "192.0.2.7/32", "[fe80::1%eth0]:9": "fe80::/64", "odd": "invalid Prefix",
	} {
		if got := Address(&http.Request{RemoteAddr: remote}).String(); got != want {
			t.Errorf("%s: %s, want %s", remote, got, want)
		}
	}
}

// TestANameIsBoundedFromAllAddressesTogether, but not for who has been right from one.
func TestANameIsBoundedFromAllAddressesTogether(t *testing.T) {
	var tr tries
	now := time.Unix(1_900_000_000, 0)
	from := func(i int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)
	}
	own := known{from(0), "ana"}
	if wait := tr.begin(own, now); wait != 0 {
		t.Fatal("the first is refused")
	}
	tr.right(own, now)
	for i := range triesMostName {
		if wait := tr.begin(known{from(i + 1), "ana"}, now); wait != 0 {
			t.Fatalf("try %d was refused", i)
		}
	}
	if wait := tr.begin(known{from(1000), "ana"}, now); wait != tryEvery {
		t.Errorf("from one more address: wait %v", wait)
	}
	if wait := tr.begin(known{from(1000), "bo"}, now); wait != 0 {
		t.Errorf("another name: wait %v", wait)
	}
	if wait := tr.begin(own, now); wait != 0 {
		t.Errorf("who has been right waits %v for what others try", wait)
	}
	for i := range 2 * knownKept {
		tr.right(known{from(i), "bo"}, now.Add(time.Duration(i)))
	}
	if len(tr.known) > knownKept {
		t.Errorf("%d are remembered", len(tr.known))
	}
}
