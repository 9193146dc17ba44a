package executor

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
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
// registered under its name. An action that completes twice, with two results, has
// happened twice.
func (s *State) claims(p *plan, r *pb.Record) bool {
	a := s.byName(p.id, r.Action)
	switch k := r.Kind.(type) {
	case *pb.Record_ForwardRegistered:
		return a == nil || writerOf(p, a) != r.Writer ||
			!bytes.Equal(s.actDigest(a), actDigest(k.ForwardRegistered, r.Payload.GetInput()))
	case *pb.Record_CompensationRegistered:
		return a == nil || writerOf(p, a) != r.Writer
	case *pb.Record_ForwardInDoubt:
		return a == nil || !hasWord(p, a, r.Writer)
	case *pb.Record_ForwardCompleted:
		return true
	}
	return false
}

// noteOrphan remembers on its plan an act that a refused record claims.
func (s *State) noteOrphan(e ledger.Entry, reason string) {
	r := e.Record
	if r == nil || e.Source.Class != ledger.ClassAgent || !ledger.ValidToken(r.Plan) ||
		!ledger.ValidToken(r.Action) {
		return
	}
	p := s.plan(r.Plan)
	if p == nil || p.row.Agent != e.Source.Name || !s.claims(p, r) {
		return
	}
	o := &rowspb.Orphan{Action: r.Action, Writer: r.Writer, At: e.Address, Reason: clip(reason)}
	if f := r.GetForwardRegistered(); f != nil {
		o.Capability, o.Digest = f.Capability, actDigest(f, r.Payload.GetInput())
		s.halfClaim = orphanPlace(r.Action, &pb.Address{Sequence: e.Address.GetSequence()})
	} else if r.GetCompensationRegistered() != nil &&
		s.halfClaim == orphanPlace(r.Action, &pb.Address{Sequence: e.Address.GetSequence()}) {
		return // the other half of what was just noted
	}
	_, o.Happened = r.Kind.(*pb.Record_ForwardCompleted)
	if known := sameClaim(p.row, o, r); known != nil {
		s.addClaim(p, known, o)
		return
	}
	o.Name = s.orphanName(p, r.Action, e.Address)
	s.addOrphan(p, o)
	s.reopen(p)
	s.touchTree(p)
	switch p.row.Phase {
	// no unwind asks for its owner
	case rowspb.Phase_PHASE_OPEN, rowspb.Phase_PHASE_COMMITTING, rowspb.Phase_PHASE_COMMITTED:
		text := "action " + o.Name +
			" was claimed by a record that was refused: it may have happened, and nothing undoes it"
		s.page(p, nil, api.PageActClaimed, text, e.Address)
	}
}

