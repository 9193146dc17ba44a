package compile_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

type change = func(*contract.Contract)

// refusal is a change that makes a good contract a bad one, and what is said of it.
type refusal struct {
	field, problem string
	change         change
}

func wantRefusals(t *testing.T, refusals []refusal) {
	t.Helper()
	for _, c := range refusals {
		bad := changed(c.change)
		_, err := compile.Contract(bad, triggers.NewCache(64))
		wantRefused(t, err, "contract["+bad.Capability+"]."+c.field, c.problem)
	}
}

// inMemory makes a contract's inverse one in working memory.
func inMemory(c *contract.Contract) {
	c.Inverse = &contract.Inverse{Call: ledger.CapabilityRetract, Actuator: contract.ActuatorMemory,
		With: map[string]any{"key": "=input.branch"}}
}

// What working memory undoes is in the record like any other inverse.
func TestAnInverseInWorkingMemoryCompiles(t *testing.T) {
	compiled, err := compile.Contract(changed(inMemory), triggers.NewCache(64))
	if err != nil {
		t.Fatal(err)
	}
	_, r := compiled.Pair("p", "a", "", &pb.ForwardRegistered{})
	got := r.GetCompensationRegistered()
	if got.Actuator != ledger.ActuatorMemory || got.Capability != ledger.CapabilityRetract || len(got.Bindings) != 1 ||
		got.Bindings[0].Name != ledger.ArgumentKey {
		t.Fatalf("%v", got)
	}
	if err := ledger.Check(r, ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "a1", Plan: "p"}); err != nil {
		t.Fatal(err)
	}
}

