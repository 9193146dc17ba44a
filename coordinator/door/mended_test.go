package door_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/door"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// TestAPlanThatIsUndoneInPartIsFailedAfterwards: what a door looks up while the executor goes back
// to a savepoint is not what it goes by once the plan is open again.
func TestAPlanThatIsUndoneInPartIsFailedAfterwards(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.hold = make(chan struct{})
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	l.good(l.post, "tripper", "plan.savepoint", `{"plan":"p","savepoint":"s"}`)
	l.good(l.post, "tripper", "plan.act", `{"plan":"p","action":"a","capability":"hotel.book","input":{"city":"Rome"}}`)
	l.good(l.post, "tripper", "plan.outcome", `{"plan":"p","action":"a","outcome":"completed","output":{"booking":"1"}}`)
	a := l.good(l.post, "tripper", "plan.unwind_to", `{"plan":"p","savepoint":"s","number":1,"wait":"200ms"}`)
	if a["state"] != "unwinding" {
		t.Fatalf("unwound: %v", a)
	}
	l.crash()
	l.refused(l.post, "tripper", "plan.act", `{"plan":"p","action":"b","capability":"page.read"}`, 409, "")
	e := l.refused(l.post, "tripper", "plan.fail", `{"plan":"p","reason":"no"}`, 503, "plan")
	if e["stored"] != "nothing" {
		t.Fatalf("failed while it is undone: %v", e)
	}
	close(l.hold)
	a = l.good(l.post, "tripper", "plan.unwind_to", `{"plan":"p","savepoint":"s","number":1}`)
	if a["state"] != "open" {
		t.Fatalf("unwound again: %v", a)
	}
	a = l.good(l.post, "tripper", "plan.act", `{"plan":"p","action":"b","capability":"page.read"}`)
	if a["state"] != "accepted" {
		t.Fatalf("acted: %v", a)
	}
	l.good(l.post, "tripper", "plan.fail", `{"plan":"p","reason":"no"}`)
	if a = l.good(l.post, "tripper", "plan.wait", `{"plan":"p"}`); a["ended"] != true {
		t.Fatalf("waited: %v", a)
	}
}

// TestAPlanThatIsBeingUndoneIsSaidToBe, at once: nothing is left to store.
func TestAPlanThatIsBeingUndoneIsSaidToBe(t *testing.T) {
	l := newLive(t)
	l.hold = make(chan struct{})
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	l.good(l.post, "tripper", "plan.report",
		`{"plan":"p","action":"a","capability":"hotel.book","input":{"city":"Rome"},"output":{"booking":"1"}}`)
	l.good(l.post, "tripper", "plan.fail", `{"plan":"p","reason":"no"}`)
	l.shows("p", func(got map[string]any) bool { return got["state"] == "unwinding" })
	l.crash()
	for _, verb := range []string{"plan.fail", "plan.cancel"} {
		if s := l.good(l.post, "tripper", verb, `{"plan":"p","reason":"no"}`); s["state"] != "unwinding" {
			t.Errorf("%s: %v", verb, s)
		}
	}
	l.refused(l.post, "tripper", "plan.commit", `{"plan":"p"}`, 409, "plan")
	close(l.hold)
	if s := l.good(l.post, "tripper", "plan.wait", `{"plan":"p"}`); s["state"] != "compensated" {
		t.Errorf("waited: %v", s)
	}
}

// TestABeginThatIsNotKnownToBeStoredIsNotToldSo, while the host stops.
func TestABeginThatIsNotKnownToBeStoredIsNotToldSo(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	s, err := l.door.Begun(t.Context(), door.Caller{Tenant: tenant, Name: "tripper"}, "p")
	if err == nil {
		t.Fatalf("told: %+v", s)
	}
	if e := door.Explain(err); e.Status != http.StatusServiceUnavailable || e.Stored != door.StoredUnknown {
		t.Errorf("%+v", e)
	}
}

// TestABodyThatDoesNotComeHoldsNoConnection, on whatever page and whoever asks.
func TestABodyThatDoesNotComeHoldsNoConnection(t *testing.T) {
	l := newLive(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.web.Run(listener)
	for _, line := range []string{"POST /v1/default/tripper/plan.begin", "GET /openapi.json", "POST /x",
		"GET /v1/default/tripper/plans/p/events"} {
		t.Run(strings.ReplaceAll(line, "/", "."), func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"+
				"Content-Length: 10\r\n\r\n", line)
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
			in := bufio.NewReader(conn)
			for {
				if _, err := in.ReadByte(); err != nil {
					if e, ok := err.(net.Error); ok && e.Timeout() {
						t.Error("it is held")
					}
					return
				}
			}
		})
	}
}

