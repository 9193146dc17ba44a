package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// WhyQuery asks why a plan unwinds, or what holds it (plan.why).
type WhyQuery struct {
	Plan   string `json:"plan"`
	Action string `json:"action,omitempty"` // only what led to the undo of this one: id, or number
}

// WhyAnswer answers plan.why.
type WhyAnswer struct {
	Why   Why    `json:"why"`
	Error string `json:"error,omitempty"`
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
	UndoneAs string    `json:"undone_as,omitempty"`
	Steps    []WhyStep `json:"steps"`             // oldest first; empty: no lease has fired
	Omitted  bool      `json:"omitted,omitempty"` // more than 64 came before
	Cycle    *Cycle    `json:"cycle,omitempty"`
	Cuts     []Cut     `json:"cuts,omitempty"` // leases that wait for the owner
	// leases that the owner has answered, the last answer to each; the last 16
	Answers []Answer `json:"answers,omitempty"`

	Action string `json:"action,omitempty"` // asked for: its id
	// actions that are owed and not settled, and what for
	Waits []Wait `json:"waits,omitempty"`
	// cause, lease, decision, command, outcome, in the order of the ledger
	Records []ledger.StoryLine `json:"records"`
	Left    string             `json:"left,omitempty"` // what Records leaves out
}

// Wait is an action whose undo is owed and not settled, and what it waits for.
type Wait struct {
	Number int    `json:"number"` // 0: an act that was claimed by a record which was refused
	Action string `json:"action"`
	Undo   string `json:"undo"` // owed, ahead, ready, dispatched, waiting, quarantined, exhausted
	For    string `json:"for"`
}

