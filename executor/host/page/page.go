// Package page takes pages to their owners: over NATS, and to webhooks, again and again until
// someone has taken them. [Pager] does so for one tenant during one term.
package page

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/actuators"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// posting is a delivery that is to be posted for one of its hooks.
type posting struct {
	at   *turn.Delivery
	hook string
}

// queue has the pages to be posted of one webhook, or of none, so that a slow one holds up
// no other. Its fields are guarded by pager.mu.
type queue struct {
	webhook string // URL; empty: NATS only
	waiting []posting
	running int       // goroutines, at most pagesAtOnce
	fails   int       // in a row
	until   time.Time // nothing is tried before
}

// Config says where pages go. EscalateAfter, Keys and Webhooks may be zero.
type Config struct {
	Tenant    string
	Publisher Publisher
	Client    *http.Client
	Webhooks  map[string]string // hook -> URL, as CheckWebhook takes it
	// Keys sign what is posted, by the hook that has the webhook, the newest first; those of ""
	// sign for hooks that have none. Without any it is not signed.
	Keys map[string][][]byte
	// EscalateAfter is how long no one may take a page before operators get it, too; 0: 15 minutes.
	EscalateAfter time.Duration
	Meter         Meter
	Workers       *sync.WaitGroup // counts the goroutines that post; they end with Stop
	// Stays is false from when the tenant is another host's to page for, although its loop, which
	// waits for room, has not stopped this pager yet; nil: it stays.
	Stays func() bool
	Log   *slog.Logger
}

// Meter counts pages: *observe.Meter.
type Meter interface {
	Page(err error)      // a try to deliver a page: taken, or why not
	Unpaged(by int)      // by how many more no one has taken
	OldestPage(ns int64) // unix ns of the oldest that no one has taken; 0: none
}

// Bounds of posting.
const (
	pagesAtOnce     = 4                      // pages on their way to one webhook
	pageTimeout     = 10 * time.Second       // for one try to deliver a page
	pageRetryMin    = 100 * time.Millisecond // between tries; doubles
	pageRetryMax    = time.Minute
	escalateDefault = 15 * time.Minute // until operators get a page that no one takes
	pageAnswerMax   = 64 << 10         // bytes of a webhook's answer that are read, and thrown away
)

// Pager takes the pages of one tenant to owners during one term, as turn.Pages has it: by
// a reply over NATS, or by a 2xx of the webhook of a hook. Its methods may be called from any
// goroutine.
type Pager struct {
	Config

	wake   chan struct{}   // buffered 1: pages were taken, or there is room again
	until  context.Context // ends with stop
	cancel context.CancelFunc

	mu      sync.Mutex
	queues  map[string]*queue // by URL: at most one more than webhooks
	pages   *turn.Pages
	rounds  map[*turn.Delivery]*time.Timer // the next one of each delivery that waits
	stopped bool

	shown int  // deliveries, as the meter has them
	stale bool // the oldest may be another one
}

// Publisher sends a page over NATS; see actuators.NATS.Page.
type Publisher interface {
	Page(subject, id string, body []byte, timeout time.Duration, done func(actuators.Result))
}

// New makes the pager of a term, for its pages. It ends with Stop, or with the session's ctx.
func New(ctx context.Context, pages *turn.Pages, cfg Config) *Pager {
	pages.EscalateNs = int64(cmp.Or(cfg.EscalateAfter, escalateDefault))
	p := &Pager{
		Config: cfg, wake: make(chan struct{}, 1), pages: pages,
		queues: map[string]*queue{}, rounds: map[*turn.Delivery]*time.Timer{},
	}
	p.until, p.cancel = context.WithCancel(ctx)
	return p
}

// Wake has a value when pages were taken, or there is room again for those in the state.
func (p *Pager) Wake() <-chan struct{} { return p.wake }

// Lock keeps the pages from everyone else.
func (p *Pager) Lock() { p.mu.Lock() }

// Unlock lets others have the pages.
func (p *Pager) Unlock() { p.mu.Unlock() }

// Tell takes a page about this host on its way, which no row of the state has: whoever
// gives it does so once for each ID, and again in the next term while there is reason to.
func (p *Pager) Tell(page api.Page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.pages.Send(executor.Page{Page: page}, true, p)
	}
}

// Withdraw ends a page about this host: there is no reason for it any more.
func (p *Pager) Withdraw(page api.Page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if dropped := p.pages.Drop(turn.KeyOf(page)); dropped != nil {
		p.Unpage(dropped)
	}
}

// Page sends a delivery for the first time. The goroutines that it starts end with their
// queue, or with Stop. p.mu is held.
func (p *Pager) Page(at *turn.Delivery) {
	if p.stopped {
		return
	}
	p.stale = true
	p.post(at, at.Page.Hook)
	p.round(at)
	p.measure()
}

// Unpage forgets a delivery that has ended; p.mu is held.
func (p *Pager) Unpage(at *turn.Delivery) {
	p.end(at)
	p.measure()
}

