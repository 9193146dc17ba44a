package access_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

var update = flag.Bool("update", false, "write testdata/matrix.txt and the table of docs/security.md again")

// The matrix is every role and what it may publish and subscribe, of all subjects there are.
// testdata/matrix.txt lists what is allowed; all else is refused. It is read in review, and
// each writer of the table is held to it by a server that runs with what it has written.

// site is a server that runs with what one writer has written, for tenants t1 and t2.
type site struct {
	users   []access.User
	hub     func(t *testing.T) *nats.Conn // of the host of the process: it may do everything there
	connect func(t *testing.T, u access.User, options ...nats.Option) *nats.Conn
}

// users of the matrix, of tenant t1 or of all; the second of t2 is there to be reached. Each role
// there is has one.
func cast() []access.User {
	return []access.User{
		{Name: "a1", Role: access.Agent, Tenant: "t1", Capabilities: []string{"git.show"}},
		{Name: "a2", Role: access.Agent, Tenant: "t1", Run: true},
		{Name: "w1", Role: access.Worker, Tenant: "t1", Capabilities: []string{"git.>"}},
		{Name: "s1", Role: access.Source, Tenant: "t1"},
		{Name: "v1", Role: access.Supervisor, Tenant: "t1"},
		{Name: "r1", Role: access.Auditor, Tenant: "t1"},
		{Name: "r0", Role: access.Auditor, Tenant: access.AllTenants},
		{Name: "o1", Role: access.Operator, Tenant: "t1"},
		{Name: "o2", Role: access.Operator, Tenant: "t1", Reveal: true},
		{Name: "o0", Role: access.Operator, Tenant: access.AllTenants},
		{Name: "p1", Role: access.Pager, Tenant: "t1"},
		{Name: "l1", Role: access.Local, Tenant: access.AllTenants},
		{Name: "h1", Role: access.Host, Tenant: access.AllTenants},
		{Name: "h2", Role: access.Host, Tenant: access.AllTenants, Provision: true},
		{Name: "m1", Role: access.Provisioner, Tenant: access.AllTenants},
		{Name: "y1", Role: access.System, Tenant: access.AllTenants},
		{Name: "c1", Role: access.Callout, Tenant: access.AllTenants},
		{Name: "$door", Role: access.Door, Tenant: "t1"}, // as the embedded server names it
		{Name: "a9", Role: access.Agent, Tenant: "t2", Run: true},
	}
}

// castWithout is the cast of a site that has no users of some roles.
func castWithout(roles ...access.Role) []access.User {
	return slices.DeleteFunc(cast(), func(u access.User) bool { return slices.Contains(roles, u.Role) })
}

// TestEveryRoleIsInTheCast, and its users are held to the table by a site at least.
func TestEveryRoleIsInTheCast(t *testing.T) {
	for _, role := range append(access.Roles(), access.Door) {
		if !slices.ContainsFunc(cast(), func(u access.User) bool { return u.Role == role }) {
			t.Errorf("role %s has no user in the matrix", role)
		}
	}
}

