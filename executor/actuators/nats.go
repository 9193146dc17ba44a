// Package actuators carries out compensations, and asks the questions around
// them: it takes a command to a worker and brings back what became of it. It
// decides nothing and remembers nothing; delivery is at least once, under one key.
package actuators

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Fate and Result say what became of one sending.
type (
	Fate   = turn.Fate
	Result = turn.Result
)

// Fates of a sending.
const (
	Replied   = turn.Replied
	NoWorker  = turn.NoWorker
	Silent    = turn.Silent
	Unsent    = turn.Unsent
	Overheard = turn.Overheard
)

// Bounds of what is kept of commands on their way.
const (
	outstandingMax = 1 << 17   // sendings of a tenant that wait for a reply
	waitingSizeMax = 128 << 20 // bytes of replies that have come and were not looked at
)

// Reasons why a message on a reply subject is no answer, or no whole one.
const (
	RefusedUnknown    = "unknown"    // no sending waits for it: late, or meant for another host
	RefusedUnreadable = "unreadable" // not JSON
	RefusedEcho       = "echo"       // it repeats another key or attempt, or none
	RefusedField      = "field"      // a field cannot be read, and the rest counts
)

// RefusalReasons are all of them.
var RefusalReasons = [...]string{RefusedUnknown, RefusedUnreadable, RefusedEcho, RefusedField}

// Refusal is a message on a reply subject that did not count, or a part of one. The command, if
// there is one, still waits for its answer, but for RefusedField.
type Refusal struct {
	Reason  string // one of the constants above
	Command api.Command
	Worker  string // that says it is its author; may be empty
	Err     error  // what is wrong; for RefusedEcho and RefusedField it names the field
}

// Config is what NewNATS needs.
type Config struct {
	Conn   *nats.Conn // kept and closed by the caller
	Tenant string
	// Refused is called for each message that did not count, one at a time; may be nil.
	Refused func(Refusal)
	// Counted is called for each answer to a command that did count, with whose it says it is, and
	// whether each field of it was read; in order with Refused; may be nil.
	Counted func(c api.Command, worker string, whole bool)
}

// NATS sends the commands of one tenant as requests, undos on api.UndoSubject and
// questions on api.AskSubject. Each sending has a reply subject of its own that
// no one can guess, and leaves nothing behind when it has its result.
type NATS struct {
	conn    *nats.Conn
	tenant  string
	prefix  string // of all reply subjects
	refused func(Refusal)
	counted func(c api.Command, worker string, whole bool)
	sub     *nats.Subscription

	mu        sync.Mutex
	pending   map[token]*sending  // at most outstandingMax
	inquiries map[string]*inquiry // the last one of each subject
	asked     map[token]*inquiry  // those that wait for what servers tell
	plain     map[string]time.Time
	closed    bool

	inquiriesMost int // inquiriesMax
}

// token is what makes a reply subject unguessable.
type token [api.ReplyTokenLen / 2]byte

func newToken() (t token) {
	rand.Read(t[:]) // never fails, as crypto/rand documents
	return t
}

// sending is what is kept of a command on its way: what its answer is judged by.
type sending struct {
	purpose, capability, plan, action, key string

	attempt uint32
	sent    time.Time
	timer   *time.Timer
	done    func(Result)
	inquiry *inquiry // who has it; nil: a page
}

// command is as much as is kept.
func (s *sending) command(tenant string) api.Command {
	return api.Command{
		Purpose: s.purpose, Tenant: tenant, Plan: s.plan, Action: s.action,
		Capability: s.capability, Key: s.key, Attempt: s.attempt,
	}
}

// NewNATS subscribes to the replies of a tenant on cfg.Conn. Close ends it.
func NewNATS(cfg Config) (*NATS, error) {
	n := &NATS{
		conn: cfg.Conn, tenant: cfg.Tenant, prefix: api.ReplySubject(cfg.Tenant, ""),
		refused: cfg.Refused, counted: cfg.Counted, pending: map[token]*sending{},
		inquiries: map[string]*inquiry{}, asked: map[token]*inquiry{}, plain: map[string]time.Time{},
		inquiriesMost: inquiriesMax,
	}
	if n.refused == nil {
		n.refused = func(Refusal) {}
	}
	if n.counted == nil {
		n.counted = func(api.Command, string, bool) {}
	}
	sub, err := cfg.Conn.Subscribe(n.prefix+"*", n.receive)
	if err != nil {
		return nil, fmt.Errorf("cannot subscribe to replies of workers: %w", err)
	}
	// More than one reply for each sending is a flood. What is dropped was no answer, or
	// its attempt is in doubt.
	if err := sub.SetPendingLimits(2*outstandingMax, waitingSizeMax); err != nil {
		return nil, fmt.Errorf("cannot bound the replies of workers: %w", err)
	}
	n.sub = sub
	return n, nil
}