func (s *State) addOrphan(p *plan, o *rowspb.Orphan) {
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
func (s *State) addClaim(p *plan, known, o *rowspb.Orphan) {
	if o.Happened && !known.Happened {
		known.Happened, known.Withdrawn = true, false
		s.reopen(p) // it was taken back before
	}
	if len(known.Digest) == 0 {
		known.Digest, known.Capability = o.Digest, o.Capability
	}
	s.touchTree(p)
}

// touchTree marks a plan changed whose orphans have, and the root whose commit may wait for
// them.
func (s *State) touchTree(p *plan) {
	s.touch(p)
	s.touch(s.root(p))
	s.listOwner(p)
}

// orphanName is the action's id, or its place where that means something else already.
func (s *State) orphanName(p *plan, action string, at *pb.Address) string {
	taken := func(o *rowspb.Orphan) bool { return o.Name == action }
	if s.number(p.id, action) != 0 || slices.ContainsFunc(p.row.Orphans, taken) {
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

func (s *State) actDigest(a *action) []byte {
	return actDigest(a.fixed.Forward, s.payload(a.id).Input)
}

// withdraw takes back the one act that its process says never happened.
func (s *State) withdraw(p *plan, r *pb.Record) bool {
	at := -1
	for i, o := range p.row.Orphans {
		if o.Action != r.Action || o.Writer != r.Writer || o.Answered {
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
	s.orphansChanged(p)
	if p.row.Quarantined == 0 && !orphaned(p.row) {
		s.reopen(p) // it had ended for that alone
	}
	return true
}

// adopt forgets the claims of an act that its pair registers after all. The name is the
// action's from now on, whatever else was claimed under it.
func (s *State) adopt(p *plan, e ledger.Entry, f *pb.ForwardRegistered) {
	if len(p.row.Orphans) == 0 {
		return
	}
	digest := actDigest(f, e.Record.Payload.GetInput())
	p.row.Orphans = slices.DeleteFunc(p.row.Orphans, func(o *rowspb.Orphan) bool {
		same := o.Action == e.Record.Action && o.Writer == e.Record.Writer
		return same && (len(o.Digest) == 0 || bytes.Equal(o.Digest, digest))
	})
	for _, o := range p.row.Orphans {
		if o.Name == e.Record.Action {
			o.Name = orphanPlace(o.Action, o.At)
		}
	}
	s.orphansChanged(p)
}

// orphansChanged closes the page about orphans when none waits for an answer.
func (s *State) orphansChanged(p *plan) {
	s.touchTree(p)
	if !orphaned(p.row) {
		s.unpage(p, nil, api.PageActClaimed)
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
func (s *State) orphanedBelow(p *plan) (names string) {
	if names = strings.Join(orphans(p.row), ", "); names != "" {
		return names
	}
	s.descendants(p, func(c *plan) bool {
		if keeps(c.row) && orphaned(c.row) {
			names = strings.Join(orphans(c.row), ", ") + " of plan " + c.id
		}
		return names == ""
	})
	return names
}

// heldByOrphans reports whether a commit that waits has nothing left to do before an owner
// has answered for the orphans of its tree.
func (s *State) heldByOrphans(p *plan) bool {
	r := p.row
	turned := r.Fired != nil || r.Turned != nil && !r.Turned.Clocked
	asks := len(r.Parked) > 0 || len(r.Ready) > 0 && r.InFlight < concurrency(r)
	return r.Phase == rowspb.Phase_PHASE_COMMITTING && !turned && !asks && s.orphanedBelow(p) != ""
}

// orphansOf calls each with the orphans that keep the commit of a root waiting, as the
// root names them, and what each waits for, until it returns false.
func (s *State) orphansOf(root *plan, each func(name, why string) bool) {
	of := func(p *plan, prefix string) bool {
		for _, o := range p.row.Orphans {
			why := "its owner's word, before the plan is committed: it was claimed by a record that was " +
				"refused"
			if waits(o) && !each(prefix+o.Name, joinText(why, o.Reason)) {
				return false
			}
		}
		return true
	}
	if of(root, "") {
		s.descendants(root, func(c *plan) bool { return !keeps(c.row) || of(c, c.id+"/") })
	}
}

// resolveOrphan takes the owner's word on an act that was claimed by a record which was
// refused.
func (s *State) resolveOrphan(e ledger.Entry, p *plan, k *pb.Resolved) (Result, bool) {
	id := e.Record.Action
	at := slices.IndexFunc(p.row.Orphans, func(o *rowspb.Orphan) bool {
		return o.Name == id &&
			waits(o)
	})
	if at < 0 {
		return Result{}, false
	}
	if !s.orphanSeconded(e, p, &rowspb.Proposal{Orphan: id, Answer: resolutionName(k.Outcome),
		Halt: k.Halt, Actor: k.Actor}) {
		return effective, true
	}
	s.reopen(p)
	if p.row.Phase == rowspb.Phase_PHASE_UNWINDING {
		p.row.Resumed = e.Address
	}
	p.row.Orphans[at].Answered = true
	p.row.Resolved++
	p.row.ByHand = true
	s.orphansChanged(p)
	return effective, true
}

// orphanSeconded is seconded for an orphan, which has no row of its own.
func (s *State) orphanSeconded(e ledger.Entry, p *plan, answer *rowspb.Proposal) bool {
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
	s.touch(p)
	if confirms(e, first, answer) {
		return true
	}
	p.row.Proposals = append(p.row.Proposals, answer)
	return false
}