// verbs of the hosts. TestTheMatrixHasEveryVerb in executor/host/ask finds each of the real ones in
// testdata/matrix.txt, as what l1 may ask.
var (
	questions = []string{"plan.ls", "plan.find", "plan.show", "plan.why", "plan.outcome",
		"plan.preview", "trigger.explain", "undo.ls", "contract.ls", "quarantine.ls", "refused.ls",
		"due.ls", "capability.ls", "worker.ls", "worker.served", "status", "host", "ledger.read", "ledger.stream",
		"fact.get", "fact.ls", "fact.history", "memory.status", "memory.queue", "memory.rebuild", "review.ls",
		"released", "erased", "history.a1", "history.a2", "history.a9",
		"preview.a1", "preview.a2", "preview.a9", "unknown"}
	requests = []string{"ledger.scrub", "ledger.export", "ledger.sign", "rebuild", "ledger.repair",
		"key.rotate", "tenant.erase", "unknown"}
	calls = []string{"INFO", "ACCOUNT.PURGE.C_t1", "STREAM.NAMES", "STREAM.LIST",
		"STREAM.INFO.SAGA_t1", "STREAM.CREATE.SAGA_t1", "STREAM.UPDATE.SAGA_t1",
		"STREAM.DELETE.SAGA_t1", "STREAM.PURGE.SAGA_t1", "STREAM.MSG.GET.SAGA_t1",
		"STREAM.MSG.DELETE.SAGA_t1", "STREAM.SNAPSHOT.SAGA_t1", "STREAM.RESTORE.SAGA_t1",
		"STREAM.LEADER.STEPDOWN.SAGA_t1", "STREAM.PEER.REMOVE.SAGA_t1", "DIRECT.GET.SAGA_t1",
		"DIRECT.GET.KEYS_t1", "DIRECT.GET.SAGA_t1.saga.t1.executor", "CONSUMER.CREATE.SAGA_t1",
		"CONSUMER.CREATE.SAGA_t1.c1", "CONSUMER.CREATE.SAGA_t1.c1.saga.t1.>",
		"CONSUMER.DURABLE.CREATE.SAGA_t1.c1", "CONSUMER.NAMES.SAGA_t1", "CONSUMER.LIST.SAGA_t1",
		"CONSUMER.INFO.SAGA_t1.c1", "CONSUMER.DELETE.SAGA_t1.c1", "CONSUMER.MSG.NEXT.SAGA_t1.c1",
		"CONSUMER.PAUSE.SAGA_t1.c1", "META.LEADER.STEPDOWN", "SERVER.REMOVE"}
)

// published are all subjects on which a message has an effect, of both tenants.
func published() (all []string) {
	for _, t := range []string{"t1", "t2"} {
		for _, class := range []string{"agent.a1.p", "agent.a2.p", "agent.a9.p", "agent.a1._", "fact.s1",
			"fact.x", "verdict.v1", "verdict.x", "operator.o1", "operator.o0", "operator.x", "worker.w1",
			"worker.x", "executor", "executor.term", "other.x"} {
			all = append(all, "saga."+t+"."+class)
		}
		for _, verb := range questions {
			all = append(all, "query."+t+"."+verb)
		}
		for _, verb := range requests {
			all = append(all, "admin."+t+"."+verb)
		}
		for _, name := range []string{"key.T.a1", "key.T.a2", "key.T.a9", "reveal.T", "hosts.T", "run.T.a1.p",
			"run.T.a2.p", "run.T.a2.p.0123",
			"yield.T.a1.w", "yield.T.a1.w.0123", "yield.T.a2.w", "reply.T.0123", "reply.T.a1.0123", "reply.T.a2.0123",
			"undo.T.git.show", "undo.T.handler.a2.f", "ask.T.git.show", "ask.T.mail.find", "notice.T.a1.p",
			"page.T.default", "keys.T.p", "door.T.a1.plan.act",
			"door.T.a2.plan.act", "door.T.a1.fact.put", "door.T.s1.fact.put", "door.T.s1.plan.act",
			"door.T.v1.verdict.give", "door.T.v1.review.list", "door.T.x.verdict.give",
			"blob.T.agent.a1.put", "blob.T.agent.a1.read", "blob.T.agent.a2.put", "blob.T.worker.w1.put",
			"blob.T.worker.w1.read", "blob.T.worker.x.put", "blob.T.operator.o1.read", "blob.T.operator.o2.read",
			"blob.T.operator.o0.read", "blobs.T.p.0123",
			"erased.T", "tenant.T", "repair.saga.T.executor", "$KV.SAGA_HOLDERS.T"} {
			all = append(all, strings.Replace(name, "T", t, 1))
		}
	}
	for _, call := range calls {
		all = append(all, "$JS.API."+call)
	}
	return append(all, "server.user.add", "server.user.ls",
		"server.user.rotate", "server.user.rm", "server.user.tokens",
		"server.user.revoke", "server.tenant.ls", "server.tenant.erased", "server.tenant.show",
		"server.tenant.add", "server.tenant.limits", "server.tenant.suspend", "server.tenant.resume",
		"_INBOX.a1.x", "_INBOX.other.x", "_R_.x",
		"$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.JSZ",
		"$SYS.REQ.ACCOUNT.SAGENBAUM.CLAIMS.UPDATE", "$JS.ACK.SAGA_t1.c1.1.1.1.1.0",
		"$JS.FC.x", "anything")
}

