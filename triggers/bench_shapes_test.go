package triggers

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// benchShapes are the conditions that `sagenbaum-lab bench --only leases` holds, and
// two that every tenant has.
var benchShapes = []struct{ name, text string }{
	{"elapsed", `elapsed(action.at, duration("72h"))`},
	{"absent", `absent_for("confirmed/" + action.order, action.at, duration("15m"))`},
	{"status", `facts["order/" + action.order].status == "cancelled"`},
	{"at_least", `at_least(3, "declined/" + action.order, duration("10m"))`},
	{"drift", `facts["quote/" + action.order].price > 1.1 * action.amount`},
	{"approval", `after(timestamp("2031-01-01T00:00:00Z")) && !("approval/" + action.order in facts)`},
	{"taint", `facts["taint/" + action.order].level >= 3 && absent_for("cleared/" + action.order, at("taint/" + action.order), duration("1h"))`},
	{"limit", `facts["limit/" + action.cap].max < action.amount && facts["order/" + action.order].status == "paid"`},
	{"plan", `plan.status == "failed"`},
	{"shared", `facts["market/open"].level >= 9`},
}

const benchInput = `{"order":"o7","amount":120,"cap":"eu"}`

// benchFacts are the facts that the conditions read, none of which makes one true.
var benchFacts = map[string]string{
	"order/o7":    `{"status":"open","price":50,"level":1,"n":7}`,
	"quote/o7":    `{"status":"open","price":50,"level":1,"n":7}`,
	"taint/o7":    `{"status":"open","price":50,"level":1,"n":7}`,
	"limit/eu":    `{"max":1000}`,
	"market/open": `{"level":1}`,
}

// BenchmarkBesideCEL asks each shape, and right after it cel-go alone: the same text
// over maps, with functions of the same arguments that compare two times and look
// into a map. The ratio is of ours to cel-go's.
func BenchmarkBesideCEL(b *testing.B) {
	for _, shape := range benchShapes {
		b.Run(shape.name, func(b *testing.B) {
			m := newMemory(b)
			for key, value := range benchFacts {
				m.assert(key, value, start)
			}
			m.now = start + second
			condition, err := Compile(shape.text)
			if err != nil {
				b.Fatal(err)
			}
			held, room := condition.Hold(Scope{NowNs: m.now, ArmedNs: start, Plan: Plan{Status: "open"},
				Action: &Action{AtNs: start, Input: json.RawMessage(benchInput)}}), new(Scratch)
			program, vars := plainCEL(b, shape.text)
			if got := held.Ask(room, m.now, m); got.Truth == True || got.Err != nil {
				b.Fatalf("the condition is %v (%v)", got.Truth, got.Err)
			}
			if got, _, err := program.Eval(vars); err != nil || got != types.False {
				b.Fatalf("cel-go alone says %v (%v)", got, err)
			}
			b.ReportAllocs()
			for b.Loop() {
				held.Ask(room, m.now, m)
			}
			ours := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
			begun := time.Now()
			for range b.N {
				_, _, _ = program.Eval(vars)
			}
			alone := float64(time.Since(begun).Nanoseconds()) / float64(b.N)
			b.ReportMetric(alone, "ns/cel")
			b.ReportMetric(ours/alone, "ratio")
		})
	}
}

// plainCEL compiles a text for cel-go alone, and returns what it reads.
func plainCEL(b *testing.B, text string) (cel.Program, map[string]any) {
	b.Helper()
	at := time.Unix(0, start).UTC()
	now := at.Add(time.Second)
	asserted := map[string]time.Time{"taint/o7": at}
	elapsed := func(args ...ref.Val) ref.Val {
		return types.Bool(now.After(args[0].(types.Timestamp).Time.Add(args[1].(types.Duration).Duration)))
	}
	fn := func(name string, result *cel.Type, call func(...ref.Val) ref.Val, args ...*cel.Type) cel.EnvOption {
		return cel.Function(name, cel.Overload(name, args, result, cel.FunctionBinding(call)))
	}
	dyn := cel.MapType(cel.StringType, cel.DynType)
	env, err := cel.NewEnv(cel.Variable("action", dyn), cel.Variable("plan", dyn), cel.Variable("facts", dyn),
		fn("elapsed", cel.BoolType, elapsed, cel.TimestampType, cel.DurationType),
		cel.Function("after", cel.Overload("after", []*cel.Type{cel.TimestampType}, cel.BoolType,
			cel.UnaryBinding(func(t ref.Val) ref.Val {
				return types.Bool(!now.Before(t.(types.Timestamp).Time))
			}))),
		cel.Function("at", cel.Overload("at", []*cel.Type{cel.StringType}, cel.TimestampType,
			cel.UnaryBinding(func(k ref.Val) ref.Val {
				return types.Timestamp{Time: asserted[string(k.(types.String))]}
			}))),
		fn("absent_for", cel.BoolType, func(args ...ref.Val) ref.Val {
			_, seen := asserted[string(args[0].(types.String))]
			return types.Bool(!seen) && elapsed(args[1:]...).(types.Bool)
		}, cel.StringType, cel.TimestampType, cel.DurationType),
		fn("at_least", cel.BoolType, func(args ...ref.Val) ref.Val {
			_, seen := asserted[string(args[1].(types.String))]
			return types.Bool(seen)
		}, cel.IntType, cel.StringType, cel.DurationType))
	if err != nil {
		b.Fatal(err)
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		b.Fatal(issues.Err())
	}
	program, err := env.Program(checked, cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		b.Fatal(err)
	}
	facts := map[string]any{}
	for key, value := range benchFacts {
		facts[key] = decodedJSON(b, value)
	}
	action := decodedJSON(b, benchInput)
	action["at"] = at
	return program, map[string]any{"facts": facts, "action": action, "plan": map[string]any{"status": "open"}}
}

func decodedJSON(b *testing.B, text string) map[string]any {
	b.Helper()
	var value map[string]any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		b.Fatal(err)
	}
	return value
}

// BenchmarkCompileShape compiles texts whose shape was not seen before.
func BenchmarkCompileShape(b *testing.B) {
	language := newLanguage()
	for _, s := range benchShapes {
		b.Run(s.name, func(b *testing.B) {
			_, literals := lift(s.text)
			for b.Loop() {
				if _, err := language.newShape(s.text, literals); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkInstanceOfKnownShape compiles texts that differ from one seen before in
// a literal only.
func BenchmarkInstanceOfKnownShape(b *testing.B) {
	cache := NewCache(8)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := cache.Condition(fmt.Sprintf(
			`facts["order/%d"].status == "cancelled" && elapsed(action.at, duration("1h"))`, i)); err != nil {
			b.Fatal(err)
		}
	}
}
