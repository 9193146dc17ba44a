package audit

import (
	"cmp"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// What a tenant may do. A holder says it; from then on a writer that begins something new beyond
// it is refused. A forward may be crossing when its pair is stored, so that a pair counts all the
// same, and its plan fails.

// spent is what a tenant has of what may be limited.
type spent struct {
	open   uint64          // plans that are open, or being committed
	facts  uint64          // that are not retracted
	leases uint64          // that plans hold for conditions which were declared
	rates  map[string]rate // of agents and sources, while they are limited
}

// rate counts the records of one writer in a second of logical time.
type rate struct {
	second  int64
	records uint64
}

// countsOpen reports whether a plan in a phase counts as open.
func countsOpen(phase string) bool {
	return phase == ledger.StateOpen || phase == ledger.StateCommitting
}

// opened counts a plan that comes, or goes from one phase to another.
func (s *spent) opened(was, is string) {
	switch {
	case countsOpen(was) && !countsOpen(is):
		s.open--
	case !countsOpen(was) && countsOpen(is):
		s.open++
	}
}

// moves takes a plan into another phase, with what it has of what is counted.
func (s *spent) moves(p *plan, to string) {
	s.opened(p.phase, to)
	s.leases -= p.conditions()
	p.phase = to
	s.leases += p.conditions()
}

// retires gives up what a committed child has held for its root.
func (s *spent) retires(child *plan) {
	s.leases -= child.conditions()
	child.retired = true
}

// conditions counts the leases of a plan for what it and its unsettled actions have declared.
func (p *plan) conditions() (count uint64) {
	if !p.holdsLeases() {
		return 0
	}
	count = declaredOf(p.leases)
	for _, a := range p.actions {
		count += p.conditionsOf(a)
	}
	return count
}

// conditionsOf is the part of one action in conditions.
func (p *plan) conditionsOf(a *action) uint64 {
	if a.isSettled() || !p.holdsLeases() {
		return 0
	}
	return declaredOf(a.leases)
}

// declaredOf counts the leases whose condition someone has written; those that every plan has,
// and those of a verdict or a probe, have none of their own.
func declaredOf(list []*lease) (count uint64) {
	for _, l := range list {
		if l.text != "" {
			count++
		}
	}
	return count
}

// factTurned counts a fact that is held, or is not any more.
func (s *spent) factTurned(was, is bool) {
	switch {
	case was && !is:
		s.facts--
	case !was && is:
		s.facts++
	}
}

// writes counts a record in the present second of its writer, and says if that is too many.
func (c *claim) writes() {
	b := c.b
	class, most := c.Source.Class, b.may.GetLimits().GetRecords()
	if most == 0 || class != ledger.ClassAgent && class != ledger.ClassFact {
		return
	}
	writer, r := c.Source.Writer(), rate{second: b.now / int64(1e9)}
	if last := b.spent.rates[writer]; last.second == r.second {
		r = last
	}
	if b.spent.rates == nil {
		b.spent.rates = map[string]rate{}
	}
	r.records++
	b.spent.rates[writer] = r
	if r.records > most && !b.part {
		c.away = ledger.OverLimit(b.tenant, ledger.LimitRecords, r.records, most)
	}
}

// begins says why nothing new begins by a record; nil: it may.
func (c *claim) begins() error {
	b := c.b
	if b.may.GetSuspended() {
		return ledger.Suspended(b.tenant, b.may)
	}
	return c.away
}

// beginsPlan says why no further plan begins. Who has a part of a ledger cannot count.
func (c *claim) beginsPlan() error {
	b := c.b
	most := b.may.GetLimits().GetOpenPlans()
	named := ledger.NameRequired(b.tenant, b.may, c.Record, c.Source.Class)
	if why := cmp.Or(named, c.begins()); why != nil || most == 0 || b.part || b.spent.open < most {
		return why
	}
	return ledger.OverLimit(b.tenant, ledger.LimitOpenPlans, b.spent.open, most)
}

// adds says why no further conditions are held.
func (c *claim) adds(declared []*pb.Trigger) error {
	b := c.b
	most, more := b.may.GetLimits().GetHeldConditions(), uint64(len(declared))
	if most == 0 || more == 0 || b.part || b.spent.leases+more <= most {
		return nil
	}
	return ledger.OverLimit(b.tenant, ledger.LimitHeldConditions, b.spent.leases+more, most)
}

// beginsFact says why a fact of a source is not taken. That of a suspended tenant is: it may undo.
func (c *claim) beginsFact() error {
	b := c.b
	k, most := c.Record.GetFactAsserted(), b.may.GetLimits().GetFacts()
	why := c.away
	if b.rules < ledger.BoundedSince {
		why = c.begins()
	} else if k == nil { // what ends may always be said
		return nil
	}
	if why != nil || most == 0 || k == nil || b.part || b.spent.facts < most {
		return why
	}
	if f := b.fact(k.Key); f != nil && !f.retracted {
		return nil
	}
	return ledger.OverLimit(b.tenant, ledger.LimitFacts, b.spent.facts, most)
}

// failsAway fails the plan of a pair that comes though nothing new may begin.
func (b *book) failsAway(p *plan, why error) {
	if why != nil && p.phase == ledger.StateOpen && p.signal == "" {
		b.wants(p, signalFailed, why.Error(), back{})
	}
}

// dueAt is the deadline of a plan that is opened now: as it is declared, or its tenant's default.
func dueAt(b *book, declared *pb.PlanOpened) int64 {
	seconds := int64(b.may.GetLimits().GetDefaultDeadline())
	if declared.DeadlineNs != 0 || seconds == 0 || declared.ParentPlan != "" ||
		b.rules < ledger.MovedSince {
		return declared.DeadlineNs
	}
	return b.now + seconds*int64(1e9)
}

var newPlan = clause{"I4.begins", "A plan is opened in a tenant that may open one.",
	func(c *claim) judgement { return allowed(c.beginsPlan()) }}

var newConditions = clause{"I4.conditions",
	"A plan is opened with conditions in a tenant that may hold as many.",
	func(c *claim) judgement { return allowed(c.adds(c.Record.GetPlanOpened().Triggers)) }}

var newFact = clause{"I4.holds", "A fact is taken in a tenant that may hold it.",
	func(c *claim) judgement { return allowed(c.beginsFact()) }}

func allowed(why error) judgement {
	if why != nil {
		return breaks("%v", why)
	}
	return judgement{}
}

var tenantClauses = []clause{{"I5.tenant", "What a tenant may do is said when it changes.",
	func(c *claim) judgement {
		k := c.Record.GetTenantChanged()
		return unless(c.b.may == nil || !same(c.b.may, k), "another state, or other limits")
	}}}

func noteTenant(b *book, c *claim) { b.may = c.Record.GetTenantChanged() }
