package triggers

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/sagenbaum/sagenbaum/proto/rawjson"
)

// bindingVariables are what a reader may read; an argument may read the first
// argumentVariables of them, which are known before the call.
var bindingVariables = [...]string{"input", "output", "before", "plan", "meta", actionsVariable,
	factsVariable, "probe", "verify", "result", "error"}

const argumentVariables = 7

// What is not of the action itself is read one element at a time, by a key in quotes: so it is
// known at the registration which is read.
const (
	actionsVariable = "actions"
	factsVariable   = "facts"
)

// isElements reports whether e is a variable that is read one element at a time.
func isElements(e ast.Expr) bool {
	return e.Kind() == ast.IdentKind &&
		(e.AsIdent() == actionsVariable || e.AsIdent() == factsVariable)
}

// BindingVars are the frozen values that bindings read: each one JSON value, or
// nil for none.
type BindingVars struct {
	Input  json.RawMessage // what the forward was called with
	Output json.RawMessage // what it returned
	Before json.RawMessage // what was there before it crossed
	Plan   json.RawMessage // of the plan: id, label, owner, ...
	Meta   json.RawMessage // of the compensation: key, attempt, blind_cleanup, ...

	// Actions and Facts are objects of what the expressions read of them (Binding.Keys), by the id of
	// an action and by the key of a fact.
	Actions json.RawMessage
	Facts   json.RawMessage

	Probe  json.RawMessage // what the probe returned
	Verify json.RawMessage // what the check after the undo returned
	Result json.RawMessage // what the undo returned
	Error  json.RawMessage // how it failed: code and message

	// Incomplete says that Output is a part of what was returned, or nothing, because it
	// could not be kept as it was. A path below it that leads nowhere is an error then, a
	// *Missing, unless the expression reckons with it, as output.?id and has(output.id) do.
	Incomplete bool

	// Partial are paths below Actions and Facts of which the same holds, as actions, order, output.
	Partial [][]string

	// Unnamed says that what the provider calls the effect could not be kept. To read
	// meta.external_ref is an error then, a *Missing.
	Unnamed bool

	// Strict: a path of any variable that leads nowhere is not null but unknown, and so is what
	// is computed from it or compared with it, unless an operand that decides alone decides
	// (`false && ...`, `true || ...`), or the expression reckons with it, as output.?id and
	// has(output.id) do. For what reads an answer: its null would pass for one.
	Strict bool

	// Checked: the values are known to be JSON. Evaluate takes each that an expression reads for it
	// then; else what is not JSON is an error.
	Checked bool

	// Inexact: numbers are read as a holder of before ledger.NumbersSince does: see Scope.Inexact.
	// A whole number that no int64 holds is compared with its like as it is written.
	Inexact bool
}

// ErrNotThere is the error of an expression whose value depends, with BindingVars.Strict, on
// what is not there.
var ErrNotThere = errors.New("it reads what is not there")

// Missing is the error of an expression that reads what was not kept.
type Missing struct{ Path []string }

// Error says what is missing, and what would be right.
func (m *Missing) Error() string {
	path := strings.Join(m.Path, ".")
	switch {
	case len(m.Path) == 1:
		return path + " is not there as a whole: it" + notKept + "; have the contract read fields of it"
	case m.Path[0] == metaVariable:
		return path + " is not there: it could not be kept as it was"
	case m.Path[0] == factsVariable:
		return path + " is not there as a whole: it was too large to be kept"
	case m.Path[0] != outputVariable:
		return path + " is not there as a whole: it" + notKept
	}
	return path + " is not there: the output" + notKept
}

// notKept is why an output is incomplete.
const notKept = " could not be kept (too large, nested too deep, or not exact)"

const (
	outputVariable    = "output"       // what a forward has returned
	metaVariable      = "meta"         // about the compensation
	referenceVariable = "external_ref" // of meta: what the provider calls the effect
)

