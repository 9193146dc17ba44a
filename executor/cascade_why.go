package executor

import (
	"fmt"
	"slices"
	"strings"

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
	Why   WhyView `json:"why"`
	Error string  `json:"error,omitempty"`
}

// WhyView is the chain of causes behind the unwind of a plan, or behind the first of
// its leases that is cut, or behind the last that was and has not fired since.
type WhyView struct {
	Plan     string       `json:"plan"`
	State    string       `json:"state"`
	Owner    string       `json:"owner,omitempty"`
	Reason   string       `json:"reason,omitempty"`    // of the unwind
	Origin   string       `json:"origin,omitempty"`    // the committed plan that this one undoes
	UndoneAs string       `json:"undone_as,omitempty"` // the plan that undoes this committed one; the steps are of that one
	Steps    []WhyStep    `json:"steps"`               // oldest first; empty: no lease has fired
	Omitted  bool         `json:"omitted,omitempty"`   // more than 64 came before
	Cycle    *Cycle       `json:"cycle,omitempty"`
	Cuts     []CutView    `json:"cuts,omitempty"`    // leases that wait for the owner
	Answers  []AnswerView `json:"answers,omitempty"` // leases that the owner has answered, the last answer to each; the last 16

	Action  string             `json:"action,omitempty"` // asked for: its id
	Waits   []WaitView         `json:"waits,omitempty"`  // actions that are owed and not settled, and what for
	Records []ledger.StoryLine `json:"records"`          // cause, lease, decision, command, outcome, in the order of the ledger
	Left    string             `json:"left,omitempty"`   // what Records leaves out
}

// WaitView is an action whose undo is owed and not settled, and what it waits for.
type WaitView struct {
	Number int    `json:"number"` // 0: an act that was claimed by a record which was refused
	Action string `json:"action"`
	Undo   string `json:"undo"` // owed, ready, dispatched, waiting, quarantined, exhausted
	For    string `json:"for"`
}

// WhyStep is one lease of the chain: what it turned at, and that it fired.
type WhyStep struct {
	Plan       string `json:"plan"`
	Action     string `json:"action,omitempty"` // whose lease it is; empty: the plan's own
	Lease      string `json:"lease"`
	Condition  string `json:"condition,omitempty"`
	Fired      string `json:"fired,omitempty"`       // address; empty: it is cut
	Depth      int    `json:"depth"`                 // as counted; an owner's resume counts from 1 again
	By         string `json:"by,omitempty"`          // fact, part: a plan that is part of it; empty: the chain begins here
	Undone     string `json:"undone,omitempty"`      // fact: the action of the step before whose undo made it
	UndonePlan string `json:"undone_plan,omitempty"` // fact: of that undo, the plan of the step before or one that is part of it
	Key        string `json:"key,omitempty"`         // of that fact; without By: the last fact that the condition read
	Fact       string `json:"fact,omitempty"`        // address
	FactNs     int64  `json:"fact_ns,omitempty"`     // without By, and so are the next two
	Source     string `json:"source,omitempty"`
	Value      string `json:"value,omitempty"` // JSON; empty: retracted, in the ledger only, or above 1 KiB
	Retracted  bool   `json:"retracted,omitempty"`

	Said        string    `json:"said,omitempty"`         // failed, cancelled, unwind, late, block, redirect: what turned it, if somebody said so
	SaidOf      string    `json:"said_of,omitempty"`      // late: the action
	ToSavepoint string    `json:"to_savepoint,omitempty"` // unwind: back to here
	Actor       string    `json:"actor,omitempty"`        // who said so
	Reason      string    `json:"reason,omitempty"`
	At          string    `json:"at,omitempty"`          // address of what was said; of a deadline: where the plan was opened
	DeadlineNs  int64     `json:"deadline_ns,omitempty"` // of the plan, where that has turned it
	TurnedNs    int64     `json:"turned_ns,omitempty"`
	Resumed     *WordView `json:"resumed,omitempty"` // it was cut, and its owner let it fire
}

// WordView is an owner's answer to a cut.
type WordView struct {
	Answer string `json:"answer"` // resume, give-up
	By     string `json:"by"`     // who: of two approvers both
	Reason string `json:"reason,omitempty"`
	At     string `json:"at"` // address
	AtNs   int64  `json:"at_ns"`
}

// AnswerView is a lease that was cut, and its owner's answer.
type AnswerView struct {
	Action string `json:"action,omitempty"` // whose lease it is; empty: the plan's own
	Lease  string `json:"lease"`
	Why    string `json:"why"` // it was cut
	Cut    string `json:"cut"` // address
	WordView
}

// Cycle is what repeats in a chain.
type Cycle struct {
	Plans  []string `json:"plans"`            // once round, the first once more at the end
	Rounds int      `json:"rounds"`           // how often it came round
	Others string   `json:"others,omitempty"` // what differs each round: actions, plans, or plans and facts
}

