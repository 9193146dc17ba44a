package actuators

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// PurposePage is the purpose of what a Refusal calls a command when it is a page.
const PurposePage = "page"

// taking is what someone says who takes a page: its id.
type taking struct {
	ID string `json:"id"`
	By string `json:"by"`
	// Stream is set in the acknowledgment of a stream that stores pages. It has heard
	// the page and no one has.
	Stream string `json:"stream"`
}

// Page publishes a page and waits for a reply that repeats its id, as whoever takes it
// sends one. done is called as that of Send: Replied, with the name of who has taken it
// as the worker; NoWorker when no one listens; Silent when no one has taken it in time.
func (n *NATS) Page(subject, id string, body []byte, timeout time.Duration, done func(Result)) {
	m := nats.NewMsg(subject)
	m.Header.Set(nats.MsgIdHdr, id)
	m.Data = body
	n.send(m, timeout, &sending{purpose: PurposePage, key: id, done: done})
}

// receivePage judges a reply to a page.
func (n *NATS) receivePage(id token, s *sending, data []byte) {
	var t taking
	err := json.Unmarshal(data, &t)
	switch {
	case err == nil && t.ID == s.key:
		n.finish(id, Result{Fate: Replied, Reply: api.Reply{Status: api.StatusDone, Worker: t.By}})
	case err == nil && t.Stream != "":
	case err != nil:
		err = fmt.Errorf("the reply to page %s is not JSON: %w", s.key, err)
		n.refused(Refusal{Reason: RefusedUnreadable, Command: s.command(n.tenant), Worker: t.By,
			Err: err})
	default:
		err = ledger.Refuse("id", fmt.Sprintf("%.64q", t.ID), "the id of the page, "+s.key)
		n.refused(Refusal{Reason: RefusedEcho, Command: s.command(n.tenant), Worker: t.By, Err: err})
	}
}

// send publishes a message with a reply subject of its own.
func (n *NATS) send(m *nats.Msg, timeout time.Duration, s *sending) {
	id := newToken()
	n.mu.Lock()
	switch {
	case n.closed:
		n.mu.Unlock()
		return
	case len(n.pending) >= outstandingMax:
		n.mu.Unlock()
		go s.done(Result{Fate: Unsent, Problem: fullText})
		return
	}
	s.sent = time.Now()
	s.timer = time.AfterFunc(timeout, func() { n.finish(id, Result{Fate: Silent}) })
	n.pending[id] = s
	n.mu.Unlock()
	if !n.conn.IsConnected() {
		// A client that reconnects would keep it, and send it whenever that is done:
		// perhaps when the provider has forgotten the key.
		go n.finish(id, Result{Fate: Unsent})
		return
	}
	m.Reply = api.ReplySubject(n.tenant, hex.EncodeToString(id[:]))
	if err := n.conn.PublishMsg(m); err != nil {
		go n.finish(id, Result{Fate: Unsent})
	}
}