func TestBadContractsAreRefused(t *testing.T) {
	minus := -1
	wantRefusals(t, []refusal{
		{"capability", `"git branch"`, func(c *contract.Contract) { c.Capability = "git branch" }},
		{"class", `"reversible"`, func(c *contract.Contract) { c.Class = "reversible" }},
		{"inverse", "missing", func(c *contract.Contract) { c.Inverse = nil }},
		{"inverse", "given for an irreversible", func(c *contract.Contract) { c.Class = contract.Irreversible }},
		{"inverse", "given for an effectless", func(c *contract.Contract) { c.Class = contract.Effectless }},
		{"probe", "given for an irreversible", func(c *contract.Contract) {
			c.Class, c.Inverse,
				c.Before = contract.Irreversible, nil, nil
		}},
		{"inverse.call", `""`, func(c *contract.Contract) { c.Inverse.Call = "" }},
		{"before.call", `"a b"`, func(c *contract.Contract) { c.Before.Call = "a b" }},
		{"probe.call", `""`, func(c *contract.Contract) { c.Probe.Call = "" }},
		{"inverse.verify.call", `""`, func(c *contract.Contract) { c.Inverse.Verify.Call = "" }},
		{"inverse.verify.ok", "missing", func(c *contract.Contract) { c.Inverse.Verify.Ok = "" }},
		{"fidelity", `"good"`, func(c *contract.Contract) { c.Fidelity = "good" }},
		{"on_in_doubt", `"ask"`, func(c *contract.Contract) { c.OnInDoubt = "ask" }},
		{"on_in_doubt", "there is none", func(c *contract.Contract) { c.Probe, c.OnInDoubt = nil, contract.InDoubtProbe }},
		{"on_late", `"never"`, func(c *contract.Contract) { c.OnLate = "never" }},
		{"ask_after", "without a probe", func(c *contract.Contract) { c.Probe, c.AskAfter = nil, time.Hour }},
		{"inverse.dedupe", "without a probe", func(c *contract.Contract) { c.Probe, c.Inverse.Dedupe = nil, time.Hour }},
		{"inverse.approve", `"me"`, func(c *contract.Contract) { c.Inverse.Approve = "me" }},
		{"inverse.actuator", `"shell"`, func(c *contract.Contract) { c.Inverse.Actuator = "shell" }},
		{"inverse.agent", "missing", func(c *contract.Contract) { c.Inverse.Actuator = contract.ActuatorAgent }},
		{"inverse.agent", "given for actuator nats", func(c *contract.Contract) {
			c.Inverse.Actuator, c.Inverse.Agent = contract.ActuatorNATS, &contract.Agent{Tools: []string{"a", "b"}}
		}},
		{"inverse.agent.tools", `"b c"`,
			func(c *contract.Contract) { c.Inverse.Agent = &contract.Agent{Tools: []string{"a", "b c"}} }},
		{"inverse.agent.max_turns", "-1",
			func(c *contract.Contract) { c.Inverse.Agent = &contract.Agent{Tools: []string{"a", "b"}, MaxTurns: -1} }},
		{"inverse.actuator", "nats for fact.retract",
			func(c *contract.Contract) { c.Inverse.Call = ledger.CapabilityRetract }},
		{"inverse.call", "with actuator memory", func(c *contract.Contract) { c.Inverse.Actuator = contract.ActuatorMemory }},
		{"inverse.with", "arguments", func(c *contract.Contract) { inMemory(c); c.Inverse.Call = ledger.CapabilityAssert }},
		{"inverse.with", "arguments", func(c *contract.Contract) { inMemory(c); c.Inverse.With["value"] = 1 }},
		{"inverse.dedupe", "given for actuator memory",
			func(c *contract.Contract) { inMemory(c); c.Inverse.Dedupe = time.Hour }},
		{"inverse.verify", "given for actuator memory", func(c *contract.Contract) {
			inMemory(c)
			c.Inverse.Verify = &contract.Verify{Call: "a.b", Ok: "true"}
		}},
		{"inverse.attempts", "101", func(c *contract.Contract) { c.Inverse.Attempts = ledger.AttemptsMax + 1 }},
		{"inverse.attempts", "-1", func(c *contract.Contract) { c.Inverse.Attempts = -1 }},
		{"inverse.timeout", "-1ns", func(c *contract.Contract) { c.Inverse.Timeout = -1 }},
		{"inverse.backoff", "25h0m0s", func(c *contract.Contract) { c.Inverse.Backoff = 25 * time.Hour }},
		{"inverse.backoff_max", "1m0s", func(c *contract.Contract) {
			c.Inverse.Backoff, c.Inverse.BackoffMax = time.Hour,
				time.Minute
		}},
		{"inverse.jitter", "-1", func(c *contract.Contract) { c.Inverse.Jitter = &minus }},
		{"inverse.worker_version", "65 bytes", func(c *contract.Contract) {
			c.Inverse.WorkerVersion = strings.Repeat("1",
				65)
		}},
		{"probe.attempts", "-1", func(c *contract.Contract) { c.Probe.Attempts = -1 }},
		{"valid_for", "1ms", func(c *contract.Contract) { c.ValidFor, c.Warn = time.Millisecond, 0 }},
		{"valid_for", "-1ns", func(c *contract.Contract) { c.ValidFor = -1 }},
		{"valid_for", "2562047h", func(c *contract.Contract) { c.ValidFor = math.MaxInt64 }},
		{"review_timeout", "without review", func(c *contract.Contract) { c.ReviewTimeout = time.Hour }},
		{"lift", "without a name", func(c *contract.Contract) { c.Lift = []string{""} }},
		{"page", `"a b"`, func(c *contract.Contract) { c.Page = "a b" }},
	})
}

