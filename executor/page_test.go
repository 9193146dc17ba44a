package executor

import (
	"strings"
	"testing"
)

// TestAForwardBehindACommitPagesTheOwner: nothing holds it, and no unwind will come
// upon it, so somebody must know; a copy of it is nothing new.
func TestAForwardBehindACommitPagesTheOwner(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ commit turn !b !again !lone:c")
	pages := s.state.Pages()
	if len(pages) != 2 || !strings.Contains(pages[0].Reason, "action b ") || !strings.Contains(pages[1].Reason, "action c ") || pages[0].ID == pages[1].ID {
		t.Fatalf("%+v", pages)
	}
	if open := s.state.Unpaged(); len(open) != 1 || open[0].ID != pages[1].ID {
		t.Fatalf("%+v", open)
	}
	s.wantState("p", "committed", "a=retired")
}
