package page

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/actuators"
	"github.com/sagenbaum/sagenbaum/executor/host/observe"
	"github.com/sagenbaum/sagenbaum/executor/host/webclient"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// rig is a server with a connection.
type rig struct{ conn *nats.Conn }

func newRig(t *testing.T) *rig {
	t.Helper()
	srv, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); srv.Close() })
	return &rig{conn}
}

// pagerOn makes a pager on the rig's server.
func pagerOn(t *testing.T, r *rig, webhooks map[string]string) *Pager {
	t.Helper()
	actuator, err := actuators.NewNATS(actuators.Config{Conn: r.conn, Tenant: "t"})
	if err != nil {
		t.Fatal(err)
	}
	client, workers := webclient.New(), new(sync.WaitGroup)
	p := New(t.Context(), new(turn.Pages), Config{Tenant: "t", Publisher: actuator, Client: client, Webhooks: webhooks,
		Meter: (*observe.Meter)(nil), Workers: workers, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() {
		p.Stop()
		_ = actuator.Close()
		workers.Wait()
		client.CloseIdleConnections()
	})
	return p
}

// Add has pages leave, as a session has it.
func (p *Pager) Add(pages []executor.Page) {
	p.Lock()
	defer p.Unlock()
	for _, page := range pages {
		p.pages.Send(page, false, p)
	}
}

// Recorded has a session say that the ledger has settled a page.
func (p *Pager) Recorded(key turn.PageKey) {
	p.Lock()
	defer p.Unlock()
	p.pages.End(key, p)
}

// Taken are the pages that a session records next.
func (p *Pager) Taken() []executor.Paged {
	p.Lock()
	defer p.Unlock()
	return p.pages.Taken()
}

func quarantinePage(n int, hook string) executor.Page {
	return executor.Page{Number: uint32(n), Page: api.Page{
		ID: fmt.Sprintf("%d.0-ab", n), Kind: api.PageQuarantined, Hook: hook, Tenant: "t",
		Plan: "p", Action: fmt.Sprintf("a%d", n), Reason: "attempts spent", AtNs: time.Now().UnixNano(),
	}}
}

// waitTaken waits until n pages are taken and not recorded.
func waitTaken(t *testing.T, p *Pager, n int) []executor.Paged {
	t.Helper()
	late := time.After(testenv.Patience)
	for {
		p.mu.Lock()
		taken := p.pages.Len() - len(p.rounds)
		p.mu.Unlock()
		if taken >= n {
			return p.Taken()
		}
		select {
		case <-p.wake:
		case <-late:
			t.Fatalf("%d pages are taken, want %d", taken, n)
		}
	}
}

// TestAPageIsNotSentOfATenantThatWasGivenUp: another host sends it, and hears who has taken it.
func TestAPageIsNotSentOfATenantThatWasGivenUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var posts atomic.Int32
	h := testenv.NewHook[api.Page](t, func(int, *http.Request) int {
		if posts.Add(1) == 1 {
			return http.StatusServiceUnavailable // and the tenant is given up
		}
		return http.StatusOK
	})
	p := pagerOn(t, r, map[string]string{"payments": h.URL})
	p.Stays = func() bool { return posts.Load() == 0 }
	p.Add([]executor.Page{quarantinePage(1, "payments")})
	p.Workers.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := posts.Load(); n != 1 || p.pages.Len() != 1 {
		t.Errorf("%d posts, %d pages that are not taken, want 1 and 1", n, p.pages.Len())
	}
}

