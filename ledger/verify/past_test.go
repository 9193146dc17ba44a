package verify

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/bundle"
)

// TestThePastKnowsWhereARecordIs, also once it has forgotten the first ones.
func TestThePastKnowsWhereARecordIs(t *testing.T) {
	var p past
	var tree bundle.Tree
	spotOf := func(size uint64) spot { return spot{sequence: 2 * size, ns: int64(3 * size)} }
	const size = pastMax + 3*pastStep
	for i := range uint64(size) {
		leaf := ledger.Hash{byte(i), byte(i >> 8), byte(i >> 16)}
		p.add(&tree, spotOf(i), leaf, spotOf(i+1))
		tree.Append(leaf)
	}
	for n := uint64(size - pastMax); n <= size; n += 100 {
		if m, ok := p.at(n); !ok || m.through != spotOf(n) || m.tree.Size() != n {
			t.Fatalf("%d records: %d that end at %+v, %v", n, m.tree.Size(), m.through, ok)
		}
	}
	if _, ok := p.at(1); ok {
		t.Error("the first record is remembered for ever")
	}
}
