package console_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/executor/host/console"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// visitor is a browser without a screen: it keeps cookies and follows no redirect.
type visitor struct {
	t    *testing.T
	base string
	http *http.Client
}

func visit(t *testing.T, s *stage) *visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	must(t, err)
	v := &visitor{
		t: t, base: strings.TrimSuffix(s.console.URL(), "/"), http: &http.Client{Jar: jar, Timeout: 30 * time.Second},
	}
	v.http.Transport = &http.Transport{
		DialContext: console.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	v.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Cleanup(v.http.CloseIdleConnections)
	return v
}

func (v *visitor) do(r *http.Request) (*http.Response, string) {
	v.t.Helper()
	answer, err := v.http.Do(r)
	must(v.t, err)
	body, err := io.ReadAll(answer.Body)
	must(v.t, errors.Join(err, answer.Body.Close()))
	return answer, string(body)
}

func (v *visitor) get(path string) (*http.Response, string) {
	v.t.Helper()
	r, err := http.NewRequest(http.MethodGet, v.base+path, nil)
	must(v.t, err)
	return v.do(r)
}

func (v *visitor) post(path string, form url.Values, heads ...string) (*http.Response, string) {
	v.t.Helper()
	r, err := http.NewRequest(http.MethodPost, v.base+path, strings.NewReader(form.Encode()))
	must(v.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i+1 < len(heads); i += 2 {
		r.Header.Set(heads[i], heads[i+1])
	}
	return v.do(r)
}

// cookie is the cookie of the session.
func (v *visitor) cookie() *http.Cookie {
	v.t.Helper()
	u, err := url.Parse(v.base)
	must(v.t, err)
	all := v.http.Jar.Cookies(u)
	if len(all) != 1 {
		v.t.Fatalf("cookies %v", all)
	}
	return all[0]
}

func (v *visitor) setCookie(c *http.Cookie) {
	v.t.Helper()
	u, err := url.Parse(v.base)
	must(v.t, err)
	v.http.Jar.SetCookies(u, []*http.Cookie{{Name: c.Name, Value: c.Value, Path: "/"}})
}

var csrfField = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// asAna is the form of a sign-in, with further fields.
func asAna(more ...string) url.Values {
	form := url.Values{"name": {"ana"}, "token": {token}}
	for i := 0; i+1 < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	return form
}

// signIn signs in and returns the token that the session's forms carry.
func (v *visitor) signIn() string {
	v.t.Helper()
	answer, _ := v.post("/login", asAna("next", "/t/default/"))
	if answer.StatusCode != http.StatusSeeOther {
		v.t.Fatalf("sign-in: %s", answer.Status)
	}
	_, page := v.get("/t/default/")
	found := csrfField.FindStringSubmatch(page)
	if found == nil {
		v.t.Fatal("the page of an operator has no form")
	}
	return found[1]
}

func TestTheConsoleRefusesWhatIsNotFromItsOwnPages(t *testing.T) {
	s := newStage(t, nil)
	p := s.begin(s.coder, coordinator.PlanSpec{ID: "p1"})
	s.do(p, "git.branch.create b")
	v := visit(t, s)
	form := url.Values{"reason": {"x"}}
	if answer, _ := v.post("/t/default/plans/p1/cancel", form); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a session: %s", answer.Status)
	}
	csrf := v.signIn()
	for name, heads := range map[string][]string{
		"of another site":                {"Sec-Fetch-Site", "cross-site"},
		"of another port":                {"Sec-Fetch-Site", "same-site"},
		"of another origin, old browser": {"Origin", "http://evil.example"},
		"of a sandboxed frame":           {"Origin", "null"},
	} {
		own := url.Values{"reason": {"x"}, "csrf": {csrf}}
		if answer, _ := v.post("/t/default/plans/p1/cancel", own, heads...); answer.StatusCode != http.StatusForbidden {
			t.Errorf("a form %s: %s", name, answer.Status)
		}
	}
	for name, wrong := range map[string]string{"no token": "", "another token": csrf[1:] + "x"} {
		form := url.Values{"reason": {"x"}, "csrf": {wrong}}
		if answer, _ := v.post("/t/default/plans/p1/cancel", form); answer.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s", name, answer.Status)
		}
	}
	form = url.Values{"csrf": {csrf}}
	if answer, _ := v.post("/t/default/plans/p1/cancel", form); answer.StatusCode != http.StatusBadRequest {
		t.Errorf("without a reason: %s", answer.Status)
	}
	if shown := s.plan("p1"); shown.State != ledger.StateOpen {
		t.Fatalf("the plan is %s", shown.State)
	}
	answer, _ := v.post(
		"/t/default/plans/p1/cancel", url.Values{"reason": {"for real"}, "csrf": {csrf}}, "Sec-Fetch-Site", "same-origin",
	)
	if answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("the page's own form: %s", answer.Status)
	}
	if _, err := p.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if shown := s.plan("p1"); !strings.Contains(shown.Reason, "for real") || !strings.Contains(shown.Reason, "ana") {
		t.Errorf("the reason is %q; want the operator's name and words", shown.Reason)
	}
}

