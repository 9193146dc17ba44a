package mcp_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
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
	server := serves(t, first.gateway.Handler("secret"))
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
	if err := first.gateway.Close(); err != nil {
		t.Errorf("all is undone, and Close says %v", err)
	}
	if got := lines(file); len(got) != 0 {
		t.Errorf("a gateway that was closed has left %v", got)
	}
}

// headers are what a client of HTTP says in each request.
type headers http.Header

func (h headers) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, values := range h {
		r.Header[name] = values
	}
	return http.DefaultTransport.RoundTrip(r)
}

// What a header names is named exactly, or the call is refused: it would be made in another plan, or
// a second time.
func TestAHeaderThatNamesNothingIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	server := serves(t, w.gateway(mcp.Config{}, nil, config).gateway.Handler(""))
	for _, name := range []string{"Idempotency-Key", "Sagenbaum-Plan"} {
		for _, values := range [][]string{{""}, {"a", "b"}} {
			session := connectsBy(t, nil, &sdk.StreamableClientTransport{Endpoint: server.URL,
				HTTPClient: &http.Client{Transport: headers{name: values}}}, nil)
			_, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "add", Arguments: note{Text: "x"}})
			if err == nil || !strings.Contains(err.Error(), "refused: header "+name+": ") {
				t.Errorf("%s %q: %v", name, values, err)
			}
		}
	}
	if got := lines(file); len(got) > 0 {
		t.Errorf("the notes are %v", got)
	}
}

// A call of which two places say different things is in neither plan, and no call with either key.
func TestAHeaderThatContradictsTheCallIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	server := serves(t, w.gateway(mcp.Config{}, nil, config).gateway.Handler(""))
	for name, meta := range map[string]string{"Idempotency-Key": "sagenbaum/key", "Sagenbaum-Plan": "sagenbaum/plan"} {
		session := connectsBy(t, nil, &sdk.StreamableClientTransport{Endpoint: server.URL,
			HTTPClient: &http.Client{Transport: headers{name: {"one"}}}}, nil)
		_, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "add", Arguments: note{Text: "x"},
			Meta: sdk.Meta{meta: "two"}})
		want := fmt.Sprintf(`refused: header %s: "one", and _meta[%s] has "two"; want `, name, meta)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	if got := lines(file); len(got) > 0 {
		t.Errorf("the notes are %v", got)
	}
	plan := planOf(adds(t, server.URL, nil, nil))
	same := adds(t, server.URL, headers{"Sagenbaum-Plan": {plan}}, sdk.Meta{"sagenbaum/plan": plan})
	if same.IsError || planOf(same) != plan {
		t.Errorf("where both say %s: %s", plan, said(same))
	}
}

// adds adds a note over a connection of its own.
func adds(t *testing.T, address string, say headers, meta sdk.Meta) *sdk.CallToolResult {
	t.Helper()
	session := connectsBy(t, nil, &sdk.StreamableClientTransport{Endpoint: address,
		HTTPClient: &http.Client{Transport: say}}, nil)
	r, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "add", Arguments: note{Text: "x"}, Meta: meta})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A client whose request has not come in the time that the server of HTTP gives it is told so.
func TestARequestThatDoesNotComeWasNotMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, _ := w.notes(t)
	handler := w.gateway(mcp.Config{}, nil, config).gateway.Handler("")
	request := httptest.NewRequest(http.MethodPost, "/", iotest.ErrReader(os.ErrDeadlineExceeded))
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, request)
	if answer.Code != http.StatusRequestTimeout || !strings.Contains(answer.Body.String(), "nothing was done") {
		t.Errorf("%d: %s", answer.Code, answer.Body)
	}
}

