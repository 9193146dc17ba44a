package exact_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/triggers/exact"
)

func parse(t *testing.T, text string) exact.Number {
	t.Helper()
	n, ok := exact.Parse(text)
	if !ok {
		t.Fatalf("%s is no number", text)
	}
	return n
}

// TestANumberHasOneSpelling: and is the same number however it was written.
func TestANumberHasOneSpelling(t *testing.T) {
	for want, texts := range map[string][]string{
		"1500000":                     {"1500000", "1500000.00", "1.5e6", "15E+5", "0.15e7"},
		"0":                           {"0", "-0", "0.000", "0e9", "-0.0e-9"},
		"10.1":                        {"10.1", "10.10", "101e-1", "0.1010e2"},
		"-0.000001":                   {"-0.000001", "-1e-6", "-0.0000010"},
		"18446744073709551615":        {"18446744073709551615", "18446744073709551615.0", "1844674407370955161.5e1"},
		"1e300":                       {"1e300", "10e299", "1" + strings.Repeat("0", 300)},
		"-1.25e-60":                   {"-1.25e-60", "-125e-62"},
		"1" + strings.Repeat("0", 40): {"1e40", "10e39"},
	} {
		for _, text := range texts {
			n := parse(t, text)
			if n.String() != want || n != parse(t, texts[0]) || parse(t, n.String()) != n {
				t.Errorf("%s is %s, want %s", text, n, want)
			}
		}
	}
	for _, bad := range []string{"", "-", "+1", ".5", "5.", "1e", "1e1.5", "0x1", "NaN", "Infinity", "1 2", "--1",
		"1e9999999", "1e99999999999999999999"} {
		if n, ok := exact.Parse(bad); ok {
			t.Errorf("%q is %s", bad, n)
		}
	}
}

// TestNumbersAreThoseOfMathBig in order, sum, product and quotient.
func TestNumbersAreThoseOfMathBig(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	draw := func() string {
		text := fmt.Sprint(r.IntN(2000) - 1000)
		if r.IntN(3) == 0 {
			text = fmt.Sprint(r.Int64()) + fmt.Sprint(r.Uint64())
		}
		if r.IntN(2) == 0 {
			text += fmt.Sprintf(".%0*d", 1+r.IntN(8), r.IntN(1000))
		}
		if r.IntN(3) == 0 {
			text += fmt.Sprintf("e%d", r.IntN(21)-10)
		}
		return text
	}
	rat := func(text string) *big.Rat {
		v, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatal(text)
		}
		return v
	}
	for range 20_000 {
		x, y := draw(), draw()
		a, b := parse(t, x), parse(t, y)
		p, q := rat(x), rat(y)
		if a.Compare(b) < 0 != (p.Cmp(q) < 0) || a.Compare(b) > 0 != (p.Cmp(q) > 0) || (a == b) != (p.Cmp(q) == 0) {
			t.Fatalf("%s and %s compare as %d, want %d", x, y, a.Compare(b), p.Cmp(q))
		}
		sum, ok := a.Add(b.Negate())
		product, fits := a.Multiply(b)
		if !ok || !fits || rat(sum.String()).Cmp(new(big.Rat).Sub(p, q)) != 0 ||
			rat(product.String()).Cmp(new(big.Rat).Mul(p, q)) != 0 {
			t.Fatalf("%s - %s = %s, %s * %s = %s", x, y, sum, x, y, product)
		}
		if a.Whole() != p.IsInt() {
			t.Fatalf("%s is whole: %v", x, a.Whole())
		}
		if !p.IsInt() || !q.IsInt() || q.Sign() == 0 {
			continue
		}
		quotient, rest, _ := a.Divide(b)
		v, w := new(big.Int).QuoRem(p.Num(), q.Num(), new(big.Int))
		if rat(quotient.String()).Num().Cmp(v) != 0 || rat(rest.String()).Num().Cmp(w) != 0 {
			t.Fatalf("%s / %s = %s rest %s, want %s rest %s", x, y, quotient, rest, v, w)
		}
	}
}

// TestWhatIsComputedIsBounded: two short numbers that are far apart have a sum of a million digits.
func TestWhatIsComputedIsBounded(t *testing.T) {
	far, near := parse(t, "1e900000"), parse(t, "1e-900000")
	if _, ok := far.Add(near); ok {
		t.Error("a sum of 1,800,000 digits")
	}
	if _, ok := far.Multiply(far); ok {
		t.Error("a product beyond what is read")
	}
	if long := parse(t, strings.Repeat("7", 600)); true {
		if _, ok := long.Multiply(long); ok {
			t.Error("a product of 1,200 digits")
		}
	}
}

// TestTheSameValueInAnotherSpelling is the same fact.
func TestTheSameValueInAnotherSpelling(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`{"a":1,"b":[1.0,2]}`, `{ "b": [1, 2e0], "a": 1.00 }`, true},
		{`{"a":1}`, `{"a":2}`, false}, {`{"a":1}`, `{"a":1,"b":null}`, false}, {`[1,2]`, `[2,1]`, false},
		{`"a\u0062"`, `"ab"`, true}, {`"a"`, `"b"`, false}, {`"1"`, `1`, false}, {`true`, `true `, true},
		{`18446744073709551615`, `18446744073709551614`, false}, {`9007199254740993`, `9007199254740992.0`, false},
		{`1e2`, `100`, true}, {`0.1`, `0.10`, true}, {`null`, `false`, false}, {`{"a":1,"a":2}`, `{"a":2}`, false},
		{`{"a":1,"a":2}`, `{"a":1.0,"a":2}`, false}, {`[[],{}]`, `[ [ ], { } ]`, true}, {`[1,[2]]`, `[1,[2],3]`, false},
		{`{"a":"\"","b":[1]}`, `{"a":"\u0022","b":[1.0]}`, true}, {`{"a":{"b":[1,"x"]}}`, `{"a":{"b":[1,"y"]}}`, false},
		{`"a\\"`, `"a\\\\"`, false}, {`{"a":1}`, `{"b":1}`, false}, {`[true]`, `[false]`, false}, {`[null]`, `[0]`, false},
		{`[1e99999999]`, `[1e99999999]`, true}, {`1e99999999`, `1e99999998`, false}, {`{}`, `[]`, false},
	} {
		if exact.Same([]byte(c.a), []byte(c.b)) != c.same || exact.Same([]byte(c.b), []byte(c.a)) != c.same {
			t.Errorf("%s and %s: want same %v", c.a, c.b, c.same)
		}
	}
}

