package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/sagenbaum/sagenbaum/ledger"
)

const contentType = "Content-Type"

const (
	readAheadLenMax  = 10_000           // messages asked for at once
	readAheadSizeMax = 16 << 20         // bytes of them, and so the memory of one reader
	pullExpiry       = 10 * time.Second // of one request for more
	pullHeartbeat    = 2 * time.Second  // two missing ones: the reader starts again
	consumerIdleMax  = 30 * time.Second // after which the server forgets a reader
	readRetryWait    = 100 * time.Millisecond
	// questionWait bounds a reader's questions: a cluster without a leader drops
	// them, and a reader must not wait for its own end then.
	questionWait = 2 * time.Second
)

// Read is as in ledger.Store. It outlives reconnects, restarts of the server and
// leader changes; a closed connection ends it, or a guard, or the end of ctx.
// Each time it starts again it compares the last message it gave out with the
// stream (guard G2), so that a tail that was lost and grew anew is noticed.
func (s *Store) Read(ctx context.Context, from uint64) iter.Seq2[ledger.Message, error] {
	return func(yield func(ledger.Message, error) bool) {
		r := reader{store: s, next: from, yield: yield}
		for {
			err := r.run(ctx)
			if r.done {
				return
			}
			if err = s.mayContinue(ctx, err); err != nil {
				yield(ledger.Message{}, err)
				return
			}
		}
	}
}

// mayContinue decides whether a broken read starts again where it was (nil), and
// waits a little before it does.
func (s *Store) mayContinue(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var halted *ledger.Halted
	var refused *ledger.Refused
	switch {
	case errors.As(err, &halted), errors.As(err, &refused):
		return err
	case s.conn.IsClosed():
		return fmt.Errorf("cannot read %s: %w", StreamName(s.tenant), nats.ErrConnectionClosed)
	case errors.Is(err, js.ErrStreamNotFound):
		return &ledger.Halted{Guard: "G1", Problem: "the stream is gone"}
	}
	timer := time.NewTimer(readRetryWait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// reader is one Read. Its consumer lives in the server's memory, wants no
// acknowledgements and is made anew when anything breaks: the order and the
// position are kept here.
type reader struct {
	store *Store
	next  uint64
	last  ledger.Message // given out before next; Sequence 0: none
	yield func(ledger.Message, error) bool
	done  bool // yield wants no more
}

// run reads with one consumer until the caller wants no more or something breaks.
func (r *reader) run(ctx context.Context) error {
	consumer, err := r.begin(ctx)
	if err != nil {
		return err
	}
	s := r.store
	// No answer is waited for: a consumer that stays is forgotten when idle.
	defer s.conn.Publish("$JS.API.CONSUMER.DELETE."+StreamName(s.tenant)+"."+consumer.CachedInfo().Name, nil) //nolint:errcheck
	messages, err := consumer.Messages(js.PullMaxMessagesWithBytesLimit(readAheadLenMax, readAheadSizeMax),
		js.PullExpiry(pullExpiry), js.PullHeartbeat(pullHeartbeat))
	if err != nil {
		return err
	}
	defer messages.Stop()
	untilReconnect, cancel := context.WithCancel(ctx)
	defer cancel()
	// Behind a reconnect the consumer may be gone with the server's memory. This
	// goroutine says so at once, instead of two missing heartbeats; it ends with run.
	reconnected := s.conn.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer s.conn.RemoveStatusListener(reconnected)
	go func() {
		select {
		case <-reconnected:
			cancel()
		case <-untilReconnect.Done():
		}
	}()
	inContext := js.NextContext(untilReconnect)
	for !r.done {
		msg, err := messages.Next(inContext)
		if err != nil {
			return err
		}
		if err := r.deliver(msg); err != nil {
			return err
		}
	}
	return nil
}

// begin holds the guards and makes the consumer.
func (r *reader) begin(ctx context.Context) (js.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, questionWait)
	defer cancel()
	if err := r.guard(ctx); err != nil {
		return nil, err
	}
	return r.store.stream.CreateConsumer(ctx, js.ConsumerConfig{
		DeliverPolicy: js.DeliverByStartSequencePolicy, OptStartSeq: r.next, AckPolicy: js.AckNonePolicy,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: consumerIdleMax,
	})
}

// guard compares where this reader stands with the stream as it is now.
func (r *reader) guard(ctx context.Context) error {
	head, err := r.store.Head(ctx)
	if err != nil {
		return err
	}
	if err := head.Readable(r.next); err != nil || r.last.Sequence == 0 {
		return err
	}
	again, err := r.store.Get(ctx, r.last.Sequence)
	if err != nil {
		return err
	}
	if again.StampNs != r.last.StampNs || again.Subject != r.last.Subject || !bytes.Equal(again.Data, r.last.Data) {
		return &ledger.Halted{Guard: "G2", Sequence: again.Sequence, Problem: "the stream has another record here than was read before"}
	}
	return nil
}

// deliver gives out the next message, or says which one is missing.
func (r *reader) deliver(msg js.Msg) error {
	meta, err := msg.Metadata()
	if err != nil {
		return err
	}
	if meta.Sequence.Stream != r.next {
		return &ledger.Halted{Guard: "G1", Sequence: r.next, Problem: fmt.Sprintf("the record is missing; the next is %d", meta.Sequence.Stream)}
	}
	r.last = ledger.Message{
		Sequence: r.next, StampNs: meta.Timestamp.UnixNano(), Subject: msg.Subject(),
		ContentType: msg.Headers().Get(contentType), Data: msg.Data(),
	}
	r.next++
	r.done = !r.yield(r.last, nil)
	return nil
}
