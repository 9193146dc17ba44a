package executor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/executor/deadlines"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Bounds of CascadeLimits, and what a zero means.
const (
	CascadeDepthMax      = 64
	CascadeDepthDefault  = 8
	CascadePlanMax       = 1 << 20
	CascadePlanDefault   = 8
	CascadeTenantMax     = 1 << 40
	CascadeTenantDefault = 10_000
)

// CascadeLimits say when a lease that turned by what undos have made is held for
// its plan's owner instead of fired. A zero is the default.
type CascadeLimits struct {
	Depth uint32 `json:"depth"` // of one cascade, in leases; 1..64, default 8
	// firings of one plan at a depth above 1, since its owner's last word; 1..1048576, default 8
	Plan uint32 `json:"plan"`
	// firings at a depth above 1 in one hour of logical time; 1..2^40, default 10,000
	Tenant uint64 `json:"tenant"`
}

// OrDefault replaces what is zero.
func (l CascadeLimits) OrDefault() CascadeLimits {
	return CascadeLimits{cmp.Or(l.Depth, CascadeDepthDefault), cmp.Or(l.Plan, CascadePlanDefault),
		cmp.Or(l.Tenant, CascadeTenantDefault)}
}

// Check reports a limit outside of its range; the error is a *ledger.Refused of
// the field cascade.depth, cascade.plan or cascade.tenant.
func (l CascadeLimits) Check() error {
	l = l.OrDefault()
	switch {
	case l.Depth > CascadeDepthMax:
		return ledger.Refuse("cascade.depth", fmt.Sprint(l.Depth),
			fmt.Sprintf("1 to %d", CascadeDepthMax))
	case l.Plan > CascadePlanMax:
		return ledger.Refuse("cascade.plan", fmt.Sprint(l.Plan), fmt.Sprintf("1 to %d", CascadePlanMax))
	case l.Tenant > CascadeTenantMax:
		return ledger.Refuse("cascade.tenant", fmt.Sprint(l.Tenant),
			fmt.Sprintf("1 to %d", CascadeTenantMax))
	}
	return nil
}

// over says which limit a firing would break, or "".
func (d *decider) over(p *plan, l *rowspb.LeaseRow, f *rowspb.Firing) string {
	limits, m := d.in.Cascade.OrDefault(), d.state.meta
	switch {
	case f.Depth < 2 || standing(l.Name) != "":
		return ""
	case f.Depth > limits.Depth:
		return fmt.Sprintf("depth %d of %d", f.Depth, limits.Depth)
	case p.row.Cascaded >= limits.Plan:
		return fmt.Sprintf("plan budget of %d", limits.Plan)
	case m.TimeNs/hourNs == m.CascadeHour && m.Cascaded >= limits.Tenant:
		return fmt.Sprintf("tenant budget of %d an hour", limits.Tenant)
	default:
		return ""
	}
}

// bounded fills in r what the limits make of a firing: itself at its depth, or a
// cut. False: at the logical time the lease is not true any more.
func (d *decider) bounded(p *plan, a *action, l *rowspb.LeaseRow, fired *pb.LeaseFired,
	r *pb.Record) bool {
	f := &rowspb.Firing{Depth: 1}
	// else it is on the clock and reads no fact
	if standing(l.Name) == "" ||
		turnedBy(p, rows.Lease{Plan: p.id, N: number(a), Name: l.Name}) != nil {
		if f, _ = p.firing(a, l); f == nil {
			return false
		}
	}
	fired.Depth, fired.Chain = f.Depth, d.state.chain(f)
	r.Kind = &pb.Record_LeaseFired{LeaseFired: fired}
	if why := d.over(p, l, f); why != "" {
		r.Kind = &pb.Record_CascadeCut{CascadeCut: &pb.CascadeCut{
			Lease: fired.Lease, Condition: fired.Condition, Depth: fired.Depth, Chain: fired.Chain, Why: why,
		}}
	}
	return true
}

