package compile

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/internal/argument"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// What plan and meta are in an example that does not give them.
const (
	samplePlan = `{"id":"plan","label":"sample","owner":"owner","agent":"agent"}`
	sampleMeta = `{"tenant":"tenant","plan":"plan","action":"action","capability":%s,"address":"1.0-00000000",` +
		`"key":"00000000000000000000000000000001","forward_key":"00000000000000000000000000000002",` +
		`"attempt":1,"forward_at_ms":1767225600000,"blind_cleanup":false,"dirty_failure":false,"has_forward_output":true}`
)

// exampleRun runs one example against the compiled contract.
type exampleRun struct {
	*linter
	compiled *Compiled
	example  *contract.Example
	at       string // its field
	vars     triggers.BindingVars
}

func (r *exampleRun) run() {
	e := r.example
	c, _ := r.compiled.sent()
	r.vars = triggers.BindingVars{Plan: json.RawMessage(samplePlan),
		Meta: fmt.Appendf(nil, sampleMeta, argument.Quote(r.compiled.Capability))}
	for _, v := range []struct {
		given any
		into  *json.RawMessage
	}{{e.Input, &r.vars.Input}, {e.Output, &r.vars.Output}, {e.Probe, &r.vars.Probe},
		{e.Before, &r.vars.Before}, {e.Plan, &r.vars.Plan}, {e.Meta, &r.vars.Meta},
		{e.Actions, &r.vars.Actions}, {e.Facts, &r.vars.Facts}} {
		if v.given != nil {
			*v.into = r.text(v.given)
		}
	}
	if e.Arguments != nil {
		r.arguments("arguments", c.Bindings, e.Arguments)
	}
	if asks := e.Asks; asks != nil {
		r.arguments("asks.before", r.compiled.Before.GetBindings(), asks.Before)
		r.arguments("asks.probe", c.Probe.GetCall().GetBindings(), asks.Probe)
		r.arguments("asks.verify", c.Verify.GetCall().GetBindings(), asks.Verify)
	}
	if e.ValidUntil != "" {
		r.window()
	}
	for i, p := range e.Probes {
		r.probe(fmt.Sprintf("probes[%d]", i), c.Probe, p)
		r.unchanged(fmt.Sprintf("probes[%d].unchanged", i), c.Unchanged, p)
	}
	for i, v := range e.Verifies {
		r.verify(fmt.Sprintf("verifies[%d]", i), c.Verify, v)
	}
	for i, f := range e.Errors {
		r.failure(fmt.Sprintf("errors[%d]", i), c, f)
	}
}

func (r *exampleRun) text(value any) json.RawMessage {
	text, err := argument.Encode(value)
	if err != nil {
		panic("contract: an example that is no JSON: " + err.Error()) // Parse made it
	}
	return text
}

func (r *exampleRun) mismatch(field, got, want string) {
	r.fail(r.at+"."+field, "it is "+got, "the example wants "+want)
}

// reading evaluates an expression that reads an answer, as the executor does: what depends
// on what is not there is null. false after a finding.
func (r *exampleRun) reading(field, expression string, vars triggers.BindingVars) (json.RawMessage,
	bool) {
	vars.Strict = true
	return r.value(field, expression, vars)
}

// value evaluates one expression; false after a finding.
func (r *exampleRun) value(field, expression string, vars triggers.BindingVars) (json.RawMessage,
	bool) {
	program, err := r.programs.Reader(expression)
	if err == nil {
		var value json.RawMessage
		if value, err = program.Evaluate(vars); err == nil {
			return value, true
		}
		if errors.Is(err, triggers.ErrNotThere) {
			return json.RawMessage("null"), true
		}
	}
	r.fail(r.at+"."+field, err.Error(), "")
	return nil, false
}

