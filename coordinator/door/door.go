package door

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Config is what a door needs.
type Config struct {
	// Connect connects to a tenant with what role door may do there. The door closes it.
	Connect func(tenant string) (*nats.Conn, error)

	// Serves reports whether there is a tenant of a name.
	Serves func(tenant string) bool

	Logger *slog.Logger // nil: discards
}

// Door serves agents. It is safe for concurrent use. Close it.
type Door struct {
	cfg   Config
	log   *slog.Logger
	calls *shares // requests that are worked on
	acts  *shares // writers
	blobs *shares // requests that move blobs
	life  context.Context
	end   context.CancelFunc
	ended sync.WaitGroup // sweep
	given given
	wrong sparing

	mu      sync.Mutex
	closed  bool
	tenants map[string]*tenant
	writers map[writerKey]*writer
}

// tenant is the door's connection to a tenant.
type tenant struct {
	conn   *nats.Conn
	append *jetstream.Appender
}

// writerKey is the writer of the records of a plan.
type writerKey struct{ tenant, agent, name string }

// Caller makes a request: the name is that of the agent, source or supervisor.
type Caller struct{ Tenant, Name string }

// New starts a door.
func New(cfg Config) *Door {
	d := &Door{cfg: cfg, log: cfg.Logger, calls: newShares("requests", "are worked on", CallsMax),
		acts:    newShares("writers", "act", WritersMax),
		blobs:   newShares("blobs", "are moved", BlobsMax),
		tenants: map[string]*tenant{}, writers: map[writerKey]*writer{}}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	rand.Read(d.given.secret[:]) // never fails, as crypto/rand documents
	d.life, d.end = context.WithCancel(context.Background())
	d.ended.Go(d.sweep) // ends with Close
	return d
}

// Close ends the door. Everything that it has answered is in the ledger.
func (d *Door) Close() {
	d.mu.Lock()
	d.closed = true
	writers, tenants := d.writers, d.tenants
	d.writers, d.tenants = map[writerKey]*writer{}, map[string]*tenant{}
	d.mu.Unlock()
	d.end()
	d.ended.Wait()
	var closing sync.WaitGroup
	for _, w := range writers {
		closing.Go(w.close)
	}
	closing.Wait()
	for _, t := range tenants {
		t.conn.Close()
	}
}

// Do carries out one request of a verb. The error is an *Error.
func (d *Door) Do(ctx context.Context, who Caller, name string, body []byte) (answer any,
	err error) {
	v, ok := verbs[name]
	if !ok {
		return nil, &Error{Status: http.StatusNotFound, Code: "not_found", Field: "verb",
			Problem: fmt.Sprintf("%q is none", clip(name)), Want: "one of " + verbsText(),
			Stored: StoredNothing}
	}
	ran := false
	err = d.during(who, func() error {
		ran = true
		answer, err = v.run(ctx, d, who, body)
		return err
	})
	switch {
	case err == nil:
		return answer, nil
	case ran && d.life.Err() != nil:
		e := errClosed()
		e.Stored = StoredUnknown
		return nil, e
	}
	return nil, explain(err)
}

// during works on a request of a caller in a place for it. The error is that of the work, or an
// *Error where there is no such tenant, or no place.
func (d *Door) during(who Caller, work func() error) error {
	switch {
	case !ledger.ValidToken(who.Tenant) || !ledger.ValidToken(who.Name):
		return &Error{Status: http.StatusNotFound, Code: "not_found", Field: "tenant",
			Problem: "no names", Want: ledger.TokenWanted, Stored: StoredNothing}
	case !d.cfg.Serves(who.Tenant):
		return &Error{Status: http.StatusNotFound, Code: "not_found", Field: "tenant",
			Problem: fmt.Sprintf("%q is not served here", who.Tenant),
			Want:    "one that sagenbaum tenant ls lists", Stored: StoredNothing}
	}
	if err := d.calls.enter(who); err != nil {
		return err
	}
	defer d.calls.leave(who)
	return work()
}

// tenant is the door's connection to a tenant, which it makes when it is first needed.
func (d *Door) tenant(name string) (*tenant, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errClosed()
	}
	if t := d.tenants[name]; t != nil && !t.conn.IsClosed() {
		return t, nil
	}
	conn, err := d.cfg.Connect(name)
	if err != nil {
		return nil, fmt.Errorf("cannot reach tenant %s: %w", name, err)
	}
	conn.SetErrorHandler(d.lagging) // or the client writes it to the standard error
	t := &tenant{conn: conn}
	if t.append, err = jetstream.Attach(conn, name); err != nil {
		conn.Close()
		return nil, err
	}
	d.tenants[name] = t
	return t, nil
}

// lagging logs what is wrong with a connection, as that an agent does not read its events as fast
// as notices come.
func (d *Door) lagging(_ *nats.Conn, sub *nats.Subscription, err error) {
	if n := d.wrong.count(time.Now(), true); n > 0 {
		subject := ""
		if sub != nil {
			subject = sub.Subject
		}
		d.log.Warn("the door's connection to a tenant", "subject", subject, "problem", err,
			"since_last", n)
	}
}

func errClosed() *Error {
	return unavailable("the host is stopping", sameAgain, StoredNothing)
}

// ask asks an executor. The error is the *api.Problem that it answers, or as of asRaw.
func ask[Q, A any](ctx context.Context, d *Door, who Caller, v api.Verb[Q, A], q Q) (A, error) {
	var answer A
	reply, err := asRaw(ctx, d, who, v, q)
	if err == nil {
		err = readReply(reply, &answer)
	}
	return answer, err
}

