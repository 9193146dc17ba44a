package ledger

import (
	"bytes"
	"fmt"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// DepthMax is how many arrays and objects of a value may be in one another: answers have values
// within their own, and readers of JSON have a limit.
const DepthMax = 1000

// CheckDepth refuses a value, in JSON, that is nested deeper than DepthMax.
func CheckDepth(field string, value []byte) error {
	if bytes.Count(value, []byte("["))+bytes.Count(value, []byte("{")) <= DepthMax {
		return nil
	}
	depth, deepest, quoted := 0, 0, false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[', c == '{':
			depth++
			deepest = max(deepest, depth)
		case c == ']', c == '}':
			depth--
		}
	}
	if deepest > DepthMax {
		return Refuse(field, fmt.Sprintf("it is nested %d levels deep", deepest),
			fmt.Sprintf("at most %d levels", DepthMax))
	}
	return nil
}

// tooDeep is what writers refuse before they append: the fold takes it, as earlier versions did.
// What an effect has returned is not among it: it has happened.
func tooDeep(r *pb.Record) error {
	return firstOf(CheckDepth("payload.input", r.Payload.GetInput()),
		CheckDepth("payload.before", r.Payload.GetBefore()),
		CheckDepth("fact_asserted.value", r.GetFactAsserted().GetValue()))
}
