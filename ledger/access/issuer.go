package access

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Issuer writes the table as JWTs, for servers in operator mode: an account for each tenant
// with limits of its own, and in it one signing key for each role. Whoever has such a key makes
// users of that role without asking anybody, and never more than the role. It is a folder:
//
//	keys/*.nk          seeds: the operator's, each account's, and TENANT.ROLE.nk
//	operator.jwt
//	jwt/ACCOUNT.jwt    for the servers' resolver
//	resolver.conf      to be included in nats.conf
//
// Keys that are there are kept: write again after a change.
type Issuer struct{ dir string }

// OpenIssuer returns the operator in a folder. It writes nothing.
func OpenIssuer(dir string) *Issuer { return &Issuer{dir: dir} }

// Limits bound the account of a tenant on all servers; a field of 0 is no limit.
type Limits struct {
	Connections   int64 // at a time
	Subscriptions int64 // at a time
	Payload       int64 // bytes of one message
}

// Check refuses negative limits: a *ledger.Refused.
func (l Limits) Check() error {
	for field, n := range map[string]int64{"connections": l.Connections,
		"subscriptions": l.Subscriptions, "payload": l.Payload} {
		if n < 0 {
			return ledger.Refuse("limits."+field, "negative", "a number of at least 1, or 0 for none")
		}
	}
	return nil
}

func limit(n int64) int64 {
	if n == 0 {
		return jwt.NoLimit
	}
	return n
}

// scopes are the roles of an account that have a signing key, as users whose name and
// capabilities the server fills in from the JWT.
func scopes(tenant string) map[string]User {
	const name, capability = "{{name()}}", "{{tag(capability)}}"
	all := map[string]User{
		"agent":           {Role: Agent, Capabilities: []string{capability}},
		"agent-run":       {Role: Agent, Capabilities: []string{capability}, Run: true},
		"source":          {Role: Source},
		"supervisor":      {Role: Supervisor},
		"auditor":         {Role: Auditor},
		"operator":        {Role: Operator},
		"operator-reveal": {Role: Operator, Reveal: true},
		"pager":           {Role: Pager},
	}
	if tenant == AllTenants {
		all = map[string]User{"auditor": all["auditor"], "operator": all["operator"],
			"operator-reveal": all["operator-reveal"]}
	}
	for key, u := range all {
		u.Name, u.Tenant = name, tenant
		all[key] = u
	}
	return all
}

// hubScopes are those of the hub.
func hubScopes() map[string]User {
	return map[string]User{
		"host":           {Name: "{{name()}}", Tenant: AllTenants, Role: Host},
		"host-provision": {Name: "{{name()}}", Tenant: AllTenants, Role: Host, Provision: true},
		"provisioner":    {Name: "{{name()}}", Tenant: AllTenants, Role: Provisioner},
	}
}

// scope is the signing key for a user.
func (u User) scope() string {
	switch {
	case u.Run:
		return string(u.Role) + "-run"
	case u.Reveal:
		return string(u.Role) + "-reveal"
	case u.Provision:
		return string(u.Role) + "-provision"
	}
	return string(u.Role)
}

// Write makes or renews everything for these tenants. Users that are not in users any more, or
// have another key, but were issued before, are revoked.
func (o *Issuer) Write(tenants []string, users []User, limits Limits) error {
	if err := errors.Join(limits.Check(), Configuration{Tenants: tenants}.check()); err != nil {
		return err
	}
	operator, err := o.key("operator", nkeys.CreateOperator)
	if err != nil {
		return err
	}
	operatorKey, err := operator.PublicKey()
	if err != nil {
		return fmt.Errorf("cannot use the operator's key: %w", err)
	}
	claims := jwt.NewOperatorClaims(operatorKey)
	claims.Name = "sagenbaum"
	system, err := o.open(SystemAccount)
	if err != nil {
		return err
	}
	claims.SystemAccount = system.Subject
	hub, err := o.open(HubAccount)
	ask := map[string]User{"system": {Name: "{{name()}}", Tenant: AllTenants, Role: System}}
	if err = errors.Join(err, o.account(operator, system, ask, users)); err != nil {
		return err
	}
	hub.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: jwt.NoLimit,
		DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit}
	for _, s := range Exports() {
		hub.Exports.Add(exported(s))
	}
	if err := o.account(operator, hub, hubScopes(), users); err != nil {
		return err
	}
	for _, tenant := range slices.Concat([]string{AllTenants}, tenants) {
		account, err := o.open(TenantAccount(tenant))
		if err != nil {
			return err
		}
		account.Limits.Conn = limit(limits.Connections)
		account.Limits.Subs = limit(limits.Subscriptions)
		account.Limits.Payload = limit(limits.Payload)
		for _, s := range Imports(tenant) {
			account.Imports.Add(imported(s, hub.Subject))
		}
		if err := o.account(operator, account, scopes(tenant), users); err != nil {
			return err
		}
	}
	token, err := claims.Encode(operator)
	if err != nil {
		return fmt.Errorf("cannot encode the operator: %w", err)
	}
	if err := o.keep("operator.jwt", token); err != nil {
		return err
	}
	return o.keep("resolver.conf", fmt.Sprintf("# Include this file in nats.conf.\n"+
		"operator: %s\nsystem_account: %s\nresolver: { type: full, dir: %s, allow_delete: false }\n",
		token, claims.SystemAccount, strconv.Quote(o.path("jwt"))))
}

func (o *Issuer) path(name string) string {
	path, err := filepath.Abs(filepath.Join(o.dir, name))
	if err != nil {
		return filepath.Join(o.dir, name)
	}
	return path
}

