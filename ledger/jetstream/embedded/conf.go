package embedded

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/conf"
	natsd "github.com/nats-io/nats-server/v2/server"

	"github.com/sagenbaum/sagenbaum/ledger/access"
)

// Conf is what the configuration of a NATS server says of accounts and users.
type Conf struct {
	Operator bool   // accounts are in JWTs, and not in the file
	System   string // the account of the servers
	// Anonymous are the users that connections without credentials become, on any port.
	Anonymous []string
	// Callout is the account that decides about connections without a key of a user; empty: none.
	Callout  string
	Mapped   bool // client certificates say who a user is
	Accounts []ConfAccount
}

// ConfAccount is an account of a configuration. GlobalAccount has those who are in none.
type ConfAccount struct {
	Name      string
	JetStream bool
	Imports   []ConfImport
	Mappings  []string // subjects that become others when they are published
	Leaves    []string // where leaf nodes are let into all of it, or it joins a remote server
	Users     []ConfUser
}

// ConfImport is a subject that an account takes from another, and its name there.
type ConfImport struct {
	From, Subject, To string
	Stream            bool
}

// ConfUser is a user of an account. A list of permissions is [">"] where it allows everything.
type ConfUser struct {
	Key, Name, Password string // Key, or the others
	access.Permissions
	Responses bool // it may publish to whatever reply subject it is sent
}

// GlobalAccount is the account of users that are in no other.
const GlobalAccount = "$G"

// ReadConf reads the accounts and users of a nats.conf, with what it includes. Nothing else of it
// is looked at, so no other file that it names must be there.
func ReadConf(file string) (c Conf, err error) {
	parsed, err := conf.ParseFileWithChecks(file)
	if err != nil {
		return c, err
	}
	part, rest := map[string]any{}, map[string]any{}
	for key, value := range parsed {
		switch low := strings.ToLower(key); low {
		case "accounts", "authorization", "system_account", "system", "no_auth_user":
			part[key] = plain(value, low == "accounts")
		case "operator", "operators", "roots", "root", "root_operators", "root_operator", "trusted",
			"trusted_keys":
			c.Operator = true
		case "tls", "websocket", "ws", "mqtt", "leaf", "leafnodes":
			rest[key] = plain(value, false)
		}
	}
	options, err := optionsOf(part)
	if err != nil {
		return c, err
	}
	c.System = options.SystemAccount
	if c.System == "" {
		c.System = natsd.DEFAULT_SYSTEM_ACCOUNT
	}
	if options.AuthCallout != nil {
		c.Callout = options.AuthCallout.Account
	}
	c.otherWays(options.NoAuthUser, rest)
	c.accounts(options, part, rest)
	return c, nil
}

// places are where an error is in the text that is made of a configuration.
var places = regexp.MustCompile(`(?m)^:1:\d+: `)

// optionsOf is what the server makes of a part of a configuration.
func optionsOf(part map[string]any) (o natsd.Options, err error) {
	if len(part) == 0 {
		return o, nil
	}
	var text bytes.Buffer // JSON is a configuration, too
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(part); err != nil {
		return o, fmt.Errorf("cannot read the accounts: %w", err)
	}
	err = o.ProcessConfigString(text.String())
	if all, ok := err.(interface{ Errors() []error }); ok && len(all.Errors()) == 0 {
		err = nil // of what it only warns of, a server starts
	}
	if err != nil {
		return o, errors.New(places.ReplaceAllString(err.Error(), ""))
	}
	return o, nil
}

// fields are what a block may have that may be used as a variable, too.
var fields = []string{"user", "username", "pass", "password", "nkey", "token", "account", "subject",
	"users", "jetstream", "imports", "exports", "mappings", "maps", "default_permissions",
	"permissions", "permission", "publish", "subscribe", "pub", "sub", "allow", "deny"}

// plain is a value without its places in the file, and without the variables that blocks in it
// define and use. Where the names of a block are free, all that was used is a variable.
func plain(value any, free bool) any {
	if at, ok := value.(interface{ Value() any }); ok {
		value = at.Value()
	}
	switch v := value.(type) {
	case map[string]any:
		block := map[string]any{}
		for name, field := range v {
			used, ok := field.(interface{ IsUsedVariable() bool })
			if ok && used.IsUsedVariable() && (free || !slices.Contains(fields, strings.ToLower(name))) {
				continue
			}
			block[name] = plain(field, false)
		}
		return block
	case []any:
		list := make([]any, len(v))
		for i, one := range v {
			list[i] = plain(one, false)
		}
		return list
	}
	return value
}

// otherWays finds who gets in without credentials, and whether certificates say who one is.
func (c *Conf) otherWays(anonymous string, rest map[string]any) {
	users := []string{anonymous}
	for _, block := range blocks(rest, "websocket|ws|mqtt") {
		users = append(users, texts(block, "no_auth_user")...)
	}
	slices.Sort(users)
	c.Anonymous = slices.DeleteFunc(slices.Compact(users), func(u string) bool { return u == "" })
	for _, block := range blocks(rest, "tls") {
		c.Mapped = c.Mapped || slices.Contains(values(block, "verify_and_map"), any(true))
	}
}

