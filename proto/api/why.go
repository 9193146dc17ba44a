package api

import (
	"fmt"
	"strconv"
	"strings"
)

// WhyQuery asks why a plan unwinds, or what holds it (plan.why).
type WhyQuery struct {
	Plan string `json:"plan"`
	// Action: only what led to the undo of this one, by its id or its number in the plan. Where that
	// is the id of one action and the number of another, "id:4" or "number:4" says which is meant.
	Action string `json:"action,omitempty"`
}

// What says whether an action is named by its id or by its number, where people may name it by
// both.
const (
	IDPrefix     = "id:"
	NumberPrefix = "number:"
)

// ByID names an action by its id alone, as programs do.
func ByID(id string) string { return IDPrefix + id }

// ActionArg names an action in a command, or in an address for people, by its id, with IDPrefix
// where it reads as a number that is not the action's own, and may be another one's. number is 0
// where it is not known.
func ActionArg(id string, number int) string {
	if _, err := strconv.Atoi(id); err == nil && id != strconv.Itoa(number) {
		return ByID(id)
	}
	return id
}

// WhyAnswer answers plan.why.
type WhyAnswer struct {
	Why Why `json:"why"`
}

// Why is the chain of causes of the unwind of a plan, or of the first of its leases that is
// cut, or of the last that was cut and has not fired since.
type Why struct {
	Plan   string `json:"plan"`
	State  string `json:"state"`
	Owner  string `json:"owner,omitempty"`
	Reason string `json:"reason,omitempty"` // of the unwind
	Origin string `json:"origin,omitempty"` // the committed plan that this one undoes
	// the plan that undoes this committed one; the steps are of that one
	UndoneAs string `json:"undone_as,omitempty"`
	// Delivers: it delivers what is staged in Origin; DeliveredAs: the plan that does so for this one.
	Delivers    bool      `json:"delivers,omitempty"`
	DeliveredAs string    `json:"delivered_as,omitempty"`
	Steps       []WhyStep `json:"steps"`             // oldest first; empty: no lease has fired
	Omitted     bool      `json:"omitted,omitempty"` // more than 64 came before
	Cycle       *Cycle    `json:"cycle,omitempty"`
	Cuts        []Cut     `json:"cuts,omitempty"` // leases that wait for the owner
	// leases that the owner has answered, the last answer to each; the last 16
	Answers []CutAnswer `json:"answers,omitempty"`

	Action string `json:"action,omitempty"` // asked for: its id
	// actions that are owed and not settled, or in doubt in an open plan, and what for
	Waits []Wait `json:"waits,omitempty"`
	// cause, lease, decision, command, outcome, in the order of the ledger
	Records []StoryLine `json:"records"`
	Left    string      `json:"left,omitempty"` // what Records leaves out
}

// Wait is an action whose undo is owed and not settled, or that is in doubt, and what it waits for.
type Wait struct {
	Number int    `json:"number"` // 0: an act that was claimed by a record which was refused
	Action string `json:"action"`
	Undo   string `json:"undo"` // owed, ahead, ready, dispatched, waiting, quarantined, exhausted
	For    string `json:"for"`
	ToDrop bool   `json:"to_drop,omitempty"` // its deliveries were stopped: it is dropped then
}

// WhyStep is one lease of the chain: what it turned at, and that it fired.
type WhyStep struct {
	Plan      string `json:"plan"`
	Origin    string `json:"origin,omitempty"` // the committed plan that Plan undoes
	Action    string `json:"action,omitempty"` // whose lease it is; empty: the plan's own
	Lease     string `json:"lease"`
	Condition string `json:"condition,omitempty"`
	Fired     string `json:"fired,omitempty"` // address; empty: it is cut
	// as counted; an owner's resume counts from 1 again
	Depth int `json:"depth"`
	// fact, part: a plan that is part of it; empty: the chain begins here
	By string `json:"by,omitempty"`
	// fact: the action of the step before whose undo made it
	Undone string `json:"undone,omitempty"`
	// fact: of that undo, the plan of the step before or one that is part of it
	UndonePlan string `json:"undone_plan,omitempty"`
	// of that fact; without By: the last fact that the condition read
	Key    string `json:"key,omitempty"`
	Fact   string `json:"fact,omitempty"`    // address
	FactNs int64  `json:"fact_ns,omitempty"` // without By, and so are the next two
	Source string `json:"source,omitempty"`
	// JSON; empty: retracted, in the ledger only, or above 1 KiB
	Value     string `json:"value,omitempty"`
	Retracted bool   `json:"retracted,omitempty"`

	// failed, cancelled, unwind, late, block, redirect: what turned it, if someone did;
	// moved: who moved the deadline that turned it
	Said        string `json:"said,omitempty"`
	SaidOf      string `json:"said_of,omitempty"`      // late, block, redirect: the action
	SaidPlan    string `json:"said_plan,omitempty"`    // of which that was said; empty: Plan
	Capability  string `json:"capability,omitempty"`   // of the action of which that was said
	ToSavepoint string `json:"to_savepoint,omitempty"` // unwind: back to here
	// it undoes this action and what came after it only
	FromAction string `json:"from_action,omitempty"`
	Actor      string `json:"actor,omitempty"` // who did
	Reason     string `json:"reason,omitempty"`
	// address of what was said; of a deadline: of the record that set it last
	At         string `json:"at,omitempty"`
	DeadlineNs int64  `json:"deadline_ns,omitempty"` // of the plan, where that has turned it
	TurnedNs   int64  `json:"turned_ns,omitempty"`
	Resumed    *Word  `json:"resumed,omitempty"` // it was cut, and its owner let it fire
}

