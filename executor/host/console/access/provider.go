package access

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/webclient"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// Provider is an OpenID Connect provider, and what its claims mean here.
type Provider struct {
	Issuer       string // URL; https, but for one on this machine
	ClientID     string
	ClientSecret string   // empty: none, PKCE alone
	Scopes       []string // beside openid; empty: profile

	// NameClaim is the claim that has a user's name; empty: preferred_username. The provider
	// must give a name to one user only. NameSuffix ends every name there and is not a part of
	// it here; empty: none. A full stop in a name is an underscore here, so that a name with an
	// underscore cannot sign in.
	NameClaim, NameSuffix string

	Rules []Rule // a user has what all that match give; at least one

	SessionTime time.Duration // that a session lasts at most; 0: SessionTime
	// TokenTime ends a session with the ID token that it began with.
	TokenTime bool

	CA []byte // PEM: who has signed the provider's certificate; empty: who this machine trusts
}

// Rule gives a role to users with a claim: a text, a yes (the value true), or a list that has
// the value. A claim within another is named with a full stop between.
type Rule struct {
	Claim, Value string
	Grant        Grant
}

// Check reports what is wrong; the error is a *ledger.Refused.
func (p *Provider) Check() error {
	issuer, err := url.Parse(p.Issuer)
	switch {
	case err != nil || issuer.Host == "" || issuer.RawQuery != "" || issuer.Fragment != "" ||
		issuer.Scheme != "https" && (issuer.Scheme != "http" || !here(issuer.Hostname())):
		return ledger.Refuse("issuer", fmt.Sprintf("%q cannot be trusted", p.Issuer),
			"the https URL of the provider, as it names itself")
	case p.ClientID == "":
		return ledger.Refuse("client_id", "missing", "the id that the provider has given the console")
	case len(p.Rules) == 0:
		return ledger.Refuse("roles", "none", "at least one claim with its role and tenants")
	case p.SessionTime < 0 || p.SessionTime > SessionTime:
		return ledger.Refuse("session", fmt.Sprintf("%v", p.SessionTime),
			fmt.Sprintf("at most %v", SessionTime))
	}
	for i, rule := range p.Rules {
		field := fmt.Sprintf("roles[%d]", i)
		if rule.Claim == "" || rule.Value == "" {
			return ledger.Refuse(field, "it has no claim or no value", "claim: groups, value: NAME")
		}
		if rule.Grant.Role < Reader || rule.Grant.Role > Admin {
			return ledger.Refuse(field+".role", "none", "reader, operator or admin")
		}
		if _, err := ParseTenants(strings.Join(rule.Grant.Tenants, ",")); err != nil {
			return ledger.Refuse(field+".tenants", "wrong or none", "[\"*\"], or names of tenants")
		}
	}
	if _, err := p.client(); err != nil {
		return err
	}
	return nil
}

// here reports whether a host is this machine.
func here(host string) bool {
	return webclient.OnThisMachine(host) || strings.HasSuffix(host, ".localhost")
}

// client is what asks the provider.
func (p *Provider) client() (*http.Client, error) {
	client := webclient.New()
	client.Timeout = providerTime
	if len(p.CA) > 0 {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(p.CA) {
			return nil, ledger.Refuse("ca", "no certificate", "certificates in PEM")
		}
		client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{
			RootCAs: pool, MinVersion: tls.VersionTLS12,
		}
	}
	return client, nil
}

// Declined says why a provider's user has no session here, for that user.
type Declined struct{ Why, Hint string }

func (e *Declined) Error() string { return e.Why }

func declined(hint, format string, args ...any) error {
	return &Declined{fmt.Sprintf(format, args...), hint}
}

// claims are what a provider says of a user.
type claims map[string]any

// has reports whether a claim is a value, or a list with it.
func (c claims) has(name, value string) bool {
	switch is := c.find(name).(type) {
	case string:
		return is == value
	case bool:
		return is && value == "true"
	case []any:
		for _, one := range is[:min(len(is), claimValues)] {
			if one == value {
				return true
			}
		}
	}
	return false
}

// find is a claim, or one within another.
func (c claims) find(name string) any {
	if is, ok := c[name]; ok {
		return is
	}
	outer, inner, _ := strings.Cut(name, ".")
	if within, ok := c[outer].(map[string]any); ok {
		return claims(within).find(inner)
	}
	return nil
}

// name is the name that a user has here. The error is a *Declined.
func (p *Provider) name(c claims) (string, error) {
	claim := p.NameClaim
	if claim == "" {
		claim = "preferred_username"
	}
	full, _ := c.find(claim).(string)
	own, ok := strings.CutSuffix(full, p.NameSuffix)
	name := strings.ReplaceAll(own, ".", "_")
	const hint = "An admin can name another claim, or a suffix that all names have."
	switch {
	case full == "":
		return "", declined(hint, "the provider does not say your name: it has no claim %s", claim)
	case !ok:
		return "", declined(hint, "your name at the provider, %q, does not end with %s", full,
			p.NameSuffix)
	case strings.Contains(own, "_") || !ledger.ValidToken(name):
		return "", declined(hint, "your name at the provider, %q, is none for an operator's records: "+
			"1 to 64 letters, digits, '-' or '.'", full)
	}
	return name, nil
}

// grants are what a user may do. The error is a *Declined.
func (p *Provider) grants(c claims) (g Grants, err error) {
	for _, rule := range p.Rules {
		if c.has(rule.Claim, rule.Value) {
			g = append(g, rule.Grant)
		}
	}
	if len(g) == 0 {
		return nil, declined("Ask an admin for a role.",
			"the provider knows you, and none of what it says of you is a role here")
	}
	return g, nil
}
