package quarantine

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// An owner's word lets an undo begin that has not been tried yet; then "again" is wrong.
func TestARetryIsSaidToBeAgainOnlyAfterATry(t *testing.T) {
	const anew = "; with --new-key under another one, and perhaps twice"
	for want, a := range map[string]api.Action{
		"asks room.free, 1 attempt, same key":               {Compensation: "room.free", Attempts: 1},
		"asks room.free again, 5 attempts, same key" + anew: {Compensation: "room.free", Attempt: 2, Attempts: 5},
	} {
		if got := retryText(a); got != want {
			t.Errorf("a retry %q, want %q", got, want)
		}
	}
}
