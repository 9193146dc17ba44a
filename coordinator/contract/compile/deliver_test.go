package compile_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// mail is a contract of a capability that is staged.
func mail(change ...func(*contract.Contract)) contract.Contract {
	c := contract.Contract{Capability: "mail.send", Class: contract.Irreversible, Stage: contract.StageCommit,
		Settle: 5 * time.Minute, Page: "mail", UnservedAfter: 2 * time.Hour,
		Triggers: map[string]string{"late": "seen('late')"},
		Deliver: &contract.Deliver{With: map[string]any{"to": "=input.to"}, Dedupe: time.Hour, WorkerVersion: "2",
			Done: `error.code == "sent"`, Stop: `error.code == "no_address"`},
		Probe: &contract.Probe{Call: "mail.find", With: map[string]any{"key": "=meta.forward_key"},
			Answer: `probe.found ? "present" : "absent"`}}
	for _, f := range change {
		f(&c)
	}
	return c
}

// TestWhatIsStagedIsRegisteredWithItsDelivery: the pair has the call in its first half, and nothing
// but conditions in the second; what is called at once has neither.
func TestWhatIsStagedIsRegisteredWithItsDelivery(t *testing.T) {
	c := mustCompile(t, mail(func(c *contract.Contract) {
		c.Deliver.Backoff, c.Deliver.BackoffMax, c.Deliver.Jitter, c.Deliver.Timeout = 3*time.Second, 2*time.Minute,
			new(7), 9*time.Second
	}))
	forward, undo := c.StagedPair("p", "a", "", &pb.ForwardRegistered{Capability: "mail.send"})
	f, d := forward.GetForwardRegistered(), forward.GetForwardRegistered().Deliver
	if !c.Stages() || !c.MayStage() || f.Class != pb.Class_CLASS_IRREVERSIBLE || f.SettleNs != int64(5*time.Minute) ||
		d.Capability != "mail.send" || binding(t, d.Bindings, "to") != "input.to" || d.DedupeNs != int64(time.Hour) ||
		d.Probe.Call.Capability != "mail.find" || d.Page != "mail" || d.WorkerVersion != "2" || d.Attempts != 5 ||
		d.UnservedAfterNs != int64(2*time.Hour) || d.Done == "" || d.Stop == "" {
		t.Errorf("%v", f)
	}
	if d.BackoffNs != int64(3*time.Second) || d.BackoffMaxNs != int64(2*time.Minute) || d.JitterPercent != 7 ||
		d.TimeoutNs != int64(9*time.Second) {
		t.Errorf("when it is tried again: %v", d)
	}
	if u := undo.GetCompensationRegistered(); u.Capability != "" || u.Probe != nil || len(u.Triggers) != 1 {
		t.Errorf("%v", u)
	}
	if err := ledger.CheckCommit([]*pb.Record{forward, undo}, ledger.Source{Tenant: "t", Class: ledger.ClassAgent,
		Name: "a", Plan: "p"}); err != nil {
		t.Error(err)
	}
	forward, _ = c.Pair("p", "a", "k", &pb.ForwardRegistered{Capability: "mail.send"})
	if f := forward.GetForwardRegistered(); f.Deliver != nil || f.SettleNs != 0 {
		t.Errorf("called at once: %v", f)
	}
	if either := mustCompile(t, mail(func(c *contract.Contract) { c.Stage = "" })); either.Stages() || !either.MayStage() {
		t.Error("without stage, an agent may do either")
	}
}

// TestADeliveryIsRefusedByTheFieldThatIsWrong.
func TestADeliveryIsRefusedByTheFieldThatIsWrong(t *testing.T) {
	type edit = func(*contract.Contract)
	for _, c := range []struct {
		field, problem string
		change         edit
	}{
		{"stage", `"now"`, func(c *contract.Contract) { c.Stage = "now" }},
		{"stage", "nothing says how", func(c *contract.Contract) {
			c.Deliver, c.Probe, c.Settle, c.UnservedAfter = nil, nil, 0, 0
		}},
		{"deliver", "class compensable", func(c *contract.Contract) {
			c.Class, c.Inverse = contract.Compensable, &contract.Inverse{Call: "mail.recall"}
		}},
		{"deliver", "class effectless", func(c *contract.Contract) { c.Class = contract.Effectless }},
		{"timeout", "staged", func(c *contract.Contract) { c.Timeout = time.Second }},
		{"grace", "staged", func(c *contract.Contract) { c.Grace = time.Second }},
		{"review", "staged", func(c *contract.Contract) { c.Review = true }},
		{"late", "irreversible", func(c *contract.Contract) { c.Late = contract.LateNever }},
		{"on_in_doubt", "irreversible", func(c *contract.Contract) { c.OnInDoubt = contract.InDoubtQuarantine }},
		{"inverse", "irreversible", func(c *contract.Contract) { c.Inverse = &contract.Inverse{Call: "a.b"} }},
		{"deliver.with.to", "reads output", func(c *contract.Contract) { c.Deliver.With["to"] = "=output.to" }},
		{"deliver.with.to", "reads before", func(c *contract.Contract) { c.Deliver.With["to"] = "=before.to" }},
		{"deliver.done", "reads output", func(c *contract.Contract) { c.Deliver.Done = "output.done" }},
		{"deliver.stop", "the result is int", func(c *contract.Contract) { c.Deliver.Stop = "1" }},
		{"deliver.backoff_max", "1s", func(c *contract.Contract) {
			c.Deliver.Backoff, c.Deliver.BackoffMax = time.Minute, time.Second
		}},
		{"deliver.attempts", "1000", func(c *contract.Contract) { c.Deliver.Attempts = 1000 }},
		{"deliver.dedupe", "1ns", func(c *contract.Contract) { c.Deliver.Dedupe = 1 }},
		{"probe.with.key", "reads output", func(c *contract.Contract) { c.Probe.With["key"] = "=output.id" }},
		{"probe.answer", "reads before", func(c *contract.Contract) { c.Probe.Answer = "before.state" }},
		{"probe.external_ref", "reads output", func(c *contract.Contract) { c.Probe.ExternalRef = "output.id" }},
		{"sensitive[0]", "what a delivery returns", func(c *contract.Contract) { c.Sensitive = []string{"output.id"} }},
		{"sensitive[0]", "what a delivery returns", func(c *contract.Contract) {
			c.Stage, c.Sensitive = "", []string{"output.id"}
		}},
		{"deliver.with.to", "computes from input.to", func(c *contract.Contract) {
			c.Sensitive, c.Deliver.With["to"] = []string{"input.to"}, `=input.to + "x"`
		}},
		{"deliver.stop", "reads input.to", func(c *contract.Contract) {
			c.Sensitive, c.Deliver.Stop = []string{"input.to"}, `input.to == "x"`
		}},
	} {
		_, err := compile.Contract(mail(c.change), triggers.NewCache(64))
		wantRefused(t, err, "contract[mail.send]."+c.field, c.problem)
	}
	for _, field := range []string{"probe", "settle", "unserved_after"} {
		plain := mail(func(c *contract.Contract) {
			c.Stage, c.Deliver = "", nil
			probe, settle, unserved := c.Probe, c.Settle, c.UnservedAfter
			c.Probe, c.Settle, c.UnservedAfter = nil, 0, 0
			switch field {
			case "probe":
				c.Probe = probe
			case "settle":
				c.Settle = settle
			default:
				c.UnservedAfter = unserved
			}
		})
		_, err := compile.Contract(plain, triggers.NewCache(64))
		wantRefused(t, err, "contract[mail.send]."+field, "irreversible")
	}
}

