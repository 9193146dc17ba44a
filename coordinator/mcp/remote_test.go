package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// asHTTPServer makes the test binary the server of the notes in the file that it names, at the
// address that is its argument.
const asHTTPServer = "SAGENBAUM_TEST_AS_MCP_SERVER_OVER_HTTP"

// secret is the value of the header without which that server refuses all requests.
const secret = "a-token-that-no-one-may-see"

func serveNotesAt(file, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("serving")
	server := newNotes(file)
	return http.Serve(listener, withSecret(sdk.NewStreamableHTTPHandler(
		func(*http.Request) *sdk.Server { return server }, nil)))
}

func withSecret(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+secret || r.URL.Query().Get("of") != "notes" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// far is a server of notes at a URL.
type far struct {
	t       testing.TB
	address string
	file    string
	process *exec.Cmd
}

func newFar(t testing.TB) *far {
	t.Helper()
	ports, err := testenv.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	f := &far{t: t, address: fmt.Sprintf("127.0.0.1:%d", ports[0]), file: filepath.Join(t.TempDir(), "notes")}
	f.start()
	t.Cleanup(f.kill)
	return f
}

// start returns once it serves.
func (f *far) start() {
	f.t.Helper()
	self, err := os.Executable()
	if err != nil {
		f.t.Fatal(err)
	}
	f.process = exec.Command(self, f.address)
	f.process.Env = append(os.Environ(), asHTTPServer+"="+f.file)
	f.process.Stderr = f.t.Output()
	out, err := f.process.StdoutPipe()
	if err == nil {
		err = f.process.Start()
	}
	if err != nil {
		f.t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		f.t.Fatalf("it does not serve: %q, %v", line, err)
	}
}

func (f *far) kill() {
	_ = f.process.Process.Kill() // it may have ended
	_ = f.process.Wait()
}

func (f *far) config() mcp.ServerConfig {
	return mcp.ServerConfig{Name: "notes", URL: "http://" + f.address + "/mcp?of=notes", State: f.t.TempDir(),
		Headers: map[string]string{"Authorization": "Bearer " + secret}, Packs: []mcp.Pack{notes(f.t)}}
}

// What passes through to a child passes to a server at a URL, of either kind: with sessions, and
// without, as in the newest version of the protocol.
func TestAServerAtAURLIsAsOneThatIsStarted(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]*sdk.StreamableHTTPOptions{
		"sessions":             nil,
		"sessions, JSON":       {JSONResponse: true},
		"stateless":            {Stateless: true},
		"stateless, with JSON": {Stateless: true, JSONResponse: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			file := filepath.Join(t.TempDir(), "notes")
			server := newNotes(file)
			at := serves(t, withSecret(sdk.NewStreamableHTTPHandler(
				func(*http.Request) *sdk.Server { return server }, options)))
			config := mcp.ServerConfig{Name: "notes", URL: at.URL + "?of=notes", State: t.TempDir(),
				Headers: map[string]string{"authorization": "Bearer " + secret}, Packs: []mcp.Pack{notes(t)}}
			changed, progress := make(chan bool, 10), make(chan string, 10)
			c := w.gateway(mcp.Config{ServeUndos: true, TrustHints: true}, &sdk.ClientOptions{
				ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { changed <- true },
				ProgressNotificationHandler: func(_ context.Context, req *sdk.ProgressNotificationClientRequest) {
					progress <- req.Params.Message
				}}, config)
			result, err := c.session.CallTool(t.Context(), &sdk.CallToolParams{Name: "add",
				Arguments: json.RawMessage(`{"text":"x","amount":10.10,"big":123456789012345678901234567890}`)})
			if err != nil || !strings.Contains(said(result), `"amount":10.10,"big":123456789012345678901234567890`) {
				t.Errorf("add: %v, %s", err, said(result))
			}
			if r := c.call("slow", map[string]any{"text": "p"}, "progressToken", "mine"); r.IsError {
				t.Error(said(r))
			}
			if !strings.Contains(name, "JSON") { // which has no room for it
				if got := receive(t, progress); got != "p" {
					t.Errorf("progress %s", got)
				}
			}
			c.does("grow", nil)
			if name == "sessions" || name == "sessions, JSON" {
				receive(t, changed)
				if !slices.Contains(tools(c), "shy") {
					t.Errorf("tools: %v", tools(c))
				}
			}
			_, err = c.session.CallTool(t.Context(), &sdk.CallToolParams{Name: "peek", Arguments: note{Text: "wrong"}})
			if wireCode(err) != -32050 {
				t.Errorf("an error of the server: %v", err)
			}
			if got := lines(file); !slices.Equal(got, []string{"x", "p"}) {
				t.Errorf("there is %v", got)
			}
			if r := c.reports("plan_fail", nil); r.State != "compensated" || len(lines(file)) != 0 {
				t.Errorf("%+v, left %v", r, lines(file))
			}
		})
	}
}

