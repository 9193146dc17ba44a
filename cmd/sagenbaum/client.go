package main

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

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// client is a connection to the server on behalf of one tenant.
type client struct {
	conn    *nats.Conn
	tenant  string
	server  string
	timeout time.Duration
	shared  bool                               // close leaves it open
	denied  atomic.Pointer[string]             // the last permission that the server refused
	stop    atomic.Pointer[context.CancelFunc] // ends what would wait in vain for an answer to it
}

// connect reaches the server of the global flags, or says why not: 69 when it
// is not there, 77 when it does not let us in.
func (s *settings) connect() (*client, error) {
	if s.shared != nil {
		return s.shared, nil
	}
	c := &client{tenant: s.tenant, server: shown(s.server), timeout: s.timeout}
	options := []nats.Option{
		nats.Name("sagenbaum cli"), nats.Timeout(s.timeout), nats.CustomInboxPrefix(strings.TrimSuffix(s.inbox, ".")),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) {
				text := err.Error()
				c.denied.Store(&text)
				if stop := c.stop.Load(); stop != nil {
					(*stop)()
				}
			}
		}),
	}
	more, err := s.credentials()
	if err != nil {
		return nil, err
	}
	c.conn, err = s.dial(append(options, more...)...)
	switch {
	case err == nil:
		return c, nil
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return nil, fail(exitNotAllowed, "pass the credentials of a user of this server with --creds FILE", "%s does not let us in: %v", c.server, err)
	default:
		return nil, fail(exitNoServer, "sagenbaum serve, or --server URL of one that runs", "no server at %s: %v", c.server, err)
	}
}

// shown is a server's URL, or several with commas, without passwords.
func shown(server string) string {
	servers := strings.Split(server, ",")
	for i, one := range servers {
		if u, err := url.Parse(strings.TrimSpace(one)); err == nil {
			servers[i] = u.Redacted()
		}
	}
	return strings.Join(servers, ",")
}

// credentials are the options that --creds and --tls-ca stand for.
func (s *settings) credentials() (options []nats.Option, err error) {
	for _, file := range []struct {
		name   string
		option func(string) nats.Option
	}{
		{s.creds, func(name string) nats.Option { return nats.UserCredentials(name) }},
		{s.tlsCA, func(name string) nats.Option { return nats.RootCAs(name) }},
	} {
		if file.name == "" {
			continue
		}
		if _, err := os.Stat(file.name); err != nil {
			return nil, fail(exitFailed, "--creds and --tls-ca: files that are there and can be read", "cannot read %s: %v", file.name, err)
		}
		options = append(options, file.option(file.name))
	}
	return options, nil
}

func (c *client) close() {
	if !c.shared {
		c.conn.Close()
	}
}

// guarded is a context that ends as soon as the server refuses a permission: it
// says so beside the request, which stays without an answer. A refusal of what
// was published before is forgotten; one of the inbox goes for all that follows.
func (c *client) guarded(ctx context.Context) (context.Context, context.CancelFunc) {
	if denied := c.denied.Load(); denied != nil && !strings.Contains(*denied, "Subscription") {
		c.denied.CompareAndSwap(denied, nil)
	}
	ctx, cancel := context.WithCancel(ctx)
	outer := c.stop.Swap(&cancel)
	return ctx, func() {
		c.stop.Store(outer)
		cancel()
	}
}

// within is guarded with the time that one answer may take.
func (c *client) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, release := c.guarded(ctx)
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	return ctx, func() {
		cancel()
		release()
	}
}

// question connects for one question; doing names the command where it fails.
func (s *settings) question(cmd *cobra.Command, doing, verb string, question, answer any) error {
	c, err := s.connect()
	if err != nil {
		return err
	}
	defer c.close()
	return failed(doing, c.ask(cmd.Context(), verb, question, answer))
}

// ask puts one question to the tenant's executor and decodes its answer. An
// answer that is an error comes back as a failure of exit code 2.
func (c *client) ask(ctx context.Context, verb string, question, answer any) error {
	return c.request(ctx, api.QuerySubject(c.tenant, verb), verb, question, answer)
}

