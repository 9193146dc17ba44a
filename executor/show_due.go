package executor

import (
	"encoding/binary"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// askedMax bounds the entries whose time has come that one look at the status asks.
const askedMax = 256

// nextDue is the first instant (unix ns) at which time calls for a decision, or 0.
// One that has come and was not true stays in the index until a fact changes it: it
// is not due. An instant in the past is of something that waits to be decided.
func (r *Reader) nextDue() (next int64) {
	clock := r.clockNs
	if clock == 0 {
		clock = r.s.meta.TimeNs
	}
	earlier := func(ns int64) {
		if ns != 0 && (next == 0 || ns < next) {
			next = ns
		}
	}
	future := rows.DueFrom(uint64(clock) + 1)
	asked := 0
	for k := range r.s.tx.Scan(rows.Due.Prefix(), future) {
		if asked++; asked > askedMax {
			break
		}
		earlier(r.again([]byte(k), clock))
		if next != 0 && next <= clock {
			return next
		}
	}
	r.s.dueFrom = string(future)
	if ns := r.s.firstDue(); ns != noDue {
		earlier(ns)
	}
	return next
}

// again is when an entry whose time has come by the clock calls for a decision: now,
// later, or with 0 only when a fact changes.
func (r *Reader) again(key []byte, clock int64) int64 {
	if key[9] == rows.DueNode {
		ns := int64(binary.BigEndian.Uint64(key[1:]))
		row := r.s.nodeRow(key[10:])
		p, a, l := r.s.member(key[10:])
		if row == nil || row.WakeNs != ns || l == nil {
			return 0
		}
		return r.trueAt(p, a, l, ns, clock)
	}
	at := rows.ParseInstant(key)
	ns, kind, ref := at.Ns, at.Kind, at.Lease
	if kind != rows.DueLease {
		return ns
	}
	p := r.s.plan(ref.Plan)
	if p == nil || !armed(p.row) || p.row.Fired != nil {
		return 0
	}
	l, a := r.s.lease(p, ref)
	if l == nil || l.WakeNs != ns {
		return 0
	}
	again := int64(0)
	if turned := turnedBy(p, ref); turned != nil {
		if again = turned.Ns; again <= clock {
			return again
		}
	}
	if ns == wakeNow {
		ns = clock
	}
	if due := r.trueAt(p, a, l, ns, clock); due != 0 && (again == 0 || due < again) {
		again = due
	}
	return again
}

// trueAt is ns where a condition is true by the clock, and else when time alone
// could make it so, or 0.
func (r *Reader) trueAt(p *plan, a *action, l *rowspb.LeaseRow, ns, clock int64) int64 {
	condition, err := r.condition(conditionOf(p, a, l))
	if err != nil {
		return 0
	}
	result := r.s.answerAt(condition.Hold(scopeOf(p, a, l)), clock)
	if result.Truth == triggers.True {
		return ns
	}
	return result.WakeNs
}
