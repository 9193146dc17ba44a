package door_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/door"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// TestARequestMayWaitAndAPlanBeFollowed: over a real listener, as serve has it.
func TestARequestMayWaitAndAPlanBeFollowed(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	web := door.NewWeb(door.WebConfig{})
	defer web.Close()
	defer web.Attach(l.door)()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web.Run(listener)
	l.http.URL = "http://" + listener.Addr().String()
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p1"}`)
	wait := time.Duration(testenv.Cases(1, 40)) * time.Second
	start := time.Now()
	a := l.good(l.post, "tripper", "plan.wait", fmt.Sprintf(`{"plan":"p1","wait":%q}`, wait))
	if a["state"] != "open" || a["ended"] != false || time.Since(start) < wait {
		t.Errorf("after %v: %v", time.Since(start), a)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, l.http.URL+"/v1/default/tripper/plans/p1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	l.good(l.post, "tripper", "plan.cancel", `{"plan":"p1"}`)
	text := make([]byte, 0, 4096)
	for buffer := make([]byte, 512); ; {
		n, err := response.Body.Read(buffer)
		if text = append(text, buffer[:n]...); err != nil {
			break
		}
	}
	if s := string(text); response.Header.Get("Content-Type") != "text/event-stream" ||
		len(s) < 50 || s[:12] != "event: state" {
		t.Errorf("events: %q", s)
	}
	r, err = http.NewRequestWithContext(ctx, http.MethodGet, "http://rebound.example/openapi.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.URL.Host, r.URL.Path, r.Method = listener.Addr().String(), "/v1/default/tripper/plan.get", http.MethodPost
	r.Header.Set("Content-Type", "application/json")
	other, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Body.Close()
	if other.StatusCode != http.StatusForbidden {
		t.Errorf("a page whose name points here: %d", other.StatusCode)
	}
}

// TestWhoHasNoTokenKeepsNoConnection: they are few, and each would keep its place until it is idle for
// long. A request of a user keeps its own.
func TestWhoHasNoTokenKeepsNoConnection(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	for _, c := range []struct {
		method, path, token, body string
		status                    int
		closes                    bool
	}{
		{"GET", "/nothing", "", "", 404, true},
		{"GET", "/nothing", "", "body", 404, true},
		{"GET", "/openapi.json", "", "", 200, true},
		{"GET", "/v1/default/tripper/plans/p/events", "", "", 401, true},
		{"POST", "/v1/default/tripper/plan.get", "bad", `{"plan":"p"}`, 401, true},
		{"PUT", "/v1/default/tripper/plan.get", "", "", 404, true},
		{"POST", "/v1/default/tripper/plan.get", l.token("tripper"), `{"plan":"p"}`, 200, false},
		{"POST", "/v1/default/tripper/plan.get", l.token("tripper"), `{"plan":"none"}`, 422, false},
		{"GET", "/v1/default/tripper/plans/none/events", l.token("tripper"), "", 422, false},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, l.http.URL+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if response.Body.Close() != nil || response.StatusCode != c.status || response.Close != c.closes {
			t.Errorf("%s %s: %d, closes: %v; want %d, %v", c.method, c.path, response.StatusCode, response.Close,
				c.status, c.closes)
		}
	}
}

// TestConnectionsThatAreTooManyAreLogged, once in a minute.
func TestConnectionsThatAreTooManyAreLogged(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	web := door.NewWeb(door.WebConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	defer web.Close()
	for range door.ConnsMax + 100 {
		conn, other := net.Pipe()
		web.Count(conn, http.StateNew)
		_ = errors.Join(conn.Close(), other.Close())
	}
	if n := strings.Count(log.String(), "connections"); n == 0 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("%s", log.String())
	}
}
