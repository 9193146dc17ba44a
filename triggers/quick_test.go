package triggers

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"cel.dev/cel-go/common/ast"
)

// compareParsers parses a text with both parsers. What the quick one takes, the other
// takes too, and both read the same expression.
func compareParsers(d dialect, text string) (quick bool, err error) {
	if len(text) > textMax {
		return false, nil
	}
	parsed := d.quick.parse(text)
	if parsed == nil {
		return false, nil
	}
	want, issues := d.env.Parse(text)
	if issues.Err() != nil {
		return true, fmt.Errorf("%q: the quick parser takes it, and the other says: %w", text, issues.Err())
	}
	got, other := written(parsed.NativeRep()), written(want.NativeRep())
	if got != other {
		return true, fmt.Errorf("%q:\nquick %s\nother %s", text, got, other)
	}
	return true, nil
}

// written writes an expression, with the place of each literal: the places of others
// are for errors only, which the other parser reports.
func written(tree *ast.AST) string {
	var out strings.Builder
	var write func(e ast.Expr)
	list := func(list []ast.Expr) {
		for _, e := range list {
			out.WriteByte(' ')
			write(e)
		}
	}
	write = func(e ast.Expr) {
		out.WriteByte('(')
		switch e.Kind() {
		case ast.IdentKind:
			out.WriteString(e.AsIdent())
		case ast.LiteralKind:
			at, _ := tree.SourceInfo().GetOffsetRange(e.ID())
			fmt.Fprintf(&out, "%T %v at %d", e.AsLiteral(), e.AsLiteral(), at.Start)
		case ast.SelectKind:
			fmt.Fprintf(&out, "select %s %v", e.AsSelect().FieldName(), e.AsSelect().IsTestOnly())
		case ast.CallKind:
			fmt.Fprintf(&out, "call %s %v", e.AsCall().FunctionName(), e.AsCall().IsMemberFunction())
		case ast.ListKind:
			fmt.Fprintf(&out, "list %v", e.AsList().OptionalIndices())
		case ast.MapKind:
			out.WriteString("map")
			for _, entry := range e.AsMap().Entries() {
				fmt.Fprintf(&out, " %v", entry.AsMapEntry().IsOptional())
			}
		case ast.ComprehensionKind:
			f := e.AsComprehension()
			fmt.Fprintf(&out, "fold %s %s %s", f.IterVar(), f.IterVar2(), f.AccuVar())
		case ast.StructKind:
			fmt.Fprintf(&out, "struct %s", e.AsStruct().TypeName())
			for _, f := range e.AsStruct().Fields() {
				fmt.Fprintf(&out, " %s %v", f.AsStructField().Name(), f.AsStructField().IsOptional())
				write(f.AsStructField().Value())
			}
			out.WriteByte(')')
			return
		default:
			panic(e.Kind())
		}
		list(partsOf(e))
		out.WriteByte(')')
	}
	write(tree.Expr())
	return out.String()
}

// quickSeeds are texts at the borders of the grammar.
var quickSeeds = []string{
	`[1,]`, `[,]`, `{1:2,}`, `{,}`, `f(1,)`, `- -1`, `--1`, `!!a`, `!-1`, `-!a`, `-1.5.a`, `-a.b`, `- 1`,
	`1 - -1`, `1--1`, `a?b:c?d:e`, `(a?b:c)?d:e`, `a?b?c:d:e`,
	`a.?b`, `a[?b]`, `a.? b`, `a ? .b : c`, `[?a]`, `{?a:b}`, `x{?a:b}`, `a.b{c:1}`, `.a`, `a..b`, `a. b`, `. a`,
	`a.in`, `a.true`, `a.if`, `in.a`, `if`, `null`, `a.null`, `{true: false}`,
	`1.`, `.5`, `1.e3`, `1e`, `1e+3`, `0x`, `0xg`, `0X1F`, `1U`, `1uu`, `01`, `1_0`, `1a`, `"a`, `"a""b"`,
	`"a"'b'`, `r"a"`, `R'a'`, `b"a"`, `br"a"`, `rb"a"`, `u"a"`, `x"a"`,
	`a//b`, "a//b\n+c", `a/b`, `a /b/ c`, "a\n&&\tb", `a&&b||c&&d`, `a||b&&c||d`, `a&&b&&c&&d&&e`, `a & b`,
	`a | b`, `a = b`, `a === b`, `a == b == c`, `a < b < c`, `a in b in c`, `a inb`, `ain b`,
	`has(a)`, `has(a.b)`, `has(a[b])`, `has(a.?b)`, `a.has(b)`, `all(a, b)`, `a.all(x, x)`, `a.all(x.y, x)`,
	`a.all(x, y, x)`, `a.map(x, y, z)`, `a.exists_one(x, x)`, `a.existsOne(x, x)`,
	`a.filter(x, x)`, `a.optMap(x, x)`, `a.optFlatMap(x, x)`, `a.map(x, x.map(y, y))`, `a.all(__result__, true)`,
	`@a`, `a@b`, `a.@b`, `a;b`, `a, b`, `()`, `(a`, `a)`, `((a))`, `(a)(b)`, `a(b)(c)`, `a.b(c).d(e)`,
	`9223372036854775807`, `9223372036854775808`, `-9223372036854775808`, `- 9223372036854775808`,
	`18446744073709551615u`, `1.7976931348623159e308`, `1e-400`, `-0`, `-0.0`, `-0x10`, `0x8000000000000000`,
	`-0x8000000000000000`,
	"a\x00b", "a\vb", "a\fb", "a\rb", "\ta", "a\n\n\nb", `a ? b : c`, `a ?b:c`, `a?[b]:c`, `a?.b:c`, `a[b?c:d]`,
	`[a?b:c]`, `a ?. b : c`,
	strings.Repeat("(", 38) + "a" + strings.Repeat(")", 38), strings.Repeat("[", 38) + strings.Repeat("]", 38),
	strings.Repeat("(", 47) + "a" + strings.Repeat(")", 47),
	strings.Repeat("!", 60) + "a", strings.Repeat("a.", 60) + "a", strings.Repeat("a+", 60) + "a",
	strings.Repeat("a||", 60) + "a", strings.Repeat("a?a:", 45) + "a",
	strings.Repeat("f(", 39) + "a" + strings.Repeat(")", 39),
}

