package triggers_test

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/sagenbaum/sagenbaum/triggers"
)

func ExampleCompile() {
	condition, err := triggers.Compile(`absent_for("confirmed/o7", action.at, duration("15m"))`)
	if err != nil {
		fmt.Println(err)
		return
	}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano()
	scope := triggers.Scope{Action: &triggers.Action{AtNs: at}, ArmedNs: at, NowNs: at}
	result := condition.Evaluate(scope, triggers.Nothing{})
	fmt.Println(result.Truth, result.Waits)

	scope.NowNs = result.WakeNs
	fmt.Println(condition.Evaluate(scope, triggers.Nothing{}).Truth)

	_, err = triggers.Compile(`plan.stauts == "failed"`)
	fmt.Println(err)
	// Output:
	// unknown [fact confirmed/o7 time 2026-03-01T12:15:00Z]
	// true
	// cannot compile expression: 1:5: plan has no field stauts; did you mean status?
}

func ExampleCompileBinding() {
	binding, err := triggers.CompileBinding(`{"charge": output.ref, "amount": input.amount, "note": output.note}`)
	if err != nil {
		fmt.Println(err)
		return
	}
	value, err := binding.Evaluate(triggers.BindingVars{
		Input:  json.RawMessage(`{"amount": 10.10}`),
		Output: json.RawMessage(`{"ref": "ch_1"}`),
	})
	fmt.Println(string(value), err)
	// Output: {"charge":"ch_1","amount":10.10,"note":null} <nil>
}

func ExampleCache() {
	cache := triggers.NewCache(1000)
	one, _ := cache.Condition(`after(plan.deadline)`)
	two, _ := cache.Condition(`after(plan.deadline)`)
	fmt.Println(one == two)
	// Output: true
}