// The server is killed in the middle of a call: it is in doubt, and its undo finds out once the
// server is there again. What does not reach it has not happened, and a session that it has
// forgotten is begun once more.
func TestACallWhoseServerAtAURLIsKilledIsInDoubt(t *testing.T) {
	t.Parallel()
	w, f := newWorld(t), newFar(t)
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, f.config())
	c.does("add", map[string]any{"text": "first"})
	f.kill()
	f.start()
	c.does("add", map[string]any{"text": "second"}) // in a session of its own
	called := make(chan *sdk.CallToolResult, 1)
	go func() { called <- c.call("hang", map[string]any{"text": "third"}) }()
	w.until("it is called", func() bool { return len(lines(f.file)) == 3 })
	f.kill()
	if r := <-called; !r.IsError || strings.Contains(said(r), "Nothing was done") {
		t.Errorf("the call that it was killed in: %s", said(r))
	}
	if r := c.call("add", map[string]any{"text": "lost"}); !r.IsError ||
		!strings.Contains(said(r), "Nothing was done") || strings.Contains(said(r), secret) {
		t.Errorf("a call without a server: %s", said(r))
	}
	can := c.reports("what_can_be_undone", nil).Can
	if len(can) != 3 || !strings.Contains(can[0].How, "no one knows") {
		t.Errorf("%+v", can)
	}
	f.start()
	c.does("add", map[string]any{"text": "fourth"})
	if r := c.reports("plan_fail", nil); r.State != "compensated" || len(lines(f.file)) != 0 {
		t.Errorf("%+v, left %v", r, lines(f.file))
	}
}

// A call that takes too long is cancelled at its server, which no one can end; it is undone once it
// had the time to land, whatever the server says.
func TestACallThatTakesTooLongAtAURLHasTheTimeToLand(t *testing.T) {
	t.Parallel()
	w, f := newWorld(t), newFar(t)
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, f.config())
	if r := c.call("hang", map[string]any{"text": "x"}); !r.IsError {
		t.Errorf("it says %s", said(r))
	}
	begun := time.Now()
	c.does("add", map[string]any{"text": "y"}) // comes after it
	if took := time.Since(begun); took < time.Second {
		t.Errorf("the next call came after %s", took)
	}
	if r := c.reports("plan_fail", nil); r.State != "compensated" || len(lines(f.file)) != 0 {
		t.Errorf("%+v, left %v", r, lines(f.file))
	}
	if f.process.ProcessState != nil {
		t.Error("the server has ended")
	}
}

// An idle worker undoes what a gateway that has gone has done at a URL.
func TestAWorkerUndoesAtAURL(t *testing.T) {
	t.Parallel()
	w, f := newWorld(t), newFar(t)
	config := f.config()
	c := w.gateway(mcp.Config{}, nil, config)
	plan := planOf(c.call("add", map[string]any{"text": "x"}))
	c.leave()
	c.gateway.Close()
	w.idle(config)
	w.undoes(plan, "")
	if len(lines(f.file)) != 0 {
		t.Errorf("left %v", lines(f.file))
	}
}

// odd is a server of notes that answers calls of a tool in its own way, once it has been told how;
// it may make the call before.
type odd struct {
	how       atomic.Pointer[func(w http.ResponseWriter, call func())]
	calls     atomic.Int64
	elsewhere atomic.Bool // it was called at another path
}

func (o *odd) handler(file string) http.Handler {
	server := newNotes(file)
	next := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
	return withSecret(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			o.elsewhere.Store(true)
		}
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		how := o.how.Load()
		if !strings.Contains(string(body), `"add"`) || how == nil {
			next.ServeHTTP(w, r)
			return
		}
		o.calls.Add(1)
		(*how)(w, func() { next.ServeHTTP(httptest.NewRecorder(), r) })
	}))
}

// cut ends the connection of a request.
func cut(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}

func status(code int) func(http.ResponseWriter, func()) {
	return func(w http.ResponseWriter, _ func()) { http.Error(w, "<p>"+secret+"</p>", code) }
}

