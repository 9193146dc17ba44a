package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/connect"
	"github.com/sagenbaum/sagenbaum/executor/host"
	"github.com/sagenbaum/sagenbaum/executor/host/webclient"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// admitting says who may connect to the embedded server, and by what certificate they know it.
type admitting struct {
	open  bool   // everybody on this machine may do everything
	users string // --users of earlier versions

	directory *access.Directory // nil: open
	local     access.Credentials
	authority *access.Authority // nil: no TLS, or a certificate that was given
	servers   string            // URL for credentials
}

func (a *admitting) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&a.open, "open", false,
		"let everybody on this machine do EVERYTHING without credentials, also agents; it listens "+
			"on loopback only")
	f.StringVar(&a.users, "users", "", "")
	_ = f.MarkHidden("users") // it is there
}

func (a *admitting) check(external bool) error {
	switch {
	case a.users != "":
		return cli.Fail(cli.ExitUsage, "sagenbaum user add NAME --role ROLE, while it serves "+
			"(docs/security.md)", "--users is no more: users have keys and roles")
	case a.open && external:
		return cli.Fail(cli.ExitUsage, "configure the external server itself",
			"--open is for the embedded server, not for --nats")
	}
	return nil
}

// authDir is the folder of users, keys and certificates.
func (v *serving) authDir() string { return filepath.Join(v.data, "auth") }

// localFile has the credentials of the user who runs the server.
func (v *serving) localFile() string { return filepath.Join(v.authDir(), "local.creds") }

// admit finds the users, and makes what is missing: the folder, the local user and its key,
// and certificates where others can reach the server.
func (v *serving) admit(config *embedded.Config, log *slog.Logger) error {
	if v.open {
		log.Warn("--open: everybody on this machine may do EVERYTHING, also agents and whatever " +
			"they start")
		return nil
	}
	if !webclient.OnThisMachine(config.Host) && config.TLSCert == "" {
		if err := v.certify(config); err != nil {
			return err
		}
	}
	var err error
	if v.directory, err = access.OpenDirectory(filepath.Join(v.authDir(), "users")); err != nil {
		return v.explainStart(err)
	}
	if err := v.ensureLocal(); err != nil {
		return err
	}
	config.Users, config.Tenant = v.directory, v.tenants[0]
	return nil
}

// ensureLocal makes the local user, or gives it a new key where its file is gone: whoever may
// write the folder owns the server anyway.
func (v *serving) ensureLocal() error {
	have, err := access.ReadCredentials(v.localFile())
	user, findErr := v.directory.Find(access.AllTenants, access.LocalUser)
	if err == nil && findErr == nil && have.Key() == user.Key {
		v.local = have
		v.local.Door = v.webURL // what it was may be held by another program now
		if have.Token == "" {   // of an earlier version
			v.local.Token, err = have.Sign(time.Time{})
		}
		return err
	}
	if _, statErr := os.Stat(v.localFile()); err != nil && !errors.Is(statErr, fs.ErrNotExist) {
		return cli.Fail(cli.ExitFailed, "chmod 600 "+v.localFile()+", or remove it: a new one is made",
			"cannot serve: %v", err)
	}
	user = access.User{Name: access.LocalUser, Role: access.Local, Tenant: access.AllTenants,
		Created: time.Now().UTC().Truncate(time.Second)}
	if v.local, err = access.NewCredentials(&user); err != nil {
		return err
	}
	// The file first: a user without a file gets a new key at the next start.
	if err := v.writeLocal(); err != nil {
		return err
	}
	return v.directory.Put(user)
}

func (v *serving) writeLocal() error {
	text, err := v.local.Format()
	if err != nil {
		return err
	}
	if now, err := os.ReadFile(v.localFile()); err == nil && bytes.Equal(now, text) {
		return nil
	}
	if err := access.WriteSecret(v.localFile(), text); err != nil {
		return fmt.Errorf("cannot write %s: %w", v.localFile(), err)
	}
	return nil
}

// certify makes an authority and a certificate for the names of this machine.
func (v *serving) certify(config *embedded.Config) (err error) {
	now := time.Now()
	if v.authority, err = access.OpenAuthority(v.authDir(), now); err != nil {
		return err
	}
	config.TLSCert, config.TLSKey, err = v.authority.Certificate("server", hostsOf(config.Host), now)
	return err
}

