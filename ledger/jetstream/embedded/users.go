package embedded

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
)

// gate lets users in: it is asked about each connection of a server with users. A user shows
// its key by a signature of the server's nonce; what it may do is taken from the directory at
// that moment, never from what it brings.
type gate struct {
	users *access.Directory
	log   *slog.Logger
	// The holder's own way in, in process; made again at each start.
	user, password string
	tenant         string // of users of all tenants that name none
	connections    func(tenant string) uint64
	erased         func(tenant string) bool

	natsd *natsd.Server
	// mu is held while a user is let in, so that sweep sees all who are in or none of them.
	mu       sync.Mutex
	admitted map[string]access.User // by key; what they were when the first of them came in
	refused  map[string]bool        // by key; over the limit, and the log was told
	stop     chan struct{}          // closed: sweep ends
	ended    chan struct{}          // closed when sweep has ended
}

func newGate(cfg Config) *gate {
	return &gate{users: cfg.Users, log: cfg.Logger, user: "sagenbaum-" + rand.Text(),
		password: rand.Text(), tenant: cfg.Tenant, connections: cfg.Connections, erased: cfg.Erased,
		admitted: map[string]access.User{}, refused: map[string]bool{},
		stop: make(chan struct{}), ended: make(chan struct{})}
}

// Check implements natsd.Authentication.
func (g *gate) Check(c natsd.ClientAuthentication) bool {
	opts := c.GetOpts()
	if c.Kind() != natsd.CLIENT {
		return false
	}
	if opts.Nkey == "" {
		if tenant, ok := strings.CutPrefix(opts.Username, g.user+"."); ok &&
			opts.Password == g.password && ledger.ValidToken(tenant) {
			return g.admitDoor(c, tenant)
		}
		if opts.Username != g.user || opts.Password != g.password {
			return false
		}
		c.RegisterUser(&natsd.User{Username: hostName, Account: g.natsd.GlobalAccount()})
		return true
	}
	key := signer(opts, c.GetNonce())
	g.mu.Lock()
	defer g.mu.Unlock()
	u, ok := g.users.OfKey(key)
	if !ok || u.Expired(time.Now()) || g.isErased(u.Tenant) {
		return false
	}
	account, err := g.open(g.account(u, opts.Username))
	if err != nil {
		g.log.Error("cannot make an account", "user", u.ID(), "error", err)
		return false
	}
	if why := g.turnsAway(u, account); why != "" {
		g.refuse(c, u, why)
		return false
	}
	delete(g.refused, u.Key)
	if _, in := g.admitted[u.Key]; !in { // otherwise sweep still has to look at those who are in
		g.admitted[u.Key] = u
	}
	g.users.NoteUse(u.Key, time.Now())
	p := u.Permissions()
	c.RegisterUser(&natsd.User{
		Username: u.ID(), Account: account, ConnectionDeadline: u.Expires,
		Permissions: &natsd.Permissions{
			Publish:   &natsd.SubjectPermission{Allow: p.Publish},
			Subscribe: &natsd.SubjectPermission{Allow: p.Subscribe},
		},
	})
	return true
}

// doorName is how the door of the process is named in its tenants: no user can be.
const doorName = "$door"

// admitDoor lets the door of the process into a tenant's account.
func (g *gate) admitDoor(c natsd.ClientAuthentication, tenant string) bool {
	u := access.User{Name: doorName, Role: access.Door, Tenant: tenant}
	g.mu.Lock()
	defer g.mu.Unlock()
	account, err := g.open(u.Account())
	if err != nil {
		g.log.Error("cannot make an account", "user", u.ID(), "error", err)
		return false
	}
	p := u.Permissions()
	c.RegisterUser(&natsd.User{Username: u.ID(), Account: account,
		Permissions: &natsd.Permissions{
			Publish:   &natsd.SubjectPermission{Allow: p.Publish},
			Subscribe: &natsd.SubjectPermission{Allow: p.Subscribe},
		}})
	return true
}

// turnsAway says why an agent or a source may not connect now; empty: it may. Whoever undoes,
// looks or answers always may. g.mu is held.
func (g *gate) turnsAway(u access.User, account *natsd.Account) string {
	if g.connections == nil || !counts(u) {
		return ""
	}
	most := g.connections(u.Tenant)
	if most == 0 || uint64(account.NumLocalConnections()) < most { // all together are fewer
		return ""
	}
	all, err := g.natsd.Connz(&natsd.ConnzOptions{Username: true, Account: account.GetName(),
		Limit: connectionsMax})
	if err != nil {
		return "its tenant's connections cannot be counted: " + err.Error()
	}
	has := uint64(0)
	for _, c := range all.Conns {
		if other, ok := g.users.OfKey(c.AuthorizedUser); ok && counts(other) {
			has++
		}
	}
	if has < most {
		return ""
	}
	return fmt.Sprintf("its tenant has %d of %d connections", has, most)
}