// TestBothParsersAgree on the texts of the other tests, on random ones, and on those
// with a token too many, too few or out of place.
func TestBothParsersAgree(t *testing.T) {
	l := newLanguage()
	check := func(text string) bool {
		t.Helper()
		taken := false
		for _, d := range []dialect{l.conditions, l.readers} {
			quick, err := compareParsers(d, text)
			if err != nil {
				t.Fatal(err)
			}
			taken = taken || quick
		}
		return taken
	}
	for _, text := range append(append([]string{}, shapeSeeds...), quickSeeds...) {
		check(text)
	}
	rounds := oracleRuns()
	taken := 0
	for seed := range int64(rounds) {
		w := writer{rand.New(rand.NewSource(seed))}
		text := w.truth(w.Intn(4))
		if w.Intn(2) == 0 {
			text = w.spoilt(text)
		}
		if check(text) {
			taken++
		}
	}
	if taken < rounds/6 {
		t.Fatalf("the quick parser takes %d of %d texts", taken, rounds)
	}
	t.Logf("the quick parser takes %d of %d texts", taken, rounds)
}

// spoilt changes a token of a text, or a few.
func (w writer) spoilt(text string) string {
	tokens := tokensOf(text)
	odd := append(strings.Fields(`( ) [ ] { } , . ? : ! - + * / % && || == != < <= > >= in true null if a facts .?
		[? 1 0x1 1.5 1u "a" ' " & | = // has( .all(x, @ # $ ; _ __a`), "\n", " ")
	for range 1 + w.Intn(3) {
		i := w.Intn(len(tokens) + 1)
		switch w.Intn(4) {
		case 0:
			tokens = append(tokens[:i], append([]string{w.of(odd)}, tokens[i:]...)...)
		case 1:
			if i < len(tokens) {
				tokens = append(tokens[:i], tokens[i+1:]...)
			}
		case 2:
			if i < len(tokens) {
				tokens[i] = w.of(odd)
			}
		case 3:
			if j := w.Intn(len(tokens) + 1); i < len(tokens) && j < len(tokens) {
				tokens[i], tokens[j] = tokens[j], tokens[i]
			}
		}
	}
	return strings.Join(tokens, "")
}

func tokensOf(text string) (tokens []string) {
	for i := 0; i < len(text); {
		end := i + 1
		if text[i] > ' ' {
			end = tokenEnd(text, i)
		}
		tokens = append(tokens, text[i:end])
		i = end
	}
	return tokens
}

// FuzzBothParsersAgree: what the quick parser takes, the other reads alike.
func FuzzBothParsersAgree(f *testing.F) {
	for _, seed := range append(append([]string{}, shapeSeeds...), quickSeeds...) {
		f.Add(seed)
	}
	l := newLanguage()
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 400 {
			return
		}
		for _, d := range []dialect{l.conditions, l.readers} {
			if _, err := compareParsers(d, text); err != nil {
				t.Fatal(err)
			}
		}
	})
}
