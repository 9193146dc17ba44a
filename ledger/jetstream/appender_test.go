package jetstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// classOf is the class of an append's error: exactly one, or what is wrong with it.
func classOf(err error) string {
	var refused *ledger.Refused
	classes := ""
	for name, is := range map[string]bool{
		"refused": errors.As(err, &refused), "conflict": errors.Is(err, ledger.ErrConflict),
		"busy": errors.Is(err, ledger.ErrBusy), "in doubt": errors.Is(err, ledger.ErrInDoubt),
	} {
		if is {
			classes += name
		}
	}
	if errors.Is(err, ledger.ErrFull) {
		classes += ", full"
	}
	return classes
}

// wantClasses are the answers of the server that are neither refused for a 4xx, nor in
// doubt for another.
var wantClasses = map[uint16]string{
	10002: "busy, full", 10023: "busy, full", 10028: "busy, full", 10047: "busy, full",
	10071: "conflict", 10158: "in doubt", 10163: "busy", 10164: "busy",
}

// Every error that the server knows is sorted: what is about the server is never refused,
// since the append may be right, and may be stored.
func TestAServersErrorIsRefusedOnlyWhereItIsAboutTheAppend(t *testing.T) {
	t.Parallel()
	conn := runNATS(t, &natsd.Options{})
	var answer atomic.Pointer[natsd.ApiError]
	if _, err := conn.Subscribe("saga.t.>", func(m *nats.Msg) {
		data, err := json.Marshal(natsd.JSPubAckResponse{PubAck: &natsd.PubAck{Stream: jetstream.StreamName("t")},
			Error: answer.Load()})
		if err == nil {
			err = m.Respond(data)
		}
		if err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	appender, err := jetstream.Attach(conn, "t")
	if err != nil {
		t.Fatal(err)
	}
	class := func(e natsd.ApiError) string {
		answer.Store(&e)
		_, err := appender.Append(within(t, 10*time.Second), commit("p", "x"))
		return classOf(err)
	}
	about := map[string]int{}
	for _, e := range natsd.ApiErrors {
		want := wantClasses[e.ErrCode]
		switch {
		case want != "":
		case e.Code >= 500:
			want = "in doubt"
		default:
			want = "refused"
		}
		if got := class(*e); got != want {
			t.Errorf("%d, %d %q is %q, want %q", e.ErrCode, e.Code, e.Description, got, want)
		}
		about[want]++
	}
	if about["in doubt"] < 20 || about["refused"] < 50 {
		t.Errorf("the server knows few errors: %v", about)
	}
	for description, want := range map[string]string{
		"maximum bytes exceeded": "busy, full", "maximum messages exceeded": "busy, full",
		"write msgs/1.blk: no space left on device": "in doubt", "store is closed": "in doubt",
	} {
		if got := class(natsd.ApiError{Code: 503, ErrCode: 10077, Description: description}); got != want {
			t.Errorf("a store that failed, %q, is %q, want %q", description, got, want)
		}
	}
	for _, code := range []int{500, 503, 599, 0} {
		if got := class(natsd.ApiError{Code: code, ErrCode: 65000,
			Description: "of a later version"}); got != "in doubt" {
			t.Errorf("an unknown error of %d is %q", code, got)
		}
	}
	if got := class(natsd.ApiError{Code: 400, ErrCode: 65000, Description: "of a later version"}); got != "refused" {
		t.Errorf("an unknown error of 400 is %q", got)
	}
}

// An agent may start before its server. What it appends then is busy, and stored under the
// same id as soon as the server is there.
func TestAnAppendBeforeItsServerIsThereIsBusy(t *testing.T) {
	t.Parallel()
	ctx := within(t, 30*time.Second)
	ports, err := testenv.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", ports[0]), nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	appender, err := jetstream.Attach(conn, "t")
	if err != nil {
		t.Fatal(err)
	}
	a := commit("p", "early")
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := appender.Append(short, a); classOf(err) != "busy" {
		t.Fatalf("before the server: %v", err)
	}
	server := startServer(t, embedded.Config{Dir: t.TempDir(), Port: ports[0]})
	store := openOn(t, server, connect(t, server))
	until(t, ctx, "append", func() error {
		sequence, err := appender.Append(ctx, a)
		if err == nil && sequence != 1 {
			t.Errorf("stored at %d", sequence)
		}
		return err
	})
	if h := headOf(t, store); h.Last != 1 {
		t.Errorf("head %+v", h)
	}
}
