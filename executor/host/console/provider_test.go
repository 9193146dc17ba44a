package console_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/executor/host/console"
	"github.com/sagenbaum/sagenbaum/executor/host/console/access"
	"github.com/sagenbaum/sagenbaum/ledger"
)

const (
	clientID = "sagenbaum"
	secret   = "the-secret-of-the-client"
	password = "a-password-at-the-provider"
)

// directory is an OpenID Connect provider whose users have groups.
type directory struct {
	*storage.Storage
	t       *testing.T
	url     string
	clients map[string]*storage.Client
	groups  map[string][]string
	change  func(r *saying) // of what it says of a user who has signed in
}

// saying is what a provider says of a sign-in.
type saying struct {
	op.AuthRequest
	nonce    string
	signedIn time.Time
}

func (r *saying) GetNonce() string       { return r.nonce }
func (r *saying) GetAuthTime() time.Time { return r.signedIn }

// AuthRequestByCode is where the ID token comes from.
func (d *directory) AuthRequestByCode(ctx context.Context, code string) (op.AuthRequest, error) {
	request, err := d.Storage.AuthRequestByCode(ctx, code)
	if err != nil || d.change == nil {
		return request, err
	}
	changed := &saying{request, request.GetNonce(), request.GetAuthTime()}
	d.change(changed)
	return changed, nil
}

// SetUserinfoFromToken says what the provider's endpoint for that answers.
func (d *directory) SetUserinfoFromToken(ctx context.Context, info *oidc.UserInfo, id, subject, from string) error {
	err := d.Storage.SetUserinfoFromToken(ctx, info, id, subject, from)
	info.AppendClaims("groups", d.groups[subject])
	info.AppendClaims("realm_access", map[string]any{"roles": d.groups[subject]})
	return err
}

// newDirectory starts a provider with these users and their groups, which vouches for users of a
// console as change says.
func newDirectory(t *testing.T, groups map[string][]string) *directory {
	t.Helper()
	users := map[string]storage.User{}
	for name := range groups {
		users[name] = storage.User{ID: name, Username: name, Password: password}
	}
	data, err := json.Marshal(users)
	must(t, err)
	file := filepath.Join(t.TempDir(), "users.json")
	must(t, os.WriteFile(file, data, 0o600))
	store, err := storage.StoreFromFile(file)
	must(t, err)
	d := &directory{t: t, groups: groups, clients: map[string]*storage.Client{}}
	d.Storage = storage.NewStorageWithClients(store, d.clients)
	var handler http.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	d.url = server.URL
	handler = exampleop.SetupServer(d.url, d, slog.New(slog.DiscardHandler), false, op.WithAllowInsecure())
	return d
}

// provider is the console's side of the directory.
func (d *directory) provider() *access.Provider {
	grant := func(role access.Role, tenants ...string) access.Grant {
		return access.Grant{Role: role, Tenants: tenants}
	}
	return &access.Provider{
		Issuer: d.url, ClientID: clientID, ClientSecret: secret, SessionTime: time.Hour,
		Rules: []access.Rule{
			{Claim: "groups", Value: "ops", Grant: grant(access.Operator, tenant)},
			{Claim: "groups", Value: "audit", Grant: grant(access.Reader, access.Everywhere)},
			{Claim: "realm_access.roles", Value: "boss", Grant: grant(access.Admin, "second")},
		},
	}
}

// stage is a stage whose console the directory knows.
func (d *directory) stage(change func(*console.Config)) *stage {
	d.t.Helper()
	s := newStage(d.t, func(c *console.Config) {
		c.Provider = d.provider()
		if change != nil {
			change(c)
		}
	})
	d.clients[clientID] = storage.WebClient(clientID, secret, s.console.URL()+"login/provider/done")
	return s
}

var requestField = regexp.MustCompile(`name="id" value="([^"]+)"`)

