package console

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/console/access"
	"github.com/sagenbaum/sagenbaum/executor/host/console/web"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// policy lets a page load from this console only, and no script or style within it: a text
// that got past the escaping would still do nothing.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// visit is one request and the page that answers it.
type visit struct {
	s       *Server
	w       http.ResponseWriter
	r       *http.Request
	host    *attached
	session *access.Session // nil: no one has signed in
	grants  access.Grants   // what the visitor may do
	page    web.Page
	err     error // what was in the way of the page; nil: nothing
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

// right is what a route needs.
type right int

const (
	reads       right = iota // on its tenant, or somewhere
	acts                     // on its tenant, by a form of the session
	answers                  // the same, and says who it is once more
	administers              // on any tenant; a form is one of the session
)

// route is an address of the console about its host, and what it needs.
type route struct {
	pattern string
	right   right
	do      func(*visit) error
}

// routes are all that show or change what is the host's.
var routes = []route{
	{"GET /{$}", reads, (*visit).start},
	{"GET /tenants", reads, (*visit).tenants},
	{"GET /t/{tenant}/{$}", reads, (*visit).overview},
	{"GET /t/{tenant}/plans", reads, (*visit).plans},
	{"GET /t/{tenant}/plans/{plan}", reads, (*visit).plan},
	{"GET /t/{tenant}/plans/{plan}/preview", reads, (*visit).preview},
	{"GET /t/{tenant}/quarantine", reads, (*visit).quarantine},
	{"GET /t/{tenant}/quarantine/{plan}/{action}", reads, (*visit).obligation},
	{"GET /t/{tenant}/verdicts", reads, (*visit).reviews},
	{"GET /t/{tenant}/verdicts/{plan}/{action}", reads, (*visit).review},
	{"GET /t/{tenant}/leases", reads, (*visit).leases},
	{"GET /t/{tenant}/memory", reads, (*visit).memory},
	{"GET /t/{tenant}/memory/fact", reads, (*visit).fact},
	{"GET /t/{tenant}/ledger", reads, (*visit).ledger},
	{"GET /t/{tenant}/ledger/{sequence}", reads, (*visit).record},
	{"GET /t/{tenant}/capabilities", reads, (*visit).capabilities},
	{"GET /t/{tenant}/health", reads, (*visit).health},
	{"GET /t/{tenant}/events", reads, (*visit).events},
	{"POST /t/{tenant}/plans/{plan}/cancel", acts, (*visit).cancel},
	{"POST /t/{tenant}/plans/{plan}/unwind", acts, (*visit).unwind},
	{"POST /t/{tenant}/plans/{plan}/cascade", answers, (*visit).cascade},
	{"POST /t/{tenant}/plans/{plan}/erase", answers, (*visit).erase},
	{"POST /t/{tenant}/quarantine/{plan}/{action}", answers, (*visit).answer},
	{"POST /t/{tenant}/verdicts/{plan}/{action}", answers, (*visit).judge},
	{"POST /t/{tenant}/memory/fact", acts, (*visit).move},
	{"POST /t/{tenant}/health/clock", acts, (*visit).confirmClock},
	{"GET /sessions", administers, (*visit).sessions},
	{"POST /sessions", administers, (*visit).endSession},
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /static/{build}/{file}", s.static)
	mux.HandleFunc("GET /favicon.ico", http.NotFound)
	mux.HandleFunc("GET /login", s.signInPage)
	mux.HandleFunc("POST /login", s.signIn)
	mux.HandleFunc("GET /login/provider", s.toProvider)
	mux.HandleFunc("GET /login/provider/done", s.fromProvider)
	mux.HandleFunc("POST /logout", s.signOut)
	mux.HandleFunc("GET /api/sessions", s.listSessions)
	mux.HandleFunc("DELETE /api/sessions/{id}", s.deleteSession)
	for _, to := range routes {
		mux.HandleFunc(to.pattern, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, to) })
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

// static serves styles and scripts, which are those of this build.
func (s *Server) static(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	data, contentType, ok := web.File(name)
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", contentType)
	if r.PathValue("build") == web.Build {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if _, err := w.Write(data); err != nil {
		s.log.Debug("file not sent", "file", name, "error", err)
	}
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
		if s.leaf != nil {
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

// everyone may read, where whoever is on this machine may.
var everyone = access.Grants{{Role: access.Reader, Tenants: []string{access.Everywhere}}}

// serve answers a request about the host, of a visitor who may make it.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, to route) {
	now := time.Now()
	v := &visit{s: s, w: w, r: r, host: s.attached(), session: s.access.Who(r, now)}
	v.page = web.Page{NowNs: now.UnixNano(), Path: r.URL.RequestURI()}
	switch {
	case v.session != nil:
		v.grants = v.session.Grants
		v.page.Operator, v.page.CSRF = v.session.Name, v.session.CSRF
		v.page.Role = v.grants.Best().String()
		v.page.Admin = v.grants.Best() == access.Admin
		if v.session.Provider {
			v.page.Provider = s.access.ProviderHost()
		}
	case s.open() && to.right != administers:
		v.grants = everyone
	default:
		s.turnAway(v)
		return
	}
	err := v.enter()
	if err == nil {
		err = v.admit(to.right)
	}
	if err == nil {
		err = to.do(v)
	}
	if err != nil {
		s.fail(v, err)
	}
}

// open reports whether whoever is on this machine may read: no user sees less than that.
func (s *Server) open() bool { return s.cfg.OpenRead && s.access.Equal() }

// turnAway answers who has not signed in: a page leads to where one does.
func (s *Server) turnAway(v *visit) {
	if v.r.Method != http.MethodGet || strings.HasSuffix(v.r.URL.Path, "/events") {
		s.fail(v, failed(http.StatusUnauthorized, "Sign in first.", "no one has signed in"))
		return
	}
	http.Redirect(v.w, v.r, "/login?next="+url.QueryEscape(v.r.URL.RequestURI()), http.StatusSeeOther)
}

// admit refuses what the visitor may not do.
func (v *visit) admit(needs right) error {
	switch {
	case needs == reads:
		return nil
	case v.session == nil:
		return failed(
			http.StatusUnauthorized, "Sign in, then do it again.",
			"an operator's record needs a name, and no one has signed in",
		)
	case needs == administers && v.grants.Best() < access.Admin:
		return failed(http.StatusForbidden, "Ask an admin.", "sessions are for admins, and %s is none",
			v.session.Name)
	case needs != administers && v.grants.On(v.page.Tenant) < access.Operator:
		return failed(
			http.StatusForbidden, "Ask an operator of this tenant, or an admin for that role.",
			"%s may read tenant %s, and not act on it", v.session.Name, v.page.Tenant,
		)
	case v.r.Method != http.MethodGet && !v.session.Genuine(v.r):
		return failed(
			http.StatusForbidden, "Load the page again and do it there.",
			"this form does not come from a page of this session",
		)
	case needs == answers:
		return v.certain()
	}
	return nil
}

// enter finds the tenant that a request is about, and how it is.
func (v *visit) enter() error {
	if v.host == nil {
		return failed(
			http.StatusServiceUnavailable, "The page comes back by itself when the server has started.",
			"the executor of this server is starting",
		)
	}
	v.page.Tenants = slices.DeleteFunc(slices.Clone(v.host.Tenants()), func(tenant string) bool {
		return v.grants.On(tenant) < access.Reader
	})
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
	if v.session != nil {
		v.page.Role = v.grants.On(tenant).String()
		v.page.Acts = v.grants.On(tenant) >= access.Operator
		// A page is read before its form is sent: it asks again a little early.
		v.page.Confirmed = !v.session.ConfirmedUntil(v.now().Add(confirmAhead)).IsZero()
	}
	h, err := answered(v, tenant, api.TenantHost, api.Nothing{})
	if err != nil && !isProblem(err) {
		return failed(http.StatusServiceUnavailable, "", "%v", err)
	}
	v.page.Mode, v.page.Problem = h.Host.Mode, h.Host.Problem
	if v.page.Pulse, err = v.host.Pulse(tenant); err != nil {
		return failed(http.StatusServiceUnavailable, "", "%v", err)
	}
	v.page.Said, _ = strconv.ParseUint(v.r.URL.Query().Get("said"), 10, 64)
	return nil
}

// answered puts one question about a tenant to the host. The error is an *api.Problem, or says
// that no one could be asked.
func answered[Q, A any](v *visit, tenant string, verb api.Verb[Q, A], q Q) (answer A, err error) {
	err = v.askInto(tenant, verb.Call, q, &answer)
	return answer, err
}

// ask puts one question of the query API. The error is a *failure.
func ask[Q, A any](v *visit, verb api.Verb[Q, A], q Q) (answer A, err error) {
	err = v.failing(http.StatusNotFound, "", verb.Call, q, &answer)
	return answer, err
}

// look is ask for a page, which show does not write after an error. Nothing more is asked then.
func look[Q, A any](v *visit, verb api.Verb[Q, A], q Q) (answer A) {
	v.lookInto(http.StatusNotFound, "", verb.Call, q, &answer)
	return answer
}

// filtered is look for a list, where what is wrong with the question are its filters.
func filtered[Q, A any](v *visit, verb api.Verb[Q, A], q Q) (answer A) {
	v.lookInto(http.StatusBadRequest, "Clear the filters.", verb.Call, q, &answer)
	return answer
}

func (v *visit) lookInto(status int, hint string, verb api.Call, q, answer any) {
	if v.err == nil {
		v.err = v.failing(status, hint, verb, q, answer)
	}
}

// failing is askInto for a page: a problem is a *failure with this status and hint.
func (v *visit) failing(status int, hint string, verb api.Call, q, answer any) error {
	switch err := v.askInto(v.page.Tenant, verb, q, answer); {
	case err == nil:
		return nil
	case isProblem(err):
		return failed(status, hint, "%v", err)
	default:
		return failed(http.StatusServiceUnavailable, "", "%v", err)
	}
}

// askInto is answered into what answer points to.
func (v *visit) askInto(tenant string, verb api.Call, q, answer any) error {
	got, err := v.host.Ask(tenant, verb.Name, q)
	if got != nil {
		reflect.ValueOf(answer).Elem().Set(reflect.ValueOf(got))
	}
	return err
}

func isProblem(err error) bool { return errors.As(err, new(*api.Problem)) }

// show writes a page, if nothing was in the way of it.
func (v *visit) show(title, section string, body web.Body) error {
	if v.err != nil {
		return v.err
	}
	v.page.Title, v.page.Section = title, section
	v.write(http.StatusOK, body)
	return nil
}

func (v *visit) write(status int, body web.Body) {
	text := v.page.Render(body)
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(status)
	if _, err := v.w.Write(text); err != nil {
		v.s.log.Debug("page not sent", "path", v.r.URL.Path, "error", err)
	}
}

// live has the page follow the fold; of a plan, when records are about one of plans.
func (v *visit) live(plans ...string) {
	query := url.Values{"plan": plans, "seen": {strconv.FormatUint(v.page.Pulse.Applied, 10)}}
	if v.session != nil { // another session's page has other forms
		query.Set("as", v.session.ID)
	}
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
	if v.page.NowNs == 0 {
		v.page.NowNs = time.Now().UnixNano()
	}
	v.write(f.status, web.Failure{Status: f.status, Text: f.text, Hint: f.hint})
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
