package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/executor/host/console"
	"github.com/sagenbaum/sagenbaum/executor/host/console/access"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// someone is a user of the tests with a role on tenants; the token is tokenOf the name.
func someone(t *testing.T, name string, role access.Role, tenants ...string) string {
	t.Helper()
	u, err := access.NewUser(name, tokenOf(name), access.Grant{Role: role, Tenants: tenants}, time.Time{})
	must(t, err)
	return u.String()
}

func tokenOf(name string) string { return token + "-of-" + name }

// write puts users in the place of those before, at once, as the command line does.
func write(t *testing.T, file string, lines ...string) {
	t.Helper()
	must(t, os.WriteFile(file+".next", []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	must(t, os.Rename(file+".next", file))
}

// enter signs a user in, and returns what the session's forms carry.
func (v *visitor) enter(name string) (csrf string) {
	v.t.Helper()
	form := url.Values{"name": {name}, "token": {tokenOf(name)}, "next": {"/tenants"}}
	if answer, _ := v.post("/login", form); answer.StatusCode != http.StatusSeeOther {
		v.t.Fatalf("%s cannot sign in: %s", name, answer.Status)
	}
	_, page := v.get("/tenants")
	found := csrfField.FindStringSubmatch(page)
	if found == nil {
		v.t.Fatalf("the page of %s has no form", name)
	}
	return found[1]
}

// head asks for a page, and reads its status and no more.
func (v *visitor) head(method, path string, form url.Values) (status int, to string) {
	v.t.Helper()
	ctx, cancel := context.WithCancel(v.t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, v.base+path, strings.NewReader(form.Encode()))
	must(v.t, err)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	answer, err := v.http.Do(r)
	must(v.t, err)
	defer func() { _ = answer.Body.Close() }()
	return answer.StatusCode, answer.Header.Get("Location")
}

// TestRolesAndTenants tries every route as every role, on the visitor's tenant and on another:
// what a role may do is done as far as a missing reason lets it, what it may not is refused, and
// a tenant that is not the visitor's is not there.
func TestRolesAndTenants(t *testing.T) {
	s := newStage(t, func(c *console.Config) {
		write(t, c.Users, someone(t, "rea", access.Reader, tenant), someone(t, "ope", access.Operator, tenant),
			someone(t, "adi", access.Admin, tenant), someone(t, "all", access.Admin, access.Everywhere),
			someone(t, "two", access.Operator, "second"))
	})
	s.assert("fares", "k", "1")
	s.do(s.begin(s.coder, coordinator.PlanSpec{ID: "p1"}), "git.branch.create b")
	other, err := coordinator.New(coordinator.Config{Conn: s.conn, Tenant: "second", Agent: "coder"})
	must(t, err)
	t.Cleanup(func() { _ = other.Close(context.Background()) })
	must(t, s.begin(other, coordinator.PlanSpec{ID: "p1"}).Flush(t.Context()))
	store, err := s.host.Ledger(tenant)
	must(t, err)
	before, err := store.Head(t.Context())
	must(t, err)
	for name, roles := range map[string]map[string]access.Role{
		"":    {},
		"rea": {tenant: access.Reader}, "ope": {tenant: access.Operator}, "adi": {tenant: access.Admin},
		"all": {tenant: access.Admin, "second": access.Admin}, "two": {"second": access.Operator},
	} {
		v, form := visit(t, s), url.Values{}
		if name != "" {
			form.Set("csrf", v.enter(name))
			v.shows(name, roles)
		}
		for pattern, needs := range console.Routes() {
			for _, on := range []string{tenant, "second"} {
				v.tries(name, roles, pattern, needs, on, form)
			}
		}
	}
	after, err := store.Head(t.Context())
	must(t, err)
	for at := before.Last + 1; at <= after.Last; at++ {
		m, err := store.Get(t.Context(), at)
		must(t, err)
		entries, err := ledger.Decode(tenant, m)
		must(t, err)
		// others' come by themselves
		if strings.Contains(m.Subject, ".operator.") || strings.Contains(m.Subject, ".verdict.") {
			t.Errorf("the ledger has %v since", entries[0].Record)
		}
	}
}

// tries asks for a route on a tenant, and compares the status with what the role gives.
func (v *visitor) tries(
	name string, roles map[string]access.Role, pattern, needs, on string, form url.Values,
) {
	v.t.Helper()
	method, path, _ := strings.Cut(pattern, " ")
	role, only := roles[on], on == "second" // which has no fact, and no action
	if !strings.Contains(path, "{tenant}") {
		role, only = best(roles), false
	}
	at := strings.NewReplacer(
		"{$}", "", "{tenant}", on, "{plan}", "p1", "{action}", "1", "{sequence}", "1",
	).Replace(path)
	want := wanted(name, method, at, needs, role)
	if only && want == http.StatusOK && (strings.HasSuffix(at, "/fact") || strings.Contains(at, "/quarantine/") ||
		strings.Contains(at, "/verdicts/")) {
		want = http.StatusNotFound
	}
	if strings.HasSuffix(at, "/fact") && method == http.MethodGet {
		at += "?key=k"
	}
	if got, to := v.head(method, at, form); got != want {
		v.t.Errorf("%q, %s %s: %d to %q, want %d", name, method, at, got, to, want)
	}
}

// shows looks for what a user sees of the tenants, of forms and of the sessions.
func (v *visitor) shows(name string, roles map[string]access.Role) {
	v.t.Helper()
	_, page := v.get("/tenants")
	for _, on := range []string{tenant, "second"} {
		if strings.Contains(page, "/t/"+on+"/") != (roles[on] > access.None) {
			v.t.Errorf("%s, and tenant %s of the list of tenants", name, on)
		}
	}
	_, page = v.get("/t/default/plans/p1")
	if acts := strings.Contains(page, "/plans/p1/cancel"); acts != (roles[tenant] >= access.Operator) {
		v.t.Errorf("%s sees the form to cancel a plan: %v", name, acts)
	}
	if strings.Contains(page, `href="/sessions"`) != (best(roles) == access.Admin) {
		v.t.Errorf("%s, and the link to the sessions", name)
	}
}

func best(roles map[string]access.Role) (most access.Role) {
	for _, role := range roles {
		most = max(most, role)
	}
	return most
}

// wanted is the status of a request that carries the form's token and no reason.
func wanted(name, method, path, needs string, role access.Role) int {
	switch {
	case name == "" && method == http.MethodGet && !strings.HasSuffix(path, "/events"):
		return http.StatusSeeOther // to the sign-in
	case name == "":
		return http.StatusUnauthorized
	case role == access.None:
		return http.StatusNotFound
	case needs == "reads" && path == "/":
		return http.StatusSeeOther // to a tenant
	case needs == "reads":
		return http.StatusOK
	case needs == "administers" && role < access.Admin, needs == "acts" && role < access.Operator:
		return http.StatusForbidden
	case needs == "administers" && method == http.MethodGet:
		return http.StatusOK
	case needs == "administers": // of no session
		return http.StatusNotFound
	case needs == "answers": // of a reader, or without the token once more
		return http.StatusForbidden
	default:
		return http.StatusBadRequest // for want of a reason
	}
}

// TestARecordHasTheNameOfTheUserWhoSignedIn, and its tenant is one where the user may act.
func TestARecordHasTheNameOfTheUserWhoSignedIn(t *testing.T) {
	s := newStage(t, func(c *console.Config) {
		write(t, c.Users, someone(t, "ope", access.Operator, tenant), someone(t, "two", access.Operator, "second"))
	})
	p := s.begin(s.coder, coordinator.PlanSpec{ID: "p1"})
	s.do(p, "git.branch.create b")
	v := visit(t, s)
	form := url.Values{"reason": {"sold out"}, "actor": {"two"}, "name": {"two"}, "operator": {"two"}}
	form.Set("csrf", v.enter("ope"))
	answer, _ := v.post("/t/default/plans/p1/cancel", form)
	if answer.StatusCode != http.StatusSeeOther {
		t.Fatal(answer.Status)
	}
	store, err := s.host.Ledger(tenant)
	must(t, err)
	found := false
	last := s.settle()
	for m, err := range store.Read(t.Context(), 1) {
		must(t, err)
		if m.Sequence > last {
			break
		}
		entries, err := ledger.Decode(tenant, m)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if k, ok := e.Record.Kind.(*pb.Record_CancelRequested); ok {
				found = k.CancelRequested.Actor == "ope" && m.Subject == "saga.default.operator.ope"
			}
		}
	}
	if !found {
		t.Error("no record of the user's own")
	}
}

// TestAUserCanBeChangedWhileTheConsoleRuns: a line that goes or changes ends its sessions, and a
// file that cannot be read changes nothing.
func TestAUserCanBeChangedWhileTheConsoleRuns(t *testing.T) {
	var file string
	ada, rea := someone(t, "ada", access.Admin, access.Everywhere), someone(t, "rea", access.Reader, tenant)
	s := newStage(t, func(c *console.Config) {
		file, c.OpenRead = c.Users, false
		write(t, file, ada, rea)
	})
	admin, reader := visit(t, s), visit(t, s)
	admin.enter("ada")
	reader.enter("rea")
	lines, stop := reader.follow("/t/default/events?seen=0", "Cookie", reader.cookie().Name+"="+reader.cookie().Value)
	defer stop()
	await(t, lines, "retry:")
	write(t, file, ada, "rea role=reader tenants=default")
	until(t, "the page of sessions says that the file cannot be read", func() bool {
		_, page := admin.get("/sessions")
		return strings.Contains(page, "cannot be read") && strings.Contains(page, "users line 2")
	})
	if status, _ := reader.head(http.MethodGet, "/t/default/", nil); status != http.StatusOK {
		t.Errorf("after a file that cannot be read: %d", status)
	}
	write(t, file, ada, strings.Replace(rea, "role=reader", "role=operator", 1))
	until(t, "the events end", func() bool { return ended(lines) })
	if status, _ := reader.head(http.MethodGet, "/t/default/", nil); status != http.StatusSeeOther {
		t.Errorf("a session of another line: %d", status)
	}
	reader.enter("rea")
	if _, page := reader.get("/t/default/"); !strings.Contains(page, "operator</span>") {
		t.Error("the new role is not there")
	}
	if _, page := admin.get("/sessions"); strings.Contains(page, "cannot be read") {
		t.Error("the problem is still shown")
	}
	write(t, file, ada)
	until(t, "who was removed is out", func() bool {
		status, _ := reader.head(http.MethodGet, "/t/default/", nil)
		return status == http.StatusSeeOther
	})
	if status, _ := admin.head(http.MethodGet, "/sessions", nil); status != http.StatusOK {
		t.Errorf("whose line stayed: %d", status)
	}
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(testenv.Patience); !done(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what + ": not yet")
		}
	}
}