func TestBadExpressionsAreRefused(t *testing.T) {
	many := map[string]any{}
	for i := range ledger.BindingsMax + 1 {
		many[fmt.Sprint("b", i)] = i
	}
	conditions := map[string]string{}
	for i := range ledger.TriggersMax + 1 {
		conditions[fmt.Sprint("t", i)] = `plan.status == "failed"`
	}
	deep := any("x")
	for range 40 {
		deep = []any{deep}
	}
	wantRefusals(t, []refusal{
		{"inverse.with", "65 arguments", func(c *contract.Contract) { c.Inverse.With = many }},
		{"inverse.with", "without a name", func(c *contract.Contract) { c.Inverse.With[""] = 1 }},
		{"inverse.with.sha", `undeclared name "outptu"; did you mean output?`,
			func(c *contract.Contract) { c.Inverse.With["sha"] = "=outptu.sha" }},
		{"inverse.with.sha", "undeclared name \"probe\"; it may read input, output, before, plan, meta, actions and facts",
			func(c *contract.Contract) { c.Inverse.With["sha"] = "=probe.sha" }},
		{"inverse.with.a.b[1]", "Syntax error",
			func(c *contract.Contract) { c.Inverse.With["a"] = map[string]any{"b": []any{1, "=input."}} }},
		{"inverse.with.a", "unsupported type", func(c *contract.Contract) { c.Inverse.With["a"] = make(chan int) }},
		{"inverse.with.a", "unsupported value", func(c *contract.Contract) { c.Inverse.With["a"] = math.NaN() }},
		{"inverse.with.a.from", "another action is read as",
			func(c *contract.Contract) { c.Inverse.With["a"] = map[string]any{"from": "$.steps.x.output.id"} }},
		{"inverse.with.a.from", `no "outputs"`,
			func(c *contract.Contract) { c.Inverse.With["a"] = map[string]any{"from": "$.outputs.id"} }},
		{"inverse.with.a.from", `no "outptu"`,
			func(c *contract.Contract) { c.Inverse.With["a"] = map[string]any{"from": "$['outptu'].id"} }},
		{"inverse.with.deep" + strings.Repeat("[0]", 33), "nested deeper",
			func(c *contract.Contract) { c.Inverse.With["deep"] = deep }},
		{"before.with.name", "reads output, which is not known here",
			func(c *contract.Contract) { c.Before.With["name"] = "=output.name" }},
		{"inverse.done", "the result is string", func(c *contract.Contract) { c.Inverse.Done = `"done"` }},
		{"inverse.stop", "reads probe, which is not known here",
			func(c *contract.Contract) { c.Inverse.Stop = "probe.gone == true" }},
		{"inverse.verify.ok", "the result is int", func(c *contract.Contract) { c.Inverse.Verify.Ok = "1" }},
		{"probe.answer", "the result is bool", func(c *contract.Contract) { c.Probe.Answer = "probe.found == true" }},
		{"probe.answer", `the result may be "there"`,
			func(c *contract.Contract) { c.Probe.Answer = `probe.found ? "there" : "absent"` }},
		{"probe.external_ref", "the result is bool", func(c *contract.Contract) { c.Probe.ExternalRef = "has(probe.id)" }},
		{"valid_until", "reads output", func(c *contract.Contract) { c.ValidUntil = "timestamp(output.start)" }},
		{"valid_until", "the result is int", func(c *contract.Contract) { c.ValidUntil = "7" }},
		{"triggers[late]", `plan has no field deadlin; did you mean deadline?`,
			func(c *contract.Contract) { c.Triggers = map[string]string{"late": "=after(plan.deadlin)"} }},
		{"triggers[a b]", "is no name", func(c *contract.Contract) {
			c.Triggers = map[string]string{"a b": "plan.status == " +
				"'failed'"}
		}},
		{"scopes[late]", "there is no such condition",
			func(c *contract.Contract) { c.Scopes = map[string]contract.Scope{"late": contract.ScopePlan} }},
		{"scopes[late]", `"tree"`, func(c *contract.Contract) {
			c.Triggers = map[string]string{"late": "after(plan.deadline)"}
			c.Scopes = map[string]contract.Scope{"late": "tree"}
		}},
		{"after_commit[0]", "there is no such condition", func(c *contract.Contract) {
			c.AfterCommit, c.ValidFor = []string{"late"}, time.Hour
		}},
		{"after_commit", "without an undo window", func(c *contract.Contract) {
			c.Triggers, c.AfterCommit = map[string]string{"late": "after(plan.deadline)"}, []string{"late"}
			c.ValidFor, c.ValidUntil = 0, ""
		}},
		{"triggers", "17", func(c *contract.Contract) { c.Triggers = conditions }},
	})
}