// cascadeAnswered takes the owner's word on leases that are cut: they fire again,
// from depth 1 on, or are given up. The plan goes on either way.
func (s *fold) cascadeAnswered(p *plan, k *pb.CascadeAnswered) Result {
	meant, refusal := s.cutsMeant(p, k)
	if refusal.Verdict != Effective {
		return refusal
	}
	answer, to := saidGiveUp, rowspb.Cascade_CASCADE_ENDED
	if k.Resume {
		answer, to = saidResume, rowspb.Cascade_CASCADE_RESUMED
	}
	var said []*rowspb.Cut // that count now
	for i, c := range p.row.Cuts {
		if !meant(c) {
			continue
		}
		proposal := &rowspb.Proposal{Answer: answer, Actor: k.Actor}
		if confirms(s.e, c.Proposal, proposal) || !p.row.Declared.SecondApprover {
			said = append(said, c)
			word := &rowspb.Word{Said: answer, By: byOperator(s.e, k.Actor), Reason: k.Reason,
				At:   s.e.Address,
				AtNs: s.meta.TimeNs}
			if p.row.Declared.SecondApprover {
				word.By = c.Proposal.Operator + " and " + word.By
			}
			p.keepAnswer(c, word)
			continue
		}
		c = proto.CloneOf(c)
		c.Proposal, p.row.Cuts[i] = proposal, c
		p.touch()
	}
	if len(said) == 0 {
		return effective
	}
	p.uncut(to, func(c *rowspb.Cut) bool {
		for _, other := range said {
			if c == other {
				return true
			}
		}
		return false
	})
	if k.Resume {
		p.row.Cascaded = 0
		p.evaluatePlan(s.e.Address)
	}
	if p.row.HeldOn > 0 {
		s.endOf(p) // the answer may have come after its window
	}
	return effective
}

// cutsMeant finds what an answer is about: all that is cut, or the leases of an
// action, or one lease, or the cut at one address.
func (s *fold) cutsMeant(p *plan,
	k *pb.CascadeAnswered) (func(*rowspb.Cut) bool, Result) {
	if len(p.row.Cuts) == 0 {
		return nil, refused("no lease of plan %s waits behind a cut cascade: it is %s", p.id,
			stateName(p.row))
	}
	n := s.number(p.id, s.e.Record.Action)
	if s.e.Record.Action != "" && n == 0 {
		return nil, refused("action %s is not registered in plan %s", s.e.Record.Action, p.id)
	}
	named := func(c *rowspb.Cut) bool {
		return (s.e.Record.Action == "" || c.Action == n) && (k.Lease == "" || c.Lease == k.Lease)
	}
	meant := func(c *rowspb.Cut) bool {
		return named(c) && (s.e.Record.Cause == nil || sameAddress(c.At, s.e.Record.Cause))
	}
	var cut, at []string
	for _, c := range p.row.Cuts {
		if meant(c) {
			return meant, effective
		}
		cut = append(cut, p.cutName(c))
		if named(c) {
			at = append(at, ledger.FormatAddress(c.At))
		}
	}
	if len(at) > 0 {
		return nil, refused("cause: %s, but the cascade was cut at %s",
			ledger.FormatAddress(s.e.Record.Cause), strings.Join(at, ", "))
	}
	what := "lease " + k.Lease
	switch {
	case k.Lease == "":
		what = "action " + s.e.Record.Action
	case s.e.Record.Action != "":
		what += " of action " + s.e.Record.Action
	}
	return nil, refused("%s of plan %s is not cut; cut: %s", what, p.id, strings.Join(cut, ", "))
}

// cutName is a lease that is cut, with its action.
func (p *plan) cutName(c *rowspb.Cut) string {
	if c.Action == 0 {
		return c.Lease
	}
	return c.Lease + " of action " + p.action(c.Action).fixed.Id
}

// What was said of a plan, and by whom: what plan why tells beside the leases.

// What a Word says.
const (
	saidFailed    = "failed"
	saidCancelled = "cancelled"
	SaidUnwind    = "unwind"
	SaidLate      = "late" // an action of an open plan completed after its undo
	SaidBlock     = "block"
	SaidRedirect  = "redirect"
	saidResume    = "resume"
	saidGiveUp    = "give-up"
)

// verdictsMax bounds the places of verdicts, answersMax the answered cuts that one
// plan keeps: its row is written with every step.
const (
	verdictsMax = 64
	answersMax  = 16
)

