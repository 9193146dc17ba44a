package compile_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Two files that mean the same have one digest.
func TestADigestIsOfTheMeaning(t *testing.T) {
	texts := []string{`
capability: a.b
class: compensable
lift: [x, y]
inverse: {call: a.undo, with: {id: =output.id, n: 10.10, list: [1, "=input.x"]}}
triggers: {late: after(plan.deadline)}
valid_for: 10d
`, `
# a comment
triggers:
  late: =after( plan.deadline ) // the same
valid_for: 240h
warn: 1d
page: default
lift:
- "y"
- x
- "y"
on_in_doubt: compensate
on_late: compensate
inverse:
  attempts: 5
  actuator: nats
  backoff: 1s
  backoff_max: 60s
  jitter: 20
  timeout: 0.5m
  with:
    list: [1, = input.x]
    n: 10.10
    id: {from: $.output.id}
  call: a.undo
class: compensable
capability: a.b
examples:
  - {input: {x: 1}, output: {id: 2}, arguments: {id: 2, n: 10.10, list: [1, 1]}}
`}
	var digests []string
	for _, text := range texts {
		c := mustCompile(t, parse(t, head+text)[0].Contract)
		digests = append(digests, string(c.Digest[:]))
	}
	inGo := mustCompile(t, contract.Contract{
		Capability: "a.b", Class: contract.Compensable, Lift: []string{"x", "y"}, ValidFor: 240 * time.Hour,
		Inverse: &contract.Inverse{Call: "a.undo", With: map[string]any{"id": "=output.id", "n": json.Number("10.10"),
			"list": []any{1, "=input.x"}}},
		Triggers: map[string]string{"late": "after(plan.deadline)"},
	})
	if digests[0] != digests[1] || digests[0] != string(inGo.Digest[:]) {
		t.Errorf("three spellings of one contract have the digests %x, %x", digests, inGo.Digest)
	}
	if inGo.Digest != ledger.ContractDigest(inGo.Canonical) {
		t.Error("the digest is not of the canonical form")
	}
}

func afterCommit(c *contract.Contract) {
	c.Triggers, c.ValidFor = map[string]string{"t": "plan.status == 'x'"}, time.Minute
	c.AfterCommit = []string{"t"}
}