func (o *Issuer) keep(name, text string) error {
	if err := WriteSecret(o.path(name), []byte(text)); err != nil {
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	return nil
}

// key finds a key by its name, or makes it.
func (o *Issuer) key(name string, create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, error) {
	path := o.path(filepath.Join("keys", name+".nk"))
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && create != nil {
		pair, err := create()
		if err != nil {
			return nil, fmt.Errorf("cannot make key %s: %w", name, err)
		}
		seed, err := pair.Seed()
		if err != nil {
			return nil, fmt.Errorf("cannot make key %s: %w", name, err)
		}
		return pair, o.keep(filepath.Join("keys", name+".nk"), string(seed)+"\n")
	}
	seed, err := ReadSecret("operator", path)
	if err != nil {
		return nil, err
	}
	pair, err := nkeys.FromSeed([]byte(strings.TrimSpace(string(seed))))
	if err != nil {
		return nil, ledger.Refuse("operator", fmt.Sprintf("key %s is damaged: %v", name, err),
			"the file as it was written")
	}
	return pair, nil
}

// open begins the claims of an account.
func (o *Issuer) open(name string) (*jwt.AccountClaims, error) {
	pair, err := o.key(name, nkeys.CreateAccount)
	if err != nil {
		return nil, err
	}
	key, err := pair.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("cannot use the key of %s: %w", name, err)
	}
	claims := jwt.NewAccountClaims(key)
	claims.Name = name
	return claims, nil
}

// account signs an account with a key for each of its scopes, and revokes who is no user any
// more.
func (o *Issuer) account(operator nkeys.KeyPair, claims *jwt.AccountClaims, scoped map[string]User,
	users []User) error {
	for role, u := range scoped {
		signing, err := o.key(claims.Name+"."+role, nkeys.CreateAccount)
		if err != nil {
			return err
		}
		scope, p := jwt.NewUserScope(), u.Permissions()
		if scope.Key, err = signing.PublicKey(); err != nil {
			return fmt.Errorf("cannot use the key of %s: %w", claims.Name, err)
		}
		scope.Role = role
		scope.Template.Pub.Allow = p.Publish
		scope.Template.Sub.Allow = p.Subscribe
		claims.SigningKeys.AddScopedSigner(scope)
	}
	if err := o.revoke(claims, users); err != nil {
		return err
	}
	token, err := claims.Encode(operator)
	if err != nil {
		return fmt.Errorf("cannot encode account %s: %w", claims.Name, err)
	}
	return o.keep(filepath.Join("jwt", claims.Subject+".jwt"), token)
}

// issuedFile has the keys that were issued in an account, one per line.
func (o *Issuer) issuedFile(account string) string { return filepath.Join("issued", account) }

func (o *Issuer) revoke(claims *jwt.AccountClaims, users []User) error {
	text, err := os.ReadFile(o.path(o.issuedFile(claims.Name)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot read who was issued: %w", err)
	}
	for _, key := range strings.Fields(string(text)) {
		if !slices.ContainsFunc(users, func(u User) bool { return u.Key == key }) {
			claims.Revoke(key)
		}
	}
	return nil
}

// Issue makes the JWT of a user, which is what a server of this operator takes its rights from.
func (o *Issuer) Issue(u User) (string, error) {
	if err := u.Check(); err != nil {
		return "", err
	}
	for i, c := range u.Capabilities {
		if c != strings.ToLower(c) {
			return "", ledger.Refuse(fmt.Sprintf("capabilities[%d]", i), c+" has capital letters, "+
				"which JWTs do not keep", "a capability in small letters")
		}
	}
	account, err := o.key(u.Account(), nil)
	if err != nil {
		return "", err
	}
	claims, signing := u.Claims(), account
	if u.Role != Worker {
		claims.SetScoped(true)
		if claims.IssuerAccount, err = account.PublicKey(); err != nil {
			return "", fmt.Errorf("cannot use the key of %s: %w", u.Account(), err)
		}
		for _, c := range u.Capabilities {
			claims.Tags.Add("capability:" + c)
		}
		if signing, err = o.key(u.Account()+"."+u.scope(), nil); err != nil {
			return "", err
		}
	}
	token, err := claims.Encode(signing)
	if err != nil {
		return "", fmt.Errorf("cannot encode user %s: %w", u.Name, err)
	}
	file := o.issuedFile(u.Account())
	before, err := os.ReadFile(o.path(file))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("cannot read who was issued: %w", err)
	}
	return token, o.keep(file, string(before)+u.Key+"\n")
}

// Claims are the JWT of the user, before it is signed, with all of its permissions.
func (u User) Claims() *jwt.UserClaims {
	c, p := jwt.NewUserClaims(u.Key), u.Permissions()
	c.Name = u.Name
	if !u.Expires.IsZero() {
		c.Expires = u.Expires.Unix()
	}
	c.Pub.Allow, c.Sub.Allow = p.Publish, p.Subscribe
	return c
}

func exported(s Share) *jwt.Export {
	e := &jwt.Export{Name: s.Subject, Subject: jwt.Subject(s.Subject), Type: jwt.Service}
	switch {
	case s.Stream:
		e.Type = jwt.Stream
	case s.Many:
		e.ResponseType, e.ResponseThreshold = jwt.ResponseTypeStream, s.Within
	default:
		e.ResponseType, e.ResponseThreshold = jwt.ResponseTypeSingleton, s.Within
	}
	return e
}

func imported(s Share, hub string) *jwt.Import {
	i := &jwt.Import{Name: s.Subject, Subject: jwt.Subject(s.Subject), Account: hub, Type: jwt.Service,
		Share: s.Who}
	if s.Stream {
		i.Type = jwt.Stream
	}
	return i
}
