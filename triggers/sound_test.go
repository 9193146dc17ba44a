package triggers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// TestBriefsAreFixed pins what a refusal says: it becomes state, so that another text
// needs another version of the fold.
func TestBriefsAreFixed(t *testing.T) {
	for text, want := range map[string]string{
		"facts[":                 "it cannot be parsed; ",
		`plan.status = "failed"`: "a single =; use ==",
		`)`:                      "it cannot be parsed; ",
		"":                       `1:1: empty; write a condition, as in plan.status == "failed"`,
		`facts["n"`:              "it cannot be parsed; ",
		`nobody.knows == 1`:      `1:1: undeclared name "nobody"; `,
		`fatcs["n"] == 1`:        `1:1: undeclared name "fatcs"; did you mean facts?`,
		`plan.statsu == "x"`:     "1:5: plan has no field statsu; did you mean status?",
		`plan.status == 1`: "a value is of a kind that does not go where it stands; convert one side, as in " +
			"double(x), string(x) or timestamp(x)",
		`plan.status`:                             `1:1: the result is string, not a truth; compare it with something, as in plan.status == "failed"`,
		`after(timestamp("x"))`:                   "1:17: invalid timestamp argument; ",
		`elapsed(plan.opened_at, duration("2d"))`: `1:34: invalid duration argument; the largest unit is the hour, as in duration("24h")`,
		`plan.label.matches("(")`:                 "1:20: invalid matches argument; ",
		"\xff":                                    "1:1: not UTF-8; ",
		strings.Repeat("!", 40) + "true":          "",
		strings.Repeat("x", textMax+1):            "1:1: 4097 bytes; at most 4096",
	} {
		_, err := Compile(text)
		var e *Error
		if !errors.As(err, &e) {
			if want != "" {
				t.Errorf("%.40q compiles", text)
			}
			continue
		}
		problem, hint := e.Brief()
		if got := problem + "; " + hint; want != "" && got != want && !strings.HasPrefix(got, want) {
			t.Errorf("%.40q: %q, want %q", text, got, want)
		}
	}
}

// words are what random texts are made of, most of them right.
var words = []string{
	"output.id", "input.n", "meta.key", "before", "plan.label", `"a"`, `"b"`, `'c'`, "1", "2", "1.5",
	"9223372036854775807",
	"99999999999999999999", "0", "+", "+", "-", "*", "/", "%", "==", "<", "&&", "||", "!", "?", ":", "(", ")", "[", "]",
	"{", "}",
	",", ".", "in", "null", "true", "size(", "duration(", "json(", "string(", "int(", "has(", `"1h"`, `"{"`, `"\n"`, "\n",
	"// x\n", "nobody", "1e3",
}

func randomText(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(6) {
		b.WriteString(words[r.IntN(len(words))])
		if r.IntN(3) > 0 {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// varied is a text with other literals, which may have the same shape.
func varied(r *rand.Rand, text string) string {
	for _, literal := range []string{`"a"`, `'c'`, " 1 ", "2", "1.5", "0", `"1h"`, `"{"`} {
		if r.IntN(2) == 0 {
			with := []string{`"zz"`, `''`, " 0 ", "9223372036854775807", "0.0", "7", `"no"`, `"1"`}[r.IntN(8)]
			text = strings.ReplaceAll(text, literal, with)
		}
	}
	return text
}

// TestWhatIsKnownChangesNoRefusal: a cache that knows other texts, of the same shape or
// not, refuses a text exactly as one that knows nothing, in the same words.
func TestWhatIsKnownChangesNoRefusal(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	language := newLanguage()
	warm, small := newCache(1000, language), newCache(2, language)
	right, alike := 0, 0
	for range testenv.Cases(4000, 200_000) {
		text := randomText(r)
		for _, text := range []string{text, varied(r, text)} {
			_, bare := language.compileBinding(text)
			for _, c := range []*Cache{warm, small} {
				before := c.compilations
				if got := c.CheckBinding(text); said(got) != said(bare) {
					t.Fatalf("%q: %s, want %s", text, said(got), said(bare))
				}
				if bare == nil && c == warm && c.compilations == before {
					alike++
				}
			}
			_, cold := newCache(1, language).Condition(text)
			for _, c := range []*Cache{warm, small} {
				if _, got := c.Condition(text); said(got) != said(cold) {
					t.Fatalf("condition %q: %s, want %s", text, said(got), said(cold))
				}
			}
			if bare == nil {
				right++
			}
		}
	}
	if right < 200 || alike < 20 {
		t.Fatalf("%d of the texts compile, %d without being compiled", right, alike)
	}
}

func said(err error) string {
	var e *Error
	if !errors.As(err, &e) {
		return fmt.Sprint(err)
	}
	problem, want := e.Brief()
	return err.Error() + " / " + problem + " / " + want
}

// TestTextsOfOneShapeAreCheckedOnce, and nothing is compiled for a literal alone.
func TestTextsOfOneShapeAreCheckedOnce(t *testing.T) {
	c := NewCache(1000)
	for i := range 500 {
		for _, format := range []string{`"booking-%d"`, `"refund " + output.id + "/%d"`, `[output.id + "%d"]`} {
			if err := c.CheckBinding(fmt.Sprintf(format, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := c.Compilations(); got > 502 { // literals in a map stay in its shape
		t.Fatalf("compiled %d times", got)
	}
}

// TestABindingReadsAField by its name, or because it takes all of them.
func TestABindingReadsAField(t *testing.T) {
	for text, want := range map[string]bool{
		"meta.forward_key": true, "meta": true, `meta["forward_key"]`: true, `{"a": meta}`: true,
		`"x" + meta.forward_key`: true, `meta["forward_" + input.x]`: true, `[1].map(m, meta.forward_key)`: true,
		"meta.key": false, `"meta.forward_key"`: false, "input.meta.forward_key": false, "input": false, "1": false,
	} {
		b, err := CompileBinding(text)
		if err != nil {
			t.Fatal(err)
		}
		if b.ReadsField("meta", "forward_key") != want {
			t.Errorf("%s: want %t", text, want)
		}
	}
}

// BenchmarkCheckBinding is the price of a text that no one has seen, of one that differs
// from others in literals only, and of one that is known.
func BenchmarkCheckBinding(b *testing.B) {
	for name, format := range map[string]string{"known": "output.id", "shape": `"refund " + output.id + "%d"`,
		"new": "output.id%d"} {
		b.Run(name, func(b *testing.B) {
			c := NewCache(4096)
			for i := 0; b.Loop(); i++ {
				text := format
				if strings.Contains(format, "%d") {
					text = fmt.Sprintf(format, i)
				}
				if err := c.CheckBinding(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
