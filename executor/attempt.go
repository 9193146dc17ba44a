package executor

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"

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

// Undos returns one page of attempts: of a plan, of one of its actions, or of a
// capability in the order of dispatch; and where to go on ("" when there is no more).
func (r *Reader) Undos(q UndoQuery) (views []UndoView, next string, err error) {
	prefix, err := r.undosOf(q)
	if err != nil {
		return nil, "", err
	}
	from := prefix
	if q.After != "" {
		last, err := hex.DecodeString(q.After)
		from = append(last, 0)
		if err != nil || !bytes.HasPrefix(last, prefix) {
			return nil, "", ledger.Refuse("after", fmt.Sprintf("%q", q.After), "the next of a page of the same question")
		}
	}
	size, last := 0, ""
	for k := range r.s.kv.Scan(from, after(prefix)) {
		key := k
		if prefix[0] == keyUndone {
			v, _ := r.s.get(k)
			key = append([]byte{keyAttempt}, v...)
		}
		view := r.undo(key)
		size += len(mustJSON(view))
		if len(views) == limitOf(q.Limit) || len(views) > 0 && size > pageSizeMax {
			return views, last, nil
		}
		views, last = append(views, view), hex.EncodeToString(k)
	}
	return views, "", nil
}

// undosOf is what the keys of the attempts that q asks for begin with.
func (r *Reader) undosOf(q UndoQuery) ([]byte, error) {
	switch {
	case q.Plan == "" && q.Capability == "":
		return nil, ledger.Refuse("plan", "missing", "a plan, or a capability")
	case q.Plan != "" && q.Capability != "":
		return nil, ledger.Refuse("capability", "given beside plan", "one of the two")
	case q.Capability != "":
		return sized(keyUndone, q.Capability, 0), nil
	case r.s.plan(q.Plan) == nil:
		return nil, ledger.Refuse("plan", fmt.Sprintf("there is no plan %s", q.Plan), "a plan of this tenant")
	case q.Action == "":
		return append(planKey(keyAttempt, q.Plan), 0), nil
	}
	n := r.s.number(q.Plan, q.Action)
	if n == 0 {
		return nil, ledger.Refuse("action", fmt.Sprintf("plan %s has no action %s", q.Plan, q.Action), "an action of the plan")
	}
	return actionKey(keyAttempt, q.Plan, n), nil
}

// undo reads the attempt under an attemptKey.
func (r *Reader) undo(key []byte) UndoView {
	row := new(rowspb.AttemptRow)
	r.s.load(key, row)
	planID, n := splitActionKey(key[:len(key)-4])
	a := r.s.action(planID, n)
	view := UndoView{
		Plan: planID, Number: int(n), Action: a.fixed.Id, Capability: a.fixed.Forward.GetCapability(), Compensation: a.fixed.Compensation.GetCapability(),
		About: ledger.FormatAddress(a.fixed.Registered), Key: r.s.key(a), Attempt: int(row.Attempt), State: row.State,
		BlindCleanup: row.BlindCleanup, DirtyFailure: row.DirtyFailure, HasForwardOutput: row.HasForwardOutput,
		Dispatched: ledger.FormatAddress(row.Dispatched), DispatchedNs: row.DispatchedNs, EndedNs: row.EndedNs, WaitedNs: row.WaitedNs,
		QueuedNs: row.Timing.GetQueuedNs(), WorkNs: row.Timing.GetWorkNs(), SetupNs: row.Timing.GetSetupNs(),
		ToolNs: row.Timing.GetToolNs(), LLMNs: row.Timing.GetLlmNs(), Worker: row.Worker, Code: row.Code, Message: row.Message,
	}
	if row.Ended != nil {
		view.Ended = ledger.FormatAddress(row.Ended)
	}
	return view
}
