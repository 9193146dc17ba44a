package compile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"
)

// lint returns the findings on text, one a line.
func lint(t *testing.T, text string) string {
	t.Helper()
	var lines []string
	for _, f := range compile.Lint(parse(t, text)) {
		lines = append(lines, f.String())
	}
	return strings.Join(lines, "\n")
}

const undo = head + "capability: a.create\nclass: compensable\nprobe: {call: a.get}\n" // lines 1 to 5

// A finding points at the character that is wrong, however the text is quoted.
func TestFindingsPointIntoTheExpression(t *testing.T) {
	for text, want := range map[string]string{
		"inverse: {call: a.b, done: true, stop: error.code == 1 + x}":                `6:58: error: inverse.stop: undeclared name "x"`,
		"inverse:\n  call: a.b\n  with:\n    id: =input.id + ouput.x":                `9:21: error: inverse.with.id: undeclared name "ouput"; did you mean output?`,
		"inverse:\n  call: a.b\n  with:\n    id: \"=input.e + \\\"\\u00e9\\\" + x\"": `9:34: error: inverse.with.id: undeclared name "x"`,
		"inverse:\n  call: a.b\n  with:\n    id: '=''it'' + x'":                      `9:20: error: inverse.with.id: undeclared name "x"`,
		"inverse:\n  call: a.b\n  with:\n    id: |\n      =input.id +\n        x":    `11:9: error: inverse.with.id: undeclared name "x"`,
		"inverse:\n  call: a.b\n  done: >-\n    error.code ==\n    \"a\" ||\n    x":  `11:5: error: inverse.done: undeclared name "x"`,
		"inverse:\n  call: a.b\n  done: >-\n\n    error.code == \"a\"\n\n    || x\n": `12:8: error: inverse.done: undeclared name "x"`,
		"inverse:\n  call: a.b\n  done: error.code ==\n    \"a\" ||\n    x":          `10:5: error: inverse.done: undeclared name "x"`,
		"inverse:\n  call: a.b\n  done: \"true ||\n    \\\n    x\"":                  `10:5: error: inverse.done: undeclared name "x"`,
		"inverse:\n  call: a.b\n  done: = true || x":                                 `8:19: error: inverse.done: undeclared name "x"`,
		"inverse:\n  call: a.b\n  with:\n    a:\n      - b: [1, =x]":                 `10:17: error: inverse.with.a[0].b[1]: undeclared name "x"`,
		"inverse:\n  call: a.b\n  with:\n    id: {from: $.outptu.id}":                `9:16: error: inverse.with.id.from: "$.outptu.id": no "outptu"`,
		"inverse:\n  call: a.b\n  attempts: 900":                                     `8:13: error: inverse.attempts: 900; want 1 to 100`,
		"inverse:\n  call: a.b\ntriggers:\n  late: after(plan.deadlin)":              `9:19: error: triggers[late]: plan has no field deadlin; did you mean deadline?`,
		"fidelity: exact":                 `3:1: error: inverse: missing; want what undoes it`,
		"inverse: {call: a.b, done: '1'}": `6:28: error: inverse.done: the result is int; want a bool`,
	} {
		if got := lint(t, undo+text+"\n"); !strings.Contains(got, "file.yaml:"+want) && !(text == "fidelity: exact" && strings.Contains(got, "error: inverse: missing")) {
			t.Errorf("%s\n  gives\n%s\n  want %s", text, got, want)
		}
	}
}

