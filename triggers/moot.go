package triggers

import (
	"fmt"
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// A condition is moot when no future makes it true: then its lease is retired.
// The skeleton is the part of an expression that is made of && || ! and ?:. Its
// leaves say of their own answers which are final, and the skeleton concludes.
// It is sound and not complete: a moot condition never becomes true, but not
// every condition that never becomes true is found to be moot.

// clause is one node of a skeleton.
type clause struct {
	operator string // of operators, or empty for a leaf
	parts    []*clause
	id       int64 // of the expression
	leaf     int   // index among the leaves
	falls    fallacy
	blind    bool // its answer is not watched, and so never final
	closed   bool // it asks what is known now, so that no answer of it is final
}

// fallacy says what a leaf can no longer become.
type fallacy struct {
	neverFalse bool // whatever happens: after, seen
	finalFalse bool // a false answer is for ever
	finalTrue  bool // a true answer is for ever
	strict     bool // it is unknown as long as anything it reads is unknown
}

// leafValue is what a leaf answered in one evaluation.
type leafValue uint8

const (
	leafSkipped leafValue = iota
	leafFalse
	leafTrue
	leafUnknown
	leafForever // unknown, and waits for something that never comes
	leafFailed  // an error, whatever becomes known: see Condition.Stuck
)

// newSkeleton returns the skeleton of an expression and the number of its leaves.
// It is nil, 0 when no answer of any leaf is final.
func newSkeleton(checked *ast.AST) (*clause, int) {
	n, useful := 0, false
	var build func(e ast.Expr) *clause
	build = func(e ast.Expr) *clause {
		if e.Kind() == ast.CallKind {
			switch name := e.AsCall().FunctionName(); name {
			case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.Conditional:
				c := &clause{operator: name, id: e.ID()}
				for _, arg := range e.AsCall().Args() {
					c.parts = append(c.parts, build(arg))
				}
				return c
			}
		}
		c := leafClause(e, n)
		useful = useful || c.useful(e)
		n++
		return c
	}
	root := build(checked.Expr())
	if !useful {
		return nil, 0
	}
	return root, n
}

// leafClause is a leaf of a skeleton.
func leafClause(e ast.Expr, n int) *clause {
	return &clause{id: e.ID(), leaf: n, falls: fallacyOf(e), blind: computedIndex(e),
		closed: extentOf(e).closed}
}

// useful reports whether an answer of the leaf that e is may be final.
func (c *clause) useful(e ast.Expr) bool {
	return c.falls != fallacy{strict: true} && c.falls != fallacy{} || c.falls.strict && readsFrozen(e)
}

// computedIndex reports whether e is a selection by a computed key, as facts["a" + x].
// To cel-go the key has the id of the whole, and may not be watched in its place.
func computedIndex(e ast.Expr) bool {
	if e.Kind() != ast.CallKind || !isIndex(e.AsCall().FunctionName()) {
		return false
	}
	switch e.AsCall().Args()[1].Kind() {
	case ast.LiteralKind, ast.IdentKind, ast.SelectKind:
		return false
	}
	return true
}

// leaves calls yield for every leaf; a nil skeleton has none.
func (c *clause) leaves(yield func(*clause)) {
	if c == nil {
		return
	}
	if c.operator == "" {
		yield(c)
	}
	for _, part := range c.parts {
		part.leaves(yield)
	}
}

// never reports whether no future gives the clause this truth.
func (c *clause) never(truth bool, leaves []leafValue) bool {
	switch c.operator {
	case operators.LogicalNot:
		return c.parts[0].never(!truth, leaves)
	case operators.LogicalAnd, operators.LogicalOr:
		// A conjunction is never true if one part never is; never false if no part is.
		one := truth == (c.operator == operators.LogicalAnd)
		for _, part := range c.parts {
			if part.never(truth, leaves) == one {
				return one
			}
		}
		return !one
	case operators.Conditional:
		test, yes, no := c.parts[0], c.parts[1], c.parts[2]
		return (test.never(true, leaves) || yes.never(truth, leaves)) &&
			(test.never(false, leaves) || no.never(truth, leaves))
	}
	switch leaves[c.leaf] {
	case leafForever, leafFailed:
		return true
	case leafTrue:
		return !truth && c.falls.finalTrue || !truth && c.falls.neverFalse
	case leafFalse:
		return truth && c.falls.finalFalse
	}
	return !truth && c.falls.neverFalse
}

// keptByErrors reports whether errors among the leaves keep the clause from ever being true, and
// nothing else does.
func (c *clause) keptByErrors(leaves []leafValue) bool {
	c.leaves(func(leaf *clause) {
		if leaf.closed {
			leaves[leaf.leaf] = leafUnknown
		}
	})
	if !c.never(true, leaves) {
		return false
	}
	for i, leaf := range leaves {
		if leaf == leafFailed {
			leaves[i] = leafUnknown
		}
	}
	return !c.never(true, leaves)
}

// leafWatch tells the evaluation what a leaf answered.
type leafWatch struct {
	interpreter.InterpretableV2
	leaf int
}

// Exec evaluates the leaf.
func (w *leafWatch) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	e, ok := frame.Scope().(*evaluation)
	if !ok {
		return w.InterpretableV2.Exec(frame)
	}
	e.leaf = w.leaf
	value := w.InterpretableV2.Exec(frame)
	e.answered(w.leaf, value)
	return value
}

