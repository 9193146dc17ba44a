package executor

import (
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// ErasureView is an erasure as people see it.
type ErasureView struct {
	At     string `json:"at"` // address of the operator's record
	AtNs   int64  `json:"at_ns"`
	By     string `json:"by"`
	Reason string `json:"reason"`
	// Destroyed: address of the holder's record; empty: the key is about to be destroyed.
	Destroyed string `json:"destroyed,omitempty"`
}

// erasure shows the erasure of a plan, or of the one that it undoes; nil: none.
func erasure(row *rowspb.PlanRow) *ErasureView {
	if row.Erased == nil {
		return nil
	}
	view := &ErasureView{
		At: ledger.FormatAddress(row.Erased), AtNs: row.Erasure.GetAtNs(), By: row.Erasure.GetBy(),
		Reason: row.Erasure.GetReason(),
	}
	if row.Shredded != nil {
		view.Destroyed = ledger.FormatAddress(row.Shredded)
	}
	return view
}

// KeyOwner says whose key an agent asks for: the agent of the plan, empty when there is
// none yet, and what was erased, empty when nothing was.
func (r *Reader) KeyOwner(planID string) (agent, erasedText string) {
	p := r.s.plan(planID)
	if p == nil {
		return "", ""
	}
	if view := erasure(p.row); view != nil {
		erasedText = "erased by " + view.By + " at " + view.At + ": " + view.Reason
	}
	return p.row.Agent, erasedText
}
