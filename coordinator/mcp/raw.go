package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/proto/rawjson"
)

// What clients and servers say to each other passes as it is written. The SDK reads messages into
// Go values: a number 10.10 becomes 10.1, of two members of one name one is left, and a field that
// it does not know is lost. So the text of a message travels beside what was read of it, as a text
// in its metadata, and what goes out is that text again, with what the gateway changes in it.

// rawKey is where the text of a message travels in its metadata.
const rawKey = "sagenbaum/raw"

// member is a member of a JSON object, as it is written.
type member struct {
	name  string
	key   []byte
	value json.RawMessage
}

// members are those of an object, in its order, each that is there twice as well.
func members(object json.RawMessage) (list []member, err error) {
	rest := rawjson.TrimSpace(object)
	if !json.Valid(rest) || rest[0] != '{' {
		return nil, errors.New("no JSON object")
	}
	for rest = rawjson.TrimSpace(rest[1:]); rest[0] != '}'; {
		var m member
		m.key, m.value, rest = rawjson.Member(rest)
		if m.name, err = rawjson.Text(m.key); err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

// joined is an object with some members.
func joined(list []member) json.RawMessage {
	out := []byte{'{'}
	for i, m := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, m.key...), ':'), m.value...)
	}
	return append(out, '}')
}

// memberOf is the member of an object that readers take; nil: there is none.
func memberOf(object json.RawMessage, name string) (value json.RawMessage) {
	list, err := members(object)
	if err != nil {
		return nil
	}
	for _, m := range list {
		if m.name == name {
			value = m.value
		}
	}
	return value
}

// withValue gives an object, or nothing, a member in the place of the last one of that name. All
// others that some reader may take for it go: servers differ in which of two members they read, and
// in whether they mind capitals.
func withValue(object json.RawMessage, name string,
	value json.RawMessage) (json.RawMessage, error) {
	var list []member
	if len(object) > 0 && string(object) != "null" {
		var err error
		if list, err = members(object); err != nil {
			return nil, err
		}
	}
	at := -1
	for i, m := range list {
		if m.name == name {
			at = i
		}
	}
	var kept []member
	for i, m := range list {
		switch {
		case i == at:
			kept = append(kept, member{name, m.key, value})
		case !strings.EqualFold(m.name, name):
			kept = append(kept, m)
		}
	}
	if at < 0 {
		key, err := encode(name)
		if err != nil {
			return nil, err
		}
		kept = append(kept, member{name, key, value})
	}
	return joined(kept), nil
}

// withoutMembers leaves the members of an object out whose names are meant.
func withoutMembers(object json.RawMessage, meant func(name string) bool) (json.RawMessage, error) {
	list, err := members(object)
	if err != nil {
		return nil, err
	}
	var kept []member
	for _, m := range list {
		if !meant(m.name) {
			kept = append(kept, m)
		}
	}
	return joined(kept), nil
}

// withRaw gives the parameters of a request, or a result, their own text in their metadata.
func withRaw(object json.RawMessage) json.RawMessage {
	text, err := encode(string(object))
	if err != nil {
		return object
	}
	meta, err := withValue(memberOf(object, "_meta"), rawKey, text)
	if err != nil {
		return object
	}
	again, err := withValue(object, "_meta", meta)
	if err != nil {
		return object
	}
	return again
}

// rawOf is the text of a message by its metadata; nil: it has none.
func rawOf(meta map[string]any) json.RawMessage {
	text, _ := meta[rawKey].(string)
	return json.RawMessage(text)
}

// rawMethods are those of requests that are passed on as their text.
var rawMethods = []string{callMethod, "resources/read", "prompts/get", "completion/complete"}

// saidMethods are those of what servers say by themselves, or ask, and is passed on as its text.
var saidMethods = []string{progressMethod, logMethod, updatedMethod, completeMethod,
	askMethod, sampleMethod}

const (
	askMethod      = "elicitation/create"
	sampleMethod   = "sampling/createMessage"
	logMethod      = "notifications/message"
	updatedMethod  = "notifications/resources/updated"
	completeMethod = "notifications/elicitation/complete"
)

// giveText gives a request of one of some methods, or an answer, its text in its metadata.
func giveText(message jsonrpc.Message, methods []string) {
	switch m := message.(type) {
	case *jsonrpc.Request:
		if slices.Contains(methods, m.Method) && len(m.Params) > 0 {
			m.Params = withParams(m.Method, m.Params)
		}
	case *jsonrpc.Response:
		if len(m.Result) > 0 {
			m.Result = withRaw(m.Result)
		}
	}
}

// withText is giveText for a message that is not read yet.
func withText(message json.RawMessage, methods []string) json.RawMessage {
	about, method := "result", methodOf(message)
	switch {
	case slices.Contains(methods, method):
		about = "params"
	case method != "":
		return message
	}
	object := memberOf(message, about)
	if len(object) == 0 {
		return message
	}
	with, err := withValue(message, about, withParams(method, object))
	if err != nil {
		return message
	}
	return with
}