func TestTheConsoleAnswersToItsOwnNamesOnly(t *testing.T) {
	s := newStage(t, nil)
	v := visit(t, s)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(v.base, "http://"))
	if v.base != "http://sagenbaum.localhost:"+port {
		t.Errorf("the console is at %s", v.base)
	}
	own := `href="` + v.base + `/"`
	const misdirected = http.StatusMisdirectedRequest
	for name, want := range map[string]struct {
		status int
		leads  bool // to the console's own name
	}{
		"sagenbaum.localhost:" + port: {http.StatusOK, false}, "SAGENBAUM.localhost:9000": {http.StatusOK, false},
		"localhost:" + port: {misdirected, true}, "127.0.0.1:" + port: {misdirected, true},
		"[::1]:" + port: {misdirected, true}, "rebound.example:" + port: {misdirected, false},
		"169.254.169.254": {misdirected, false}, "other.localhost:" + port: {misdirected, false},
		"sagenbaum.localhost.evil.example": {misdirected, false},
	} {
		r, err := http.NewRequest(http.MethodGet, v.base+"/t/default/", nil)
		must(t, err)
		r.Host = name
		answer, body := v.do(r)
		if answer.StatusCode != want.status || want.status == misdirected && strings.Contains(body, own) != want.leads {
			t.Errorf("Host %s: %s, want %+v\n%s", name, answer.Status, want, body)
		}
		policy := answer.Header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("Host %s: policy %q", name, policy)
		}
	}
}

// TestNobodyElseListensWhereABrowserLooks: a name below localhost is two addresses, and the
// console has both.
func TestNobodyElseListensWhereABrowserLooks(t *testing.T) {
	s := newStage(t, nil)
	_, port, _ := net.SplitHostPort(strings.TrimSuffix(strings.TrimPrefix(s.console.URL(), "http://"), "/"))
	for _, host := range []string{"127.0.0.1", "::1"} {
		other, err := net.Listen("tcp", net.JoinHostPort(host, port))
		if err == nil {
			must(t, other.Close())
			t.Errorf("%s is free for another program", net.JoinHostPort(host, port))
		}
	}
	free, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no IPv6")
	}
	defer func() { _ = free.Close() }()
	taken := "127.0.0.1:" + strconv.Itoa(free.Addr().(*net.TCPAddr).Port)
	file := filepath.Join(t.TempDir(), "users")
	if _, err := console.Start(console.Config{Listen: taken, Users: file}); err == nil {
		t.Error("a console started whose other address another program has")
	}
}

func TestTheSessionOfAConsoleGoesToNoOtherServer(t *testing.T) {
	s := newStage(t, nil)
	v := visit(t, s)
	v.signIn()
	for _, other := range []string{
		"http://127.0.0.1:1/", "http://localhost:1/", "http://[::1]:1/", "http://other.localhost:1/",
	} {
		u, err := url.Parse(other)
		must(t, err)
		if cookies := v.http.Jar.Cookies(u); len(cookies) != 0 {
			t.Errorf("%s gets %v", other, cookies)
		}
	}
}

func TestASessionIsKeptInACookieThatScriptsDoNotSee(t *testing.T) {
	s := newStage(t, nil)
	v := visit(t, s)
	answer, _ := v.post("/login", asAna())
	cookies := answer.Cookies()
	if len(cookies) != 1 || cookies[0].Domain != "" ||
		!cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteLaxMode || len(cookies[0].Value) < 40 {
		t.Errorf("cookies %v", cookies)
	}
	_, page := v.get("/t/default/")
	if strings.Contains(page, token) || strings.Contains(page, cookies[0].Value) {
		t.Error("a secret is in the page")
	}
	csrf := csrfField.FindStringSubmatch(page)[1]
	if answer, _ := v.post("/logout", url.Values{"csrf": {csrf}}); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("signing out: %s", answer.Status)
	}
	if answer, _ := v.post(
		"/t/default/plans/p1/cancel", url.Values{"reason": {"x"}, "csrf": {csrf}}, "Cookie",
		cookies[0].Name+"="+cookies[0].Value,
	); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("with the cookie of a session that has ended: %s", answer.Status)
	}
}

