package door

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/access/tries"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Web is a door over HTTP. Its door may come and go: see Attach.
type Web struct {
	cfg     WebConfig
	door    atomic.Pointer[Door] // nil: none at the moment
	openapi []byte
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	streams *shares
	conns   atomic.Int64
	pulse   time.Duration // of a stream of events in which nothing happens
	spare   time.Duration // that a blob may take beside its pace
	guesses guesses
	refused sparing // connections
	http    *http.Server
	running sync.WaitGroup
}

// Users are those who may have a token; an *access.Directory.
type Users interface {
	// Authenticate finds the user of a token.
	Authenticate(token string, now time.Time) (access.User, error)
	// Changed gives what is closed at the next change of the users.
	Changed() <-chan struct{}
}

// WebConfig says who may use a Web.
type WebConfig struct {
	Users Users // nil: whoever reaches it may do everything

	Version string       // of the program, in the OpenAPI document
	Logger  *slog.Logger // nil: discards
}

// Times and bounds of HTTP.
const (
	headerMax      = 5 * time.Second
	bodyTime       = 30 * time.Second
	idleMax        = 2 * time.Minute
	headerBytesMax = 16 << 10
	connsMax       = 2*CallsMax + StreamsMax
	streamTime     = time.Hour
	streamWrite    = 10 * time.Second // for a client to read what it is sent
)

// NewWeb makes a door over HTTP, which Run serves.
func NewWeb(cfg WebConfig) *Web {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	w := &Web{cfg: cfg, openapi: OpenAPI(cfg.Version), pulse: pulseEvery, spare: bodyTime,
		streams: newShares("streams", "of events are open", StreamsMax)}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.http = &http.Server{Handler: w.Handler(), ReadHeaderTimeout: headerMax,
		IdleTimeout: idleMax, MaxHeaderBytes: headerBytesMax, ConnState: w.count,
		ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug)}
	return w
}

// count closes connections that are too many.
func (w *Web) count(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if w.conns.Add(1) > connsMax {
			_ = conn.Close()
			if n := w.refused.count(time.Now(), true); n > 0 {
				w.cfg.Logger.Warn("the door has as many connections as it takes, and refuses others",
					"open", connsMax, "refused", n, "last_from", conn.RemoteAddr().String())
			}
		}
	case http.StateClosed, http.StateHijacked:
		w.conns.Add(-1)
	}
}

// Attach has a door answer, until detach is called.
func (w *Web) Attach(d *Door) (detach func()) {
	w.door.Store(d)
	return func() { w.door.CompareAndSwap(d, nil) }
}

// Run serves what comes to a listener, until Close.
func (w *Web) Run(listener net.Listener) {
	w.running.Go(func() { // ends with Close
		if err := w.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			w.cfg.Logger.Error("the door over HTTP stopped", "cause", err)
		}
	})
}

// Close ends it; what is worked on gets a moment.
func (w *Web) Close() {
	w.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), closeMax)
	defer cancel()
	_ = w.http.Shutdown(ctx) // what takes longer is cut off
	_ = w.http.Close()
	w.running.Wait()
}

// Handler is what it serves.
func (w *Web) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/{tenant}/{name}/{verb}", w.verb)
	mux.HandleFunc("GET /v1/{tenant}/{name}/plans/{plan}/events", w.events)
	mux.HandleFunc("PUT /v1/{tenant}/{name}/plans/{plan}/blobs/{digest}", w.putBlob)
	mux.HandleFunc("GET /v1/{tenant}/{name}/plans/{plan}/blobs/{digest}", w.getBlob)
	mux.HandleFunc("GET /openapi.json", func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "application/json")
		_, _ = out.Write(w.openapi)
	})
	mux.HandleFunc("/", func(out http.ResponseWriter, r *http.Request) {
		refuse(out, &Error{Status: http.StatusNotFound, Code: "not_found", Problem: "no such page",
			Want: "POST /v1/TENANT/NAME/VERB, or GET /openapi.json", Stored: StoredNothing})
	})
	return bounded(mux)
}

// bounded bounds how long a body may take on every route, before anything else is looked at: the
// server reads what a handler has left of it. A ReadTimeout would end requests that wait, with
// their context. A connection ends with its answer unless a user has asked, and all of the body is
// read: whoever has no token would keep its place until it is idle for long.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			_ = http.NewResponseController(out).SetReadDeadline(time.Now().Add(headerMax))
		}
		out.Header().Set("Connection", "close")
		next.ServeHTTP(out, r)
	})
}

// bodyOf reads the body of a request.
func bodyOf(out http.ResponseWriter, r *http.Request) ([]byte, error) {
	control := http.NewResponseController(out)
	_ = control.SetReadDeadline(time.Now().Add(bodyTime))
	body, err := io.ReadAll(http.MaxBytesReader(out, r.Body, BodyMax+1))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large) || err == nil && len(body) > BodyMax:
		return nil, ledger.Refuse("body", "it is too large", fmt.Sprintf("at most %d bytes", BodyMax))
	case err != nil:
		e := unavailable("it did not come: "+err.Error(), sameAgain, StoredNothing)
		e.Field = "body"
		return nil, e
	}
	_ = control.SetReadDeadline(time.Time{})
	out.Header().Del("Connection")
	return body, nil
}

