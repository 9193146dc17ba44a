package triggers

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/triggers/oracle"
)

func TestForegoneAnswersAreKnownFromTheText(t *testing.T) {
	for expression, want := range map[string]Truth{
		`plan.status == "failed"`:                                    Unknown,
		`after(plan.deadline)`:                                       Unknown,
		`"k" in facts`:                                               Unknown,
		`!("k" in facts)`:                                            Unknown,
		`!has(facts["k"])`:                                           Unknown,
		`facts[?"k"].orValue(1) == 1`:                                Unknown,
		`!(verdict.outcome in ["allow"])`:                            Unknown,
		`["a", "b"].exists(k, facts[k].ok)`:                          Unknown,
		`action.amount > 100`:                                        Unknown,
		`facts["a"].x == plan.labels.y`:                              Unknown,
		`before(plan.deadline) && count("k", duration("1m")) > 2`:    Unknown,
		`!at_least(2, "k", duration("1m"))`:                          Unknown,
		`true`:                                                       True,
		`plan.status == "failed" || 1 < 2`:                           True,
		`!after(plan.deadline)`:                                      False,
		`!after(timestamp("2026-03-01T12:00:05Z")) && seen("k")`:     False,
		`!seen("k") && plan.status == "failed"`:                      False,
		`1 == 2`:                                                     False,
		`plan.status == "failed" && duration("1h") > duration("2h")`: False,
	} {
		c, err := Compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.Foregone(); got != want || err != nil {
			t.Errorf("%s is foregone %v (%v), want %v", expression, got, err, want)
		}
	}
	c, err := Compile(`1 / 0 == 1`)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Foregone(); got != False || err == nil || !strings.Contains(err.Error(), "division by zero") {
		t.Errorf("an error whatever is known is %v (%v)", got, err)
	}
}

// TestWhatIsStuckIsAnErrorForEver: and what could be ended by a fact, a time or an outcome is not.
func TestWhatIsStuckIsAnErrorForEver(t *testing.T) {
	scope := Scope{Plan: Plan{ID: "p", Status: "open", Actions: 1},
		Action: &Action{ID: "a", Capability: "x.y", Input: []byte(`{"order":1042,"name":"o7"}`)}}
	for expression, want := range map[string]bool{
		`facts["paid/" + action.order] == true`:                               true,
		`seen("paid/" + action.order)`:                                        true,
		`"paid/" + action.order in facts`:                                     true,
		`absent_for("paid/" + action.order, action.at, duration("2s"))`:       true,
		`elapsed(at("paid/" + action.order), duration("2s"))`:                 true,
		`at_least(2, "paid/" + action.order, duration("2s"))`:                 true,
		`after(action.at) && !("ok/" + action.order in facts)`:                true, // it is unknown or an error
		`after(action.at) || "ok/" + action.order in facts`:                   false,
		`before(action.at) ? seen("k") : seen("paid/" + action.order)`:        false,
		`action.outcome == "done" && action.order + "a" == ""`:                true,
		`"k" in facts && !("ok/" + action.name in facts)`:                     false,
		`has(facts["paid/" + action.order].x)`:                                false, // as far as can be told
		`action["outcome"] + "s" == "dones"`:                                  false,
		`"output" in action && facts["paid/" + action.order] == true`:         true,
		`action.name > 5 && seen("k")`:                                        true,
		`action.name > 5`:                                                     true,
		`facts["paid/" + action.name] == true`:                                false,
		`facts["paid/" + string(action.order)] == true`:                       false,
		`facts["k"] == true || facts["paid/" + action.order] == true`:         false,
		`!("k" in facts) && facts["paid/" + action.order] == true`:            true,
		`1 / (plan.actions - 1) == 1`:                                         false, // it has two actions next
		`facts["paid/" + action.output.id] == true`:                           false,
		`facts["paid/" + action.order] == true && after(plan.deadline)`:       false,
		`has(facts["k"]) && facts["paid/" + action.order] == true`:            false,
		`facts["paid/" + action.order] == true && verdict.outcome == "block"`: true,
	} {
		c, err := Compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Stuck(scope); (err != nil) != want {
			t.Errorf("%s: %v, want an error: %v", expression, err, want)
		}
	}
}

// What is foregone is what every random timeline shows.
func TestNoTimelineContradictsWhatIsForegone(t *testing.T) {
	found := map[Truth]int{}
	for seed := range int64(testenv.Cases(400, 1500)) {
		r := rand.New(rand.NewSource(seed))
		g := &oracle.Generator{Choose: r.Intn, Literal: r.Intn, StartNs: start, TickNs: 1, Ticks: oracleEnd}
		expression := g.Condition(2)
		c, err := Compile(expression.Text)
		if err != nil {
			t.Fatalf("%s: %v", expression.Text, err)
		}
		foregone, stopped := c.Foregone()
		found[foregone]++
		h := randomHistory(r, g)
		for now := range oracleEnd + 1 {
			_, moment := oracleScope(h, now)
			for _, f := range h.facts {
				if f.event.Ns <= moment.NowNs {
					moment.Events = append(moment.Events, f.event)
				}
			}
			got := expression.Ask(&moment)
			if foregone == True && got != oracle.True || foregone == False && got == oracle.True {
				t.Fatalf("%s is foregone %v (%v), and %v at %d", expression.Text, foregone, stopped, got, now)
			}
		}
	}
	if found[True] == 0 || found[False] == 0 {
		t.Errorf("found %v: no random condition has a foregone answer", found)
	}
}

