package console

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/console/access"
	"github.com/sagenbaum/sagenbaum/executor/host/console/web"
	"github.com/sagenbaum/sagenbaum/ledger/access/tries"
)

// SessionView is a session as /api/sessions lists it, for admins.
type SessionView struct {
	ID      string `json:"id"`
	User    string `json:"user"`
	May     string `json:"may"` // its roles and their tenants
	By      string `json:"by"`  // token or provider
	From    string `json:"from"`
	SinceNs int64  `json:"since_ns"`
	SeenNs  int64  `json:"seen_ns"`
	EndsNs  int64  `json:"ends_ns"`
}

// SessionList is the answer of GET /api/sessions.
type SessionList struct {
	Sessions []SessionView `json:"sessions"`
}

func viewOf(s *access.Session) SessionView {
	by := "token"
	if s.Provider {
		by = "provider"
	}
	return SessionView{
		ID: s.ID, User: s.Name, May: s.Grants.String(), By: by, From: s.From,
		SinceNs: s.Began.UnixNano(), SeenNs: s.Seen().UnixNano(), EndsNs: s.Ends.UnixNano(),
	}
}

// sessions is the page of those who have signed in.
func (v *visit) sessions() error {
	body := web.Sessions{Problem: v.s.access.Problem()}
	list := v.s.access.Sessions(v.grants, v.now())
	for i, s := range list[:min(len(list), sessionsListed)] {
		seen := viewOf(s)
		body.Rows = append(body.Rows, web.Session{
			ID: seen.ID, User: seen.User, May: seen.May, By: seen.By, From: seen.From,
			SinceNs: seen.SinceNs, SeenNs: seen.SeenNs, EndsNs: seen.EndsNs, Own: list[i] == v.session,
		})
	}
	body.More = len(list) - len(body.Rows)
	return v.show("Sessions", "sessions", body)
}

func (v *visit) endSession() error {
	id := v.r.PostFormValue("id")
	ended, ok := v.s.access.End(id, v.grants)
	if !ok {
		return failed(http.StatusNotFound, "Look at the list again.", "no session of yours to end is %q",
			id)
	}
	v.s.ended(ended, v.session.Name, v.r)
	http.Redirect(v.w, v.r, "/sessions", http.StatusSeeOther)
	return nil
}

func (s *Server) ended(session *access.Session, by string, r *http.Request) {
	s.log.Info("console: an admin has ended a session", "session", session.ID, "user", session.Name,
		"admin", by, "remote", r.RemoteAddr)
}

// admin is the admin whose name and token a request has by basic authentication. A browser is
// never asked for these, so that no page of another site can make it send them. What is wrong
// was answered then.
func (s *Server) admin(w http.ResponseWriter, r *http.Request) (admin access.User, ok bool) {
	name, token, _ := r.BasicAuth()
	admin, err := s.access.Check(r, name, token, time.Now())
	var many *tries.TooMany
	switch {
	case errors.As(err, &many):
		w.Header().Set("Retry-After", many.Seconds())
		http.Error(w, err.Error(), http.StatusTooManyRequests)
	case err != nil:
		http.Error(w, err.Error(), http.StatusUnauthorized)
	case admin.Grants.Best() < access.Admin:
		http.Error(w, "sessions are for admins, and "+admin.Name+" is none", http.StatusForbidden)
	default:
		return admin, true
	}
	return admin, false
}

func (s *Server) listSessions(w http.ResponseWriter, r *http.Request) {
	admin, ok := s.admin(w, r)
	if !ok {
		return
	}
	answer := SessionList{Sessions: []SessionView{}}
	for _, session := range s.access.Sessions(admin.Grants, time.Now()) {
		answer.Sessions = append(answer.Sessions, viewOf(session))
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		s.log.Debug("sessions not sent", "error", err)
	}
}

func (s *Server) deleteSession(w http.ResponseWriter, r *http.Request) {
	admin, ok := s.admin(w, r)
	if !ok {
		return
	}
	ended, ok := s.access.End(r.PathValue("id"), admin.Grants)
	if !ok {
		http.Error(w, "there is no session of that id to end", http.StatusNotFound)
		return
	}
	s.ended(ended, admin.Name, r)
	w.WriteHeader(http.StatusNoContent)
}
