package console

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// policy lets a page load from this console only, and no script or style within it: a text
// that got past the escaping would still do nothing.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// view is one request and the page that answers it.
type visit struct {
	s       *Server
	w       http.ResponseWriter
	r       *http.Request
	host    *attached
	session session
	page    Page
}

// Page is what every template has.
type Page struct {
	Title    string
	Section  string // of the navigation
	Tenant   string // empty: none, as when signing in
	Tenants  []string
	Path     string // of this page, to come back to
	Operator string // who has signed in; empty: no one
	CSRF     string
	Mode     string // of the tenant on this host
	Problem  string
	Pulse    executor.Pulse
	Live     string // where the events of this page are; empty: it does not change
	NowNs    int64
	Said     uint64 // sequence of the record that an operator has just written; 0: none
	Build    string
	Body     any
}

// failure is a page that cannot be shown, or an action that was not done.
type failure struct {
	status int
	text   string
	hint   string // what to do; may be empty
}

// Error is what went wrong.
func (f *failure) Error() string { return f.text }

func failed(status int, hint, format string, args ...any) error {
	return &failure{status, fmt.Sprintf(format, args...), hint}
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /static/{build}/{file}", s.static)
	mux.HandleFunc("GET /favicon.ico", http.NotFound)
	mux.HandleFunc("GET /login", s.signInPage)
	mux.HandleFunc("POST /login", s.signIn)
	mux.HandleFunc("POST /logout", s.signOut)
	for pattern, show := range map[string]func(*visit) error{
		"GET /{$}":                                    (*visit).start,
		"GET /tenants":                                (*visit).tenants,
		"GET /t/{tenant}/{$}":                         (*visit).overview,
		"GET /t/{tenant}/plans":                       (*visit).plans,
		"GET /t/{tenant}/plans/{plan}":                (*visit).plan,
		"GET /t/{tenant}/plans/{plan}/preview":        (*visit).preview,
		"GET /t/{tenant}/quarantine":                  (*visit).quarantine,
		"GET /t/{tenant}/quarantine/{plan}/{action}":  (*visit).obligation,
		"GET /t/{tenant}/leases":                      (*visit).leases,
		"GET /t/{tenant}/memory":                      (*visit).memory,
		"GET /t/{tenant}/memory/fact":                 (*visit).fact,
		"GET /t/{tenant}/ledger":                      (*visit).ledger,
		"GET /t/{tenant}/ledger/{sequence}":           (*visit).record,
		"GET /t/{tenant}/capabilities":                (*visit).capabilities,
		"GET /t/{tenant}/health":                      (*visit).health,
		"GET /t/{tenant}/events":                      (*visit).events,
		"POST /t/{tenant}/plans/{plan}/cancel":        acting((*visit).cancel),
		"POST /t/{tenant}/plans/{plan}/unwind":        acting((*visit).unwind),
		"POST /t/{tenant}/plans/{plan}/cascade":       acting(certain((*visit).cascade)),
		"POST /t/{tenant}/quarantine/{plan}/{action}": acting(certain((*visit).answer)),
		"POST /t/{tenant}/memory/fact":                acting((*visit).move),
		"POST /t/{tenant}/health/clock":               acting((*visit).confirmClock),
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, show) })
	}
	// by Sec-Fetch-Site and Origin; the token in the form is the second lock
	foreign := http.NewCrossOriginProtection()
	foreign.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.fail(
			&visit{s: s, w: w, r: r},
			failed(
				http.StatusForbidden, "Open the console's own page and do it there.",
				"this request came from another site",
			),
		)
	}))
	return s.guarded(foreign.Handler(mux))
}

// guarded is in front of everything.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := w.Header()
		head.Set("Content-Security-Policy", policy)
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("X-Frame-Options", "DENY")
		head.Set("Referrer-Policy", "same-origin")
		head.Set("Cross-Origin-Opener-Policy", "same-origin")
		head.Set("Cross-Origin-Resource-Policy", "same-origin")
		head.Set("Cache-Control", "no-store")
		if s.access.secure {
			head.Set("Strict-Transport-Security", "max-age=31536000")
		}
		name := r.Host
		if only, _, err := net.SplitHostPort(name); err == nil {
			name = only
		}
		if !s.names(name) {
			s.misdirected(w, name)
			return
		}
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Now().Add(requestTime))
		_ = control.SetWriteDeadline(time.Now().Add(requestTime))
		r.Body = http.MaxBytesReader(w, r.Body, formBytesMax)
		next.ServeHTTP(w, r)
	})
}

// serve answers a request about a tenant, of a visitor who may read.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, show func(*visit) error) {
	now := time.Now()
	v := &visit{s: s, w: w, r: r, host: s.attached()}
	v.page = Page{NowNs: now.UnixNano(), Path: r.URL.RequestURI(), Build: build}
	v.session, _ = s.access.who(r, now)
	v.page.Operator, v.page.CSRF = v.session.operator, v.session.csrf
	if v.session.operator == "" && !s.cfg.OpenRead {
		s.turnAway(v)
		return
	}
	if err := v.enter(); err != nil {
		s.fail(v, err)
		return
	}
	if err := show(v); err != nil {
		s.fail(v, err)
	}
}