// asked is the word of the record that sets a plan's signal.
func (s *fold) asked(signal rowspb.Signal, reason string) *rowspb.Word {
	w := &rowspb.Word{Said: saidFailed, By: s.e.Source.Name, Reason: reason, At: s.e.Address,
		AtNs: s.meta.TimeNs}
	if signal == rowspb.Signal_SIGNAL_CANCELLED {
		w.Said = saidCancelled
	}
	switch k := s.e.Record.Kind.(type) {
	case *pb.Record_PlanFailed, *pb.Record_PlanCancelled:
	case *pb.Record_UnwindRequested:
		w.Said, w.Savepoint = SaidUnwind, k.UnwindRequested.ToSavepoint
	case *pb.Record_CompensationRequested:
		k2 := k.CompensationRequested
		w.Said, w.By, w.Reason, w.Savepoint = SaidUnwind, byOperator(s.e, k2.Actor), k2.Reason,
			k2.ToSavepoint
		w.Action, w.Counted = k2.FromAction, w.Savepoint != "" && s.meta.HolderFold >= ledger.RewindsSince
	case *pb.Record_CancelRequested:
		w.By, w.Reason = byOperator(s.e, k.CancelRequested.Actor), k.CancelRequested.Reason
	case *pb.Record_VerdictGiven: // on an action of a committed plan
		w.Said, w.Reason, w.Action = verdictName(k.VerdictGiven.Outcome), k.VerdictGiven.Reason,
			s.e.Record.Action
	default: // it follows from something else
		if w.By = ""; signal == rowspb.Signal_SIGNAL_CANCELLED {
			w.Said, w.Action = SaidLate, s.e.Record.Action
		}
	}
	return w
}

// byOperator names who asked: the subject proves the operator, the text says whom
// they call themselves.
func byOperator(e ledger.Entry, actor string) string {
	if actor == "" || actor == e.Source.Name {
		return e.Source.Name
	}
	return actor + " (operator " + e.Source.Name + ")"
}

// noteVerdict keeps where a verdict is that may turn a lease of its action; the rest
// of it is with the action.
func (s about) noteVerdict() {
	p, a := s.a.plan, s.a
	old := slices.IndexFunc(p.row.Verdicts,
		func(w *rowspb.Word) bool { return w.Action == a.fixed.Id })
	if old >= 0 {
		p.row.Verdicts = slices.Delete(p.row.Verdicts, old, old+1)
		p.touch()
	}
	if v := a.row.Verdict; v != pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK &&
		v != pb.VerdictOutcome_VERDICT_OUTCOME_REDIRECT {
		return
	}
	p.row.Verdicts = lastOf(verdictsMax,
		append(p.row.Verdicts, &rowspb.Word{Action: a.fixed.Id, At: s.e.Address}))
	p.touch()
}

// keepAnswer keeps a cut with its owner's answer.
func (p *plan) keepAnswer(c *rowspb.Cut, answer *rowspb.Word) {
	old := slices.IndexFunc(p.row.Answered, func(other *rowspb.Cut) bool {
		return other.Action == c.Action && other.Lease == c.Lease
	})
	if old >= 0 {
		p.row.Answered = slices.Delete(p.row.Answered, old, old+1)
	}
	c = proto.CloneOf(c)
	c.Proposal, c.Answer = nil, answer
	p.row.Answered = lastOf(answersMax, append(p.row.Answered, c))
	p.touch()
}

func lastOf[T any](n int, list []T) []T { return list[max(0, len(list)-n):] }

// turnedFor is what someone said that turns a lease which every plan or verdict has.
func (p *plan) turnedFor(l *rowspb.LeaseRow, f *rowspb.Firing) *rowspb.Word {
	switch l.Name {
	case leaseFailed, leaseCancelled:
		if f.Passed == nil {
			return p.row.Asked
		}
	case leaseVerdict, leaseUnheard:
		row := p.s.byName(p.id, f.Action).row
		w := &rowspb.Word{Said: verdictName(row.Verdict), By: row.VerdictBy, Reason: row.VerdictReason,
			AtNs: row.VerdictNs, Action: f.Action}
		for _, v := range p.row.Verdicts {
			if v.Action == f.Action {
				w.At = v.At
			}
		}
		return w
	}
	return nil
}

// resumedBy is the owner's word that let a lease fire which was cut.
func (p *plan) resumedBy(l *rowspb.LeaseRow, f *rowspb.Firing) *rowspb.Word {
	if l.Cascade != rowspb.Cascade_CASCADE_RESUMED {
		return nil
	}
	n := p.s.number(p.id, f.Action)
	for _, c := range p.row.Answered {
		if c.Action == n && c.Lease == l.Name {
			return c.Answer
		}
	}
	return &rowspb.Word{Said: saidResume} // others were answered since
}

