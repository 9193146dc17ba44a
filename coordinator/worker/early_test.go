package worker

import (
	"context"
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

// A worker that starts before its server is busy, and can be told to serve again.
func TestAWorkerThatStartsBeforeItsServerIsBusy(t *testing.T) {
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
	if err := w.Handle("mail.unsend", handler); !errors.Is(err, ledger.ErrBusy) {
		t.Fatalf("before there is a server: %v", err)
	}
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: ports[0]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	for err = ledger.ErrBusy; errors.Is(err, ledger.ErrBusy); {
		err = w.Handle("mail.unsend", handler)
	}
	if err != nil {
		t.Fatal(err)
	}
	asker, err := server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(asker.Close)
	body := []byte(
		`{"tenant":"default","capability":"mail.unsend","purpose":"undo","key":"k","attempt":1,"term":1,"plan":"p","action":"a"}`)
	if reply, err := asker.Request(api.UndoSubject("default", "mail.unsend"), body, 10*time.Second); err != nil {
		t.Errorf("nobody serves: %v", err)
	} else if want := `"status":"done"`; !strings.Contains(string(reply.Data), want) {
		t.Errorf("the worker answers %s, want %s", reply.Data, want)
	}
}
