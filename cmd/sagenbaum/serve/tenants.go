package serve

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger/tenancy"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// flagged are the tenants that a flag names, and the first of a server that has none.
func (v *serving) flagged() (tenants []string, first string) {
	if v.named {
		return v.tenants, ""
	}
	return nil, v.tenants[0]
}

// names are the tenants that are served, or were, as far as it is known.
func (v *serving) names() []string {
	if h := v.watch.running.Load(); h != nil {
		if names := h.Tenants(); len(names) > 0 {
			v.known.Store(&names)
		}
	}
	if names := v.known.Load(); names != nil {
		return *names
	}
	return v.tenants
}

// awaitTenants returns true once every tenant's ledger is open and it is known
// who holds it.
func awaitTenants(ctx context.Context, conn *nats.Conn, tenants []string) bool {
	for _, tenant := range tenants {
		for !settledTenant(ctx, conn, tenant) {
			select {
			case <-ctx.Done():
				return false
			case <-time.After(cli.TenantPause):
			}
		}
	}
	return true
}

// settledTenant reports whether a tenant is past its start: it is held, here or
// elsewhere, or says why it cannot be.
func settledTenant(ctx context.Context, conn *nats.Conn, tenant string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	reply, err := conn.RequestWithContext(ctx, api.TenantStatus.Subject(tenant), []byte("{}"))
	var answer api.StatusAnswer
	if err != nil || json.Unmarshal(reply.Data, &answer) != nil {
		return false
	}
	switch status := answer.Status; status.Mode {
	case "", api.ModeStarting:
		return false
	case api.ModeStandby:
		return status.Problem != "" // held by another one; without, it is about to take the tenant
	default:
		return true
	}
}

// connections is how many agents and sources of a tenant may have, as embedded.Config.Connections.
// A host that is about to start lets all in: what they may do is in the fold. So does one whose
// tenant is suspended: they tell what became of their calls, and undo.
func (v *serving) connections(tenant string) uint64 {
	h := v.watch.running.Load()
	if h == nil {
		return 0
	}
	e, known := h.Wished(tenant)
	if !known {
		return 0
	}
	return tenancy.Effective(e.Limits).Connections
}

// erased is embedded.Config.Erased.
func (v *serving) erased(tenant string) bool {
	h := v.watch.running.Load()
	return h != nil && h.Erased(tenant)
}
