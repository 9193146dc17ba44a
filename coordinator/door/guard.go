package door

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger/access/tries"
)

// guarded is a request whose context ends when its user is not allowed to ask it any more: the user
// was removed, has another key or role, or its time is over. refused is nil until then. Users that
// are changed are asked about at once, and all at each pulse: a token has an end of its own. stop
// ends the watch.
func (w *Web) guarded(r *http.Request, who Caller, verb string, changed <-chan struct{}) (
	_ *http.Request, refused func() *Error, stop func()) {
	if w.cfg.Users == nil {
		return r, func() *Error { return nil }, func() {}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	ended := make(chan struct{})
	go func() { // ends with stop
		defer close(ended)
		pulse := time.NewTicker(w.pulse)
		defer pulse.Stop()
		for {
			select {
			case <-changed:
			case <-pulse.C:
			case <-ctx.Done():
				return
			}
			changed = w.changed() // before the look, which misses nothing then
			if err := w.allowed(r, who, verb); err != nil {
				cancel(err)
				return
			}
		}
	}()
	refused = func() *Error {
		var e *Error
		if !errors.As(context.Cause(ctx), &e) {
			return nil
		}
		late := *e
		late.Stored = StoredUnknown // it was let in before
		return &late
	}
	return r.WithContext(ctx), refused, func() { cancel(context.Canceled); <-ended }
}

// changed is closed at the next change of the users; nil: there are none.
func (w *Web) changed() <-chan struct{} {
	if w.cfg.Users == nil {
		return nil
	}
	return w.cfg.Users.Changed()
}

// guesses counts tokens that are not good. A good one is let in whatever else comes from its
// address: agents behind one address do not shut each other out.
type guesses struct {
	tries tries.Tries
	log   sparing
}

// sparing counts what clients can have happen as often as they like, for a log that is told of it
// now and then.
type sparing struct {
	mu     sync.Mutex
	said   time.Time // when the log was told; zero: never
	untold int       // since then
}

// warnEvery is how often the log is told at most.
const warnEvery = time.Minute

// count counts one, and returns how many the log is told of now; 0: it is not told.
func (s *sparing) count(now time.Time, worthIt bool) (tell int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.untold++; worthIt && (s.said.IsZero() || now.Sub(s.said) >= warnEvery) {
		tell, s.said, s.untold = s.untold, now, 0
	}
	return tell
}

// count counts a token that is not good. many is nil where its address may try another one.
func (g *guesses) count(r *http.Request, now time.Time) (many *tries.TooMany, tell int) {
	if wait := g.tries.Begin(tries.Known{From: tries.Address(r)}, now); wait > 0 {
		many = &tries.TooMany{Wait: wait}
	}
	return many, g.log.count(now, many != nil)
}

// guessed is the answer to a token that is not good: the refusal, or, where too many
// were shown from its address, how long to wait.
func (w *Web) guessed(r *http.Request, refusal error) error {
	var e *Error
	if !errors.As(refusal, &e) || e.Status != http.StatusUnauthorized ||
		r.Header.Get("Authorization") == "" { // who shows no token tries none
		return refusal
	}
	many, tell := w.guesses.count(r, time.Now())
	if tell > 0 {
		w.cfg.Logger.Warn("tokens that are not good are shown to the door", "tokens", tell, "last_from",
			tries.Address(r).String())
	}
	if many == nil {
		return refusal
	}
	return &Error{Status: http.StatusTooManyRequests, Code: "limit", Field: "authorization",
		Limit: "tokens", Problem: "too many tokens were shown that are not good",
		Want: "a token that is good, or another try in " + many.Seconds() + " s", Stored: StoredNothing,
		retryAfter: many.Seconds()}
}
