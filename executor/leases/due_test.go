package leases

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/rows"
)

func key(ns int64, plan string) string {
	return string(rows.Due.Key(rows.Instant{Ns: ns, Kind: rows.DueLease, Lease: rows.Lease{Plan: plan}}))
}

// A set that is taken apart and made again over its rows at any time, as by a restart, gives
// every entry by its instant, as one that lives on does. What was set again while it was snoozed
// may be looked at once more than it must.
func TestDueEntriesSurviveARestart(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		kv := rows.NewMemoryKV()
		tx := rows.Over(kv)
		d := DueOver(tx)
		held := map[string]int64{}  // the entries, and
		again := map[string]int64{} // when those that stayed are looked at again
		now := int64(1000)
		for range 300 {
			plan := string(rune('a' + r.IntN(20)))
			switch r.IntN(6) {
			case 0, 1:
				ns := now - 20 + r.Int64N(60)
				d.Set(ns, rows.DueLease, rows.Lease{Plan: plan})
				held[key(ns, plan)], again[key(ns, plan)] = ns, ns
			case 2:
				if keys := slices.Sorted(maps.Keys(held)); len(keys) > 0 {
					k := keys[r.IntN(len(keys))]
					d.DropKey(held[k], []byte(k))
					delete(held, k)
				}
			case 3:
				now += r.Int64N(15)
				for _, k := range d.Entries(now) {
					at, ok := held[k]
					switch {
					case !ok: // dropped since it was snoozed
					case at > now:
						t.Fatalf("seed %d: an entry of %d is due at %d", seed, at, now)
					case r.IntN(3) == 0:
						d.DropKey(at, []byte(k))
						delete(held, k)
					default:
						again[k] = now + 1 + r.Int64N(10)
						d.Snooze(again[k], k)
					}
				}
			case 4:
				d = DueOver(tx)
				for k, ns := range held {
					again[k] = ns
				}
			}
			checkNext(t, seed, &d, held, again)
		}
		d = DueOver(tx)
		want := slices.Sorted(maps.Keys(held))
		if got := d.Entries(math.MaxInt64 - 1); !slices.Equal(got, want) {
			t.Fatalf("seed %d: %d entries after a restart, want %d", seed, len(got), len(want))
		}
	}
}

// checkNext: the set wakes no later than its first entry is to be looked at.
func checkNext(t *testing.T, seed uint64, d *Due, held, again map[string]int64) {
	t.Helper()
	first := int64(math.MaxInt64)
	for k := range held {
		first = min(first, again[k])
	}
	ns, ok := d.Next()
	if first != math.MaxInt64 && (!ok || ns > first) {
		t.Fatalf("seed %d: wakes at %d (%v), an entry is due at %d", seed, ns, ok, first)
	}
}

func TestAForkWritesRowsAlone(t *testing.T) {
	tx := rows.Over(rows.NewMemoryKV())
	d := DueOver(tx)
	d.Set(5, rows.DueLease, rows.Lease{Plan: "p"})
	if got := d.Entries(10); len(got) != 1 {
		t.Fatal(got)
	}
	fork := DueOver(tx.Fork())
	fork.Set(7, rows.DueLease, rows.Lease{Plan: "q"})
	fork.AskAgain([]byte(key(5, "p")))
	if fork.Snoozed() != 0 {
		t.Error("a fork snoozes")
	}
	if got := d.Entries(10); len(got) != 0 {
		t.Errorf("a fork's entries are the set's: %q", got)
	}
	d.AskAgain([]byte(key(5, "p")))
	if got := d.Entries(10); !slices.Equal(got, []string{key(5, "p")}) {
		t.Errorf("asked again: %q", got)
	}
}

// TestRoomIsGivenToOneAtATime: whoever finds none is let go, and looked at again when there is room
// for it: as often as there are entries, and not for each of them all that wait.
func TestRoomIsGivenToOneAtATime(t *testing.T) {
	for _, waiting := range []int{1000, 10_000} {
		tx := rows.Over(rows.NewMemoryKV())
		d := DueOver(tx)
		for n := range waiting {
			d.Set(int64(1000+n), rows.DueRetry, rows.Lease{Plan: "p", N: uint32(n)})
		}
		const now = int64(1 << 40)
		looked := 0
		for {
			entries := d.Entries(now)
			if looked += len(entries); len(entries) == 0 {
				break
			}
			for _, k := range entries {
				d.Crowd("p", []byte(k))
			}
		}
		if looked != waiting {
			t.Fatalf("%d looks at first, want %d", looked, waiting)
		}
		last := ""
		for looked = 0; ; {
			d.Admit("p")
			entries := d.Entries(now)
			if looked += len(entries); len(entries) == 0 {
				break
			}
			if len(entries) != 1 || entries[0] <= last {
				t.Fatalf("%d entries after %q: %q", len(entries), last, entries)
			}
			last = entries[0]
			d.DropKey(rows.ParseInstant([]byte(last)).Ns, []byte(last))
			// the next one goes away before there is room for it
			if next := rows.ParseInstant([]byte(last)).Lease.N + 1; next%10 == 0 {
				d.Drop(int64(1000+next), rows.DueRetry, rows.Lease{Plan: "p", N: next})
			}
		}
		if want := waiting - waiting/10 + 1; looked != want {
			t.Errorf("%d looks at %d entries that wait, want %d", looked, waiting, want)
		}
		if len(d.crowded) != 0 {
			t.Errorf("%d givers are remembered", len(d.crowded))
		}
	}
}
