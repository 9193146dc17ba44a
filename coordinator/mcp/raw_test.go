package mcp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// asRawServer makes the test binary an MCP server that knows no SDK: it writes what it is sent to
// the file that it names, and answers with texts.
const asRawServer = "SAGENBAUM_TEST_AS_RAW_MCP_SERVER"

const (
	rawTool   = `{"name":"peek","inputSchema":{"type":"object","least":10.10},"newer":{"b":1,"a":0.50}}`
	rawBad    = `{"name":"bad","inputSchema":{"type":"object","properties":{"x":{"type":"object","x-mcp-header":"X"}}}}`
	rawActs   = `{"name":"act","inputSchema":{"type":"object"}}`
	rawAnswer = `{"newer":{"z":0.10},"content":[{"type":"text","text":"<b>","newer":1.10}],"structuredContent":` +
		`{"amount":10.10,"big":123456789012345678901234567890,"a":1,"a":2},"_meta":{"price":10.10`
	rawBare     = `{"structuredContent":{"id":12345678901234567890,"amount":10.10}}`
	rawListed   = `{"uri":"note://all","name":"all","cost":10.10,"newer":{"b":1,"a":0.50},"title":"<b>"}`
	rawSecond   = `{"uri":"note://2","name":"2","_meta":{"big":123456789012345678901234567890}}`
	rawTemplate = `{"uriTemplate":"note://{id}","name":"one","newer":[1.10]}`
	rawPrompt   = `{"newer":0.10,"name":"sum","arguments":[{"name":"x","newer":1.0}]}`
	rawProgress = `{"newer":1.10,"progress":1.50,"total":10.10,"message":"<b>","_meta":{"price":10.10},"progressToken":`
	rawLog      = `{"newer":0.50,"data":{"cost":10.10,"id":12345678901234567890},"level":"info","_meta":{"a":1.0}}`
	rawUpdated  = `{"newer":0.50,"uri":"note://all"}`
	rawComplete = `{"newer":0.50,"elicitationId":"e1"}`
	rawQuestion = `{"newer":0.50,"requestedSchema":{"type":"object","properties":{"sum":{"type":"number",` +
		`"maximum":10.10,"default":1.0},"of":{"type":"array","items":{"type":"string","anyOf":[{"const":"a"}]}}}},` +
		`"message":"<b>"}`
	rawSample = `{"newer":0.50,"messages":[{"role":"user","content":{"type":"text","text":"<b>","newer":1.0}}],` +
		`"temperature":0.10,"maxTokens":100}`
	rawContents = `{"contents":[{"uri":"note://all","text":"x","newer":2.50}],"newer":2.50}`
)

