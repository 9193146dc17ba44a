package executor

import (
	"encoding/binary"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Every attempt of an undo is a row of its own, by action and by the capability
// that it undoes, so that undos can be listed and their time explained (S31, S32).

func attemptKey(plan string, n, attempt uint32) []byte {
	return binary.BigEndian.AppendUint32(actionKey(keyAttempt, plan, n), attempt)
}

// undoneKey lists the attempts about a capability in the order of their dispatch.
func undoneKey(capability string, at *pb.Address) []byte {
	k := sized(keyUndone, capability, 12)
	return append(k, recordKey(0, at.Sequence, at.Index)[1:]...)
}

func (s *State) attemptDispatched(e ledger.Entry, p *plan, a *action, k *pb.CompensationDispatched) {
	if s.base != nil {
		return // a scratch fold shows nobody its attempts
	}
	key := attemptKey(p.id, a.id.n, k.Attempt)
	s.set(key, encode(&rowspb.AttemptRow{
		Attempt: k.Attempt, Dispatched: e.Address, DispatchedNs: s.meta.TimeNs, WaitedNs: k.WaitedNs, State: "dispatched",
		BlindCleanup: k.BlindCleanup, DirtyFailure: k.DirtyFailure, HasForwardOutput: k.HasForwardOutput,
	}))
	s.set(undoneKey(a.fixed.Forward.Capability, e.Address), key[1:])
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
	key := attemptKey(a.id.plan, a.id.n, attempt)
	row := new(rowspb.AttemptRow)
	if !s.find(key, row) {
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
	s.set(key, encode(row))
}