// Word is an owner's answer to a cut.
type Word struct {
	Answer string `json:"answer"` // resume, give-up
	By     string `json:"by"`     // who: of two approvers both
	Reason string `json:"reason,omitempty"`
	At     string `json:"at"` // address
	AtNs   int64  `json:"at_ns"`
}

// CutAnswer is a lease that was cut, and its owner's answer.
type CutAnswer struct {
	Action string `json:"action,omitempty"` // whose lease it is; empty: the plan's own
	Lease  string `json:"lease"`
	Why    string `json:"why"` // it was cut
	Cut    string `json:"cut"` // address
	Word
}

// Cycle is what repeats in a chain.
type Cycle struct {
	Plans  []string `json:"plans"`  // once round, the first once more at the end
	Rounds int      `json:"rounds"` // how often it came round
	// what differs each round: actions, plans, or plans and facts
	Others string `json:"others,omitempty"`
}

// String reads "cycle of 3: a -> b -> c -> a, went round 2 times".
func (c *Cycle) String() string {
	text := fmt.Sprintf("cycle of %d: %s, went round ", len(c.Plans)-1, strings.Join(c.Plans, " -> "))
	if c.Rounds == 1 {
		text += "once"
	} else {
		text += fmt.Sprintf("%d times", c.Rounds)
	}
	if c.Others != "" {
		text += ", with other " + c.Others + " each time"
	}
	return text
}

// Cut is a lease that a cascade limit holds until its plan's owner answers.
type Cut struct {
	Action   string `json:"action,omitempty"` // whose lease it is; empty: the plan's own
	Number   int    `json:"number,omitempty"` // of that action
	Lease    string `json:"lease"`
	Depth    int    `json:"depth"` // that it would have fired at
	Why      string `json:"why"`   // "depth 9 of 8"
	At       string `json:"at"`    // address
	AtNs     int64  `json:"at_ns"`
	Cut      string `json:"cut"`                // At with its whole leaf, for programs
	Proposal string `json:"proposal,omitempty"` // an owner's answer that waits for a second operator
}

// StoryLine is one record of a story.
type StoryLine struct {
	Record   string `json:"record"` // "lease_fired@14.0-0fd319a7": kind, sequence, index, leaf
	Sequence uint64 `json:"sequence"`
	Role     string `json:"role"`
	Kind     string `json:"kind"`
	Plan     string `json:"plan,omitempty"`
	Action   string `json:"action,omitempty"`
	// class and name of the subject: "agent traveller", "executor"
	By        string     `json:"by"`
	TimeNs    int64      `json:"time_ns"` // stamp of its message
	EpochNs   int64      `json:"epoch_ns,omitempty"`
	Text      string     `json:"text"`
	Because   string     `json:"because,omitempty"` // the record that caused it, as Record has it
	Condition string     `json:"condition,omitempty"`
	Read      []ReadLine `json:"read,omitempty"` // what the condition read at its epoch
	Void      string     `json:"void,omitempty"` // why it does not count
}

// ReadLine is one value that a condition read.
type ReadLine struct {
	Name   string `json:"name"`
	Value  string `json:"value,omitempty"`  // JSON; empty: see Known
	Record string `json:"record,omitempty"` // sequence of the record that set it
}

// Known is the value, or what is known of it: that it was there, or nothing.
func (r ReadLine) Known() string {
	switch {
	case r.Value != "":
		return r.Value
	case r.Record != "":
		return "present"
	}
	return "unknown"
}