// turnAway answers who has not signed in: a page leads to where one does.
func (s *Server) turnAway(v *visit) {
	if v.r.Method != http.MethodGet || strings.HasSuffix(v.r.URL.Path, "/events") {
		s.fail(v, failed(http.StatusUnauthorized, "Sign in first.", "no one has signed in"))
		return
	}
	http.Redirect(v.w, v.r, "/login?next="+url.QueryEscape(v.r.URL.RequestURI()), http.StatusSeeOther)
}

// enter finds the tenant that a request is about, and how it is.
func (v *visit) enter() error {
	if v.host == nil {
		return failed(
			http.StatusServiceUnavailable, "The page comes back by itself when the server has started.",
			"the executor of this server is starting",
		)
	}
	v.page.Tenants = v.host.Tenants()
	tenant := v.r.PathValue("tenant")
	if tenant == "" {
		return nil
	}
	if !slices.Contains(v.page.Tenants, tenant) {
		return failed(
			http.StatusNotFound, "The tenants of this host are under Tenants.",
			"this host serves no tenant %q", tenant,
		)
	}
	v.page.Tenant = tenant
	answer, err := v.host.Ask(tenant, "host", struct{}{})
	if err != nil {
		return failed(http.StatusServiceUnavailable, "", "%v", err)
	}
	if h, ok := answer.(view.HostAnswer); ok {
		v.page.Mode, v.page.Problem = h.Host.Mode, h.Host.Problem
	}
	if v.page.Pulse, err = v.host.Pulse(tenant); err != nil {
		return failed(http.StatusServiceUnavailable, "", "%v", err)
	}
	v.page.Said, _ = strconv.ParseUint(v.r.URL.Query().Get("said"), 10, 64)
	return nil
}

// ask puts one question of the query API. The error is a *failure.
func ask[T any](v *visit, verb string, question any) (answer T, err error) {
	got, err := v.host.Ask(v.page.Tenant, verb, question)
	if err != nil {
		return answer, failed(http.StatusServiceUnavailable, "", "%v", err)
	}
	if problem, ok := got.(view.ErrorAnswer); ok {
		return answer, failed(http.StatusNotFound, "", "%s", problem.Error)
	}
	answer, ok := got.(T)
	if !ok {
		panic(fmt.Sprintf("console: %s was answered with a %T", verb, got))
	}
	return answer, nil
}

// said is the error that an answer itself carries.
func said(problem string) error {
	if problem == "" {
		return nil
	}
	return failed(http.StatusNotFound, "", "%s", problem)
}

// show writes a page.
func (v *visit) show(name, title, section string, body any) error {
	v.page.Title, v.page.Section, v.page.Body = title, section, body
	return v.write(http.StatusOK, name)
}

func (v *visit) write(status int, name string) error {
	var out bytes.Buffer
	if err := v.s.pages[name].Execute(&out, "page", v.page); err != nil {
		return fmt.Errorf("cannot make the page: %w", err)
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(status)
	_, err := v.w.Write(out.Bytes())
	if err != nil {
		v.s.log.Debug("page not sent", "path", v.r.URL.Path, "error", err)
	}
	return nil
}

// live has the page follow the fold; of a plan, when records are about one of plans.
func (v *visit) live(plans ...string) {
	query := url.Values{"plan": plans, "seen": {strconv.FormatUint(v.page.Pulse.Applied, 10)}}
	v.page.Live = "/t/" + v.page.Tenant + "/events?" + query.Encode()
}

// fail says what went wrong, with what to do.
func (s *Server) fail(v *visit, err error) {
	f := &failure{
		http.StatusInternalServerError, "something is wrong with the console itself; its log says what",
		"",
	}
	if !errors.As(err, &f) {
		s.log.Error("page not made", "path", v.r.URL.Path, "error", err)
	}
	v.page.Title, v.page.Section, v.page.Live = "Cannot show this", "", ""
	v.page.Body = failureBody{f.status, f.text, f.hint}
	if v.page.Build == "" {
		v.page.Build, v.page.NowNs = build, time.Now().UnixNano()
	}
	if err := v.write(f.status, "failure"); err != nil {
		s.log.Error("page not made", "path", v.r.URL.Path, "error", err)
	}
}

type failureBody struct {
	Status int
	Text   string
	Hint   string
}

// refusal is what was wrong with a request, as a page says it.
func refusal(err error) error {
	var refused *ledger.Refused
	if errors.As(err, &refused) {
		return failed(
			http.StatusBadRequest, "Give "+refused.Want+".", "%s: %s", refused.Field, refused.Problem,
		)
	}
	return err
}

func (v *visit) now() time.Time { return time.Unix(0, v.page.NowNs) }
