package mcp

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/ledger/access/tries"
)

// Handler serves clients over streamable HTTP, each session as a connection of its own. A token, if
// there is one, must come with each request as a bearer's, and an address that shows too many that
// are not good has to wait; a good one is let in all the same. A session without requests for
// SessionIdle has gone.
func (g *Gateway) Handler(token string) http.Handler {
	g.remote.Store(true)
	handler := http.NewCrossOriginProtection().Handler(asReceived(sdk.NewStreamableHTTPHandler(
		func(*http.Request) *sdk.Server { return g.front },
		&sdk.StreamableHTTPOptions{SessionTimeout: SessionIdle})))
	if token == "" {
		return handler
	}
	return &guard{next: handler, want: sha256.Sum256([]byte(token)), logger: g.logger}
}

// guard lets requests with a token in.
type guard struct {
	next   http.Handler
	want   [sha256.Size]byte
	logger *slog.Logger
	tries  tries.Tries
}

// ServeHTTP answers a request. One without a token is no try of one.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	got := sha256.Sum256([]byte(given))
	if ok && subtle.ConstantTimeCompare(got[:], g.want[:]) == 1 {
		g.next.ServeHTTP(w, r)
		return
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	if ok {
		from := tries.Address(r)
		if wait := g.tries.Begin(tries.Known{From: from}, time.Now()); wait > 0 {
			many := &tries.TooMany{Wait: wait}
			g.logger.Warn("tokens that are not good are shown", "from", from.String())
			w.Header().Set("Retry-After", many.Seconds())
			http.Error(w, many.Error(), http.StatusTooManyRequests)
			return
		}
	}
	http.Error(w, "a token is needed: Authorization: Bearer TOKEN", http.StatusUnauthorized)
}

// asReceived gives requests of clients their text before the SDK reads them.
func asReceived(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyMax))
		switch {
		case errors.As(err, new(*http.MaxBytesError)):
			http.Error(w, "the request is too large", http.StatusRequestEntityTooLarge)
			return
		case err != nil:
			http.Error(w, "the request cannot be read", http.StatusBadRequest)
			return
		}
		body = withTexts(body)
		r = r.Clone(r.Context())
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		next.ServeHTTP(w, r)
	})
}

// withTexts gives the requests in a body their texts; what is no request stays as it is.
func withTexts(body []byte) []byte {
	var batch []json.RawMessage
	if json.Unmarshal(body, &batch) == nil {
		for i := range batch {
			batch[i] = withText(batch[i])
		}
		if again, err := encode(batch); err == nil {
			return again
		}
		return body
	}
	return withText(body)
}

func withText(message json.RawMessage) json.RawMessage {
	var method string
	params := memberOf(message, "params")
	if json.Unmarshal(memberOf(message, "method"), &method) != nil ||
		!slices.Contains(rawMethods, method) || len(params) == 0 {
		return message
	}
	again, err := withValue(message, "params", withRaw(params))
	if err != nil {
		return message
	}
	return again
}
