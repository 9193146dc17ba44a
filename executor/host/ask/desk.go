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
	Conn   *nats.Conn
	DB     *pebble.DB // of all tenants
	Dir    string     // for what a rebuild folds
	Log    *slog.Logger
	Now    func() time.Time // of decisions

	Board    *Board
	Workers  *Workers
	Keys     Keyring
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
}

// Signer signs checkpoints: *proof.Signer.
type Signer interface {
	View(v api.Checkpoint) api.Checkpoint
	KeyProblem(named string, last []byte) string
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
	programs   sync.Pool   // *triggers.Cache, of one question at a time
	rebuilding atomic.Bool // a rebuild is under way
	strict     jetstream.StrictServers
}

// Desk answers what is asked about one tenant. Its methods may be called from any goroutine.
type Desk struct {
	Config
	requests chan Request
}

// New makes the desk of a tenant, which answers Ask at once, and over NATS from Serve on.
func New(cfg Config) *Desk { return &Desk{Config: cfg, requests: make(chan Request)} }

// Request is what an operator asks of a tenant's loop.
type Request struct {
	Verb     string
	Repair   api.RepairQuery
	Rotation api.RotationQuery
	Erasure  api.TenantErasureQuery
	Answer   chan any // buffered 1
}

// Requests are what operators ask of the loop. Each must be answered.
func (d *Desk) Requests() <-chan Request { return d.requests }

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
	for subject, of := range map[string]func(m *nats.Msg) (string, verb){
		queries + ">": func(m *nats.Msg) (string, verb) {
			name := strings.TrimPrefix(m.Subject, queries)
			return name, questionVerb(name)
		},
		admin + ">": func(m *nats.Msg) (string, verb) {
			name := strings.TrimPrefix(m.Subject, admin)
			return name, adminVerb(name)
		},
		keys + "*": func(m *nats.Msg) (string, verb) {
			agent := strings.TrimPrefix(m.Subject, keys)
			if agent == api.KeyHosts {
				give := func(d *Desk, asked vault.Asked) any { return d.give(asked, m.Reply) }
				return "key.tenant", everyHost(taking(give))
			}
			ask := func(d *Desk, q api.KeyQuery) any { return d.key(agent, q) }
			return "key", slow(taking(ask))
		},
		api.HostsSubject(d.Tenant): func(*nats.Msg) (string, verb) {
			return "hosts", questions["host"]
		},
		api.RevealSubject(d.Tenant): func(*nats.Msg) (string, verb) {
			return "reveal", slow(taking((*Desk).reveal))
		},
	} {
		sub, err := d.serve(subject, of)
		if err != nil {
			return silence, err
		}
		subs = append(subs, sub)
	}
	return silence, nil
}

// serve answers what comes on a subject: of returns the name of what is asked, and
// what answers it. What is slow gets a goroutine, which ends with its answer.
func (d *Desk) serve(subject string,
	of func(m *nats.Msg) (name string, v verb)) (*nats.Subscription, error) {
	sub, err := d.Conn.Subscribe(subject, func(m *nats.Msg) {
		if !d.takes(m) {
			return
		}
		name, v := of(m)
		if !v.always && d.Board.silent() || !d.Board.asking.enter() {
			return
		}
		if v.slow {
			go func() { defer d.Board.asking.leave(); d.respond(m, name, v) }()
			return
		}
		defer d.Board.asking.leave()
		d.respond(m, name, v)
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

// Ask answers one question of the query API (docs/cli.md) as its NATS subject does: the
// answer is one of package view, of the verb or a api.ErrorAnswer. The error says that the
// host is stopping, or that q is no JSON.
func (d *Desk) Ask(verb string, q any) (any, error) {
	data, err := json.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("cannot ask %s: %w", verb, err)
	}
	if !d.Board.asking.enter() {
		return nil, fmt.Errorf("cannot ask %s: the host is stopping", verb)
	}
	defer d.Board.asking.leave()
	return d.answered(verb, questionVerb(verb), "", data), nil
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

// answered carries out one request; a broken snapshot is an error in the answer.
func (d *Desk) answered(name string, v verb, user string, body []byte) (answer any) {
	defer func() {
		if r := recover(); r != nil {
			broken, ok := r.(*rows.StoreError)
			if !ok {
				// A broken rule of ours, which a preview may meet first, costs this
				// question its answer; the actor will see for itself.
				d.Log.Error("a question met what is impossible",
					"verb", name, "panic", r, "stack", string(debug.Stack()))
				answer = api.ErrorAnswer{Error: fmt.Sprintf("cannot answer %s: %v", name, r)}
				return
			}
			answer = api.ErrorAnswer{Error: broken.Error()}
		}
	}()
	if erased := d.Board.erasure(); erased != nil && !v.always && name != "status" &&
		name != "tenant.erase" {
		const text = "tenant %s was erased by %s: %s"
		return api.ErrorAnswer{Error: fmt.Sprintf(text, d.Tenant, erased.Actor, erased.Reason)}
	}
	if v.asked != nil {
		return v.asked(d, user, body)
	}
	return v.answer(d, body)
}

// look runs read over a snapshot of the state with all that is folded, as of this host's
// guarded clock.
func (d *Desk) look(read func(*view.Reader)) {
	d.Board.settle()
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
func looked[T any](d *Desk, read func(*view.Reader) (T, error)) (value T, problem string) {
	d.look(func(r *view.Reader) {
		v, err := read(r)
		if err != nil {
			problem = err.Error()
			return
		}
		value = v
	})
	return value, problem
}

// respond answers a request; where there is nothing to say, another host may.
func (d *Desk) respond(m *nats.Msg, name string, v verb) {
	answer := d.answered(name, v, userOf(m), m.Data)
	if answer == nil {
		return
	}
	body, err := json.Marshal(answer)
	if err != nil {
		panic("ask: cannot encode an answer: " + err.Error())
	}
	err = m.Respond(body)
	if errors.Is(err, nats.ErrMaxPayload) {
		const text = "the answer takes %d bytes, more than the server passes on; ask for less"
		answer := api.ErrorAnswer{Error: fmt.Sprintf(text, len(body))}
		if body, err = json.Marshal(answer); err == nil {
			err = m.Respond(body)
		}
	}
	if err != nil {
		d.Log.Warn("answer not sent", "verb", name, "error", err)
	}
}

// refuse is the answer to a request whose body is not what its verb takes.
func (d *Desk) refuse(err error) api.ErrorAnswer {
	d.Meter.RefusedRequest(observe.RefusedBody)
	answer := api.ErrorAnswer{Error: err.Error()}
	var refused *ledger.Refused
	if errors.As(err, &refused) {
		answer.Field, answer.Want = refused.Field, refused.Want
	}
	return answer
}

// bounded carries out what may take long, until the host stops.
func (d *Desk) bounded(do func(context.Context) any) any {
	ctx, cancel := context.WithTimeout(context.Background(), rebuildMax)
	defer cancel()
	go func() { // ends with the answer, or ends it with the host
		select {
		case <-d.Board.asking.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	return do(ctx)
}

// handOver has the loop carry out a request between two turns.
func (d *Desk) handOver(r Request) any {
	return d.bounded(func(ctx context.Context) any {
		r.Answer = make(chan any, 1)
		select {
		case d.requests <- r:
		case <-ctx.Done():
			return api.ErrorAnswer{Error: "the tenant is at something else; ask again"}
		}
		select {
		case answer := <-r.Answer:
			return answer
		case <-ctx.Done():
			const text = "the host has stopped before it was done; look at sagenbaum status"
			return api.ErrorAnswer{Error: text}
		}
	})
}
