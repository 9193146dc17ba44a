package coordinator_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestANameThatCannotBeCarriedIsRefusedBeforeItsForward: the undo would be called with another.
func TestANameThatCannotBeCarriedIsRefusedBeforeItsForward(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{quick()}})
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	type inner struct {
		Path string `json:"path"`
	}
	const bad = "caf\xe9.txt"
	for what, input := range map[string]any{
		"a map":             map[string]any{"path": bad},
		"a struct":          inner{bad},
		"a pointer":         &inner{bad},
		"a list":            []any{1, "x", []string{bad}},
		"a name":            map[string]int{bad: 1},
		"raw":               json.RawMessage(`{"path":"` + bad + `"}`),
		"raw within":        map[string]any{"x": json.RawMessage(`"` + bad + `"`)},
		"half a pair":       json.RawMessage(`{"path":"\ud83d.txt"}`),
		"a text of its own": map[string]any{"path": ownText(bad)},
		"a key of its own":  map[ownKey]int{1: 1},
		"JSON of its own":   ownJSON(bad),
		"a name twice":      json.RawMessage(`{"path":"a","\u0070ath":"b"}`),
		"a name twice deep": map[string]any{"x": []any{json.RawMessage(`{"path":"a","path":"b"}`)}},
		"half a pair low":   map[string]json.RawMessage{"path": json.RawMessage(`"\ude00"`)},
	} {
		ran := 0
		_, err := p.Do(t.Context(), coordinator.Action{Capability: "file.write", Input: input}, counted(&ran, nil))
		var refused *ledger.Refused
		if !errors.As(err, &refused) || refused.Field != "action.input" || ran != 0 {
			t.Errorf("%s: ran %d times, %v", what, ran, err)
		}
		if err != nil && strings.Contains(err.Error(), "caf") { // it may be secret
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, input := range map[string]any{
		"a circle that is not in JSON": circle(),
		"U+FFFD":                       map[string]any{"path": "caf\uFFFD"},
		"U+FFFD, escaped":              json.RawMessage(`{"path":"caf\ufffd"}`),
		"U+FFFD, within":               map[string]any{"path": json.RawMessage(`"caf\ufffd"`)},
		"bytes":                        map[string]any{"path": []byte(bad)},
		"a surrogate pair":             json.RawMessage(`{"path":"\ud83d\ude00"}`),
		"not in JSON":                  struct{ hidden string }{bad},
	} {
		ran := 0
		if _, err := p.Do(t.Context(), coordinator.Action{Capability: "file.write", Input: input},
			counted(&ran, nil)); err != nil || ran != 1 {
			t.Errorf("%s: ran %d times, %v", what, ran, err)
		}
	}
}

// TestAnUndoIsCalledWithWhatWasKeptExactlyOrIsItsOwners: of an output and of a reference.
func TestAnUndoIsCalledWithWhatWasKeptExactlyOrIsItsOwners(t *testing.T) {
	t.Parallel()
	var declared []contract.Contract
	for name, with := range map[string]string{"id": "=output.id", "name": "=output.name", "ref": "=meta.external_ref",
		"input": "=input.path"} {
		declared = append(declared, contract.Contract{Capability: "report." + name, Class: contract.Compensable,
			Inverse: &contract.Inverse{Call: "report.drop", With: map[string]any{"what": with}}})
	}
	l := newLive(t, coordinator.Config{Contracts: declared})
	l.undo("report.drop", func(context.Context, api.Command) (worker.Result, error) { return worker.Result{}, nil })
	const done, owners = ledger.StateCompensated, ledger.StateQuarantined
	for plan, c := range map[string]struct {
		capability string
		outcome    coordinator.Outcome
		sent       string
		refused    bool // by Do: something that is read was not kept
		state      string
	}{
		"part":    {"id", coordinator.Outcome{Output: map[string]any{"id": 7, "name": "\xe9"}}, `{"what":7}`, false, done},
		"none":    {"name", coordinator.Outcome{Output: map[string]any{"id": 7, "name": "\xe9"}}, "", true, owners},
		"raw":     {"name", coordinator.Outcome{Output: json.RawMessage(`{"name":"\ud83d"}`)}, "", true, owners},
		"rawpart": {"id", coordinator.Outcome{Output: json.RawMessage("{\"id\":8,\"name\":\"\xe9\"}")}, `{"what":8}`, false, done},
		"twice":   {"id", coordinator.Outcome{Output: json.RawMessage(`{"id":8,"id":9}`)}, "", true, owners},
		"beside": {"id", coordinator.Outcome{Output: map[string]any{"id": 8, "x": json.RawMessage(`{"a":1,"a":2}`)}}, "",
			true, owners},
		"untwice": {"input", coordinator.Outcome{Output: json.RawMessage(`{"id":8,"id":9}`)}, `{"what":"in"}`, false, done},
		"bytes":   {"ref", coordinator.Outcome{ExternalRef: "caf\xe9"}, "", true, owners},
		"long":    {"ref", coordinator.Outcome{ExternalRef: strings.Repeat("x", ledger.TextMax) + "1"}, "", true, owners},
		"unread":  {"input", coordinator.Outcome{ExternalRef: "caf\xe9", Output: 1}, `{"what":"in"}`, false, done},
		"both":    {"input", coordinator.Outcome{ExternalRef: "caf\xe9", Output: "\xe9"}, `{"what":"in"}`, false, done},
		"fits": {"ref", coordinator.Outcome{ExternalRef: strings.Repeat("x", ledger.TextMax)},
			`{"what":"` + strings.Repeat("x", ledger.TextMax) + `"}`, false, done},
	} {
		p := l.begin(coordinator.PlanSpec{ID: plan})
		_, err := p.Do(t.Context(), coordinator.Action{ID: "a", Capability: "report." + c.capability,
			Input: map[string]string{"path": "in"}},
			func(context.Context, coordinator.Call) (coordinator.Outcome, error) { return c.outcome, nil })
		var refused *ledger.Refused
		if errors.As(err, &refused) != c.refused || err != nil && !c.refused {
			t.Errorf("%s: %v", plan, err)
		}
		if err := p.Fail(t.Context(), "no"); err != nil {
			t.Fatal(err)
		}
		l.ends(p, c.state)
		a := l.showsAction(plan, "a", func(api.Action) bool { return true })
		sent := ""
		for _, command := range l.undone {
			if command.Plan == plan {
				sent = string(command.Arguments)
			}
		}
		if sent != c.sent || c.state == ledger.StateQuarantined && !strings.Contains(a.Note, "is not there") {
			t.Errorf("%s: sent %.80s, want %.80s: %s", plan, sent, c.sent, a.Note)
		}
	}
}

// ownText, ownKey and ownJSON make their JSON themselves.
type (
	ownText string
	ownKey  int
	ownJSON string
)

func (o ownText) MarshalText() ([]byte, error) { return []byte(o), nil }
func (ownKey) MarshalText() ([]byte, error)    { return []byte("caf\xe9"), nil }
func (o ownJSON) MarshalJSON() ([]byte, error) { return json.Marshal(string(o)) }

// node has a parent, which encoding/json does not look at.
type node struct {
	parent *node
	Kids   []*node
	Text   json.RawMessage
}

func circle() *node {
	top := &node{Text: json.RawMessage(`"\ufffd"`)}
	top.Kids = []*node{{parent: top, Text: json.RawMessage(`1`)}}
	return top
}

// TestWhatHasHappenedIsRecordedWhateverItIsCalled: by Report, too.
func TestWhatHasHappenedIsRecordedWhateverItIsCalled(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{{Capability: "report.ref",
		Class: contract.Compensable, Sensitive: []string{"output.token"},
		Inverse: &contract.Inverse{Call: "report.drop", With: map[string]any{"what": "=meta.external_ref"}}}}})
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	if err := p.Report(t.Context(), coordinator.Action{ID: "a", Capability: "report.ref", Input: 1},
		coordinator.Outcome{ExternalRef: strings.Repeat("x", 5000)}); err != nil {
		t.Fatal(err)
	}
	if err := p.Fail(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	l.ends(p, ledger.StateQuarantined)
}
