package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Reasons why a message on a subject that the host serves is not taken as a request.
const (
	refusedReplyTo = "reply_to" // no reply subject, or one that is no inbox
	refusedBody    = "body"     // not JSON, or a field that the verb does not have
)

// serveSubject answers what comes on a subject: of returns the name of what is asked, and
// what answers it. What is slow gets a goroutine, which ends with its answer.
func (h *Host) serveSubject(
	a *actor, subject string, of func(subject string) (name string, v verb),
) (*nats.Subscription, error) {
	sub, err := h.cfg.Conn.Subscribe(subject, func(m *nats.Msg) {
		if !a.takes(m) {
			return
		}
		name, v := of(m.Subject)
		if !v.always && a.silent() || !a.asking.enter() {
			return
		}
		if v.slow {
			go func() { defer a.asking.leave(); a.respond(m, name, v) }()
			return
		}
		defer a.asking.leave()
		a.respond(m, name, v)
	})
	if err != nil {
		return nil, fmt.Errorf("cannot subscribe to %s: %w", subject, err)
	}
	return sub, nil
}

// takes reports whether a message is a request: it can be answered, where an answer has
// no effect of its own. What another program answers, and had sent here, is none.
func (a *actor) takes(m *nats.Msg) bool {
	err := api.CheckReplyTo(m.Reply)
	if err != nil {
		a.meter.refusedRequest(refusedReplyTo)
		a.log.Debug("a message that is no request", "subject", m.Subject, "error", err)
	}
	return err == nil
}

// respond answers a request.
func (a *actor) respond(m *nats.Msg, name string, v verb) {
	body, err := json.Marshal(a.answered(name, v, m.Data))
	if err != nil {
		panic("host: cannot encode an answer: " + err.Error())
	}
	err = m.Respond(body)
	if errors.Is(err, nats.ErrMaxPayload) {
		const text = "the answer takes %d bytes, more than the server passes on; ask for less"
		answer := view.ErrorAnswer{Error: fmt.Sprintf(text, len(body))}
		if body, err = json.Marshal(answer); err == nil {
			err = m.Respond(body)
		}
	}
	if err != nil {
		a.log.Warn("answer not sent", "verb", name, "error", err)
	}
}

// refuseRequest is the answer to a request whose body is not what its verb takes.
func (a *actor) refuseRequest(err error) view.ErrorAnswer {
	a.meter.refusedRequest(refusedBody)
	answer := view.ErrorAnswer{Error: err.Error()}
	var refused *ledger.Refused
	if errors.As(err, &refused) {
		answer.Field, answer.Want = refused.Field, refused.Want
	}
	return answer
}

// decodeStrict reads the body of a request: nothing, or one JSON object that has no other
// fields than into. The error is a *ledger.Refused that names the field.
func decodeStrict(body []byte, into any) error {
	if len(body) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return bodyRefusal(err, into)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return ledger.Refuse("request", "something follows the JSON object", "one JSON object")
	}
	return nil
}

// unknownField is how encoding/json begins to say that a field is not known.
const unknownField = `json: unknown field `

func bodyRefusal(err error, into any) error {
	var wrong *json.UnmarshalTypeError
	name, unknown := strings.CutPrefix(err.Error(), unknownField)
	switch {
	case unknown:
		field := "request." + strings.Trim(name, `"`)
		return ledger.Refuse(field, "no field of this request", fieldsOf(into))
	case errors.As(err, &wrong) && wrong.Field != "":
		want := "a value for " + wrong.Type.String()
		return ledger.Refuse("request."+wrong.Field, "a JSON "+wrong.Value, want)
	case errors.As(err, &wrong):
		return ledger.Refuse("request", "a JSON "+wrong.Value, "a JSON object")
	}
	return ledger.Refuse("request", "not JSON: "+err.Error(), "one JSON object")
}

// fieldsOf lists the fields that a request may have.
func fieldsOf(into any) string {
	of := reflect.TypeOf(into).Elem()
	var names []string
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	if len(names) == 0 {
		return "{}"
	}
	return strings.Join(names, ", ")
}