func serveRaw(file string) error {
	log, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	in := bufio.NewScanner(os.Stdin)
	var asking json.RawMessage // the call that waits for an answer of the client
	for in.Scan() {
		var r struct {
			ID     json.RawMessage
			Method string
			Params json.RawMessage
			Result json.RawMessage
		}
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(log, "%s %s\n", r.Method, r.Params); err != nil {
			return err
		}
		if strings.Contains(string(r.Params), `"ask`) {
			asking = r.ID
			rawAsks(r.Params)
			continue
		}
		if r.Method == "" { // it has answered
			if _, err := fmt.Fprintf(log, "answer %s\n", r.Result); err != nil {
				return err
			}
			r.ID, r.Method = asking, "tools/call"
		}
		result := map[string]string{
			"initialize": `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},` +
				`"resources":{"subscribe":true}},"serverInfo":{"name":"raw-server","version":"1"}}`,
			"tools/list":               `{"tools":[` + rawBad + `,` + rawTool + `,` + rawActs + `]}`,
			"tools/call":               rawAnswer + `}}`,
			"resources/read":           rawContents,
			"resources/list":           `{"resources":[` + rawListed + `],"nextCursor":"2"}`,
			"resources/templates/list": `{"resourceTemplates":[` + rawTemplate + `]}`,
			"prompts/list":             `{"prompts":[` + rawPrompt + `]}`,
			"resources/subscribe":      `{}`,
			"resources/unsubscribe":    `{}`,
		}[r.Method]
		if strings.Contains(string(r.Params), `"cursor":"2"`) {
			result = `{"resources":[` + rawSecond + `]}`
		}
		if strings.Contains(string(r.Params), "bare") {
			result = rawBare
		}
		if r.Method == "notifications/initialized" { // it speaks before it is spoken to
			for _, says := range []string{"tools/list_changed", "prompts/list_changed", "resources/list_changed",
				`resources/updated","params":{"uri":"note://all"},"x":"`,
				`message","params":{"level":"info","data":1},"x":"`} {
				fmt.Printf(`{"jsonrpc":"2.0","method":"notifications/%s"}`+"\n", says)
			}
		}
		switch {
		case len(r.ID) == 0 || strings.Contains(string(r.Params), `"hang`):
			continue
		case result == "":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`+"\n", r.ID)
			continue
		}
		if _, err := fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", r.ID, result); err != nil {
			return err
		}
	}
	return in.Err()
}

// rawAsks says what a server may say while a call is under way, and asks its client's user, or model.
func rawAsks(params json.RawMessage) {
	_, rest, _ := strings.Cut(string(params), `"progressToken":`)
	token := rest[:strings.IndexAny(rest, ",}")]
	for method, says := range map[string]string{"progress": rawProgress + token + "}", "message": rawLog,
		"resources/updated": rawUpdated, "elicitation/complete": rawComplete} {
		fmt.Printf(`{"jsonrpc":"2.0","method":"notifications/%s","params":%s}`+"\n", method, says)
	}
	method, question := "elicitation/create", rawQuestion
	if strings.Contains(string(params), `"ask":"model"`) {
		method, question = "sampling/createMessage", rawSample
	}
	fmt.Printf(`{"jsonrpc":"2.0","id":77,"method":%q,"params":%s}`+"\n", method, question)
}

func (w *world) raw(t *testing.T) (config mcp.ServerConfig, file string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pack, err := mcp.ParsePack("raw.yaml", []byte("apiVersion: sagenbaum/v1\nkind: MCPPack\nserver: raw-server\n"+
		"tools:\n  peek: {class: effectless}\n  act: {class: compensable, key: key, undo: [{tool: peek}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "sent")
	return mcp.ServerConfig{Name: "raw", Command: self, State: t.TempDir(), Packs: []mcp.Pack{pack},
		Env: map[string]string{asRawServer: file}}, file
}

// sentTo is what a raw server was sent by a method.
func sentTo(file, method string) (params []string) {
	for _, line := range lines(file) {
		if p, ok := strings.CutPrefix(line, method+" "); ok {
			params = append(params, p)
		}
	}
	return params
}

// rawClient is a client that knows no SDK.
type rawClient struct {
	t   *testing.T
	out io.Writer
	in  *bufio.Scanner
}

func (c *rawClient) says(message string) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.out, message); err != nil {
		c.t.Fatal(err)
	}
}

// answer is the text of the answer to a request.
func (c *rawClient) answer(id int) string {
	c.t.Helper()
	for c.in.Scan() {
		var r struct {
			ID     int
			Result json.RawMessage
			Error  json.RawMessage
		}
		if json.Unmarshal(c.in.Bytes(), &r) == nil && r.ID == id && len(r.Result)+len(r.Error) > 0 {
			return string(r.Result) + string(r.Error)
		}
	}
	c.t.Fatalf("no answer to %d: %v", id, c.in.Err())
	return ""
}

const (
	rawHello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
		`"capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`
	rawReady = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

func (w *world) rawClient(t *testing.T, configs ...mcp.ServerConfig) (*rawClient, *mcp.Gateway) {
	t.Helper()
	return w.rawClientThatSays(t, rawHello, configs...)
}

func (w *world) rawClientThatSays(t *testing.T, hello string, configs ...mcp.ServerConfig) (*rawClient,
	*mcp.Gateway) {
	t.Helper()
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, configs...)
	c.leave()
	fromClient, toGateway := io.Pipe()
	fromGateway, toClient := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- c.gateway.Serve(context.Background(), &sdk.IOTransport{Reader: fromClient, Writer: toClient})
	}()
	t.Cleanup(func() {
		_ = toGateway.Close()
		_ = fromGateway.Close()
		<-served
	})
	in := bufio.NewScanner(fromGateway)
	in.Buffer(nil, 1<<20)
	raw := &rawClient{t, toGateway, in}
	raw.says(hello)
	raw.answer(1)
	raw.says(rawReady)
	return raw, c.gateway
}

// Whatever a client and a server say to each other passes byte for byte: amounts of money, large
// integers, fields that no version of the SDK knows, members that are there twice, and their order.
func TestMessagesPassAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.raw(t)
	c, gateway := w.rawClient(t, config)
	const (
		arguments = `{"z":10.10,"a":123456789012345678901234567890,"z":"<b>","e":1E+2}`
		before    = `{"newer":{"b":0.10,"a":1},"_meta":{"price":10.10,"id":12345678901234567890`
	)
	once := strings.Replace(arguments, `"z":"<b>",`, "", 1) // of a call with an effect, each
	call := func(id int, tool, meta string) string {
		with := map[string]string{"peek": arguments, "act": once}[tool]
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s%s},"name":%q,"arguments":%s}}`,
			id, before, meta, tool, with)
	}
	c.says(call(2, "peek", `,"sagenbaum/plan":"none"`))
	if got := c.answer(2); got != rawAnswer+`}}` {
		t.Errorf("a call without an effect is answered with\n%s, want\n%s", got, rawAnswer+`}}`)
	}
	c.says(call(3, "act", `,"sagenbaum/key":"k1"`))
	got := c.answer(3)
	if rest, ok := strings.CutPrefix(got, rawAnswer+`,"sagenbaum/plan":"`); !ok ||
		!strings.HasSuffix(rest, `","sagenbaum/action":"key-`+rest[strings.LastIndex(rest, "-")+1:]) {
		t.Errorf("a call with an effect is answered with\n%s", got)
	}
	c.says(call(4, "act", `,"sagenbaum/key":"k1"`))
	if again := c.answer(4); again != got {
		t.Errorf("made again it is answered with\n%s, want\n%s", again, got)
	}
	sent := sentTo(file, "tools/call")
	if len(sent) != 2 || sent[0] != before+`},"name":"peek","arguments":`+arguments+`}` ||
		!strings.HasPrefix(sent[1], before+`},"name":"act","arguments":`+strings.TrimSuffix(once, "}")+`,"key":"`) {
		t.Errorf("the server was sent\n%s", strings.Join(sent, "\n"))
	}
	c.says(`{"jsonrpc":"2.0","id":5,"method":"tools/list"}`)
	if got := c.answer(5); !strings.Contains(got, rawTool) || strings.Contains(got, "x-mcp-header") {
		t.Errorf("tools are listed as %s", got)
	}
	const read = `{"uri":"note://all","newer":{"b":0.10,"a":1}}`
	c.says(`{"jsonrpc":"2.0","id":6,"method":"resources/read","params":` + read + `}`)
	if got := c.answer(6); got != rawContents {
		t.Errorf("a resource is read as %s", got)
	}
	if sent := sentTo(file, "resources/read"); len(sent) != 1 || sent[0] != read {
		t.Errorf("the server was sent %s", sent)
	}
	// A server that takes the first of two names, or minds no capitals, gets the tool that the
	// contract is of.
	c.says(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"act","Name":"act","name":"peek","ARGUMENTS":1}}`)
	c.answer(7)
	if sent := sentTo(file, "tools/call"); sent[len(sent)-1] != `{"name":"peek","arguments":{}}` {
		t.Errorf("the server was sent %s", sent[len(sent)-1])
	}
	server := httptest.NewServer(gateway.Handler(""))
	t.Cleanup(server.Close)
	if got := overHTTP(t, server.URL, call(2, "peek", "")); !strings.Contains(got, rawAnswer+`}}`) {
		t.Errorf("over HTTP it is answered with\n%s", got)
	}
	sent = sentTo(file, "tools/call")
	if sent[len(sent)-1] != before+`},"name":"peek","arguments":`+arguments+`}` {
		t.Errorf("over HTTP the server was sent\n%s", sent[len(sent)-1])
	}
}

// So does what a server says by itself, whatever the client has said of logs, and what it asks, with
// the answer.
func TestWhatAServerSaysPassesAsItIsWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.raw(t)
	c, _ := w.rawClientThatSays(t, strings.Replace(rawHello, `"capabilities":{}`,
		`"capabilities":{"elicitation":{},"sampling":{}}`, 1), config)
	c.says(`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"note://all"}}`)
	c.answer(2)
	asks := func(id int, whom, method, question, answer string) {
		t.Helper()
		c.says(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"peek",`+
			`"arguments":{"ask":%q},"_meta":{"progressToken":1.0}}}`, id, whom))
		wants := map[string]string{"notifications/progress": rawProgress + "1.0}", "notifications/message": rawLog,
			"notifications/resources/updated": rawUpdated, "notifications/elicitation/complete": rawComplete,
			method: question}
		for len(wants) > 0 {
			var r struct {
				ID     json.RawMessage
				Method string
				Params json.RawMessage
			}
			if !c.in.Scan() || json.Unmarshal(c.in.Bytes(), &r) != nil {
				t.Fatalf("left are %v: %s, %v", wants, c.in.Bytes(), c.in.Err())
			}
			if want, ok := wants[r.Method]; ok && string(r.Params) != want {
				t.Errorf("%s passes as\n%s, want\n%s", r.Method, r.Params, want)
			}
			if delete(wants, r.Method); r.Method == method {
				c.says(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, r.ID, answer))
			}
		}
		if got := c.answer(id); got != rawAnswer+`}}` {
			t.Errorf("the call is answered with %s", got)
		}
	}
	answers := []string{
		`{"newer":0.50,"content":{"sum":100.10},"action":"accept","_meta":{"price":10.10}}`,
		`{"action":"decline","newer":0.50}`,
		`{"newer":0.50,"role":"assistant","model":"m","content":{"type":"text","text":"<b>","newer":1.0}}`,
	}
	asks(3, "user", "elicitation/create", rawQuestion, answers[0])
	asks(4, "user", "elicitation/create", rawQuestion, answers[1])
	asks(5, "model", "sampling/createMessage", rawSample, answers[2])
	if got := sentTo(file, "answer"); !slices.Equal(got, answers) {
		t.Errorf("the server was answered\n%s", strings.Join(got, "\n"))
	}
}

