package actuators

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
)

// connected gives a connection to a server of its own, and an actuator on it.
func connected(t *testing.T) (*nats.Conn, *NATS) {
	t.Helper()
	srv, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewNATS(conn)
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

// send sends a command and waits for what becomes of it.
func send(a *NATS, c ledger.Command) Result {
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
			var c ledger.Command
			if err := json.Unmarshal(m.Data, &c); err != nil {
				t.Error(err)
			}
			heard <- m.Subject + " " + c.Purpose
			_ = m.Respond([]byte(`{"status":"done","setup_ns":1,"tool_ns":2,"llm_ns":3,"work_ns":6}`))
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ purpose, want string }{
		{ledger.PurposeUndo, "undo.t.git.branch.delete undo"},
		{ledger.PurposeProbe, "ask.t.git.branch.delete probe"},
		{ledger.PurposeVerify, "ask.t.git.branch.delete verify"},
	} {
		r := send(a, ledger.Command{Purpose: c.purpose})
		if got := <-heard; got != c.want {
			t.Errorf("%s: heard %q, want %q", c.purpose, got, c.want)
		}
		if r.Fate != Replied || r.Reply.SetupNs != 1 || r.Reply.ToolNs != 2 || r.Reply.LLMNs != 3 || r.Reply.WorkNs != 6 {
			t.Errorf("%s: %+v", c.purpose, r)
		}
	}
}

func TestAReplyThatCannotBeUnderstoodIsAFailure(t *testing.T) {
	for _, c := range []struct{ purpose, reply, status, code string }{
		{ledger.PurposeUndo, `{"status":"done"}`, ledger.StatusDone, ""},
		{ledger.PurposeUndo, `{"status":"working"}`, ledger.StatusWorking, ""},
		{ledger.PurposeUndo, `{"status":"stop","code":"gone"}`, ledger.StatusStop, "gone"},
		{ledger.PurposeUndo, `{"status":"DONE"}`, ledger.StatusFailed, badReply},
		{ledger.PurposeUndo, `{}`, ledger.StatusFailed, badReply},
		{ledger.PurposeUndo, `done`, ledger.StatusFailed, badReply},
		{ledger.PurposeUndo, ``, ledger.StatusFailed, badReply},
		{ledger.PurposeProbe, `{"status":"done","output":{"presence":"absent"}}`, ledger.StatusDone, ""},
		{ledger.PurposeProbe, `{"status":"failed","code":"rate_limit"}`, ledger.StatusFailed, "rate_limit"},
		{ledger.PurposeProbe, `{"status":"working","until_ms":1}`, ledger.StatusFailed, badReply},
		{ledger.PurposeVerify, `{"status":"working"}`, ledger.StatusFailed, badReply},
		{ledger.PurposeVerify, `present`, ledger.StatusFailed, badReply},
	} {
		r := read([]byte(c.reply), c.purpose)
		if r.Status != c.status || r.Code != c.code || c.code == badReply && r.Message == "" {
			t.Errorf("%s %s: %+v", c.purpose, c.reply, r)
		}
	}
}

func TestNobodyThereIsNotSilence(t *testing.T) {
	conn, a := connected(t)
	if r := send(a, ledger.Command{Purpose: ledger.PurposeProbe}); r.Fate != NoWorker {
		t.Errorf("without a worker: %+v", r)
	}
	conn.Close()
	if r := send(a, ledger.Command{Purpose: ledger.PurposeUndo}); r.Fate != NoWorker {
		t.Errorf("without a connection: %+v", r)
	}
}

func TestSilenceEndsWithTheTimeout(t *testing.T) {
	conn, a := connected(t)
	if _, err := conn.Subscribe("undo.t.>", func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	results := make(chan Result, 1)
	a.Send(ledger.Command{Purpose: ledger.PurposeUndo, Tenant: "t", Capability: "x", TimeoutMs: 50}, func(r Result) { results <- r })
	if r := <-results; r.Fate != Silent || r.Took < 50*time.Millisecond {
		t.Errorf("%+v", r)
	}
}
