package triggers

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/triggers/oracle"
)

// chain writes a condition of many terms, joined at random.
func (w writer) chain(terms int, term func() string) string {
	if terms == 1 {
		text := term()
		switch w.Intn(8) {
		case 0:
			return w.gapped("!", "(", text, ")")
		case 1:
			return w.gapped("(", text, ")")
		case 2:
			return w.gapped("!", text)
		}
		return text
	}
	left := 1 + w.Intn(terms-1)
	text := w.gapped(w.chain(left, term), w.of([]string{"&&", "||"}), w.chain(terms-left, term))
	switch w.Intn(6) {
	case 0:
		return w.gapped("(", text, ")")
	case 1:
		return w.gapped("!", "(", text, ")")
	case 2:
		return w.gapped("!", "!", "(", text, ")")
	}
	return text
}

// terms are what chains are made of, of every kind of answer and of waiting.
var terms = []string{
	`facts.b == "a"`, `facts.a.x == 1`, `facts["a" + action.none]`, `facts["a" + action.order]`,
	`facts["a"].x == 1`, `facts["b"] == "a"`, `facts["zz"].x == 1`, `"a" in facts`, `"zz" in facts`,
	`facts["c"] > 0.5`, `facts["a"].n[0] == 1`, `has(facts["a"].x)`, `has(facts["zz"].x)`,
	`facts[?"zz"].orValue(3) == 3`, `plan.status == "open"`, `plan.status == "failed"`, `plan.actions >= 2`,
	`plan.labels.region == "a"`, `plan.labels.none == "a"`, `action.order == "a"`, `action.none == "a"`,
	`action.output.x == 1.5`, `action.output.none == 1`, `action["order"] == "a"`,
	`action.outcome == "completed"`, `action.presence == "duplicate"`, `verdict.outcome == "block"`,
	`verdict.outcome in ["block", "redirect"]`, `after(plan.deadline)`, `before(plan.deadline)`,
	`elapsed(action.at, duration("1s"))`, `before(timestamp("2026-03-01T12:00:01Z"))`,
	`after(timestamp("2026-03-01T12:00:02Z"))`, `seen("a")`, `seen("zz")`,
	`within("a", action.at, duration("1s"))`, `within("zz", action.at, duration("1s"))`,
	`absent_for("zz", action.at, duration("2s"))`, `at_least(1, "a", duration("5s"))`,
	`count("b", duration("1s")) > 0`, `first_at("b") < last_at("c")`, `since("a") == at("a")`,
	`facts["a" + action.a].x == 1`, `facts["e"].a["b"]`, `facts["b"]`, `facts["c"]`, `facts["a"].x / 0 == 1`,
	`facts["a"].a + 1 == 2`, `facts["a"] == facts["e"]`, `facts["b"] + "c" == "ac"`, `facts["c"] + 1.5 == 2.5`,
	`true`, `false`, `1 == 1`, `1 < 2`, `facts["a"].x in [1, 2]`,
	`action.at < timestamp("2027-03-01T12:00:00Z")`, `-1 < facts["c"]`, `plan.id == "a"`,
	`facts["b"].size() == 1`, `size(facts["a"].n) == 4`, `facts["c"] == 1 == true`, `(facts["c"] == 1) == true`,
	`{"a": 1}["a"] == 1`, `[1, 2][0] == 1`, `action.?output.x.orValue(1.5) == 1.5`,
	`latest(1, "a", action.at, duration("1s")) == []`, `(plan.status == "open" ? 1 : 2) == 1`,
	`facts["a"].?zz.orValue(1) == 1`,
}

// TestAJoinedConditionAnswersAsTheWhole: chains of terms are refused and answered alike,
// put together from their terms and compiled in one piece.
func TestAJoinedConditionAnswersAsTheWhole(t *testing.T) {
	l := newLanguage()
	rounds := oracleRuns() / 20
	joined, accepted := 0, 0
	for seed := range int64(rounds) {
		w := writer{rand.New(rand.NewSource(seed))}
		pool := make([]string, 1+w.Intn(6))
		for i := range pool {
			if pool[i] = w.of(terms); w.Intn(20) == 0 {
				pool[i] = w.truth(w.Intn(2))
			}
		}
		text := w.chain(2+w.Intn(12), func() string { return w.of(pool) })
		compareShared(t, l, sibling(text, seed), text, sibling(text, seed+1))
		if c, err := newCache(4, l).Condition(text); err == nil {
			if accepted++; c.shape.joined != nil {
				joined++
			}
		}
	}
	if joined < accepted/3 {
		t.Fatalf("%d of %d conditions are joined", joined, accepted)
	}
	t.Logf("%d of %d conditions are joined; %d texts", joined, accepted, rounds)
}

