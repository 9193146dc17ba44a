package door

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// The door as a micro service, so that `nats micro ls` of the account finds it.
const (
	serviceName    = "sagenbaum-door"
	serviceVersion = "1.0.0"
	serviceGroup   = "doors" // queue group of all doors
)

// accountHeader is where a server says from which account a request came in.
const accountHeader = "Nats-Request-Info"

// Serve answers over NATS, on api.DoorSubject of all tenants, until stop is called. The name in
// the subject is that of the caller: who may publish it is the server's business.
func (d *Door) Serve(conn *nats.Conn) (stop func(), err error) {
	var names []string
	for _, v := range Verbs() {
		names = append(names, v.Name)
	}
	service, err := micro.AddService(conn, micro.Config{Name: serviceName, Version: serviceVersion,
		Description: "Sagenbaum for agents in any language", QueueGroup: serviceGroup,
		Metadata: map[string]string{"verbs": strings.Join(names, " ")}})
	if err != nil {
		return nil, fmt.Errorf("cannot serve the door: %w", err)
	}
	subject := api.DoorSubject("*", "*", ">")
	err = service.AddEndpoint("door", micro.HandlerFunc(func(r micro.Request) {
		if api.CheckReplyTo(r.Reply()) == nil {
			go d.respond(conn, r) // ends with its answer
		}
	}), micro.WithEndpointSubject(subject))
	if err == nil {
		err = conn.Flush() // whoever asks from now on is heard
	}
	if err != nil {
		_ = service.Stop()
		return nil, fmt.Errorf("cannot serve the door: %w", err)
	}
	return func() { _ = service.Stop() }, nil
}

// respond answers one request. It sends the answer itself: Respond and Error of a request are for
// the time until its handler has returned, which then reads what they have set.
func (d *Door) respond(conn *nats.Conn, r micro.Request) {
	tokens := strings.SplitN(r.Subject(), ".", 4)
	who := Caller{Tenant: tokens[1], Name: tokens[2]}
	var answer any
	err := foreign(r.Headers().Get(accountHeader), who.Tenant)
	if err == nil {
		answer, err = d.Do(context.Background(), who, tokens[3], r.Data())
	}
	m := nats.NewMsg(r.Reply())
	if err == nil {
		m.Data, err = json.Marshal(answer)
	} else {
		e := explain(err)
		m.Data, err = failed(e), nil
		m.Header.Set(micro.ErrorHeader, header(e.Problem))
		m.Header.Set(micro.ErrorCodeHeader, strconv.Itoa(e.Status))
	}
	if err == nil {
		err = conn.PublishMsg(m)
	}
	if err != nil {
		d.log.Warn("an answer of the door was not sent", "subject", r.Subject(), "error", err)
	}
}

// header is a text as a header takes it.
func header(text string) string {
	return clip(strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, text))
}

// failed is an Error as answers have it.
func failed(e *Error) []byte {
	body, err := json.Marshal(map[string]*Error{"error": e})
	if err != nil {
		panic("door: cannot encode an error: " + err.Error())
	}
	return body
}

// foreign refuses a request that comes from the account of another tenant.
func foreign(info, tenant string) error {
	if info == "" {
		return nil
	}
	var from struct {
		Account string `json:"acc"`
	}
	err := json.Unmarshal([]byte(info), &from)
	if err == nil && access.Foreign(from.Account, tenant) {
		err = errors.New("the account is another tenant's")
	}
	if err != nil {
		return forbidden("tenant", err.Error(), "a connection of the account of tenant "+tenant)
	}
	return nil
}
