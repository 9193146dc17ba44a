package coordinator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
)

func TestBadConfigurationsAreRefused(t *testing.T) {
	good := contracts()[0]
	change := func(f func(*Contract)) []Contract {
		c := good
		f(&c)
		return []Contract{c}
	}
	const at = "contract[file.write]"
	many := map[string]string{}
	for i := range ledger.BindingsMax + 1 {
		many[fmt.Sprint("b", i)] = "input"
	}
	for _, c := range []struct {
		field  string
		config Config
	}{
		{"config.conn", Config{Tenant: tenant, Agent: "a1"}},
		{"config.tenant", Config{Appender: memory(), Tenant: "a.b", Agent: "a1"}},
		{"config.agent", Config{Appender: memory(), Tenant: tenant, Agent: "*"}},
		{"config.append_timeout", Config{Appender: memory(), Tenant: tenant, Agent: "a1", AppendTimeout: -1}},
		{"config.confirm_timeout", Config{Appender: memory(), Tenant: tenant, Agent: "a1", ConfirmTimeout: -1}},
		{"contract[file.write]", Config{Contracts: []Contract{good, good}}},
		{"contract.capability", Config{Contracts: change(func(c *Contract) { c.Capability = "file write" })}},
		{at + ".class", Config{Contracts: change(func(c *Contract) { c.Class = Undeclared })}},
		{at + ".class", Config{Contracts: change(func(c *Contract) { c.Class = 9 })}},
		{at + ".inverse", Config{Contracts: change(func(c *Contract) { c.Inverse = "" })}},
		{at + ".inverse", Config{Contracts: change(func(c *Contract) { c.Class = Irreversible })}},
		{at + ".inverse", Config{Contracts: change(func(c *Contract) { c.Class = Effectless })}},
		{at + ".attempts", Config{Contracts: change(func(c *Contract) { c.Attempts = ledger.AttemptsMax + 1 })}},
		{at + ".attempts", Config{Contracts: change(func(c *Contract) { c.Attempts = -1 })}},
		{at + ".backoff_max", Config{Contracts: change(func(c *Contract) { c.Backoff, c.BackoffMax = time.Hour, time.Minute })}},
		{"compensation_registered.timeout_ns", Config{Contracts: change(func(c *Contract) { c.Timeout = -1 })}},
		{"compensation_registered.backoff_ns", Config{Contracts: change(func(c *Contract) { c.BackoffMax = 25 * time.Hour })}},
		{"compensation_registered.valid_for_ns", Config{Contracts: change(func(c *Contract) { c.ValidFor = -1 })}},
		{"compensation_registered.bindings", Config{Contracts: change(func(c *Contract) { c.Bindings = many })}},
		{at + ".on_in_doubt", Config{Contracts: change(func(c *Contract) { c.OnInDoubt = 9 })}},
		{at + ".fidelity", Config{Contracts: change(func(c *Contract) { c.Fidelity = "good" })}},
		{at + ".lift", Config{Contracts: change(func(c *Contract) { c.Lift = []string{""} })}},
		{at + ".worker_version", Config{Contracts: change(func(c *Contract) { c.WorkerVersion = strings.Repeat("1", 65) })}},
		{at + ".triggers[late]", Config{Contracts: change(func(c *Contract) { c.Triggers = map[string]string{"late": "after(plan.deadlin"} })}},
		{at + ".triggers[late]", Config{Contracts: change(func(c *Contract) { c.Triggers = map[string]string{"late": "nonsense > 1"} })}},
		{at + ".bindings[path]", Config{Contracts: change(func(c *Contract) { c.Bindings = map[string]string{"path": "inptu.path"} })}},
		{"compensation_registered.triggers[0].name", Config{Contracts: change(func(c *Contract) { c.Triggers = map[string]string{"a b": "plan.status == 'failed'"} })}},
	} {
		if c.config.Contracts != nil {
			c.config.Appender, c.config.Tenant, c.config.Agent = memory(), tenant, "a1"
		}
		_, err := New(c.config)
		wantRefused(t, err, c.field)
	}
}