func TestLintSaysWhatIsProbablyNotMeant(t *testing.T) {
	bare := func(more string) string { return head + "capability: a.create\nclass: compensable\n" + more }
	doc := func(capability, more string) string {
		return head + "capability: " + capability + "\nclass: compensable\n" + more + "late: never\n"
	}
	const probed = "probe: {call: a.get}\n"
	for _, c := range []struct{ text, want string }{
		{doc("git.branch.delete", probed+"inverse: {call: a.b}\n"), `3:13: warning: capability: git.branch.delete keeps no before-image: after the delete there is nothing to restore; add before`},
		{doc("order-update", probed+"inverse: {call: a.b}\n"), `warning: capability: order-update keeps no before-image`},
		{doc("a.create", "inverse: {call: a.b}\n"), `4:8: warning: class: no probe: an action in doubt is undone blindly`},
		{doc("a.create", "on_in_doubt: quarantine\ninverse: {call: a.b}\n"), ``},
		{doc("a.create", "on_in_doubt: compensate\ninverse: {call: a.b}\n"), ``},
		{bare("late: refused\ninverse: {call: a.b, with: {forward: =meta.forward_key}}\n"), ``},
		{bare("late: refused\non_late: quarantine\ninverse: {call: a.b, with: {forward: [{key: =meta.forward_key}]}}\n"), `6:10: warning: on_late: nothing is owed for what completes late`},
		{bare("late: refused\ninverse: {call: a.b, with: {id: =output.id}}\n"), `5:7: error: late: refused, and no argument of the inverse reads meta.forward_key; want inverse.with: {forward: =meta.forward_key}`},
		{bare("late: refused\ninverse: {call: a.b, with: {forward_key: text}}\n"), `5:7: error: late: refused, and no argument`},
		{bare("late: refused\ninverse: {call: a.b, with: {forward: =input.forward_key}}\n"), `5:7: error: late: refused, and no argument`},
		{bare("late: refused\ninverse: {call: a.b, with: {forward: '=\"meta.forward_key\"'}}\n"), `5:7: error: late: refused, and no argument`},
		{bare("late: refused\ninverse: {call: a.b, with: {all: =meta}}\n"), ``},
		{bare("late: soon\ninverse: {call: a.b}\n"), `5:7: error: late: "soon"; want refused or never`},
		{bare("late: never\nsettle: 3s\ninverse: {call: a.b}\n"), `6:9: error: settle: given beside late: never`},
		{bare(probed + "settle: 31d\ninverse: {call: a.b}\n"), `6:9: error: settle: 744h0m0s; want 1ms to 30d`},
		{bare(probed + "unserved_after: 31d\ninverse: {call: a.b}\n"), `6:17: error: unserved_after: 744h0m0s; want 1ms to 30d`},
		{bare(probed + "inverse: {call: a.b, timeout: 30us}\n"), `6:31: error: inverse.timeout: 30µs; want 1ms to 1d`},
		{bare(probed + "valid_for: 36501d\ninverse: {call: a.b}\n"), `6:12: error: valid_for: 876024h0m0s; want 1ms to 36500d`},
		{bare(probed + "grace: 2h\ninverse: {call: a.b}\n"), `6:8: error: grace: 2h0m0s; want 1ms to 1h`},
		{bare(probed + "timeout: 2d\ninverse: {call: a.b}\n"), `6:10: error: timeout: 48h0m0s; want 1ms to 1d`},
		{bare(probed + "timeout: 10s\ninverse: {call: a.b}\n"), `7:10: warning: inverse.with: no argument reads meta.forward_key`},
		{bare(probed + "timeout: 10s\ninverse: {call: a.b, with: {forward: =meta.forward_key}}\n"), ``},
		{bare(probed + "inverse: {call: a.b, with: {forward: =meta.forward_key}}\n"), `warning: late: nothing says when a forward that was given up can no longer land: an undo in doubt waits 30s`},
		{head + "capability: a.b\nclass: irreversible\nlate: refused\n", `5:7: error: late: given for an irreversible capability`},
		{doc("a.create", probed+"inverse: {call: a.b}\n"), ``},
		{doc("a.create", probed+"fidelity: lossy\ninverse: {call: a.b}\n"), `6:11: warning: fidelity: a lossy undo runs without its owner's word`},
		{doc("a.create", probed+"fidelity: lossy\ninverse: {call: a.b, approve: owner}\n"), ``},
		{doc("a.create", probed+"inverse: {call: a.create}\n"), `6:17: warning: inverse.call: the inverse is the forward itself`},
		{doc("a.create", probed+"warn: 1d\ninverse: {call: a.b}\n"), `6:7: warning: warn: there is no window to warn of`},
		{doc("a.create", probed+"warn: 1d\nvalid_for: 24h\ninverse: {call: a.b}\n"), `6:7: warning: warn: a window of 1d is announced as soon as it opens`},
		{doc("a.create", "probe: {call: a.get, answer: 'probe.n > 1 ? \"duplicate\" : \"present\"'}\ninverse: {call: a.b, with: {id: =output.id}}\n"), `5:30: warning: probe.answer: it may be duplicate, and no argument of the inverse reads meta.external_ref`},
		{doc("a.create", "inverse: {call: a.b}\nask_after: 5m\n"), `error: ask_after: given without a probe`},
		{doc("a.create", "inverse: {call: a.b, dedupe: 1d}\n"), `5:30: error: inverse.dedupe: given without a probe`},
		{doc("a.create", probed+"inverse: {call: a.b, agent: {tools: [a.x], prompt: Undo.}}\n"), `6:52: error: inverse.agent.prompt: given with 1 tools`},
		{doc("a.create", probed+"inverse: {call: a.b, with: {key: =meta.kee}}\n"), `6:34: error: inverse.with.key: meta.kee is null here, always; did you mean key?`},
		{doc("a.create", probed+"inverse: {call: a.b, with: {o: '=[plan[\"ownr\"]]'}}\n"), `error: inverse.with.o: plan.ownr is null here, always; did you mean owner?`},
		{doc("a.create", probed+"inverse: {call: a.b, done: error.status == 404}\n"), `error: inverse.done: error.status is null here, always; want code, message`},
		{doc("a.create", probed+"before: {call: a.c, with: {ref: =meta.external_ref}}\ninverse: {call: a.b}\n"), `error: before.with.ref: meta.external_ref is null here, always; want action`},
		{doc("a.create", probed+"before: {call: a.c, with: {k: =meta.key}}\ninverse: {call: a.b, with: {a: '=plan.labels[0].key', b: =meta.forward_at_ms}}\n"), ``},
		{head + "capability: a.b\nclass: irreversible\ninverse: {call: a.c}\n", `5:10: error: inverse: given for an irreversible capability`},
		{doc("a.create", probed+"inverse: {call: a.b}\n") + "---\n" + doc("a.create", probed+"inverse: {call: a.b}\n"), `11:13: error: capability: a.create is declared twice; the first is file.yaml:1`},
	} {
		wantLint(t, c.text, c.want)
	}
}

