package audit

import (
	"encoding/json"
	"errors"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// keptRule is I37: what a call reads of an output that was too large was kept, or its
// contract says that it may be missing.
func (b *book) keptRule(p *plan, a *action, bindings []*pb.Binding, attempt uint32) string {
	if !a.incomplete {
		return ""
	}
	vars := triggers.BindingVars{
		Input: a.input, Output: a.output, Before: a.image, Incomplete: true,
		Plan: p.toBindings(), Meta: b.metaOf(p, a, attempt),
	}
	for _, binding := range bindings {
		program, err := b.programs.Binding(binding.Expression)
		if err != nil {
			continue
		}
		var lost *triggers.Missing
		if _, err := program.Evaluate(vars); errors.As(err, &lost) {
			return "argument " + binding.Name + " of a call about action " + a.id + ": " + lost.Error()
		}
	}
	return ""
}

// toBindings is what arguments read as plan.
func (p *plan) toBindings() []byte {
	labels := map[string]string{}
	for _, l := range p.declared.Labels {
		labels[l.Key] = l.Value
	}
	return object([]field{
		{"id", p.id}, {"label", p.declared.Label}, {"owner", p.declared.Owner},
		{"agent", p.agent}, {"reason", p.reason}, {"labels", labels},
	})
}

// metaOf is what arguments read as meta.
func (b *book) metaOf(p *plan, a *action, attempt uint32) []byte {
	of, plan := p.originOf(a), p.id
	if p.origin != "" {
		plan = p.origin
	}
	return object([]field{
		{"tenant", b.tenant}, {"plan", p.id}, {"action", a.id}, {"attempt", attempt},
		{"capability", a.forward.GetCapability()}, {"forward_at_ms", a.atNs / 1e6},
		{"forward_key", ledger.Key(b.tenant, plan, of.id, ledger.PurposeDo)},
		{"address", ledger.FormatFullAddress(a.registered)}, {"key", b.undoKey(p, a)},
		{"external_ref", a.externalRef}, {"blind_cleanup", a.blind()},
		{"dirty_failure", a.blind()}, {"has_forward_output", !a.blind() && len(a.output) > 0},
	})
}

type field struct {
	name  string
	value any
}

// object is a JSON object without its empty texts, as arguments find none there.
func object(list []field) []byte {
	fields := map[string]any{}
	for _, f := range list {
		if f.value != "" {
			fields[f.name] = f.value
		}
	}
	data, err := json.Marshal(fields)
	if err != nil {
		panic("audit: fields that are no JSON: " + err.Error())
	}
	return data
}
