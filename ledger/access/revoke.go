package access

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Token is what is told of a token: nothing of it lets anyone in.
type Token struct {
	ID string `json:"id"`
	// Made is zero for a token of an earlier version.
	Made    time.Time `json:"made,omitzero"`
	Expires time.Time `json:"expires,omitzero"`   // zero: with its user
	Used    time.Time `json:"last_used,omitzero"` // to the minute
	Revoked time.Time `json:"revoked,omitzero"`   // zero: it is not
}

// Revoked is a token of a user that is refused for good, though its user is not.
type Revoked struct {
	ID      string    `json:"id"`
	At      time.Time `json:"at"`
	Expires time.Time `json:"expires,omitzero"` // of the token; zero: not known, or with the user
}

const (
	// revokedMax bounds the tokens that are revoked of one user, without those whose time is over.
	revokedMax = 100
	// tokensMax bounds the tokens that are told of one user: those that were used last.
	tokensMax = 32
	// clockBack is how far a clock may be set back until a token that was revoked, and is over, would
	// be good again.
	clockBack = 48 * time.Hour
)

var idText = base32.StdEncoding.WithPadding(base32.NoPadding)

// idChars are the characters of the id of a token: 80 bits.
const idChars = 16

// tokenID is the id of what a user's key has signed. The text that is signed has it, and not the
// signature: another text of the same token is the same token.
func tokenID(key, claims string) string {
	sum := sha256.Sum256([]byte(key + "\n" + claims))
	return strings.ToLower(idText.EncodeToString(sum[:]))[:idChars]
}

// TokenID is the public id of a token that the credentials have signed; empty: it is no token.
func (c Credentials) TokenID(token string) string {
	text, _ := strings.CutPrefix(token, tokenPrefix)
	claims, _, ok := strings.Cut(text, ".")
	if !ok {
		return ""
	}
	return tokenID(c.Key(), claims)
}

func validTokenID(id string) bool {
	body, err := idText.DecodeString(strings.ToUpper(id))
	return err == nil && len(id) == idChars && strings.ToLower(id) == id && len(body) > 0
}

// CheckTokenID refuses what no id of a token can be.
func CheckTokenID(id string) error {
	if validTokenID(id) {
		return nil
	}
	return ledger.Refuse("token", fmt.Sprintf("%.80q is no id of a token", id),
		fmt.Sprintf("%d small letters and digits, as sagenbaum user token ls has them", idChars))
}

// checkRevoked refuses what no list of revoked tokens can be.
func (u User) checkRevoked() error {
	if len(u.Revoked) > revokedMax {
		return ledger.Refuse("revoked_tokens", fmt.Sprintf("%d of them", len(u.Revoked)),
			fmt.Sprintf("at most %d; a new key ends all: sagenbaum user rotate", revokedMax))
	}
	for i, r := range u.Revoked {
		if !validTokenID(r.ID) {
			return ledger.Refuse(fmt.Sprintf("revoked_tokens[%d].id", i),
				fmt.Sprintf("%.80q is no id of a token", r.ID), "as sagenbaum user token ls has it")
		}
	}
	return nil
}

func (u User) revoked(id string) (Revoked, bool) {
	i := slices.IndexFunc(u.Revoked, func(r Revoked) bool { return r.ID == id })
	if i < 0 {
		return Revoked{}, false
	}
	return u.Revoked[i], true
}

// noteToken says that a token was shown. Of a user with more than tokensMax, the one that was not
// used for longest is forgotten; it stays as good as it was.
func (s *uses) noteToken(key string, t Token, now time.Time) {
	s.note(key, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.tokens[key]
	i := slices.IndexFunc(all, func(other Token) bool { return other.ID == t.ID })
	if i >= 0 && now.Sub(all[i].Used) < usedEvery {
		return
	}
	t.Used = now.UTC().Truncate(time.Second)
	switch {
	case i >= 0:
		all[i] = t
	case len(all) < tokensMax:
		all = append(all, t)
	default:
		oldest := 0
		for j := range all {
			if all[j].Used.Before(all[oldest].Used) {
				oldest = j
			}
		}
		all[oldest] = t
	}
	if s.tokens == nil {
		s.tokens = map[string][]Token{}
	}
	s.tokens[key], s.dirty = all, true
}

// Tokens are the tokens of a user that were shown to this server, and those that are revoked, the
// one that was used last first. The error is ErrNoUser.
func (d *Directory) Tokens(tenant, name string) ([]Token, error) {
	u, err := d.Find(tenant, name)
	if err != nil {
		return nil, err
	}
	d.used.mu.Lock()
	all := slices.Clone(d.used.tokens[u.Key])
	d.used.mu.Unlock()
	for _, r := range u.Revoked {
		i := slices.IndexFunc(all, func(t Token) bool { return t.ID == r.ID })
		if i < 0 {
			all = append(all, Token{ID: r.ID, Expires: r.Expires, Revoked: r.At})
		} else {
			all[i].Revoked = r.At
		}
	}
	slices.SortStableFunc(all, func(a, b Token) int { return b.Used.Compare(a.Used) })
	return all, nil
}

// Revoke has a token of a user refused from now on, and what waits with it ends. unseen is for one
// that was not shown to this server yet. Errors: *ledger.Refused, ErrNoUser.
func (d *Directory) Revoke(tenant, name, id string, unseen bool, now time.Time) (u User,
	err error) {
	if err := CheckTokenID(id); err != nil {
		return u, err
	}
	known, err := d.Tokens(tenant, name)
	if err != nil {
		return u, err
	}
	i := slices.IndexFunc(known, func(t Token) bool { return t.ID == id })
	if i < 0 && !unseen {
		return u, ledger.Refuse("token", fmt.Sprintf("no token %s of user %.80s was shown to this "+
			"server", id, name), fmt.Sprintf("one of sagenbaum user token ls %.80s; --unseen where "+
			"its id is known from when it was made", name))
	}
	entry := Revoked{ID: id, At: now.UTC().Truncate(time.Second)}
	if i >= 0 {
		entry.Expires = known[i].Expires
	}
	err = d.change(func(users []User) ([]User, error) {
		at := d.index(tenant, name)
		if at < 0 {
			return nil, fmt.Errorf("%w: %.80s of tenant %.80s", ErrNoUser, name, tenant)
		}
		u = users[at]
		if _, already := u.revoked(id); already {
			return users, nil
		}
		u.Revoked = append(slices.DeleteFunc(slices.Clone(u.Revoked), func(r Revoked) bool {
			return !r.Expires.IsZero() && now.After(r.Expires.Add(clockBack))
		}), entry)
		users[at] = u
		return users, u.Check()
	})
	return u, err
}
