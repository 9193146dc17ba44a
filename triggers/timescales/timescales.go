// Package timescales expresses the ten properties of the Timescales benchmark as
// triggers, makes traces of their shapes, and finds the first violation of a trace
// by the definition of each property alone, to hold the triggers against.
//
// The properties are those of D. Ulus, "Timescales: A Benchmark Generator for MTL
// Monitoring Tools", Runtime Verification 2019, LNCS 11757, pp. 402-412,
// doi:10.1007/978-3-030-32079-9_25, with the formulas of its generator at
// github.com/doganulus/timescales, commit cb978a0. b is 10, 100 or 1,000 there, and
// a is 3, 30 or 300:
//
//	AbsentAQ    historically((once[:b](q)) -> ((not p) since q))
//	AbsentBR    historically(r -> (historically[:b](not p)))
//	AbsentBQR   historically((r && !q && once q) -> ((not p) since[a:b] q))
//	AlwaysAQ    historically((once[:b](q)) -> (p since q))
//	AlwaysBR    historically(r -> (historically[:b](p)))
//	AlwaysBQR   historically((r && !q && once q) -> (p since[a:b] q))
//	RecurGLB    historically(once[:b](p))
//	RecurBQR    historically((r && !q && once q) -> ((once[:b](p or q)) since q))
//	RespondGLB  historically((s -> once[a:b] p) and not( not(s) since[b:] p))
//	RespondBQR  historically((r && !q && once q) -> ( ((s -> once[a:b] p) and not( not(s) since[b:] p)) since q))
//
// The generator prints AbsentBQR with a parenthesis that ends after the premise;
// it is read here as its nine siblings are.
//
// A row is an instant of discrete time: row i happens i+1 steps of one second after
// the plan was opened, and asserts what is true in it, whatever was before. Both
// ends of [a:b] count. A property is violated at the first row at which what
// follows "historically" is false.
package timescales

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Row is what is true in one row of a trace: the union of P, Q, R and S.
type Row uint8

// The propositions of the benchmark.
const (
	P Row = 1 << iota
	Q
	R
	S
)

// StepNs is the time from one row to the next, in ns.
const StepNs int64 = 1e9

// AtNs returns when a row happens, in unix ns, for a plan that was opened at
// openedNs; rows count from 0.
func AtNs(openedNs int64, row int) int64 { return openedNs + int64(row+1)*StepNs }

// Fact is one assertion of a row.
type Fact struct {
	Key   string
	Value string // JSON
}

// Property is one of the ten.
type Property struct {
	Name     string
	alphabet Row
	asserts  []assertion
	// %a and %b are the bounds as durations, %b+1 is one step more
	condition string
	violation func(a, b int) formula         // what follows "historically"
	segment   func(g *generator, fails bool) // appends one segment of the published shape
}

// assertion is a fact that a row asserts when it has a proposition; otherwise is
// what it asserts when it has not, empty: nothing.
type assertion struct {
	of                    Row
	key, value, otherwise string
}

func event(of Row) assertion { return assertion{of, strings.ToLower(of.String()), `true`, ``} }
func state(of Row) assertion { return assertion{of, strings.ToLower(of.String()), `true`, `false`} }

// String names the propositions of a row, as in "PQ"; "-" is none.
func (r Row) String() string {
	name := ""
	for i, p := range "PQRS" {
		if r&(1<<i) != 0 {
			name += string(p)
		}
	}
	if name == "" {
		return "-"
	}
	return name
}

// Bounds returns the bounds a and b of a scale, which is 10 or more, in rows.
func Bounds(scale int) (a, b int) { return 3 * scale / 10, scale }

// Condition returns the trigger that turns true at the first violation, for a plan
// whose trace asserts Facts.
func (p Property) Condition(scale int) string {
	a, b := Bounds(scale)
	text := strings.NewReplacer(
		"%a", seconds(a), "%b-%a", seconds(b-a), "%b-1", seconds(b-1), "%b+1", seconds(b+1), "%b",
		seconds(b), "%1", seconds(1),
	).Replace(p.condition)
	return strings.Join(strings.Fields(text), " ")
}

func seconds(n int) string { return fmt.Sprintf("duration(\"%ds\")", n) }

// Facts returns what a row asserts, in this order, in one commit. It depends on
// the row alone. The order is chosen so that a part of a row is no violation if
// the whole is none. A row without anything asserts the fact "row", which no
// trigger reads.
func (p Property) Facts(number int, row Row) []Fact {
	var facts []Fact
	for _, a := range p.asserts {
		switch {
		case row&a.of != 0:
			facts = append(facts, Fact{a.key, a.value})
		case a.otherwise != "":
			facts = append(facts, Fact{a.key, a.otherwise})
		}
	}
	if len(facts) == 0 {
		facts = append(facts, Fact{"row", strconv.Itoa(number)})
	}
	return facts
}

// Properties returns the ten, in the order of the benchmark.
func Properties() []Property {
	return slices.Concat(absence(), universality(), recurrence(), responses())
}

