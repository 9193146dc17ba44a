package jetstream_test

import (
	"errors"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
)

// TestWhatAnotherStreamHasStoredIsInNoLedger: where the tenant's stream is not there and
// another one takes its subjects, an append is acknowledged by that. It is refused, with
// what is in the way, and not called stored.
func TestWhatAnotherStreamHasStoredIsInNoLedger(t *testing.T) {
	t.Parallel()
	conn := runNATS(t, &natsd.Options{JetStream: true, StoreDir: t.TempDir()})
	client, err := js.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	config := js.StreamConfig{Name: "OTHERS", Subjects: []string{"saga.>"}, Storage: js.MemoryStorage}
	if _, err := client.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	appender, err := jetstream.Attach(conn, "t")
	if err != nil {
		t.Fatal(err)
	}
	sequence, err := appender.Append(t.Context(), ledger.Append{
		Subject: "saga.t.fact.src", ID: jetstream.NewID(), Data: []byte("x"),
	})
	var refused *ledger.Refused
	if sequence != 0 || !errors.As(err, &refused) || refused.Field != "stream" {
		t.Errorf("stored at %d: %v", sequence, err)
	}
}

// TestACommitCarriesItsIDAndItsFence: by the one the server drops a copy, by the other it
// takes nothing behind another term.
func TestACommitCarriesItsIDAndItsFence(t *testing.T) {
	t.Parallel()
	conn := runNATS(t, &natsd.Options{})
	seen := make(chan *nats.Msg, 2)
	if _, err := conn.ChanSubscribe("saga.t.>", seen); err != nil {
		t.Fatal(err)
	}
	appender, err := jetstream.Attach(conn, "t")
	if err != nil {
		t.Fatal(err)
	}
	term := ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}.Subject()
	for _, a := range []ledger.Append{
		{Subject: "saga.t.fact.src", ID: jetstream.NewID(), Data: []byte("x")},
		{Subject: "saga.t.executor", ID: jetstream.NewID(), Data: []byte("y"), FenceSubject: term},
		{Subject: "saga.t.executor", ID: jetstream.NewID(), Data: []byte("z"), FenceSubject: term, Fence: 7},
	} {
		go appender.Append(t.Context(), a) //nolint:errcheck // nobody answers; it ends with the test
		m := <-seen
		want := map[string]string{nats.MsgIdHdr: a.ID}
		if a.FenceSubject != "" {
			want[nats.ExpectedLastSubjSeqHdr] = map[uint64]string{0: "0", 7: "7"}[a.Fence]
			want[js.ExpectedLastSubjSeqSubjHeader] = term
		}
		if string(m.Data) != string(a.Data) || len(m.Header) != len(want) {
			t.Errorf("%s %v, want %v", m.Data, m.Header, want)
		}
		for name, value := range want {
			if m.Header.Get(name) != value {
				t.Errorf("%s: %q, want %q", name, m.Header.Get(name), value)
			}
		}
	}
}

// TestWhoWaitsForALeaseIsToldHowLong: it runs out in this time unless it is renewed.
func TestWhoWaitsForALeaseIsToldHowLong(t *testing.T) {
	t.Parallel()
	ctx := within(t, 20*time.Second)
	server := startServer(t, embedded.Config{Dir: t.TempDir()})
	h := openHolders(t, connect(t, server), time.Hour)
	if _, ok, current, err := h.Acquire(ctx, "t", "host1"); err != nil || !ok || current.Left != time.Hour {
		t.Fatal(ok, current, err)
	}
	_, ok, current, err := h.Acquire(ctx, "t", "host2")
	if err != nil || ok || current.Left > time.Hour || current.Left < 59*time.Minute {
		t.Errorf("%v, %v, %v", ok, current, err)
	}
}
