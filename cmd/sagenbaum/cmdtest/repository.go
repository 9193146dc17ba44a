package cmdtest

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/demo"
)

// Look is the state of the demo's repositories, as lines.
func Look(t *testing.T, world demo.World) []string {
	t.Helper()
	state, err := demo.Snapshot(t.Context(), world)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// SameState fails the test where two states that Look returned differ.
func SameState(t *testing.T, what string, want, got []string) {
	t.Helper()
	if lines := demo.Difference(want, got); len(lines) != 0 {
		t.Errorf("%s: the world differs:\n%q", what, lines)
	}
}
