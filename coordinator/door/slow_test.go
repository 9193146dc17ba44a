package door_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
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
