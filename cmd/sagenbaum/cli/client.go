// Package cli holds what every command shares: settings and contexts, the client, exit
// codes, tables and other output, --watch, --filter, and the lists that a server is asked for.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
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
	Denied  atomic.Pointer[string]             // the last permission that the server refused
	stop    atomic.Pointer[context.CancelFunc] // ends what would wait in vain for an answer to it
}

// Connect reaches the server of the global flags, or says why not: 69 when it
// is not there, 77 when it does not let us in.
func (s *Settings) Connect() (*Client, error) {
	if s.shared != nil {
		return s.shared, nil
	}
	c := &Client{Tenant: s.Tenant, Server: Shown(s.Server), Timeout: s.Timeout}
	options := []nats.Option{
		nats.Name("sagenbaum cli"), nats.Timeout(s.Timeout),
		nats.CustomInboxPrefix(strings.TrimSuffix(s.Inbox, ".")),
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
	more, err := s.Credentials()
	if err != nil {
		return nil, err
	}
	c.Conn, err = s.dial(append(options, more...)...)
	switch {
	case err == nil:
		return c, nil
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired),
		errors.Is(err, nats.ErrAuthRevoked):
		return nil, Fail(ExitNotAllowed,
			"pass the credentials of a user of this server with --creds FILE",
			"%s does not let us in: %v", c.Server, err)
	default:
		return nil, Fail(ExitNoServer, "sagenbaum serve, or --server URL of one that runs",
			"no server at %s: %v", c.Server, err)
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

// Credentials are the options that --creds and --tls-ca stand for.
func (s *Settings) Credentials() (options []nats.Option, err error) {
	for _, file := range []struct {
		name   string
		option func(string) nats.Option
	}{
		{s.Creds, func(name string) nats.Option { return nats.UserCredentials(name) }},
		{s.TlsCA, func(name string) nats.Option { return nats.RootCAs(name) }},
	} {
		if file.name == "" {
			continue
		}
		if _, err := os.Stat(file.name); err != nil {
			return nil, Fail(ExitFailed,
				"--creds and --tls-ca: files that are there and can be read", "cannot read %s: %v",
				file.name, err)
		}
		options = append(options, file.option(file.name))
	}
	return options, nil
}

// Close ends the connection, unless --watch shares it between looks.
func (c *Client) Close() {
	if !c.shared {
		c.Conn.Close()
	}
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
func (s *Settings) Question(cmd *cobra.Command, doing, verb string, question, answer any) error {
	return s.With(func(c *Client) error {
		return Failed(doing, c.Ask(cmd.Context(), verb, question, answer))
	})
}

// Ask puts one question to the tenant's executor and decodes its answer. An
// answer that is an error comes back as a failure of exit code 2.
func (c *Client) Ask(ctx context.Context, verb string, question, answer any) error {
	return c.Request(ctx, api.QuerySubject(c.Tenant, verb), verb, question, answer)
}

// Administer is ask for what operators ask of a host.
func (c *Client) Administer(ctx context.Context, verb string, question, answer any) error {
	return c.Request(ctx, api.AdminSubject(c.Tenant, verb), verb, question, answer)
}

// Request puts one question on a subject and decodes its answer; verb names it in errors.
func (c *Client) Request(ctx context.Context, subject, verb string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	ctx, cancel := c.Within(ctx)
	defer cancel()
	reply, err := c.Conn.RequestWithContext(ctx, subject, body)
	if err != nil {
		return c.Explain(verb, err)
	}
	var problem view.ErrorAnswer
	if err := json.Unmarshal(reply.Data, &problem); err != nil {
		return Fail(ExitFailed, "sagenbaum doctor", "cannot read the answer to %s: %v", verb, err)
	}
	if problem.Error != "" {
		return Fail(ExitFailed, hintFor(verb), "%s", problem.Error)
	}
	if err := json.Unmarshal(reply.Data, answer); err != nil {
		return Fail(ExitFailed, "sagenbaum doctor", "cannot read the answer to %s: %v", verb, err)
	}
	return nil
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

// Explain says what a request without an answer means.
func (c *Client) Explain(what string, err error) error {
	if denied := c.Denied.Load(); denied != nil {
		return Fail(ExitNotAllowed, "credentials that may do this, with --creds FILE",
			"not allowed: %s", *denied)
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
func (c *Client) Plan(ctx context.Context, id string, sequence uint64) (view.Plan, error) {
	if !ledger.ValidDerived(id) {
		return view.Plan{}, Fail(ExitFailed, "sagenbaum plan ls", "%q is not a plan id", id)
	}
	var answer view.PlanAnswer
	err := c.Ask(ctx, "plan.show", view.PlanQuery{Plan: id, Sequence: sequence}, &answer)
	return answer.Plan, err
}

// Status asks for the status of the tenant's executor.
func (c *Client) Status(ctx context.Context) (view.Status, error) {
	var answer view.StatusAnswer
	err := c.Ask(ctx, "status", struct{}{}, &answer)
	return answer.Status, err
}

// Outcome asks what became of a plan once the record at sequence was folded.
func (c *Client) Outcome(ctx context.Context, q api.OutcomeQuery) (api.OutcomeAnswer, error) {
	var answer api.OutcomeAnswer
	err := c.Ask(ctx, "plan.outcome", q, &answer)
	return answer, err
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
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &info); err != nil {
		return nil, fmt.Errorf("cannot read stream info: %w", err)
	}
	if info.Error != nil {
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
