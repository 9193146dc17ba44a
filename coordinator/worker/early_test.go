package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// A worker that starts before its server serves by itself when the server is there; on a
// connection that is closed for good it says what it could not do.
func TestAWorkerThatStartsBeforeItsServerServesWhenItIsThere(t *testing.T) {
	t.Parallel()
	ports, err := testenv.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("nats://127.0.0.1:%d", ports[0])
	conn, err := nats.Connect(url, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	w, err := New(Config{Conn: conn, Tenant: "default", Name: "w1"})
	if err != nil {
		t.Fatal(err)
	}
	handler := func(context.Context, api.Command) (Result, error) { return Result{}, nil }
	if err := w.Handle("mail.unsend", handler); err != nil {
		t.Fatalf("before there is a server: %v", err)
	}
	var refused *ledger.Refused
	if err := w.Handle("mail.unsend", handler); !errors.As(err, &refused) || refused.Field != "capability" {
		t.Errorf("a second handler: %v", err)
	}
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: ports[0]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	serves(t, server, "mail.unsend")

	// The server goes while the worker does not know it yet, and comes back.
	server.Close()
	if err := w.Handle("mail.unread", handler); err != nil {
		t.Fatalf("while the server is gone: %v", err)
	}
	err = testenv.Listen(func() (err error) {
		server, err = embedded.Start(embedded.Config{Dir: t.TempDir(), Port: ports[0]})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	serves(t, server, "mail.unsend")
	serves(t, server, "mail.unread")
	conn.Close()
	err = w.Handle("mail.recall", handler)
	if !errors.Is(err, nats.ErrConnectionClosed) ||
		!strings.Contains(err.Error(), "cannot subscribe to undo.default.mail.recall") {
		t.Errorf("on a closed connection: %v", err)
	}
}

// Without its server a worker waits for its handlers, and flushMax for an answer to leave, whether
// the server went before Close or in the middle of it: it is closed long before the client gives up a
// flush.
func TestCloseWaitsForNoServer(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	conn, err := nats.Connect(server.URL(), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	started, finish := make(chan struct{}), make(chan struct{})
	busy := works(t, conn, func(context.Context, api.Command) (Result, error) {
		close(started)
		<-finish
		return Result{}, nil
	})
	body, err := json.Marshal(api.Command{Tenant: "default", Capability: "mail.unsend",
		Purpose: ledger.PurposeUndo, Key: "k", Attempt: 1, Term: 1, Plan: "p", Action: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.PublishRequest(api.UndoSubject("default", "mail.unsend"), "reply.default.x", body); err != nil {
		t.Fatal(err)
	}
	<-started
	closed := make(chan error, 1)
	go func() { closed <- busy.Close(context.Background()) }()
	busy.begins(t)
	gone := conn.StatusChanged(nats.RECONNECTING)
	server.Close()
	<-gone
	flushed := make(chan struct{})
	go func() { // ends with the client's own time
		_ = conn.Flush()
		close(flushed)
	}()
	close(finish)
	if err := <-closed; err == nil || !strings.Contains(err.Error(), "answers may not have left") {
		t.Errorf("the server went while it was closed: %v", err)
	}
	late := works(t, conn, func(context.Context, api.Command) (Result, error) { return Result{}, nil })
	if err := late.Close(t.Context()); err != nil {
		t.Errorf("the server went before: %v", err)
	}
	select {
	case <-flushed:
		t.Error("it has waited for the server")
	default:
	}
}

// works is a worker that serves one capability.
func works(t *testing.T, conn *nats.Conn, handler Handler) *Worker {
	t.Helper()
	w, err := New(Config{Conn: conn, Tenant: "default", Name: "w1"})
	if err == nil {
		err = w.Handle("mail.unsend", handler)
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// begins waits until Close has begun.
func (w *Worker) begins(t *testing.T) {
	t.Helper()
	closed := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.closed
	}
	for end := time.Now().Add(testenv.Patience); !closed(); <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("Close has not begun")
		}
	}
}

// serves waits until a worker answers a command of a capability with done.
func serves(t *testing.T, server *embedded.Server, capability string) {
	t.Helper()
	asker, err := server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer asker.Close()
	body, err := json.Marshal(api.Command{Tenant: "default", Capability: capability, Purpose: ledger.PurposeUndo,
		Key: "k/" + capability, Attempt: 1, Term: 1, Plan: "p", Action: "a"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	var reply *nats.Msg
	for err = nats.ErrNoResponders; errors.Is(err, nats.ErrNoResponders); {
		reply, err = asker.RequestWithContext(ctx, api.UndoSubject("default", capability), body)
	}
	if err != nil {
		t.Fatalf("no worker serves %s: %v", capability, err)
	}
	if want := `"status":"done"`; !strings.Contains(string(reply.Data), want) {
		t.Errorf("the worker answers %s, want %s", reply.Data, want)
	}
}
