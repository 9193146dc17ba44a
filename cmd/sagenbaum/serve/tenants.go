package serve

import (
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger/tenancy"
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

// living are names without the tenants that were erased: agents and users are for these.
func (v *serving) living() []string {
	return slices.DeleteFunc(slices.Clone(v.names()), v.erased)
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
