package door_test

import (
	"testing"
)

// TestADoorGoesOnOverAnotherConnection: one that is closed for good takes none of its writers with
// it, which go on with their plans.
func TestADoorGoesOnOverAnotherConnection(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p1"}`)
	l.good(l.post, "tripper", "plan.act", `{"plan":"p1","action":"a","capability":"hotel.book","input":{"city":"Rome"}}`)
	l.door.Kill()
	outcome := l.good(l.post, "tripper", "plan.outcome",
		`{"plan":"p1","action":"a","outcome":"completed","output":{"booking":"b1"}}`)
	if outcome["outcome"] != "completed" {
		t.Errorf("told over another connection: %v", outcome)
	}
	l.good(l.post, "tripper", "plan.fail", `{"plan":"p1"}`)
	if wait := l.good(l.post, "tripper", "plan.wait", `{"plan":"p1"}`); wait["state"] != "compensated" {
		t.Errorf("waited: %v", wait)
	}
	if n := l.door.Writers(); n != 1 {
		t.Errorf("%d writers, want the one that is in use", n)
	}
}
