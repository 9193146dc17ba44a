package triggers

import (
	"fmt"
	"slices"

	"cel.dev/cel-go/common/operators"
)

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
