package audit

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Verdicts of records.
const (
	Effective = "effective"
	Repeated  = "repeated" // a second copy of a record that was folded before
	Refused   = "refused"  // breaks a rule
	Void      = "void"     // a decision that does not hold where it stands
)

// verdict is what became of a record, and by which rule.
type verdict struct {
	kind, rule, problem string
}

var effective = verdict{kind: Effective}

func refused(rule, format string, a ...any) verdict {
	return verdict{Refused, rule, fmt.Sprintf(format, a...)}
}

func void(rule, format string, a ...any) verdict {
	return verdict{Void, rule, fmt.Sprintf(format, a...)}
}

var repeated = verdict{Repeated, "I5", "a copy of an earlier record"}

func (v verdict) ok() bool { return v.kind == Effective }

// fold takes one record.
func (b *book) fold(e ledger.Entry) verdict {
	b.before = b.now
	b.tick(e)
	b.at = e.Address
	b.records++
	v := b.apply(e)
	if v.kind == Refused {
		b.openRefused(e)
		b.noteOrphan(e)
	}
	if e.Record != nil {
		if p := b.plan(e.Record.Plan); p != nil {
			p.sealed += sealedIn(e.Record)
			b.followChildren(p.root())
			b.touched(p, len(e.Body)+recordLen)
			if u := b.plan(p.undoneAs); u != nil { // it hears of outcomes, too
				b.followChildren(u.root())
			}
		}
	}
	return v
}

// tick moves logical time: the maximum of the stamps and of the epochs that holders
// of the present term, or of a later one, have written (I8).
func (b *book) tick(e ledger.Entry) {
	b.now = max(b.now, e.StampNs)
	if e.Err == nil && e.Record != nil && e.Source.Class == ledger.ClassExecutor && e.Record.Term >= b.term {
		b.now = max(b.now, e.Record.EpochNs)
	}
}

func (b *book) apply(e ledger.Entry) verdict {
	if e.Err != nil {
		return refused(formRule(e), "%s", e.Err.Error())
	}
	switch e.Source.Class {
	case ledger.ClassAgent:
		if v, is := b.unusable(e); is {
			return v
		}
		return b.agent(e)
	case ledger.ClassFact:
		return b.observed(e)
	case ledger.ClassVerdict:
		return b.judged(e)
	case ledger.ClassOperator:
		return b.operator(e)
	case ledger.ClassWorker:
		return b.worker(e)
	case ledger.ClassExecutor:
		return b.decided(e)
	default:
		return refused("I4", "a subject that nobody may write")
	}
}

// formRule says which rule a malformed record breaks.
func formRule(e ledger.Entry) string {
	var r *ledger.Refused
	if !asRefused(e.Err, &r) {
		return "I3"
	}
	switch r.Field {
	case "pair":
		return "I17"
	case "commit", "Content-Type":
		return "I3"
	case "compensation_registered.key":
		return "I19"
	case "subject":
		return "I27"
	default:
		if strings.HasPrefix(r.Field, "commit.") {
			return "I3"
		}
		return "I4"
	}
}

func (b *book) openPlan(e ledger.Entry, declared *pb.PlanOpened) *plan {
	p := &plan{
		id: e.Record.Plan, agent: e.Source.Name, opened: e.Address, openedNs: b.now, declared: declared, phase: ledger.StateOpen,
		writer: e.Record.Writer, opener: e.Record.Writer, proposals: map[string]*proposal{},
	}
	b.found(p)
	b.armPlan(p)
	if declared.ParentPlan != "" {
		b.attach(e, p)
	}
	return p
}

// openRefused opens the plan of an opening that was refused, and fails it at once: a pair
// that follows is undone, and the plan has an end and an owner.
func (b *book) openRefused(e ledger.Entry) {
	k := e.Record.GetPlanOpened()
	if k == nil || e.Source.Class != ledger.ClassAgent || b.plan(e.Record.Plan) != nil {
		return
	}
	id, writer, subject := e.Record.Plan, e.Record.Writer, e.Source.Plan
	switch {
	case id == ledger.ManyPlans, !ledger.ValidToken(id), subject != id && subject != ledger.ManyPlans:
		return
	case writer != "" && !ledger.ValidToken(writer):
		return
	}
	kept := &pb.PlanOpened{SecondApprover: k.SecondApprover}
	for _, text := range []struct {
		from string
		to   *string
	}{{k.Label, &kept.Label}, {k.Owner, &kept.Owner}} {
		if len(text.from) <= ledger.TextMax && utf8.ValidString(text.from) {
			*text.to = text.from
		}
	}
	p := b.openPlan(e, kept)
	p.unopened = true
	b.signal(p, signalFailed, "its opening was refused", "")
}

// enlist gives a plan its next action, or the entry of a child plan.
func (p *plan) enlist(a *action) *action {
	a.n = uint32(len(p.actions) + 1)
	if a.undo == "" {
		a.undo = held
	}
	if a.outcome == "" {
		a.outcome = unheardOf
	}
	p.actions = append(p.actions, a)
	return a
}

// latest are the actions that the next one comes after by default: the one registered
// last, and the duties that have come since.
func (p *plan) latest() (before []uint32) {
	for i := len(p.actions) - 1; i >= 0; i-- {
		before = append(before, p.actions[i].n)
		if p.actions[i].dutyOf == 0 {
			break
		}
	}
	slices.Sort(before)
	return before
}

func (b *book) page(p *plan, a *action, kind string, at *pb.Address) {
	b.pages[page{p.id, numberOf(a), kind}] = at
}

func numberOf(a *action) uint32 {
	if a == nil {
		return 0
	}
	return a.n
}

// reopen takes a plan that had ended back into its unwind: something is owed again.
func (b *book) reopen(p *plan) {
	switch p.phase {
	case ledger.StateResolved, ledger.StateCompensated, ledger.StateFailed, ledger.StateQuarantined:
		p.ended = nil
		b.enter(p, ledger.StateUnwinding)
	}
}

// judged folds a supervisor's verdict on an action.
func (b *book) judged(e ledger.Entry) verdict {
	p := b.plan(e.Record.Plan)
	if p == nil {
		return refused("I6", "plan %s was never opened", e.Record.Plan)
	}
	a := p.named(e.Record.Action)
	if a == nil {
		return refused("I6", "action %s is not registered in plan %s", e.Record.Action, p.id)
	}
	k := e.Record.GetVerdictGiven()
	a.verdict, a.verdictBy, a.verdictReason, a.verdictNs = k.Outcome, e.Source.Name, k.Reason, b.now
	if findLease(a.leases, leaseVerdict) == nil {
		a.leases = append(a.leases, &lease{name: leaseVerdict, armedNs: b.now}, &lease{name: leaseUnheard, armedNs: b.now})
	}
	b.lookAction(p, a)
	return effective
}
