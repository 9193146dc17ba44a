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
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// pageKey is what a page is about: a later page about the same takes the place of
// an earlier one.
type pageKey struct{ plan, action, kind string }

// letter is one page on its way, or taken and not yet recorded.
type letter struct {
	key   pageKey
	page  executor.Page
	hooks []string    // that it goes to: its own, and that of operators when nobody takes it
	taken string      // the hook that has taken it; empty: none
	told  bool        // it is about this host and no row of the state: nothing is recorded of it
	again *time.Timer // of the next round
}

// errand is a letter that is to be posted for one of its hooks.
type errand struct {
	at   *letter
	hook string
}

// lane posts the pages of one webhook, or of none, so that a slow one holds up
// nobody else. Its fields are guarded by pager.mu.
type lane struct {
	webhook string // URL; empty: NATS only
	queue   []errand
	running int       // goroutines, at most pagesAtOnce
	fails   int       // in a row
	until   time.Time // nothing is tried before
}

// pager takes the pages of one tenant to owners during one term, until somebody has taken
// each: by a reply over NATS, or by a 2xx of the webhook of its hook. It remembers
// nothing: what is not recorded as taken is sent again in the next term, under the same
// id, and how long nobody has taken a page counts from the record that asked for it.
type pager struct {
	tenant   string
	publish  publisher
	client   *http.Client
	webhooks map[string]string // hook -> URL
	keys     [][]byte          // that posts are signed with
	escalate time.Duration     // after which operators get a page that nobody takes
	log      *slog.Logger
	wake     chan struct{} // buffered 1: pages were taken, or there is room again

	until   context.Context // ends with stop
	end     context.CancelFunc
	workers *sync.WaitGroup // the session's: counts the goroutines of lanes

	mu      sync.Mutex
	lanes   map[string]*lane // by URL: at most one more than webhooks
	letters map[pageKey]*letter
	rooms   rooms
	done    []*letter // taken, in order
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
		tenant: a.tenant, publish: a.actuator, client: a.host.hooks, webhooks: a.host.cfg.Webhooks, keys: a.host.cfg.WebhookKeys,
		escalate: cmp.Or(a.host.cfg.EscalateAfter, escalateDefault), log: a.log,
		wake: make(chan struct{}, 1), until: until, end: end, workers: &a.paging,
		lanes: map[string]*lane{}, letters: map[pageKey]*letter{}, rooms: rooms{of: map[string]*room{}}, meter: a.meter,
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
		key := pageKey{page.Plan, page.Action, page.Kind}
		if old := p.letters[key]; old != nil && old.page.ID == page.ID {
			continue
		}
		if p.rooms.fits(page.Hook) {
			p.begin(&letter{key: key, page: page})
		}
	}
}

// tell takes a page about this host on its way, which no row of the state stands
// behind: whoever gives it does so once for each id, and again in the next term while
// there is reason to.
func (p *pager) tell(page api.Page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.measure()
	key := pageKey{page.Plan, page.Action, page.Kind}
	if old := p.letters[key]; p.stopped || old != nil && old.page.ID == page.ID || !p.rooms.fits(page.Hook) {
		return
	}
	p.begin(&letter{key: key, page: executor.Page{Page: page}, told: true})
}

// untell ends a page about this host: there is no reason for it any more.
func (p *pager) untell(page api.Page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := p.letters[pageKey{page.Plan, page.Action, page.Kind}]; at != nil && at.told {
		p.forget(at)
		p.measure()
	}
}

// begin sends a letter for the first time; p.mu is held.
func (p *pager) begin(at *letter) {
	if old := p.letters[at.key]; old != nil {
		p.forget(old)
	}
	p.letters[at.key] = at
	p.rooms.enter(at.page.Hook)
	p.stale = true
	p.via(at, at.page.Hook)
	p.round(at)
}

// via has a letter go to a hook from now on; p.mu is held.
func (p *pager) via(at *letter, hook string) {
	l := p.lane(hook)
	posted := slices.ContainsFunc(at.hooks, func(other string) bool { return p.lane(other) == l })
	at.hooks = append(at.hooks, hook)
	if l.webhook == "" || posted {
		return
	}
	l.queue = append(l.queue, errand{at, hook})
	if l.running < min(pagesAtOnce, len(l.queue)) {
		l.running++
		p.workers.Go(func() { p.work(l) })
	}
}

