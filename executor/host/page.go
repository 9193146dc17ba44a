package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// pageKey is what a page is about: a later page about the same takes the place of
// an earlier one.
type pageKey struct{ plan, action, kind, hook string }

// letter is one page on its way, or taken and not yet recorded.
type letter struct {
	key       pageKey
	page      executor.Page
	published bool // on NATS
	told      bool // it is about this host and no row of the state: nothing is recorded of it
}

// lane delivers the pages of one webhook, or of none, so that a slow one holds up
// nobody else. Its fields are guarded by pager.mu.
type lane struct {
	webhook string // URL; empty: NATS only
	queue   []*letter
	running int       // goroutines, at most pagesAtOnce
	fails   int       // in a row
	until   time.Time // nothing is tried before
	short   bool      // pages were left in the state for want of room here
}

// pager takes the pages of one tenant to owners during one term: it publishes each
// on NATS and posts it to the webhook of its hook, until that has taken it. It
// remembers nothing: what is not recorded as taken is sent again in the next term,
// under the same id.
type pager struct {
	tenant   string
	conn     *nats.Conn
	client   *http.Client
	webhooks map[string]string // hook -> URL
	keys     [][]byte          // that posts are signed with
	log      *slog.Logger
	wake     chan struct{} // buffered 1: pages were taken, or there is room again

	until   context.Context // ends with stop
	end     context.CancelFunc
	workers *sync.WaitGroup // the session's: counts the goroutines of lanes

	mu      sync.Mutex
	lanes   map[string]*lane // by URL: at most one more than webhooks
	letters map[pageKey]*letter
	done    []*letter // taken, in order
	room    bool      // a lane that was short has room
	stopped bool

	meter *meter // nil: none
	shown int    // letters, as the meter has them
}

func (a *actor) newPager() *pager {
	until, end := context.WithCancel(a.session)
	return &pager{
		tenant: a.tenant, conn: a.host.cfg.Conn, client: a.host.hooks, webhooks: a.host.cfg.Webhooks, keys: a.host.cfg.WebhookKeys, log: a.log,
		wake: make(chan struct{}, 1), until: until, end: end, workers: &a.paging,
		lanes: map[string]*lane{}, letters: map[pageKey]*letter{}, meter: a.meter,
	}
}

// CheckWebhook checks where the pages of a hook are to be posted: https, or http
// to this machine, with slack+ or teams+ before it for a chat. Errors: *ledger.Refused with field "Webhooks[<hook>]"; no error
// shows the URL, which may be a secret.
func CheckWebhook(hook, webhook string) error {
	field := fmt.Sprintf("Webhooks[%s]", hook)
	if !ledger.ValidToken(hook) {
		return ledger.Refuse(field, fmt.Sprintf("%q is no name of a hook", hook), "1 to 64 letters, digits, '-' or '_'")
	}
	_, webhook = splitWebhook(webhook)
	u, err := url.Parse(webhook)
	switch {
	case err != nil || u.Hostname() == "":
		return ledger.Refuse(field, "no URL", "https://HOST/PATH")
	case u.Scheme == "https", u.Scheme == "http" && onThisMachine(u.Hostname()):
		return nil
	case u.Scheme == "http":
		return ledger.Refuse(field, "pages would cross the network in the clear", "https; http is for this machine only")
	default:
		return ledger.Refuse(field, fmt.Sprintf("the scheme %q", u.Scheme), "https; http is for this machine only")
	}
}

func onThisMachine(host string) bool {
	address := net.ParseIP(host)
	return host == "localhost" || address != nil && address.IsLoopback()
}

