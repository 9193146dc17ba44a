// Package cli holds what every command shares: settings and contexts, the client, exit
// codes, tables and other output, --watch, --filter, and the lists that a server is asked for.
package cli

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/connect"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Client is a connection to the server on behalf of one tenant.
type Client struct {
	Conn    *nats.Conn
	Tenant  string
	Server  string
	Timeout time.Duration
	shared  bool                               // close leaves it open
	self    *access.Credentials                // who we are; nil: they do not say
	Denied  atomic.Pointer[string]             // the last permission that the server refused
	stop    atomic.Pointer[context.CancelFunc] // ends what would wait in vain for an answer to it
}

// Connect reaches the server of the global flags, or says why not: 69 when it
// is not there, 77 when it does not let us in.
func (s *Settings) Connect() (*Client, error) {
	if s.shared != nil {
		return s.shared, nil
	}
	tenant := s.Tenant
	if s.everyone {
		tenant = access.AllTenants
	}
	c := &Client{Tenant: s.Tenant, Server: Shown(s.Server), Timeout: s.Timeout, self: s.Self}
	options := []nats.Option{
		nats.Name("sagenbaum cli"), nats.Timeout(s.Timeout),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) {
				text := err.Error()
				c.Denied.Store(&text)
				if stop := c.stop.Load(); stop != nil {
					(*stop)()
				}
			}
		}),
	}
	more, err := s.Credentials(tenant)
	if err != nil {
		return nil, err
	}
	c.Conn, err = s.Dial(append(options, more...)...)
	switch {
	case err == nil:
		return c, nil
	case strings.Contains(err.Error(), nats.MAX_ACCOUNT_CONNECTIONS_ERR): // it has no value of its own
		return nil, Fail(ExitNotAllowed, "end other agents and sources of the tenant; operators: "+
			"sagenbaum tenant limits TENANT --connections N",
			"%s has as many connections of this tenant as it may have", c.Server)
	}
	start := "sagenbaum serve"
	if strings.Contains(s.Server, ",") { // a cluster, which serve is not
		start = "start these NATS servers"
	}
	if data, ok := connect.DataOf(s.Server); ok { // another folder would be another ledger
		start = CommandLine("sagenbaum", "serve", "--data", data)
	}
	return nil, s.NotConnected(c.Server, err, start+", or --server URL of one that runs")
}

// NotConnected says why a server, as it is shown, was not connected to: it does not let us in, or
// is not there, for which next is what to do.
func (s *Settings) NotConnected(server string, err error, next string) error {
	if NotLetIn(err) {
		return s.notLetIn(server, err)
	}
	return Fail(ExitNoServer, next, "no server at %s: %v", server, err)
}

// NotLetIn reports whether a server is there, and has not let us in.
func NotLetIn(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) ||
		errors.Is(err, nats.ErrAuthRevoked)
}

// notLetIn says why a server does not let us in, and what to do about it.
func (s *Settings) notLetIn(server string, err error) error {
	switch {
	case s.Creds == "":
		return Fail(ExitNotAllowed, "who runs the server: sagenbaum user add NAME --role ROLE "+
			"--out NAME.creds; you: --creds NAME.creds, or SAGENBAUM_CREDS",
			"%s lets no one in without credentials: %v", server, err)
	case errors.Is(err, nats.ErrAuthExpired):
		return Fail(ExitNotAllowed, "who runs the server: sagenbaum user rotate NAME --out NAME.creds",
			"%s: the credentials %s have expired: %v", server, s.Creds, err)
	default:
		return Fail(ExitNotAllowed, "look at sagenbaum user ls as the user who runs the server, then "+
			"sagenbaum user rotate NAME --out NAME.creds",
			"%s does not let us in with %s: they were revoked, have expired, or are of another "+
				"server: %v", server, s.Creds, err)
	}
}