// TestASignInLeadsNowhereElse: whatever a link to it says, also with the bytes that browsers
// leave out of an address.
func TestASignInLeadsNowhereElse(t *testing.T) {
	s := newStage(t, nil)
	v := visit(t, s)
	for next, want := range map[string]string{
		"/t/default/plans?state=open#x": "/t/default/plans?state=open#x", "/t/default/%09x": "/t/default/%09x",
		"": "/", "t/default/": "/", "https://evil.example/": "/", "//evil.example/": "/",
		`/\evil.example/`: "/", `\\evil.example`: "/", "/\t/evil.example/": "/", "/\n/evil.example/": "/",
		"/\r/evil.example/": "/", "\t//evil.example/": "/", "/\x00/evil.example/": "/", "/\x0b/evil.example/": "/",
		"/ /evil.example/": "/", "/\x7f/evil.example": "/", "/\u00a0/evil.example": "/", "/%zz": "/",
		"javascript:alert(1)": "/", " /t/default/": "/",
	} {
		answer, _ := v.post("/login", asAna("next", next))
		if to := answer.Header.Get("Location"); answer.StatusCode != http.StatusSeeOther || to != want {
			t.Errorf("next %q leads to %q (%s), want %q", next, to, answer.Status, want)
		}
		_, page := v.get("/login?next=" + url.QueryEscape(next))
		if want == "/" && !strings.Contains(page, `name="next" value="/"`) {
			t.Errorf("the page to sign in keeps next %q", next)
		}
	}
}

// TestTheOwnersWordNeedsTheTokenOnceMore: a session alone is not enough for an answer to a
// quarantine.
func TestTheOwnersWordNeedsTheTokenOnceMore(t *testing.T) {
	s := newStage(t, func(c *console.Config) {
		text, err := os.ReadFile(c.Users)
		must(t, err)
		must(t, os.WriteFile(c.Users, append(text, "bo "+token+"-of-bo\n"...), 0o600))
	})
	p := s.begin(s.travel, coordinator.PlanSpec{ID: "p1"})
	s.do(p, "mail.send m")
	must(t, p.Fail(t.Context(), "not this way"))
	if end, err := p.Wait(t.Context()); err != nil || end.State != ledger.StateQuarantined {
		t.Fatalf("%+v, %v", end, err)
	}
	v := visit(t, s)
	csrf := v.signIn()
	answer := func(token ...string) int {
		form := url.Values{"csrf": {csrf}, "as": {"skipped"}, "reason": {"nobody has read it"}, "token": token}
		got, _ := v.post("/t/default/quarantine/p1/1", form)
		return got.StatusCode
	}
	for name, status := range map[string]int{
		"no token": answer(), "an empty one": answer(""), "a wrong one": answer("wrong"),
		"another operator's": answer(token + "-of-bo"),
	} {
		if status != http.StatusForbidden {
			t.Errorf("%s: %d", name, status)
		}
	}
	if shown := s.plan("p1"); shown.State != ledger.StateQuarantined {
		t.Fatalf("the plan is %s", shown.State)
	}
	before := v.cookie()
	_, page := v.get("/t/default/quarantine/p1/1")
	if !strings.Contains(page, `type="password" name="token" required`) {
		t.Error("the form does not ask for the token")
	}
	if status := answer(token); status != http.StatusSeeOther {
		t.Errorf("the operator's own token: %d", status)
	}
	if _, page := v.get("/t/default/quarantine/p1/1"); strings.Contains(page, `name="token"`) {
		t.Error("a form asks for the token that was shown a moment ago")
	}
	if status := answer(); status != http.StatusConflict {
		t.Errorf("a second answer, without the token: %d", status)
	}
	if status := answer("wrong"); status != http.StatusForbidden {
		t.Errorf("a second answer, with a wrong token: %d", status)
	}
	if v.cookie().Value == before.Value {
		t.Error("a cookie that was copied before is as good as one that has confirmed")
	}
	v.setCookie(before)
	if status := answer(); status != http.StatusUnauthorized {
		t.Errorf("with the cookie of before: %d", status)
	}
	ended, err := s.host.Ask(tenant, "plan.outcome", api.OutcomeQuery{Plan: "p1", Ended: true, WaitMs: 10_000})
	must(t, err)
	if end := ended.(api.OutcomeAnswer); end.State != ledger.StateResolved {
		t.Errorf("the plan is %+v", end)
	}
}

