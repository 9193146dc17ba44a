package embedded_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// A user that is removed, has another key or other rights, or whose time is over, loses its
// connections within a second; others keep theirs, and no server is started again.
func TestAUserThatIsNoLongerOneIsDisconnectedWithinASecond(t *testing.T) {
	if embedded.SweepEvery > time.Second/2 {
		t.Errorf("who is no longer a user is looked for every %v", embedded.SweepEvery)
	}
	soon := time.Now().Add(3 * time.Second)
	users := testenv.Users(t,
		access.User{Name: "removed", Role: access.Source, Tenant: "t"},
		access.User{Name: "rotated", Role: access.Source, Tenant: "t"},
		access.User{Name: "expires", Role: access.Source, Tenant: "t", Expires: soon},
		access.User{Name: "stays", Role: access.Source, Tenant: "t"})
	server := start(t, embedded.Config{Dir: t.TempDir(), Port: -1, Users: users.Directory})
	lost := map[string]chan time.Time{}
	for _, name := range []string{"removed", "rotated", "expires", "stays"} {
		ended := make(chan time.Time, 1)
		lost[name] = ended
		conn, err := nats.Connect(server.URL(), append(users.As(name), nats.NoReconnect(),
			nats.ClosedHandler(func(*nats.Conn) { ended <- time.Now() }))...)
		if err != nil {
			t.Fatal(name, err)
		}
		t.Cleanup(conn.Close)
	}
	changed := time.Now()
	if err := users.Remove("t", "removed"); err != nil {
		t.Fatal(err)
	}
	fresh := access.User{Name: "rotated", Role: access.Source, Tenant: "t"}
	if _, err := access.NewCredentials(&fresh); err != nil {
		t.Fatal(err)
	}
	if _, err := users.Rotate("t", "rotated", fresh.Key, time.Time{}); err != nil {
		t.Fatal(err)
	}
	for name, since := range map[string]time.Time{"removed": changed, "rotated": changed, "expires": soon} {
		select {
		case at := <-lost[name]:
			if took := at.Sub(since); took > 30*time.Second {
				t.Errorf("%s lost its connection after %v", name, took)
			}
		case <-time.After(testenv.Patience):
			t.Errorf("%s is connected still", name)
		}
		if conn, err := nats.Connect(server.URL(), users.As(name)...); err == nil {
			conn.Close()
			t.Errorf("%s is let in again", name)
		}
	}
	select {
	case <-lost["stays"]:
		t.Error("a user that was not changed has lost its connection")
	default:
	}
}