// Shown is a server's URL, or several with commas, without passwords.
func Shown(server string) string {
	servers := strings.Split(server, ",")
	for i, one := range servers {
		if u, err := url.Parse(strings.TrimSpace(one)); err == nil {
			servers[i] = u.Redacted()
		}
	}
	return strings.Join(servers, ",")
}

// Credentials are the options of --creds, --tls-ca, --client-cert and --inbox.
// tenant is the one that a user of all tenants reaches.
func (s *Settings) Credentials(tenant string) (options []nats.Option, err error) {
	if s.Creds != "" {
		if options, _, err = connect.File(s.Creds, tenant); err != nil {
			return nil, Fail(ExitFailed, "--creds: a file of credentials that is there and that "+
				"only you can read", "cannot use the credentials %s: %v", s.Creds, err)
		}
	}
	transport, err := s.Transport()
	if err != nil {
		return nil, err
	}
	options = append(options, transport...)
	if s.Inbox != nats.InboxPrefix { // otherwise the credentials say where
		options = append(options, nats.CustomInboxPrefix(strings.TrimSuffix(s.Inbox, ".")))
	}
	return options, nil
}

// Transport are the options of --tls-ca, --client-cert and --client-key.
func (s *Settings) Transport() (options []nats.Option, err error) {
	if s.TlsCA != "" {
		if _, err := os.Stat(s.TlsCA); err != nil {
			return nil, Fail(ExitFailed, "--tls-ca: a file that is there and can be read",
				"cannot read %s: %v", s.TlsCA, err)
		}
		options = append(options, nats.RootCAs(s.TlsCA))
	}
	if s.ClientCert != "" {
		if _, err := tls.LoadX509KeyPair(s.ClientCert, s.ClientKey); err != nil {
			return nil, Fail(ExitFailed, "--client-cert and --client-key: PEM files that fit each other",
				"cannot use the certificate %s: %v", s.ClientCert, err)
		}
		options = append(options, nats.ClientCert(s.ClientCert, s.ClientKey))
	}
	return options, nil
}

// Close ends the connection, unless --watch shares it between looks.
func (c *Client) Close() {
	if !c.shared {
		c.Conn.Close()
	}
}

// Name is the name that the credentials give; empty where they give none, or any.
func (c *Client) Name() string {
	if c.self == nil || c.self.Role == access.Local {
		return ""
	}
	return c.self.Name
}

// Guarded is a context that ends as soon as the server refuses a permission: it
// says so beside the request, which stays without an answer. A refusal of what
// was published before is forgotten; one of the inbox goes for all that follows.
func (c *Client) Guarded(ctx context.Context) (context.Context, context.CancelFunc) {
	if denied := c.Denied.Load(); denied != nil && !strings.Contains(*denied, "Subscription") {
		c.Denied.CompareAndSwap(denied, nil)
	}
	ctx, cancel := context.WithCancel(ctx)
	outer := c.stop.Swap(&cancel)
	return ctx, func() {
		c.stop.Store(outer)
		cancel()
	}
}

// Within is guarded with the time that one answer may take.
func (c *Client) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, release := c.Guarded(ctx)
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	return ctx, func() {
		cancel()
		release()
	}
}

// Question connects for one question; doing names the command where it fails.
func Question[Q, A any](cmd *cobra.Command, s *Settings, doing string, verb api.Verb[Q, A],
	question Q) (answer A, err error) {
	err = s.question(cmd, doing, verb.Call, question, &answer)
	return answer, err
}

func (s *Settings) question(cmd *cobra.Command, doing string, verb api.Call,
	question, answer any) error {
	return s.With(func(c *Client) error {
		return Failed(doing, c.ask(cmd.Context(), verb, question, answer))
	})
}

// Ask puts one question to the tenant's host. An answer that is an error comes back as a failure
// of exit code 2.
func Ask[Q, A any](ctx context.Context, c *Client, verb api.Verb[Q, A], question Q) (answer A,
	err error) {
	err = c.ask(ctx, verb.Call, question, &answer)
	return answer, err
}

