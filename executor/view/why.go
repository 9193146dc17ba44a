package view

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

func cuts(p *executor.Plan) (views []api.Cut) {
	for _, c := range p.Row.Cuts {
		shown := api.Cut{
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
func (r *Reader) Why(q api.WhyQuery) (api.Why, error) {
	id := q.Plan
	p := r.core.Plan(id)
	if p == nil {
		return api.Why{}, ledger.Refuse("plan", r.NoPlan(id), "a plan of this tenant")
	}
	var of *executor.Action
	if q.Action != "" {
		var err error
		if of, err = which(p, q.Action); err != nil {
			return api.Why{}, err
		}
		if of == nil {
			return api.Why{}, ledger.Refuse("action", "plan "+p.ID+" has no action "+q.Action,
				"an action of it")
		}
	}
	shown := api.Why{
		Plan: id, State: p.State(), Owner: p.Owner(), Reason: p.Reason(),
		Origin: p.Row.Origin, UndoneAs: p.Row.UndoneAs,
		Delivers: p.Row.Delivers, DeliveredAs: p.Row.DeliveredAs,
		Steps: []api.WhyStep{}, Cuts: cuts(p), Answers: answersOf(p), Waits: r.waits(p, of),
		Records: []api.StoryLine{},
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
			return cmp.Or(u.Row.Passed, u.Row.Firing)
		}
	}
	if p.Row.Origin != "" && p.Row.Passed != nil { // for a condition of the committed plan
		return p.Row.Passed
	}
	f := p.Row.Firing
	if n := len(p.Row.Answered); n > 0 && p.Row.Fired == nil && p.Row.Unwinding == nil {
		if c := p.Row.Answered[n-1]; f == nil || rows.At(c.Answer.At).Compare(rows.At(f.Fired)) > 0 {
			return c.Firing
		}
	}
	return f
}

func answersOf(p *executor.Plan) (views []api.CutAnswer) {
	for _, c := range p.Row.Answered {
		views = append(views, api.CutAnswer{
			Action: c.Firing.GetAction(), Lease: c.Lease, Why: c.Why, Cut: ledger.FormatAddress(c.At),
			Word: *wordView(c.Answer),
		})
	}
	return views
}

func wordView(w *rowspb.Word) *api.Word {
	shown := &api.Word{Answer: w.Said, By: w.By, Reason: w.Reason, AtNs: w.AtNs}
	if w.At != nil {
		shown.At = ledger.FormatAddress(w.At)
	}
	return shown
}

func (r *Reader) whyStep(f *rowspb.Firing) api.WhyStep {
	step := api.WhyStep{Plan: f.Plan, Action: f.Action, Lease: f.Lease, Depth: int(f.Depth),
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
		case executor.SaidBlock, executor.SaidRedirect:
			if f.Action == "" { // of a committed plan
				step.SaidOf = w.Action
			}
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
	step.Origin = p.Row.Origin
	saidOf(&step, r.core, p, f.Said)
	if f.Lease == executor.LeaseDeadline {
		ns, set := p.Deadline()
		step.DeadlineNs, step.At = ns, ledger.FormatAddress(set)
		if m := p.Row.Moved; m != nil {
			step.Said, step.Actor, step.Reason = "moved", m.By, m.Reason
		}
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

// saidOf names the plan, and what the action does, of which something was said. A plan that undoes
// a committed one has its actions by the same ids, and those of its parts are theirs.
func saidOf(step *api.WhyStep, core *executor.Reading, p *executor.Plan, w *rowspb.Word) {
	if w == nil {
		return
	}
	of := core.Plan(cmp.Or(p.Row.Origin, p.ID))
	if part := judgedIn(core, of, w.At); part != nil {
		of = part
	}
	if of.ID != p.ID {
		step.SaidPlan = of.ID
	}
	if a := of.Named(cmp.Or(step.SaidOf, step.FromAction, step.Action)); a != nil {
		step.Capability = a.Fixed.Forward.GetCapability()
	}
}

// judgedIn finds the plan, among one and its parts, that has a verdict at an address.
func judgedIn(core *executor.Reading, p *executor.Plan, at *pb.Address) *executor.Plan {
	is := func(w *rowspb.Word) bool { return proto.Equal(w.At, at) }
	if slices.ContainsFunc(p.Row.Verdicts, is) {
		return p
	}
	for _, n := range p.Row.Children {
		if part := judgedIn(core, core.Plan(p.Action(n).Fixed.Child), at); part != nil {
			return part
		}
	}
	return nil
}

// cycleOf finds what a chain ends in: the shortest run of leases that comes again.
// The same leases of the same plans show a cycle, and so do leases of one name on one
// fact of the same plans. Where each round has plans of its own, leases of one name on
// one fact, or on one kind of fact, are a cycle only in a chain that a limit has cut:
// else they are as many plans in a row, all of which came to their end.
func cycleOf(steps []api.WhyStep) *api.Cycle {
	cut := slices.ContainsFunc(steps,
		func(s api.WhyStep) bool { return s.Fired == "" || s.Resumed != nil })
	for _, way := range [...]struct {
		others string
		name   func(api.WhyStep) string
	}{
		{"", func(s api.WhyStep) string { return s.Plan + "\x00" + s.Action + "\x00" + s.Lease }},
		{"plans", func(s api.WhyStep) string {
			return s.Lease + "\x00" + pattern(s.Condition) + "\x00" + s.Key
		}},
		{"plans and facts", func(s api.WhyStep) string {
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
		cycle := &api.Cycle{Rounds: (covered - 1) / size, Others: way.others}
		run := steps[len(steps)-covered:]
		for _, s := range run[:size+1] {
			cycle.Plans = append(cycle.Plans, s.Plan)
		}
		same := func(a, b api.WhyStep) bool { return a.Plan == b.Plan }
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
