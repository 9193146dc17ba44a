package triggers

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

func TestRefusalsHavePlaceReasonAndHint(t *testing.T) {
	for expression, want := range map[string]string{
		`fatcs["x"] == 1`:                           `1:1: undeclared name "fatcs"; did you mean facts?`,
		`size(veridct.outcome.x) == 1`:              `1:6: undeclared name "veridct"; did you mean verdict?`,
		"true &&\n\taa.bb == 1":                     `2:2: undeclared name "aa"`,
		`plan.stauts == "failed"`:                   `1:5: plan has no field stauts; did you mean status?`,
		`verdict.verdict == "x"`:                    `1:8: verdict has no field verdict; there is outcome, reason, by`,
		"plan.status ==\n  now":                     `2:3: there is no now; time enters through`,
		`now() > plan.deadline`:                     `1:4: there is no now; time enters`,
		`afer(plan.deadline)`:                       `undeclared name "afer"; did you mean after?`,
		`after("2026-01-01")`:                       `use after(t) with a timestamp`,
		`size(facts) > 3`:                           `1:6: all facts at once; name the key`,
		`facts.exists(k, k == "x")`:                 `all facts at once`,
		`facts == facts`:                            `all facts at once`,
		`facts["x"]["y"] == action`:                 `action as a whole`,
		`size(action.input) == 1`:                   `action.input as a whole`,
		`size(action["in" + "put"]) == 1`:           `action.input as a whole`,
		`[action.?output] == []`:                    `action.output as a whole`,
		`action[plan.id] == 1`:                      `a computed field of action; use action.input[...]`,
		`plan == plan`:                              `plan as a whole; name a field: id, status`,
		`plan.status`:                               `the result is string, not a truth; compare it`,
		`1 + 1`:                                     `the result is int`,
		`elapsed(action.at, duration("3 weeks"))`:   `invalid duration argument`,
		`after(timestamp("tomorrow"))`:              `invalid timestamp argument`,
		`plan.status.matches("(")`:                  `invalid matches argument`,
		`plan.status.matches("(a{500}){2}")`:        `regex`,
		`at_least(0, "x", duration("1h"))`:          `at least 0; use 1 to 10000`,
		`at_least(3, "x", duration("-1h"))`:         `a window of -1h; use a duration above zero`,
		`seen("")`:                                  `a key of 0 bytes; 1 to 256`,
		`action.at.getHours("Europe/Berlin") == 3`:  `a named or computed time zone; use "UTC"`,
		`["a"].exists(facts, facts == "a")`:         `a loop variable called facts; use another name`,
		`.facts["x"] == 1`:                          `a leading dot`,
		`google.protobuf.Int64Value{value: 1} == 1`: `a message; use a map`,
		`plan.status == 3`:                          `found no matching overload for '_==_'`,
		`plan.status = "x"`:                         `1:13: a single =; use ==`,
		`has(plan)`:                                 `has() wants a path`,
		`@in`:                                       `Syntax error`,
		``:                                          `1:1: empty`,
		"\xff":                                      `not UTF-8`,
		`facts[1] == 2`:                             `found no matching overload for '_[_]'`,
		`count("x", duration("1h")) > 1.5`:          `found no matching overload for '_>_'`,
		`plan.status == "x" ? 1 : 2`:                `the result is int`,

		`latest(257, "x", action.at, duration("1h"))[0] == action.at`: `the latest 257; 1 to 256`,
	} {
		_, err := Compile(expression)
		var refusal *Error
		if !errors.As(err, &refusal) {
			t.Errorf("%q: %v, want an *Error", expression, err)
			continue
		}
		if !strings.Contains(err.Error(), want) || refusal.Line < 1 || refusal.Column < 1 {
			t.Errorf("%q:\n  %v\nwant\n  %s", expression, err, want)
		}
	}
}

