package executor_test

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestNothingIsLeftOver: when every plan has ended there is no due entry, no
// watch, no command and nothing to do. checkRows says the same after every step
// of every test.
func TestNothingIsLeftOver(t *testing.T) {
	s := newSchedule(t)
	s.must(s.agent("p",
		opened(epoch0+100*second, when("w", `facts["x"] == 1 && after(timestamp("2027-01-01T00:00:00Z"))`))))
	s.must(s.agent("p", pair("a", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.Triggers = []*pb.Trigger{when("w", `absent_for("y", action.at, duration("3h"))`)}
	})...))
	s.play("judge:a=allow a+ b b+ b=fail fact:x=1 fact:y=1 !a- fail turn @1s @9h resolve:b turn")
	s.wantState("p", "resolved", "a=compensated b=resolved")
	for _, kind := range []byte("tdkcxqy") {
		for k := range s.kv.Scan([]byte{kind}, rows.After([]byte{kind})) {
			t.Errorf("left over: %q", k)
		}
	}
	if _, ok := s.state.NextWake(); ok && s.state.HasWork() {
		t.Error("it waits for something")
	}
}