// readReply reads the answer of an executor. The error is the *api.Problem that came instead of it,
// or an *Error: the executor has too many questions.
func readReply(reply Raw, answer any) error {
	err := api.DecodeAnswer(reply, answer)
	var problem *api.Problem
	switch {
	case errors.As(err, &problem) && problem.Field == api.CodeQuestions:
		return tooMany(api.CodeQuestions, problem.Text)
	case err != nil && problem == nil:
		return fmt.Errorf("cannot read the answer of an executor: %w", err)
	}
	return err
}

// tooMany refuses what is more at once than a limit of the door, or of an executor, allows.
func tooMany(limit, problem string) *Error {
	return &Error{Status: http.StatusTooManyRequests, Code: "limit", Limit: limit, Problem: problem,
		Want: "the same, later", Stored: StoredNothing}
}

// asRaw is ask for an answer as it comes.
func asRaw[Q, A any](ctx context.Context, d *Door, who Caller, v api.Verb[Q, A],
	q Q) (Raw, error) {
	return d.askFor(ctx, who, v.Call, q)
}

// askFor asks an executor, again until ctx ends or it has waited for long.
func (d *Door) askFor(ctx context.Context, who Caller, v api.Call, q any) (Raw, error) {
	t, err := d.tenant(who.Tenant)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(q)
	if err != nil {
		panic("door: a question that is no JSON: " + err.Error())
	}
	ctx, cancel := context.WithTimeout(ctx, askMax)
	defer cancel()
	var reply *nats.Msg
	for {
		reply, err = t.conn.RequestWithContext(ctx, v.Subject(who.Tenant), body)
		if !errors.Is(err, nats.ErrNoResponders) || ctx.Err() != nil {
			break
		}
		pause(ctx, askPause)
	}
	if err != nil {
		return nil, unavailable("no executor answers: "+err.Error(), sameAgain, StoredNothing)
	}
	return reply.Data, nil
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// writerOf is writer for a plan that there is: none is started for a plan of another agent or
// another writer, or for no plan at all.
func (d *Door) writerOf(ctx context.Context, who Caller, name, plan string) (*writer, error) {
	if name == "" {
		name = writerDefault
	}
	d.mu.Lock()
	known := d.writers[writerKey{who.Tenant, who.Name, name}] != nil
	d.mu.Unlock()
	if !known {
		if !ledger.ValidToken(name) {
			return nil, ledger.Refuse("writer", "no name", ledger.TokenWanted)
		}
		h, err := d.historyOf(ctx, who, plan, 1)
		switch {
		case err != nil:
			return nil, err
		case h.Writer != name:
			return nil, coordinator.Lost(plan, who.Name, h.Agent, h.Writer, h.Handed)
		}
	}
	return d.writer(who, name)
}

// take finds the writer of a plan that there is, and what it has of the plan. done gives it back.
func (d *Door) take(ctx context.Context, who Caller, name, plan string) (w *writer, h *held,
	done func(), err error) {
	if err = ofAgents(plan); err == nil {
		w, err = d.writerOf(ctx, who, name, plan)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	h, done, err = w.take(ctx, plan)
	return w, h, done, err
}

// writer finds the coordinator of a writer, or starts it.
func (d *Door) writer(who Caller, name string) (*writer, error) {
	if name == "" {
		name = writerDefault
	}
	if !ledger.ValidToken(name) {
		return nil, ledger.Refuse("writer", "no name", ledger.TokenWanted)
	}
	t, err := d.tenant(who.Tenant)
	if err != nil {
		return nil, err
	}
	key := writerKey{who.Tenant, who.Name, name}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errClosed()
	}
	w := d.writers[key]
	if w != nil && w.conn != t.conn { // that one is closed for good
		d.drop(key)
		d.ended.Go(w.close) // ends within closeMax
		w = nil
	}
	if w != nil {
		w.use()
		return w, nil
	}
	if err := d.acts.enter(who); err != nil {
		return nil, err
	}
	w = &writer{door: d, key: key, conn: t.conn, plans: map[string]*held{}}
	w.use()
	w.life, w.end = context.WithCancel(d.life)
	w.coordinator, err = coordinator.New(coordinator.Config{Conn: t.conn, Tenant: who.Tenant,
		Agent: who.Name, Writer: name, Published: true, PublishedFor: contractFor, Accepted: true,
		ConfirmTimeout: confirmMax, Logger: d.log})
	if err != nil {
		w.end()
		d.acts.leave(who)
		return nil, err
	}
	d.writers[key] = w
	return w, nil
}

// sweep forgets the plans and writers that no one asks about.
func (d *Door) sweep() {
	for {
		pause(d.life, sweepEvery)
		if d.life.Err() != nil {
			return
		}
		d.forget(time.Now().Add(-IdleAfter))
	}
}

// drop takes a writer out; the caller closes it. Called with mu held.
func (d *Door) drop(key writerKey) {
	delete(d.writers, key)
	d.acts.leave(Caller{key.tenant, key.agent})
}

// forget forgets what no one has asked about since an instant.
func (d *Door) forget(since time.Time) {
	var idle []*writer
	d.mu.Lock()
	for _, key := range slices.SortedFunc(maps.Keys(d.writers), compareKeys) {
		if w := d.writers[key]; w.forget(since) {
			idle = append(idle, w)
			d.drop(key)
		}
	}
	d.mu.Unlock()
	for _, w := range idle {
		w.close()
	}
}
