package executor

import (
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// cascadeAnswered takes the owner's word on leases that are cut: they fire again,
// from depth 1 on, or are given up. The plan goes on either way.
func (s *State) cascadeAnswered(e ledger.Entry, p *plan, k *pb.CascadeAnswered) Result {
	meant, refusal := s.cutsMeant(e, p, k)
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
		if confirms(e, c.Proposal, proposal) || !p.row.Declared.SecondApprover {
			said = append(said, c)
			word := &rowspb.Word{Said: answer, By: byOperator(e, k.Actor), Reason: k.Reason, At: e.Address,
				AtNs: s.meta.TimeNs}
			if p.row.Declared.SecondApprover {
				word.By = c.Proposal.Operator + " and " + word.By
			}
			s.keepAnswer(p, c, word)
			continue
		}
		c = c.CloneVT()
		c.Proposal, p.row.Cuts[i] = proposal, c
		s.touch(p)
	}
	if len(said) == 0 {
		return effective
	}
	s.uncut(p, to, func(c *rowspb.Cut) bool {
		for _, other := range said {
			if c == other {
				return true
			}
		}
		return false
	})
	if k.Resume {
		p.row.Cascaded = 0
		s.evaluatePlan(p, e.Address)
	}
	return effective
}

// cutsMeant finds what an answer is about: all that is cut, or the leases of an
// action, or one lease, or the cut at one address.
func (s *State) cutsMeant(e ledger.Entry, p *plan,
	k *pb.CascadeAnswered) (func(*rowspb.Cut) bool, Result) {
	if len(p.row.Cuts) == 0 {
		return nil, refused("no lease of plan %s waits behind a cut cascade: it is %s", p.id,
			stateName(p.row))
	}
	n := s.number(p.id, e.Record.Action)
	if e.Record.Action != "" && n == 0 {
		return nil, refused("action %s is not registered in plan %s", e.Record.Action, p.id)
	}
	named := func(c *rowspb.Cut) bool {
		return (e.Record.Action == "" || c.Action == n) && (k.Lease == "" || c.Lease == k.Lease)
	}
	meant := func(c *rowspb.Cut) bool {
		return named(c) && (e.Record.Cause == nil || sameAddress(c.At, e.Record.Cause))
	}
	var cut, at []string
	for _, c := range p.row.Cuts {
		if meant(c) {
			return meant, effective
		}
		cut = append(cut, s.cutName(p, c))
		if named(c) {
			at = append(at, ledger.FormatAddress(c.At))
		}
	}
	if len(at) > 0 {
		return nil, refused("cause: %s, but the cascade was cut at %s",
			ledger.FormatAddress(e.Record.Cause), strings.Join(at, ", "))
	}
	what := "lease " + k.Lease
	switch {
	case k.Lease == "":
		what = "action " + e.Record.Action
	case e.Record.Action != "":
		what += " of action " + e.Record.Action
	}
	return nil, refused("%s of plan %s is not cut; cut: %s", what, p.id, strings.Join(cut, ", "))
}

// cutName is a lease that is cut, with its action.
func (s *State) cutName(p *plan, c *rowspb.Cut) string {
	if c.Action == 0 {
		return c.Lease
	}
	return c.Lease + " of action " + s.action(p.id, c.Action).fixed.Id
}
