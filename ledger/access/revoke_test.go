package access_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// One of a user's tokens is revoked by its id and the others are good; so it stays after a restart,
// under another text of the same token, and until the user has another key.
func TestATokenIsRevokedAndNoOther(t *testing.T) {
	crew := testenv.Users(t, access.User{Name: "a", Role: access.Agent, Tenant: "t"},
		access.User{Name: "b", Role: access.Agent, Tenant: "t"})
	creds, err := access.ReadCredentials(crew.File("a"))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Truncate(time.Second)
	end := now.Add(time.Hour)
	leaked, err := creds.Sign(end)
	if err != nil {
		t.Fatal(err)
	}
	id := creds.TokenID(leaked)
	revoke := func(name, id string, unseen bool) error {
		_, err := crew.Revoke("t", name, id, unseen, now)
		return err
	}
	var refused *ledger.Refused
	if err := revoke("a", id, false); !errors.As(err, &refused) || refused.Field != "token" {
		t.Errorf("a token that no one has shown: %v", err)
	}
	for _, token := range []string{leaked, creds.Token} {
		if _, err := crew.Authenticate(token, now); err != nil {
			t.Fatal(err)
		}
	}
	all, err := crew.Tokens("t", "a")
	if err != nil || len(all) != 2 {
		t.Fatalf("%v %v", all, err)
	}
	if err := revoke("b", id, false); !errors.As(err, &refused) {
		t.Errorf("the token of another user: %v", err)
	}
	for range 2 { // once more changes nothing
		if err := revoke("a", id, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := crew.SaveUses(time.Time{}); err != nil {
		t.Fatal(err)
	}
	again, err := access.OpenDirectory(filepath.Join(filepath.Dir(crew.File("a")), "users"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []*access.Directory{crew.Directory, again} {
		wantRevoked(t, d, creds, leaked, now, end)
	}
	fresh := access.User{Name: "a", Role: access.Agent, Tenant: "t"}
	if _, err := access.NewCredentials(&fresh); err != nil {
		t.Fatal(err)
	}
	if u, err := crew.Rotate("t", "a", fresh.Key, time.Time{}); err != nil || len(u.Revoked) != 0 {
		t.Errorf("%+v %v", u, err)
	}
}

// wantRevoked holds that of two tokens of the user a the one that ends is revoked.
func wantRevoked(t *testing.T, d *access.Directory, creds access.Credentials, leaked string, now, end time.Time) {
	t.Helper()
	// The last character of a signature has bits that mean nothing.
	for _, text := range []string{leaked, leaked + "\n", leaked[:len(leaked)-1] + "B"} {
		if _, err := d.Authenticate(text, now); !errors.Is(err, access.ErrToken) {
			t.Errorf("a revoked token: %v", err)
		}
	}
	if _, err := d.Authenticate(creds.Token, now); err != nil {
		t.Errorf("another token of the user: %v", err)
	}
	all, err := d.Tokens("t", "a")
	if err != nil || len(all) != 2 {
		t.Fatalf("%v %v", all, err)
	}
	id := creds.TokenID(leaked)
	for _, token := range all {
		if token.ID == id && (!token.Revoked.Equal(now) || !token.Expires.Equal(end) || token.Made.IsZero()) ||
			token.ID != id && !token.Revoked.IsZero() || !token.Used.Equal(now) {
			t.Errorf("%+v", token)
		}
	}
}

// What is no id of a token is refused, also unseen, and so is a user who is not there.
func TestWhatIsNoTokenIsNotRevoked(t *testing.T) {
	crew := testenv.Users(t, access.User{Name: "a", Role: access.Agent, Tenant: "t"})
	const id = "4zq7k2mdx5rwtb3e"
	for _, bad := range []string{"", "x", strings.ToUpper(id), id + "a", "1111111111111111", "../" + id[3:],
		strings.Repeat("a", 10_000)} {
		var refused *ledger.Refused
		if _, err := crew.Revoke("t", "a", bad, true, time.Now()); !errors.As(err, &refused) ||
			refused.Field != "token" || len(refused.Error()) > 300 {
			t.Errorf("%.40q: %v", bad, err)
		}
	}
	if _, err := crew.Revoke("t", "nowhere", id, true, time.Now()); !errors.Is(err, access.ErrNoUser) {
		t.Error(err)
	}
	if u, err := crew.Find("t", "a"); err != nil || len(u.Revoked) != 0 {
		t.Errorf("%+v %v", u, err)
	}
}

// An owner of a key can sign any number of tokens: what is kept of them is bounded, and so is what
// is revoked, of which those whose time is long over count no more.
func TestWhatIsKeptOfTokensIsBounded(t *testing.T) {
	crew := testenv.Users(t, access.User{Name: "a", Role: access.Agent, Tenant: "t"})
	creds, err := access.ReadCredentials(crew.File("a"))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for i := range 40 {
		token, err := creds.Sign(now.Add(time.Hour))
		if err == nil {
			_, err = crew.Authenticate(token, now.Add(time.Duration(i)*time.Second))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	all, err := crew.Tokens("t", "a")
	if err != nil || len(all) != 32 || all[31].Used.Before(now.Add(7*time.Second)) {
		t.Fatalf("%d, %v", len(all), err)
	}
	if _, err := crew.Revoke("t", "a", all[0].ID, false, now); err != nil {
		t.Fatal(err)
	}
	id := func(i int) string {
		return strings.NewReplacer("0", "a", "1", "b", "8", "c", "9", "d").Replace(fmt.Sprintf("%016d", i))
	}
	for i := range 99 {
		if _, err := crew.Revoke("t", "a", id(i), true, now); err != nil {
			t.Fatal(i, err)
		}
	}
	var refused *ledger.Refused
	if _, err := crew.Revoke("t", "a", id(1000), true, now); !errors.As(err, &refused) ||
		!strings.Contains(refused.Want, "user rotate") {
		t.Errorf("%v", err)
	}
	if _, err := crew.Revoke("t", "a", id(1000), true, now.Add(72*time.Hour)); err != nil {
		t.Errorf("one of them is over: %v", err)
	}
}

// A directory of servers that run elsewhere has no tokens, and says so.
func TestTokensAreOfEmbeddedServers(t *testing.T) {
	crew := testenv.Users(t, access.User{Name: "a", Role: access.Agent, Tenant: "t"})
	body := []byte(`{"tenant":"t","name":"a","token":"4zq7k2mdx5rwtb3e","unseen":true}`)
	for _, verb := range []string{api.UserTokens, api.UserRevoke} {
		if a := crew.Serve(verb, body, nil); a.Field != "users" || a.Want == "" {
			t.Errorf("%s: %+v", verb, a)
		}
		if a := crew.Serve(verb, body, []string{"t"}); a.Error != "" {
			t.Errorf("%s: %+v", verb, a)
		}
	}
}
