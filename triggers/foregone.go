package triggers

import (
	"cel.dev/cel-go/common/functions"
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
	held := &Held{shape: c.shape, params: c.params, condition: c}
	e := &evaluation{held: held, blank: true, leaves: make([]leafValue, c.shape.leafCount)}
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
	if timeFunctionOf(name) == nil {
		return nil, false
	}
	return func(string, ...ref.Val) ref.Val { return e.unknown(wait{kind: waitText, name: name}) }, true
}