// TestAnErasureNeedsTheTokenAndThePlansID: it is for good.
func TestAnErasureNeedsTheTokenAndThePlansID(t *testing.T) {
	s := newStage(t, nil)
	p := s.begin(s.payer(), coordinator.PlanSpec{ID: "p1"})
	input := map[string]any{"name": "x", "card": "4000-1234"}
	_, err := p.Do(t.Context(), coordinator.Action{ID: "a", Capability: "card.pay", Input: input},
		func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			return coordinator.Outcome{Output: map[string]string{"ref": "r"}}, nil
		})
	must(t, err)
	s.settle(p)
	v := visit(t, s)
	if _, page := v.get("/t/default/plans/p1"); strings.Contains(page, "4000-1234") ||
		strings.Contains(page, "p1/erase") {
		t.Error("a reader sees what is sealed, or may erase it")
	}
	csrf := v.signIn()
	if _, page := v.get("/t/default/plans/p1"); !strings.Contains(page, "p1/erase") ||
		strings.Contains(page, "4000-1234") {
		t.Error("an operator may not erase what is sealed, or sees it")
	}
	erase := func(token, plan, force string) int {
		form := url.Values{"csrf": {csrf}, "reason": {"asked for"}, "token": {token}, "plan": {plan}, "force": {force}}
		got, _ := v.post("/t/default/plans/p1/erase", form)
		return got.StatusCode
	}
	for _, c := range []struct {
		token, plan, force string
		want               int
	}{
		{"", "p1", "1", http.StatusForbidden}, {"wrong", "p1", "1", http.StatusForbidden},
		{token, "p2", "1", http.StatusBadRequest}, {token, "", "1", http.StatusBadRequest},
		{token, "p1", "", http.StatusConflict}, // its undo is held
		{token, "p1", "1", http.StatusSeeOther}, {token, "p1", "1", http.StatusConflict},
	} {
		if got := erase(c.token, c.plan, c.force); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	if shown := s.plan("p1"); shown.Erasure == nil || !strings.Contains(shown.Erasure.By, "ana") {
		t.Errorf("the erasure is %+v", shown.Erasure)
	}
	if _, page := v.get("/t/default/plans/p1"); !strings.Contains(page, "are erased") {
		t.Error("the page does not say that it is erased")
	}
}

// TestSignInsAreBounded: who shows wrong tokens has to wait; others, and who has the right
// one, do not.
func TestSignInsAreBounded(t *testing.T) {
	s := newStage(t, nil)
	v := visit(t, s)
	for range 30 {
		if answer, _ := v.post("/login", asAna()); answer.StatusCode != http.StatusSeeOther {
			t.Fatalf("the right token: %s", answer.Status)
		}
	}
	var last *http.Response
	var page string
	for n := range 12 {
		want := http.StatusForbidden
		if n >= 10 {
			want = http.StatusTooManyRequests
		}
		if last, page = v.post("/login", url.Values{"name": {"ana"}, "token": {"wrong"}}); last.StatusCode != want {
			t.Fatalf("wrong token %d: %s, want %d", n+1, last.Status, want)
		}
	}
	if last.Header.Get("Retry-After") == "" || !strings.Contains(page, "Too many tokens") {
		t.Errorf("Retry-After %q, page\n%s", last.Header.Get("Retry-After"), page)
	}
	probe, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no second loopback address")
	}
	must(t, probe.Close())
	other := visit(t, s)
	other.http.Transport = &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			_, port, _ := net.SplitHostPort(address)
			return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort("::1", port))
		},
	}
	if answer, _ := other.post("/login", asAna()); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("from another address: %s", answer.Status)
	}
}