// verb answers one request.
func (w *Web) verb(out http.ResponseWriter, r *http.Request) {
	who := Caller{Tenant: r.PathValue("tenant"), Name: r.PathValue("name")}
	name := r.PathValue("verb")
	changed := w.changed()
	d, err := w.admit(out, r, who, name)
	if err == nil {
		err = isJSON(r)
	}
	var body []byte
	if err == nil {
		body, err = bodyOf(out, r)
	}
	var answer any
	if err == nil {
		guarded, refused, stop := w.guarded(r, who, name, changed)
		answer, err = d.Do(guarded.Context(), who, name, body)
		if e := refused(); e != nil {
			err = e
		}
		stop()
	}
	if err != nil {
		refuse(out, explain(err))
		return
	}
	text, err := json.Marshal(answer)
	if err != nil {
		refuse(out, explain(err))
		return
	}
	out.Header().Set("Content-Type", "application/json")
	_, _ = out.Write(append(text, '\n'))
}

// refuse answers with an error.
func refuse(out http.ResponseWriter, e *Error) {
	h := out.Header()
	h.Set("Content-Type", "application/json")
	switch e.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="sagenbaum"`)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", cmp.Or(e.retryAfter, "1"))
	}
	out.WriteHeader(e.Status)
	_, _ = out.Write(append(failed(e), '\n'))
}

// unauthorized is the refusal of a request whose token is not good, or that has none.
func unauthorized(r *http.Request, err error) *Error {
	e := &Error{Status: http.StatusUnauthorized, Code: "unauthorized", Field: "authorization",
		Problem: "the token is of no user that may ask a door of this server: it is no token, or its " +
			"user was removed, or has another key or role", Want: "a token of sagenbaum user token; " +
			"which users there are: sagenbaum user ls", Stored: StoredNothing}
	if r.Header.Get("Authorization") == "" {
		e.Problem, e.Want = "the token is missing", "Authorization: Bearer TOKEN, with a token of "+
			"sagenbaum user token"
	}
	if over := (*access.TokenOver)(nil); errors.As(err, &over) {
		e.Problem, e.Want = over.Why, over.Want
	}
	return e
}

// forbidden is the refusal of a request that its user, or what it came from, may not make: field is
// the part of its address that is wrong.
func forbidden(field, problem, want string) *Error {
	return &Error{Status: http.StatusForbidden, Code: "forbidden", Field: field, Problem: problem,
		Want: want, Stored: StoredNothing}
}

// isJSON refuses what a page of another site could send without being asked.
func isJSON(r *http.Request) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return ledger.Refuse("content_type", fmt.Sprintf("%q", clip(r.Header.Get("Content-Type"))),
			"application/json")
	}
	return nil
}

// admit finds who asks, and refuses whom the table of roles does not let ask that under that
// name.
func (w *Web) admit(out http.ResponseWriter, r *http.Request, who Caller, verb string) (*Door,
	error) {
	if err := w.allowed(r, who, verb); err != nil {
		return nil, w.guessed(r, err)
	}
	if r.Body == nil || r.Body == http.NoBody {
		out.Header().Del("Connection")
	}
	d := w.door.Load()
	if d == nil {
		return nil, unavailable("the host is starting", sameAgain, StoredNothing)
	}
	return d, nil
}

func (w *Web) allowed(r *http.Request, who Caller, verb string) error {
	if w.cfg.Users == nil {
		return local(r)
	}
	u, err := access.User{}, error(access.ErrToken)
	if token, ok := tries.Bearer(r); ok {
		u, err = w.cfg.Users.Authenticate(token, time.Now())
	}
	if err != nil {
		return unauthorized(r, err)
	}
	if u.Publishes(api.DoorSubject(who.Tenant, who.Name, verb)) {
		return nil
	}
	problem := fmt.Sprintf("user %s of tenant %s, with role %s, may not ask %s as %s of tenant %s",
		u.Name, u.Tenant, u.Role, clip(verb), clip(who.Name), clip(who.Tenant))
	switch {
	case u.Tenant != who.Tenant:
		return forbidden("tenant", problem, u.Tenant)
	case u.Name != who.Name:
		return forbidden("name", problem, u.Name)
	}
	return forbidden("verb", problem, verbsOf(u))
}

// verbsOf says which verbs a user may ask for.
func verbsOf(u access.User) string {
	var own []string
	for _, v := range Verbs() {
		if u.Publishes(api.DoorSubject(u.Tenant, u.Name, v.Name)) {
			own = append(own, v.Name)
		}
	}
	return "a verb of its role: " + strings.Join(own, ", ")
}

// local refuses what names another host where no one is asked who they are: a page whose name is
// made to point here names itself.
func local(r *http.Request) error {
	name := r.Host
	if only, _, err := net.SplitHostPort(name); err == nil {
		name = only
	}
	if name = strings.Trim(name, "[]"); net.ParseIP(name) == nil && name != "localhost" {
		return forbidden("host", "it does not answer to "+clip(name), "localhost, or an IP address")
	}
	return nil
}
