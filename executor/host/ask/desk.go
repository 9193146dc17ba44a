// Package ask answers the questions of people and agents about a tenant, beside its loop:
// [Desk] answers them from snapshots of the state and from what the loop has left on its
// [Board], and hands to the loop what operators ask of it. [Watch] follows the fold.
package ask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor/host/observe"
	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/executor/host/vault"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	"github.com/sagenbaum/sagenbaum/proto/api"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Config is what the answers about a tenant are made of. All fields are required, except
// MemoryBytes.
type Config struct {
	Tenant string
	Holder string // name of this host
	// Process tells it from others of its name; empty: it is not told.
	Process string
	Conn    *nats.Conn
	DB      *pebble.DB // of all tenants
	Dir     string     // for what a rebuild folds
	Log     *slog.Logger
	Now     func() time.Time // of decisions

	Board    *Board
	Workers  *Workers
	Keys     Keyring
	Blobs    Blobs
	Proof    Signer
	Scrubber Scrubber
	Meter    Meter
	Shared   *Shared

	Released func()              // called when another host has given the tenant back
	Erased   func()              // called when another host erases the tenant
	Folding  func() *api.Folding // how far the session has folded what came before; nil: all
	Disks    func() []api.Disk   // of this host
	// Room is what the ledger takes on disk, the limit of it (0: none), and whether it is full.
	Room func() (used, most uint64, full bool)
	// Entry is what the control stream says of the tenant, and its limits with the defaults filled
	// in; nil: nothing.
	Entry func() (*api.TenantEntry, *api.TenantLimits)

	Cascade     api.Cascade
	MemoryBytes int64  // of working memory; 0: no limit
	Lossy       bool   // the server need not sync every write
	Durable     string // as in jetstream.Config: DurableServer
}

// Keyring has the keys of plans: *vault.Keyring.
type Keyring interface {
	Open(ctx context.Context, document json.RawMessage, plans, actions []string) (json.RawMessage,
		[]json.RawMessage, error)
	Issue(ctx context.Context, agent, plan string) (seal.Key, error)
	Give(asked vault.Asked, reply string) (vault.Given, bool)
	Forget(plan string)
	Problem(ctx context.Context) string
}

// Signer signs checkpoints: *proof.Signer.
type Signer interface {
	View(v api.Checkpoint) api.Checkpoint
	KeyProblem(named string, last []byte) string
	Forked() string
}

// Scrubber holds the stream against the tiles: *repair.Scrubber.
type Scrubber interface {
	Scrub(ctx context.Context, records ledger.Store, copies *tiles.Files,
		slowly bool) (api.ScrubAnswer, error)
	View(v *api.Copy)
}

// Meter counts what is refused: *observe.Meter.
type Meter interface {
	RefusedRequest(reason string)
	RefusedReply(reason string)
}

// Shared is what the desks of one host share. The zero Shared is ready.
type Shared struct {
	programs   sync.Pool                 // *triggers.Cache, of one question at a time
	rebuilding atomic.Pointer[time.Time] // since when a rebuild is under way; nil: none is
	strict     jetstream.StrictServers
}

// Desk answers what is asked about one tenant. Its methods may be called from any goroutine.
type Desk struct {
	Config
	requests chan Request
	question *question // that this desk answers; nil: none that came over NATS, which takes no place
}

// New makes the desk of a tenant, which answers Ask at once, and over NATS from Serve on.
func New(cfg Config) *Desk { return &Desk{Config: cfg, requests: make(chan Request)} }

// of is the desk for one question.
func (d *Desk) of(q *question) *Desk {
	return &Desk{Config: d.Config, requests: d.requests, question: q}
}

// unfolded is that of the board, while others have the place of this question.
func (d *Desk) unfolded(sequence uint64, limit time.Duration) error {
	d.question.rest()
	return d.Board.unfolded(sequence, limit)
}

// catchUp is that of the board, while others have the place of this question.
func (d *Desk) catchUp() bool {
	d.question.rest()
	return d.Board.catchUp()
}

// Bounds of questions.
const (
	questionPrograms = 256              // conditions that one keeps compiled for the next
	waitMax          = 60 * time.Second // that one may wait
	rebuildMax       = time.Hour        // for one that may take long
	sequenceWait     = 5 * time.Second  // for a sequence to be folded
)

