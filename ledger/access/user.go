package access

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Role is what a user is for. Its value is its name.
type Role string

// The roles. docs/security.md has the table.
const (
	Agent      Role = "agent"      // registers actions under its name
	Worker     Role = "worker"     // carries out undos and answers questions
	Source     Role = "source"     // asserts facts under its name
	Supervisor Role = "supervisor" // gives verdicts under its name
	Auditor    Role = "auditor"    // reads, and changes nothing
	Operator   Role = "operator"   // acts on plans under its name, and on the hosts' copies
	Pager      Role = "pager"      // takes pages
	// Local is everything that a client of a tenant may be, under any name, and who adds
	// users: the user that runs an embedded server. It has no access to JetStream.
	Local Role = "local"
	// Door is the door of a host in one tenant: it acts for agents, sources and supervisors. It is
	// the server's own, and no one is given it.
	Door Role = "door"
	// Host runs tenants. It is in the hub and may not create, change or delete streams.
	Host Role = "host"
	// Provisioner creates, changes and deletes the streams of tenants. It is in the hub.
	Provisioner Role = "provisioner"
	// System asks servers whether they sync every write, for hosts. It is in the servers' own
	// account.
	System Role = "system"
	// Callout answers servers about connections with a token. It is in an account of its own.
	Callout Role = "callout"
)

// Roles are all roles, in the order of the table.
func Roles() []Role {
	return []Role{Agent, Worker, Source, Supervisor, Auditor, Operator, Pager, Local, Host,
		Provisioner, System, Callout}
}

// RolesToAdd are the roles that a user may be added with: to an embedded server those of clients,
// and elsewhere those of hosts and servers, too.
func RolesToAdd(elsewhere bool) []Role {
	return slices.DeleteFunc(Roles(), func(r Role) bool {
		return r == Local || !elsewhere && !r.client()
	})
}

// AllTenants is the tenant of a user that may reach all of them.
const AllTenants = "*"

// forAll are the roles of users that may reach all tenants, and only are the ones that must.
var forAll = []Role{Auditor, Operator, Local, Host, Provisioner, System, Callout}

// client reports whether the role is for clients of tenants.
func (r Role) client() bool {
	return r != Host && r != Provisioner && r != System && r != Callout
}

// User is someone who may connect.
type User struct {
	Name   string `json:"name"`   // 1 to 64 letters, digits, '-' or '_'; part of its subjects
	Role   Role   `json:"role"`   // one of Roles
	Tenant string `json:"tenant"` // or AllTenants: hosts, and operators and auditors of all
	Key    string `json:"key"`    // the public half of its key, U and 55 characters
	// Capabilities are what a worker serves, or an agent may ask workers about: names, as
	// git.branch.delete, or a beginning of names, as git.>; ">" are all.
	Capabilities []string `json:"capabilities,omitempty"`
	Run          bool     `json:"run,omitempty"`    // an agent whose functions are replayed
	Reveal       bool     `json:"reveal,omitempty"` // an operator who may read sealed values
	// Provision is a host that may also create, change and delete streams: it makes the
	// ledgers of its tenants, and repairs them.
	Provision bool `json:"provision,omitempty"`
	// Expires is when the user is refused and its connections are closed; zero: never.
	Expires time.Time `json:"expires,omitzero"`
	Created time.Time `json:"created,omitzero"`
	// Revoked are tokens of Key that are refused; see Directory.Revoke.
	Revoked []Revoked `json:"revoked_tokens,omitempty"`
}

// capabilitiesMax bounds the capabilities of one user.
const capabilitiesMax = 100

// Check refuses what no user can be: a *ledger.Refused that names the field.
func (u User) Check() error {
	const token = ledger.TokenWanted
	switch {
	case !ledger.ValidToken(u.Name):
		return ledger.Refuse("name", fmt.Sprintf("%.80q is no name", u.Name), token)
	case !slices.Contains(Roles(), u.Role):
		return ledger.Refuse("role", fmt.Sprintf("%.80q is no role", u.Role), rolesText(Roles()))
	case u.Tenant == AllTenants && !slices.Contains(forAll, u.Role):
		return ledger.Refuse("tenant", fmt.Sprintf("a user with role %s is of one tenant", u.Role),
			"the name of a tenant")
	case u.Tenant != AllTenants && !ledger.ValidToken(u.Tenant):
		return ledger.Refuse("tenant", fmt.Sprintf("%.80q is no tenant", u.Tenant), token)
	case u.Tenant != AllTenants && (!u.Role.client() || u.Role == Local):
		return ledger.Refuse("tenant", fmt.Sprintf("role %s is for all tenants", u.Role),
			AllTenants)
	case !nkeys.IsValidPublicUserKey(u.Key):
		return ledger.Refuse("key", fmt.Sprintf("%.80q is no public key of a user", u.Key),
			"an nkey that begins with U")
	case u.Run && u.Role != Agent:
		return ledger.Refuse("run", "only agents have functions that are replayed", "role agent")
	case u.Reveal && u.Role != Operator:
		return ledger.Refuse("reveal", "only operators may be shown sealed values",
			"role operator")
	case u.Provision && u.Role != Host:
		return ledger.Refuse("provision", "only hosts may be given the rights of a provisioner",
			"role host, or role provisioner")
	}
	if err := u.checkRevoked(); err != nil {
		return err
	}
	return u.checkCapabilities()
}

func (u User) checkCapabilities() error {
	switch {
	case len(u.Capabilities) > 0 && u.Role != Agent && u.Role != Worker:
		return ledger.Refuse("capabilities", fmt.Sprintf("role %s has none", u.Role),
			"role agent or worker")
	case len(u.Capabilities) == 0 && u.Role == Worker:
		return ledger.Refuse("capabilities", "a worker without capabilities could serve nothing",
			"what it serves, as git.branch.delete or git.>")
	case len(u.Capabilities) > capabilitiesMax:
		return ledger.Refuse("capabilities", fmt.Sprintf("%d of them", len(u.Capabilities)),
			fmt.Sprintf("at most %d; a beginning of names, as git.>, covers many",
				capabilitiesMax))
	}
	for i, c := range u.Capabilities {
		name := strings.TrimSuffix(c, ".>")
		if c != ">" && (!ledger.ValidCapability(name) || strings.HasPrefix(c+".", "handler.")) {
			return ledger.Refuse(fmt.Sprintf("capabilities[%d]", i),
				fmt.Sprintf("%.80q is no capability of workers", c),
				"dotted names, as in git.branch.delete, or git.> for all that begin so")
		}
	}
	return nil
}

// rolesText lists roles, as in a, b or c.
func rolesText(roles []Role) string {
	var names []string
	for _, r := range roles {
		names = append(names, string(r))
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// ID is the user's name with its tenant: unique among all users, and how servers list it.
func (u User) ID() string { return u.Tenant + "." + u.Name }

// Expired reports whether the user's time is over.
func (u User) Expired(now time.Time) bool { return !u.Expires.IsZero() && !now.Before(u.Expires) }

// Inbox is the prefix of the inboxes that the user may subscribe: another one for each name,
// so that no one reads the answers to others.
func (u User) Inbox() string {
	if u.Role == Local {
		return "_INBOX"
	}
	return "_INBOX." + u.Name
}

// Compare orders users by tenant and name.
func Compare(a, b User) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name))
}
