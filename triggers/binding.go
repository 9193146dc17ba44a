package triggers

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// Binding gives the value of one argument of a call, or reads the answer to one.
// It does not change after compilation and may be shared.
type Binding struct {
	root   *part
	roots  []string            // the variables it reads, sorted
	fields map[string][]string // and of each, right below it
	kind   string              // of its value, as CEL names it
	paths  []Read
	weight int // bytes, about
}

// part is a piece of a binding. Paths, lists, maps and choices copy JSON as it
// is, so that 10.10 stays 10.10; only what computes goes through CEL.
type part struct {
	kind    partKind
	path    []any // partPath: the name of the variable, then string and int64 steps
	parts   []*part
	names   []string        // partMap
	raw     json.RawMessage // partLiteral
	program cel.Program     // partProgram, and the test of partChoice

	computes []Read // by program
}

type partKind uint8

const (
	partProgram partKind = iota
	partPath
	partList
	partMap
	partChoice
	partLiteral
)

// CompileBinding checks the expression of an argument, which reads input, output,
// before, plan, meta, actions and facts, and prepares it. The error is an *Error.
func CompileBinding(expression string) (*Binding, error) {
	return newLanguage().compileBinding(expression)
}

// CompileReader is CompileBinding for an expression that reads an answer: it may
// name every field of BindingVars.
func CompileReader(expression string) (*Binding, error) {
	return newLanguage().compileReader(expression)
}

func (l *language) compileBinding(expression string) (*Binding, error) {
	return l.compileValue(l.arguments, expression)
}

func (l *language) compileReader(expression string) (*Binding, error) {
	return l.compileValue(l.readers, expression)
}

func (l *language) compileValue(d dialect, expression string) (*Binding, error) {
	checked, err := l.check(d, expression, rewriteBinding)
	if err != nil {
		return nil, err
	}
	root, err := l.part(checked.NativeRep(), checked.NativeRep().Expr())
	if err != nil {
		return nil, planError(err)
	}
	mentioned, _, _ := footprint(checked.NativeRep().Expr())
	roots := slices.Sorted(maps.Keys(mentioned))
	fields, kind := fieldsRead(checked.NativeRep().Expr()), checked.OutputType().String()
	weight := len(expression) + shapeBytes + shapeNodeBytes*ast.NodeCount(checked.NativeRep())
	return &Binding{root, roots, fields, kind, root.reads(nil), weight}, nil
}

// part takes an expression apart as far as it only moves values.
func (l *language) part(checked *ast.AST, e ast.Expr) (*part, error) {
	if path, ok := constantPath(e); ok {
		return &part{kind: partPath, path: path}, nil
	}
	switch e.Kind() {
	case ast.LiteralKind:
		raw, err := encode(nil, e.AsLiteral())
		return &part{kind: partLiteral, raw: raw}, err
	case ast.ListKind:
		if len(e.AsList().OptionalIndices()) == 0 {
			return l.listPart(checked, e.AsList())
		}
	case ast.MapKind:
		if names, ok := constantNames(e.AsMap()); ok {
			return l.mapPart(checked, e.AsMap(), names)
		}
	case ast.CallKind:
		switch call := e.AsCall(); call.FunctionName() {
		case operators.Conditional:
			return l.choicePart(checked, call.Args())
		case jsonFunction:
			text, _ := constantText(call.Args()[0])
			return &part{kind: partLiteral, raw: json.RawMessage(text)}, nil
		}
	}
	program, err := l.subprogram(checked, e)
	return &part{kind: partProgram, program: program, computes: computed(e)}, err
}

func (l *language) subprogram(checked *ast.AST, e ast.Expr) (cel.Program, error) {
	sub := ast.NewCheckedAST(ast.NewAST(e, checked.SourceInfo()), checked.TypeMap(),
		checked.ReferenceMap())
	return l.plan(l.readers.env, sub, planning{mixed: mixedCalls(sub), loops: hasLoop(sub.Expr()),
		costly: mayCost(sub.Expr())})
}

func (l *language) listPart(checked *ast.AST, items ast.ListExpr) (*part, error) {
	p := &part{kind: partList}
	for _, item := range items.Elements() {
		sub, err := l.part(checked, item)
		if err != nil {
			return nil, err
		}
		p.parts = append(p.parts, sub)
	}
	return p, nil
}

func (l *language) mapPart(checked *ast.AST, entries ast.MapExpr, names []string) (*part, error) {
	p := &part{kind: partMap, names: names}
	for _, entry := range entries.Entries() {
		sub, err := l.part(checked, entry.AsMapEntry().Value())
		if err != nil {
			return nil, err
		}
		p.parts = append(p.parts, sub)
	}
	return p, nil
}

