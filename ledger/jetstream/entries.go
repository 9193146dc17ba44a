package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// entryMessageMax bounds one entry, in bytes with its headers.
const entryMessageMax = 64 << 10

// entries are what a stream of its own says of tenants, the last entry of each counts. The
// stream belongs to no tenant, outlives all of theirs, and nothing is ever taken out of it.
type entries struct {
	client              js.JetStream
	replicas            int
	stream, description string
	prefix              string // of its subjects, before the tenant
}

// newEntries finds no stream yet: it is made when the first entry is stored, with as many
// replicas as a ledger.
func newEntries(conn *nats.Conn, replicas int, of entries) (entries, error) {
	client, err := js.New(conn)
	if err != nil {
		return entries{}, fmt.Errorf("cannot use the connection: %v", err)
	}
	of.client, of.replicas = client, max(replicas, 1)
	return of, nil
}

// Get returns the last entry of a tenant, and its sequence; nil and 0: it has none.
func (e *entries) Get(ctx context.Context, tenant string) ([]byte, uint64, error) {
	if !ledger.ValidToken(tenant) {
		return nil, 0, ledger.Refuse("tenant", fmt.Sprintf("%.80q is no name", tenant),
			ledger.TokenWanted)
	}
	ctx, done := context.WithTimeout(ctx, lookupWait)
	defer done()
	stream, err := e.client.Stream(ctx, e.stream)
	if errors.Is(err, js.ErrStreamNotFound) {
		return nil, 0, nil
	}
	var m *js.RawStreamMsg
	if err == nil {
		m, err = stream.GetLastMsgForSubject(ctx, e.prefix+tenant)
	}
	switch {
	case errors.Is(err, js.ErrMsgNotFound):
		return nil, 0, nil
	case err != nil:
		return nil, 0, fmt.Errorf("cannot read stream %s about tenant %s: %w", e.stream, tenant,
			explain(err))
	}
	return m.Data, m.Sequence, nil
}

// Put stores an entry of a tenant after the one of a sequence, or 0 for none, and returns its
// own. The error is ledger.ErrConflict when that is not the last one.
func (e *entries) Put(ctx context.Context, tenant string, value []byte,
	after uint64) (uint64, error) {
	if !ledger.ValidToken(tenant) {
		return 0, ledger.Refuse("tenant", fmt.Sprintf("%.80q is no name", tenant),
			ledger.TokenWanted)
	}
	ctx, done := context.WithTimeout(ctx, lookupWait)
	defer done()
	if err := e.open(ctx); err != nil {
		return 0, fmt.Errorf("cannot open stream %s: %w", e.stream, explain(err))
	}
	m := &nats.Msg{Subject: e.prefix + tenant, Data: value}
	ack, err := e.client.PublishMsg(ctx, m, js.WithExpectLastSequencePerSubject(after))
	if isWrongLast(err) {
		return 0, fmt.Errorf("%w: tenant %s", ledger.ErrConflict, tenant)
	}
	if err != nil {
		return 0, fmt.Errorf("cannot store in stream %s about tenant %s: %w", e.stream, tenant,
			explain(err))
	}
	return ack.Sequence, nil
}

// isWrongLast reports whether a subject has another last message than a publisher has said.
func isWrongLast(err error) bool {
	var refused *js.APIError
	return errors.As(err, &refused) && (refused.ErrorCode == js.JSErrCodeStreamWrongLastSequence ||
		strings.Contains(refused.Description, "wrong last sequence"))
}

// hasCode reports whether JetStream has refused something with a code.
func hasCode(err error, code js.ErrorCode) bool {
	var refused *js.APIError
	return errors.As(err, &refused) && refused.ErrorCode == code
}

// open finds the stream, or makes it.
func (e *entries) open(ctx context.Context) error {
	_, err := e.client.Stream(ctx, e.stream)
	if !errors.Is(err, js.ErrStreamNotFound) {
		return err
	}
	_, err = e.client.CreateStream(ctx, js.StreamConfig{
		Name: e.stream, Description: e.description,
		Subjects: []string{e.prefix + "*"}, MaxMsgs: -1, MaxBytes: -1, MaxConsumers: -1,
		MaxMsgsPerSubject: -1, MaxMsgSize: entryMessageMax, Discard: js.DiscardNew,
		Storage: js.FileStorage, Replicas: e.replicas, DenyDelete: true, DenyPurge: true,
	})
	if errors.Is(err, js.ErrStreamNameAlreadyInUse) { // another host was faster
		err = nil
	}
	return err
}
