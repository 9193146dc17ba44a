package access

import (
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Wider are the permissions of p that most does not have, as in: publish query.t.>. A subject
// with wildcards is among those of most only where one of them has all that it matches.
func (p Permissions) Wider(most Permissions) (wider []string) {
	for _, s := range p.Publish {
		if !slices.ContainsFunc(most.Publish, func(m string) bool { return covers(m, s) }) {
			wider = append(wider, "publish "+s)
		}
	}
	for _, s := range p.Subscribe {
		subject, group, _ := strings.Cut(s, " ")
		if !slices.ContainsFunc(most.Subscribe, func(m string) bool {
			pattern, only, _ := strings.Cut(m, " ")
			return covers(pattern, subject) && (only == "" || only == group)
		}) {
			wider = append(wider, "subscribe "+s)
		}
	}
	return wider
}

// covers reports whether a pattern matches all that a subject matches, which may have wildcards.
func covers(pattern, subject string) bool {
	wide, narrow := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, token := range wide {
		switch {
		case i >= len(narrow):
			return false
		case token == ">":
			return true
		case narrow[i] == ">", token != "*" && token != narrow[i]:
			return false
		}
	}
	return len(wide) == len(narrow)
}

// Widest is the user of a name and a role in an account that may do most: with every option that
// users of that role may have. ok is false where the account has no such role.
func Widest(account, name string, role Role) (u User, ok bool) {
	tenant, of := strings.CutPrefix(account, tenantAccount)
	if !of {
		tenant = AllTenants
	}
	u = User{Name: name, Role: role, Tenant: tenant, Run: role == Agent, Reveal: role == Operator,
		Provision: role == Host}
	if role == Agent || role == Worker {
		u.Capabilities = []string{">"}
	}
	return u, u.Account() == account && (tenant != AllTenants || slices.Contains(forAll, role)) &&
		role != Local
}

// name is that of the user that has the permissions: its inboxes and its records have it.
func (p Permissions) name() string {
	for i, s := range slices.Concat(p.Subscribe, p.Publish) {
		parts := strings.Split(s, ".")
		at := 1
		if i >= len(p.Subscribe) {
			at = 3
		}
		if of := map[int]string{1: "_INBOX", 3: "saga"}[at]; parts[0] == of && len(parts) > at &&
			ledger.ValidToken(parts[at]) {
			return parts[at]
		}
	}
	return ""
}

// Guess is the widest user that permissions in an account are nearest to, and those of them that it
// does not have. ok is false where the account has no roles.
func Guess(account string, p Permissions) (nearest User, wider []string, ok bool) {
	missing, name := 0, p.name()
	for _, role := range Roles() {
		u, is := Widest(account, name, role)
		if !is {
			continue
		}
		more, less := p.Wider(u.Permissions()), len(u.Permissions().Wider(p))
		if !ok || len(more) < len(wider) || len(more) == len(wider) && less < missing {
			nearest, wider, missing, ok = u, more, less, true
		}
	}
	return nearest, wider, ok
}
