package coordinator

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
)

// TestCheckedConditionsAreBoundedInBytes: an agent that never writes the same condition
// twice keeps a few of them compiled.
func TestCheckedConditionsAreBoundedInBytes(t *testing.T) {
	const conditions, most = 2000, 10 << 20
	x := newExpressions()
	before := heapInUse()
	for i := range conditions {
		var terms []string
		for k := range 24 {
			terms = append(terms, fmt.Sprintf(`facts["k%d"].f%d == %d`, k, i, k))
		}
		if _, err := x.triggers("plan", map[string]string{"t": strings.Join(terms, " || ")}); err != nil {
			t.Fatal(err)
		}
	}
	if took := heapInUse() - before; took > most {
		t.Errorf("%d conditions keep %d bytes, want at most %d", conditions, took, most)
	}
	runtime.KeepAlive(x)
}

func heapInUse() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// An action whose values make a condition an error for ever is refused before its forward: the
// condition would be held, and protect no one. What has happened is recorded all the same.
func TestAConditionThatCanNeverAnswerIsRefused(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		charge := contract.Contract{Capability: "pay.charge", Class: contract.Compensable, Lift: []string{"order"},
			Triggers: map[string]string{"unpaid": `facts["paid/" + action.order] == false`},
			Inverse:  &contract.Inverse{Call: "pay.refund", With: map[string]any{"order": "=input.order"}}}
		c, err := newCoordinator(Config{Appender: store, Tenant: tenant, Agent: "a1",
			Contracts: []contract.Contract{charge}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		p := begin(t, c, PlanSpec{})
		of := func(order any) Action {
			return Action{Capability: "pay.charge", Input: map[string]any{"order": order}}
		}
		_, err = p.Do(t.Context(), of(1042), never(t))
		wantRefused(t, err, "action.input")
		if !strings.Contains(err.Error(), "trigger unpaid of pay.charge") {
			t.Error(err)
		}
		mustDo(t, p, of("o7"))
		if err := p.Report(t.Context(), of(1042), Outcome{}); err != nil {
			t.Errorf("what has happened: %v", err)
		}
	})
}
