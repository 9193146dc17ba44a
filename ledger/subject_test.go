package ledger_test

import (
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
)

func TestSubjectsReadBack(t *testing.T) {
	for subject, source := range map[string]ledger.Source{
		"saga.t.agent.a1.p1":     agentSource,
		"saga.t.agent.a1._":      {Tenant: "t", Class: ledger.ClassAgent, Name: "a1", Plan: ledger.ManyPlans},
		"saga.t.fact.sensor":     factSource,
		"saga.t.verdict.guard":   verdictSource,
		"saga.t.operator.root":   operatorSource,
		"saga.t.worker.w1":       workerSource,
		"saga.t.executor":        holderSource,
		"saga.t.executor.term":   termSource,
		"saga.A-b_9.fact.sensor": {Tenant: "A-b_9", Class: ledger.ClassFact, Name: "sensor"},
	} {
		if got := source.Subject(); got != subject {
			t.Errorf("%+v is %q", source, got)
		}
		if got, ok := ledger.ParseSubject(subject); !ok || got != source {
			t.Errorf("%q reads as %+v, %v", subject, got, ok)
		}
	}
}

func TestWhatIsNoSubjectIsNotRead(t *testing.T) {
	for _, subject := range []string{
		"", "saga", "saga.t", "saga.t.", "saga..fact.s", "saga.t.fact", "saga.t.fact.", "saga.t.fact.a.b", "saga.t.agent.a",
		"saga.t.agent.a.", "saga.t.agent.a.p.q",
		"saga.t.executor.x", "saga.t.executor.term.x", "saga.t.none.x", "saga.t..x", "saga.t.Fact.s", "orders.t.fact.s",
		"saga.t.fact.*", "saga.t.fact.>", "saga.t.fact.a b",
		"saga.t.fact.é", "saga." + strings.Repeat("t", ledger.TokenLenMax+1) + ".fact.s",
	} {
		if s, ok := ledger.ParseSubject(subject); ok {
			t.Errorf("%q reads as %+v", subject, s)
		}
	}
}

func FuzzParseSubject(f *testing.F) {
	f.Add("saga.t.agent.a1.p1")
	f.Add("saga.t.executor.term")
	f.Add("saga.t..")
	f.Fuzz(func(t *testing.T, subject string) {
		if s, ok := ledger.ParseSubject(subject); ok && s.Subject() != subject {
			t.Fatalf("%q reads as %+v, which is %q", subject, s, s.Subject())
		}
	})
}

func TestCapabilitiesAreDottedNames(t *testing.T) {
	for name, want := range map[string]bool{
		"git": true, "git.branch.create": true, "a-b_c.D9": true, "": false, ".": false, "git.": false, ".git": false,
		"git..x": false, "git.*": false, "git x": false,
		strings.Repeat("x", ledger.TokenLenMax): true, strings.Repeat("x", ledger.TokenLenMax+1): false,
	} {
		if ledger.ValidCapability(name) != want {
			t.Errorf("%q: want %v", name, want)
		}
	}
}