// through goes to an address, and through the provider as a user, until it is back at the
// console; back is the console's answer, and the address with which the provider led back.
func (v *visitor) through(d *directory, path, user string) (answer *http.Response, page, back string) {
	v.t.Helper()
	at := v.base + path
	for range 10 {
		r, err := http.NewRequest(http.MethodGet, at, nil)
		must(v.t, err)
		answer, page = v.do(r)
		if form := requestField.FindStringSubmatch(page); strings.HasPrefix(at, d.url) && form != nil {
			login := url.Values{"username": {user}, "password": {password}, "id": {form[1]}}
			r, err := http.NewRequest(http.MethodPost, d.url+"/login/username", strings.NewReader(login.Encode()))
			must(v.t, err)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			answer, page = v.do(r)
		}
		to, err := answer.Location()
		if err != nil || strings.Contains(at, "/login/provider/done") {
			return answer, page, back
		}
		if at = to.String(); strings.HasPrefix(at, v.base) {
			back = strings.TrimPrefix(at, v.base)
		}
	}
	v.t.Fatalf("%s leads in a circle", path)
	return nil, "", ""
}

func TestAProviderVouchesForUsers(t *testing.T) {
	d := newDirectory(t, map[string][]string{"ana.silva": {"ops", "audit", "staff"}, "boss": {"boss"}})
	s := d.stage(nil)
	p := s.begin(s.coder, coordinator.PlanSpec{ID: "p1"})
	s.do(p, "git.branch.create b")
	v := visit(t, s)
	if answer, _ := v.get("/t/default/"); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("a console with a provider is open to read: %s", answer.Status)
	}
	if _, page := v.get("/login?next=/t/default/"); !strings.Contains(page, `/login/provider?next=%2Ft%2Fdefault%2F`) {
		t.Error("the page to sign in does not lead to the provider")
	}
	begun, _ := v.get("/login/provider?next=/t/default/")
	to, err := begun.Location()
	must(t, err)
	for name, want := range map[string]string{
		"code_challenge_method": "S256", "response_type": "code", "client_id": clientID, "scope": "openid profile",
		"redirect_uri": s.console.URL() + "login/provider/done", "prompt": "",
	} {
		if got := to.Query().Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"state", "nonce", "code_challenge"} {
		if len(to.Query().Get(name)) < 40 {
			t.Errorf("%s is %q", name, to.Query().Get(name))
		}
	}
	answer, _, _ := v.through(d, "/login/provider?next=/t/default/plans/p1", "ana.silva")
	if answer.StatusCode != http.StatusSeeOther || answer.Header.Get("Location") != "/t/default/plans/p1" {
		t.Fatalf("%s to %q", answer.Status, answer.Header.Get("Location"))
	}
	_, page := v.get("/t/default/plans/p1")
	csrf := csrfField.FindStringSubmatch(page)
	if csrf == nil || !strings.Contains(page, "ana_silva") || !strings.Contains(page, "operator</span>") {
		t.Fatal("no operator ana_silva")
	}
	if _, page := v.get("/t/second/"); !strings.Contains(page, "reader</span>") {
		t.Error("on the other tenant the user is no reader")
	}
	form := url.Values{"csrf": {csrf[1]}, "reason": {"sold out"}}
	if answer, _ := v.post("/t/default/plans/p1/cancel", form); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("cancelling: %s", answer.Status)
	}
	if shown := s.plan("p1"); !strings.Contains(shown.Reason, "ana_silva") {
		t.Errorf("the reason is %q", shown.Reason)
	}
	boss := visit(t, s)
	boss.through(d, "/login/provider?next=/", "boss")
	if status, _ := boss.head(http.MethodGet, "/sessions", nil); status != http.StatusOK {
		t.Errorf("an admin by a claim within another: %d", status)
	}
	if status, _ := boss.head(http.MethodGet, "/t/default/", nil); status != http.StatusNotFound {
		t.Errorf("a tenant of others: %d", status)
	}
	if cookie := v.cookie(); cookie.Name == "" {
		t.Error("no cookie")
	}
}