// Send asks a worker for one compensation, or one question, and returns at once;
// done is called exactly once, from another goroutine, within the command's
// timeout, or when servers have told who has it. After Close it is not called.
func (n *NATS) Send(c api.Command, done func(Result)) {
	body, err := json.Marshal(c)
	if err != nil {
		panic("actuators: cannot encode a command: " + err.Error())
	}
	m := nats.NewMsg(subject(c))
	m.Data = body
	if c.Traceparent != "" {
		m.Header.Set(traceHeader, c.Traceparent)
	}
	n.send(m, time.Duration(c.TimeoutMs)*time.Millisecond, &sending{
		purpose: c.Purpose, capability: c.Capability, plan: c.Plan, action: c.Action, key: c.Key,
		attempt: c.Attempt, done: done,
	})
}

var fullText = fmt.Sprintf("%d commands of this tenant wait for answers already", outstandingMax)

// traceHeader carries the trace context for libraries that look for it there. NATS
// keeps the case of a header's name, and the standard wants it lower.
const traceHeader = "traceparent"

// subject keeps what changes the world apart from what only inquiries at it, so that
// permissions can.
func subject(c api.Command) string {
	if c.Purpose == ledger.PurposeUndo {
		return api.UndoSubject(c.Tenant, c.Capability)
	}
	return api.AskSubject(c.Tenant, c.Capability)
}

// noRespondersStatus is the status header of a request that no one serves.
const noRespondersStatus = "503"

func (n *NATS) receive(m *nats.Msg) {
	id, s := n.awaited(m.Subject[len(n.prefix):])
	switch {
	case s == nil && n.traced(id, m.Data):
		return
	case s == nil:
		n.refused(Refusal{Reason: RefusedUnknown, Err: errUnknown})
		return
	case len(m.Data) == 0 && m.Header.Get("Status") == noRespondersStatus:
		n.finish(id, Result{Fate: NoWorker})
		return
	case s.purpose == PurposePage:
		n.receivePage(id, s, m.Data)
		return
	}
	command := s.command(n.tenant)
	reply, unread, refusal := read(m.Data, command)
	if refusal != nil {
		n.refused(*refusal)
		return
	}
	n.answered(s)
	n.unread(Refusal{Command: command, Worker: reply.Worker}, unread)
	n.counted(command, reply.Worker, len(unread) == 0)
	n.finish(id, Result{Fate: Replied, Reply: reply})
}

// unread names the fields of an answer that could not be read.
func (n *NATS) unread(about Refusal, fields []*api.Mismatch) {
	for _, field := range fields {
		about.Reason, about.Err = RefusedField, field
		n.refused(about)
	}
}

// awaited returns the sending whose reply subject ends like this; nil: there is none.
func (n *NATS) awaited(text string) (id token, s *sending) {
	if len(text) != api.ReplyTokenLen {
		return id, nil
	}
	if _, err := hex.Decode(id[:], []byte(text)); err != nil {
		return id, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return id, n.pending[id]
}

var errUnknown = errors.New("no command waits for this answer any more")

// read reads a worker's reply. One that is no answer to the command is refused; one
// whose status is none is a failure that says so, and so is a question put off: only an
// undo has a report that follows.
func read(data []byte, c api.Command) (api.Reply, []*api.Mismatch, *Refusal) {
	reply, unread, err := c.ReadReply(data)
	var wrong *api.Mismatch
	switch {
	case errors.As(err, &wrong):
		if t, _, _ := api.ReadTaking(data); t.Stream != "" {
			err = fmt.Errorf("stream %.64q has stored it: no stream may capture what workers are sent: %w",
				t.Stream, err)
		}
		return reply, nil, &Refusal{Reason: RefusedEcho, Command: c, Worker: reply.Worker, Err: err}
	case err != nil:
		return reply, nil, &Refusal{Reason: RefusedUnreadable, Command: c, Worker: reply.Worker,
			Err: err}
	}
	want := "done, failed, stop, changed, in_doubt or working"
	switch reply.Status {
	case api.StatusDone, api.StatusFailed, api.StatusStop, api.StatusChanged:
		return reply, unread, nil
	case api.StatusWorking, api.StatusInDoubt:
		if c.Purpose == ledger.PurposeUndo {
			return reply, unread, nil
		}
		want = "done, failed or stop to a question"
	}
	return api.Reply{
		Key: reply.Key, Attempt: reply.Attempt,
		Status: api.StatusFailed, Code: api.CodeBadReply, Worker: reply.Worker, WorkNs: reply.WorkNs,
		Message: fmt.Sprintf("the worker's reply has %s; want %s", badStatus(reply, unread), want),
	}, unread, nil
}

// badStatus is what a reply has in the place of a status.
func badStatus(reply api.Reply, unread []*api.Mismatch) string {
	for _, wrong := range unread {
		if wrong.Field == "reply.status" {
			return "a status that cannot be read: " + wrong.Problem
		}
	}
	if reply.Status == "" {
		return "no status"
	}
	return fmt.Sprintf("status %.64q", reply.Status)
}

func (n *NATS) finish(id token, r Result) {
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
	n.closed = true
	for _, s := range n.pending {
		s.timer.Stop()
	}
	clear(n.pending)
	n.mu.Unlock()
	if err := n.sub.Unsubscribe(); err != nil && !n.conn.IsClosed() {
		return fmt.Errorf("cannot end the subscription to replies of workers: %w", err)
	}
	return nil
}
