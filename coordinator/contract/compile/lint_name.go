package compile

import (
	"encoding/json"
	"slices"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// names warns of an undo that has no name for its effect when the forward's reply was lost:
// the executor does not send it with null in the place of an output or a reference, and
// where no probe can give the name, the action goes to its owner.
func (l *linter) names(c *Compiled) {
	written, inverse := l.source.Contract, c.inverse
	if written.Inverse == nil || written.OnInDoubt == contract.InDoubtQuarantine ||
		written.Inverse.Actuator == contract.ActuatorMemory || inverse.HandlerVersion != "" {
		return
	}
	reads, byReference := false, false
	var all []*triggers.Binding
	for _, b := range inverse.Bindings {
		binding, err := l.programs.Reader(b.Expression)
		if err != nil {
			return // refused before
		}
		all = append(all, binding)
		reference := slices.Contains(binding.Fields("meta"), "external_ref")
		reads = reads || binding.Reads("output") || reference
		byReference = byReference || reference
	}
	probe := written.Probe
	if triggers.Nameless(all, withoutOutcome) {
		const without = "in doubt nothing names the effect for the undo, and its action goes " +
			"to its owner: "
		switch {
		case probe == nil:
			l.warn("inverse.with", without+"its arguments read output and meta.external_ref only",
				"a probe with external_ref, which an argument reads as meta.external_ref; or an argument "+
					"that reads what the caller chose, as =input.id")
		case !byReference:
			l.warn("inverse.with", without+"the probe may name it, and no argument reads that",
				`has(output.id) ? output.id : meta.external_ref`)
		case probe.Answer != "" && probe.ExternalRef == "":
			l.warn("probe", without+"the probe does not name it",
				"external_ref, as in probe.id")
		}
	}
	if probe != nil && written.Late == contract.LateRefused && reads &&
		written.OnInDoubt == contract.InDoubtCompensate {
		l.warn("on_in_doubt", "the probe is not asked before an undo in doubt, whose arguments "+
			"may be null",
			"leave it out: with a probe, the default asks first")
	}
}

// withoutOutcome are stand-ins for what arguments read where neither the output nor the reference
// is known.
func withoutOutcome(arguments ...*triggers.Binding) triggers.BindingVars {
	vars := standIns([]string{"output", "actions", "facts"}, arguments...)
	var meta map[string]any
	if json.Unmarshal(vars.Meta, &meta) == nil {
		delete(meta, "external_ref")
		vars.Meta = encoded(meta)
	}
	return vars
}
