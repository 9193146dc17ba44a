package opening

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestCompareNamesWhatDiffers, in the words of a PlanSpec, with both values.
func TestCompareNamesWhatDiffers(t *testing.T) {
	labels := []*pb.Label{{Key: "a", Value: "b"}}
	for _, c := range []struct {
		was, is *pb.PlanOpened
		but     protoreflect.Name
		want    Difference
	}{
		{&pb.PlanOpened{Label: "l"}, &pb.PlanOpened{Label: "l", Trace: []byte("t")}, "", Difference{}},
		{&pb.PlanOpened{Labels: labels}, &pb.PlanOpened{Labels: []*pb.Label{{Key: "a", Value: "b"}}}, "", Difference{}},
		{&pb.PlanOpened{Function: "f"}, &pb.PlanOpened{Function: "g"}, "", Difference{"function", `"f"`, `"g"`}},
		{&pb.PlanOpened{Function: "f"}, &pb.PlanOpened{Function: "g"}, "function", Difference{}},
		{&pb.PlanOpened{Label: "l"}, &pb.PlanOpened{}, "", Difference{"plan.label", `"l"`, `""`}},
		{&pb.PlanOpened{DeadlineNs: 1}, &pb.PlanOpened{DeadlineNs: 2}, "", Difference{"plan.deadline", `"1"`, `"2"`}},
		{&pb.PlanOpened{SecondApprover: true}, &pb.PlanOpened{}, "", Difference{"plan.second_approver", `"true"`, `"false"`}},
		{&pb.PlanOpened{OnUndoFailure: pb.OnUndoFailure_ON_UNDO_FAILURE_HALT}, &pb.PlanOpened{}, "",
			Difference{"plan.on_undo_failure", `"ON_UNDO_FAILURE_HALT"`, `"ON_UNDO_FAILURE_UNSPECIFIED"`}},
		{&pb.PlanOpened{}, &pb.PlanOpened{OnUndoFailure: pb.OnUndoFailure_ON_UNDO_FAILURE_HALT}, "", Difference{}},
		{&pb.PlanOpened{},
			&pb.PlanOpened{OnUndoFailure: pb.OnUndoFailure_ON_UNDO_FAILURE_HALT_UNLESS_LAST}, "", Difference{}},
		{&pb.PlanOpened{OnUndoFailure: pb.OnUndoFailure_ON_UNDO_FAILURE_HALT_UNLESS_LAST},
			&pb.PlanOpened{OnUndoFailure: pb.OnUndoFailure_ON_UNDO_FAILURE_HALT}, "",
			Difference{"plan.on_undo_failure", `"ON_UNDO_FAILURE_HALT_UNLESS_LAST"`, `"ON_UNDO_FAILURE_HALT"`}},
		{&pb.PlanOpened{}, &pb.PlanOpened{OnUndoFailure: pb.OnUndoFailure_ON_UNDO_FAILURE_CONTINUE}, "",
			Difference{"plan.on_undo_failure", `"ON_UNDO_FAILURE_UNSPECIFIED"`, `"ON_UNDO_FAILURE_CONTINUE"`}},
	} {
		got, differs := Compare(Recorded("p", c.was, nil), Recorded("p", c.is, nil), c.but)
		if got != c.want || differs != (c.want.Field != "") {
			t.Errorf("%v and %v: %v, %v, want %v", c.was, c.is, got, differs, c.want)
		}
	}
	if got, _ := Compare(Recorded("p", &pb.PlanOpened{Labels: labels}, nil),
		Recorded("p", &pb.PlanOpened{}, nil)); got.Field != "plan.labels" || got.Now != `"[]"` {
		t.Errorf("%v, want plan.labels and nothing now", got)
	}
}

func TestInputsAreComparedByValue(t *testing.T) {
	for _, c := range []struct {
		was, is string
		want    Difference
	}{
		{`{"a": 1, "b": 2}`, `{"b":2,"a":1}`, Difference{}},
		{`{"a":1}`, ``, Difference{"plan.input", `{"a":1}`, "nothing"}},
		{``, `1`, Difference{"plan.input", "nothing", "1"}},
		{`10.10`, `10.11`, Difference{"plan.input", "10.10", "10.11"}},
	} {
		was, is := Recorded("p", &pb.PlanOpened{}, []byte(c.was)), Recorded("p", &pb.PlanOpened{}, []byte(c.is))
		if got, differs := Compare(was, is); got != c.want || differs != (c.want.Field != "") {
			t.Errorf("%s and %s: %v, %v, want %v", c.was, c.is, got, differs, c.want)
		}
	}
}
