// Package callout lets clients in by an identity that they have already: a token of an OIDC
// provider, or one of a file. The NATS server asks it about each connection (auth callout);
// it verifies the token, finds the first rule that fits its claims, and answers with a user
// of package access, its permissions by the same table as everywhere, for some minutes.
//
//	c, err := callout.New(callout.Config{Verify: verify, Rules: rules, Key: issuer})
//	sub, err := c.Serve(conn) // of a user in access.CalloutAccount
package callout

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
)

// TTLDefault is how long a user lives, and TTLMax how long at most: after that its client
// connects again with a token that is good still.
const (
	TTLDefault = 15 * time.Minute
	TTLMax     = 24 * time.Hour
)

// Rule maps claims of a token to a user. The first of a list that fits counts.
type Rule struct {
	// Claim and Value are what a token must have: a claim that is Value, or a list that has
	// it. Both empty: every token fits.
	Claim string `json:"claim,omitempty"`
	Value string `json:"value,omitempty"`

	Tenant string      `json:"tenant"`
	Role   access.Role `json:"role"`
	// NameClaim is the claim that the user's name is taken from; empty: "sub". A character that
	// no name may have becomes '_', so give users a claim that stays different.
	NameClaim    string   `json:"name_claim,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
	Run          bool     `json:"run,omitempty"`
}

// Config is what a callout decides by.
type Config struct {
	// Verify returns the claims of a token, or why it is none. It may be called from several
	// goroutines.
	Verify func(ctx context.Context, token string) (map[string]any, error)
	Rules  []Rule
	Key    []byte           // seed of the account that the servers' configuration names as issuer
	TTL    time.Duration    // of a user; 0: TTLDefault
	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: silent
}

// Callout answers servers.
type Callout struct {
	Config
	issuer nkeys.KeyPair
}

// New checks the configuration: the error is a *ledger.Refused.
func New(cfg Config) (*Callout, error) {
	c := &Callout{Config: cfg}
	if c.TTL == 0 {
		c.TTL = TTLDefault
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	var err error
	if c.issuer, err = nkeys.FromSeed(cfg.Key); err != nil {
		return nil, ledger.Refuse("key", err.Error(), "the seed of an account, SA...")
	}
	switch {
	case cfg.Verify == nil:
		return nil, ledger.Refuse("verify", "missing", "what verifies tokens")
	case c.TTL < time.Minute || c.TTL > TTLMax:
		return nil, ledger.Refuse("ttl", c.TTL.String(), "a minute to a day")
	case len(cfg.Rules) == 0:
		return nil, ledger.Refuse("rules", "none", "at least one rule")
	}
	for i, r := range cfg.Rules {
		u := r.user("name")
		u.Key = anyKey
		if err := u.Check(); err != nil {
			return nil, fmt.Errorf("rules[%d]: %w", i, err)
		}
		if r.Role == access.Local || u.Account() != access.OperatorsAccount &&
			u.Account() != access.TenantAccount(u.Tenant) {
			return nil, ledger.Refuse(fmt.Sprintf("rules[%d].role", i),
				string(r.Role)+" is not for tokens", "a role of clients")
		}
	}
	return c, nil
}

// anyKey is used as the key of a user that is only checked.
const anyKey = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"

func (r Rule) user(name string) access.User {
	return access.User{Name: name, Role: r.Role, Tenant: r.Tenant, Capabilities: r.Capabilities,
		Run: r.Run}
}

// Serve answers servers on a connection, until the subscription ends.
func (c *Callout) Serve(conn *nats.Conn) (*nats.Subscription, error) {
	return conn.QueueSubscribe("$SYS.REQ.USER.AUTH", "sagenbaum", func(m *nats.Msg) {
		go func() { // ends with its answer: a provider may take its time
			answer, err := c.answer(string(m.Data))
			if err == nil {
				err = m.Respond([]byte(answer))
			}
			if err != nil {
				c.Logger.Warn("a connection was not decided", "error", err)
			}
		}()
	})
}

// verifyWithin bounds the decision on one connection: servers wait for 2 s.
const verifyWithin = 1900 * time.Millisecond

// answer decides on the request of a server.
func (c *Callout) answer(request string) (string, error) {
	r, err := jwt.DecodeAuthorizationRequestClaims(request)
	if err != nil {
		return "", fmt.Errorf("cannot read the server's request: %w", err)
	}
	answer := jwt.NewAuthorizationResponseClaims(r.UserNkey)
	answer.Audience = r.Server.ID
	ctx, cancel := context.WithTimeout(context.Background(), verifyWithin)
	defer cancel()
	user, err := c.Decide(ctx, r.ConnectOptions.Token, r.UserNkey)
	if err == nil {
		answer.Jwt, err = user.Encode(c.issuer)
	}
	if err != nil {
		c.Logger.Info("refused", "client", r.ClientInformation.Host, "cause", err)
		answer.Jwt, answer.Error = "", "the token was not accepted"
	}
	return answer.Encode(c.issuer)
}

// Decide is what the user of a token may do, for the key that the server has made for the
// connection.
func (c *Callout) Decide(ctx context.Context, token, key string) (*jwt.UserClaims, error) {
	if token == "" {
		return nil, errors.New("there is no token")
	}
	claims, err := c.Verify(ctx, token)
	if err != nil {
		return nil, fmt.Errorf("cannot verify the token: %w", err)
	}
	for _, r := range c.Rules {
		if !r.fits(claims) {
			continue
		}
		name, err := r.name(claims)
		if err != nil {
			return nil, err
		}
		u := r.user(name)
		u.Key, u.Expires = key, c.Now().Add(c.TTL)
		if end, ok := claims["exp"].(float64); ok && time.Unix(int64(end), 0).Before(u.Expires) {
			u.Expires = time.Unix(int64(end), 0)
		}
		if u.Expired(c.Now()) {
			return nil, errors.New("the token has expired")
		}
		if err := u.Check(); err != nil {
			return nil, err
		}
		user := u.Claims()
		user.Audience = u.Account()
		return user, nil
	}
	return nil, errors.New("no rule fits the token")
}

func (r Rule) fits(claims map[string]any) bool {
	if r.Claim == "" && r.Value == "" {
		return true
	}
	switch have := claims[r.Claim].(type) {
	case string:
		return have == r.Value
	case []any:
		return slices.ContainsFunc(have, func(v any) bool { return v == r.Value })
	}
	return false
}

// name is the user's, of characters that a subject may have.
func (r Rule) name(claims map[string]any) (string, error) {
	claim := r.NameClaim
	if claim == "" {
		claim = "sub"
	}
	text, ok := claims[claim].(string)
	if !ok || text == "" {
		return "", fmt.Errorf("the token has no claim %q to name its user", claim)
	}
	name := strings.Map(func(c rune) rune {
		if c < 128 && ledger.ValidToken(string(c)) {
			return c
		}
		return '_'
	}, text)
	if !ledger.ValidToken(name) {
		return "", fmt.Errorf("claim %q makes no name: %.80q", claim, text)
	}
	if name != text { // two subjects must not become one name
		sum := sha256.Sum256([]byte(text))
		name = name[:min(len(name), ledger.TokenLenMax-9)] + "-" + hex.EncodeToString(sum[:4])
	}
	return name, nil
}

// Token is an entry of a file of tokens.
type Token struct {
	SHA256 string         `json:"sha256"` // of the token, in hex
	Claims map[string]any `json:"claims"`
}

// Tokens verifies tokens by a file that has their hashes: {"tokens": [{"sha256", "claims"}]}.
func Tokens(text []byte) (func(context.Context, string) (map[string]any, error), error) {
	var file struct {
		Tokens []Token `json:"tokens"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, ledger.Refuse("tokens", err.Error(), `{"tokens": [{"sha256": "...", "claims": {}}]}`)
	}
	for i, t := range file.Tokens {
		if raw, err := hex.DecodeString(t.SHA256); err != nil || len(raw) != sha256.Size {
			return nil, ledger.Refuse(fmt.Sprintf("tokens[%d].sha256", i), "no hash",
				"64 hex digits: printf %s TOKEN | sha256sum")
		}
	}
	return func(_ context.Context, token string) (map[string]any, error) {
		sum := sha256.Sum256([]byte(token))
		given := hex.EncodeToString(sum[:])
		for _, t := range file.Tokens {
			if subtle.ConstantTimeCompare([]byte(strings.ToLower(t.SHA256)), []byte(given)) == 1 {
				return t.Claims, nil
			}
		}
		return nil, errors.New("it is not known")
	}, nil
}
