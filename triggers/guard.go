package triggers

import (
	"math"
	"regexp"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"

	"github.com/sagenbaum/sagenbaum/triggers/exact"
)

// mapLiteral makes an object of a map literal, whose order is its own.
type mapLiteral struct {
	interpreter.InterpretableV2
}

// Exec builds the map.
func (m *mapLiteral) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	value := m.InterpretableV2.Exec(frame)
	literal, ok := value.(traits.Mapper)
	if !ok {
		return value
	}
	o := &object{}
	for it := literal.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		o.keys, o.values = append(o.keys, key), append(o.values, literal.Get(key))
	}
	o.sort()
	return o
}

// Eval evaluates the literal outside a frame.
func (m *mapLiteral) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, m.Exec)
}

// comparison is an equality, or `in`, that compares numbers by value, and may weigh its operands
// first. cel-go
// counts the length of a list, not what its elements hold, and a loop can make a
// small list of lists whose comparison never ends.
type comparison struct {
	interpreter.InterpretableCall
	weighs bool
}

// hidden is a node that cel-go cannot look into.
type hidden struct{ interpreter.InterpretableV2 }

// ordering is a call of < <= > or >= that orders numbers by value.
type ordering struct {
	interpreter.InterpretableCall
}

// Exec compares strictly, as the call it replaces does.
func (o *ordering) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	args := o.Args()
	left, right := args[0].Exec(frame), args[1].Exec(frame)
	result := o.result(left, right)
	if costs := frame.CostTracker(); costs != nil {
		costs.EvalBinary(frame, o.ID(), o, left, right, result)
	}
	return result
}

// Eval evaluates the call outside a frame.
func (o *ordering) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, o.Exec)
}

func (o *ordering) result(left, right ref.Val) ref.Val {
	if value := strict(left, right); value != nil {
		return value
	}
	if n, ok := right.(number); ok {
		if order, is := n.order(left); is {
			return o.holds(-order)
		}
		right = n.Double
	}
	comparer, ok := left.(traits.Comparer)
	if !ok {
		return types.NewErr("no such overload: %s", o.Function())
	}
	order, ok := comparer.Compare(right).(types.Int)
	if !ok {
		return comparer.Compare(right) // why they cannot be compared
	}
	return o.holds(int(order))
}

func (o *ordering) holds(order int) ref.Val {
	switch o.Function() {
	case operators.Less:
		return types.Bool(order < 0)
	case operators.LessEquals:
		return types.Bool(order <= 0)
	case operators.Greater:
		return types.Bool(order > 0)
	default:
		return types.Bool(order >= 0)
	}
}

// equal is types.Equal that compares numbers by value, also those within.
func equal(left, right ref.Val) ref.Val {
	switch l := left.(type) {
	case types.Int, types.Double, types.Uint:
		if n, ok := right.(number); ok {
			return n.Equal(left)
		}
	case *types.Optional:
		if r, ok := right.(*types.Optional); ok && l.HasValue() && r.HasValue() {
			return equal(l.GetValue(), r.GetValue())
		}
	case *object: // it does so itself
	case traits.Lister:
		r, ok := right.(traits.Lister)
		if !ok || l.Size() != r.Size() {
			return types.False
		}
		for a, b := l.Iterator(), r.Iterator(); a.HasNext() == types.True; {
			if equal(a.Next(), b.Next()) == types.False {
				return types.False
			}
		}
		return types.True
	}
	return types.Equal(left, right)
}

// contains is `in`.
func contains(container, value ref.Val) ref.Val {
	if list, ok := container.(traits.Lister); ok {
		for it := list.Iterator(); it.HasNext() == types.True; {
			if equal(value, it.Next()) == types.True {
				return types.True
			}
		}
		return types.False
	}
	if c, ok := container.(traits.Container); ok {
		return c.Contains(value)
	}
	return types.NewErr("no such overload")
}

