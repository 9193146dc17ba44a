package executor

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/writers"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Orphans. A record that says "this act is under way", or "it happened", may be refused:
// its pair differs from the one that is registered, its process is not the plan's writer,
// its commit cannot be read. The act may have happened all the same, and nothing undoes
// it. So the plan remembers it, and ends neither committed nor compensated nor failed
// before its owner has said what became of it, or its agent that it never happened.

// orphansMax bounds the orphans that a plan remembers one by one. The last place is for
// all that come after.
const orphansMax = 64

// manyOrphans begins the name of the orphan that is for all others.
const manyOrphans = "others"

// claims reports whether a refused record claims an act other than the one that is
// registered under its name, by its process. An action that completes twice, with two results, has
// happened twice.
func (p *plan) claims(r *pb.Record, name string) bool {
	a := p.s.byName(p.id, r.Action)
	switch k := r.Kind.(type) {
	case *pb.Record_ForwardRegistered:
		return a == nil || staged(a) || writers.Of(p.row, a.fixed) != name ||
			!bytes.Equal(a.actDigest(), actDigest(k.ForwardRegistered, r.Payload.GetInput()))
	case *pb.Record_CompensationRegistered:
		return a == nil || writers.Of(p.row, a.fixed) != name
	case *pb.Record_ForwardInDoubt:
		return a == nil || staged(a) || !writers.HasWord(p.row, a.fixed, name)
	case *pb.Record_ForwardCompleted:
		return true
	}
	return false
}

// noteOrphan remembers on its plan an act that a refused record claims.
func (s *fold) noteOrphan(reason string) {
	r := s.e.Record
	if r == nil || s.e.Source.Class != ledger.ClassAgent || !ledger.ValidToken(r.Plan) ||
		!ledger.ValidToken(r.Action) {
		return
	}
	p := s.plan(r.Plan)
	if p == nil || !writers.Had(p.row, s.e.Source.Name) || !p.claims(r, nameOf(s, p)) {
		return
	}
	if r.GetForwardRegistered().GetDeliver() != nil { // no call, of either half
		s.refusedForward = orphanPlace(r.Action, &pb.Address{Sequence: s.e.Address.GetSequence()})
		return
	}
	o := &rowspb.Orphan{Action: r.Action, Writer: nameOf(s, p), At: s.e.Address, Reason: clip(reason)}
	if f := r.GetForwardRegistered(); f != nil {
		o.Capability, o.Digest = f.Capability, actDigest(f, r.Payload.GetInput())
		s.refusedForward = orphanPlace(r.Action, &pb.Address{Sequence: s.e.Address.GetSequence()})
	} else if r.GetCompensationRegistered() != nil &&
		s.refusedForward == orphanPlace(r.Action, &pb.Address{Sequence: s.e.Address.GetSequence()}) {
		return // the other half of what was just noted
	}
	_, o.Happened = r.Kind.(*pb.Record_ForwardCompleted)
	if known := sameClaim(p.row, o, r); known != nil {
		p.addClaim(known, o)
		return
	}
	o.Name = p.orphanName(r.Action, s.e.Address)
	p.addOrphan(o)
	p.reopen()
	p.touchTree()
	switch p.row.Phase {
	// no unwind asks for its owner
	case rowspb.Phase_PHASE_OPEN, rowspb.Phase_PHASE_COMMITTING, rowspb.Phase_PHASE_COMMITTED:
		text := "action " + o.Name +
			" was claimed by a record that was refused: it may have happened, and nothing undoes it"
		p.page(nil, api.PageActClaimed, text, s.e.Address)
	}
}

func (p *plan) addOrphan(o *rowspb.Orphan) {
	switch n := len(p.row.Orphans); {
	case n < orphansMax-1:
	case n == orphansMax-1:
		// It is of no action: one that is called like its place must not answer for it.
		o.Name, o.Action, o.Writer, o.Digest, o.Happened = orphanPlace(manyOrphans, o.At), "", "", nil,
			true
		o.Reason = "more acts were claimed by records that were refused than are listed one by one"
	default:
		p.row.Orphans[n-1].Answered = false
		return
	}
	p.row.Orphans = append(p.row.Orphans, o)
}

