package mcp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access/tries"
)

// Handler serves clients over streamable HTTP, each session as a connection of its own. A token, if
// there is one, must come with each request as a bearer's, and an address that shows too many that
// are not good has to wait, also with a good one, unless it has shown that before: or it would
// learn which one is good. A session without requests for SessionIdle has gone.
func (g *Gateway) Handler(token string) http.Handler {
	g.remote.Store(true)
	handler := http.NewCrossOriginProtection().Handler(asReceived(g.served()))
	if token == "" {
		return handler
	}
	return &guard{next: handler, want: sha256.Sum256([]byte(token)), logger: g.logger}
}

// served are the clients with sessions, and those without, by the version that a request says.
func (g *Gateway) served() http.Handler {
	sessions := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return g.front.Load() },
		&sdk.StreamableHTTPOptions{SessionTimeout: SessionIdle, MaxRequestBodyBytes: anySize})
	if g.plain == nil {
		return sessions
	}
	plain := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return g.plain },
		&sdk.StreamableHTTPOptions{Stateless: true, MaxRequestBodyBytes: anySize})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= stateless {
			plain.ServeHTTP(w, r)
		} else {
			sessions.ServeHTTP(w, r)
		}
	})
}

// anySize has the SDK read what asReceived has let through: with its text beside it it is larger.
const anySize = -1

// plainKey is in the context of requests of clients without sessions.
type plainKey struct{}

func isPlain(ctx context.Context) bool { return ctx.Value(plainKey{}) != nil }

// servePlain makes the server that clients without sessions see: it is as that of the others, but
// says nothing by itself.
func (g *Gateway) servePlain(implementation *sdk.Implementation, options sdk.ServerOptions) {
	can := *options.Capabilities
	can.Tools = &sdk.ToolCapabilities{}
	if can.Resources != nil {
		can.Resources = &sdk.ResourceCapabilities{}
	}
	if can.Prompts != nil {
		can.Prompts = &sdk.PromptCapabilities{}
	}
	options.Capabilities = &can
	options.SubscribeHandler, options.UnsubscribeHandler = nil, nil
	options.SupportedProtocolVersions = slices.DeleteFunc(sdk.SupportedProtocolVersions(),
		func(v string) bool { return v < stateless })
	g.plain = sdk.NewServer(implementation, &options)
	g.plain.AddReceivingMiddleware(plainly, g.pass)
	g.plain.AddSendingMiddleware(saying)
}

// scope says who else may be given an answer that a client without a session keeps.
const scope = "private"

// plainly has requests known as those of clients without sessions, and gives results what that
// version of the protocol wants in them.
func plainly(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		result, err := next(context.WithValue(ctx, plainKey{}, true), method, req)
		switch r := result.(type) {
		case *sdk.ListPromptsResult:
			r.CacheScope = scope
		case *sdk.ListResourcesResult:
			r.CacheScope = scope
		case *sdk.ListResourceTemplatesResult:
			r.CacheScope = scope
		case *sdk.ReadResourceResult:
			r.CacheScope = scope
		case *sdk.CallToolResult:
			if err != nil {
				break
			}
			text, err := encode(r)
			if err != nil {
				return nil, err
			}
			return asWritten{r, text}.plain(method)
		case asWritten:
			if err == nil {
				return r.plain(method)
			}
		}
		return result, err
	}
}

// plain is the answer to a method with what it lacks for a client without a session.
func (r asWritten) plain(method string) (sdk.Result, error) {
	wanted := map[string]string{"resultType": `"complete"`}
	if len(memberOf(r.text, "inputRequests")) > 0 {
		wanted["resultType"] = `"input_required"`
	}
	if strings.HasSuffix(method, "/list") || method == "resources/read" {
		wanted["cacheScope"], wanted["ttlMs"] = `"`+scope+`"`, "0"
	}
	for _, name := range sortedKeys(wanted) {
		if len(memberOf(r.text, name)) > 0 {
			continue
		}
		var err error
		if r.text, err = withValue(r.text, name, json.RawMessage(wanted[name])); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// planArgument is the argument in which a model without a session names the plan of a call.
const planArgument = "sagenbaum_plan"

const planArgumentSchema = `{"type": "string", "description": "the plan that the call belongs to, so ` +
	`that it can be undone: what plan_begin answered"}`

// planned is the text of a tool with that argument.
func planned(tool json.RawMessage) (json.RawMessage, error) {
	schema := memberOf(tool, "inputSchema")
	properties, err := withValue(memberOf(schema, "properties"), planArgument,
		json.RawMessage(planArgumentSchema))
	if err == nil {
		schema, err = withValue(schema, "properties", properties)
	}
	if err != nil {
		return nil, err
	}
	return withValue(tool, "inputSchema", schema)
}

// unplan takes the plan out of the arguments of a call.
func (r *request) unplan(plan *agreed) error {
	said := memberOf(r.arguments, planArgument)
	if len(said) == 0 {
		return nil
	}
	const at = "arguments." + planArgument
	var text string
	err := json.Unmarshal(said, &text)
	if err == nil {
		r.arguments, err = withoutMembers(r.arguments,
			func(name string) bool { return name == planArgument })
	}
	if err != nil {
		return ledger.Refuse(at, err.Error(), "the id of a plan")
	}
	if text == "" {
		return nil // a model that fills in each argument of a schema
	}
	return plan.say(at, text)
}

// holder is the connection that a call's plan belongs to; nil: to none, and the call names it.
func (r request) holder() *sdk.ServerSession {
	if r.plain {
		return nil
	}
	return r.session
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
	if given, ok := tries.Bearer(r); ok {
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
		case errors.Is(err, os.ErrDeadlineExceeded):
			http.Error(w, "the request has not come in time: nothing was done", http.StatusRequestTimeout)
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

// withTexts gives the messages in a body their texts, as giveText does.
func withTexts(body []byte) []byte {
	var batch []json.RawMessage
	if json.Unmarshal(body, &batch) == nil {
		for i := range batch {
			batch[i] = withText(batch[i], rawMethods)
		}
		if again, err := encode(batch); err == nil {
			return again
		}
		return body
	}
	return withText(body, rawMethods)
}
