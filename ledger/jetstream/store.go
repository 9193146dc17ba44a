// Package jetstream keeps ledgers in NATS JetStream: one stream per tenant, one
// message per commit of records. It is the only package that uses the streams.
//
// What the store promises: an append that returned is on disk (the embedded
// server syncs every write; see Config.AcceptLossyBroker for others), the order
// is the stream's, and a read never skips. What it cannot promise: that the
// server keeps what it acknowledged for ever. One flipped bit can lose a record
// without a word, and stamps go back with the clock. So every read checks that
// no sequence is missing, and the executor keeps a copy of its own. Whoever may
// delete the stream, or write its files, is trusted.
package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Config says which ledger to open and what to ask of its server.
type Config struct {
	Conn   *nats.Conn // of a user that may read and provision; kept and closed by the caller
	Tenant string
	// MaxBytes bounds the stream on disk; 0: no bound for a new stream, any for
	// one that is there. A full stream refuses appends, it never drops.
	MaxBytes int64
	// Replicas of a new stream, and the least that is asked of one that is there;
	// 0: 1. More than 1 needs a cluster.
	Replicas int
	// DurableServer is the ID of a server known to sync every write
	// (embedded.Server.DurableID); empty: none.
	DurableServer string
	// System is a connection of the server's system account, where an external
	// server says whether it syncs every write; nil: none.
	System *nats.Conn
	// AcceptLossyBroker opens a ledger on a server that may lose acknowledged
	// records when the power fails.
	AcceptLossyBroker bool
}

// Store is one tenant's ledger as a stream; it implements ledger.Store and is
// safe for concurrent use.
type Store struct {
	*Appender
	stream js.Stream
}

var _ ledger.Store = (*Store)(nil)

// StreamName is the name of a tenant's stream.
func StreamName(tenant string) string { return "SAGA_" + tenant }

// Open finds or makes a tenant's stream and returns its store. A server that is
// too old, has JetStream off, takes requests with unknown fields or is not known to
// sync every write, and a stream that contradicts what a ledger needs, are
// *ledger.Refused, naming the setting.
// Open never changes a stream that is there.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	appender, err := Attach(cfg.Conn, cfg.Tenant)
	if err != nil {
		return nil, err
	}
	if cfg.MaxBytes < 0 || cfg.Replicas < 0 || cfg.Replicas > 5 {
		return nil, ledger.Refuse("config", fmt.Sprintf("max_bytes %d, replicas %d", cfg.MaxBytes,
			cfg.Replicas), "max_bytes of 0 or more, replicas 1 to 5")
	}
	if err := checkServer(cfg.Conn); err != nil {
		return nil, err
	}
	if err := checkServers(ctx, cfg); err != nil {
		return nil, err
	}
	if !cfg.durable() { // the embedded server is strict
		if err := CheckStrict(ctx, cfg.Conn, cfg.Tenant); err != nil {
			return nil, err
		}
	}
	stream, err := provision(ctx, appender.js, cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot open stream %s: %w", StreamName(cfg.Tenant), err)
	}
	return &Store{Appender: appender, stream: stream}, nil
}

// Append is as in ledger.Store. Unlike Appender's it can tell the retry of a fenced append
// that was stored from a conflict when the server remembers its id no more: it reads.
func (s *Store) Append(ctx context.Context, a ledger.Append) (uint64, error) {
	sequence, err := s.Appender.Append(ctx, a)
	if !errors.Is(err, ledger.ErrConflict) {
		return sequence, err
	}
	last, getErr := s.stream.GetLastMsgForSubject(ctx, a.Subject)
	switch {
	case errors.Is(getErr, js.ErrMsgNotFound):
		return 0, err
	case getErr != nil:
		return 0, fmt.Errorf("cannot append to %s: %w: %v, and then %v", a.Subject,
			ledger.ErrInDoubt, err, getErr)
	case last.Header.Get(js.MsgIDHeader) == a.ID:
		return last.Sequence, nil
	}
	return 0, err
}

// Head is as in ledger.Store; the stream's leader answers.
func (s *Store) Head(ctx context.Context) (ledger.Head, error) {
	info, err := s.stream.Info(ctx)
	if err != nil {
		return ledger.Head{}, fmt.Errorf("cannot read the head of %s: %w", StreamName(s.tenant),
			err)
	}
	return headOf(info), nil
}

// messageAnswer is the answer to $JS.API.STREAM.MSG.GET.
type messageAnswer struct {
	Error   *js.APIError `json:"error"`
	Message *struct {
		Subject  string    `json:"subject"`
		Sequence uint64    `json:"seq"`
		Header   []byte    `json:"hdrs"`
		Data     []byte    `json:"data"`
		Time     time.Time `json:"time"`
	} `json:"message"`
}

// Replicas is how many servers have the stream, as it was when it was opened.
func (s *Store) Replicas() int { return s.stream.CachedInfo().Config.Replicas }

func (a messageAnswer) notFound() bool {
	return a.Error != nil && a.Error.ErrorCode == js.JSErrCodeMessageNotFound
}

// leaderMax is how long the leader of a stream has for its answer; while there is none, no one
// answers.
const leaderMax = 5 * time.Second

// askLeader asks for a message: no replica answers, which may lag.
func askLeader(ctx context.Context, conn *nats.Conn, stream, which string) (answer messageAnswer,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, leaderMax)
	defer cancel()
	reply, err := conn.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, []byte(which))
	if err == nil {
		err = json.Unmarshal(reply.Data, &answer)
	}
	return answer, err
}

// Get is as in ledger.Store. The leader answers: a replica may lag, or have another history.
func (s *Store) Get(ctx context.Context, sequence uint64) (ledger.Message, error) {
	fail := func(err error) (ledger.Message, error) {
		return ledger.Message{}, fmt.Errorf("cannot get %d of %s: %w", sequence,
			StreamName(s.tenant), err)
	}
	if sequence == 0 {
		return ledger.Message{}, ledger.Head{}.Holds(sequence)
	}
	which := fmt.Sprintf(`{"seq":%d}`, sequence)
	answer, err := askLeader(ctx, s.conn, StreamName(s.tenant), which)
	if err == nil && answer.notFound() {
		// It may come after the last one. Where it does not, it is asked for again: it may have come
		// since.
		var head ledger.Head
		if head, err = s.Head(ctx); err != nil {
			return fail(err)
		}
		if err := head.Holds(sequence); err != nil {
			return ledger.Message{}, err
		}
		answer, err = askLeader(ctx, s.conn, StreamName(s.tenant), which)
	}
	if err != nil {
		return fail(err)
	}
	switch {
	case answer.notFound():
		return ledger.Message{}, &ledger.Halted{Guard: "G1", Sequence: sequence,
			Problem: "the record is missing"}
	case answer.Error != nil:
		return fail(answer.Error)
	case answer.Message == nil:
		return fail(errors.New("the server's answer has no message"))
	}
	m := answer.Message
	msg := ledger.Message{Sequence: m.Sequence, StampNs: m.Time.UnixNano(), Subject: m.Subject,
		Data: m.Data}
	if len(m.Header) > 0 {
		// One that cannot be read says nothing, as where the stream is read in order.
		if header, err := nats.DecodeHeadersMsg(m.Header); err == nil {
			msg.ContentType = header.Get(contentType)
		}
	}
	return msg, nil
}
