package executor

import (
	"cmp"
	"fmt"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Bounds of CascadeLimits, and what stands in for a zero.
const (
	CascadeDepthMax      = 64
	CascadeDepthDefault  = 8
	CascadePlanMax       = 1 << 20
	CascadePlanDefault   = 8
	CascadeTenantMax     = 1 << 40
	CascadeTenantDefault = 10_000
)

// CascadeLimits say when a lease that turned by what undos have made is held for
// its plan's owner instead of fired. A zero is the default.
type CascadeLimits struct {
	Depth uint32 `json:"depth"` // of one cascade, in leases; 1..64, default 8
	// firings of one plan at a depth above 1, since its owner's last word; 1..1048576, default 8
	Plan uint32 `json:"plan"`
	// firings at a depth above 1 in one hour of logical time; 1..2^40, default 10,000
	Tenant uint64 `json:"tenant"`
}

// OrDefault replaces what is zero.
func (l CascadeLimits) OrDefault() CascadeLimits {
	return CascadeLimits{cmp.Or(l.Depth, CascadeDepthDefault), cmp.Or(l.Plan, CascadePlanDefault),
		cmp.Or(l.Tenant, CascadeTenantDefault)}
}

// Check reports a limit outside of its range; the error is a *ledger.Refused of
// the field cascade.depth, cascade.plan or cascade.tenant.
func (l CascadeLimits) Check() error {
	l = l.OrDefault()
	switch {
	case l.Depth > CascadeDepthMax:
		return ledger.Refuse("cascade.depth", fmt.Sprint(l.Depth),
			fmt.Sprintf("1 to %d", CascadeDepthMax))
	case l.Plan > CascadePlanMax:
		return ledger.Refuse("cascade.plan", fmt.Sprint(l.Plan), fmt.Sprintf("1 to %d", CascadePlanMax))
	case l.Tenant > CascadeTenantMax:
		return ledger.Refuse("cascade.tenant", fmt.Sprint(l.Tenant),
			fmt.Sprintf("1 to %d", CascadeTenantMax))
	}
	return nil
}

// over says which limit a firing would break, or "".
func (d *decider) over(p *plan, l *rowspb.LeaseRow, f *rowspb.Firing) string {
	limits, m := d.in.Cascade.OrDefault(), d.state.meta
	switch {
	case f.Depth < 2 || standing(l.Name) != "":
		return ""
	case f.Depth > limits.Depth:
		return fmt.Sprintf("depth %d of %d", f.Depth, limits.Depth)
	case p.row.Cascaded >= limits.Plan:
		return fmt.Sprintf("plan budget of %d", limits.Plan)
	case m.TimeNs/hourNs == m.CascadeHour && m.Cascaded >= limits.Tenant:
		return fmt.Sprintf("tenant budget of %d an hour", limits.Tenant)
	default:
		return ""
	}
}

// bounded fills in r what the limits make of a firing: itself at its depth, or a
// cut. False: at the logical time the lease is not true any more.
func (d *decider) bounded(p *plan, a *action, l *rowspb.LeaseRow, fired *pb.LeaseFired,
	r *pb.Record) bool {
	f := &rowspb.Firing{Depth: 1}
	// else it is on the clock and reads no fact
	if standing(l.Name) == "" ||
		turnedBy(p, rows.Lease{Plan: p.id, N: number(a), Name: l.Name}) != nil {
		if f, _ = d.state.firing(p, a, l); f == nil {
			return false
		}
	}
	fired.Depth, fired.Chain = f.Depth, d.state.chain(f)
	r.Kind = &pb.Record_LeaseFired{LeaseFired: fired}
	if why := d.over(p, l, f); why != "" {
		r.Kind = &pb.Record_CascadeCut{CascadeCut: &pb.CascadeCut{
			Lease: fired.Lease, Condition: fired.Condition, Depth: fired.Depth, Chain: fired.Chain, Why: why,
		}}
	}
	return true
}
