package ledger

import (
	"fmt"
	"strconv"
	"strings"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// RangesMax bounds the ranges of each list of a repair's record; the file of the
// repair has all of them.
const RangesMax = 256

// checkRepaired checks the record of a repair.
func checkRepaired(k *pb.LedgerRepaired) error {
	for _, list := range [...][]*pb.SequenceRange{k.Lost, k.Carried, k.Dropped} {
		if len(list) > RangesMax {
			return Refuse("ledger_repaired", fmt.Sprintf("%d ranges", len(list)),
				fmt.Sprintf("at most %d", RangesMax))
		}
	}
	if len(k.Root) != LeafSize {
		return Refuse("ledger_repaired.root", fmt.Sprintf("%d bytes", len(k.Root)),
			"the root of the tree at size")
	}
	return owned("ledger_repaired", k.Reason, k.Actor)
}

// AddToRanges appends a sequence to ascending ranges. Ranges beyond RangesMax grow
// together: the last one then names more than was meant, never less.
func AddToRanges(ranges []*pb.SequenceRange, sequence uint64) []*pb.SequenceRange {
	if n := len(ranges); n > 0 && (ranges[n-1].To+1 == sequence || n == RangesMax) {
		ranges[n-1].To = sequence
		return ranges
	}
	return append(ranges, &pb.SequenceRange{From: sequence, To: sequence})
}

// FormatRanges writes ranges as "3, 7-9"; none is "none".
func FormatRanges(ranges []*pb.SequenceRange) string {
	var parts []string
	for _, r := range ranges {
		if r.From == r.To {
			parts = append(parts, strconv.FormatUint(r.From, 10))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", r.From, r.To))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
