package ledger_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// A token says which attempt of which undo it is of, and no one makes it without the secret: a holder
// of another version of this program makes the same.
func TestAReportTokenIsOfItsAttempt(t *testing.T) {
	t.Parallel()
	mac := hmac.New(sha256.New, []byte("secret"))
	fmt.Fprintf(mac, "sagenbaum/report/v1\n%s\n%s\n%s\n%s\n%d\n", "t", "p", "a", "key", 4294967295)
	want := hex.EncodeToString(mac.Sum(nil)[:16])
	if got := ledger.NewReporter([]byte("secret")).Token("t", "p", "a", "key", 4294967295); got != want {
		t.Errorf("it is %s, want %s", got, want)
	}
	seen := map[string]bool{want: true}
	for _, of := range [][]string{{"u", "p", "a", "key"}, {"t", "q", "a", "key"}, {"t", "p", "b", "key"},
		{"t", "p", "a", "k"}} {
		seen[ledger.NewReporter([]byte("secret")).Token(of[0], of[1], of[2], of[3], 4294967295)] = true
	}
	seen[ledger.NewReporter([]byte("secret")).Token("t", "p", "a", "key", 1)] = true
	seen[ledger.NewReporter([]byte("other")).Token("t", "p", "a", "key", 4294967295)] = true
	if len(seen) != 7 {
		t.Errorf("two of them have the same: %v", seen)
	}
}
