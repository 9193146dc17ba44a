package executor

import (
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Every attempt of an undo is a row of its own, by action and by the capability
// that it undoes, so that undos can be listed and their time explained (S31, S32).

func (s *State) attemptDispatched(e ledger.Entry, p *plan, a *action,
	k *pb.CompensationDispatched) {
	if s.base != nil {
		return // a scratch fold shows no one its attempts
	}
	key := rows.Attempts.Key(rows.Attempt{Action: a.id, Attempt: k.Attempt})
	rows.Attempts.SetKey(s.tx, key, &rowspb.AttemptRow{
		Attempt: k.Attempt, Dispatched: e.Address, DispatchedNs: s.meta.TimeNs, WaitedNs: k.WaitedNs,
		State:        "dispatched",
		BlindCleanup: k.BlindCleanup, DirtyFailure: k.DirtyFailure, HasForwardOutput: k.HasForwardOutput,
	})
	undone := rows.NamedPlace{Name: a.fixed.Forward.Capability, At: rows.At(e.Address)}
	rows.Undone.Put(s.tx, undone, key[1:])
}

// attemptEnd is what became of an attempt.
type attemptEnd struct {
	state, worker, code, message string
	timing                       *pb.Timing
}

func (s *State) attemptEnded(e ledger.Entry, a *action, attempt uint32, end attemptEnd) {
	if s.base != nil {
		return
	}
	key := rows.Attempts.Key(rows.Attempt{Action: a.id, Attempt: attempt})
	row := rows.Attempts.FindKey(s.tx, key)
	if row == nil {
		return
	}
	row.Ended, row.EndedNs, row.State = e.Address, s.meta.TimeNs, end.state
	row.Message = end.message
	if end.code != "" || row.State == "failed" {
		row.Code = end.code
	}
	if end.worker != "" {
		row.Worker = end.worker
	}
	if end.timing != nil {
		row.Timing = end.timing
	}
	rows.Attempts.SetKey(s.tx, key, row)
}
