package tries

import (
	"net/http"
	"net/netip"
	"strconv"
	"testing"
	"time"
)

func TestTriesComeBackWithTimeAndAreBoundedInAll(t *testing.T) {
	var tr Tries
	now := time.Unix(1_900_000_000, 0)
	one := netip.MustParsePrefix("192.0.2.1/32")
	for range most {
		if wait := tr.Begin(Known{one, ""}, now); wait != 0 {
			t.Fatal("refused within the bound")
		}
	}
	if wait := tr.Begin(Known{one, ""}, now); wait != Every {
		t.Errorf("one more: wait %v", wait)
	}
	if wait := tr.Begin(Known{one, ""}, now.Add(Every)); wait != 0 {
		t.Error("no try has come back")
	}
	if wait := tr.Begin(Known{one, ""}, now.Add(Every)); wait == 0 {
		t.Error("two have come back at once")
	}
	allowed := 0
	for i := range 4 * mostAll { // each from an address of its own
		of := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)
		if wait := tr.Begin(Known{of, ""}, now.Add(Every)); wait == 0 {
			allowed++
		}
	}
	if allowed > mostAll {
		t.Errorf("%d tries of all, want at most %d", allowed, mostAll)
	}
}

func TestAddressesAndNamesAreForgottenWhenTheyHaveAllTheirTries(t *testing.T) {
	var tr Tries
	now := time.Unix(1_900_000_000, 0)
	for i := range 3 * kept {
		now = now.Add(everyAll)
		of := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
		if wait := tr.Begin(Known{of, "n" + strconv.Itoa(i)}, now); wait != 0 {
			t.Fatalf("try %d was refused", i)
		}
		if n := max(len(tr.from.by), len(tr.names.by)); n > kept {
			t.Fatalf("%d are kept, want at most %d", n, kept)
		}
	}
	if few := int(most*Every/everyAll) * 3; len(tr.from.by) > few || len(tr.names.by) > 2*few {
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
	var tr Tries
	now := time.Unix(1_900_000_000, 0)
	from := func(i int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)
	}
	own := Known{from(0), "ana"}
	if wait := tr.Begin(own, now); wait != 0 {
		t.Fatal("the first is refused")
	}
	tr.Right(own, now)
	for i := range mostName {
		if wait := tr.Begin(Known{from(i + 1), "ana"}, now); wait != 0 {
			t.Fatalf("try %d was refused", i)
		}
	}
	if wait := tr.Begin(Known{from(1000), "ana"}, now); wait != Every {
		t.Errorf("from one more address: wait %v", wait)
	}
	if wait := tr.Begin(Known{from(1000), "bo"}, now); wait != 0 {
		t.Errorf("another name: wait %v", wait)
	}
	if wait := tr.Begin(own, now); wait != 0 {
		t.Errorf("who has been right waits %v for what others try", wait)
	}
	for i := range 2 * knownKept {
		tr.Right(Known{from(i), "bo"}, now.Add(time.Duration(i)))
	}
	if len(tr.known) > knownKept {
		t.Errorf("%d are remembered", len(tr.known))
	}
}