func TestBadPlansAreRefused(t *testing.T) {
	in(t, func(t *testing.T) {
		c := start(t, memory(), nil)
		begin(t, c, Plan{ID: "taken"})
		long := strings.Repeat("x", ledger.TextMax+1)
		for _, bad := range []struct {
			field string
			plan  Plan
		}{
			{"plan", Plan{ID: "a.b"}},
			{"plan", Plan{ID: ledger.ManyPlans}},
			{"plan.id", Plan{ID: "taken"}},
			{"plan_opened.label", Plan{Label: long}},
			{"plan_opened.owner", Plan{Owner: long}},
			{"plan_opened.labels[0].value", Plan{Labels: map[string]string{"k": long}}},
			{"plan.deadline", Plan{Deadline: -1}},
			{"plan.deadline_at", Plan{Deadline: 1, DeadlineAt: time.Now()}},
			{"plan.deadline_at", Plan{DeadlineAt: time.Unix(-1, 0)}},
			{"plan.concurrency", Plan{Concurrency: ledger.ConcurrencyMax + 1}},
			{"plan.triggers[t]", Plan{Triggers: map[string]string{"t": "1 +"}}},
		} {
			_, err := c.Begin(t.Context(), bad.plan)
			wantRefused(t, err, bad.field)
		}
	})
}

func TestAPlanIsOpenedAsDeclared(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		p := begin(t, start(t, store, nil), Plan{
			Label: "book trip", Owner: "travel", Deadline: 2 * time.Hour, Concurrency: 3,
			Triggers: map[string]string{"late": "after(plan.deadline)", "bad": "plan.status == 'failed'"},
			Labels:   map[string]string{"z": "1", "a": "2"},
		})
		want := time.Now().Add(2 * time.Hour).UnixNano()
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		o := find(t, store, "plan_opened").GetPlanOpened()
		if o.Label != "book trip" || o.Owner != "travel" || o.DeadlineNs != want || o.Concurrency != 3 ||
			len(o.Triggers) != 2 || o.Triggers[0].Name != "bad" || o.Labels[0].Key != "a" {
			t.Errorf("opened %v", o)
		}
	})
}

func TestADigestIsOfTheMeaning(t *testing.T) {
	base := contracts()[0]
	explicit := base
	explicit.Attempts, explicit.Backoff, explicit.BackoffMax, explicit.Timeout = 5, time.Second, time.Minute, 30*time.Second
	explicit.Triggers = map[string]string{}
	explicit.OnInDoubt, explicit.Lift = InDoubtCompensate, []string{"size", "path", "size"}
	if base.Digest() != explicit.Digest() {
		t.Error("defaults that are written out change the digest")
	}
	seen := map[[32]byte]string{base.Digest(): "base"}
	for name, change := range map[string]func(*Contract){
		"capability": func(c *Contract) { c.Capability = "x" }, "class": func(c *Contract) { c.Class = Effectless },
		"inverse": func(c *Contract) { c.Inverse = "x" }, "bindings": func(c *Contract) { c.Bindings = map[string]string{"path": "input.p"} },
		"attempts": func(c *Contract) { c.Attempts = 2 }, "backoff": func(c *Contract) { c.Backoff = 2 }, "backoff max": func(c *Contract) { c.BackoffMax = time.Hour },
		"timeout": func(c *Contract) { c.Timeout = 2 }, "in doubt": func(c *Contract) { c.OnInDoubt = InDoubtQuarantine },
		"triggers": func(c *Contract) { c.Triggers = map[string]string{"t": "true"} }, "lift": func(c *Contract) { c.Lift = nil },
		"worker": func(c *Contract) { c.WorkerVersion = "2" }, "valid for": func(c *Contract) { c.ValidFor = 1 }, "fidelity": func(c *Contract) { c.Fidelity = "exact" },
	} {
		c := base
		change(&c)
		if other, ok := seen[c.Digest()]; ok {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[c.Digest()] = name
	}
	// The text is part of the format: a change of it is a change of every digest.
	if got, want := fmt.Sprintf("%x", base.Digest()), goldenDigest; got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
}

const goldenDigest = "f1945e79edad805ef3581803fda3cbcc927b244530dd9dd1c68df8e86ec7237f"

func TestWhatIsLifted(t *testing.T) {
	for _, c := range []struct{ input, want string }{
		{`{"path":"p","size":1.10,"secret":"s"}`, `{"path":"p","size":1.10}`},
		{`{"secret":"s"}`, ""},
		{`[1]`, ""},
		{`"path"`, ""},
		{`null`, ""},
		{``, ""},
	} {
		got, err := (&compiled{lift: []string{"path", "size"}}).lifted([]byte(c.input))
		if err != nil || string(got) != c.want {
			t.Errorf("of %s: %s, %v", c.input, got, err)
		}
	}
}
