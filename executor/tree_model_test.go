package executor_test

import (
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// The slow and obvious model of an unwind: no lists, no counters, no time. An
// action's fate follows from what the world says about it and from the fates of
// all that came after it.

// modelPlan is a plan with all that decides its fate. As a child it stands in its
// parent as an action.
type modelPlan struct {
	id      string
	goOn    bool // on_undo_failure continue
	closing string
	orphan  bool // a forward came without its registration
	actions []modelAction
}

// What a child's agent does before the parent unwinds.
const (
	closingOpen   = ""
	closingCommit = "commit"
	closingFail   = "fail" // it unwinds by itself
)

// modelAction is one action of a plan.
type modelAction struct {
	id      string
	before  []int // that it came after, directly
	branch  bool
	class   pb.Class
	outcome rowspb.Outcome
	doubt   string // the contract's on_in_doubt: ask, probe, blind (a probe for attempts only), or nothing
	effect  string // what the probe says of the effect in doubt
	binds   bool   // an argument reads meta.external_ref
	gate    string // pivot, approve, for, until (closed windows), open (an open window), or nothing
	verify  bool
	late    pb.Late // what keeps its forward from landing after its caller gave up
	tries   [attemptsOfModel]modelTry
	child   *modelPlan
}

// modelTry is what happens to one attempt.
type modelTry struct {
	word  string // done, fail, stop, lost
	asked string // lost: what the probe says then
	check string // done: what the check says then
}

const attemptsOfModel = 2

func (a modelAction) probed() bool { return a.doubt == "probe" || a.doubt == "blind" }

// forbidden reports whether the owner must be asked first.
func (a modelAction) forbidden() bool {
	late := a.gate == "until" || a.gate == "for" && a.outcome == rowspb.Outcome_OUTCOME_COMPLETED
	return late || a.gate == "pivot" || a.gate == "approve"
}

// alone is the fate of an action whose turn has come, and how many extra effects
// were found on the way.
func (a modelAction) alone() (undo string, extra int) {
	known := a.outcome == rowspb.Outcome_OUTCOME_COMPLETED
	switch {
	case a.outcome == rowspb.Outcome_OUTCOME_FAILED, a.class == pb.Class_CLASS_EFFECTLESS:
		return "skipped", 0
	case a.class == pb.Class_CLASS_IRREVERSIBLE, !known && a.doubt == "ask":
		return "quarantined", 0
	case !known && a.doubt == "probe":
		switch a.effect {
		case "absent":
			if a.late != pb.Late_LATE_REFUSED { // or its undo bars it
				return "skipped", 0
			}
		case "inconclusive", "lost":
			return "quarantined", 0
		case "duplicate":
			extra = 1
		}
	}
	if a.forbidden() {
		return "quarantined", extra
	}
	// Others are undone once they cannot land.
	mayLand := !known && a.late == pb.Late_LATE_REFUSED && (a.doubt != "probe" || a.effect == "absent")
	for i, try := range a.tries {
		switch {
		case try.word == "stop":
			return "quarantined", extra
		case try.word == "done" && (!a.verify || try.check == "gone"):
			return "compensated", extra
		case try.word == "done" && try.check == "lost":
			return "quarantined", extra
		case try.word == "lost" && a.probed():
			switch try.asked {
			case "absent":
				if !mayLand || i == len(a.tries)-1 { // or asked again once it cannot
					return "compensated", extra
				}
			case "present":
				mayLand = false
			case "inconclusive":
				return "quarantined", extra
			case "duplicate":
				extra, mayLand = 1, false // it has the same reference each time
			}
		}
	}
	return "quarantined", extra
}

// extraUndo is the fate of an extra effect: its worker and check find no fault.
func (a modelAction) extraUndo() string {
	if a.forbidden() || !a.binds {
		return "quarantined"
	}
	return "compensated"
}

// behind is everything that came after action i, near or far.
func (p *modelPlan) behind(i int) []int {
	var found []int
	for j := i + 1; j < len(p.actions); j++ {
		for _, b := range p.actions[j].before {
			if b == i || slices.Contains(found, b) {
				found = append(found, j)
				break
			}
		}
	}
	return found
}

// fates are the states of plans and of undos, by plan and action.
type fates struct {
	states map[string]string
	undos  map[string]map[string]string
	now    map[string]bool // plan/action: undone by the unwind that is under way
}

func newFates() *fates {
	return &fates{states: map[string]string{}, undos: map[string]map[string]string{}, now: map[string]bool{}}
}

// hold is a plan before any unwind.
func (f *fates) hold(p *modelPlan) {
	f.states[p.id], f.undos[p.id] = "open", map[string]string{}
	if p.closing == closingCommit {
		f.states[p.id] = "committed"
	}
	f.join(p, 0)
}

// join adds a plan's actions from one on.
func (f *fates) join(p *modelPlan, from int) {
	for _, a := range p.actions[from:] {
		f.undos[p.id][a.id] = "held"
		if a.child == nil {
			continue
		}
		f.hold(a.child)
		if a.child.closing != closingFail {
			continue
		}
		if f.unwind(a.child, 0); f.states[a.child.id] != "quarantined" {
			f.undos[p.id][a.id] = entryOf(f.states[a.child.id])
		}
	}
}

// entryOf is the fate of a child's entry.
func entryOf(end string) string {
	if end == "failed" {
		return "skipped"
	}
	return end
}

// unwind undoes what came after the first `from` actions of a plan.
func (f *fates) unwind(p *modelPlan, from int) {
	undos := f.undos[p.id]
	for _, a := range p.actions {
		for _, id := range append(duties(a.id), a.id) {
			delete(f.now, p.id+"/"+id)
		}
	}
	for i := len(p.actions) - 1; i >= from; i-- {
		a := p.actions[i]
		switch {
		case undos[a.id] != "held":
		case f.halted(p, i):
			undos[a.id] = "owed"
		case a.child != nil:
			if f.states[a.child.id] == "open" || f.states[a.child.id] == "committed" {
				f.unwind(a.child, 0)
			}
			undos[a.id] = entryOf(f.states[a.child.id])
			f.now[p.id+"/"+a.id] = slices.ContainsFunc(a.child.actions, func(c modelAction) bool {
				return slices.ContainsFunc(append(duties(c.id), c.id), func(id string) bool {
					return f.now[a.child.id+"/"+id]
				})
			})
		default:
			undo, extra := a.alone()
			undos[a.id], f.now[p.id+"/"+a.id] = undo, undo == "compensated"
			for n := range extra {
				undos[duties(a.id)[n]] = a.extraUndo()
				f.now[p.id+"/"+duties(a.id)[n]] = a.extraUndo() == "compensated"
			}
		}
	}
	f.states[p.id] = f.end(p)
}

func duties(id string) []string { return []string{id + "~1", id + "~2", id + "~3"} }

// halted reports whether something that came after action i stops it for good.
func (f *fates) halted(p *modelPlan, i int) bool {
	for _, j := range p.behind(i) {
		for _, id := range append(duties(p.actions[j].id), p.actions[j].id) {
			undo := f.undos[p.id][id]
			if undo == "owed" || undo == "quarantined" && !p.goOn && !f.last(p, j, id) {
				return true
			}
		}
	}
	return false
}

// last reports whether an action that is its owner's is irreversible and nothing that came after it
// was undone; a child, whether that is so of all that is left of it.
func (f *fates) last(p *modelPlan, i int, id string) bool {
	a := p.actions[i]
	for _, j := range p.behind(i) {
		for _, later := range append(duties(p.actions[j].id), p.actions[j].id) {
			if f.now[p.id+"/"+later] {
				return false
			}
		}
	}
	if a.child == nil {
		return id == a.id && a.class == pb.Class_CLASS_IRREVERSIBLE && a.gate != "pivot"
	}
	for k, c := range a.child.actions {
		for _, id := range append(duties(c.id), c.id) {
			undo := f.undos[a.child.id][id]
			if undo != "" && undo != "compensated" && undo != "skipped" &&
				(undo != "quarantined" || !f.last(a.child, k, id)) {
				return false
			}
		}
	}
	return !a.child.orphan
}

// end is how a plan's whole unwind ends.
func (f *fates) end(p *modelPlan) string {
	inScope := false
	if p.orphan {
		return "quarantined"
	}
	for _, a := range p.actions {
		for _, id := range append(duties(a.id), a.id) {
			switch f.undos[p.id][id] {
			case "quarantined":
				return "quarantined"
			case "compensated":
				inScope = true
			case "skipped":
				inScope = inScope || a.class == pb.Class_CLASS_EFFECTLESS && a.outcome != rowspb.Outcome_OUTCOME_FAILED
			}
		}
	}
	if inScope {
		return "compensated"
	}
	return "failed"
}

// each calls f for a plan and all its children.
func (p *modelPlan) each(f func(*modelPlan)) {
	f(p)
	for _, a := range p.actions {
		if a.child != nil {
			a.child.each(f)
		}
	}
}

// retire gives up what a plan and its children hold.
func (f *fates) retire(p *modelPlan) { f.turn(p, "committed", "held", "retired") }

// again is a committed plan in which its owner takes up what it gave up.
func (f *fates) again(p *modelPlan) { f.turn(p, "committed", "retired", "held") }

// turn gives a plan and its children that are not undone another state, and
// actions another word.
func (f *fates) turn(p *modelPlan, state, from, to string) {
	f.states[p.id] = state
	for _, a := range p.actions {
		if f.undos[p.id][a.id] != from {
			continue
		}
		f.undos[p.id][a.id] = to
		if a.child != nil {
			f.turn(a.child, state, from, to)
		}
	}
}

// past reports whether an undo window of a plan that was committed has closed.
func (p *modelPlan) past(f *fates, from int) bool {
	for _, a := range p.actions[from:] {
		switch {
		case f.undos[p.id][a.id] != "held" && f.undos[p.id][a.id] != "retired":
		case a.child != nil:
			if a.child.past(f, 0) {
				return true
			}
		case a.outcome != rowspb.Outcome_OUTCOME_FAILED &&
			(a.gate == "until" || a.gate == "for" && a.outcome == rowspb.Outcome_OUTCOME_COMPLETED):
			return true
		}
	}
	return false
}
