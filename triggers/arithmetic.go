package triggers

import (
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// JSON does not say whether 100 is an int or a double, and a source may write
// 100 today and 100.5 tomorrow. So arithmetic over a value that came as JSON
// takes an int beside a double as a double; between literals CEL's own rule
// holds, and 1.5 * 2 is refused.

// mixedArithmetic returns the ids of the calls of + - * / with an operand whose
// type the checker does not know.
func mixedArithmetic(checked *ast.AST) map[int64]bool {
	mixed := map[int64]bool{}
	ast.PreOrderVisit(checked.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind {
			return
		}
		switch e.AsCall().FunctionName() {
		case operators.Add, operators.Subtract, operators.Multiply, operators.Divide:
			for _, arg := range e.AsCall().Args() {
				if kind := checked.GetType(arg.ID()).Kind(); kind == types.DynKind {
					mixed[e.ID()] = true
				}
			}
		}
	}))
	return mixed
}

// arithmetic is a call of + - * / that takes int beside double as double.
type arithmetic struct {
	interpreter.InterpretableCall
}

// Exec evaluates the operands in order, strictly, as the call it replaces does.
func (a *arithmetic) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	args := a.Args()
	left, right := args[0].Exec(frame), args[1].Exec(frame)
	result := a.result(left, right)
	if costs := frame.CostTracker(); costs != nil {
		costs.EvalBinary(frame, a.ID(), a, left, right, result)
	}
	return result
}

// Eval evaluates the call outside a frame.
func (a *arithmetic) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, a.Exec)
}

func (a *arithmetic) result(left, right ref.Val) ref.Val {
	if value := strict(left, right); value != nil {
		return value
	}
	left, right = promote(left, right)
	switch a.Function() {
	case operators.Add:
		if textSize(left)+textSize(right) > outputMax {
			return types.NewErr("operation cancelled: a text of more than %d bytes", outputMax)
		}
		if v, ok := left.(traits.Adder); ok {
			return v.Add(right)
		}
	case operators.Subtract:
		if v, ok := left.(traits.Subtractor); ok {
			return v.Subtract(right)
		}
	case operators.Multiply:
		if v, ok := left.(traits.Multiplier); ok {
			return v.Multiply(right)
		}
	case operators.Divide:
		if v, ok := left.(traits.Divider); ok {
			return v.Divide(right)
		}
	}
	return types.NewErr("no such overload: %s %s %s", left.Type().TypeName(), a.Function(),
		right.Type().TypeName())
}

// textSize is the size of a text in bytes: cel-go copies texts that it adds, and does
// not count what that costs where the checker does not know them for texts.
func textSize(v ref.Val) int {
	switch v := v.(type) {
	case types.String:
		return len(v)
	case types.Bytes:
		return len(v)
	}
	return 0
}

func promote(left, right ref.Val) (ref.Val, ref.Val) {
	if n, ok := left.(types.Int); ok && right.Type() == types.DoubleType {
		return types.Double(n), right
	}
	if n, ok := right.(types.Int); ok && left.Type() == types.DoubleType {
		return left, types.Double(n)
	}
	return left, right
}
