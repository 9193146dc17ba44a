package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
)

// TestAnAnswerHasItsProblemBesideIt: in JSON the problem is among the fields of the answer, as the
// last of them, and both are read from there.
func TestAnAnswerHasItsProblemBesideIt(t *testing.T) {
	plans := PlansAnswer{Plans: []Plan{}, Next: "n"}
	for want, c := range map[string]struct {
		answer  any
		problem *Problem
	}{
		`{"plans":[],"next":"n"}`:                            {plans, nil},
		`{"plans":[],"next":"n","error":"\u003cno\u003e"}`:   {plans, &Problem{Text: "<no>"}},
		`{"error":"no","field":"request.plan","want":"one"}`: {nil, &Problem{Text: "no", Field: "request.plan", Want: "one"}},
		`{"error":"late","behind":true}`:                     {KeyAnswer{}, &Problem{Text: "late", Behind: true}},
		`{}`:                                                 {KeyAnswer{}, nil},
	} {
		text, err := EncodeAnswer(c.answer, c.problem)
		if err != nil || string(text) != want || !json.Valid(text) {
			t.Fatalf("%s, %v; want %s", text, err, want)
		}
		read, err := PlanLs.Decode(text)
		var problem *Problem
		if errors.As(err, &problem) != (c.problem != nil) || !reflect.DeepEqual(problem, c.problem) {
			t.Errorf("%s is read as %+v, %v", text, read, err)
		}
		if reflect.DeepEqual(c.answer, plans) && !reflect.DeepEqual(read, plans) {
			t.Errorf("%s is read as %+v", text, read)
		}
	}
	for _, text := range []string{``, `[]`, `{"error":7}`, `{"plans":{}}`} {
		if _, err := PlanLs.Decode([]byte(text)); err == nil || errors.As(err, new(*Problem)) {
			t.Errorf("%q is read: %v", text, err)
		}
	}
	if p := ProblemOf(fmt.Errorf("x: %w", &Problem{Text: "a", Behind: true})); !p.Behind {
		t.Errorf("%+v", p)
	}
}

// TestAVerbIsAskedOnItsSubject.
func TestAVerbIsAskedOnItsSubject(t *testing.T) {
	for want, got := range map[string]string{
		"query.t.plan.show":      PlanShow.Subject("t"),
		"admin.t.ledger.sign":    LedgerSign.Subject("t"),
		"reveal.t":               PlanReveal.Subject("t"),
		HistorySubject("t", "a"): PlanHistory("a").Subject("t"),
		PreviewSubject("t", "a"): OwnPreview("a").Subject("t"),
		KeySubject("t", "a"):     PlanKey("a").Subject("t"),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
