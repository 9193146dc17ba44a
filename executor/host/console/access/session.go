package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Session is a user who has signed in, in one browser.
type Session struct {
	ID       string // for those who list and end sessions; it opens nothing
	Name     string // of the user
	Grants   Grants
	Provider bool   // the OpenID Connect provider has said who it is
	CSRF     string // what a form of this session carries
	From     string // the address of the sign-in
	Began    time.Time
	Ends     time.Time

	user      User         // whose line it rests on, without a provider
	subject   string       // of the user at the provider
	seen      atomic.Int64 // unix nanoseconds of the last request
	confirmed atomic.Int64 // of the last confirmation; 0: none
	gone      chan struct{}
}

// Gone is closed when the session has been ended, other than by its time.
func (s *Session) Gone() <-chan struct{} { return s.gone }

// Seen is when the last request came.
func (s *Session) Seen() time.Time { return time.Unix(0, s.seen.Load()) }

// ConfirmedUntil is how long what the user has confirmed is good for; zero: it is not.
func (s *Session) ConfirmedUntil(now time.Time) time.Time {
	until := time.Unix(0, s.confirmed.Load()).Add(ConfirmTime)
	if !now.Before(until) {
		return time.Time{}
	}
	return until
}

// Genuine reports whether a form comes from a page of this session.
func (s *Session) Genuine(r *http.Request) bool {
	return subtle.ConstantTimeCompare([]byte(r.PostFormValue("csrf")), []byte(s.CSRF)) == 1
}

// cookieHash is how a session is found: who reads the memory finds no cookie there.
type cookieHash [sha256.Size]byte

// sessions are those who have signed in.
type sessions struct {
	cookie string
	secure bool

	mu  sync.Mutex
	all map[cookieHash]*Session // at most sessionsMax
}

// begin starts a session and sets its cookie.
func (a *sessions) begin(w http.ResponseWriter, s *Session, now time.Time) {
	s.ID, s.CSRF, s.Began = Secret()[:12], Secret(), now
	if most := now.Add(SessionTime); s.Ends.IsZero() || s.Ends.After(most) {
		s.Ends = most
	}
	s.gone = make(chan struct{})
	s.seen.Store(now.UnixNano())
	value := Secret()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sweep(now)
	a.all[sha256.Sum256([]byte(value))] = s
	a.set(w, value, s.Ends.Sub(now))
}

// sweep drops what has ended, and the oldest where there is no room for one more.
func (a *sessions) sweep(now time.Time) {
	var oldest *Session
	for id, s := range a.all {
		if !now.Before(s.Ends) {
			delete(a.all, id)
		} else if oldest == nil || s.Ends.Before(oldest.Ends) {
			oldest = s
		}
	}
	if len(a.all) >= sessionsMax {
		a.drop(func(s *Session) bool { return s == oldest })
	}
}

func (a *sessions) set(w http.ResponseWriter, value string, lasts time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: a.cookie, Value: value, Path: "/", MaxAge: max(1, int(lasts/time.Second)),
		HttpOnly: true, Secure: a.secure, SameSite: http.SameSiteLaxMode,
	})
}

// hashOf is the hash of the cookie of a request.
func (a *sessions) hashOf(r *http.Request) (id cookieHash, ok bool) {
	cookie, err := r.Cookie(a.cookie)
	if err != nil {
		return id, false
	}
	return sha256.Sum256([]byte(cookie.Value)), true
}

// Who is the session of a request; nil: none.
func (a *sessions) Who(r *http.Request, now time.Time) *Session {
	id, ok := a.hashOf(r)
	if !ok {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.all[id]
	if s == nil || !now.Before(s.Ends) {
		delete(a.all, id)
		return nil
	}
	s.seen.Store(now.UnixNano())
	return s
}

// confirm notes that the user of a request has just confirmed who it is. The session gets
// another cookie: a copy of the one before, wherever it is, has confirmed nothing and is void.
func (a *sessions) confirm(w http.ResponseWriter, r *http.Request, s *Session, now time.Time) {
	id, _ := a.hashOf(r)
	value := Secret()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all[id] != s {
		return // another request has confirmed it meanwhile, or it has ended
	}
	delete(a.all, id)
	a.all[sha256.Sum256([]byte(value))] = s
	s.confirmed.Store(now.UnixNano())
	a.set(w, value, s.Ends.Sub(now))
}

// SignOut ends the session of a request.
func (a *sessions) SignOut(w http.ResponseWriter, r *http.Request) {
	if id, ok := a.hashOf(r); ok {
		a.mu.Lock()
		own := a.all[id]
		a.drop(func(s *Session) bool { return s == own })
		a.mu.Unlock()
	}
	http.SetCookie(w, &http.Cookie{
		Name: a.cookie, Path: "/", MaxAge: -1, HttpOnly: true, Secure: a.secure,
		SameSite: http.SameSiteLaxMode,
	})
}

// drop ends sessions, at once; a.mu is held.
func (a *sessions) drop(which func(*Session) bool) (dropped []*Session) {
	for id, s := range a.all {
		if which(s) {
			delete(a.all, id)
			close(s.gone)
			dropped = append(dropped, s)
		}
	}
	return dropped
}

// end ends sessions, at once.
func (a *sessions) end(which func(*Session) bool) (ended []*Session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.drop(which)
}

// End ends the session with an id, if who has grants may; ended reports whether it did.
func (a *sessions) End(id string, grants Grants) (of *Session, ended bool) {
	list := a.end(func(s *Session) bool { return s.ID == id && grants.Above(s.Grants) })
	if len(list) == 0 {
		return nil, false
	}
	return list[0], true
}

// Sessions are those that who has grants may see, the latest first.
func (a *sessions) Sessions(grants Grants, now time.Time) (list []*Session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sweep(now)
	for _, s := range a.all {
		if grants.Above(s.Grants) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(x, y *Session) int { return y.Began.Compare(x.Began) })
	return list
}