// TestFloatsAreThoseOfStrconv.
func TestFloatsAreThoseOfStrconv(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		text := fmt.Sprintf("%d.%de%d", r.IntN(1_000_000)-500_000, r.IntN(1_000_000_000), r.IntN(60)-30)
		want, err := strconv.ParseFloat(text, 64)
		if got := parse(t, text).Float64(); err != nil || got != want {
			t.Fatalf("%s is %v, want %v", text, got, want)
		}
	}
	if n, ok := exact.OfFloat(10.1); !ok || n.String() != "10.1" {
		t.Errorf("10.1 is %s", n)
	}
	if _, ok := exact.OfFloat(math.Inf(1)); ok {
		t.Error("infinity is a number")
	}
}

// TestANearestFloatIsThatOfAllDigits: those behind the first 800 decide where these lie between two
// floats, and there may be many.
func TestANearestFloatIsThatOfAllDigits(t *testing.T) {
	halfway := new(big.Float).SetPrec(2000).SetInt64(1<<53+1).Text('f', 0) // between 2^53 and 2^53 + 2
	for text, want := range map[string]float64{
		halfway + "." + strings.Repeat("0", 900) + "1": 1<<53 + 2, halfway + ".0": 1 << 53,
		"-" + halfway + "." + strings.Repeat("0", 60_000) + "1": -1<<53 - 2, strings.Repeat("9", 60_000): math.Inf(1),
		"0." + strings.Repeat("3", 60_000): 1. / 3, strings.Repeat("7", 60_000) + "e-60000": 7. / 9,
	} {
		if got := parse(t, text).Float64(); got != want {
			t.Errorf("%.20s of %d digits is %v, want %v", text, len(text), got, want)
		}
	}
	long := parse(t, "0."+strings.Repeat("3", 60_000))
	if n := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			long.Float64()
		}
	}).AllocedBytesPerOp(); n > 8<<10 {
		t.Errorf("a float of 60,000 digits takes %d bytes", n)
	}
}

// TestTruncate: a number without its fraction, and without rounding.
func TestTruncate(t *testing.T) {
	for text, want := range map[string]string{"1.99": "1", "-1.99": "-1", "0.99": "0", "-0.001": "0", "100.5": "100",
		"15e1": "150", "0": "0", "9007199254740993.5": "9007199254740993", "1e-900": "0"} {
		if got := parse(t, text).Truncate(); got != parse(t, want) {
			t.Errorf("%s is cut to %s, want %s", text, got, want)
		}
	}
}

// TestALookSideBySideIsNoOtherAnswer: what is seen to differ has another spelling, and what has one
// spelling is the same.
func TestALookSideBySideIsNoOtherAnswer(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	var draw func(depth int) string
	draw = func(depth int) string {
		leaves := []string{"1", "1.0", "2", "true", "false", "null", `"a"`, `"\u0061"`, `"b"`, `""`, "-0", "1e0", "{}", "[]"}
		if depth == 0 || r.IntN(3) == 0 {
			return leaves[r.IntN(len(leaves))]
		}
		var parts []string
		list := r.IntN(2) == 0
		for i := range r.IntN(4) {
			name := ""
			if !list {
				name = fmt.Sprintf("%q: ", string(rune('a'+(i+r.IntN(2))%4)))
			}
			parts = append(parts, name+draw(depth-1))
		}
		if list {
			return "[" + strings.Join(parts, ", ") + "]"
		}
		return "{" + strings.Join(parts, ",") + " }"
	}
	same := 0
	for range 50_000 {
		a, b := draw(2), draw(2)
		one, ok := exact.Canonical([]byte(a))
		other, is := exact.Canonical([]byte(b))
		want := a == b || ok && is && string(one) == string(other)
		if exact.Same([]byte(a), []byte(b)) != want {
			t.Fatalf("%s and %s: same %v, spelled %s and %s", a, b, !want, one, other)
		}
		if want && a != b {
			same++
		}
	}
	if same < 300 {
		t.Errorf("only %d pairs are the same in another spelling", same)
	}
}

// TestAFactThatChangesIsNotReadTwice: that costs next to nothing, where its members keep their order.
func TestAFactThatChangesIsNotReadTwice(t *testing.T) {
	a := []byte(`{"id":"o7","status":"open","price":100.5,"of":{"step":[1,2,3]}}`)
	b := []byte(`{"id":"o7","status":"open","price":100.5,"of":{"step":[1,2,4]}}`)
	if n := testing.AllocsPerRun(100, func() {
		if exact.Same(a, b) {
			t.Fatal("the same")
		}
	}); n > 4 {
		t.Errorf("%v allocations", n)
	}
}
