package access_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// When a key was last used is known to the minute and written once a minute at most, nothing is
// written of idle ones, and another key of the same user has not been used.
func TestWhenAKeyWasLastUsedIsKeptAtMostOnceAMinute(t *testing.T) {
	crew := testenv.Users(t, access.User{Name: "a", Role: access.Agent, Tenant: "t"},
		access.User{Name: "idle", Role: access.Agent, Tenant: "t"})
	u, err := crew.Find("t", "a")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(filepath.Dir(crew.File("a")), "users")
	kept := func() map[string]time.Time {
		t.Helper()
		d, err := access.OpenDirectory(file)
		if err != nil {
			t.Fatal(err)
		}
		return d.LastUses()
	}
	save := func(now time.Time) {
		t.Helper()
		if err := crew.SaveUses(now); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	save(start)
	if _, err := os.Stat(file + ".used"); err == nil {
		t.Error("a file is written though no one has used a key")
	}
	crew.NoteUse("U-unknown", start)
	crew.NoteUse(u.Key, start)
	save(start)
	if got := kept(); len(got) != 1 || !got["t.a"].Equal(start) {
		t.Errorf("%v", got)
	}
	crew.NoteUse(u.Key, start.Add(59*time.Second)) // within the minute
	crew.NoteUse(u.Key, start.Add(-time.Hour))
	if got := crew.LastUses(); !got["t.a"].Equal(start) {
		t.Errorf("%v", got)
	}
	later := start.Add(time.Minute)
	crew.NoteUse(u.Key, later)
	save(later.Add(-time.Second))
	if got := kept(); !got["t.a"].Equal(start) {
		t.Errorf("written twice within a minute: %v", got)
	}
	save(later)
	if got := kept(); !got["t.a"].Equal(later) {
		t.Errorf("%v", got)
	}
	fresh := access.User{Name: "a", Role: access.Agent, Tenant: "t"}
	if _, err := access.NewCredentials(&fresh); err != nil {
		t.Fatal(err)
	}
	if _, err := crew.Rotate("t", "a", fresh.Key, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if got := crew.LastUses(); len(got) != 0 {
		t.Errorf("a new key was used: %v", got)
	}
	if err := os.WriteFile(file+".used", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := kept(); len(got) != 0 { // and nothing stops
		t.Errorf("%v", got)
	}
}

// A good token is a use of its user's key, and one that is refused is none.
func TestATokenIsAUseOfItsUser(t *testing.T) {
	crew := testenv.Users(t, access.User{Name: "a", Role: access.Agent, Tenant: "t"})
	creds, err := access.ReadCredentials(crew.File("a"))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Truncate(time.Second)
	over, err := creds.Sign(now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := crew.Authenticate(over, now); err == nil || len(crew.LastUses()) != 0 {
		t.Errorf("%v: %v", err, crew.LastUses())
	}
	if _, err := crew.Authenticate(creds.Token, now); err != nil || !crew.LastUses()["t.a"].Equal(now) {
		t.Errorf("%v: %v", err, crew.LastUses())
	}
}
