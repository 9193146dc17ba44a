package nearest

import (
	"strings"
	"testing"
)

func TestTheNearestNameIsNamed(t *testing.T) {
	names := []string{"facts", "plan", "verdict", "since", "at_least", "latest"}
	for name, want := range map[string]string{
		"fatcs": "facts", "plna": "plan", "verdicts": "verdict", "sinc": "since",
		"at_leats": "at_least", "latst": "latest", "facts": "facts",
		"x": "", "": "", "compensation": "", strings.Repeat("facts", 13): "",
	} {
		if want != "" {
			want = "did you mean " + want + "?"
		}
		if got := DidYouMean(name, names); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// Of two names that are as near, the first is named.
func TestTheFirstOfTwoIsNamed(t *testing.T) {
	if got := DidYouMean("plan", []string{"plam", "plat"}); got != "did you mean plam?" {
		t.Error(got)
	}
}