// What servers list passes as it is written, too, from all pages and all servers; a prompt under the
// name that clients know it by.
func TestListsPassAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, _ := w.raw(t)
	other, _ := w.raw(t)
	other.Name = "two"
	one, _ := w.rawClient(t, config)
	two, _ := w.rawClient(t, config, other)
	named := func(server string) string { return strings.Replace(rawPrompt, `"sum"`, `"`+server+`__sum"`, 1) }
	resources := rawListed + "," + rawSecond
	for i, c := range []struct {
		client       *rawClient
		method, want string
	}{
		{one, "resources/list", `{"resources":[` + resources + `]}`},
		{one, "resources/templates/list", `{"resourceTemplates":[` + rawTemplate + `]}`},
		{one, "prompts/list", `{"prompts":[` + rawPrompt + `]}`},
		{two, "resources/list", `{"resources":[` + resources + `,` + resources + `]}`},
		{two, "resources/templates/list", `{"resourceTemplates":[` + rawTemplate + `,` + rawTemplate + `]}`},
		{two, "prompts/list", `{"prompts":[` + named("raw") + `,` + named("two") + `]}`},
	} {
		c.client.says(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q}`, 50+i, c.method))
		if got := c.client.answer(50 + i); got != c.want {
			t.Errorf("%s of %d servers is answered with\n%s, want\n%s", c.method, 1+i/3, got, c.want)
		}
	}
}

// until waits until another process has done something.
func (w *world) until(what string, holds func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), testenv.Patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			w.t.Fatalf("not so in time: %s", what)
		}
	}
}

// overHTTP is the answer to one request of a session of its own.
func overHTTP(t *testing.T, url, message string) (answer string) {
	t.Helper()
	session := ""
	for _, body := range []string{rawHello, rawReady, message} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader([]byte(body)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		said, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode >= http.StatusBadRequest {
			t.Fatalf("%s: %v %s", response.Status, err, said)
		}
		if id := response.Header.Get("Mcp-Session-Id"); id != "" {
			session = id
		}
		answer = string(said)
	}
	return answer
}

// What a client cancels its server is told, and the call is in doubt.
func TestACancelledCallReachesTheServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.raw(t)
	c, _ := w.rawClient(t, config)
	for i, tool := range []string{"peek", "act"} {
		id := 10 + i
		told := len(sentTo(file, "notifications/cancelled"))
		c.says(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"hang":%d}}}`,
			id, tool, id))
		w.until("the call has reached the server", func() bool {
			sent := sentTo(file, "tools/call")
			return len(sent) > 0 && strings.Contains(sent[len(sent)-1], fmt.Sprintf(`"hang":%d`, id))
		})
		c.says(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d,"reason":"no"}}`, id))
		w.until(tool+" is cancelled at the server", func() bool {
			return len(sentTo(file, "notifications/cancelled")) == told+1
		})
	}
	c.says(`{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"what_can_be_undone","arguments":{}}}`)
	if got := c.answer(12); !strings.Contains(got, "in_doubt") {
		t.Errorf("a call that was cancelled: %s", got)
	}
}

// A result without content has its numbers, and is recorded.
func TestAResultWithoutContentPassesAsItIsWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, _ := w.raw(t)
	c, _ := w.rawClient(t, config)
	for i, tool := range []string{"peek", "act", "act"} { // the last is answered from the ledger
		c.says(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"bare":1},`+
			`"_meta":{"sagenbaum/key":"k"}}}`, 20+i, tool))
		if got := c.answer(20 + i); !strings.Contains(got, strings.Trim(rawBare, "{}")) {
			t.Errorf("%s is answered with %s", tool, got)
		}
	}
}

