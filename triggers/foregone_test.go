package triggers

import (
	"math/rand"
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
		`seen("paid/" + action.order)`:                                        false, // as far as can be told
		`action.name > 5 && seen("k")`:                                        false, // unknown counts first
		`action.name > 5`:                                                     true,
		`facts["paid/" + action.name] == true`:                                false,
		`facts["paid/" + string(action.order)] == true`:                       false,
		`facts["k"] == true || facts["paid/" + action.order] == true`:         false,
		`!("k" in facts) && facts["paid/" + action.order] == true`:            false, // false once k is there
		`1 / (plan.actions - 1) == 1`:                                         false, // it has two actions next
		`facts["paid/" + action.output.id] == true`:                           false,
		`facts["paid/" + action.order] == true && after(plan.deadline)`:       false,
		`has(facts["k"]) && facts["paid/" + action.order] == true`:            false,
		`facts["paid/" + action.order] == true && verdict.outcome == "block"`: false,
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
