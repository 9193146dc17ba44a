package serve

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/console/access"
)

const goodProvider = `
issuer: https://id.example.com
client_id: sagenbaum
client_secret_file: oidc.secret
scopes: [profile, groups]
name: email
name_suffix: "@example.com"
session: 8h
session_ends_with_token: true
roles:
  - {claim: groups, value: saga-admins, role: admin, tenants: ["*"]}
  - {claim: realm_access.roles, value: travel, role: operator, tenants: [travel, shops]}
`

func TestTheFileOfAProviderIsRead(t *testing.T) {
	dir := t.TempDir()
	keep := func(name, text string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	keep("oidc.secret", " hush \n", 0o600)
	got, err := readProvider(keep("good.yaml", goodProvider, 0o644))
	if err != nil {
		t.Fatal(err)
	}
	want := &access.Provider{
		Issuer: "https://id.example.com", ClientID: "sagenbaum", ClientSecret: "hush",
		Scopes: []string{"profile", "groups"}, NameClaim: "email", NameSuffix: "@example.com",
		SessionTime: 8 * time.Hour, TokenTime: true, Rules: []access.Rule{
			{Claim: "groups", Value: "saga-admins", Grant: access.Grant{Role: access.Admin, Tenants: []string{"*"}}},
			{Claim: "realm_access.roles", Value: "travel",
				Grant: access.Grant{Role: access.Operator, Tenants: []string{"travel", "shops"}}},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	keep("open.secret", "hush", 0o644)
	keep("empty.secret", "\n", 0o600)
	for _, c := range []struct{ from, to, say string }{
		{"https://id", "http://id", "issuer"},
		{"https://id.example.com", "https://id.example.com/?x", "issuer"},
		{"client_id: sagenbaum", "", "client_id"},
		{"oidc.secret", "open.secret", "others may read"},
		{"oidc.secret", "empty.secret", "no secret"},
		{"oidc.secret", "missing.secret", "missing.secret"},
		{"session: 8h", "session: 13h", "session"},
		{"session: 8h", "sessions: 8h", "sessions"},
		{"role: admin", "role: root", "role"},
		{`["*"]`, "[]", "tenants"},
		{`["*"]`, `["*", travel]`, "tenants"},
		{"claim: groups, ", "", "no claim"},
		{"session: 8h", "session: 8h\nca_file: oidc.secret", "no certificate"},
		{goodProvider[strings.Index(goodProvider, "roles:"):], "", "roles"},
	} {
		path := keep("bad.yaml", strings.Replace(goodProvider, c.from, c.to, 1), 0o644)
		if _, err := readProvider(path); err == nil || !strings.Contains(err.Error(), c.say) ||
			strings.Contains(err.Error(), "hush") {
			t.Errorf("%q instead of %q: %v, want %q", c.to, c.from, err, c.say)
		}
	}
	if p, err := readProvider(""); p != nil || err != nil {
		t.Errorf("without a file: %v, %v", p, err)
	}
}
