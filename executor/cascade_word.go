package executor

import (
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// What was said of a plan, and by whom: what plan why tells beside the leases.

// What a Word says. A verdict says its own name.
const (
	saidFailed    = "failed"
	saidCancelled = "cancelled"
	saidUnwind    = "unwind"
	saidLate      = "late" // an action of an open plan completed after its undo
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
func (s *State) asked(e ledger.Entry, signal rowspb.Signal, reason string) *rowspb.Word {
	w := &rowspb.Word{Said: saidFailed, By: e.Source.Name, Reason: reason, At: e.Address,
		AtNs: s.meta.TimeNs}
	if signal == rowspb.Signal_SIGNAL_CANCELLED {
		w.Said = saidCancelled
	}
	switch k := e.Record.Kind.(type) {
	case *pb.Record_PlanFailed, *pb.Record_PlanCancelled:
	case *pb.Record_UnwindRequested:
		w.Said, w.Savepoint = saidUnwind, k.UnwindRequested.ToSavepoint
	case *pb.Record_CompensationRequested:
		k2 := k.CompensationRequested
		w.Said, w.By, w.Reason, w.Savepoint = saidUnwind, byOperator(e, k2.Actor), k2.Reason,
			k2.ToSavepoint
	case *pb.Record_CancelRequested:
		w.By, w.Reason = byOperator(e, k.CancelRequested.Actor), k.CancelRequested.Reason
	default: // it follows from something else
		if w.By = ""; signal == rowspb.Signal_SIGNAL_CANCELLED {
			w.Said, w.Action = saidLate, e.Record.Action
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
func (s *State) noteVerdict(e ledger.Entry, p *plan, a *action) {
	old := slices.IndexFunc(p.row.Verdicts,
		func(w *rowspb.Word) bool { return w.Action == a.fixed.Id })
	if old >= 0 {
		p.row.Verdicts = slices.Delete(p.row.Verdicts, old, old+1)
		s.touch(p)
	}
	if v := a.row.Verdict; v != pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK &&
		v != pb.VerdictOutcome_VERDICT_OUTCOME_REDIRECT {
		return
	}
	p.row.Verdicts = lastOf(verdictsMax,
		append(p.row.Verdicts, &rowspb.Word{Action: a.fixed.Id, At: e.Address}))
	s.touch(p)
}

// keepAnswer keeps a cut with its owner's answer.
func (s *State) keepAnswer(p *plan, c *rowspb.Cut, answer *rowspb.Word) {
	old := slices.IndexFunc(p.row.Answered, func(other *rowspb.Cut) bool {
		return other.Action == c.Action && other.Lease == c.Lease
	})
	if old >= 0 {
		p.row.Answered = slices.Delete(p.row.Answered, old, old+1)
	}
	c = c.CloneVT()
	c.Proposal, c.Answer = nil, answer
	p.row.Answered = lastOf(answersMax, append(p.row.Answered, c))
	s.touch(p)
}

func lastOf[T any](n int, list []T) []T { return list[max(0, len(list)-n):] }

// turnedFor is what someone said that turns a lease which every plan or verdict has.
func (s *State) turnedFor(p *plan, l *rowspb.LeaseRow, f *rowspb.Firing) *rowspb.Word {
	switch l.Name {
	case leaseFailed, leaseCancelled:
		if f.Passed == nil {
			return p.row.Asked
		}
	case leaseVerdict, leaseUnheard:
		row := s.byName(p.id, f.Action).row
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
func (s *State) resumedBy(p *plan, l *rowspb.LeaseRow, f *rowspb.Firing) *rowspb.Word {
	if l.Cascade != rowspb.Cascade_CASCADE_RESUMED {
		return nil
	}
	n := s.number(p.id, f.Action)
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
		row := s.fact(key)
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