func TestS102APageIsPublishedAndPostedUntilItsHookTakesIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub, err := r.conn.SubscribeSync("page.t.>")
	if err != nil {
		t.Fatal(err)
	}
	h := testenv.NewHook[api.Page](t, func(n int, _ *http.Request) int {
		return []int{http.StatusServiceUnavailable, http.StatusFound, http.StatusNotFound, http.StatusOK}[min(n, 3)]
	})
	p := pagerOn(t, r, map[string]string{"payments": h.URL + "/payments"})
	want := quarantinePage(1, "payments")
	p.Add([]executor.Page{want})
	p.Add([]executor.Page{want})
	for i, status := range []int{503, 302, 404, 200} {
		got := h.Next(t)
		if got.Status != status || got.Path != "/payments" || got.ID != want.ID || got.ContentType != "application/json" ||
			got.Body != want.Page {
			t.Errorf("post %d: %+v", i, got)
		}
	}
	if taken := waitTaken(t, p, 1); len(taken) != 1 ||
		taken[0] != (executor.Paged{Plan: "p", Number: 1, Kind: api.PageQuarantined, Hook: "payments"}) {
		t.Errorf("%+v", taken)
	}
	p.Add([]executor.Page{want}) // taken, not recorded yet: as a new holder's list would have it
	p.mu.Lock()
	if at := p.pages.At(keyOf("a1", api.PageQuarantined)); at == nil || p.rounds[at] != nil {
		t.Error("taken, and still to be published")
	}
	p.mu.Unlock()
	m, err := sub.NextMsg(5 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var page api.Page
	if err := json.Unmarshal(m.Data, &page); err != nil || page != want.Page || m.Subject != "page.t.payments" ||
		m.Header.Get(nats.MsgIdHdr) != want.ID {
		t.Errorf("%s %v %s: %v", m.Subject, m.Header, m.Data, err)
	}
	p.Recorded(keyOf("a1", api.PageQuarantined))
	if left := p.Taken(); len(left) != 0 {
		t.Errorf("recorded and still to be recorded: %+v", left)
	}
	// A second quarantine of the same action is a page of its own.
	again := want
	again.ID = "9.0-cd"
	p.Add([]executor.Page{again})
	if got := h.Next(t); got.ID != again.ID {
		t.Errorf("%+v", got)
	}
	for m := want.ID; m == want.ID; { // the first one came again while its hook did not take it
		next, err := sub.NextMsg(5 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		m = next.Header.Get(nats.MsgIdHdr)
	}
	if n := len(h.Posts); n != 0 {
		t.Errorf("%d posts too many", n)
	}
}

// listen takes what is published for a hook of tenant t, with the answer that take gives;
// nil: it only listens.
func listen(t *testing.T, r *rig, hook string, take func(m *nats.Msg, page api.Page) []byte) chan api.Page {
	t.Helper()
	heard := make(chan api.Page, 1000)
	sub, err := r.conn.Subscribe("page.t."+hook, func(m *nats.Msg) {
		var page api.Page
		if err := json.Unmarshal(m.Data, &page); err != nil || m.Reply == "" {
			t.Errorf("%s, reply to %q: %v", m.Data, m.Reply, err)
		}
		heard <- page
		if body := take(m, page); body != nil {
			if err := m.Respond(body); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	if err := r.conn.Flush(); err != nil {
		t.Fatal(err)
	}
	return heard
}

func echoes(m *nats.Msg, _ api.Page) []byte { return m.Data }

// untaken reports that no page is taken.
func untaken(t *testing.T, p *Pager) {
	t.Helper()
	if taken := p.Taken(); len(taken) != 0 {
		t.Fatalf("taken by nobody: %+v", taken)
	}
}

// told is a publisher that tells what came of each page.
type told struct {
	Publisher
	results chan actuators.Result
}

func (p told) Page(subject, id string, body []byte, timeout time.Duration, done func(actuators.Result)) {
	p.Publisher.Page(subject, id, body, timeout, func(r actuators.Result) {
		done(r)
		p.results <- r
	})
}

// A page is taken by whoever repeats its id, and by nobody else: not by the server that has
// it, not by who only listens, not by another answer, not by a stream that stores it.
func TestAPageIsTakenByAReply(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := pagerOn(t, r, nil)
	refused := make(chan string, 10)
	actuator, err := actuators.NewNATS(actuators.Config{Conn: r.conn, Tenant: "t", Refused: func(r actuators.Refusal) {
		if r.Reason != actuators.RefusedUnknown { // of the rig's own
			refused <- r.Reason
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = actuator.Close() }()
	_ = p.Publisher.(*actuators.NATS).Close() // the server tells one subscription that nobody listens
	results := make(chan actuators.Result, 100)
	p.Publisher = told{actuator, results}
	page := quarantinePage(1, "payments")
	p.Add([]executor.Page{page})
	if got := <-results; got.Fate != actuators.NoWorker {
		t.Errorf("nobody listens: %+v", got)
	}
	untaken(t, p)
	answers := []string{"", `{"stream":"PAGES","seq":1}`, "yes", `{"id":"2.0-ab"}`,
		fmt.Sprintf(`{"id":%q,"by":"ann"}`, page.ID)}
	n := 0
	heard := listen(t, r, "payments", func(*nats.Msg, api.Page) []byte {
		n++
		return []byte(answers[min(n, len(answers))-1])
	})
	p.mu.Lock()
	at := p.pages.At(keyOf("a1", api.PageQuarantined))
	p.mu.Unlock()
	for i := range answers { // time passes: round after round
		untaken(t, p)
		p.mu.Lock()
		p.rounds[at].Stop()
		p.round(at)
		p.mu.Unlock()
		if got := <-heard; got.ID != page.ID {
			t.Errorf("%+v", got)
		}
		if want := map[int]string{0: actuators.RefusedUnreadable, 2: actuators.RefusedUnreadable,
			3: actuators.RefusedEcho}[i]; want != "" {
			if got := <-refused; got != want { // what came before it has been looked at
				t.Errorf("answer %d: %s", i, got)
			}
		}
	}
	want := executor.Paged{Plan: "p", Number: 1, Kind: api.PageQuarantined, Hook: "payments"}
	if taken := waitTaken(t, p, 1); taken[0] != want {
		t.Errorf("%+v", taken)
	}
}

// What nobody takes comes again, ever later, and for operators as well when it is old
// enough, also for a host that finds it old.
func TestAPageThatNobodyTakesIsEscalated(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	owners := listen(t, r, "payments", func(*nats.Msg, api.Page) []byte { return nil })
	operators := listen(t, r, api.PageOperators, echoes)
	p := pagerOn(t, r, nil)
	p.pages.EscalateNs = int64(2 * time.Second)
	page := quarantinePage(1, "payments")
	p.Add([]executor.Page{page})
	if taken := waitTaken(t, p, 1); taken[0].Hook != api.PageOperators {
		t.Errorf("%+v", taken)
	}
	want := page.Page
	if got := <-owners; got != want {
		t.Errorf("%+v", got)
	}
	want.Escalated = true
	if got := <-operators; got != want || len(owners) == 0 {
		t.Errorf("%+v; %d more for its owner", got, len(owners))
	}
	old := quarantinePage(2, "payments")
	old.AtNs -= int64(time.Hour)
	second := pagerOn(t, r, nil) // after a restart: at once
	second.Add([]executor.Page{old})
	if got := <-operators; got.ID != old.ID || !got.Escalated {
		t.Errorf("%+v", got)
	}
	waitTaken(t, second, 1)
}

// The webhook of operators gets it once; one that is the owner's own gets nothing twice.
func TestAnEscalatedPageIsPostedToOperators(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	deaf := testenv.NewHook[api.Page](t, func(int, *http.Request) int { return http.StatusInternalServerError })
	h := testenv.NewHook[api.Page](t, testenv.Takes)
	p := pagerOn(t, r, map[string]string{"payments": deaf.URL, api.PageOperators: h.URL})
	old := quarantinePage(1, "payments")
	old.AtNs -= int64(time.Hour)
	p.Add([]executor.Page{old})
	if got := h.Next(t); got.ID != old.ID || !got.Body.Escalated || got.Body.Hook != "payments" {
		t.Errorf("%+v", got)
	}
	if taken := waitTaken(t, p, 1); taken[0].Hook != api.PageOperators {
		t.Errorf("%+v", taken)
	}
	escalated := api.Page{Kind: api.PageQuarantined, Hook: "payments", Escalated: true}
	if slack := string(bodyOf(formatSlack, escalated)); !strings.Contains(slack, "payments") {
		t.Errorf("operators are not told whose it was: %s", slack)
	}
}

func TestRoundsGrowWithTheAgeOfThePage(t *testing.T) {
	t.Parallel()
	age, rounds := time.Duration(0), 0
	for ; age < 24*time.Hour; rounds++ {
		pause := time.Duration(turn.RoundPause(int64(age)))
		if pause < turn.RoundMin || pause > turn.RoundMax {
			t.Fatalf("%s at %s", pause, age)
		}
		age += pause
	}
	if rounds < 96 || rounds > 110 {
		t.Errorf("%d rounds in a day", rounds)
	}
}

// keyOf is the key of a page about an action of plan p.
func keyOf(action, kind string) turn.PageKey {
	return turn.PageKey{About: turn.About{Plan: "p", Action: action}, Kind: kind}
}

// An owner who has answered needs no page any more; neither does an operator when a worker
// has come.
func TestAnsweredPagesComeNoMore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := pagerOn(t, r, nil)
	p.Add([]executor.Page{quarantinePage(1, "payments")})
	stuck := api.Page{ID: "stuck-1", Kind: api.PageStuckWorker, Hook: api.PageOperators, Plan: "p", Action: "a1",
		AtNs: time.Now().UnixNano()}
	p.Tell(stuck)
	p.Recorded(keyOf("a1", api.PageQuarantined))
	p.Recorded(keyOf("a1", api.PageStuckWorker)) // no record is about it
	p.mu.Lock()
	if p.pages.Len() != 1 {
		t.Errorf("%v", p.pages.All())
	}
	p.mu.Unlock()
	p.Withdraw(stuck)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pages.Len() != 0 || len(p.rounds) != 0 {
		t.Errorf("%v", p.pages.All())
	}
}

func TestAPageTakesThePlaceOfTheOneBefore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	heard := listen(t, r, "default", func(m *nats.Msg, page api.Page) []byte {
		if page.ID == "1.0-ab" {
			return m.Data
		}
		return nil
	})
	p := pagerOn(t, r, nil)
	p.Add([]executor.Page{quarantinePage(1, "default")})
	waitTaken(t, p, 1)
	later := quarantinePage(1, "default")
	later.ID = "8.0-ef"
	p.Add([]executor.Page{later})
	<-heard
	<-heard
	if taken := p.Taken(); len(taken) != 0 {
		t.Errorf("%+v: recorded now, the earlier page would count for the later one", taken)
	}
}

func TestASlowHookStopsNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	gate := make(chan struct{})
	slow := testenv.NewHook[api.Page](t, func(_ int, request *http.Request) int {
		select {
		case <-gate:
		case <-request.Context().Done():
		}
		return http.StatusOK
	})
	fast := testenv.NewHook[api.Page](t, testenv.Takes)
	p := pagerOn(t, r, map[string]string{"slow": slow.URL, api.PageDefault: fast.URL})
	var pages []executor.Page
	for i := 1; i <= 20; i++ {
		pages = append(pages, quarantinePage(i, "slow"), quarantinePage(100+i, "payments"))
	}
	pages = append(pages, quarantinePage(200, "other"))
	p.Add(pages)
	for _, got := range waitTaken(t, p, 21) {
		if got.Hook == "slow" {
			t.Errorf("%+v was taken by a hook that waits", got)
		}
	}
	p.mu.Lock()
	if running := p.queueOf("slow").running; running != pagesAtOnce {
		t.Errorf("%d at once on their way to the slow hook, want %d", running, pagesAtOnce)
	}
	p.mu.Unlock()
	close(gate)
	waitTaken(t, p, 41)
}

func TestAPageThatIsNeverTakenKeepsNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h := testenv.NewHook[api.Page](t, func(_ int, request *http.Request) int {
		if request.Header.Get("Idempotency-Key") == "1.0-ab" {
			return http.StatusBadRequest
		}
		return http.StatusOK
	})
	p := pagerOn(t, r, map[string]string{api.PageDefault: h.URL})
	var pages []executor.Page
	for i := 1; i <= 10; i++ {
		pages = append(pages, quarantinePage(i, "default"))
	}
	p.Add(pages)
	if taken := waitTaken(t, p, 9); len(taken) != 9 {
		t.Errorf("%+v", taken)
	}
}

func TestAPageThatWasNotRecordedComesAgainUnderItsID(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h := testenv.NewHook[api.Page](t, testenv.Takes)
	webhooks := map[string]string{api.PageDefault: h.URL}
	page := []executor.Page{quarantinePage(1, "default")}
	first := pagerOn(t, r, webhooks)
	first.Add(page)
	waitTaken(t, first, 1)
	first.Stop() // killed before its record
	first.Add([]executor.Page{quarantinePage(2, "default")})
	second := pagerOn(t, r, webhooks)
	second.Add(page)
	waitTaken(t, second, 1)
	if a, b := h.Next(t), h.Next(t); a != b || a.ID != "1.0-ab" {
		t.Errorf("%+v, then %+v", a, b)
	}
	if len(h.Posts) != 0 {
		t.Error("posted after its term")
	}
}

func TestMorePagesThanFitWaitInTheState(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h := testenv.NewHook[api.Page](t, testenv.Takes)
	p := pagerOn(t, r, map[string]string{api.PageDefault: h.URL})
	h.Posts = make(chan testenv.Post[api.Page], turn.PageQueueMax+200)
	var pages []executor.Page
	for i := range turn.PageQueueMax + 100 {
		pages = append(pages, quarantinePage(i+1, "default"))
	}
	p.mu.Lock()
	p.queueOf("default").until = time.Now().Add(100 * time.Millisecond)
	p.mu.Unlock()
	p.Add(pages)
	p.mu.Lock()
	if p.pages.Len() != turn.PageQueueMax || p.pages.HasRoom() {
		t.Errorf("%d wait", p.pages.Len())
	}
	p.mu.Unlock()
	late := time.After(testenv.Patience)
	for freed := false; !freed; {
		p.mu.Lock()
		freed = p.pages.Freed()
		p.mu.Unlock()
		if freed {
			break
		}
		select {
		case <-p.wake:
		case <-late:
			t.Fatal("there is never room again")
		}
	}
	p.Add(pages)
	if first := waitTaken(t, p, len(pages)); len(first) != turn.PagedMax {
		t.Errorf("%d are to be recorded at once", len(first))
	} else {
		p.mu.Lock()
		if !p.pages.Settled(len(first), p) {
			t.Error("no more are to be recorded")
		}
		p.mu.Unlock()
	}
	if next := p.Taken(); len(next) != turn.PagedMax {
		t.Errorf("%d are to be recorded next", len(next))
	}
}

func TestPausesGrowAndStayBounded(t *testing.T) {
	t.Parallel()
	for fails := 1; fails < 80; fails++ {
		whole := pageRetryMax
		if fails < 11 {
			whole = min(pageRetryMin<<(fails-1), pageRetryMax)
		}
		if d := pagePause(fails); d > whole || d < whole/2 {
			t.Errorf("after %d failures %s, want %s at most and half of it at least", fails, d, whole)
		}
	}
}

func TestAWebhookIsReachedInTheClearOnThisMachineOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ hook, url, problem string }{
		{"default", "https://pager.example.com/T000/secret", ""},
		{"default", "http://127.0.0.1:8080/", ""},
		{"default", "http://[::1]:8080/", ""},
		{"default", "http://localhost/x", ""},
		{"default", "http://pager.example.com/T000/secret", "in the clear"},
		{"default", "http://127.0.0.1.example.com/secret", "in the clear"},
		{"default", "ftp://pager.example.com/secret", "scheme"},
		{"default", "pager.example.com/secret", "no URL"},
		{"default", "https:///secret", "no URL"},
		{"default", "", "no URL"},
		{"default", "https://pager.example.com/\nsecret", "no URL"},
		{"a.b", "https://pager.example.com/", "no name"},
	} {
		err := CheckWebhook(c.hook, c.url)
		switch {
		case c.problem == "" && err != nil:
			t.Errorf("%s: %v", c.url, err)
		case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem) ||
			strings.Contains(err.Error(), "secret")):
			t.Errorf("%q: %v, want %q and nothing of the path", c.url, err, c.problem)
		}
	}
}

