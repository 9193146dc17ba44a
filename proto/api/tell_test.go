package api

import (
	"strings"
	"testing"
)

// TestALineOfOthersIsShort: a reason is one line, and cut where it is long.
func TestALineOfOthersIsShort(t *testing.T) {
	for _, c := range [][2]string{
		{"a\n b\tc", "a b c"}, {"", ""}, {strings.Repeat("é", 9), "éééé…"}, {"12345", "12345"},
	} {
		if got := Short(c[0], 5); got != c[1] {
			t.Errorf("%q is %q, want %q", c[0], got, c[1])
		}
	}
	w := Why{Plan: "p", Steps: []WhyStep{{Plan: "p", Lease: "plan.failed", Said: "failed", At: "8.0-cd",
		Reason: strings.Repeat("no ", 100)}}}
	lines := w.Step(0)
	if text := lines[0].String(); len(text) > 220 || !strings.HasSuffix(text, "… (8.0-cd)") {
		t.Errorf("%q", text)
	}
	if text := lines[1].String(); text !=
		"that turned lease plan.failed of plan p true, and was held: the cascade was cut" {
		t.Errorf("%q", text)
	}
}
