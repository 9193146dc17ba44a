package door

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestWhatIsUndone: what an owner leaves as it is, or gives up, is not.
func TestWhatIsUndone(t *testing.T) {
	for past, want := range map[[2]string]bool{
		{"compensated", ""}: true, {"resolved", "done"}: true, {"resolved", "accepted"}: false,
		{"resolved", "lost"}: false, {"skipped", ""}: false, {"quarantined", ""}: false, {"held", ""}: false,
		{"retired", ""}: false, {"", ""}: false,
	} {
		if got := isUndone(api.PastAction{Undo: past[0], Resolution: past[1]}); got != want {
			t.Errorf("%q %q: %v", past[0], past[1], got)
		}
	}
}