// What only looks like a message with a text is passed on as it is, and ends no connection.
func TestWhatLooksLikeATextEndsNoServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.raw(t)
	c, _ := w.rawClient(t, config)
	for i, params := range []string{`{"uri":"note://sagenbaum/raw"}`,
		`{"uri":"note://all","_meta":{"sagenbaum/raw":"{"}}`, `{"uri":"note://all","_meta":{"sagenbaum/raw":1}}`} {
		for j, verb := range []string{"subscribe", "unsubscribe"} {
			c.says(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"resources/%s","params":%s}`, 30+2*i+j, verb, params))
			if got := c.answer(30 + 2*i + j); got != "{}" {
				t.Errorf("%s of %s is answered with %s", verb, params, got)
			}
		}
	}
	c.says(`{"jsonrpc":"2.0","id":40,"method":"tools/call","params":{"name":"peek","arguments":{}}}`)
	if got := c.answer(40); got != rawAnswer+`}}` {
		t.Errorf("the next call is answered with %s", got)
	}
	if sent := sentTo(file, "resources/subscribe"); len(sent) == 0 || !strings.Contains(sent[0], "note://sagenbaum/raw") {
		t.Errorf("the server was sent %s", sent)
	}
	sent := sentTo(file, "resources/unsubscribe")
	if len(sent) == 0 || !strings.Contains(sent[0], "note://sagenbaum/raw") {
		t.Errorf("the server was sent %s", sent)
	}
	if n := len(sentTo(file, "initialize")); n != 1 {
		t.Errorf("the server was started %d times", n)
	}
}

// A client that has said all that it has to say, and goes, has its answers: they may go to a file. That
// it does not say its roots any more is known at once.
func TestAClientThatGoesAtOnceIsAnswered(t *testing.T) {
	t.Parallel()
	for _, hello := range []string{rawHello, strings.Replace(rawHello, "{}", `{"roots":{}}`, 1)} {
		w := newWorld(t)
		config, _ := w.raw(t)
		c, _ := w.rawClientThatSays(t, hello, config)
		for i, tool := range []string{"act", "peek"} {
			c.says(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{}}}`,
				50+i, tool))
		}
		if err := c.out.(io.Closer).Close(); err != nil {
			t.Fatal(err)
		}
		for answered := 0; answered < 2; { // in any order
			if !c.in.Scan() {
				t.Fatalf("%d are answered, then %v", answered, c.in.Err())
			}
			if strings.Contains(c.in.Text(), strings.Trim(rawAnswer, "{}")) {
				answered++
			}
		}
	}
}