// subscribed are subjects that somebody might listen to.
func subscribed() (all []string) {
	for _, t := range []string{"t1", "t2"} {
		for _, name := range []string{"saga.T.>", "saga.T.agent.a1.>", "query.T.>", "admin.T.>", "key.T.*",
			"key.T.a1", "reveal.T", "hosts.T", "run.T.>", "run.T.a1.>", "run.T.a2.>",
			"run.T.a2.p", "yield.T.>", "yield.T.a1.>", "yield.T.a2.>", "reply.T.>",
			"reply.T.*", "reply.T.a1.*", "reply.T.a2.*", "undo.T.>", "undo.T.git.>", "undo.T.git.show",
			"undo.T.git.show workers", "undo.T.git.show others", "undo.T.mail.send workers",
			"undo.T.handler.>", "undo.T.handler.a2.>", "undo.T.handler.a2.f workers", "ask.T.>",
			"ask.T.git.show", "ask.T.git.show workers", "notice.T.>", "notice.T.a1.*", "notice.T.a2.*",
			"page.T.>", "page.T.default", "keys.T.>", "blob.T.>", "blobs.T.>", "door.T.>", "door.T.a1.>"} {
			all = append(all, strings.Replace(name, "T", t, 1))
		}
	}
	for _, u := range cast() {
		all = append(all, "_INBOX."+u.Name+".x", "_INBOX."+u.Name+".>")
	}
	return append(all, ">", "*.>", "_INBOX.>", "_INBOX.*", "_R_.>", "$JS.>", "$JS.API.>", "$KV.>", "$SYS.>",
		"server.>", "server.tenant.*", "server.tenant.ls", "server.user.*", "tenant.>", "$JS.EVENT.>",
		"$SYS.REQ.USER.AUTH")
}

// matrix runs every cell against a site; the lines are those that were allowed.
func matrix(t *testing.T, s site) (allowed []string, cells int) {
	hub := s.hub(t)
	heard := newEar(t, hub, ">")
	for _, u := range s.users {
		v := new(violations)
		conn := s.connect(t, u, nats.ErrorHandler(v.add))
		for _, subject := range published() {
			cells++
			if err := conn.Publish(subject, []byte(u.Name+" "+subject)); err != nil {
				t.Fatal(err)
			}
		}
		v.settled(t, conn)
		if err := hub.Flush(); err != nil {
			t.Fatal(err)
		}
		for _, subject := range published() {
			switch denied := v.has("Publish", subject); {
			case denied && heard.has(subject, u.Name+" "+subject):
				t.Errorf("%s: a refused message on %s came to the hub", u.Name, subject)
			case !denied:
				line := fmt.Sprintf("%s pub %s", u.Name, subject)
				if heard.has(subject, u.Name+" "+subject) {
					line += " to the hub"
				}
				allowed = append(allowed, line)
			}
		}
		for _, subject := range subscribed() {
			cells++
			name, queue, _ := strings.Cut(subject, " ")
			v.clear()
			sub, err := conn.QueueSubscribeSync(name, queue)
			if err != nil {
				t.Fatal(err)
			}
			v.settled(t, conn)
			if !v.has("Subscription", name) {
				allowed = append(allowed, fmt.Sprintf("%s sub %s", u.Name, subject))
			}
			_ = sub.Unsubscribe() // refused ones have none
		}
	}
	return allowed, cells
}

