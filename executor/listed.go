package executor

import (
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Plans are listed by what people ask for: all of them, by state, agent, capability
// and label. Each list is in order of opening, the latest first, so that a page of
// one is a scan from its key and nothing is counted.
// phaseValue is a phase as the list of states has it.
func phaseValue(phase rowspb.Phase) string { return "0123456789"[phase : phase+1] }

// list keeps the entries of a plan in the lists true to its row.
func (s *State) list(p *plan) {
	was, opened := p.listed, p.row.Opened
	if was == p.row.Phase {
		return
	}
	if p.listed = p.row.Phase; was == rowspb.Phase_PHASE_UNSPECIFIED {
		s.listIn(rows.ListAll, "", opened, p.id)
		s.listIn(rows.ListAgent, p.row.Agent, opened, p.id)
		for _, label := range labelsOf(p.row) {
			s.listIn(rows.ListLabel, label, opened, p.id)
		}
	} else {
		rows.Orders.Delete(s.tx, rows.Listed{Dimension: rows.ListState, Value: phaseValue(was),
			Opened: rows.At(opened), Plan: p.id})
	}
	s.listIn(rows.ListState, phaseValue(p.row.Phase), opened, p.id)
}

// labelsOf are the values under which a plan is listed by label.
func labelsOf(row *rowspb.PlanRow) (labels []string) {
	if row.Declared.GetLabel() != "" {
		labels = append(labels, row.Declared.Label)
	}
	for _, l := range row.Declared.GetLabels() {
		labels = append(labels, l.Key+"="+l.Value)
	}
	return labels
}

// listAction lists the plan of a new action by its capability.
func (s *State) listAction(a *action) {
	if capability := a.fixed.Forward.GetCapability(); capability != "" {
		opened := s.plan(a.id.Plan).row.Opened
		s.listIn(rows.ListCapability, capability, opened, a.id.Plan)
	}
}

// listIn adds a plan to one list.
func (s *State) listIn(dimension byte, value string, opened *pb.Address, plan string) {
	rows.Orders.Add(s.tx, rows.Listed{
		Dimension: dimension, Value: value, Opened: rows.At(opened), Plan: plan,
	})
}
