package executor

import (
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Erasure. An operator's record says that the key of a plan's sealed values is to be
// destroyed; the host destroys it once that was folded, and again after a restart, until
// the holder's record says that it is gone. Nothing that the fold reads is sealed (I28):
// only what a worker would be given is lost, so that an undo that needs it is its owner's.

// planErased folds the two records of an erasure.
func (s *State) planErased(e ledger.Entry, p *plan, k *pb.PlanErased) Result {
	if k.Destroyed {
		return s.keyDestroyed(e, p)
	}
	switch {
	case p.row.Origin != "":
		return refused("plan %s undoes plan %s, whose values these are: erase that one", p.id,
			p.row.Origin)
	case p.row.Erased != nil:
		return repeated
	}
	if why := s.needsItsKey(p); why != "" && !k.Force {
		return refused("%s: what it needs for that would be gone; wait for its end, or force it, and "+
			"its owner gets what cannot be undone", why)
	}
	p.row.Erased = e.Address
	p.row.Erasure = &rowspb.Word{Said: saidErase, By: byOperator(e, k.Actor), Reason: k.Reason,
		At: e.Address, AtNs: s.meta.TimeNs}
	rows.Erasures.Add(s.tx, p.id)
	if s.base == nil { // a scratch fold destroys nothing
		s.erasures = append(s.erasures, p.id)
	}
	s.touch(p)
	if u := s.undoer(p); u != nil {
		s.touch(u)
	}
	return effective
}

// saidErase is what the operator's word of an erasure says.
const saidErase = "erase"

// undoer is the plan that undoes a committed one, or nil.
func (s *State) undoer(p *plan) *plan {
	if p.row.UndoneAs == "" {
		return nil
	}
	return s.plan(p.row.UndoneAs)
}

// needsItsKey says why undos of a plan may still ask for what is sealed, or "".
func (s *State) needsItsKey(p *plan) string {
	switch u := s.undoer(p); {
	case u != nil && !closed(u.row.Phase):
		return "plan " + p.id + " is undone as plan " + u.id + ", which is " + stateName(u.row)
	case keeps(p.row):
		return "plan " + p.id + " is held by plan " + s.root(p).id + ", of which it is a part"
	case !closed(p.row.Phase):
		return "plan " + p.id + " is " + stateName(p.row)
	}
	return ""
}

// keyDestroyed takes the holder's word for the erasure that it names.
func (s *State) keyDestroyed(e ledger.Entry, p *plan) Result {
	switch {
	case p.row.Erased == nil || !sameAddress(e.Record.Cause, p.row.Erased):
		return void("nobody has asked to erase plan %s at %s", p.id, ledger.FormatAddress(e.Record.Cause))
	case p.row.Shredded != nil:
		return void("the key of plan %s was destroyed before, at %s", p.id,
			ledger.FormatAddress(p.row.Shredded))
	}
	p.row.Shredded = e.Address
	rows.Erasures.Delete(s.tx, p.id)
	return effective
}

// erased is the record that erased what a plan's undos take, or nil.
func (s *State) erased(planID string) *pb.Address {
	p := s.plan(planID)
	if p.row.Origin != "" {
		p = s.plan(p.row.Origin)
	}
	return p.row.Erased
}

// Erasures returns the plans whose keys the folds since the last call have asked to
// destroy.
func (s *State) Erasures() []string {
	out := s.erasures
	s.erasures = nil
	return out
}

// Unerased returns every plan whose key is to be destroyed and not known to be gone: what
// a new holder does again. Flush must have been called.
func (s *State) Unerased() (plans []string) {
	from := rows.Erasures.Prefix()
	for k := range s.tx.Scan(from, rows.After(from)) {
		plans = append(plans, string(k[1:]))
	}
	return plans
}

// destroyed records that keys are gone.
func (d *decider) destroyed(plans []string) {
	for _, id := range plans {
		p := d.state.plan(id)
		if p == nil || p.row.Erased == nil || p.row.Shredded != nil {
			continue
		}
		d.propose(&pb.Record{Plan: p.id, Cause: p.row.Erased,
			Kind: &pb.Record_PlanErased{PlanErased: &pb.PlanErased{Destroyed: true}}})
	}
}
