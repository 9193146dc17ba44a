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
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/ledger/access/tries"
)

// Handler serves clients over streamable HTTP, each session as a connection of its own. A token, if
// there is one, must come with each request as a bearer's, and an address that shows too many that
// are not good has to wait, also with a good one, unless it has shown that before: or it would
// learn which one is good. A session without requests for SessionIdle has gone.
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
	warned atomic.Int64 // when it was last logged that too many are shown, in Unix seconds
}

// warnEvery is the least time between two lines of the log about tokens that are not good.
const warnEvery = time.Minute

// ServeHTTP answers a request. One without a token is no try of one.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if ok {
		now, who := time.Now(), tries.Known{From: tries.Address(r)}
		wait := g.tries.Begin(who, now)
		got := sha256.Sum256([]byte(given))
		if (wait == 0 || g.tries.Knows(who)) && subtle.ConstantTimeCompare(got[:], g.want[:]) == 1 {
			if wait == 0 { // a try was taken
				g.tries.Right(who, now)
			}
			g.next.ServeHTTP(w, r)
			return
		}
		if wait > 0 {
			g.warn(who, now)
			many := &tries.TooMany{Wait: wait}
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.Header().Set("Retry-After", many.Seconds())
			http.Error(w, many.Error(), http.StatusTooManyRequests)
			return
		}
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	http.Error(w, "a token is needed: Authorization: Bearer TOKEN", http.StatusUnauthorized)
}

// warn logs that too many tokens are shown, unless it has done so a moment ago.
func (g *guard) warn(who tries.Known, now time.Time) {
	last := g.warned.Load()
	if now.Unix()-last >= int64(warnEvery/time.Second) && g.warned.CompareAndSwap(last, now.Unix()) {
		g.logger.Warn("tokens that are not good are shown", "from", who.From.String())
	}
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