// TestAStreamEndsWithItsToken at the next pulse.
func TestAStreamEndsWithItsToken(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	var revoked atomic.Bool
	web := door.NewWeb(door.WebConfig{Users: judging{l.users.Directory, func(token string) (access.User, error) {
		if revoked.Load() {
			return access.User{}, access.ErrToken
		}
		return l.users.Authenticate(token, time.Now())
	}}})
	defer web.Close()
	web.Pulse(50 * time.Millisecond)
	defer web.Attach(l.door)()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web.Run(listener)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"http://"+listener.Addr().String()+"/v1/default/tripper/plans/p/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+l.token("tripper"))
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	in := bufio.NewReader(response.Body)
	if line, err := in.ReadString('\n'); err != nil || line != "event: state\n" {
		t.Fatalf("%q, %v", line, err)
	}
	revoked.Store(true)
	ended := make(chan struct{})
	go func() { // ends with the stream
		defer close(ended)
		for {
			if _, err := in.ReadByte(); err != nil {
				return
			}
		}
	}()
	select {
	case <-ended:
	case <-time.After(testenv.Patience):
		t.Error("the stream goes on")
	}
}

// TestAVerdictThatNoDoorHeardOfIsAsItSays: the door was killed while the action waited for it. An
// action that nothing has allowed was not called, and its plan goes on; one that was allowed first
// may have been, and the verdict undoes it.
func TestAVerdictThatNoDoorHeardOfIsAsItSays(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	for _, c := range []struct{ plan, allowed, verdict, outcome string }{
		{"blocked", "", "block", "failed"},
		{"redirected", "", "redirect", "failed"},
		{"allowed", "accepted", "block", "in_doubt"},
	} {
		l.good(l.post, "tripper", "plan.begin", `{"plan":"`+c.plan+`"}`)
		act := `{"plan":"` + c.plan + `","action":"a","capability":"hotel.book","input":{"city":"Rome"},"review":true`
		give := func(verdict string) {
			l.good(l.post, "boss", "verdict.give",
				`{"plan":"`+c.plan+`","action":"a","verdict":"`+verdict+`","reason":"no"}`)
		}
		l.waits(c.plan, act+`,"wait":"1ms"}`)
		if c.allowed != "" {
			give("allow")
			if a := l.good(l.post, "tripper", "plan.act", act+"}"); a["state"] != c.allowed {
				t.Fatalf("%s: %v", c.plan, a)
			}
		}
		l.crash()
		give(c.verdict)
		if a := l.good(l.post, "tripper", "plan.act", act+"}"); a["state"] != "recorded" || a["by"] != "boss" ||
			a["outcome"] != c.outcome || !strings.Contains(fmt.Sprint(a["message"]), "no") {
			t.Errorf("%s: %v", c.plan, a)
		}
		l.shows(c.plan, func(got map[string]any) bool {
			acts, _ := got["acts"].([]any)
			return len(acts) == 1 && acts[0].(map[string]any)["outcome"] == c.outcome
		})
		if c.outcome == "failed" {
			l.good(l.post, "tripper", "plan.commit", `{"plan":"`+c.plan+`"}`)
		}
	}
}

// TestAReviewThatComesLaterIsOfLaterActions: an action that was registered without one may have been
// called when its door is killed, whatever its contract asks for by then.
func TestAReviewThatComesLaterIsOfLaterActions(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	const act = `{"plan":"p","action":"a","capability":"hotel.book","input":{"city":"Rome"}}`
	if a := l.good(l.post, "tripper", "plan.act", act); a["state"] != "accepted" {
		t.Fatalf("%v", a)
	}
	l.crash()
	for _, c := range contracts() {
		if c.Capability == "hotel.book" {
			c.Review = true
			l.publish(c)
		}
	}
	if a := l.good(l.post, "tripper", "plan.act", act); a["state"] != "accepted" {
		t.Errorf("it waits for a verdict that no one is asked for: %v", a)
	}
}
