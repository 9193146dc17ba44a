package access_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/access/callout"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// TestAServerWithACalloutHoldsTheMatrix: clients of tenants come with a token, hosts and
// operators of all tenants with a key.
func TestAServerWithACalloutHoldsTheMatrix(t *testing.T) {
	issuer, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	seed, _ := issuer.Seed()
	key, _ := issuer.PublicKey()
	var rules []callout.Rule
	var keyed []access.User
	all := castWithout(access.Local, access.Door)
	for _, u := range all {
		switch {
		case u.Tenant == access.AllTenants || u.Reveal:
			keyed = append(keyed, u)
		default:
			rules = append(rules, callout.Rule{Claim: "groups", Value: "of-" + u.Name, Tenant: u.Tenant, Role: u.Role,
				NameClaim: "name", Capabilities: u.Capabilities, Run: u.Run})
		}
	}
	users := testenv.Users(t, keyed...)
	root := testenv.Users(t, access.User{Name: "root", Role: access.Host, Tenant: access.AllTenants})
	rootKey := root.Users()[0].Key
	text, err := access.Configuration{Tenants: []string{"t1", "t2"}, Users: users.Users(), Issuer: key}.Format(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	conf := strings.Replace(string(text), "users: [\n", "users: [ { nkey: "+rootKey+" }\n", 1)
	server := runConf(t, strings.Replace(conf, "auth_users: [", "auth_users: [ "+rootKey+", ", 1))
	c, err := callout.New(callout.Config{Rules: rules, Key: seed,
		Verify: func(_ context.Context, token string) (map[string]any, error) {
			name, ok := strings.CutPrefix(token, "token-of-")
			if !ok {
				return nil, fmt.Errorf("unknown")
			}
			return map[string]any{"name": name, "groups": []any{"all", "of-" + name}}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	answering := dial(t, server.ClientURL(), users.As("c1")...)
	if _, err := c.Serve(answering); err != nil {
		t.Fatal(err)
	}
	if err := answering.Flush(); err != nil {
		t.Fatal(err)
	}
	hold(t, site{
		users: all,
		hub:   func(t *testing.T) *nats.Conn { return dial(t, server.ClientURL(), root.As("root")...) },
		connect: func(t *testing.T, u access.User, options ...nats.Option) *nats.Conn {
			if _, err := users.Find(u.Tenant, u.Name); err == nil {
				return dial(t, server.ClientURL(), append(users.As(u.Name), options...)...)
			}
			return dial(t, server.ClientURL(), append(options, nats.Token("token-of-"+u.Name),
				nats.CustomInboxPrefix("_INBOX."+u.Name))...)
		},
	})
	for _, token := range []string{"", "nonsense", "token-of-stranger"} {
		if conn, err := nats.Connect(server.ClientURL(), nats.Token(token)); err == nil {
			conn.Close()
			t.Errorf("connected with the token %q", token)
		}
	}
}
