package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/sagenbaum/sagenbaum/executor/host/webclient"
	"github.com/sagenbaum/sagenbaum/ledger/access/tries"
)

// ErrProvider is that the provider could not be asked, or did not say who it is.
var ErrProvider = errors.New("the provider does not say who you are")

// provider signs users in by the authorization code flow with PKCE, a state and a nonce.
type provider struct {
	Provider
	back string // URL where the provider leads back to
	asks *http.Client
	// signs what a browser keeps while its user is at the provider; nothing is kept here, so
	// that no one can fill this memory.
	signs [32]byte

	mu     sync.Mutex
	found  *oidc.Provider // nil: not yet
	failed time.Time      // when it could not be found
	why    error
}

func newProvider(p Provider, back string) (*provider, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	asks, err := p.client()
	if err != nil {
		return nil, err
	}
	if len(p.Scopes) == 0 {
		p.Scopes = []string{"profile"}
	}
	made := &provider{Provider: p, back: back, asks: asks}
	rand.Read(made.signs[:]) // never fails, as crypto/rand documents
	return made, nil
}

// find asks the provider for its endpoints, once: a console starts without it, and goes on.
func (p *provider) find(ctx context.Context, now time.Time) (*oidc.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found != nil {
		return p.found, nil
	}
	if p.why != nil && now.Sub(p.failed) < findEvery {
		return nil, p.why
	}
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, p.asks), p.Issuer)
	if err != nil {
		p.failed, p.why = time.Now(), err
		return nil, err
	}
	p.found, p.why = found, nil
	return found, nil
}

func (p *provider) config(found *oidc.Provider) *oauth2.Config {
	return &oauth2.Config{
		ClientID: p.ClientID, ClientSecret: p.ClientSecret, Endpoint: found.Endpoint(),
		RedirectURL: p.back, Scopes: append([]string{oidc.ScopeOpenID}, p.Scopes...),
	}
}

// begun is what a browser keeps while its user is at the provider.
type begun struct {
	State, Nonce, Verifier string
	Next                   string
	Session                string // id of the one that is confirmed; empty: a sign-in
	At                     int64  // unix seconds
}

func (p *provider) seal(b begun) string {
	data, err := json.Marshal(b)
	if err != nil {
		panic("access: cannot encode a sign-in: " + err.Error())
	}
	text := base64.RawURLEncoding.EncodeToString(data)
	return text + "." + base64.RawURLEncoding.EncodeToString(p.mac(text))
}

func (p *provider) mac(text string) []byte {
	mac := hmac.New(sha256.New, p.signs[:])
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

func (p *provider) open(value string, now time.Time) (b begun, ok bool) {
	text, sum, _ := strings.Cut(value, ".")
	mac, err := base64.RawURLEncoding.DecodeString(sum)
	if err != nil || !hmac.Equal(mac, p.mac(text)) {
		return b, false
	}
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(data, &b) != nil {
		return b, false
	}
	return b, now.Sub(time.Unix(b.At, 0)) < beginTime
}

// beginCookie is the cookie of a sign-in that has begun.
func (a *Access) beginCookie(value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: a.cookie + "_begun", Value: value, Path: "/", MaxAge: age, HttpOnly: true,
		Secure: a.secure, SameSite: http.SameSiteLaxMode,
	}
}

// ProviderHost is the host of the provider; empty: there is none.
func (a *Access) ProviderHost() string {
	if a.provider == nil {
		return ""
	}
	host := strings.TrimPrefix(strings.TrimPrefix(a.provider.Issuer, "https://"), "http://")
	host, _, _ = strings.Cut(host, "/")
	return host
}

// Begin is where a browser is sent to sign in at the provider, to come back to next. With a
// session, its user signs in there once more, which confirms it. The error wraps ErrProvider.
func (a *Access) Begin(
	w http.ResponseWriter, r *http.Request, next string, s *Session, now time.Time,
) (to string, err error) {
	if a.provider == nil {
		return "", ErrProvider
	}
	found, err := a.provider.find(r.Context(), now)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrProvider, webclient.WithoutURL(err))
	}
	b := begun{
		State: Secret(), Nonce: Secret(), Verifier: oauth2.GenerateVerifier(), Next: next, At: now.Unix(),
	}
	options := []oauth2.AuthCodeOption{oidc.Nonce(b.Nonce), oauth2.S256ChallengeOption(b.Verifier)}
	if s != nil {
		b.Session = s.ID
		options = append(options, oauth2.SetAuthURLParam("prompt", "login"),
			oauth2.SetAuthURLParam("max_age", "0"))
	}
	http.SetCookie(w, a.beginCookie(a.provider.seal(b), int(beginTime/time.Second)))
	return a.provider.config(found).AuthCodeURL(b.State, options...), nil
}

