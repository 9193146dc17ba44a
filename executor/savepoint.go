package executor

import (
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Savepoints: an unwind may stop at one, and the plan is open again.

// savepointsMax bounds the savepoints of one plan.
const savepointsMax = 256

func (s *State) savepointSet(e ledger.Entry, p *plan, k *pb.SavepointSet) Result {
	name, old := k.Name, savepoint(p, k.Name)
	switch {
	case k.Number == 0:
		return refused("savepoint_set.number: missing; the agent counts its savepoints of plan %s from 1",
			p.id)
	case k.Number <= p.row.SavepointsSet:
		return repeated
	case old != nil:
		return refused("savepoint_set.name: savepoint %s of plan %s was set before, at %s", name, p.id,
			ledger.FormatAddress(old.At))
	case p.row.Phase != rowspb.Phase_PHASE_OPEN:
		return refused("plan %s is %s and takes no savepoint", p.id, statusName(p.row))
	case len(p.row.Savepoints) >= savepointsMax:
		return refused("savepoint_set.name: plan %s has %d savepoints, and no more fit", p.id,
			savepointsMax)
	}
	p.row.SavepointsSet = k.Number
	p.row.Savepoints = append(p.row.Savepoints, &rowspb.Savepoint{Name: name, Actions: p.row.Actions,
		At: e.Address})
	s.touch(p)
	return effective
}

func savepoint(p *plan, name string) *rowspb.Savepoint {
	for _, sp := range p.row.Savepoints {
		if sp.Name == name {
			return sp
		}
	}
	return nil
}

// target says where the unwind of a plan stops: behind which action, if it stops
// at all.
func (s *State) target(p *plan) (rewinding bool, last uint32) {
	to := p.row.ToSavepoint
	if to == "" {
		return false, 0
	}
	if strings.Contains(to, dutySign) { // no name of a savepoint: a late duty
		return true, s.number(p.id, to) - 1
	}
	return true, savepoint(p, to).Actions
}

// rewindDuty undoes a duty of an open plan: its action was rewound before.
func (s *State) rewindDuty(e ledger.Entry, p *plan, d *action, why string) {
	if p.row.Signal == rowspb.Signal_SIGNAL_NONE {
		s.signal(e, p, rowspb.Signal_SIGNAL_CANCELLED, why, d.fixed.Id)
	}
}

// rewound reports whether an unwind back to a savepoint has nothing left to do.
func rewound(r *rowspb.PlanRow) bool {
	return r.Rewinding && r.Phase == rowspb.Phase_PHASE_UNWINDING && idle(r) && r.Quarantined == 0 &&
		!orphaned(r)
}

// planRewound opens a plan again. Its leases are armed again: what has turned true
// meanwhile fires now.
func (s *State) planRewound(e ledger.Entry, p *plan, k *pb.PlanRewound) Result {
	if !rewound(p.row) {
		return void("plan %s is %s and not back at %s", p.id, statusName(p.row), k.Savepoint)
	}
	widened := p.row.ToSavepoint == ""
	p.row.Rewinding, p.row.Fired, p.row.Unwinding, p.row.Resumed, p.row.ToSavepoint = false, nil, nil,
		nil, ""
	if !widened {
		p.row.Signal, p.row.Signalled, p.row.Reason, p.row.Passed = rowspb.Signal_SIGNAL_NONE, nil, "",
			nil
	}
	for len(p.row.Savepoints) > 0 && p.row.Savepoints[len(p.row.Savepoints)-1].Actions > p.row.Target {
		p.row.Savepoints = p.row.Savepoints[:len(p.row.Savepoints)-1]
	}
	state, phase := ledger.StateOpen, rowspb.Phase_PHASE_OPEN
	if p.row.Committed != nil { // for a late duty: its commit goes on
		state, phase = ledger.StateCommitting, rowspb.Phase_PHASE_COMMITTING
	}
	s.phase(p, phase)
	for n := uint32(1); n <= p.row.Actions; n++ {
		a := s.action(p.id, n)
		if a.row.Undo == rowspb.Undo_UNDO_OWED { // its owner said halt
			s.move(p, a, rowspb.Undo_UNDO_HELD)
		}
		if a.row.Blockers != 0 { // no one keeps count while it is open
			a.row.Blockers = 0
			s.change(a)
		}
	}
	p.row.Target = 0
	s.notices = append(s.notices, Notice{Plan: p.id, Agent: p.row.Agent, State: state,
		Savepoint: k.Savepoint})
	s.rearm(p, e.Address)
	if phase == rowspb.Phase_PHASE_COMMITTING {
		s.settleDoubts(p)
	}
	return effective
}

// rearm takes out the leases of a plan again.
func (s *State) rearm(p *plan, at *pb.Address) {
	again := func(l *rowspb.LeaseRow) {
		l.Fired, l.Moot = false, false
		if !stopped(l) {
			l.Cascade = rowspb.Cascade_CASCADE_NONE
		}
	}
	for _, l := range p.row.Leases {
		again(l)
	}
	for n := uint32(1); n <= p.row.Actions; n++ {
		a := s.action(p.id, n)
		if settled(a.row.Undo) {
			continue
		}
		a.row.Leases = slices.DeleteFunc(a.row.Leases, isDuplicate)
		for _, l := range a.row.Leases {
			again(l)
		}
		s.warnOf(p, a)
		s.change(a)
	}
	s.evaluatePlan(p, at)
}