// accounts reads all of them, and who is in which.
func (c *Conf) accounts(options natsd.Options, part, rest map[string]any) {
	c.Accounts = []ConfAccount{{Name: GlobalAccount}}
	of := map[string]int{GlobalAccount: 0}
	for _, a := range options.Accounts {
		account := ConfAccount{Name: a.GetName()}
		for _, all := range blocks(part, "accounts") {
			raw, _ := all[account.Name].(map[string]any)
			account.read(raw)
		}
		of[account.Name] = len(c.Accounts)
		c.Accounts = append(c.Accounts, account)
	}
	user := func(a *natsd.Account, u ConfUser, p *natsd.Permissions) {
		i := 0
		if a != nil {
			i = of[a.GetName()]
		}
		u.Permissions, u.Responses = permissions(p), p != nil && p.Response != nil
		c.Accounts[i].Users = append(c.Accounts[i].Users, u)
	}
	for _, u := range options.Nkeys {
		user(u.Account, ConfUser{Key: u.Nkey}, u.Permissions)
	}
	for _, u := range options.Users {
		user(u.Account, ConfUser{Name: u.Username, Password: u.Password}, u.Permissions)
	}
	if options.Username != "" || options.Authorization != "" {
		user(nil, ConfUser{Name: options.Username,
			Password: options.Password + options.Authorization}, nil)
	}
	for _, path := range [][]string{{"authorization"}, {"authorization", "users"}, {"remotes"}} {
		for _, block := range blocks(rest, append([]string{"leaf|leafnodes"}, path...)...) {
			for _, name := range texts(block, "account|local") {
				if i, ok := of[name]; ok {
					c.Accounts[i].Leaves = append(c.Accounts[i].Leaves, "leafnodes."+strings.Join(path, "."))
				}
			}
		}
	}
	slices.SortFunc(c.Accounts, func(a, b ConfAccount) int { return strings.Compare(a.Name, b.Name) })
}

func permissions(p *natsd.Permissions) access.Permissions {
	if p == nil {
		p = new(natsd.Permissions)
	}
	q := access.Permissions{Publish: allowed(p.Publish), Subscribe: allowed(p.Subscribe)}
	if p.Response != nil && (p.Publish == nil || p.Publish.Allow == nil) {
		q.Publish = nil // then it publishes replies only
	}
	return q
}

// allowed is a list of permissions. To a server, an empty one allows everything. What is denied
// all of is not in it; what is denied a part of is.
func allowed(p *natsd.SubjectPermission) []string {
	if p == nil {
		return []string{">"}
	}
	list, denied := slices.Clone(p.Allow), access.Permissions{Subscribe: p.Deny}
	if p.Allow == nil {
		list = []string{">"}
	}
	return slices.DeleteFunc(list, func(s string) bool {
		return len(access.Permissions{Subscribe: []string{s}}.Wider(denied)) == 0
	})
}

// read reads what is in the block of an account, beside its users.
func (a *ConfAccount) read(block map[string]any) {
	for _, v := range values(block, "jetstream") {
		switch v := v.(type) {
		case bool:
			a.JetStream = a.JetStream || v
		case string:
			a.JetStream = a.JetStream || !strings.HasPrefix(strings.ToLower(v), "disable")
		default:
			a.JetStream = true
		}
	}
	for _, mapping := range blocks(block, "mappings|maps") {
		a.Mappings = slices.AppendSeq(a.Mappings, maps.Keys(mapping))
	}
	slices.Sort(a.Mappings)
	for _, entry := range blocks(block, "imports") {
		for _, kind := range []string{"service", "stream"} {
			for _, from := range blocks(entry, kind) {
				i := ConfImport{From: first(from, "account"), Subject: first(from, "subject"),
					To: first(entry, "to"), Stream: kind == "stream"}
				if prefix := first(entry, "prefix"); prefix != "" && i.Stream {
					i.To = strings.TrimSuffix(prefix, ".") + "." + i.Subject
				}
				if i.To == "" {
					i.To = i.Subject
				}
				a.Imports = append(a.Imports, i)
			}
		}
	}
}

// values are what a block has under names, as in leaf|leafnodes, in whatever case they are written.
func values(block map[string]any, names string) (all []any) {
	for _, key := range slices.Sorted(maps.Keys(block)) {
		if slices.Contains(strings.Split(names, "|"), strings.ToLower(key)) {
			all = append(all, block[key])
		}
	}
	return all
}

// blocks are those at a path of names in a block: where there is a list, all of it.
func blocks(block map[string]any, path ...string) (all []map[string]any) {
	if len(path) == 0 {
		return []map[string]any{block}
	}
	for _, v := range values(block, path[0]) {
		list, ok := v.([]any)
		if !ok {
			list = []any{v}
		}
		for _, one := range list {
			if inner, ok := one.(map[string]any); ok {
				all = append(all, blocks(inner, path[1:]...)...)
			}
		}
	}
	return all
}

// texts are the values of a block under names that are texts.
func texts(block map[string]any, names string) (all []string) {
	for _, v := range values(block, names) {
		if text, ok := v.(string); ok {
			all = append(all, text)
		}
	}
	return all
}

func first(block map[string]any, name string) string {
	for _, text := range texts(block, name) {
		return text
	}
	return ""
}