// A connection with the old key ends also where the new key comes in before the server has looked,
// which is what a program does that has lost its key and rotates it.
func TestAnOldKeyIsDisconnectedThoughTheNewOneIsInAlready(t *testing.T) {
	users := testenv.Users(t, access.User{Name: "a", Role: access.Source, Tenant: "t"})
	server := start(t, embedded.Config{Dir: t.TempDir(), Port: -1, Users: users.Directory})
	ended := make(chan struct{})
	old, err := nats.Connect(server.URL(), append(users.As("a"), nats.NoReconnect(),
		nats.ClosedHandler(func(*nats.Conn) { close(ended) }))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(old.Close)
	u := access.User{Name: "a", Role: access.Source, Tenant: "t"}
	creds, err := access.NewCredentials(&u)
	if err != nil {
		t.Fatal(err)
	}
	key, err := nkeys.FromSeed(creds.Seed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := users.Rotate("t", "a", u.Key, time.Time{}); err != nil {
		t.Fatal(err)
	}
	next, err := nats.Connect(server.URL(), nats.Nkey(u.Key, key.Sign), nats.NoReconnect(),
		nats.CustomInboxPrefix(creds.Inbox))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(next.Close)
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the old key is connected still")
	}
	if err := next.Flush(); err != nil {
		t.Errorf("the new key has lost its connection, too: %v", err)
	}
}

// The users of a tenant that was erased lose their connections and come in no more; others stay.
func TestUsersOfAnErasedTenantAreOut(t *testing.T) {
	var erased atomic.Bool
	users := testenv.Users(t, access.User{Name: "a", Role: access.Agent, Tenant: "gone"},
		access.User{Name: "b", Role: access.Agent, Tenant: "stays"})
	server := start(t, embedded.Config{Dir: t.TempDir(), Port: -1, Users: users.Directory,
		Erased: func(tenant string) bool { return tenant == "gone" && erased.Load() }})
	ended := make(chan struct{})
	for _, name := range []string{"a", "b"} {
		conn, err := nats.Connect(server.URL(), append(users.As(name), nats.NoReconnect(),
			nats.ClosedHandler(func(c *nats.Conn) {
				if name == "a" {
					close(ended)
				}
			}))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
	}
	erased.Store(true)
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("a user of an erased tenant is connected still")
	}
	for name, want := range map[string]bool{"a": false, "b": true} {
		conn, err := nats.Connect(server.URL(), users.As(name)...)
		if (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			conn.Close()
		}
	}
}

// A client that does again and again what it may not fills no log.
func TestViolationsFillNoLog(t *testing.T) {
	var lines atomic.Int64
	users := testenv.Users(t, access.User{Name: "a", Role: access.Source, Tenant: "t"})
	server := start(t, embedded.Config{Dir: t.TempDir(), Port: -1, Users: users.Directory,
		Logger: slog.New(counting{&lines})})
	refused := make(chan struct{}, 1000)
	conn, err := nats.Connect(server.URL(), append(users.As("a"),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) { refused <- struct{}{} }))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	for range 200 {
		if err := conn.Publish("admin.t.rebuild", nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 200 {
		select {
		case <-refused:
		case <-time.After(time.Minute):
			t.Fatal("the server does not refuse it")
		}
	}
	if n := lines.Load(); n < 1 || n > 100 {
		t.Errorf("%d lines of 200 violations", n)
	}
}

// Who has no credentials fills no log either.
func TestConnectionsThatAreRefusedFillNoLog(t *testing.T) {
	var lines atomic.Int64
	server := start(t, embedded.Config{Dir: t.TempDir(), Port: -1, Users: testenv.Users(t).Directory,
		Logger: slog.New(counting{&lines})})
	for range 200 {
		if conn, err := nats.Connect(server.URL(), nats.UserInfo("a", "b")); err == nil {
			conn.Close()
			t.Fatal("it is let in")
		}
	}
	if n := lines.Load(); n < 1 || n > 100 {
		t.Errorf("%d lines of 200 connections", n)
	}
}

// counting counts the lines of a log that are about what a client may not.
type counting struct{ lines *atomic.Int64 }

func (counting) Enabled(context.Context, slog.Level) bool { return true }

func (c counting) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if text := a.Value.String(); strings.Contains(text, "Violation") || strings.Contains(text, "authentication") {
			c.lines.Add(1)
		}
		return true
	})
	return nil
}

func (c counting) WithAttrs([]slog.Attr) slog.Handler { return c }

func (c counting) WithGroup(string) slog.Handler { return c }

// BenchmarkAccount is what a tenant's account costs to be made.
func BenchmarkAccount(b *testing.B) {
	users := testenv.Users(b, access.User{Name: "local", Role: access.Local, Tenant: access.AllTenants})
	server, err := embedded.Start(embedded.Config{Dir: b.TempDir(), Port: -1, Users: users.Directory})
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	n := 0
	for b.Loop() {
		n++
		conn, err := nats.Connect("", append(users.As("local"), server.InProcess(),
			nats.UserInfo(fmt.Sprintf("t%d", n), ""))...)
		if err != nil {
			b.Fatal(err)
		}
		conn.Close()
	}
}

// ways are how one client appends to the ledger of tenant t, both over TCP: as a host in the hub, as
// it was before there were accounts, and as an agent through the account of its tenant.
type ways struct {
	hub, agent       *nats.Conn
	direct, imported *jetstream.Appender
}

// startWays starts a server that syncs every write.
func startWays(t testing.TB) (w ways) {
	t.Helper()
	users := testenv.Users(t, access.User{Name: "a1", Role: access.Agent, Tenant: "t"})
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1, Users: users.Directory})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	dial := func(options ...nats.Option) *nats.Conn {
		conn, err := nats.Connect(server.URL(), options...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		return conn
	}
	w.hub = dial(func(o *nats.Options) error {
		err := server.InProcess()(o)
		o.InProcessServer = nil // over TCP, as the agent
		return err
	})
	w.agent = dial(users.As("a1")...)
	if _, err = jetstream.Open(t.Context(), jetstream.Config{Conn: w.hub, Tenant: "t",
		DurableServer: server.DurableID()}); err != nil {
		t.Fatal(err)
	}
	if w.direct, err = jetstream.Attach(w.hub, "t"); err != nil {
		t.Fatal(err)
	}
	if w.imported, err = jetstream.Attach(w.agent, "t"); err != nil {
		t.Fatal(err)
	}
	return w
}

func appendAs(t testing.TB, to *jetstream.Appender) {
	t.Helper()
	a := ledger.Append{Subject: "saga.t.agent.a1.p", ID: jetstream.NewID(), Data: make([]byte, 400)}
	if _, err := to.Append(t.Context(), a); err != nil {
		t.Fatal(err)
	}
}

