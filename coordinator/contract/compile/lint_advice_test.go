package compile_test

import (
	"strings"
	"testing"
)

// TestTheAdviceOfLintIsRight: whoever follows what a finding says gets rid of it, and of
// nothing else that was right: no further finding comes of it.
func TestTheAdviceOfLintIsRight(t *testing.T) {
	const (
		base  = head + "capability: a.create\nclass: compensable\n"
		probe = "probe: {call: a.get, answer: 'probe.found ? \"present\" : \"absent\"', external_ref: probe.id}\n"
		name  = `'=has(output.id) ? output.id : meta.external_ref'`
		blind = base + "late: never\non_in_doubt: compensate\n"
		found = "answer: 'probe.found ? \"present\" : \"absent\"'"
		named = "inverse: {call: a.b, with: {id: " + name + "}}\n"
		both  = "inverse: {call: a.b, with: {id: " + name + ", forward: =meta.forward_key}}\n"
	)
	for _, c := range []struct{ warning, before, after string }{
		{"keeps no before-image", head + "capability: a.delete\nclass: compensable\nlate: never\n" + probe +
			"inverse: {call: a.b, with: {id: =input.id}}\n", head + "capability: a.delete\nclass: compensable\nlate: never\n" +
			probe + "before: {call: a.get}\ninverse: {call: a.b, with: {id: =input.id}}\n"},
		{"no probe", base + "late: never\ninverse: {call: a.b}\n", base + "late: never\n" + probe + "inverse: {call: a.b}\n"},
		{"what someone else has written", base + "late: never\nbefore: {call: a.get}\n" + probe +
			"inverse: {call: a.b, with: {text: =before.text}}\n", base + "late: never\nbefore: {call: a.get}\n" + probe +
			"inverse: {call: a.b, with: {text: =before.text, if_match: =probe.etag}, unchanged: probe.etag == output.etag}\n"},
		{"no probe", base + "late: never\ninverse: {call: a.b}\n",
			base + "late: never\non_in_doubt: compensate\ninverse: {call: a.b}\n"},
		{"no probe", base + "late: never\ninverse: {call: a.b}\n",
			base + "late: never\non_in_doubt: quarantine\ninverse: {call: a.b}\n"},
		{"without its owner's word", base + "late: never\nfidelity: lossy\n" + probe + "inverse: {call: a.b}\n",
			base + "late: never\nfidelity: lossy\n" + probe + "inverse: {call: a.b, approve: owner}\n"},
		{"the forward itself", base + "late: never\n" + probe + "inverse: {call: a.create}\n",
			base + "late: never\n" + probe + "inverse: {call: a.undo}\n"},
		{"as soon as it opens", base + "late: never\nvalid_for: 1h\nwarn: 2h\n" + probe + "inverse: {call: a.b}\n",
			base + "late: never\nvalid_for: 1h\nwarn: 10m\n" + probe + "inverse: {call: a.b}\n"},
		{"no window to warn of", base + "late: never\nwarn: 2h\n" + probe + "inverse: {call: a.b}\n",
			base + "late: never\nvalid_until: input.end\nwarn: 2h\n" + probe + "inverse: {call: a.b}\n"},
		{"reads meta.forward_key", base + "timeout: 1s\nsettle: 1s\n" + probe + named,
			base + "timeout: 1s\nsettle: 1s\n" + probe + both},
		{"can no longer land", base + probe + both,
			base + "late: refused\n" + probe + both},
		{"can no longer land", base + probe + both,
			base + "timeout: 20s\nsettle: 1m\n" + probe + both},
		{"nothing is owed", base + "late: refused\non_late: compensate\n" + probe + both,
			base + "late: refused\n" + probe + both},
		{"the extra effect goes to its owner", base + "late: never\nprobe: {call: a.get, answer: 'probe.n > 1 ? " +
			`"duplicate" : "present"'` + ", external_ref: probe.id}\ninverse: {call: a.b, with: {id: =input.id}}\n",
			base + "late: never\nprobe: {call: a.get, answer: 'probe.n > 1 ? " + `"duplicate" : "present"'` +
				", external_ref: probe.id}\ninverse: {call: a.b, with: {id: " + name + "}}\n"},
		{"an answer without probe.state", base + "late: never\nprobe: {call: a.get, answer: 'probe.state == \"on\" ? " +
			`"present" : "absent"'` + "}\ninverse: {call: a.b}\n",
			base + "late: never\nprobe: {call: a.get, answer: 'probe.state == \"on\" ? \"present\" : " +
				`probe.state == "cancelled" ? "absent" : "inconclusive"'` + "}\ninverse: {call: a.b}\n"},
		{"an answer that says nothing", base + "late: never\n" + probe + "inverse: {call: a.b, done: '!has(error.code)'}\n",
			base + "late: never\n" + probe + "inverse: {call: a.b, done: 'has(error.code) && error.code == \"gone\"'}\n"},
		{"nothing names the effect", blind + "inverse: {call: a.b, with: {id: =output.id}}\n",
			base + "late: never\n" + probe + named},
		{"nothing names the effect", blind + "inverse: {call: a.b, with: {id: =output.id}}\n",
			blind + "inverse: {call: a.b, with: {id: =output.id, of: =input.id}}\n"},
		{"no argument reads that", base + "late: never\n" + probe + "inverse: {call: a.b, with: {id: =output.id}}\n",
			base + "late: never\n" + probe + named},
		{"the probe does not name it", base + "late: never\nprobe: {call: a.get, " + found + "}\n" +
			named,
			base + "late: never\n" + probe + named},
		{"the probe is not asked before", base + "late: refused\non_in_doubt: compensate\n" + probe + both,
			base + "late: refused\n" + probe + both},
		{"never fires", base + "late: never\n" + probe + "inverse: {call: a.b}\ntriggers: {t: before(action.at)}\n",
			base + "late: never\n" + probe + "inverse: {call: a.b}\n"},
	} {
		if got := lint(t, c.before); !strings.Contains(got, c.warning) {
			t.Errorf("%s\n  gives %q, want %q", c.before, got, c.warning)
		}
		if got := lint(t, c.after); got != "" {
			t.Errorf("who follows the advice on %q gets %q:\n%s", c.warning, got, c.after)
		}
	}
}

// TestAnActInTheMiddleIsWarnedOf: nothing undoes it, and no one was asked before.
func TestAnActInTheMiddleIsWarnedOf(t *testing.T) {
	const act = head + "capability: a.delete\nclass: irreversible\n"
	if got := lint(t, act); !strings.Contains(got, "warning: class: what is called delete is seldom the last act") {
		t.Errorf("lint says %q", got)
	}
	if got := lint(t, strings.Replace(act, "a.delete", "rm.all", 1)); !strings.Contains(got, "called rm is seldom") {
		t.Errorf("lint says %q of what is called as in a shell", got)
	}
	if got := lint(t, strings.Replace(act, "delete", "send", 1)); got != "" {
		t.Errorf("lint says %q of what is meant to be the last act", got)
	}
	if got := lint(t, act+"review: true\n"); got != "" {
		t.Errorf("lint says %q of an act that a supervisor decides about", got)
	}
}