// TestTheProviderConfirmsTheOwnersWord: the same user signs in there once more, and now.
func TestTheProviderConfirmsTheOwnersWord(t *testing.T) {
	d := newDirectory(t, map[string][]string{"ana": {"ops"}, "bo": {"ops"}})
	s := d.stage(func(c *console.Config) { write(t, c.Users, someone(t, "adm", access.Admin, access.Everywhere)) })
	p := s.begin(s.travel, coordinator.PlanSpec{ID: "p1"})
	s.do(p, "mail.send m")
	must(t, p.Fail(t.Context(), "not this way"))
	if end, err := p.Wait(t.Context()); err != nil || end.State != ledger.StateQuarantined {
		t.Fatalf("%+v, %v", end, err)
	}
	v := visit(t, s)
	const obligation = "/t/default/quarantine/p1/1"
	const confirm = "/login/provider?next=" + obligation + "&confirm=1"
	if answer, _ := v.get(confirm); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("confirming without a session: %s", answer.Status)
	}
	v.through(d, "/login/provider?next="+obligation, "ana")
	_, page := v.get(obligation)
	csrf := csrfField.FindStringSubmatch(page)[1]
	if strings.Contains(page, "data-answer") || !strings.Contains(page, "confirm=1") {
		t.Error("the page has a form to answer before the user has confirmed")
	}
	answer := func(token string) int {
		form := url.Values{"csrf": {csrf}, "as": {"skipped"}, "reason": {"no one has read it"}, "token": {token}}
		got, _ := v.post(obligation, form)
		return got.StatusCode
	}
	for _, token := range []string{"", tokenOf("adm")} {
		if status := answer(token); status != http.StatusForbidden {
			t.Errorf("with token %q: %d", token, status)
		}
	}
	if got, _, _ := v.through(d, confirm, "bo"); got.StatusCode != http.StatusForbidden {
		t.Errorf("confirmed by another user: %s", got.Status)
	}
	d.change = func(r *saying) { r.signedIn = time.Now().Add(-time.Hour) }
	if got, page, _ := v.through(d, confirm, "ana"); got.StatusCode != http.StatusForbidden ||
		!strings.Contains(page, "once more") {
		t.Errorf("confirmed by a sign-in of an hour ago: %s", got.Status)
	}
	d.change = nil
	if status := answer(""); status != http.StatusForbidden {
		t.Errorf("after that: %d", status)
	}
	r, err := http.NewRequest(http.MethodGet, v.base+confirm, nil)
	must(t, err)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if got, _ := v.do(r); got.StatusCode != http.StatusForbidden {
		t.Errorf("begun by another site: %s", got.Status)
	}
	before := v.cookie()
	begun, _ := v.get(confirm)
	if to, err := begun.Location(); err != nil || to.Query().Get("prompt") != "login" || to.Query().Get("max_age") != "0" {
		t.Errorf("the provider is asked by %v, %v", to, err)
	}
	if got, _, _ := v.through(d, confirm, "ana"); got.StatusCode != http.StatusSeeOther {
		t.Fatalf("confirming: %s", got.Status)
	}
	if v.cookie().Value == before.Value {
		t.Error("the cookie is the one of before")
	}
	if _, page := v.get(obligation); !strings.Contains(page, "data-answer") {
		t.Error("the page has no form to answer")
	}
	if status := answer(""); status != http.StatusSeeOther {
		t.Errorf("the owner's word: %d", status)
	}
}

