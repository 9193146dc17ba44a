package jetstream

import (
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
)

// ErrConnectionClosed means that the connection to the server is closed for good: the program has
// closed it, or the client has given up, after its tries to reconnect or because the server does
// not take its credentials. Nothing comes over it any more; make another one. It is also a
// nats.ErrConnectionClosed.
var ErrConnectionClosed = fmt.Errorf("the connection to the server is closed for good: %w",
	nats.ErrConnectionClosed)

// Closed is nil, or the ErrConnectionClosed of a connection, with what its client says about it.
func Closed(conn *nats.Conn) error {
	if !conn.IsClosed() {
		return nil
	}
	if last := conn.LastError(); last != nil && !errors.Is(last, nats.ErrConnectionClosed) {
		return fmt.Errorf("%w (%v)", ErrConnectionClosed, last)
	}
	return ErrConnectionClosed
}

// OnClosed calls f once, with Closed, when a connection is closed for good, unless stop is called
// before. Of one that is closed already it is called at once.
func OnClosed(conn *nats.Conn, f func(error)) (stop func()) {
	events := conn.StatusChanged(nats.CLOSED)
	var once sync.Once
	tell := func() { once.Do(func() { f(Closed(conn)) }) }
	go func() { // ends with the connection, or with stop, which closes events
		if _, closed := <-events; closed {
			tell()
		}
	}()
	if conn.IsClosed() { // before it was listened to
		tell()
	}
	return func() { conn.RemoveStatusListener(events) }
}
