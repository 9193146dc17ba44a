package compile

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/internal/argument"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// An undo that asserts or retracts a fact may turn the leases of other plans, and
// their undos those of others again. What goes round already in the contracts is
// said before it is cut at run time.

// factCalls are the capabilities whose argument key names a fact that they make or
// end.
var factCalls = []string{ledger.CapabilityAssert, ledger.CapabilityRetract}

// factKey is what a contract says of the key of the fact that its undo makes: the
// key, or the texts from which an expression builds it.
type factKey struct {
	key   string
	parts []string
}

// quotedText finds the texts in an expression.
var quotedText = regexp.MustCompile(`"[^"]+"|'[^']+'`)

// made is the fact that the inverse of a contract makes; ok is false when it makes
// none that the contract names.
func made(c contract.Contract) (k factKey, ok bool) {
	if c.Inverse == nil || !slices.Contains(factCalls, c.Inverse.Call) {
		return k, false
	}
	text, ok := c.Inverse.With[ledger.ArgumentKey].(string)
	if !ok {
		return k, false
	}
	expression, computed := strings.CutPrefix(text, "=")
	if !computed {
		return factKey{key: text}, text != ""
	}
	for _, part := range quotedText.FindAllString(expression, -1) {
		k.parts = append(k.parts, part[1:len(part)-1])
	}
	return k, len(k.parts) > 0
}

// reads names the first trigger of a contract that may read the fact, or "".
func (k factKey) reads(c contract.Contract, programs *triggers.Cache) string {
	for _, name := range slices.Sorted(maps.Keys(c.Triggers)) {
		condition, err := programs.Condition(argument.CEL(c.Triggers[name]))
		if err != nil {
			continue
		}
		keys, computed := condition.Keys()
		if k.key != "" && triggers.IsWatched(keys, k.key) {
			return name
		}
		for _, part := range k.parts {
			begins := func(key string) bool {
				prefix, is := triggers.PrefixOf(key)
				return strings.HasPrefix(key, part) ||
					is && (strings.HasPrefix(part, prefix) || strings.HasPrefix(prefix, part))
			}
			if slices.ContainsFunc(keys, begins) || computed && strings.Contains(c.Triggers[name], part) {
				return name
			}
		}
	}
	return ""
}

// cycles warns of contracts whose undos turn each other's triggers, once for each
// cycle, at the first of its contracts.
func cycles(sources []contract.Source, programs *triggers.Cache) (findings contract.Findings) {
	next := make([][]int, len(sources))
	for i := range sources {
		k, ok := made(sources[i].Contract)
		for j := range sources {
			if ok && k.reads(sources[j].Contract, programs) != "" {
				next[i] = append(next[i], j)
			}
		}
	}
	for i := range sources {
		round := shortestCycle(next, i)
		if len(round) == 0 || slices.Min(round) < i {
			continue
		}
		var names []string
		for _, j := range append(round, i) {
			names = append(names, sources[j].Capability)
		}
		k, _ := made(sources[round[len(round)-1]].Contract)
		findings = append(findings, sources[i].Warning("triggers["+k.reads(sources[i].Contract,
			programs)+"]",
			fmt.Sprintf("undos that turn each other's triggers, a cycle of %d: %s", len(round),
				strings.Join(names, " -> ")),
			"a condition that its own undo does not make true; a limit cuts the cascade "+
				"(docs/guide/cascades.md)"))
	}
	return findings
}

// shortestCycle returns the nodes of the shortest way from a node back to itself,
// that node first; nil: there is none.
func shortestCycle(next [][]int, from int) []int {
	before := map[int]int{}
	for todo := []int{from}; len(todo) > 0; todo = todo[1:] {
		for _, j := range next[todo[0]] {
			if _, seen := before[j]; seen {
				continue
			}
			before[j] = todo[0]
			if j != from {
				todo = append(todo, j)
				continue
			}
			var round []int
			for at := before[from]; at != from; at = before[at] {
				round = append(round, at)
			}
			round = append(round, from)
			slices.Reverse(round)
			return round
		}
	}
	return nil
}
