package executor

import (
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Undo windows. A provider takes an undo back only for so long: valid_for after
// completion, or until an instant that the registration names. Behind it an
// effect is its owner's; some time before it the owner of a held one is warned.

// windowOf sets the end of an action's undo window, when it is registered and
// again when it completes, and arms the warning.
func (s *State) windowOf(p *plan, a *action) {
	c := a.fixed.Compensation
	closes := c.GetValidUntilNs()
	if c.GetValidForNs() > 0 && a.row.Outcome == rowspb.Outcome_OUTCOME_COMPLETED {
		if end := s.meta.TimeNs + min(c.ValidForNs, epochMax-s.meta.TimeNs); closes == 0 || end < closes {
			closes = end
		}
	}
	if closes == a.row.ClosesNs {
		return
	}
	s.dropWarning(p, a)
	a.row.ClosesNs, a.row.Warned = closes, false // it was warned of another end
	s.change(a)
	s.warnOf(p, a)
}

// warnMax is how long before the end of a window its owner is warned at most, when
// the contract does not say: a tenth of the window, and no more than a day.
const warnMax = int64(24 * 3600e9)

func (a *action) warnNs() int64 {
	if w := a.fixed.Compensation.GetWarnNs(); w > 0 {
		return max(a.row.ClosesNs-w, 1)
	}
	return max(a.row.ClosesNs-min((a.row.ClosesNs-a.fixed.AtNs)/10, warnMax), 1)
}

// warnOf arms the warning of a held action.
func (s *State) warnOf(p *plan, a *action) {
	if a.row.ClosesNs == 0 || settled(a.row.Undo) || !armed(p.row) {
		return
	}
	p.row.Windows = insert(p.row.Windows, a.id.N)
	if !a.row.Warned {
		s.setDue(a.warnNs(), rows.DueWindow, rows.Lease{Plan: p.id, N: a.id.N})
	}
	s.touch(p)
}

// dropWarning gives up the warning of an action. A page that no hook has taken yet is
// closed, and counts as never asked for: should the action be held again, it is warned of
// again.
func (s *State) dropWarning(p *plan, a *action) {
	rest := without(p.row.Windows, a.id.N)
	if len(rest) == len(p.row.Windows) {
		return
	}
	p.row.Windows = rest
	s.touch(p)
	if !a.row.Warned {
		s.dropDue(a.warnNs(), rows.DueWindow, rows.Lease{Plan: p.id, N: a.id.N})
	} else if s.unpage(p, a, api.PageWindowClosing) {
		a.row.Warned = false
		s.change(a)
	}
}

// dropWarnings gives up all warnings of a plan: its held set is given up, or owed.
func (s *State) dropWarnings(p *plan) {
	for len(p.row.Windows) > 0 {
		s.dropWarning(p, s.action(p.id, p.row.Windows[len(p.row.Windows)-1]))
	}
}

// warns reports whether an action's owner is to be warned.
func warns(p *plan, a *action) bool {
	return armed(p.row) && !settled(a.row.Undo) && a.row.ClosesNs != 0 && !a.row.Warned
}

func (s *State) windowClosing(e ledger.Entry, p *plan, a *action, k *pb.UndoWindowClosing) Result {
	if !warns(p, a) || k.ClosesNs != a.row.ClosesNs {
		return void("action %s is %s, with no such window", a.fixed.Id, undoName(a.row.Undo))
	}
	s.dropDue(a.warnNs(), rows.DueWindow, rows.Lease{Plan: p.id, N: a.id.N})
	a.row.Warned = true
	s.change(a)
	s.page(p, a, api.PageWindowClosing, "its undo window closes at "+instant(k.ClosesNs), e.Address)
	return effective
}
