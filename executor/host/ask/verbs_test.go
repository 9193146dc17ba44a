package ask

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestTheMatrixHasEveryVerb: what each role may ask is held by the matrix of ledger/access, which
// has every verb that a host answers, and no other. Who runs the server may ask all of them, so
// each is in a line of that user.
func TestTheMatrixHasEveryVerb(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "ledger", "access", "testdata", "matrix.txt"))
	if err != nil {
		t.Fatal(err)
	}
	of := func(prefix string) (verbs []string) {
		for line := range strings.Lines(string(text)) {
			verb, ok := strings.CutPrefix(line, "l1 pub "+prefix)
			verb, _, _ = strings.Cut(strings.TrimSpace(verb), " ")
			if ok && verb != "unknown" && !strings.HasPrefix(verb, api.HistoryVerb) &&
				!strings.HasPrefix(verb, api.PreviewVerb) {
				verbs = append(verbs, verb)
			}
		}
		slices.Sort(verbs)
		return verbs
	}
	questions, requests := Verbs()
	for _, c := range []struct {
		prefix string
		verbs  []string
	}{{api.QuerySubject("t1", ""), questions}, {api.AdminSubject("t1", ""), requests}} {
		if got := of(c.prefix); !slices.Equal(got, c.verbs) {
			t.Errorf("%s: the matrix has %q, and hosts answer %q: put them into matrix_test.go of ledger/access",
				c.prefix, got, c.verbs)
		}
	}
}
