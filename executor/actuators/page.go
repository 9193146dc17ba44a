package actuators

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// PurposePage is the purpose of what a Refusal calls a command when it is a page.
const PurposePage = "page"

// Page publishes a page and waits for a reply that repeats its id, as whoever takes it
// sends one. done is called as that of Send: Replied, with the name of the one that has taken it
// as the worker; NoWorker when no one listens; Silent when no one has taken it in time.
func (n *NATS) Page(subject, id string, body []byte, timeout time.Duration, done func(Result)) {
	m := nats.NewMsg(subject)
	m.Header.Set(nats.MsgIdHdr, id)
	m.Data = body
	n.send(m, timeout, &sending{purpose: PurposePage, key: id, done: done})
}

// receivePage judges a reply to a page.
func (n *NATS) receivePage(id token, s *sending, data []byte) {
	t, unread, err := api.ReadTaking(data)
	about := Refusal{Command: s.command(n.tenant), Worker: t.By}
	switch {
	case err != nil:
		about.Reason, about.Err = RefusedUnreadable, fmt.Errorf("page %s: %w", s.key, err)
		n.refused(about)
	case t.ID == s.key:
		n.unread(about, unread)
		n.finish(id, Result{Fate: Replied, Reply: api.Reply{Status: api.StatusDone, Worker: t.By}})
	case t.Stream != "":
	default:
		about.Reason = RefusedEcho
		about.Err = ledger.Refuse("id", fmt.Sprintf("%.64q", t.ID), "the id of the page, "+s.key)
		n.refused(about)
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
	s.timer = time.AfterFunc(timeout, func() { n.silent(id, s) })
	n.pending[id] = s
	if s.purpose != PurposePage && n.conn.IsConnected() {
		s.inquiry = n.inquiryOf(m.Subject)
	}
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
