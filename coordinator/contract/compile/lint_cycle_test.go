package compile_test

import (
	"strings"
	"testing"
)

// TestLintWarnsOfUndosThatTurnEachOther, once for each cycle; a chain that does not
// come round is none.
func TestLintWarnsOfUndosThatTurnEachOther(t *testing.T) {
	one := func(capability, key, trigger string) string {
		return head + "capability: " + capability +
			"\nclass: compensable\non_in_doubt: quarantine\ninverse: {call: fact.assert, with: {key: " + key +
			", value: 1}}\ntriggers:\n  moved: '" + trigger + "'\n"
	}
	for name, c := range map[string]struct{ text, want string }{
		"itself": {one("a.b", "undone/a", `facts["undone/a"] > 0`),
			`triggers[moved]: undos that turn each other's triggers, a cycle of 1: a.b -> a.b; a condition`},
		"two": {one("a.b", "undone/a", `facts["undone/c"] > 0`) + "---\n" +
			one("c.d", "undone/c", `"undone/a" in facts`), `a cycle of 2: a.b -> c.d -> a.b`},
		"built": {one("a.b", `'="undone/" + string(input.id)'`, `facts["undone/7"] > 0`), `a cycle of 1: a.b -> a.b`},
		"computed": {one("a.b", `'="undone/" + string(input.id)'`, `facts["undone/" + action.id] > 0`),
			`a cycle of 1: a.b -> a.b`},
		"a prefix": {one("a.b", "undone/a", `facts.exists("undone/", k, v, v > 0)`), `a cycle of 1: a.b -> a.b`},
		"a prefix of one that is built": {one("a.b", `'="undone/" + string(input.id)'`, `facts.count("undone/x") > 1`),
			`a cycle of 1: a.b -> a.b`},
		"another prefix": {one("a.b", "undone/a", `facts.count("done/") > 0`), ``},
		"a chain": {one("a.b", "undone/a", `facts["other"] > 0`) + "---\n" +
			one("c.d", "undone/c", `"undone/a" in facts`), ``},
		"no key":      {one("a.b", "=input.key", `facts["undone/7"] > 0`), ``},
		"of a worker": {strings.Replace(one("a.b", "undone/a", `facts["undone/a"] > 0`), "fact.assert", "note.write", 1), ``},
	} {
		got := lint(t, c.text)
		if n := strings.Count(got, "each other's"); n > 1 || n == 1 != (c.want != "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s\nwant %s", name, got, c.want)
		}
	}
}