// arguments compares what a call would be sent with what the example wants.
func (r *exampleRun) arguments(field string, bindings []*pb.Binding, want map[string]any) {
	if want == nil {
		return
	}
	seen := map[string]bool{}
	for _, b := range bindings {
		seen[b.Name] = true
		expected, ok := want[b.Name]
		if !ok {
			r.fail(r.at+"."+field, "no "+b.Name, "the call is also given "+b.Name)
			continue
		}
		place := field + "." + b.Name
		if got, ok := r.value(place, b.Expression, r.vars); ok && !sameJSON(got, r.text(expected)) {
			r.mismatch(place, string(got), string(r.text(expected)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !seen[name] {
			r.fail(r.at+"."+field+"."+name, "the call is not given "+name, "")
		}
	}
}

func (r *exampleRun) window() {
	want, err := time.Parse(time.RFC3339Nano, r.example.ValidUntil)
	if err != nil {
		r.fail(r.at+".valid_until", fmt.Sprintf("%q is no RFC 3339 timestamp", r.example.ValidUntil),
			"as in 2026-12-31T00:00:00Z")
		return
	}
	ns, err := r.compiled.ValidUntil(r.vars.Input)
	switch {
	case err != nil:
		r.fail(r.at+".valid_until", err.Error(), "")
	case ns == 0:
		r.mismatch("valid_until", "no limit", r.example.ValidUntil)
	case !time.Unix(0, ns).Equal(want):
		r.mismatch("valid_until", time.Unix(0, ns).UTC().Format(time.RFC3339Nano), r.example.ValidUntil)
	}
}

func (r *exampleRun) probe(field string, p *pb.Probe, want contract.ExampleProbe) {
	if p == nil {
		r.fail(r.at+"."+field, "the contract has no probe", "")
		return
	}
	if !slices.Contains(presences, want.Presence) {
		r.fail(r.at+"."+field+".presence", fmt.Sprintf("%q", want.Presence),
			"present, absent, duplicate or inconclusive")
		return
	}
	vars := r.vars
	vars.Probe = r.text(want.Output)
	value, ok := r.reading(field, cmp.Or(p.ExternalRef, "probe.external_ref"), vars)
	if !ok {
		return
	}
	ref := referenceOf(value)
	if value, ok = r.reading(field, cmp.Or(p.Answer, "probe.presence"), vars); !ok {
		return
	}
	got := presenceOf(value)
	if got == "duplicate" && ref == "" {
		got = "inconclusive" // the extra effect has no name
	}
	if got != want.Presence {
		r.mismatch(field+".presence", got, want.Presence)
	}
	if want.ExternalRef != "" && ref != want.ExternalRef {
		r.mismatch(field+".external_ref", argument.Quote(ref), want.ExternalRef)
	}
}

// unchanged compares whether a probe's answer is taken for what the forward left.
func (r *exampleRun) unchanged(field, expression string, want contract.ExampleProbe) {
	if want.Unchanged == nil {
		return
	}
	if expression == "" {
		r.fail(r.at+"."+field, "the contract has no inverse.unchanged", "")
		return
	}
	vars := r.vars
	vars.Probe = r.text(want.Output)
	wanted := fmt.Sprint(*want.Unchanged)
	if value, ok := r.reading(field, expression, vars); ok && string(value) != wanted {
		r.mismatch(field, string(value), wanted)
	}
}

// referenceOf reads the value of an external_ref as the executor does: a number is
// a name too, and a list names the effect first and then the extra ones.
func referenceOf(value json.RawMessage) string {
	var list []json.RawMessage
	if json.Unmarshal(value, &list) == nil && list != nil {
		var refs []string
		for _, item := range list {
			if ref := referenceOf(item); ref != "" {
				refs = append(refs, ref)
			}
		}
		return strings.Join(refs, ", ")
	}
	var text string
	if json.Unmarshal(value, &text) != nil {
		return string(value)
	}
	return text
}

// presenceOf reads the value of an answer as the executor does: what is none of
// the four is inconclusive.
func presenceOf(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) != nil || !slices.Contains(presences, text) {
		return "inconclusive"
	}
	return text
}

func (r *exampleRun) verify(field string, v *pb.Verify, want contract.ExampleVerify) {
	if v == nil {
		r.fail(r.at+"."+field, "the contract has no verify", "")
		return
	}
	vars := r.vars
	vars.Verify, vars.Result = r.text(want.Output), r.text(want.Result)
	if got, ok := r.reading(field, v.Ok, vars); ok && string(got) != fmt.Sprint(want.Ok) {
		r.mismatch(field+".ok", string(got), fmt.Sprint(want.Ok))
	}
}

func (r *exampleRun) failure(
	field string, c *pb.CompensationRegistered, want contract.ExampleFailure,
) {
	vars := r.vars
	vars.Error, vars.Result = r.text(want.Error), r.text(want.Result)
	got := "retry"
	for _, q := range []struct{ name, expression string }{{"stop", c.Stop}, {"done", c.Done}} {
		if q.expression == "" {
			continue
		}
		value, ok := r.reading(field, q.expression, vars)
		if !ok {
			return
		}
		if string(value) == "true" {
			got = q.name // done counts before stop
		}
	}
	if got != want.Means {
		r.mismatch(field+".means", got, want.Means)
	}
}