// answered notes the answer of the leaf that was asked.
func (e *evaluation) answered(leaf int, value ref.Val) {
	e.leaves[leaf] = e.leafValueOf(value)
	if unknown, is := value.(*types.Unknown); is && e.full {
		for _, id := range unknown.IDs() {
			if id >= 0 && id < int64(len(e.waits)) && e.waits[id].kind == waitForever {
				e.ends = append(e.ends, end{leaf, e.waits[id].name})
			}
		}
	}
	e.leaf = -1
}

// Eval evaluates the leaf outside a frame.
func (w *leafWatch) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, w.Exec)
}

func (e *evaluation) leafValueOf(value ref.Val) leafValue {
	switch v := value.(type) {
	case types.Bool:
		if v {
			return leafTrue
		}
		return leafFalse
	case *types.Unknown:
		if e.forever(v) {
			return leafForever
		}
	case *types.Err:
		if e.open {
			e.failure = v
			return leafFailed
		}
	}
	return leafUnknown
}

// fallacyOf analyses a leaf.
func fallacyOf(e ast.Expr) fallacy {
	f := fallacy{strict: isStrict(e)}
	if e.Kind() == ast.CallKind {
		call := e.AsCall()
		switch call.FunctionName() {
		case "after", "elapsed", "seen":
			f.neverFalse = true
			return f
		case "before":
			f.finalFalse = isFinal(call.Args()[0], false)
			return f
		}
	}
	f.finalTrue = isFinal(e, false)
	f.finalFalse = f.finalTrue
	return f
}

// isFinal reports whether a value of e, once known, never changes. now says that
// e is asked what is known now, as has() and [?k] do, so that becoming known is
// itself a change.
func isFinal(e ast.Expr, now bool) bool {
	switch e.Kind() {
	case ast.LiteralKind:
		return true
	case ast.IdentKind:
		return finalName(e.AsIdent(), now)
	case ast.SelectKind:
		return isFinal(e.AsSelect().Operand(), now)
	case ast.ListKind:
		return allFinal(e.AsList().Elements(), now)
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			if !isFinal(entry.AsMapEntry().Key(), now) || !isFinal(entry.AsMapEntry().Value(), now) {
				return false
			}
		}
		return true
	case ast.CallKind:
		return finalCall(e.AsCall(), now)
	case ast.ComprehensionKind:
		fold := e.AsComprehension()
		return allFinal([]ast.Expr{fold.IterRange(), fold.AccuInit(), fold.LoopCondition(),
			fold.LoopStep(), fold.Result()}, now)
	}
	return false
}

func allFinal(parts []ast.Expr, now bool) bool {
	for _, part := range parts {
		if !isFinal(part, now) {
			return false
		}
	}
	return true
}

