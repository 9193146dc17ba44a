package rows

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// A Pending over a store is held against a KV that writes at once: the same reads at every
// step, and the same rows in the store after a Drain.
func TestPendingReadsAsWrittenAndDrainsInOrder(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		stored, model := NewMemoryKV(), NewMemoryKV()
		p := NewPending(stored)
		key := func() []byte { return fmt.Appendf(nil, "k%02d", r.IntN(60)) }
		drain := func() {
			last := ""
			p.Drain(func(key string, value []byte) {
				if key <= last {
					t.Fatalf("seed %d: %s comes behind %s", seed, key, last)
				}
				if last = key; value == nil {
					stored.Delete([]byte(key))
				} else {
					stored.Set([]byte(key), value)
				}
			})
			if Digest(stored) != Digest(model) || p.Bytes() != 0 {
				t.Fatalf("seed %d: %v", seed, Differences(stored, model, 3))
			}
		}
		for i := range 3000 {
			switch k := key(); r.IntN(12) {
			case 0, 1, 2:
				v := fmt.Appendf(nil, "v%d", i)
				p.Set(k, v)
				model.Set(k, v)
			case 3:
				p.Set(k, nil)
				model.Set(k, nil)
			case 4, 5:
				p.Delete(k)
				model.Delete(k)
			case 6:
				if r.IntN(20) == 0 {
					drain()
				}
			case 7:
				from, to := key(), key()
				limit := r.IntN(60)
				if got, want := scanned(p, from, to, limit), scanned(model, from, to, limit); got != want {
					t.Fatalf("seed %d, step %d: %s to %s is %s, want %s", seed, i, from, to, got, want)
				}
			default:
				got, ok := p.Get(k)
				if want, there := model.Get(k); ok != there || string(got) != string(want) {
					t.Fatalf("seed %d, step %d: %s is %q %v, want %q %v", seed, i, k, got, ok, want, there)
				}
			}
		}
		drain()
		p.Set([]byte("forgotten"), nil)
		p.Forget()
		if _, there := p.Get([]byte("forgotten")); there || p.Bytes() != 0 {
			t.Fatal("what was forgotten is there")
		}
	}
}

func scanned(kv KV, from, to []byte, limit int) (text string) {
	for k, v := range kv.Scan(from, to) {
		if limit--; limit < 0 {
			break
		}
		text += fmt.Sprintf("%s=%s;", k, v)
	}
	return text
}