// WhyStep is one lease of the chain: what it turned at, and that it fired.
type WhyStep struct {
	Plan      string `json:"plan"`
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

	// failed, cancelled, unwind, late, block, redirect: what turned it, if someone did
	Said        string `json:"said,omitempty"`
	SaidOf      string `json:"said_of,omitempty"`      // late: the action
	ToSavepoint string `json:"to_savepoint,omitempty"` // unwind: back to here
	// it undoes this action and what came after it only
	FromAction string `json:"from_action,omitempty"`
	Actor      string `json:"actor,omitempty"` // who did
	Reason     string `json:"reason,omitempty"`
	// address of what was said; of a deadline: where the plan was opened
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

// Answer is a lease that was cut, and its owner's answer.
type Answer struct {
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

func cuts(p *executor.Plan) (views []Cut) {
	for _, c := range p.Row.Cuts {
		shown := Cut{
			Action: c.Firing.GetAction(), Number: int(c.Action), Lease: c.Lease,
			Depth: int(c.Firing.GetDepth()), Why: c.Why,
			At: ledger.FormatAddress(c.At), AtNs: c.AtNs, Cut: ledger.FormatFullAddress(c.At),
		}
		if q := c.Proposal; q != nil {
			shown.Proposal = answerOf(q) + " by " + q.Operator + " at " + ledger.FormatAddress(q.At)
		}
		views = append(views, shown)
	}
	return views
}

// Why tells what led to the unwind of a plan, or to the first lease of it that is
// cut; of an action too, what its undo waits for. The error is a *ledger.Refused: there
// is no such plan or action. Records is the caller's, who reads the ledger (see Trail).
func (r *Reader) Why(q WhyQuery) (Why, error) {
	id := q.Plan
	p := r.core.Plan(id)
	if p == nil {
		return Why{}, ledger.Refuse("plan", r.NoPlan(id), "a plan of this tenant")
	}
	var of *executor.Action
	if q.Action != "" {
		if of = numbered(p, q.Action); of == nil {
			return Why{}, ledger.Refuse("action", "plan "+p.ID+" has no action "+q.Action,
				"an action of it")
		}
	}
	shown := Why{
		Plan: id, State: p.State(), Owner: p.Owner(), Reason: p.Reason(),
		Origin: p.Row.Origin, UndoneAs: p.Row.UndoneAs,
		Steps: []WhyStep{}, Cuts: cuts(p), Answers: answersOf(p), Waits: r.waits(p, of),
		Records: []ledger.StoryLine{},
	}
	if of != nil {
		shown.Action = of.Fixed.Id
	}
	f := r.whyFiring(p)
	if f == nil {
		return shown, nil
	}
	list := append(r.core.Before(f), f)
	shown.Omitted = len(list) > executor.CascadeDepthMax &&
		(list[0].By != nil || list[0].Passed != nil)
	for _, g := range list {
		shown.Steps = append(shown.Steps, r.whyStep(g))
	}
	shown.Cycle = cycleOf(shown.Steps)
	return shown, nil
}

// whyFiring is what Why tells of a plan, or nil.
func (r *Reader) whyFiring(p *executor.Plan) *rowspb.Firing {
	if len(p.Row.Cuts) > 0 {
		return p.Row.Cuts[0].Firing
	}
	if p.Row.UndoneAs != "" {
		if u := r.core.Plan(p.Row.UndoneAs); u != nil && u.Row.Firing != nil {
			return u.Row.Firing
		}
	}
	f := p.Row.Firing
	if n := len(p.Row.Answered); n > 0 && p.Row.Fired == nil && p.Row.Unwinding == nil {
		if c := p.Row.Answered[n-1]; f == nil || rows.At(c.Answer.At).Compare(rows.At(f.Fired)) > 0 {
			return c.Firing
		}
	}
	return f
}

func answersOf(p *executor.Plan) (views []Answer) {
	for _, c := range p.Row.Answered {
		views = append(views, Answer{
			Action: c.Firing.GetAction(), Lease: c.Lease, Why: c.Why, Cut: ledger.FormatAddress(c.At),
			Word: *wordView(c.Answer),
		})
	}
	return views
}

func wordView(w *rowspb.Word) *Word {
	shown := &Word{Answer: w.Said, By: w.By, Reason: w.Reason, AtNs: w.AtNs}
	if w.At != nil {
		shown.At = ledger.FormatAddress(w.At)
	}
	return shown
}

func (r *Reader) whyStep(f *rowspb.Firing) WhyStep {
	step := WhyStep{Plan: f.Plan, Action: f.Action, Lease: f.Lease, Depth: int(f.Depth),
		TurnedNs: f.TurnedNs}
	if f.Fired != nil {
		step.Fired = ledger.FormatAddress(f.Fired)
	}
	switch by, read := f.By, f.Read; {
	case by != nil:
		step.By, step.Undone, step.UndonePlan = "fact", by.Undone, by.UndonePlan
		step.Key, step.Fact, step.Retracted = by.Key, ledger.FormatAddress(by.Fact), by.Retracted
	case f.Passed != nil:
		step.By = "part"
	case read != nil:
		step.Key, step.Fact, step.FactNs, step.Retracted = read.Key, ledger.FormatAddress(read.At),
			read.AtNs, read.Retracted
		step.Source, step.Value = read.Source, string(read.Value)
	}
	if w := f.Said; w != nil {
		step.Said, step.ToSavepoint, step.Actor, step.Reason = w.Said, w.Savepoint, w.By, w.Reason
		if w.At != nil {
			step.At = ledger.FormatAddress(w.At)
		}
		switch w.Said {
		case executor.SaidLate:
			step.SaidOf = w.Action
		case executor.SaidUnwind:
			step.FromAction = w.Action
		}
	}
	if f.Resumed != nil {
		step.Resumed = wordView(f.Resumed)
	}
	p := r.core.Plan(f.Plan)
	if p == nil {
		return step
	}
	if f.Lease == executor.LeaseDeadline {
		step.DeadlineNs, step.At = p.Row.Declared.GetDeadlineNs(), ledger.FormatAddress(p.Row.Opened)
	}
	n := uint32(0)
	if a := p.Named(f.Action); a != nil {
		n = a.N
	}
	if l := p.Lease(n, f.Lease); l != nil {
		step.Condition = l.Condition()
		if l.Row.OfAction {
			step.FromAction = f.Action
		}
	}
	return step
}

// cycleOf finds what a chain ends in: the shortest run of leases that comes again.
// The same leases of the same plans show a cycle, and so do leases of one name on one
// fact of the same plans. Where each round has plans of its own, leases of one name on
// one fact, or on one kind of fact, are a cycle only in a chain that a limit has cut:
// else they are as many plans in a row, all of which came to their end.
func cycleOf(steps []WhyStep) *Cycle {
	cut := slices.ContainsFunc(steps,
		func(s WhyStep) bool { return s.Fired == "" || s.Resumed != nil })
	for _, way := range [...]struct {
		others string
		name   func(WhyStep) string
	}{
		{"", func(s WhyStep) string { return s.Plan + "\x00" + s.Action + "\x00" + s.Lease }},
		{"plans", func(s WhyStep) string {
			return s.Lease + "\x00" + pattern(s.Condition) + "\x00" + s.Key
		}},
		{"plans and facts", func(s WhyStep) string {
			return pattern(s.Lease) + "\x00" + pattern(s.Condition) + "\x00" + pattern(s.Key)
		}},
	} {
		names := make([]string, len(steps))
		for i, s := range steps {
			names[i] = way.name(s)
		}
		if way.others != "" { // the first turned at something else than the rest
			names[0] = ""
		}
		size, covered := repeats(names)
		if size == 0 {
			continue
		}
		cycle := &Cycle{Rounds: (covered - 1) / size, Others: way.others}
		run := steps[len(steps)-covered:]
		for _, s := range run[:size+1] {
			cycle.Plans = append(cycle.Plans, s.Plan)
		}
		same := func(a, b WhyStep) bool { return a.Plan == b.Plan }
		if cycle.Others == "plans" && slices.EqualFunc(run[size:], run[:len(run)-size], same) {
			cycle.Others = "actions"
		}
		if cut || cycle.Others == "" || cycle.Others == "actions" {
			return cycle
		}
	}
	return nil
}

// repeats returns the shortest period of the end of a list, and how much of the end
// it covers; 0 when nothing comes again.
func repeats(names []string) (size, covered int) {
	for size = 1; size < len(names); size++ {
		same := 0
		for i := len(names) - 1; i >= size && names[i] == names[i-size]; i-- {
			same++
		}
		if same > 0 {
			return size, same + size
		}
	}
	return 0, 0
}

// pattern is a text with every run of digits as one '#'.
func pattern(text string) string {
	var out strings.Builder
	number := false
	for _, c := range text {
		digit := c >= '0' && c <= '9'
		if digit && !number {
			out.WriteByte('#')
		}
		if number = digit; !digit {
			out.WriteRune(c)
		}
	}
	return out.String()
}
