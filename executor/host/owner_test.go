package host

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor/host/observe"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// refuses is a worker that says that an effect never will be undone.
func refuses(int, api.Command) (*api.Reply, bool) {
	return &api.Reply{Status: api.StatusStop, Code: "settled", Message: "the charge is settled"}, true
}

// paged waits until n pages are recorded as taken.
func (r *rig) paged(n int) []ledger.Entry {
	r.t.Helper()
	var records []ledger.Entry
	r.eventually(fmt.Sprintf("%d pages are recorded", n), func() bool {
		records = r.records(func(rec *pb.Record) bool { return rec.GetOwnerPaged() != nil })
		return len(records) >= n
	})
	return records
}

func TestS102AQuarantinePagesItsOwnerOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	published, err := r.conn.SubscribeSync("page.t.>")
	if err != nil {
		t.Fatal(err)
	}
	h := testenv.NewHook[api.Page](t, func(n int, _ *http.Request) int {
		if n < 2 {
			return http.StatusBadGateway
		}
		return http.StatusOK
	})
	r.webhooks = map[string]string{"payments": h.URL}
	p := r.provide("r1")
	p.undo = refuses
	_, stop := r.host("h1")
	c := charge()
	c.Page = "payments"
	r.charged("p", "r1", c)
	if got := r.ended("p"); got.State != ledger.StateQuarantined {
		t.Fatalf("%+v", got)
	}
	first := h.Next(t)
	if first.Body.Kind != api.PageQuarantined || first.Body.Plan != "p" || first.Body.Action != "a" ||
		first.Body.Owner != "owner1" ||
		first.Body.Capability != "charge.create" || !strings.Contains(first.Body.Reason, "settled") ||
		first.Body.Hook != "payments" {
		t.Errorf("%+v", first)
	}
	for _, again := range []testenv.Post[api.Page]{h.Next(t), h.Next(t)} {
		if again.ID != first.ID || again.Body != first.Body {
			t.Errorf("%+v, then %+v", first, again)
		}
	}
	if taken := r.paged(1)[0].Record; taken.Plan != "p" || taken.Action != "a" ||
		taken.GetOwnerPaged().Hook != "payments" || taken.GetOwnerPaged().Kind != api.PageQuarantined {
		t.Errorf("%+v", taken)
	}
	// S46: another sweep, and another holder, have nothing to add. Another
	// quarantine has.
	r.caughtUp()
	stop()
	r.host("h2")
	r.charged("q", "r1", c)
	if got := r.ended("q"); got.State != ledger.StateQuarantined {
		t.Fatalf("%+v", got)
	}
	if next := h.Next(t); next.Body.Plan != "q" || next.ID == first.ID {
		t.Errorf("%+v", next)
	}
	if n := len(r.paged(2)); n != 2 || len(h.Posts) != 0 {
		t.Errorf("%d recorded, %d posts too many", n, len(h.Posts))
	}
	for _, plan := range []string{"p", "q"} {
		m, err := published.NextMsg(5 * time.Second)
		if err != nil || m.Subject != "page.t.payments" || !strings.Contains(string(m.Data), `"plan":"`+plan+`"`) ||
			m.Header.Get(nats.MsgIdHdr) == "" {
			t.Fatalf("%+v, %v", m, err)
		}
	}
	if left, _, err := published.Pending(); left != 0 || err != nil {
		t.Errorf("%d published too many, %v", left, err)
	}
}