// TestEventStreamsAreBounded: who has not signed in cannot keep operators from following.
func TestEventStreamsAreBounded(t *testing.T) {
	s := newStage(t, nil)
	v := visit(t, s)
	for range 64 {
		lines, stop := v.follow("/t/default/events?seen=0")
		defer stop()
		await(t, lines, "retry:")
	}
	answer, page := v.get("/t/default/events?seen=0")
	if answer.StatusCode != http.StatusTooManyRequests || answer.Header.Get("Retry-After") == "" {
		t.Errorf("one more: %s", answer.Status)
	}
	if !strings.Contains(page, "64 pages") {
		t.Errorf("it does not say why:\n%s", page)
	}
	operator := visit(t, s)
	operator.signIn()
	c := operator.cookie()
	lines, stop := operator.follow("/t/default/events?seen=0", "Cookie", c.Name+"="+c.Value)
	defer stop()
	await(t, lines, "retry:")
}

func TestReadingNeedsASignInUnlessItIsOpen(t *testing.T) {
	s := newStage(t, func(c *console.Config) { c.OpenRead = false })
	v := visit(t, s)
	for _, path := range []string{"/", "/tenants", "/t/default/", "/t/default/plans/p1", "/t/default/ledger/1"} {
		answer, _ := v.get(path)
		if to := answer.Header.Get("Location"); answer.StatusCode != http.StatusSeeOther || to != "/login?next="+
			url.QueryEscape(path) {
			t.Errorf("%s: %s to %q", path, answer.Status, to)
		}
	}
	if answer, _ := v.get("/t/default/events"); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("events: %s", answer.Status)
	}
	v.signIn()
	if answer, _ := v.get("/t/default/"); answer.StatusCode != http.StatusOK {
		t.Errorf("an operator: %s", answer.Status)
	}
}

func TestAnAddressThatOthersReachNeedsACertificate(t *testing.T) {
	dir := t.TempDir()
	config := console.Config{Listen: "0.0.0.0:0", Users: filepath.Join(dir, "users")}
	var refused *ledger.Refused
	if _, err := console.Start(config); !errors.As(err, &refused) || refused.Field != "listen" {
		t.Errorf("without a certificate: %v", err)
	}
	config.TLSCert, config.TLSKey = certificate(t, dir, "console.example")
	config.OpenRead = true
	if _, err := console.Start(config); !errors.As(err, &refused) || refused.Field != "open_read" {
		t.Errorf("open to all: %v", err)
	}
	config.OpenRead = false
	server, err := console.Start(config)
	must(t, err)
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	_, port, _ := net.SplitHostPort(strings.TrimSuffix(strings.TrimPrefix(server.URL(), "https://"), "/"))
	for name, want := range map[string]int{"console.example": http.StatusSeeOther,
		"127.0.0.1": http.StatusMisdirectedRequest} {
		r, err := http.NewRequest(http.MethodGet, "https://127.0.0.1:"+port+"/", nil)
		must(t, err)
		r.Host = name
		answer, err := client.Do(r)
		must(t, err)
		must(t, answer.Body.Close())
		if answer.StatusCode != want || answer.Header.Get("Strict-Transport-Security") == "" {
			t.Errorf("%s: %s, want %d", name, answer.Status, want)
		}
	}
	if info, err := os.Stat(config.Users); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("users that were made: %v, %v", info, err)
	}
}

func TestACookieWithACertificateBelongsToItsHostAlone(t *testing.T) {
	s := newStage(t, func(c *console.Config) {
		c.TLSCert, c.TLSKey = certificate(t, t.TempDir(), console.LocalName)
		c.OpenRead = false
	})
	v := visit(t, s)
	if want := "https://" + console.LocalName + ":"; !strings.HasPrefix(v.base, want) {
		t.Errorf("the console is at %s", v.base)
	}
	answer, _ := v.post("/login", asAna())
	cookies := answer.Cookies()
	if len(cookies) != 1 || !strings.HasPrefix(cookies[0].Name, "__Host-") || !cookies[0].Secure ||
		cookies[0].Path != "/" || cookies[0].Domain != "" {
		t.Errorf("cookies %v", cookies)
	}
	if answer, _ := v.get("/t/default/"); answer.StatusCode != http.StatusOK {
		t.Errorf("an operator: %s", answer.Status)
	}
}

func certificate(t *testing.T, dir, name string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	secret, err := x509.MarshalECPrivateKey(key)
	must(t, err)
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	must(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), 0o600))
	return certFile, keyFile
}

