package compile

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
	"github.com/sagenbaum/sagenbaum/triggers/nearest"
)

// An expression may compile and still read what is never there: an argument would be null in each
// command, and a condition would be held for nothing.

// checkKnown refuses such expressions of what compiles.
func (x *compiler) checkKnown(written contract.Contract, c *Compiled) {
	x.checkFields(written, c)
	for _, t := range c.inverse.Triggers {
		condition, err := x.programs.Condition(t.Condition)
		if err != nil {
			continue // refused before
		}
		if found := c.unlifted("triggers["+t.Name+"]", condition); found != nil {
			x.problems = append(x.problems, *found)
		}
	}
}

// unlifted is a field that a condition reads and that is not lifted, whatever the plan. What is
// true or false of a sample may be otherwise of a plan: that is for lint.
func (c *Compiled) unlifted(field string, condition *triggers.Condition) *problem {
	scope := c.sample(nil)
	for _, output := range [][]byte{nil, nothing} {
		scope.Action.Output = output
		found, _ := c.payload(field, condition.Evaluate(scope, triggers.Nothing{}).Waits)
		if found != nil {
			return found
		}
	}
	return nil
}

// fieldsOf are the fields of variables whose shape is known; beforeFields are those
// that are known before the forward crosses, and otherFields those of another action.
var (
	fieldsOf = map[string][]string{
		"error": {"code", "message"},
		"meta": {"action", "address", "attempt", "blind_cleanup", "capability", "dirty_failure",
			"external_ref", "forward_at_ms", "forward_key",
			"has_forward_output", "key", "plan", "tenant"},
		"plan": {"agent", "id", "input", "label", "labels", "owner", "reason"},
	}
	beforeFields = map[string][]string{
		"meta": {"action", "capability", "forward_key", "key", "plan", "tenant"},
		"plan": {"agent", "id", "input", "label", "labels", "owner"},
	}
	otherFields = []string{"input", "output", "before", "external_ref"}
)

// checkFields refuses what would be null for ever, as a key that is misspelt. Each expression is
// compiled as it was before.
func (x *compiler) checkFields(written contract.Contract, c *Compiled) {
	with := func(field string, bindings []*pb.Binding, known map[string][]string,
		compile func(string) (*triggers.Binding, error)) {
		for _, b := range bindings {
			x.known(field+"."+b.Name, b.Expression, known, compile)
		}
	}
	t, of := c.sent()
	with("before.with", c.Before.GetBindings(), beforeFields, x.programs.Binding)
	with(of+".with", t.Bindings, fieldsOf, x.argument(written))
	with("probe.with", t.Probe.GetCall().GetBindings(), fieldsOf, x.programs.Binding)
	with("inverse.verify.with", t.Verify.GetCall().GetBindings(), fieldsOf, x.programs.Binding)
	for _, read := range [...]struct{ field, expression string }{
		{"probe.answer", t.Probe.GetAnswer()}, {"probe.external_ref", t.Probe.GetExternalRef()},
		{"inverse.verify.ok", t.Verify.GetOk()}, {"inverse.unchanged", t.Unchanged},
		{of + ".done", t.Done}, {of + ".stop", t.Stop},
	} {
		x.known(read.field, read.expression, fieldsOf, x.programs.Reader)
	}
}

func (x *compiler) known(field, expression string, known map[string][]string,
	compile func(string) (*triggers.Binding, error)) {
	program, err := compile(expression)
	if err != nil {
		return // there is none
	}
	refuse := func(read, name string, names []string) {
		message := read + " is null here, always"
		if hint := nearest.DidYouMean(name, names); hint != "" {
			message += "; " + hint
		}
		x.refuse(field, message, strings.Join(names, ", "))
	}
	for _, variable := range slices.Sorted(maps.Keys(known)) {
		for _, name := range program.Fields(variable) {
			if !slices.Contains(known[variable], name) {
				refuse(variable+"."+name, name, known[variable])
			}
		}
	}
	for _, read := range program.Paths() {
		if p := read.Path; p[0] == "actions" && len(p) > 2 && !slices.Contains(otherFields, p[2]) {
			refuse(strings.Join(p[:3], "."), p[2], otherFields)
		}
	}
}

// nothing is what is lifted of an output that has none of the lifted fields.
var nothing = []byte("{}")

// sampleNs is the time of the sample plan, unix ns.
const sampleNs = int64(1_767_225_600_000_000_000) // 2026-01-01

// sample is an action of a plan that was just registered.
func (c *Compiled) sample(input []byte) triggers.Scope {
	return triggers.Scope{
		Plan: triggers.Plan{ID: "plan", Status: "open", Agent: "agent", OpenedNs: sampleNs,
			DeadlineNs: sampleNs + int64(24*time.Hour), Actions: 1},
		Action: &triggers.Action{ID: "action", Capability: c.Capability, AtNs: sampleNs, Input: input},
		NowNs:  sampleNs, ArmedNs: sampleNs,
	}
}

// undecided evaluates a condition over an action that was just registered, and then with its
// output: lifted fields of both; nil: not known. found: it is true there, and would undo every
// action at once, or can never be true. moot: no later fact, time or outcome makes it true.
func (c *Compiled) undecided(field string, condition *triggers.Condition,
	input, output []byte) (found *problem, moot bool) {
	scope := c.sample(input)
	result := condition.Evaluate(scope, triggers.Nothing{})
	if found = stuck(field, condition, scope); found != nil {
		return found, false
	}
	if result.Truth == triggers.True {
		return &problem{field: field,
			message: "fires at once: it is true of an action that was just registered",
			want:    "a condition that a later fact, time or outcome makes true"}, false
	}
	found, waits := c.payload(field, result.Waits)
	moot = found == nil && result.Moot && !waits
	if found != nil || moot || output == nil {
		return found, moot
	}
	scope.Action.Output = output
	if found = stuck(field, condition, scope); found != nil {
		return found, false
	}
	found, _ = c.payload(field, condition.Evaluate(scope, triggers.Nothing{}).Waits)
	return found, false
}

// stuck is an error that keeps a condition from ever being true for such values.
func stuck(field string, condition *triggers.Condition, scope triggers.Scope) *problem {
	err := condition.Stuck(scope)
	if err == nil {
		return nil
	}
	return &problem{field: field, message: "can never be true for such an action: " + err.Error(),
		want: stuckWanted}
}

// payload refuses a condition that waits for what is not lifted, and so for ever.
// waits says that it waits for a lifted field, which this value does not have.
func (c *Compiled) payload(field string, waitsFor []string) (found *problem, waits bool) {
	for _, wait := range waitsFor {
		path, from, ok := triggers.Unlifted(wait)
		if !ok {
			continue
		}
		waits = true
		name := path[strings.LastIndex(path, ".")+1:]
		if slices.ContainsFunc(c.Sensitive,
			func(p seal.Path) bool { return p.Overlaps([]string{from, name}) }) {
			return &problem{field: field, message: "reads " + path + ", which is sensitive",
				want: "what is in the clear: a decision must be the same when the key is gone"}, true
		}
		if !slices.Contains(c.Lift, name) {
			return &problem{field: field, message: "reads " + path + ", which is payload",
				want: "lift: [" + name + "], so that triggers may read it of the " + from}, true
		}
	}
	return nil, waits
}