// refuse tells a client that is over the limit so, and the log once, until its user is let in: it
// tries again and again. g.mu is held.
func (g *gate) refuse(c natsd.ClientAuthentication, u access.User, why string) {
	if !g.refused[u.Key] {
		g.refused[u.Key] = true
		g.log.Warn("a connection is refused", "user", u.ID(), "why", why,
			"next", "sagenbaum tenant limits "+u.Tenant+" --connections N")
	}
	full, err := g.full()
	if err != nil {
		g.log.Error("cannot make an account", "user", u.ID(), "error", err)
		return
	}
	c.RegisterUser(&natsd.User{Username: u.ID(), Account: full})
}

// fullAccount is an account that takes no connection. Whoever is put into it is told that there are
// too many, by the server itself, and not that its credentials are wrong.
const fullAccount = "FULL"

func (g *gate) full() (*natsd.Account, error) {
	if account, err := g.natsd.LookupAccount(fullAccount); err == nil {
		return account, nil
	}
	return g.limited(fullAccount, func(l *jwt.OperatorLimits) { l.Conn = 0 })
}

// subscriptionsMax is how many subscriptions a connection of a tenant may have. An agent has a few,
// and a worker one for each capability. Hosts, which have some for each tenant, are in the hub.
const subscriptionsMax = 10_000

// limited makes an account with limits, before anything is imported into it.
func (g *gate) limited(name string, set func(*jwt.OperatorLimits)) (*natsd.Account, error) {
	account, err := g.natsd.RegisterAccount(name)
	if err != nil {
		return nil, err
	}
	claims := jwt.NewAccountClaims(name)
	set(&claims.Limits)
	g.natsd.UpdateAccountClaims(account, claims)
	return account, nil
}

// counts reports whether the connections of a user are limited. An agent whose functions are
// replayed undoes.
func counts(u access.User) bool {
	return u.Role == access.Agent && !u.Run || u.Role == access.Source
}

// hostName is how the server lists the connection of the process itself.
const hostName = "sagenbaum"

// account is the one that a user gets into. The local user is in the account of the tenant
// that it names, so that it meets that tenant's agents and workers there.
func (g *gate) account(u access.User, named string) string {
	switch {
	case u.Role != access.Local:
		return u.Account()
	case named == access.AllTenants, ledger.ValidToken(named):
		return access.TenantAccount(named)
	default:
		return access.TenantAccount(g.tenant)
	}
}

// signer is the key that has signed the nonce; empty: none has.
func signer(opts *natsd.ClientOpts, nonce []byte) string {
	sig, err := base64.RawURLEncoding.DecodeString(opts.Sig)
	if err != nil { // some clients pad it
		if sig, err = base64.StdEncoding.DecodeString(opts.Sig); err != nil {
			return ""
		}
	}
	public, err := nkeys.FromPublicKey(opts.Nkey)
	if err != nil || len(nonce) == 0 || public.Verify(nonce, sig) != nil {
		return ""
	}
	return opts.Nkey
}

