package callout

import (
	"context"
	"fmt"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// OIDC verifies ID tokens of a provider that are meant for audience: signature, issuer, audience
// and end. It asks the provider for its keys now, and again when it has new ones.
func OIDC(ctx context.Context, issuer, audience string) (
	func(context.Context, string) (map[string]any, error), error) {
	switch {
	case !strings.HasPrefix(issuer, "https://") && !strings.HasPrefix(issuer, "http://127.0.0.1:"):
		return nil, ledger.Refuse("issuer", fmt.Sprintf("%.80q is no https URL", issuer),
			"the URL of an OIDC provider")
	case audience == "":
		return nil, ledger.Refuse("audience", "missing: a token for another service would do",
			"the client id that tokens are for")
	}
	provider, err := oidc.NewProvider(ctx, issuer)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the OIDC provider: %w", err)
	}
	verifier := provider.Verifier(&oidc.Config{ClientID: audience})
	return func(ctx context.Context, token string) (map[string]any, error) {
		verified, err := verifier.Verify(ctx, token)
		if err != nil {
			return nil, err
		}
		claims := map[string]any{}
		return claims, verified.Claims(&claims)
	}, nil
}
