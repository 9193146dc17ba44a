package actuators

import (
	"errors"
	"net/url"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// asks sends an undo or a question that is given up soon, and waits for its fate.
func asks(a *NATS, purpose string) Fate {
	results := make(chan Result, 1)
	a.Send(api.Command{Purpose: purpose, Tenant: "t", Capability: "x", Key: "k", Attempt: 1, TimeoutMs: 50},
		func(r Result) { results <- r })
	return (<-results).Fate
}

// TestWhoListensIsNoWorker: silence is an attempt only where a worker may be at it. A worker is
// in a queue group, or has answered.
func TestWhoListensIsNoWorker(t *testing.T) {
	for _, purpose := range []string{ledger.PurposeUndo, api.PurposeProbe, api.PurposeVerify} {
		conn, a := connected(t)
		subject := "ask.t.x"
		if purpose == ledger.PurposeUndo {
			subject = "undo.t.x"
		}
		want := func(what string, fate Fate, service Service) {
			t.Helper()
			got := Services(t.Context(), conn, []string{"undo.t.nobody", subject})
			if got[0] != ServiceNone || got[1] != service {
				t.Errorf("%s, %s: services %v, want %v", purpose, what, got, service)
			}
			a.forget()
			if got := asks(a, purpose); got != fate {
				t.Errorf("%s, %s: fate %v, want %v", purpose, what, got, fate)
			}
		}
		want("nobody", NoWorker, ServiceNone)
		var answers atomic.Bool
		if _, err := conn.Subscribe(subject, func(m *nats.Msg) {
			if answers.Load() {
				respond(t, m, api.Command{Key: "k", Attempt: 1}, api.Reply{Status: api.StatusDone})
			}
		}); err != nil {
			t.Fatal(err)
		}
		want("a terminal", Overheard, ServiceHeard)
		worker, err := conn.QueueSubscribe(subject, "workers", func(*nats.Msg) {})
		if err != nil {
			t.Fatal(err)
		}
		want("a worker beside it", Silent, ServiceWorker)
		if err := worker.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
		want("a worker that has gone", Overheard, ServiceHeard)
		answers.Store(true)
		want("one that answers", Replied, ServiceHeard)
		answers.Store(false)
		want("one that has answered", Silent, ServiceHeard)
		a.mu.Lock()
		a.plain[subject] = time.Now().Add(-PlainKept)
		a.mu.Unlock()
		want("one that has answered long ago", Overheard, ServiceHeard)
	}
}

// forget has the server asked anew who serves.
func (n *NATS) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.inquiries)
}

// TestAStreamIsNoWorker: what it has stored is not answered.
func TestAStreamIsNoWorker(t *testing.T) {
	conn, a := connected(t)
	js, err := conn.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.AddStream(&nats.StreamConfig{Name: "X", Subjects: []string{"undo.>", "ask.>"}}); err != nil {
		t.Fatal(err)
	}
	for _, purpose := range []string{ledger.PurposeUndo, api.PurposeProbe} {
		if got := asks(a, purpose); got != Overheard {
			t.Errorf("%s: fate %v", purpose, got)
		}
	}
	if got := Services(t.Context(), conn, []string{"undo.t.x"}); got[0] != ServiceHeard {
		t.Errorf("services %v", got)
	}
}

// TestWhatServersTellIsPutTogether: a message goes on from one to others, and each tells.
func TestWhatServersTellIsPutTogether(t *testing.T) {
	const (
		passes   = `{"hops":2,"events":[{"type":"in"},{"type":"eg","kind":1,"hop":"1","queue":"q"},{"type":"eg","kind":2}]}`
		on       = `{"hops":1,"events":[{"type":"in"},{"type":"eg","kind":1,"hop":"1"}]}`
		terminal = `{"events":[{"type":"in","kind":1},{"type":"eg","kind":0,"sub":"undo.>"}]}`
		worker   = `{"events":[{"type":"eg","kind":0,"queue":"workers"}]}`
		hidden   = `{"events":[{"type":"in"},{"type":"se"},{"type":"se"},{"type":"eg","kind":0}]}`
		imported = `{"events":[{"type":"in"},{"type":"se"},{"type":"eg","kind":0,"queue":"workers"}]}`
		nobody   = `{"events":[{"type":"in"}]}`
		stores   = `{"events":[{"type":"js","stream":"X"}]}`
	)
	at := func(hop, text string) string { // of a server behind others
		return `{"request":{"header":{"Nats-Trace-Only":["true"],"Nats-Trace-Hop":["` + hop + `"]}},` + text[1:]
	}
	for _, c := range []struct {
		told []string
		want Service
	}{
		{nil, ServiceUnknown}, {[]string{"what?"}, ServiceUnknown}, {[]string{nobody}, ServiceNone},
		{[]string{terminal}, ServiceHeard}, {[]string{stores}, ServiceHeard},
		{[]string{hidden}, ServiceUnknown}, {[]string{imported}, ServiceWorker},
		{[]string{worker}, ServiceWorker},
		{[]string{passes, at("1", terminal)}, ServiceUnknown},
		{[]string{passes, at("1", terminal), at("2", worker)}, ServiceWorker},
		{[]string{passes, at("2", nobody), at("1", nobody)}, ServiceNone},
		// the one it was sent to tells last, or between others
		{[]string{at("1", terminal)}, ServiceUnknown}, {[]string{at("2", nobody)}, ServiceUnknown},
		{[]string{at("1", terminal), at("2", nobody)}, ServiceUnknown},
		{[]string{at("1", terminal), passes}, ServiceUnknown},
		{[]string{at("1", terminal), passes, at("2", nobody)}, ServiceHeard},
		{[]string{at("1", terminal), at("2", nobody), passes}, ServiceHeard},
		{[]string{at("2", nobody), at("1", terminal), worker}, ServiceWorker},
		// so does one that has passed it on in turn
		{[]string{on, at("1.1", nobody)}, ServiceUnknown}, {[]string{at("1", on), at("1.1", nobody)}, ServiceUnknown},
		{[]string{on, at("1.1", terminal), at("1", on)}, ServiceHeard},
		{[]string{at("1.1", nobody), at("1", on), on}, ServiceNone},
		{[]string{passes, at("1", on), at("2", nobody)}, ServiceUnknown},
	} {
		l := &inquiry{at: time.Now()}
		for _, text := range c.told {
			l.told([]byte(text))
		}
		if got := l.service(); got != c.want {
			t.Errorf("%q: %v, want %v", c.told, got, c.want)
		}
	}
}