func TestStepsAreBoundedByNodesOrByTheLimit(t *testing.T) {
	for expression, most := range map[string]int{`plan.status == "failed"`: 4, `["a"].exists(k, k in facts)`: costMax,
		`facts["k"].matches("a+")`: costMax} {
		c, err := Compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.StepsMax(); got > most || got < 1 || most == costMax && got != costMax {
			t.Errorf("%s takes at most %d steps, want at most %d", expression, got, most)
		}
	}
}

// amidErrors joins random conditions, and errors for ever where there is an action.
func amidErrors(r *rand.Rand, g *oracle.Generator, depth int) string {
	part := func() string { return "(" + amidErrors(r, g, depth-1) + ")" }
	if depth > 0 && r.Intn(5) > 0 {
		switch r.Intn(4) {
		case 0:
			return part() + " || " + part()
		case 1:
			return "!" + part()
		case 2:
			return part() + " ? " + part() + " : " + part()
		}
		return part() + " && " + part()
	}
	if r.Intn(3) > 0 {
		return g.Condition(1).Text
	}
	return []string{`"u/" + action.n in facts`, `seen("u/" + action.n)`, `facts["u/" + action.n] == 1`,
		`action.k > 5`, `1 / (action.n - 3) == 1`, `elapsed(at("u/" + action.n), duration("1s"))`}[r.Intn(6)]
}

// TestNothingThatIsStuckIsEverTrue: on random timelines, from the tick on at which it is.
func TestNothingThatIsStuckIsEverTrue(t *testing.T) {
	stuck, free := 0, 0
	for seed := range int64(testenv.Cases(300, 5000)) {
		r := rand.New(rand.NewSource(seed))
		g := &oracle.Generator{Choose: r.Intn, Literal: r.Intn, StartNs: start, TickNs: 1, Ticks: oracleEnd}
		text := amidErrors(r, g, 3)
		c, err := Compile(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		h, m, next, kept := randomHistory(r, g), newMemory(t), 0, error(nil)
		for now := range oracleEnd + 1 {
			scope, _ := oracleScope(h, now)
			for m.now = scope.NowNs; next < len(h.facts) && h.facts[next].event.Ns == m.now; next++ {
				if f := h.facts[next]; f.event.Retracted {
					m.retract(f.event.Key)
				} else {
					m.assert(f.event.Key, f.json, m.now)
				}
			}
			if kept == nil {
				kept = c.Stuck(scope)
			}
			got := c.Evaluate(scope, m)
			if kept != nil && got.Truth == True {
				t.Fatalf("%s is stuck (%v), and true at %d", text, kept, now)
			}
			if got.Truth == True && strings.Contains(text, "u/") {
				free++
			}
		}
		if kept != nil {
			stuck++
		}
	}
	if stuck == 0 || free == 0 {
		t.Errorf("%d are stuck, and %d true beside an error", stuck, free)
	}
	t.Logf("%d stuck, %d true beside an error", stuck, free)
}

// TestAWordThatIsNeverSaidIsFound, and none that is, or is no text of a name with a few words.
func TestAWordThatIsNeverSaidIsFound(t *testing.T) {
	c := NewCache(8)
	for expression, want := range map[string]string{
		`verdict.outcome == "blok"`:                         `1:20: verdict.outcome is never "blok"`,
		"seen('k') &&\n 'success' != action.outcome":        `2:2: action.outcome is never "success"`,
		`plan.status in ["failed", "done"]`:                 `1:27: plan.status is never "done"`,
		`action.presence == 1`:                              "", // refused
		`verdict.outcome == "block"`:                        "",
		`action.outcome != "unknown"`:                       "",
		`plan.status == action.input.status`:                "",
		`plan.owner == "blok" && action.kind in ["failed"]`: "",
		`plan.status ==`:                                    "",
	} {
		got := ""
		if e := c.Unheard(expression); e != nil {
			got = fmt.Sprintf("%d:%d: %s", e.Line, e.Column, e.Message)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", expression, got, want)
		}
	}
	if words := Words("verdict.outcome"); !slices.Contains(words, "redirect") || Words("plan.owner") != nil {
		t.Errorf("verdict.outcome may be %v", words)
	}
}

// TestATimeThatNeverComesIsSaid: CEL goes to the year 9999, a ledger to 2262.
func TestATimeThatNeverComesIsSaid(t *testing.T) {
	c, err := Compile(`after(timestamp("9999-01-01T00:00:00Z"))`)
	if err != nil {
		t.Fatal(err)
	}
	got, want := c.Evaluate(Scope{}, Nothing{}), []string{"a time after the year 2261, which never comes"}
	if !slices.Equal(got.Waits, want) {
		t.Error(got.Waits)
	}
}