// post has a delivery posted for a hook, where no queue of its others does so already; p.mu
// is held.
func (p *Pager) post(at *turn.Delivery, hook string) {
	q := p.queueOf(hook)
	posted := slices.ContainsFunc(at.Hooks, func(other string) bool {
		return other != hook && p.queueOf(other) == q
	})
	if q.webhook == "" || posted {
		return
	}
	q.waiting = append(q.waiting, posting{at, hook})
	if q.running < min(pagesAtOnce, len(q.waiting)) {
		q.running++
		p.Workers.Go(func() { p.work(q) })
	}
}

// round publishes a delivery that no one has taken; p.mu is held.
func (p *Pager) round(at *turn.Delivery) {
	r := p.pages.Round(at, time.Now().UnixNano())
	if r.Escalated {
		p.Log.Warn("no one has taken a page; operators get it, too", "hook", at.Page.Hook, "page",
			at.Page.ID,
			"plan", at.Page.Plan, "action", at.Page.Action, "since", time.Unix(0, at.Page.AtNs))
		p.post(at, api.PageOperators)
	}
	for _, hook := range r.Hooks {
		p.send(at, hook)
	}
	p.rounds[at] = time.AfterFunc(time.Duration(r.InNs), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.waits(at) {
			p.round(at)
		}
	})
}

// send publishes a delivery for a hook, and takes the reply; p.mu is held.
func (p *Pager) send(at *turn.Delivery, hook string) {
	posted := p.queueOf(hook).webhook != ""
	body := bodyOf(formatPage, at.Page.Page)
	p.Publisher.Page(api.PageSubject(p.Tenant, hook), at.Page.ID, body, pageTimeout,
		func(r actuators.Result) {
			p.mu.Lock()
			defer p.mu.Unlock()
			switch {
			case r.Fate == actuators.Replied:
				p.Meter.Page(nil)
				p.take(at, hook)
			case !posted && p.waits(at):
				p.Meter.Page(errUnheard)
				p.Log.Debug("no one has taken a page over NATS; it is published again", "hook", hook,
					"page", at.Page.ID, "plan", at.Page.Plan, "action", at.Page.Action)
			}
		})
}

// errUnheard is why a page that was published is not taken.
var errUnheard = errors.New("no reply over NATS")

// waits reports whether a delivery is still to be taken, and this host's to send; p.mu is held.
func (p *Pager) waits(at *turn.Delivery) bool {
	return !p.stopped && p.pages.Waits(at) && (p.Stays == nil || p.Stays())
}

// take notes that a hook has taken a delivery; p.mu is held.
func (p *Pager) take(at *turn.Delivery, hook string) {
	if p.stopped || !p.pages.Take(at, hook) {
		return
	}
	p.end(at)
	p.measure()
	p.signal()
}

// end ends the rounds of a delivery; p.mu is held.
func (p *Pager) end(at *turn.Delivery) {
	if t := p.rounds[at]; t != nil {
		t.Stop()
		delete(p.rounds, at)
		p.stale = true
		if p.pages.HasRoom() {
			p.signal()
		}
	}
}

// owner is the hook whose webhook gets the pages of a hook.
func (p *Pager) owner(hook string) string {
	if _, ok := p.Webhooks[hook]; !ok {
		return api.PageDefault
	}
	return hook
}

// keys sign what is posted for a hook: whoever has the webhook of another one can forge none.
func (p *Pager) keys(hook string) [][]byte {
	if own := p.Keys[p.owner(hook)]; len(own) > 0 {
		return own
	}
	return p.Keys[""]
}

func (p *Pager) queueOf(hook string) *queue {
	webhook := p.Webhooks[p.owner(hook)]
	q := p.queues[webhook]
	if q == nil {
		q = &queue{webhook: webhook}
		p.queues[webhook] = q
	}
	return q
}

// signal wakes the actor.
func (p *Pager) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// measure shows how many pages are here; p.mu is held.
func (p *Pager) measure() {
	if !p.stopped {
		p.Meter.Unpaged(p.pages.Len() - p.shown)
		p.shown = p.pages.Len()
	}
}

// ShowOldest shows since when the oldest page is not taken, if that may have changed.
func (p *Pager) ShowOldest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stale || p.stopped {
		return
	}
	p.stale = false
	oldest := int64(0)
	for at := range p.rounds {
		if oldest == 0 || at.Page.AtNs < oldest {
			oldest = at.Page.AtNs
		}
	}
	p.Meter.OldestPage(oldest)
}

// Stop ends the term: nothing more is sent.
func (p *Pager) Stop() {
	p.mu.Lock()
	if !p.stopped {
		p.Meter.Unpaged(-p.shown)
		p.Meter.OldestPage(0)
	}
	for _, round := range p.rounds {
		round.Stop()
	}
	p.stopped = true
	p.mu.Unlock()
	p.cancel()
}
