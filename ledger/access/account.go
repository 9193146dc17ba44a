package access

import (
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// The accounts beside those of tenants.
const (
	// HubAccount has the hosts and the streams, and no one else. In the embedded server it is
	// the server's default account, where its streams always were.
	HubAccount = "SAGENBAUM"
	// OperatorsAccount is for users of all tenants that are not hosts.
	OperatorsAccount = "OPERATORS"
	// CalloutAccount has those who answer servers about tokens, and no one else.
	CalloutAccount = "AUTH"
	tenantAccount  = "C_"
)

// TenantAccount is the account of a tenant's agents, workers and people; that of AllTenants is
// the OperatorsAccount.
func TenantAccount(tenant string) string {
	if tenant == AllTenants {
		return OperatorsAccount
	}
	return tenantAccount + tenant
}

// Account is the account that the user belongs to.
func (u User) Account() string {
	switch {
	case u.Role == System:
		return SystemAccount
	case u.Role == Callout:
		return CalloutAccount
	case !u.Role.client():
		return HubAccount
	default:
		return TenantAccount(u.Tenant)
	}
}

// TenantsOf are the tenants of users, and others, in order, each once.
func TenantsOf(users []User, others []string) []string {
	tenants := slices.Clone(others)
	for _, u := range users {
		if u.Tenant != AllTenants {
			tenants = append(tenants, u.Tenant)
		}
	}
	slices.Sort(tenants)
	return slices.Compact(tenants)
}

// Foreign reports whether account is known to be that of another tenant: whoever serves one
// tenant takes no request from it. Accounts with other names are the server's business.
func Foreign(account, tenant string) bool {
	of, ok := strings.CutPrefix(account, tenantAccount)
	return ok && of != tenant
}

// Share is a subject that passes between the hub and another account.
type Share struct {
	Subject string
	Stream  bool // it comes from the hub; otherwise what is published goes to the hub
	Many    bool // a request may have several answers
	Who     bool // the hub is told which user asks
	// Within is how long an answer may take before the way back is forgotten; 0: for a
	// stream, and for what needs none.
	Within time.Duration
}

// The times within which requests are answered.
const (
	appendWithin = time.Minute
	doorWithin   = 2 * time.Minute // a verb of the door, which may wait for a minute
	hostsWithin  = 10 * time.Second
	slowWithin   = 65 * time.Minute // a repair, a scrub or a rebuild, which take an hour at most
)

// shares are what a tenant's clients exchange with its hosts; "*" is the tenant. What
// is not among them stays in the tenant's account (run, reply to agents) or in the hub.
func shares(tenant string) []Share {
	return []Share{
		{Subject: "saga." + tenant + ".agent.*.*", Within: appendWithin},
		{Subject: "saga." + tenant + ".fact.*", Within: appendWithin},
		{Subject: "saga." + tenant + ".verdict.*", Within: appendWithin},
		{Subject: "saga." + tenant + ".operator.*", Within: appendWithin},
		{Subject: "saga." + tenant + ".worker.*", Within: appendWithin},
		{Subject: api.QuerySubject(tenant, ">"), Within: slowWithin, Who: true},
		{Subject: api.HostsSubject(tenant), Many: true, Within: hostsWithin},
		{Subject: api.AdminSubject(tenant, ">"), Within: slowWithin},
		{Subject: api.KeySubject(tenant, "*"), Within: appendWithin},
		{Subject: api.RevealSubject(tenant), Within: appendWithin},
		{Subject: api.BlobSubject(tenant, "*", "*", "*"), Within: appendWithin},
		{Subject: api.DoorSubject(tenant, "*", ">"), Within: doorWithin},
		{Subject: api.ReplySubject(tenant, "*"), Within: appendWithin},
		{Subject: api.UndoSubject(tenant, ">"), Stream: true},
		{Subject: api.AskSubject(tenant, ">"), Stream: true},
		{Subject: api.NoticeSubject(tenant, "*", "*"), Stream: true},
		{Subject: api.PageSubject(tenant, ">"), Stream: true},
	}
}

// server is what belongs to no tenant, which only the account of operators has.
var server = Share{Subject: api.ServerSubject(">"), Within: appendWithin}

// Exports are what the hub gives to other accounts, for all tenants at once.
func Exports() []Share { return append(shares(AllTenants), server) }

// Imports are what the account of a tenant takes from the hub; those of AllTenants are what
// the account of operators takes.
func Imports(tenant string) []Share {
	if tenant != AllTenants {
		return shares(tenant)
	}
	var all []Share
	for _, s := range shares(AllTenants) {
		switch first, _, _ := strings.Cut(s.Subject, "."); {
		case first == "query", first == "hosts", first == "admin", first == "reveal",
			first == "page", first == "blob", s.Subject == "saga.*.operator.*":
			all = append(all, s)
		}
	}
	return append(all, server)
}
