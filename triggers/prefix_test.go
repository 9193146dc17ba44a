package triggers

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"cel.dev/cel-go/common/types"
)

// jobs are a View of three jobs, one of which has failed, and of what is beside them.
func jobs() *past {
	p := newPast()
	for i, f := range [][2]string{{"job/a", `{"state":"done","n":1}`}, {"job/b", `{"state":"failed","n":2}`},
		{"job/c", `{"state":"failed","n":3}`}, {"jobs", `{"state":"none"}`}, {"odd/x", `7`}, {"odd/y", `{"state":"failed"}`}} {
		p.assert(f[0], f[1], start+int64(i))
	}
	return p
}

func ask(t *testing.T, expression string, v View) Result {
	t.Helper()
	c, err := Compile(expression)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return c.Evaluate(Scope{Plan: Plan{ID: "p", Status: "open"}, ArmedNs: start, NowNs: start + 10,
		Action: &Action{ID: "a", Input: []byte(`{"order":"b","kind":"job","n":7}`)}}, v)
}

func TestFactsAreAskedByTheirPrefix(t *testing.T) {
	for expression, want := range map[string]Truth{
		`facts.exists("job/")`:                                                                    True,
		`facts.exists("jobless/")`:                                                                False,
		`facts.count("job/") == 3`:                                                                True,
		`facts.count("job") == 4`:                                                                 True,
		`facts.count("none/") == 0`:                                                               True,
		`facts.exists("job/", k, v, v.state == "failed")`:                                         True,
		`facts.exists("job/", k, v, v.state == "lost")`:                                           False,
		`facts.exists("none/", k, v, v.state == "lost")`:                                          False,
		`facts.all("job/", k, v, v.n < 3)`:                                                        False,
		`facts.all("job/", k, v, v.n < 4)`:                                                        True,
		`facts.all("none/", k, v, v.n < 4)`:                                                       True,
		`facts.count("job/", k, v, v.state == "failed") == 2`:                                     True,
		`facts.count("job/", k, v, k != "job/a" && v.n > 1) >= 3`:                                 False,
		`facts.exists("job/", k, v, k.endsWith("/b"))`:                                            True,
		`facts.exists("job/" + action.order, k, v, v.state == "failed")`:                          True,
		`facts.exists(action.input.kind + "/", k, v, v.n == 3)`:                                   True,
		`facts.exists("plan/" + plan.id)`:                                                         False,
		`facts.exists("job/", k, v, facts.exists("odd/", j, w, w.?state.orValue("") == v.state))`: True,
		`facts.exists("odd/", k, v, v.state == "failed")`:                                         True, // an element in error decides nothing
		`facts.exists("odd/", k, v, v.state == "lost")`:                                           Unknown,
		`facts.exists("job/", k, v, facts["limit"].n < v.n)`:                                      Unknown,
		`facts.exists("job/" + action.labels.team)`:                                               Unknown,
	} {
		if r := ask(t, expression, jobs()); r.Truth != want {
			t.Errorf("%s is %v, want %v: %+v", expression, r.Truth, want, r)
		}
	}
}