// TestWhomTheProviderDoesNotVouchFor has no session.
func TestWhomTheProviderDoesNotVouchFor(t *testing.T) {
	d := newDirectory(t, map[string][]string{
		"stranger": {"staff"}, "under_score": {"ops"}, "a b": {"ops"}, "ana": {"ops"}, "bo": {"ops"},
	})
	s := d.stage(nil) // whose file has a user ana
	for name, text := range map[string]string{
		"stranger": "none of what it says of you is a role", "under_score": "is none for an operator",
		"a b": "is none for an operator", "ana": "a user ana of its own",
	} {
		v := visit(t, s)
		answer, page, _ := v.through(d, "/login/provider?next=/", name)
		if answer.StatusCode != http.StatusForbidden || !strings.Contains(page, text) {
			t.Errorf("%s: %s\n%s", name, answer.Status, page)
		}
		if status, _ := v.head(http.MethodGet, "/t/default/", nil); status != http.StatusSeeOther {
			t.Errorf("%s reads: %d", name, status)
		}
	}
	refused := func(what, path string, v *visitor) {
		t.Helper()
		answer, page := v.get(path)
		if answer.StatusCode != http.StatusForbidden && answer.StatusCode != http.StatusBadGateway {
			t.Errorf("%s: %s\n%s", what, answer.Status, page)
		}
		if status, _ := v.head(http.MethodGet, "/t/default/", nil); status != http.StatusSeeOther {
			t.Errorf("%s reads: %d", what, status)
		}
	}
	v := visit(t, s)
	_, _, back := v.through(d, "/login/provider?next=/", "bo")
	if status, _ := v.head(http.MethodGet, "/t/default/", nil); status != http.StatusOK {
		t.Fatalf("bo reads: %d", status)
	}
	refused("a code that was used, in another browser", back, visit(t, s))
	refused("a refusal of the provider", "/login/provider/done?error=access_denied&state=x", visit(t, s))
	other := visit(t, s)
	other.get("/login/provider?next=/")
	refused("a code with another one's state", back, other)
	other = visit(t, s)
	begun, _ := other.get("/login/provider?next=/")
	to, err := begun.Location()
	must(t, err)
	query := url.Values{"state": {to.Query().Get("state")}, "code": {"guessed"}}
	refused("a code that is none", "/login/provider/done?"+query.Encode(), other)
	refused("the same state again", "/login/provider/done?"+query.Encode(), other)
	d.change = func(r *saying) { r.nonce = "of another sign-in" }
	other = visit(t, s)
	if answer, _, _ := other.through(d, "/login/provider?next=/", "bo"); answer.StatusCode != http.StatusBadGateway {
		t.Errorf("another nonce: %s", answer.Status)
	}
	d.change = nil
	for _, next := range []string{"//evil.example", "https://evil.example/", "/\t/evil.example"} {
		answer, _, _ := visit(t, s).through(d, "/login/provider?next="+url.QueryEscape(next), "bo")
		if to := answer.Header.Get("Location"); to != "/" {
			t.Errorf("next %q leads to %q", next, to)
		}
	}
}

// TestAConsoleStartsWithoutItsProvider, and signs in with tokens meanwhile.
func TestAConsoleStartsWithoutItsProvider(t *testing.T) {
	d := newDirectory(t, map[string][]string{"bo": {"ops"}})
	s := d.stage(func(c *console.Config) { c.Provider.Issuer = "http://127.0.0.1:1" })
	v := visit(t, s)
	answer, page := v.get("/login/provider?next=/")
	if answer.StatusCode != http.StatusBadGateway || !strings.Contains(page, "sign in with a token") {
		t.Errorf("%s\n%s", answer.Status, page)
	}
	v.signIn()
	if _, err := console.Start(console.Config{
		Listen: "127.0.0.1:0", Users: filepath.Join(t.TempDir(), "users"),
		Provider: &access.Provider{Issuer: "http://id.example", ClientID: "x"},
	}); err == nil {
		t.Error("a provider in the clear was taken")
	}
}

// TestASessionOfAProviderEndsInTime: with the time that was chosen, or with the ID token.
func TestASessionOfAProviderEndsInTime(t *testing.T) {
	d := newDirectory(t, map[string][]string{"bo": {"ops"}})
	for name, change := range map[string]func(p *access.Provider){
		"its own time": func(p *access.Provider) { p.SessionTime = 5 * time.Minute },
		"its token":    func(p *access.Provider) { p.SessionTime, p.TokenTime = 0, true },
	} {
		s := d.stage(func(c *console.Config) {
			change(c.Provider)
			write(t, c.Users, someone(t, "adm", access.Admin, access.Everywhere))
		})
		v := visit(t, s)
		v.through(d, "/login/provider?next=/", "bo")
		all := sessions(t, v, "adm")
		if len(all) != 1 || all[0].By != "provider" {
			t.Fatalf("%s: %+v", name, all)
		}
		lasts := time.Duration(all[0].EndsNs - all[0].SinceNs)
		if want := map[string]time.Duration{"its own time": 5 * time.Minute, "its token": time.Hour}[name]; lasts > want ||
			lasts < want-time.Minute {
			t.Errorf("%s: the session lasts %v, want %v", name, lasts, want)
		}
	}
}
