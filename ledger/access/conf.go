package access

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// SystemAccount is the server's own account: who is in it sees and steers the servers.
const SystemAccount = "SYS"

// Configuration is the table as a part of nats.conf: the accounts of the tenants and their
// users. It has no secret; a server that includes it takes changes by a reload.
type Configuration struct {
	Tenants []string
	Users   []User
	// Issuer is the public key of the account that signs what an auth callout decides. With it
	// connections without a key of Users are decided by the users with role callout.
	Issuer string
}

// Format is the text to be included in nats.conf. Users whose time is over at now are left
// out, and so are those of tenants that are not among Tenants: an error says so.
func (c Configuration) Format(now time.Time) ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	var w strings.Builder
	w.WriteString("# The accounts and users of Sagenbaum, as sagenbaum user export writes them.\n" +
		"# Include this file in nats.conf. When it has changed, reload the servers twice, a second\n" +
		"# apart: nats-server lets a new account reach the ledgers with the second reload.\n" +
		"system_account: " + SystemAccount + "\naccounts {\n")
	fmt.Fprintf(&w, "  %s {\n    jetstream: enabled\n    exports: [\n", HubAccount)
	for _, s := range Exports() {
		fmt.Fprintf(&w, "      %s\n", c.export(s))
	}
	w.WriteString("    ]\n")
	c.users(&w, HubAccount, now)
	w.WriteString("  }\n")
	for _, tenant := range slices.Concat([]string{AllTenants}, c.Tenants) {
		name := TenantAccount(tenant)
		fmt.Fprintf(&w, "  %s {\n    imports: [\n", name)
		for _, s := range Imports(tenant) {
			kind, more := "service", ""
			switch {
			case s.Stream: // the hub asks who would get a message, and may be told
				kind, more = "stream", ", allow_trace: true"
			case s.Who:
				more = ", share: true"
			}
			fmt.Fprintf(&w, "      { %s: { account: %s, subject: %s }%s }\n", kind, HubAccount,
				strconv.Quote(s.Subject), more)
		}
		w.WriteString("    ]\n")
		c.users(&w, name, now)
		w.WriteString("  }\n")
	}
	c.others(&w, now)
	w.WriteString("}\n" + c.authorization())
	return []byte(w.String()), nil
}

func (c Configuration) check() error {
	if c.Issuer != "" && !nkeys.IsValidPublicAccountKey(c.Issuer) {
		return ledger.Refuse("issuer", fmt.Sprintf("%.80q is no public key of an account", c.Issuer),
			"an nkey that begins with A")
	}
	for i, tenant := range c.Tenants {
		if !ledger.ValidToken(tenant) {
			return ledger.Refuse(fmt.Sprintf("tenants[%d]", i), fmt.Sprintf("%.80q is no tenant", tenant),
				ledger.TokenWanted)
		}
		if slices.Contains(c.Tenants[:i], tenant) {
			return ledger.Refuse(fmt.Sprintf("tenants[%d]", i), tenant+" is there twice",
				"each tenant once")
		}
	}
	for i, u := range c.Users {
		if err := u.Check(); err != nil {
			return fmt.Errorf("users[%d]: %w", i, err)
		}
		if u.Tenant != AllTenants && !slices.Contains(c.Tenants, u.Tenant) {
			return ledger.Refuse(fmt.Sprintf("users[%d].tenant", i),
				u.ID()+" is of a tenant that is not exported", "its tenant among the tenants")
		}
	}
	return nil
}

// export is one export of the hub, to the accounts of the tenants and no other.
func (c Configuration) export(s Share) string {
	accounts := []string{OperatorsAccount}
	for _, tenant := range c.Tenants {
		accounts = append(accounts, TenantAccount(tenant))
	}
	to := "accounts: [" + strings.Join(accounts, ", ") + "]"
	if s.Stream {
		return fmt.Sprintf("{ stream: %s, %s }", strconv.Quote(s.Subject), to)
	}
	kind := "singleton"
	if s.Many {
		kind = "stream"
	}
	return fmt.Sprintf("{ service: %s, response: %s, threshold: %q, %s }",
		strconv.Quote(s.Subject), kind, s.Within.String(), to)
}

// users are those of one account.
func (c Configuration) users(w *strings.Builder, account string, now time.Time) {
	w.WriteString("    users: [\n")
	for _, u := range c.Users {
		if u.Account() != account || u.Expired(now) || u.Role == Local {
			continue
		}
		p := u.Permissions()
		until := ""
		if !u.Expires.IsZero() {
			until = ", until " + u.Expires.Format(time.RFC3339) + ": export again after that"
		}
		fmt.Fprintf(w, "      { # %s, %s%s\n        nkey: %s\n        permissions: {\n"+
			"          publish: { allow: %s }\n          subscribe: { allow: %s }\n        }\n      }\n",
			u.Name, u.Role, until, u.Key, list(p.Publish), list(p.Subscribe))
	}
	w.WriteString("    ]\n")
}

// others are the system account, and that of an auth callout.
func (c Configuration) others(w *strings.Builder, now time.Time) {
	fmt.Fprintf(w, "  %s {\n", SystemAccount)
	c.users(w, SystemAccount, now)
	w.WriteString("  }\n")
	if c.Issuer == "" {
		return
	}
	fmt.Fprintf(w, "  %s {\n", CalloutAccount)
	c.users(w, CalloutAccount, now)
	w.WriteString("  }\n")
}

// authorization is the block that sends connections to the callout, all but those with a key
// of a user.
func (c Configuration) authorization() string {
	if c.Issuer == "" {
		return ""
	}
	var keys []string
	for _, u := range c.Users {
		keys = append(keys, u.Key)
	}
	return fmt.Sprintf("authorization {\n  timeout: 5\n  auth_callout {\n    issuer: %s\n"+
		"    account: %s\n    auth_users: [ %s ]\n  }\n}\n", c.Issuer, CalloutAccount,
		strings.Join(keys, ", "))
}

func list(subjects []string) string {
	quoted := make([]string, len(subjects))
	for i, s := range subjects {
		quoted[i] = strconv.Quote(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