// TestAnAnswerByPrefixTellsWhichFactDecided: and what it is watched by.
func TestAnAnswerByPrefixTellsWhichFactDecided(t *testing.T) {
	for expression, want := range map[string]string{
		`facts.exists("job/", k, v, v.state == "failed")`: `facts.exists("job/")="job/b" facts["job/b"]={"state":"failed","n":2}@2`,
		`!facts.all("job/", k, v, v.n < 3)`:               `facts.all("job/")="job/c" facts["job/c"]={"state":"failed","n":3}@3`,
		`facts.all("job/", k, v, v.n < 9)`:                `facts.all("job/")=`,
		`facts.count("job/", k, v, v.n > 1) == 2`:         `facts.count("job/")=2`,
		`facts.count("job/") == 3`:                        `facts.count("job/")=3`,
		`facts.exists("job/")`:                            `facts.exists("job/")="job/a" facts["job/a"]=@1`,
		`!facts.exists("none/")`:                          `facts.exists("none/")=`,
	} {
		r := ask(t, expression, jobs())
		var got []string
		for _, reading := range r.Readings {
			text := reading.Name + "=" + string(reading.Value)
			if reading.Sequence != 0 {
				text += fmt.Sprint("@", reading.Sequence)
			}
			got = append(got, text)
		}
		wanted := strings.Split(want, " facts[")
		for i := range wanted[1:] {
			wanted[i+1] = "facts[" + wanted[i+1]
		}
		slices.Sort(wanted)
		slices.Sort(got)
		if r.Truth != True || !reflect.DeepEqual(got, wanted) {
			t.Errorf("%s reads %q, want %q: %+v", expression, got, wanted, r)
		}
	}
	c, err := Compile(`facts.exists("job/" + action.order, k, v, v.n > 9) || facts.exists("job/", k, v, v.n > 9) || facts.x.n == 1`)
	if err != nil {
		t.Fatal(err)
	}
	s := Scope{ArmedNs: start, NowNs: start, Action: &Action{Input: []byte(`{"order":"b"}`)}}
	r := c.Evaluate(s, jobs())
	if want := []string{"x", PrefixKey("job/"), PrefixKey("job/b")}; !slices.Equal(c.Watched(r), want) {
		t.Errorf("watched by %q, want %q", c.Watched(r), want)
	}
	if want := []string{"job/a", "job/b", "job/c", "x"}; !slices.Equal(r.Keys, want) {
		t.Errorf("read %q, want %q", r.Keys, want)
	}
	keys := c.Watched(r)
	for fact, want := range map[string]bool{"x": true, "job/": true, "job/new": true, "job": false, "y": false} {
		if IsWatched(keys, fact) != want {
			t.Errorf("%s is watched: %v", fact, !want)
		}
	}
	if ShownKey(keys[1]) != "job/*" || ShownKey("x") != "x" {
		t.Errorf("shown as %s and %s", ShownKey(keys[1]), ShownKey("x"))
	}
}

// TestAPrefixIsKnownWhenItIsRegistered: or refused, with its place.
func TestAPrefixIsKnownWhenItIsRegistered(t *testing.T) {
	const unknown = "a prefix of facts that is not known at registration"
	for expression, want := range map[string]string{
		`facts.exists("")`: "a prefix of 0 bytes",
		`facts.count("` + strings.Repeat("x", 257) + `") > 1`: "a prefix of 257 bytes",
		`facts.exists(facts["k"].prefix)`:                     unknown,
		`facts.exists("job/" + facts.k)`:                      unknown,
		`facts.count("job/" + action.output.id) > 1`:          unknown,
		`facts.exists("job/" + action.outcome)`:               unknown,
		`facts.exists(action["output"].id)`:                   unknown,
		`facts.exists("job/" + verdict.by)`:                   unknown,
		`facts.exists("job/" + plan.status)`:                  unknown,
		`facts.exists("job/" + string(plan.actions))`:         unknown,
		`["a"].exists(x, facts.exists(x))`:                    unknown,
		`facts.exists("a/", k, v, facts.exists(k))`:           unknown,
		`facts.exists(true ? "a" : "b")`:                      unknown,
		`facts.exists("job/".lowerAscii())`:                   unknown,
		`facts.exists("job/", k, k, true)`:                    "two names that differ",
		`facts.exists("job/", k, v.x, true)`:                  "wants two names",
		`facts.exists("job/", facts, v, true)`:                "a loop variable called facts",
		`facts.exists(k, true)`:                               "all facts at once",
		`facts.any("job/", k, v, true)`:                       "all facts at once",
		`facts.exists("job/", k, v, 1)`:                       "expected type 'bool'",
		`facts.exists(3)`:                                     "found no matching overload",
		`action.exists("job/", k, v, true)`:                   "",
		`facts.exists("job/" + action.labels)`:                "as a whole",
	} {
		_, err := Compile(expression)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(e.Error(), want) || e.Line != 1 {
			t.Errorf("%s: %v, want %q", expression, err, want)
		}
	}
	for _, expression := range []string{
		`facts.exists("job/" + plan.labels["team"] + "/")`, `facts.count(plan.owner + "/" + action.id) > 1`,
		`facts.exists("job/" + string(action.n))`, `facts.exists(action.input["a"].b)`, `facts.exists("a" + "b")`,
	} {
		if _, err := Compile(expression); err != nil {
			t.Errorf("%s: %v", expression, err)
		}
	}
	for expression, stuck := range map[string]bool{
		`facts.exists("job/" + action.n)`:              true,
		`facts.exists("job/" + action.order)`:          false,
		`1 / facts.count("job/") > 3`:                  false,
		`facts.exists("job/", k, v, v > action.order)`: false,
	} {
		c, err := Compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		s := Scope{Action: &Action{Input: []byte(`{"order":"b","n":7}`)}}
		if err := c.Stuck(s); (err != nil) != stuck {
			t.Errorf("%s is stuck: %v", expression, err)
		}
	}
}

