package triggers

import (
	"cmp"
	"math"
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"

	"github.com/sagenbaum/sagenbaum/triggers/exact"
)

// JSON does not say whether 100 is an int or a double, and a source may write
// 100 today and 100.5 tomorrow. So arithmetic over a value that came as JSON
// takes both, and is exact; between literals CEL's own rule
// holds, and 1.5 * 2 is refused.

// mixedCalls returns the ids of the calls of + - * / % < <= > >= == != in with an operand that may
// be a number of JSON; true: the checker does not know the type of one. Where it does, that may be
// wrong: it takes facts.x * 3 for an int, and what is computed from that, too.
func mixedCalls(checked *ast.AST) map[int64]bool {
	mixed, spread := map[int64]bool{}, false
	calls := func(each func(e ast.Expr, operands []*types.Type, computes bool)) {
		ast.PreOrderVisit(checked.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
			if e.Kind() != ast.CallKind {
				return
			}
			computes := isArithmetic(e.AsCall().FunctionName())
			if args := e.AsCall().Args(); computes || isComparison(e.AsCall().FunctionName()) {
				each(e, []*types.Type{checked.GetType(args[0].ID()), checked.GetType(args[1].ID())},
					computes)
			}
		}))
	}
	calls(func(_ ast.Expr, operands []*types.Type, computes bool) {
		spread = spread || computes && slices.ContainsFunc(operands, isOpen)
	})
	calls(func(e ast.Expr, operands []*types.Type, computes bool) {
		open := slices.ContainsFunc(operands, isOpen)
		if mayHoldNumber(operands[0]) && mayHoldNumber(operands[1]) && (open || spread) ||
			computes && open {
			mixed[e.ID()] = slices.ContainsFunc(operands,
				func(t *types.Type) bool { return t.Kind() == types.DynKind })
		}
	})
	return mixed
}

func isArithmetic(function string) bool {
	switch function {
	case operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo:
		return true
	}
	return false
}

func isComparison(function string) bool {
	switch function {
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals,
		operators.Greater, operators.GreaterEquals, operators.In:
		return true
	}
	return false
}

// isOpen reports whether the checker does not know what values of a type are or hold.
func isOpen(t *types.Type) bool {
	if t.Kind() == types.DynKind {
		return true
	}
	for _, p := range t.Parameters() {
		if isOpen(p) {
			return true
		}
	}
	return false
}

func mayHoldNumber(t *types.Type) bool {
	switch t.Kind() {
	case types.DynKind, types.IntKind, types.UintKind, types.DoubleKind:
		return true
	}
	for _, p := range t.Parameters() {
		if mayHoldNumber(p) {
			return true
		}
	}
	return false
}

// number is a number of JSON that is neither an int64 nor what a double says exactly. It is moved
// as it is written, and compared and computed with by its value.
type number struct {
	types.Double // the nearest
	value        exact.Number
	text         string // as it is written; empty: it was computed
	whole        bool   // written without a fraction or an exponent
}

// safeDigits are the digits that a double keeps: two numbers of so many are two doubles, in the
// same order.
const safeDigits = 15

// numberOf is a value as CEL has it: an int, a double that says it exactly, or a number.
func numberOf(value exact.Number, text string, whole bool) ref.Val {
	if n, ok := value.Int64(); whole && ok {
		return types.Int(n)
	}
	return numberBeside(value.Float64(), value, text, whole)
}

// numberBeside is numberOf what is no int, where f is the double nearest to it.
func numberBeside(f float64, value exact.Number, text string, whole bool) ref.Val {
	if !whole && isSafe(value, f) && (text == "" || value.Whole() || text == value.String()) {
		return types.Double(f)
	}
	return number{types.Double(f), value, text, whole}
}

func isSafe(value exact.Number, f float64) bool {
	if value.Whole() {
		return math.Abs(f) < 1<<53
	}
	return value.Digits() <= safeDigits && math.Abs(f) > 1e-300
}

// exactly is the value of a number of CEL; false: it is none, or infinite. whole says that it was
// written without a fraction or an exponent.
func exactly(v ref.Val) (value exact.Number, whole, ok bool) {
	switch v := v.(type) {
	case number:
		return v.value, v.whole, true
	case types.Int:
		return exact.Of(int64(v)), true, true
	case types.Double:
		value, ok = exact.OfFloat(float64(v))
		return value, false, ok
	case types.Uint:
		value, ok = exact.Parse(v.ConvertToType(types.StringType).Value().(string))
		return value, true, ok
	default:
		return exact.Number{}, false, false
	}
}

// Equal compares by value.
func (n number) Equal(other ref.Val) ref.Val {
	order, ok := n.order(other)
	return types.Bool(ok && order == 0)
}

// Compare orders by value.
func (n number) Compare(other ref.Val) ref.Val {
	order, ok := n.order(other)
	if !ok {
		return n.Double.Compare(other) // not a number, or none
	}
	return types.Int(order)
}

// order is -1, 0 or 1 where n is less than, equal to or more than other; false: other is no number.
// A double that no JSON decodes to, for its digits, was written in an expression or computed as a
// double, and equals all that it is nearest to: 1234567890.123456789 is its literal.
func (n number) order(other ref.Val) (int, bool) {
	f, double := other.(types.Double)
	value, _, ok := exactly(other)
	switch {
	case double && math.IsInf(float64(f), 0):
		return -int(math.Copysign(1, float64(f))), true
	case !ok:
		return 0, false
	case double && !isSafe(value, float64(f)):
		return cmp.Compare(n.Double, f), true
	}
	return sign(n.value.Compare(value)), true
}

