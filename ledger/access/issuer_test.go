package access_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/sagenbaum/sagenbaum/connect"
	"github.com/sagenbaum/sagenbaum/ledger/access"
)

// TestAServerInOperatorModeHoldsTheMatrix: user export for JWTs, with users that the signing
// keys of their roles have made.
func TestAServerInOperatorModeHoldsTheMatrix(t *testing.T) {
	creds, issued := map[string]access.Credentials{}, outside()
	for i := range issued {
		c, err := access.NewCredentials(&issued[i])
		if err != nil {
			t.Fatal(err)
		}
		creds[issued[i].Name] = c
	}
	dir := t.TempDir()
	operator := access.OpenIssuer(dir)
	if err := operator.Write([]string{"t1", "t2"}, issued, access.Limits{}); err != nil {
		t.Fatal(err)
	}
	for _, u := range issued {
		c := creds[u.Name]
		var err error
		if c.JWT, err = operator.Issue(u); err != nil {
			t.Fatal(err)
		}
		creds[u.Name] = c
	}
	creds["root"] = everything(t, filepath.Join(dir, "keys", "SAGENBAUM.nk"))
	text, err := os.ReadFile(filepath.Join(dir, "resolver.conf"))
	if err != nil {
		t.Fatal(err)
	}
	server := runConf(t, string(text))
	connected := func(t *testing.T, name string, options ...nats.Option) *nats.Conn {
		t.Helper()
		own, err := connect.Options(creds[name], "")
		if err != nil {
			t.Fatal(err)
		}
		return dial(t, server.ClientURL(), append(own, options...)...)
	}
	hold(t, site{
		users: outside(),
		hub:   func(t *testing.T) *nats.Conn { return connected(t, "root") },
		connect: func(t *testing.T, u access.User, options ...nats.Option) *nats.Conn {
			return connected(t, u.Name, options...)
		},
	})
}

// everything is a user of an account who may do everything there: the eyes of a test.
func everything(t *testing.T, accountKey string) access.Credentials {
	t.Helper()
	seed, err := os.ReadFile(accountKey)
	if err != nil {
		t.Fatal(err)
	}
	account, err := nkeys.FromSeed(bytes.TrimSpace(seed))
	if err != nil {
		t.Fatal(err)
	}
	u := access.User{Name: "root", Role: access.Host, Tenant: access.AllTenants}
	c, err := access.NewCredentials(&u)
	if err != nil {
		t.Fatal(err)
	}
	if c.JWT, err = jwt.NewUserClaims(u.Key).Encode(account); err != nil {
		t.Fatal(err)
	}
	c.Inbox = ""
	return c
}
