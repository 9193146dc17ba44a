package coordinator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// sendsAnswer has the host's answer to an agent's request for bytes of its own sent to a subject of
// the agent's account, on which it may not publish.
func (l *live) sendsAnswer(p *coordinator.Plan, forged any, subject string) {
	l.t.Helper()
	body, err := json.Marshal(forged)
	if err != nil {
		l.t.Fatal(err)
	}
	ref, err := p.PutBlob(l.t.Context(), bytes.NewReader(body), "")
	if err != nil {
		l.t.Fatal(err)
	}
	query, err := json.Marshal(api.BlobQuery{Plan: p.ID(), Digest: ref.Digest})
	if err != nil {
		l.t.Fatal(err)
	}
	agent := l.connect("a1")
	read := api.BlobSubject("default", api.BlobAgent, "a1", api.VerbBlobRead)
	if answer, err := agent.Request(read, query, testenv.Patience); err != nil ||
		!bytes.Equal(answer.Data, append([]byte{api.BlobMark}, body...)) {
		l.t.Fatalf("the answer is %s, %v", answer.Data, err)
	}
	if err := agent.PublishRequest(read, subject, query); err != nil {
		l.t.Fatal(err)
	}
	if err := agent.Flush(); err != nil {
		l.t.Fatal(err)
	}
}

// TestAnAnswerThatAnAgentHasSentElsewhereIsNoCommandAndNoNotice: the server lets it through, with
// bytes that the agent has chosen, since it does not hold reply subjects against permissions.
func TestAnAnswerThatAnAgentHasSentElsewhereIsNoCommandAndNoNotice(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{files()}})
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	l.do(p, "real")

	victim := l.connect("a2")
	other, err := coordinator.New(coordinator.Config{Conn: victim, Tenant: "default", Agent: "a2",
		Contracts: []contract.Contract{files()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close(context.Background()) })
	q, err := other.Begin(t.Context(), coordinator.PlanSpec{ID: "q"})
	if err != nil {
		t.Fatal(err)
	}
	l.do(q, "before")
	heard := make(chan *nats.Msg, 1)
	if _, err := victim.ChanSubscribe(api.NoticeSubject("default", "a2", "*"), heard); err != nil {
		t.Fatal(err)
	}
	if err := victim.Flush(); err != nil {
		t.Fatal(err)
	}
	l.sendsAnswer(p, api.Notice{Plan: "q", State: ledger.StateCompensated}, api.NoticeSubject("default", "a2", "q"))
	if m := <-heard; m.Reply != "" {
		t.Errorf("an answer with the reply subject %q", m.Reply)
	}
	notice, err := json.Marshal(api.Notice{Plan: "q", State: ledger.StateCompensated})
	if err == nil { // as an answer that is JSON would come
		err = l.root.Publish(api.NoticeSubject("default", "a2", "q"), notice)
	}
	if err != nil {
		t.Fatal(err)
	}
	<-heard
	l.do(q, "after") // the coordinator has heard it, too
	if err := q.Commit(t.Context()); err != nil {
		t.Error(err)
	}

	l.sendsAnswer(p, api.Command{Tenant: "default", Capability: "file.delete", Purpose: ledger.PurposeUndo,
		Plan: "forged", Action: "forged", Key: "0123", Attempt: 1, Term: 1 << 40, Arguments: rawJSON(`{"path":"/"}`)},
		api.UndoSubject("default", "file.delete"))
	if err := p.Fail(t.Context(), "it is undone"); err != nil {
		t.Fatal(err)
	}
	l.ends(p, ledger.StateCompensated)
	if undone := l.undoneActions(); undone != "real" {
		t.Errorf("undone: %s", undone)
	}
}
