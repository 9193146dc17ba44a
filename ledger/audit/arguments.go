package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// I30: a call takes what its registered bindings make of what was recorded. Bindings are
// evaluated here over values that this fold has gathered from the records; sealed values
// are in them as they were stored. I37: where a binding reads what was too large to be
// kept, there is no call.

// fault is what would have been right of a call, and the rule that it breaks.
type fault struct{ rule, right string }

// called returns the bindings of the call that a record of a holder makes; ok is false for
// any other record.
func (a *action) called(r *pb.Record) (bindings []*pb.Binding, ok bool) {
	switch k := r.Kind.(type) {
	case *pb.Record_CompensationDispatched:
		return a.compensation.GetBindings(), true
	case *pb.Record_ProbeAsked:
		return questionCall(a.compensation, k.ProbeAsked.Question).GetBindings(), true
	}
	return nil, false
}

// argumentOf compiles an argument of a call. One of an undo that is asked whether someone else has
// changed something may read what the probe has found.
func argumentOf(programs *triggers.Cache, c *pb.CompensationRegistered,
	x *pb.Binding) (*triggers.Binding, error) {
	if c.GetUnchanged() != "" {
		return programs.Reader(x.Expression)
	}
	return programs.Binding(x.Expression)
}

// bound evaluates bindings over what is recorded of an action.
func (b *book) bound(p *plan, a *action, bindings []*pb.Binding) ([]byte, error) {
	list := make([]*triggers.Binding, len(bindings))
	for i, x := range bindings {
		binding, err := argumentOf(b.programs, a.compensation, x)
		if err != nil {
			return nil, fmt.Errorf("argument %s: %w", x.Name, err)
		}
		list[i] = binding
	}
	vars := readable(b, p, a, list...)
	out := []byte{'{'}
	for i, x := range bindings {
		value, err := list[i].Evaluate(vars)
		if err == nil && opensSealed(list[i], vars) {
			err = errors.New("it would have to open what another action has sealed")
		}
		if err != nil {
			return nil, fmt.Errorf("argument %s: %w", x.Name, err)
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, marshalled(x.Name)...), ':')
		out = append(out, value...)
	}
	if b.rules >= ledger.OthersSince && a.makesFact() && seal.Sealed(out) {
		return nil, errors.New("an argument is sealed, and facts are in the clear")
	}
	return append(out, '}'), nil
}