// absence is what must not be in a scope.
func absence() []Property {
	return []Property{
		{
			Name: "AbsentAQ", alphabet: P | Q, asserts: []assertion{event(Q), event(P)},
			condition: `at("p") > at("q") && at("p") <= at("q") + %b`,
			violation: func(_, b int) formula {
				return implies(once(0, b, is(Q)), since(0, forever, not(is(P)), is(Q)))
			},
			segment: (*generator).absentAfter,
		},
		{
			Name: "AbsentBR", alphabet: P | R, asserts: []assertion{event(P), event(R)},
			condition: `at("p") <= at("r") && at("p") >= at("r") - %b`,
			violation: func(_, b int) formula { return implies(is(R), historically(0, b, not(is(P)))) },
			segment:   (*generator).absentBefore,
		},
		{
			// The latest p within reach moves the start of the window for q up to it.
			Name: "AbsentBQR", alphabet: P | Q | R, asserts: []assertion{event(Q), event(P), event(R)},
			condition: `at("q") < at("r") && ("p" in facts && at("p") > at("r") - %b
				? at("p") <= at("r") && (at("p") > at("r") - %a || absent_for("q", at("p"), at("r") - %a - at("p")))
				: absent_for("q", at("r") - %b, %b-%a))`,
			violation: func(a, b int) formula { return implies(scope, since(a, b, not(is(P)), is(Q))) },
			segment:   (*generator).absentBetween,
		},
	}
}

// universality is what must be throughout a scope.
func universality() []Property {
	return []Property{
		{
			Name: "AlwaysAQ", alphabet: P | Q, asserts: []assertion{event(Q), state(P)},
			condition: `facts["p"] == false && at("p") > at("q") && at("p") <= at("q") + %b`,
			violation: func(_, b int) formula {
				return implies(once(0, b, is(Q)), since(0, forever, is(P), is(Q)))
			},
			segment: (*generator).alwaysAfter,
		},
		{
			// p was false one step before it became true, unless that was the first row.
			Name: "AlwaysBR", alphabet: P | R, asserts: []assertion{state(P), event(R)},
			condition: `at("r") == at("p") && (facts["p"] == false
				|| since("p") > at("r") - %b && since("p") > plan.opened_at + %1)`,
			violation: func(_, b int) formula { return implies(is(R), historically(0, b, is(P))) },
			segment:   (*generator).alwaysBefore,
		},
		{
			Name: "AlwaysBQR", alphabet: P | Q | R, asserts: []assertion{event(Q), state(P), event(R)},
			condition: `at("q") < at("r") && at("r") == at("p") && (facts["p"] == false || (since("p") - %1 > at("r") - %b
				? since("p") - %1 > at("r") - %a || absent_for("q", since("p") - %1, at("r") - %a - (since("p") - %1))
				: absent_for("q", at("r") - %b, %b-%a)))`,
			violation: func(a, b int) formula { return implies(scope, since(a, b, is(P), is(Q))) },
			segment:   (*generator).alwaysBetween,
		},
	}
}

// recurrence is what must come again and again.
func recurrence() []Property {
	return []Property{
		{
			Name: "RecurGLB", alphabet: P, asserts: []assertion{event(P)},
			condition: `"p" in facts ? elapsed(at("p"), %b+1) : after(plan.opened_at + %1)`,
			violation: func(_, b int) formula { return once(0, b, is(P)) },
			segment:   (*generator).recurGlobally,
		},
		{
			// Some p, or the q, is followed by b+1 rows without a p before the r.
			Name: "RecurBQR", alphabet: P | Q | R, asserts: []assertion{event(Q), event(P), event(R)},
			condition: `at("q") < at("r") && ([at("q")] + latest(256, "p", at("q"), at("r") - at("q"))).exists(x,
				x + %b+1 <= at("r") && size(latest(1, "p", x + %1, %b)) == 0)`,
			violation: func(_, b int) formula {
				return implies(scope, since(0, forever, once(0, b, is(P|Q)), is(Q)))
			},
			segment: (*generator).recurBetween,
		},
	}
}

// responses are what must follow something else.
func responses() []Property {
	return []Property{
		{
			// call says which of p and s came last, so since("call") is the first p
			// that no s has followed.
			Name: "RespondGLB", alphabet: P | S, asserts: []assertion{{S, "call", `"s"`, ``}, event(P),
				{P, "call", `"p"`, ``}},
			condition: `facts["call"] == "p" ? elapsed(since("call"), %b) : absent_for("p", at("call") - %b, %b-%a)`,
			violation: response,
			segment:   (*generator).respondGlobally,
		},
		{
			// In the order of the disjuncts: an s with no p in its window; a p with no s in
			// time, which is up within the scope; the same, which was up when it began.
			Name: "RespondBQR", alphabet: P | Q | R | S,
			asserts: []assertion{event(Q), event(P), event(S), event(R)},
			condition: `at("q") < at("r") && (
				latest(256, "s", at("q") + %1, at("r") - at("q") - %1).exists(x, absent_for("p", x - %b, %b-%a))
				|| latest(256, "p", at("q") + %1 - %b, at("r") - at("q") - %1).exists(x, size(latest(1, "s", x + %1, %b-1)) == 0)
				|| latest(1, "p", plan.opened_at, at("q") + %1 - %b - plan.opened_at).exists(x, size(latest(1, "s", x + %1, at("q") - x)) == 0))`,
			violation: func(a, b int) formula {
				return implies(scope, since(0, forever, response(a, b), is(Q)))
			},
			segment: (*generator).respondBetween,
		},
	}
}
