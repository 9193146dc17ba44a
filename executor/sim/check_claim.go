package sim

import (
	"strings"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// I31: an act that a refused record claims keeps its plan from being committed, until its
// process takes it back, registers it after all, or the plan's owner answers for it. What
// is followed here is less than the fold follows: one claim for each process and name,
// which never comes back once somebody has answered.

// claim is an act, as its process names it.
type claim struct {
	action, writer string
	over           bool // somebody has said what it was
}

// claimed notes the act that a refused record claims.
func (c *checker) claimed(e ledger.Entry, result executor.Result) {
	r := e.Record
	if result.Verdict != executor.Refused || e.Source.Class != ledger.ClassAgent || r == nil || !ledger.ValidToken(r.Action) {
		return
	}
	p := c.plans[r.Plan]
	if p == nil || p.agent != e.Source.Name {
		return
	}
	switch _, it := p.item(r.Action); r.Kind.(type) {
	case *pb.Record_ForwardCompleted:
	case *pb.Record_ForwardRegistered:
		if it != nil && it.writer == r.Writer {
			return // it may be the act that is registered
		}
	default:
		return
	}
	if p.claimOf(r) == nil {
		p.claims = append(p.claims, &claim{action: r.Action, writer: r.Writer})
	}
}

// claimOf is what a process has claimed under the name that a record has, or nil.
func (p *planCheck) claimOf(r *pb.Record) *claim {
	for _, k := range p.claims {
		if k.action == r.Action && k.writer == r.Writer {
			return k
		}
	}
	return nil
}

// answered takes the owner's word on an act: its name is the action's, or begins with it.
func (c *checker) answered(p *planCheck, r *pb.Record, at uint64) {
	if r.GetResolved() == nil {
		return
	}
	c.word(p, at)
	name, _, _ := strings.Cut(r.Action, "@")
	for _, k := range p.claims {
		k.over = k.over || k.action == name || name == "others"
	}
}

// saidBy notes that a process takes an act back, or registers it.
func (p *planCheck) saidBy(r *pb.Record) {
	if k := p.claimOf(r); k != nil && (r.GetForwardFailed() != nil || r.GetForwardRegistered() != nil) {
		k.over = true
	}
}

// unclaimed: no plan of a tree is committed beside an act that nobody has answered for.
func (c *checker) unclaimed(p *planCheck, at uint64) {
	var names []string
	for _, k := range p.claims {
		if !k.over {
			names = append(names, k.action+" of process "+k.writer)
		}
	}
	if len(names) > 0 {
		c.fail("I31", at, "plan %s is committed beside %q, which refused records claim", p.id, names)
	}
	for _, it := range p.items {
		if it.child != nil && it.child.phase == phaseCommitted && it.child.parent == p {
			c.unclaimed(it.child, at)
		}
	}
}
