package host

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/ledger/tenancy"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Bounds of requests about tenants.
const (
	addedWait  = 3 * time.Second // for the ledger of a tenant that was added
	addedPause = 10 * time.Millisecond
)

// Tenancy carries out a request about tenants: a verb of api.ServerSubject. A change is in the
// control stream when it returns, and this host has attached a tenant that was added, unless that
// takes long.
func (h *Host) Tenancy(ctx context.Context, verb string, body []byte) any {
	if verb == api.TenantLs {
		return h.tenantsListed()
	}
	r, err := tenancy.ParseRequest(body)
	if err != nil {
		return tenancy.Failed(err)
	}
	a := h.tenancy().Do(ctx, verb, r)
	if cause := context.Cause(ctx); cause != nil && a.Error != "" { // which a.Error does not say
		return tenancy.Failed(fmt.Errorf("this host takes no requests about tenants any more: %w", cause))
	}
	if a.Changed && !r.DryRun { // before the stream says so
		h.roster.note(*a.Entry)
	}
	if verb == api.TenantAdd && a.Error == "" && !r.DryRun {
		h.awaitAttached(ctx, r.Tenant)
	}
	return a
}

// tenantsListed are the tenants by name, with what the control stream says of them.
func (h *Host) tenantsListed() api.TenantsAnswer {
	a := api.TenantsAnswer{Tenants: slices.Sorted(slices.Values(h.Tenants())),
		Forgotten: h.roster.lost()}
	for _, tenant := range a.Tenants {
		if e, ok := h.roster.entry(tenant); ok {
			a.Entries = append(a.Entries, e)
		}
	}
	return a
}

// Wished is what the control stream says of a tenant; false: nothing.
func (h *Host) Wished(tenant string) (api.TenantEntry, bool) { return h.roster.entry(tenant) }

func (h *Host) awaitAttached(ctx context.Context, tenant string) {
	ctx, cancel := context.WithTimeout(ctx, addedWait)
	defer cancel()
	for {
		if a := h.roster.of(tenant); a != nil && a.board.Records() != nil || !pause.For(ctx, addedPause) {
			return
		}
	}
}

// tenancy changes entries of the control stream.
func (h *Host) tenancy() tenancy.Desk {
	return tenancy.Desk{Store: h.control, Erased: h.erasedAt, Now: h.clock.now}
}

// erasedAt says when a tenant was erased, or its erasure began; empty: it was not.
func (h *Host) erasedAt(ctx context.Context, tenant string) (string, error) {
	value, err := h.ErasureOf(ctx, tenant)
	if value == nil || err != nil {
		return "", err
	}
	var e api.TenantErasure
	if err := json.Unmarshal(value, &e); err != nil {
		return "", fmt.Errorf("cannot read the erasure of tenant %s: %w", tenant, err)
	}
	return time.Unix(0, e.AtNs).UTC().Format(time.RFC3339), nil
}

// govern has the machine know what the tenant may do by the control stream. It is in force from
// the place of the holder's record that says so.
func (a *actor) govern() {
	if e, ok := a.host.roster.entry(a.tenant); ok {
		a.session.Govern(tenancy.Record(e))
		a.bind(e.Limits.Bytes)
	}
}
