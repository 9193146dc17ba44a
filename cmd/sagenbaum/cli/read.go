package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// reading reads a tenant's ledger from a host (ledger.read), which needs no permission
// beside query.<tenant>.ledger.read. It never skips, and when it asks again after it was
// interrupted it holds the last message against what is there now.
type reading struct {
	client *Client
	next   uint64
	last   ledger.Message // given out before next; Sequence 0: none
	unsure bool           // no answer came for a while: is it the same ledger still?
}

const (
	readPause  = 200 * time.Millisecond // after an answer that came early and had nothing
	readAgain  = 500 * time.Millisecond // after no answer, while following
	readAnswer = 512 << 10              // bytes that one answer may carry, if the server does
)

// LastSequence is the sequence of the last message that can be read; 0: there is none.
func (c *Client) LastSequence(ctx context.Context) (uint64, error) {
	answer, err := Ask(ctx, c, api.LedgerRead, api.ReadQuery{})
	return answer.Last, err
}

// Message reads one message.
func (c *Client) Message(ctx context.Context, sequence uint64) (ledger.Message, error) {
	r := reading{client: c, next: sequence}
	answer, err := r.ask(ctx, api.ReadQuery{From: sequence, Limit: 1})
	switch {
	case err != nil:
		return ledger.Message{}, err
	case len(answer.Messages) == 0:
		text := "the ledger has no commit %d; the last is %d"
		err := Fail(ExitFailed, "sagenbaum ledger tail", text, sequence, answer.Last)
		return ledger.Message{}, err
	}
	return messageOf(answer.Messages[0]), nil
}

func messageOf(m api.StoredMessage) ledger.Message {
	return ledger.Message{
		Sequence: m.Sequence, StampNs: m.StampNs, Subject: m.Subject,
		ContentType: m.ContentType, Data: m.Data,
	}
}

// ReadLedger yields the messages from a sequence on to another one, or for as long as ctx
// lasts: then no answer ends it, and a connection that comes back is used again.
func (c *Client) ReadLedger(
	ctx context.Context, from, to uint64, follow bool,
) iter.Seq2[ledger.Message, error] {
	return func(yield func(ledger.Message, error) bool) {
		r := reading{client: c, next: from}
		for follow || r.next <= to {
			messages, err := r.batch(ctx, follow)
			if err != nil {
				yield(ledger.Message{}, err)
				return
			}
			for _, m := range messages {
				if !follow && m.Sequence > to {
					return
				}
				if !yield(m, nil) {
					return
				}
			}
			if len(messages) == 0 && !follow {
				yield(ledger.Message{}, fmt.Errorf("the ledger ends before %d", r.next))
				return
			}
		}
	}
}

// batch reads what comes next. While following it waits for it, also for a host.
func (r *reading) batch(ctx context.Context, follow bool) ([]ledger.Message, error) {
	q := api.ReadQuery{From: r.next, Limit: 1000, BytesMax: r.size()}
	if follow {
		q.WaitMs = (r.client.Timeout / 2).Milliseconds()
	}
	for {
		asked := time.Now()
		answer, err := r.ask(ctx, q)
		if err == nil && len(answer.Messages) > 0 {
			err = r.same(ctx)
		}
		switch {
		case err == nil && (len(answer.Messages) > 0 || !follow):
			return r.take(answer.Messages)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case follow && r.interrupted(err):
			r.unsure = true
			Pause(ctx, readAgain)
		case err != nil:
			return nil, err
		case time.Since(asked) < readPause:
			Pause(ctx, readPause)
		}
	}
}

// interrupted reports whether an answer may come yet: a host may be starting.
func (r *reading) interrupted(err error) bool {
	var f *Failure
	return errors.As(err, &f) && f.Code == ExitNoServer && !r.client.Conn.IsClosed()
}

// take checks that nothing is missing.
func (r *reading) take(stored []api.StoredMessage) ([]ledger.Message, error) {
	messages := make([]ledger.Message, 0, len(stored))
	for _, s := range stored {
		if s.Sequence != r.next {
			return nil, contradiction("sequence %d follows %d", s.Sequence, r.next-1)
		}
		r.last, r.next = messageOf(s), r.next+1
		messages = append(messages, r.last)
	}
	return messages, nil
}

// same holds the last message against what is there now, where the reading was
// interrupted: the ledger may be another one.
func (r *reading) same(ctx context.Context) error {
	if !r.unsure || r.last.Sequence == 0 {
		return nil
	}
	answer, err := r.ask(ctx, api.ReadQuery{From: r.last.Sequence, Limit: 1})
	if err != nil {
		return err
	}
	r.unsure = false
	if len(answer.Messages) == 0 {
		return contradiction("it ends before %d, which was read", r.last.Sequence)
	}
	now, was := messageOf(answer.Messages[0]), r.last
	if now.StampNs != was.StampNs || now.Subject != was.Subject ||
		!bytes.Equal(now.Data, was.Data) {
		return contradiction("it has another record at %d than was read before", r.last.Sequence)
	}
	return nil
}

func contradiction(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	return Fail(ExitFailed, "sagenbaum doctor", "the ledger contradicts itself: %s", text)
}

func (r *reading) ask(
	ctx context.Context, q api.ReadQuery,
) (answer api.ReadAnswer, err error) {
	return Ask(ctx, r.client, api.LedgerRead, q)
}

// size is how many bytes of messages one answer may have, in base64 and with their names.
func (r *reading) size() int { return int(min(r.client.Conn.MaxPayload()/2, readAnswer)) }
