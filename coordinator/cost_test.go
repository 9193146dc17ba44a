package coordinator

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// counting counts what an agent's calls cost: appends and their bytes.
type counting struct {
	*ledger.Memory
	appends, bytes int
}

func (c *counting) Append(ctx context.Context, a ledger.Append) (uint64, error) {
	c.appends++
	c.bytes += len(a.Data)
	return c.Memory.Append(ctx, a)
}

// TestAnActionCostsTheSameWhateverIsHeld: the agent keeps its latency. What one action costs it does not grow with
// what is held already, and nothing but the append is on its path.
func TestAnActionCostsTheSameWhateverIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Memory: memory()}
		p := begin(t, start(t, store, nil), PlanSpec{})
		cost := func(from, n int) (appends, bytes int) {
			a, b := store.appends, store.bytes
			for i := range n {
				mustDo(t, p, write(fmt.Sprintf("a%06d", from+i)))
			}
			return store.appends - a, store.bytes - b
		}
		mustDo(t, p, write("opens"))
		first, firstBytes := cost(0, 10)
		cost(10, 5000)
		last, lastBytes := cost(5010, 10)
		if first != 10 || last != first || lastBytes > firstBytes+16 { // numbers get a digit longer
			t.Fatalf("10 actions cost %d appends of %d bytes at first, and %d of %d behind 5,000 held", first, firstBytes, last,
				lastBytes)
		}
	})
}
