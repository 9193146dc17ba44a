package access

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
)

const token = "a-token-of-the-tests-that-is-long-enough"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func user(t *testing.T, name string, role Role, expires time.Time, tenants ...string) User {
	t.Helper()
	u, err := NewUser(name, token, Grant{role, tenants}, expires)
	must(t, err)
	return u
}

func TestALineOfAUserIsReadAsItIsWritten(t *testing.T) {
	end := time.Date(2031, 2, 3, 4, 5, 6, 7, time.FixedZone("", 3600))
	for _, u := range []User{
		user(t, "ana", Admin, time.Time{}, Everywhere), user(t, "bo-2", Reader, end, "default", "second"),
		user(t, "c_D", Operator, end, "x"),
	} {
		list, err := ParseUsers([]byte("# a word\n\n  " + u.String() + "  \n"))
		if err != nil || len(list) != 1 || !list[0].equal(u) || list[0].OldForm() {
			t.Errorf("%s: %v, %v", u, list, err)
		}
		if strings.Contains(u.String(), token) {
			t.Errorf("the token is in %s", u)
		}
	}
}

func TestLinesThatSayNoUserAreRefused(t *testing.T) {
	good := user(t, "ana", Admin, time.Time{}, Everywhere).String()
	swap := func(from, to string) string { return strings.Replace(good, from, to, 1) }
	for text, want := range map[string]string{
		swap("ana", "a.b"):                                "users line 1",
		good + "\n" + good:                                "users line 2",
		good + "\nana " + token:                           "users line 2",
		swap("role=admin", "role=root"):                   "role",
		swap("role=admin", "role="):                       "role",
		swap("tenants=*", "tenants="):                     "tenants",
		swap("tenants=*", "tenants=*,default"):            "tenants",
		swap("tenants=*", "tenants=default,default"):      "tenants",
		swap("tenants=*", "tenants=a.b"):                  "tenants",
		swap("tenants=* ", ""):                            "tenants",
		swap("tenants=*", "tenants=* tenants=x"):          "tenants",
		swap("tenants=*", "tenants=* expires=soon"):       "expires",
		swap("tenants=*", "tenants=* expires=2031-02-30"): "expires",
		swap("tenants=*", "tenants=* shell=sh"):           "line",
		swap("token=", "token=x"):                         "token",
		swap("argon2id", "argon2i"):                       "token",
		swap("v=19", "v=16"):                              "token",
		swap("m=19456", "m=99999999"):                     "token",
		swap("m=19456", "m=0"):                            "token",
		swap("t=2", "t=99"):                               "token",
		swap("p=1", "p=1x"):                               "token",
		swap("p=1", "p=0"):                                "token",
		good[:len(good)-25]:                               "token", // a hash that is too short
		good + "=":                                        "token",
		"ana role=admin tenants=*":                        "token",
		"ana role=admin":                                  "tenants",
		"ana one two":                                     "line",
	} {
		_, err := ParseUsers([]byte(text))
		var refused *ledger.Refused
		if !errors.As(err, &refused) || refused.Field != want && !strings.HasPrefix(refused.Problem, want+":") {
			t.Errorf("%q: %v, want a refusal of %s", text, err, want)
		} else if strings.Contains(err.Error(), "argon2id$v=19$m=19456,t=2,p=1$") &&
			strings.Contains(err.Error(), good[len(good)-20:]) {
			t.Errorf("%q: the hash is in %v", text, err)
		}
	}
}

func FuzzUsers(f *testing.F) {
	f.Add("ana role=admin tenants=* token=$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$" +
		strings.Repeat("A", 43))
	f.Add("ana " + token)
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseUsers([]byte(text))
		if err != nil {
			return
		}
		for _, u := range list {
			if u.OldForm() {
				continue
			}
			again, err := ParseUsers([]byte(u.String()))
			if err != nil || len(again) != 1 || !again[0].equal(u) {
				t.Errorf("%q is read as %v, %v", u, again, err)
			}
		}
	})
}

