package triggers_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/triggers"
)

func TestAListFilterPicksEntries(t *testing.T) {
	const entry = `{"plan":"p1","state":"open","held":12,"opened_ns":1700000000000000000,"labels":{"team":"travel"},"actions":[{"undo":"held"}],"ratio":0.5}`
	for expression, want := range map[string]bool{
		`plan.held > 3`: true,
		`plan.held == 12 && plan.state == "open"`:                        true,
		`plan.state in ["committed", "failed"]`:                          false,
		`plan.labels.team == "travel"`:                                   true,
		`plan.actions.exists(a, a.undo == "held")`:                       true,
		`has(plan.reason)`:                                               false,
		`plan.reason == "x"`:                                             false,
		`plan.ratio < 1.0`:                                               true,
		`timestamp(plan.opened_ns / 1000000000) < now - duration("24h")`: true,
		`plan.plan.startsWith("p") && !has(plan.deadline_ns)`:            true,
		`plan.nothing.at.all || plan.held > 3`:                           true,
		`[1,2,3,4,5,6,7,8,9,10].all(x, [1,2,3,4,5,6,7,8,9,10].all(y, [1,2,3,4,5,6,7,8,9,10].all(z, [1,2,3,4,5,6,7,8,9,10].all(w, [1,2,3,4,5,6,7,8,9,10].all(v, v > 0)))))`: false,
	} {
		f, err := triggers.CompileListFilter("plan", expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		if got := f.Matches([]byte(entry), 1_700_100_000_000_000_000); got != want {
			t.Errorf("%s: %v", expression, got)
		}
		if f.Matches([]byte(`[]`), 0) || f.Matches([]byte(`{`), 0) {
			t.Errorf("%s picks what is no entry", expression)
		}
	}
	for expression, want := range map[string]string{
		"":                       "no expression",
		"plan.held":              "", // dynamic: it is no boolean of this entry
		"plan.held + 1":          "true or false",
		"pln.held > 3":           "did you mean plan",
		"plan.held >":            "Syntax error",
		`"open"`:                 "true or false",
		strings.Repeat("x", 5e3): "no expression",
	} {
		f, err := triggers.CompileListFilter("plan", expression)
		var bad *triggers.Error
		if want == "" {
			if err != nil || f.Matches([]byte(entry), 0) {
				t.Errorf("%q: %v", expression, err)
			}
		} else if !errors.As(err, &bad) || !strings.Contains(bad.Message+" "+bad.Hint, want) {
			t.Errorf("%q: %v, want %q", expression, err, want)
		}
	}
}
