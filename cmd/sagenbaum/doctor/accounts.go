package doctor

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// exportNext is what mends most of a configuration.
const exportNext = "have each server include what this prints, and no other user, permission or " +
	"import, and read it again, by nats-server --signal reload, twice for a new tenant: " +
	"sagenbaum user export --file users (docs/guide/tenants.md)"

// account is an account of a configuration.
type account struct {
	embedded.ConfAccount
	as string // its name in the table: whatever the account of the servers is called
}

// named is how a user is told from others; never by what is secret.
func (a account) named(u embedded.ConfUser) string {
	name := u.Name
	if u.Key != "" {
		name = u.Key
		if guess, _, ok := access.Guess(a.as, u.Permissions); ok && guess.Name != "" {
			name = guess.Name + " (" + u.Key[:8] + "...)"
		}
	}
	if name == "" {
		name = "whoever has the token"
	}
	return a.Name + " " + name
}

// ours reports whether an account of this name has users of the table of roles.
func ours(account string) bool {
	return slices.ContainsFunc(access.Roles(), func(r access.Role) bool {
		_, ok := access.Widest(account, "", r)
		return ok
	})
}

// client reports whether an account is for clients of tenants.
func (a account) client() bool {
	_, ok := access.Widest(a.as, "", access.Operator)
	return ok
}

// knownUsers are users by their keys; nil: not given.
type knownUsers map[string]access.User

// examineAccounts holds the accounts and users of a nats.conf against the table of roles. users is
// the file of user export, where it is given: then each user is held against its own role and
// options, and otherwise against the widest user of the role that it is nearest to.
func examineAccounts(file, users string, now time.Time) ([]Finding, error) {
	if _, err := os.Stat(file); err != nil {
		return nil, cli.Fail(cli.ExitUsage, "--accounts with the nats.conf of a server",
			"cannot read %s: %v", file, err)
	}
	conf, err := embedded.ReadConf(file)
	if err != nil {
		return []Finding{broken("accounts", "mend it; nats-server -t -c "+file+" says the same",
			"%s cannot be read: %v", file, err)}, nil
	}
	var known knownUsers
	if users != "" {
		if _, err := os.Stat(users); err != nil {
			return nil, cli.Fail(cli.ExitUsage, "--users with the file of user export --file", "%v", err)
		}
		d, err := access.OpenDirectory(users)
		if err != nil {
			return nil, cli.Failed("read "+users, err)
		}
		known = knownUsers{}
		for _, u := range d.Users() {
			known[u.Key] = u
		}
	}
	return judgeAccounts(conf, known, now), nil
}

// judgeAccounts looks at each kind of trouble in the order in which it is mended.
func judgeAccounts(conf embedded.Conf, known knownUsers, now time.Time) []Finding {
	if conf.Operator {
		return []Finding{skipped("accounts", "compare with what sagenbaum user export --format jwt "+
			"writes", "not checked: accounts and users are in JWTs, and not in this file")}
	}
	var all []account
	hub := false
	for _, a := range conf.Accounts {
		as := a.Name
		if a.Name == conf.System && !ours(a.Name) {
			as = access.SystemAccount
		}
		all = append(all, account{a, as})
		hub = hub || a.Name == access.HubAccount
	}
	if !hub {
		return []Finding{broken("accounts", exportNext, "there is no account %s: hosts and "+
			"clients are not kept apart, and no user has a role", access.HubAccount)}
	}
	return []Finding{judgeEntry(conf, all), judgeRoles(all, known, now), judgePasswords(conf, all),
		judgeResponses(all), judgeStreams(all), judgeImports(all)}
}

