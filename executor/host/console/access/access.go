package access

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access/tries"
)

// Config says who may sign in, and how a browser knows it.
type Config struct {
	Users  string // file of users; made, with one admin, when it is not there
	First  string // that admin's name
	Port   string // of the console: several may share a host
	Secure bool   // the console has a certificate

	Provider *Provider // nil: none
	Back     string    // URL where the provider leads back to

	Logger *slog.Logger
}

// Access knows who may do what, and who has signed in.
type Access struct {
	sessions
	path    string
	log     *slog.Logger
	tries   tries.Tries
	hashers chan struct{} // a place for each token that may be hashed at once
	// nil: none
	provider *provider

	users   sync.RWMutex
	list    []User
	info    os.FileInfo // of the file as it was last read
	problem string      // why it could not be read again
}

// ErrWrong is the error of a sign-in with a name and a token that are not one user's.
var ErrWrong = errors.New("no user has that name and token")

// Open reads the file of users. Errors: *ledger.Refused for what is wrong with Config or in the
// file; otherwise what the file said.
func Open(cfg Config) (*Access, error) {
	cookie := "sagenbaum_" + cfg.Port
	if cfg.Secure { // no page of another host, and none without a certificate, can set or get it
		cookie = "__Host-" + cookie
	}
	a := &Access{
		sessions: sessions{cookie: cookie, secure: cfg.Secure, all: map[cookieHash]*Session{}},
		path:     cfg.Users, log: cfg.Logger, hashers: make(chan struct{}, hashersMax),
	}
	if cfg.Provider != nil {
		made, err := newProvider(*cfg.Provider, cfg.Back)
		if err != nil {
			return nil, err
		}
		a.provider = made
	}
	info, err := os.Stat(cfg.Users)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeUsers(cfg.Users, cfg.First); err != nil {
			return nil, err
		}
		info, err = os.Stat(cfg.Users)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the console's users: %w", err)
	}
	if a.list, err = ReadUsers(cfg.Users); err != nil {
		return nil, err
	}
	a.info = info
	a.warnOfOldForm()
	return a, nil
}

func (a *Access) warnOfOldForm() {
	var names []string
	for _, u := range a.list {
		if u.OldForm() {
			names = append(names, u.Name)
		}
	}
	if len(names) > 0 {
		a.log.Warn("console: lines of users in the old form name no role, and count as operators of "+
			"all tenants; sagenbaum console users add writes new ones", "file", a.path, "users", names)
	}
}

// Follow reads the file again whenever it changes, until the context ends.
func (a *Access) Follow(ctx context.Context) {
	tick := time.NewTicker(reloadEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.Reload()
		}
	}
}

// Reload reads the file of users if it has changed. A file that cannot be read changes nothing,
// and Problem says so. The sessions of users whose line has changed or gone end.
func (a *Access) Reload() {
	info, err := os.Stat(a.path)
	a.users.Lock()
	defer a.users.Unlock()
	if err == nil && a.info != nil && os.SameFile(info, a.info) &&
		info.ModTime().Equal(a.info.ModTime()) && info.Size() == a.info.Size() &&
		info.Mode() == a.info.Mode() {
		return
	}
	var list []User
	if err == nil {
		list, err = ReadUsers(a.path)
	}
	if err != nil {
		if text := err.Error(); text != a.problem {
			a.problem = text
			a.log.Error("console: the users cannot be read again, and those of before go on",
				"file", a.path, "cause", err)
		}
		a.info = info
		return
	}
	a.list, a.info, a.problem = list, info, ""
	ended := a.end(func(s *Session) bool {
		if s.Provider { // one name is one user
			return slices.ContainsFunc(list, func(u User) bool { return u.Name == s.Name })
		}
		return !slices.ContainsFunc(list, s.user.equal)
	})
	a.log.Info("console: the users were read again", "file", a.path, "users", len(list),
		"ended_sessions", len(ended))
	a.warnOfOldForm()
}

