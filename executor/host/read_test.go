package host

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// reads asks for messages of the ledger.
func (r *rig) reads(q api.ReadQuery) (answer api.ReadAnswer) {
	r.t.Helper()
	body, err := json.Marshal(q)
	if err != nil {
		r.t.Fatal(err)
	}
	m, err := r.conn.Request(api.QuerySubject("t", "ledger.read"), body, testenv.Patience)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := readAnswer(m.Data, &answer); err != nil {
		r.t.Fatal(err)
	}
	return answer
}

// publishes stores a message as some client has written it, and returns its sequence.
func (r *rig) publishes(subject, contentType string, data []byte) uint64 {
	r.t.Helper()
	m := &nats.Msg{Subject: subject, Data: data, Header: nats.Header{}}
	if contentType != "" {
		m.Header.Set("Content-Type", contentType)
	}
	reply, err := r.conn.RequestMsg(m, testenv.Patience)
	if err != nil {
		r.t.Fatal(err)
	}
	var ack struct {
		Seq uint64 `json:"seq"`
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil || ack.Seq == 0 {
		r.t.Fatalf("%s: %s", subject, reply.Data)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.appended = max(r.appended, ack.Seq)
	return ack.Seq
}

const aFact = `{"records": [ {"factAsserted":{"key":"k","value":"MQ=="}} ]}`

// TestTheLedgerIsReadByteForByte: what a host reads out is what the stream has, message
// by message, also of what is no record.
func TestTheLedgerIsReadByteForByte(t *testing.T) {
	r := newRig(t)
	r.serve(done)
	r.host("a")
	r.plan("p1", 3, time.Hour)
	r.publishes("saga.t.fact.s", ledger.ContentTypeJSON, []byte(aFact))
	r.publishes("saga.t.agent.a.p9", "", []byte("\x00no commit"))
	r.publishes("saga.t.agent.a.p9", "text/plain", []byte("neither"))
	r.fail("p1")
	r.ended("p1")
	r.caughtUp()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	store, err := jetstream.Open(ctx, jetstream.Config{Conn: r.conn, Tenant: "t", DurableServer: r.srv.DurableID()})
	if err != nil {
		t.Fatal(err)
	}
	last := r.reads(api.ReadQuery{}).Last
	if head, err := store.Head(ctx); err != nil || last < 8 || last > head.Last {
		t.Fatalf("last is %d, the stream's %d, %v", last, head.Last, err)
	}
	next := uint64(1)
	for next <= last {
		answer := r.reads(api.ReadQuery{From: next, Limit: 3})
		if len(answer.Messages) == 0 || len(answer.Messages) > 3 {
			t.Fatalf("from %d: %d messages", next, len(answer.Messages))
		}
		for _, got := range answer.Messages {
			want, err := store.Get(ctx, next)
			if err != nil {
				t.Fatal(err)
			}
			if got.Sequence != want.Sequence || got.StampNs != want.StampNs || got.Subject != want.Subject ||
				got.ContentType != want.ContentType || !bytes.Equal(got.Data, want.Data) {
				t.Errorf("read %+v, the stream has %+v", got, want)
			}
			next++
		}
	}
}

func TestOneAnswerWithTheLedgerIsBounded(t *testing.T) {
	r := newRig(t)
	r.host("a")
	for i := range 12 {
		r.publishes("saga.t.fact.s", ledger.ContentTypeJSON,
			fmt.Appendf(nil, `{"records":[{"factAsserted":{"key":"k%d","value":%q}}]}`, i, make60KB()))
	}
	r.eventually("all is folded", func() bool { return r.reads(api.ReadQuery{}).Last >= 13 }) // the first begins a term
	all := r.reads(api.ReadQuery{From: 2, Limit: 1000})
	size := 0
	for _, m := range all.Messages {
		size += len(m.Data)
	}
	if size > tiles.ReadBytesMax || len(all.Messages) < 5 {
		t.Errorf("%d messages of %d bytes", len(all.Messages), size)
	}
	if one := r.reads(api.ReadQuery{From: 2, BytesMax: 1}); len(one.Messages) != 1 {
		t.Errorf("%d messages where there is room for none; want the one that is next", len(one.Messages))
	}
	if two := r.reads(api.ReadQuery{From: 2, Limit: 2}); len(two.Messages) != 2 {
		t.Errorf("%d messages, want 2", len(two.Messages))
	}
	for field, q := range map[string]string{
		"request.limit":     `{"from":1,"limit":1001}`,
		"request.bytes_max": `{"from":1,"bytes_max":524289}`,
		"request.wait_ms":   `{"from":1,"wait_ms":60001}`,
	} {
		m, err := r.conn.Request(api.QuerySubject("t", "ledger.read"), []byte(q), testenv.Patience)
		var answer api.Problem
		if err != nil || json.Unmarshal(m.Data, &answer) != nil || answer.Field != field {
			t.Errorf("%s: %+v, %v", q, answer, err)
		}
	}
}

// make60KB is what a fact may hold, in base64 as protojson has it.
func make60KB() string {
	return string(bytes.Repeat([]byte("MTEx"), 15_000)) + "MQ=="
}

// TestAReaderWaitsForWhatComes: a question about what is still to come is answered when it
// is folded, or with nothing when its time is up.
func TestAReaderWaitsForWhatComes(t *testing.T) {
	r := newRig(t)
	r.host("a")
	r.caughtUp()
	last := r.reads(api.ReadQuery{}).Last
	none := r.reads(api.ReadQuery{From: last + 5, WaitMs: 50})
	if len(none.Messages) != 0 {
		t.Errorf("nothing comes: %+v", none)
	}
	answers := make(chan api.ReadAnswer, 1)
	go func() { answers <- r.reads(api.ReadQuery{From: last + 1, WaitMs: 30_000}) }() // ends with its answer
	r.publishes("saga.t.fact.s", ledger.ContentTypeJSON, []byte(aFact))
	if answer := <-answers; len(answer.Messages) == 0 || answer.Messages[0].Sequence != last+1 {
		t.Errorf("what came: %+v", answer)
	}
}