// Serve answers over NATS what is asked about the tenant, until silence is called.
func (d *Desk) Serve() (silence func(), err error) {
	var subs []*nats.Subscription
	silence = func() {
		for _, sub := range subs {
			_ = sub.Unsubscribe()
		}
		d.Board.asking.close()
	}
	queries, admin := api.QuerySubject(d.Tenant, ""), api.AdminSubject(d.Tenant, "")
	keys := api.KeySubject(d.Tenant, "")
	for subject, of := range map[string]func(m *nats.Msg) verb{
		queries + ">": func(m *nats.Msg) verb {
			return questionVerb(strings.TrimPrefix(m.Subject, queries))
		},
		admin + ">": func(m *nats.Msg) verb {
			return adminVerb(strings.TrimPrefix(m.Subject, admin))
		},
		keys + "*": func(m *nats.Msg) verb {
			agent := strings.TrimPrefix(m.Subject, keys)
			if agent == api.KeyHosts {
				return told("key.tenant",
					func(d *Desk, asked vault.Asked) any { return d.give(asked, m.Reply) })
			}
			return takes(api.PlanKey(agent),
				func(d *Desk, q api.KeyQuery) (api.KeyAnswer, error) { return d.key(agent, q) })
		},
		api.HostsSubject(d.Tenant): func(*nats.Msg) verb { return questions[api.TenantHost.Name] },
		api.RevealSubject(d.Tenant): func(*nats.Msg) verb {
			return takes(api.PlanReveal, (*Desk).reveal)
		},
	} {
		sub, err := d.serve(subject, of)
		if err != nil {
			return silence, err
		}
		subs = append(subs, sub)
	}
	sub, err := d.serveBlobs()
	if err == nil {
		subs = append(subs, sub)
	}
	return silence, err
}

// serve answers what comes on a subject: of returns what answers it. Each question has a goroutine,
// which ends with its answer; one that is too many is refused at once.
func (d *Desk) serve(subject string, of func(m *nats.Msg) verb) (*nats.Subscription, error) {
	sub, err := d.Conn.Subscribe(subject, func(m *nats.Msg) {
		if !d.takes(m) {
			return
		}
		v := of(m)
		if !v.always && d.Board.silent() {
			return
		}
		q, err := d.Board.asking.admit(userOf(m), len(m.Data))
		switch {
		case err != nil:
			d.Meter.RefusedRequest(observe.RefusedQuestions)
			d.say(m, v, encoded(nil, err))
		case q != nil:
			go func() { defer q.end(); d.of(q).respond(m, v) }()
		}
	})
	if err != nil {
		return nil, fmt.Errorf("cannot subscribe to %s: %w", subject, err)
	}
	return sub, nil
}

// takes reports whether a message is a request: it can be answered, where an answer has
// no effect of its own. What another program answers, and had sent here, is none.
func (d *Desk) takes(m *nats.Msg) bool {
	err := api.CheckReplyTo(m.Reply)
	if err == nil {
		err = d.fromOwnAccount(m)
	}
	if err != nil {
		d.Meter.RefusedRequest(observe.RefusedReplyTo)
		d.Log.Debug("a message that is no request", "subject", m.Subject, "error", err)
	}
	return err == nil
}

// accountHeader is where a server says from which account a request came in. Where it passed
// through an account's import, the server has set it, whatever the client had.
const accountHeader = "Nats-Request-Info"

// userOf is the user who asks, as its server says; empty: it does not.
func userOf(m *nats.Msg) string {
	var from struct {
		User string `json:"user"`
	}
	if info := m.Header.Get(accountHeader); info != "" {
		_ = json.Unmarshal([]byte(info), &from) // fromOwnAccount has read it
	}
	return from.User
}

// fromOwnAccount refuses a request that comes from the account of another tenant.
func (d *Desk) fromOwnAccount(m *nats.Msg) error {
	info := m.Header.Get(accountHeader)
	if info == "" {
		return nil
	}
	var from struct {
		Account string `json:"acc"`
	}
	if err := json.Unmarshal([]byte(info), &from); err != nil {
		return fmt.Errorf("cannot read its %s: %v", accountHeader, err)
	}
	if access.Foreign(from.Account, d.Tenant) {
		return ledger.Refuse("account", fmt.Sprintf("%.80q is another tenant's", from.Account),
			access.TenantAccount(d.Tenant))
	}
	return nil
}

// Ask answers one question of the query API (docs/cli.md) as its NATS subject does, with what
// answers its verb. The error is an *api.Problem, or says that the host is stopping, or that q is
// no JSON.
func (d *Desk) Ask(verb string, q any) (any, error) {
	data, err := json.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("cannot ask %s: %w", verb, err)
	}
	if !d.Board.asking.enter() {
		return nil, fmt.Errorf("cannot ask %s: the host is stopping", verb)
	}
	defer d.Board.asking.leave()
	answer, err := d.answered(questionVerb(verb), data)
	if err != nil {
		err = api.ProblemOf(err)
	}
	return answer, err
}

// Pulse is how far the fold has come, as Ask finds it.
func (d *Desk) Pulse() (pulse api.Pulse, err error) {
	if !d.Board.asking.enter() {
		return pulse, fmt.Errorf("cannot ask about tenant %s: the host is stopping", d.Tenant)
	}
	defer d.Board.asking.leave()
	defer func() {
		if broken, ok := recover().(*rows.StoreError); ok {
			err = broken
		}
	}()
	d.look(func(r *view.Reader) { pulse = r.Pulse() })
	return pulse, nil
}

