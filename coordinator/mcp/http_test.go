package mcp_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
)

// bearer is a client of HTTP that says who it is.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

func TestClientsOverHTTPHavePlansOfTheirOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	first := w.gateway(mcp.Config{ServeUndos: true, OnDisconnect: mcp.FailPlan}, nil, config)
	server := httptest.NewServer(first.gateway.Handler("secret"))
	t.Cleanup(func() {
		server.CloseClientConnections() // a client that is still there listens
		server.Close()
	})
	connect := func(token string) (*client, error) {
		session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
			&sdk.StreamableClientTransport{Endpoint: server.URL, HTTPClient: &http.Client{
				Transport: bearer(token)}}, nil)
		if err == nil {
			t.Cleanup(func() { _ = session.Close() })
		}
		return &client{t: t, gateway: first.gateway, session: session}, err
	}
	if _, err := connect("wrong"); err == nil {
		t.Error("a wrong token is let in")
	}
	a, err := connect("secret")
	if err != nil {
		t.Fatal(err)
	}
	b, err := connect("secret")
	if err != nil {
		t.Fatal(err)
	}
	planA := planOf(a.call("add", map[string]any{"text": "a"}))
	planB := planOf(b.call("add", map[string]any{"text": "b"}))
	if planA == "" || planA == planB {
		t.Errorf("plans %q and %q", planA, planB)
	}
	if r := a.reports("undo_last", nil); len(r.Undone) != 1 || !slices.Equal(lines(file), []string{"b"}) {
		t.Errorf("%+v, left %v", r, lines(file))
	}
	if err := b.session.Close(); err != nil {
		t.Error(err)
	}
	if state := w.state(planB, "compensated"); state != "compensated" || len(lines(file)) != 0 {
		t.Errorf("the plan of a client that has gone is %s, left %v", state, lines(file))
	}
	// A page of another origin is refused.
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer secret")
	request.Header.Set("Sec-Fetch-Site", "cross-site")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("a page of another origin: %s", response.Status)
	}
	a.does("add", map[string]any{"text": "last"})
	first.gateway.Close()
	if got := lines(file); len(got) != 0 {
		t.Errorf("a gateway that was closed has left %v", got)
	}
}