// noAnswers are what a server may do with a call instead of answering it.
var noAnswers = []struct {
	name  string
	doubt bool
	left  int // notes after the call
	says  string
	how   func(w http.ResponseWriter, call func())
}{
	{"cut before", true, 0, "no answer from", func(w http.ResponseWriter, _ func()) { cut(w) }},
	{"cut after", true, 1, "no answer from", func(w http.ResponseWriter, call func()) { call(); cut(w) }},
	{"half an answer", true, 1, "", func(w http.ResponseWriter, call func()) {
		call()
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"jsonrpc\": \"2.0\",")
		w.(http.Flusher).Flush()
		cut(w)
	}},
	{"half a body", true, 1, "", func(w http.ResponseWriter, call func()) {
		call()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "{\"jsonrpc\": \"2.0\",")
	}},
	{"500 after", true, 1, "500", func(w http.ResponseWriter, call func()) { call(); status(500)(w, nil) }},
	{"503", true, 0, "503", status(503)},
	{"redirect", true, 0, "307", func(w http.ResponseWriter, _ func()) {
		w.Header().Set("Location", "/elsewhere?of=notes")
		w.WriteHeader(http.StatusTemporaryRedirect)
	}},
	{"429", false, 0, "429", status(429)},
	{"401", false, 0, "401 Unauthorized; the headers that it is given are not enough", status(401)},
	{"413", false, 0, "413", status(413)},
}

// What is not an answer is doubt, where the call may have been taken up, and has not happened where
// it was not. No call is made twice, and none goes where it is sent on to.
func TestWhatAServerAtAURLDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for _, test := range noAnswers {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w, o := newWorld(t), new(odd)
			file := filepath.Join(t.TempDir(), "notes")
			at := serves(t, o.handler(file))
			config := mcp.ServerConfig{Name: "notes", URL: at.URL + "?of=notes", State: t.TempDir(),
				Headers: map[string]string{"Authorization": "Bearer " + secret}, Packs: []mcp.Pack{notes(t)}}
			c := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
			o.how.Store(&test.how)
			r := c.call("add", map[string]any{"text": "x"})
			if !r.IsError || !strings.Contains(said(r), test.says) || strings.Contains(said(r), secret) ||
				strings.Contains(said(r), "of=notes") {
				t.Errorf("it says %s", said(r))
			}
			if got := strings.Contains(said(r), "Nothing was done"); got == test.doubt {
				t.Errorf("nothing was done: %v, it says %s", got, said(r))
			}
			if got := o.calls.Load(); got != 1 || o.elsewhere.Load() || len(lines(file)) != test.left {
				t.Errorf("it was called %d times, elsewhere: %v, and there is %v", got, o.elsewhere.Load(), lines(file))
			}
			o.how.Store(nil)
			if test.doubt {
				if r := c.call("add", map[string]any{"text": "x"}); !strings.Contains(said(r), "no one knows") {
					t.Errorf("the same call: %s", said(r))
				}
			} else {
				c.does("add", map[string]any{"text": "x"})
			}
			if r := c.reports("plan_fail", nil); r.State != "compensated" || len(lines(file)) != 0 {
				t.Errorf("%+v, left %v", r, lines(file))
			}
		})
	}
}

// A server that says 400 to a session that it has forgotten, as some do, is called in another one.
func TestAForgottenSessionIsBegunAnew(t *testing.T) {
	t.Parallel()
	w, o := newWorld(t), new(odd)
	at := serves(t, o.handler(filepath.Join(t.TempDir(), "notes")))
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, mcp.ServerConfig{Name: "notes", URL: at.URL + "?of=notes",
		State: t.TempDir(), Headers: map[string]string{"Authorization": "Bearer " + secret},
		Packs: []mcp.Pack{notes(t)}})
	how := func(w http.ResponseWriter, _ func()) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "no session"}}`)
	}
	o.how.Store(&how)
	r := c.call("add", map[string]any{"text": "x"})
	if !strings.Contains(said(r), "no session") || !strings.Contains(said(r), "Nothing was done") {
		t.Errorf("it says %s", said(r))
	}
	if got := o.calls.Load(); got != 2 { // in another session
		t.Errorf("it was asked %d times", got)
	}
	// An error about the call itself is an answer, whatever the status.
	how = func(w http.ResponseWriter, call func()) {
		call()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"jsonrpc": "2.0", "id": 7, "error": {"code": -32000, "message": "half way"}}`)
	}
	_, err := c.session.CallTool(t.Context(), &sdk.CallToolParams{Name: "add", Arguments: note{Text: "y"}})
	if err == nil || !strings.Contains(err.Error(), "half way (no one knows") {
		t.Errorf("it says %v", err)
	}
	o.how.Store(nil)
	if r := c.reports("plan_fail", nil); r.State != "compensated" {
		t.Errorf("%+v", r)
	}
}