// TestServersOfAClusterTellInAnyOrder: a listener at one server hides no worker at another.
func TestServersOfAClusterTellInAnyOrder(t *testing.T) {
	var conns []*nats.Conn
	var routes []*url.URL
	for i := range 2 {
		options := &natsd.Options{ServerName: "n" + strconv.Itoa(i), Host: "127.0.0.1", Port: -1, NoLog: true,
			NoSigs: true, Routes: routes, Cluster: natsd.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: -1}}
		server, err := natsd.NewServer(options)
		if err != nil {
			t.Fatal(err)
		}
		server.Start()
		t.Cleanup(server.Shutdown)
		if !server.ReadyForConnections(10 * time.Second) {
			t.Fatal("a server does not start")
		}
		routes = append(routes, &url.URL{Scheme: "nats", Host: server.ClusterAddr().String()})
		conn, err := nats.Connect(server.ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		conns = append(conns, conn)
	}
	far, near := make(chan *nats.Msg, 1), make(chan *nats.Msg, 1)
	listener, err := conns[1].ChanSubscribe("undo.t.x", far)
	if err != nil {
		t.Fatal(err)
	}
	if err := conns[1].Flush(); err != nil {
		t.Fatal(err)
	}
	asked := func() Service { return Services(t.Context(), conns[0], []string{"undo.t.x"})[0] }
	for end := time.Now().Add(10 * time.Second); asked() != ServiceHeard; {
		if time.Now().After(end) {
			t.Fatal("the listener at the other server is not known")
		}
	}
	worker, err := conns[0].ChanQueueSubscribe("undo.t.x", "workers", near)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if got := asked(); got != ServiceWorker {
			t.Fatalf("a worker, and a listener at the other server: %v", got)
		}
	}
	if err := errors.Join(worker.Unsubscribe(), listener.Unsubscribe()); err != nil {
		t.Error(err)
	}
}

// TestWhatServersNeverTellIsForgotten: questions do not pile up where servers answer none.
func TestWhatServersNeverTellIsForgotten(t *testing.T) {
	_, a := connected(t)
	a.mu.Lock() // what they tell is not looked at
	defer a.mu.Unlock()
	a.inquiriesMost = 10
	for i := range 5 * a.inquiriesMost {
		a.inquiryOf("undo.t.x" + strconv.Itoa(i))
		if len(a.inquiries) > a.inquiriesMost || len(a.asked) > a.inquiriesMost {
			t.Fatalf("%d subjects and %d questions are kept, want at most %d", len(a.inquiries), len(a.asked), a.inquiriesMost)
		}
	}
	if len(a.asked) == 0 {
		t.Error("no question was asked")
	}
}

// TestAWorkerInItsTenantsAccountIsAWorker: servers tell across accounts who has a message.
func TestAWorkerInItsTenantsAccountIsAWorker(t *testing.T) {
	users := testenv.Users(t, access.User{Name: "w1", Role: access.Worker, Tenant: "t", Capabilities: []string{">"}})
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1, Users: users.Directory})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	hub, err := server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hub.Close)
	worker, err := nats.Connect(server.URL(), users.As("w1")...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(worker.Close)
	heard := make(chan *nats.Msg, 10)
	for _, subject := range []string{"undo.t.x", "ask.t.x"} {
		want := func(what string, service Service) {
			t.Helper()
			if err := worker.Flush(); err != nil {
				t.Fatal(err)
			}
			if got := Services(t.Context(), hub, []string{subject}); got[0] != service {
				t.Errorf("%s, %s: %v, want %v", subject, what, got, service)
			}
		}
		want("no one", ServiceNone)
		listener, err := hub.ChanSubscribe(subject, heard)
		if err != nil {
			t.Fatal(err)
		}
		want("a listener", ServiceHeard)
		sub, err := worker.ChanQueueSubscribe(subject, "workers", heard)
		if err != nil {
			t.Fatal(err)
		}
		want("a worker beside it", ServiceWorker)
		if err := listener.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
		want("a worker", ServiceWorker)
		if err := sub.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
		want("no one again", ServiceNone)
	}
	if len(heard) > 0 {
		t.Errorf("a question who would get a message was heard: %d times", len(heard))
	}
}
