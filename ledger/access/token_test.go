package access_test

import (
	"errors"
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