// CutView is a lease that a cascade limit holds until its plan's owner answers.
type CutView struct {
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

func (r *Reader) cuts(p *plan) (views []CutView) {
	for _, c := range p.row.Cuts {
		view := CutView{
			Action: c.Firing.GetAction(), Number: int(c.Action), Lease: c.Lease, Depth: int(c.Firing.GetDepth()), Why: c.Why,
			At: ledger.FormatAddress(c.At), AtNs: c.AtNs, Cut: ledger.FormatFullAddress(c.At),
		}
		if q := c.Proposal; q != nil {
			view.Proposal = answerOf(q) + " by " + q.Operator + " at " + ledger.FormatAddress(q.At)
		}
		views = append(views, view)
	}
	return views
}

// Why tells what led to the unwind of a plan, or to the first lease of it that is
// cut; of an action too, what its undo waits for. The error is a *ledger.Refused: there
// is no such plan or action. Records is the caller's, who reads the ledger (see Trail).
func (r *Reader) Why(q WhyQuery) (WhyView, error) {
	id := q.Plan
	p := r.s.plan(id)
	if p == nil {
		return WhyView{}, ledger.Refuse("plan", r.NoPlan(id), "a plan of this tenant")
	}
	var of *action
	if q.Action != "" {
		if of = r.numbered(p, q.Action); of == nil {
			return WhyView{}, ledger.Refuse("action", "plan "+p.id+" has no action "+q.Action, "an action of it")
		}
	}
	view := WhyView{
		Plan: id, State: stateName(p.row), Owner: r.s.owner(p), Reason: r.reasonOf(p.row), Origin: p.row.Origin, UndoneAs: p.row.UndoneAs,
		Steps: []WhyStep{}, Cuts: r.cuts(p), Answers: answersOf(p), Waits: r.waits(p, of), Records: []ledger.StoryLine{},
	}
	if of != nil {
		view.Action = of.fixed.Id
	}
	f := r.s.whyFiring(p)
	if f == nil {
		return view, nil
	}
	list := append(r.s.before(f), f)
	view.Omitted = len(list) > chainMax && (list[0].By != nil || list[0].Passed != nil)
	for _, g := range list {
		view.Steps = append(view.Steps, r.whyStep(g))
	}
	view.Cycle = cycleOf(view.Steps)
	return view, nil
}

// whyFiring is what Why tells of a plan, or nil.
func (s *State) whyFiring(p *plan) *rowspb.Firing {
	if len(p.row.Cuts) > 0 {
		return p.row.Cuts[0].Firing
	}
	if p.row.UndoneAs != "" {
		if u := s.plan(p.row.UndoneAs); u != nil && u.row.Firing != nil {
			return u.row.Firing
		}
	}
	f := p.row.Firing
	if n := len(p.row.Answered); n > 0 && p.row.Fired == nil && p.row.Unwinding == nil {
		if c := p.row.Answered[n-1]; f == nil || laterThan(c.Answer.At, f.Fired) {
			return c.Firing
		}
	}
	return f
}

func answersOf(p *plan) (views []AnswerView) {
	for _, c := range p.row.Answered {
		views = append(views, AnswerView{
			Action: c.Firing.GetAction(), Lease: c.Lease, Why: c.Why, Cut: ledger.FormatAddress(c.At), WordView: *wordView(c.Answer),
		})
	}
	return views
}

func wordView(w *rowspb.Word) *WordView {
	view := &WordView{Answer: w.Said, By: w.By, Reason: w.Reason, AtNs: w.AtNs}
	if w.At != nil {
		view.At = ledger.FormatAddress(w.At)
	}
	return view
}

func (r *Reader) whyStep(f *rowspb.Firing) WhyStep {
	step := WhyStep{Plan: f.Plan, Action: f.Action, Lease: f.Lease, Depth: int(f.Depth), TurnedNs: f.TurnedNs}
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
		step.Key, step.Fact, step.FactNs, step.Retracted = read.Key, ledger.FormatAddress(read.At), read.AtNs, read.Retracted
		step.Source, step.Value = read.Source, string(read.Value)
	}
	if w := f.Said; w != nil {
		step.Said, step.ToSavepoint, step.Actor, step.Reason = w.Said, w.Savepoint, w.By, w.Reason
		if w.At != nil {
			step.At = ledger.FormatAddress(w.At)
		}
		if w.Said == saidLate {
			step.SaidOf = w.Action
		}
	}
	if f.Resumed != nil {
		step.Resumed = wordView(f.Resumed)
	}
	p := r.s.plan(f.Plan)
	if p == nil {
		return step
	}
	if f.Lease == leaseDeadline {
		step.DeadlineNs, step.At = p.row.Declared.GetDeadlineNs(), ledger.FormatAddress(p.row.Opened)
	}
	if l, a := r.s.lease(p, rows.Lease{Plan: f.Plan, N: r.s.number(f.Plan, f.Action), Name: f.Lease}); l != nil {
		step.Condition = conditionOf(p, a, l)
	}
	return step
}

// cycleOf finds what a chain ends in: the shortest run of leases that comes again.
// The same leases of the same plans show a cycle, and so do leases of one name on one
// fact of the same plans. Where each round has plans of its own, leases of one name on
// one fact, or on one kind of fact, are a cycle only in a chain that a limit has cut:
// else they are as many plans in a row, all of which came to their end.
func cycleOf(steps []WhyStep) *Cycle {
	cut := slices.ContainsFunc(steps, func(s WhyStep) bool { return s.Fired == "" || s.Resumed != nil })
	for _, way := range [...]struct {
		others string
		name   func(WhyStep) string
	}{
		{"", func(s WhyStep) string { return s.Plan + "\x00" + s.Action + "\x00" + s.Lease }},
		{"plans", func(s WhyStep) string { return s.Lease + "\x00" + pattern(s.Condition) + "\x00" + s.Key }},
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