func (c *Client) ask(ctx context.Context, verb api.Call, question, answer any) error {
	return c.askOn(ctx, verb.Subject(c.Tenant), verb.Name, question, answer)
}

// askOn is ask on a subject; name is what is asked, in errors.
func (c *Client) askOn(ctx context.Context, subject, name string, question, answer any) error {
	reply, err := c.request(ctx, subject, question)
	if err != nil {
		return c.Explain(name, err)
	}
	err = api.DecodeAnswer(reply.Data, answer)
	var problem *api.Problem
	switch {
	case errors.As(err, &problem) && problem.Again: // it can answer nothing now, whatever was asked
		return Fail(ExitFailed, "sagenbaum doctor", "%s", problem.Text)
	case errors.As(err, &problem):
		return Fail(ExitFailed, hintFor(name), "%s", problem.Text)
	case err != nil:
		return Fail(ExitFailed, "sagenbaum doctor", "cannot read the answer to %s: %v", name, err)
	}
	return nil
}

// Call puts one question to the server, about no tenant, and decodes its answer, whatever it
// says.
func (c *Client) Call(ctx context.Context, subject string, question, answer any) error {
	reply, err := c.request(ctx, subject, question)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return Fail(ExitNotAllowed, "the credentials of the user who runs the server, or --file FILE "+
			"for a server that runs elsewhere", "%s lets this user ask nothing about its users and "+
			"tenants, or has no host that would answer", c.Server)
	case err != nil:
		return c.Explain("the server", err)
	}
	if err := json.Unmarshal(reply.Data, answer); err != nil {
		return Fail(ExitFailed, "sagenbaum doctor", "cannot read the answer of the server: %v", err)
	}
	return nil
}

func (c *Client) request(ctx context.Context, subject string, question any) (*nats.Msg, error) {
	body, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.Within(ctx)
	defer cancel()
	return c.Conn.RequestWithContext(ctx, subject, body)
}

func hintFor(verb string) string {
	if strings.HasPrefix(verb, "plan.") || verb == "undo.ls" || verb == "trigger.explain" {
		return "sagenbaum plan ls"
	}
	if strings.HasPrefix(verb, "fact.") {
		return "sagenbaum fact ls"
	}
	return "sagenbaum status"
}

// notAllowed says that the server refuses us a subject, who we are to it, and what to do about it.
func (c *Client) notAllowed(denied string) error {
	const other = "credentials that may do this, with --creds FILE"
	switch {
	case c.self == nil || c.self.Role == "":
		return Fail(ExitNotAllowed, other, "not allowed: %s", denied)
	case c.self.Tenant != access.AllTenants && c.self.Tenant != c.Tenant:
		const hint = "--tenant %s, or credentials of tenant %s, with --creds FILE"
		return Fail(ExitNotAllowed, fmt.Sprintf(hint, c.self.Tenant, c.Tenant),
			"not allowed: %s %s is of tenant %s, and not of %s: %s", c.self.Role, c.self.Name,
			c.self.Tenant, c.Tenant, denied)
	}
	if granted(*c.self, denied) {
		return &Failure{Code: ExitNotAllowed, Granted: true,
			Text: fmt.Sprintf("not allowed: role %s gives it to %s, and the server does not: %s",
				c.self.Role, c.self.Name, denied),
			Hint: "the accounts of a server that runs elsewhere, exported again: sagenbaum user export"}
	}
	return Fail(ExitNotAllowed, "sagenbaum user show "+c.self.Name+", as the user who runs the "+
		"server, lists what it may; "+other, "not allowed: not what role %s gives %s: %s", c.self.Role,
		c.self.Name, denied)
}

// deniedPublish is what a server says that refuses a subject.
var deniedPublish = regexp.MustCompile(`Publish to "([^"]+)"`)