// Problem is why the file of users could not be read when it had changed; empty: it could.
func (a *Access) Problem() string {
	a.users.RLock()
	defer a.users.RUnlock()
	return a.problem
}

// Equal reports whether all users may do the same on all tenants, but for the sessions: then
// what one of them may see, whoever is on their machine may see.
func (a *Access) Equal() bool {
	a.users.RLock()
	defer a.users.RUnlock()
	return a.provider == nil && !slices.ContainsFunc(a.list, func(u User) bool {
		return u.Grants.On(Everywhere) < Operator
	})
}

// OldForm reports whether a user has a line in the old form, whose token says the name, too.
func (a *Access) OldForm() bool {
	a.users.RLock()
	defer a.users.RUnlock()
	return slices.ContainsFunc(a.list, User.OldForm)
}

// Check returns the user whom the name and the token belong to. It takes as long whichever user
// that is, and whether it is one. Errors: ErrWrong, *tries.TooMany.
func (a *Access) Check(r *http.Request, name, token string, now time.Time) (User, error) {
	if !ledger.ValidToken(name) {
		name = "" // that of no user, and nothing to remember
	}
	who := tries.Known{From: tries.Address(r), Name: name}
	if wait := a.tries.Begin(who, now); wait > 0 {
		return User{}, &tries.TooMany{Wait: wait}
	}
	select {
	case a.hashers <- struct{}{}:
	case <-r.Context().Done():
		return User{}, &tries.TooMany{Wait: tries.Every}
	}
	u, ok := a.find(name, token[:min(len(token), tokenBytesMax)], now)
	<-a.hashers
	if !ok {
		return User{}, ErrWrong
	}
	a.tries.Right(who, now)
	return u, nil
}

// find looks for a user. One line in the old form is also found by its token alone.
func (a *Access) find(name, token string, now time.Time) (found User, ok bool) {
	a.users.RLock()
	list := a.list
	a.users.RUnlock()
	slow := false
	for _, u := range list {
		if u.OldForm() {
			same := subtle.ConstantTimeCompare(u.token.of(token), []byte(u.token.sum)) == 1
			if same && (name == "" || name == u.Name) {
				found, ok = u, true
			}
		} else if u.Name == name {
			slow = true
			if u.token.matches(token) && !u.expired(now) {
				found, ok = u, true
			}
		}
	}
	if !slow {
		decoy.of(token)
	}
	return found, ok
}

// SignIn starts a session of the user whose name and token the request's form has. Errors:
// ErrWrong, *tries.TooMany.
func (a *Access) SignIn(w http.ResponseWriter, r *http.Request, now time.Time) (*Session, error) {
	u, err := a.Check(r, r.PostFormValue("name"), r.PostFormValue("token"), now)
	if err != nil {
		return nil, err
	}
	s := &Session{Name: u.Name, Grants: u.Grants, From: from(r), Ends: u.Expires, user: u}
	a.users.RLock() // until the session is one that a change of the file ends
	defer a.users.RUnlock()
	if !slices.ContainsFunc(a.list, u.equal) {
		return nil, ErrWrong
	}
	a.begin(w, s, now)
	return s, nil
}

// Confirm takes the token of the session's user from the request's form, and confirms the
// session with it. Errors: ErrWrong, also for another user's token; *tries.TooMany.
func (a *Access) Confirm(
	w http.ResponseWriter, r *http.Request, s *Session, now time.Time,
) error {
	if s.Provider || r.PostFormValue("token") == "" { // none was shown, which is no try
		return ErrWrong
	}
	u, err := a.Check(r, s.Name, r.PostFormValue("token"), now)
	if err == nil && u.Name != s.Name {
		err = ErrWrong
	}
	if err == nil {
		a.confirm(w, r, s, now)
	}
	return err
}

// from is the address that a session is listed with.
func from(r *http.Request) string {
	if p := tries.Address(r); p.IsSingleIP() {
		return p.Addr().String()
	} else if p.IsValid() {
		return p.String()
	}
	return "unknown"
}
