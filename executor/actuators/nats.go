// Package actuators carries out compensations, and asks the questions around
// them: it takes a command to a worker and brings back what became of it. It
// decides nothing and remembers nothing; delivery is at least once, under one key.
package actuators

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Fate says what became of one sending.
type Fate uint8

// Fates of a sending.
const (
	Replied  Fate = iota // Reply is set
	NoWorker             // nobody serves the capability: nothing happened
	Silent               // no reply in time: what was asked for may have happened
)

// Result is what became of one sending.
type Result struct {
	Fate  Fate
	Reply ledger.Reply
	Took  time.Duration // from sending to the result
}

// NATS sends commands as requests, undos on ledger.UndoSubject and questions on
// ledger.AskSubject, with one inbox for all replies.
type NATS struct {
	conn  *nats.Conn
	inbox string
	sub   *nats.Subscription

	mu      sync.Mutex
	next    uint64
	pending map[uint64]*sending
	closed  bool
}

type sending struct {
	purpose string
	sent    time.Time
	timer   *time.Timer
	done    func(Result)
}

// NewNATS subscribes to an inbox of its own on conn. Close ends it.
func NewNATS(conn *nats.Conn) (*NATS, error) {
	n := &NATS{conn: conn, inbox: conn.NewInbox(), pending: map[uint64]*sending{}}
	sub, err := conn.Subscribe(n.inbox+".*", n.receive)
	if err != nil {
		return nil, fmt.Errorf("cannot subscribe to replies of workers: %w", err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, fmt.Errorf("cannot lift the limit on replies of workers: %w", err)
	}
	n.sub = sub
	return n, nil
}

// Send asks a worker for one compensation, or one question, and returns at once;
// done is called exactly once, from another goroutine, within the command's
// timeout. After Close it is not called.
func (n *NATS) Send(c ledger.Command, done func(Result)) {
	body, err := json.Marshal(c)
	if err != nil {
		panic("actuators: cannot encode a command: " + err.Error())
	}
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return
	}
	n.next++
	id := n.next
	timeout := time.Duration(c.TimeoutMs) * time.Millisecond
	s := &sending{purpose: c.Purpose, sent: time.Now(), done: done}
	s.timer = time.AfterFunc(timeout, func() { n.finish(id, Result{Fate: Silent}) })
	n.pending[id] = s
	n.mu.Unlock()
	if !n.conn.IsConnected() {
		// A client that reconnects would keep it, and send it whenever that is done:
		// perhaps when the provider has forgotten the key.
		go n.finish(id, Result{Fate: NoWorker})
		return
	}
	reply := n.inbox + "." + strconv.FormatUint(id, 36)
	m := nats.NewMsg(subject(c))
	m.Reply, m.Data = reply, body
	if c.Traceparent != "" {
		m.Header.Set(traceHeader, c.Traceparent)
	}
	if err := n.conn.PublishMsg(m); err != nil {
		go n.finish(id, Result{Fate: NoWorker}) // not sent
	}
}

// traceHeader carries the trace context for libraries that look for it there. NATS
// keeps the case of a header's name, and the standard wants it lower.
const traceHeader = "traceparent"

// subject keeps what changes the world apart from what only looks at it, so that
// permissions can.
func subject(c ledger.Command) string {
	if c.Purpose == ledger.PurposeUndo {
		return ledger.UndoSubject(c.Tenant, c.Capability)
	}
	return ledger.AskSubject(c.Tenant, c.Capability)
}

// noRespondersStatus is the status header of a request that nobody serves.
const noRespondersStatus = "503"

func (n *NATS) receive(m *nats.Msg) {
	id, err := strconv.ParseUint(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], 36, 64)
	if err != nil {
		return // not a reply to anything we sent
	}
	if len(m.Data) == 0 && m.Header.Get("Status") == noRespondersStatus {
		n.finish(id, Result{Fate: NoWorker})
		return
	}
	n.mu.Lock()
	s := n.pending[id]
	n.mu.Unlock()
	if s != nil {
		n.finish(id, Result{Fate: Replied, Reply: read(m.Data, s.purpose)})
	}
}

// badReply is the code of a reply that says nothing we know: the attempt failed.
const badReply = "bad_reply"

// read reads a worker's reply. One that cannot be understood is a failure that
// says so, and so is a question put off: only an undo has a report that follows.
func read(data []byte, purpose string) ledger.Reply {
	var reply ledger.Reply
	if err := json.Unmarshal(data, &reply); err != nil {
		return ledger.Reply{Status: ledger.StatusFailed, Code: badReply, Message: "the worker's reply is not JSON: " + err.Error()}
	}
	want := "done, failed, stop or working"
	switch reply.Status {
	case ledger.StatusDone, ledger.StatusFailed, ledger.StatusStop:
		return reply
	case ledger.StatusWorking:
		if purpose == ledger.PurposeUndo {
			return reply
		}
		want = "done, failed or stop to a question"
	}
	return ledger.Reply{
		Status: ledger.StatusFailed, Code: badReply, Worker: reply.Worker, WorkNs: reply.WorkNs,
		Message: fmt.Sprintf("the worker's reply has status %q; want %s", reply.Status, want),
	}
}

func (n *NATS) finish(id uint64, r Result) {
	n.mu.Lock()
	s := n.pending[id]
	delete(n.pending, id)
	closed := n.closed
	n.mu.Unlock()
	if s == nil || closed {
		return
	}
	s.timer.Stop()
	r.Took = time.Since(s.sent)
	s.done(r)
}

// Close forgets what was sent; its results are lost, and are asked for again
// with the same keys.
func (n *NATS) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for _, s := range n.pending {
		s.timer.Stop()
	}
	clear(n.pending)
	if err := n.sub.Unsubscribe(); err != nil && !n.conn.IsClosed() {
		return fmt.Errorf("cannot close the inbox of worker replies: %w", err)
	}
	return nil
}