// probedDoc is a contract with a probe.
func probedDoc(more string) string {
	return head + "capability: a.create\nclass: compensable\nprobe: {call: a.get}\n" + more + "late: never\n"
}

func wantLint(t *testing.T, text, want string) {
	t.Helper()
	got := lint(t, text)
	if want == "" && got != "" || !strings.Contains(got, want) {
		t.Errorf("%s\n  gives\n%s\n  want %q", text, got, want)
	}
}

func TestLintSaysWhichTriggersAreProbablyNotMeant(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{probedDoc("inverse: {call: a.b}\ntriggers: {t: plan.status == \"open\"}\n"), `7:15: error: triggers[t]: fires at once`},
		{probedDoc("inverse: {call: a.b}\ntriggers: {t: \"!seen('paid')\"}\n"), `warning: triggers[t]: never fires`},
		{probedDoc("inverse: {call: a.b}\ntriggers: {t: before(action.at)}\n"), `warning: triggers[t]: never fires`},
		{probedDoc("inverse: {call: a.b}\ntriggers: {t: verdict.outcome == \"blok\"}\n"), `warning: triggers[t]: verdict.outcome is never "blok"; want one of allow, block, redirect`},
		{probedDoc("inverse: {call: a.b}\ntriggers: {t: action.input.amount > 5}\n"), `7:15: error: triggers[t]: reads action.input.amount, which is payload; want lift: [amount]`},
		{probedDoc("lift: [amount]\ninverse: {call: a.b}\ntriggers: {t: action.input.amount > 5}\n"), ``},
		{probedDoc("lift: [amount]\ninverse: {call: a.b}\ntriggers: {t: action.input.amount > 5}\nexamples: [{input: {amount: 7}}]\n"), `8:15: error: triggers[t]: fires at once`},
		{probedDoc("lift: [n]\ninverse: {call: a.b}\ntriggers: {t: 'facts[\"paid/\" + action.n] == true'}\nexamples: [{input: {n: 7}}]\n"), `8:15: error: triggers[t]: can never be true`},
		{probedDoc("lift: [n]\ninverse: {call: a.b}\ntriggers: {t: 'absent_for(\"paid/\" + action.n, action.at, duration(\"1h\"))'}\nexamples: [{input: {n: 7}}]\n"), `8:15: error: triggers[t]: can never be true`},
		{probedDoc("lift: [n]\ninverse: {call: a.b}\n" +
			"triggers: {t: 'facts[\"paid/\" + action.output.n] == true'}\n" +
			"examples: [{input: {}, output: {n: 7}}]\n"), `8:15: error: triggers[t]: can never be true`},
		{probedDoc("lift: [n]\ninverse: {call: a.b}\n" +
			"triggers: {t: 'facts[\"paid/\" + string(action.output.n)] == true'}\n" +
			"examples: [{input: {}, output: {n: 7}}]\n"), ``},
		{probedDoc("inverse: {call: a.b}\ntriggers: {t: after(plan.deadline) || plan.status == \"failed\"}\n"), ``},
	} {
		wantLint(t, c.text, c.want)
	}
}

