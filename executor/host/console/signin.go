package console

import (
	"errors"
	"net/http"
	"time"
)

type signInBody struct {
	Next   string
	Wrong  bool
	Wait   string // too many tokens were shown: how long to wait
	Reader bool   // reading needs no sign-in
}

func (s *Server) signInPage(w http.ResponseWriter, r *http.Request) {
	s.showSignIn(w, r, http.StatusOK, signInBody{Next: local(r.URL.Query().Get("next"))})
}

func (s *Server) showSignIn(w http.ResponseWriter, r *http.Request, status int, body signInBody) {
	body.Reader = s.cfg.OpenRead
	v := &visit{
		s: s, w: w, r: r,
		page: Page{
			Title: "Sign in", Path: body.Next, NowNs: time.Now().UnixNano(), Build: build, Body: body,
		},
	}
	if err := v.write(status, "signin"); err != nil {
		s.log.Error("page not made", "path", r.URL.Path, "error", err)
	}
}

func (s *Server) signIn(w http.ResponseWriter, r *http.Request) {
	next := local(r.PostFormValue("next"))
	name, err := s.access.check(r, time.Now())
	var many *tooMany
	if errors.As(err, &many) {
		s.log.Warn("console: too many sign-ins", "remote", r.RemoteAddr)
		w.Header().Set("Retry-After", many.seconds())
		body := signInBody{Next: next, Wait: many.seconds()}
		s.showSignIn(w, r, http.StatusTooManyRequests, body)
		return
	}
	if name == "" {
		s.log.Warn("console: a sign-in with an unknown token", "remote", r.RemoteAddr)
		s.showSignIn(w, r, http.StatusForbidden, signInBody{Next: next, Wrong: true})
		return
	}
	s.access.begin(w, name, time.Now())
	s.log.Info("console: an operator has signed in", "operator", name, "remote", r.RemoteAddr)
	http.Redirect(w, r, next, http.StatusSeeOther)
}

func (s *Server) signOut(w http.ResponseWriter, r *http.Request) {
	if session, ok := s.access.who(r, time.Now()); ok && session.genuine(r) {
		s.access.end(w, r)
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}
