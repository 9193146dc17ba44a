package executor

import (
	"encoding/json"
	"fmt"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// arguments resolves the frozen bindings of an action. A missing path is null
// (S20); an expression that cannot be evaluated is an error, and the action is
// its owner's (S26).
func (s *State) arguments(p *plan, a *action, k *pb.CompensationDispatched) ([]byte, error) {
	bindings := a.fixed.Compensation.Bindings
	if len(bindings) == 0 {
		return []byte("{}"), nil
	}
	compiled := make([]*triggers.Binding, len(bindings))
	readsPlan, readsMeta := false, false
	for i, b := range bindings {
		binding, err := s.programs.Binding(b.Expression)
		if err != nil {
			return nil, fmt.Errorf("argument %s: %w", b.Name, err)
		}
		compiled[i] = binding
		readsPlan, readsMeta = readsPlan || binding.Reads("plan"), readsMeta || binding.Reads("meta")
	}
	payload := s.payload(actionKey(keyPayload, p.id, a.id.n))
	vars := triggers.BindingVars{Input: payload.Input, Output: payload.Output}
	if readsPlan {
		vars.Plan = s.planJSON(p)
	}
	if readsMeta {
		vars.Meta = s.metaJSON(p, a, k)
	}
	out := []byte{'{'}
	for i, b := range bindings {
		value, err := compiled[i].Evaluate(vars)
		if err != nil {
			return nil, fmt.Errorf("argument %s: %w", b.Name, err)
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, mustJSON(b.Name)...)
		out = append(out, ':')
		out = append(out, value...)
	}
	out = append(out, '}')
	if len(out) > argumentsMax {
		return nil, fmt.Errorf("the arguments take %d bytes; at most %d fit in a record: pass large values by reference", len(out), argumentsMax)
	}
	return out, nil
}

// argumentsMax leaves room for the control fields of the record beside them.
const argumentsMax = ledger.CommitSizeMax - 4<<10

func (s *State) planJSON(p *plan) []byte {
	vars := planVars{ID: p.id, Label: p.row.Declared.Label, Owner: p.row.Declared.Owner, Agent: p.row.Agent, Reason: p.row.Reason}
	for _, l := range p.row.Declared.Labels {
		vars.Labels = append(vars.Labels, &labelVars{l.Key, l.Value})
	}
	return mustJSON(vars)
}

func (s *State) metaJSON(p *plan, a *action, k *pb.CompensationDispatched) []byte {
	return mustJSON(metaVars{
		Tenant: s.tenant, Plan: p.id, Action: a.fixed.Id, Capability: a.fixed.Forward.Capability,
		Address: ledger.FormatFullAddress(a.fixed.Registered), Key: k.Key, ExternalRef: a.row.ExternalRef,
		BlindCleanup: k.BlindCleanup, DirtyFailure: k.DirtyFailure, HasForwardOutput: k.HasForwardOutput,
	})
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("executor: cannot encode " + err.Error())
	}
	return b
}
