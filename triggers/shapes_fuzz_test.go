package triggers

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"reflect"
	"strings"
	"testing"
)

// alone compiles a text as if there were no other: no literal is a parameter.
func alone(l *language, text string) (*Condition, error) {
	s, err := l.newShape(text, nil)
	if err != nil {
		return nil, err
	}
	return s.instance(text, nil), nil
}

// sibling writes other literals where lift found some, so that both texts have one
// shape.
func sibling(text string, salt int64) string {
	_, literals := lift(text)
	r := rand.New(rand.NewSource(salt))
	var out strings.Builder
	at := 0
	for _, l := range literals {
		out.WriteString(text[at:l.at])
		switch l.kind {
		case stringLiteral:
			quote := text[l.at : l.at+1]
			out.WriteString(quote + []string{"", "a", "b", "5s", "0s", "-1h", "2026-03-01T12:00:00Z", "$s", "UTC", "output",
				"x y", "(", "in"}[r.Intn(13)] + quote)
			at = l.at + 1 + strings.IndexByte(text[l.at+1:], quote[0]) + 1
		case intLiteral:
			out.WriteString([]string{"0", "1", "2", "3", "9223372036854775807", "007"}[r.Intn(6)])
			for at = l.at; at < len(text) && text[at] >= '0' && text[at] <= '9'; at++ {
			}
		case doubleLiteral:
			out.WriteString([]string{"0.0", "1.5", "2.0", "00.10"}[r.Intn(4)])
			for at = l.at; at < len(text) && (text[at] >= '0' && text[at] <= '9' || text[at] == '.'); at++ {
			}
		}
	}
	out.WriteString(text[at:])
	return out.String()
}

// compareShared compiles texts through one cache, in order, and each alone: what is
// refused is refused in the same words, and what is answered is the same answer.
func compareShared(t *testing.T, l *language, texts ...string) {
	t.Helper()
	cache := newCache(4, l)
	for _, text := range texts {
		got, err := cache.Condition(text)
		want, alone := alone(l, text)
		if fmt.Sprint(err) != fmt.Sprint(alone) {
			t.Fatalf("%q among %q: %v, alone: %v", text, texts, err, alone)
		}
		if err != nil {
			continue
		}
		if got.Digest() != want.Digest() || got.ReadsClock() != want.ReadsClock() || got.ReadsPlan() != want.ReadsPlan() ||
			got.ReadsAction() != want.ReadsAction() ||
			got.ReadsVerdict() != want.ReadsVerdict() || got.Reads("plan.actions") != want.Reads("plan.actions") {
			t.Fatalf("%q among %q: reads other things than alone", text, texts)
		}
		keys, computed := got.Keys()
		wantKeys, wantComputed := want.Keys()
		if !reflect.DeepEqual(keys, wantKeys) && len(keys)+len(wantKeys) > 0 || computed != wantComputed {
			t.Fatalf("%q among %q: keys %q %v, alone %q %v", text, texts, keys, computed, wantKeys, wantComputed)
		}
		for now := range int64(4) {
			if got, want := answerAt(t, got, now), answerAt(t, want, now); got != want {
				t.Fatalf("%q among %q at %d:\n%s\nalone:\n%s", text, texts, now, got, want)
			}
		}
	}
}

// answerAt is all of an answer, and what is beside it, as one text.
func answerAt(t *testing.T, c *Condition, now int64) string {
	m := newMemory(t)
	m.now = start + now*second
	for i, value := range []string{`{"x":1,"a":"b","n":[1,2.5,"x",{"a":null}]}`, `"a"`, `1`, `1.5`, `{"a":{"b":true}}`} {
		m.assert(string(rune('a'+i)), value, start+int64(i)*second/2)
	}
	h := c.Hold(Scope{NowNs: m.now, ArmedNs: start,
		Plan: Plan{ID: "a", Status: "open", OpenedNs: start, DeadlineNs: start + 2*second,
			Labels: map[string]string{"region": "a"}, Actions: 2},
		Action: &Action{ID: "a", AtNs: start, Input: json.RawMessage(`{"x":1,"a":"b","order":"a"}`),
			Output: json.RawMessage(`{"x":1.5}`), Outcome: "completed"}})
	r := h.Evaluate(m.now, m)
	shared, ok := h.Shared()
	return fmt.Sprintf("%+v watches %q, shared %x %v", r, c.Watched(r), shared, ok)
}

