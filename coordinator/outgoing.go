package coordinator

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// outgoing is what a plan has queued for the ledger, and what of it is stored as far as known.
type outgoing struct {
	committer *committer
	of        string     // the plan's id
	opening   *pb.Record // PlanOpened until it is queued
	last      *bundle    // queued last
	known     uint64     // the highest sequence stored of a bundle before it; see stored
	deferred  []*bundle  // queued without a caller, not known to be stored
}

// queue puts bundles after what the plan has queued before: its opening and the
// outcomes whose commit was refused go first, so that nothing of a plan is ever
// stored before what came earlier, and nothing is lost by a refusal that passes.
// It is called with mu held and changes nothing when it fails.
func (q *outgoing) queue(bundles ...*bundle) error {
	// The last bundle is looked at first: the committer may refuse a commit at any
	// moment, and what it refuses from here on must take the new bundles with it.
	prev := q.last
	q.noteStored(prev)
	if prev != nil && prev.failed() {
		prev = nil
	}
	var again []*bundle
	pending := make([]*bundle, 0, len(q.deferred)+len(bundles))
	if q.opening != nil {
		again = append(again, newBundle(q.of, q.opening))
	}
	for _, b := range q.deferred {
		switch { // asked once: it may be settled at any moment
		case !b.settled():
			pending = append(pending, b)
		case b.err != nil:
			again = append(again, newBundle(q.of, b.records...))
		}
	}
	all := bundles
	if len(again) > 0 {
		all = slices.Concat(again, bundles)
	}
	for _, b := range all {
		b.prev, prev = prev, b
	}
	if len(all) > 0 {
		if err := q.committer.put(all...); err != nil {
			return err
		}
	}
	q.opening = nil
	if len(all) > 0 {
		q.last = prev
	}
	q.deferred = append(pending, again...)
	for _, b := range bundles {
		if !b.urgent {
			q.deferred = append(q.deferred, b)
		}
	}
	return nil
}

// queueOutcome queues a record that no one waits for. Called with mu held.
func (q *outgoing) queueOutcome(record *pb.Record) error {
	b := newBundle(q.of, record)
	b.due = time.Now().Add(LingerMax)
	return q.queue(b)
}

// queueCall queues records that a call waits for, in one bundle, with the place
// that the call has entered. Called with mu held.
func (q *outgoing) queueCall(records ...*pb.Record) (*bundle, error) {
	b := newBundle(q.of, records...)
	b.urgent, b.holdsPlace = true, true
	return b, q.queue(b)
}

// noteStored takes note of a bundle that is known to be stored. Called with mu held.
func (q *outgoing) noteStored(b *bundle) {
	if b != nil && b.settled() && b.err == nil {
		q.known = max(q.known, b.seq)
	}
}

// traceparent is the trace context that a call is part of, as it is recorded; nil for
// none. What undoes the action later, perhaps in weeks, is linked to it.
func traceparent(ctx context.Context) []byte {
	at := trace.SpanContextFromContext(ctx)
	if !at.IsValid() {
		return nil
	}
	return []byte(ledger.FormatTraceparent(at.TraceID(), at.SpanID(), byte(at.TraceFlags())))
}
