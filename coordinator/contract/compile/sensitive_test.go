package compile_test

import (
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestLintKeepsSensitiveFieldsOutOfEverythingThatStandsInTheClear, and out of what would
// be computed from a value that is sealed.
func TestLintKeepsSensitiveFieldsOutOfEverythingThatStandsInTheClear(t *testing.T) {
	for text, want := range map[string]string{
		"sensitive: [input.card]\ninverse: {call: a.b, with: {card: =input.card}}":                                           "",
		"sensitive: [input.card]\ninverse: {call: a.b, with: {all: =input, n: =input.n + 1}}":                                "",
		"sensitive: [input.card, output.token]\ninverse: {call: a.b, with: {c: '=input.big ? input.card : output.token'}}":   "",
		"sensitive: [card]\ninverse: {call: a.b}":                                                                            "error: sensitive[0]: \"card\" begins with none of input, output and before",
		"sensitive: [before.x]\ninverse: {call: a.b}":                                                                        "error: sensitive[0]: before.x, and the contract asks for no before-image",
		"sensitive: [input.card]\nlift: [card]\ninverse: {call: a.b}":                                                        "error: lift[0]: card is sensitive",
		"sensitive: [output]\nlift: [id]\ninverse: {call: a.b}":                                                              "error: lift[0]: id is sensitive",
		"sensitive: [input.card]\ninverse: {call: a.b, with: {last: '=\"x\" + input.card'}}":                                 "error: inverse.with.last: computes from input.card, which is sensitive",
		"sensitive: [input.card]\ninverse: {call: a.b, with: {n: =size(input)}}":                                             "error: inverse.with.n: computes from input.card",
		"sensitive: [input.card]\ninverse: {call: a.b, with: {n: =input.card.number}}":                                       "error: inverse.with.n: takes a part of input.card, which is sealed as a whole; want the whole of it, or sensitive: [input.card.number]",
		"sensitive: [input.card]\ninverse: {call: fact.assert, actuator: memory, with: {key: '=\"k\"', value: =input.card}}": "error: inverse.with.value: takes input.card, which is sensitive, into working memory",
		"sensitive: [input.card]\nvalid_until: timestamp(input.card.until)\ninverse: {call: a.b}":                            "error: valid_until: reads input.card, which is sensitive",
		"sensitive: [output.code]\ninverse: {call: a.b, done: error.code == output.code}":                                    "error: inverse.done: reads output.code",
		"sensitive: [output.id]\ninverse: {call: a.b, verify: {call: a.get, with: {id: =output.id}, ok: verify.id != " +
			"output.id}}": "error: inverse.verify.ok: reads output.id",
		"sensitive: [input.n]\ntriggers: {many: action.input.n > 3}\ninverse: {call: a.b}": "error: triggers[many]: reads " +
			"action.input.n, which is sensitive",
	} {
		got := lint(t, undo+text+"\n")
		if want == "" && strings.Contains(got, "error") || want != "" && !strings.Contains(got, want) {
			t.Errorf("%s\n  gives\n%s\n  want %s", text, got, want)
		}
	}
}

// TestARegistrationSaysWhetherItsUndoTakesSealedValues, for only then it is its owner's
// once they are erased.
func TestARegistrationSaysWhetherItsUndoTakesSealedValues(t *testing.T) {
	for name, c := range map[string]struct {
		with map[string]any
		want bool
	}{"the field": {map[string]any{"card": "=input.card"}, true}, "all of it": {map[string]any{"all": "=input"},
		true}, "another": {map[string]any{"n": "=input.n"}, false}, "nothing": {nil, false}} {
		compiled := mustCompile(t, contract.Contract{
			Capability: "a.create", Class: contract.Compensable, Sensitive: []string{"input.card"},
			Inverse: &contract.Inverse{Call: "a.b", With: c.with},
		})
		_, inverse := compiled.Pair("p", "a", "", &pb.ForwardRegistered{Capability: "a.create"})
		if got := inverse.GetCompensationRegistered().Sealed; got != c.want {
			t.Errorf("%s: sealed %v", name, got)
		}
	}
}
