package ledger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/sagenbaum/sagenbaum/proto/rawjson"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// A value that an undo is called with is exact, or it is not used: a file called "caf\xe9.txt" is
// not undone by deleting another one. So what cannot be carried exactly is refused before the
// forward runs; and what comes after it is left out, and marked incomplete.

// ExactJSON reports whether a JSON value means the same to every reader: it is UTF-8, and no escape
// is half a surrogate pair, which becomes U+FFFD wherever it is read (RFC 8259, section 8.2).
func ExactJSON(value []byte) bool {
	if !utf8.Valid(value) {
		return false
	}
	if !bytes.Contains(value, []byte(`\u`)) {
		return true
	}
	for i := 0; i < len(value); i++ {
		if value[i] != '\\' {
			continue
		}
		if i++; i >= len(value) || value[i] != 'u' {
			continue
		}
		first := escaped(value[i:])
		i += 4
		if !utf16.IsSurrogate(first) {
			continue
		}
		if i+2 >= len(value) || value[i+1] != '\\' || value[i+2] != 'u' ||
			utf16.DecodeRune(first, escaped(value[i+2:])) == utf8.RuneError {
			return false
		}
		i += 6
	}
	return true
}

// NameTwice finds a name that an object within a value of JSON has twice, and says where, as in
// .a[1].b: some readers take the first one, and others the last.
func NameTwice(value []byte) (place string, found bool) { return rawjson.Twice(value) }

// escaped is the code unit of an escape, from its u on; 0: another text.
func escaped(from []byte) rune {
	if len(from) < 5 {
		return 0
	}
	unit, err := strconv.ParseUint(string(from[1:5]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(unit)
}

// ExactText reports whether a name can be carried by a record: it is UTF-8 of at most TextMax
// bytes.
func ExactText(s string) bool { return len(s) <= TextMax && utf8.ValidString(s) }

// inexact names the value of an act that is recorded before its forward runs, and is not exact.
func inexact(r *pb.Record) error {
	switch k := r.Kind.(type) {
	case *pb.Record_ForwardRegistered:
		return firstOf(CheckExact("payload.input", r.Payload.GetInput()),
			CheckExact("forward_registered.lifted", k.ForwardRegistered.Lifted))
	case *pb.Record_CompensationRegistered:
		return CheckExact("payload.before", r.Payload.GetBefore())
	case *pb.Record_FactAsserted:
		return CheckExact("fact_asserted.value", k.FactAsserted.Value)
	default:
		return nil
	}
}

// CheckExact refuses a value, in JSON, that is not exact.
func CheckExact(field string, value []byte) error {
	if ExactJSON(value) {
		return nil
	}
	return Refuse(field, "it has text that is no UTF-8, or half a surrogate pair", WantExact)
}

// CheckPlanInput refuses what a plan is opened with, in JSON, if it is too large or not exact.
func CheckPlanInput(input []byte) error {
	if len(input) > PlanInputMax {
		return Refuse("payload.input", fmt.Sprintf("%d bytes", len(input)),
			fmt.Sprintf("at most %d for a plan: give large values to its actions", PlanInputMax))
	}
	return CheckExact("payload.input", input)
}

// WantExact is what would be right in place of text that is not exact.
const WantExact = "text in Unicode; other bytes in base64"

// hasInexact reports whether leaveOut would change the record, or inexact refuses it.
func hasInexact(r *pb.Record) bool {
	k, ok := r.Kind.(*pb.Record_ForwardCompleted)
	if !ok {
		return inexact(r) != nil
	}
	return !ExactText(k.ForwardCompleted.ExternalRef) || !isValue(r.Payload.GetOutput()) ||
		!ExactJSON(k.ForwardCompleted.Lifted)
}

// isValue reports whether an output can be kept: none, or JSON that is exact.
func isValue(output []byte) bool {
	return len(output) == 0 || json.Valid(output) && ExactJSON(output)
}

// leaveOut takes from the record of an effect that has happened what is not exact, and says so in
// it: the effect is there, and an undo that reads what is missing is its owner's.
func leaveOut(r *pb.Record) {
	k, ok := r.Kind.(*pb.Record_ForwardCompleted)
	if !ok {
		return
	}
	done := k.ForwardCompleted
	if !ExactText(done.ExternalRef) {
		done.ExternalRef, done.ReferenceIncomplete = "", true
	}
	if !isValue(r.Payload.GetOutput()) {
		r.Payload.Output, done.OutputIncomplete = nil, true
	}
	if !ExactJSON(done.Lifted) {
		done.Lifted = nil
	}
}

// depthMax is how many arrays and objects of a value may be in one another: answers have values
// within their own, and readers of JSON have a limit.
const depthMax = 1000

// checkDepth refuses a value, in JSON, that is nested deeper than depthMax.
func checkDepth(field string, value []byte) error {
	if bytes.Count(value, []byte("["))+bytes.Count(value, []byte("{")) <= depthMax {
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
	if deepest > depthMax {
		return Refuse(field, fmt.Sprintf("it is nested %d levels deep", deepest),
			fmt.Sprintf("at most %d levels", depthMax))
	}
	return nil
}

// tooDeep is what writers refuse before they append: the fold takes it, as earlier versions did.
// The coordinator leaves it out of what a forward has returned: the effect is there.
func tooDeep(r *pb.Record) error {
	return firstOf(checkDepth("payload.input", r.Payload.GetInput()),
		checkDepth("payload.before", r.Payload.GetBefore()),
		checkDepth("payload.output", r.Payload.GetOutput()),
		checkDepth("forward_completed.lifted", r.GetForwardCompleted().GetLifted()),
		checkDepth("fact_asserted.value", r.GetFactAsserted().GetValue()))
}
