package compile_test

import (
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

func restoring(change func(*contract.Contract)) contract.Contract {
	c := contract.Contract{Capability: "page.update", Class: contract.Compensable, Late: contract.LateNever,
		Probe: &contract.Probe{Call: "page.get", With: map[string]any{"page": "=input.page"}},
		Inverse: &contract.Inverse{Call: "page.restore", Unchanged: "probe.etag == output.etag",
			With: map[string]any{"page": "=input.page", "if_match": "=probe.etag"}}}
	change(&c)
	return c
}

// TestUnchangedIsRegistered: the condition goes into the pair, and what the undo binds may read
// what the probe found; without the condition nothing was found.
func TestUnchangedIsRegistered(t *testing.T) {
	compiled, err := compile.Contract(restoring(func(*contract.Contract) {}), triggers.NewCache(64))
	if err != nil {
		t.Fatal(err)
	}
	_, inverse := compiled.Pair("p", "a", "", &pb.ForwardRegistered{Capability: "page.update"})
	if got := inverse.GetCompensationRegistered().Unchanged; got != "probe.etag==output.etag" {
		t.Error(got)
	}
	if !compiled.ReadsOutput() {
		t.Error("what the condition reads of an output that is too large is not kept")
	}
	const at = "contract[page.update].inverse."
	for _, c := range []struct {
		field, problem string
		change         func(*contract.Contract)
	}{
		{at + "unchanged", "without a probe", func(c *contract.Contract) {
			c.Probe, c.Inverse.With = nil, map[string]any{"page": "=input.page"}
		}},
		{at + "unchanged", "reads verify", func(c *contract.Contract) { c.Inverse.Unchanged = "verify.ok" }},
		{at + "unchanged", "the result is string", func(c *contract.Contract) { c.Inverse.Unchanged = "'x'" }},
		{at + "unchanged", "actuator memory", func(c *contract.Contract) {
			c.Inverse.Call, c.Inverse.Actuator = "fact.retract", contract.ActuatorMemory
			c.Inverse.With = map[string]any{"key": "=input.page"}
		}},
		{at + "with.if_match", "probe", func(c *contract.Contract) { c.Inverse.Unchanged = "" }},
		{"contract[page.update].probe.with.page", "probe", func(c *contract.Contract) {
			c.Probe.With = map[string]any{"page": "=probe.page"}
		}},
	} {
		_, err := compile.Contract(restoring(c.change), triggers.NewCache(64))
		wantRefused(t, err, c.field, c.problem)
	}
}

// TestAnExampleSaysWhatIsUnchanged: lint holds the condition to what the example wants of it.
func TestAnExampleSaysWhatIsUnchanged(t *testing.T) {
	const text = head + "capability: a.create\nclass: compensable\nlate: never\nprobe: {call: a.get, " +
		`answer: 'probe.found ? "present" : "absent"'}` + "\n" +
		"inverse: {call: a.b, with: {id: =input.id}, unchanged: probe.v == output.v}\n" +
		"examples: [{name: x, input: {id: 1}, output: {v: 1}, probes: [{output: {found: true, v: 2}, " +
		"presence: present, unchanged: WANT}]}]\n"
	if got := lint(t, strings.Replace(text, "WANT", "false", 1)); got != "" {
		t.Error(got)
	}
	if got := lint(t, strings.Replace(text, "WANT", "true", 1)); !strings.Contains(got, "probes[0].unchanged") {
		t.Error(got)
	}
}

// TestAnUndoThatPutsBackIsWarnedOf: it may overwrite what someone else has written since, in working
// memory as well, where nothing asks before it.
func TestAnUndoThatPutsBackIsWarnedOf(t *testing.T) {
	const text = head + "capability: a.update\nclass: compensable\nlate: never\n" +
		"before: {call: a.get, with: {id: =input.id}}\n"
	for inverse, want := range map[string]string{
		"{call: a.put, with: {v: =before.v}}":                                         "add unchanged",
		"{call: a.put, with: {v: =input.id}}":                                         "",
		"{actuator: memory, call: fact.assert, with: {key: k, value: =before.v}}":     "a key of its own",
		"{actuator: memory, call: fact.assert, with: {key: k, value: free}}":          "",
		"{actuator: memory, call: fact.retract, with: {key: '=\"k/\" + before.key'}}": "a key of its own",
	} {
		got := lint(t, text+"inverse: "+inverse+"\n")
		if strings.Contains(got, "it puts back") != (want != "") || !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %q", inverse, got, want)
		}
	}
}
