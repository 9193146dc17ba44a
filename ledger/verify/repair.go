package verify

import (
	"fmt"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// repaired notes a repair, says what is missing since, and holds the root that it names against the
// tree before it. Where that tree is not known the records before it are withheld.
func (c *check) repaired(at *pb.Address, k *pb.LedgerRepaired) {
	c.report.repaired(at.Sequence, k)
	if gone := goneIn(k); gone != "" {
		c.report.doubt("the repair", at.Sequence, "%s", gone)
	}
	before, known := c.past.at(k.Size)
	if !known {
		return
	}
	if root := before.tree.Root(); string(root[:]) != string(k.Root) {
		c.report.find(Finding{Rule: "I1", Clause: "I1.repair", Sequence: at.Sequence,
			Address: ledger.FormatAddress(at),
			Problem: fmt.Sprintf("it repairs a ledger of %d records with root %x, and the first %d "+
				"records have root %x", k.Size, k.Root, k.Size, root)})
	}
}

// goneIn says what a repair left out of the ledger; empty: nothing.
func goneIn(k *pb.LedgerRepaired) string {
	var parts []string
	if len(k.Lost) > 0 {
		parts = append(parts, ledger.FormatRanges(k.Lost)+" could not be read")
	}
	kept := ""
	if len(k.Dropped) > 0 {
		parts = append(parts, ledger.FormatRanges(k.Dropped)+" were not taken over")
		kept = "; the file that the repair wrote has those that were not taken over"
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("of the stream before it, sequences %s: what was stored there, a veto or a "+
		"cancellation for example, is missing here%s", strings.Join(parts, ", and "), kept)
}
