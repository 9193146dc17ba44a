package host

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/sagenbaum/sagenbaum/executor/host/ask"
	"github.com/sagenbaum/sagenbaum/executor/host/observe"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// served are the subjects of a tenant that a host answers on, all verbs of them.
func served() (subjects []string) {
	for _, name := range []string{
		"plan.ls", "plan.find", "plan.show", "plan.why", "plan.outcome", "plan.preview", "trigger.explain",
		"undo.ls", "contract.ls", "quarantine.ls", "refused.ls", "due.ls", "capability.ls", "worker.ls", "worker.served",
		"status", "host", "ledger.read", "ledger.stream", "fact.get", "fact.ls", "fact.history",
		"memory.status", "memory.queue", "memory.rebuild", "review.ls", "released", "erased", "history.a1", "preview.a1",
	} {
		subjects = append(subjects, api.QuerySubject("t", name))
	}
	for _, name := range []string{
		"ledger.scrub", "ledger.export", "ledger.sign", "ledger.repair", "key.rotate", "rebuild",
		"tenant.erase",
	} {
		subjects = append(subjects, api.AdminSubject("t", name))
	}
	return append(subjects, api.KeySubject("t", "a1"), api.RevealSubject("t"), api.HostsSubject("t"))
}

func TestEveryVerbIsInTheTestsOfRequests(t *testing.T) {
	var want []string
	questions, requests := ask.Verbs()
	for _, name := range questions {
		want = append(want, api.QuerySubject("t", name))
	}
	for _, name := range requests {
		want = append(want, api.AdminSubject("t", name))
	}
	for _, subject := range want {
		if !slices.Contains(served(), subject) {
			t.Errorf("%s is not among them", subject)
		}
	}
	if n := len(want) + 5; len(served()) != n { // a history, a preview, a key, reveal and the hosts
		t.Errorf("%d subjects, want %d", len(served()), n)
	}
}

// watched runs a host whose log and numbers a test reads.
func (r *rig) watched(log *lockedLog, numbers *observe.Metrics) *Host {
	r.t.Helper()
	h, err := New(Config{
		Conn: r.conn, Tenants: []string{"t"}, Dir: filepath.Join(r.dir, "watched"), LeaseTTL: time.Second,
		Logger:        slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		DurableServer: r.srv.DurableID(), Metrics: numbers,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }() // ends with the test
	r.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
		if err := h.Close(); err != nil {
			r.t.Error(err)
		}
	})
	<-h.Ready()
	return h
}

// TestWhatCannotBeAnsweredIsNoRequest: what another program answers, and was made to
// answer on a subject of the host, has no reply subject; and the host answers on none on
// which a message has an effect.
func TestWhatCannotBeAnsweredIsNoRequest(t *testing.T) {
	r := newRig(t)
	log, numbers := new(lockedLog), observe.NewMetrics()
	r.watched(log, numbers)
	r.plan("p1", 1, time.Hour)
	r.caughtUp()
	replies := []string{"", "saga.t.executor.term", "admin.t.rebuild", "query.t.status", "undo.t.x", "$JS.API.INFO"}
	heard, err := r.conn.SubscribeSync("*.t.>") // all of them but the last
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	for _, subject := range served() {
		for _, reply := range replies {
			if err := r.conn.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Data: []byte("{}")}); err != nil {
				t.Fatal(err)
			}
			sent++
		}
	}
	r.eventually("all were refused", func() bool {
		const counter = `sagenbaum_requests_refused_total{reason="reply_to",tenant="t"} %d`
		return strings.Contains(testenv.Scrape(t, numbers.Handler()), "\n"+fmt.Sprintf(counter, sent)+"\n")
	})
	if log.says("state dropped") {
		t.Error("the state was dropped")
	}
	for n, _, err := heard.Pending(); n > 0 || err != nil; n-- {
		m, err := heard.NextMsg(5 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if m.Reply == "" && string(m.Data) != "{}" { // an append of the host has a reply subject
			t.Errorf("the host has answered on %s: %s", m.Subject, m.Data)
		}
	}
}