// TestWhatAPlanDecidesIsNotRefused: a sample plan says nothing of those of an agent.
func TestWhatAPlanDecidesIsNotRefused(t *testing.T) {
	for _, condition := range []string{`int(plan.label) > 3 && seen("x")`, `plan.agent != "billing"`, `plan.owner == ""`,
		`plan.deadline - plan.opened_at > duration("1h")`, `action.at.getHours() < 6`, `plan.actions < 2`,
		`!("approved/" + plan.id in facts)`} {
		c := changed(func(c *contract.Contract) { c.Triggers = map[string]string{"t": condition} })
		if _, err := compile.Contract(c, triggers.NewCache(64)); err != nil {
			t.Errorf("%s: %v", condition, err)
		}
	}
}

// TestWhatCanNeverBeReadIsRefused: what would be null in each command, and what no condition sees.
func TestWhatCanNeverBeReadIsRefused(t *testing.T) {
	wantRefusals(t, []refusal{
		{"inverse.with.sha", "meta.forwardkey is null here, always; did you mean forward_key?",
			func(c *contract.Contract) { c.Inverse.With["sha"] = "=meta.forwardkey" }},
		{"inverse.with.sha", "actions.z.outptu is null here, always; did you mean output?",
			func(c *contract.Contract) { c.Inverse.With["sha"] = `=actions["z"].outptu.sha` }},
		{"before.with.name", "meta.attempt is null here, always",
			func(c *contract.Contract) { c.Before.With["name"] = "=meta.attempt" }},
		{"probe.with.name", "meta.keys is null here, always; did you mean key?", func(c *contract.Contract) {
			c.Probe = &contract.Probe{Call: "git.branch.get", With: map[string]any{"name": "=meta.keys"},
				Answer: "probe.presence"}
		}},
		{"triggers[t]", "reads action.amount, which is payload", func(c *contract.Contract) {
			c.Triggers = map[string]string{"t": "action.amount > 5"}
		}},
		{"triggers[t]", "reads action.output.amount, which is payload", func(c *contract.Contract) {
			c.Triggers = map[string]string{"t": "seen('x') && action.output.amount > 5"}
		}},
	})
}

func TestWhatIsTooLargeIsRefused(t *testing.T) {
	big := changed(func(c *contract.Contract) { c.Inverse.With["text"] = strings.Repeat("x", ledger.ExpressionMax) })
	_, err := compile.Contract(big, triggers.NewCache(64))
	wantRefused(t, err, "contract[git.branch.create].inverse.with.text", "4098 bytes")
	for i := range 10 {
		big.Inverse.With[fmt.Sprint("text", i)] = strings.Repeat("x", ledger.ExpressionMax-10)
	}
	delete(big.Inverse.With, "text")
	_, err = compile.Contract(big, triggers.NewCache(64))
	wantRefused(t, err, "contract[git.branch.create]", "bytes")
}

// A capability without a declared class is refused with a clear error.
func TestS50EveryCapabilityIsClassified(t *testing.T) {
	_, err := compile.Contract(contract.Contract{Capability: "a.b"}, triggers.NewCache(1))
	if err == nil || err.Error() != `refused: contract[a.b].class: ""; want compensable, irreversible or effectless` {
		t.Error(err)
	}
	for _, c := range []struct {
		class contract.Class
		want  pb.Class
	}{{contract.Irreversible, pb.Class_CLASS_IRREVERSIBLE}, {contract.Effectless, pb.Class_CLASS_EFFECTLESS}} {
		forward, inverse := mustCompile(t, contract.Contract{Capability: "a.b", Class: c.class}).Pair("p", "a", "",
			&pb.ForwardRegistered{Capability: "a.b"})
		if forward.GetForwardRegistered().Class != c.want || inverse.GetCompensationRegistered().Capability != "" {
			t.Errorf("%s registers %v, %v", c.class, forward, inverse)
		}
	}
}

