package executor

import (
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
)

func (r *Reader) cuts(p *plan) (views []view.Cut) {
	for _, c := range p.row.Cuts {
		shown := view.Cut{
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
func (r *Reader) Why(q view.WhyQuery) (view.Why, error) {
	id := q.Plan
	p := r.s.plan(id)
	if p == nil {
		return view.Why{}, ledger.Refuse("plan", r.NoPlan(id), "a plan of this tenant")
	}
	var of *action
	if q.Action != "" {
		if of = r.numbered(p, q.Action); of == nil {
			return view.Why{}, ledger.Refuse("action", "plan "+p.id+" has no action "+q.Action,
				"an action of it")
		}
	}
	shown := view.Why{
		Plan: id, State: stateName(p.row), Owner: r.s.owner(p), Reason: r.reasonOf(p.row),
		Origin: p.row.Origin, UndoneAs: p.row.UndoneAs,
		Steps: []view.WhyStep{}, Cuts: r.cuts(p), Answers: answersOf(p), Waits: r.waits(p, of),
		Records: []ledger.StoryLine{},
	}
	if of != nil {
		shown.Action = of.fixed.Id
	}
	f := r.s.whyFiring(p)
	if f == nil {
		return shown, nil
	}
	list := append(r.s.before(f), f)
	shown.Omitted = len(list) > chainMax && (list[0].By != nil || list[0].Passed != nil)
	for _, g := range list {
		shown.Steps = append(shown.Steps, r.whyStep(g))
	}
	shown.Cycle = cycleOf(shown.Steps)
	return shown, nil
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

func answersOf(p *plan) (views []view.Answer) {
	for _, c := range p.row.Answered {
		views = append(views, view.Answer{
			Action: c.Firing.GetAction(), Lease: c.Lease, Why: c.Why, Cut: ledger.FormatAddress(c.At),
			Word: *wordView(c.Answer),
		})
	}
	return views
}

func wordView(w *rowspb.Word) *view.Word {
	shown := &view.Word{Answer: w.Said, By: w.By, Reason: w.Reason, AtNs: w.AtNs}
	if w.At != nil {
		shown.At = ledger.FormatAddress(w.At)
	}
	return shown
}

func (r *Reader) whyStep(f *rowspb.Firing) view.WhyStep {
	step := view.WhyStep{Plan: f.Plan, Action: f.Action, Lease: f.Lease, Depth: int(f.Depth),
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
func cycleOf(steps []view.WhyStep) *view.Cycle {
	cut := slices.ContainsFunc(steps,
		func(s view.WhyStep) bool { return s.Fired == "" || s.Resumed != nil })
	for _, way := range [...]struct {
		others string
		name   func(view.WhyStep) string
	}{
		{"", func(s view.WhyStep) string { return s.Plan + "\x00" + s.Action + "\x00" + s.Lease }},
		{"plans", func(s view.WhyStep) string {
			return s.Lease + "\x00" + pattern(s.Condition) + "\x00" + s.Key
		}},
		{"plans and facts", func(s view.WhyStep) string {
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
		cycle := &view.Cycle{Rounds: (covered - 1) / size, Others: way.others}
		run := steps[len(steps)-covered:]
		for _, s := range run[:size+1] {
			cycle.Plans = append(cycle.Plans, s.Plan)
		}
		same := func(a, b view.WhyStep) bool { return a.Plan == b.Plan }
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
