package console

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/console/access"
	"github.com/sagenbaum/sagenbaum/executor/host/console/web"
	"github.com/sagenbaum/sagenbaum/ledger/access/tries"
)

func (s *Server) signInPage(w http.ResponseWriter, r *http.Request) {
	s.showSignIn(w, r, http.StatusOK, web.SignIn{Next: local(r.URL.Query().Get("next"))})
}

func (s *Server) showSignIn(w http.ResponseWriter, r *http.Request, status int, body web.SignIn) {
	body.Reader, body.OldForm, body.Provider = s.open(), s.access.OldForm(), s.access.ProviderHost()
	v := &visit{
		s: s, w: w, r: r,
		page: web.Page{Title: "Sign in", Path: body.Next, NowNs: time.Now().UnixNano()},
	}
	v.write(status, body)
}

func (s *Server) signIn(w http.ResponseWriter, r *http.Request) {
	body := web.SignIn{Next: local(r.PostFormValue("next")), Name: r.PostFormValue("name")}
	session, err := s.access.SignIn(w, r, time.Now())
	var many *tries.TooMany
	switch {
	case errors.As(err, &many):
		s.log.Warn("console: too many sign-ins", "remote", r.RemoteAddr)
		w.Header().Set("Retry-After", many.Seconds())
		body.Wait = many.Seconds()
		s.showSignIn(w, r, http.StatusTooManyRequests, body)
	case err != nil:
		s.log.Warn("console: a sign-in with a wrong name or token", "remote", r.RemoteAddr)
		body.Wrong = true
		s.showSignIn(w, r, http.StatusForbidden, body)
	default:
		s.log.Info("console: a user has signed in", "user", session.Name,
			"may", session.Grants.String(), "session", session.ID, "remote", r.RemoteAddr)
		http.Redirect(w, r, body.Next, http.StatusSeeOther)
	}
}

// toProvider sends a browser to the provider, to sign in there, or to confirm its session.
func (s *Server) toProvider(w http.ResponseWriter, r *http.Request) {
	v := &visit{s: s, w: w, r: r}
	now := time.Now()
	var session *access.Session
	if r.URL.Query().Has("confirm") {
		session = s.access.Who(r, now)
		switch site := r.Header.Get("Sec-Fetch-Site"); {
		case site == "cross-site" || site == "same-site":
			s.fail(v, failed(http.StatusForbidden, "Begin on the console's own page.",
				"this request came from another site"))
			return
		case session == nil || !session.Provider:
			s.fail(v, failed(http.StatusUnauthorized, "Sign in first.", "no one has signed in"))
			return
		}
	}
	to, err := s.access.Begin(w, r, local(r.URL.Query().Get("next")), session, now)
	if err != nil {
		s.fail(v, s.notProvided(err, w, r))
		return
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// fromProvider takes a browser that comes back.
func (s *Server) fromProvider(w http.ResponseWriter, r *http.Request) {
	session, next, err := s.access.Finish(w, r, time.Now())
	if err != nil {
		s.fail(&visit{s: s, w: w, r: r}, s.notProvided(err, w, r))
		return
	}
	s.log.Info("console: a user has signed in at the provider", "user", session.Name,
		"may", session.Grants.String(), "session", session.ID, "remote", r.RemoteAddr)
	http.Redirect(w, r, next, http.StatusSeeOther)
}

// notProvided is what a page says of a sign-in at the provider that failed.
func (s *Server) notProvided(err error, w http.ResponseWriter, r *http.Request) error {
	var no *access.Declined
	var many *tries.TooMany
	switch {
	case errors.As(err, &no):
		s.log.Warn("console: a sign-in at the provider was declined", "cause", err,
			"remote", r.RemoteAddr)
		return failed(http.StatusForbidden, no.Hint, "%s", no.Why)
	case errors.As(err, &many):
		w.Header().Set("Retry-After", many.Seconds())
		return failed(http.StatusTooManyRequests, "Try again in "+many.Seconds()+" s.",
			"too many sign-ins were tried")
	}
	s.log.Error("console: the provider does not sign in", "cause", err, "remote", r.RemoteAddr)
	return failed(http.StatusBadGateway, "Try again, or sign in with a token. The log says more.",
		"%v", access.ErrProvider)
}

func (s *Server) signOut(w http.ResponseWriter, r *http.Request) {
	if session := s.access.Who(r, time.Now()); session != nil && session.Genuine(r) {
		s.access.SignOut(w, r)
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// local is where a sign-in leads back to: a path of this console, never elsewhere. A
// browser leaves tabs and line ends out of an address, and takes a backslash for a slash,
// so that nothing but the printable characters of an address passes.
func local(next string) string {
	if !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") {
		return "/"
	}
	for i := range len(next) {
		if c := next[i]; c <= ' ' || c >= 0x7f || c == '\\' {
			return "/"
		}
	}
	u, err := url.Parse(next)
	if err != nil || u.IsAbs() || u.Host != "" || u.User != nil {
		return "/"
	}
	return next
}