// tricks has every user name every subject with an effect as the place of the answer to
// whatever it may ask: of hosts that answer, of the streams that acknowledge, and of itself.
// No answer may have an effect.
func tricks(t *testing.T, s site) (cells int) {
	hub := s.hub(t)
	answering := func(m *nats.Msg) { _ = m.Respond([]byte("an answer")) }
	for _, subject := range []string{"query.>", "admin.>", "hosts.*", "key.>", "reveal.*", "server.>", "door.>",
		"blob.>"} {
		if _, err := hub.Subscribe(subject, answering); err != nil {
			t.Fatal(err)
		}
	}
	for _, tenant := range []string{"t1", "t2"} {
		if _, err := jetstream.Open(t.Context(), jetstream.Config{Conn: hub, Tenant: tenant,
			AcceptLossyBroker: true}); err != nil {
			t.Fatal(err)
		}
	}
	targets := []string{"admin.t1.rebuild", "admin.t2.rebuild", "saga.t1.operator.o1", "saga.t1.executor.term",
		"saga.t2.agent.a9.p", "query.t2.plan.ls", "key.t1.a1", "key.t2.a9", "reveal.t1", "server.user.add",
		"$JS.API.STREAM.DELETE.SAGA_t2", "$JS.API.STREAM.INFO.SAGA_t2", "$KV.SAGA_HOLDERS.t1", "keys.t1.p",
		"blob.t1.agent.a1.put", "blobs.t1.p.0123",
		"undo.t1.git.show", "undo.t2.git.show", "notice.t2.a9.p", "door.t2.a9.plan.fail", "_INBOX.a9.x", "tenant.t1",
		"erased.t1",
		"server.tenant.add"}
	var heard []*ear
	for _, target := range targets {
		heard = append(heard, newEar(t, hub, target))
	}
	stranger := s.connect(t, access.User{Name: "a9"})
	other := newEar(t, stranger, "_INBOX.a9.>")
	for _, u := range s.users {
		if u.Account() == access.HubAccount || u.Account() == access.SystemAccount || u.Name == "a9" {
			continue // hosts are trusted with all subjects of the hub
		}
		v := new(violations)
		conn := s.connect(t, u, nats.ErrorHandler(v.add))
		if u.Run { // what it publishes comes back to itself, with the reply subject that it named
			if _, err := conn.Subscribe("run.t1.a2.>", answering); err != nil {
				t.Fatal(err)
			}
		}
		for _, subject := range u.Permissions().Publish {
			subject = strings.NewReplacer("*.*", "x.y", "*", "x", ">", "x").Replace(subject)
			subject = strings.Replace(subject, ".x.", ".t1.", 1) // of users of all tenants
			for _, target := range targets {
				cells++
				if err := conn.PublishRequest(subject, target, []byte("{}")); err != nil {
					t.Fatal(err)
				}
			}
		}
		v.settled(t, conn)
		<-time.After(100 * time.Millisecond) // an answer that is on its way
	}
	if err := errors.Join(hub.Flush(), stranger.Flush()); err != nil {
		t.Fatal(err)
	}
	for i, target := range targets {
		for _, m := range heard[i].all() {
			// What the users may publish themselves is "{}". What has no reply subject is no
			// request: a host takes none (executor/host/ask).
			request := strings.HasPrefix(target, "reveal.") && m.Reply == ""
			if string(m.Data) != "{}" && !request || m.Subject != target {
				t.Errorf("an answer had itself sent to %s: %q", target, m.Data)
			}
		}
	}
	if got := other.all(); len(got) > 0 {
		t.Errorf("another tenant heard %d answers, as %q", len(got), got[0].Data)
	}
	return cells
}

