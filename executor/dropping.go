package executor

import "github.com/sagenbaum/sagenbaum/executor/rowspb"

// ToDrop reports whether a staged act, or what delivers it, was stopped before it was made, and is
// dropped when its turn comes.
func (a *Action) ToDrop() bool { return toDrop(a.a) }

// toDrop reports whether a staged act, or what delivers it, is not made any more although nothing
// has settled it yet: its deliveries were stopped, and it is dropped when its turn comes.
func toDrop(a *action) bool {
	if row := a.plan.row; !row.Delivers && row.DeliveredAs != "" && staged(a) {
		if a = a.plan.s.byName(row.DeliveredAs, a.fixed.Id); a == nil {
			return false
		}
	}
	row := a.plan.row
	if !delivers(a) || row.Stopped == nil || closed(row.Phase) && !keeps(row) {
		return false
	}
	switch a.row.Undo {
	case rowspb.Undo_UNDO_HELD, rowspb.Undo_UNDO_OWED, rowspb.Undo_UNDO_READY:
		return a.row.Ahead == nil && a.row.Unsure == 0 && !isDelivered(a)
	}
	return false // it is out, or its owner's, or settled
}
