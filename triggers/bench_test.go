package triggers

import (
	"encoding/json"
	"fmt"
	"testing"
)

func benchmark(b *testing.B, expression string, scope Scope, m *memory) {
	b.Helper()
	condition, err := Compile(expression)
	if err != nil {
		b.Fatal(err)
	}
	scope.NowNs, m.now = start, start
	held, room := condition.Hold(scope), new(Scratch)
	b.ReportAllocs()
	for b.Loop() {
		held.Ask(room, start, m)
	}
}

func BenchmarkEvaluateDeadline(b *testing.B) {
	benchmark(b, `after(plan.deadline)`, Scope{Plan: Plan{DeadlineNs: start + second}}, newMemory(b))
}

func BenchmarkEvaluateStatus(b *testing.B) {
	benchmark(b, `plan.status == "failed"`, Scope{Plan: Plan{Status: "open"}}, newMemory(b))
}

func BenchmarkEvaluateFact(b *testing.B) {
	m := newMemory(b)
	m.assert("order/o7", `{"id":"o7","status":"open","price":100.5}`, start)
	benchmark(b, `facts["order/o7"].status == "cancelled"`, Scope{}, m)
}

func BenchmarkEvaluateAbsence(b *testing.B) {
	benchmark(b, `plan.status == "open" && absent_for("confirmed/" + action.order, action.at, duration("15m"))`,
		Scope{Plan: Plan{Status: "open"},
			Action: &Action{AtNs: start, Input: json.RawMessage(`{"order":"o7"}`)}}, newMemory(b))
}

func BenchmarkEvaluateLoop(b *testing.B) {
	benchmark(b, `["c1","c2","c3"].exists(c, facts["step/" + c].status == "failed")`, Scope{}, newMemory(b))
}

func BenchmarkCompile(b *testing.B) {
	cache := NewCache(1)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := cache.Condition(fmt.Sprintf(`plan.status == "s%d" && elapsed(action.at, duration("1h"))`,
			i)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCached(b *testing.B) {
	cache := NewCache(8)
	for b.Loop() {
		if _, err := cache.Condition(`after(plan.deadline)`); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNewCache(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NewCache(8).Condition(`after(plan.deadline)`); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBinding(b *testing.B) {
	binding, err := CompileBinding(`{"charge": output.ref, "amount": input.amount}`)
	if err != nil {
		b.Fatal(err)
	}
	vars := BindingVars{Input: json.RawMessage(`{"amount":10.10}`), Output: json.RawMessage(`{"ref":"ch_1"}`)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := binding.Evaluate(vars); err != nil {
			b.Fatal(err)
		}
	}
}
