package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// crew has a user of every role that a nats.conf may have.
func crew(t *testing.T) *testenv.Crew {
	t.Helper()
	return testenv.Users(t,
		access.User{Name: "coder", Role: access.Agent, Tenant: "t1", Run: true, Capabilities: []string{"git.>"}},
		access.User{Name: "plain", Role: access.Agent, Tenant: "t1"},
		access.User{Name: "git", Role: access.Worker, Tenant: "t1", Capabilities: []string{"git.branch"}},
		access.User{Name: "meter", Role: access.Source, Tenant: "t1"},
		access.User{Name: "boss", Role: access.Supervisor, Tenant: "t1"},
		access.User{Name: "books", Role: access.Auditor, Tenant: "t1"},
		access.User{Name: "ana", Role: access.Operator, Tenant: "t1", Reveal: true},
		access.User{Name: "phone", Role: access.Pager, Tenant: "t2"},
		access.User{Name: "all", Role: access.Operator, Tenant: access.AllTenants},
		access.User{Name: "eyes", Role: access.Auditor, Tenant: access.AllTenants},
		access.User{Name: "h1", Role: access.Host, Tenant: access.AllTenants},
		access.User{Name: "h2", Role: access.Host, Tenant: access.AllTenants, Provision: true},
		access.User{Name: "maker", Role: access.Provisioner, Tenant: access.AllTenants},
		access.User{Name: "sys", Role: access.System, Tenant: access.AllTenants})
}

// edit is a change of a nats.conf.
type edit struct {
	what, from, to     string
	check, state, says string
	known              bool     // found only with the file of users
	also               []string // edited beside it, pairs
}

// edited is a configuration with the edit. From "@ACCOUNT" on, a user is added to an account.
func (e edit) edited(t *testing.T, text, key string) string {
	t.Helper()
	names := strings.NewReplacer("KEY", key, "ISSUER", issuerKey(t))
	to := names.Replace(e.to)
	if account, ok := strings.CutPrefix(e.from, "@"); ok {
		before, after, found := strings.Cut(text, "  "+account+" {")
		more, rest, list := strings.Cut(after, "users: [\n")
		if !found || !list {
			t.Fatalf("no account %s has users:\n%s", account, text)
		}
		return before + "  " + account + " {" + more + "users: [\n" + to + "\n" + rest
	}
	for i := 0; i < len(e.also); i += 2 {
		text = strings.ReplaceAll(text, e.also[i], names.Replace(e.also[i+1]))
	}
	if !strings.Contains(text, e.from) {
		t.Fatalf("an export has no %s:\n%s", e.from, text)
	}
	return strings.ReplaceAll(text, e.from, to)
}