// Finish takes a browser that comes back from the provider: it starts a session, or confirms
// the one that it was sent with, and says where the browser wanted to go. Errors: *Declined,
// *tries.TooMany, or one that wraps ErrProvider.
func (a *Access) Finish(
	w http.ResponseWriter, r *http.Request, now time.Time,
) (s *Session, next string, err error) {
	if a.provider == nil {
		return nil, "", ErrProvider
	}
	kept, err := r.Cookie(a.cookie + "_begun")
	if err != nil {
		kept = new(http.Cookie)
	}
	http.SetCookie(w, a.beginCookie("", -1))
	b, ok := a.provider.open(kept.Value, now)
	query := r.URL.Query()
	if !ok || subtle.ConstantTimeCompare([]byte(b.State), []byte(query.Get("state"))) != 1 {
		return nil, "", declined("Begin again.",
			"this sign-in was not begun in this browser, or long ago")
	}
	who := tries.Known{From: tries.Address(r)}
	if wait := a.tries.Begin(who, now); wait > 0 {
		return nil, "", &tries.TooMany{Wait: wait}
	}
	said, err := a.provider.said(r.Context(), b, query.Get, now)
	if err != nil {
		return nil, "", err
	}
	if b.Session != "" {
		s, err = a.confirmed(w, r, b, said, now)
	} else {
		s, err = a.admit(w, r, said, now)
	}
	if err == nil {
		a.tries.Right(who, now)
	}
	return s, b.Next, err
}

// saying is what the provider says of a user.
type saying struct {
	subject  string
	expires  time.Time // of the ID token
	signedIn time.Time // at the provider; zero: it does not say
	claims   claims
}

// said asks the provider whose code it is.
func (p *provider) said(
	ctx context.Context, b begun, query func(string) string, now time.Time,
) (said saying, err error) {
	fail := func(what string, err error) (saying, error) {
		return saying{}, fmt.Errorf("%w: %s: %w", ErrProvider, what, webclient.WithoutURL(err))
	}
	if problem := query("error"); problem != "" {
		return saying{}, declined("Begin again.", "the provider says %.200q: %.200q", problem,
			query("error_description"))
	}
	if iss := query("iss"); iss != "" && iss != p.Issuer {
		return fail("answer", errors.New("another issuer answers"))
	}
	found, err := p.find(ctx, now)
	if err != nil {
		return fail("discovery", err)
	}
	ctx = oidc.ClientContext(ctx, p.asks)
	token, err := p.config(found).Exchange(ctx, query("code"), oauth2.VerifierOption(b.Verifier))
	if err != nil {
		return fail("code", err)
	}
	raw, _ := token.Extra("id_token").(string)
	id, err := found.Verifier(&oidc.Config{ClientID: p.ClientID}).Verify(ctx, raw)
	if err != nil {
		return fail("ID token", err)
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(b.Nonce)) != 1 {
		return fail("ID token", errors.New("it was made for another sign-in"))
	}
	said = saying{subject: id.Subject, expires: id.Expiry, claims: claims{}}
	if found.UserInfoEndpoint() != "" {
		info, err := found.UserInfo(ctx, oauth2.StaticTokenSource(token))
		if err != nil || info.Subject != id.Subject {
			return fail("user info", errors.Join(err, errors.New("it is about another user, or none")))
		}
		if err := info.Claims(&said.claims); err != nil {
			return fail("user info", err)
		}
	}
	var own struct {
		SignedIn int64 `json:"auth_time"`
	}
	if err := errors.Join(id.Claims(&said.claims), id.Claims(&own)); err != nil {
		return fail("ID token", err)
	}
	if own.SignedIn != 0 {
		said.signedIn = time.Unix(own.SignedIn, 0)
	}
	return said, nil
}

// confirmed confirms the session that a browser was sent with. The error is a *Declined.
func (a *Access) confirmed(
	w http.ResponseWriter, r *http.Request, b begun, said saying, now time.Time,
) (*Session, error) {
	s := a.Who(r, now)
	switch {
	case s == nil || s.ID != b.Session || s.subject != said.subject:
		return nil, declined("Sign in again.", "that was another user, or another session")
	case said.signedIn.Before(time.Unix(b.At, 0).Add(-clockSkew)):
		return nil, declined("The provider has to ask for it, whoever has signed in there already.",
			"you have not signed in at the provider once more")
	}
	a.confirm(w, r, s, now)
	return s, nil
}

// admit starts the session of a provider's user. The error is a *Declined.
func (a *Access) admit(
	w http.ResponseWriter, r *http.Request, said saying, now time.Time,
) (*Session, error) {
	name, err := a.provider.name(said.claims)
	if err != nil {
		return nil, err
	}
	grants, err := a.provider.grants(said.claims)
	if err != nil {
		return nil, err
	}
	s := &Session{
		Name: name, Grants: grants, Provider: true, From: from(r), subject: said.subject,
	}
	if p := a.provider; p.SessionTime > 0 {
		s.Ends = now.Add(p.SessionTime)
	}
	if a.provider.TokenTime && (s.Ends.IsZero() || said.expires.Before(s.Ends)) {
		s.Ends = said.expires
	}
	a.users.RLock() // one name is one user, also when the file is changed at this moment
	defer a.users.RUnlock()
	for _, u := range a.list {
		if u.Name == name {
			return nil, declined("An admin can rename the one or the other.",
				"the console has a user %s of its own, who is someone else", name)
		}
	}
	a.begin(w, s, now)
	return s, nil
}