func TestUsersThatCannotBeToldApartOrGuessedAreRefused(t *testing.T) {
	dir := t.TempDir()
	sum := sha256.Sum256([]byte(token))
	for text, want := range map[string]string{
		"ana " + token + "\n":                             "",
		"ana sha256:" + hex.EncodeToString(sum[:]) + "\n": "",
		"":                    "users",
		"# no one\n":          "users",
		"ana\n":               "users line 1",
		"ana short\n":         "users line 1",
		"a.b " + token + "\n": "users line 1",
		"ana " + token + "\nana " + token + "2\n":                  "users line 2",
		"ana sha256:" + strings.Repeat("zz", 32) + "\n":            "users line 1",
		"ana " + token + "\nbob with-a-token-of-many words-here\n": "users line 2",
	} {
		file := filepath.Join(dir, "users")
		must(t, os.WriteFile(file, []byte(text), 0o600))
		server, err := console.Start(console.Config{Listen: "127.0.0.1:0", Users: file})
		var refused *ledger.Refused
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", text, err)
		case want == "":
			server.Close()
		case !errors.As(err, &refused) || refused.Field != want:
			t.Errorf("%q: %v, want a refusal of %s", text, err, want)
		case strings.Contains(err.Error(), token):
			t.Errorf("%q: the token is in %v", text, err)
		}
	}
	must(t, os.Chmod(filepath.Join(dir, "users"), 0o644))
	if _, err := console.Start(console.Config{Listen: "127.0.0.1:0", Users: filepath.Join(dir, "users")}); err == nil {
		t.Error("a file that others may read was taken")
	}
}

// follow opens a stream of events and returns its lines.
func (v *visitor) follow(path string, heads ...string) (lines <-chan string, stop func()) {
	v.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, v.base+path, nil)
	must(v.t, err)
	for i := 0; i+1 < len(heads); i += 2 {
		r.Header.Set(heads[i], heads[i+1])
	}
	answer, err := (&http.Client{Transport: v.http.Transport}).Do(r)
	must(v.t, err)
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		v.t.Fatalf("%s: %s", path, answer.Status)
	}
	out := make(chan string, 1000)
	go func() {
		defer close(out)
		for scan := bufio.NewScanner(answer.Body); scan.Scan(); {
			out <- scan.Text()
		}
	}()
	return out, func() { cancel(); _ = answer.Body.Close() }
}

// await reads lines until one begins so.
func await(t *testing.T, lines <-chan string, begins string) string {
	t.Helper()
	late := time.After(testenv.Patience)
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				t.Fatalf("the stream ended before %q", begins)
			}
			if strings.HasPrefix(line, begins) {
				return line
			}
		case <-late:
			t.Fatalf("no %q", begins)
		}
	}
}

func TestEventsFollowTheFoldAndGoOnWhereABrowserWas(t *testing.T) {
	s := newStage(t, nil)
	p := s.begin(s.coder, coordinator.PlanSpec{ID: "p1"})
	s.do(p, "git.branch.create b")
	v := visit(t, s)
	now := fmt.Sprint(s.settle(p))
	one, stop := v.follow("/t/default/events?plan=p1&seen=" + now)
	defer stop()
	all, stop := v.follow("/t/default/events?seen=" + now)
	defer stop()
	await(t, one, "retry:")
	await(t, all, "retry:")
	other := s.begin(s.coder, coordinator.PlanSpec{ID: "p2"})
	s.do(other, "git.branch.create c")
	if data := await(t, all, "data:"); !strings.Contains(data, `"p2"`) {
		t.Errorf("all plans: %s", data)
	}
	s.do(p, "git.commit d")
	await(t, one, "id:")
	if data := await(t, one, "data:"); !strings.Contains(data, `"p1"`) {
		t.Errorf("the first event about p1 is %s", data)
	}
	again, stop := v.follow("/t/default/events?plan=p1", "Last-Event-ID", now)
	defer stop()
	if data := await(t, again, "data:"); !strings.Contains(data, `"all":true`) {
		t.Errorf("a browser that is behind is told %s", data)
	}
	level, stop := v.follow("/t/default/events?plan=p1", "Last-Event-ID", fmt.Sprint(s.settle(p, other)))
	defer stop()
	await(t, level, "retry:")
	s.detach()
	for line := range level {
		if strings.HasPrefix(line, "data:") {
			t.Errorf("a browser that is level was told %s", line)
		}
	}
	if answer, _ := v.get("/t/default/"); answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("without a host: %s", answer.Status)
	}
}