// Calls with an effect of one plan, and of one server, wait for the one before, whichever session makes
// them; calls without one do not.
func TestCallsOfSeveralSessionsComeOneAfterTheOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	g := w.gateway(mcp.Config{}, nil, config).gateway
	server := serves(t, g.Handler(""))
	asked, answer := make(chan string, 1), make(chan struct{})
	asks := connects(t, server.URL, &sdk.ClientOptions{ElicitationHandler: func(_ context.Context,
		req *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		asked <- req.Params.Message
		<-answer
		return &sdk.ElicitResult{Action: "accept"}, nil
	}})
	plan := planOf(adds(t, server.URL, nil, nil))
	ended := make(chan error, 3)
	go func() {
		_, err := asks.CallTool(t.Context(), &sdk.CallToolParams{Name: "ask", Arguments: note{Text: "first"},
			Meta: sdk.Meta{"sagenbaum/plan": plan}})
		ended <- err
	}()
	receive(t, asked)
	for _, meta := range []sdk.Meta{{"sagenbaum/plan": plan}, nil} { // the same plan, and another one
		session := connects(t, server.URL, nil)
		go func() {
			_, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "add", Arguments: note{Text: "later"}, Meta: meta})
			ended <- err
		}()
		c := &client{t: t, gateway: g, session: session}
		for range 3 {
			c.does("peek", nil)
		}
	}
	close(answer)
	for range cap(ended) {
		if err := receive(t, ended); err != nil {
			t.Error(err)
		}
	}
	if got := lines(file); !slices.Equal(got, []string{"x", "first", "later", "later"}) {
		t.Errorf("they came as %v", got)
	}
}

// A question in a call goes to its client; while calls of others are under way as well, the server is
// told that no one knows whose it is, and one does not answer for another.
func TestAQuestionAmongTheCallsOfSeveralClientsIsAskedOfNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, _ := w.notes(t)
	asked, answer := make(chan string, 2), make(chan struct{})
	asks := func(wait <-chan struct{}) *sdk.ClientOptions {
		return &sdk.ClientOptions{ElicitationHandler: func(_ context.Context,
			req *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			asked <- req.Params.Message
			<-wait
			return &sdk.ElicitResult{Action: "accept"}, nil
		}}
	}
	atOnce := make(chan struct{})
	close(atOnce)
	first := w.gateway(mcp.Config{TrustHints: true}, asks(answer), config)
	server := serves(t, first.gateway.Handler(""))
	session := connects(t, server.URL, asks(atOnce))
	told := make(chan string)
	go func() { told <- said(first.call("interrupt", map[string]any{"text": "x"})) }()
	if got := receive(t, asked); got != "sure about x?" {
		t.Errorf("asked: %s", got)
	}
	_, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "interrupt", Arguments: note{Text: "y"}})
	if err == nil || !strings.Contains(err.Error(), "calls of several clients are under way") {
		t.Errorf("the second: %v", err)
	}
	close(answer)
	if got := <-told; got != "accept" || len(asked) > 0 {
		t.Errorf("the first: %s; asked once more: %d", got, len(asked))
	}
}

// Who shows too many tokens that are not good has to wait; who shows none tries none, and a good one
// is let in for all of them.
func TestATokenOverHTTPCannotBeGuessed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, _ := w.notes(t)
	handler := w.gateway(mcp.Config{}, nil, config).gateway.Handler("secret")
	status := map[string]int{}
	for range 12 { // no token is no try, and a good one is let in for all of them
		for _, token := range []string{"", "Bearer wrong", "Bearer secret"} {
			request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
			request.Header.Set("Authorization", token)
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, request)
			status[token] = answer.Code
			if answer.Code == http.StatusTooManyRequests && answer.Header().Get("Retry-After") == "" {
				t.Error("it does not say when to try again")
			}
		}
	}
	if status[""] != http.StatusUnauthorized || status["Bearer wrong"] != http.StatusTooManyRequests ||
		status["Bearer secret"] == http.StatusUnauthorized || status["Bearer secret"] == http.StatusTooManyRequests {
		t.Errorf("after many tries: %v", status)
	}
}

// RFC 9110, 11.1: the name of a scheme has any capitals; 11.4: spaces follow it.
func TestTheSchemeOfATokenHasAnyCapitals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, _ := w.notes(t)
	handler := w.gateway(mcp.Config{}, nil, config).gateway.Handler("secret")
	for given, in := range map[string]bool{
		"Bearer secret": true, "bearer secret": true, "BEARER  secret": true,
		"Bearer SECRET": false, "bearersecret": false, "Basic secret": false, "secret": false,
	} {
		request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
		request.Header.Set("Authorization", given)
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		if (answer.Code != http.StatusUnauthorized) != in {
			t.Errorf("%q is answered with %d", given, answer.Code)
		}
	}
}

// warnings counts the lines of a log about tokens.
type warnings struct{ atomic.Int64 }