func (v *BindingVars) of(name string) json.RawMessage {
	switch name {
	case "input":
		return v.Input
	case "output":
		return v.Output
	case "before":
		return v.Before
	case "plan":
		return v.Plan
	case "meta":
		return v.Meta
	case actionsVariable:
		return v.Actions
	case factsVariable:
		return v.Facts
	case "probe":
		return v.Probe
	case "verify":
		return v.Verify
	case "result":
		return v.Result
	case "error":
		return v.Error
	}
	return nil
}

// Reads reports whether the expression mentions a variable, named as the fields
// of BindingVars in lower case. What no binding reads need not be prepared.
func (b *Binding) Reads(variable string) bool {
	return slices.Contains(b.roots, variable) // seldom more than two
}

// Fields returns the names of the fields that the expression reads of a variable
// itself, as id and label in plan.id + plan["label"], sorted.
func (b *Binding) Fields(variable string) []string { return b.fields[variable] }

// ReadsField reports whether the expression may read a field right below a variable: by
// its name, or because it takes the variable whole.
func (b *Binding) ReadsField(variable, field string) bool {
	return slices.ContainsFunc(b.paths, func(r Read) bool {
		return r.Path[0] == variable && (len(r.Path) == 1 || r.Path[1] == field)
	})
}

// fieldsRead finds the constant steps right below each variable.
func fieldsRead(root ast.Expr) map[string][]string {
	fields := map[string][]string{}
	add := func(operand ast.Expr, field string) {
		if operand.Kind() == ast.IdentKind {
			fields[operand.AsIdent()] = append(fields[operand.AsIdent()], field)
		}
	}
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.SelectKind:
			add(e.AsSelect().Operand(), e.AsSelect().FieldName())
		case ast.CallKind:
			if call := e.AsCall(); isIndex(call.FunctionName()) {
				if text, ok := constantText(call.Args()[1]); ok {
					add(call.Args()[0], text)
				}
			}
		}
	}))
	for _, variable := range bindingVariables {
		slices.Sort(fields[variable])
		fields[variable] = slices.Compact(fields[variable])
	}
	return fields
}

// Keys returns which elements of a variable, "actions" or "facts", the expression reads, sorted,
// each once.
func (b *Binding) Keys(variable string) []string {
	if variable != actionsVariable && variable != factsVariable {
		return nil
	}
	return b.fields[variable]
}

// Type returns what the value is known to be, as CEL names it: "bool", "string",
// "list(int)", ... It is "dyn" when only an evaluation can tell.
func (b *Binding) Type() string { return b.kind }

// Literals returns the values that are in the text as possible results: that of
// a literal, or those at the ends of choices, in their order.
func (b *Binding) Literals() []json.RawMessage { return b.root.literals(nil) }

func (p *part) literals(found []json.RawMessage) []json.RawMessage {
	switch p.kind {
	case partLiteral:
		return append(found, p.raw)
	case partChoice:
		return p.parts[1].literals(p.parts[0].literals(found))
	}
	return found
}

// jsonFunction gives a literal that CEL would not keep as it is: json('10.10')
// is 10.10, json('123456789012345678901234567890') is that number.
const jsonFunction = "json"

