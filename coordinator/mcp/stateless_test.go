package mcp_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// statelessly is a client of a gateway over HTTP that speaks a version of the protocol.
func (c *client) statelessly(address, version string) *client {
	c.t.Helper()
	return c.statelesslyWith(address, version, nil)
}

func (c *client) statelesslyWith(address, version string, options *sdk.ClientOptions) *client {
	c.t.Helper()
	session := connectsBy(c.t, options, &sdk.StreamableClientTransport{Endpoint: address},
		&sdk.ClientSessionOptions{ProtocolVersion: version})
	if got := session.InitializeResult().ProtocolVersion; got != version {
		c.t.Errorf("it speaks %s, want %s", got, version)
	}
	return &client{t: c.t, gateway: c.gateway, session: session}
}

func (w *world) listens(config mcp.Config, server mcp.ServerConfig) (g *client, address string) {
	w.t.Helper()
	g = w.gateway(config, nil, server)
	g.leave()
	at := serves(w.t, g.gateway.Handler(""))
	return g, at.URL
}

// Clients without sessions name the plan of each call, as an argument, in metadata or in a header;
// those of earlier versions have plans of their own beside them.
func TestClientsWithoutSessionsNameTheirPlans(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	g, address := w.listens(mcp.Config{ServeUndos: true, Stateless: true, OnDisconnect: mcp.FailPlan}, config)
	older, newer := g.statelessly(address, "2025-11-25"), g.statelessly(address, "2026-07-28")
	other := planOf(older.call("add", map[string]any{"text": "older"}))
	if r := newer.call("add", map[string]any{"text": "none"}); !r.IsError ||
		!strings.Contains(said(r), "plan_begin") || !strings.Contains(said(r), "Nothing was done") {
		t.Errorf("a call without a plan: %s", said(r))
	}
	if r := newer.call("undo_last", nil); !r.IsError || !strings.Contains(said(r), "names no plan") {
		t.Errorf("an undo without a plan: %s", said(r))
	}
	plan := newer.reports("plan_begin", nil).Plan
	long := map[string]any{"text": strings.Repeat("x", 6<<20)} // a request may have 16 MiB
	newer.does("peek", long)
	older.does("peek", long)
	for _, text := range []string{"a", "b", "c"} {
		if r := newer.call("add", map[string]any{"text": text, "sagenbaum_plan": plan}); r.IsError || planOf(r) != plan ||
			strings.Contains(said(r), "sagenbaum_plan") {
			t.Errorf("of plan %s: %s", planOf(r), said(r))
		}
	}
	newer.call("add", map[string]any{"text": "d"}, "sagenbaum/plan", plan)
	_, err := newer.session.CallTool(t.Context(), &sdk.CallToolParams{Name: "add", Meta: sdk.Meta{"sagenbaum/plan": plan},
		Arguments: map[string]any{"text": "e", "sagenbaum_plan": "another"}})
	if err == nil || !strings.Contains(err.Error(), `refused: arguments.sagenbaum_plan: "another", and `+
		`_meta[sagenbaum/plan] has "`+plan+`"; want `) {
		t.Errorf("a call of two plans: %v", err)
	}
	if got := strings.Join(lines(file), " "); got != "older a b c d" {
		t.Errorf("there is %s", got)
	}
	if r := newer.reports("undo_last", map[string]any{"plan": plan, "count": 2}); len(r.Undone) != 2 {
		t.Errorf("undo_last: %+v", r)
	}
	if state := w.state(plan, "open"); state != "open" { // though each of its sessions has ended
		t.Errorf("the plan is %s", state)
	}
	if r := newer.reports("plan_fail", map[string]any{"plan": plan}); r.State != "compensated" || plan == other {
		t.Errorf("%+v", r)
	}
	if got := lines(file); !slices.Equal(got, []string{"older"}) {
		t.Errorf("left %v", got)
	}
}