// hostsOf are the names and addresses under which clients may reach a server that listens on
// an address.
func hostsOf(listen string) []string {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if name, err := os.Hostname(); err == nil && name != "" {
		hosts = append(hosts, name)
	}
	if ip := net.ParseIP(listen); ip == nil || !ip.IsUnspecified() {
		hosts = append(hosts, listen)
	} else if addresses, err := net.InterfaceAddrs(); err == nil {
		for _, a := range addresses {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil &&
				!prefix.Addr().IsLoopback() && !prefix.Addr().IsLinkLocalUnicast() {
				hosts = append(hosts, prefix.Addr().String())
			}
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// introduce tells the user who runs the server where it is: its credentials name the server
// and its authority, and its context is found by its address. A program that has started us
// reads that from our output instead. forget takes the context back.
func (v *serving) introduce(server *embedded.Server, log *slog.Logger) (forget func(), err error) {
	forget = func() {}
	if v.directory == nil {
		return forget, nil
	}
	v.servers = v.reachable(server.URL())
	v.local.Servers = server.URL()
	if v.authority != nil {
		v.local.CA = string(v.authority.PEM)
	}
	if err := v.writeLocal(); err != nil { // a full disk is no reason not to serve
		log.Warn("the credentials of this user name another server", "cause", err)
	}
	if v.stopOnEOF {
		return forget, nil
	}
	name := contextName(server.URL())
	creds, err := filepath.Abs(v.localFile())
	if err != nil {
		return forget, nil
	}
	was, err := connect.Context(name)
	if err == nil && !was.Serve {
		log.Info("a context of this name is there already; use --creds", "context", name, "creds",
			creds)
		return forget, nil
	}
	mine := connect.Saved{Description: "made by sagenbaum serve", Server: server.URL(),
		Creds: creds, Serve: true}
	if err := connect.Save(name, mine); err != nil {
		log.Info("no context is made; use --creds", "creds", creds, "cause", err)
		return forget, nil
	}
	if strings.HasSuffix(v.listen, ":0") { // no one will look for it there again
		forget = func() {
			if file, err := connect.ContextFile(name); err == nil {
				_ = os.Remove(file) // it is of no use, and does no harm
			}
		}
	}
	return forget, nil
}

// contextName is the context of the server at a URL.
func contextName(server string) string {
	if port := portOf(server, embedded.PortDefault); port != embedded.PortDefault {
		return fmt.Sprintf("local-%d", port)
	}
	return "local"
}

// reachable is the URL by which other machines reach the server.
func (v *serving) reachable(server string) string {
	u, err := url.Parse(server)
	host, _, err2 := net.SplitHostPort(v.listen)
	if err != nil || err2 != nil || webclient.OnThisMachine(host) {
		return server
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		if host, err = os.Hostname(); err != nil {
			return server
		}
	}
	u.Host = net.JoinHostPort(host, u.Port())
	return u.String()
}

// requestsMax bounds the requests about tenants that are worked on at once.
const requestsMax = 8

// hostsGroup is the queue group of hosts that answer what belongs to no tenant.
const hostsGroup = "hosts"

// answerServer answers what belongs to no tenant, on a connection in the hub. A server that runs
// elsewhere has no users here, and its hosts share the requests about tenants.
func (v *serving) answerServer(ctx context.Context, h *host.Host, conn *nats.Conn,
	log *slog.Logger) error {
	places := make(chan struct{}, requestsMax)
	respond := func(m *nats.Msg, verb string, answer any) {
		body, err := json.Marshal(answer)
		if err == nil {
			err = m.Respond(body)
		}
		if err != nil {
			log.Warn("answer not sent", "verb", verb, "error", err)
		}
	}
	subject := api.ServerSubject(">")
	if v.external != "" {
		subject = api.ServerSubject("tenant.*")
	}
	_, err := conn.QueueSubscribe(subject, hostsGroup, func(m *nats.Msg) {
		if api.CheckReplyTo(m.Reply) != nil {
			return
		}
		verb := strings.TrimPrefix(m.Subject, api.ServerSubject(""))
		if !strings.HasPrefix(verb, "tenant.") {
			respond(m, verb, v.answerUsers(verb, m.Data, log))
			return
		}
		places <- struct{}{}
		go func() { // ends with its answer, or with ctx
			defer func() { <-places }()
			if verb == api.TenantErased {
				respond(m, verb, erasedAnswer(ctx, h, m.Data))
				return
			}
			answer := h.Tenancy(ctx, verb, m.Data)
			if a, ok := answer.(api.TenantAnswer); ok && verb != api.TenantShow {
				logChange(log, "tenants", verb, a.Error, "changed", a.Changed)
			}
			respond(m, verb, answer)
		}()
	})
	return err
}

// erasedAnswer is the erasure of a tenant that may be served by no host.
func erasedAnswer(ctx context.Context, h *host.Host, body []byte) (answer api.ErasedAnswer) {
	var q api.ErasedQuery
	err := ledger.ReadRequest(body, &q, "request")
	switch {
	case err != nil:
		return api.ErasedAnswer{Error: err.Error()}
	case !ledger.ValidToken(q.Tenant):
		return api.ErasedAnswer{Error: "tenant: no name of a tenant"}
	}
	answer.Erasure, err = h.ErasureOf(ctx, q.Tenant)
	if err != nil {
		answer.Error = err.Error()
	}
	return answer
}

// answerUsers carries out a request about users.
func (v *serving) answerUsers(verb string, body []byte, log *slog.Logger) any {
	if v.directory == nil {
		return access.Answer{Error: "this server has no users", Field: "server",
			Want: "an embedded server that was not started with --open"}
	}
	done := v.directory.Serve(verb, body, v.living())
	done.Servers, done.Door = v.servers, v.webURL
	if v.authority != nil {
		done.CA = string(v.authority.PEM)
	}
	if verb != api.UserLs && verb != api.UserTokens {
		logChange(log, "users", verb, done.Error, "users", idsOf(done.Users))
	}
	return done
}

// logChange logs a change of users or tenants that was asked for, or why it was not made.
func logChange(log *slog.Logger, of, verb, problem, what string, changed any) {
	if problem != "" {
		log.Info(of, "verb", verb, "error", problem)
		return
	}
	log.Info(of, "verb", verb, what, changed)
}

func idsOf(users []access.User) (ids []string) {
	for _, u := range users {
		ids = append(ids, u.ID())
	}
	return ids
}
