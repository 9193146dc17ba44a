package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestAManualPageShowsItsTextAsItIs: nothing in a text is an order to troff.
func TestAManualPageShowsItsTextAsItIs(t *testing.T) {
	page := manual(&cobra.Command{Use: "x", Short: "a - b", Long: ".de is no macro\n'it' has a \\n and a --flag",
		Example: ".first\n  second"})
	for _, line := range []string{
		`x \- a \- b`, `\&.de is no macro`, `\(aqit\(aq has a \en and a \-\-flag`, `\&.first`, "  second",
	} {
		if !strings.Contains(page, "\n"+line+"\n") {
			t.Errorf("no line %q in:\n%s", line, page)
		}
	}
}
