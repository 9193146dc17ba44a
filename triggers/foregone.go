package triggers

import (
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// Foregone returns the answer of a condition that is known from its text alone.
// True: it is true whatever is known, and fires at once. False: no future makes it
// true; an error says that it is one whatever is known. Unknown: it depends, as
// far as can be told; a condition of one answer may be missed.
func (c *Condition) Foregone() (Truth, error) {
	if c.shape.extent.closed {
		return Unknown, nil // has() and its like answer for what is not known, too
	}
	e := &evaluation{held: &Held{condition: c}, language: c.shape.language, blank: true, leaves: make([]leafValue, c.shape.leafCount)}
	value, _, err := c.shape.program.Eval(e)
	switch answer := value.(type) {
	case types.Bool:
		if answer {
			return True, nil
		}
		return False, nil
	case *types.Unknown:
		if c.shape.skeleton != nil && c.shape.skeleton.never(true, e.leaves) {
			return False, nil
		}
		return Unknown, nil
	default:
		return False, evaluationError(value, err)
	}
}

// blankFunction answers for every function of time what is known before anything
// has happened: nothing, but for what is wrong whatever happens.
func (e *evaluation) blankFunction(name string) (functions.LateBoundOp, bool) {
	for _, f := range timeFunctions() {
		if f.name == name {
			return func(string, ...ref.Val) ref.Val { return e.unknown(wait{kind: waitText, name: name}) }, true
		}
	}
	return nil, false
}

// isVariable reports whether name is one of the language, not of a loop.
func isVariable(name string) bool {
	root, _, _ := strings.Cut(name, ".")
	switch root {
	case "facts", "action", "plan", "verdict":
		return true
	}
	return false
}

// extent is how far an evaluation goes.
type extent struct {
	nodes  int  // of the checked expression
	costly bool // it may take more steps than it has nodes
	closed bool // it asks what is known now
}

// StepsMax bounds the steps of one evaluation: where nothing is looped over or
// scanned, its nodes; elsewhere what an evaluation is stopped at.
func (c *Condition) StepsMax() int {
	if c.shape.extent.costly {
		return costMax
	}
	return c.shape.extent.nodes
}

func extentOf(root ast.Expr) extent {
	x := extent{costly: mayCost(root)}
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		x.nodes++
		if e.Kind() == ast.CallKind {
			switch e.AsCall().FunctionName() {
			case hasFunction, operators.OptIndex, operators.OptSelect:
				x.closed = true
			}
		}
	}))
	return x
}