// granted reports whether the table of roles gives a user what the server refuses it. What the
// credentials do not say, as capabilities, counts as not given.
func granted(self access.Credentials, denied string) bool {
	subject := deniedPublish.FindStringSubmatch(denied)
	return subject != nil &&
		access.User{Name: self.Name, Role: self.Role, Tenant: self.Tenant}.Publishes(subject[1])
}

// Explain says what a request without an answer means.
func (c *Client) Explain(what string, err error) error {
	if denied := c.Denied.Load(); denied != nil {
		return c.notAllowed(*denied)
	}
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return Fail(ExitNoServer,
			"sagenbaum serve --tenant "+c.Tenant+", or --tenant NAME of one that is served",
			"no executor serves tenant %s at %s", c.Tenant, c.Server)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return Fail(ExitNoServer, "sagenbaum doctor, or a longer --timeout",
			"no answer to %s within %s", what, c.Timeout)
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrDisconnected):
		return Fail(ExitNoServer, "sagenbaum doctor", "lost the connection to %s", c.Server)
	default:
		return fmt.Errorf("cannot ask %s: %w", what, err)
	}
}

// Plan asks for one plan as it was at a sequence; 0: as it is now.
func (c *Client) Plan(ctx context.Context, id string, sequence uint64) (api.Plan, error) {
	if !ledger.ValidDerived(id) {
		return api.Plan{}, noPlanID(id)
	}
	answer, err := Ask(ctx, c, api.PlanShow, api.PlanQuery{Plan: id, Sequence: sequence})
	return answer.Plan, err
}

// Status asks for the status of the tenant's executor.
func (c *Client) Status(ctx context.Context) (api.Status, error) {
	answer, err := Ask(ctx, c, api.TenantStatus, api.Nothing{})
	return answer.Status, err
}

// Outcome asks what became of a plan once the record at sequence was folded.
func (c *Client) Outcome(ctx context.Context, q api.OutcomeQuery) (api.OutcomeAnswer, error) {
	return Ask(ctx, c, api.PlanOutcome, q)
}

// Store opens the tenant's ledger for reading. It never makes one: asking for
// the stream first keeps a mistyped tenant from making an empty ledger.
func (c *Client) Store(ctx context.Context) (*jetstream.Store, error) {
	ctx, cancel := c.Within(ctx)
	defer cancel()
	reply, err := c.Conn.RequestWithContext(ctx,
		"$JS.API.STREAM.INFO."+jetstream.StreamName(c.Tenant), nil)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, Fail(ExitNoServer, "sagenbaum serve", "JetStream is not on at %s", c.Server)
	}
	if err != nil {
		return nil, c.Explain("the stream of tenant "+c.Tenant, err)
	}
	var info struct {
		Error *struct {
			Code        int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &info); err != nil {
		return nil, fmt.Errorf("cannot read stream info: %w", err)
	}
	switch {
	case info.Error == nil:
	case jetstream.NoLeader(info.Error.Code):
		return nil, Fail(ExitNoServer, "start the NATS servers that are away (docs/guide/cluster.md)",
			"no server leads the ledger of tenant %s: %s", c.Tenant, info.Error.Description)
	default:
		return nil, Fail(ExitFailed,
			"sagenbaum serve --tenant "+c.Tenant+", or --tenant NAME of one that has a ledger",
			"tenant %s has no ledger at %s: %s", c.Tenant, c.Server, info.Error.Description)
	}
	// A reader relies on nothing that a lossy broker could take back.
	store, err := jetstream.Open(ctx,
		jetstream.Config{Conn: c.Conn, Tenant: c.Tenant, AcceptLossyBroker: true})
	if err != nil && c.Denied.Load() != nil {
		return nil, c.Explain("the stream of tenant "+c.Tenant, err)
	}
	return store, err
}

// Pause waits for a time and reports false when the context ended first.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// TenantPause is how often a starting server is asked whether it answers.
const TenantPause = 10 * time.Millisecond
