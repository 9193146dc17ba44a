package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Role is what a user may do on a tenant. Each role may do what those before it may.
type Role int

// The roles.
const (
	None     Role = iota // not even that the tenant is there
	Reader               // sees everything but what is sealed
	Operator             // acts
	Admin                // sees and ends sessions
)

var roleNames = [...]string{"none", "reader", "operator", "admin"}

func (r Role) String() string { return roleNames[r] }

// ParseRole reads a role. The error is a *ledger.Refused.
func ParseRole(text string) (Role, error) {
	for _, r := range []Role{Reader, Operator, Admin} {
		if text == r.String() {
			return r, nil
		}
	}
	return None, ledger.Refuse("role", fmt.Sprintf("%q is no role", text),
		"reader, operator or admin")
}

// Everywhere are all tenants, in a Grant.
const Everywhere = "*"

// Grant is a role on tenants, which are names or Everywhere alone.
type Grant struct {
	Role    Role
	Tenants []string
}

// ParseTenants reads tenants with commas between. The error is a *ledger.Refused.
func ParseTenants(text string) ([]string, error) {
	list := strings.Split(text, ",")
	for i, tenant := range list {
		if tenant == Everywhere && len(list) == 1 {
			continue
		}
		if !ledger.ValidToken(tenant) || slices.Contains(list[:i], tenant) {
			return nil, ledger.Refuse("tenants", fmt.Sprintf("%q is no tenant, or there twice", tenant),
				"* or names with commas between, as in default,second")
		}
	}
	return list, nil
}

func (g Grant) String() string {
	on := strings.Join(g.Tenants, ", ")
	if on == Everywhere {
		on = "all tenants"
	}
	return g.Role.String() + " of " + on
}

// Grants are all that one user may do.
type Grants []Grant

// On is the highest role on a tenant; on Everywhere, the one that is the same on all.
func (g Grants) On(tenant string) (most Role) {
	for _, grant := range g {
		if slices.Contains(grant.Tenants, Everywhere) || slices.Contains(grant.Tenants, tenant) {
			most = max(most, grant.Role)
		}
	}
	return most
}

// Best is the highest role on any tenant.
func (g Grants) Best() (most Role) {
	for _, grant := range g {
		most = max(most, grant.Role)
	}
	return most
}

// Above reports whether who has g may see and end a session that has other: g is an admin's
// on each of its tenants.
func (g Grants) Above(other Grants) bool {
	for _, grant := range other {
		for _, tenant := range grant.Tenants {
			if g.On(tenant) < Admin {
				return false
			}
		}
	}
	return g.Best() == Admin
}

// equal reports whether two users may do the same by the same words.
func (g Grants) equal(other Grants) bool {
	return slices.EqualFunc(g, other, func(a, b Grant) bool {
		return a.Role == b.Role && slices.Equal(a.Tenants, b.Tenants)
	})
}

func (g Grants) String() string {
	text := make([]string, 0, len(g))
	for _, grant := range g {
		text = append(text, grant.String())
	}
	return strings.Join(text, "; ")
}