func (l *language) choicePart(checked *ast.AST, args []ast.Expr) (*part, error) {
	program, err := l.subprogram(checked, args[0])
	if err != nil {
		return nil, err
	}
	p := &part{kind: partChoice, program: program, computes: computed(args[0])}
	for _, branch := range args[1:] {
		sub, err := l.part(checked, branch)
		if err != nil {
			return nil, err
		}
		p.parts = append(p.parts, sub)
	}
	return p, nil
}

// constantNames returns the keys of a map literal, when all are distinct strings.
func constantNames(m ast.MapExpr) ([]string, bool) {
	seen := map[string]bool{}
	var names []string
	for _, entry := range m.Entries() {
		name, ok := constantText(entry.AsMapEntry().Key())
		if !ok || seen[name] || entry.AsMapEntry().IsOptional() {
			return nil, false
		}
		seen[name] = true
		names = append(names, name)
	}
	return names, true
}

// constantPath returns the path that e selects, when it is a variable or a path
// of constant steps below one.
func constantPath(e ast.Expr) ([]any, bool) {
	if e.Kind() == ast.IdentKind {
		for _, name := range bindingVariables {
			if e.AsIdent() == name {
				return []any{name}, true
			}
		}
		return nil, false
	}
	if e.Kind() != ast.CallKind || !closesPath(e.AsCall().FunctionName()) {
		return nil, false
	}
	return steps(e.AsCall().Args()[0])
}

// closesPath reports whether a function gives a path its value, or null.
func closesPath(function string) bool {
	return function == orNullFunction || function == outputFunction
}

func steps(e ast.Expr) ([]any, bool) {
	switch e.Kind() {
	case ast.IdentKind:
		return constantPath(e)
	case ast.SelectKind:
		path, ok := steps(e.AsSelect().Operand())
		return append(path, e.AsSelect().FieldName()), ok
	case ast.CallKind:
		call := e.AsCall()
		if !isIndex(call.FunctionName()) || call.Args()[1].Kind() != ast.LiteralKind {
			return nil, false
		}
		path, ok := steps(call.Args()[0])
		switch step := call.Args()[1].AsLiteral().(type) {
		case types.String:
			return append(path, string(step)), ok
		case types.Int:
			return append(path, int64(step)), ok
		}
	}
	return nil, false
}

// Evaluate returns the value of the argument as JSON. A path that leads nowhere
// is null, and so is what was to be computed from it; an error is one of
// the expression: a number where a string is wanted. With BindingVars.Strict a value that
// depends on such a path is ErrNotThere.
func (b *Binding) Evaluate(v BindingVars) (json.RawMessage, error) {
	run := &bindingRun{vars: &v}
	if v.Incomplete && b.readsWhole(outputVariable) {
		return nil, fmt.Errorf("cannot evaluate binding: %w", &Missing{[]string{outputVariable}})
	}
	if lost := b.takesPartial(v.Partial); lost != nil {
		return nil, fmt.Errorf("cannot evaluate binding: %w", lost)
	}
	if v.Unnamed && b.readsWhole(metaVariable) {
		return nil, fmt.Errorf("cannot evaluate binding: %w",
			&Missing{[]string{metaVariable, referenceVariable}})
	}
	for _, name := range bindingVariables {
		if raw := v.of(name); !v.Checked && len(raw) > 0 && !json.Valid(raw) {
			return nil, fmt.Errorf("cannot evaluate binding: %s is not JSON", name)
		}
	}
	out, err := run.value(b.root)
	if run.lost != nil {
		return nil, fmt.Errorf("cannot evaluate binding: %w", run.lost)
	}
	if errors.Is(err, ErrNotThere) {
		return nil, fmt.Errorf("cannot evaluate binding: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot evaluate binding: %s", firstLine(err.Error()))
	}
	return out, nil
}

// bindingRun is one evaluation of a binding, and the activation of its programs.
type bindingRun struct {
	vars    *BindingVars
	missing bool     // a path led nowhere in the part that is being computed
	gap     bool     // and it was one below output
	lost    *Missing // of an output that was not kept
	decoded [len(bindingVariables)]ref.Val
}

func (r *bindingRun) value(p *part) (json.RawMessage, error) {
	switch p.kind {
	case partPath:
		raw, found := follow(r.vars, p.path)
		if !found {
			r.lose(p.path[0].(string), p.reads(nil))
			r.losePartial(p.reads(nil))
			if r.vars.Strict {
				return nil, r.notThere(p.reads(nil))
			}
		}
		return raw, nil
	case partLiteral:
		return p.raw, nil
	case partList, partMap:
		return r.assemble(p)
	case partChoice:
		test, err := r.run(p)
		if err != nil {
			return nil, err
		}
		switch test {
		case types.True:
			return r.value(p.parts[0])
		case types.False:
			return r.value(p.parts[1])
		case types.NullValue:
			return json.RawMessage("null"), nil
		}
		return nil, fmt.Errorf("a choice by a %s, not a truth", test.Type().TypeName())
	case partProgram:
		value, err := r.run(p)
		if err != nil {
			return nil, err
		}
		return encode(nil, value)
	default:
		panic(fmt.Sprintf("triggers: no such part: %d", p.kind))
	}
}

