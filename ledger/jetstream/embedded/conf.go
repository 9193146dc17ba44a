package embedded

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/conf"
	natsd "github.com/nats-io/nats-server/v2/server"

	"github.com/sagenbaum/sagenbaum/ledger/access"
)

// Conf is what the configuration of a NATS server says of accounts and users.
type Conf struct {
	Operator  bool   // accounts are in JWTs, and not in the file
	System    string // the account of the servers; empty: none is named
	Anonymous string // the user that connections without credentials become; empty: none
	Accounts  []ConfAccount
}

// ConfAccount is an account of a configuration. GlobalAccount has those who are in none.
type ConfAccount struct {
	Name      string
	JetStream bool
	Imports   []ConfImport
	Users     []ConfUser
}

// ConfImport is a subject that an account takes from another.
type ConfImport struct {
	From, Subject string
	Stream        bool
}

// ConfUser is a user of an account. A list of permissions is [">"] where it allows everything.
type ConfUser struct {
	Key, Name, Password string // Key, or the others
	access.Permissions
	Responses bool // it may publish to whatever reply subject it is sent
}

// GlobalAccount is the account of users that are in no other.
const GlobalAccount = "$G"

// places are where an error is in the text that is made of a configuration.
var places = regexp.MustCompile(`(?m)^:1:\d+: `)

// ReadConf reads the accounts and users of a nats.conf, with what it includes. Nothing else of it
// is looked at, so no other file that it names must be there.
func ReadConf(file string) (c Conf, err error) {
	all, err := conf.ParseFile(file)
	if err != nil {
		return c, err
	}
	part := map[string]any{}
	for key, value := range all {
		switch low := strings.ToLower(key); low {
		case "accounts", "authorization", "system_account", "system", "no_auth_user":
			part[low] = value
		case "operator", "operators", "roots", "root", "trusted", "trusted_keys":
			c.Operator = true
		}
	}
	if len(part) == 0 {
		return c, nil
	}
	var text bytes.Buffer // JSON is a configuration, too
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(part); err != nil {
		return c, fmt.Errorf("cannot read the accounts: %w", err)
	}
	var options natsd.Options
	if err := options.ProcessConfigString(text.String()); err != nil {
		return c, errors.New(places.ReplaceAllString(err.Error(), ""))
	}
	c.System, c.Anonymous = options.SystemAccount, options.NoAuthUser
	of := map[string]int{}
	add := func(a ConfAccount) {
		of[a.Name] = len(c.Accounts)
		c.Accounts = append(c.Accounts, a)
	}
	add(ConfAccount{Name: GlobalAccount})
	accounts, _ := part["accounts"].(map[string]any)
	for _, a := range options.Accounts {
		raw, _ := accounts[a.GetName()].(map[string]any)
		add(ConfAccount{Name: a.GetName(), JetStream: streams(raw), Imports: imports(raw)})
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
	slices.SortFunc(c.Accounts, func(a, b ConfAccount) int { return strings.Compare(a.Name, b.Name) })
	return c, nil
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
// beside it can only make it shorter.
func allowed(p *natsd.SubjectPermission) []string {
	switch {
	case p == nil:
		return []string{">"}
	case p.Allow != nil:
		return slices.Clone(p.Allow)
	case slices.Contains(p.Deny, ">"):
		return nil
	}
	return []string{">"}
}

// streams reports whether an account has JetStream.
func streams(account map[string]any) bool {
	switch v := valueOf(account, "jetstream").(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return !strings.HasPrefix(strings.ToLower(v), "disable")
	}
	return true
}

func imports(account map[string]any) (all []ConfImport) {
	list, _ := valueOf(account, "imports").([]any)
	for _, one := range list {
		entry, _ := one.(map[string]any)
		for _, kind := range []string{"service", "stream"} {
			from, _ := valueOf(entry, kind).(map[string]any)
			name, _ := valueOf(from, "account").(string)
			subject, _ := valueOf(from, "subject").(string)
			if from != nil {
				all = append(all, ConfImport{From: name, Subject: subject, Stream: kind == "stream"})
			}
		}
	}
	return all
}

// valueOf is what a block has for a key, in whatever case it is written.
func valueOf(block map[string]any, key string) any {
	for name, value := range block {
		if strings.EqualFold(name, key) {
			return value
		}
	}
	return nil
}
