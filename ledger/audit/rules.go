// Package audit folds a ledger a second time and holds it to the rules.
//
// It says again what records mean, from the records alone, and shares nothing with
// package executor: no rows, no indexes, no counters. Everything is recomputed when it
// is asked for. Where the two folds differ, one of them is wrong. It is the core of the
// offline verifier, and simulations compare with it after every record.
//
// What the documents leave open, in the order in which it bites:
//
//   - A record that a holder wrote is a claim: it is effective where the plan allows it
//     at that place, and void otherwise. What anybody else wrote is refused where it
//     breaks a rule. A second copy of a record is repeated. None of the three changes
//     anything, but that logical time moves with the stamp of every record, and with
//     the epoch of every record of a holder of the present term or of a later one.
//   - A void record is no violation by itself: others may have been faster. It is one
//     when its message would have been effective nowhere between the holder's last
//     message and itself, and is no copy of an earlier message.
//   - A plan that was never opened is opened by its first forward, without a
//     declaration: that forward may be crossing by now. It stays open even if the
//     forward is refused.
//   - A plan whose opening was refused is opened by that record, and has failed at once: of
//     the declaration only label, owner and second approver are kept.
//   - A lease turns at the first record after which its condition is true while its
//     plan is armed, and its action not settled. It may fire from then on, whatever the
//     condition is by now. A condition that reads the clock turns where a fact or a
//     state that it reads changes, and may fire wherever it is true.
//   - A child that commits gives up the leases that it holds for itself; those of its
//     actions are held on.
//   - The first lease of a plan that has turned is the one that fires. One that reads no
//     clock takes the place of one that does; of those that turn at one record any may
//     be it. The others wait after it for the case that it is cut, up to 16 of them.
//   - A firing tells what its condition read where it turned. One on the clock was asked
//     where its holder decided, which is some place after the holder's last message.
//   - A turn that reads no clock keeps a commit from landing; one that does loses
//     against it.
//   - An unwind that joins an action late makes what came before it wait, but not what
//     has begun: its next attempt goes on.
//   - What is undone, skipped or resolved without halt lets go what it came after, once
//     nothing after it is held. What is quarantined does so where the plan says continue.
//   - An entry of a child plan is owed like an action. It is under way while its child
//     unwinds, and ends as its child does.
//   - An end names what was outstanding where its holder decided it: what
//     others say of the plan after the holder's last message is not in it.
//   - A plan whose action was ever answered by its owner ends resolved, a plan of which
//     nothing crossed ends failed, also when it was opened with a parent that is not.
//   - A completion counts also after a failure, and then is a duty if the action was
//     skipped. Nothing else is said twice of a forward.
//   - A fact has the depth of the unwind whose undo it names while that undo
//     is under way, and for an hour of logical time after its success.
//   - A plan is undone after its commit by a new plan with the same keys, whose actions
//     hear of outcomes that arrive for the old one.
package audit

import (
	"maps"
	"slices"
	"strings"
)

// Rule is one of the rules that a ledger is held to. Its clauses say what this package asks.
type Rule struct {
	ID       string
	Sentence string // for a report
	// Here says how this package holds a ledger to a rule that has no clause; empty: it
	// does not.
	Here string
	// Elsewhere says who else holds a ledger to it.
	Elsewhere string
	// Own says that the records of one plan can break it, whatever else is in the ledger.
	Own bool
	// Timed says that the end of an undo window has a part in it.
	Timed bool
}

// Rules lists all rules, in the order of their numbers.
func Rules() []Rule { return slices.Clone(rules) }