// Examples are run; what they want and do not get is an error at its line.
func TestExamplesAreRun(t *testing.T) {
	const text = undo + `late: never
inverse:
  call: a.undo
  with: {id: =output.id, n: =input.n, key: =meta.key}
  done: error.code == "gone"
  stop: error.code.startsWith("no") || error.code == "gone"
  verify: {call: a.get, with: {id: =output.id}, ok: verify.found == false && result.ok}
before: {call: a.look, with: {x: =input.x}}
valid_until: input.end
examples:
  - input: {n: 10.10, x: [1], end: "2026-12-01T00:00:00Z"}
    output: {id: i1}
    meta: {key: k}
%s
`
	for more, want := range map[string]string{
		`arguments: {id: i1, n: 10.10, key: k}`:                                                                              ``,
		`arguments: {id: i2, n: 10.10, key: k}`:                                                                              `19:21: error: examples[0].arguments.id: it is "i1"; the example wants "i2"`,
		`arguments: {id: i1, n: 10.1, key: k}`:                                                                               `19:28: error: examples[0].arguments.n: it is 10.10; the example wants 10.1`,
		`arguments: {id: i1, key: k}`:                                                                                        `error: examples[0].arguments: no n; the call is also given n`,
		`arguments: {id: i1, n: 10.10, key: k, more: 1}`:                                                                     `19:49: error: examples[0].arguments.more: the call is not given more`,
		`asks: {before: {x: [1]}, verify: {id: i1}, probe: {}}`:                                                              ``,
		`asks: {before: {x: [2]}}`:                                                                                           `19:24: error: examples[0].asks.before.x: it is [1]; the example wants [2]`,
		`valid_until: "2026-12-01T01:00:00+01:00"`:                                                                           ``,
		`valid_until: "2026-12-02T00:00:00Z"`:                                                                                `error: examples[0].valid_until: it is 2026-12-01T00:00:00Z; the example wants 2026-12-02T00:00:00Z`,
		`valid_until: soon`:                                                                                                  `error: examples[0].valid_until: "soon" is no RFC 3339 timestamp`,
		`probes: [{output: {presence: absent}, presence: absent}]`:                                                           ``,
		`probes: [{output: {presence: gone}, presence: inconclusive}]`:                                                       ``,
		`probes: [{output: {presence: present, external_ref: e}, presence: present, external_ref: e}]`:                       ``,
		`probes: [{output: {presence: present}, presence: absent}]`:                                                          `19:54: error: examples[0].probes[0].presence: it is present; the example wants absent`,
		`probes: [{output: {presence: present}, presence: present, external_ref: e}]`:                                        `error: examples[0].probes[0].external_ref: it is ""; the example wants e`,
		`probes: [{output: {presence: duplicate}, presence: inconclusive}]`:                                                  ``,
		`probes: [{output: {presence: duplicate, external_ref: 7}, presence: duplicate, external_ref: 7}]`:                   ``,
		`verifies: [{output: {found: false}, ok: false}]`:                                                                    `examples[0].verifies[0].ok: it is null; the example wants false`,
		`probes: [{output: {}, presence: there}]`:                                                                            `error: examples[0].probes[0].presence: "there"; present, absent`,
		`verifies: [{output: {found: false}, result: {ok: true}, ok: true}, {output: {found: true}, ok: false}]`:             ``,
		`verifies: [{output: {}, result: {ok: true}, ok: false}]`:                                                            `examples[0].verifies[0].ok: it is null; the example wants false`,
		`verifies: [{output: {found: true}, ok: true}]`:                                                                      `error: examples[0].verifies[0].ok: it is false; the example wants true`,
		`errors: [{error: {code: gone}, means: done}, {error: {code: nope}, means: stop}, {error: {code: x}, means: retry}]`: ``,
		`errors: [{error: {code: gone}, means: stop}]`:                                                                       `19:43: error: examples[0].errors[0].means: it is done; the example wants stop`,
	} {
		got := lint(t, fmt.Sprintf(text, "    "+more))
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s\n  gives\n%s\n  want %q", more, got, want)
		}
	}
	got := lint(t, head+"capability: a.create\nclass: irreversible\nexamples: [{probes: [{presence: absent}], verifies: [{ok: true}], arguments: {a: 1}}]\n")
	for _, want := range []string{"probes[0]: the contract has no probe", "verifies[0]: the contract has no verify", "arguments.a: the call is not given a"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\n  want %s", got, want)
		}
	}
}