func TestNoSecretOfAWebhookIsInItsErrors(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := pagerOn(t, r, nil)
	gone := httptest.NewServer(http.NotFoundHandler())
	webhook := gone.URL + "/secret"
	gone.Close()
	err := p.deliver(t.Context(), webhook, api.PageDefault, "1.0-ab", nil)
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}

// TestAHookWhosePagesNoOneTakesKeepsNoOthersOut: neither where the other one listens over
// NATS, nor where both are posted to one webhook.
func TestAHookWhosePagesNoOneTakesKeepsNoOthersOut(t *testing.T) {
	t.Parallel()
	var ignored []executor.Page
	for i := range turn.PageQueueMax + 1 {
		ignored = append(ignored, quarantinePage(i+1, "ignored"))
	}
	heard := quarantinePage(turn.PageQueueMax+10, "payments")
	t.Run("over NATS", func(t *testing.T) {
		r := newRig(t)
		sub, err := r.conn.Subscribe(api.PageSubject("t", "payments"), func(m *nats.Msg) { _ = m.Respond(m.Data) })
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sub.Unsubscribe() }()
		p := pagerOn(t, r, nil)
		p.Add(append(ignored, heard))
		if paged := waitTaken(t, p, 1); paged[0].Number != heard.Number || paged[0].Hook != "payments" {
			t.Errorf("%+v is taken", paged)
		}
	})
	t.Run("at one webhook", func(t *testing.T) {
		h := testenv.NewHook[api.Page](t, testenv.Takes)
		p := pagerOn(t, newRig(t), map[string]string{api.PageDefault: h.URL})
		p.mu.Lock()
		p.queueOf("ignored").until = time.Now().Add(time.Hour) // it fails for long
		p.mu.Unlock()
		p.Add(append(ignored, heard))
		p.mu.Lock()
		defer p.mu.Unlock()
		if n := p.pages.Len(); n != turn.PageQueueMax+1 {
			t.Errorf("%d pages wait", n)
		}
	})
}