var shapeSeeds = []string{
	`facts["a"].x == 1 && elapsed(action.at, duration("1s"))`,
	`at_least(1, "a", duration("5s")) || count('b', duration('1s')) > 2`,
	`facts["a\"b"].x == -1`, `facts["a"].n[0] == 1 && facts.a.n[1] == 2.5`, `"é" in facts || "a" in facts`,
	`"""a""" in facts`,
	`facts["a"].x /* no */ == 1`, "facts[\"a\"] // \"b\"\n.x == 1", `"a in facts" == "$s" || "$i" in facts`,
	`facts["a"].x in [1, 2] || "x" in {"x": 1}`,
	`has(facts["a"].x) && facts[?"zz"].orValue(3) == 3`, `["a", "b"].exists(facts1, facts[facts1] == "a")`,
	`[1, 2].all(a, a > 0 && facts["a"].x == 1)`,
	`action["order"] == "a" && action.input["x"] == 1`, `plan.status.matches("^o") && plan.status.startsWith("o")`,
	`action.at.getHours("+01:00") == 13`,
	`facts["a" + "b"] == 1 || facts["a" + action.a] == 1`, `1e3 > 2.0 && 0x10 == 16 && 1u == 1u`,
	`facts["a"].x == 1 ? "a" in facts : after(timestamp("2026-03-01T12:00:01Z"))`,
	`r"a" in facts || b"a" == b"a"`, `- 1 < 2 - 1`, `facts["a"].x.y == 1 || size("abc") == 3`,
	`[{"a": 1}, {"a": 2}][0].a == 1`, `{"a": [1, 2]}["a"][1] == 2`,
	`duration("1s") < duration("2s") && timestamp("2026-03-01T12:00:00Z") < plan.deadline`,
	`within("a", action.at + duration("1s"), duration("1s"))`,
	`facts["a"].x==1&&facts["b"]=="a"`, `[1, 2].map(x, x + 1).exists_one(x, x == 2)`,
	`string(1) == "1" && int("1") == 1 && double("1.5") > 1.0`, `1.5 * facts["c"] > 1.0`,
	`plan.labels.region == "a" && plan.labels["region"] == "a"`, `(1) == 1 && (("a")) == "a"`,
	`facts["a"].n[?0].orValue(5) == 1`, `facts["e"].a["b"]`, `"a".size() == 1 && "ab"[0] == "a"`,
	`facts["a"].n.filter(x, x == 2.5).size() == 1`, `optional.of(1).orValue(2) == 1`, `"in" in facts`, `1 in[1]`,
	`"a"in facts`, `facts[true ? "a" : "b"].x == 1`, `007 == 7`, `1.0 == 1 || .5 < 1.0`,
	`facts["" + action.a]`, `facts["a" + "b"] || facts[[1].size() == 1 ? "a" : "b"]`,
	`action.input["a" + "b"] || after(plan.deadline)`,
	`count("a", duration()) > 1`, `at_least()`, `at()`, `has()`, `duration()`, `"a".at() == 1`,
}

// FuzzShapes: a text compiled for many answers as it does alone.
func FuzzShapes(f *testing.F) {
	for i, seed := range shapeSeeds {
		f.Add(seed, int64(i))
	}
	l := newLanguage()
	f.Fuzz(func(t *testing.T, text string, salt int64) {
		if len(text) > 400 {
			return
		}
		compareShared(t, l, sibling(text, salt), text, sibling(text, salt+1), text+" ")
	})
}

// pieces are what TestAShapeIsNoOtherLanguage puts together.
var pieces = struct{ strings, numbers, gaps []string }{
	strings: []string{`"a"`, `'a'`, `"b"`, `"a\"b"`, `'\''`, `"""a"b"""`, `r"a\d"`, `"é"`, `"$s"`, `"$i$d"`, `"in"`,
		`"facts[1]"`, `"// no"`, `"\u00e9"`, `""`, `'"'`, `"5s"`, `"2026-03-01T12:00:00Z"`, `"1s"`, `b"a"`},
	numbers: []string{"0", "1", "2", "-1", "- 1", "1.5", "-1.5", "2.0", "1e3", "1E-2", "0x1f", "1u", "007",
		"9223372036854775807", "9223372036854775808", "-9223372036854775808", ".5"},
	gaps: []string{"", " ", "\n", " // $s\n", " // \"\n", "\t", "//in\n"},
}

type writer struct{ *rand.Rand }

func (w writer) of(list []string) string { return list[w.Intn(len(list))] }