// run evaluates a program. What fails because a path led nowhere is null, or not there.
func (r *bindingRun) run(p *part) (ref.Val, error) {
	r.missing, r.gap = false, false
	value, _, err := p.program.Eval(r)
	if r.gap {
		r.lose(outputVariable, p.computes)
		r.losePartial(p.computes)
	}
	if r.missing {
		r.lose(metaVariable, p.computes)
	}
	switch {
	case r.vars.Strict && (types.IsUnknown(value) || err != nil && r.missing):
		return nil, r.notThere(p.computes)
	case err != nil && r.missing:
		return types.NullValue, nil
	}
	return value, err
}

// notThere is the error of a value that depends on what is not there, with the first path
// that leads nowhere; none is named where only a loop or a computed step found that.
func (r *bindingRun) notThere(reads []Read) error {
	for _, read := range reads {
		if raw := r.vars.of(read.Path[0]); len(raw) == 0 || !leads(raw, read.Path[1:]) {
			return fmt.Errorf("%w: %s", ErrNotThere, strings.Join(read.Path, "."))
		}
	}
	return ErrNotThere
}

func (r *bindingRun) assemble(p *part) (json.RawMessage, error) {
	open, shut := byte('['), byte(']')
	if p.kind == partMap {
		open, shut = '{', '}'
	}
	out := []byte{open}
	for i, sub := range p.parts {
		if i > 0 {
			out = append(out, ',')
		}
		if p.kind == partMap {
			out = append(append(out, quote(p.names[i])...), ':')
		}
		raw, err := r.value(sub)
		switch {
		case errors.Is(err, ErrNotThere): // of one item
			raw = json.RawMessage("null")
		case err != nil:
			return nil, err
		}
		out = append(out, raw...)
	}
	return append(out, shut), nil
}

// lose notes that an output which was not kept as a whole lacks what a part reads of it, or that
// the name of the effect, which was not kept, is read.
func (r *bindingRun) lose(variable string, reads []Read) {
	if variable == metaVariable && r.vars.Unnamed && r.lost == nil {
		for _, read := range reads {
			if len(read.Path) > 1 && read.Path[0] == metaVariable && read.Path[1] == referenceVariable {
				r.lost = &Missing{read.Path}
			}
		}
		return
	}
	if variable != outputVariable || !r.vars.Incomplete || r.lost != nil {
		return
	}
	r.lost = &Missing{[]string{outputVariable}}
	for _, read := range reads {
		if read.Path[0] == outputVariable && !leads(r.vars.Output, read.Path[1:]) {
			r.lost = &Missing{read.Path}
			return
		}
	}
}

// readsWhole reports whether the expression reads a variable itself, or what only an
// evaluation can tell of it.
func (b *Binding) readsWhole(variable string) bool {
	return slices.ContainsFunc(b.paths,
		func(r Read) bool { return len(r.Path) == 1 && r.Path[0] == variable })
}

func (r *bindingRun) inexact() bool { return r.vars.Inexact }

// Parent ends the chain of activations.
func (r *bindingRun) Parent() interpreter.Activation { return nil }

// ResolveName answers for a variable; one that was not given is null, or not there.
func (r *bindingRun) ResolveName(name string) (any, bool) {
	for i, variable := range bindingVariables {
		if variable != name {
			continue
		}
		if r.decoded[i] == nil {
			r.decoded[i] = types.NullValue
			if raw := r.vars.of(name); len(raw) > 0 {
				if r.decoded[i] = decode(raw); r.vars.Inexact {
					r.decoded[i] = decodeWide(raw)
				}
			}
			if r.vars.Strict && r.decoded[i] == types.NullValue { // it says nothing
				r.decoded[i] = types.OptionalNone
			}
		}
		return r.decoded[i], true
	}
	return nil, false
}

// ResolveFunction binds the end of a path to this run.
func (r *bindingRun) ResolveFunction(name string) (op functions.LateBoundOp, found bool) {
	if !closesPath(name) {
		return nil, false
	}
	return func(_ string, args ...ref.Val) ref.Val {
		if found, ok := args[0].(*types.Optional); ok {
			if found.HasValue() {
				return found.GetValue()
			}
			r.missing, r.gap = true, r.gap || name == outputFunction
			if r.vars.Strict { // what depends on it is not known; what decides without it counts
				return types.NewUnknown(0, nil)
			}
			return types.NullValue
		}
		return args[0]
	}, true
}
