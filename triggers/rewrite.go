package triggers

import (
	"encoding/json"
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// rewriter makes the paths of a binding total: input.a.b becomes
// @or_null(input.?a.b), which is null where the path leads nowhere.
type rewriter struct {
	inspector
	factory ast.ExprFactory
	nextID  int64
	own     bool // there are no actions and facts to read
}

func rewriteBinding(parsed *ast.AST) *Error { return rewriteIn(parsed, false) }

// rewriteOwn is rewriteBinding in the language of Cache.CheckOwn.
func rewriteOwn(parsed *ast.AST) *Error { return rewriteIn(parsed, true) }

func rewriteIn(parsed *ast.AST, own bool) *Error {
	r := &rewriter{inspector: inspector{parsed: parsed}, factory: ast.NewExprFactory(),
		nextID: ast.MaxID(parsed), own: own}
	r.rewrite(parsed.Expr(), true)
	return r.err
}

// id returns a fresh id that errors place where e is.
func (r *rewriter) id(e ast.Expr) int64 {
	r.nextID++
	if at, ok := r.parsed.SourceInfo().GetOffsetRange(e.ID()); ok {
		r.parsed.SourceInfo().SetOffsetRange(r.nextID, at)
	}
	return r.nextID
}

// rewrite changes e in place. closed says that a path in e is to end in a value
// or null; it is false below has() and an optional that the user handles.
func (r *rewriter) rewrite(e ast.Expr, closed bool) {
	switch e.Kind() {
	case ast.SelectKind:
		r.path(e, closed)
	case ast.CallKind:
		call := e.AsCall()
		if isIndex(call.FunctionName()) && !call.IsMemberFunction() {
			r.path(e, closed)
			return
		}
		if call.IsMemberFunction() {
			r.rewrite(call.Target(), true)
			r.timeZone(e, call.FunctionName(), call.Args())
		}
		r.literal(e, call)
		for _, arg := range call.Args() {
			r.rewrite(arg, call.FunctionName() != hasFunction)
		}
	case ast.ListKind:
		for i, element := range e.AsList().Elements() {
			r.rewrite(element, !e.AsList().IsOptional(int32(i)))
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			r.rewrite(entry.AsMapEntry().Key(), true)
			r.rewrite(entry.AsMapEntry().Value(), !entry.AsMapEntry().IsOptional())
		}
	case ast.StructKind:
		r.refuse(e, "a message", "use a map")
	case ast.ComprehensionKind:
		if !r.own {
			r.unshadow(e)
		}
		fold := e.AsComprehension()
		for _, part := range []ast.Expr{fold.IterRange(), fold.AccuInit(), fold.LoopCondition(),
			fold.LoopStep(), fold.Result()} {
			r.rewrite(part, true)
		}
	case ast.IdentKind:
		if isElements(e) && !r.own {
			r.refuse(e, "all of "+e.AsIdent()+" at once", elementsWanted)
		}
		if closed && slices.Contains(bindingVariables[:], e.AsIdent()) {
			r.close(e, orNullFunction)
		}
	case ast.LiteralKind, ast.UnspecifiedExprKind:
	default:
		panic("triggers: no such kind of expression")
	}
}

// literal refuses json(text) where the text is computed or is not JSON.
func (r *rewriter) literal(e ast.Expr, call ast.CallExpr) {
	if call.FunctionName() != jsonFunction || len(call.Args()) != 1 {
		return
	}
	text, ok := constantText(call.Args()[0])
	if !ok || !json.Valid([]byte(text)) || types.IsError(decodeInexact([]byte(text))) {
		r.refuse(e, "no JSON text", "write one JSON value in quotes, as in json('10.10')")
	}
}

// path rewrites a chain of selections whose last is e.
func (r *rewriter) path(e ast.Expr, closed bool) {
	first, explicit, closing := e, false, orNullFunction
	for {
		operand, step, optional := link(first)
		explicit = explicit || optional
		if step != nil {
			if isElements(operand) && !r.own {
				r.key(operand, step)
			}
			r.rewrite(step, true)
		}
		if !isLink(operand) {
			if operand.Kind() != ast.IdentKind {
				r.rewrite(operand, true)
			} else if operand.AsIdent() == outputVariable || isElements(operand) {
				closing = outputFunction
			}
			break
		}
		first = operand
	}
	r.soften(first)
	if closed && !explicit {
		r.close(e, closing)
	}
}

// elementsWanted is how actions and facts are read.
const elementsWanted = `name one, as in actions["order"].output.id or facts["rate/eur"]`

// key refuses an action or a fact that is not named by a text.
func (r *rewriter) key(variable, step ast.Expr) {
	if _, ok := constantText(step); !ok {
		r.refuse(step, "which of "+variable.AsIdent()+" is computed", elementsWanted)
	}
}

// unshadow gives a loop variable that is called as actions, or facts, another name, which no text
// can have: below it that name is no variable of the language.
func (r *rewriter) unshadow(e ast.Expr) {
	fold := e.AsComprehension()
	vars := [...]string{fold.IterVar(), fold.IterVar2()}
	for i, name := range vars {
		if name != actionsVariable && name != factsVariable {
			continue
		}
		vars[i] = "@loop_" + name
		for _, part := range []ast.Expr{fold.LoopCondition(), fold.LoopStep()} {
			r.rename(part, name, vars[i])
		}
	}
	if vars == [...]string{fold.IterVar(), fold.IterVar2()} {
		return
	}
	e.SetKindCase(r.factory.NewComprehensionTwoVar(e.ID(), fold.IterRange(), vars[0], vars[1],
		fold.AccuVar(), fold.AccuInit(), fold.LoopCondition(), fold.LoopStep(), fold.Result()))
}

// rename renames a variable, but where a loop further in has one of that name.
func (r *rewriter) rename(e ast.Expr, name, to string) {
	if e.Kind() == ast.IdentKind && e.AsIdent() == name {
		e.SetKindCase(r.factory.NewIdent(e.ID(), to))
		return
	}
	parts := partsOf(e)
	if e.Kind() == ast.ComprehensionKind {
		if fold := e.AsComprehension(); fold.IterVar() == name || fold.IterVar2() == name {
			parts = []ast.Expr{fold.IterRange(), fold.AccuInit()}
		}
	}
	for _, part := range parts {
		r.rename(part, name, to)
	}
}

// close has a path, or a whole variable, end in its value or in null.
func (r *rewriter) close(e ast.Expr, closing string) {
	inner := r.factory.NewUnspecifiedExpr(r.id(e))
	inner.SetKindCase(e)
	e.SetKindCase(r.factory.NewCall(e.ID(), closing, inner))
}

// link takes one selection apart: what is selected from, the computed step, and
// whether the user wrote it as optional.
func link(e ast.Expr) (operand, step ast.Expr, optional bool) {
	if e.Kind() == ast.SelectKind {
		return e.AsSelect().Operand(), nil, false
	}
	call := e.AsCall()
	return call.Args()[0], call.Args()[1], call.FunctionName() != operators.Index
}

func isLink(e ast.Expr) bool {
	return e.Kind() == ast.SelectKind || e.Kind() == ast.CallKind && !e.AsCall().IsMemberFunction() &&
		isIndex(e.AsCall().FunctionName())
}

// soften makes the first selection of a path optional; those after it follow.
func (r *rewriter) soften(e ast.Expr) {
	operand, step, optional := link(e)
	switch {
	case optional:
	case step != nil:
		e.SetKindCase(r.factory.NewCall(e.ID(), operators.OptIndex, operand, step))
	default:
		name := r.factory.NewLiteral(r.id(e), types.String(e.AsSelect().FieldName()))
		e.SetKindCase(r.factory.NewCall(e.ID(), operators.OptSelect, operand, name))
	}
}
