package access_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// TestATokenIsOfWhoAsksDoors: the other roles are not known by one, whatever they may publish.
func TestATokenIsOfWhoAsksDoors(t *testing.T) {
	users := []access.User{
		{Name: "agent", Role: access.Agent, Tenant: "t1"},
		{Name: "source", Role: access.Source, Tenant: "t1"},
		{Name: "supervisor", Role: access.Supervisor, Tenant: "t1"},
		{Name: "local", Role: access.Local, Tenant: access.AllTenants},
		{Name: "auditor", Role: access.Auditor, Tenant: "t1"},
		{Name: "host", Role: access.Host, Tenant: access.AllTenants},
		{Name: "callout", Role: access.Callout, Tenant: access.AllTenants},
	}
	crew := testenv.Users(t, users...)
	for i, u := range users {
		creds, err := access.ReadCredentials(crew.File(u.Name))
		if err != nil {
			t.Fatal(err)
		}
		token, err := creds.Sign(time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = crew.Authenticate(token, time.Now())
		if known := i < 4; known != (err == nil) || !known && !errors.Is(err, access.ErrToken) {
			t.Errorf("%s: %v", u.Role, err)
		}
	}
}

// TestATokenThatIsOverSaysWhy, with the next step, to whoever shows what the user has signed. Who
// guesses is told nothing: what has another signature, an old key, or a user who was removed.
func TestATokenThatIsOverSaysWhy(t *testing.T) {
	now := time.Now()
	crew := testenv.Users(t, access.User{Name: "a", Role: access.Agent, Tenant: "t1"},
		access.User{Name: "late", Role: access.Agent, Tenant: "t1", Expires: now.Add(time.Hour)},
		access.User{Name: "rotated", Role: access.Agent, Tenant: "t1"},
		access.User{Name: "gone", Role: access.Agent, Tenant: "t1"})
	token := func(name string, expires time.Time) string {
		creds, err := access.ReadCredentials(crew.File(name))
		if err != nil {
			t.Fatal(err)
		}
		text, err := creds.Sign(expires)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	ends, leaked, late := token("a", now.Add(time.Hour)), token("a", time.Time{}), token("late", time.Time{})
	rotated, gone := token("rotated", time.Time{}), token("gone", now.Add(time.Hour))
	creds, err := access.ReadCredentials(crew.File("a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := crew.Revoke("t1", "a", creds.TokenID(leaked), true, now); err != nil {
		t.Fatal(err)
	}
	fresh := access.User{Name: "rotated", Role: access.Agent, Tenant: "t1"}
	if _, err := access.NewCredentials(&fresh); err != nil {
		t.Fatal(err)
	}
	if _, err := crew.Rotate("t1", "rotated", fresh.Key, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := crew.Remove("t1", "gone"); err != nil {
		t.Fatal(err)
	}
	claims, _, _ := strings.Cut(ends, ".")
	_, other, _ := strings.Cut(leaked, ".")
	for text, want := range map[string][2]string{
		ends: {"has ended at", "user token"}, leaked: {"was revoked at", "user token"},
		late:                 {"user t1.late has expired at", "user rotate late --tenant t1"},
		claims + "." + other: {}, rotated: {}, gone: {},
	} {
		_, err := crew.Authenticate(text, now.Add(2*time.Hour))
		var over *access.TokenOver
		if told := errors.As(err, &over); !errors.Is(err, access.ErrToken) || told != (want[0] != "") ||
			told && (!strings.Contains(over.Why, want[0]) || !strings.Contains(over.Want, want[1])) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
