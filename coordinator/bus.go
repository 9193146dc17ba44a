package coordinator

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// bus is what a coordinator needs of NATS beside appends: questions to the
// executor and its notices. Both are hints; the truth is in the ledger.
type bus interface {
	// ask sends a question and returns the answer; errNobody when no one listens.
	ask(ctx context.Context, subject string, body []byte) ([]byte, error)
	// question is ask for what a worker answers, on a reply subject that no one can
	// guess and that is no inbox: workers may publish replies, and nothing to inboxes.
	// An answer for which accept has an error does not count.
	question(ctx context.Context, q question) ([]byte, error)
	// listen calls f for each notice, one at a time, until stop is called.
	listen(subject string, f func(body []byte)) (stop func(), err error)
	// answer calls f with each question on a subject, beside others, and answers it, below the
	// subject alone, with what f returns.
	answer(subject string, f func(body []byte) []byte) (stop func(), err error)
	// reconnected calls f each time a lost connection is there again, until stop
	// is called: replies to what was sent before will not come.
	reconnected(f func()) (stop func())
	// closed calls f once, when the connection is closed for good, unless stop is called
	// before. Questions that wait, and further ones, have that error then.
	closed(f func(error)) (stop func())
}

// lostBus is a bus that answers nothing any more once no call works.
type lostBus struct {
	bus
	lost *loss
}

func (b lostBus) ask(ctx context.Context, subject string, body []byte) (answer []byte, err error) {
	if err = b.lost.why(); err == nil {
		answer, err = b.bus.ask(ctx, subject, body)
	}
	if why := b.lost.why(); why != nil {
		return nil, why
	}
	return answer, err
}

func (b lostBus) question(ctx context.Context, q question) (answer []byte, err error) {
	if err = b.lost.why(); err == nil {
		answer, err = b.bus.question(ctx, q)
	}
	return answer, err
}

// natsBus is a bus over a connection that the agent keeps and closes.
type natsBus struct{ conn *nats.Conn }

func (b natsBus) ask(ctx context.Context, subject string, body []byte) ([]byte, error) {
	msg, err := b.conn.RequestWithContext(ctx, subject, body)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, errNobody
	}
	if err != nil {
		return nil, b.lost(err)
	}
	return msg.Data, nil
}

var errUnread = errors.New("cannot read answer of executor")

// ask puts a question to an executor. The error may be the *api.Problem that it answers with, or
// errUnread.
func ask[Q, A any](ctx context.Context, b bus, tenant string, v api.Verb[Q, A], q Q) (answer A,
	err error) {
	err = askInto(ctx, b, v.Subject(tenant), q, &answer)
	return answer, err
}

func askInto(ctx context.Context, b bus, subject string, q, answer any) error {
	reply, err := b.ask(ctx, subject, mustJSON(q))
	if err != nil {
		return err
	}
	err = api.DecodeAnswer(reply, answer)
	var problem *api.Problem
	switch {
	case errors.As(err, &problem):
		return fmt.Errorf("executor: %w", problem)
	case err != nil:
		return fmt.Errorf("%w: %v", errUnread, err)
	}
	return nil
}

// lost is an error of a connection, or that it is closed for good.
func (b natsBus) lost(err error) error { return cmp.Or(jetstream.Closed(b.conn), err) }

// question is what a bus asks a worker, or a process of the same agent.
type question struct {
	subject string
	replies string // prefix of the reply subject, which a token follows
	body    []byte
	accept  func(answer []byte) error // nil: any answer counts
	// within bounds the wait for an answer, counted from when the server has the question,
	// so that a slow server is not taken for someone who does not answer. 0: ctx does
	within time.Duration
}

func (b natsBus) question(ctx context.Context, q question) ([]byte, error) {
	reply := q.replies + newToken()
	sub, err := b.conn.SubscribeSync(reply)
	if err != nil {
		return nil, b.lost(err)
	}
	// A connection that is closed already has ended the subscription too.
	defer func() { _ = sub.Unsubscribe() }()
	if err := sub.SetPendingLimits(answersMax, answersSizeMax); err != nil {
		return nil, b.lost(err)
	}
	if err := b.conn.PublishRequest(q.subject, reply, q.body); err != nil {
		return nil, b.lost(err)
	}
	if q.within > 0 {
		// the server says that no one listens before it answers the flush
		if err := b.conn.FlushWithContext(ctx); err != nil {
			return nil, b.lost(err)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, q.within)
		defer cancel()
	}
	for refused := error(nil); ; {
		m, err := sub.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return nil, errNobody
		case err != nil && b.conn.IsClosed():
			return nil, b.lost(err)
		case err != nil && refused != nil:
			return nil, fmt.Errorf("%w; an answer was refused: %w", err, refused)
		case err != nil:
			return nil, b.explained(err, q.replies, reply)
		case len(m.Data) == 0 && m.Header.Get("Status") == noRespondersStatus:
			return nil, errNobody
		}
		if q.accept == nil {
			return m.Data, nil
		}
		if refused = q.accept(m.Data); refused == nil {
			return m.Data, nil
		}
	}
}

// explained says where a question has no answer because this user may not hear it: the
// server says so out of band.
func (b natsBus) explained(err error, replies, reply string) error {
	last, subject := b.conn.LastError(), `"`+reply+`"`
	if errors.Is(last, nats.ErrPermissionViolation) && strings.Contains(last.Error(), subject) {
		return fmt.Errorf("%w; this user may not subscribe %s* (docs/agents.md)", err, replies)
	}
	return err
}

// noRespondersStatus is the status header of a request that no one serves.
const noRespondersStatus = "503"

// newToken is the end of a reply subject: api.ReplyTokenLen hex digits of randomness.
func newToken() string {
	var raw [api.ReplyTokenLen / 2]byte
	rand.Read(raw[:]) // never fails, as crypto/rand documents
	return hex.EncodeToString(raw[:])
}

func (b natsBus) listen(subject string, f func([]byte)) (func(), error) {
	return b.subscribe(subject, nats.DefaultSubPendingMsgsLimit, func(m *nats.Msg) {
		if m.Reply != "" { // otherwise an answer, which another client has sent here
			f(m.Data)
		}
	})
}

func (b natsBus) answer(subject string, f func([]byte) []byte) (func(), error) {
	places := make(chan struct{}, answersAtOnce)
	return b.subscribe(subject, answersWaiting, func(m *nats.Msg) {
		// a door may publish more than who asks it
		if !strings.HasPrefix(m.Reply, subject+".") {
			return
		}
		places <- struct{}{} // further ones wait in the subscription, and end with it
		go func() {          // ends with f
			defer func() { <-places }()
			_ = m.Respond(f(m.Data))
		}()
	})
}

// subscribe calls f with each message on a subject, of which so many wait for it at most.
func (b natsBus) subscribe(subject string, most int, f nats.MsgHandler) (stop func(), err error) {
	sub, err := b.conn.Subscribe(subject, f)
	if err == nil {
		err = sub.SetPendingLimits(most, nats.DefaultSubPendingBytesLimit)
	}
	if err != nil {
		return nil, b.lost(err)
	}
	// A connection that is closed already has ended the subscription too.
	return func() { _ = sub.Unsubscribe() }, nil
}

func (b natsBus) closed(f func(error)) func() { return jetstream.OnClosed(b.conn, f) }

func (b natsBus) reconnected(f func()) func() {
	events := b.conn.StatusChanged(nats.CONNECTED)
	go func() { // ends with stop, which closes events
		for range events {
			f()
		}
	}()
	return func() { b.conn.RemoveStatusListener(events) }
}
