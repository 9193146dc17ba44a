package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp/large"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// A server at a URL is called over streamable HTTP. It differs from a child of this process in what
// is known when a call goes wrong: no one can end it, and a connection that breaks says nothing of
// what the server does. So whatever is not an answer is doubt, but for what cannot have reached it:
// no connection, and a status that says that the request was not taken up.

// remote reports whether the server is at a URL.
func (s *Server) remote() bool { return s.config.URL != "" }

// notTaken are the statuses of HTTP that say that a request was not taken up.
var notTaken = []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden,
	http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable,
	http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusTooManyRequests}

// ownHeaders are what the protocol says in headers.
var ownHeaders = []string{"Accept", "Connection", "Content-Encoding", "Content-Length",
	"Content-Type", "Host", "Last-Event-Id", "Te", "Transfer-Encoding", "Upgrade"}

// checkURL refuses what a server cannot be reached at. Errors: *ledger.Refused; none has the value
// of a header, or what a URL has beside its address.
func (c ServerConfig) checkURL() error {
	field := "servers." + c.Name
	if c.Command != "" || len(c.Args) > 0 || len(c.Env) > 0 {
		return ledger.Refuse(field+".url", "given beside a command", "one of both")
	}
	at, err := url.Parse(c.URL)
	switch {
	case err != nil || at.Host == "" || at.Opaque != "":
		return ledger.Refuse(field+".url", "not a URL with a host", "https://HOST/PATH")
	case at.User != nil:
		return ledger.Refuse(field+".url", "it has a user", "a header with the name of a secret")
	case at.Scheme == "http" && !loopback(at.Hostname()):
		return ledger.Refuse(field+".url", shownURL(c.URL), "https; http is for this machine alone")
	case at.Scheme != "https" && at.Scheme != "http":
		return ledger.Refuse(field+".url", shownURL(c.URL), "https, or http on this machine")
	}
	for _, name := range sortedKeys(c.Headers) {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !headerName(name):
			return ledger.Refuse(field+".headers", fmt.Sprintf("%q", name), "the name of a header")
		case slices.Contains(ownHeaders, canonical) || strings.HasPrefix(canonical, "Mcp-"):
			return ledger.Refuse(field+".headers."+name, "given",
				"a header that the protocol does not use")
		case strings.ContainsFunc(c.Headers[name], unicode.IsControl):
			return ledger.Refuse(field+".headers."+name, "it has more than one line",
				"a value of one line")
		}
	}
	return nil
}

func headerName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r >= 0x80 || r != '-' && r != '_' && !ledger.ValidToken(string(r))
	})
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// shownURL is a URL without what may be secret in it.
func shownURL(text string) string {
	at, err := url.Parse(text)
	if err != nil {
		return "a URL"
	}
	at.User, at.RawQuery, at.Fragment = nil, "", ""
	return at.String()
}

// faraway is the transport to a server at a URL. The SDK tells its own connection which version is
// spoken, so that one must stay; what passes as it is written (see exact) does so below it, in the
// requests and answers of HTTP.
type faraway struct {
	exact
	url     string // that is shown
	query   string
	headers map[string]string
	base    http.RoundTripper
}

func newFaraway(c ServerConfig, way exact) *faraway {
	at, _ := url.Parse(c.URL) // it was checked
	base := http.DefaultTransport.(*http.Transport).Clone()
	if at.Scheme == "http" { // whatever localhost resolves to
		base.Proxy = nil
		dialer := &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
			if host, _, err := net.SplitHostPort(address); err != nil || !loopback(host) {
				return errors.New("http is for this machine alone")
			}
			return nil
		}}
		base.DialContext = dialer.DialContext
	}
	return &faraway{exact: way, url: shownURL(c.URL), query: at.RawQuery, headers: c.Headers,
		base: base}
}

// Connect connects to the server. What redirects is not followed: it would get the headers.
func (t *faraway) Connect(ctx context.Context) (sdk.Connection, error) {
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	way := &sdk.StreamableClientTransport{Endpoint: t.url, MaxEventSize: 2 * bodyMax,
		HTTPClient: &http.Client{Transport: t, CheckRedirect: stay}}
	conn, err := way.Connect(ctx)
	if err == nil {
		t.calls.connected(conn)
	}
	return conn, err
}

// unanswered is a call that has no answer.
type unanswered struct {
	cause   error
	reached bool // maybe
	expired bool // its session was not taken
}

func (u *unanswered) Error() string { return u.cause.Error() }