func newBindingDialect(names []string) dialect {
	options := sharedOptions()
	for _, name := range names {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	options = append(options,
		cel.Function(orNullFunction, cel.Overload(orNullFunction, []*cel.Type{cel.DynType}, cel.DynType,
			cel.LateFunctionBinding())),
		cel.Function(outputFunction, cel.Overload(outputFunction, []*cel.Type{cel.DynType}, cel.DynType,
			cel.LateFunctionBinding())),
		cel.Function(jsonFunction, cel.Overload(jsonFunction, []*cel.Type{cel.StringType}, cel.DynType,
			cel.UnaryBinding(func(text ref.Val) ref.Val {
				return decodeWide([]byte(string(text.(types.String))))
			}))))
	last := len(names) - 1
	env := newEnvironment(options)
	return dialect{env: env, quick: newQuickParser(env),
		names: append([]string{"has", "size", "duration", "timestamp", "matches", "contains",
			"startsWith", "endsWith", "exists", "all", jsonFunction}, names...),
		reads:   "it may read " + strings.Join(names[:last], ", ") + " and " + names[last],
		example: "write an expression, as in output.id",
		split:   "make it smaller",
	}
}

// Read is a path that an expression reads: the name of the variable, then fields and
// items ("3"). Copied says that the value there only moves to where the argument has it;
// else something is computed from it.
type Read struct {
	Path   []string
	Copied bool
}

// Paths lists the paths that the expression reads, each as far as it is constant, in the
// order of the text. A choice is computed from its test, and copies its ends.
func (b *Binding) Paths() []Read { return b.paths }

// copied is a path whose value only moves.
func copied(path []any) Read {
	read := Read{Copied: true}
	for _, step := range path {
		read.Path = append(read.Path, fmt.Sprint(step))
	}
	return read
}

// computed lists the paths that an expression computes from.
func computed(e ast.Expr) (reads []Read) {
	path, ok := constantPath(e)
	if !ok {
		path, ok = steps(e)
	}
	if ok {
		read := copied(path)
		read.Copied = false
		return []Read{read}
	}
	for _, part := range partsOf(e) {
		reads = append(reads, computed(part)...)
	}
	return reads
}

// reads lists what a part copies and computes from.
func (p *part) reads(found []Read) []Read {
	switch p.kind {
	case partPath:
		return append(found, copied(p.path))
	case partProgram, partChoice:
		found = append(found, p.computes...)
	}
	for _, sub := range p.parts {
		found = sub.reads(found)
	}
	return found
}

// What names the effect that an undo is to remove. Some undos name it by what the caller
// chose, or by what was there before; others only by what the forward, or a probe, has said
// of it: its output, or its reference. Sent with null in their place, such an undo finds
// nothing, says that it is done, and the effect stays.

// Nameless reports whether a call with these arguments would be sent without the name of its
// effect: every argument that takes it from the output or from the reference, from another action
// or from a fact is null, and no other one tells what is meant. Beside them the forward's key
// does not: it says which forward is to be refused, and not what is to be removed. A null that
// was given is known, and meta.?external_ref reckons with none. An argument that falls back from
// the output to the reference is the name, whatever the others are. vars gives the values that
// some of the arguments read. more are variables that count as the reference does.
func Nameless(arguments []*Binding, vars func(...*Binding) BindingVars, more ...string) bool {
	named, told := make([]*Binding, 0, len(arguments)), false
	var either []*Binding
	for _, b := range arguments {
		output := b.Reads(outputVariable)
		reference := slices.ContainsFunc(more, b.Reads) ||
			b.Reads(metaVariable) && slices.Contains(b.Fields(metaVariable), referenceVariable)
		told = told || b.Reads("input") || b.Reads("before") || b.ReadsField("plan", "input") &&
			len(member(rawjson.TrimSpace(vars(b).Plan), "input")) > 0
		if output || reference || b.Reads(actionsVariable) || b.Reads(factsVariable) {
			named = append(named, b)
		}
		if output && reference {
			either = append(either, b)
		}
	}
	if told {
		named = either
	}
	if len(named) == 0 {
		return false
	}
	values := vars(named...)
	for _, b := range either {
		if b.unknown(&values) {
			return true
		}
	}
	for _, b := range named {
		if !b.unknown(&values) {
			return false
		}
	}
	return true
}

// unknown reports whether a value is null because what it depends on is not there.
func (b *Binding) unknown(v *BindingVars) bool {
	if b.root.kind == partPath && v.Checked {
		if _, found := follow(v, b.root.path); found {
			return false // most are, for less than an evaluation
		}
	}
	value, err := b.Evaluate(*v)
	if err != nil || string(value) != "null" {
		return false
	}
	strict := *v
	strict.Strict = true
	_, err = b.Evaluate(strict)
	return errors.Is(err, ErrNotThere)
}