// readLast is the last of the facts that a condition read, or nil.
func (s *State) readLast(keys []string) (last *rowspb.Read) {
	for _, key := range keys {
		row := s.memory.Fact(key)
		if row == nil {
			continue
		}
		at, ns := row.Source, row.AssertedNs
		if row.Retracted {
			at, ns = row.Tombstone, row.RetractedNs
		}
		if at == nil || last != nil && !laterThan(at, last.At) {
			continue
		}
		last = &rowspb.Read{Key: key, At: at, AtNs: ns, Source: row.By, Retracted: row.Retracted}
		if len(row.Value) <= readingMax {
			last.Value = row.Value
		}
	}
	return last
}

func laterThan(a, b *pb.Address) bool {
	if a.GetSequence() != b.GetSequence() {
		return a.GetSequence() > b.GetSequence()
	}
	return a.GetIndex() > b.GetIndex()
}

// turnedLater reports whether a condition turned true at a later record than another one. What has
// no sequence yet is of the commit that is being decided.
func turnedLater(a, b *rowspb.Turned) bool {
	if new := a.At.GetSequence() == 0; new != (b.At.GetSequence() == 0) {
		return new
	}
	return laterThan(a.At, b.At)
}

// A deadline is a lease like any other. What it reads may be changed by operators and by the agent.

// deadlineMoved gives an open plan another deadline, or its first one. What reads it is looked at
// again, also what could not turn true with the one before.
func deadlineMoved(s *fold, p *plan, k *pb.DeadlineMoved) Result {
	ending := notOpen(p, "its deadline is not moved any more")
	switch {
	case deadlines.Says(p.row, k):
		return repeated
	case ending != "":
		return refused("%s", ending)
	}
	agent := s.e.Source.Class == ledger.ClassAgent
	if why := deadlines.Refuses(p.id, p.row, k, s.meta.TimeNs, agent); why != "" {
		return refused("%s", why)
	}
	first := deadlines.Of(p.row) == 0
	p.row.Moved = &rowspb.Deadline{Ns: k.DeadlineNs, At: s.e.Address, Follows: k.Follows,
		By: s.e.Source.Name, Reason: k.Reason}
	p.touch()
	if first {
		p.row.Leases = append(p.row.Leases, &rowspb.LeaseRow{Name: LeaseDeadline,
			ArmedNs: s.meta.TimeNs, Exact: s.readsExactly()})
	}
	lookDue(s, p)
	s.notices = append(s.notices, Notice{Plan: p.id, Agent: p.row.Agent, State: stateName(p.row),
		DueNs: k.DeadlineNs, By: p.row.Moved.By, Reason: k.Reason, At: s.e.Address.Sequence})
	return effective
}

// movedTo is what has moved a deadline to where it comes; nil: l is another lease, or as declared.
func movedTo(p *plan, l *rowspb.LeaseRow) *pb.Address {
	if l.Name != LeaseDeadline {
		return nil
	}
	return p.row.Moved.GetAt()
}

// lookDue looks at every lease of a plan, and of its actions, that reads the deadline.
func lookDue(s *fold, p *plan) {
	look := func(a *action, list []*rowspb.LeaseRow) {
		for _, l := range list {
			if s.IsDue(conditionOf(p, a, l)) {
				if l.Moot {
					l.Moot = false
					p.mark(a)
				}
				p.evaluate(a, l, s.e.Address)
			}
		}
	}
	look(nil, p.row.Leases)
	for _, n := range p.row.Watchers {
		a := p.action(n)
		look(a, a.row.Leases)
	}
}

// wantedText is what a page says of an action that waits for a verdict.
func wantedText(p *plan) string {
	text := "it waits for a verdict, and is not done without one"
	if ns := deadlines.Of(p.row); ns != 0 {
		text += "; its plan's deadline is " + instant(ns)
	}
	return text
}

// Deadline is that of a plan, in unix ns, as it was moved last, or declared; 0: it has none. set is
// the record that has set it.
func (p *Plan) Deadline() (ns int64, set *pb.Address) {
	return deadlines.Of(p.Row), deadlines.SetAt(p.Row)
}
