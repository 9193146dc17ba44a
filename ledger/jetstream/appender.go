package jetstream

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// appendWait bounds an append whose ctx has no deadline.
const appendWait = 5 * time.Second

// ErrNoStream says that no stream took the subject: it was not provisioned, its
// server is starting, or a replicated one has no leader at this moment. Nothing
// is stored. It is also a ledger.ErrBusy, so that a caller that does not care
// simply tries again.
var ErrNoStream = fmt.Errorf("no stream takes this subject: %w", ledger.ErrBusy)

// ErrDenied says that this user may not publish the subject: the server has dropped the message,
// and nothing is stored. It is also a ledger.ErrInDoubt, for a caller that does not know of it.
var ErrDenied = fmt.Errorf("%w: this user may not publish the subject", ledger.ErrInDoubt)

// NewID returns an id for one commit: ledger.IDLen hex digits of randomness, to
// be kept over its retries. Guessable ids would let one writer swallow
// another's record.
func NewID() string {
	var id [ledger.IDLen / 2]byte
	rand.Read(id[:]) // never fails, as crypto/rand documents
	return hex.EncodeToString(id[:])
}

// NewAppend makes one commit of records of a source. Where nothing but an id tells a record from
// its copies (ledger.TakesID), one that has none gets one. The error is a *ledger.Refused.
func NewAppend(source ledger.Source, records ...*pb.Record) (ledger.Append, error) {
	for _, r := range records {
		if r.Id == "" && ledger.TakesID(source.Class) {
			r.Id = ulid.Make().String()
		}
	}
	data, err := ledger.EncodeCommit(records)
	return ledger.Append{Subject: source.Subject(), ID: NewID(), Data: data}, err
}

// Error codes of the server that mean something to an append. They are part of
// its API: https://github.com/nats-io/nats-server/blob/main/server/errors.json.
const (
	codeAccountResources  = 10002
	codeResources         = 10023
	codeInvalidJSON       = 10025
	codeMemoryExceeded    = 10028
	codeStorageExceeded   = 10047
	codeTooLarge          = 10054
	codeFenceMoved        = 10071
	codeStoreFailed       = 10077
	codeHeaderTooLarge    = 10097
	codeSealed            = 10109
	codeRollup            = 10111
	codeDuplicateInFlight = 10158
	codeFenceNotReady     = 10163
	codeFenceBusy         = 10164
)

// boundReached begins what the server says with codeStoreFailed when a stream is at one
// of its own bounds, which it looks at before it stores. Of other failures to store it is
// not known what is on the disk.
const boundReached = "maximum "

// fenceAt begins what the server says with codeFenceMoved, before the sequence of the last
// message of the fence's subject.
const fenceAt = "wrong last sequence: "

// Appender appends to one tenant's stream and can do nothing else. It is what
// agents use: it needs permission to publish its own subjects and to subscribe
// its own inbox, and none on $JS.API. It is safe for concurrent use.
type Appender struct {
	conn   *nats.Conn
	js     js.JetStream
	tenant string
}

// Attach returns an appender of a tenant over a connection that the caller
// keeps and closes. It sends nothing. A tenant that is no name is *ledger.Refused.
func Attach(conn *nats.Conn, tenant string) (*Appender, error) {
	if !ledger.ValidToken(tenant) {
		return nil, ledger.Refuse("tenant", fmt.Sprintf("%q is not a name", tenant),
			ledger.TokenWanted)
	}
	if conn == nil {
		return nil, ledger.Refuse("conn", "missing", "a connection to NATS")
	}
	client, err := js.New(conn)
	if err != nil {
		return nil, fmt.Errorf("cannot use the connection: %v", err)
	}
	return &Appender{conn: conn, js: client, tenant: tenant}, nil
}

// Tenant is the tenant whose stream it appends to.
func (p *Appender) Tenant() string { return p.tenant }

// Append is as in ledger.Store. Beyond its errors there is ErrNoStream, which is
// also a ledger.ErrBusy, ErrDenied, and ErrConnectionClosed: nothing is stored, unless it is
// ErrInDoubt too (ErrDenied is, and stores nothing). A
// connection that no server has answered yet is busy.
// Without a deadline in ctx it is in doubt after 5 s.
func (p *Appender) Append(ctx context.Context, a ledger.Append) (uint64, error) {
	sequence, _, err := p.AppendOnce(ctx, a)
	return sequence, err
}

// AppendOnce is Append for an ID that is not random: again says that the server has stored a
// message with the ID before, whose contents may be other ones, and has stored nothing now.
func (p *Appender) AppendOnce(ctx context.Context, a ledger.Append) (sequence uint64, again bool,
	err error) {
	if err := a.Check(p.tenant); err != nil {
		return 0, false, err
	}
	if err := Closed(p.conn); err != nil {
		return 0, false, fmt.Errorf("cannot append to %s: nothing was sent: %w", a.Subject, err)
	}
	msg := &nats.Msg{Subject: a.Subject, Data: a.Data, Header: nats.Header{js.MsgIDHeader: {a.ID}}}
	if a.FenceSubject != "" {
		msg.Header[js.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(a.Fence, 10)}
		msg.Header[js.ExpectedLastSubjSeqSubjHeader] = []string{a.FenceSubject}
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, appendWait)
		defer cancel()
	}
	// No retry by the client: the caller, which knows its records, tries an append again.
	before := p.conn.LastError()
	ack, err := p.js.PublishMsg(ctx, msg, js.WithRetryAttempts(0))
	if err = p.outcome(a.Subject, err); errors.Is(err, ledger.ErrConflict) {
		ack, err = p.remembered(ctx, a, err)
	} else if errors.Is(err, ledger.ErrInDoubt) && Denied(p.conn, a.Subject, before) {
		err = ErrDenied
	}
	if err != nil {
		return 0, false, fmt.Errorf("cannot append to %s: %w", a.Subject, err)
	}
	if ack.Stream != StreamName(p.tenant) {
		return 0, false, fmt.Errorf("cannot append to %s: %w", a.Subject,
			ledger.Refuse("stream", fmt.Sprintf("the subject went to stream %s", ack.Stream),
				"no other stream on saga."+p.tenant+".>"))
	}
	return ack.Sequence, ack.Duplicate, nil
}

