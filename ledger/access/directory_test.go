package access_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

func refuses(err error, field string) bool {
	var refused *ledger.Refused
	return errors.As(err, &refused) && refused.Field == field && refused.Want != ""
}

// fresh is a user with a new key.
func fresh(t *testing.T, u access.User) access.User {
	t.Helper()
	if _, err := access.NewCredentials(&u); err != nil {
		t.Fatal(err)
	}
	return u
}

// What no user can be is refused with the field and what would be right, and changes nothing.
func TestWhatNoUserCanBeIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users")
	d, err := access.OpenDirectory(file)
	if err != nil {
		t.Fatal(err)
	}
	good := access.User{Name: "a", Role: access.Agent, Tenant: "t"}
	for field, change := range map[string]func(*access.User){
		"name":            func(u *access.User) { u.Name = "a.>" },
		"role":            func(u *access.User) { u.Role = "root" },
		"tenant":          func(u *access.User) { u.Tenant = strings.Repeat("a", 10_000) },
		"key":             func(u *access.User) { u.Key = "UX" },
		"run":             func(u *access.User) { u.Role, u.Run = access.Source, true },
		"reveal":          func(u *access.User) { u.Reveal = true },
		"provision":       func(u *access.User) { u.Provision = true },
		"capabilities":    func(u *access.User) { u.Role = access.Worker },
		"capabilities[0]": func(u *access.User) { u.Capabilities = []string{"git.*"} },
		"capabilities[1]": func(u *access.User) { u.Capabilities = []string{"git.>", "handler.other.>"} },
	} {
		u := fresh(t, good)
		change(&u)
		if err := d.Add(u); !refuses(err, field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	u := fresh(t, good)
	u.Tenant = access.AllTenants
	if err := d.Add(u); !refuses(err, "tenant") {
		t.Errorf("an agent of all tenants: %v", err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a refused user has made a file")
	}
	if err := d.Add(fresh(t, good)); err != nil {
		t.Fatal(err)
	}
	if err := d.Add(fresh(t, good)); !errors.Is(err, access.ErrUserName) {
		t.Errorf("the same name again: %v", err)
	}
	if err := d.Remove("t", "b"); !errors.Is(err, access.ErrNoUser) {
		t.Errorf("one that is not there: %v", err)
	}
	if n := len(d.Users()); n != 1 {
		t.Errorf("%d users", n)
	}
}

// What a server is asked is refused where it would be of no use, or gives what only the machine
// of the server has.
func TestAServerAddsUsersOfItsTenantsOnly(t *testing.T) {
	d, err := access.OpenDirectory(filepath.Join(t.TempDir(), "users"))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(verb string, u access.User) access.Answer {
		body, err := json.Marshal(access.Request{User: u})
		if err != nil {
			t.Fatal(err)
		}
		return d.Serve(verb, body, []string{"t"})
	}
	for field, u := range map[string]access.User{
		"tenant":  {Name: "a", Role: access.Agent, Tenant: "other"},
		"expires": {Name: "a", Role: access.Agent, Tenant: "t", Expires: time.Now().Add(-time.Hour)},
		"role":    {Name: "a", Role: access.Host, Tenant: access.AllTenants},
	} {
		if a := ask(api.UserAdd, fresh(t, u)); a.Field != field || a.Want == "" {
			t.Errorf("%s: %+v", field, a)
		}
	}
	local := access.User{Name: access.LocalUser, Role: access.Local, Tenant: access.AllTenants}
	for _, verb := range []string{api.UserAdd, api.UserRm} {
		if a := ask(verb, fresh(t, local)); a.Error == "" {
			t.Errorf("%s of the local user: %+v", verb, a)
		}
	}
	if a := ask("user.nonsense", local); a.Error == "" {
		t.Errorf("%+v", a)
	}
	if a := d.Serve(api.UserAdd, []byte("{"), nil); a.Field != "request" {
		t.Errorf("%+v", a)
	}
	if a := ask(api.UserAdd, fresh(t, access.User{Name: "a", Role: access.Agent, Tenant: "t"})); a.Error != "" ||
		len(d.Users()) != 1 {
		t.Errorf("%+v", a)
	}
}

// A file that others may write, or that is damaged, is refused; the users stay what they were.
func TestAFileOfUsersThatOthersMayWriteIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users")
	d, err := access.OpenDirectory(file)
	if err == nil {
		err = d.Add(fresh(t, access.User{Name: "a", Role: access.Agent, Tenant: "t"}))
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "SU") && strings.Contains(string(text), "seed") {
		t.Error("the file has a seed")
	}
	for what, damage := range map[string]func() error{
		"others may write it": func() error { return os.Chmod(file, 0o666) },
		"it is cut":           func() error { return os.WriteFile(file, text[:len(text)/2], 0o600) },
		"one user twice": func() error {
			twice := fmt.Sprintf(`{"users":[%[1]s,%[1]s]}`, userIn(t, text))
			return os.WriteFile(file, []byte(twice), 0o600)
		},
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		later := time.Now().Add(time.Second)
		if err := os.Chtimes(file, later, later); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Refresh(); err == nil {
			t.Errorf("%s: taken", what)
		}
		if n := len(d.Users()); n != 1 {
			t.Errorf("%s: %d users", what, n)
		}
		if err := errors.Join(os.WriteFile(file, text, 0o600), os.Chmod(file, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

func userIn(t *testing.T, text []byte) string {
	t.Helper()
	var file struct {
		Users []json.RawMessage `json:"users"`
	}
	if err := json.Unmarshal(text, &file); err != nil || len(file.Users) != 1 {
		t.Fatal(err)
	}
	return string(file.Users[0])
}

// Credentials are read as they were written, also by what reads the files of NATS tools.
func TestCredentialsAreReadAsTheyWereWritten(t *testing.T) {
	u := access.User{Name: "a", Role: access.Agent, Tenant: "t"}
	c, err := access.NewCredentials(&u)
	if err != nil {
		t.Fatal(err)
	}
	c.Servers, c.CA = "nats://127.0.0.1:4222", "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"
	for _, jwt := range []string{"", "eyJ0.eyJ1.sig"} {
		c.JWT = jwt
		text, err := c.Format()
		if err != nil {
			t.Fatal(err)
		}
		got, err := access.ParseCredentials(text)
		if err != nil || got.JWT != jwt || got.Servers != c.Servers || got.CA != c.CA || got.Inbox != "_INBOX.a" ||
			!slices.Equal(got.Seed, c.Seed) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	for _, text := range []string{"", "# sagenbaum !\n", "-----BEGIN NATS USER JWT-----\n"} {
		if _, err := access.ParseCredentials([]byte(text)); !refuses(err, "creds") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestADirectorySaysWhenItChanges: by a request, by another hand in its file, and at no other time.
func TestADirectorySaysWhenItChanges(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users")
	d, err := access.OpenDirectory(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := func(what string, want bool, change func() error) {
		t.Helper()
		changed := d.Changed()
		if err := change(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-changed:
			if !want {
				t.Errorf("%s: it says that it has changed", what)
			}
		default:
			if want {
				t.Errorf("%s: it does not say that it has changed", what)
			}
		}
	}
	refresh := func() error { _, err := d.Refresh(); return err }
	u := access.User{Name: "a", Role: access.Agent, Tenant: "t"}
	if _, err := access.NewCredentials(&u); err != nil {
		t.Fatal(err)
	}
	changed("no file", false, refresh)
	changed("a user more", true, func() error { return d.Add(u) })
	changed("the same file", false, refresh)
	changed("no file any more", true, func() error { return errors.Join(os.Remove(file), refresh()) })
}
