package embedded_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
)

func readConf(t *testing.T, files map[string]string) (embedded.Conf, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return embedded.ReadConf(filepath.Join(dir, "nats.conf"))
}

// spelled are files with all that is read, written in ways that a server takes.
func spelled(key string) map[string]string {
	return map[string]string{
		"nats.conf": `port: 4222
tls { cert_file: "/nowhere/server.pem", key_file: "/nowhere/server.key" }
jetstream { store_dir: "/nowhere" }
no_auth_user: bare
websocket { port: 1, no_auth_user: web }
mqtt { No_Auth_User: bare }
LeafNodes { remotes: [ { url: "nats://far", account: C, credentials: "/nowhere" } ]
  authorization { account: B, users: [ { user: x, password: y, account: B } ] } }
authorization { timeout: 90 }
include accounts.conf`,
		"accounts.conf": `WORD: hush
system_account: SYS
Accounts {
  HASH: $2a$11$abcdefghijklmnopqrstuv
  READS: { publish: "r.out", subscribe: "r.in" }
  A {
    JetStream: enabled
    PORT: "p.x"
    default_permissions: { publish: $PORT, subscribe: "p.y" }
    exports: [ { service: "q.>" }, { stream: "s.>" } ]
    users: [
      { nkey: ` + key + `,
        permission: { pub: "a.>", sub: { allow: ["b.*", "c workers"], deny: "d" } } }
      { user: ann, pass: $WORD, permissions: { publish: { deny: "x" }, allow_responses: true } }
      { user: eve, password: $HASH, permissions: $READS }
      { user: self, password: $user, permissions: $default_permissions }
      { user: less, password: p, permissions: { publish: { allow: ["q.a", "r"], deny: ["q.>"] },
        subscribe: { allow: ["q.a", "q.b"], deny: ["q.a", "q.b others"] } } }
      { user: bare, password: "" , permissions: { publish: { allow: [] } } }
      { user: mute, password: p, permissions: { publish: { deny: ">" }, subscribe: { deny: ">" } } }
      { user: echo, password: p, permissions: { subscribe: "e", allow_responses: { max: 1 } } }
    ]
  }
  B { jetstream: disabled
    default_permissions: { publish: "b.out", subscribe: "b.in" }
    users: [ { user: bob, password: p } ]
    Maps { "b.m": "q.b" }
    imports: [ { Service: { account: A, subject: "q.b" }, to: "other" }, { stream: { account: A, subject: "s.*" } }
      { stream: { account: A, subject: "s.x" }, prefix: "here" } ] }
  C { jetstream { max_mem: 1M } }
  SYS { users: [ { user: sys, password: changeme } ] }
}`}
}

// TestAConfigurationIsReadAsTheServerReadsIt: with what it includes, its variables, other spellings
// and defaults, and without the files that it names.
func TestAConfigurationIsReadAsTheServerReadsIt(t *testing.T) {
	u := access.User{Name: "k", Role: access.Agent, Tenant: "t"}
	if _, err := access.NewCredentials(&u); err != nil {
		t.Fatal(err)
	}
	c, err := readConf(t, spelled(u.Key))
	if err != nil {
		t.Fatal(err)
	}
	var is strings.Builder
	for _, a := range c.Accounts {
		is.WriteString(a.Name)
		if a.JetStream {
			is.WriteString(" jetstream")
		}
		for _, i := range a.Imports {
			is.WriteString(" " + i.From + ":" + i.Subject + ">" + i.To)
			if i.Stream {
				is.WriteString("!")
			}
		}
		is.WriteString(strings.Join(append(append([]string{""}, a.Mappings...), a.Leaves...), " ") + "\n")
	}
	const accounts = "$G\nA jetstream\nB A:q.b>other A:s.*>s.*! A:s.x>here.s.x! b.m " +
		"leafnodes.authorization leafnodes.authorization.users\nC jetstream leafnodes.remotes\nSYS\n"
	if is.String() != accounts || c.System != "SYS" || strings.Join(c.Anonymous, " ") != "bare web" || c.Operator {
		t.Errorf("accounts %s, want %s: %+v", is.String(), accounts, c)
	}
	want := map[string]string{"ann": " | > | hush responses", "bare": "> | > | ", "mute": " |  | p",
		"echo": " | e | p responses",
		"eve":  "r.out | r.in | $2a$11$abcdefghijklmnopqrstuv", "self": "p.x | p.y | self", "less": "r | q.b | p",
		"bob": "b.out | b.in | p", "sys": "> | > | changeme",
		u.Key: "a.> | b.*,c workers | "}
	for _, a := range c.Accounts {
		for _, u := range a.Users {
			got := strings.Join(u.Publish, ",") + " | " + strings.Join(u.Subscribe, ",") + " | " + u.Password
			if u.Responses {
				got += " responses"
			}
			if name := u.Key + u.Name; got != want[name] {
				t.Errorf("%s: %q, want %q", name, got, want[name])
			}
			delete(want, u.Key+u.Name)
		}
	}
	if len(want) > 0 {
		t.Errorf("not read: %v", want)
	}
}

// TestConfigurationsOfOtherKindsAreTold: JWTs, one password for all, and what cannot be read.
func TestConfigurationsOfOtherKindsAreTold(t *testing.T) {
	if c, err := readConf(t, map[string]string{"nats.conf": `operator: op.jwt`}); err != nil || !c.Operator {
		t.Errorf("%+v %v", c, err)
	}
	if c, err := readConf(t, map[string]string{"nats.conf": `ROOT_OPERATOR: op.jwt`}); err != nil || !c.Operator {
		t.Errorf("%+v %v", c, err)
	}
	if c, err := readConf(t, map[string]string{"nats.conf": "accounts { A {} }\nACCOUNTS { B {} }"}); err != nil ||
		len(c.Accounts) != 3 {
		t.Errorf("%+v %v", c, err)
	}
	for text, mapped := range map[string]bool{"true": true, "false": false} {
		c, err := readConf(t, map[string]string{"nats.conf": `tls { verify_and_map: ` + text + ` }`})
		if err != nil || c.Mapped != mapped || c.System != "$SYS" {
			t.Errorf("%s: %+v %v", text, c, err)
		}
	}
	c, err := readConf(t, map[string]string{"nats.conf": `authorization { token: hush }`})
	if err != nil || len(c.Accounts) != 1 || len(c.Accounts[0].Users) != 1 ||
		c.Accounts[0].Users[0].Password != "hush" || c.Accounts[0].Name != embedded.GlobalAccount {
		t.Errorf("%+v %v", c, err)
	}
	for text, says := range map[string]string{"accounts {": "", "accounts { A { users: 7 } }": "users",
		"include nowhere.conf": "nowhere.conf", "x: $NOWHERE_AT_ALL": "NOWHERE_AT_ALL"} {
		if _, err := readConf(t, map[string]string{"nats.conf": text}); err == nil ||
			!strings.Contains(strings.ToLower(err.Error()), strings.ToLower(says)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