// The user of such a client is asked by the answer to a call, which it makes again then; and progress
// comes with the answer.
func TestTheUserOfAClientWithoutASessionIsAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	g, address := w.listens(mcp.Config{Stateless: true, Unknown: mcp.AskUnknown}, config)
	var asked, action atomic.Value
	passed := make(chan string, 100)
	c := g.statelesslyWith(address, "2026-07-28", &sdk.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			asked.Store(r.Params.Message)
			return &sdk.ElicitResult{Action: action.Load().(string)}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			passed <- r.Params.Message
		}})
	plan := c.reports("plan_begin", nil).Plan
	for _, say := range []string{"decline", "accept"} {
		action.Store(say)
		r := c.call("send", map[string]any{"text": say, "sagenbaum_plan": plan})
		if r.IsError != (say == "decline") || !strings.Contains(asked.Load().(string),
			`send cannot be undone. Call it with {"text":"`+say) {
			t.Errorf("%s: %s, asked %v", say, said(r), asked.Load())
		}
	}
	if got := lines(file); !slices.Equal(got, []string{"accept"}) {
		t.Errorf("there is %v", got)
	}
	if r := c.call("send", map[string]any{"text": "x"}); !strings.Contains(said(r), "names no plan") ||
		strings.Contains(asked.Load().(string), `"x"`) {
		t.Errorf("of a call without a plan: %s, asked %v", said(r), asked.Load())
	}
	other := g.statelessly(address, "2026-07-28")
	if r := other.call("send", map[string]any{"text": "x", "sagenbaum_plan": plan}); !strings.Contains(said(r),
		"no way to ask") {
		t.Errorf("without a user: %s", said(r))
	}
	if _, err := c.session.CallTool(t.Context(), &sdk.CallToolParams{Name: "slow", Meta: sdk.Meta{"progressToken": "p"},
		Arguments: map[string]any{"text": "on", "sagenbaum_plan": plan}}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		select {
		case got := <-passed:
			if got != "on" {
				t.Errorf("progress says %q", got)
			}
		case <-time.After(testenv.Patience):
			t.Fatal("no progress comes")
		}
	}
}

// A tool with an effect has an argument for the plan there, and the rest of it is as its server
// wrote it; clients with sessions see it as it is.
func TestOnlyClientsWithoutSessionsSeeAnArgumentForThePlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, _ := w.notes(t)
	g, address := w.listens(mcp.Config{Stateless: true}, config)
	for version, want := range map[string]string{"2025-11-25": "", "2026-07-28": "add"} {
		list, err := g.statelessly(address, version).session.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range list.Tools {
			schema, err := json.Marshal(tool.InputSchema)
			if err != nil || tool.Name != "add" && tool.Name != "peek" {
				continue
			}
			if got := strings.Contains(string(schema), "sagenbaum_plan"); got != (tool.Name == want) ||
				!strings.Contains(string(schema), `"text":{"type":"string"}`) {
				t.Errorf("%s: %s has %s", version, tool.Name, schema)
			}
		}
	}
}

// What such a client gets is what its version wants, with numbers as they were written, without a
// session in it.
func TestTheAnswersToClientsWithoutSessionsAreOfTheirVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	_, address := w.listens(mcp.Config{ServeUndos: true, Stateless: true}, config)
	post := func(method, name, params string) string {
		t.Helper()
		const meta = `"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
			"io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
			"io.modelcontextprotocol/clientCapabilities": {}}`
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(
			`{"jsonrpc": "2.0", "id": 1, "method": "`+method+`", "params": {`+params+meta+`}}`))
		if err != nil {
			t.Fatal(err)
		}
		for header, value := range map[string]string{"Content-Type": "application/json", "Mcp-Method": method,
			"Mcp-Name": name, "Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2026-07-28"} {
			if value != "" {
				request.Header.Set(header, value)
			}
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK || response.Header.Get("Mcp-Session-Id") != "" {
			t.Errorf("%s: %s %v, %v", method, response.Status, response.Header, err)
		}
		return string(text)
	}
	begun := post("tools/call", "plan_begin", `"name": "plan_begin", "arguments": {}, `)
	_, plan, _ := strings.Cut(begun, `"structuredContent":{"plan":"`)
	plan, _, _ = strings.Cut(plan, `"`)
	said := post("tools/call", "add", `"name": "add", "arguments": {"amount": 10.10, "text": "x", "sagenbaum_plan": "`+
		plan+`"}, `)
	if !strings.Contains(said, `"amount\":10.10`) && !strings.Contains(said, `\"amount\": 10.10`) ||
		!strings.Contains(said, `"amount":10.10,"big":123456789012345678901234567890`) ||
		!strings.Contains(said, `"resultType":"complete"`) || len(lines(file)) != 1 {
		t.Errorf("begun %s, plan %q, called: %s", begun, plan, said)
	}
	for _, ask := range [][4]string{{"tools/list", "", "", "private"}, {"prompts/list", "", "", "private"},
		{"resources/list", "", "", "private"}, {"resources/templates/list", "", "", "private"},
		{"resources/read", "note://all", `"uri": "note://all", `, "public"}} { // as its server says
		for _, want := range []string{`"ttlMs":0`, `"cacheScope":"` + ask[3] + `"`, `"resultType":"complete"`} {
			method := ask[0]
			if got := post(method, ask[1], ask[2]); !strings.Contains(got, want) {
				t.Errorf("%s says %s, want %s", method, got, want)
			}
		}
	}
}
