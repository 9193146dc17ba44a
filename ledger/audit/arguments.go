package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// I30: a call takes what its registered bindings make of what was recorded. Bindings are
// evaluated here over values that this fold has gathered from the records; sealed values
// are in them as they were stored. I37: where a binding reads what was too large to be
// kept, there is no call.

// fault is what is wrong with the arguments of a call, and the rule that it breaks; both
// are empty when nothing is.
type fault struct{ rule, problem string }

// called returns the bindings of the call that a record of a holder makes; ok is false for
// any other record.
func (a *action) called(r *pb.Record) (bindings []*pb.Binding, ok bool) {
	switch k := r.Kind.(type) {
	case *pb.Record_CompensationDispatched:
		return a.compensation.GetBindings(), true
	case *pb.Record_ProbeAsked:
		return callOf(a.compensation, k.ProbeAsked.Question).GetBindings(), true
	}
	return nil, false
}

// argue says what is wrong with the arguments of a call that is about to be folded.
func (b *book) argue(r *pb.Record) (none fault) {
	p := b.plan(r.Plan)
	if p == nil {
		return none
	}
	a := p.named(r.Action)
	if a == nil {
		return none
	}
	bindings, ok := a.called(r)
	if !ok {
		return none
	}
	want, err := b.bound(p, a, bindings)
	var lost *triggers.Missing
	switch {
	case errors.As(err, &lost):
		return fault{"I37", fmt.Sprintf("of a call about action %s: %v", a.id, err)}
	case err != nil:
		return fault{"I30", err.Error()}
	}
	have := r.Payload.GetArguments()
	if len(have) == 0 { // it is sent without any
		have = []byte("{}")
	}
	if !sameJSON(have, want) {
		return fault{"I30", fmt.Sprintf("arguments %.200q, and what was recorded makes them %.200q", have, want)}
	}
	return none
}

// bound evaluates bindings over what is recorded of an action.
func (b *book) bound(p *plan, a *action, bindings []*pb.Binding) ([]byte, error) {
	vars := triggers.BindingVars{
		Input: a.input, Output: a.output, Before: a.image, Incomplete: a.incomplete, Plan: planVars(p), Meta: b.metaVars(p, a),
	}
	out := []byte{'{'}
	for i, x := range bindings {
		binding, err := b.programs.Binding(x.Expression)
		if err != nil {
			return nil, fmt.Errorf("argument %s: %w", x.Name, err)
		}
		value, err := binding.Evaluate(vars)
		if err != nil {
			return nil, fmt.Errorf("argument %s: %w", x.Name, err)
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, marshalled(x.Name)...), ':')
		out = append(out, value...)
	}
	return append(out, '}'), nil
}

// planVars is what a binding reads as plan.
func planVars(p *plan) json.RawMessage {
	vars := map[string]any{"id": p.id, "agent": p.agent}
	d := p.declared
	for _, f := range [...][2]string{{"label", d.GetLabel()}, {"owner", d.GetOwner()}, {"reason", p.reason}} {
		if f[1] != "" {
			vars[f[0]] = f[1]
		}
	}
	labels := map[string]string{}
	for _, l := range p.declared.GetLabels() {
		labels[l.Key] = l.Value
	}
	if len(labels) > 0 {
		vars["labels"] = labels
	}
	return marshalled(vars)
}

// metaVars is what a binding reads as meta, before an attempt.
func (b *book) metaVars(p *plan, a *action) json.RawMessage {
	of, id := p.id, p.originOf(a).id
	if p.origin != "" { // the forward ran for the plan that is undone
		of = p.origin
	}
	vars := map[string]any{
		"tenant": b.tenant, "plan": p.id, "action": a.id, "attempt": a.attempt + 1,
		"forward_key": ledger.Key(b.tenant, of, id, ledger.PurposeDo), "forward_at_ms": a.atNs / 1e6,
		"capability": a.forward.GetCapability(), "address": ledger.FormatFullAddress(a.registered),
		"key":           b.undoKey(p, a),
		"blind_cleanup": a.blind(), "dirty_failure": a.blind(), "has_forward_output": a.bindable(),
	}
	if a.externalRef != "" {
		vars["external_ref"] = a.externalRef
	}
	return marshalled(vars)
}

// bindable: the forward completed with an output that is more than nothing.
func (a *action) bindable() bool {
	return !a.blind() && len(a.output) > 0 && string(a.output) != "null"
}

func marshalled(v any) json.RawMessage {
	out, err := json.Marshal(v)
	if err != nil {
		panic("audit: cannot encode " + err.Error())
	}
	return out
}

// sameJSON compares documents by value, and their numbers as they are written.
func sameJSON(x, y []byte) bool {
	if bytes.Equal(x, y) {
		return true
	}
	decoded := func(data []byte) (v any, ok bool) {
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		return v, d.Decode(&v) == nil && !d.More()
	}
	a, ok := decoded(x)
	b, ok2 := decoded(y)
	return ok && ok2 && reflect.DeepEqual(a, b)
}

// argumentsRule is I30 and I37. A holder builds a call from what it has read: where others have
// written since, it may have been right at any place behind its last message.
func (l *Ledger) argumentsRule(e ledger.Entry, was before, commit []ledger.Entry) (none fault) {
	if was.argued == none || len(l.behind) == 0 {
		return was.argued
	}
	trial := l.late.trial()
	for _, earlier := range l.behind {
		if trial.right(e, commit) {
			return none
		}
		trial.foldAll(earlier)
	}
	return was.argued
}

// right reports whether a call would count here, with its arguments, behind what stands
// before it in its commit.
func (b *book) right(e ledger.Entry, commit []ledger.Entry) bool {
	trial := b.trial()
	for _, c := range commit {
		if c.StampNs = 0; c.Address.Index == e.Address.Index {
			return trial.argue(c.Record).problem == "" && trial.fold(c).ok()
		}
		trial.fold(c)
	}
	return false
}