// ended reports whether a stream has ended, and reads what has come.
func ended(lines <-chan string) bool {
	for {
		select {
		case _, ok := <-lines:
			if !ok {
				return true
			}
		default:
			return false
		}
	}
}

// TestAnAdminSeesAndEndsSessions of tenants that are the admin's; what follows the fold under
// one ends within a second.
func TestAnAdminSeesAndEndsSessions(t *testing.T) {
	s := newStage(t, func(c *console.Config) {
		write(t, c.Users, someone(t, "ada", access.Admin, tenant), someone(t, "ope", access.Operator, tenant),
			someone(t, "two", access.Operator, "second"), someone(t, "both", access.Reader, access.Everywhere))
		c.Beat = time.Hour
	})
	admin, operator, second := visit(t, s), visit(t, s), visit(t, s)
	csrf := admin.enter("ada")
	operator.enter("ope")
	second.enter("two")
	visit(t, s).enter("both")
	lines, stop := operator.follow(
		"/t/default/events?seen=0", "Cookie", operator.cookie().Name+"="+operator.cookie().Value,
	)
	defer stop()
	await(t, lines, "retry:")
	of := map[string]string{}
	for _, session := range sessions(t, admin, "ada") {
		of[session.User] = session.ID
	}
	if len(of) != 2 || of["ope"] == "" || of["ada"] == "" {
		t.Fatalf("the admin of one tenant sees the sessions of %v", of)
	}
	for name, want := range map[string]int{"ope": http.StatusForbidden, "none": http.StatusUnauthorized} {
		if status := askSessions(t, operator, http.MethodGet, "/api/sessions", name, nil); status != want {
			t.Errorf("%s lists sessions: %d", name, status)
		}
	}
	if answer, _ := admin.post("/sessions", url.Values{"id": {of["ope"]}}); answer.StatusCode != http.StatusForbidden {
		t.Errorf("without the token of the page: %s", answer.Status)
	}
	if answer, _ := admin.post("/sessions", url.Values{"id": {of["ope"]}, "csrf": {csrf}}); answer.StatusCode !=
		http.StatusSeeOther {
		t.Fatalf("ending a session: %s", answer.Status)
	}
	until(t, "the events end, long before their next beat", func() bool { return ended(lines) })
	if status, _ := operator.head(http.MethodGet, "/t/default/", nil); status != http.StatusSeeOther {
		t.Errorf("the session that was ended: %d", status)
	}
	for as, want := range map[string]int{of["ope"]: http.StatusUnauthorized, of["ada"]: http.StatusOK} {
		if status, _ := admin.head(http.MethodGet, "/t/default/events?as="+as, nil); status != want {
			t.Errorf("events of session %s: %d, want %d", as, status, want)
		}
	}
	for _, id := range []string{of["ope"], "nothing", "2nd"} {
		if status := askSessions(t, admin, http.MethodDelete, "/api/sessions/"+id, "ada", nil); status !=
			http.StatusNotFound {
			t.Errorf("ending %q: %d", id, status)
		}
	}
	operator.enter("ope")
	for _, session := range sessions(t, admin, "ada") {
		if session.User == "ope" {
			if status := askSessions(t, admin, http.MethodDelete, "/api/sessions/"+session.ID, "ada", nil); status !=
				http.StatusNoContent {
				t.Errorf("ending it by the API: %d", status)
			}
		}
	}
	if status, _ := operator.head(http.MethodGet, "/t/default/", nil); status != http.StatusSeeOther {
		t.Errorf("the session that the API has ended: %d", status)
	}
	if status, _ := second.head(http.MethodGet, "/t/second/", nil); status != http.StatusOK {
		t.Errorf("the session of another tenant: %d", status)
	}
}