// A forward names what undoes it, with arguments from its input and output.
func TestS5S6AForwardNamesItsCompensation(t *testing.T) {
	r := registered(t, changed(func(c *contract.Contract) {
		c.Inverse.With = map[string]any{
			"sha": "=output.sha", "path": map[string]any{"from": "$.input.items[0]['a b']"},
			"in":    map[string]any{"from": "$.output.in"},
			"fixed": map[string]any{"from": "here", "n": 10}, "mixed": []any{"=input.x // the first", 1},
		}
	}))
	for name, want := range map[string]string{
		"sha": `output.sha`, "path": `input.items[0]["a b"]`, "in": `output["in"]`,
		"fixed": `{"from": "here", "n": 10}`, "mixed": `[input.x, 1]`,
	} {
		if got := binding(t, r.Bindings, name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if r.Capability != "git.branch.delete" || r.Key != "k" {
		t.Errorf("registered %v", r)
	}
}

func TestS7WorkerVersionIsCarried(t *testing.T) {
	if r := registered(t,
		changed(func(c *contract.Contract) { c.Inverse.WorkerVersion = "2.1" })); r.WorkerVersion != "2.1" {
		t.Errorf("registered %v", r)
	}
}

// A model with several tools is a task for an actuator of kind agent; what an undo
// may do by itself (attempts, backoff) stays with the contract, whatever the prompt
// says.
func TestS9S10AnAgentTaskIsCarried(t *testing.T) {
	r := registered(t, changed(func(c *contract.Contract) {
		c.Inverse.Agent = &contract.Agent{Tools: []string{"b.tool", "a.tool"}, Prompt: "Retry for ever.", MaxTurns: 8,
			Model: "small"}
		c.Inverse.WorkerVersion, c.Inverse.Attempts = "3", 2
	}))
	a := r.Agent
	if r.Actuator != "agent" || strings.Join(a.GetTools(), " ") != "a.tool b.tool" || a.GetPrompt() != "Retry for ever." ||
		a.GetMaxTurns() != 8 ||
		a.GetModel() != "small" || r.WorkerVersion != "3" || r.Attempts != 2 || r.BackoffNs != int64(time.Second) {
		t.Errorf("registered %v", r)
	}
}

// One tool is one call without a model; a prompt means nothing there.
func TestS8S24OneToolHasNoModel(t *testing.T) {
	if r := registered(t, branch()); r.Actuator != "nats" || r.Agent != nil {
		t.Errorf("registered %v", r)
	}
	for _, c := range []struct {
		field string
		agent contract.Agent
	}{
		{"inverse.agent.tools", contract.Agent{Tools: []string{"a.tool"}}},
		{"inverse.agent.tools", contract.Agent{Tools: []string{"a.tool", "a.tool"}}},
		{"inverse.agent.prompt", contract.Agent{Tools: []string{"a.tool"}, Prompt: "Undo it."}},
		{"inverse.agent.prompt", contract.Agent{Prompt: "Undo it."}},
	} {
		_, err := compile.Contract(changed(func(b *contract.Contract) { b.Inverse.Agent = &c.agent }), triggers.NewCache(64))
		wantRefused(t, err, "contract[git.branch.create]."+c.field, "tools")
	}
}

// What a registration holds is a copy: no later change of the contract reaches it,
// and its digest names the revision.
func TestS11S23ARegistrationIsFrozen(t *testing.T) {
	c := branch()
	compiled := mustCompile(t, c)
	forward, inverse := compiled.Pair("p", "a", "k", &pb.ForwardRegistered{Capability: c.Capability})
	before, err := inverse.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	c.Inverse.Call, c.Inverse.With["sha"], c.Probe.Answer = "other", "=input.other", `"absent"`
	_, again := compiled.Pair("p", "a", "k", &pb.ForwardRegistered{Capability: c.Capability})
	after, err := again.MarshalVT()
	if err != nil || string(after) != string(before) {
		t.Errorf("the registration changed with the contract: %v (%v)", again, err)
	}
	if string(forward.GetForwardRegistered().ContractDigest) != string(compiled.Digest[:]) ||
		mustCompile(t, c).Digest == compiled.Digest {
		t.Error("the digest does not name the revision")
	}
}

// A path that leads nowhere is null and stops nothing.
func TestS20AMissingPathIsNull(t *testing.T) {
	compiled := mustCompile(t, changed(func(c *contract.Contract) {
		c.Before.With = map[string]any{"name": "=input.nothing.at.all", "label": "=plan.label", "fixed": "x"}
		c.ValidUntil = "input.start == null ? null : timestamp(input.start)"
	}))
	got, err := compiled.BeforeArguments([]byte(`{}`), []byte(`{"label":"trip"}`), nil)
	if err != nil || string(got) != `{"fixed":"x","label":"trip","name":null}` {
		t.Errorf("arguments %s (%v)", got, err)
	}
	if ns, err := compiled.ValidUntil([]byte(`{}`)); ns != 0 || err != nil {
		t.Errorf("valid until %d (%v), want no limit", ns, err)
	}
}

// A contract can ask for a supervisor's verdict on every forward; so can its caller.
func TestS77ReviewIsCarried(t *testing.T) {
	for _, c := range []struct{ contract, call, want bool }{{true, false, true}, {false, true, true},
		{false, false, false}} {
		compiled := mustCompile(t, changed(func(b *contract.Contract) { b.Review = c.contract }))
		forward, _ := compiled.Pair("p", "a", "", &pb.ForwardRegistered{Capability: "a.b", Review: c.call})
		if forward.GetForwardRegistered().Review != c.want || (compiled.ReviewTimeout == 10*time.Minute) != c.contract {
			t.Errorf("%+v: review %v, timeout %v", c, forward.GetForwardRegistered().Review, compiled.ReviewTimeout)
		}
	}
}

func TestValidUntilIsATimestamp(t *testing.T) {
	compiled := mustCompile(t, changed(func(c *contract.Contract) { c.ValidUntil = "=timestamp(input.start)" }))
	for input, want := range map[string]int64{
		`{"start":"2026-12-01T09:00:00Z"}`:      1_796_115_600_000_000_000,
		`{"start":"2026-12-01T10:00:00+01:00"}`: 1_796_115_600_000_000_000,
		`{}`:                                    0,
	} {
		if got, err := compiled.ValidUntil([]byte(input)); err != nil || got != want {
			t.Errorf("%s: %d (%v), want %d", input, got, err, want)
		}
	}
	for _, input := range []string{`{"start":"tomorrow"}`, `{"start":"1969-12-31T00:00:00Z"}`,
		`{"start":"9999-12-31T00:00:00Z"}`, `{"start":{}}`} {
		_, err := compiled.ValidUntil([]byte(input))
		wantRefused(t, err, "contract[git.branch.create].valid_until", "")
	}
	plain := mustCompile(t, changed(func(c *contract.Contract) { c.ValidUntil = "input.start" }))
	_, err := plain.ValidUntil([]byte(`{"start":7}`))
	wantRefused(t, err, "contract[git.branch.create].valid_until", "7")
}

func TestBeforeArgumentsThatCannotBeComputedAreRefused(t *testing.T) {
	compiled := mustCompile(t, changed(func(c *contract.Contract) { c.Before.With["name"] = "=input.name + 1" }))
	_, err := compiled.BeforeArguments([]byte(`{"name":"x"}`), nil, nil)
	wantRefused(t, err, "contract[git.branch.create].before.with.name", "no such overload")
}

func TestEveryFieldIsRegistered(t *testing.T) {
	jitter := 0
	c := contract.Contract{
		Capability: "a.b", Class: contract.Compensable, Fidelity: contract.Lossy,
		Probe: &contract.Probe{Call: "a.find", With: map[string]any{"id": "=output.id"}, Answer: "=probe.state",
			ExternalRef: "probe.id",
			Timeout:     time.Second, Attempts: 4, Backoff: 2 * time.Second},
		Inverse: &contract.Inverse{Call: "a.undo", Attempts: 7, Backoff: 3 * time.Second, BackoffMax: time.Hour,
			Jitter: &jitter, Timeout: time.Minute,
			Dedupe: time.Hour, Done: "error.code == 'gone'", Stop: "= error.code == 'no' // for ever",
			Approve: contract.ApproveOwner,
			Verify:  &contract.Verify{Call: "a.get", Ok: "verify == null", Attempts: 2}},
		OnInDoubt: contract.InDoubtQuarantine, OnLate: contract.LateQuarantine, ValidFor: 24 * time.Hour, Warn: time.Hour,
		Lift: []string{"b", "a", "b"}, Triggers: map[string]string{"z": `plan.status == "failed"`,
			"a": "after(plan.deadline)"}, Page: "money",
		Scopes: map[string]contract.Scope{"a": contract.ScopeAction, "z": contract.ScopePlan},
	}
	r := registered(t, c)
	want := &pb.CompensationRegistered{
		Capability: "a.undo", Key: "k", Attempts: 7, BackoffNs: 3e9, BackoffMaxNs: 3600e9, TimeoutNs: 60e9,
		OnInDoubt: pb.OnInDoubt_ON_IN_DOUBT_QUARANTINE,
		Triggers: []*pb.Trigger{{Name: "a", Condition: "after(plan.deadline)"},
			{Name: "z", Condition: `plan.status=="failed"`, Scope: pb.Scope_SCOPE_PLAN}},
		ValidForNs: 86400e9, Fidelity: "lossy", Actuator: "nats",
		Probe: &pb.Probe{Call: &pb.Call{Capability: "a.find", Bindings: []*pb.Binding{{Name: "id", Expression: "output.id"}},
			TimeoutNs: 1e9, Attempts: 4, BackoffNs: 2e9},
			Answer: "probe.state", ExternalRef: "probe.id"},
		Verify: &pb.Verify{Call: &pb.Call{Capability: "a.get", TimeoutNs: 30e9, Attempts: 2, BackoffNs: 1e9},
			Ok: "verify==null"},
		Done: "error.code=='gone'", Stop: "error.code=='no'", OnLate: pb.OnLate_ON_LATE_QUARANTINE, Page: "money",
		Approve:  true,
		DedupeNs: 3600e9, WarnNs: 3600e9,
	}
	if !proto.Equal(r, want) {
		t.Errorf("registered\n  %v\nwant\n  %v", r, want)
	}
	if lift := mustCompile(t, c).Lift; strings.Join(lift, " ") != "a b" {
		t.Errorf("lifts %v", lift)
	}
}

func TestWhatIsLifted(t *testing.T) {
	compiled := mustCompile(t, changed(func(c *contract.Contract) { c.Lift = []string{"path", "size"} }))
	for _, c := range []struct{ input, want string }{
		{`{"path":"p","size":1.10,"secret":"s"}`, `{"path":"p","size":1.10}`},
		{`{"secret":"s"}`, ""},
		{`[1]`, ""},
		{`"path"`, ""},
		{`null`, ""},
		{``, ""},
	} {
		got, err := compiled.Lifted([]byte(c.input))
		if err != nil || string(got) != c.want {
			t.Errorf("of %s: %s, %v", c.input, got, err)
		}
	}
}