// TestTheEndOfAClientComesOnceItIsAnswered, or after 5 s, and the log says what was not; what it is
// asked is answered for it.
func TestTheEndOfAClientComesOnceItIsAnswered(t *testing.T) {
	for _, c := range []struct {
		answers int // of its two requests
		took    time.Duration
		log     string
	}{{2, 0, ""}, {1, 5 * time.Second, "requests=[tools/call]"}} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			var log bytes.Buffer
			client, conn, gone := watchedPair(t, &log)
			id := func(n float64) jsonrpc.ID {
				id, err := jsonrpc.MakeID(n)
				if err != nil {
					t.Fatal(err)
				}
				return id
			}
			hears := heardBy(ctx, client)
			for n, method := range []string{"ping", "tools/call"} {
				go func() { // it is read next
					_ = client.Write(ctx, &jsonrpc.Request{ID: id(float64(n)), Method: method})
				}()
				if message, err := conn.Read(ctx); err != nil || message.(*jsonrpc.Request).Method != method {
					t.Fatalf("%v, %v", message, err)
				}
			}
			asks := func(n float64, method string) {
				t.Helper()
				if err := conn.Write(ctx, &jsonrpc.Request{ID: id(n), Method: method}); err != nil {
					t.Fatal(err)
				}
			}
			asks(7, "roots/list")
			if heard := <-hears; heard != "roots/list" {
				t.Errorf("it is asked %s", heard)
			}
			if err := client.Close(); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			for _, n := range []float64{7, 8} {
				message, err := conn.Read(ctx)
				if r, ok := message.(*jsonrpc.Response); err != nil || !ok || r.ID != id(n) || r.Error == nil {
					t.Fatalf("of %v: %v, %v", n, message, err)
				}
				if n == 7 {
					asks(8, "elicitation/create")
				}
			}
			<-gone
			for n := range c.answers {
				_ = conn.Write(ctx, &jsonrpc.Response{ID: id(float64(n)), Result: json.RawMessage("{}")}) // it has gone
			}
			if message, err := conn.Read(ctx); err == nil {
				t.Errorf("after the end: %v", message)
			}
			if took := time.Since(began); took != c.took {
				t.Errorf("the end took %s, want %s", took, c.took)
			}
			if got := log.String(); (got == "") != (c.log == "") || !strings.Contains(got, c.log) {
				t.Errorf("the log says %q", got)
			}
			if heard, more := <-hears; more {
				t.Errorf("a client that has gone is asked %s", heard)
			}
		})
	}
}

// watchedPair is both ends of a connection to a client, and what is closed when the client has gone.
func watchedPair(t *testing.T, log io.Writer) (client, conn sdk.Connection, gone chan struct{}) {
	t.Helper()
	here, there := sdk.NewInMemoryTransports()
	client, err := here.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	gone = make(chan struct{})
	conn, err = mcp.Watched(there, slog.New(slog.NewTextHandler(log, nil)), func() { close(gone) }).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return client, conn, gone
}

// heardBy are the methods of what a client is asked, until it goes.
func heardBy(ctx context.Context, client sdk.Connection) <-chan string {
	hears := make(chan string, 8)
	go func() {
		defer close(hears)
		for {
			message, err := client.Read(ctx)
			if err != nil {
				return
			}
			if r, ok := message.(*jsonrpc.Request); ok {
				hears <- r.Method
			}
		}
	}()
	return hears
}
