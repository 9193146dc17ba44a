package compile_test

import (
	"strings"
	"testing"
)

// TestLintFindsAnUndoWithoutAName: when the reply of its forward was lost, and nothing tells
// which effect it is to remove.
func TestLintFindsAnUndoWithoutAName(t *testing.T) {
	const (
		nothing = "in doubt nothing names the effect"
		either  = `'=has(output.id) ? output.id : meta.external_ref'`
		named   = `probe: {call: a.get, answer: 'probe.found ? "present" : "absent"', external_ref: probe.id}` + "\n"
		unnamed = `probe: {call: a.get, answer: 'probe.found ? "present" : "absent"'}` + "\n"
		forward = ", forward: =meta.forward_key"
	)
	for _, c := range []struct{ probe, with, late, want string }{
		{"on_in_doubt: compensate\n", "{id: =output.id}", "never", "warning: inverse.with: " + nothing},
		{"on_in_doubt: compensate\n", "{id: " + either + ", n: =input.n}", "never", "warning: inverse.with: " + nothing},
		{"on_in_doubt: compensate\n", "{id: =output.id" + forward + "}", "refused", "warning: inverse.with: " + nothing},
		{unnamed, "{id: " + either + "}", "never", "warning: probe: " + nothing},
		{named, "{id: =output.id}", "never", "no argument reads that"},
		{named + "on_in_doubt: compensate\n", "{id: " + either + forward + "}", "refused",
			"warning: on_in_doubt: the probe is not asked before"},
		{named, "{id: " + either + forward + "}", "refused", ""},
		{named, "{id: " + either + "}", "never", ""},
		{"probe: {call: a.get}\n", "{id: " + either + "}", "never", ""},
		{"on_in_doubt: quarantine\n", "{id: =output.id}", "never", ""},
		{"on_in_doubt: compensate\n", "{name: =input.name, sha: =output.sha}", "never", ""},
		{"on_in_doubt: compensate\n", "{id: '=output.?id'}", "never", ""},
		{"on_in_doubt: compensate\n", "{forward: =meta.forward_key}", "never", ""},
		{"on_in_doubt: compensate\n", `{of: '=actions["order"].output.id'}`, "never", "warning: inverse.with: " + nothing},
		{"on_in_doubt: compensate\n", `{of: '=facts["order"]'}`, "never", "warning: inverse.with: " + nothing},
		{"on_in_doubt: compensate\n", `{of: '=actions["order"].output.id', id: =input.id}`, "never", ""},
		{"on_in_doubt: compensate\n", "{of: =plan.input.of}", "never", ""},
	} {
		got := lint(t, head+"capability: a.create\nclass: compensable\n"+c.probe+"inverse: {call: a.undo, with: "+c.with+
			"}\nlate: "+c.late+"\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%+v gives %q", c, got)
		}
	}
}
