package cli

import (
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/access"
)

// TestAnOperatorIsToldOfItsOwnName, and not to get the credentials that it has.
func TestAnOperatorIsToldOfItsOwnName(t *testing.T) {
	ann := &access.Credentials{Name: "ann", Role: access.Operator}
	for _, c := range []struct {
		self  *access.Credentials
		actor string
		want  string
	}{
		{ann, "op", "leave --actor out, or --actor ann"},
		{ann, "ann", "credentials of an operator"},
		{&access.Credentials{Name: "ann", Role: access.Auditor}, "op", "credentials of an operator"},
		{nil, "op", "credentials of an operator"},
	} {
		if got := operatorHint(c.self, c.actor); !strings.Contains(got, c.want) {
			t.Errorf("%+v as %s: %s", c.self, c.actor, got)
		}
	}
}