// hold runs the matrix and the tricks on a site, and compares with testdata/matrix.txt.
func hold(t *testing.T, s site) {
	t.Helper()
	allowed, cells := matrix(t, s)
	slices.Sort(allowed)
	got := strings.Join(allowed, "\n") + "\n"
	file := filepath.Join("testdata", "matrix.txt")
	if *update { // the lines of users that this site has not stay
		got := allowed
		before, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(before)) {
			name, _, _ := strings.Cut(line, " ")
			if !slices.ContainsFunc(s.users, func(u access.User) bool { return u.Name == name }) {
				got = append(got, strings.TrimSpace(line))
			}
		}
		slices.Sort(got)
		if err := os.WriteFile(file, []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	unexpected := 0
	for _, line := range strings.Split(got, "\n") {
		if !bytes.Contains(append([]byte("\n"), want...), []byte("\n"+line+"\n")) && line != "" {
			t.Errorf("allowed: %s", line)
			unexpected++
		}
	}
	for _, line := range strings.Split(string(want), "\n") {
		name, _, _ := strings.Cut(line, " ")
		if !slices.ContainsFunc(s.users, func(u access.User) bool { return u.Name == name }) {
			continue // the local user is the embedded server's
		}
		if !strings.Contains("\n"+got, "\n"+line+"\n") && line != "" {
			t.Errorf("not allowed: %s", line)
			unexpected++
		}
	}
	cells += tricks(t, s)
	t.Logf("%d unexpected of %d cells", unexpected, cells)
	if cells < 1000 {
		t.Errorf("only %d cells", cells)
	}
}

func TestTheEmbeddedServerHoldsTheMatrix(t *testing.T) {
	inside := castWithout(access.System, access.Callout)
	users := testenv.Users(t, castWithout(access.System, access.Callout, access.Door)...)
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1, Users: users.Directory})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	hold(t, site{
		users: inside,
		hub:   func(t *testing.T) *nats.Conn { return dial(t, server.URL(), server.InProcess()) },
		connect: func(t *testing.T, u access.User, options ...nats.Option) *nats.Conn {
			switch u.Role {
			case access.Door:
				conn, err := server.ConnectDoor(u.Tenant, options...)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(conn.Close)
				return conn
			case access.Local:
				options = append(options, nats.UserInfo("t1", "")) // the tenant that it wants to reach
			}
			return dial(t, server.URL(), append(users.As(u.Name), options...)...)
		},
	})
}

func dial(t *testing.T, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	conn, err := nats.Connect(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// violations are what a server has refused a connection.
type violations struct {
	mu   sync.Mutex
	said []string
}

func (v *violations) add(_ *nats.Conn, _ *nats.Subscription, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if errors.Is(err, nats.ErrPermissionViolation) {
		v.said = append(v.said, err.Error())
	}
}

func (v *violations) clear() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.said = nil
}

func (v *violations) has(what, subject string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.ContainsFunc(v.said, func(s string) bool {
		return strings.Contains(strings.ToLower(s), strings.ToLower(what+` to "`+subject+`"`))
	})
}

// settled waits until the server has said all that it has to say about what was sent: errors
// come to the handler in order, and the last is about a subject that nobody may listen to. Who
// answers servers about tokens may publish everything, where no one else is.
func (v *violations) settled(t *testing.T, conn *nats.Conn) {
	t.Helper()
	last := "_LAST." + nats.NewInbox()
	sub, err := conn.SubscribeSync(last)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }() // refused ones have none
	for end := time.Now().Add(testenv.Patience); !v.has("Subscription", last); {
		if err := conn.Flush(); err != nil || time.Now().After(end) {
			t.Fatalf("the server says nothing of %s: %v", last, err)
		}
		<-time.After(time.Millisecond)
	}
}

// ear keeps what comes to a subject. After a Flush of its connection it has all that came before:
// what a callback would be given then may still wait for its goroutine.
type ear struct {
	t   *testing.T
	sub *nats.Subscription
	in  []*nats.Msg
}

func newEar(t *testing.T, conn *nats.Conn, subject string) *ear {
	t.Helper()
	sub, err := conn.SubscribeSync(subject)
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return &ear{t: t, sub: sub}
}

func (e *ear) all() []*nats.Msg {
	e.t.Helper()
	waiting, _, err := e.sub.Pending()
	if err != nil {
		e.t.Fatal(err)
	}
	for range waiting {
		m, err := e.sub.NextMsg(testenv.Patience)
		if err != nil {
			e.t.Fatal(err)
		}
		e.in = append(e.in, m)
	}
	return e.in
}

func (e *ear) has(subject, body string) bool {
	return slices.ContainsFunc(e.all(),
		func(m *nats.Msg) bool { return m.Subject == subject && string(m.Data) == body })
}