func TestEveryFieldIsInTheDigest(t *testing.T) {
	jitter := 3
	seen := map[[32]byte]string{mustCompile(t, branch()).Digest: "none"}
	for name, f := range map[string]change{
		"capability":      func(c *contract.Contract) { c.Capability = "x" },
		"fidelity":        func(c *contract.Contract) { c.Fidelity = "" },
		"no before":       func(c *contract.Contract) { c.Before = nil },
		"before":          func(c *contract.Contract) { c.Before.Call = "x" },
		"before with":     func(c *contract.Contract) { c.Before.With["x"] = 1 },
		"before timeout":  func(c *contract.Contract) { c.Before.Timeout = time.Millisecond },
		"before attempts": func(c *contract.Contract) { c.Before.Attempts = 1 },
		"before backoff":  func(c *contract.Contract) { c.Before.Backoff = time.Millisecond },
		"inverse":         func(c *contract.Contract) { c.Inverse.Call = "x" },
		"with":            func(c *contract.Contract) { c.Inverse.With["sha"] = "=input.sha" },
		"literal":         func(c *contract.Contract) { c.Inverse.With["force"] = "true" },
		"worker":          func(c *contract.Contract) { c.Inverse.WorkerVersion = "2" },
		"agent":           func(c *contract.Contract) { c.Inverse.Agent = &contract.Agent{Tools: []string{"a", "b"}} },
		"prompt": func(c *contract.Contract) {
			c.Inverse.Agent = &contract.Agent{Tools: []string{"a", "b"}, Prompt: "x"}
		},
		"turns": func(c *contract.Contract) {
			c.Inverse.Agent = &contract.Agent{Tools: []string{"a", "b"}, MaxTurns: 3}
		},
		"model": func(c *contract.Contract) {
			c.Inverse.Agent = &contract.Agent{Tools: []string{"a", "b"}, Model: "x"}
		},
		"attempts":    func(c *contract.Contract) { c.Inverse.Attempts = 2 },
		"backoff":     func(c *contract.Contract) { c.Inverse.Backoff = 2 * time.Millisecond },
		"backoff max": func(c *contract.Contract) { c.Inverse.BackoffMax = time.Hour },
		"jitter":      func(c *contract.Contract) { c.Inverse.Jitter = &jitter },
		"timeout":     func(c *contract.Contract) { c.Inverse.Timeout = 2 * time.Millisecond },
		"dedupe":      func(c *contract.Contract) { c.Inverse.Dedupe = 2 * time.Millisecond },
		"done":        func(c *contract.Contract) { c.Inverse.Done = "true" },
		"stop":        func(c *contract.Contract) { c.Inverse.Stop = "true" },
		"approve": func(c *contract.Contract) {
			c.Inverse.Approve = contract.ApproveOwner
		}, "no verify": func(c *contract.Contract) { c.Inverse.Verify = nil },
		"verify": func(c *contract.Contract) { c.Inverse.Verify.Call = "x" },
		"ok":     func(c *contract.Contract) { c.Inverse.Verify.Ok = "true" },
		"verify with": func(c *contract.Contract) {
			c.Inverse.Verify.With = map[string]any{"x": 1}
		}, "verify timeout": func(c *contract.Contract) { c.Inverse.Verify.Timeout = time.Millisecond },
		"probe": func(c *contract.Contract) { c.Probe.Call = "x" }, "no probe": func(c *contract.Contract) { c.Probe = nil },
		"answer":       func(c *contract.Contract) { c.Probe.Answer = "" },
		"external ref": func(c *contract.Contract) { c.Probe.ExternalRef = "probe.x" },
		"in doubt":     func(c *contract.Contract) { c.OnInDoubt = contract.InDoubtQuarantine },
		"late":         func(c *contract.Contract) { c.OnLate = contract.LateQuarantine },
		"valid for":    func(c *contract.Contract) { c.ValidFor = time.Second },
		"valid until":  func(c *contract.Contract) { c.ValidUntil = "input.t" },
		"warn":         func(c *contract.Contract) { c.Warn = time.Millisecond },
		"lift":         func(c *contract.Contract) { c.Lift = []string{"x"} },
		"triggers": func(c *contract.Contract) {
			c.Triggers = map[string]string{"t": "plan.status == 'x'"}
		}, "page": func(c *contract.Contract) { c.Page = "x" },
		"after commit": afterCommit,
		"review":       func(c *contract.Contract) { c.Review = true }, "review timeout": func(c *contract.Contract) {
			c.Review,
				c.ReviewTimeout = true, time.Millisecond
		},
		"class": func(c *contract.Contract) {
			c.Class, c.Before, c.Inverse, c.Probe = contract.Irreversible, nil, nil, nil
		},
	} {
		c := mustCompile(t, changed(f))
		if other, ok := seen[c.Digest]; ok {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[c.Digest] = name
	}
}

// The canonical form is part of what a ledger keeps: a change of it is a change of
// every digest.
func TestTheCanonicalFormIsFrozen(t *testing.T) {
	const want = `{"before":{"attempts":3,"backoff":1000000000,"call":"git.branch.get","timeout":30000000000,"with":{"name":"=input.name"}},` +
		`"capability":"git.branch.create","class":"compensable","fidelity":"exact",` +
		`"inverse":{"actuator":"nats","attempts":5,"backoff":1000000000,"backoff_max":60000000000,"call":"git.branch.delete","jitter":20,"timeout":30000000000,` +
		`"verify":{"attempts":3,"backoff":1000000000,"call":"git.branch.get","ok":"verify.found==false","timeout":30000000000},"with":{"force":true,"sha":"=output.sha"}},` +
		`"on_in_doubt":"probe","on_late":"compensate","page":"default",` +
		`"probe":{"answer":"probe.found?\"present\":\"absent\"","attempts":3,"backoff":1000000000,"call":"git.branch.get","timeout":30000000000}}`
	c := mustCompile(t, branch())
	if string(c.Canonical) != want {
		t.Errorf("canonical form\n%s\nwant\n%s", c.Canonical, want)
	}
	if got := hex.EncodeToString(c.Digest[:]); got != goldenDigest {
		t.Errorf("digest %s, want %s", got, goldenDigest)
	}
	plain, err := branch().Canonical()
	if err != nil || string(plain) != want {
		t.Errorf("without checks it is %s (%v)", plain, err)
	}
}

const goldenDigest = "04979c9bec363b379b0244063a2f7c4d96d5c7f33f6598591d786323f50dc769"

func TestWhatIsPublishedCanBeReadBack(t *testing.T) {
	for _, s := range workedSources(t) {
		c := mustCompile(t, s.Contract)
		back, err := contract.Decode(c.Canonical)
		if err != nil {
			t.Errorf("%s: %v", s.Capability, err)
			continue
		}
		if again := mustCompile(t, back); again.Digest != c.Digest {
			t.Errorf("%s comes back as\n%s\nfrom\n%s", s.Capability, again.Canonical, c.Canonical)
		}
	}
	for _, bad := range []string{``, `[]`, `{"capability":1}`, `{"colour":"red"}`, `{} {}`} {
		if _, err := contract.Decode([]byte(bad)); err == nil {
			t.Errorf("%q is read as a contract", bad)
		}
	}
}

// Literals reach the provider as they are written.
func TestLiteralsAreExact(t *testing.T) {
	for text, want := range map[string]string{
		`10.10`: `10.10`, `1.5`: `1.5`, `2.0`: `2.0`, `-0`: `-0`, `0`: `0`, `-7`: `-7`, `1e3`: `1e3`, `-1.50`: `-1.50`,
		`123456789012345678901234567890`: `123456789012345678901234567890`, `9223372036854775808`: `9223372036854775808`,
		`-9223372036854775808`:                 `-9223372036854775808`,
		`0.1000000000000000055511151231257827`: `0.1000000000000000055511151231257827`,
		`1_000`:                                `1000`, `0x1f`: `31`, `0o17`: `15`, `+5`: `5`, `.5`: `0.5`, `5.`: `5.0`,
		`"10.10"`: `"10.10"`, `2026-12-01`: `"2026-12-01"`,
		`true`: `true`, `null`: `null`, `~`: `null`, `""`: `""`, `yes`: `"yes"`,
		`"a\"\\\u0001\n😀é</b>"`: `"a\"\\\u0001\n😀é</b>"`,
		`[]`:                    `[]`, `{}`: `{}`, `[1, [2.50, {a: null}]]`: `[1,[2.50,{"a":null}]]`,
		`{b: 1, a: "=1 + 1"}`: `{"a":2,"b":1}`,
		`{"a b": 1, "": 2}`:   `{"":2,"a b":1}`, `"='='"`: `"="`, `" =x"`: `" =x"`,
	} {
		s := parse(t, head+"capability: a.b\nclass: compensable\ninverse:\n  call: a.c\n  with: {x: "+text+"}\n")[0]
		expression := registered(t, s.Contract).Bindings[0].Expression
		b, err := triggers.CompileBinding(expression)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := b.Evaluate(triggers.BindingVars{}); err != nil || string(got) != want {
			t.Errorf("%s is %s through %s (%v), want %s", text, got, expression, err, want)
		}
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"180d": 180 * 24 * time.Hour, "1d12h": 36 * time.Hour, "0.5d": 12 * time.Hour, "30s": 30 * time.Second,
		"10m":  10 * time.Minute,
		"1.5s": 1500 * time.Millisecond, "100ms": 100 * time.Millisecond, "0s": 0, "-1d": -24 * time.Hour,
		"-5s": -5 * time.Second,
	} {
		got, err := contract.ParseDuration(text)
		if err != nil || got != want {
			t.Errorf("%s is %v (%v), want %v", text, got, err, want)
		}
		if back, err := contract.ParseDuration(contract.FormatDuration(got)); err != nil || back != got {
			t.Errorf("%s is written as %s (%v)", text, contract.FormatDuration(got), err)
		}
	}
	for _, text := range []string{"", "5", "d", "1d-5s", "-1d5s", "1d+5s", "1dx", "106752d", "106751d24h", "2w", "NaNd",
		"Infd"} {
		if got, err := contract.ParseDuration(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
	for d, want := range map[time.Duration]string{0: "0s", time.Hour: "1h", 90 * time.Minute: "1h30m",
		36 * time.Hour: "1d12h", 61 * time.Second: "1m1s", time.Hour + time.Second: "1h0m1s"} {
		if got := contract.FormatDuration(d); got != want {
			t.Errorf("%d is written as %s, want %s", d, got, want)
		}
	}
}

func ExampleContract() {
	c, err := compile.Contract(contract.Contract{
		Capability: "git.branch.create", Class: contract.Compensable,
		Inverse: &contract.Inverse{Call: "git.branch.delete",
			With: map[string]any{"name": "=input.name", "sha": "=output.sah"}, Done: `error.kode == "gone"`},
		ValidFor: 90 * 24 * time.Hour, ValidUntil: "imput.end",
	}, triggers.NewCache(64))
	fmt.Println(c == nil, strings.Replace(err.Error(), "cannot compile expression: ", "", 1))
	// Output: true refused: contract[git.branch.create].valid_until: 1:1: undeclared name "imput"; did you mean input?
}
