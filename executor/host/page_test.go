package host

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// hook is a webhook that answers as it is told and keeps what was posted.
type hook struct {
	*httptest.Server
	posts chan post
}

type post struct {
	path, id, contentType string
	page                  ledger.Page
	status                int // that was answered
}

// newHook answers the n-th post, from 0, with the status that answer gives.
func newHook(t *testing.T, answer func(n int, r *http.Request) int) *hook {
	t.Helper()
	h := &hook{posts: make(chan post, 1000)}
	var mu sync.Mutex
	n := 0
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		p := post{path: r.URL.Path, id: r.Header.Get("Idempotency-Key"), contentType: r.Header.Get("Content-Type")}
		if err != nil || r.Method != http.MethodPost || json.Unmarshal(body, &p.page) != nil {
			t.Errorf("%s %s: %s, %v", r.Method, r.URL, body, err)
		}
		mu.Lock()
		number := n
		n++
		mu.Unlock()
		p.status = answer(number, r)
		h.posts <- p
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(p.status)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) next(t *testing.T) post {
	t.Helper()
	select {
	case p := <-h.posts:
		return p
	case <-time.After(20 * time.Second):
		t.Fatal("nothing is posted")
		return post{}
	}
}

func takes(int, *http.Request) int { return http.StatusNoContent }

// pagerOn makes a pager of a session of its own on the rig's server.
func pagerOn(t *testing.T, r *rig, webhooks map[string]string) *pager {
	t.Helper()
	session, end := context.WithCancel(t.Context())
	log := slog.New(slog.DiscardHandler)
	a := &actor{host: &Host{cfg: Config{Conn: r.conn, Webhooks: webhooks}, hooks: newHookClient()}, tenant: "t", log: log, session: session}
	p := a.newPager()
	t.Cleanup(func() {
		p.stop()
		end()
		a.paging.Wait()
		a.host.hooks.CloseIdleConnections()
	})
	return p
}

func quarantinePage(n int, hook string) executor.Page {
	return executor.Page{Number: uint32(n), Page: ledger.Page{
		ID: fmt.Sprintf("%d.0-ab", n), Kind: ledger.PageQuarantined, Hook: hook, Tenant: "t",
		Plan: "p", Action: fmt.Sprintf("a%d", n), Reason: "attempts spent",
	}}
}

// waitTaken waits until n pages are taken and not recorded.
func waitTaken(t *testing.T, p *pager, n int) []executor.Paged {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		p.mu.Lock()
		taken := len(p.done)
		p.mu.Unlock()
		if taken >= n {
			return p.taken()
		}
		select {
		case <-p.wake:
		case <-late:
			t.Fatalf("%d pages are taken, want %d", taken, n)
		}
	}
}