// newHookClient makes what posts pages. A redirect is an answer like any other
// that is not 2xx: a page goes where the operator has said.
func newHookClient() *http.Client {
	return &http.Client{
		Transport:     http.DefaultTransport.(*http.Transport).Clone(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// add takes pages on their way, each once. The goroutines that it starts end with
// their lane's queue, or with stop.
func (p *pager) add(pages []executor.Page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.measure()
	if p.stopped {
		return
	}
	for _, page := range pages {
		key := pageKey{page.Plan, page.Action, page.Kind, page.Hook}
		if old := p.letters[key]; old != nil && old.page.ID == page.ID {
			continue
		}
		if l := p.lane(page.Hook); len(l.queue) >= pageQueueMax {
			l.short = true
			continue
		}
		p.queue(&letter{key: key, page: page})
	}
}

// tell takes a page about this host on its way, which no row of the state stands
// behind: whoever gives it does so once for each id, and again in the next term while
// there is reason to.
func (p *pager) tell(page ledger.Page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.measure()
	key := pageKey{page.Plan, page.Action, page.Kind, page.Hook}
	if old := p.letters[key]; p.stopped || old != nil && old.page.ID == page.ID || len(p.lane(page.Hook).queue) >= pageQueueMax {
		return
	}
	p.queue(&letter{key: key, page: executor.Page{Page: page}, told: true})
}

// queue puts a letter into its lane, which has room; p.mu is held.
func (p *pager) queue(at *letter) {
	l := p.lane(at.page.Hook)
	p.letters[at.key] = at
	l.queue = append(l.queue, at)
	if l.running < min(pagesAtOnce, len(l.queue)) {
		l.running++
		p.workers.Go(func() { p.work(l) })
	}
}

func (p *pager) lane(hook string) *lane {
	webhook, ok := p.webhooks[hook]
	if !ok {
		webhook = p.webhooks[ledger.PageDefault]
	}
	l := p.lanes[webhook]
	if l == nil {
		l = &lane{webhook: webhook}
		p.lanes[webhook] = l
	}
	return l
}

// work delivers a lane's pages until there are none.
func (p *pager) work(l *lane) {
	for at := p.next(l); at != nil; at = p.next(l) {
		err := p.deliver(l.webhook, at)
		p.meter.page(err)
		p.delivered(l, at, err)
	}
}

// next waits out a lane's pause and takes a page off its queue; nil ends the
// goroutine, which was counted off then.
func (p *pager) next(l *lane) *letter {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.stopped && len(l.queue) > 0 {
		if pause := time.Until(l.until); pause > 0 {
			p.mu.Unlock()
			sleep(p.until, pause)
			p.mu.Lock()
			continue
		}
		at := l.queue[0]
		l.queue[0], l.queue = nil, l.queue[1:]
		if p.letters[at.key] == at {
			return at
		}
	}
	l.running--
	return nil
}

// delivered settles one try. After a failure the whole lane pauses, ever longer
// up to pageRetryMax, and the page goes to the end of the queue, so that one that
// is never taken does not keep the others.
func (p *pager) delivered(l *lane, at *letter, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	if err == nil {
		l.fails = 0
		switch {
		case p.letters[at.key] != at:
		case at.told:
			delete(p.letters, at.key)
			p.measure()
		default:
			p.done = append(p.done, at)
		}
		if l.short && len(l.queue) < pageQueueMax/2 {
			l.short, p.room = false, true
		}
		p.signal()
		return
	}
	l.queue = append(l.queue, at)
	if now := time.Now(); !now.Before(l.until) { // the first failure since the last pause
		l.fails++
		l.until = now.Add(pagePause(l.fails))
	}
	p.log.Warn("page not taken; it is sent again", "hook", at.page.Hook, "page", at.page.ID, "plan", at.page.Plan, "action", at.page.Action, "error", err)
}

// signal wakes the actor.
func (p *pager) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// pagePause doubles with each failure, and is up to half shorter by chance, so
// that hosts do not come back all at once.
func pagePause(fails int) time.Duration {
	d := min(pageRetryMin<<min(fails-1, 16), pageRetryMax)
	return d - rand.N(d/2)
}

// deliver publishes a page, once if that goes well, and posts it.
func (p *pager) deliver(webhook string, at *letter) error {
	ctx, cancel := context.WithTimeout(p.until, pageTimeout)
	defer cancel()
	if !at.published {
		m := nats.NewMsg(ledger.PageSubject(p.tenant, at.page.Hook))
		m.Header.Set(nats.MsgIdHdr, at.page.ID)
		m.Data = bodyOf(formatPage, at.page.Page)
		if err := p.conn.PublishMsg(m); err != nil {
			return fmt.Errorf("cannot publish a page: %w", err)
		}
		if err := p.conn.FlushWithContext(ctx); err != nil {
			return fmt.Errorf("cannot publish a page: %w", err)
		}
		at.published = true
	}
	if webhook == "" {
		return nil
	}
	format, target := splitWebhook(webhook)
	return p.post(ctx, target, at.page.ID, bodyOf(format, at.page.Page))
}

// post leaves the URL out of its errors: a path is often the secret of a hook.
func (p *pager) post(ctx context.Context, webhook, id string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, webhook, bytes.NewReader(body))
	if err != nil {
		return errors.New("cannot post a page: the webhook's URL cannot be used")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", id)
	request.Header.Set("User-Agent", "sagenbaum")
	if now := time.Now(); len(p.keys) > 0 {
		request.Header.Set(headerWebhookID, webhookID(id))
		request.Header.Set(headerWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
		request.Header.Set(headerWebhookSignature, sign(p.keys, webhookID(id), now, body))
	}
	answer, err := p.client.Do(request)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return fmt.Errorf("cannot post a page: %w", err)
	}
	_, _ = io.CopyN(io.Discard, answer.Body, pageAnswerMax) // so that the connection can be used again
	_ = answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("cannot post a page: the webhook answered %d", answer.StatusCode)
	}
	return nil
}

// taken returns pages that were taken and are not recorded yet, at most pagedMax,
// the first of them first.
func (p *pager) taken() []executor.Paged {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = slices.DeleteFunc(p.done, func(at *letter) bool { return p.letters[at.key] != at })
	var out []executor.Paged
	for _, at := range p.done[:min(len(p.done), pagedMax)] {
		out = append(out, executor.Paged{Plan: at.page.Plan, Number: at.page.Number, Kind: at.page.Kind, Hook: at.page.Hook})
	}
	return out
}

// recorded forgets a page: the ledger says that it was taken.
func (p *pager) recorded(key pageKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.letters, key)
	p.measure()
}

// measure shows how many pages are here; p.mu is held.
func (p *pager) measure() {
	if p.meter != nil && !p.stopped {
		p.meter.unpaged.Add(float64(len(p.letters) - p.shown))
		p.shown = len(p.letters)
	}
}

// forgetTaken forgets pages as taken gave them: there is nothing to be recorded
// about them any more.
func (p *pager) forgetTaken(pages []executor.Paged) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.done[:len(pages)] {
		if p.letters[at.key] == at {
			delete(p.letters, at.key)
		}
	}
	p.measure()
	p.done = slices.Delete(p.done, 0, len(pages))
	if len(p.done) > 0 {
		p.signal()
	}
}

// hasRoom reports, once, that pages which were left in the state can be taken.
func (p *pager) hasRoom() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	room := p.room
	p.room = false
	return room
}

// stop ends the term: nothing more is sent.
func (p *pager) stop() {
	p.mu.Lock()
	if p.meter != nil && !p.stopped {
		p.meter.unpaged.Sub(float64(p.shown))
	}
	p.stopped = true
	p.mu.Unlock()
	p.end()
}