// TestADeliveryOfWhatIsSensitiveIsSealed, and takes it whole.
func TestADeliveryOfWhatIsSensitiveIsSealed(t *testing.T) {
	for path, want := range map[string]bool{"input.to": true, "input.text": false} {
		c := mustCompile(t, mail(func(c *contract.Contract) { c.Sensitive = []string{path} }))
		forward, undo := c.StagedPair("p", "a", "", &pb.ForwardRegistered{Capability: "mail.send"})
		if got := forward.GetForwardRegistered().Deliver.Sealed; got != want || undo.GetCompensationRegistered().Sealed {
			t.Errorf("%s: sealed is %v", path, got)
		}
	}
}

// TestTheDefaultsOfADeliveryAreWrittenOut, and read back to the same contract.
func TestTheDefaultsOfADeliveryAreWrittenOut(t *testing.T) {
	plain := mail()
	same := mail(func(c *contract.Contract) {
		jitter := 20
		c.Deliver.Attempts, c.Deliver.Backoff, c.Deliver.BackoffMax, c.Deliver.Jitter, c.Deliver.Timeout = 5, time.Second,
			time.Minute, &jitter, 30*time.Second
	})
	if mustCompile(t, plain).Digest != mustCompile(t, same).Digest {
		t.Error("a default that is written out is another contract")
	}
	settles := func(timeout, settle time.Duration) [32]byte {
		return mustCompile(t, mail(func(c *contract.Contract) { c.Deliver.Timeout, c.Settle = timeout, settle })).Digest
	}
	if settles(time.Minute, time.Minute) != settles(time.Minute, 0) ||
		settles(time.Minute, 30*time.Second) == settles(time.Minute, 0) {
		t.Error("settle is the timeout of an attempt by default, and nothing else is")
	}
	text, err := contract.Format(plain)
	if err != nil {
		t.Fatal(err)
	}
	if got := mustCompile(t, parse(t, string(text))[0].Contract); got.Digest != mustCompile(t, plain).Digest {
		t.Errorf("read back:\n%s", text)
	}
}

// TestLintOfADelivery: what has its owner called more often than need be, and who is to serve it.
func TestLintOfADelivery(t *testing.T) {
	const base = head + "capability: mail.send\nclass: irreversible\nstage: commit\n"
	const probe = "probe: {call: mail.find, answer: 'probe.found ? \"present\" : \"absent\"'}\n"
	const to, stop = "deliver: {with: {to: =input.to}", `stop: 'has(error.code) && error.code == "x"'`
	for text, want := range map[string]string{
		to + "}\n":                           "neither dedupe nor a probe",
		to + ", dedupe: 1h}\n":               "",
		to + "}\n" + probe:                   "not given beside a probe: it is taken for gone 30s",
		"settle: 1m\n" + to + "}\n" + probe:  "",
		to + ", dedupe: 1h, " + stop + "}\n": "",
		"deliver: {with: {to: =meta.forwardkey}, dedupe: 1h}\n": "meta.forwardkey is null here",
	} {
		findings := compile.Lint(parse(t, base+text))
		switch {
		case want == "" && len(findings) > 0:
			t.Errorf("%s: %v", text, findings)
		case want != "" && (len(findings) != 1 || !strings.Contains(findings[0].Message, want)):
			t.Errorf("%s: %v, want %s", text, findings, want)
		}
	}
	calls := compile.WorkerCalls(parse(t, base+"settle: 1m\ndeliver: {dedupe: 1h, worker_version: \"2\"}\n"+probe))
	want := []compile.WorkerCall{{Capability: "mail.send", Undo: true, Version: "2"},
		{Capability: "mail.find", Version: "2"}}
	if !slices.Equal(calls, want) {
		t.Errorf("workers serve %+v, want %+v", calls, want)
	}
}