func (w *warnings) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("tokens that are not good")) {
		w.Add(1)
	}
	return len(line), nil
}

// Who has no tries left does not learn that a token is good, and the log is not filled.
func TestAGuessedTokenIsNotToldAfterTooManyTries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, _ := w.notes(t)
	var warned warnings
	g := w.gateway(mcp.Config{Logger: slog.New(slog.NewTextHandler(&warned, nil))}, nil, config).gateway
	handler := g.Handler("0421")
	answer := func(from, token string) int {
		request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
		request.Header.Set("Authorization", "Bearer "+token)
		request.RemoteAddr = from + ":1"
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		return answer.Code
	}
	for n := range 30 {
		answer("192.0.2.1", fmt.Sprintf("%04d", n))
	}
	if code := answer("192.0.2.1", "0421"); code != http.StatusTooManyRequests {
		t.Errorf("the good token after too many is answered with %d", code)
	}
	if code := answer("192.0.2.2", "0421"); code == http.StatusTooManyRequests || code == http.StatusUnauthorized {
		t.Errorf("from elsewhere it is answered with %d", code)
	}
	if n := warned.Load(); n != 1 {
		t.Errorf("it is logged %d times", n)
	}
}

// What stands of the plans of clients that came over HTTP is what Close says, also of those that
// went long before; what was undone since is not.
func TestCloseSaysWhatStandsOfClientsOverHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	g := w.gateway(mcp.Config{ServeUndos: true, OnDisconnect: mcp.FailPlan}, nil, config)
	g.leave()
	server := serves(t, g.gateway.Handler(""))
	var plans []string
	for _, text := range []string{"locked", "fine", "locked"} {
		session := connects(t, server.URL, nil)
		c := &client{t: t, gateway: g.gateway, session: session}
		plan := planOf(c.call("add", map[string]any{"text": text}))
		if err := session.Close(); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"locked": ledger.StateQuarantined, "fine": ledger.StateCompensated}[text]
		if state := w.state(plan, want); state != want {
			t.Fatalf("plan of %s is %s", text, state)
		}
		plans = append(plans, plan)
	}
	w.operates(&pb.Record{Plan: plans[2], Action: "1", Kind: &pb.Record_Resolved{Resolved: &pb.Resolved{
		Outcome: pb.Resolution_RESOLUTION_DONE, Reason: "by hand", Evidence: "seen", Actor: "ann"}}})
	if state := w.state(plans[2], ledger.StateResolved); state != ledger.StateResolved {
		t.Fatal(state)
	}
	err := g.gateway.Close()
	if err == nil || !strings.Contains(err.Error(), plans[0]) || strings.Contains(err.Error(), plans[1]) ||
		strings.Contains(err.Error(), plans[2]) {
		t.Errorf("Close says %v of %v", err, plans)
	}
	if again := g.gateway.Close(); again != err {
		t.Errorf("called again it says %v", again)
	}
	if got := lines(file); !slices.Equal(got, []string{"locked", "locked"}) {
		t.Errorf("there is %v", got)
	}
}

// A gateway that serves for long knows no plan of clients that have gone, and goes on with one that
// a client names.
func TestPlansOfClientsThatHaveGoneAreForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, _ := w.notes(t)
	g := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
	g.leave()
	server := serves(t, g.gateway.Handler(""))
	connect := func() *client {
		return &client{t: t, gateway: g.gateway, session: connects(t, server.URL, nil)}
	}
	var plan string
	for i := range 3 {
		c := connect()
		plan = planOf(c.call("add", map[string]any{"text": fmt.Sprint("n", i)}))
		if err := c.session.Close(); err != nil {
			t.Fatal(err)
		}
	}
	g.gateway.Gone() // of the clients
	if n := g.gateway.Plans(); n != 0 {
		t.Fatalf("%d plans are remembered", n)
	}
	c := connect()
	if r := c.call("add", map[string]any{"text": "more"}, "sagenbaum/plan", plan); r.IsError || planOf(r) != plan {
		t.Errorf("a plan that was left: %s", said(r))
	}
	for i := range 4 { // those that one client ends are forgotten, too
		c.does("add", map[string]any{"text": fmt.Sprint("m", i)})
		c.does("plan_commit", nil)
	}
	if n := g.gateway.Plans(); n > 3 {
		t.Errorf("%d plans are remembered", n)
	}
}