func sign(n int) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	default:
		return 0
	}
}

// errDigits is why nothing is computed of a number, or made of it.
func errDigits() ref.Val {
	return types.NewErr("operation cancelled: a number of too many digits")
}

// Negate is exact.
func (n number) Negate() ref.Val {
	value := n.value.Negate()
	if value.IsLong() {
		return errDigits()
	}
	if i, ok := value.Int64(); n.whole && ok {
		return types.Int(i)
	}
	return numberBeside(-float64(n.Double), value, "", n.whole)
}

// ConvertToType is exact where the type holds the number.
func (n number) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.StringType:
		if n.value.IsLong() {
			return errDigits()
		}
		return types.String(n.value.String())
	case types.DoubleType:
		return n.Double
	case types.IntType:
		if i, ok := n.value.Truncate().Int64(); ok {
			return types.Int(i)
		}
		return types.NewErr("integer overflow")
	case types.UintType:
		if u, ok := n.value.Truncate().Uint64(); ok && !math.Signbit(float64(n.Double)) {
			return types.Uint(u)
		}
		return types.NewErr("unsigned integer overflow")
	case types.TimestampType:
		if i, ok := n.value.Int64(); ok {
			return types.Int(i).ConvertToType(t)
		}
	}
	return n.Double.ConvertToType(t)
}

// arithmetic is a call of + - * / % that takes numbers of JSON as they are.
type arithmetic struct {
	interpreter.InterpretableCall
	promotes bool // also by the rules of earlier holders it takes an int beside a double
}

// Exec evaluates the operands in order, strictly, as the call it replaces does.
func (a *arithmetic) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	args := a.Args()
	left, right := args[0].Exec(frame), args[1].Exec(frame)
	result := a.result(frame, left, right)
	if costs := frame.CostTracker(); costs != nil {
		costs.EvalBinary(frame, a.ID(), a, left, right, result)
	}
	return result
}

// Eval evaluates the call outside a frame.
func (a *arithmetic) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, a.Exec)
}

func (a *arithmetic) result(frame *interpreter.ExecutionFrame, left, right ref.Val) ref.Val {
	if value := strict(left, right); value != nil {
		return value
	}
	_, int1 := left.(types.Int)
	_, int2 := right.(types.Int)
	if !int1 || !int2 {
		if value := a.exact(left, right); value != nil && isExact(frame) {
			return value
		}
	}
	if a.promotes {
		left, right = promote(left, right)
	}
	result := a.plain(left, right)
	if int1 && int2 && types.IsError(result) && isExact(frame) {
		if value := a.exact(left, right); value != nil {
			return value
		}
	}
	return result
}

// plain computes as CEL does.
func (a *arithmetic) plain(left, right ref.Val) ref.Val {
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
	case operators.Modulo:
		if v, ok := left.(traits.Modder); ok {
			return v.Modulo(right)
		}
	}
	return types.NewErr("no such overload: %s %s %s", left.Type().TypeName(), a.Function(),
		right.Type().TypeName())
}

// exact computes with numbers by their values; nil: that is CEL's to do.
func (a *arithmetic) exact(left, right ref.Val) ref.Val {
	if _, uint := left.(types.Uint); uint {
		return nil
	}
	if _, uint := right.(types.Uint); uint {
		return nil
	}
	x, whole1, ok := exactly(left)
	y, whole2, fits := exactly(right)
	if !ok || !fits {
		return nil
	}
	whole := whole1 && whole2
	var value exact.Number
	switch a.Function() {
	case operators.Add:
		value, ok = x.Add(y)
	case operators.Subtract:
		value, ok = x.Add(y.Negate())
	case operators.Multiply:
		value, ok = x.Multiply(y)
	default:
		if !whole {
			return a.plain(asDouble(left, x), asDouble(right, y))
		}
		if y == (exact.Number{}) {
			return types.NewErr("division by zero")
		}
		var rest exact.Number
		if value, rest, ok = x.Divide(y); a.Function() == operators.Modulo {
			value = rest
		}
	}
	if !ok {
		return errDigits()
	}
	return numberOf(value, "", whole)
}

// asDouble is the double nearest to a number of CEL, of this value.
func asDouble(v ref.Val, value exact.Number) ref.Val {
	if n, ok := v.(number); ok {
		return n.Double
	}
	return types.Double(value.Float64())
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

// promote is what holders of before ledger.NumbersSince take an int beside a double for.
func promote(left, right ref.Val) (ref.Val, ref.Val) {
	if n, ok := left.(types.Int); ok && right.Type() == types.DoubleType {
		return types.Double(n), right
	}
	if n, ok := right.(types.Int); ok && left.Type() == types.DoubleType {
		return left, types.Double(n)
	}
	return left, right
}

// reads is an evaluation that says how numbers are read.
type reads interface{ inexact() bool }

// isExact reports whether an evaluation reads numbers exactly: all do, but those by the rules of a
// holder of before ledger.NumbersSince.
func isExact(frame *interpreter.ExecutionFrame) bool {
	for scope := frame.Scope(); scope != nil; scope = scope.Parent() {
		if r, ok := scope.(reads); ok {
			return !r.inexact()
		}
	}
	return true
}
