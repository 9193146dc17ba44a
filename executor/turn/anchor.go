package turn

import (
	"bytes"
	"fmt"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// CheckAnchor holds the stream against the state that was folded from it: nothing may be
// missing (guard G1), and the record at the cursor must have the address that the state
// remembers (G2). read gives the entries of one message. What does not agree is a
// *ledger.Halted; any other error is read's.
func CheckAnchor(head ledger.Head, meta *rowspb.Meta,
	read func(sequence uint64) ([]ledger.Entry, error)) error {
	cursor := meta.GetApplied().GetSequence()
	switch {
	case head.Deleted != 0:
		return &ledger.Halted{Guard: "G1", Sequence: head.First, Problem: fmt.Sprintf(
			"the stream starts at %d and misses %d records", head.First, head.Deleted)}
	case cursor == 0:
		return nil
	case cursor > head.Last:
		return &ledger.Halted{Guard: "G2", Sequence: cursor, Problem: fmt.Sprintf(
			"the stream ends at %d, but %d was folded: it has lost its tail", head.Last, cursor)}
	}
	entries, err := read(cursor)
	if err != nil {
		return err
	}
	last := entries[len(entries)-1].Address
	if last.Index != meta.Applied.Index || !bytes.Equal(last.Leaf, meta.Applied.Leaf) {
		return &ledger.Halted{Guard: "G2", Sequence: cursor, Problem: fmt.Sprintf(
			"the stream has %s where %s was folded: its history is not the one that this state comes from",
			ledger.FormatFullAddress(last), ledger.FormatFullAddress(meta.Applied))}
	}
	return nil
}
