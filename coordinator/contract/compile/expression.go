package compile

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/internal/argument"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// checkExpressions compiles every expression as it is written, so that an error
// names its place there.
func (x *compiler) checkExpressions(c contract.Contract) {
	if c.Before != nil {
		x.checkWith("before.with", c.Before.With, x.programs.Binding, "input", "plan", "meta")
	}
	if i := c.Inverse; i != nil {
		roots := argument.Roots
		if i.Unchanged != "" {
			roots = slices.Concat(roots, []string{"probe"})
		}
		x.checkWith("inverse.with", i.With, x.argument(c), roots...)
		x.reader("inverse.unchanged", i.Unchanged, "bool", "probe")
		x.reader("inverse.done", i.Done, "bool", "error", "result")
		x.reader("inverse.stop", i.Stop, "bool", "error", "result")
		if i.Verify != nil {
			x.checkWith("inverse.verify.with", i.Verify.With, x.programs.Binding, argument.Roots...)
			x.reader("inverse.verify.ok", i.Verify.Ok, "bool", "verify", "result")
		}
	}
	if c.Deliver != nil {
		x.checkDeliverReads(c)
	} else if c.Probe != nil {
		x.checkWith("probe.with", c.Probe.With, x.programs.Binding, argument.Roots...)
		x.answer(x.reader("probe.answer", c.Probe.Answer, "string", "probe"))
		x.reference(c.Probe.ExternalRef, slices.Concat(argument.Roots, []string{"probe"}))
	}
	if c.ValidUntil != "" {
		if b := x.program("valid_until", argument.CEL(c.ValidUntil), x.programs.Binding); b != nil {
			x.mayRead("valid_until", b, "input")
			x.mayBe("valid_until", b, "timestamp", "google.protobuf.Timestamp", "string")
		}
	}
	x.checkTriggers(c.Triggers)
	for _, name := range slices.Sorted(maps.Keys(c.Scopes)) {
		field := "scopes[" + name + "]"
		if _, ok := c.Triggers[name]; !ok {
			x.refuse(field, "there is no such condition", "the name of one of triggers")
		}
		if s := c.Scopes[name]; s != contract.ScopeAction && s != contract.ScopePlan {
			x.refuse(field, fmt.Sprintf("%q", s), "action or plan")
		}
	}
	x.checkAfterCommit(c)
}

// checkAfterCommit checks the conditions that are held after the commit: without an undo window
// they would be held for ever.
func (x *compiler) checkAfterCommit(c contract.Contract) {
	for i, name := range c.AfterCommit {
		if _, ok := c.Triggers[name]; !ok {
			x.refuse(fmt.Sprintf("after_commit[%d]", i),
				fmt.Sprintf("%q: there is no such condition", name), "the name of one of triggers")
		}
	}
	if len(c.AfterCommit) > 0 && c.ValidFor == 0 && c.ValidUntil == "" {
		x.refuse("after_commit", "given without an undo window, and would be held for ever",
			"valid_for or valid_until, or no after_commit")
	}
}

func (x *compiler) checkTriggers(conditions map[string]string) {
	if len(conditions) > ledger.TriggersMax {
		x.refuse("triggers", fmt.Sprint(len(conditions)), fmt.Sprintf("at most %d", ledger.TriggersMax))
	}
	for _, name := range slices.Sorted(maps.Keys(conditions)) {
		field := "triggers[" + name + "]"
		if !ledger.ValidToken(name) {
			x.refuse(field, fmt.Sprintf("%q is no name", name), ledger.TokenWanted)
		}
		if _, err := x.programs.Condition(argument.CEL(conditions[name])); err != nil {
			x.expressionError(field, argument.CEL(conditions[name]), err,
				"a condition as in docs/triggers.md")
		}
	}
}

// conditions are those of a checked contract that read the action.
func (x *compiler) conditions(c contract.Contract) (list []held) {
	for _, name := range slices.Sorted(maps.Keys(c.Triggers)) {
		condition, err := x.programs.Condition(c.Triggers[name])
		if err == nil && condition.ReadsAction() {
			list = append(list, held{name, condition})
		}
	}
	return list
}

func (x *compiler) expressionError(field, text string, err error, want string) {
	p := problem{field: field, message: err.Error(), want: want, text: text}
	errors.As(err, &p.cause)
	x.problems = append(x.problems, p)
}

// program compiles one expression; nil after a refusal.
func (x *compiler) program(field, text string,
	compile func(string) (*triggers.Binding, error)) *triggers.Binding {
	b, err := compile(text)
	if err != nil {
		x.expressionError(field, text, err, "")
		return nil
	}
	return b
}

// reader checks an expression that reads an answer: more says which variables it
// may read beside those of an argument.
func (x *compiler) reader(field, text, kind string, more ...string) *triggers.Binding {
	return x.readerOver(field, text, kind, slices.Concat(argument.Roots, more))
}

