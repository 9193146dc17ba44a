package access

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// A token is how a user shows over HTTP who it is: its tenant and name, signed with its key. The
// server needs to keep nothing of it, and it ends with the user, with its key, at its own time, and
// when it is revoked by its id. Whoever has it can do what the user may over HTTP, and nothing over
// NATS.

// ErrToken means that a token is none, or is not good any more.
var ErrToken = errors.New("the token is not good")

const tokenPrefix = "sbt1_"

// onceChars are the random characters of a token: 50 bits, among those of one user.
const onceChars = 10

// signed is what the signature of a token is made over. No server can have a client sign it as
// its nonce: that is text.
func signed(claims string) []byte { return []byte("\xff\xfesagenbaum token 1\n" + claims) }

// claimed is what a token says.
type claimed struct {
	Tenant  string `json:"t"`
	Name    string `json:"n"`
	Expires int64  `json:"x,omitempty"` // unix seconds; 0: with the user
	Made    int64  `json:"m,omitempty"` // unix seconds; 0: an earlier version has made it
	Once    string `json:"r,omitempty"` // random: no two tokens are one
}

// asksDoor reports whether the user may ask a door for anything.
func (u User) asksDoor() bool {
	switch u.Role {
	case Agent, Source, Supervisor, Local:
		return true
	}
	return false
}

// Sign makes a token; expires is its end, zero: that of the user.
func (c Credentials) Sign(expires time.Time) (string, error) {
	pair, err := nkeys.FromSeed(c.Seed)
	if err != nil {
		return "", ledger.Refuse("creds", "the seed is none: "+err.Error(), "a seed of a user")
	}
	said := claimed{Tenant: c.Tenant, Name: c.Name, Made: time.Now().Unix(),
		Once: rand.Text()[:onceChars]}
	if !expires.IsZero() {
		said.Expires = expires.Unix()
	}
	body, err := json.Marshal(said)
	if err != nil {
		return "", fmt.Errorf("cannot make a token: %w", err)
	}
	claims := base64.RawURLEncoding.EncodeToString(body)
	sig, err := pair.Sign(signed(claims))
	if err != nil {
		return "", fmt.Errorf("cannot make a token: %w", err)
	}
	return tokenPrefix + claims + "." + base64.RawURLEncoding.EncodeToString(sig), nil
}

// TokenOver is the error of a token that was good. It is ErrToken, too.
type TokenOver struct {
	Why  string // as in: the token has ended at 2026-01-02T03:04:05Z
	Want string // the next step
}

// Error implements error.
func (e *TokenOver) Error() string { return e.Why + ": want " + e.Want }

// Is implements the interface of errors.Is.
func (e *TokenOver) Is(target error) bool { return target == ErrToken }

// Authenticate finds the user who has signed a token. The error is ErrToken, from which a guess
// learns nothing; of what a user has signed it says why it is over: a *TokenOver.
func (d *Directory) Authenticate(token string, now time.Time) (User, error) {
	text, ok := strings.CutPrefix(token, tokenPrefix)
	claims, sig, cut := strings.Cut(text, ".")
	body, err := base64.RawURLEncoding.DecodeString(claims)
	signature, err2 := base64.RawURLEncoding.DecodeString(sig)
	var said claimed
	if !ok || !cut || errors.Join(err, err2) != nil || json.Unmarshal(body, &said) != nil {
		return User{}, ErrToken
	}
	u, err := d.Find(said.Tenant, said.Name)
	if err != nil || !u.asksDoor() {
		return User{}, ErrToken
	}
	public, err := nkeys.FromPublicKey(u.Key)
	if err != nil || public.Verify(signed(claims), signature) != nil {
		return User{}, ErrToken
	}
	id := tokenID(u.Key, claims)
	if over := u.over(id, said.token(id), now); over != nil {
		return User{}, over
	}
	d.used.noteToken(u.Key, said.token(id), now)
	return u, nil
}

// over says why a token that the user has signed is not good any more; nil: it is.
func (u User) over(id string, t Token, now time.Time) error {
	const another = "another one: sagenbaum user token --creds FILE"
	ended, revoked := u.revoked(id)
	switch {
	case u.Expired(now):
		return &TokenOver{fmt.Sprintf("user %s has expired at %s", u.ID(), moment(u.Expires)),
			fmt.Sprintf("who runs the server gives it a new time: sagenbaum user rotate %s --tenant %s "+
				"--expires 90d", u.Name, u.Tenant)}
	case revoked:
		return &TokenOver{fmt.Sprintf("token %s was revoked at %s", id, moment(ended.At)), another}
	case !t.Expires.IsZero() && !now.Before(t.Expires):
		return &TokenOver{fmt.Sprintf("token %s has ended at %s", id, moment(t.Expires)), another}
	}
	return nil
}

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// token is what is told of a token with these claims.
func (c claimed) token(id string) Token {
	t := Token{ID: id}
	if c.Made != 0 {
		t.Made = time.Unix(c.Made, 0).UTC()
	}
	if c.Expires != 0 {
		t.Expires = time.Unix(c.Expires, 0).UTC()
	}
	return t
}