// TestAnAppendThroughAnAccountIsOneMessageEachWay, and what is stored of it is what is stored of
// one in the hub, to the byte: the account adds no header to records.
func TestAnAppendThroughAnAccountIsOneMessageEachWay(t *testing.T) {
	w := startWays(t)
	const each = 20
	stored := func() uint64 {
		t.Helper()
		reply, err := w.hub.Request("$JS.API.STREAM.INFO."+jetstream.StreamName("t"), nil, testenv.Patience)
		if err != nil {
			t.Fatal(err)
		}
		var info struct{ State struct{ Bytes uint64 } }
		if err := json.Unmarshal(reply.Data, &info); err != nil {
			t.Fatal(err)
		}
		return info.State.Bytes
	}
	var sizes []uint64
	for _, way := range []struct {
		conn *nats.Conn
		to   *jetstream.Appender
	}{{w.hub, w.direct}, {w.agent, w.imported}} {
		appendAs(t, way.to)
		kept := stored()
		before := way.conn.Stats()
		for range each {
			appendAs(t, way.to)
		}
		after := way.conn.Stats()
		if sent, got := after.OutMsgs-before.OutMsgs, after.InMsgs-before.InMsgs; sent != each || got != each {
			t.Errorf("%d messages and %d answers of %d appends", sent, got, each)
		}
		sizes = append(sizes, stored()-kept)
	}
	if sizes[0] != sizes[1] || sizes[0] < 400*each {
		t.Errorf("%d appends are %d bytes in the hub, and %d through the account", each, sizes[0], sizes[1])
	}
}

// BenchmarkAppend is an append of one client with every write synced, in turns in the hub and
// through the account of the tenant. more-% is how much longer half of those through the account
// take than half of those in the hub.
func BenchmarkAppend(b *testing.B) {
	w := startWays(b)
	took := make([][]time.Duration, 2)
	to := []*jetstream.Appender{w.direct, w.imported}
	for first := 0; b.Loop(); first = 1 - first {
		for _, way := range []int{first, 1 - first} {
			began := time.Now()
			appendAs(b, to[way])
			took[way] = append(took[way], time.Since(began))
		}
	}
	half := func(way int) float64 {
		slices.Sort(took[way])
		return float64(took[way][len(took[way])/2])
	}
	b.ReportMetric(half(0), "ns/hub")
	b.ReportMetric(half(1), "ns/account")
	b.ReportMetric(100*(half(1)/half(0)-1), "more-%")
}

// TestADamagedFileOfUsersIsLoggedOnce, and once again when it is damaged in another way; the users
// stay what they were.
func TestADamagedFileOfUsersIsLoggedOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users")
	d, err := access.OpenDirectory(file)
	if err != nil {
		t.Fatal(err)
	}
	u := access.User{Name: "a", Role: access.Source, Tenant: "t"}
	if _, err := access.NewCredentials(&u); err != nil {
		t.Fatal(err)
	}
	if err := d.Add(u); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	look := embedded.Sweeps(d, slog.New(slog.NewTextHandler(&log, nil)))
	for _, c := range []struct {
		text          string
		errors, again int
	}{{string(good), 0, 0}, {"{", 1, 0}, {`{"users": 1}`, 2, 0}, {string(good), 2, 1}, {"{", 3, 1}} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			look()
		}
		if got := strings.Count(log.String(), "level=ERROR"); got != c.errors {
			t.Errorf("%s: %d errors, want %d: %s", c.text, got, c.errors, log.String())
		}
		if got := strings.Count(log.String(), "can be read again"); got != c.again {
			t.Errorf("%s: it can be read again %d times, want %d", c.text, got, c.again)
		}
		if len(d.Users()) != 1 {
			t.Errorf("%s: %d users", c.text, len(d.Users()))
		}
	}
}

// Who has connected is known as having used its key, also after the server has ended and another
// has read its file; who has not is not.
func TestAServerKeepsWhoHasUsedItsKey(t *testing.T) {
	users := testenv.Users(t, access.User{Name: "a", Role: access.Source, Tenant: "t"},
		access.User{Name: "idle", Role: access.Source, Tenant: "t"})
	server := start(t, embedded.Config{Dir: t.TempDir(), Port: -1, Users: users.Directory})
	before := time.Now().Truncate(time.Second)
	conn, err := nats.Connect(server.URL(), users.As("a")...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	server.Close()
	again, err := access.OpenDirectory(filepath.Join(filepath.Dir(users.File("a")), "users"))
	if err != nil {
		t.Fatal(err)
	}
	if got := again.LastUses(); len(got) != 1 || got["t.a"].Before(before) {
		t.Errorf("%v, not since %v", got, before)
	}
}
