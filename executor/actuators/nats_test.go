package actuators

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// connected gives a connection to a server of its own, and an actuator on it.
func connected(t testing.TB) (*nats.Conn, *NATS) {
	t.Helper()
	srv, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewNATS(Config{Conn: conn, Tenant: "t"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		conn.Close()
		srv.Close()
	})
	return conn, a
}

// respond answers a command as a worker does.
func respond(t *testing.T, m *nats.Msg, c api.Command, r api.Reply) {
	t.Helper()
	body, err := json.Marshal(c.Answer(r))
	if err := errors.Join(err, m.Respond(body)); err != nil {
		t.Error(err)
	}
}

// send sends a command and waits for what becomes of it.
func send(a *NATS, c api.Command) Result {
	c.Tenant, c.Capability, c.TimeoutMs = "t", "git.branch.delete", 5000
	results := make(chan Result, 1)
	a.Send(c, func(r Result) { results <- r })
	return <-results
}

func TestACommandGoesWhereItsPurposeBelongs(t *testing.T) {
	conn, a := connected(t)
	heard := make(chan string, 1)
	for _, subject := range []string{"undo.t.>", "ask.t.>"} {
		if _, err := conn.Subscribe(subject, func(m *nats.Msg) {
			var c api.Command
			if err := json.Unmarshal(m.Data, &c); err != nil {
				t.Error(err)
			}
			heard <- m.Subject + " " + c.Purpose
			respond(t, m, c, api.Reply{Status: api.StatusDone, SetupNs: 1, ToolNs: 2, LLMNs: 3, WorkNs: 6})
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ purpose, want string }{
		{ledger.PurposeUndo, "undo.t.git.branch.delete undo"},
		{api.PurposeProbe, "ask.t.git.branch.delete probe"},
		{api.PurposeVerify, "ask.t.git.branch.delete verify"},
	} {
		r := send(a, api.Command{Purpose: c.purpose})
		if got := <-heard; got != c.want {
			t.Errorf("%s: heard %q, want %q", c.purpose, got, c.want)
		}
		if r.Fate != Replied || r.Reply.SetupNs != 1 || r.Reply.ToolNs != 2 || r.Reply.LLMNs != 3 || r.Reply.WorkNs != 6 {
			t.Errorf("%s: %+v", c.purpose, r)
		}
	}
}

func TestAReplyThatCannotBeUnderstoodIsAFailure(t *testing.T) {
	const echo = `"key":"k","attempt":2`
	for _, c := range []struct{ purpose, reply, status, code string }{
		{ledger.PurposeUndo, `"status":"done"`, api.StatusDone, ""},
		{ledger.PurposeUndo, `"status":"working"`, api.StatusWorking, ""},
		{ledger.PurposeUndo, `"status":"stop","code":"gone"`, api.StatusStop, "gone"},
		{ledger.PurposeUndo, `"status":"DONE"`, api.StatusFailed, api.CodeBadReply},
		{ledger.PurposeUndo, `"output":1`, api.StatusFailed, api.CodeBadReply},
		{api.PurposeProbe, `"status":"done","output":{"presence":"absent"}`, api.StatusDone, ""},
		{api.PurposeProbe, `"status":"failed","code":"rate_limit"`, api.StatusFailed, "rate_limit"},
		{api.PurposeProbe, `"status":"working","until_ms":1`, api.StatusFailed, api.CodeBadReply},
		{api.PurposeVerify, `"status":"working"`, api.StatusFailed, api.CodeBadReply},
	} {
		command := api.Command{Purpose: c.purpose, Key: "k", Attempt: 2}
		r, _, refusal := read([]byte("{"+echo+","+c.reply+"}"), command)
		if refusal != nil || r.Status != c.status || r.Code != c.code || c.code == api.CodeBadReply && r.Message == "" {
			t.Errorf("%s %s: %+v, %+v", c.purpose, c.reply, r, refusal)
		}
	}
}

// TestAStatusThatIsNoneSaysWhatWouldBe: every status that an undo may have, and why it was not read.
func TestAStatusThatIsNoneSaysWhatWouldBe(t *testing.T) {
	for text, want := range map[string]string{
		`"status":"DONE"`: `the worker's reply has status "DONE"; want done, failed, stop, changed, in_doubt or working`,
		`"output":1`:      "the worker's reply has no status; want done",
		`"status":"done","status":"failed"`: "the worker's reply has a status that cannot be read: " +
			"given twice, and not the same; want done",
		`"status":{"is":"done"}`: "the worker's reply has a status that cannot be read: an object; want done",
	} {
		c := api.Command{Key: "k", Attempt: 1, Purpose: ledger.PurposeUndo}
		r, _, _ := read([]byte(`{"key":"k","attempt":1,`+text+"}"), c)
		if r.Status != api.StatusFailed || r.Code != api.CodeBadReply || !strings.HasPrefix(r.Message, want) {
			t.Errorf("%s: %+v", text, r)
		}
	}
}

// refusing is an actuator that gives a test what it refuses.
func refusing(t *testing.T) (*NATS, *nats.Conn, <-chan Refusal) {
	t.Helper()
	conn, _ := connected(t)
	refused := make(chan Refusal, 10)
	a, err := NewNATS(Config{Conn: conn, Tenant: "t", Refused: func(r Refusal) { refused <- r }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a, conn, refused
}

// TestOnlyAnAnswerThatRepeatsKeyAndAttemptCounts: what does not is refused, by name, and
// the command goes on waiting for its answer.
func TestOnlyAnAnswerThatRepeatsKeyAndAttemptCounts(t *testing.T) {
	a, conn, refused := refusing(t)
	bodies := []struct{ body, reason, field string }{
		{`{"status":"done","worker":"old"}`, RefusedEcho, "reply.key"},
		{`{"key":"k","status":"done"}`, RefusedEcho, "reply.attempt"},
		{`{"key":"k","attempt":1,"status":"done"}`, RefusedEcho, "reply.attempt"},
		{`{"key":"K","attempt":2,"status":"done"}`, RefusedEcho, "reply.key"},
		{`done`, RefusedUnreadable, ""},
		{``, RefusedUnreadable, ""},
	}
	if _, err := conn.Subscribe("undo.t.>", func(m *nats.Msg) {
		for _, b := range bodies {
			if err := m.Respond([]byte(b.body)); err != nil {
				t.Error(err)
			}
		}
		respond(t, m, api.Command{Key: "k", Attempt: 2}, api.Reply{Status: api.StatusDone, Worker: "new"})
	}); err != nil {
		t.Fatal(err)
	}
	r := send(a, api.Command{Purpose: ledger.PurposeUndo, Key: "k", Attempt: 2})
	if r.Fate != Replied || r.Reply.Worker != "new" {
		t.Errorf("%+v", r)
	}
	for _, want := range bodies {
		got := <-refused
		var field *api.Mismatch
		if errors.As(got.Err, &field) != (want.field != "") || field != nil && field.Field != want.field {
			t.Errorf("%s: %v, want a refusal of %q", want.body, got.Err, want.field)
		}
		if got.Reason != want.reason || got.Command.Key != "k" || got.Command.Capability != "git.branch.delete" {
			t.Errorf("%s: %+v", want.body, got)
		}
	}
}

// TestAnAnswerCountsWithoutAFieldThatCannotBeRead: the field is named, and only it is lost.
func TestAnAnswerCountsWithoutAFieldThatCannotBeRead(t *testing.T) {
	a, conn, refused := refusing(t)
	const body = `{"key":"k","attempt":2.0,"status":"done","external_ref":481516,"code":404,"work_ns":4.1e6,` +
		`"worker":"old","message":{"text":"x"},"output":{"n":NaN}}`
	if _, err := conn.Subscribe("undo.t.>", func(m *nats.Msg) {
		if err := m.Respond([]byte(body)); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	r := send(a, api.Command{Purpose: ledger.PurposeUndo, Key: "k", Attempt: 2})
	want := api.Reply{Key: "k", Attempt: 2, Status: api.StatusDone, ExternalRef: "481516", Code: "404",
		WorkNs: 4_100_000, Worker: "old"}
	if r.Fate != Replied || !reflect.DeepEqual(r.Reply, want) {
		t.Errorf("%+v, want %+v", r, want)
	}
	for _, want := range []string{"reply.message", "reply.output"} {
		got := <-refused
		var field *api.Mismatch
		if got.Reason != RefusedField || !errors.As(got.Err, &field) || field.Field != want || got.Worker != "old" {
			t.Errorf("%+v, want %s", got, want)
		}
	}
}

// TestALateAnswerCountsForNoLaterAttempt: every sending has a reply subject of its own,
// also one of the same attempt, and it ends with the sending.
func TestALateAnswerCountsForNoLaterAttempt(t *testing.T) {
	a, conn, refused := refusing(t)
	sent := make(chan *nats.Msg, 10)
	if _, err := conn.QueueSubscribe("undo.t.>", "workers", func(m *nats.Msg) { sent <- m }); err != nil {
		t.Fatal(err)
	}
	first := api.Command{Purpose: ledger.PurposeUndo, Tenant: "t", Capability: "x", Key: "k", Attempt: 1}
	first.TimeoutMs = 20
	results := make(chan Result, 2)
	a.Send(first, func(r Result) { results <- r })
	late := <-sent
	if r := <-results; r.Fate != Silent {
		t.Fatalf("%+v", r)
	}
	second := first
	second.Attempt, second.TimeoutMs = 2, 60_000
	a.Send(second, func(r Result) { results <- r })
	now := <-sent
	if late.Reply == now.Reply {
		t.Errorf("two sendings share the reply subject %s", now.Reply)
	}
	respond(t, late, first, api.Reply{Status: api.StatusStop})  // as it was asked
	respond(t, late, second, api.Reply{Status: api.StatusStop}) // as if it were the second
	respond(t, now, first, api.Reply{Status: api.StatusStop})   // on the second's subject
	for _, reason := range []string{RefusedUnknown, RefusedUnknown, RefusedEcho} {
		if got := <-refused; got.Reason != reason {
			t.Errorf("%+v, want %s", got, reason)
		}
	}
	select {
	case r := <-results:
		t.Fatalf("the second attempt was answered: %+v", r)
	default:
	}
	respond(t, now, second, api.Reply{Status: api.StatusDone})
	if r := <-results; r.Fate != Replied || r.Reply.Status != api.StatusDone {
		t.Errorf("%+v", r)
	}
}

func TestAReplySubjectCannotBeGuessed(t *testing.T) {
	conn, a := connected(t)
	const n = 200
	sent := make(chan *nats.Msg, n)
	if _, err := conn.QueueSubscribe("undo.t.>", "workers", func(m *nats.Msg) { sent <- m }); err != nil {
		t.Fatal(err)
	}
	shape := regexp.MustCompile(`^reply\.t\.[0-9a-f]{32}$`)
	seen, ones := map[string]bool{}, [128]int{}
	c := api.Command{Purpose: ledger.PurposeUndo, Tenant: "t", Capability: "x", TimeoutMs: 60_000}
	for range n {
		a.Send(c, func(Result) {})
		reply := (<-sent).Reply
		if !shape.MatchString(reply) || seen[reply] {
			t.Fatalf("reply subject %q", reply)
		}
		seen[reply] = true
		raw, err := hex.DecodeString(reply[len("reply.t."):])
		if err != nil {
			t.Fatal(err)
		}
		for bit := range ones {
			ones[bit] += int(raw[bit/8] >> (bit % 8) & 1)
		}
	}
	for bit, count := range ones { // of 200 fair bits 40 to 160 are ones, but for one run in 10^15
		if count < 40 || count > 160 {
			t.Errorf("bit %d is a one %d times of %d", bit, count, n)
		}
	}
}

// TestWhatIsOutstandingIsBounded: a sending leaves nothing behind, whatever became of it,
// and more than the bound are not sent.
func TestWhatIsOutstandingIsBounded(t *testing.T) {
	conn, a := connected(t)
	outstanding := func() int {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.pending)
	}
	send(a, api.Command{Purpose: ledger.PurposeUndo}) // no worker
	if _, err := conn.Subscribe("undo.t.git.branch.delete", func(m *nats.Msg) {
		respond(t, m, api.Command{}, api.Reply{Status: api.StatusDone})
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.QueueSubscribe("undo.t.silent", "workers", func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	send(a, api.Command{Purpose: ledger.PurposeUndo}) // answered
	results := make(chan Result, 1)
	silent := api.Command{Purpose: ledger.PurposeUndo, Tenant: "t", Capability: "silent", TimeoutMs: 1}
	a.Send(silent, func(r Result) { results <- r })
	if r := <-results; r.Fate != Silent {
		t.Errorf("%+v", r)
	}
	if n := outstanding(); n != 0 {
		t.Errorf("%d sendings are kept after their results", n)
	}
	a.mu.Lock()
	for range outstandingMax {
		a.pending[newToken()] = &sending{timer: time.NewTimer(time.Hour)}
	}
	a.mu.Unlock()
	if r := send(a, api.Command{Purpose: ledger.PurposeUndo}); r.Fate != Unsent || r.Problem == "" {
		t.Errorf("above the bound: %+v", r)
	}
	if n := outstanding(); n != outstandingMax {
		t.Errorf("%d outstanding, want the bound of %d", n, outstandingMax)
	}
}

func TestNobodyThereIsNotSilence(t *testing.T) {
	conn, a := connected(t)
	if r := send(a, api.Command{Purpose: api.PurposeProbe}); r.Fate != NoWorker {
		t.Errorf("without a worker: %+v", r)
	}
	conn.Close()
	if r := send(a, api.Command{Purpose: ledger.PurposeUndo}); r.Fate != Unsent {
		t.Errorf("without a connection: %+v", r)
	}
}

func TestSilenceEndsWithTheTimeout(t *testing.T) {
	conn, a := connected(t)
	if _, err := conn.QueueSubscribe("undo.t.>", "workers", func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	results := make(chan Result, 1)
	a.Send(api.Command{Purpose: ledger.PurposeUndo, Tenant: "t", Capability: "x", TimeoutMs: 50},
		func(r Result) { results <- r })
	if r := <-results; r.Fate != Silent || r.Took < 50*time.Millisecond {
		t.Errorf("%+v", r)
	}
}