// issuerKey is the public key of an account that signs.
func issuerKey(t *testing.T) string {
	t.Helper()
	pair, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	key, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// holds fails the test where the findings are not what the edit asks for. Other checks find
// nothing, unless a user was added: it has no role either, or is not in the file of users.
func (e edit) holds(t *testing.T, findings []Finding, known bool) {
	t.Helper()
	for _, f := range findings {
		told := f.Text + "\n" + strings.Join(f.Details, "\n")
		switch {
		case f.Check == e.check && (known || !e.known):
			if f.State != e.state || !strings.Contains(told, e.says) || (f.Next == "") != (f.State == "ok") {
				t.Errorf("with users %v: %+v, want %s and %q", known, f, e.state, e.says)
			}
		case f.State != "ok" && !(f.Check == "roles" && strings.Contains(e.to+strings.Join(e.also, " "), "user")):
			t.Errorf("with users %v: %+v", known, f)
		}
		if strings.Contains(told, "4kgs9") || strings.Contains(told, "change-me") {
			t.Errorf("a password is told: %s", told)
		}
	}
}

// edited are what people do to a nats.conf, and what the doctor says then: the check, its state and
// a part of what it tells.
var edited = []edit{
	{what: "nothing"},
	{"an application beside", "accounts {", "accounts {\n  APP { jetstream: enabled, users: [ { user: app, " +
		"password: \"$2a$11$abcdefghijklmnopqrstuv\", permissions: { allow_responses: true } } ] }", "", "", "", false, nil},
	{"an agent that reads", `"key.t1.plain"`, `"key.t1.plain", "query.t1.>"`, "roles", "warn",
		"more than role agent: publish query.t1.>", false, nil},
	{"an agent with the keys of others", `"key.t1.plain"`, `"key.t1.*"`, "roles", "warn", "publish key.t1.*", false, nil},
	{"a worker without its group", `"undo.t1.git.branch workers"`, `"undo.t1.git.branch"`, "roles", "warn",
		"more than role worker: subscribe undo.t1.git.branch", false, nil},
	{"a worker of other things", `"undo.t1.git.branch workers"`, `"undo.t1.> workers"`, "roles", "warn",
		"more than role worker: subscribe undo.t1.> workers", true, nil},
	{"an auditor who acts", `"admin.t1.ledger.sign"`, `"admin.t1.>"`, "roles", "warn",
		"more than role auditor: publish admin.t1.>", true, nil},
	{"all inboxes", `"_INBOX.meter.>"`, `"_INBOX.>"`, "roles", "warn", "subscribe _INBOX.>", false, nil},
	{"another tenant", `"_INBOX.phone.>", "page.t2.>"`, `"_INBOX.phone.>", "page.*.>"`, "roles",
		"warn", "more than role pager: subscribe page.*.>", false, nil},
	{"a client with JetStream", `"key.t1.plain"`, `"key.t1.plain", "$JS.API.>"`, "roles", "warn",
		"publish $JS.API.>", false, nil},
	{"a host that removes", `"$JS.API.INFO"`, `"$JS.API.>"`, "roles", "warn", "publish $JS.API.>", false, nil},
	{"a user without permissions", "@C_t1", "{ nkey: KEY }", "roles", "FAIL",
		"everything in its account", false, nil},
	{"a root in the hub", "@SAGENBAUM", "{ nkey: KEY }", "roles", "FAIL",
		"everything in its account", false, nil},
	{"another key", "@C_t2", "{ nkey: KEY, permissions: { publish: \"reply.t2.*\", " +
		"subscribe: \"_INBOX.x.>\" } }", "roles", "warn", "is not in the file of users", true, nil},
	{"a password", "@SYS", "{ user: root, password: \"4kgs9-Wq2\", permissions: { publish: " +
		"\"$SYS.REQ.SERVER.PING.JSZ\", subscribe: \"_INBOX.root.>\" } }", "passwords", "warn", "SYS root", false, nil},
	{"a placeholder", "@SYS", "{ user: root, password: \"change-me\" }", "passwords", "FAIL",
		"SYS root: a placeholder, and it sees and steers all servers", false, nil},
	{"the name as password", "@C_t2", "{ user: zed, password: Zed }", "passwords", "FAIL",
		"C_t2 zed: a placeholder", false, nil},
	{"allow_responses", "        permissions: {\n          publish: { allow: [\"saga.t1.agent.plain.*\"",
		"        permissions: {\n          allow_responses: true\n          publish: { allow: [\"saga.t1.agent.plain.*\"",
		"responses", "FAIL", "C_t1 plain (", false, nil},
	{"streams", "C_t1 {", "C_t1 {\n    jetstream: enabled", "jetstream", "FAIL", "C_t1", false, nil},
	{"streams of operators", "OPERATORS {", "OPERATORS {\n    jetstream { max_file: 1G }", "jetstream", "FAIL",
		"OPERATORS", false, nil},
	{"an import of another tenant", `{ service: { account: SAGENBAUM, subject: "key.t1.*" }`,
		`{ service: { account: SAGENBAUM, subject: "key.t2.*" }`, "imports", "FAIL", "C_t1: service key.t2.* of SAGENBAUM",
		false, nil},
	{"a stream of all", `{ stream: { account: SAGENBAUM, subject: "undo.t2.>" }`,
		`{ stream: { account: SAGENBAUM, subject: "undo.>" }`, "imports", "FAIL", "C_t2: stream undo.> of SAGENBAUM", false,
		[]string{`{ stream: "undo.*.>"`, `{ stream: "undo.>"`}},
	{"an import from another tenant", `{ stream: { account: SAGENBAUM, subject: "undo.t2.>" }`,
		`{ stream: { account: C_t1, subject: "undo.t2.>" }`, "imports", "FAIL", "of C_t1", false,
		[]string{"C_t1 {", `C_t1 { exports: [ { stream: "undo.t2.>" } ]`}},
	{"an application that imports", "accounts {", "accounts {\n  APP { imports: [ { stream: { account: SAGENBAUM, " +
		"subject: \"notice.*.*.*\" } } ] }", "imports", "FAIL", "APP: stream notice.*.*.*", false,
		[]string{"accounts: [OPERATORS", "accounts: [APP, OPERATORS"}},
	{"an import by another name", `{ service: { account: SAGENBAUM, subject: "admin.t1.>" } }`,
		`{ service: { account: SAGENBAUM, subject: "admin.t1.>" }, to: "reply.t1.>" }`, "imports", "FAIL",
		"C_t1: service admin.t1.> of SAGENBAUM, as reply.t1.>", false, nil},
	{"a stream by another name", `{ stream: { account: SAGENBAUM, subject: "undo.t1.>" }`,
		`{ prefix: "_INBOX.plain", stream: { account: SAGENBAUM, subject: "undo.t1.>" }`, "imports", "FAIL",
		"C_t1: stream undo.t1.> of SAGENBAUM, as _INBOX.plain.undo.t1.>", false, nil},
	{"a mapping", "C_t1 {", "C_t1 {\n    mappings { \"reply.t1.x\": \"admin.t1.rebuild\" }", "imports", "FAIL",
		"C_t1: mapping of reply.t1.x", false, nil},
	{"an application that hears a tenant", "accounts {", "accounts {\n  APP { imports: [ { stream: { account: C_t1, " +
		"subject: \"run.>\" } } ] }", "imports", "FAIL", "APP: stream run.> of C_t1", false,
		[]string{"C_t1 {", `C_t1 { exports: [ { stream: "run.>" } ]`}},
	{"hosts that take from an application", "accounts {", "accounts {\n  APP { exports: [ { stream: \"admin.>\" } ] }",
		"imports", "FAIL", "SAGENBAUM: stream admin.> of APP", false,
		[]string{"SAGENBAUM {", `SAGENBAUM { imports: [ { stream: { account: APP, subject: "admin.>" } } ]`}},
	{"applications among themselves", "accounts {", "accounts {\n  APP { exports: [ { stream: \"a.>\" } ] }\n  WEB {" +
		"\n    mappings { a: b }\n    imports: [ { stream: { account: APP, subject: \"a.>\" } } ] }", "", "", "", false, nil},
	{"a mapping in case", "C_t1 {", "C_t1 {\n    Maps { \"reply.t1.x\": \"admin.t1.rebuild\" }", "imports", "FAIL",
		"C_t1: mapping of reply.t1.x", false, nil},
	{"everyone", "accounts {", "no_auth_user: zed\naccounts {\n  APP { users: [ " +
		"{ user: zed, password: \"$2a$11$abcdefghijklmnopqrstuv\" } ] }", "accounts", "warn", "who reaches no tenant", false,
		nil},
	{"everyone as a user of a tenant", "accounts {", "mqtt { no_auth_user: OTHER }\nws { no_auth_user: KEY }\naccounts {",
		"accounts", "FAIL", "everyone gets in without credentials, as user OTHER, U", false, []string{"{ # phone",
			"{ nkey: KEY, permissions: { publish: \"reply.t2.*\", subscribe: \"_INBOX.x.>\" } }\n{ # phone"}},
	{"users outside of accounts", "accounts {", "authorization { users: [ { user: zed, password: " +
		"\"$2a$11$abcdefghijklmnopqrstuv\" } ] }\naccounts {", "accounts", "ok", "1 of them in no account", false, nil},
	{"another callout", "accounts {", "authorization { auth_callout { issuer: " +
		"ISSUER, account: APP, auth_users: [ KEY ] } }\naccounts {\n  APP {}",
		"accounts", "FAIL", "account APP decides who connects", false, nil},
	{"a tenant with the servers", "system_account: SYS", "system_account: C_t1", "accounts", "FAIL",
		"account C_t1 is the account of the servers", false, nil},
	{"servers by another name", "system_account: SYS", "system_account: ADM", "passwords", "FAIL",
		"ADM sys: a placeholder, and it sees", false, []string{"  SYS {\n    users: [",
			"  ADM {\n    users: [ { user: sys, password: change-me }"}},
	{"servers by no name", "system_account: SYS", "", "roles", "FAIL", "$SYS U", false, []string{"  SYS {\n    users: [",
		"  $SYS {\n    users: [ { nkey: KEY }"}},
	{"a leaf node of a tenant", "accounts {", "leafnodes { authorization { users: [ { user: x, password: y, " +
		"account: C_t1 } ] } }\naccounts {", "roles", "FAIL", "C_t1 leafnodes.authorization.users: everything", false, nil},
	{"a server beside that is joined", "accounts {", "leaf { remotes: [ { url: \"nats://x\", Local: SAGENBAUM } ] }\n" +
		"accounts {", "roles", "FAIL", "SAGENBAUM leafnodes.remotes: everything", false, nil},
	{"everything but", "@C_t1", "{ nkey: KEY, permissions: { publish: { allow: [\"*.>\", a], deny: \"b\" }, " +
		"subscribe: { deny: \"c\" } } }", "roles", "FAIL", "everything in its account", false, nil},
	{"everything denied", `publish: { allow: ["saga.t1.agent.plain.*"`, `publish: { deny: ["query.t1.>"], ` +
		`allow: ["query.t1.host", "saga.t1.agent.plain.*"`, "", "", "", false, nil},
	{"denied in another group", `subscribe: { allow: ["_INBOX.git.>", `,
		`subscribe: { deny: ["undo.t1.> others"], allow: ["undo.t1.>", "_INBOX.git.>", `, "roles", "warn",
		"more than role worker: subscribe undo.t1.>", false, nil},
	{"what is no hash", "@C_t2", "{ user: zed, password: \"$2-4kgs9\", permissions: { publish: \"reply.t2.*\", " +
		"subscribe: \"_INBOX.zed.>\" } }", "passwords", "warn", "C_t2 zed", false, nil},
	{"no password", "@C_t2", "{ user: zed, password: \"\", permissions: { publish: \"reply.t2.*\", " +
		"subscribe: \"_INBOX.zed.>\" } }", "passwords", "FAIL", "C_t2 zed: a placeholder", false, nil},
	{"certificates", "accounts {", "tls { cert_file: x, key_file: y, ca_file: z, verify_and_map: true }\naccounts {\n" +
		"  APP { users: [ { user: \"CN=zed\" } ] }", "", "", "", false, nil},
	{"permissions of the account", "C_t2 {", "C_t2 {\n    default_permissions: { publish: \"$JS.API.>\", " +
		"subscribe: \"_INBOX.zed.>\" }", "roles", "warn", "C_t2 zed (U", false, []string{"{ # phone",
		"{ nkey: KEY }\n{ # phone"}},
	{"no hub", "SAGENBAUM", "HUB", "accounts", "FAIL", "there is no account SAGENBAUM", false, nil},
	{"no configuration", "accounts {", "accounts", "accounts", "FAIL", "cannot be read", false, nil},
	{"JWTs", "accounts {", "operator: op.jwt\naccounts {", "accounts", "skip", "in JWTs", false, nil},
}

// TestTheDoctorFindsWhatPeopleDoToAnExport, and finds nothing in what user export writes, with and
// without the file of users.
func TestTheDoctorFindsWhatPeopleDoToAnExport(t *testing.T) {
	users := crew(t)
	text, err := access.Configuration{Tenants: []string{"t1", "t2"}, Users: users.Users()}.Format(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	extra := testenv.Users(t, access.User{Name: "x", Role: access.Pager, Tenant: "t2"})
	for _, e := range edited {
		t.Run(e.what, func(t *testing.T) {
			conf := e.edited(t, string(text), extra.Users()[0].Key)
			file := filepath.Join(t.TempDir(), "nats.conf")
			if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, list := range []string{"", filepath.Join(filepath.Dir(users.File("coder")), "users")} {
				findings, err := examineAccounts(file, list, time.Now())
				if err != nil {
					t.Fatal(err)
				}
				e.holds(t, findings, list != "")
			}
		})
	}
}

// TestAUserOfTheFileIsHeldAgainstItself: where it is, until when, and what it may do.
func TestAUserOfTheFileIsHeldAgainstItself(t *testing.T) {
	now := time.Now()
	u := access.User{Name: "phone", Role: access.Pager, Tenant: "t2", Key: "U1", Expires: now.Add(time.Hour)}
	known := knownUsers{u.Key: u}
	is := embedded.ConfUser{Key: u.Key, Permissions: u.Permissions()}
	more := is
	more.Publish = append(more.Publish, "page.t2.x")
	for _, c := range []struct {
		account string
		user    embedded.ConfUser
		at      time.Time
		says    string
	}{
		{"C_t2", is, now, ""},
		{"C_t1", is, now, "role pager belongs to account C_t2"},
		{"C_t2", is, now.Add(2 * time.Hour), "it has expired at"},
		{"C_t2", more, now, "more than role pager: publish page.t2.x"},
		{"C_t2", embedded.ConfUser{Key: "U2"}, now, "it is not in the file of users"},
	} {
		if told := known.wider(c.account, c.user, c.at); !strings.HasPrefix(told, c.says) || (told == "") != (c.says == "") {
			t.Errorf("%+v: %q", c, told)
		}
	}
}
