package memory

import (
	"fmt"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
)

// TestLargeFactsDoNotFillTheMemory: what is remembered of facts is bounded in bytes.
func TestLargeFactsDoNotFillTheMemory(t *testing.T) {
	m := Over(rows.Over(rows.NewMemoryKV()), new(rowspb.Meta), nil)
	facts := m.facts
	value := make([]byte, 60<<10)
	for i := range 9000 {
		facts.Put(fmt.Sprint(i), &keptFact{row: &rowspb.FactRow{Value: value}})
	}
	if n := facts.Len(); n == 0 || n*len(value) > factBytesMax {
		t.Fatalf("%d facts are remembered", n)
	}
	if f, kept := facts.Get("8999"); !kept || f == nil {
		t.Fatal("the latest is not")
	}
}