// as is what the caller of a tool is told.
func (u *unanswered) as() error {
	if u.reached {
		return u.cause
	}
	return fmt.Errorf("%w: %w", errNotReached, u.cause)
}

// RoundTrip sends a request of the SDK, with the text of its message and the headers that are
// configured, and gives the answers their texts.
func (t *faraway) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.RawQuery = t.query
	for name, value := range t.headers {
		r.Header.Set(name, value)
	}
	call, err := t.written(r)
	if err != nil {
		return nil, err
	}
	if r.Method == http.MethodGet {
		return t.listen(r)
	}
	var reached atomic.Bool
	resp, err := t.base.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(),
		&httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { reached.Store(true) }})))
	if err != nil {
		err = fmt.Errorf("no answer from %s: %w", t.url, err)
		if call {
			err = &unanswered{cause: err, reached: reached.Load()}
		}
		return nil, err
	}
	switch {
	case call && resp.StatusCode/100 != 2:
		err = t.refusal(r, resp)
	case resp.StatusCode == http.StatusUnauthorized:
		said, _ := t.says(resp)
		err = errors.New(said)
	}
	if err != nil {
		resp.Body.Close()
		return nil, err
	}
	t.read(resp)
	return resp, nil
}

// written puts the text of its message in a request, and reports whether it calls a tool.
func (t *faraway) written(r *http.Request) (call bool, err error) {
	if r.Method != http.MethodPost || r.Body == nil {
		return false, nil
	}
	body, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err != nil {
		return false, err
	}
	message, err := jsonrpc.DecodeMessage(body)
	if err != nil {
		return false, err
	}
	sent := message
	switch m := message.(type) {
	case *jsonrpc.Request:
		call = m.Method == callMethod
		sent, err = t.outgoing(m)
	case *jsonrpc.Response:
		sent = answeredAs(m)
	}
	if err == nil && sent != message {
		body, err = jsonrpc.EncodeMessage(sent)
	}
	if err != nil {
		return call, err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return call, nil
}

// refusal is why a call was not answered, where it was not: a server may answer with an error of
// JSON-RPC under any status.
func (t *faraway) refusal(r *http.Request, resp *http.Response) error {
	said, answers := t.says(resp)
	if answers {
		return nil
	}
	taken := !slices.Contains(notTaken, resp.StatusCode)
	return &unanswered{cause: errors.New(said), reached: taken,
		expired: r.Header.Get(sessionHeader) != "" && (resp.StatusCode == http.StatusNotFound ||
			resp.StatusCode == http.StatusBadRequest)}
}

// says is what an answer says by its status, and by an error of JSON-RPC; answers: that is one of
// the request. It says what to do about a 401.
func (t *faraway) says(resp *http.Response) (said string, answers bool) {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, bodyMax)) // what is there of it
	resp.Body = readCloser{bytes.NewReader(body), resp.Body}
	said = t.url + " says " + resp.Status
	var answer struct {
		ID    json.RawMessage
		Error *struct{ Message string }
	}
	if json.Unmarshal(body, &answer) == nil && answer.Error != nil {
		answers = len(answer.ID) > 0 && string(answer.ID) != "null"
		said += ": " + value(answer.Error.Message)
	}
	switch {
	case resp.StatusCode != http.StatusUnauthorized:
	case len(t.headers) > 0:
		said += "; the headers that it is given are not enough, and the gateway does no OAuth"
	default:
		said += "; give it a header with a token, as --header Authorization=VARIABLE: the gateway does " +
			"no OAuth"
	}
	return said, answers
}

// sessionHeader is where a request has its session.
const sessionHeader = "Mcp-Session-Id"

type readCloser struct {
	io.Reader
	io.Closer
}

// listen opens the stream on which a server says something by itself. One that does not answer
// has none: the SDK would wait for it, and with it whoever has called a tool.
func (t *faraway) listen(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	late := time.AfterFunc(streamWait, cancel)
	resp, err := t.base.RoundTrip(r.WithContext(ctx))
	if !late.Stop() && r.Context().Err() == nil && r.Header.Get("Last-Event-ID") == "" {
		if err == nil {
			resp.Body.Close()
		}
		return &http.Response{StatusCode: http.StatusMethodNotAllowed, Body: http.NoBody,
			Request: r}, nil
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("no answer from %s: %w", t.url, err)
	}
	resp.Body = readCloser{resp.Body, closing{resp.Body, cancel}}
	t.read(resp)
	return resp, nil
}

