package jetstream

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"
)

// TenantsStream is the control stream: which tenants there are, and what each may use.
const TenantsStream = "TENANTS"

// Tenants is the control stream of a server: an entry of [entries] per tenant. What was stored is
// there after a crash, as records are, and no one takes it back. It is safe for concurrent use.
type Tenants struct{ entries }

// NewTenants is the control stream of a server; it is made when the first entry is stored, with
// as many replicas as a ledger.
func NewTenants(conn *nats.Conn, replicas int) (*Tenants, error) {
	e, err := newEntries(conn, replicas, entries{stream: TenantsStream, prefix: "tenant.",
		description: "Sagenbaum: which tenants there are, and what each may use"})
	if err != nil {
		return nil, err
	}
	return &Tenants{e}, nil
}

// TenantChange is an entry of the control stream. Its Tenant is empty where the stream has been
// read to its end as it was then: nothing has changed.
type TenantChange struct {
	Tenant   string
	Sequence uint64
	Value    []byte
}

// tenantsPause is between two looks for a stream that no one has made yet, and between two
// consumers.
const tenantsPause = time.Second

// tenantsSilence is how long a consumer may be silent before the stream's leader is asked
// whether there is more.
const tenantsSilence = 4 * time.Second

// Follow reads all entries in order, and goes on with what comes, until ctx ends. After those
// that were there it says once that these are all. It outlives reconnects and a stream that is
// not there yet.
func (t *Tenants) Follow(ctx context.Context) iter.Seq[TenantChange] {
	return func(yield func(TenantChange) bool) {
		f := following{tenants: t, next: 1, yield: yield}
		for ctx.Err() == nil && !f.done {
			err := f.run(ctx)
			switch {
			case f.done || ctx.Err() != nil:
				return
			case errors.Is(err, js.ErrStreamNotFound): // it has no entry
				f.whole()
			}
			timer := time.NewTimer(tenantsPause)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

// following is one Follow.
type following struct {
	tenants *Tenants
	next    uint64
	said    bool // that these are all
	done    bool // yield wants no more
	yield   func(TenantChange) bool
}

// whole says once that all entries were given out.
func (f *following) whole() {
	if !f.said && !f.done {
		f.said = true
		f.done = !f.yield(TenantChange{})
	}
}

// run reads with one consumer until something breaks.
func (f *following) run(ctx context.Context) error {
	open, done := context.WithTimeout(ctx, questionWait)
	defer done()
	stream, err := f.tenants.client.Stream(open, TenantsStream)
	if err != nil {
		return err
	}
	last := stream.CachedInfo().State.LastSeq
	if f.next > last {
		f.whole()
	}
	consumer, err := stream.CreateConsumer(open, js.ConsumerConfig{
		DeliverPolicy: js.DeliverByStartSequencePolicy, OptStartSeq: f.next,
		AckPolicy: js.AckNonePolicy, MemoryStorage: true, Replicas: 1,
		InactiveThreshold: consumerIdleMax,
	})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(js.PullExpiry(pullExpiry), js.PullHeartbeat(pullHeartbeat))
	if err != nil {
		return err
	}
	defer messages.Stop()
	for !f.done {
		period, cancel := context.WithTimeout(ctx, tenantsSilence)
		msg, err := messages.Next(js.NextContext(period))
		cancel()
		switch {
		case err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			if err := f.askNext(ctx, stream); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		if meta.Sequence.Stream != f.next { // from here on again
			return errSilent
		}
		f.give(TenantChange{Tenant: strings.TrimPrefix(msg.Subject(), f.tenants.prefix),
			Sequence: f.next, Value: msg.Data()})
		if f.next > last {
			f.whole()
		}
	}
	return nil
}

func (f *following) give(c TenantChange) {
	f.next++
	f.done = !f.yield(c)
}

// askNext has another consumer made where this one is silent though there is more.
func (f *following) askNext(ctx context.Context, stream js.Stream) error {
	ctx, done := context.WithTimeout(ctx, questionWait)
	defer done()
	info, err := stream.Info(ctx)
	if err == nil && info.State.LastSeq >= f.next {
		err = errSilent
	}
	return err
}