// open makes an Access over these users.
func open(t *testing.T, users ...User) (a *Access, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "users")
	text := ""
	for _, u := range users {
		text += u.String() + "\n"
	}
	must(t, os.WriteFile(file, []byte(text), 0o600))
	a, err := Open(Config{Users: file, First: "ana", Port: "1", Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	return a, file
}

func form(name, token string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader(
		url.Values{"name": {name}, "token": {token}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

func TestASessionEndsWithItsUser(t *testing.T) {
	now := time.Now()
	a, _ := open(t, user(t, "ana", Admin, now.Add(time.Hour), Everywhere), user(t, "bo", Reader, now.Add(-1), "x"))
	w := httptest.NewRecorder()
	s, err := a.SignIn(w, form("ana", token), now)
	must(t, err)
	if s.Ends.After(now.Add(time.Hour)) {
		t.Errorf("the session ends at %v, its user at %v", s.Ends, now.Add(time.Hour))
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.AddCookie(w.Result().Cookies()[0])
	if a.Who(r, now) != s || a.Who(r, s.Ends) != nil || a.Who(r, now) != nil {
		t.Error("a session does not end with its time, or came back")
	}
	for name, shown := range map[string]string{"bo": token, "ana": token + "x", "none": token, "": token} {
		if _, err := a.SignIn(httptest.NewRecorder(), form(name, shown), now); !errors.Is(err, ErrWrong) {
			t.Errorf("%q with %q: %v", name, shown, err)
		}
	}
}

func TestSessionsAreBounded(t *testing.T) {
	a, _ := open(t, user(t, "ana", Admin, time.Time{}, Everywhere))
	now := time.Now()
	first := &Session{Name: "ana"}
	a.begin(httptest.NewRecorder(), first, now)
	for i := range sessionsMax {
		a.begin(httptest.NewRecorder(), &Session{Name: "ana"}, now.Add(time.Duration(i+1)))
	}
	select {
	case <-first.Gone():
	default:
		t.Error("the oldest session goes on")
	}
	if len(a.all) != sessionsMax {
		t.Errorf("%d sessions", len(a.all))
	}
}

// TestANameThatNoUserHasTakesAsLong as one that a user has: a hash is computed for it. What that
// takes depends on what else the machine does, and no hash takes a thousandth of it.
func TestANameThatNoUserHasTakesAsLong(t *testing.T) {
	a, _ := open(t, user(t, "ana", Admin, time.Time{}, Everywhere))
	took := func(name string) (least time.Duration) {
		for range 5 {
			began := time.Now()
			a.find(name, "wrong", began)
			if d := time.Since(began); least == 0 || d < least {
				least = d
			}
		}
		return least
	}
	if with, without := took("ana"), took("none"); without < with/100 {
		t.Errorf("a user takes %v, none %v", with, without)
	}
}

func TestAFileOfUsersIsChangedAtOnce(t *testing.T) {
	_, file := open(t, user(t, "ana", Admin, time.Time{}, Everywhere))
	bo := user(t, "bo", Reader, time.Time{}, "x").String()
	must(t, WriteUsers(file, func(lines []string) ([]string, error) { return append(lines, "# b", bo), nil }))
	before, err := os.ReadFile(file)
	must(t, err)
	if list, err := ReadUsers(file); err != nil || len(list) != 2 || !strings.Contains(string(before), "# b\n") {
		t.Errorf("%s, %v", before, err)
	}
	for _, change := range []func([]string) ([]string, error){
		func(lines []string) ([]string, error) { return append(lines, bo), nil },
		func([]string) ([]string, error) { return nil, nil },
		func(lines []string) ([]string, error) { return lines, fmt.Errorf("no") },
	} {
		if err := WriteUsers(file, change); err == nil {
			t.Error("a change that cannot be read was made")
		}
	}
	if after, _ := os.ReadFile(file); string(after) != string(before) {
		t.Errorf("the file is %s", after)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := os.Stat(file + ".next"); err == nil {
		t.Error("something is left beside it")
	}
}

func TestGrants(t *testing.T) {
	g := Grants{{Reader, []string{Everywhere}}, {Operator, []string{"a", "b"}}, {Admin, []string{"b"}}}
	for tenant, want := range map[string]Role{"a": Operator, "b": Admin, "c": Reader, Everywhere: Reader} {
		if got := g.On(tenant); got != want {
			t.Errorf("%s: %s, want %s", tenant, got, want)
		}
	}
	for _, c := range []struct {
		mine, of Grants
		want     bool
	}{
		{Grants{{Admin, []string{Everywhere}}}, g, true},
		{Grants{{Admin, []string{"a", "b"}}}, Grants{{Admin, []string{"a"}}}, true},
		{Grants{{Admin, []string{"a", "b"}}}, Grants{{Reader, []string{"a", "c"}}}, false},
		{Grants{{Admin, []string{"a", "b"}}}, Grants{{Reader, []string{Everywhere}}}, false},
		{Grants{{Operator, []string{Everywhere}}}, Grants{{Reader, []string{"a"}}}, false},
		{nil, nil, false},
	} {
		if got := c.mine.Above(c.of); got != c.want {
			t.Errorf("%s above %s: %v", c.mine, c.of, got)
		}
	}
}