// TestLongChainsAreRefusedAlike: at the bounds of nodes and of nesting, too.
func TestLongChainsAreRefusedAlike(t *testing.T) {
	l := newLanguage()
	var accepted, joined int
	check := func(text string) {
		t.Helper()
		compareShared(t, l, text)
		if c, err := newCache(4, l).Condition(text); err == nil {
			accepted++
			if c.shape.joined != nil {
				joined++
			}
		}
	}
	for n := 240; n <= 260; n++ {
		check(chainOf(n, func(int) string { return "1==1" }))
		check("!(" + chainOf(n, func(int) string { return "1==1" }) + ")")
	}
	for n := range 25 {
		check(nested("true && (false || true || ", "facts.a.b.c == 1", ")", n))
		check(nested("1 == 1 && !(false || 2 == 3 || true || ", "false", ")", n))
	}
	for n := range 12 {
		check(chainOf(1<<n, func(i int) string { return "facts.a" + strings.Repeat(".b", i%28) }))
	}
	if accepted < 20 || joined < 20 {
		t.Errorf("%d texts are conditions, %d of them joined", accepted, joined)
	}
}

// TestLongConditionsShareTheirTerms: a term is compiled once, however it is joined with
// others.
func TestLongConditionsShareTheirTerms(t *testing.T) {
	const terms, conditions = 17, 1000
	cache := NewCache(4096)
	before := cache.Compilations()
	for n := range conditions {
		var b strings.Builder
		for i := range terms {
			if i > 0 {
				b.WriteString([]string{" && ", " || "}[n>>(i-1)&1])
			}
			fmt.Fprintf(&b, `facts["k%d"].f%d == %d`, i, i, n)
		}
		c, err := cache.Condition(b.String())
		if err != nil {
			t.Fatal(err)
		}
		if c.shape.joined == nil {
			t.Fatalf("%s is compiled in one piece", b.String())
		}
	}
	if n := cache.Compilations() - before; n != terms {
		t.Errorf("%d compilations for %d conditions of %d different terms", n, conditions, terms)
	}
}

// TestWhatIsNotAChainStaysWhole.
func TestWhatIsNotAChainStaysWhole(t *testing.T) {
	long := func(term string) string { return strings.TrimSuffix(strings.Repeat(term+" || ", 6), " || ") }
	for text, want := range map[string]bool{
		long(`facts["a"].x == 1`):                                          true,
		`(` + long(`facts["a"].x == 1`) + `)`:                              true,
		`!(` + long(`facts["a"].x == 1`) + `)`:                             true,
		long(`!("a" in facts)`):                                            true,
		long(`!after(plan.deadline)`):                                      true,
		long(`facts["a"].?x.orValue(1) == 1`):                              true,
		`true ? ` + long(`facts["a"].x == 1`) + ` : false`:                 false,
		long(`facts["a"].x == 1`) + ` ? true : false`:                      false,
		long(`(facts["a"].x == 1 ? true : false)`):                         false,
		long(`["a"].exists(k, facts[k] == 1)`):                             false,
		long(`facts["a"].matches("^a")`):                                   false,
		long(`facts["a"].contains("b")`):                                   false,
		long(`"é" in facts`):                                               false,
		long(`"a\"b" in facts`):                                            false,
		`facts["a"].x == 1 || "b" in facts`:                                false,
		`[` + long(`facts["a"].x == 1`) + `][0]`:                           false,
		`(` + long(`facts["a"].x == 1`) + `) == true`:                      false,
		long(`facts["a" + "b"].x == 1`):                                    false,
		strings.Repeat("(", 30) + long(`1 == 1`) + strings.Repeat(")", 30): false,
	} {
		c, err := NewCache(8).Condition(text)
		if err != nil {
			if want {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		if joined := c.shape.joined != nil; joined != want {
			t.Errorf("%s: joined %v, want %v", text, joined, want)
		}
	}
}

// TestLongConditionsAgreeWithTheOracle: chains of its own conditions, over time.
func TestLongConditionsAgreeWithTheOracle(t *testing.T) {
	rounds := oracleRuns() / 20
	cache := NewCache(64)
	var tally [3]int
	joined := 0
	for n := range rounds {
		seed := *oracleSeed + int64(n)
		r := rand.New(rand.NewSource(seed))
		g := &oracle.Generator{Choose: r.Intn, Literal: r.Intn, StartNs: start, TickNs: 1, Ticks: oracleEnd}
		expression := g.Condition(3 + r.Intn(3))
		condition, err := cache.Condition(expression.Text)
		if err != nil {
			continue // too deep
		}
		if condition.shape.joined != nil {
			joined++
		}
		name := fmt.Sprintf("seed %d: %s", seed, expression.Text)
		compareOverTime(t, name, condition, expression, randomHistory(r, g), &tally)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d timelines, %d joined: %v unknown, false, true", rounds, joined, tally)
}
