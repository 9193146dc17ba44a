package triggers

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"cel.dev/cel-go/common/types/ref"

	"github.com/sagenbaum/sagenbaum/triggers/exact"
)

// answerOf asks a condition over facts x and y, given in JSON.
func answerOf(t *testing.T, text, x, y string, inexact bool) Result {
	t.Helper()
	condition, err := Compile(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	m := newMemory(t)
	m.now = start
	m.assert("x", x, start)
	m.assert("y", y, start)
	return condition.Evaluate(Scope{NowNs: start, ArmedNs: start, Inexact: inexact,
		Action: &Action{AtNs: start, Input: json.RawMessage(`{"x":` + x + `,"y":` + y + `}`)}}, m)
}

// boundTo evaluates a binding over an input of x and y.
func boundTo(t *testing.T, text, x, y string, inexact bool) string {
	t.Helper()
	b, err := CompileBinding(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	value, err := b.Evaluate(BindingVars{Input: json.RawMessage(`{"x":` + x + `,"y":` + y + `}`), Inexact: inexact})
	if err != nil {
		return err.Error()
	}
	return string(value)
}

// TestNumbersAreComparedByValue: in conditions and bindings alike, facts and lifted fields, alone
// and within lists and objects, in either order.
func TestNumbersAreComparedByValue(t *testing.T) {
	for _, c := range []struct {
		x, y  string
		order int
	}{
		{"18446744073709551614", "18446744073709551615", -1}, {"18446744073709551615", "18446744073709551615.0", 0},
		{"1", "1.0", 0}, {"100", "1e2", 0}, {"10.10", "10.1", 0}, {"10.10", "10.11", -1}, {"-5", "-4.5", -1},
		{"9007199254740993", "9007199254740992.0", 1}, {"9223372036854775807", "9223372036854775808", -1},
		{"-9223372036854775809", "-9223372036854775808", -1}, {"0.1", "0.10000000000000000000001", -1},
		{"123456789012345678901234567890", "123456789012345678901234567891", -1}, {"1e400", "1e401", -1},
		{"0", "-0", 0}, {"0.0", "0", 0}, {"1e-400", "0", 1},
	} {
		for text, want := range map[string]bool{
			"X == Y": c.order == 0, "X != Y": c.order != 0, "X < Y": c.order < 0, "X <= Y": c.order <= 0,
			"X > Y": c.order > 0, "X >= Y": c.order >= 0, "Y == X": c.order == 0, "Y < X": c.order > 0,
			"[X, 7] == [Y, 7]": c.order == 0, `{"a": X} == {"a": [Y][0]}`: c.order == 0, "X in [3, Y]": c.order == 0,
			"[7, Y].exists(n, n == X)": c.order == 0, `{"a": [X]} != {"a": [Y]}`: c.order != 0,
			"[7].map(n, X)[0] in [[7], [Y]].map(n, n[0])": c.order == 0,
		} {
			for _, of := range []string{"facts.", "action.input."} {
				if r := answerOf(t, over(text, of), c.x, c.y, false); r.Err != nil || r.Truth != truthOf(want) {
					t.Errorf("x %s, y %s: %s is %v (%v), want %v", c.x, c.y, over(text, of), r.Truth, r.Err, want)
				}
			}
			if got := boundTo(t, over(text, "input."), c.x, c.y, false); got != fmt.Sprint(want) {
				t.Errorf("x %s, y %s: binding %s is %s, want %v", c.x, c.y, text, got, want)
			}
		}
	}
}

func over(text, of string) string {
	out := ""
	for _, r := range text {
		switch r {
		case 'X':
			out += of + "x"
		case 'Y':
			out += of + "y"
		default:
			out += string(r)
		}
	}
	return out
}

func truthOf(is bool) Truth {
	if is {
		return True
	}
	return False
}

// TestNumbersAreComputedByValue: in either order, with literals, beyond 64 bits, and as decimals.
func TestNumbersAreComputedByValue(t *testing.T) {
	const big = "18446744073709551615"
	for _, c := range []struct{ text, x, y, want string }{
		{"1 + X", big, "0", "18446744073709551616"}, {"X + 1", big, "0", "18446744073709551616"},
		{"X + Y", "9223372036854775807", "1", "9223372036854775808"}, {"X - Y", big, big, "0"},
		{"X * Y", "9223372036854775807", "10", "92233720368547758070"}, {"X / 10", big, "0", "1844674407370955161"},
		{"X % 10", big, "0", "5"}, {"-X", big, "0", "-18446744073709551615"}, {"2 * X", "1.1", "0", "2.2"},
		{"X + Y", "0.1", "0.2", "0.3"}, {"1.1 * X", "100", "0", "110"}, {"X * 3", "10.10", "0", "30.3"},
		{"X / Y", "7", "2", "3"}, {"X / Y", "7.0", "2", "3.5"}, {"X - Y", "10.10", "10.1", "0"},
		{"X + Y", "1", "2", "3"}, {"X / 3", "-7", "0", "-2"}, {"X + Y", `"a"`, `"b"`, `"ab"`},
		{"[X, Y].map(n, n)", "10.10", big, "[10.10," + big + "]"}, {"X", "10.10", "0", "10.10"},
		{"[X].map(n, {\"amount\": n})", "123456789012345678901234567890.5", "0",
			`[{"amount":123456789012345678901234567890.5}]`},
		{"json('" + big + "') - X", "1", "0", "18446744073709551614"},
	} {
		if got := boundTo(t, over(c.text, "input."), c.x, c.y, false); got != c.want {
			t.Errorf("x %s, y %s: %s is %s, want %s", c.x, c.y, c.text, got, c.want)
		}
		if c.want[0] == '[' || c.want[0] == '"' || c.text[0] == 'j' {
			continue
		}
		text := over(c.text, "facts.") + " == facts.z"
		condition, err := Compile(text)
		if err != nil {
			t.Fatal(err)
		}
		m := newMemory(t)
		m.now = start
		for key, value := range map[string]string{"x": c.x, "y": c.y, "z": c.want} {
			m.assert(key, value, start)
		}
		if r := condition.Evaluate(Scope{NowNs: start, ArmedNs: start}, m); r.Truth != True {
			t.Errorf("x %s, y %s: %s is %v (%v), want z %s", c.x, c.y, text, r.Truth, r.Err, c.want)
		}
	}
	for text, want := range map[string]bool{"30 < X * 3": true, "31 <= X * 3": false, "31 == X * 3": false,
		"X * 2 + 1 > 21": true, "1 + 2 * X < Y": true, "22 > 1 + 2 * X": true, "[X * 3].exists(n, 31 > n && n > 30)": true,
		"(X > 1 ? X * 3 : 3) in [30, 31]": false, "2 * X + 1 == Y": false, "Y == 2 * X + 22 - X + X": false} {
		if r := answerOf(t, over(text, "facts."), "10.10", "42", false); r.Err != nil || r.Truth != truthOf(want) {
			t.Errorf("%s is %v (%v)", text, r.Truth, r.Err)
		}
	}
	for _, text := range []string{"X / 0", "X % 0", "X * Y"} {
		if r := answerOf(t, over(text, "facts.")+" == 0", big, "1e900000", false); r.Err == nil && text != "X * Y" {
			t.Errorf("%s is %v, want an error", text, r.Truth)
		}
	}
	if r := answerOf(t, "facts.x + facts.y == 0", "1e-900000", "1e900000", false); r.Err == nil {
		t.Error("a sum of 1,800,000 digits was computed")
	}
}

// TestALiteralIsTheNumbersItIsNearestTo, where its digits are more than those of a double; and one
// of <, == and > holds.
func TestALiteralIsTheNumbersItIsNearestTo(t *testing.T) {
	for _, c := range []struct {
		x, literal string
		order      int
	}{
		{"1234567890.123456789", "1234567890.123456789", 0}, {"1234567890.1234567", "1234567890.123456789", 0},
		{"1234567890.123457", "1234567890.123456789", 1}, {"1234567890.123456", "1234567890.123456789", -1},
		{"-1234567890.123456789", "-1234567890.123456789", 0}, {"18446744073709551615.0", "18446744073709551615.0", 0},
		{"1e-310", "1e-310", 0}, {"1e400", "(1.0 / 0.0)", -1}, {"-1e400", "(-1.0 / 0.0)", 1}, {"1e-400", "0.0", 1},
		{"0.10000000000000000000001", "0.1", 1}, {"0.1", "0.1", 0}, {"1e400", "1.7e308", 1},
	} {
		for text, want := range map[string]bool{
			"X == Y": c.order == 0, "X != Y": c.order != 0, "X < Y": c.order < 0, "X <= Y": c.order <= 0,
			"X > Y": c.order > 0, "X >= Y": c.order >= 0, "Y == X": c.order == 0, "Y < X": c.order > 0,
			"Y > X": c.order < 0, "X in [3.5, Y]": c.order == 0, "Y in [X]": c.order == 0,
			`{"a": X} == {"a": Y}`: c.order == 0,
		} {
			text = strings.ReplaceAll(text, "Y", c.literal)
			r := answerOf(t, over(text, "facts."), c.x, "0", false)
			if r.Err != nil || r.Truth != truthOf(want) {
				t.Errorf("x %s: %s is %v (%v), want %v", c.x, text, r.Truth, r.Err, want)
			}
			if got := boundTo(t, over(text, "input."), c.x, "0", false); got != fmt.Sprint(want) {
				t.Errorf("x %s: binding %s is %s, want %v", c.x, text, got, want)
			}
		}
	}
	// Two of 17 digits are two numbers, though one double.
	x, y := "0.12345678901234567", "0.12345678901234568"
	if r := answerOf(t, "facts.x < facts.y && facts.x != facts.y", x, y, false); r.Truth != True {
		t.Errorf("%s and %s are one: %v", x, y, r.Err)
	}
	for _, text := range []string{"1.0000000000000002", "0.1000000000000001", "1234567890.1234567"} {
		value, _ := exact.Parse(text)
		if v, ok := numberOf(value, text, false).(number); !ok {
			t.Errorf("%s is the double %v", text, v)
		}
	}
}

// TestNumbersAreConvertedByValue: whole parts are exact, and a double is the nearest.
func TestNumbersAreConvertedByValue(t *testing.T) {
	digits := strings.Repeat("7", 1001)
	for _, c := range []struct{ text, x, want string }{
		{"int(X)", "9007199254740993.5", "9007199254740993"}, {"int(X)", "99999999999999999.9", "99999999999999999"},
		{"int(X)", "1.9999999999999999999", "1"}, {"int(X)", "-1.9999999999999999999", "-1"},
		{"int(X)", "0.99999999999999999999", "0"}, {"int(X)", "9223372036854775807.5", "9223372036854775807"},
		{"int(X)", "9223372036854775808.5", "integer overflow"}, {"int(X)", "1e30", "integer overflow"},
		{"int(X)", "-9223372036854775808.0", "-9223372036854775808"},
		{"uint(X)", "9007199254740993.5", "9007199254740993"}, {"uint(X)", "1.9999999999999999999", "1"},
		{"uint(X)", "18446744073709551615.9", "18446744073709551615"},
		{"uint(X)", "18446744073709551616.0", "unsigned integer overflow"},
		{"uint(X)", "-0.00000000000000000001", "unsigned integer overflow"},
		{"double(X) == 9007199254740992.0", "9007199254740993.0", "true"}, {"double(X) < 9007199254740994.0",
			"9007199254740993.0", "true"}, {"double(X)", "9007199254740993.0", "9007199254740992"},
		{"double(X)", "0.12345678901234567890", "0.12345678901234568"}, {"double(X)", `"1.5"`, "1.5"},
		{"double(X)", "3", "3"}, {"double(X)", "18446744073709551615", "18446744073709552000"},
		{"double(X)", "[]", "no such overload"}, {"double(X)", digits + ".5", "no JSON number"},
		{"double(X)", "0." + digits, "0.7777777777777778"}, {"string(X)", digits, "too many digits"},
		{"-X", digits, "too many digits"}, {"-X", "-9223372036854775808", "9223372036854775808"},
		{"-X", "9223372036854775808", "-9223372036854775808"}, {"-X", "10.10", "-10.1"},
		{"-json('-9223372036854775808')", "0", "9223372036854775808"}, {"-(-X)", "-9223372036854775808",
			"-9223372036854775808"}, {"-X", "true", "no such overload"}, {"-X", "5", "-5"}, {"-X", `"5"`, "no such overload"},
		{"-X", "18446744073709551615.25", "-18446744073709551615.25"},
	} {
		got := boundTo(t, over(c.text, "input."), c.x, "0", false)
		if got != c.want && !strings.Contains(got, " "+c.want) {
			t.Errorf("x %.40s: %s is %.200s, want %s", c.x, c.text, got, c.want)
		}
	}
	if got := boundTo(t, "-input.x", "-9223372036854775808", "0", true); !strings.Contains(got, "overflow") {
		t.Errorf("by the rules of earlier holders the negative of the least int is %s", got)
	}
}

// TestAValueHasOneText however it is written, and whole seconds are a time.
func TestAValueHasOneText(t *testing.T) {
	for want, spellings := range map[string][]string{
		"1500000": {"1500000", "1500000.00", "1.5e6"}, "10.1": {"10.1", "10.10", "101e-1"}, "0": {"0", "0.0", "-0"},
		"18446744073709551615": {"18446744073709551615", "18446744073709551615.0"}, "1e300": {"1e300", "10e299"},
		"0.000001": {"1e-6", "0.000001"},
	} {
		for _, x := range spellings {
			if got := boundTo(t, "string(input.x)", x, "0", false); got != `"`+want+`"` {
				t.Errorf("string of %s is %s, want %q", x, got, want)
			}
			if r := answerOf(t, `string(facts.x) == "`+want+`"`, x, "0", false); r.Truth != True {
				t.Errorf("string of fact %s is not %s: %v", x, want, r.Err)
			}
			if x[0] == '-' || len(x) > 15 {
				continue // CEL has no such literal
			}
			if r := answerOf(t, `string(`+x+`) == "`+want+`"`, "0", "0", false); r.Truth != True {
				t.Errorf("string of literal %s is not %s: %v", x, want, r.Err)
			}
		}
	}
	for _, x := range []string{"1796083200", "1796083200.0", "17960832e2", "1.7960832e9"} {
		if r := answerOf(t, `timestamp(facts.x) == timestamp("2026-12-01T00:00:00Z")`, x, "0", false); r.Truth != True {
			t.Errorf("timestamp(%s): %v, %v", x, r.Truth, r.Err)
		}
		if got := boundTo(t, "timestamp(input.x)", x, "0", false); got != `"2026-12-01T00:00:00Z"` {
			t.Errorf("timestamp(%s) is %s", x, got)
		}
	}
	for _, x := range []string{"1796083200.5", "1e300", "99999999999999"} {
		if r := answerOf(t, `timestamp(facts.x) == timestamp(0)`, x, "0", false); r.Err == nil {
			t.Errorf("timestamp(%s) is %v, want an error", x, r.Truth)
		}
	}
}

// TestInexactIsAsItWas: by the rules of a holder of before ledger.NumbersSince, one text has one
// program for both.
func TestInexactIsAsItWas(t *testing.T) {
	const big, less = "18446744073709551615", "18446744073709551614"
	for _, c := range []struct {
		text, x, y string
		truth      Truth
		failed     bool
	}{
		{"facts.x == facts.y", big, less, True, false}, {"facts.x != facts.y", big, less, False, false},
		{"action.x == action.y", big, less, True, false}, {"facts.x in [facts.y]", big, less, True, false},
		{`string(facts.x) == "1.5e+06"`, "1500000.00", "0", True, false},
		{`string(1500000.00) == "1.5e+06"`, "0", "0", True, false},
		{`timestamp(facts.x) == timestamp(1796083200)`, "1796083200.0", "0", Unknown, true},
		{"facts.x + facts.y == 0.30000000000000004", "0.1", "0.2", True, false},
		{"facts.x + 1 == 0", "9223372036854775807", "0", Unknown, true}, {"facts.x == 1", "1e400", "0", Unknown, true},
	} {
		r := answerOf(t, c.text, c.x, c.y, true)
		if r.Truth != c.truth || (r.Err != nil) != c.failed {
			t.Errorf("x %s, y %s: %s is %v (%v)", c.x, c.y, c.text, r.Truth, r.Err)
		}
		if now := answerOf(t, c.text, c.x, c.y, false); now.Truth == c.truth && (now.Err != nil) == c.failed {
			t.Errorf("x %s, y %s: %s is %v as before", c.x, c.y, c.text, r.Truth)
		}
	}
	for _, c := range []struct{ text, x, want string }{
		{"1 + input.x", big, "cannot evaluate binding: no such overload"}, {"input.x + 1", big, "18446744073709552000"},
		{"string(input.x)", "1500000.00", `"1.5e+06"`}, {"string(input.x)", big, `"` + big + `"`},
		{"[input.x].map(n, n)", "10.10", "[10.1]"}, {"json('10.10') + 0.2", "0", "10.299999999999999"},
	} {
		if got := boundTo(t, c.text, c.x, "0", true); got != c.want {
			t.Errorf("x %s: %s was %s, want %s", c.x, c.text, got, c.want)
		}
	}
	x, y := holdOver(t, true), holdOver(t, false)
	one, _ := x.Shared()
	if other, ok := y.Shared(); !ok || one == other {
		t.Error("conditions that read numbers in two ways are one")
	}
	var recalled Held
	if !x.Keep(1<<20).Recall(&recalled) || !recalled.inexact {
		t.Error("what is kept reads numbers in another way")
	}
}

func holdOver(t *testing.T, inexact bool) *Held {
	t.Helper()
	condition, err := Compile("facts.x == 1")
	if err != nil {
		t.Fatal(err)
	}
	return condition.Hold(Scope{NowNs: start, ArmedNs: start, Inexact: inexact})
}

// TestPlainFractionsAreWhatAllNumbersAre: the short way of most numbers is the long way of all.
func TestPlainFractionsAreWhatAllNumbersAre(t *testing.T) {
	short := 0
	try := func(text string) {
		t.Helper()
		plain, ok := plainDouble(text)
		if !ok {
			return
		}
		short++
		value, is := exact.Parse(text)
		if want := numberOf(value, text, false); !is || want != plain {
			t.Fatalf("%s is %v, want %#v", text, plain, want)
		}
	}
	for _, text := range []string{"0.5", "-0.5", "100.00", "10.10", "1.", ".5", "1.5e3", "0.0", "-0.0", "99999999999999.9",
		"999999999999999.9", "0.000000000000001", "12x.5"} {
		try(text)
	}
	r := rand.New(rand.NewPCG(5, 6))
	for range 100_000 {
		text := fmt.Sprintf("%d.%0*d", r.IntN(1<<(1+r.IntN(40)))-r.IntN(1<<20), 1+r.IntN(6), r.IntN(1<<(1+r.IntN(16))))
		try(text)
	}
	if short < 50_000 {
		t.Errorf("only %d numbers are plain", short)
	}
}

// BenchmarkDecodeNumbers is of a list of a thousand: whole, with a fraction, and long ones.
func BenchmarkDecodeNumbers(b *testing.B) {
	for name, number := range map[string]string{"int": "100", "fraction": "100.5", "whole": "100.00", "zero": "10.10",
		"wide": "18446744073709551615"} {
		for how, read := range map[string]func([]byte) ref.Val{"exact": decode, "inexact": decodeInexact} {
			b.Run(name+"/"+how, func(b *testing.B) {
				data := []byte("[" + strings.Repeat(number+",", 999) + number + "]")
				b.ReportAllocs()
				for b.Loop() {
					read(data)
				}
			})
		}
	}
}
