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
	// readSilenceMax is how long a reader waits for a message before it asks whether there
	// is one: a consumer whose replica lacks what comes next delivers nothing and answers
	// all the same.
	readSilenceMax = 4 * time.Second
	// questionWait bounds a reader's questions: a cluster without a leader drops
	// them, and a reader must not wait for its own end then.
	questionWait = 2 * time.Second
	// gapMax bounds the messages that a reader fetches one by one where its consumer has left
	// them out; a larger gap is left to another consumer.
	gapMax = 1000
)

// Read is as in ledger.Store. It outlives reconnects, restarts of the server and
// leader changes; a closed connection ends it, or a guard, or the end of ctx.
// Each time it starts again it compares the last message it gave out with the
// stream (guard G2), so that a tail that was lost and grew again is noticed.
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
// acknowledgements and is made again when anything breaks: the order and the
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
	gone := "$JS.API.CONSUMER.DELETE." + StreamName(s.tenant) + "." + consumer.CachedInfo().Name
	defer s.conn.Publish(gone, nil) //nolint:errcheck
	messages, err := consumer.Messages(js.PullMaxMessagesWithBytesLimit(readAheadLenMax,
		readAheadSizeMax),
		js.PullExpiry(pullExpiry), js.PullHeartbeat(pullHeartbeat))
	if err != nil {
		return err
	}
	defer messages.Stop()
	untilReconnect, cancel := context.WithCancel(ctx)
	defer cancel()
	// After a reconnect the consumer may be gone with the server's memory. This
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
	for !r.done {
		from := r.next
		if err := r.take(untilReconnect, messages); err != nil {
			return err
		}
		if r.next == from && !r.done {
			if err := r.askNext(untilReconnect); err != nil {
				return err
			}
		}
	}
	return nil
}

// take delivers what comes until the caller wants no more, something breaks, or
// readSilenceMax is over.
func (r *reader) take(ctx context.Context, messages js.MessagesContext) error {
	period, cancel := context.WithTimeout(ctx, readSilenceMax)
	defer cancel()
	inPeriod := js.NextContext(period)
	for !r.done {
		msg, err := messages.Next(inPeriod)
		switch {
		case err != nil && period.Err() != nil && ctx.Err() == nil:
			return nil // the period is over, and nothing is broken
		case err != nil:
			return err
		}
		if err := r.deliver(ctx, msg); err != nil {
			return err
		}
	}
	return nil
}

// errSilent ends a consumer that did not deliver what is there.
var errSilent = errors.New("the consumer is silent, and the stream goes on")

// askNext is for a reader that has waited for long: the stream's leader says whether there is
// more. If there is, it gives out the next message itself, and its consumer is to be
// replaced: the error is errSilent.
func (r *reader) askNext(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, questionWait)
	defer cancel()
	head, err := r.store.Head(ctx)
	if err != nil || head.Last < r.next {
		return err
	}
	if err := r.fetch(ctx); err != nil {
		return err
	}
	return errSilent
}

// fetch gets the next message by itself and gives it out. *ledger.Halted: it is missing.
func (r *reader) fetch(ctx context.Context) error {
	m, err := r.store.Get(ctx, r.next)
	if err == nil {
		r.give(m)
	}
	return err
}

// begin holds the guards and makes the consumer.
func (r *reader) begin(ctx context.Context) (js.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, questionWait)
	defer cancel()
	if err := r.guard(ctx); err != nil {
		return nil, err
	}
	return r.store.stream.CreateConsumer(ctx, js.ConsumerConfig{
		DeliverPolicy: js.DeliverByStartSequencePolicy, OptStartSeq: r.next,
		AckPolicy:     js.AckNonePolicy,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: consumerIdleMax,
	})
}

// guard compares the place of this reader with the stream as it is now.
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
	if again.StampNs != r.last.StampNs || again.Subject != r.last.Subject ||
		!bytes.Equal(again.Data, r.last.Data) {
		return &ledger.Halted{Guard: "G2", Sequence: again.Sequence,
			Problem: "the stream has another record here than was read before"}
	}
	return nil
}

// deliver gives out the next message, or says which one is missing. A gap may be the
// client's: it drops messages for which its buffer has no room, and the replica that serves
// the consumer may lack what the stream has. So each message of a gap is asked for, and only
// one that the leader lacks is missing.
func (r *reader) deliver(ctx context.Context, msg js.Msg) error {
	meta, err := msg.Metadata()
	if err != nil {
		return err
	}
	if meta.Sequence.Stream > r.next+gapMax {
		return r.fetchOnce(ctx, meta.Sequence.Stream, errSilent)
	}
	for r.next < meta.Sequence.Stream && !r.done {
		if err := r.fetchOnce(ctx, meta.Sequence.Stream, nil); err != nil {
			return err
		}
	}
	if r.done || meta.Sequence.Stream < r.next {
		return nil
	}
	r.give(ledger.Message{
		Sequence: r.next, StampNs: meta.Timestamp.UnixNano(), Subject: msg.Subject(),
		ContentType: msg.Headers().Get(contentType), Data: msg.Data(),
	})
	return nil
}

// fetchOnce fetches the next message before the one at a sequence, and returns then.
func (r *reader) fetchOnce(ctx context.Context, before uint64, then error) error {
	ctx, cancel := context.WithTimeout(ctx, questionWait)
	defer cancel()
	missing := r.next
	err := r.fetch(ctx)
	var halted *ledger.Halted
	switch {
	case errors.As(err, &halted):
		return &ledger.Halted{Guard: "G1", Sequence: missing,
			Problem: fmt.Sprintf("the record is missing; the next is %d", before)}
	case err != nil:
		return err
	}
	return then
}

// give gives out the next message.
func (r *reader) give(m ledger.Message) {
	r.last = m
	r.next++
	r.done = !r.yield(m, nil)
}
