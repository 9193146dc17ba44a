package audit

import (
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Erasure is a plan whose sealed values cannot be read any more, or will not be: what
// was in them is not proven by its records, and never can be. That the records are those
// which were written, and that every decision was right, is proven without them.
type Erasure struct {
	Plan      string      `json:"plan"`
	Erased    *pb.Address `json:"erased"`              // the operator's record
	Reason    string      `json:"reason"`              // as it says
	Actor     string      `json:"actor"`               // likewise
	Destroyed *pb.Address `json:"destroyed,omitempty"` // the holder's record; nil: it does not say yet that the key is gone
	Sealed    int         `json:"sealed"`              // values in the plan's records that are erased with it
}

// erasureOf is what became of the sealed values of a plan; nil: it was not erased.
func erasureOf(p *plan) *Erasure {
	if p.erased == nil {
		return nil
	}
	return &Erasure{p.id, p.erased, p.erasure.GetReason(), p.erasure.GetActor(), p.shredded, p.sealed}
}

// sealedIn counts the sealed values of a record.
func sealedIn(r *pb.Record) (count int) {
	p := r.GetPayload()
	for _, document := range [][]byte{p.GetInput(), p.GetOutput(), p.GetArguments(), p.GetDetail(), p.GetBefore()} {
		count += len(seal.Values(document))
	}
	return count
}

// erase folds an operator's request. What is still held or owed may need the key.
func (b *book) erase(e ledger.Entry, p *plan, k *pb.PlanErased) verdict {
	switch u := b.plan(p.undoneAs); {
	case p.origin != "":
		return refused("I24", "plan %s undoes plan %s, whose values these are", p.id, p.origin)
	case p.erased != nil:
		return repeated
	case k.Force:
	case u != nil && !u.isOver():
		return refused("I24", "plan %s is undone as plan %s, which is %s", p.id, u.id, u.status())
	case !p.isOver() || p.keeps():
		return refused("I24", "plan %s is %s, and may need its key", p.id, p.status())
	}
	p.erased, p.erasure = e.Address, k
	return effective
}

// isOver: the plan has come to an end that only something new can open again.
func (p *plan) isOver() bool {
	return !p.stops() && p.phase != ledger.StateUnwinding && p.phase != ledger.StateQuarantined
}

// shred folds the holder's word that a key is gone.
func (b *book) shred(e ledger.Entry, p *plan) verdict {
	switch {
	case p.erased == nil || !sameAddress(e.Record.Cause, p.erased):
		return void("I6", "nobody has asked to erase plan %s at %s", p.id, ledger.FormatAddress(e.Record.Cause))
	case p.shredded != nil:
		return void("I5", "the key of plan %s was destroyed before", p.id)
	}
	p.shredded = e.Address
	return effective
}

// isErased: what the undos of a plan take cannot be read any more.
func (b *book) isErased(p *plan) bool {
	if of := b.plan(p.origin); of != nil {
		p = of
	}
	return p.erased != nil
}
