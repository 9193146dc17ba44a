package executor_test

import (
	"reflect"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestWorkersAreCountedByWhatIsHeld: what is owed, what may be, and nothing of a plan
// that was committed and retired, or is undone.
func TestWorkersAreCountedByWhatIsHeld(t *testing.T) {
	s := newSchedule(t)
	s.play("q/open q/a q/a+ q/commit turn r/open r/a r/a+ r/fail turn turn open a a+ b b+ a=late fail")
	s.turn()
	views, partial := view.NewReader(s.kv, "t", nil).Workers()
	want := []api.Worker{{Capability: "undo.a", Held: 1, Due: 1, Plan: "p", Served: "unknown"}}
	if partial || !reflect.DeepEqual(views, want) {
		t.Errorf("%+v, want %+v", views, want)
	}
}
