package executor

import (
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// doubtsShown bounds the actions of one answer about a commit that waits.
const doubtsShown = 100

// Doubts lists what the commit of a plan waits for: its actions in doubt, in order, and
// then the acts that were claimed by records which were refused.
func (r *Reader) Doubts(id string) (list []api.Doubt) {
	root := r.s.plan(id)
	if root == nil || root.row.Phase != rowspb.Phase_PHASE_COMMITTING {
		return nil
	}
	r.s.retirable(root, func(p *plan, a *action) bool {
		if unanswered(a) {
			doubt := api.Doubt{Action: treeName(root, p, a), Waits: r.waitOf(p, a)}
			doubt.Owner = a.row.Undo == rowspb.Undo_UNDO_QUARANTINED
			if doubt.Owner {
				doubt.Waits = joinText(doubt.Waits, a.row.Note)
			}
			list = append(list, doubt)
		}
		return len(list) < doubtsShown
	})
	r.s.orphansOf(root, func(name, why string) bool {
		if len(list) < doubtsShown {
			list = append(list, api.Doubt{Action: name, Owner: true, Waits: why})
		}
		return len(list) < doubtsShown
	})
	return list
}