// gapped puts gaps between the tokens.
func (w writer) gapped(tokens ...string) string {
	return strings.Join(tokens, w.of(pieces.gaps))
}

func (w writer) literal() string {
	if w.Intn(2) == 0 {
		return w.of(pieces.strings)
	}
	return w.of(pieces.numbers)
}

func (w writer) value(depth int) string {
	if depth == 0 {
		return w.literal()
	}
	key, v := w.of(pieces.strings), func() string { return w.value(depth - 1) }
	switch w.Intn(17) {
	case 0:
		return w.gapped("facts", "[", key, "]")
	case 1:
		return w.gapped("facts", "[", key, "]", ".", "x")
	case 2:
		return w.gapped("facts", "[", "?", key, "]", ".orValue(", v(), ")")
	case 3:
		return w.gapped("[", v(), ",", w.literal(), "]")
	case 4:
		return w.gapped("{", w.of(pieces.strings), ":", v(), "}")
	case 5:
		return w.gapped("(", v(), ")")
	case 6:
		return w.gapped("dyn(", v(), ")", w.of([]string{"+", "-", "*", "/", "%"}), "dyn(", v(), ")")
	case 7:
		return w.gapped("facts[\"a\"]", ".n", "[", v(), "]")
	case 8:
		return w.gapped(v(), "?", v(), ":", v())
	case 9:
		return w.gapped("action", "[", key, "]")
	case 10:
		return w.gapped("count(", key, ",", "duration(", w.of(pieces.strings), ")", ")")
	case 11:
		return w.gapped("[", v(), ",", w.literal(), "]", ".map(", w.of([]string{"x", "a", "facts1", "in1"}), ",", "x", "==",
			v(), ")")
	case 12:
		return w.gapped("size(", v(), ")")
	case 13:
		return w.gapped("{\"a\"", ":", "[", v(), "]", "}", "[", key, "]", "[", w.of(pieces.numbers), "]")
	case 14:
		return w.gapped("action.input", ".", "x")
	case 15:
		return w.gapped("facts", "[", key, "+", w.of(pieces.strings), "]")
	}
	return w.literal()
}

func (w writer) truth(depth int) string {
	v := func() string { return w.value(w.Intn(3)) }
	if depth > 0 && w.Intn(3) > 0 {
		a, b := w.truth(depth-1), w.truth(depth-1)
		switch w.Intn(5) {
		case 0:
			return w.gapped("!", "(", a, ")")
		case 1:
			return w.gapped(a, "?", b, ":", w.truth(depth-1))
		case 2:
			return w.gapped("[", v(), ",", v(), "]", w.of([]string{".all(", ".exists(", ".exists_one("}), "x", ",", a, "||", "x",
				"==", v(), ")")
		}
		return w.gapped(a, w.of([]string{"&&", "||"}), b)
	}
	s := func() string { return w.of(pieces.strings) }
	switch w.Intn(9) {
	case 0:
		return w.gapped(s(), " in", " facts")
	case 1:
		return w.gapped("has(", "facts", "[", s(), "]", ".x", ")")
	case 2:
		return w.gapped("after(", "timestamp(", s(), ")", ")")
	case 3:
		return w.gapped("elapsed(", "action.at", ",", "duration(", s(), ")", ")")
	case 4:
		return w.gapped("at_least(", w.of(pieces.numbers), ",", s(), ",", "duration(", s(), ")", ")")
	case 5:
		return w.gapped("within(", s(), ",", "action.at", ",", "duration(", s(), ")", ")")
	case 6:
		return w.gapped("plan.status", ".", "matches(", s(), ")")
	case 7:
		return w.gapped(v(), " in ", v())
	}
	return w.gapped("dyn(", v(), ")", w.of([]string{"==", "!=", "<", ">="}), "dyn(", v(), ")")
}

// TestAShapeIsNoOtherLanguage: random texts with odd literals, gaps and nesting are
// refused and answered alike, compiled for many texts and alone.
func TestAShapeIsNoOtherLanguage(t *testing.T) {
	l := newLanguage()
	accepted, texts := 0, oracleRuns()/10
	for seed := range int64(texts) {
		w := writer{rand.New(rand.NewSource(seed))}
		text := w.truth(w.Intn(4))
		compareShared(t, l, sibling(text, seed), text, sibling(text, seed+1))
		if _, err := alone(l, text); err == nil {
			accepted++
		}
	}
	t.Logf("%d texts, %d are conditions", texts, accepted)
}