// readerOver is reader for one that reads these variables and no others.
func (x *compiler) readerOver(field, text, kind string, allowed []string) *triggers.Binding {
	if text == "" {
		return nil
	}
	b := x.program(field, argument.CEL(text), x.programs.Reader)
	if b == nil {
		return nil
	}
	x.mayRead(field, b, allowed...)
	x.mayBe(field, b, kind)
	return b
}

// reference checks what names an effect: a text, a number that is read as one, or a
// list of them.
func (x *compiler) reference(text string, allowed []string) {
	const field = "probe.external_ref"
	if text == "" {
		return
	}
	if b := x.program(field, argument.CEL(text), x.programs.Reader); b != nil {
		x.mayRead(field, b, allowed...)
		x.mayBe(field, b, "string", "int", "double", "list(dyn)", "list(string)", "list(int)")
	}
}

// readable is every variable of a reader.
var readable = slices.Concat(argument.Roots, []string{"probe", "verify", "result", "error"})

// mayRead refuses a variable that is never there where the expression is.
func (x *compiler) mayRead(field string, b *triggers.Binding, allowed ...string) {
	for _, name := range readable {
		if b.Reads(name) && !slices.Contains(allowed, name) {
			x.refuse(field, "reads "+name+", which is not known here", strings.Join(allowed, ", "))
		}
	}
}

// mayBe refuses a result that is known to be of another kind. A choice whose first
// end is null has the type of null, so that null is never refused.
func (x *compiler) mayBe(field string, b *triggers.Binding, kinds ...string) {
	if kind := b.Type(); kind != "dyn" && kind != "null_type" && !slices.Contains(kinds, kind) {
		x.refuse(field, "the result is "+kind, "a "+kinds[0])
	}
}

// presences are the answers of a probe.
var presences = []string{"present", "absent", "duplicate", "inconclusive"}

// answer refuses what an answer says in so many words and no one understands.
func (x *compiler) answer(b *triggers.Binding) {
	if b == nil {
		return
	}
	for _, literal := range b.Literals() {
		var word string
		if json.Unmarshal(literal, &word) == nil && !slices.Contains(presences, word) {
			x.refuse("probe.answer", "the result may be "+string(literal),
				"present, absent, duplicate or inconclusive")
		}
	}
}

// checkWith compiles each expression below a map of arguments by itself.
func (x *compiler) checkWith(field string, with map[string]any,
	compile func(string) (*triggers.Binding, error), allowed ...string) {
	if len(with) > ledger.BindingsMax {
		x.refuse(field, fmt.Sprintf("%d arguments", len(with)),
			fmt.Sprintf("at most %d", ledger.BindingsMax))
	}
	if _, ok := with[""]; ok {
		x.refuse(field, "an argument without a name", "a name")
	}
	for _, name := range slices.Sorted(maps.Keys(with)) {
		text, err := argument.Encode(with[name])
		if err != nil {
			continue // refused before
		}
		value, err := argument.Decode(text)
		if err != nil {
			continue
		}
		x.checkValue(field+"."+name, value, compile, allowed)
	}
}

func (x *compiler) checkValue(field string, value any,
	compile func(string) (*triggers.Binding, error), allowed []string) {
	switch v := value.(type) {
	case string:
		text, ok := strings.CutPrefix(v, "=")
		if !ok {
			return
		}
		if b := x.program(field, text, compile); b != nil {
			x.mayRead(field, b, allowed...)
		}
	case []any:
		for i := range v {
			x.checkValue(fmt.Sprintf("%s[%d]", field, i), v[i], compile, allowed)
		}
	case map[string]any:
		if path, ok := argument.PathIn(v); ok {
			if text, err := argument.Translate(path); err == nil {
				x.checkValue(field, "="+text, compile, allowed)
			}
			return
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			x.checkValue(field+"."+name, v[name], compile, allowed)
		}
	}
}

// bindings returns the records' form of normalised arguments, sorted by name, and
// tries each as the executor will.
func (x *compiler) bindings(field string, with map[string]any,
	compile func(string) (*triggers.Binding, error)) []*pb.Binding {
	var out []*pb.Binding
	for _, name := range slices.Sorted(maps.Keys(with)) {
		out = append(out, &pb.Binding{Name: name, Expression: argument.Text(with[name])})
	}
	x.programsOf(field, out, compile)
	return out
}

func (x *compiler) programsOf(field string, bindings []*pb.Binding,
	compile func(string) (*triggers.Binding, error)) []bound {
	var out []bound
	for _, b := range bindings {
		out = append(out, bound{b.Name, x.program(field+"."+b.Name, b.Expression, compile)})
	}
	return out
}