// TestMoreFactsThanAnEvaluationReadsAreNoAnswer: it waits, and says why.
func TestMoreFactsThanAnEvaluationReadsAreNoAnswer(t *testing.T) {
	p := newPast()
	for i := range readMax - 1 {
		p.assert(fmt.Sprintf("job/%04d", i), `1`, start)
	}
	for _, expression := range []string{`facts.count("job/") > 3`, `facts.exists("job/", k, v, v == 1)`,
		`facts.count("job/", k, v, v == 1) > 3`} {
		if r := ask(t, expression, p); r.Truth != True {
			t.Errorf("%s over %d facts: %+v", expression, len(p.facts), r)
		}
	}
	p.assert("job/more", `1`, start)
	for _, expression := range []string{`facts.count("job/") > 3`, `facts.exists("job/", k, v, v == 1)`,
		`true || facts.count("job/") > 3`} {
		r := ask(t, expression, p)
		if stops := !strings.HasPrefix(expression, "true"); stops != (r.Err != nil) || stops && (r.Truth != Unknown ||
			!strings.Contains(r.Err.Error(), "it reads more than 512 facts")) {
			t.Errorf("%s over %d facts: %+v", expression, len(p.facts), r)
		}
	}
	if r := ask(t, `facts.exists("job/")`, p); r.Truth != True {
		t.Errorf("whether there is one, of many: %+v", r)
	}
}

// TestAnEvictedFactOfAPrefixIsFetchedWhenItsValueIsRead: not to count it, or to look at its key.
func TestAnEvictedFactOfAPrefixIsFetchedWhenItsValueIsRead(t *testing.T) {
	for expression, want := range map[string]int{
		`facts.exists("job/")`: 0, `facts.count("job/") == 1`: 0, `facts.exists("job/", k, v, k == "job/a")`: 0,
		`facts.exists("job/", k, v, v.n == 4)`: 1, `facts.count("job/", k, x, x.n > 3) == 1`: 1,
	} {
		p, loads := newPast(), 0
		p.facts["job/a"] = &Fact{Load: func() json.RawMessage { loads++; return []byte(`{"n":4}`) }}
		if r := ask(t, expression, p); r.Truth != True || loads != want {
			t.Errorf("%s: %d values are fetched, want %d: %+v", expression, loads, want, r)
		}
	}
}

// TestOnePrefixConditionIsOneNode: of those that always answer alike, and one program serves others.
func TestOnePrefixConditionIsOneNode(t *testing.T) {
	cache := NewCache(16)
	digest := func(text, plan string) [16]byte {
		c, err := cache.Condition(text)
		if err != nil {
			t.Fatal(err)
		}
		d, ok := c.Hold(Scope{Plan: Plan{ID: plan}}).Shared()
		if !ok {
			t.Fatalf("%s is not shared", text)
		}
		return d
	}
	same := `facts.exists("job/", k, v, v.state == "failed")`
	other := strings.ReplaceAll(same, "job/", "run/")
	if digest(same, "p") != digest(same, "q") || digest(same, "p") == digest(other, "p") {
		t.Error("equal conditions are not one node, or others are")
	}
	a, _ := cache.Condition(same)
	b, _ := cache.Condition(strings.ReplaceAll(same, "job/", "run/"))
	if a.shape != b.shape || !slices.Equal(b.keys, []string{PrefixKey("run/")}) || !a.ReadsPrefix() {
		t.Errorf("two programs, or watched by %q", b.keys)
	}
	if c, err := cache.Condition(strings.ReplaceAll(same, "job/", "")); err == nil {
		t.Errorf("an empty prefix is taken: %q", c.keys)
	}
	if key := PrefixKey("job/"); types.String(key).Value() == "job/" || key == "job/" {
		t.Error("a prefix is watched as a fact")
	}
}

// TestAPrefixIsNeverMoot: a fact may come at any time.
func TestAPrefixIsNeverMoot(t *testing.T) {
	for _, expression := range []string{`facts.exists("x/")`, `facts.count("x/") == 4`, `facts.exists("x/", k, v, v == 1)`,
		`!facts.all("x/", k, v, v == 1)`, `before(plan.deadline) || facts.exists("x/")`} {
		if r := ask(t, expression, jobs()); r.Moot || r.Truth != False && r.Truth != Unknown {
			t.Errorf("%s: %+v", expression, r)
		}
	}
}