// TestLintOfWhatIsBesideTheAction: a field that no action has, what a before call cannot know, and too
// much; and examples that give what is read.
func TestLintOfWhatIsBesideTheAction(t *testing.T) {
	const contract = head + "capability: a.create\nclass: compensable\nlate: never\non_in_doubt: quarantine\n"
	many := "[" + strings.Join(elements(17), ",") + "]"
	for with, want := range map[string]string{
		`{id: '=actions["order"].outptu.id'}`:          "actions.order.outptu is null here, always; did you mean output?",
		`{id: '=actions["order"].result'}`:             "actions.order.result is null here, always",
		`{id: '=actions["order"].output.id'}`:          "",
		`{id: '=` + many + `'}`:                        "its expressions read 17 facts; want at most 16",
		`{id: {from: "$.actions['order'].output.id"}}`: "",
		`{id: '=actions[input.of].output'}`:            "which of actions is computed",
		`{id: =input.id, all: '=facts'}`:               "all of facts at once",
	} {
		if got := lint(t, contract+"inverse: {call: a.undo, with: "+with+"}\n"); want == "" && got != "" ||
			!strings.Contains(got, want) {
			t.Errorf("%s gives %q, want %q", with, got, want)
		}
	}
	got := lint(t, contract+"before: {call: a.get, with: {id: =plan.input.id, of: '=actions[\"a\"].output'}}\n"+
		"inverse: {call: a.undo, with: {id: =before.id}, unchanged: probe.same}\nprobe: {call: a.find}\n")
	if !strings.Contains(got, "before.with.of: reads actions, which is not known here") {
		t.Error(got)
	}
	const example = `
examples:
  - input: {id: 1, of: order}
    plan: {id: p, input: {shop: north}}
    actions: {order: {output: {id: o-1}}}
    facts: {rate/eur: 1.10}
    arguments: {of: o-1, rate: 1.10, shop: north, id: %s}
`
	for id, want := range map[string]string{"1": "", "2": "it is 1; the example wants 2"} {
		got := lint(t, contract+`inverse: {call: a.undo, with: {id: =input.id, of: '=actions["order"].output.id', `+
			`rate: '=facts["rate/eur"]', shop: =plan.input.shop}}`+fmt.Sprintf(example, id))
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("an example with id %s gives %q, want %q", id, got, want)
		}
	}
}

// elements are expressions that read facts.
func elements(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf(`facts["k%d"]`, i))
	}
	return list
}
