package executor

import (
	"encoding/json"
	"fmt"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// arguments resolves frozen bindings of an action. A missing path is null (S20), but not
// one below an output that was too large to be kept (I37); an expression that cannot be
// evaluated is an error, and the action is its owner's (S26).
func (s *State) arguments(p *plan, a *action, bindings []*pb.Binding) ([]byte, error) {
	if len(bindings) == 0 {
		return []byte("{}"), nil
	}
	compiled := make([]*triggers.Binding, len(bindings))
	for i, b := range bindings {
		binding, err := s.programs.Binding(b.Expression)
		if err != nil {
			return nil, fmt.Errorf("argument %s: %w", b.Name, err)
		}
		compiled[i] = binding
	}
	vars := s.vars(p, a, compiled...)
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
		return nil, fmt.Errorf("the arguments take %d bytes; at most %d fit in a record: pass large "+
			"values by reference", len(out), argumentsMax)
	}
	return out, nil
}

// vars are what expressions about an action read; what none of them mentions is
// not prepared.
func (s *State) vars(p *plan, a *action, readers ...*triggers.Binding) triggers.BindingVars {
	payload := s.payload(a.id)
	vars := triggers.BindingVars{Input: payload.Input, Output: payload.Output, Before: payload.Before,
		Incomplete: a.row.OutputIncomplete}
	for _, r := range readers {
		if vars.Plan == nil && r.Reads("plan") {
			vars.Plan = s.planJSON(p)
		}
		if vars.Meta == nil && r.Reads("meta") {
			vars.Meta = mustJSON(s.metaOf(p, a))
		}
	}
	return vars
}

// read evaluates one of a contract's readers of an answer; fill adds the answer.
func (s *State) read(p *plan, a *action, expression string,
	fill func(*triggers.BindingVars)) (json.RawMessage, error) {
	reader, err := s.programs.Reader(expression)
	if err != nil {
		return nil, err
	}
	vars := s.vars(p, a, reader)
	fill(&vars)
	return reader.Evaluate(vars)
}

// argumentsMax leaves room for the control fields of the record beside them.
const argumentsMax = ledger.CommitSizeMax - 4<<10

func (s *State) planJSON(p *plan) []byte {
	vars := planVars{ID: p.id, Label: p.row.Declared.Label, Owner: p.row.Declared.Owner,
		Agent: p.row.Agent, Reason: p.row.Reason}
	for _, l := range p.row.Declared.Labels {
		if vars.Labels == nil {
			vars.Labels = map[string]string{}
		}
		vars.Labels[l.Key] = l.Value
	}
	return mustJSON(vars)
}

// metaOf is what an expression reads as meta, before any attempt.
func (s *State) metaOf(p *plan, a *action) metaVars {
	return metaVars{
		Tenant: s.tenant, Plan: p.id, Action: a.fixed.Id, Capability: a.fixed.Forward.Capability,
		Attempt:    a.row.Attempt + 1,
		ForwardKey: s.forwardKey(p, a), ForwardAtMs: a.fixed.AtNs / 1e6,
		Address: ledger.FormatFullAddress(a.fixed.Registered), Key: s.key(a),
		ExternalRef:  a.row.ExternalRef,
		BlindCleanup: blind(a), DirtyFailure: blind(a), HasForwardOutput: hasOutput(a),
	}
}

// forwardKey is the key that the forward of an action carried.
func (s *State) forwardKey(p *plan, a *action) string {
	plan, id := p.id, a.fixed.Id
	if p.row.Origin != "" {
		plan = p.row.Origin
	}
	if a.fixed.DutyOf != 0 {
		id = s.action(p.id, a.fixed.DutyOf).fixed.Id
	}
	return ledger.Key(s.tenant, plan, id, ledger.PurposeDo)
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("executor: cannot encode " + err.Error())
	}
	return b
}
