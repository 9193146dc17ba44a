package view

import (
	"testing"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestEveryValueHasAName: a value of an enum without a name panics here.
func TestEveryValueHasAName(t *testing.T) {
	named := func(names map[int32]string, name func(int32) string) {
		for n := range names {
			if n != 0 && name(n) == "" {
				t.Errorf("%s has no name", names[n])
			}
		}
	}
	named(pb.Class_name, func(n int32) string { return className(pb.Class(n)) })
	named(pb.Question_name, func(n int32) string { return questionName(pb.Question(n)) })
	named(pb.OnUndoFailure_name, func(n int32) string { return onUndoFailureName(pb.OnUndoFailure(n), false) })
}
