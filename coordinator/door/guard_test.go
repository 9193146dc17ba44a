package door_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/door"
	"github.com/sagenbaum/sagenbaum/ledger/access"
)

// judged serves requests by a door of its own, whose pulse never comes; it returns a channel that has
// one for each token that was looked at.
func (l *live) judged() <-chan struct{} {
	came := make(chan struct{}, 100)
	l.web = door.NewWeb(door.WebConfig{Users: judging{l.users.Directory, func(token string) (access.User, error) {
		u, err := l.users.Authenticate(token, time.Now())
		came <- struct{}{}
		return u, err
	}}})
	l.t.Cleanup(l.web.Close)
	l.web.Pulse(1000 * time.Hour)
	l.t.Cleanup(l.web.Attach(l.door))
	l.http.Config.Handler = l.web.Handler()
	return came
}

// TestWhatWaitsEndsWithItsUser: a stream and a request that waits end when the directory says that
// the user was removed, and not at a pulse, which never comes here. Those of others go on.
func TestWhatWaitsEndsWithItsUser(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	l.good(l.post, "other", "plan.begin", `{"plan":"q"}`)
	came := l.judged()
	type answer struct {
		status int
		body   map[string]any
	}
	waits := func(user, plan string) chan answer {
		got := make(chan answer, 1)
		go func() { // ends with its answer
			status, body := l.post(user, "plan.wait", `{"plan":"`+plan+`","wait":"60s"}`)
			got <- answer{status, body}
		}()
		<-came
		return got
	}
	tripper, other := waits("tripper", "p"), waits("other", "q")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		l.http.URL+"/v1/default/tripper/plans/p/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+l.token("tripper"))
	stream, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	<-came
	if err := l.users.Remove(tenant, "tripper"); err != nil {
		t.Fatal(err)
	}
	if a := <-tripper; a.status != http.StatusUnauthorized {
		t.Errorf("what waited: %d %v", a.status, a.body)
	} else if e, _ := a.body["error"].(map[string]any); e["stored"] != door.StoredUnknown {
		t.Errorf("what waited: %v", a.body)
	}
	if _, err := io.Copy(io.Discard, stream.Body); err != nil {
		t.Errorf("the stream: %v", err)
	}
	l.good(l.post, "other", "plan.cancel", `{"plan":"q"}`)
	if a := <-other; a.status != http.StatusOK || a.body["ended"] != true {
		t.Errorf("what another user waits for: %d %v", a.status, a.body)
	}
}

// TestWhatWaitsEndsWithItsToken: one token is revoked by its id, and what waits with it ends without
// a pulse; what waits with another token of the same user goes on.
func TestWhatWaitsEndsWithItsToken(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	creds, err := access.ReadCredentials(l.users.File("tripper"))
	if err != nil {
		t.Fatal(err)
	}
	leaked, err := creds.Sign(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	came := l.judged()
	open := func(token string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			l.http.URL+"/v1/default/tripper/plans/p/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		stream, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stream.Body.Close() })
		<-came
		return stream
	}
	ends, stays := open(leaked), open(creds.Token)
	ended := make(chan error, 1)
	go func() { // ends with the stream, or with the test
		_, err := io.Copy(io.Discard, stays.Body)
		ended <- err
	}()
	if _, err := l.users.Revoke(tenant, "tripper", creds.TokenID(leaked), false, time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, ends.Body); err != nil {
		t.Errorf("the stream: %v", err)
	}
	path := "/v1/" + tenant + "/tripper/plan.get"
	if status, body := l.send(leaked, path, "application/json", `{"plan":"p"}`); status != http.StatusUnauthorized {
		t.Errorf("a revoked token: %d %v", status, body)
	}
	l.good(l.post, "tripper", "plan.get", `{"plan":"p"}`)
	select {
	case err := <-ended:
		t.Errorf("what waits with another token has ended: %v", err)
	default:
	}
}

// TestWhoShowsTooManyTokensIsSlowedDown, with one line in the log that counts them; a good token
// from the same address is let in, and another address has tries of its own.
func TestWhoShowsTooManyTokensIsSlowedDown(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	web := door.NewWeb(door.WebConfig{Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Users: judging{new(access.Directory), func(token string) (access.User, error) {
			if token == "good" {
				return access.User{Name: "tripper", Role: access.Agent, Tenant: tenant}, nil
			}
			return access.User{}, access.ErrToken
		}}})
	t.Cleanup(web.Close)
	handler := web.Handler()
	ask := func(token, from string) *http.Response {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/default/tripper/plan.wait",
			strings.NewReader("{}"))
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Result()
	}
	for range 30 { // no token is no try
		if got := ask("", "192.0.2.1:4711").StatusCode; got != http.StatusUnauthorized {
			t.Fatalf("no token: %d", got)
		}
	}
	codes := map[int]int{}
	var last *http.Response
	for range 300 {
		last = ask("bad", "192.0.2.1:4711")
		codes[last.StatusCode]++
	}
	if codes[http.StatusUnauthorized] < 1 || codes[http.StatusTooManyRequests] < 200 || len(codes) != 2 {
		t.Errorf("%v", codes)
	}
	if wait := last.Header.Get("Retry-After"); wait == "" || wait == "0" {
		t.Errorf("Retry-After: %q", wait)
	}
	if got := ask("bad", "192.0.2.2:4711").StatusCode; got != http.StatusUnauthorized {
		t.Errorf("another address: %d", got)
	}
	if got := ask("good", "192.0.2.1:4711").StatusCode; got != http.StatusServiceUnavailable { // no host
		t.Errorf("a good token: %d", got)
	}
	text := log.String()
	if n := strings.Count(text, "tokens that are not good"); n < 1 || n > 3 ||
		!strings.Contains(text, "last_from=192.0.2.1/32") || strings.Contains(text, "bad") {
		t.Errorf("the log: %s", text)
	}
}

// TestTheSchemeOfATokenHasAnyCapitals (RFC 9110, 11.1), and one space or several follow it.
func TestTheSchemeOfATokenHasAnyCapitals(t *testing.T) {
	t.Parallel()
	web := door.NewWeb(door.WebConfig{Users: judging{new(access.Directory), func(token string) (access.User, error) {
		if token == "good" {
			return access.User{Name: "tripper", Role: access.Agent, Tenant: tenant}, nil
		}
		return access.User{}, access.ErrToken
	}}})
	t.Cleanup(web.Close)
	for given, in := range map[string]bool{
		"Bearer good": true, "bearer good": true, "BEARER  good": true,
		"Bearer GOOD": false, "bearergood": false, "Basic good": false, "good": false,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/default/tripper/plan.wait",
			strings.NewReader("{}"))
		r.Header.Set("Authorization", given)
		w := httptest.NewRecorder()
		web.Handler().ServeHTTP(w, r)
		if (w.Code != http.StatusUnauthorized) != in {
			t.Errorf("%q is answered with %d", given, w.Code)
		}
	}
}
