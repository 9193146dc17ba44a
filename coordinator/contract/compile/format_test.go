package compile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
)

func TestWhatIsFormattedReadsBack(t *testing.T) {
	zero := 0
	contracts := []contract.Contract{branch(), {Capability: "a.b", Class: contract.Effectless},
		changed(func(c *contract.Contract) {
			c.Inverse.With = map[string]any{"n": 10.5, "s": "10", "x": " =1",
				"y": []any{nil, true, map[string]any{"a b": "=1+input.x",
					"": "#"}}, "e": map[string]any{}, "l": []any{}, "big": uint64(1) << 63, "ml": "a\nb: 'c'"}
			c.Inverse.Jitter, c.Inverse.Agent = &zero, &contract.Agent{Tools: []string{"a", "b"},
				Prompt: "Do it.\nThen stop: now.\n"}
			c.ValidFor, c.Review, c.Triggers = 36*time.Hour, true, map[string]string{"a": "after(plan.deadline)"}
		})}
	for _, s := range workedSources(t) {
		contracts = append(contracts, s.Contract)
	}
	for _, c := range contracts {
		written, err := contract.Format(c)
		if err != nil {
			t.Errorf("%s: %v", c.Capability, err)
			continue
		}
		if back := parse(t, string(written)); mustCompile(t, back[0].Contract).Digest != mustCompile(t, c).Digest {
			t.Errorf("%s is written as another contract:\n%s", c.Capability, written)
		}
	}
}

func TestDiffNamesTheFields(t *testing.T) {
	changes, err := contract.Diff(branch(), changed(func(c *contract.Contract) {
		c.Inverse.Attempts, c.Inverse.With["force"], c.Inverse.With["list"] = 8, "true", []any{"=1 + 1"}
		c.Probe, c.OnInDoubt, c.ValidFor = nil, contract.InDoubtQuarantine, 24*time.Hour
	}))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, c := range changes {
		lines = append(lines, fmt.Sprintf("%s: %s -> %s", c.Field, c.From, c.To))
	}
	want := `inverse.attempts: 5 -> 8
inverse.with.force: true -> "true"
inverse.with.list[0]:  -> =1 + 1
on_in_doubt: probe -> quarantine
probe.answer: probe.found ? "present" : "absent" -> 
probe.attempts: 3 -> 
probe.backoff: 1s -> 
probe.call: git.branch.get -> 
probe.timeout: 30s -> 
valid_for:  -> 1d
warn:  -> 2h24m`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("changes\n%s\nwant\n%s", got, want)
	}
	if same, err := contract.Diff(branch(), branch()); err != nil || len(same) > 0 {
		t.Errorf("a contract differs from itself: %v (%v)", same, err)
	}
}