// finalName knows what of the scope is frozen. Names that are no variables of
// the language are those of a loop, and as final as what it loops over.
func finalName(name string, now bool) bool {
	switch name {
	case "facts", "plan.status", "plan.active_at", "plan.actions", "plan.step",
		"action.outcome", "action.presence",
		"verdict.outcome", "verdict.reason", "verdict.by", "verdict.at":
		return false
	case "action.output", "action":
		return !now // the output comes once, and then stays
	}
	return true
}

func finalCall(call ast.CallExpr, now bool) bool {
	args := call.Args()
	switch name := call.FunctionName(); name {
	case "at", "since", "last_at", "at_least", "count", "latest", "before":
		return false
	case "first_at", "seen", "after", "elapsed", "within", "absent_for":
		return !now && allFinal(args, now)
	case operators.Index:
		if isAction(args[0]) {
			return finalField(args[1], now)
		}
	case operators.OptIndex, operators.OptSelect:
		if isAction(args[0]) {
			return finalField(args[1], true)
		}
		return allFinal(args, true)
	case hasFunction:
		return allFinal(args, true)
	default:
		if prefixFunctionOf(name) != nil {
			return false
		}
	}
	if call.IsMemberFunction() && !isFinal(call.Target(), now) {
		return false
	}
	return allFinal(args, now)
}

func isAction(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == "action" }

// finalField reports whether action[key] is frozen: a lifted field of the input.
func finalField(key ast.Expr, now bool) bool {
	name, ok := constantText(key)
	return ok && name != "outcome" && name != "presence" && (name != "output" || !now)
}

// isStrict reports whether e is unknown as long as anything it reads is unknown.
func isStrict(root ast.Expr) bool {
	strict := true
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.ComprehensionKind:
			strict = false
		case ast.ListKind:
			strict = strict && len(e.AsList().OptionalIndices()) == 0
		case ast.CallKind:
			switch e.AsCall().FunctionName() {
			case operators.LogicalAnd, operators.LogicalOr, operators.Conditional, hasFunction,
				operators.OptIndex, operators.OptSelect, "or", "orValue", "hasValue", "optMap", "optFlatMap":
				strict = false
			}
		}
	}))
	return strict
}

// readsFrozen reports whether e reads something that may be absent for ever.
func readsFrozen(root ast.Expr) bool {
	found := false
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.IdentKind {
			return
		}
		switch e.AsIdent() {
		case "action", "action.input", "action.output", "action.labels", "plan.deadline", "plan.labels",
			"action.id", "action.capability", "action.at", "action.outcome":
			found = true
		}
	}))
	return found
}

// end is what a leaf of the skeleton met that does not come back: a time that has
// passed, a window that has closed, a name that is not there.
type end struct {
	leaf int
	text string
}

// ended notes an end for the leaf that is asked; text has the key at %[1]s and the
// instant at %[2]s.
func (e *evaluation) ended(text, key string, ns int64) {
	if e.full {
		e.ends = append(e.ends, end{e.leaf, fmt.Sprintf(text, key, formatTime(ns))})
	}
}

// mootWhy says what ended the hope of a moot condition, sorted.
func (e *evaluation) mootWhy(skeleton *clause) []string {
	var why []string
	skeleton.decides(true, e.leaves, func(c *clause) {
		for _, x := range e.ends {
			if x.leaf == c.leaf {
				why = append(why, x.text)
			}
		}
	})
	slices.Sort(why)
	return slices.Compact(why)
}

// decides calls yield for the leaves for which the clause never has this truth.
func (c *clause) decides(truth bool, leaves []leafValue, yield func(*clause)) {
	if !c.never(truth, leaves) {
		return
	}
	switch c.operator {
	case operators.LogicalNot:
		c.parts[0].decides(!truth, leaves, yield)
	case operators.LogicalAnd, operators.LogicalOr:
		for _, part := range c.parts {
			part.decides(truth, leaves, yield)
		}
	case operators.Conditional:
		c.parts[0].decides(true, leaves, yield)
		c.parts[0].decides(false, leaves, yield)
		c.parts[1].decides(truth, leaves, yield)
		c.parts[2].decides(truth, leaves, yield)
	default:
		yield(c)
	}
}
