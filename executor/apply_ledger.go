package executor

import (
	"bytes"
	"cmp"
	"errors"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// checkpointSigned keeps the largest checkpoint. The state has no tree: whether the
// root is the one of so many records is checked by those who have the leaves: the host before it
// signs and an auditor. One of size 0 says nothing, and one that is not larger than
// the last is said for its digest: both count, and change nothing.
func (s *fold) checkpointSigned(k *pb.CheckpointSigned) Result {
	if before := s.meta.Records - 1; k.Size > before {
		return void("it is about %d records, and stands behind %d", k.Size, before)
	}
	if k.Size > 0 && len(k.Root) != ledger.LeafSize {
		return void("its root has %d bytes", len(k.Root))
	}
	if last := s.Signed(); k.Size > last.GetSigned().GetSize() {
		rows.Checkpoints.Set(s.tx, struct{}{}, &rowspb.CheckpointRow{
			Signed: k, At: s.e.Address, StampNs: s.e.StampNs,
		})
	}
	return effective
}

// keyRotated takes over the key that signs from here on. The old one is the one in
// force, as far as the ledger has named it.
func (s *fold) keyRotated(k *pb.KeyRotated) Result {
	if before := s.meta.Records - 1; k.Size > before {
		return void("it was signed at %d records, and stands behind %d", k.Size, before)
	}
	if now := s.Key(); now != "" && now != k.OldKey {
		return void("it ends key %s, and %s is in force", k.OldKey, now)
	}
	if last := s.Signed(); s.Key() == "" && last != nil &&
		!ledger.SignedBy([]byte(last.Signed.Note), s.tenant, k.OldKey) {
		return void("it ends key %s, which has not signed the checkpoint at %s", k.OldKey,
			ledger.FormatAddress(last.At))
	}
	if err := ledger.VerifyRotation(s.tenant, k); err != nil && !errors.Is(err, ledger.ErrKeyLost) {
		return void("%v", err)
	}
	row := &rowspb.KeyRow{Rotated: k, At: s.e.Address, StampNs: s.e.StampNs}
	rows.CurrentKey.Set(s.tx, struct{}{}, row)
	rows.Rotations.Set(s.tx, rows.At(s.e.Address), row)
	return effective
}

// tenantChanged takes over what the tenant may do from here on.
func (s *fold) tenantChanged(k *pb.TenantChanged) Result {
	if !s.Governed(k) {
		return void("the tenant may do just that already")
	}
	s.meta.Tenant = k
	return effective
}

// Governed reports whether the tenant would be allowed something else than it is now; nil says
// nothing of it.
func (s *State) Governed(k *pb.TenantChanged) bool {
	return k != nil && (s.meta.Tenant == nil ||
		!bytes.Equal(rows.Encode(s.meta.Tenant), rows.Encode(k)))
}

// rated counts a record in the present second of the agent or source that wrote it, and says if
// that were too many.
func (s *fold) rated() error {
	class, most := s.e.Source.Class, s.meta.Tenant.GetLimits().GetRecords()
	if most == 0 || class != ledger.ClassAgent && class != ledger.ClassFact {
		return nil
	}
	writer, second := s.e.Source.Writer(), s.meta.TimeNs/int64(1e9)
	row := rows.Rates.Find(s.tx, writer)
	if row.GetSecond() != second {
		row = &rowspb.RateRow{Second: second}
	}
	row.Records++
	rows.Rates.Set(s.tx, writer, row)
	if row.Records <= most {
		return nil
	}
	return ledger.OverLimit(s.tenant, ledger.LimitRecords, row.Records, most)
}

// turnsAway says why the tenant takes nothing new from the writer of the record; nil: it does.
func (s *fold) turnsAway() error {
	if s.meta.Tenant.GetSuspended() {
		return ledger.Suspended(s.tenant, s.meta.Tenant)
	}
	return s.rate
}

// turnsPlanAway says why the tenant takes no further plan; nil: it does.
func (s *fold) turnsPlanAway() error {
	most := s.meta.Tenant.GetLimits().GetOpenPlans()
	named := ledger.NameRequired(s.tenant, s.meta.Tenant, s.e.Record, s.e.Source.Class)
	if err := cmp.Or(named, s.turnsAway()); err != nil || most == 0 || s.meta.Open < most {
		return err
	}
	return ledger.OverLimit(s.tenant, ledger.LimitOpenPlans, s.meta.Open, most)
}

// turnsConditionsAway says why the tenant holds no such further conditions; nil: it does.
func (s *fold) turnsConditionsAway(declared []*pb.Trigger) error {
	most := s.meta.Tenant.GetLimits().GetHeldConditions()
	use := s.meta.Conditions + uint64(len(declared))
	if most == 0 || len(declared) == 0 || use <= most {
		return nil
	}
	return ledger.OverLimit(s.tenant, ledger.LimitHeldConditions, use, most)
}

// turnsFactAway says why the tenant takes no such fact of a source; nil: it does. Plans of a
// suspended tenant are committed, so that what would have them undone must be seen; and what ends
// a fact adds nothing.
func (s *fold) turnsFactAway() error {
	k, most := s.e.Record.GetFactAsserted(), s.meta.Tenant.GetLimits().GetFacts()
	err := s.rate
	switch {
	case s.meta.HolderFold < ledger.BoundedSince:
		err = s.turnsAway()
	case k == nil:
		return nil
	}
	if err != nil || most == 0 || k == nil {
		return err
	}
	held := s.meta.Facts + s.meta.Evicted
	if row := s.memory.Fact(k.Key); held < most || row != nil && !row.Retracted {
		return nil
	}
	return ledger.OverLimit(s.tenant, ledger.LimitFacts, held, most)
}

// failAway fails a plan that goes on though its tenant takes nothing new: the forward of a pair
// may be crossing by now, so that the pair counts, and its plan is undone.
func (s *fold) failAway(p *plan, why error) {
	asked := p.row.Signal != rowspb.Signal_SIGNAL_NONE
	if why != nil && p.row.Phase == rowspb.Phase_PHASE_OPEN && !asked {
		s.signal(p, rowspb.Signal_SIGNAL_FAILED, why.Error(), back{})
	}
}

// Signed returns the largest checkpoint in the ledger; nil: none. It must not be
// changed.
func (s *State) Signed() *rowspb.CheckpointRow {
	return rows.Checkpoints.Find(s.tx, struct{}{})
}

// Key returns the verifier key in force, as the last rotation names it; empty: there
// was none.
func (s *State) Key() string {
	if row := rows.CurrentKey.Find(s.tx, struct{}{}); row != nil {
		return row.Rotated.NewKey
	}
	return ""
}

// ledgerRepaired folds what a repair says of itself. Its place is where the tiles end. It
// names the last term that began, and counts in any: whoever repaired the ledger held
// the tenant's lease, and no term. The fence does not outlive the old stream, so that the next
// claim is free.
func (s *fold) ledgerRepaired(k *pb.LedgerRepaired) Result {
	if k.Through+1 != s.e.Address.Sequence || k.Size+1 != s.meta.Records {
		return void("it repairs up to sequence %d with %d records, and stands behind %d with %d",
			k.Through, k.Size, s.e.Address.Sequence-1, s.meta.Records-1)
	}
	s.meta.Repairs++
	s.meta.Fence = 0
	rows.Repairs.Set(s.tx, rows.At(s.e.Address), &rowspb.RepairRow{
		Repaired: k, At: s.e.Address, StampNs: s.e.StampNs,
	})
	return effective
}

// Published contracts are rows for people and agents to read. Registrations
// freeze what they need of theirs, so nothing here touches a held compensation
// (S11, S23).

func (s *fold) contractPublished(k *pb.ContractPublished) Result {
	prefix := rows.Contracts.Within(k.Capability)
	var last []byte
	for _, v := range s.tx.Scan(prefix, rows.After(prefix)) {
		last = append(last[:0], v...) // v is valid until the next step only
	}
	if last != nil {
		row := rows.Contracts.Decode("scan", last)
		if string(row.Digest) == string(k.Digest) {
			return repeated
		}
	}
	at := rows.NamedPlace{Name: k.Capability, At: rows.At(s.e.Address)}
	rows.Contracts.Set(s.tx, at, &rowspb.ContractRow{
		Digest: k.Digest, Contract: k.Contract, At: s.e.Address, AtNs: s.meta.TimeNs, By: s.e.Source.Name,
	})
	return effective
}

// Erasure. An operator's record says that the key of a plan's sealed values is to be
// destroyed; the host destroys it once that was folded, and again after a restart, until
// the holder's record says that it is gone. Nothing that the fold reads is sealed (I28):
// only what a worker would be given is lost, so that an undo that needs it is its owner's.

// planErased folds the two records of an erasure.
func (s *fold) planErased(p *plan, k *pb.PlanErased) Result {
	if k.Destroyed {
		return s.keyDestroyed(p)
	}
	switch {
	case p.row.Origin != "":
		return refused("plan %s undoes plan %s, whose values these are: erase that one", p.id,
			p.row.Origin)
	case p.row.Erased != nil:
		return repeated
	}
	if why := p.needsItsKey(); why != "" && !k.Force {
		return refused("%s: what it needs for that would be gone; wait for its end, or force it, and "+
			"its owner gets what cannot be undone", why)
	}
	p.row.Erased = s.e.Address
	p.row.Erasure = &rowspb.Word{Said: saidErase, By: byOperator(s.e, k.Actor), Reason: k.Reason,
		At: s.e.Address, AtNs: s.meta.TimeNs}
	rows.Erasures.Add(s.tx, p.id)
	if s.base == nil { // a scratch fold destroys nothing
		s.erasures = append(s.erasures, p.id)
	}
	p.touch()
	if u := p.undoer(); u != nil {
		u.touch()
	}
	if d := delivering(p); d != nil {
		d.touch()
	}
	return effective
}

// saidErase is what the operator's word of an erasure says.
const saidErase = "erase"

// undoer is the plan that undoes a committed one, or nil.
func (p *plan) undoer() *plan {
	if p.row.UndoneAs == "" {
		return nil
	}
	return p.s.plan(p.row.UndoneAs)
}

// wasLeftOut reports whether a committed child was, of what undoes a part of its root.
func wasLeftOut(p *plan) bool {
	return p.row.Phase == rowspb.Phase_PHASE_COMMITTED && p.undoer() == nil && p.root().undoer() != nil
}

// keptApart reports whether a committed plan keeps an extra effect that was found since. A part of
// it is undone without, unless that is the action that it is of.
func keptApart(a *action) bool {
	return a.row.Extra && a.plan.row.Phase == rowspb.Phase_PHASE_COMMITTED &&
		laterThan(a.fixed.Registered, a.plan.row.Committed)
}

// needsItsKey says why undos of a plan may still ask for what is sealed, or "".
func (p *plan) needsItsKey() string {
	switch u, d := p.undoer(), delivering(p); {
	case u != nil && !closed(u.row.Phase):
		return "plan " + p.id + " is undone as plan " + u.id + ", which is " + stateName(u.row)
	case d != nil:
		return "plan " + p.id + " is delivered as plan " + d.id + ", which is " + stateName(d.row)
	case keeps(p.row):
		return "plan " + p.id + " is held by plan " + p.root().id + ", of which it is a part"
	case !closed(p.row.Phase):
		return "plan " + p.id + " is " + stateName(p.row)
	case treeHoldsOn(p.root()):
		return "plan " + p.root().id + " holds conditions after its commit, which may undo it"
	}
	return ""
}

// keyDestroyed takes the holder's word for the erasure that it names.
func (s *fold) keyDestroyed(p *plan) Result {
	switch {
	case p.row.Erased == nil || !sameAddress(s.e.Record.Cause, p.row.Erased):
		return void("nobody has asked to erase plan %s at %s", p.id,
			ledger.FormatAddress(s.e.Record.Cause))
	case p.row.Shredded != nil:
		return void("the key of plan %s was destroyed before, at %s", p.id,
			ledger.FormatAddress(p.row.Shredded))
	}
	p.row.Shredded = s.e.Address
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

// The commit of a root begins the delivery of what is staged.

// toDeliver are the plans that are committed with a root, by their ids, if something of them is
// staged; else nil.
func toDeliver(root *plan) (parts map[string]bool) {
	some := false
	root.retirable(func(_ *plan, a *action) bool {
		some = staged(a) && a.row.Undo == rowspb.Undo_UNDO_HELD
		return !some
	})
	if !some {
		return nil
	}
	parts = map[string]bool{root.id: true}
	root.descendants(func(c *plan) bool {
		if keeps(c.row) {
			parts[c.id] = true
		}
		return true
	})
	return parts
}

// openDelivery makes the plan that delivers what is staged in a root that a record has committed,
// and begins it.
func openDelivery(root *plan, parts map[string]bool, at *pb.Address) {
	if d := deliveryOf(root, "", parts, at); d != nil {
		d.row.Unwinding, d.row.EndedNs = at, 0
		d.startUnwind()
	}
}

// Stopping. What undoes a committed plan, a block on a staged act and a cancel stop what delivers
// it: what has no attempt is dropped, and what is out is waited for.

// delivering is the plan that delivers a committed one, as long as it has not ended, or nil.
func delivering(p *plan) *plan {
	if p.row.DeliveredAs == "" {
		return nil
	}
	if d := p.s.plan(p.row.DeliveredAs); !closed(d.row.Phase) || keeps(d.row) {
		return d
	}
	return nil
}

// notItsDelivery is what a refusal to stop a committed plan says of its delivery, or "".
func notItsDelivery(p *plan) string {
	if d := delivering(p); d != nil {
		return ", and plan " + d.id + " delivers what it has staged: cancel that one"
	}
	return ""
}

// stopDelivery stops a plan that delivers, and its parts.
func stopDelivery(p *plan, at *pb.Address, why string) {
	for n := uint32(1); n <= p.row.Actions; n++ {
		if a := p.action(n); a.fixed.Child != "" {
			stopDelivery(p.s.plan(a.fixed.Child), at, why)
		}
	}
	if p.row.Stopped != nil || closed(p.row.Phase) && !keeps(p.row) {
		return
	}
	p.row.Stopped, p.row.Reason = at, why
	p.touch()
	for n := uint32(1); n <= p.row.Actions; n++ {
		a := p.action(n)
		if a.row.Undo == rowspb.Undo_UNDO_WAITING && a.row.Asking == pb.Question_QUESTION_UNSPECIFIED {
			a.land()
			a.owe()
		}
	}
}

// cancelDelivery is an operator's word that what is left of a delivery is dropped.
func cancelDelivery(s *fold, p *plan, k *pb.CancelRequested) Result {
	switch {
	case child(p.row):
		return refused("plan %s is a part of plan %s: cancel that one", p.id, p.root().id)
	case p.row.Stopped != nil:
		return refused("plan %s was stopped at %s", p.id, ledger.FormatAddress(p.row.Stopped))
	case closed(p.row.Phase):
		return refused("plan %s is already %s", p.id, stateName(p.row))
	}
	stopDelivery(p, s.e.Address, byActor(k.Reason, k.Actor))
	return effective
}

// notJudged says why no verdict is given on an act that is staged, or "".
func notJudged(s *fold, a *action, k *pb.VerdictGiven) string {
	p := a.plan
	if p.row.Delivers {
		return "plan " + p.id + " delivers plan " + p.row.Origin + ": judge the action of that one"
	}
	if p.row.DeliveredAs == "" || k.Outcome == pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW {
		return ""
	}
	if d := s.byName(p.row.DeliveredAs, a.fixed.Id); d != nil && settled(d.row.Undo) {
		return "action " + a.fixed.Id + " of plan " + p.row.DeliveredAs + " is " +
			undoShown(d) + " since " + ledger.FormatAddress(d.row.Settled)
	}
	return ""
}

// stopsDelivery has a block on a staged act of a committed plan stop what delivers it.
func stopsDelivery(s *fold, a *action, k *pb.VerdictGiven) {
	d := delivering(a.plan.root())
	if d != nil && staged(a) && k.Outcome != pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW {
		stopDelivery(d, s.e.Address, a.verdictText())
	}
}
