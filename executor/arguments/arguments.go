// Package arguments makes the arguments of a call from frozen bindings, and what those read of an
// action, of its plan, and of what is beside it: other actions and facts.
//
// Which actions and facts a registration reads is known when it is folded. The values of facts are
// kept then, as they are at that place of the ledger: they may be others, or evicted, when the undo
// is made. What an action was called with and has left is recorded once, and is read when the call
// is made: at the registration it may not be known yet.
package arguments

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Meta is what a binding reads as meta (S19, S109).
type Meta struct {
	Tenant           string `json:"tenant"`
	Plan             string `json:"plan"`
	Action           string `json:"action"`
	Attempt          uint32 `json:"attempt"`
	ForwardKey       string `json:"forward_key"`
	ForwardAtMs      int64  `json:"forward_at_ms"`
	Capability       string `json:"capability"`
	Address          string `json:"address"`
	Key              string `json:"key"`
	ExternalRef      string `json:"external_ref,omitempty"`
	BlindCleanup     bool   `json:"blind_cleanup"`
	DirtyFailure     bool   `json:"dirty_failure"`
	HasForwardOutput bool   `json:"has_forward_output"`
}

// plan is what a binding reads as plan, but for its input.
type plan struct {
	ID     string            `json:"id"`
	Label  string            `json:"label,omitempty"`
	Owner  string            `json:"owner,omitempty"`
	Agent  string            `json:"agent"`
	Reason string            `json:"reason,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
}

// PlanJSON is what a binding reads as plan. agent has opened it; reason is why it unwinds, or
// empty; input is what it was opened with, or nil.
func PlanJSON(id, agent string, declared *pb.PlanOpened, reason string,
	input json.RawMessage) json.RawMessage {
	p := plan{ID: id, Label: declared.GetLabel(), Owner: declared.GetOwner(), Agent: agent,
		Reason: reason}
	for _, l := range declared.GetLabels() {
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels[l.Key] = l.Value
	}
	out := encoded(p)
	if len(input) == 0 {
		return out
	}
	return append(member(out[:len(out)-1], "input", input), '}')
}

// Other is what a binding reads of another action; what is not there is nil, or empty.
type Other struct {
	ID                    string
	Input, Output, Before json.RawMessage
	ExternalRef           string // what its provider calls its effect
	Incomplete, Unnamed   bool   // Output, and ExternalRef, could not be kept as they were
}

// AddOthers adds other actions to what bindings read.
func AddOthers(vars *triggers.BindingVars, list []Other) {
	out := []byte{'{'}
	for _, x := range list {
		of := []byte{'{'}
		for _, f := range [...]struct {
			name  string
			value json.RawMessage
		}{{"input", x.Input}, {"output", x.Output}, {"before", x.Before}} {
			if len(f.value) > 0 {
				of = member(of, f.name, f.value)
			}
		}
		if x.ExternalRef != "" {
			of = member(of, "external_ref", encoded(x.ExternalRef))
		}
		out = member(out, x.ID, append(of, '}'))
		if x.Incomplete {
			vars.Partial = append(vars.Partial, []string{"actions", x.ID, "output"})
		}
		if x.Unnamed {
			vars.Partial = append(vars.Partial, []string{"actions", x.ID, "external_ref"})
		}
	}
	vars.Actions = append(out, '}')
}

// Keys are the elements of actions or facts that expressions read, sorted, each once.
func Keys(variable string, readers []*triggers.Binding) (keys []string) {
	for _, r := range readers {
		keys = append(keys, r.Keys(variable)...)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Freeze keeps the facts that expressions read as they are now: an object by key, or nil if there
// are none; and the keys of those that are too large to be kept. value gives one; nil: it is not
// there.
func Freeze(readers []*triggers.Binding, value func(key string) json.RawMessage) (facts []byte,
	lost []string) {
	out := []byte{'{'}
	for _, key := range Keys("facts", readers) {
		switch v := value(key); {
		case len(v) == 0:
		case len(v) > ledger.FrozenFactMax:
			lost = append(lost, key)
		default:
			out = member(out, key, v)
		}
	}
	if len(out) > 1 {
		facts = append(out, '}')
	}
	return facts, lost
}

// member adds a member to an object that is not closed yet.
func member(out []byte, name string, value []byte) []byte {
	if out[len(out)-1] != '{' {
		out = append(out, ',')
	}
	return append(append(append(out, encoded(name)...), ':'), value...)
}

// Object evaluates bindings, which compiled has, to the JSON object of their arguments. A missing
// path is null (S20), but not one below what was too large to be kept (I37); an expression that
// cannot be evaluated is an error, and its action is its owner's (S26). clear says that they must
// have no sealed values.
func Object(bindings []*pb.Binding, compiled []*triggers.Binding, vars triggers.BindingVars,
	clear bool) ([]byte, error) {
	out := append(make([]byte, 0, 256), '{')
	for i, b := range bindings {
		err := Opens(compiled[i], vars.Actions)
		var value json.RawMessage
		if err == nil {
			value, err = compiled[i].Evaluate(vars)
		}
		if err != nil {
			return nil, fmt.Errorf("argument %s: %w", b.Name, err)
		}
		out = member(out, b.Name, value)
	}
	out = append(out, '}')
	if clear && seal.Sealed(out) {
		return nil, errors.New("an argument is sealed, and facts are in the clear")
	}
	if len(out) > ledger.ArgumentsMax {
		return nil, fmt.Errorf("the arguments take %d bytes; at most %d fit in a record: pass large "+
			"values by reference", len(out), ledger.ArgumentsMax)
	}
	return out, nil
}

// Opens refuses an expression that would have to open what another action has sealed: it can take
// that whole only. Of the action itself its contract was held to that.
func Opens(b *triggers.Binding, actions json.RawMessage) error {
	if !b.Reads("actions") || !seal.Sealed(actions) {
		return nil
	}
	for _, read := range b.Paths() {
		if read.Path[0] != "actions" {
			continue
		}
		if sealed := seal.Closed(actions, read.Path[1:], read.Copied); sealed != "" {
			return fmt.Errorf("actions.%s is sealed: it can be taken whole only, and nothing be "+
				"computed from it", sealed)
		}
	}
	return nil
}

func encoded(v any) json.RawMessage {
	out, err := json.Marshal(v)
	if err != nil {
		panic("arguments: cannot encode " + err.Error())
	}
	return out
}
