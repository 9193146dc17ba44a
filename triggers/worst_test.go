package triggers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// filled repeats a unit until a text is as long as one may be.
func filled(begin, unit, end string) string {
	return begin + strings.Repeat(unit, (textMax-len(begin)-len(end))/len(unit)) + end
}

func nested(open, middle, shut string, n int) string {
	return strings.Repeat(open, n) + middle + strings.Repeat(shut, n)
}

// worstTexts are the texts that take longest to compile, or to refuse, that we know.
var worstTexts = map[string]string{
	"terms":            chainOf(95, func(n int) string { return fmt.Sprintf(`facts["k%d"].f%d == %d`, n, n, n) }),
	"escapes":          chainOf(95, func(n int) string { return fmt.Sprintf(`facts["k\\%d"].f%d == %d`, n, n, n) }),
	"a wrong name":     chainOf(94, func(n int) string { return fmt.Sprintf(`facts.k%d.f%d == 1`, n, n) }) + ` || fatcs`,
	"many terms":       chainOf(165, func(n int) string { return fmt.Sprintf(`facts["k%d"].f == %d`, n, n) }),
	"a list":           filled(`facts["a"].x in [`, `"a", `, `"b"]`),
	"a longer list":    filled(`facts["a"].x in [`, `1, `, `2]`),
	"facts in a list":  filled(`facts.a == [`, `facts.b, `, `1]`),
	"maps":             filled(`{`, `"a": {"b": facts.c}, `, `"z": 1}["a"] == 1`),
	"sums":             nested(`(facts.a + `, `1`, `)`, 30) + " == 1",
	"patterns":         filled(``, `facts.a.matches("^(a|b){3}c+[d-f]*$") || `, `true`),
	"timestamps":       filled(``, `after(timestamp("2026-01-01T00:00:00Z")) || `, `true`),
	"durations":        filled(``, `count("a", duration("1h")) > 1 || `, `true`),
	"choices":          nested(`facts.a ? true : (`, `false`, `)`, 25),
	"loops":            nested(`[1,2].all(x, `, `true`, `)`, 14),
	"many loops":       filled(``, `[1].exists(x, x == 1) || `, `true`),
	"long loops":       filled(``, `facts.a.map(x, x > 1, x) == [1] || `, `true`),
	"paths":            filled(``, `has(facts.a.b.c.d.e.f.g) || `, `true`),
	"nots":             strings.Repeat("!", 4000) + "true",
	"brackets":         nested("[", "1", "]", 30) + " == []",
	"open brackets":    strings.Repeat("[", 4000),
	"marks":            strings.Repeat("a?", 2000),
	"in":               filled("1 ", "in [1] ", ""),
	"lists of lists":   filled(`[`, `[facts.a], `, `[1]] == []`),
	"equal lists":      filled(``, `[[facts.a]] == [[facts.b]] || `, `true`),
	"no tokens":        strings.Repeat("@ ", 2000),
	"wrong names":      filled(``, `abc_def_ghi_jkl == b || `, `true`),
	"a long name":      strings.Repeat("abcdefgh", 500) + " == 1",
	"long functions":   filled(``, strings.Repeat("f", 400)+`(1) == 1 || `, `true`),
	"wrong functions":  filled(``, `fooooooooooo(1) || `, `true`),
	"wrong operands":   filled(``, `1 + "aaaaaaa" == 1 || `, `true`),
	"wrong durations":  filled(``, `elapsed(action.at, duration("x")) || `, `true`),
	"wrong timestamps": filled(`[`, `timestamp("x"), `, `timestamp("")] == []`),
	"wrong patterns":   filled(``, `facts.a.matches("(") || `, `true`),
	"large patterns":   filled(``, `facts.a.matches("((a{9}){9}){9}") || `, `true`),
}

// TestNoTextTakesLongToCompile, or to be refused: while one is compiled no other tenant
// of the processor is asked. The bound leaves room for a slow machine.
func TestNoTextTakesLongToCompile(t *testing.T) {
	const most = 75 * time.Millisecond
	l := newLanguage()
	for name, text := range worstTexts {
		if len(text) > textMax {
			t.Fatalf("%s: %d bytes", name, len(text))
		}
		best := time.Hour // of processor time, in which nothing else runs here
		for range 5 {
			cache := newCache(8, l)
			began := testenv.CPU()
			_, _ = cache.Condition(text)
			if best = min(best, testenv.CPU()-began); best < most/4 {
				break
			}
		}
		if best > most {
			t.Errorf("%s: %v", name, best)
		}
	}
}

// TestWhatIsWrongManyTimesIsSaidOnce: with the first of it, and its place.
func TestWhatIsWrongManyTimesIsSaidOnce(t *testing.T) {
	many := func(term string) string { return chainOf(20, func(int) string { return term }) }
	for _, c := range []struct{ text, want string }{
		{many(`fatcs["a"] == 1`), `1:1: undeclared name "fatcs"; did you mean facts?`},
		{many(`xyzzy["a"] == 1`), `1:1: undeclared name "xyzzy"`},
		{`1 == 1 || ` + strings.Repeat("a", 100) + ` == 1`, `1:11: undeclared name "` + strings.Repeat("a", 64) + `..."`},
		{many(`elapsed(action.at, duration("x"))`), `1:29: invalid duration argument; the largest unit is the hour`},
		{`facts.a == 1 || facts.b.matches("(")`, `1:33: invalid matches argument`},
		{`after(timestamp("tomorrow")) || elapsed(action.at, duration("x"))`, `1:17: invalid timestamp argument`},
		{many(`facts.a.matches("((a{9}){9}){9}")`), `1:17: regex program size 911 exceeds limit of 250`},
		{`[1].exists(xyz, xyz == 1) && type(1) == int && 1 == 2 - "a"`, `1:55: found no matching overload`},
	} {
		_, err := Compile(c.text)
		if err == nil || !strings.HasPrefix(err.Error(), "cannot compile expression: "+c.want) {
			t.Errorf("%.60s: %v, want %s", c.text, err, c.want)
		}
	}
}
