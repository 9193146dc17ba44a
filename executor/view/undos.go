package view

import (
	"bytes"
	"encoding/hex"
	"fmt"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Undos returns one batch of attempts: of a plan, of one of its actions, or of a
// capability in the order of dispatch; and where to go on ("" when there is no more).
func (r *Reader) Undos(q api.UndoQuery) (views []api.Undo, next string, err error) {
	prefix, err := r.undosOf(q)
	if err != nil {
		return nil, "", err
	}
	from := prefix
	if q.After != "" {
		last, err := undosPlace(q.After)
		if err == nil && !bytes.HasPrefix(last, prefix) {
			err = noUndosPlace(q.After)
		}
		if err != nil {
			return nil, "", err
		}
		from = append(last, 0)
	}
	list := newBatch[api.Undo](q.Limit)
	for k := range r.tx.Scan(from, rows.After(prefix)) {
		key := k
		if prefix[0] == rows.Undone.Prefix()[0] {
			v, _ := r.tx.Get(k)
			key = append(rows.Attempts.Prefix(), v...)
		}
		if !list.add(hex.EncodeToString(k), r.undo(key)) {
			break
		}
	}
	return list.list, list.next, nil
}

// CheckUndosPlace refuses what can be no place in a list of undos.
func CheckUndosPlace(after string) error {
	_, err := undosPlace(after)
	return err
}

func undosPlace(after string) ([]byte, error) {
	last, err := hex.DecodeString(after)
	if err != nil {
		return nil, noUndosPlace(after)
	}
	return last, nil
}

func noUndosPlace(after string) error {
	return ledger.Refuse("after", fmt.Sprintf("%.80q is no place in this list", after),
		"the next of a page of the same question")
}

// undosOf is what the keys of the attempts that q asks for begin with.
func (r *Reader) undosOf(q api.UndoQuery) ([]byte, error) {
	switch {
	case q.Plan == "" && q.Capability == "":
		return nil, ledger.Refuse("plan", "missing", "a plan, or a capability")
	case q.Plan != "" && q.Capability != "":
		return nil, ledger.Refuse("capability", "given beside plan", "one of the two")
	case q.Capability != "":
		return rows.Undone.WithinSized(q.Capability), nil
	case r.core.Plan(q.Plan) == nil:
		return nil, noPlan(q.Plan)
	case q.Action == "":
		return rows.Attempts.Within(q.Plan), nil
	}
	a := r.core.Plan(q.Plan).Named(q.Action)
	if a == nil {
		return nil, ledger.Refuse("action", fmt.Sprintf("plan %s has no action %s", q.Plan, q.Action),
			"an action of the plan")
	}
	return rows.Attempts.WithinAction(q.Plan, a.N), nil
}

// undo reads the attempt under a key of rows.Attempts.
func (r *Reader) undo(key []byte) api.Undo {
	row, _ := rows.Attempts.LoadKey(r.tx, key)
	id := rows.ParseAction(key[:len(key)-4])
	a := r.core.Action(id)
	shown := api.Undo{
		Plan: id.Plan, Number: int(id.N), Action: a.Fixed.Id, Capability: a.Fixed.Forward.GetCapability(),
		Compensation: a.Fixed.Compensation.GetCapability(),
		About:        ledger.FormatAddress(a.Fixed.Registered), Key: a.KeyOf(row.Attempt),
		Attempt:      int(row.Attempt),
		State:        row.State,
		BlindCleanup: row.BlindCleanup, DirtyFailure: row.DirtyFailure,
		HasForwardOutput: row.HasForwardOutput,
		Dispatched:       ledger.FormatAddress(row.Dispatched), DispatchedNs: row.DispatchedNs,
		EndedNs: row.EndedNs, WaitedNs: row.WaitedNs,
		QueuedNs: row.Timing.GetQueuedNs(), WorkNs: row.Timing.GetWorkNs(),
		SetupNs: row.Timing.GetSetupNs(),
		ToolNs:  row.Timing.GetToolNs(), LLMNs: row.Timing.GetLlmNs(), Worker: row.Worker, Code: row.Code,
		Message: row.Message,
	}
	if row.Ended != nil {
		shown.Ended = ledger.FormatAddress(row.Ended)
	}
	return shown
}
