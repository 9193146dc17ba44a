package view

import (
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestACycleIsTheShortestThatComesAgain, of the same plans before others, and none
// where nothing comes again.
func TestACycleIsTheShortestThatComesAgain(t *testing.T) {
	for chain, want := range map[string]string{
		"a":                         "",
		"a b c d":                   "",
		"a b a":                     "cycle of 2: a -> b -> a, went round once",
		"x a b c a b c a b":         "cycle of 3: a -> b -> c -> a, went round 2 times",
		"a a a":                     "cycle of 1: a -> a, went round 2 times",
		"x1 a1:k b1:l a2:k b2:l":    "cycle of 2: a1 -> b1 -> a2, went round once, with other plans each time",
		"x1 o1:k/1 o2:k/2 o3:k/3":   "cycle of 1: o1 -> o2, went round 2 times, with other plans and facts each time",
		"x a:k/a b:k/b c:k/c d:k/d": "",
	} {
		var steps []api.WhyStep
		for word := range strings.FieldsSeq(chain) {
			plan, key, _ := strings.Cut(word, ":")
			steps = append(steps, api.WhyStep{Plan: plan, Lease: "watch", Key: key, Condition: plan[:1]})
			if key != "" {
				steps[len(steps)-1].Condition = "of " + key
			}
		}
		got := ""
		if cycle := cycleOf(steps); cycle != nil {
			got = cycle.String()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", chain, got, want)
		}
	}
}
