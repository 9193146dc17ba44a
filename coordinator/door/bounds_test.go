package door_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator/door"
)

// TestAWrongRequestStartsNoWriter.
func TestAWrongRequestStartsNoWriter(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	set := l.good(l.post, "tripper", "plan.begin", `{"plan":"p","writer":"w0"}`)["deadline_set"]
	for verb, more := range map[string]string{"plan.act": `,"action":"a","capability":"page.read"`,
		"plan.outcome": `,"action":"a","outcome":"completed"`, "plan.report": `,"action":"a","capability":"page.read"`,
		"plan.savepoint": `,"savepoint":"s"`, "plan.unwind_to": `,"savepoint":"s","number":1`, "plan.commit": "",
		"plan.deadline": fmt.Sprintf(`,"deadline":"2h","reason":"r","follows":%v`, set),
		"plan.fail":     "", "plan.cancel": ""} {
		l.refused(l.post, "tripper", verb, `{"plan":"none","writer":"w1"`+more+`}`, 422, "plan")
		l.refused(l.post, "tripper", verb, `{"plan":"p","writer":"w2"`+more+`}`, 409, "writer")
		l.refused(l.post, "tripper", verb, `{"plan":"p","writer":"w 3"`+more+`}`, 422, "writer")
	}
	if n := l.door.Writers(); n != 1 {
		t.Errorf("%d writers", n)
	}
}

// TestOneAgentLeavesPlacesToOthers: of writers and of requests.
func TestOneAgentLeavesPlacesToOthers(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	empty := l.door.Fill(door.Caller{Tenant: tenant, Name: "tripper"})
	e := l.refused(l.post, "tripper", "plan.begin", `{"plan":"q","writer":"w1"}`, http.StatusTooManyRequests, "")
	if e["limit"] != "writers" {
		t.Errorf("%v", e)
	}
	waiting := make(chan struct{})
	go func() { // ends with its answer
		defer close(waiting)
		for status := http.StatusTooManyRequests; status == http.StatusTooManyRequests; {
			status, _ = l.post("tripper", "plan.wait", `{"plan":"p","wait":"5s"}`)
		}
	}()
	for limited := false; !limited; {
		status, answer := l.post("tripper", "plan.get", `{"plan":"p"}`)
		failed, _ := answer["error"].(map[string]any)
		limited = status == http.StatusTooManyRequests && failed["limit"] == "requests"
		select {
		case <-waiting:
			t.Fatal("a request more than there are places is worked on")
		default:
		}
	}
	other := l.request(l.as("other"), "other")
	l.good(other, "other", "plan.begin", `{"plan":"theirs","writer":"w1"}`)
	<-waiting
	empty()
	l.good(l.post, "tripper", "plan.begin", `{"plan":"q","writer":"w1"}`)
}

// TestWhatIsWrongWithTheDoorsConnectionIsLogged, within bounds, and not by the client of NATS.
func TestWhatIsWrongWithTheDoorsConnectionIsLogged(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	var conn *nats.Conn
	var log strings.Builder
	d := door.New(door.Config{Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Serves: func(string) bool { return true },
		Connect: func(tenant string) (_ *nats.Conn, err error) {
			conn, err = l.server.ConnectDoor(tenant)
			return conn, err
		}})
	defer d.Close()
	if _, err := d.Do(t.Context(), door.Caller{Tenant: tenant, Name: "tripper"}, "plan.find", []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	handler := conn.ErrorHandler()
	if handler == nil {
		t.Fatal("the client writes it to the standard error")
	}
	for range 100 {
		handler(conn, nil, nats.ErrSlowConsumer)
	}
	if n := strings.Count(log.String(), "slow consumer"); n != 1 {
		t.Errorf("%d lines: %s", n, log.String())
	}
}

// TestAValueThatIsNestedTooDeepIsRefused: no answer that has it in itself could be read.
func TestAValueThatIsNestedTooDeepIsRefused(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	deep := strings.Repeat("[", 1001) + strings.Repeat("]", 1001)
	l.refused(l.post, "tripper", "plan.act",
		`{"plan":"p","action":"a","capability":"page.read","input":{"x":`+deep+`}}`, 422, "input")
	l.refused(l.post, "tripper", "plan.begin", `{"plan":"q","input":{"x":`+deep+`}}`, 422, "input")
	l.refused(l.post, "scanner", "fact.put", `{"key":"k","value":`+deep+`}`, 422, "value")
}
