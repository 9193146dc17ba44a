package executor

import (
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// ledgerRepaired folds what a repair says of itself. It stands where the tiles end. It
// names the last term that began, and counts in any: whoever repaired the ledger held
// the tenant's lease, and no term. The fence does not outlive the old stream, so that the next
// claim is free.
func (s *State) ledgerRepaired(e ledger.Entry, k *pb.LedgerRepaired) Result {
	if k.Through+1 != e.Address.Sequence || k.Size+1 != s.meta.Records {
		return void("it repairs up to sequence %d with %d records, and stands behind %d with %d",
			k.Through, k.Size, e.Address.Sequence-1, s.meta.Records-1)
	}
	s.meta.Repairs++
	s.meta.Fence = 0
	rows.Repairs.Set(s.tx, rows.At(e.Address), &rowspb.RepairRow{
		Repaired: k, At: e.Address, StampNs: e.StampNs,
	})
	return effective
}
