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
// double, and stands for all that it is nearest to: 1234567890.123456789 is its literal.
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
			return a.plain(asDouble(left), asDouble(right))
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

// asDouble is the double nearest to an int, a double or a number.
func asDouble(v ref.Val) ref.Val {
	switch v := v.(type) {
	case number:
		return v.Double
	case types.Int:
		return types.Double(v)
	default:
		return v
	}
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

// negation is a call of unary minus: that of the least int is a number.
type negation struct{ interpreter.InterpretableCall }

// Exec negates.
func (n *negation) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	value := n.Args()[0].Exec(frame)
	return unary(frame, n.InterpretableCall, value, func() ref.Val {
		if i, ok := value.(types.Int); ok && i == math.MinInt64 && isExact(frame) {
			return numberOf(exact.Of(int64(i)).Negate(), "", true)
		}
		v, ok := value.(traits.Negater)
		if _, truth := value.(types.Bool); truth || !ok {
			return nil
		}
		return v.Negate()
	})
}

// Eval evaluates the call outside a frame.
func (n *negation) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, n.Exec)
}

// unary answers a call of one operand, strictly, and counts what it costs. Where answer has none,
// cel-go refuses the operand: it evaluates that again, so nothing that it takes may be left to it.
func unary(frame *interpreter.ExecutionFrame, call interpreter.InterpretableCall, operand ref.Val,
	answer func() ref.Val) ref.Val {
	if types.IsError(operand) {
		return operand
	}
	result := operand
	if !types.IsUnknown(operand) {
		if result = answer(); result == nil {
			return call.Exec(frame)
		}
	}
	if costs := frame.CostTracker(); costs != nil {
		costs.EvalUnary(frame, call.ID(), call, operand, result)
	}
	return result
}

// conversion is a call of string(), double(), timestamp() or json() that takes numbers of JSON as
// they are: each has one text, and whole seconds are a time, also with a fraction of 0.
type conversion struct {
	interpreter.InterpretableV2
	call interpreter.InterpretableCall
	to   ref.Type // nil: json()
}

// newConversion hides a call from cel-go, which would do it once for all evaluations. A constant
// that has one text, or is no time, is cel-go's to convert or to refuse.
func newConversion(call interpreter.InterpretableCall) interpreter.InterpretableV2 {
	c := &conversion{InterpretableV2: call, call: call}
	switch call.Function() {
	case "string":
		c.to = types.StringType
	case "double":
		c.to = types.DoubleType
	case "timestamp":
		c.to = types.TimestampType
	}
	if constant, is := call.Args()[0].(interpreter.InterpretableConst); is && c.to != nil {
		if _, double := constant.Value().(types.Double); !double || c.to == types.DoubleType {
			return call
		}
	}
	return c
}

// Exec converts.
func (c *conversion) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	value := c.call.Args()[0].Exec(frame)
	return unary(frame, c.call, value, func() ref.Val { return c.convert(frame, value) })
}

// Eval evaluates the call outside a frame.
func (c *conversion) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, c.Exec)
}

// convert is what the call answers; nil: cel-go refuses the value.
func (c *conversion) convert(frame *interpreter.ExecutionFrame, value ref.Val) ref.Val {
	if c.to == nil {
		if text, ok := value.(types.String); ok && isExact(frame) {
			return decode([]byte(text))
		}
		return nil
	}
	switch v := value.(type) {
	case number, types.Int, types.String:
		return v.ConvertToType(c.to)
	case wide:
		switch c.to {
		case types.StringType:
			return v.ConvertToType(c.to)
		case types.DoubleType:
			return v
		}
	case types.Uint:
		if c.to != types.TimestampType {
			return v.ConvertToType(c.to)
		}
	case types.Double:
		return c.double(v, isExact(frame))
	case types.Timestamp:
		if c.to != types.DoubleType {
			return v.ConvertToType(c.to)
		}
	case types.Bool, types.Bytes, types.Duration:
		if c.to == types.StringType {
			return v.ConvertToType(c.to)
		}
	}
	return nil
}

// double is convert of one.
func (c *conversion) double(v types.Double, exactly bool) ref.Val {
	n, finite := exact.OfFloat(float64(v))
	switch c.to {
	case types.DoubleType:
		return v
	case types.StringType:
		if finite && exactly {
			return types.String(n.String())
		}
		return v.ConvertToType(c.to)
	case types.TimestampType:
		if seconds, ok := n.Int64(); finite && exactly && ok {
			return types.Int(seconds).ConvertToType(c.to)
		}
	}
	return nil
}