// A configuration is refused with its field, and no secret in the message.
func TestAURLIsRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		change func(*mcp.ServerConfig)
		field  string
	}{
		{func(c *mcp.ServerConfig) { c.URL = "http://example.com/" + "mcp?key=" + secret }, "servers.x.url"},
		{func(c *mcp.ServerConfig) { c.URL = "https://user:" + secret + "@example.com" }, "servers.x.url"},
		{func(c *mcp.ServerConfig) { c.URL = "file:///" + secret }, "servers.x.url"},
		{func(c *mcp.ServerConfig) { c.URL = "ws://127.0.0.1/mcp" }, "servers.x.url"},
		{func(c *mcp.ServerConfig) { c.URL = "https:/mcp" }, "servers.x.url"},
		{func(c *mcp.ServerConfig) { c.Command = "cat" }, "servers.x.url"},
		{func(c *mcp.ServerConfig) { c.Headers = map[string]string{"X-A": secret + "\r\nX-B: 1"} },
			"servers.x.headers.X-A"},
		{func(c *mcp.ServerConfig) { c.Headers = map[string]string{"A B": secret} }, "servers.x.headers"},
		{func(c *mcp.ServerConfig) { c.Headers = map[string]string{"mcp-session-id": secret} },
			"servers.x.headers.mcp-session-id"},
		{func(c *mcp.ServerConfig) { c.Headers = map[string]string{"HOST": secret} }, "servers.x.headers.HOST"},
	} {
		config := mcp.ServerConfig{Name: "x", URL: "https://example.com/mcp", State: t.TempDir()}
		test.change(&config)
		_, err := mcp.NewServer(config)
		var refused *ledger.Refused
		if !errors.As(err, &refused) || refused.Field != test.field || strings.Contains(err.Error(), secret) {
			t.Errorf("%v, want %s refused", err, test.field)
		}
	}
	for _, good := range []string{"https://example.com", "http://localhost:1/mcp", "http://[::1]/mcp?a=b"} {
		s, err := mcp.NewServer(mcp.ServerConfig{Name: "x", URL: good, State: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
}

// A server on another machine has no files here: its images would be of other files.
func TestAServerOfFilesAtAURLNeedsRoots(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := sdk.NewServer(&sdk.Implementation{Name: "secure-filesystem-server", Version: "1"}, nil)
	called := make(chan bool, 1)
	server.AddTool(&sdk.Tool{Name: "write_file", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			called <- true
			return text("done"), nil
		})
	at := serves(t, sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil))
	dir := t.TempDir()
	options := &sdk.ClientOptions{}
	c := w.gateway(mcp.Config{ServeUndos: true}, options, mcp.ServerConfig{Name: "files", URL: at.URL,
		State: t.TempDir()})
	r := c.call("write_file", map[string]any{"path": filepath.Join(dir, "x"), "content": "x"})
	if !r.IsError || !strings.Contains(said(r), "roots") || len(called) > 0 {
		t.Errorf("it says %s, and was called: %v", said(r), len(called) > 0)
	}
	rooted := w.gateway(mcp.Config{ServeUndos: true}, options, mcp.ServerConfig{Name: "files", URL: at.URL,
		State: t.TempDir(), Roots: []string{dir}})
	rooted.does("write_file", map[string]any{"path": filepath.Join(dir, "x"), "content": "x"})
}

// A server that accepts connections and says nothing keeps no one waiting for ever.
func TestAServerAtAURLThatSaysNothingIsGivenUp(t *testing.T) {
	t.Parallel()
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	t.Cleanup(func() { silent.CloseClientConnections(); silent.Close() })
	s, err := mcp.NewServer(mcp.ServerConfig{Name: "x", URL: silent.URL, State: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := s.Start(ctx); err == nil {
		t.Error("it has started")
	}
}

// A server that wants credentials, or has no time, is asked once; one that knows no session is asked
// without one as well. What to do about a 401 is said.
func TestAServerAtAURLIsNotAskedTwiceForNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status  int
		headers map[string]string
		asked   []string
		says    string
	}{
		{401, nil, []string{"initialize"}, "401 Unauthorized: until noon; give it a header with a token"},
		{401, map[string]string{"Authorization": "Bearer " + secret}, []string{"initialize"},
			"until noon; the headers that it is given are not enough"},
		{503, nil, []string{"initialize"}, "Service Unavailable"},
		{404, nil, []string{"initialize", "server/discover", "initialize"}, "Not Found"},
	} {
		came := make(chan string, 10)
		at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var message struct{ Method string }
			if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
				t.Error(err)
			}
			came <- message.Method
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"until noon"}}`)
		}))
		s, err := mcp.NewServer(mcp.ServerConfig{Name: "s", URL: at.URL, Headers: c.headers, State: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		if err = s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), c.says) ||
			strings.Contains(err.Error(), secret) {
			t.Errorf("%d: %v", c.status, err)
		}
		at.Close()
		s.Close()
		var asked []string
		for close(came); len(came) > 0; {
			asked = append(asked, <-came)
		}
		if !slices.Equal(asked, c.asked) {
			t.Errorf("%d: it was asked %v", c.status, asked)
		}
	}
}
