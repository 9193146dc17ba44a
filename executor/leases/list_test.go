package leases

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/rows"
)

// TestAWatchListIsWhoReadsAFact, in order and once each, whatever comes and goes, and
// counts its bytes.
func TestAWatchListIsWhoReadsAFact(t *testing.T) {
	for seed := range int64(200) {
		r := rand.New(rand.NewSource(seed))
		list, model := newWatchList("k"), map[string]*Watcher{}
		bytes := list.bytes
		ids := 1 + r.Intn(300)
		for range r.Intn(1500) {
			id := fmt.Sprintf("w%03d", r.Intn(ids))
			switch r.Intn(5) {
			case 0, 1, 2:
				model[id] = &Watcher{ID: id, bytes: int32(r.Intn(100))}
				bytes += list.set(model[id])
			case 3:
				delete(model, id)
				bytes += list.remove(id)
			}
			if r.Intn(50) > 0 {
				continue
			}
			all, grown := list.all()
			bytes += grown
			want := slices.Sorted(maps.Keys(model))
			counted := newWatchList("k").bytes
			for i, w := range all {
				if i >= len(want) || w != model[want[i]] {
					t.Fatalf("seed %d: %d watchers, want %q", seed, len(all), want)
				}
				counted += 8 + int(w.bytes)
			}
			if len(all) != len(want) || list.empty() != (len(want) == 0) {
				t.Fatalf("seed %d: %d watchers, want %d", seed, len(all), len(want))
			}
			if list.bytes != counted || bytes != counted {
				t.Fatalf("seed %d: %d bytes, grown to %d, want %d", seed, list.bytes, bytes, counted)
			}
		}
	}
}

// TestKeptCountsWhatItKeeps: values that grow are weighed, and the bound holds.
func TestKeptCountsWhatItKeeps(t *testing.T) {
	const bytesMax = 20_000
	lists := rows.NewRecent(watchedMax, bytesMax, func(l *watchList) int { return l.bytes })
	for i := range 5000 {
		key := fmt.Sprint("k", i%100)
		list, had := lists.Get(key)
		if !had {
			list = newWatchList(key)
			lists.Put(key, list)
		}
		lists.Grown(list.set(&Watcher{ID: fmt.Sprint(i), bytes: 50}))
		if i%37 == 0 {
			lists.Remove(fmt.Sprint("k", i%51))
		}
		keys, counted := lists.Recent()
		weight := 0
		for _, key := range keys {
			list, _ := lists.Get(key)
			weight += list.bytes
		}
		if weight != counted {
			t.Fatalf("after %d: %d bytes are counted, and %d kept", i, counted, weight)
		}
	}
	if _, counted := lists.Recent(); counted > bytesMax {
		t.Errorf("%d bytes, want at most %d", counted, bytesMax)
	}
}
