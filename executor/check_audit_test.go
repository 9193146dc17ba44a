package executor

import (
	"fmt"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/memory"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
)

// Every ledger of these tests is folded a second time, by package audit, which shares
// nothing with this one: what becomes of each record, and what all of them mean, must
// be the same.

// Follow folds a message into the audit's fold and compares it with a state that has
// folded it. decided says that the message is what Decide proposed: no rule may forbid
// it, as none may forbid what others write.
func Follow(l *audit.Ledger, s *State, m ledger.Message, results []Result, decided bool) error {
	found := l.Add(m)
	for i, e := range l.Entries() {
		if want := auditVerdict(results[i].Verdict); e.Verdict != want {
			return fmt.Errorf("record %d.%d, %s of plan %q: the audit says %s (%s: %s), the fold %s (%s)", m.Sequence, i, e.Kind,
				e.Plan, e.Verdict, e.Rule, e.Reason, want, results[i].Reason)
		}
	}
	source, _ := ledger.ParseSubject(m.Subject)
	if len(found) > 0 && (decided || source.Tenant == "t" && source.Class != ledger.ClassExecutor) {
		return fmt.Errorf("record %d: %+v", m.Sequence, found)
	}
	meta := s.Meta()
	if l.Now() != meta.TimeNs || l.Term() != meta.Term || l.Held() != int(meta.Held) {
		return fmt.Errorf("record %d: the audit has time %d, term %d, %d held; the fold %d, %d, %d", m.Sequence, l.Now(),
			l.Term(), l.Held(), meta.TimeNs, meta.Term, meta.Held)
	}
	if l.HeldConditions() != meta.Conditions {
		return fmt.Errorf("record %d: the audit has %d conditions, the fold %d", m.Sequence, l.HeldConditions(),
			meta.Conditions)
	}
	if err := comparePlans(l, s, l.Entries()); err != nil {
		return fmt.Errorf("record %d: %w", m.Sequence, err)
	}
	return compareFacts(l, s)
}

func auditVerdict(v Verdict) string {
	return [...]string{audit.Effective, audit.Repeated, audit.Refused, audit.Void}[v]
}

// comparePlans compares the plans that the records of a message name, with all that
// are part of the same root, and the plans that undo them.
func comparePlans(l *audit.Ledger, s *State, entries []audit.Entry) error {
	var ids []string
	for _, e := range entries {
		p := s.plan(e.Plan)
		if p == nil {
			continue
		}
		root := p.root()
		ids = append(ids, p.id, p.row.UndoneAs, root.id, root.row.UndoneAs)
		root.descendants(func(c *plan) bool {
			ids = append(ids, c.id, c.row.UndoneAs)
			return true
		})
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if p := s.plan(id); p != nil {
			if err := comparePlan(l, s, p); err != nil {
				return err
			}
		}
	}
	return nil
}

func comparePlan(l *audit.Ledger, s *State, p *plan) error {
	have, _ := l.Plan(p.id)
	want := audit.Plan{ID: p.id, State: stateName(p.row), Orphans: orphans(p.row), Held: have.Held}
	for n := uint32(1); n <= p.row.Actions; n++ {
		a := s.action(p.id, n)
		shown := audit.Action{ID: a.fixed.Id, Outcome: outcomeName(a.row.Outcome), Undo: undoOf(p.row, a.row),
			Attempt: int(a.row.Attempt)}
		if a.fixed.Compensation != nil {
			shown.Key = a.key()
		}
		want.Actions = append(want.Actions, shown)
	}
	if have.State != want.State || !slices.Equal(have.Actions, want.Actions) || !slices.Equal(have.Orphans, want.Orphans) {
		return fmt.Errorf("plan %s: the audit has\n%+v\nthe fold\n%+v", p.id, have, want)
	}
	return nil
}

func compareFacts(l *audit.Ledger, s *State) error {
	facts := l.Facts()
	if m := s.Meta(); len(facts) != int(m.Facts+m.Evicted) {
		return fmt.Errorf("the audit has %d facts, the fold %d and %d evicted", len(facts), m.Facts, m.Evicted)
	}
	for _, f := range facts {
		row := s.memory.Fact(f.Key)
		if row == nil || row.Retracted || f.Evicted != (row.Evicted != nil) || f.Depth != row.Depth ||
			!memory.SameValue(row, []byte(f.Value)) {
			return fmt.Errorf("fact %q: the audit has %+v, the fold %v", f.Key, f, row)
		}
	}
	return nil
}