// TestAStandInAnswersNowhereThatHasAnEffect: what answers while no host can run is as
// trusted as a host.
func TestAStandInAnswersNowhereThatHasAnEffect(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, err := NewStandIn(StandInConfig{Conn: r.conn, Tenants: []string{"t"}, Problem: "the disk is full"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, reply := range []string{"", "saga.t.operator.ann", "admin.t.rebuild", "notice.t.a.p", "$KV.SAGA_HOLDERS.t"} {
		heard, err := r.conn.SubscribeSync(cmp.Or(reply, "nowhere"))
		if err != nil {
			t.Fatal(err)
		}
		for _, subject := range served() {
			if !strings.HasPrefix(subject, "query.") && !strings.HasPrefix(subject, "admin.") {
				continue // it does not serve these
			}
			if err := r.conn.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Data: []byte("{}")}); err != nil {
				t.Fatal(err)
			}
		}
		// Answered by the same subscription, after all of these.
		if _, err := r.conn.Request(api.QuerySubject("t", "status"), []byte("{}"), testenv.Patience); err != nil {
			t.Fatal(err)
		}
		if _, err := r.conn.Request(api.AdminSubject("t", "rebuild"), []byte("{}"), testenv.Patience); err != nil {
			t.Fatal(err)
		}
		for n, _, _ := heard.Pending(); n > 0; n-- {
			m, err := heard.NextMsg(time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if string(m.Data) != "{}" {
				t.Fatalf("published on %s: %s", reply, m.Data)
			}
		}
		if err := heard.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEveryVerbRefusesWhatItDoesNotKnow: an unknown field is named, and nothing is done.
func TestEveryVerbRefusesWhatItDoesNotKnow(t *testing.T) {
	r := newRig(t)
	log := new(lockedLog)
	r.watched(log, nil)
	r.plan("p1", 1, time.Hour)
	r.caughtUp()
	for _, subject := range served() {
		for body, field := range map[string]string{
			`{"surprise":1}`:  "request.surprise",
			`{"surprise":{}}`: "request.surprise",
			`{} {}`:           "request",
			`[]`:              "request",
			`"plan"`:          "request",
			`{`:               "request",
		} {
			m, err := r.conn.Request(subject, []byte(body), testenv.Patience)
			if err != nil {
				t.Fatalf("%s %s: %v", subject, body, err)
			}
			var answer struct{ Error, Field, Want string }
			if err := json.Unmarshal(m.Data, &answer); err != nil {
				t.Fatal(err)
			}
			if answer.Field != field || !strings.Contains(answer.Error, field) || answer.Want == "" {
				t.Errorf("%s %s: %+v, want a refusal of %s", subject, body, answer, field)
			}
		}
	}
	for _, done := range []string{"state dropped", "rotat", "scrub"} {
		if log.says(done) {
			t.Errorf("the log says %q: a refused request was carried out", done)
		}
	}
	m, err := r.conn.Request(api.QuerySubject("t", "plan.show"), []byte(`{"plan":7}`), testenv.Patience)
	var answer struct{ Error, Field string }
	if err != nil || json.Unmarshal(m.Data, &answer) != nil || answer.Field != "request.plan" {
		t.Errorf("a field of another type: %+v, %v", answer, err)
	}
}

// Every verb is in the matrix of roles (ledger/access/testdata), which says who may ask it: one
// that nobody has thought of belongs to no role.
func TestEveryVerbBelongsToARole(t *testing.T) {
	matrix, err := os.ReadFile("../../ledger/access/testdata/matrix.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range served() {
		line := " pub " + strings.Replace(subject, ".t", ".t1", 1) + " to the hub\n"
		if !strings.Contains(string(matrix), line) {
			t.Errorf("%s is in no line of the matrix", subject)
		}
	}
}

// A request that another tenant's account has sent is refused, whatever it came through: the
// server says from which account it is.
func TestARequestFromTheAccountOfAnotherTenantIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.host("a")
	ask := func(header nats.Header, patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := r.conn.RequestMsgWithContext(ctx, &nats.Msg{Subject: api.QuerySubject("t", "status"), Header: header})
		return err
	}
	for from, want := range map[string]bool{`{"acc":"C_t"}`: true, `{"acc":"OPERATORS"}`: true, "": true,
		`{"acc":"C_other"}`: false, `nonsense`: false} {
		header := nats.Header{}
		if from != "" {
			header.Set("Nats-Request-Info", from)
		}
		patience := time.Second // what is refused has no answer
		if want {
			patience = testenv.Patience
		}
		if err := ask(header, patience); (err == nil) != want {
			t.Errorf("%s: %v", from, err)
		}
	}
}

// TestTheStreamIsShownWithoutAnOddRequest: a server warns of each in its log, and counts an error;
// the doctor asks for the stream, and how this server is set is known.
func TestTheStreamIsShownWithoutAnOddRequest(t *testing.T) {
	r := newRig(t)
	r.watched(new(lockedLog), observe.NewMetrics())
	r.holds("t") // it has asked for a bucket that was not there yet
	jetStream, err := js.New(r.conn)
	if err != nil {
		t.Fatal(err)
	}
	before, err := jetStream.AccountInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var answer api.StreamAnswer
	err = r.ask("ledger.stream", struct{}{}, &answer)
	if err != nil || answer.NotStrict != "" || len(answer.Stream) == 0 {
		t.Fatalf("%+v, %v", answer, err)
	}
	after, err := jetStream.AccountInfo(t.Context())
	if err != nil || after.API.Errors != before.API.Errors {
		t.Errorf("%d requests that JetStream refuses, %v", after.API.Errors-before.API.Errors, err)
	}
}