func TestHostileExpressionsAreRefusedOrStopped(t *testing.T) {
	items := "[" + strings.TrimSuffix(strings.Repeat("1,", 200), ",") + "]"
	nested := func(depth int) string {
		text := "a0 > 0"
		for i := range depth {
			text = fmt.Sprintf("facts[\"big\"].all(a%d, %s)", depth-1-i, text)
		}
		return text
	}
	doubled := func(times int) string {
		return `[facts["big"]]` + strings.Repeat(`.map(x, x + x)`, times) + `.size() > 0`
	}
	for name, expression := range map[string]string{
		"300 parentheses":  strings.Repeat("(", 300) + "true" + strings.Repeat(")", 300),
		"4000 negations":   strings.Repeat("!", 4000) + "true",
		"4000 minus signs": strings.Repeat("-", 4000) + "1 == 1",
		"4 MB":             strings.Repeat("true && ", 1<<19) + "true",
		"1000 indexes":     `facts["x"]` + strings.Repeat(`[0]`, 1000) + ` == 1`,
		"1000 fields":      `facts["x"]` + strings.Repeat(`.a`, 1000) + ` == 1`,
		"300 lists":        strings.Repeat("[", 300) + strings.Repeat("]", 300) + " == []",
		"300 choices":      strings.Repeat("true ? true : ", 250) + "true",
		"nodes":            "[" + strings.Repeat("1,", 1500) + "1] == []",
		"nested all":       nested(6),
		"doubling":         doubled(12),
		"literal loops":    items + `.all(a, ` + items + `.all(b, ` + items + `.all(c, a + b + c > 0)))`,
		"doubling compared": strings.TrimSuffix(doubled(26), ".size() > 0") + " == " +
			strings.TrimSuffix(doubled(26), ".size() > 0"),
		"doubling of text": `["aaaaaaaa"]` + strings.Repeat(`.map(x, x + x)`, 20) + `.size() > 0`,
		"a tree compared": `[1]` + strings.Repeat(`.map(x, [x, x])`, 20) + ` == [1]` +
			strings.Repeat(`.map(x, [x, x])`, 20),
		"a tree in a list": `[1]` + strings.Repeat(`.map(x, [x, x])`, 20) + ` in [[1]` +
			strings.Repeat(`.map(x, [x, x])`, 20) + `]`,
		"a tree of maps": `[1]` + strings.Repeat(`.map(x, {"a": x, "b": x})`, 20) + ` != [1]` +
			strings.Repeat(`.map(x, {"a": x, "b": x})`, 20),
		"regex of a fact": `facts["long"].matches(facts["regex"])`,
		"regex bomb":      `plan.status.matches("((((a{9}){9}){9}){9}){9}")`,
	} {
		t.Run(name, func(t *testing.T) {
			began := testenv.CPU()
			c, err := Compile(expression)
			if err == nil {
				m := newMemory(t)
				m.now = start
				m.assert("big", items, start)
				m.assert("long", `"`+strings.Repeat("a", 30_000)+`"`, start)
				m.assert("regex", `"((((a{9}){9}){9}){9})*b"`, start)
				r := c.Evaluate(Scope{NowNs: start, ArmedNs: start}, m)
				if harmless := strings.HasPrefix(name, "4000") || name == "doubling"; !harmless &&
					(r.Truth == True || r.Err == nil) {
					t.Errorf("answers %v (%v), want it stopped", r.Truth, r.Err)
				}
			}
			if took := testenv.CPU() - began; took > 2*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

func TestUsefulSizesAreAccepted(t *testing.T) {
	for _, expression := range []string{
		strings.TrimSuffix(strings.Repeat(`facts["k"] == 1 || `, 100), " || "),
		strings.Repeat("(", 10) + "plan.status == \"failed\"" + strings.Repeat(")", 10),
		`facts["a"].b.c.d.e.f.g[0]["h"] == 1 && !(!(plan.status == "x"))`,
		`["a","b"].all(x, ["c","d"].exists(y, facts[x + y].ok))`,
	} {
		if _, err := Compile(expression); err != nil {
			t.Errorf("%.60s: %v", expression, err)
		}
	}
}

func TestKeysAndRootsComeFromTheCheckedExpression(t *testing.T) {
	for _, c := range []struct {
		expression, keys      string
		computed              bool
		verdict, plan, action bool
	}{
		{`facts["b"].x == 1 && facts.a == 2 && "c" in facts && has(facts["d"].y) && facts[?"e"].orValue(1) == 1`,
			"[a b c d e]", false, false, false, false},
		{`seen("a") && at("b") < first_at("c") && at_least(1, "d", duration("1s")) && absent_for("e" + "f", last_at("g"), duration("1s"))`, "[a b c d ef g]", false, false, false, false},
		{`facts["x/" + action.order].y == 1`, "[]", true, false, false, true},
		{`["a"].exists(k, facts[k] == 1)`, "[]", true, false, false, false},
		{`after(plan.deadline)`, "[]", false, false, true, false},
		{`verdict.outcome == "block" && plan.status == "open"`, "[]", false, true, true, false},
	} {
		condition, err := Compile(c.expression)
		if err != nil {
			t.Fatal(err)
		}
		keys, computed := condition.Keys()
		if fmt.Sprint(keys) != c.keys || computed != c.computed {
			t.Errorf("%s reads %v, computed %v", c.expression, keys, computed)
		}
		if condition.ReadsVerdict() != c.verdict || condition.ReadsPlan() != c.plan || condition.ReadsAction() != c.action {
			t.Errorf("%s: verdict %v plan %v action %v", c.expression, condition.ReadsVerdict(), condition.ReadsPlan(),
				condition.ReadsAction())
		}
	}
}

func TestTheDigestIsOfTheNormalForm(t *testing.T) {
	digest := func(expression string) [32]byte {
		c, err := Compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		return c.Digest()
	}
	one := digest(`plan.status in ["failed"] // why`)
	if digest("  plan.status   in\n[ \"failed\" ]") != one {
		t.Error("space and comments change the digest")
	}
	if digest(`plan.status in [" failed"]`) == one || digest(`plan.status in ["fa//iled"]`) == one {
		t.Error("the digest ignores what stands in a string")
	}
	for in, want := range map[string]string{
		"a  in  b":            "a in b",
		`r"\" + "x // y"`:     `r"\"+"x // y"`,
		"'''a ' b'''  ==  c":  "'''a ' b'''==c",
		`"\" //" == b // end`: `"\" //"==b`,
		"- 1 - -1":            "-1--1",
		"x.`a  b`  == 1":      "x.`a  b`==1",
	} {
		if got := Normalise(in); got != want {
			t.Errorf("Normalise(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestTheCacheSharesOneProgram(t *testing.T) {
	cache := NewCache(2)
	first, err := cache.Condition(`plan.status == "failed"`)
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if again, _ := cache.Condition(`plan.status == "failed"`); again != first {
			t.Fatal("the cache compiled the same text twice")
		}
	}
	_, refused := cache.Condition(`nonsense`)
	if _, again := cache.Condition(`nonsense`); again != refused || again == nil {
		t.Error("the cache does not keep a refusal")
	}
	cache.Condition(`true`)
	if n := cache.conditions.order.Len(); n != 2 || len(cache.conditions.items) != 2 {
		t.Errorf("the cache holds %d, want 2", n)
	}
	if again, _ := cache.Condition(`plan.status == "failed"`); again == first {
		t.Error("the cache kept what was not asked for longest")
	}
}