// Watch follows the fold until the watch is closed. The error says that the host is stopping,
// or that there are as many watches as one tenant may have.
func (d *Desk) Watch() (*Watch, error) {
	pulse, err := d.Pulse()
	if err != nil {
		return nil, err
	}
	w := d.Board.Feed.watch(pulse)
	if w == nil {
		return nil, fmt.Errorf("cannot follow tenant %s: %d watches follow it already", d.Tenant,
			watchesMax)
	}
	return w, nil
}

// answered carries out one request; a broken snapshot is an error, too.
func (d *Desk) answered(v verb, body []byte) (answer any, err error) {
	defer func() {
		if r := recover(); r != nil {
			broken, ok := r.(*rows.StoreError)
			if r == (dropped{}) {
				answer, err = nil, nil
				return
			}
			if !ok {
				// A broken rule of ours, which a preview may meet first, costs this
				// question its answer; the actor will see for itself.
				d.Log.Error("a question met what is impossible",
					"verb", v.name, "panic", r, "stack", string(debug.Stack()))
				answer, err = nil, fmt.Errorf("cannot answer %s: %v", v.name, r)
				return
			}
			answer, err = nil, broken
		}
	}()
	if erased := d.Board.erasure(); erased != nil && !v.always && v.name != api.TenantStatus.Name &&
		v.name != api.TenantErase.Name {
		const text = "tenant %s was erased by %s: %s"
		return nil, fmt.Errorf(text, d.Tenant, erased.Actor, erased.Reason)
	}
	answer, err = v.answer(d, body)
	if errors.As(err, new(alone)) {
		answer = nil
	}
	return answer, err
}

// look runs read over a snapshot of the state with all that is folded, as of this host's
// guarded clock, in the place of the question, which it has until it waits or is answered.
func (d *Desk) look(read func(*view.Reader)) {
	d.Board.settle()
	d.question.work()
	snapshot := d.DB.NewSnapshot()
	defer func() { _ = snapshot.Close() }()
	programs, _ := d.Shared.programs.Get().(*triggers.Cache)
	if programs == nil {
		programs = triggers.NewCache(questionPrograms)
	}
	read(view.NewReaderWith(store.NewView(snapshot, d.Tenant), d.Tenant,
		store.NewArchive(d.Tenant, d.Board.Records()), programs).At(d.Now().UnixNano()))
	d.Shared.programs.Put(programs) // not after a panic
}

// looked is look for what may be refused: the value, or what is wrong.
func looked[T any](d *Desk, read func(*view.Reader) (T, error)) (value T, err error) {
	d.look(func(r *view.Reader) {
		v, wrong := read(r)
		if err = wrong; err == nil {
			value = v
		}
	})
	return value, err
}

// respond answers a request; where there is nothing to say, another host may.
func (d *Desk) respond(m *nats.Msg, v verb) {
	answer, err := d.answered(v, m.Data)
	if answer == nil && err == nil {
		return
	}
	if chunk, ok := answer.(bytesAnswer); ok {
		if err := m.RespondMsg(chunk.message()); err != nil {
			d.Log.Warn("a chunk not sent", "error", err)
		}
		return
	}
	d.say(m, v, encoded(answer, err))
}

// say sends an answer.
func (d *Desk) say(m *nats.Msg, v verb, body []byte) {
	err := m.Respond(body)
	if errors.Is(err, nats.ErrMaxPayload) {
		const text = "the answer takes %d bytes, more than the server passes on; ask for less"
		err = m.Respond(encoded(nil, fmt.Errorf(text, len(body))))
	}
	if err != nil {
		d.Log.Warn("answer not sent", "verb", v.name, "error", err)
	}
}

func encoded(answer any, err error) []byte {
	var problem *api.Problem
	if err != nil {
		problem = api.ProblemOf(err)
	}
	body, err := api.EncodeAnswer(answer, problem)
	if err != nil {
		panic("ask: cannot encode an answer: " + err.Error())
	}
	return body
}

// refuse is what is wrong with a request whose body is not what its verb takes.
func (d *Desk) refuse(err error) *api.Problem {
	d.Meter.RefusedRequest(observe.RefusedBody)
	problem := &api.Problem{Text: err.Error()}
	var refused *ledger.Refused
	if errors.As(err, &refused) {
		problem.Field, problem.Want = refused.Field, refused.Want
	}
	return problem
}

// untilGone is for what may take long: until the host stops.
func (d *Desk) untilGone() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), rebuildMax)
	go func() { // ends with the answer, or ends it with the host
		select {
		case <-d.Board.asking.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