// Exec compares strictly, as the call it replaces does.
func (c *comparison) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	args := c.Args()
	left, right := args[0].Exec(frame), args[1].Exec(frame)
	if !c.weighs {
		result := c.answer(left, right)
		if costs := frame.CostTracker(); costs != nil {
			costs.EvalBinary(frame, c.ID(), c, left, right, result)
		}
		return result
	}
	budget := costMax
	e, bare := frame.Scope().(*evaluation)
	if bare { // not in a loop, whose steps are counted
		budget -= e.parts
	}
	spare := budget
	result := c.result(left, right, &budget)
	if bare {
		e.parts += spare - budget
	}
	if costs := frame.CostTracker(); costs != nil {
		costs.EvalBinary(frame, c.ID(), c, left, right, result)
	}
	return result
}

// Eval evaluates the comparison outside a frame.
func (c *comparison) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, c.Exec)
}

func (c *comparison) result(left, right ref.Val, budget *int) ref.Val {
	if value := strict(left, right); value != nil {
		return value
	}
	if !weigh(left, budget) || !weigh(right, budget) {
		return types.NewErr("operation cancelled: what is compared has more than %d parts", costMax)
	}
	return c.answer(left, right)
}

func (c *comparison) answer(left, right ref.Val) ref.Val {
	if value := strict(left, right); value != nil {
		return value
	}
	switch c.Function() {
	case operators.Equals:
		return equal(left, right)
	case operators.NotEquals:
		if same, ok := equal(left, right).(types.Bool); ok {
			return !same
		}
		return types.NewErr("no such overload")
	default:
		return contains(right, left)
	}
}

// strict returns what a strict call answers before it looks at its operands: the
// first error, or the unknowns of both; nil when both are values.
func strict(left, right ref.Val) ref.Val {
	if types.IsError(left) {
		return left
	}
	if types.IsError(right) {
		return right
	}
	unknown, is := left.(*types.Unknown)
	if !is && !types.IsUnknown(right) {
		return nil
	}
	merged, _ := types.MaybeMergeUnknowns(right, unknown)
	return merged
}

// weigh takes the parts of value from budget and reports whether it sufficed.
func weigh(value ref.Val, budget *int) bool {
	if *budget--; *budget < 0 {
		return false
	}
	switch v := value.(type) {
	case *types.Optional:
		return !v.HasValue() || weigh(v.GetValue(), budget)
	case *object:
		for _, item := range v.values {
			if !weigh(item, budget) {
				return false
			}
		}
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True; {
			if !weigh(it.Next(), budget) {
				return false
			}
		}
	}
	return true
}

// matching is a regular expression that is held to what it may scan: the steps of
// cel-go count the text and not how many instructions run over each byte of it. It
// hides the call from cel-go, which would put its own in the place of a constant one.
type matching struct {
	interpreter.InterpretableV2
	call     interpreter.InterpretableCall
	compiled *regexp.Regexp // nil: the pattern is computed
	size     int            // instructions, or the most that there may be
}

func newMatching(call interpreter.InterpretableCall) *matching {
	m := &matching{InterpretableV2: call, call: call, size: regexMax}
	if pattern, ok := call.Args()[1].(interpreter.InterpretableConst); ok {
		if text, ok := pattern.Value().(types.String); ok {
			size, err := types.RegexProgramSize(string(text))
			if compiled, wrong := regexp.Compile(string(text)); err == nil && wrong == nil {
				m.compiled, m.size = compiled, size
			}
		}
	}
	return m
}

// Exec matches, unless it would scan too much.
func (m *matching) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	value := m.call.Args()[0].Exec(frame)
	text, ok := value.(types.String)
	if ok && !scans(frame, len(text)*m.size) {
		return types.NewErr("operation cancelled: a regular expression of %d instructions over %d bytes",
			m.size, len(text))
	}
	if !ok || m.compiled == nil {
		return m.call.Exec(frame)
	}
	result := types.Bool(m.compiled.MatchString(string(text)))
	if costs := frame.CostTracker(); costs != nil {
		costs.EvalBinary(frame, m.ID(), m.call, text, m.call.Args()[1].Exec(frame), result)
	}
	return result
}

// Eval evaluates the call outside a frame.
func (m *matching) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, m.Exec)
}

// scans takes n from what the evaluation may scan, and reports whether it was there.
func scans(frame *interpreter.ExecutionFrame, n int) bool {
	for scope := frame.Scope(); scope != nil; scope = scope.Parent() {
		if e, ok := scope.(*evaluation); ok {
			e.scanned += n
			return e.scanned <= scanMax
		}
	}
	return n <= scanMax
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
