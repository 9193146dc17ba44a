package rows

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// The model is a map that is sorted anew for every scan. Keys come at random, in
// order and in reverse, so that blocks split at their middle and at both ends, and
// empty again.
func TestMemoryKVIsASortedMap(t *testing.T) {
	for seed := range uint64(testenv.Cases(3, 12)) {
		r := rand.New(rand.NewPCG(seed, 1))
		m, model := NewMemoryKV(), map[string]string{}
		keys := 1 + r.IntN(2000)
		key := func(i int) []byte {
			switch seed % 3 {
			case 0:
				return fmt.Appendf(nil, "k%06d", i)
			case 1:
				return fmt.Appendf(nil, "k%06d", 1_000_000-i)
			}
			return fmt.Appendf(nil, "k%d", r.IntN(keys))
		}
		for i := range 4000 {
			k := key(i)
			switch r.IntN(10) {
			case 0, 1, 2, 3, 4:
				v := fmt.Appendf(nil, "v%d", i)
				m.Set(k, v)
				model[string(k)] = string(v)
			case 5:
				k = key(r.IntN(i + 1))
				m.Delete(k)
				delete(model, string(k))
			case 6:
				from, to := key(r.IntN(i+1)), key(r.IntN(i+1))
				compareScan(t, m, model, string(from), string(to))
			default:
				k = key(r.IntN(i + 1))
				got, ok := m.Get(k)
				if want, ok2 := model[string(k)]; ok != ok2 || string(got) != want {
					t.Fatalf("seed %d, step %d: get %s is %q %v, want %q %v", seed, i, k, got, ok, want, ok2)
				}
			}
		}
		compareScan(t, m, model, "", "z")
		for i, k := range slices.Sorted(maps.Keys(model)) {
			if m.Delete([]byte(k)); i%97 == 0 {
				delete(model, k)
				compareScan(t, m, model, k+"\x00", "z")
			}
		}
		if len(m.blocks) != 0 {
			t.Fatalf("seed %d: %d blocks left of nothing", seed, len(m.blocks))
		}
	}
}

func compareScan(t *testing.T, m *MemoryKV, model map[string]string, from, to string) {
	t.Helper()
	var got, want []string
	for k, v := range m.Scan([]byte(from), []byte(to)) {
		got = append(got, string(k)+"="+string(v))
	}
	for _, k := range slices.Sorted(maps.Keys(model)) {
		if from <= k && k < to {
			want = append(want, k+"="+model[k])
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("scan %q to %q is %q, want %q", from, to, got, want)
	}
}

// The fold deletes what it scans, and a decision may add to it.
func TestMemoryKVMayBeChangedDuringAScan(t *testing.T) {
	m := NewMemoryKV()
	for i := range 2000 {
		m.Set(fmt.Appendf(nil, "k%04d", i), nil)
	}
	var seen []string
	for k := range m.Scan([]byte("k"), []byte("l")) {
		seen = append(seen, string(k))
		m.Delete(k)
		m.Set(append([]byte("a"), k...), k)                        // before it: not seen
		m.Get([]byte("k1999"))                                     // another block
		m.Set(append(bytes.Clone(k), '+'), nil)                    // just behind it: seen
		m.Delete(append(bytes.Clone(k[:len(k)-1]), k[len(k)-1]+1)) // the next: not seen, if it is one
		if len(seen) > 5000 {
			break
		}
	}
	if len(seen) == 0 || !slices.IsSorted(seen) {
		t.Errorf("seen %q", seen)
	}
}

func BenchmarkMemoryKV(b *testing.B) {
	for _, size := range []int{1_000, 100_000, 1_000_000} {
		m := NewMemoryKV()
		key := make([]byte, 0, 32)
		for i := range size {
			key = fmt.Appendf(key[:0], "k%020d", (i*7919)%size)
			m.Set(key, key)
		}
		b.Run(fmt.Sprintf("get/%d", size), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				key = fmt.Appendf(key[:0], "k%020d", (i*104729)%size)
				m.Get(key)
			}
		})
		b.Run(fmt.Sprintf("move/%d", size), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				key = fmt.Appendf(key[:0], "a%020d", (i*104729)%size)
				m.Set(key, nil)
				m.Delete(key)
			}
		})
	}
}
