package actuators

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// A server tells a sender that no one subscribes, and no more. Whoever subscribes need not be a
// worker: it may be a terminal that listens, or a stream that stores. Workers are members of a
// queue group. So the server is asked who would get a message, with one that it traces and does
// not deliver: this changes nothing and no one hears it.

// Headers of a message that is traced and not delivered, and kinds of what a trace tells.
const (
	traceDest, traceOnly = "Nats-Trace-Dest", "Nats-Trace-Only"
	traceHop             = "Nats-Trace-Hop" // the way to a server behind another one, as 1.2
	egress, intoStream   = "eg", "js"
	toAccount            = "se" // another one imports it: who has it there is next, if told
)

// PlainKept is for how long an answer shows that one outside any queue group is a worker.
const PlainKept = time.Minute

// Bounds of what is known of the workers.
const (
	inquiryFresh  = time.Second     // for how long the server is not asked again about a subject
	inquiriesMax  = 10_000          // subjects; all are forgotten when there are more
	inquiryWithin = 2 * time.Second // for how long what servers tell is waited for
)

// Service says who has what is sent on a subject.
type Service uint8

// Services.
const (
	ServiceUnknown Service = iota // the server has not said
	ServiceNone                   // no one subscribes
	ServiceHeard                  // someone subscribes, and no member of a queue group
	ServiceWorker                 // a member of a queue group subscribes
)

// inquiry is one question to the servers: who would get a message? NATS.mu guards it.
type inquiry struct {
	subject string
	at      time.Time
	// passed is to how many others each server has passed it that has told, by the way to it.
	passed map[string]int
	heard  bool // someone has it
	hidden bool // an account has it and does not tell who (no allow_trace)
	worker bool // a member of a queue group is among them
	// answered is when someone has answered last, who may be a worker outside any group.
	answered time.Time
}

// trace is as much of what a server tells as is read of it.
type trace struct {
	Request struct {
		Header map[string][]string `json:"header"` // none of traceHop: where it was sent
	} `json:"request"`
	Hops   int `json:"hops"`
	Events []struct {
		Type  string `json:"type"`
		Kind  int    `json:"kind"` // 0: a client
		Queue string `json:"queue"`
	} `json:"events"`
}

// told takes what one server tells.
func (l *inquiry) told(data []byte) {
	var t trace
	if json.Unmarshal(data, &t) != nil {
		return
	}
	if l.passed == nil {
		l.passed = map[string]int{}
	}
	l.passed[strings.Join(t.Request.Header[traceHop], "")] = t.Hops
	for i, e := range t.Events {
		switch {
		case e.Type == toAccount:
			l.hidden = l.hidden || i+1 == len(t.Events) || t.Events[i+1].Type != egress
		case e.Type == intoStream:
			l.heard = true
		case e.Type == egress && e.Kind == 0:
			l.heard, l.worker = true, l.worker || e.Queue != ""
		}
	}
}

// whole reports whether all servers have told, in whatever order: the one it was sent to, and
// each that one of them has passed it to.
func (l *inquiry) whole() bool {
	for way, hops := range l.passed {
		if way != "" {
			way += "."
		}
		for i := range hops {
			if _, told := l.passed[way+strconv.Itoa(i+1)]; !told {
				return false
			}
		}
	}
	_, told := l.passed[""]
	return told
}

// settled reports whether nothing that servers have yet to tell changes what is known.
func (l *inquiry) settled() bool { return l.worker || l.whole() }

func (l *inquiry) service() Service {
	switch {
	case l.worker:
		return ServiceWorker
	case !l.whole(), l.hidden:
		return ServiceUnknown
	case l.heard:
		return ServiceHeard
	default:
		return ServiceNone
	}
}

// ask is the question, which is answered on dest, where whoever asks may publish.
func (l *inquiry) ask(conn *nats.Conn, dest string) error {
	m := nats.NewMsg(l.subject)
	m.Header.Set(traceDest, dest)
	m.Header.Set(traceOnly, "true")
	return conn.PublishMsg(m)
}

// inquiryOf is what is known of the workers of a subject, or is being asked; n.mu is held.
func (n *NATS) inquiryOf(subject string) *inquiry {
	if l := n.inquiries[subject]; l != nil && time.Since(l.at) < inquiryFresh {
		return l
	}
	if len(n.inquiries) >= n.inquiriesMost {
		clear(n.inquiries)
		clear(n.asked)
		clear(n.plain)
	}
	l, id := &inquiry{subject: subject, at: time.Now()}, newToken()
	for old, of := range n.asked {
		if of.subject == subject && time.Since(of.at) > PlainKept {
			delete(n.asked, old)
		}
	}
	n.inquiries[subject], n.asked[id] = l, l
	if l.ask(n.conn, api.ReplySubject(n.tenant, hex.EncodeToString(id[:]))) != nil {
		delete(n.asked, id) // what follows is not sent either
	}
	return l
}

// traced takes what a server tells of the workers; false: it was not asked that.
func (n *NATS) traced(id token, data []byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.asked[id]
	if l == nil {
		return false
	}
	if l.told(data); l.whole() {
		delete(n.asked, id)
	}
	n.know(l)
	return true
}

// answered remembers that one outside any queue group is a worker: it has answered.
func (n *NATS) answered(s *sending) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.inquiry != nil {
		s.inquiry.answered = time.Now()
		n.know(s.inquiry)
	}
}

// know keeps what an inquiry says of one outside any queue group; n.mu is held. An answer may come
// before the servers tell that no one else can have given it.
func (n *NATS) know(l *inquiry) {
	if l.service() == ServiceHeard && !l.answered.IsZero() {
		n.plain[l.subject] = l.answered
	}
}

// silent ends a sending that has no answer in time. What it means depends on who has it: what
// servers have not told yet is waited for.
func (n *NATS) silent(id token, s *sending) {
	n.mu.Lock()
	l, fate := s.inquiry, Silent
	var more time.Duration
	switch {
	case l == nil: // a page
	case !l.settled():
		more = inquiryWithin - time.Since(l.at)
	case l.service() == ServiceHeard && time.Since(n.plain[l.subject]) >= PlainKept:
		fate = Overheard
	}
	if more > 0 && n.pending[id] == s && !n.closed {
		s.timer = time.AfterFunc(more, func() { n.silent(id, s) })
		n.mu.Unlock()
		return
	}
	n.mu.Unlock()
	n.finish(id, Result{Fate: fate})
}

// Services asks the servers which clients get what is sent on subjects, in their order. What they
// do not tell in time is unknown.
func Services(ctx context.Context, conn *nats.Conn, subjects []string) []Service {
	services := make([]Service, len(subjects))
	ctx, cancel := context.WithTimeout(ctx, inquiryWithin)
	defer cancel()
	inbox := conn.NewRespInbox()
	sub, err := conn.SubscribeSync(inbox + ".*")
	if err != nil {
		return services
	}
	defer func() { _ = sub.Unsubscribe() }() // it fails where the connection has ended it
	inquiries := map[string]*inquiry{}
	for i, subject := range subjects {
		dest := inbox + "." + strconv.Itoa(i)
		l := &inquiry{subject: subject}
		if l.ask(conn, dest) == nil {
			inquiries[dest] = l
		}
	}
	for open := len(inquiries); open > 0; {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			break
		}
		if l := inquiries[m.Subject]; l != nil && !l.settled() {
			if l.told(m.Data); l.settled() {
				open--
			}
		}
	}
	for i := range subjects {
		if l := inquiries[inbox+"."+strconv.Itoa(i)]; l != nil {
			services[i] = l.service()
		}
	}
	return services
}