func TestS102APageIsPublishedAndPostedUntilItsHookTakesIt(t *testing.T) {
	r := newRig(t)
	sub, err := r.conn.SubscribeSync("page.t.>")
	if err != nil {
		t.Fatal(err)
	}
	h := newHook(t, func(n int, _ *http.Request) int {
		return []int{http.StatusServiceUnavailable, http.StatusFound, http.StatusNotFound, http.StatusOK}[min(n, 3)]
	})
	p := pagerOn(t, r, map[string]string{"payments": h.URL + "/payments"})
	want := quarantinePage(1, "payments")
	p.add([]executor.Page{want})
	p.add([]executor.Page{want})
	for i, status := range []int{503, 302, 404, 200} {
		got := h.next(t)
		if got.status != status || got.path != "/payments" || got.id != want.ID || got.contentType != "application/json" || got.page != want.Page {
			t.Errorf("post %d: %+v", i, got)
		}
	}
	if taken := waitTaken(t, p, 1); len(taken) != 1 || taken[0] != (executor.Paged{Plan: "p", Number: 1, Kind: ledger.PageQuarantined, Hook: "payments"}) {
		t.Errorf("%+v", taken)
	}
	p.add([]executor.Page{want}) // taken, not recorded yet: as a new holder's list would have it
	m, err := sub.NextMsg(5 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var page ledger.Page
	if err := json.Unmarshal(m.Data, &page); err != nil || page != want.Page || m.Subject != "page.t.payments" || m.Header.Get(nats.MsgIdHdr) != want.ID {
		t.Errorf("%s %v %s: %v", m.Subject, m.Header, m.Data, err)
	}
	p.recorded(pageKey{"p", "a1", ledger.PageQuarantined, "payments"})
	if left := p.taken(); len(left) != 0 {
		t.Errorf("recorded and still to be recorded: %+v", left)
	}
	// A second quarantine of the same action is a page of its own.
	again := want
	again.ID = "9.0-cd"
	p.add([]executor.Page{again})
	if got := h.next(t); got.id != again.ID {
		t.Errorf("%+v", got)
	}
	if m, err := sub.NextMsg(5 * time.Second); err != nil || m.Header.Get(nats.MsgIdHdr) != again.ID {
		t.Errorf("%+v, %v: published more than once?", m, err)
	}
	if n := len(h.posts); n != 0 {
		t.Errorf("%d posts too many", n)
	}
}

func TestAPageTakesThePlaceOfTheOneBefore(t *testing.T) {
	r := newRig(t)
	p := pagerOn(t, r, nil)
	p.add([]executor.Page{quarantinePage(1, "default")})
	waitTaken(t, p, 1)
	later := quarantinePage(1, "default")
	later.ID = "8.0-ef"
	p.mu.Lock()
	p.lane("default").until = time.Now().Add(time.Hour) // the later one is still on its way
	p.mu.Unlock()
	p.add([]executor.Page{later})
	if taken := p.taken(); len(taken) != 0 {
		t.Errorf("%+v: recorded now, the earlier page would count for the later one", taken)
	}
}

func TestASlowHookStopsNoOther(t *testing.T) {
	r := newRig(t)
	gate := make(chan struct{})
	slow := newHook(t, func(_ int, request *http.Request) int {
		select {
		case <-gate:
		case <-request.Context().Done():
		}
		return http.StatusOK
	})
	fast := newHook(t, takes)
	p := pagerOn(t, r, map[string]string{"slow": slow.URL, ledger.PageDefault: fast.URL})
	var pages []executor.Page
	for i := 1; i <= 20; i++ {
		pages = append(pages, quarantinePage(i, "slow"), quarantinePage(100+i, "payments"))
	}
	pages = append(pages, quarantinePage(200, "other"))
	p.add(pages)
	for _, got := range waitTaken(t, p, 21) {
		if got.Hook == "slow" {
			t.Errorf("%+v was taken by a hook that waits", got)
		}
	}
	p.mu.Lock()
	if running := p.lane("slow").running; running != pagesAtOnce {
		t.Errorf("%d at once on their way to the slow hook, want %d", running, pagesAtOnce)
	}
	p.mu.Unlock()
	close(gate)
	waitTaken(t, p, 41)
}

func TestAPageThatIsNeverTakenKeepsNoOther(t *testing.T) {
	r := newRig(t)
	h := newHook(t, func(_ int, request *http.Request) int {
		if request.Header.Get("Idempotency-Key") == "1.0-ab" {
			return http.StatusBadRequest
		}
		return http.StatusOK
	})
	p := pagerOn(t, r, map[string]string{ledger.PageDefault: h.URL})
	var pages []executor.Page
	for i := 1; i <= 10; i++ {
		pages = append(pages, quarantinePage(i, "default"))
	}
	p.add(pages)
	if taken := waitTaken(t, p, 9); len(taken) != 9 {
		t.Errorf("%+v", taken)
	}
}

func TestAPageThatWasNotRecordedComesAgainUnderItsID(t *testing.T) {
	r := newRig(t)
	h := newHook(t, takes)
	webhooks := map[string]string{ledger.PageDefault: h.URL}
	first := pagerOn(t, r, webhooks)
	first.add([]executor.Page{quarantinePage(1, "default")})
	waitTaken(t, first, 1)
	first.stop() // killed before its record
	first.add([]executor.Page{quarantinePage(2, "default")})
	second := pagerOn(t, r, webhooks)
	second.add([]executor.Page{quarantinePage(1, "default")})
	waitTaken(t, second, 1)
	if a, b := h.next(t), h.next(t); a != b || a.id != "1.0-ab" {
		t.Errorf("%+v, then %+v", a, b)
	}
	if len(h.posts) != 0 {
		t.Error("posted after its term")
	}
}

func TestMorePagesThanFitWaitInTheState(t *testing.T) {
	r := newRig(t)
	p := pagerOn(t, r, nil)
	var pages []executor.Page
	for i := range pageQueueMax + 100 {
		pages = append(pages, quarantinePage(i+1, "default"))
	}
	p.mu.Lock()
	p.lane("default").until = time.Now().Add(100 * time.Millisecond)
	p.mu.Unlock()
	p.add(pages)
	p.mu.Lock()
	if l := p.lane("default"); len(l.queue) != pageQueueMax || !l.short {
		t.Errorf("%d wait, short %v", len(l.queue), l.short)
	}
	p.mu.Unlock()
	late := time.After(20 * time.Second)
	for !p.hasRoom() {
		select {
		case <-p.wake:
		case <-late:
			t.Fatal("there is never room again")
		}
	}
	p.add(pages)
	if first := waitTaken(t, p, len(pages)); len(first) != pagedMax {
		t.Errorf("%d are to be recorded at once", len(first))
	} else {
		p.forgetTaken(first)
	}
	<-p.wake
	if next := p.taken(); len(next) != pagedMax {
		t.Errorf("%d are to be recorded next", len(next))
	}
}

func TestPausesGrowAndStayBounded(t *testing.T) {
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
		case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem) || strings.Contains(err.Error(), "secret")):
			t.Errorf("%q: %v, want %q and nothing of the path", c.url, err, c.problem)
		}
	}
}

func TestNoSecretOfAWebhookIsInItsErrors(t *testing.T) {
	r := newRig(t)
	p := pagerOn(t, r, nil)
	gone := httptest.NewServer(http.NotFoundHandler())
	webhook := gone.URL + "/secret"
	gone.Close()
	err := p.post(t.Context(), webhook, "1.0-ab", nil)
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}
