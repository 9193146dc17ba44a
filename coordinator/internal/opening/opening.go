// Package opening compares how a plan was opened with how it is declared now.
package opening

import (
	"bytes"
	"fmt"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Difference is a field of a plan that was opened with another value than it is declared with.
type Difference struct {
	Field         string // as PlanSpec has it: plan.label; function for that of a Run
	Recorded, Now string
}

// names are the fields that a PlanSpec calls otherwise than the record does.
var names = map[protoreflect.Name]string{"deadline_ns": "plan.deadline",
	"parent_plan": "plan.parent", "attach_digest": "plan.attach_token", "function": "function"}

// Recorded is the record of a plan's opening.
func Recorded(plan string, opened *pb.PlanOpened, input []byte) *pb.Record {
	r := &pb.Record{Plan: plan, Kind: &pb.Record_PlanOpened{PlanOpened: opened}}
	if len(input) > 0 {
		r.Payload = &pb.Payload{Input: input}
	}
	return r
}

// Compare returns the first difference between two openings, and whether there is one. Fields of
// the record PlanOpened that are in but are not compared, nor is the trace, which says nothing of
// the plan. Inputs are compared as JSON values.
func Compare(before, after *pb.Record, but ...protoreflect.Name) (Difference, bool) {
	recorded, now := before.GetPlanOpened(), after.GetPlanOpened()
	was, is := recorded.ProtoReflect(), now.ProtoReflect()
	fields := was.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Name() == "trace" || slices.Contains(but, f.Name()) ||
			was.Has(f) == is.Has(f) && (!was.Has(f) || was.Get(f).Equal(is.Get(f))) ||
			f.Name() == "on_undo_failure" && saidNothing(recorded, now) {
			continue
		}
		name, ok := names[f.Name()]
		if !ok {
			name = "plan." + string(f.Name())
		}
		return Difference{name, text(f, was.Get(f)), text(f, is.Get(f))}, true
	}
	old, input := before.Payload.GetInput(), after.Payload.GetInput()
	if !bytes.Equal(old, input) && !triggers.Same(old, input) {
		return Difference{"plan.input", quoted(old), quoted(input)}, true
	}
	return Difference{}, false
}

// quoted is JSON as an error quotes it.
func quoted(value []byte) string {
	if len(value) == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%.64s", value)
}

// saidNothing reports whether a plan was opened before there was a choice between the two ways to
// halt: it halts, as it did, also for code that says nothing today.
func saidNothing(recorded, now *pb.PlanOpened) bool {
	return recorded.OnUndoFailure == pb.OnUndoFailure_ON_UNDO_FAILURE_UNSPECIFIED &&
		(now.OnUndoFailure == pb.OnUndoFailure_ON_UNDO_FAILURE_HALT ||
			now.OnUndoFailure == pb.OnUndoFailure_ON_UNDO_FAILURE_HALT_UNLESS_LAST)
}

// text is a value as an error quotes it.
func text(f protoreflect.FieldDescriptor, v protoreflect.Value) string {
	switch {
	case f.IsList():
		list := []any{}
		for i := range v.List().Len() {
			list = append(list, v.List().Get(i).Interface())
		}
		return fmt.Sprintf("%q", fmt.Sprint(list))
	case f.Enum() != nil:
		if value := f.Enum().Values().ByNumber(v.Enum()); value != nil {
			return fmt.Sprintf("%q", value.Name())
		}
	}
	return fmt.Sprintf("%q", fmt.Sprint(v.Interface()))
}
