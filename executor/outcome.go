package executor

import (
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// Outcome returns a plan's state, why it is so, and the actions that wait for
// its owner; ok is false when there is no plan of that id.
func (r *Reader) Outcome(id string) (state, reason string, quarantined []string, ok bool) {
	p := r.s.plan(id)
	if p == nil {
		return "", "", nil, false
	}
	for n := uint32(1); n <= p.row.Actions && p.row.Quarantined > uint32(len(quarantined)); n++ {
		if a := r.s.action(id, n); a.row.Undo == rowspb.Undo_UNDO_QUARANTINED {
			quarantined = append(quarantined, a.fixed.Id)
		}
	}
	state = stateName(p.row)
	if stops(p.row) && (p.row.Signal != rowspb.Signal_SIGNAL_NONE || p.row.Fired != nil) {
		state = ledger.StateUnwinding // as good as: its lease has turned, or fired
	}
	return state, r.reasonOf(p.row), append(quarantined, orphans(p.row)...), true
}

// reasonOf is the reason of a plan's end; of an opening that was refused it has the field.
func (r *Reader) reasonOf(p *rowspb.PlanRow) string {
	if !unopened(p) {
		return p.Reason
	}
	row := rows.Refused.Find(r.s.tx, rows.At(p.Opened))
	if row == nil {
		return p.Reason
	}
	return clip(p.Reason + ": " + strings.TrimPrefix(row.Reason, "refused: "))
}

// Writer returns the process whose records a plan takes.
func (r *Reader) Writer(id string) string {
	if p := r.s.plan(id); p != nil {
		return p.row.Writer
	}
	return ""
}

// Verdict returns the last verdict on an action; outcome is empty while there is none.
func (r *Reader) Verdict(planID, actionName string) (outcome, reason, by string) {
	if r.s.plan(planID) == nil {
		return "", "", ""
	}
	a := r.s.byName(planID, actionName)
	if a == nil {
		return "", "", ""
	}
	return verdictName(a.row.Verdict), a.row.VerdictReason, a.row.VerdictBy
}
