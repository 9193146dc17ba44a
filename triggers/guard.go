package triggers

import (
	"regexp"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
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

// comparison is an equality, or `in`, that weighs its operands first. cel-go
// counts the length of a list, not what its elements hold, and a loop can make a
// small list of lists whose comparison never ends.
type comparison struct {
	interpreter.InterpretableCall
}

// Exec compares strictly, as the call it replaces does.
func (c *comparison) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	args := c.Args()
	left, right := args[0].Exec(frame), args[1].Exec(frame)
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
	switch c.Function() {
	case operators.Equals:
		return types.Equal(left, right)
	case operators.NotEquals:
		if equal, ok := types.Equal(left, right).(types.Bool); ok {
			return !equal
		}
		return types.NewErr("no such overload")
	}
	if container, ok := right.(traits.Container); ok {
		return container.Contains(left)
	}
	return types.NewErr("no such overload")
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
