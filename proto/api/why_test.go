package api

import "testing"

// TestWhatAConditionReadIsSaid: a fact that was only asked for, or too large to keep, was there.
func TestWhatAConditionReadIsSaid(t *testing.T) {
	for want, line := range map[string]ReadLine{
		"0":       {Name: `facts["stock"]`, Value: "0", Record: "7"},
		"present": {Name: `facts["stock"]`, Record: "7"},
		"unknown": {Name: `facts["stock"]`},
	} {
		if got := line.Known(); got != want {
			t.Errorf("%+v is said to be %s, want %s", line, got, want)
		}
	}
}
