package coordinator

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
)

// bus is what a coordinator needs of NATS beside appends: questions to the
// executor and its notices. Both are hints; the truth is in the ledger.
type bus interface {
	// ask sends a question and returns the answer; errNobody when no one listens.
	ask(ctx context.Context, subject string, body []byte) ([]byte, error)
	// listen calls f for each message, one at a time, until stop is called.
	listen(subject string, f func(body []byte)) (stop func(), err error)
	// reconnected calls f each time a lost connection is there again, until stop
	// is called: replies to what was sent before will not come.
	reconnected(f func()) (stop func())
}

// natsBus is a bus over a connection that the agent keeps and closes.
type natsBus struct{ conn *nats.Conn }

func (b natsBus) ask(ctx context.Context, subject string, body []byte) ([]byte, error) {
	msg, err := b.conn.RequestWithContext(ctx, subject, body)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, errNobody
	}
	if err != nil {
		return nil, err
	}
	return msg.Data, nil
}

func (b natsBus) listen(subject string, f func([]byte)) (func(), error) {
	sub, err := b.conn.Subscribe(subject, func(m *nats.Msg) { f(m.Data) })
	if err != nil {
		return nil, err
	}
	// A connection that is closed already has ended the subscription too.
	return func() { _ = sub.Unsubscribe() }, nil
}

func (b natsBus) reconnected(f func()) func() {
	events := b.conn.StatusChanged(nats.CONNECTED)
	go func() { // ends with stop, which closes events
		for range events {
			f()
		}
	}()
	return func() { b.conn.RemoveStatusListener(events) }
}