func sessions(t *testing.T, v *visitor, name string) []console.SessionView {
	t.Helper()
	var answer console.SessionList
	if status := askSessions(t, v, http.MethodGet, "/api/sessions", name, &answer); status != http.StatusOK {
		t.Fatal(status)
	}
	return answer.Sessions
}

func askSessions(t *testing.T, v *visitor, method, path, name string, into any) int {
	t.Helper()
	r, err := http.NewRequest(method, v.base+path, nil)
	must(t, err)
	r.SetBasicAuth(name, tokenOf(name))
	answer, err := (&http.Client{Transport: v.http.Transport}).Do(r)
	must(t, err)
	if into != nil {
		err = json.NewDecoder(answer.Body).Decode(into)
	}
	must(t, errors.Join(err, answer.Body.Close()))
	return answer.StatusCode
}

// TestALineOfBeforeThereWereRolesIsAnOperatorOfAllTenants, who signs in with the token alone.
func TestALineOfBeforeThereWereRolesIsAnOperatorOfAllTenants(t *testing.T) {
	s := newStage(t, func(c *console.Config) { write(t, c.Users, "ana "+token) })
	for _, form := range []url.Values{
		{"token": {token}}, {"token": {token}, "name": {""}}, {"token": {token}, "name": {"ana"}},
	} {
		v := visit(t, s)
		if answer, _ := v.post("/login", form); answer.StatusCode != http.StatusSeeOther {
			t.Fatalf("%v: %s", form, answer.Status)
		}
		for path, want := range map[string]int{
			"/t/default/": http.StatusOK, "/t/second/": http.StatusOK, "/sessions": http.StatusForbidden,
		} {
			if got, _ := v.head(http.MethodGet, path, nil); got != want {
				t.Errorf("%s: %d, want %d", path, got, want)
			}
		}
		if _, page := v.get("/t/second/"); !strings.Contains(page, "operator</span>") {
			t.Error("no operator")
		}
	}
	if answer, _ := visit(t, s).post("/login", url.Values{"token": {token}, "name": {"bo"}}); answer.StatusCode !=
		http.StatusForbidden {
		t.Errorf("under another name: %s", answer.Status)
	}
}
