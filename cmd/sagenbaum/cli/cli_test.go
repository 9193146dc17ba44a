package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/access"
)

func TestTablesAlignAndColourKeepsThemAligned(t *testing.T) {
	var plain, colored strings.Builder
	for _, c := range []struct {
		out *strings.Builder
		pen Pen
	}{{&plain, Pen{}}, {&colored, Pen{Color: true}}} {
		tab := Table{Head: []string{"A", "STATE", "Z"}, Paint: func(column int, cell string) string {
			if column == 1 {
				return c.pen.State(cell)
			}
			return cell
		}}
		tab.Add("ä", "open", "1")
		tab.Add("long", "quarantined", "2")
		tab.Write(c.out)
	}
	want := "A     STATE        Z\nä     open         1\nlong  quarantined  2\n"
	if plain.String() != want {
		t.Errorf("table is\n%swant\n%s", plain.String(), want)
	}
	stripped := strings.NewReplacer("\x1b[36m", "", "\x1b[31;1m", "", "\x1b[0m", "").Replace(colored.String())
	if stripped != want || !strings.Contains(colored.String(), "\x1b[31;1mquarantined\x1b[0m") {
		t.Errorf("coloured table is %q", colored.String())
	}
}

// What the table of roles gives a user, and the server refuses, is told apart from what it does not
// give.
func TestWhatARoleGivesAndAServerRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		role    access.Role
		denied  string
		granted bool
	}{
		{access.Auditor, `Permissions Violation for Publish to "query.default.quarantine.ls"`, true},
		{access.Auditor, `Permissions Violation for Publish to "saga.default.operator.ana"`, false},
		{access.Source, `Permissions Violation for Publish to "query.default.quarantine.ls"`, false},
		{access.Auditor, `Permissions Violation for Subscription to "page.default.>"`, false},
	} {
		c := &Client{Tenant: "default", self: &access.Credentials{Name: "ana", Role: test.role, Tenant: "default"}}
		var f *Failure
		if err := c.notAllowed(test.denied); !errors.As(err, &f) || f.Code != ExitNotAllowed || f.Granted != test.granted ||
			f.Hint == "" {
			t.Errorf("%s, %s: %+v", test.role, test.denied, f)
		}
	}
}
