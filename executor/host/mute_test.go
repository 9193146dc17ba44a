package host

import (
	"context"
	"strings"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestServersElsewhereThatAnswerNoAppendEndNoHost: it gives the tenant up, says why, and holds it
// once they answer. Here the server drops what the host appends.
func TestServersElsewhereThatAnswerNoAppendEndNoHost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := func(deny ...string) *natsd.Options {
		may := &natsd.Permissions{Publish: &natsd.SubjectPermission{Allow: []string{">"}, Deny: deny}}
		return &natsd.Options{Host: "127.0.0.1", Port: -1, JetStream: true, NoSigs: true, NoLog: true, StoreDir: dir,
			Users: []*natsd.User{{Username: "host", Password: "secret", Permissions: may}}}
	}
	server, err := natsd.NewServer(options("saga.t.executor.>"))
	if err != nil {
		t.Fatal(err)
	}
	server.Start()
	t.Cleanup(func() { server.Shutdown(); server.WaitForShutdown() })
	if !server.ReadyForConnections(testenv.Patience) {
		t.Fatal("the server is not ready")
	}
	conn, err := nats.Connect(server.ClientURL(), nats.UserInfo("host", "secret"), nats.MaxReconnects(-1),
		nats.ReconnectWait(10*time.Millisecond), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	h, err := New(Config{Conn: conn, Tenants: []string{"t"}, Dir: t.TempDir(), AcceptLossyBroker: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	var why error
	go func() { defer close(ended); why = h.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	await := func(is func(mode, problem string) bool) {
		t.Helper()
		late := time.After(testenv.Patience)
		board := h.roster.of("t").board
		for mode, problem, _ := board.Health(); !is(mode, problem); mode, problem, _ = board.Health() {
			select {
			case <-ended:
				t.Fatalf("the host has ended: %v", why)
			case <-late:
				t.Fatalf("it is %s: %s", mode, problem)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	await(func(mode, problem string) bool {
		return mode == api.ModeStarting && strings.Contains(problem, ErrMute.Error())
	})
	if err := server.ReloadOptions(options()); err != nil {
		t.Fatal(err)
	}
	await(func(mode, _ string) bool { return mode == api.ModeHolding })
}