// A page that nobody heard is not taken: it waits through a change of hosts, is seen, and
// the reply of the first who hears it is recorded, once.
func TestS102APageThatNobodyHearsStaysOpen(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.provide("r1")
	p.undo = refuses
	r.metrics = observe.NewMetrics()
	_, stop := r.host("h1")
	r.charged("p", "r1", charge())
	if got := r.ended("p"); got.State != ledger.StateQuarantined {
		t.Fatalf("%+v", got)
	}
	r.eventually("two rounds", func() bool { // and when the page was asked for
		text := testenv.Scrape(t, r.metrics.Handler())
		return strings.Contains(text, `sagenbaum_pages_total{result="failed",tenant="t"} 2`) &&
			strings.Contains(text, `sagenbaum_pages_waiting{tenant="t"} 1`) &&
			!strings.Contains(text, `sagenbaum_pages_oldest_timestamp_seconds{tenant="t"} 0`)
	})
	if records := r.records(func(rec *pb.Record) bool { return rec.GetOwnerPaged() != nil }); len(records) != 0 {
		t.Fatalf("taken by nobody: %v", records)
	}
	shown := r.status()
	if shown.Unpaged != 1 || shown.OldestPage == nil || shown.OldestPage.Plan != "p" || shown.OldestPage.Action != "a" ||
		shown.OldestPage.AtNs == 0 {
		t.Fatalf("%+v", shown.OldestPage)
	}
	var ids []string
	heard := make(chan string, 100)
	takes := make(chan bool, 1)
	sub, err := r.conn.Subscribe("page.t.default", func(m *nats.Msg) {
		heard <- m.Header.Get(nats.MsgIdHdr)
		select {
		case <-takes:
			_ = m.Respond(m.Data)
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	ids = append(ids, <-heard)
	stop() // heard, and not taken: the next host publishes it at once
	for len(heard) > 0 {
		<-heard
	}
	takes <- true
	r.host("h2")
	ids = append(ids, <-heard)
	taken := r.paged(1)
	if got := taken[0].Record; got.Plan != "p" || got.GetOwnerPaged().Hook != "default" || ids[0] != ids[1] ||
		ids[0] != ledger.FormatFullAddress(got.Cause) {
		t.Errorf("%v; heard %v", got, ids)
	}
	r.eventually("nothing waits", func() bool { return r.status().Unpaged == 0 && r.status().OldestPage == nil })
}

// An owner who answers without a page needs none: it ends with the answer.
func TestS102AnAnswerEndsAPageThatNobodyHeard(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.provide("r1")
	p.undo = refuses
	r.host("h1")
	r.charged("q", "r1", charge())
	if got := r.ended("q"); got.State != ledger.StateQuarantined {
		t.Fatalf("%+v", got)
	}
	if n := r.status().Unpaged; n != 1 {
		t.Errorf("%d pages wait", n)
	}
	r.append(ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: "ann"}, &pb.Record{Plan: "q", Action: "a",
		Kind: &pb.Record_Resolved{Resolved: &pb.Resolved{Outcome: pb.Resolution_RESOLUTION_LOST, Reason: "r", Evidence: "e",
			Actor: "ann"}}})
	r.eventually("nothing waits", func() bool { return r.status().Unpaged == 0 })
	if taken := r.records(func(rec *pb.Record) bool { return rec.GetOwnerPaged() != nil }); len(taken) != 0 {
		t.Errorf("taken by nobody: %v", taken)
	}
}

func TestS102APageThatItsHostDidNotSeeTakenComesAgainUnderItsID(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	posted := make(chan struct{})
	h := testenv.NewHook[api.Page](t, func(n int, request *http.Request) int {
		if n == 0 {
			close(posted)
			<-request.Context().Done() // until the host that asks is gone
		}
		return http.StatusOK
	})
	r.webhooks = map[string]string{api.PageDefault: h.URL}
	p := r.provide("r1")
	p.undo = refuses
	_, stop := r.host("h1")
	r.charged("p", "r1", charge())
	<-posted
	stop()
	r.host("h2")
	r.paged(1)
	if a, b := h.Next(t), h.Next(t); a != b || a.Body.Plan != "p" || len(h.Posts) != 0 {
		t.Errorf("%+v, then %+v, and %d more", a, b, len(h.Posts))
	}
}

func TestS29ARetryIsRefusedWhileAnAttemptMayLive(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.provide("r1")
	p.undo = func(n int, _ api.Command) (*api.Reply, bool) { return nil, n == 0 }
	r.host("h1")
	c := charge()
	c.Probe, c.Attempts, c.TimeoutNs = nil, 1, int64(300*time.Millisecond)
	r.charged("p", "r1", c)
	// Its worker says when it will be done, and then nothing: it may be at work.
	r.eventually("the attempt is out", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return len(p.undos) == 1 })
	p.mu.Lock()
	given := p.undos[0]
	p.mu.Unlock()
	r.append(ledger.Source{Tenant: "t", Class: ledger.ClassWorker, Name: "w1"}, &pb.Record{Plan: "p", Action: "a",
		Kind: &pb.Record_CompensationProgressed{CompensationProgressed: &pb.CompensationProgressed{Attempt: 1,
			Key: given.Key, Token: given.ReportToken, UntilNs: time.Now().Add(time.Hour).UnixNano()}}})
	if got := r.ended("p"); got.State != ledger.StateQuarantined {
		t.Fatalf("%+v", got)
	}
	if a := r.show("p").Actions[0]; a.AliveNs < time.Now().Add(50*time.Minute).UnixNano() {
		t.Errorf("%+v", a)
	}
	retry := func(force bool) (answer api.OutcomeAnswer) {
		sequence := r.append(operator("owner1"), &pb.Record{Plan: "p", Action: "a", Kind: &pb.Record_RetryRequested{
			RetryRequested: &pb.RetryRequested{Reason: "the bank is back", Actor: "owner1", Force: force}}})
		if err := r.ask("plan.outcome", api.OutcomeQuery{Plan: "p", Sequence: sequence, WaitMs: 1500}, &answer); err != nil {
			t.Fatal(err)
		}
		return answer
	}
	if got := retry(false); len(got.Refused) != 1 || !strings.Contains(got.Refused[0], "may be at work") ||
		got.State != ledger.StateQuarantined {
		t.Fatalf("%+v", got)
	}
	p.want([]string{"r1"}, nil, 1)
	if got := retry(true); len(got.Refused) != 0 {
		t.Fatalf("%+v", got)
	}
	if got := r.ended("p"); got.State != ledger.StateCompensated {
		t.Fatalf("%+v", got)
	}
	p.want(nil, []string{"r1"}, 2)
	wantOneKey(t, p, 1, 2)
}

func TestS32UndosAreListedByPlanActionAndCapability(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.provide("r1", "r2", "r3")
	p.undo = func(n int, _ api.Command) (*api.Reply, bool) {
		return &api.Reply{Status: api.StatusFailed, Code: "rate_limit"}, n == 0
	}
	r.host("h1")
	r.charged("p", "r1", charge())
	r.ended("p")
	r.charged("q", "r2", charge())
	r.ended("q")
	for _, c := range []struct {
		query api.UndoQuery
		want  string
	}{
		{api.UndoQuery{Plan: "p"}, "[p/a#1 failed p/a#2 done]"},
		{api.UndoQuery{Plan: "q", Action: "a"}, "[q/a#1 done]"},
		{api.UndoQuery{Capability: "charge.create"}, "[p/a#1 failed p/a#2 done q/a#1 done]"},
		{api.UndoQuery{Capability: "charge.create", Limit: 1}, "[p/a#1 failed p/a#2 done q/a#1 done]"},
		{api.UndoQuery{Capability: "charge.refund"}, "[]"},
	} {
		var got []string
		for more := true; more; more = c.query.After != "" {
			var answer api.UndosAnswer
			if err := r.ask("undo.ls", c.query, &answer); err != nil || answer.Undos == nil {
				t.Fatalf("%+v: %v %+v", c.query, err, answer)
			}
			for _, u := range answer.Undos {
				got = append(got, fmt.Sprintf("%s/%s#%d %s", u.Plan, u.Action, u.Attempt, u.State))
			}
			c.query.After = answer.Next
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%+v: %v, want %s", c.query, got, c.want)
		}
	}
	for _, query := range []api.UndoQuery{{}, {Plan: "nothing"}, {Plan: "p", Action: "nothing"}} {
		var answer api.UndosAnswer
		if err := r.ask("undo.ls", query, &answer); err == nil || answer.Undos == nil {
			t.Errorf("%+v: %v %+v", query, err, answer)
		}
	}
}
