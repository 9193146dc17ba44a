package executor

import (
	"encoding/json"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Command is a compensation that may be sent, because its record was folded
// and found effective. Number is the action's number in its plan.
type Command struct {
	Number uint32
	ledger.Command
}

// Notice tells an agent what became of its plan.
type Notice struct {
	Plan, Agent, State, Reason string
}

func (s *State) command(p *plan, a *action, k *pb.CompensationDispatched, arguments []byte) Command {
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	return Command{Number: a.id.n, Command: ledger.Command{
		Tenant: s.tenant, Plan: p.id, Action: a.fixed.Id,
		Address:    ledger.FormatFullAddress(a.fixed.Registered),
		Capability: k.Capability, Arguments: json.RawMessage(arguments), Key: k.Key,
		Attempt: k.Attempt, Term: s.meta.Term,
		BlindCleanup: k.BlindCleanup, DirtyFailure: k.DirtyFailure, HasForwardOutput: k.HasForwardOutput,
		TimeoutMs: k.TimeoutNs / 1e6, WorkerVersion: k.WorkerVersion,
	}}
}

// Commands returns what the folds since the last call have allowed to be sent.
func (s *State) Commands() []Command {
	out := s.commands
	s.commands = nil
	return out
}

// Notices returns what the folds since the last call have to tell agents.
func (s *State) Notices() []Notice {
	out := s.notices
	s.notices = nil
	return out
}

// InFlight returns every command that is dispatched and unanswered, in key
// order: what a host sends again after a restart, with the same keys (S21).
// Flush must have been called.
func (s *State) InFlight() []Command {
	var ids []actionID
	from := []byte{keyFlight}
	for k := range s.kv.Scan(from, after(from)) {
		planID, n := splitActionKey(k)
		ids = append(ids, actionID{planID, n})
	}
	out := make([]Command, 0, len(ids))
	for _, id := range ids {
		p, a := s.plan(id.plan), s.action(id.plan, id.n)
		row := new(pb.CommandRow)
		s.load(actionKey(keyCommand, id.plan, id.n), row)
		out = append(out, s.command(p, a, row.Dispatched, row.Arguments))
	}
	return out
}

// Outstanding reports whether this attempt still waits for its answer.
func (s *State) Outstanding(planID string, n, attempt uint32) bool {
	p := s.plan(planID)
	if p == nil || n == 0 || n > p.row.Actions {
		return false
	}
	a := s.action(planID, n)
	return a.row.Undo == pb.Undo_UNDO_DISPATCHED && a.row.Attempt == attempt
}

// blind reports whether an undo runs without knowing that the forward completed.
func blind(a *action) bool { return a.row.Outcome != pb.Outcome_OUTCOME_COMPLETED }

// dispatchOf builds the control fields of a dispatch from the frozen
// registration.
func (s *State) dispatchOf(a *action, attempt uint32) *pb.CompensationDispatched {
	c := a.fixed.Compensation
	return &pb.CompensationDispatched{
		Attempt: attempt, Capability: c.Capability, Key: s.key(a),
		BlindCleanup: blind(a), DirtyFailure: blind(a), HasForwardOutput: !blind(a),
		TimeoutNs: timeoutOf(c), WorkerVersion: c.WorkerVersion,
	}
}

// key is the idempotency key of an action's undo, the same for every attempt.
func (s *State) key(a *action) string {
	return ledger.Key(s.tenant, a.id.plan, a.fixed.Id, ledger.PurposeUndo)
}

// metaVars is what a binding reads as meta (S19, S109).
type metaVars struct {
	Tenant           string `json:"tenant"`
	Plan             string `json:"plan"`
	Action           string `json:"action"`
	Capability       string `json:"capability"`
	Address          string `json:"address"`
	Key              string `json:"key"`
	ExternalRef      string `json:"external_ref,omitempty"`
	BlindCleanup     bool   `json:"blind_cleanup"`
	DirtyFailure     bool   `json:"dirty_failure"`
	HasForwardOutput bool   `json:"has_forward_output"`
}

// planVars is what a binding reads as plan.
type planVars struct {
	ID     string       `json:"id"`
	Label  string       `json:"label,omitempty"`
	Owner  string       `json:"owner,omitempty"`
	Agent  string       `json:"agent"`
	Reason string       `json:"reason,omitempty"`
	Labels []*labelVars `json:"labels,omitempty"`
}

type labelVars struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}