// sameClaim is the orphan that a record claims once more, or nil. What its process has
// taken back and claims again is another one: it may have been called again. An outcome says
// nothing of what was called, and half a pair only belongs to the other half in its commit.
func sameClaim(row *rowspb.PlanRow, o *rowspb.Orphan, r *pb.Record) *rowspb.Orphan {
	for _, known := range row.Orphans {
		same := known.Action == o.Action && known.Writer == o.Writer
		beside := known.At.GetSequence() == o.At.GetSequence()
		switch r.Kind.(type) {
		case *pb.Record_ForwardRegistered:
			same = same && !known.Withdrawn &&
				(bytes.Equal(known.Digest, o.Digest) || len(known.Digest) == 0 && (known.Happened || beside))
		case *pb.Record_CompensationRegistered:
			same = same && (len(known.Digest) == 0 && !known.Withdrawn || beside)
		}
		if same {
			return known
		}
	}
	return nil
}

// addClaim adds what a record says to an orphan that is known.
func (p *plan) addClaim(known, o *rowspb.Orphan) {
	if o.Happened && !known.Happened {
		known.Happened, known.Withdrawn = true, false
		p.reopen() // it was taken back before
	}
	if len(known.Digest) == 0 {
		known.Digest, known.Capability = o.Digest, o.Capability
	}
	p.touchTree()
}

// touchTree marks a plan changed whose orphans have, and the root whose commit may wait for
// them.
func (p *plan) touchTree() {
	p.touch()
	p.root().touch()
	p.listOwner()
}

// orphanName is the action's id, or its place where that means something else already.
func (p *plan) orphanName(action string, at *pb.Address) string {
	taken := func(o *rowspb.Orphan) bool { return o.Name == action }
	if p.s.number(p.id, action) != 0 || slices.ContainsFunc(p.row.Orphans, taken) {
		return orphanPlace(action, at)
	}
	return action
}

func orphanPlace(action string, at *pb.Address) string {
	return fmt.Sprintf("%s@%d-%d", action, at.GetSequence(), at.GetIndex())
}

// actDigest is the SHA-256 of what a forward is called with.
func actDigest(f *pb.ForwardRegistered, input []byte) []byte {
	h := sha256.New()
	h.Write([]byte(f.Capability + "\x00"))
	h.Write(input)
	return h.Sum(nil)
}

func (a *action) actDigest() []byte {
	return actDigest(a.fixed.Forward, a.payload().Input)
}

// withdraw takes back the one act that its process says never happened.
func (p *plan) withdraw(r *pb.Record, name string) bool {
	at := -1
	for i, o := range p.row.Orphans {
		if o.Action != r.Action || o.Writer != name || o.Answered {
			continue
		}
		if o.Happened || o.Withdrawn || at >= 0 {
			return false // it says so of one of them, perhaps once more: which one is not known
		}
		at = i
	}
	if at < 0 {
		return false
	}
	p.row.Orphans[at].Withdrawn = true
	p.orphansChanged()
	if p.row.Quarantined == 0 && !orphaned(p.row) {
		p.reopen() // it had ended for that alone
	}
	return true
}

// adopt forgets the claims of an act that its pair registers after all. The name is the
// action's from now on, whatever else was claimed under it.
func (s *fold) adopt(p *plan, f *pb.ForwardRegistered) {
	if len(p.row.Orphans) == 0 {
		return
	}
	digest, name := actDigest(f, s.e.Record.Payload.GetInput()), nameOf(s, p)
	p.row.Orphans = slices.DeleteFunc(p.row.Orphans, func(o *rowspb.Orphan) bool {
		same := o.Action == s.e.Record.Action && o.Writer == name
		return same && f.Deliver == nil && (len(o.Digest) == 0 || bytes.Equal(o.Digest, digest))
	})
	for _, o := range p.row.Orphans {
		if o.Name == s.e.Record.Action {
			o.Name = orphanPlace(o.Action, o.At)
		}
	}
	p.orphansChanged()
}

// orphansChanged closes the page about orphans when none waits for an answer.
func (p *plan) orphansChanged() {
	p.touchTree()
	if !orphaned(p.row) {
		p.unpage(nil, api.PageActClaimed)
	}
}

// orphaned reports whether an orphan of a plan waits for its owner.
func orphaned(r *rowspb.PlanRow) bool {
	return slices.ContainsFunc(r.Orphans, waits)
}

