package compile_test

import (
	"strings"
	"testing"
)

// TestLintFindsWhatSilenceCountsAs: an answer that says nothing must be none, and a reader
// that seems to read it otherwise is named.
func TestLintFindsWhatSilenceCountsAs(t *testing.T) {
	const (
		says   = "an answer that says nothing, as "
		unread = "an answer without "
		bare   = head + "capability: a.create\nclass: compensable\nlate: never\n"
	)
	for text, want := range map[string]string{
		`answer: 'probe.state == "active" ? "present" : "absent"'`:                         unread + "probe.state is not absent",
		`answer: 'probe.state != "active" ? "absent" : "present"'`:                         unread + "probe.state is not absent",
		`answer: 'probe.state in ["active"] ? "present" : "absent"'`:                       unread + "probe.state is not absent",
		`answer: 'probe.items.exists(i, i.state == "a") ? "present" : "absent"'`:           unread + "what it reads is not absent",
		`answer: 'probe.items.all(i, i.state != "a") ? "absent" : "present"'`:              unread + "what it reads is not absent",
		`answer: 'probe.order.sha == output.sha ? "present" : "absent"'`:                   unread + "probe.order.sha",
		`answer: 'has(probe.id) ? "present" : "absent"'`:                                   says + "no output, is absent",
		`answer: 'probe.?state.orValue("gone") == "gone" ? "absent" : "present"'`:          says + "no output, is absent",
		`answer: '!has(probe.error) && !has(probe.id) ? "absent" : "present"'`:             says + "no output, is absent",
		`answer: 'size(probe) == 0 ? "absent" : "present"'`:                                says + "{}, is absent",
		`answer: '"id" in probe ? "present" : "absent"'`:                                   says + "{}, is absent",
		`answer: 'probe.found ? "present" : "absent"'`:                                     "",
		`answer: 'size(probe.items) == 0 ? "absent" : "present"'`:                          "",
		`answer: 'probe.state == "gone" ? "absent" : "inconclusive"'`:                      "",
		`answer: 'probe.sha == before.sha ? "absent" : "inconclusive"'`:                    "",
		`answer: 'probe.items.exists(i, i.?id.orValue("") == "x") ? "present" : "absent"'`: "",
	} {
		got := lint(t, bare+"probe: {call: a.get, "+text+"}\ninverse: {call: a.b}\n")
		if want == "" && got != "" || want != "" && !strings.Contains(got, "warning: probe.answer: "+want) {
			t.Errorf("%s gives %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		`verify: {call: a.get, ok: 'verify.state != "active"'}`:     "inverse.verify.ok: " + unread + "verify.state",
		`verify: {call: a.get, ok: '!has(verify.id)'}`:              "inverse.verify.ok: " + says + "no output",
		`verify: {call: a.get, ok: 'verify.state == "gone"'}`:       "",
		`verify: {call: a.get, ok: 'verify.sha == before.sha'}`:     "",
		`done: 'error.code != "locked"'`:                            "inverse.done: " + unread + "error.code",
		`done: 'result.state != "there" && error.code != "locked"'`: "inverse.done: " + unread + "result.state",
		`stop: '!(error.code in ["busy", "locked"])'`:               "inverse.stop: " + unread + "error.code",
		`done: '!has(result.id)'`:                                   "inverse.done: " + says + "no output",
		`done: 'error.code == "gone"'`:                              "",
		`stop: 'error.code in ["a", "b"]'`:                          "",
	} {
		got := lint(t, bare+"probe: {call: a.get}\ninverse: {call: a.b, "+text+"}\n")
		if want == "" && got != "" || want != "" && !strings.Contains(got, "warning: "+want) {
			t.Errorf("%s gives %q, want %q", text, got, want)
		}
	}
}