// open finds the account of a name, or makes it with what it takes from the hub. g.mu is held.
func (g *gate) open(name string) (*natsd.Account, error) {
	server := g.natsd
	hub := server.GlobalAccount()
	switch name {
	case access.HubAccount:
		return hub, nil
	case access.SystemAccount, access.CalloutAccount:
		return nil, errors.New("the embedded server's own account is for itself")
	}
	if account, err := server.LookupAccount(name); err == nil {
		return account, nil
	}
	account, err := g.limited(name, func(l *jwt.OperatorLimits) { l.Subs = subscriptionsMax })
	if err != nil {
		return nil, err
	}
	tenant, ok := strings.CutPrefix(name, access.TenantAccount(""))
	if !ok {
		tenant = access.AllTenants
	}
	for _, s := range access.Imports(tenant) {
		if s.Stream {
			// The hub asks who would get a message (executor/actuators), and may be told.
			err = account.AddStreamImportWithClaim(hub, s.Subject, "", &jwt.Import{AllowTrace: true})
		} else {
			err = account.AddServiceImport(hub, s.Subject, s.Subject)
			if err == nil && s.Who {
				err = account.SetServiceImportSharing(hub, s.Subject, true)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("cannot import %s: %w", s.Subject, err)
		}
	}
	return account, nil
}

// export lets other accounts import what the hosts serve.
func export(hub *natsd.Account) error {
	for _, s := range access.Exports() {
		if s.Stream {
			if err := hub.AddStreamExport(s.Subject, nil); err != nil {
				return fmt.Errorf("cannot export %s: %w", s.Subject, err)
			}
			continue
		}
		kind := natsd.Singleton
		if s.Many {
			kind = natsd.Streamed
		}
		if err := hub.AddServiceExportWithResponse(s.Subject, kind, nil); err != nil {
			return fmt.Errorf("cannot export %s: %w", s.Subject, err)
		}
		if err := hub.SetServiceExportResponseThreshold(s.Subject, s.Within); err != nil {
			return fmt.Errorf("cannot export %s: %w", s.Subject, err)
		}
	}
	return nil
}

// SweepEvery is how often connections are compared with the directory of users. Who is no longer
// one is disconnected within a second (docs/security.md).
const SweepEvery = 300 * time.Millisecond

// sweep closes the connections of users that are not what they were when they came in, until
// stop is closed: what was removed, or has another key or other rights.
func (g *gate) sweep() {
	defer close(g.ended)
	said := "" // what was wrong with the file of users when the log was told; empty: nothing is
	noted := time.Now()
	for {
		select {
		case <-g.stop:
			g.noteUses(time.Time{})
			return
		case <-time.After(SweepEvery):
		}
		said = g.refresh(said)
		g.compare()
		if now := time.Now(); now.Sub(noted) >= usesEvery {
			noted = now
			g.noteUses(now)
		}
	}
}

// usesEvery is how often it is kept who has used a connection.
const usesEvery = time.Minute

// noteUses keeps when each user who is connected was last heard, and writes it with what else was
// noted. A connection that only answers the server's pings is not used. now is zero at the end.
func (g *gate) noteUses(now time.Time) {
	g.mu.Lock()
	anyone := len(g.admitted) > 0
	g.mu.Unlock()
	if anyone {
		all, err := g.natsd.Connz(&natsd.ConnzOptions{Username: true, Limit: connectionsMax})
		if err != nil {
			g.log.Warn("cannot find who is connected", "error", err)
			return
		}
		for _, c := range all.Conns {
			g.users.NoteUse(c.AuthorizedUser, c.LastActivity)
		}
	}
	if err := g.users.SaveUses(now); err != nil {
		g.log.Warn("cannot keep when users were last seen", "error", err)
	}
}

// refresh reads the file of users again. What is wrong with it is logged once, until that is
// another thing; said is what was, and it returns what is.
func (g *gate) refresh(said string) string {
	_, err := g.users.Refresh()
	switch {
	case err == nil && said != "":
		g.log.Info("the file of users can be read again")
	case err == nil:
	case err.Error() != said:
		g.log.Error("the users stay what they were: their file cannot be read", "error", err)
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

func (g *gate) isErased(tenant string) bool { return g.erased != nil && g.erased(tenant) }

// compare closes the connections of those who are not what they were, or whose tenant is gone.
func (g *gate) compare() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, was := range g.admitted {
		if is, ok := g.users.OfKey(key); !ok || !same(was, is) || g.isErased(was.Tenant) {
			g.disconnect(was)
			delete(g.admitted, key)
		}
	}
}

func same(a, b access.User) bool {
	return a.ID() == b.ID() && a.Role == b.Role && a.Run == b.Run && a.Reveal == b.Reveal &&
		a.Provision == b.Provision && a.Expires.Equal(b.Expires) &&
		strings.Join(a.Capabilities, " ") == strings.Join(b.Capabilities, " ")
}

// connectionsMax bounds one answer about connections.
const connectionsMax = 1 << 20

// disconnect closes all connections of a user's key, by which the server knows it.
func (g *gate) disconnect(u access.User) {
	server := g.natsd
	all, err := server.Connz(&natsd.ConnzOptions{Username: true, User: u.Key, Limit: connectionsMax})
	if err != nil {
		g.log.Error("cannot find the connections of a user", "user", u.ID(), "error", err)
		return
	}
	for _, c := range all.Conns {
		if err := server.DisconnectClientByID(c.Cid); err == nil {
			g.log.Info("closed a connection of a user that was changed or removed", "user", u.ID())
		}
	}
}
