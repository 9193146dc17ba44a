package sim

import (
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// I36: nothing is retired of which nobody knows whether it happened, unless its owner or
// its plan has said so.

// accepts: the plan is committed whatever is in doubt.
func (p *planCheck) accepts() bool {
	return p.opened.DoubtAtCommit == pb.DoubtAtCommit_DOUBT_AT_COMMIT_ACCEPT
}

// doubts names the actions of a tree that would be retired in doubt. Whether a probe was
// asked too early, the audit knows.
func (p *planCheck) doubts(root *planCheck) (names []string) {
	var parts []*planCheck
	for _, it := range p.items {
		known := it.outcome == rowspb.Outcome_OUTCOME_COMPLETED || it.outcome == rowspb.Outcome_OUTCOME_FAILED
		switch {
		case it.child != nil:
			parts = append(parts, it.child)
		case known || it.effectless():
		case it.undo == undoDone || it.undo == undoSkipped || it.undo == undoResolved:
		case it.presence != pb.Presence_PRESENCE_UNSPECIFIED || it.absent || it.spoken:
		case p == root:
			names = append(names, it.id)
		default:
			names = append(names, p.id+"/"+it.id)
		}
	}
	for _, part := range parts {
		if part.phase == phaseCommitted && part.parent != nil {
			names = append(names, part.doubts(root)...)
		}
	}
	return names
}

// committed: the commit of a root waits for what is in doubt.
func (c *checker) committed(p *planCheck, at uint64) {
	doubts := p.doubts(p)
	c.unclaimed(p, at)
	if p.unopened {
		c.fail("I15", at, "plan %s is committed, and its opening was refused", p.id)
	}
	if p.parent == nil && len(doubts) > 0 && !p.accepts() {
		p.waits = at
		c.w.options.Seen.commit("waits")
		return
	}
	if p.parent == nil {
		if p.inDoubt = doubts; len(doubts) > 0 {
			c.w.options.Seen.commit("accepts")
		}
	}
	p.phase, p.committed = phaseCommitted, at
}

// retired: a commit that has waited does so no more.
func (c *checker) retired(p *planCheck, at uint64, k *pb.HeldSetRetired) {
	doubts := p.inDoubt
	if p.waits != 0 {
		c.unclaimed(p, at)
		if doubts = p.doubts(p); len(doubts) > 0 {
			c.fail("I36", at, "plan %s is committed, and nobody knows of %q", p.id, doubts)
		}
		p.phase, p.committed, p.waits = phaseCommitted, at, 0
		c.w.options.Seen.commit("settled")
	}
	for _, name := range doubts {
		if !slices.Contains(k.InDoubt, name) {
			c.fail("I36", at, "plan %s retires %s in doubt, and names %q", p.id, name, k.InDoubt)
		}
	}
}

// answers takes the owner's word on an action that a commit waits for; false: none does.
// Where two must agree it may count: the audit knows.
func (it *itemCheck) answers(p *planCheck, k *pb.Resolved) bool {
	if !it.asked || p.root().waits == 0 {
		return false
	}
	it.spoken = true
	switch k.Outcome {
	case pb.Resolution_RESOLUTION_DONE:
		it.absent = true
	case pb.Resolution_RESOLUTION_ACCEPTED:
		it.presence = pb.Presence_PRESENCE_PRESENT
	}
	return true
}