// planOf is what a binding reads as plan.
func planOf(p *plan) json.RawMessage {
	vars := map[string]any{"id": p.id, "agent": openedBy(p)}
	d := p.declared
	for _, f := range [...][2]string{{"label", d.GetLabel()}, {"owner", d.GetOwner()},
		{"reason", p.reason}} {
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
	if len(p.input) > 0 {
		vars["input"] = json.RawMessage(p.input)
	}
	return marshalled(vars)
}

// metaOf is what a binding reads as meta, before an attempt.
func (b *book) metaOf(p *plan, a *action) json.RawMessage {
	of, id := p.id, p.originOf(a).id
	if p.origin != "" { // the forward ran for the plan that is undone
		of = p.origin
	}
	vars := map[string]any{
		"tenant": b.tenant, "plan": p.id, "action": a.id, "attempt": a.attempt + 1,
		"forward_key":   ledger.Key(b.tenant, of, id, ledger.PurposeDo),
		"forward_at_ms": a.atNs / 1e6,
		"capability":    a.forward.GetCapability(),
		"address":       ledger.FormatFullAddress(a.registered),
		"key":           b.undoKey(p, a),
		"blind_cleanup": a.isBlind(), "dirty_failure": isDirty(b, p, a),
		"has_forward_output": a.hasOutput(),
	}
	if name := a.nameOf(); name != "" {
		vars["external_ref"] = name
	}
	return marshalled(vars)
}

// isDirty: a forward timed out, or its agent vanished, so that it may have happened in part. No
// word of an operator, and no probe, takes that away: only that of the agent. Before DirtySince it
// was another name of what is blind.
func isDirty(b *book, p *plan, a *action) bool {
	if b.rules < ledger.DirtySince || a.isBlind() || a.isStaged() {
		return a.isBlind()
	}
	of := p.originOf(a)
	return of.told && (of == a || toldAs(p, of) == a)
}

var dirtyClause = clause{"I20.dirty",
	"An undo follows a dirty failure where the agent of its forward has not said that it is " +
		"completed, whatever else is known of its effect.",
	func(c *claim) judgement {
		said := c.Record.GetCompensationDispatched().DirtyFailure
		return unless(said == isDirty(c.b, c.p, c.a) || c.b.rules < ledger.DirtySince,
			"dirty_failure %v, and the outcome of action %s is %s, told %v", said, c.a.id,
			c.a.outcome, c.a.told)
	}}

// hasOutput: the forward completed with an output that is more than nothing.
func (a *action) hasOutput() bool {
	return !a.isBlind() && len(a.output) > 0 && string(a.output) != "null"
}

func marshalled(v any) json.RawMessage {
	out, err := json.Marshal(v)
	if err != nil {
		panic("audit: cannot encode " + err.Error())
	}
	return out
}

// sameJSON compares documents by value, and their numbers as they are written. A name that is given
// twice is two members: readers of the document may take the one or the other.
func sameJSON(x, y []byte) bool {
	if bytes.Equal(x, y) {
		return true
	}
	decoded := func(data []byte) (v any, ok bool) {
		in := json.NewDecoder(bytes.NewReader(data))
		in.UseNumber()
		v, err := everyMember(in)
		if err != nil {
			return nil, false
		}
		_, err = in.Token()
		return v, errors.Is(err, io.EOF)
	}
	a, ok := decoded(x)
	b, ok2 := decoded(y)
	return ok && ok2 && reflect.DeepEqual(a, b)
}

// everyMember reads a value in which an object has a list of values for each of its names.
func everyMember(in *json.Decoder) (any, error) {
	token, err := in.Token()
	start, ok := token.(json.Delim)
	if err != nil || !ok {
		return token, err
	}
	list, object := []any{}, map[string][]any{}
	for in.More() {
		name := ""
		if start == '{' {
			if token, err = in.Token(); err != nil {
				return nil, err
			}
			name, _ = token.(string)
		}
		value, err := everyMember(in)
		if err != nil {
			return nil, err
		}
		if start == '{' {
			object[name] = append(object[name], value)
		} else {
			list = append(list, value)
		}
	}
	if _, err = in.Token(); err != nil || start == '[' {
		return list, err
	}
	return object, nil
}

// arguments says what is wrong with the arguments of a call; nil: nothing, or it is none.
func (c *claim) arguments() *fault {
	if !c.asked {
		c.asked = true
		c.fault = c.b.argue(c)
	}
	return c.fault
}

func (b *book) argue(c *claim) *fault {
	if c.a == nil {
		return nil
	}
	bindings, ok := c.a.called(c.Record)
	if !ok {
		return nil
	}
	if f := c.askedUnder(); f != nil {
		return f
	}
	want, err := b.bound(c.p, c.a, bindings)
	var lost *triggers.Missing
	switch {
	case errors.As(err, &lost):
		return &fault{"I37", fmt.Sprintf("no call about action %s: %v", c.a.id, err)}
	case err != nil:
		return &fault{"I30", err.Error()}
	}
	have := c.Record.Payload.GetArguments()
	if len(have) == 0 { // it is sent without any
		have = []byte("{}")
	}
	if !sameJSON(have, want) {
		return &fault{"I30", fmt.Sprintf("arguments %.200q, by what was recorded, and not %.200q",
			want, have)}
	}
	return nil
}

// askedUnder is what would have been right of the key of a question.
func (c *claim) askedUnder() *fault {
	k := c.Record.GetProbeAsked()
	if k == nil {
		return nil
	}
	want := c.b.undoKey(c.p, c.a)
	if k.Done != nil {
		want = keyOf(c.b, c.p, c.a, k.Done.Attempt)
	}
	if k.Key == want {
		return nil
	}
	return &fault{"I19", fmt.Sprintf("key %q, and not %q", want, k.Key)}
}

// isCalledRight reports whether nothing is wrong with the arguments of a call.
func isCalledRight(c *claim) bool { return c.arguments() == nil }

// isUnsendable reports whether a call about an action cannot be made: nothing makes its arguments
// of what is recorded, they are no fact, or fit into no record.
func isUnsendable(b *book, p *plan, a *action) bool {
	unmade := func(call *pb.Call) bool {
		if call == nil {
			return false
		}
		arguments, err := b.bound(p, a, call.Bindings)
		return err != nil || len(arguments) > argumentsMax
	}
	undo := a.compensation
	if a.makesFact() {
		arguments, err := b.bound(p, a, undo.GetBindings())
		if _, _, isFact := factOf(undo.GetCapability(), arguments); err == nil && !isFact {
			return true
		}
	}
	return unmade(&pb.Call{Bindings: undo.GetBindings()}) || unmade(undo.GetProbe().GetCall()) ||
		unmade(undo.GetVerify().GetCall())
}

// argumentsMax is how many bytes of arguments fit into a record of a call for sure, beside what
// else it says.
const argumentsMax = ledger.CommitSizeMax - 8<<10

// expression is a text of a record that someone will evaluate one day.
type expression struct {
	field, text string
	as          use
}

// use is what an expression is for.
type use uint8

const (
	condition use = iota
	argument
	found   // an argument beside which a probe was asked
	truth   // read from an answer: true or false
	word    // read from an answer: a text
	reading // read from an answer: anything
)

// declared lists the conditions of triggers.
func declared(at string, list []*pb.Trigger) (all []expression) {
	for i, t := range list {
		field := fmt.Sprintf("%s.triggers[%d].condition", at, i)
		all = append(all, expression{field, t.Condition, condition})
	}
	return all
}

func argumentsOf(at string, list []*pb.Binding, as use) (all []expression) {
	for i, b := range list {
		field := fmt.Sprintf("%s.bindings[%d].expression", at, i)
		all = append(all, expression{field, b.Expression, as})
	}
	return all
}

// expressionsOf lists all that a registration has.
func expressionsOf(c *pb.CompensationRegistered) (all []expression) {
	const at = "compensation_registered"
	probe, verify, own := c.GetProbe(), c.GetVerify(), argument
	if c.GetUnchanged() != "" {
		own = found
	}
	all = slices.Concat(declared(at, c.Triggers), argumentsOf(at, c.Bindings, own),
		argumentsOf(at+".probe.call", probe.GetCall().GetBindings(), argument),
		argumentsOf(at+".verify.call", verify.GetCall().GetBindings(), argument))
	for _, e := range []expression{
		{at + ".unchanged", c.Unchanged, truth}, {at + ".done", c.Done, truth},
		{at + ".stop", c.Stop, truth},
		{at + ".verify.ok", verify.GetOk(), truth}, {at + ".probe.answer", probe.GetAnswer(), word},
		{at + ".probe.external_ref", probe.GetExternalRef(), reading},
	} {
		if e.text != "" {
			all = append(all, e)
		}
	}
	return all
}

// wrong says what is wrong with the first expression that cannot be evaluated, or that reads what
// its holder did not know yet.
func (c *claim) wrong(list []expression) string {
	for _, e := range list {
		why := wrongWith(c.b.programs, e)
		if why == "" && e.as == condition && !ledger.Knows(c.b.rules, ledger.ActiveSince) &&
			reads(c.b.programs, e.text, activeName) {
			why = "plan has no field active_at"
		}
		if why == "" && e.as == condition && !ledger.Knows(c.b.rules, ledger.PrefixSince) {
			if read, err := c.b.programs.Condition(e.text); err == nil && read.ReadsPrefix() {
				why = "all facts at once"
			}
		}
		if why == "" && e.as != condition && !ledger.Knows(c.b.rules, ledger.OthersSince) &&
			c.b.programs.CheckOwn(e.text, e.as != argument) != nil {
			why = "what is not of the action itself"
		}
		if why != "" {
			return e.field + ": " + why
		}
	}
	return c.readsTooMany(list)
}

func wrongWith(programs *triggers.Cache, e expression) string {
	var err error
	var r *triggers.Binding
	switch e.as {
	case condition:
		_, err = programs.Condition(e.text)
	case argument:
		err = programs.CheckBinding(e.text)
	default:
		r, err = programs.Reader(e.text)
	}
	if err != nil {
		var where *triggers.Error
		if errors.As(err, &where) {
			problem, _ := where.Brief()
			return "does not compile: " + problem
		}
		return "does not compile"
	}
	if r == nil || e.as == reading || e.as == found || r.Type() == "dyn" || r.Type() == "null_type" {
		return ""
	}
	if want := map[use]string{truth: "bool", word: "string"}[e.as]; r.Type() != want {
		return "the result is " + r.Type() + ", not " + want
	}
	return ""
}

// tellsForward reports whether an argument of the undo has the key of its forward.
func tellsForward(programs *triggers.Cache, c *pb.CompensationRegistered) bool {
	return slices.ContainsFunc(c.Bindings, func(x *pb.Binding) bool {
		if !strings.Contains(x.Expression, "meta") {
			return false
		}
		argument, err := argumentOf(programs, c, x)
		return err == nil && argument.ReadsField("meta", "forward_key")
	})
}

// readsExactly: numbers are read by their values under a holder with these rules.
func readsExactly(rules uint32) bool { return rules >= ledger.NumbersSince }