// round publishes a letter that nobody has taken, and has operators get it when that has
// been so for too long. Its rules know the age of the page alone, which a restart does not
// change; p.mu is held.
func (p *pager) round(at *letter) {
	age := max(time.Since(time.Unix(0, at.page.AtNs)), 0)
	if late := age >= p.escalate; late && len(at.hooks) == 1 && at.page.Hook != api.PageOperators {
		p.log.Warn("nobody has taken a page; operators get it, too", "hook", at.page.Hook, "page", at.page.ID, "plan", at.page.Plan, "action", at.page.Action, "since", age)
		at.page.Escalated = true
		p.via(at, api.PageOperators)
	}
	for _, hook := range at.hooks {
		p.send(at, hook)
	}
	pause := roundPause(age)
	if left := p.escalate - age; left > 0 {
		pause = min(pause, left)
	}
	at.again = time.AfterFunc(pause, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.waits(at) {
			p.round(at)
		}
	})
}

// roundPause is when a page that nobody takes is published again: when it is twice as old,
// at most every roundMax.
func roundPause(age time.Duration) time.Duration { return min(max(age, roundMin), roundMax) }

// send publishes a letter for a hook, and takes the reply; p.mu is held.
func (p *pager) send(at *letter, hook string) {
	posted := p.lane(hook).webhook != ""
	p.publish.Page(api.PageSubject(p.tenant, hook), at.page.ID, bodyOf(formatPage, at.page.Page), pageTimeout, func(r actuators.Result) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case r.Fate == actuators.Replied:
			p.meter.page(nil)
			p.take(at, hook)
		case !posted && p.waits(at):
			p.meter.page(errUnheard)
			p.log.Debug("nobody has taken a page over NATS; it is published again", "hook", hook, "page", at.page.ID, "plan", at.page.Plan, "action", at.page.Action)
		}
	})
}

// errUnheard is why a page that was published is not taken.
var errUnheard = errors.New("no reply over NATS")

// waits reports whether a letter is still to be taken; p.mu is held.
func (p *pager) waits(at *letter) bool {
	return !p.stopped && p.letters[at.key] == at && at.taken == ""
}

// take notes that a hook has taken a letter; p.mu is held.
func (p *pager) take(at *letter, hook string) {
	if !p.waits(at) {
		return
	}
	at.taken = hook
	if at.told {
		p.forget(at)
	} else {
		p.settle(at)
		p.done = append(p.done, at)
	}
	p.measure()
	p.signal()
}

// settle ends the rounds of a letter; p.mu is held.
func (p *pager) settle(at *letter) {
	if at.again == nil {
		return // done before
	}
	at.again.Stop()
	at.again, p.stale = nil, true
	if p.rooms.leave(at.page.Hook) {
		p.signal()
	}
}

// forget ends a letter, taken or not; p.mu is held.
func (p *pager) forget(at *letter) {
	p.settle(at)
	if p.letters[at.key] == at {
		delete(p.letters, at.key)
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

// taken returns pages that were taken and are not recorded yet, at most pagedMax,
// the first of them first.
func (p *pager) taken() []executor.Paged {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = slices.DeleteFunc(p.done, func(at *letter) bool { return p.letters[at.key] != at })
	var out []executor.Paged
	for _, at := range p.done[:min(len(p.done), pagedMax)] {
		out = append(out, executor.Paged{Plan: at.page.Plan, Number: at.page.Number, Kind: at.page.Kind, Hook: at.taken})
	}
	return out
}

// recorded forgets a page: the ledger says that it was taken, or that its owner has
// answered.
func (p *pager) recorded(key pageKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := p.letters[key]; at != nil && !at.told {
		p.forget(at)
	}
	p.measure()
}

// measure shows how many pages are here; p.mu is held.
func (p *pager) measure() {
	if p.meter != nil && !p.stopped {
		p.meter.unpaged.Add(float64(len(p.letters) - p.shown))
		p.shown = len(p.letters)
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
	for _, at := range p.letters {
		if at.taken == "" && (oldest == 0 || at.page.AtNs < oldest) {
			oldest = at.page.AtNs
		}
	}
	p.meter.oldestPage(oldest)
}

// forgetTaken forgets pages as taken gave them: there is nothing to be recorded
// about them any more.
func (p *pager) forgetTaken(pages []executor.Paged) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.done[:len(pages)] {
		if p.letters[at.key] == at {
			p.forget(at)
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
	free := p.rooms.free
	p.rooms.free = false
	return free
}

// stop ends the term: nothing more is sent.
func (p *pager) stop() {
	p.mu.Lock()
	if p.meter != nil && !p.stopped {
		p.meter.unpaged.Sub(float64(p.shown))
		p.meter.oldestPage(0)
	}
	for _, at := range p.letters {
		if at.again != nil {
			at.again.Stop()
		}
	}
	p.stopped = true
	p.mu.Unlock()
	p.end()
}
