package mcp

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Handler serves clients over streamable HTTP, each session as a connection of its own. A token, if
// there is one, must come with each request as a bearer's. A session without requests for
// SessionIdle has gone.
func (g *Gateway) Handler(token string) http.Handler {
	g.remote.Store(true)
	handler := http.NewCrossOriginProtection().Handler(sdk.NewStreamableHTTPHandler(
		func(*http.Request) *sdk.Server { return g.front },
		&sdk.StreamableHTTPOptions{SessionTimeout: SessionIdle}))
	if token == "" {
		return handler
	}
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		got := sha256.Sum256([]byte(given))
		if !ok || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "a token is needed: Authorization: Bearer TOKEN", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	})
}