var rules = []Rule{
	{ID: "I1", Sentence: "Positions are 1 to n without a gap.",
		Elsewhere: "the host's guard G1 compares with the stream"},
	{ID: "I2",
		Sentence: "Every checkpoint has the root of the records before it, and a valid " +
			"signature.",
		Elsewhere: "the verifier of checkpoints, which has leaves and keys"},
	{ID: "I3", Sentence: "A commit is one message: whole or absent."},
	{ID: "I4", Own: true, Sentence: "Each kind of record is only where its writer may write.",
		Elsewhere: "the permissions of the server"},
	{ID: "I5",
		Sentence: "An id counts once: a copy changes nothing, and another record under it is " +
			"refused."},
	{ID: "I6",
		Sentence: "Every reference names an earlier record of the same ledger, by place and " +
			"leaf."},
	{ID: "I7", Sentence: "The state is a function of the records only.",
		Here:      "the book has no other input",
		Elsewhere: "memory rebuild compares rows byte for byte"},
	{ID: "I8", Own: true,
		Sentence: "Logical time is the maximum of the stamps and epochs recorded so far, and moves " +
			"with each message."},
	{ID: "I9", Sentence: "The same state and input give the same decisions.",
		Elsewhere: "the tests of the executor, which decide twice"},
	{ID: "I10", Sentence: "Working memory is what the records say.",
		Elsewhere: "memory rebuild compares rows byte for byte"},
	{ID: "I11", Sentence: "A lease that fired was true, by the condition that was registered."},
	{ID: "I12",
		Sentence: "A lease fires for the first record after which it was true while armed."},
	{ID: "I13", Sentence: "What is true while armed fires."},
	{ID: "I14", Own: true, Sentence: "A lease fires once, until its plan is open again."},
	{ID: "I15", Own: true, Timed: true, Sentence: "A plan that has ended does nothing more."},
	{ID: "I16", Sentence: "Nothing that reads the clock fires early.",
		Elsewhere: "the host's clock guard holds the clock against another one"},
	{ID: "I17", Own: true, Sentence: "Every forward has its compensation in the same commit."},
	{ID: "I18", Own: true, Sentence: "No outcome of an undo without its dispatch."},
	{ID: "I19", Own: true,
		Sentence: "One undo and one key for each address, whatever attempt and term."},
	{ID: "I20", Own: true, Timed: true,
		Sentence: "Only what crossed the boundary, or may have, is undone; " +
			"doubt is settled as the contract says."},
	{ID: "I21", Own: true, Sentence: "An undo begins when all that came after it has ended."},
	{ID: "I22", Own: true, Timed: true,
		Sentence: "A plan ends compensated when each crossed action has exactly one success."},
	{ID: "I23", Own: true, Timed: true,
		Sentence: "What cannot be undone is its owner's, and the end names exactly what is " +
			"outstanding."},
	{ID: "I24", Own: true, Timed: true,
		Sentence: "What is held is what was registered and neither retired nor settled."},
	{ID: "I25",
		Sentence: "Every firing has the depth of what it read, and none is deeper than its " +
			"limit."},
	{ID: "I26", Sentence: "Terms never decrease, and a holder of an older one decides nothing.",
		Elsewhere: "the fence of the append"},
	{ID: "I27", Own: true, Sentence: "Nothing crosses tenants."},
	{ID: "I28", Sentence: "Nothing that a decision reads can be shredded.",
		Here: "the book reads control fields only, and of payloads what bindings move into " +
			"arguments"},
	{ID: "I29",
		Sentence: "A plan that ended compensated or failed has no effect in the world, " +
			"as long as providers keep what their contracts say.",
		Elsewhere: "the simulator, which knows the provider's world"},
	{ID: "I30", Own: true,
		Sentence: "A call takes what its registered bindings make of what was recorded."},
	{ID: "I31",
		Sentence: "A plan takes the records of one process of its agent at a time. An act " +
			"that " +
			"another one claims, or that any refused record claims, keeps its plan from " +
			"ending committed, " +
			"compensated or failed until its owner, or its process, has said what became of " +
			"it.",
		Elsewhere: "the simulator, which knows the provider's world"},
	{ID: "I36",
		Sentence: "A commit retires nothing in doubt, unless its owner has answered for it " +
			"or its plan accepts that."},
	{ID: "I37",
		Sentence: "No undo and no question is sent with null in place of what could not be " +
			"kept."},
	{ID: "I38",
		Sentence: "A staged act is delivered once at most, after the commit of its root, in the " +
			"order of the tree."},
	{ID: "L1", Sentence: "Every unwind ends."},
	{ID: "L2", Sentence: "Every deadline that has passed has fired."},
}

// RuleOf returns the rule of an id; an empty one where there is none.
func RuleOf(id string) Rule {
	for _, rule := range Rules() {
		if rule.ID == id {
			return rule
		}
	}
	return Rule{}
}

// RulesHeld counts the rules that this package holds a ledger to.
func RulesHeld() (count int) {
	clauses := Clauses()
	for _, rule := range Rules() {
		asked := func(c Clause) bool { return strings.HasPrefix(c.ID, rule.ID+".") }
		if rule.Here != "" || slices.ContainsFunc(clauses, asked) {
			count++
		}
	}
	return count
}

// Clause is a part of a rule: a predicate over what the records so far say, and the record
// that comes next.
type Clause struct {
	ID    string   // "I21.order": the rule, and a name that stays
	Says  string   // what is right
	Kinds []string // of records that it is asked of; empty: of all, or at the end
	// Voids says that a record that breaks it does not count. One that a holder wrote is
	// a violation then where it was right at no place that its holder may have read to.
	// Where it is false the record counts, and is a violation.
	Voids bool
}

// Clauses lists all clauses, rule by rule.
func Clauses() []Clause {
	all := map[string]*Clause{"I1.next": {ID: contiguous.id, Says: contiguous.says}}
	add := func(clauses []clause, kind string, voids bool) {
		for _, k := range clauses {
			c := all[k.id]
			if c == nil {
				c = &Clause{ID: k.id, Says: k.says, Voids: voids}
				all[k.id] = c
			}
			if kind != "" {
				c.Kinds = append(c.Kinds, kind)
			}
		}
	}
	add(formClauses, "", true)
	for _, of := range writerClauses {
		add(of, "", true)
	}
	add(always, "", false)
	add(counted, "", false)
	for _, kind := range slices.Sorted(maps.Keys(chapters)) {
		add(chapters[kind].counts, kind, true)
		add(chapters[kind].content, kind, false)
	}
	add(atEnd, "", false)
	var list []Clause
	for _, rule := range Rules() {
		for _, id := range slices.Sorted(maps.Keys(all)) {
			if strings.HasPrefix(id, rule.ID+".") {
				list = append(list, *all[id])
			}
		}
	}
	return list
}
