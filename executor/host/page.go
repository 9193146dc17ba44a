package host

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

// errand is a letter that is to be posted for one of its hooks.
type errand struct {
	at   *turn.Letter
	hook string
}

// lane posts the pages of one webhook, or of none, so that a slow one holds up
// no other. Its fields are guarded by pager.mu.
type lane struct {
	webhook string // URL; empty: NATS only
	queue   []errand
	running int       // goroutines, at most pagesAtOnce
	fails   int       // in a row
	until   time.Time // nothing is tried before
}

// pager takes the pages of one tenant to owners during one term, as turn.Pages has it: by
// a reply over NATS, or by a 2xx of the webhook of a hook.
type pager struct {
	tenant   string
	publish  publisher
	client   *http.Client
	webhooks map[string]string // hook -> URL
	keys     [][]byte          // that posts are signed with
	log      *slog.Logger
	wake     chan struct{} // buffered 1: pages were taken, or there is room again

	until   context.Context // ends with stop
	cancel  context.CancelFunc
	workers *sync.WaitGroup // the session's: counts the goroutines of lanes

	mu      sync.Mutex
	lanes   map[string]*lane // by URL: at most one more than webhooks
	pages   turn.Pages
	rounds  map[*turn.Letter]*time.Timer // the next one of each letter that waits
	stopped bool

	meter *meter // nil: none
	shown int    // letters, as the meter has them
	stale bool   // the oldest may be another one
}

// publisher sends a page over NATS; see actuators.NATS.Page.
type publisher interface {
	Page(subject, id string, body []byte, timeout time.Duration, done func(actuators.Result))
}

func (a *actor) newPager() *pager {
	until, end := context.WithCancel(a.session)
	return &pager{
		tenant: a.tenant, publish: a.actuator, client: a.host.hooks, webhooks: a.host.cfg.Webhooks,
		keys:  a.host.cfg.WebhookKeys,
		pages: turn.Pages{EscalateNs: int64(cmp.Or(a.host.cfg.EscalateAfter, escalateDefault))},
		log:   a.log,
		wake:  make(chan struct{}, 1), until: until, cancel: end, workers: &a.paging,
		lanes: map[string]*lane{}, rounds: map[*turn.Letter]*time.Timer{}, meter: a.meter,
	}
}

// add takes pages on their way, each once. The goroutines that it starts end with
// their lane's queue, or with stop.
func (p *pager) add(pages []executor.Page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, page := range pages {
		p.begin(page, false)
	}
	p.measure()
}

// tell takes a page about this host on its way, which no row of the state has: whoever
// gives it does so once for each ID, and again in the next term while there is reason to.
func (p *pager) tell(page api.Page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begin(executor.Page{Page: page}, true)
	p.measure()
}

// untell ends a page about this host: there is no reason for it any more.
func (p *pager) untell(page api.Page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(p.pages.Drop(turn.KeyOf(page)))
	p.measure()
}

// begin sends a letter for the first time; p.mu is held.
func (p *pager) begin(page executor.Page, own bool) {
	if p.stopped {
		return
	}
	at, replaced := p.pages.Add(page, own)
	p.end(replaced)
	if at != nil {
		p.stale = true
		p.post(at, page.Hook)
		p.round(at)
	}
}

// post has a letter posted for a hook, where no lane of its others does so already; p.mu
// is held.
func (p *pager) post(at *turn.Letter, hook string) {
	l := p.lane(hook)
	posted := slices.ContainsFunc(at.Hooks, func(other string) bool {
		return other != hook && p.lane(other) == l
	})
	if l.webhook == "" || posted {
		return
	}
	l.queue = append(l.queue, errand{at, hook})
	if l.running < min(pagesAtOnce, len(l.queue)) {
		l.running++
		p.workers.Go(func() { p.work(l) })
	}
}

// round publishes a letter that no one has taken; p.mu is held.
func (p *pager) round(at *turn.Letter) {
	r := p.pages.Round(at, time.Now().UnixNano())
	if r.Escalated {
		p.log.Warn("no one has taken a page; operators get it, too", "hook", at.Page.Hook, "page",
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

// send publishes a letter for a hook, and takes the reply; p.mu is held.
func (p *pager) send(at *turn.Letter, hook string) {
	posted := p.lane(hook).webhook != ""
	body := bodyOf(formatPage, at.Page.Page)
	p.publish.Page(api.PageSubject(p.tenant, hook), at.Page.ID, body, pageTimeout,
		func(r actuators.Result) {
			p.mu.Lock()
			defer p.mu.Unlock()
			switch {
			case r.Fate == actuators.Replied:
				p.meter.page(nil)
				p.take(at, hook)
			case !posted && p.waits(at):
				p.meter.page(errUnheard)
				p.log.Debug("no one has taken a page over NATS; it is published again", "hook", hook,
					"page", at.Page.ID, "plan", at.Page.Plan, "action", at.Page.Action)
			}
		})
}

// errUnheard is why a page that was published is not taken.
var errUnheard = errors.New("no reply over NATS")

// waits reports whether a letter is still to be taken; p.mu is held.
func (p *pager) waits(at *turn.Letter) bool { return !p.stopped && p.pages.Waits(at) }

// take notes that a hook has taken a letter; p.mu is held.
func (p *pager) take(at *turn.Letter, hook string) {
	if p.stopped || !p.pages.Take(at, hook) {
		return
	}
	p.end(at)
	p.measure()
	p.signal()
}

// end ends the rounds of a letter; nil: of none. p.mu is held.
func (p *pager) end(at *turn.Letter) {
	if t := p.rounds[at]; t != nil {
		t.Stop()
		delete(p.rounds, at)
		p.stale = true
		if p.pages.HasRoom() {
			p.signal()
		}
	}
}

func (p *pager) lane(hook string) *lane {
	webhook, ok := p.webhooks[hook]
	if !ok {
		webhook = p.webhooks[api.PageDefault]
	}
	l := p.lanes[webhook]
	if l == nil {
		l = &lane{webhook: webhook}
		p.lanes[webhook] = l
	}
	return l
}

// signal wakes the actor.
func (p *pager) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// taken returns pages that were taken and are not recorded yet.
func (p *pager) taken() []executor.Paged {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pages.Taken()
}

// recorded forgets a page: the ledger says that it was taken, or that its owner has
// answered.
func (p *pager) recorded(key turn.PageKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(p.pages.Recorded(key))
	p.measure()
}

// measure shows how many pages are here; p.mu is held.
func (p *pager) measure() {
	if p.meter != nil && !p.stopped {
		p.meter.unpaged.Add(float64(p.pages.Len() - p.shown))
		p.shown = p.pages.Len()
	}
}

// showOldest shows since when the oldest page is not taken, if that may have changed.
func (p *pager) showOldest() {
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
	p.meter.oldestPage(oldest)
}

// forgetTaken forgets pages as taken gave them: there is nothing to be recorded
// about them any more.
func (p *pager) forgetTaken(pages []executor.Paged) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pages.Settled(len(pages)) {
		p.signal()
	}
	p.measure()
}

// hasRoom reports, once, that pages which were left in the state can be taken.
func (p *pager) hasRoom() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pages.Freed()
}

// stop ends the term: nothing more is sent.
func (p *pager) stop() {
	p.mu.Lock()
	if p.meter != nil && !p.stopped {
		p.meter.unpaged.Sub(float64(p.shown))
		p.meter.oldestPage(0)
	}
	for _, round := range p.rounds {
		round.Stop()
	}
	p.stopped = true
	p.mu.Unlock()
	p.cancel()
}