// judgeEntry finds who gets in by something else than a user of the table.
func judgeEntry(conf embedded.Conf, all []account) Finding {
	const check = "accounts"
	users, outside := 0, 0
	harmless := true // who gets in without credentials reaches no tenant
	for _, a := range all {
		users += len(a.Users)
		if a.Name == embedded.GlobalAccount {
			outside = len(a.Users)
		}
		for _, u := range a.Users {
			harmless = harmless && !(ours(a.as) && slices.Contains(conf.Anonymous, u.Key+u.Name))
		}
	}
	anonymous := strings.Join(conf.Anonymous, ", ")
	switch {
	case conf.System != access.SystemAccount && ours(conf.System):
		return broken(check, exportNext, "account %s is the account of the servers, too: its users see "+
			"and steer them", conf.System)
	case anonymous != "" && !harmless:
		return broken(check, "take no_auth_user out of the configuration",
			"everyone gets in without credentials, as user %s", anonymous)
	case conf.Callout != "" && conf.Callout != access.CalloutAccount:
		return broken(check, "have it print the auth_callout, too: sagenbaum user export --file users "+
			"--issuer KEY (docs/guide/tenants.md)", "account %s decides who connects, as whom: want "+
			"account %s", conf.Callout, access.CalloutAccount)
	case anonymous != "":
		return warn(check, "take no_auth_user out of the configuration",
			"everyone gets in without credentials, as user %s, who reaches no tenant", anonymous)
	case outside > 0:
		return ok(check, "%s in %s; %d of them in no account, where they reach no tenant",
			cli.CountOf(users, "user"), cli.CountOf(len(all)-1, "account"), outside)
	}
	return ok(check, "%s in %s", cli.CountOf(users, "user"), cli.CountOf(len(all)-1, "account"))
}

// everything reports whether permissions leave out nothing.
func everything(subjects []string) bool {
	return slices.Contains(subjects, ">") || slices.Contains(subjects, "*.>")
}

// judgeRoles finds the users that may do everything in their account, and those that may do more
// than their role.
func judgeRoles(all []account, known knownUsers, now time.Time) Finding {
	const check = "roles"
	var powerful, wide []string
	users := 0
	for _, a := range all {
		if !ours(a.as) {
			continue
		}
		for _, leaf := range a.Leaves {
			powerful = append(powerful, a.Name+" "+leaf+": everything in its account")
		}
		for _, u := range a.Users {
			users++
			switch more := known.wider(a.as, u, now); {
			case everything(u.Publish) && everything(u.Subscribe):
				powerful = append(powerful, a.named(u)+": everything in its account")
			case more != "":
				wide = append(wide, a.named(u)+": "+more)
			}
		}
	}
	f := ok(check, "%s may do what the table of roles gives", cli.CountOf(users, "user"))
	switch {
	case len(powerful) > 0:
		f = broken(check, exportNext, "%s without a role may do everything in the account, %s may do "+
			"more than the role", cli.CountOf(len(powerful), "user"), cli.CountOf(len(wide), "other"))
	case len(wide) > 0:
		f = warn(check, exportNext, "%s may do more than the role gives", cli.CountOf(len(wide), "user"))
	}
	f.Details = append(powerful, wide...)
	return f
}

// wider says what a user may do that it should not; empty: nothing.
func (known knownUsers) wider(account string, u embedded.ConfUser, now time.Time) string {
	if known == nil {
		role, more, _ := access.Guess(account, u.Permissions)
		if len(more) == 0 {
			return ""
		}
		return fmt.Sprintf("more than role %s: %s", role.Role, strings.Join(more, ", "))
	}
	is, found := known[u.Key]
	switch {
	case !found:
		return "it is not in the file of users"
	case is.Account() != account:
		return fmt.Sprintf("role %s belongs to account %s", is.Role, is.Account())
	case is.Expired(now):
		return "it has expired at " + is.Expires.UTC().Format(time.RFC3339)
	}
	if more := u.Permissions.Wider(is.Permissions()); len(more) > 0 {
		return fmt.Sprintf("more than role %s: %s", is.Role, strings.Join(more, ", "))
	}
	return ""
}

// placeholders are parts of passwords that no one has chosen.
var placeholders = regexp.MustCompile(`(?i)change|replace|placeholder|example|password|secret|` +
	`s3cr3t|s3cret|todo|xxx|admin|1234|^<.*>$`)

// hashes are how servers know that a password is a hash.
var hashes = regexp.MustCompile(`^\$2[abxy]\$\d{2}\$`)

