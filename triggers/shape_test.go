package triggers

import (
	"fmt"
	"strings"
	"testing"
)

// TestTextsThatDifferInLiteralsShareAProgram: a million orders, one program.
func TestTextsThatDifferInLiteralsShareAProgram(t *testing.T) {
	cache := NewCache(1000)
	for _, c := range []struct {
		shared bool
		texts  [2]string
	}{
		{true, [2]string{`facts["order/1"].status == "cancelled"`, `facts["order/22"].status == 'lost' // a note`}},
		{true, [2]string{`elapsed(action.at, duration("72h"))`, `elapsed(action.at,duration("73h"))`}},
		{true, [2]string{`after(timestamp("2026-01-01T00:00:00Z"))`, `after(timestamp("2027-01-01T00:00:00Z"))`}},
		{true, [2]string{`at_least(3, "declined/1", duration("10m"))`, `at_least(4, "declined/2", duration("1h"))`}},
		{true, [2]string{`facts["p"].price > 1.1 * action.amount + 2.0`, `facts["q"].price > 1.25 * action.amount + 3.5`}},
		{true, [2]string{`plan.labels.region == "eu" && "a" in facts`, `plan.labels.region == "us" && "b" in facts`}},
		{false, [2]string{`facts["a"].x == 1`, `facts["a"].x == 1.0`}},
		{false, [2]string{`facts["a"].x in ["p", "q"]`, `facts["a"].x in ["r", "q"]`}},
		{false, [2]string{`facts["a"].x.matches("^a+$")`, `facts["a"].x.matches("^b+$")`}},
		{false, [2]string{`action.at.getHours("+01:00") == 3`, `action.at.getHours("+02:00") == 3`}},
		{false, [2]string{`"é" in facts`, `"ü" in facts`}},
		{false, [2]string{`facts["a" + "b"].x == 1`, `facts["a" + "c"].x == 1`}},
		{false, [2]string{`facts["a"].x == -1`, `facts["a"].x == -2`}},
	} {
		first, err := cache.Condition(c.texts[0])
		if err != nil {
			t.Fatalf("%s: %v", c.texts[0], err)
		}
		second, err := cache.Condition(c.texts[1])
		if err != nil {
			t.Fatalf("%s: %v", c.texts[1], err)
		}
		if shared := first.shape == second.shape; shared != c.shared {
			t.Errorf("%s and %s share a program: %v", c.texts[0], c.texts[1], shared)
		}
		if first.Digest() == second.Digest() {
			t.Errorf("%s and %s have one digest", c.texts[0], c.texts[1])
		}
	}
}

// TestEveryLiteralOfASharedProgramIsChecked: what a constant may be does not depend
// on which text was compiled first.
func TestEveryLiteralOfASharedProgramIsChecked(t *testing.T) {
	for good, bad := range map[string]string{
		`at_least(3, "a", duration("10m"))`:                   `at_least(0, "a", duration("10m"))`,
		`at_least(3, "b", duration("10m"))`:                   `at_least(3, "", duration("10m"))`,
		`size(latest(3, "a", action.at, duration("1h"))) > 2`: `size(latest(300, "a", action.at, duration("1h"))) > 2`,
		`count("a", duration("10m")) > 2`:                     `count("a", duration("-10m")) > 2`,
		`elapsed(action.at, duration("1h"))`:                  `elapsed(action.at, duration("3 weeks"))`,
		`after(timestamp("2026-01-01T00:00:00Z"))`:            `after(timestamp("tomorrow"))`,
		`seen("a")`:                                             fmt.Sprintf(`seen("%s")`, strings.Repeat("k", keyMax+1)),
		`within("a", action.at, duration("1h"))`:                `within("", action.at, duration("1h"))`,
		`action.at.getHours("+01:00") == 3`:                     `action.at.getHours("Europe/Berlin") == 3`,
		`facts["a"].x.matches("^a+$") && "b" in facts`:          `facts["a"].x.matches("(") && "b" in facts`,
		`action["order"] == "o7"`:                               `action["input"] == "o7"`,
		`count("a", duration("1s")) >= 1 || 1 == 2`:             `count("a", duration("0s")) >= 1 || 1 == 2`,
		`[1, 2].exists(i, i == 1) && facts["a"].x == "y"`:       `[1, 2].exists(now, now == 1) && facts["a"].x == "y"`,
		`facts["a"].x == 1 && elapsed(at("b"), duration("1h"))`: `facts["a"].x == 1 && elapsed(at("b"), duration(""))`,
	} {
		_, want := Compile(bad)
		cache := NewCache(10)
		if _, err := cache.Condition(good); err != nil {
			t.Fatalf("%s: %v", good, err)
		}
		_, err := cache.Condition(bad)
		if want == nil || err == nil || err.Error() != want.Error() {
			t.Errorf("%s after %s: %v, alone: %v", bad, good, err, want)
		}
		if again, err := cache.Condition(good + " "); err != nil || again == nil {
			t.Errorf("%s after a bad one: %v", good, err)
		}
	}
}

// TestHeldConditionsThatAnswerAlikeAreShared and no others.
func TestHeldConditionsThatAnswerAlikeAreShared(t *testing.T) {
	cache := NewCache(100)
	hold := func(text string, s Scope) *Held {
		c, err := cache.Condition(text)
		if err != nil {
			t.Fatal(err)
		}
		return c.Hold(s)
	}
	eu := Scope{Plan: Plan{ID: "p1", Labels: map[string]string{"region": "eu"}}, ArmedNs: 1}
	eu2 := Scope{Plan: Plan{ID: "p2", Labels: map[string]string{"region": "eu"}}, ArmedNs: 2}
	us := Scope{Plan: Plan{ID: "p3", Labels: map[string]string{"region": "us"}}, ArmedNs: 3}
	for _, c := range []struct {
		a, b   *Held
		shared bool
	}{
		{hold(`facts["halt"].on == true`, eu), hold(`facts["halt"].on==true`, us), true},
		{hold(`facts["halt/" + plan.labels.region].on == true`, eu),
			hold(`facts["halt/" + plan.labels.region].on == true`, eu2), true},
		{hold(`facts["halt/" + plan.labels.region].on == true`, eu),
			hold(`facts["halt/" + plan.labels.region].on == true`, us), false},
		{hold(`facts["halt"].on == true`, eu), hold(`facts["halt2"].on == true`, eu), false},
		{hold(`plan.labels.none == "eu"`, eu), hold(`plan.labels.none == "eu"`, us), true},
	} {
		left, ok := c.a.Shared()
		right, also := c.b.Shared()
		if !ok || !also || (left == right) != c.shared {
			t.Errorf("%s and %s: shared %v", c.a.condition.text, c.b.condition.text, left == right)
		}
	}
	for _, text := range []string{`seen("a")`, `plan.status == "failed"`, `elapsed(plan.opened_at, duration("1h"))`,
		`action.order == "o7"`, `action.?output.ref.orValue("") == "x"`} {
		if _, ok := hold(text, eu).Shared(); ok {
			t.Errorf("%s is shared", text)
		}
	}
}
