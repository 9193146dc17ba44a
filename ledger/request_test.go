package ledger_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// asked is a request with a field of each kind.
type asked struct {
	Key    string            `json:"key"`
	Limits askedLimits       `json:"limits"`
	Names  []string          `json:"names,omitempty"`
	Parts  []askedLimits     `json:"parts,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	At     time.Time         `json:"at,omitzero"`
	Value  json.RawMessage   `json:"value,omitempty"`
	With   map[string]any    `json:"with,omitempty"`
	Other  *askedLimits      `json:"other,omitempty"`
	askedMore
}

type askedMore struct {
	More bool `json:"more,omitempty"`
}

type askedLimits struct {
	Facts uint64 `json:"facts,omitempty"`
}

func TestARequestSaysEachFieldOnceAndInItsLetters(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		``:                                 "request: not JSON",
		`null`:                             "request: it is null",
		`[]`:                               "request: it is a list",
		`"x"`:                              "request: it is a string",
		`{"key":"a"}{}`:                    "request: not JSON",
		`{"Key":"a"}`:                      "request.Key: there is no such field; want did you mean key?",
		`{"KEY":"a","key":"b"}`:            "request.KEY: there is no such field",
		`{"key":"a","key":"b"}`:            "request.key: given twice",
		`{"key":null}`:                     "request.key: null; want a value",
		`{"key":7}`:                        "request.key: a JSON number",
		`{"nothing":1}`:                    "request.nothing: there is no such field; want key, limits, names",
		`{"limits":{"Facts":1}}`:           "request.limits.Facts: there is no such field; want did you mean facts?",
		`{"limits":{"facts":1,"facts":2}}`: "request.limits.facts: given twice",
		`{"limits":{"facts":null}}`:        "request.limits.facts: null",
		`{"limits":null}`:                  "request.limits: null",
		`{"names":["a",null]}`:             "request.names[1]: null",
		`{"names":null}`:                   "request.names: null",
		`{"parts":[{},{"FACTS":1}]}`:       "request.parts[1].FACTS: there is no such field",
		`{"labels":{"a":"b","a":"c"}}`:     "request.labels.a: given twice",
		`{"labels":{"a":null}}`:            "request.labels.a: null",
		`{"at":null}`:                      "request.at: null",
		`{"other":{"facts":1,"fact":2}}`:   "request.other.fact: there is no such field; want did you mean facts?",
		`{"other":null}`:                   "request.other: null",
		`{"More":true}`:                    "request.More: there is no such field; want did you mean more?",
		`{"askedMore":{}}`:                 "request.askedMore: there is no such field",
		`{"value":1,"value":2}`:            "request.value: given twice",
		`{"": 1}`:                          "request.: there is no such field",
		`{"limits":{"facts":-1}}`:          "request.limits.facts: a JSON number -1",
		`{"` + strings.Repeat("k", 9999) + `":1}`: "request.kkk",
	} {
		var into asked
		err := ledger.ReadRequest([]byte(body), &into, "request")
		var refused *ledger.Refused
		if !errors.As(err, &refused) || !strings.HasPrefix(strings.TrimPrefix(err.Error(), "refused: "), want) ||
			len(err.Error()) > 400 {
			t.Errorf("%.80s: %.300v, want %s", body, err, want)
		}
	}
	var into asked
	err := ledger.ReadRequest([]byte(` {"key":"a","limits":{"facts":2},"names":["x"],"parts":[{}],"labels":{"Key":"v","key":"w"},
		"at":"2027-01-31T12:00:00Z","value":{"a":null},"with":{"a":null},"other":{},"more":true} `), &into, "request")
	if err != nil || into.Key != "a" || into.Limits.Facts != 2 || len(into.Labels) != 2 || into.At.IsZero() ||
		string(into.Value) != `{"a":null}` || into.Other == nil || !into.More {
		t.Errorf("%+v, %v", into, err)
	}
}

// askedTree has itself, and two fields of one name, of which encoding/json takes the outer one.
type askedTree struct {
	Name  string      `json:"name"`
	Of    *askedTree  `json:"of,omitempty"`
	Parts []askedTree `json:"parts,omitempty"`
	Raw   []byte      `json:"raw,omitempty"`
	askedName
}

type askedName struct {
	Title struct{ First string } `json:"name"`
}

func TestARequestMayHaveItsLikeInIt(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"name":"a","of":{"name":"b","of":{"name":"c"}},"parts":[{"name":"d","raw":"eA=="}]}`: "",
		`{"of":{"of":{"Name":"c"}}}`:      "request.of.of.Name: there is no such field; want did you mean name?",
		`{"parts":[{"parts":[{"x":1}]}]}`: "request.parts[0].parts[0].x: there is no such field",
		`{"name":{"First":"a"}}`:          "request.name: a JSON object",
	} {
		var into askedTree
		err := ledger.ReadRequest([]byte(body), &into, "request")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}