// closing cancels what it closes.
type closing struct {
	io.Closer
	cancel context.CancelFunc
}

// Close closes it.
func (c closing) Close() error {
	defer c.cancel()
	return c.Closer.Close()
}

// read gives the messages of an answer their texts as it is read.
func (t *faraway) read(resp *http.Response) {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // an unknown one is as it is
	switch kind {
	case "application/json":
		resp.Body = &body{Closer: resp.Body, in: resp.Body, change: t.incoming}
	case "text/event-stream":
		resp.Body = &events{Closer: resp.Body, in: bufio.NewReader(resp.Body), change: t.incoming}
	default:
		return
	}
	resp.ContentLength = -1
	resp.Header.Del("Content-Length")
}

// body is an answer that is one message.
type body struct {
	io.Closer
	in     io.Reader
	out    *bytes.Reader
	change func(json.RawMessage) json.RawMessage
}

// Read reads it.
func (b *body) Read(p []byte) (int, error) {
	if b.out == nil {
		message, err := io.ReadAll(io.LimitReader(b.in, bodyMax+1))
		if err == nil && len(message) > bodyMax {
			whole := large.NewScanner(bodyMax)
			if _, err = io.Copy(whole, io.MultiReader(bytes.NewReader(message), b.in)); err == nil {
				message, err = whole.Replaced()
			}
		}
		if err != nil {
			return 0, err
		}
		b.out = bytes.NewReader(b.change(message))
	}
	return b.out.Read(p)
}

// events are a body that is a stream of messages.
type events struct {
	io.Closer
	in     *bufio.Reader
	out    bytes.Buffer
	err    error
	change func(json.RawMessage) json.RawMessage
}

// Read reads it, each event once all of it is there.
func (e *events) Read(p []byte) (int, error) {
	for e.out.Len() == 0 {
		if e.err != nil {
			return 0, e.err
		}
		e.err = e.next()
	}
	return e.out.Read(p)
}

// next takes the next event; one that the stream ends in is left out.
func (e *events) next() error {
	var event bytes.Buffer
	var data message
	for {
		empty, isData := true, false
		for field, more := []byte{}, true; more; {
			part, err := e.in.ReadSlice('\n')
			if more = errors.Is(err, bufio.ErrBufferFull); err != nil && !more {
				return err
			}
			part = bytes.TrimRight(part, "\r\n")
			if said, ok := bytes.CutPrefix(part, []byte("data:")); ok && empty {
				isData, part = true, bytes.TrimPrefix(said, []byte(" "))
				if err := data.begin(); err != nil {
					return err
				}
			}
			empty = empty && len(part) == 0 && !isData
			switch {
			case isData:
				if err := data.add(part); err != nil {
					return err
				}
			case event.Len()+len(field)+len(part) > bodyMax:
				return errTooLarge
			default:
				field = append(field, part...)
			}
			if !more && len(field) > 0 {
				event.Write(append(field, '\n'))
			}
		}
		if empty {
			return e.end(&event, &data)
		}
	}
}

// end ends an event.
func (e *events) end(event *bytes.Buffer, data *message) error {
	text, err := data.text()
	if err == nil && len(text) > 0 {
		for line := range bytes.Lines(append(e.change(text), '\n')) {
			event.WriteString("data: ")
			event.Write(line)
		}
	}
	if err != nil || event.Len() == 0 && data.whole != nil { // no one waits for it
		return err
	}
	event.WriteByte('\n')
	_, err = event.WriteTo(&e.out)
	return err
}

// errTooLarge says that an event has too much beside its message.
var errTooLarge = fmt.Errorf("an event has more than %d bytes", bodyMax)

// message is the data of an event; what is too large of it is not held.
type message struct {
	lines int
	held  []byte
	whole *large.Scanner // that has read all of it; nil: it is held
}

// begin begins a line.
func (m *message) begin() error {
	if m.lines++; m.lines > 1 {
		return m.add([]byte("\n"))
	}
	return nil
}

func (m *message) add(part []byte) (err error) {
	if m.whole == nil && len(m.held)+len(part) > bodyMax {
		m.whole = large.NewScanner(bodyMax)
		part, m.held = append(m.held, part...), nil
	}
	if m.whole != nil {
		_, err = m.whole.Write(part)
	} else {
		m.held = append(m.held, part...)
	}
	return err
}

func (m *message) text() ([]byte, error) {
	if m.whole != nil {
		return m.whole.Replaced()
	}
	return m.held, nil
}