// administer is ask for what operators ask of a host.
func (c *client) administer(ctx context.Context, verb string, question, answer any) error {
	return c.request(ctx, api.AdminSubject(c.tenant, verb), verb, question, answer)
}

func (c *client) request(ctx context.Context, subject, verb string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	ctx, cancel := c.within(ctx)
	defer cancel()
	reply, err := c.conn.RequestWithContext(ctx, subject, body)
	if err != nil {
		return c.explain(verb, err)
	}
	var problem executor.ErrorAnswer
	if err := json.Unmarshal(reply.Data, &problem); err != nil {
		return fail(exitFailed, "sagenbaum doctor", "cannot read the answer to %s: %v", verb, err)
	}
	if problem.Error != "" {
		return fail(exitFailed, hintFor(verb), "%s", problem.Error)
	}
	if err := json.Unmarshal(reply.Data, answer); err != nil {
		return fail(exitFailed, "sagenbaum doctor", "cannot read the answer to %s: %v", verb, err)
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

// explain says what a request without an answer means.
func (c *client) explain(what string, err error) error {
	if denied := c.denied.Load(); denied != nil {
		return fail(exitNotAllowed, "credentials that may do this, with --creds FILE", "not allowed: %s", *denied)
	}
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fail(exitNoServer, "sagenbaum serve --tenant "+c.tenant+", or --tenant NAME of one that is served", "no executor serves tenant %s at %s", c.tenant, c.server)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return fail(exitNoServer, "sagenbaum doctor, or a longer --timeout", "no answer to %s within %s", what, c.timeout)
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrDisconnected):
		return fail(exitNoServer, "sagenbaum doctor", "lost the connection to %s", c.server)
	default:
		return fmt.Errorf("cannot ask %s: %w", what, err)
	}
}

func (c *client) plan(ctx context.Context, id string, sequence uint64) (executor.PlanView, error) {
	if !ledger.ValidDerived(id) {
		return executor.PlanView{}, fail(exitFailed, "sagenbaum plan ls", "%q is not a plan id", id)
	}
	var answer executor.PlanAnswer
	err := c.ask(ctx, "plan.show", executor.PlanQuery{Plan: id, Sequence: sequence}, &answer)
	return answer.Plan, err
}

func (c *client) status(ctx context.Context) (executor.StatusView, error) {
	var answer executor.StatusAnswer
	err := c.ask(ctx, "status", struct{}{}, &answer)
	return answer.Status, err
}

// outcome asks what became of a plan once the record at sequence was folded.
func (c *client) outcome(ctx context.Context, q api.OutcomeQuery) (api.OutcomeAnswer, error) {
	var answer api.OutcomeAnswer
	err := c.ask(ctx, "plan.outcome", q, &answer)
	return answer, err
}

// store opens the tenant's ledger for reading. It never makes one: asking for
// the stream first keeps a mistyped tenant from leaving an empty ledger behind.
func (c *client) store(ctx context.Context) (*jetstream.Store, error) {
	ctx, cancel := c.within(ctx)
	defer cancel()
	reply, err := c.conn.RequestWithContext(ctx, "$JS.API.STREAM.INFO."+jetstream.StreamName(c.tenant), nil)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, fail(exitNoServer, "sagenbaum serve", "JetStream is not on at %s", c.server)
	}
	if err != nil {
		return nil, c.explain("the stream of tenant "+c.tenant, err)
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
		return nil, fail(exitFailed, "sagenbaum serve --tenant "+c.tenant+", or --tenant NAME of one that has a ledger", "tenant %s has no ledger at %s: %s", c.tenant, c.server, info.Error.Description)
	}
	// A reader relies on nothing that a lossy broker could take back.
	store, err := jetstream.Open(ctx, jetstream.Config{Conn: c.conn, Tenant: c.tenant, AcceptLossyBroker: true})
	if err != nil && c.denied.Load() != nil {
		return nil, c.explain("the stream of tenant "+c.tenant, err)
	}
	return store, err
}