// remembered asks whether a fenced append that is refused was stored before, by an earlier
// try whose reply was late or lost: a single server looks at the fence before it looks at
// the id, and what is stored may have moved its own fence. It asks with the same id, without
// the fence, and with a header that the server looks at after the id and always refuses, so
// that nothing is stored. The error is the conflict where it does not remember.
func (p *Appender) remembered(ctx context.Context, a ledger.Append, conflict error) (*js.PubAck,
	error) {
	ack, err := p.js.PublishMsg(ctx, &nats.Msg{Subject: a.Subject, Header: nats.Header{
		js.MsgIDHeader: {a.ID}, js.MsgRollup: {"none"},
	}}, js.WithRetryAttempts(0))
	var api *js.APIError
	if errors.As(err, &api) && int(api.ErrorCode) == codeRollup {
		return nil, conflict
	}
	err = p.outcome(a.Subject, err)
	if err != nil && !errors.Is(err, ledger.ErrConflict) {
		err = fmt.Errorf("%w: %v, and then %v", ledger.ErrInDoubt, conflict, err)
	}
	return ack, err
}

// outcome sorts the errors of a publish into refused, conflict, busy and in
// doubt. Whatever is not known to be stored by no one is in doubt.
func (p *Appender) outcome(subject string, err error) error {
	var api *js.APIError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, js.ErrNoStreamResponse):
		return ErrNoStream
	case errors.As(err, &api):
		return refusal(api)
	case errors.Is(err, nats.ErrMaxPayload):
		return ledger.Refuse("max_payload", "the server takes no message of this size",
			fmt.Sprintf("max_payload of at least %d", MessageSizeMax))
	case errors.Is(err, nats.ErrHeadersNotSupported) && p.conn.IsConnected() &&
		!p.conn.HeadersSupported():
		return ledger.Refuse("server", "it takes no headers", "nats-server "+ServerVersions)
	case errors.Is(err, nats.ErrHeadersNotSupported): // no server has said yet what it can do
		return fmt.Errorf("no server has answered the connection yet, nothing was sent: %w",
			ledger.ErrBusy)
	}
	if gone := Closed(p.conn); gone != nil { // perhaps after the server had it
		return fmt.Errorf("%w: %w", ledger.ErrInDoubt, gone)
	}
	hint := ""
	if Denied(p.conn, subject, nil) { // perhaps of an earlier one
		hint = "; this user may not publish the subject"
	}
	return fmt.Errorf("%w: %v%s", ledger.ErrInDoubt, err, hint)
}

// Denied reports whether the server has said that a connection may not publish a subject, after the
// connection's last error was this one. It says so out of band, and drops what was published.
func Denied(conn *nats.Conn, subject string, before error) bool {
	last := conn.LastError()
	return last != before && errors.Is(last, nats.ErrPermissionViolation) &&
		strings.Contains(last.Error(), `"`+subject+`"`)
}

// refusal sorts the server's own answers. A 4xx is about the append and refuses it. A 5xx is
// about the server: it never refuses. It is busy where the server is known to have stored
// nothing, and in doubt elsewhere.
func refusal(api *js.APIError) error {
	switch int(api.ErrorCode) {
	case codeFenceMoved:
		last, found := strings.CutPrefix(api.Description, fenceAt)
		if at, err := strconv.ParseUint(last, 10, 64); found && err == nil {
			return &ledger.Fenced{Last: at}
		}
		return ledger.ErrConflict
	case codeFenceBusy, codeFenceNotReady:
		return ledger.ErrBusy
	case codeDuplicateInFlight:
		return fmt.Errorf("%w: a first copy is under way", ledger.ErrInDoubt)
	case codeTooLarge, codeHeaderTooLarge:
		return ledger.Refuse("records", "the stream takes no message of this size",
			fmt.Sprintf("at most %d bytes; pass larger arguments by reference",
				ledger.CommitSizeMax))
	case codeAccountResources, codeResources, codeMemoryExceeded, codeStorageExceeded:
		return noRoom(api)
	case codeStoreFailed:
		if strings.HasPrefix(api.Description, boundReached) {
			return noRoom(api)
		}
	case codeSealed:
		return ledger.Refuse("stream", "sealed", "a stream that is not sealed")
	}
	if api.Code < 400 || api.Code >= 500 {
		return fmt.Errorf("%w: %s (%d)", ledger.ErrInDoubt, api.Description, api.ErrorCode)
	}
	return ledger.Refuse("stream", fmt.Sprintf("%s (%d)", api.Description, api.ErrorCode),
		"a stream that Open provisioned")
}

func noRoom(api *js.APIError) error {
	return fmt.Errorf("%w: %s (%d); raise the limit of the tenant "+
		"(sagenbaum tenant limits NAME --bytes N), or give JetStream more storage",
		ledger.ErrFull, api.Description, api.ErrorCode)
}
