package callout_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc/oidctest"
	"github.com/nats-io/nkeys"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/access/callout"
)

const user = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"

func seed(t *testing.T) []byte {
	t.Helper()
	pair, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	s, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var shop = []callout.Rule{
	{Claim: "groups", Value: "agents", Tenant: "shop", Role: access.Agent, Run: true},
	{Claim: "groups", Value: "audit", Tenant: access.AllTenants, Role: access.Auditor, NameClaim: "email"},
}

// TestATokenOfAProviderIsAUserOfTheTable: an OIDC provider that runs here signs tokens.
func TestATokenOfAProviderIsAUserOfTheTable(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public := oidctest.PublicKey{PublicKey: key.Public(), KeyID: "k", Algorithm: "RS256"}
	provider := &oidctest.Server{PublicKeys: []oidctest.PublicKey{public}}
	server := httptest.NewServer(provider)
	defer server.Close()
	provider.SetIssuer(server.URL)
	verify, err := callout.OIDC(t.Context(), server.URL, "sagenbaum")
	if err != nil {
		t.Fatal(err)
	}
	c, err := callout.New(callout.Config{Verify: verify, Rules: shop, Key: seed(t)})
	if err != nil {
		t.Fatal(err)
	}
	token := func(signer *rsa.PrivateKey, audience, claims string, ends time.Duration) string {
		return oidctest.SignIDToken(signer, "k", "RS256", fmt.Sprintf(`{"iss":%q,"aud":%q,"sub":"coder","exp":%d,%s}`,
			server.URL, audience, time.Now().Add(ends).Unix(), claims))
	}
	got, err := c.Decide(t.Context(), token(key, "sagenbaum", `"groups":["x","agents"]`, time.Hour), user)
	if err != nil {
		t.Fatal(err)
	}
	want := access.User{Name: "coder", Role: access.Agent, Tenant: "shop", Run: true, Key: user}.Permissions()
	if got.Audience != "C_shop" || got.Subject != user || !slices.Equal([]string(got.Pub.Allow), want.Publish) ||
		!slices.Equal([]string(got.Sub.Allow), want.Subscribe) {
		t.Errorf("%+v", got)
	}
	if left := time.Until(time.Unix(got.Expires, 0)); left < 14*time.Minute || left > callout.TTLDefault {
		t.Errorf("it lives for %v", left)
	}
	brief, err := c.Decide(t.Context(), token(key, "sagenbaum", `"groups":["agents"]`, time.Minute), user)
	if err != nil || time.Until(time.Unix(brief.Expires, 0)) > time.Minute {
		t.Errorf("a user outlives its token: %v, %v", brief, err)
	}
	ana, err := c.Decide(t.Context(), token(key, "sagenbaum", `"groups":["audit"],"email":"ana@example.com"`, time.Hour), user)
	if err != nil || ana.Audience != access.OperatorsAccount || !strings.HasPrefix(ana.Name, "ana_example_com-") {
		t.Errorf("%+v, %v", ana, err)
	}
	for what, bad := range map[string]string{
		"no token": "", "nonsense": "x.y.z", "an expired one": token(key, "sagenbaum", `"groups":["agents"]`, -time.Hour),
		"one for another service": token(key, "other", `"groups":["agents"]`, time.Hour),
		"one of another signer":   token(other, "sagenbaum", `"groups":["agents"]`, time.Hour),
		"one that no rule fits":   token(key, "sagenbaum", `"groups":["guests"]`, time.Hour),
		"one without a name":      token(key, "sagenbaum", `"groups":["audit"]`, time.Hour),
	} {
		if u, err := c.Decide(t.Context(), bad, user); err == nil {
			t.Errorf("%s is let in: %+v", what, u)
		}
	}
}

func TestATokenOfAFileIsKnownByItsHash(t *testing.T) {
	sum := sha256.Sum256([]byte("s3cret"))
	verify, err := callout.Tokens(fmt.Appendf(nil, `{"tokens":[{"sha256":%q,"claims":{"sub":"w","groups":"agents"}}]}`,
		hex.EncodeToString(sum[:])))
	if err != nil {
		t.Fatal(err)
	}
	if claims, err := verify(context.Background(), "s3cret"); err != nil || claims["sub"] != "w" {
		t.Errorf("%v, %v", claims, err)
	}
	if claims, err := verify(context.Background(), "other"); err == nil {
		t.Errorf("%v", claims)
	}
	if _, err := callout.Tokens([]byte(`{"tokens":[{"sha256":"s3cret"}]}`)); !refuses(err, "tokens[0].sha256") {
		t.Errorf("a token instead of its hash: %v", err)
	}
}

func refuses(err error, field string) bool {
	var refused *ledger.Refused
	return errors.As(err, &refused) && refused.Field == field
}

func TestACalloutRefusesWhatItCannotKeep(t *testing.T) {
	verify := func(context.Context, string) (map[string]any, error) { return nil, nil }
	good := callout.Config{Verify: verify, Rules: shop, Key: seed(t)}
	for field, change := range map[string]func(*callout.Config){
		"key": func(c *callout.Config) { c.Key = []byte("x") }, "verify": func(c *callout.Config) { c.Verify = nil },
		"ttl":   func(c *callout.Config) { c.TTL = 48 * time.Hour },
		"rules": func(c *callout.Config) { c.Rules = nil },
		"tenant": func(c *callout.Config) {
			c.Rules = []callout.Rule{{Tenant: strings.Repeat("a", 10_000), Role: access.Agent}}
		},
		"role":          func(c *callout.Config) { c.Rules = []callout.Rule{{Tenant: "t", Role: "root"}} },
		"rules[0].role": func(c *callout.Config) { c.Rules = []callout.Rule{{Tenant: access.AllTenants, Role: access.Host}} },
	} {
		cfg := good
		change(&cfg)
		if _, err := callout.New(cfg); !refuses(err, field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