// waits reports whether no one has said yet what became of an orphan.
func waits(o *rowspb.Orphan) bool { return !o.Answered && !o.Withdrawn }

// orphans are the names of those that wait for the plan's owner.
func orphans(r *rowspb.PlanRow) (names []string) {
	for _, o := range r.Orphans {
		if waits(o) {
			names = append(names, o.Name)
		}
	}
	return names
}

// orphanedBelow names an orphan of a plan, or of one that is a part of it and whose held
// set goes with it; empty: there is none.
func (p *plan) orphanedBelow() (names string) {
	if names = strings.Join(orphans(p.row), ", "); names != "" {
		return names
	}
	p.descendants(func(c *plan) bool {
		if keeps(c.row) && orphaned(c.row) {
			names = strings.Join(orphans(c.row), ", ") + " of plan " + c.id
		}
		return names == ""
	})
	return names
}

// resolveOrphan takes the owner's word on an act that was claimed by a record which was
// refused.
func (s *fold) resolveOrphan(p *plan, k *pb.Resolved) (Result, bool) {
	id := s.e.Record.Action
	at := slices.IndexFunc(p.row.Orphans, func(o *rowspb.Orphan) bool {
		return o.Name == id &&
			waits(o)
	})
	if at < 0 {
		return Result{}, false
	}
	if !s.orphanSeconded(p, &rowspb.Proposal{Orphan: id, Answer: resolutionName(k.Outcome),
		Halt: k.Halt, Actor: k.Actor}) {
		return effective, true
	}
	p.reopen()
	if p.row.Phase == rowspb.Phase_PHASE_UNWINDING {
		p.row.Resumed = s.e.Address
	}
	p.row.Orphans[at].Answered = true
	p.row.Resolved++
	p.row.ByHand = true
	p.orphansChanged()
	return effective, true
}

// orphanSeconded is seconded for an orphan, which has no row of its own.
func (s *fold) orphanSeconded(p *plan, answer *rowspb.Proposal) bool {
	if !p.row.Declared.SecondApprover {
		return true
	}
	at := slices.IndexFunc(p.row.Proposals,
		func(q *rowspb.Proposal) bool { return q.Orphan == answer.Orphan })
	var first *rowspb.Proposal
	if at >= 0 {
		first = p.row.Proposals[at]
		p.row.Proposals = slices.Delete(p.row.Proposals, at, at+1)
	}
	p.touch()
	if confirms(s.e, first, answer) {
		return true
	}
	p.row.Proposals = append(p.row.Proposals, answer)
	return false
}

// nameOf is the process that has written a record, as a plan calls it.
func nameOf(s *fold, p *plan) string {
	return writers.Name(p.row, s.e.Source.Name, s.e.Record.Writer)
}

// calledAgain reports whether a word on a forward is of a process that goes on with its plan since
// an outcome was recorded: it may have called the forward once more. That of an earlier one may be
// a copy of what it had said before.
func (s about) calledAgain() bool {
	p := s.plan(s.e.Record.Plan)
	return s.meta.HolderFold >= ledger.DoubtedSince &&
		writers.GoesOn(p.row, nameOf(s.fold, p), s.a.row.OutcomeAt.GetSequence())
}

// mayNotWrite says why a plan does not take a record of its agent, or of one that had it, or "".
func mayNotWrite(s *fold, p *plan) string {
	var fixed *rowspb.ActionStatic
	if a := s.byName(p.id, s.e.Record.Action); a != nil {
		fixed = a.fixed
	}
	return writers.Refuses(p.id, p.row, fixed, s.e.Record, s.e.Source.Name, s.meta.HolderFold)
}

// planResumed makes another process the writer of an open plan.
func planResumed(s *fold, p *plan) Result {
	name := nameOf(s, p)
	switch why := writers.RefusesResume(p.id, p.row, s.e.Record.GetPlanResumed(), s.meta.HolderFold); {
	case name == p.row.Writer && !writers.Awaited(p.row):
		return repeated
	case p.row.Phase != rowspb.Phase_PHASE_OPEN || p.row.Signal != rowspb.Signal_SIGNAL_NONE:
		return refused("plan %s is %s and is not resumed", p.id, statusName(p.row))
	case why != "":
		return refused("%s", why)
	}
	p.row.Writer, p.row.ResumedNs = name, s.meta.TimeNs
	p.row.ResumedAt = s.e.Address.GetSequence()
	p.touch()
	s.notices = append(s.notices, Notice{Plan: p.id, Agent: p.row.Agent, State: ledger.StateOpen,
		Writer: s.e.Record.Writer})
	return effective
}

