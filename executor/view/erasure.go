package view

import (
	"encoding/json"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// erasure shows the erasure of a plan, or of the one that it undoes; nil: none.
func erasure(row *rowspb.PlanRow) *api.Erasure {
	if row.Erased == nil {
		return nil
	}
	shown := &api.Erasure{
		At: ledger.FormatAddress(row.Erased), AtNs: row.Erasure.GetAtNs(), By: row.Erasure.GetBy(),
		Reason: row.Erasure.GetReason(),
	}
	if row.Shredded != nil {
		shown.Destroyed = ledger.FormatAddress(row.Shredded)
	}
	return shown
}

// KeyOwner says whose key an agent asks for: the agent of the plan, empty when there is
// none yet, and what was erased, empty when nothing was.
func (r *Reader) KeyOwner(planID string) (agent, erasedText string) {
	p := r.core.Plan(planID)
	if p == nil {
		return "", ""
	}
	if shown := erasure(p.Row); shown != nil {
		erasedText = "erased by " + shown.By + " at " + shown.At + ": " + shown.Reason
	}
	return p.Row.Agent, erasedText
}

// Payloads gives each what the actions of a plan were given and have left, as recorded.
func (r *Reader) Payloads(planID string, each func(json.RawMessage)) {
	p := r.core.Plan(planID)
	if p == nil {
		return
	}
	each(inputOf(r, p))
	for a := range p.Actions() {
		payload := r.payload(rows.Action{Plan: planID, N: a.N})
		for _, document := range [...][]byte{payload.Input, payload.Output, payload.Before,
			payload.Found} {
			each(document)
		}
	}
}
