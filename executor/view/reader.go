package view

import (
	"cmp"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/memory"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Reader answers questions about a flushed state, over any snapshot of its KV.
// It may run beside the actor and changes nothing.
type Reader struct {
	core    *executor.Reading
	tx      *rows.Tx
	tenant  string
	asked   int   // conditions so far
	clockNs int64 // unix ns; 0: the logical time of the state
}

// NewReader reads the state of tenant in kv.
func NewReader(kv rows.KV, tenant string, archive memory.Archive) *Reader {
	return NewReaderWith(kv, tenant, archive, nil)
}

// NewReaderWith is NewReader with the caller's compiled conditions; nil: its own.
func NewReaderWith(
	kv rows.KV, tenant string, archive memory.Archive, programs *triggers.Cache,
) *Reader {
	core := executor.NewReading(kv, tenant, archive, programs)
	return &Reader{core: core, tx: rows.Over(kv), tenant: tenant}
}

// Live reads a state that is folded into kv, what is not flushed included. It is for the
// goroutine of that state, and for questions about one plan: what lists and counts rows
// misses those that are not flushed.
func Live(state *executor.State, kv rows.KV, tenant string) *Reader {
	return &Reader{core: executor.Live(state), tx: rows.Over(kv), tenant: tenant}
}

// At has the reader answer as of a clock (unix ns), like what waits for time; before the
// logical time of the state, it answers as of that.
func (r *Reader) At(clockNs int64) *Reader {
	r.clockNs = clockNs
	return r
}

// nowNs is the instant at which conditions are asked.
func (r *Reader) nowNs() int64 { return max(r.clockNs, r.core.Meta().TimeNs) }

// Refusals returns refused and void records after a sequence, in order.
func (r *Reader) Refusals(afterSequence uint64, limit int) []api.Refused {
	var views []api.Refused
	from := rows.Refused.Key(rows.Place{Sequence: afterSequence + 1, Index: 0})
	for k := range r.tx.Scan(from, rows.After(rows.Refused.Prefix())) {
		if len(views) == limitOf(limit) {
			break
		}
		views = append(views, r.refused(rows.ParsePlace(k[1:])))
	}
	return views
}

// RefusedAt returns what was refused or void of one message.
func (r *Reader) RefusedAt(sequence uint64) []api.Refused {
	if !r.core.MayRefuse(sequence) {
		return nil // what most questions find, for less than a scan costs
	}
	var views []api.Refused
	for k := range r.tx.Scan(rows.Refused.Key(rows.Place{Sequence: sequence, Index: 0}),
		rows.Refused.Key(rows.Place{Sequence: sequence + 1, Index: 0})) {
		views = append(views, r.refused(rows.ParsePlace(k[1:])))
	}
	return views
}

// Applied returns the last sequence that is folded.
func (r *Reader) Applied() uint64 { return r.core.Meta().Applied.GetSequence() }

// Status returns the counters of the state; the host adds what it knows.
func (r *Reader) Status() api.Status {
	m := r.core.Meta()
	seen := api.Status{
		Tenant: r.tenant, Holder: m.Holder, Term: m.Term, Applied: m.Applied.GetSequence(),
		Records: m.Records,
		TimeNs:  m.TimeNs, Held: m.Held, Open: m.Open, Unwinding: m.Unwinding, Quarantined: m.Quarantined,
		Ended: m.Ended, Refused: m.Refused, Void: m.Voided, Cut: m.Cut, Faulty: m.Faulty,
		Reviews:  m.Reviews,
		Cascaded: r.core.Cascaded(), NextDueNs: r.core.NextDue(cmp.Or(r.clockNs, m.TimeNs)),
	}
	for range r.tx.Scan(rows.Flights.Prefix(), rows.After(rows.Flights.Prefix())) {
		seen.InFlight++
	}
	for k, v := range r.tx.Scan(rows.Pages.Prefix(), rows.After(rows.Pages.Prefix())) {
		seen.Unpaged++
		row := rows.Pages.Decode("scan", v)
		if seen.OldestPage == nil || row.AtNs < seen.OldestPage.AtNs {
			id := rows.ParseAction(k[:len(k)-len(row.Kind)])
			seen.OldestPage = &api.UntakenPage{Kind: row.Kind, Hook: row.Hook, Plan: id.Plan,
				Reason: row.Reason, AtNs: row.AtNs}
			if id.N != 0 {
				seen.OldestPage.Action = r.core.Action(id).Fixed.Id
			}
		}
	}
	for k := range r.tx.Scan(rows.Reviews.Prefix(), rows.After(rows.Reviews.Prefix())) {
		seen.OldestReviewNs = rows.ParseWaiting(k).Ns
		break
	}
	if t := m.Tenant; t != nil {
		seen.May = &api.TenantMay{Suspended: t.Suspended, RequireNames: t.RequireNames, By: t.By,
			Reason: t.Reason, Revision: t.Revision}
		for _, l := range [...]api.LimitUse{
			{Limit: string(ledger.LimitOpenPlans), Used: m.Open, Most: t.Limits.GetOpenPlans()},
			{Limit: string(ledger.LimitFacts), Used: m.Facts + m.Evicted, Most: t.Limits.GetFacts()},
			{Limit: string(ledger.LimitHeldConditions), Used: m.Conditions,
				Most: t.Limits.GetHeldConditions()},
		} {
			if l.Most > 0 {
				seen.May.Limits = append(seen.May.Limits, l)
			}
		}
	}
	if m.Faulty > 0 {
		seen.FaultyPlans = r.faultyPlans(FaultyShown)
	}
	return seen
}

func (r *Reader) refused(at rows.Place) api.Refused {
	row, _ := rows.Refused.Load(r.tx, at)
	return api.Refused{
		Sequence: at.Sequence, Index: at.Index, Kind: row.Kind, Plan: row.Plan, Subject: row.Subject,
		Reason: row.Reason, Void: row.Voided, StampNs: row.StampNs,
	}
}