// planAdopted hands an open plan to another agent. Both are told.
func planAdopted(s *fold, p *plan, k *pb.PlanAdopted) Result {
	ending := notOpen(p, "is not handed to another agent")
	switch {
	case writers.Says(p.row, k):
		return repeated
	case ending != "":
		return refused("%s", ending)
	}
	if why := writers.RefusesAdoption(p.id, p.row, k); why != "" {
		return refused("%s", why)
	}
	before := p.row.Agent
	rows.Orders.Delete(s.tx, p.entryIn(rows.ListAgent, before))
	writers.Adopt(p.row, k, s.e.Address, s.meta.TimeNs, s.e.Source.Name)
	p.listIn(rows.ListAgent, p.row.Agent)
	p.touch()
	for _, agent := range []string{before, p.row.Agent} {
		s.notices = append(s.notices, Notice{Plan: p.id, Agent: agent, State: ledger.StateOpen,
			HandedTo: p.row.Agent, By: s.e.Source.Name, Reason: k.Reason, At: s.e.Address.Sequence})
	}
	return effective
}

// byAgent folds a record of an agent, by which its plan is not idle.
func byAgent(s *fold) Result {
	if p := s.plan(s.e.Record.Plan); p != nil && p.row.Agent == s.e.Source.Name {
		return whileActive(s, p, s.applyAgent)
	}
	return s.applyAgent()
}

// whileActive folds what shows that a plan is not idle, nor what it is a part of.
func whileActive(s *fold, p *plan, record func() Result) (result Result) {
	was := p.row.ActiveNs
	p.row.ActiveNs = s.meta.TimeNs
	if child(p.row) {
		parent, _ := p.entry()
		result = whileActive(s, parent, record)
	} else {
		result = record()
	}
	if result.Verdict != Effective {
		p.row.ActiveNs = was
		return result
	}
	p.touch()
	p.evaluateReading(s.Idles, p.row.Idling, s.e.Address)
	return result
}

// A plan whose opening was refused is one of what refused records claim, too.

// reasonUnopened is why a plan whose opening was refused has failed. Its refusals say more.
const reasonUnopened = ledger.ReasonUnopened

// openRefused opens a plan whose own opening was refused, and fails it at once, as attach
// does. Its agent may have called forwards by now, and goes on under the plan's ID: without
// this the first pair would open the plan, with no deadline and no owner.
func (s *fold) openRefused() {
	declared := s.e.Record.GetPlanOpened()
	if declared == nil || s.e.Source.Class != ledger.ClassAgent || !opensHere(s.e) ||
		s.plan(s.e.Record.Plan) != nil {
		return
	}
	p := s.openPlan(&pb.PlanOpened{
		Label: usableText(declared.Label), Owner: usableText(declared.Owner),
		SecondApprover: declared.SecondApprover,
	})
	s.signal(p, rowspb.Signal_SIGNAL_FAILED, reasonUnopened, back{})
}

// unopened reports whether the opening of a plan was refused. No agent can set the two
// together: its own words come in records of their own.
func unopened(r *rowspb.PlanRow) bool {
	return r.Reason == reasonUnopened && sameAddress(r.Signalled, r.Opened)
}

// opensHere reports whether an agent may open the plan that a record names, on the subject
// of the record.
func opensHere(e ledger.Entry) bool {
	plan, writer := e.Record.Plan, e.Record.Writer
	on := e.Source.Plan == plan || e.Source.Plan == ledger.ManyPlans
	return on && plan != ledger.ManyPlans && ledger.ValidToken(plan) &&
		(writer == "" || ledger.ValidToken(writer))
}

// usableText is a text of a declaration that was refused, or "" if a limit refuses it.
func usableText(s string) string {
	if len(s) > ledger.TextMax || !utf8.ValidString(s) {
		return ""
	}
	return s
}