// judgePasswords finds users with a password: those of the table have keys, of which the file has
// the public half only.
func judgePasswords(conf embedded.Conf, all []account) Finding {
	const check = "passwords"
	var plain, guessed []string
	for _, a := range all {
		for _, u := range a.Users {
			mapped := conf.Mapped && u.Password == "" // its certificate says who it is
			switch {
			case u.Key != "" || mapped || hashes.MatchString(u.Password):
			case placeholders.MatchString(u.Password) || u.Password == "" ||
				strings.EqualFold(u.Password, u.Name) || strings.EqualFold(u.Password, a.Name):
				what := a.named(u) + ": a placeholder"
				if a.as == access.SystemAccount {
					what += ", and it sees and steers all servers"
				}
				guessed = append(guessed, what)
			default:
				plain = append(plain, a.named(u))
			}
		}
	}
	const next = "give them keys instead: sagenbaum user add --file users, then user export " +
		"--file users; the file has the public half only (docs/guide/tenants.md)"
	f := ok(check, "no user has a password in plain text")
	switch {
	case len(guessed) > 0:
		f = broken(check, next, "%s with a password that is a placeholder, %s with another in plain text",
			cli.CountOf(len(guessed), "user"), cli.CountOf(len(plain), "user"))
	case len(plain) > 0:
		f = warn(check, next, "%s with a password in plain text", cli.CountOf(len(plain), "user"))
	}
	f.Details = append(guessed, plain...)
	return f
}

// judgeResponses finds allow_responses: whoever has it may publish to any subject that a message to
// itself names as its reply.
func judgeResponses(all []account) Finding {
	const check = "responses"
	var clients []string
	for _, a := range all {
		for _, u := range a.Users {
			if u.Responses && a.client() {
				clients = append(clients, a.named(u))
			}
		}
	}
	if len(clients) == 0 {
		return ok(check, "no client has allow_responses")
	}
	f := broken(check, "take allow_responses out, the table names the subjects of "+
		"replies: "+exportNext,
		"%s may publish to any subject by allow_responses", cli.CountOf(len(clients), "client"))
	f.Details = clients
	return f
}

// judgeStreams finds accounts of clients that have JetStream.
func judgeStreams(all []account) Finding {
	const check = "jetstream"
	var names []string
	for _, a := range all {
		if a.JetStream && a.client() {
			names = append(names, a.Name)
		}
	}
	if len(names) > 0 {
		return broken(check, "take jetstream out of them, and reload the servers; streams of "+
			"yours belong into an account of their own", "accounts of clients have "+
			"JetStream: %s", strings.Join(names, ", "))
	}
	return ok(check, "accounts of clients have no JetStream")
}

// judgeImports finds what accounts of the table take beyond it, what others take from them, and
// what passes from one name to another: what a user may publish is decided by the first.
func judgeImports(all []account) Finding {
	const check = "imports"
	as := map[string]string{}
	for _, a := range all {
		as[a.Name] = a.as
	}
	var more []string
	for _, a := range all {
		if ours(a.as) {
			for _, m := range a.Mappings {
				more = append(more, a.Name+": mapping of "+m)
			}
		}
		table := a.takes()
		for _, i := range a.Imports {
			kind, takes := "service ", access.Permissions{Publish: []string{i.Subject}}
			if i.Stream {
				kind, takes = "stream ", access.Permissions{Subscribe: []string{i.Subject}}
			}
			told := a.Name + ": " + kind + i.Subject + " of " + i.From
			switch {
			case !ours(a.as) && !ours(as[i.From]): // between applications
			case i.From != access.HubAccount || len(takes.Wider(table)) > 0:
				more = append(more, told)
			case i.To != i.Subject:
				more = append(more, told+", as "+i.To)
			}
		}
	}
	if len(more) == 0 {
		return ok(check, "no account imports more than the table has")
	}
	f := broken(check, exportNext, "%s more than the table has", cli.CountOf(len(more), "import"))
	f.Details = more
	return f
}

// takes are the subjects that the table has an account take from the hub.
func (a account) takes() (table access.Permissions) {
	if !a.client() {
		return table
	}
	tenant := strings.TrimPrefix(a.as, access.TenantAccount(""))
	if a.as == access.OperatorsAccount {
		tenant = access.AllTenants
	}
	for _, s := range access.Imports(tenant) {
		if s.Stream {
			table.Subscribe = append(table.Subscribe, s.Subject)
		} else {
			table.Publish = append(table.Publish, s.Subject)
		}
	}
	return table
}
