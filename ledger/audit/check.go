package audit

import (
	"fmt"
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// log is what the checks remember of the records themselves, beside what they mean.
type log struct {
	sequence uint64
	part     bool // records are missing between those that come
	leaves   Leaves
	messages map[[32]byte]bool // of holders; on the shelf where there is one
	shelf    Shelf
	terms    uint64 // the latest of effective decisions
}

func newLog(m Memory) log {
	l := log{leaves: m.Leaves, messages: map[[32]byte]bool{}, shelf: m.Shelf}
	if l.leaves == nil {
		l.leaves = leafMap{}
	}
	return l
}

func (l *log) note(e ledger.Entry, v verdict) {
	if len(e.Address.Leaf) == ledger.LeafSize {
		l.leaves.Put(e.Address.Sequence, e.Address.Index, [ledger.LeafSize]byte(e.Address.Leaf), v.kind == Refused)
	}
}

// said remembers a message of a holder, and reports whether it was said before: a holder
// repeats an append until it knows that it is stored.
func (l *log) said(sum [32]byte) (before bool) {
	if l.shelf == nil {
		before = l.messages[sum]
		l.messages[sum] = true
		return before
	}
	key := shelfMessage + string(sum[:])
	if _, before = l.shelf.Get(key); !before {
		l.shelf.Put(key, nil)
	}
	return before
}

// contiguous is I1: positions are 1 to n without a gap.
func (l *Ledger) contiguous(m ledger.Message) (found []Violation) {
	if m.Sequence <= l.log.sequence || m.Sequence != l.log.sequence+1 && !l.log.part {
		found = append(found, Violation{Rule: "I1", Address: &pb.Address{Sequence: m.Sequence},
			Problem: fmt.Sprintf("sequence %d stands behind sequence %d", m.Sequence, l.log.sequence)})
	}
	l.log.sequence = m.Sequence
	return found
}

// references is I6, of the records of a holder: what they are about, and why, is an
// earlier record of this ledger, with its leaf.
func (l *Ledger) references(e ledger.Entry, commit []ledger.Entry) (found []Violation) {
	if e.Record == nil || e.Err != nil || e.Source.Class != ledger.ClassExecutor {
		return nil
	}
	for _, ref := range []struct {
		name string
		at   *pb.Address
	}{{"about", e.Record.About}, {"cause", e.Record.Cause}} {
		if ref.at != nil && !l.stands(ref.at, e, commit) {
			found = append(found, violation("I6", e, ref.name+" names "+ledger.FormatAddress(ref.at)+", and "+l.whatStands(ref.at)))
		}
	}
	return found
}

// whatStands says what is at the place of a record that is not there.
func (l *Ledger) whatStands(ref *pb.Address) string {
	leaf, _, known := l.log.leaves.Get(ref.Sequence, ref.Index)
	if !known {
		return "no earlier record of this ledger stands there"
	}
	return "another record stands there: " + ledger.FormatAddress(&pb.Address{Sequence: ref.Sequence, Index: ref.Index, Leaf: leaf[:]})
}

// foreign is I27: no message of another tenant stands in the ledger.
func (l *Ledger) foreign(e ledger.Entry) []Violation {
	if e.Source.Class != ledger.ClassNone && e.Source.Tenant != l.tenant {
		return []Violation{violation("I27", e, "a message of tenant "+e.Source.Tenant)}
	}
	return nil
}

func (l *Ledger) stands(ref *pb.Address, e ledger.Entry, commit []ledger.Entry) bool {
	if ref.Sequence == 0 || ref.Sequence == e.Address.Sequence {
		i := slices.IndexFunc(commit, func(c ledger.Entry) bool { return c.Address.Index == ref.Index })
		if i < 0 && l.log.part {
			return ref.Index < e.Address.Index
		}
		within := ref.Index < e.Address.Index && i >= 0
		return within && (len(ref.Leaf) == 0 || sameAddress(ref, commit[i].Address))
	}
	leaf, _, known := l.log.leaves.Get(ref.Sequence, ref.Index)
	if !known && l.log.part {
		return ref.Sequence < e.Address.Sequence // what is withheld cannot be held against it
	}
	return known && string(leaf[:]) == string(ref.Leaf)
}

// before is what a check needs of the moment before a record.
type before struct {
	plan    string // the plan's phase; empty: there was none
	crossed bool
	undo    string
	known   bool // the action was registered
	now     int64
	turned  *turn // of the lease that fires, where it is the first
	noted   *turn // of the lease that fires
	refused bool  // the record that is answered was refused
	argued  fault // what is wrong with the arguments of the call
}

func (l *Ledger) before(e ledger.Entry) (was before) {
	was.now = l.book.now
	if e.Record == nil {
		return was
	}
	if k := e.Record.GetRecordRefused(); k != nil {
		_, was.refused, _ = l.log.leaves.Get(k.Sequence, k.Index)
	}
	p := l.book.plan(e.Record.Plan)
	if p == nil {
		return was
	}
	was.plan, was.argued = p.phase, l.book.argue(e.Record)
	if k := e.Record.GetLeaseFired(); k != nil {
		was.turned, was.noted = p.turnedBy(p.number(e.Record.Action), k.Lease), p.turnOf(p.number(e.Record.Action), k.Lease)
	}
	if a := p.named(e.Record.Action); a != nil {
		was.known, was.undo, was.crossed = true, a.undo, a.crossed()
	}
	return was
}

// check holds an effective record against the rules once more, from what the fold has
// become and not from why the record was let through.
func (l *Ledger) check(e ledger.Entry, was before, commit []ledger.Entry) (found []Violation) {
	r := e.Record
	p := l.book.plan(r.Plan)
	add := func(rule, problem string) {
		if problem != "" {
			found = append(found, violation(rule, e, problem))
		}
	}
	add("I4", ledgerRule(e))
	add("I8", timeRule(e, was, l.book))
	if e.Source.Class == ledger.ClassExecutor {
		add("I26", l.termRule(e))
	}
	if k := r.GetRecordRefused(); k != nil && !was.refused {
		add("I6", fmt.Sprintf("record %d.%d was not refused", k.Sequence, k.Index))
	}
	if p == nil {
		return found
	}
	a := p.named(r.Action)
	switch k := r.Kind.(type) {
	case *pb.Record_LeaseFired:
		add("I14", onceRule(e, p, k.LeaseFired))
		add("I11", conditionRule(p, r, k.LeaseFired))
		add("I11", l.book.readingRule(e, was, k.LeaseFired))
		add("I12", edgeRule(e, was))
		add("I25", depthRule(k.LeaseFired))
	case *pb.Record_UnwindStarted:
		add("I15", terminalRule(was))
	case *pb.Record_PlanRewound:
		p.hasFired = nil
	case *pb.Record_CompensationDispatched:
		add("I17", pairRule(a))
		add("I17", frozenRule(a, k.CompensationDispatched))
		add("I19", keyRule(l.tenant, p, a, k.CompensationDispatched))
		add("I20", boundaryRule(a, was))
		add("I21", orderRule(p, a, was))
		f := l.argumentsRule(e, was, commit)
		add(f.rule, f.problem)
	case *pb.Record_ProbeAsked:
		f := l.argumentsRule(e, was, commit)
		add(f.rule, f.problem)
	case *pb.Record_CompensationSucceeded:
		add("I18", dispatchRule(a, k.CompensationSucceeded))
		add("I22", successRule(a))
	case *pb.Record_CompensationSkipped:
		add("I21", orderRule(p, a, was))
	case *pb.Record_PlanEnded:
		add("I22", endRule(p, k.PlanEnded))
		add("I31", orphanRule(p, k.PlanEnded))
		raced := l.raced(p.id) || l.racedBelow(p)
		add("I23", outstandingRule(p, k.PlanEnded, raced))
		add("I22", countRule(p, was, k.PlanEnded, raced))
	case *pb.Record_HeldSetRetired:
		add("I24", countedRule(p, k.HeldSetRetired))
		add("I24", retiredRule(p))
		add("I36", doubtRule(p, k.HeldSetRetired))
	case *pb.Record_PlanCommitted:
		add("I15", terminalRule(was))
		add("I24", retiredRule(p))
	}
	return found
}

// ledgerRule is I4: a kind stands on a subject of the class that may write it.
func ledgerRule(e ledger.Entry) string {
	kind := ledger.KindOf(e.Record)
	holders := e.Source.Class == ledger.ClassExecutor && (kind.Class == ledger.ClassFact || e.Record.GetPlanErased() != nil)
	if kind.Class != e.Source.Class && !holders {
		return kind.Name + " stands on a subject of class " + e.Source.Class.String()
	}
	return ""
}

// timeRule is I8: logical time is the maximum of what was recorded, and nothing else.
func timeRule(e ledger.Entry, was before, b *book) string {
	if want := max(was.now, e.StampNs, e.Record.EpochNs); b.now != want {
		return fmt.Sprintf("logical time is %d, want %d", b.now, want)
	}
	return ""
}

// termRule is I26: terms of effective decisions never decrease.
func (l *Ledger) termRule(e ledger.Entry) string {
	if e.Record.Term < l.log.terms {
		return fmt.Sprintf("an effective record of term %d stands behind one of term %d", e.Record.Term, l.log.terms)
	}
	l.log.terms = e.Record.Term
	return ""
}

// onceRule is I14: a registration fires once, until its plan is back at a savepoint. The
// lease on extra effects fires once for each answer that found some.
func onceRule(e ledger.Entry, p *plan, k *pb.LeaseFired) string {
	if k.Lease == leaseDuplicate {
		return ""
	}
	name := e.Record.Action + "\x00" + k.Lease
	if first, fired := p.hasFired[name]; fired {
		return fmt.Sprintf("lease %s fired at %d.%d before", k.Lease, first.sequence, first.index)
	}
	if p.hasFired == nil {
		p.hasFired = map[string]place{}
	}
	p.hasFired[name] = placeOf(e.Address)
	return ""
}

// conditionRule is a part of I11: the text that fired is the one that was registered.
func conditionRule(p *plan, r *pb.Record, k *pb.LeaseFired) string {
	if l, _ := p.lease(p.number(r.Action), k.Lease); l == nil || l.condition() != k.Condition {
		return fmt.Sprintf("the condition of lease %s is not the registered one: %.80q", k.Lease, k.Condition)
	}
	return ""
}

// edgeRule is I12: a firing names the first record after which its condition was true.
func edgeRule(e ledger.Entry, was before) string {
	if t := was.turned; t != nil && !t.clocked && !samePlace(e.Record.Cause, t.at, e) {
		return fmt.Sprintf("it fires for %s, and was true at %s already", ledger.FormatAddress(e.Record.Cause), ledger.FormatAddress(t.at))
	}
	return ""
}

// depthRule is I25: no cascade is deeper than any holder may allow.
func depthRule(k *pb.LeaseFired) string {
	if _, always := standing[k.Lease]; k.Depth > DepthMax && !always {
		return fmt.Sprintf("lease %s fired at depth %d, and the limit is at most %d", k.Lease, k.Depth, DepthMax)
	}
	return ""
}

// terminalRule is I15: terminal states absorb.
func terminalRule(was before) string {
	if was.plan != ledger.StateOpen && was.plan != ledger.StateCommitting && was.plan != ledger.StateCommitted {
		return "the plan was " + was.plan + " before"
	}
	return ""
}

// pairRule is I17: no undo without its registration.
func pairRule(a *action) string {
	if a == nil || a.compensation == nil {
		return "an undo without its registration"
	}
	return ""
}

// frozenRule is a part of I17: an undo is sent as it was registered, and tells its
// worker what is known of the forward.
func frozenRule(a *action, k *pb.CompensationDispatched) string {
	switch {
	case k.TimeoutNs != timeoutOf(a.compensation) || k.WorkerVersion != a.compensation.GetWorkerVersion():
		return "its timeout or its worker's version is not the registered one"
	case k.DirtyFailure != a.blind() || k.HasForwardOutput != a.bindable():
		return "what it says of the forward is not what is known"
	}
	return ""
}

// keyRule is I19: the key is that of tenant, plan and action, whatever attempt and
// term; of a plan that undoes a committed one, that of the plan where it was registered.
func keyRule(tenant string, p *plan, a *action, k *pb.CompensationDispatched) string {
	id := p.id
	if p.origin != "" && a.key != "" { // a late duty of the plan that undoes has a key of that plan
		id = p.origin
	}
	if want := ledger.Key(tenant, id, a.id, ledger.PurposeUndo); k.Key != want {
		return fmt.Sprintf("key %q, want %q", k.Key, want)
	}
	return ""
}

// boundaryRule is I20: what is known not to have crossed is never undone.
func boundaryRule(a *action, was before) string {
	if !was.crossed || a.outcome == failed {
		return "the effect of action " + a.id + " never crossed the boundary"
	}
	return ""
}

// orderRule is I21: when the undo of an action begins, everything that came after it,
// at any remove, has ended or is its owner's where the plan goes on without. What joins
// behind an undo that has begun does not hold up its next attempt.
func orderRule(p *plan, a *action, was before) string {
	if was.undo != owed {
		return ""
	}
	after := map[uint32]bool{a.n: true}
	for _, c := range p.actions[a.n:] {
		if !slices.ContainsFunc(c.before, func(n uint32) bool { return after[n] }) {
			continue
		}
		after[c.n] = true
		if !c.isSettled() && !(c.undo == quarantined && p.letsGo(c)) && c.atUnwind(p) {
			return "action " + c.id + " came after it and is " + p.stateOf(c)
		}
	}
	return ""
}

// atUnwind: the action has a part in the unwind that is under way.
func (a *action) atUnwind(p *plan) bool { return a.undo != held || a.n > p.target }

// dispatchRule is I18: a success has a dispatch before it.
func dispatchRule(a *action, k *pb.CompensationSucceeded) string {
	if a.dispatched == nil || k.Attempt > a.attempt {
		return "no dispatch stands before it"
	}
	return ""
}

// successRule is a part of I22: one success for each action.
func successRule(a *action) string {
	if a.successes > 1 {
		return "a second success of one undo"
	}
	return ""
}

// endRule is I22: a plan that ended compensated has one success for each crossed
// compensable action, and none for any other.
func endRule(p *plan, k *pb.PlanEnded) string {
	if k.End != pb.PlanEnd_PLAN_END_COMPENSATED {
		return ""
	}
	for _, a := range p.actions {
		switch {
		case a.child != nil:
			if !a.isSettled() {
				return "child plan " + a.child.id + " is " + a.child.phase
			}
		case a.undo == compensated && a.successes != 1 && p.origin == "":
			return fmt.Sprintf("the undo of action %s has %d successes", a.id, a.successes)
		case a.undo == skipped && a.crossed() && !a.superseded() && a.forward.GetClass() == pb.Class_CLASS_COMPENSABLE && p.origin == "":
			return "action " + a.id + " crossed and was skipped"
		case !a.isSettled():
			return "action " + a.id + " is " + p.stateOf(a)
		}
	}
	return ""
}

// outstandingMax is how many actions a PlanEnded names.
const outstandingMax = 256

// outstandingRule is I23: an end names exactly what is owed and not undone. Where others
// have spoken of the plan, or of a part of it, behind the holder's last message, it is what
// was owed then.
func outstandingRule(p *plan, k *pb.PlanEnded, raced bool) string {
	var want []string
	for _, a := range p.actions {
		if !a.isSettled() && a.undo != held && len(want) < outstandingMax {
			want = append(want, a.id)
		}
	}
	want = append(want, p.unanswered()...)
	if !raced && !slices.Equal(want, k.Outstanding) {
		return fmt.Sprintf("outstanding %.200q, want %.200q", k.Outstanding, want)
	}
	return ""
}

// raced reports whether people or the agent have spoken of a plan behind the holder's
// last message. Reports of workers, facts and verdicts change nothing that is owed.
func (l *Ledger) raced(plan string) bool {
	return slices.ContainsFunc(l.behind, func(entries []ledger.Entry) bool {
		return slices.ContainsFunc(entries, func(e ledger.Entry) bool {
			return e.Record.GetPlan() == plan && (e.Source.Class == ledger.ClassAgent || e.Source.Class == ledger.ClassOperator)
		})
	})
}

// racedBelow reports the same of any plan that is a part of it.
func (l *Ledger) racedBelow(p *plan) bool {
	return slices.ContainsFunc(p.actions, func(a *action) bool {
		return a.child != nil && (l.raced(a.child.id) || l.racedBelow(a.child))
	})
}

// countRule is a part of I22: the numbers of an end are those of the plan. One that ends
// at once, because nothing crossed, counts nothing; and what was said of it or a part of
// it behind the holder's last message was not known when it counted.
func countRule(p *plan, was before, k *pb.PlanEnded, raced bool) string {
	have := [2]int{int(k.Compensated), int(k.Skipped)}
	if want := [2]int{p.count(compensated), p.count(skipped)}; was.plan == ledger.StateUnwinding && !raced && have != want {
		return fmt.Sprintf("compensated and skipped %v, want %v", have, want)
	}
	return ""
}