// methodOf is the method of a message that is not read yet; empty: it has none.
func methodOf(message json.RawMessage) (method string) {
	if json.Unmarshal(memberOf(message, "method"), &method) != nil {
		return ""
	}
	return method
}

// withParams is withRaw for a request of some method, or a result. A question is read without the
// schema of its answer: that is between the server and its client, and the SDK refuses, or changes,
// what it does not know of it.
func withParams(method string, object json.RawMessage) json.RawMessage {
	with := withRaw(object)
	if method != askMethod {
		return with
	}
	read, err := withoutMembers(with,
		func(name string) bool { return strings.EqualFold(name, "requestedSchema") })
	if err != nil {
		return with
	}
	return read
}

// answeredAs is the answer of a client as its server gets it.
func answeredAs(m *jsonrpc.Response) *jsonrpc.Response {
	var said string
	if json.Unmarshal(memberOf(memberOf(m.Result, "_meta"), rawKey), &said) != nil {
		return m
	}
	sent := *m
	sent.Result = json.RawMessage(said)
	return &sent
}

// methodKey is where what is said to a client has its method, if that is not the one by which the
// SDK sends it.
const methodKey = "sagenbaum/method"

// asSaid are parameters that go out as their text.
type asSaid struct {
	sdk.Params
	text json.RawMessage
}

// MarshalJSON is the text.
func (p asSaid) MarshalJSON() ([]byte, error) { return p.text, nil }

// saying sends what has its text in its metadata as that text.
func saying(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		session, ok := req.GetSession().(*sdk.ServerSession)
		params := req.GetParams()
		if !ok || params == nil {
			return next(ctx, method, req)
		}
		meta := params.GetMeta()
		text := rawOf(meta)
		if len(text) == 0 {
			return next(ctx, method, req)
		}
		if name, ok := meta[methodKey].(string); ok {
			method = name
		}
		said := &sdk.ServerRequest[asSaid]{Session: session, Params: asSaid{params, text}}
		return next(ctx, method, said)
	}
}

// say says something of a server to a client, whatever the SDK thinks of its wanting it.
func say(ctx context.Context, session *sdk.ServerSession, method string,
	text json.RawMessage) error {
	meta := asMeta(text)
	meta[methodKey] = method
	return session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{Meta: meta})
}

// passedOn is the text of the parameters of a request as a server gets it, from their text or else
// what was read of them: without what the client says to the gateway, and to its own server, and
// with some members changed.
func passedOn(text json.RawMessage, read any, changed map[string]any) (json.RawMessage, error) {
	var err error
	if len(text) == 0 {
		if text, err = encode(read); err != nil {
			return nil, err
		}
	}
	if meta := memberOf(text, "_meta"); len(meta) > 0 && string(meta) != "null" {
		if meta, err = withoutMembers(meta, gateways); err != nil {
			return nil, err
		}
		if string(meta) != "{}" {
			text, err = withValue(text, "_meta", meta)
		} else {
			text, err = withoutMembers(text,
				func(name string) bool { return strings.EqualFold(name, "_meta") })
		}
		if err != nil {
			return nil, err
		}
	}
	for _, name := range sortedKeys(changed) {
		value, err := encode(changed[name])
		if err == nil {
			text, err = withValue(text, name, value)
		}
		if err != nil {
			return nil, err
		}
	}
	return text, nil
}

// gateways reports whether metadata of that name is not for the server.
func gateways(name string) bool {
	switch name {
	case planMeta, keyMeta, rawKey, callKey:
		return true
	}
	return strings.HasPrefix(name, ownMeta)
}

// asMeta is metadata with which the SDK sends a text.
func asMeta(text json.RawMessage) sdk.Meta { return sdk.Meta{rawKey: string(text)} }

// asWritten is a result that goes out as its text.
type asWritten struct {
	sdk.Result
	text json.RawMessage
}

// MarshalJSON is the text.
func (r asWritten) MarshalJSON() ([]byte, error) { return r.text, nil }

// written is a result as its server wrote it, with the metadata that the gateway adds to it.
func written(result sdk.Result) (sdk.Result, error) {
	meta := result.GetMeta()
	text := rawOf(meta)
	if len(text) == 0 {
		return result, nil
	}
	for _, name := range []string{planMeta, actionMeta} {
		said, ok := meta[name]
		if !ok {
			continue
		}
		value, err := encode(said)
		if err != nil {
			return nil, err
		}
		own, err := withValue(memberOf(text, "_meta"), name, value)
		if err == nil {
			text, err = withValue(text, "_meta", own)
		}
		if err != nil {
			return nil, err
		}
	}
	return asWritten{result, text}, nil
}
