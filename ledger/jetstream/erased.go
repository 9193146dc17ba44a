package jetstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"
)

// ErasedStream is the stream that says which tenants were erased, or are being erased.
const ErasedStream = "ERASED_TENANTS"

// Erasures keeps what is said of the erasure of tenants: an entry of [entries] each. It promises
// that what was stored is there after a crash, as records are, and that no one takes it back. It
// is safe for concurrent use.
type Erasures struct{ entries }

// NewErasures are the erasures of a server; the stream is made when the first one is stored,
// with as many replicas as a ledger.
func NewErasures(conn *nats.Conn, replicas int) (*Erasures, error) {
	e, err := newEntries(conn, replicas, entries{stream: ErasedStream, prefix: "erased.",
		description: "Sagenbaum: which tenants were erased"})
	if err != nil {
		return nil, err
	}
	return &Erasures{e}, nil
}

// Remove deletes the ledger of a tenant, its blobs and the keys of its plans. Again is harmless.
func (e *Erasures) Remove(ctx context.Context, tenant string) error {
	for _, name := range [...]string{KeysStreamName(tenant), BlobsStreamName(tenant),
		StreamName(tenant)} {
		err := e.client.DeleteStream(ctx, name)
		if err != nil && !errors.Is(err, js.ErrStreamNotFound) {
			return fmt.Errorf("cannot delete stream %s: %w", name, explain(err))
		}
	}
	return nil
}
