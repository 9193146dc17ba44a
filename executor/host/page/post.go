package page

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/executor/host/webclient"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// Posting pages to webhooks.

// CheckWebhook checks where the pages of a hook are to be posted: https, or http
// to this machine, with slack+ or teams+ before it for a chat. Errors: *ledger.Refused with field
// "Webhooks[<hook>]"; no error shows the URL, which may be a secret.
func CheckWebhook(hook, webhook string) error {
	field := fmt.Sprintf("Webhooks[%s]", hook)
	if !ledger.ValidToken(hook) {
		return ledger.Refuse(field, fmt.Sprintf("%q is no name of a hook", hook),
			ledger.TokenWanted)
	}
	_, webhook = splitWebhook(webhook)
	u, err := url.Parse(webhook)
	switch {
	case err != nil || u.Hostname() == "":
		return ledger.Refuse(field, "no URL", "https://HOST/PATH")
	case u.Scheme == "https", u.Scheme == "http" && webclient.OnThisMachine(u.Hostname()):
		return nil
	case u.Scheme == "http":
		return ledger.Refuse(field, "pages would cross the network in the clear",
			"https; http is for this machine only")
	default:
		return ledger.Refuse(field, fmt.Sprintf("the scheme %q", u.Scheme),
			"https; http is for this machine only")
	}
}

// work posts a queue's pages until there are none.
func (p *Pager) work(q *queue) {
	for e, more := p.next(q); more; e, more = p.next(q) {
		ctx, cancel := context.WithTimeout(p.until, pageTimeout)
		format, target := splitWebhook(q.webhook)
		p.mu.Lock()
		page := e.at.Page.Page
		p.mu.Unlock()
		err := p.deliver(ctx, target, e.hook, page.ID, bodyOf(format, page))
		cancel()
		p.Meter.Page(err)
		p.delivered(q, e, err)
	}
}

// next waits out a queue's pause and takes a page off it; more is false when the
// goroutine is to end, which was counted off then.
func (p *Pager) next(q *queue) (e posting, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.stopped && len(q.waiting) > 0 {
		if left := time.Until(q.until); left > 0 {
			p.mu.Unlock()
			pause.For(p.until, left)
			p.mu.Lock()
			continue
		}
		e := q.waiting[0]
		q.waiting[0], q.waiting = posting{}, q.waiting[1:]
		if p.waits(e.at) {
			return e, true
		}
	}
	q.running--
	return posting{}, false
}

// delivered settles one try. After a failure the whole queue pauses, ever longer
// up to pageRetryMax, and the page goes to its end, so that one that
// is never taken does not keep the others.
func (p *Pager) delivered(q *queue, e posting, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.stopped:
		return
	case err == nil:
		q.fails = 0
		p.take(e.at, e.hook)
		return
	}
	q.waiting = append(q.waiting, e)
	if now := time.Now(); !now.Before(q.until) { // the first failure since the last pause
		q.fails++
		q.until = now.Add(pagePause(q.fails))
	}
	at := e.at
	p.Log.Warn("page not taken; it is sent again", "hook", e.hook, "page", at.Page.ID, "plan",
		at.Page.Plan, "action", at.Page.Action, "error", err)
}

// pagePause doubles with each failure, and is up to half shorter by chance, so
// that hosts do not come back all at once.
func pagePause(fails int) time.Duration {
	d := min(pageRetryMin<<min(fails-1, 16), pageRetryMax)
	return d - rand.N(d/2)
}

// deliver leaves the URL out of its errors: a path is often the secret of a hook.
func (p *Pager) deliver(ctx context.Context, webhook, hook, id string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, webhook, bytes.NewReader(body))
	if err != nil {
		return errors.New("cannot post a page: the webhook's URL cannot be used")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", id)
	request.Header.Set("User-Agent", "sagenbaum")
	if now, keys := time.Now(), p.keys(hook); len(keys) > 0 {
		request.Header.Set(headerWebhookID, webhookID(id))
		request.Header.Set(headerWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
		request.Header.Set(headerWebhookSignature, sign(keys, webhookID(id), now, body))
	}
	answer, err := p.Client.Do(request)
	if err != nil {
		return fmt.Errorf("cannot post a page: %w", webclient.WithoutURL(err))
	}
	_, _ = io.CopyN(io.Discard, answer.Body, pageAnswerMax) // so that the connection can be used again
	_ = answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("cannot post a page: the webhook answered %d", answer.StatusCode)
	}
	return nil
}
