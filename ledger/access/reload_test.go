package access_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// TestANewTenantReachesTheHubAfterTwoReloads: nats-server 2.15.2 takes what a new account imports
// from the hub with the second reload only, also of the same file.
func TestANewTenantReachesTheHubAfterTwoReloads(t *testing.T) {
	t.Parallel()
	users := testenv.Users(t, outside()...)
	root := testenv.Users(t, access.User{Name: "root", Role: access.Host, Tenant: access.AllTenants})
	format := func(tenants ...string) []byte {
		of := func(u access.User) bool {
			return u.Tenant != access.AllTenants && !slices.Contains(tenants, u.Tenant)
		}
		text, err := access.Configuration{Tenants: tenants,
			Users: slices.DeleteFunc(users.Users(), of)}.Format(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return []byte(strings.Replace(string(text), "users: [\n",
			"users: [ { nkey: "+root.Users()[0].Key+" }\n", 1))
	}
	file := confFile(t, "include accounts.conf\n")
	accounts := filepath.Join(filepath.Dir(file), "accounts.conf")
	if err := os.WriteFile(accounts, format("t1"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := runFile(t, file)
	hub := dial(t, server.ClientURL(), root.As("root")...)
	if _, err := hub.Subscribe("saga.t2.agent.*.*", func(m *nats.Msg) { _ = m.Respond(nil) }); err != nil {
		t.Fatal(err)
	}
	if err := hub.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(accounts, format("t1", "t2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := server.Reload(); err != nil {
		t.Fatal(err)
	}
	agent := dial(t, server.ClientURL(), users.As("a9")...)
	if _, err := agent.Request("saga.t2.agent.a9.p", nil, testenv.Patience); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("after one reload: %v; if it suffices, the guides need not ask for two", err)
	}
	if err := server.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, err := agent.Request("saga.t2.agent.a9.p", nil, testenv.Patience); err != nil {
		t.Errorf("after two reloads: %v", err)
	}
}
