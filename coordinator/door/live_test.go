package door_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"
	"github.com/sagenbaum/sagenbaum/coordinator/door"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/executor/host"
	"github.com/sagenbaum/sagenbaum/executor/host/vault"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// live is a door with an executor, workers and users on one server.
type live struct {
	t      testing.TB
	server *embedded.Server
	users  *testenv.Crew
	root   *nats.Conn
	store  *jetstream.Store
	work   *worker.Worker
	host   *host.Host
	halt   func() // ends it
	web    *door.Web
	http   *httptest.Server

	door *door.Door
	stop func()

	hold chan struct{} // nil: undos do not wait; set before the first one

	mu     sync.Mutex
	undone []string
}

const tenant = "default"

// contracts are those that are published in tests.
func contracts() []contract.Contract {
	return []contract.Contract{
		{Capability: "hotel.book", Class: contract.Compensable,
			Inverse: &contract.Inverse{Call: "hotel.cancel", With: map[string]any{"city": "=input.city",
				"booking": "=output.?booking"}}},
		{Capability: "file.write", Class: contract.Compensable,
			Before:  &contract.Before{Call: "file.read", With: map[string]any{"path": "=input.path"}},
			Inverse: &contract.Inverse{Call: "file.restore", With: map[string]any{"before": "=before"}}},
		{Capability: "seat.hold", Class: contract.Compensable, AskAfter: time.Millisecond, Timeout: time.Minute,
			Probe:   &contract.Probe{Call: "seat.find", With: map[string]any{"seat": "=input.seat"}},
			Inverse: &contract.Inverse{Call: "seat.free", With: map[string]any{"seat": "=input.seat"}}},
		{Capability: "mail.send", Class: contract.Irreversible},
		{Capability: "page.read", Class: contract.Effectless},
		{Capability: "note.post", Class: contract.Irreversible, Deliver: &contract.Deliver{
			With: map[string]any{"to": "=input.to"}, Dedupe: time.Hour}},
		{Capability: "sum.send", Class: contract.Irreversible, Deliver: &contract.Deliver{
			With: map[string]any{"to": "=actions[\"none\"].output.id", "sum": "=int(input.sum)"}, Dedupe: time.Hour}},
		{Capability: "letter.post", Class: contract.Irreversible, Stage: contract.StageCommit,
			Deliver: &contract.Deliver{With: map[string]any{"to": "=input.to"}, Dedupe: time.Hour}},
	}
}

func TestMain(m *testing.M) {
	testenv.Parallel(4) // each has a server of its own, and waits
	os.Exit(m.Run())
}

func newLive(t testing.TB) *live {
	t.Helper()
	l := &live{t: t}
	l.users = testenv.Users(t,
		access.User{Name: "tripper", Role: access.Agent, Tenant: tenant},
		access.User{Name: "other", Role: access.Agent, Tenant: tenant},
		access.User{Name: "scanner", Role: access.Source, Tenant: tenant},
		access.User{Name: "boss", Role: access.Supervisor, Tenant: tenant},
		access.User{Name: "reader", Role: access.Auditor, Tenant: tenant},
		access.User{Name: "far", Role: access.Agent, Tenant: "second"},
		access.User{Name: "w1", Role: access.Worker, Tenant: tenant, Capabilities: []string{">"}})
	var err error
	if l.server, err = embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1,
		Users: l.users.Directory}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.server.Close)
	if l.root, err = l.server.Connect(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.root.Close)
	l.run()
	if l.store, err = jetstream.Open(t.Context(), jetstream.Config{Conn: l.root, Tenant: tenant,
		DurableServer: l.server.DurableID()}); err != nil {
		t.Fatal(err)
	}
	if l.work, err = worker.New(worker.Config{Conn: l.as("w1"), Tenant: tenant, Name: "w1"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.work.Close(context.Background()) })
	for _, capability := range []string{"hotel.cancel", "file.restore", "seat.free", "note.post", "letter.post"} {
		l.handle(capability)
	}
	if err := l.work.Answer("seat.find", func(_ context.Context, c api.Command) (worker.Answer, error) {
		presence := "present"
		if bytes.Contains(c.Arguments, []byte(`"none"`)) {
			presence = "inconclusive"
		}
		return worker.Answer{Output: map[string]any{"presence": presence}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := l.work.Answer("file.read", func(context.Context, api.Command) (worker.Answer, error) {
		return worker.Answer{Output: json.RawMessage(`{"text":"10.10"}`)}, nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range contracts() {
		l.publish(c)
	}
	l.web = door.NewWeb(door.WebConfig{Version: "test", Users: l.users})
	t.Cleanup(l.web.Close)
	l.http = httptest.NewServer(l.web.Handler())
	t.Cleanup(l.http.Close)
	l.open()
	t.Cleanup(func() { l.stop() })
	return l
}

// run runs an executor until the test ends.
func (l *live) run() {
	h, err := host.New(host.Config{Conn: l.root, Tenants: []string{tenant, "second"}, Follow: true, Dir: l.t.TempDir(),
		DurableServer: l.server.DurableID(), MasterKey: make([]byte, vault.MasterKeySize),
		TenantKeysDir: l.t.TempDir()})
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	l.halt = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			l.t.Error(err)
		}
		if err := h.Close(); err != nil {
			l.t.Error(err)
		}
	})
	l.t.Cleanup(l.halt)
	h.Await(ctx) // until then no holder says what it knows, and newer pairs are refused
	l.host = h
}

// open opens a door.
func (l *live) open() {
	l.door = door.New(door.Config{
		Connect: func(tenant string) (*nats.Conn, error) { return l.server.ConnectDoor(tenant) },
		Serves:  func(name string) bool { return name == tenant || name == "second" },
	})
	silence, err := l.door.Serve(l.root)
	if err != nil {
		l.t.Fatal(err)
	}
	detach := l.web.Attach(l.door)
	d := l.door
	l.stop = func() { detach(); silence(); d.Close() }
}

// crash has the door forget everything without a word, as a host that is killed does, and opens
// another one.
func (l *live) crash() {
	l.t.Helper()
	l.door.Kill()
	l.stop()
	l.open()
}

func (l *live) as(user string) *nats.Conn {
	l.t.Helper()
	return l.users.Connect(l.server.URL(), user, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
}

func (l *live) token(user string) string {
	l.t.Helper()
	creds, err := access.ReadCredentials(l.users.File(user))
	if err != nil {
		l.t.Fatal(err)
	}
	return creds.Token
}

// handle serves an inverse and keeps what it is told.
func (l *live) handle(capability string) {
	if err := l.work.Handle(capability, func(_ context.Context, c api.Command) (worker.Result, error) {
		if l.hold != nil {
			<-l.hold
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.undone = append(l.undone, c.Plan+"/"+c.Action+" "+string(c.Arguments))
		return worker.Result{}, nil
	}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *live) undos(plan string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, u := range l.undone {
		if bytes.HasPrefix([]byte(u), []byte(plan+"/")) {
			found = append(found, u[len(plan)+1:])
		}
	}
	return slices.Clone(found)
}

// publish returns once an executor knows the contract: before that, the door says that its capability
// is not declared.
func (l *live) publish(c contract.Contract) {
	l.t.Helper()
	compiled, err := compile.Contract(c, triggers.NewCache(1))
	if err != nil {
		l.t.Fatal(err)
	}
	source := ledger.Source{Tenant: tenant, Class: ledger.ClassOperator, Name: "root"}
	data, err := ledger.EncodeCommit([]*pb.Record{{Kind: &pb.Record_ContractPublished{
		ContractPublished: &pb.ContractPublished{Capability: c.Capability, Digest: compiled.Digest[:],
			Contract: compiled.Canonical}}}})
	at := uint64(0)
	if err == nil {
		at, err = l.store.Append(l.t.Context(), ledger.Append{Subject: source.Subject(), ID: jetstream.NewID(),
			Data: data})
	}
	if err != nil {
		l.t.Fatal(err)
	}
	ask := api.PlanHistory("root")
	for end := time.Now().Add(testenv.Patience); ; <-time.After(10 * time.Millisecond) {
		question, err := json.Marshal(api.HistoryQuery{Plan: "none", Sequence: at})
		if err != nil {
			l.t.Fatal(err)
		}
		reply, err := l.root.Request(ask.Subject(tenant), question, testenv.Patience)
		if err == nil {
			_, err = ask.Decode(reply.Data)
		}
		switch {
		case err == nil:
			return
		case time.Now().After(end):
			l.t.Fatalf("the contract of %s is not known: %v", c.Capability, err)
		}
	}
}

// caller asks the door in one way.
type caller func(user, verb, body string) (status int, answer map[string]any)

// post asks over HTTP.
func (l *live) post(user, verb, body string) (int, map[string]any) {
	l.t.Helper()
	return l.send(l.token(user), "/v1/"+tenant+"/"+user+"/"+verb, "application/json", body)
}

func (l *live) send(token, path, kind, body string) (int, map[string]any) {
	l.t.Helper()
	r, err := http.NewRequestWithContext(l.t.Context(), http.MethodPost, l.http.URL+path,
		bytes.NewReader([]byte(body)))
	if err != nil {
		l.t.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return response.StatusCode, l.read(text)
}

func (l *live) read(text []byte) (answer map[string]any) {
	l.t.Helper()
	if err := json.Unmarshal(text, &answer); err != nil {
		l.t.Fatalf("%q: %v", text, err)
	}
	return answer
}

// request asks over NATS.
func (l *live) request(conn *nats.Conn, user string) caller {
	return func(_, verb, body string) (int, map[string]any) {
		l.t.Helper()
		ctx, cancel := context.WithTimeout(l.t.Context(), testenv.Patience)
		defer cancel()
		reply, err := conn.RequestWithContext(ctx, api.DoorSubject(tenant, user, verb), []byte(body))
		if err != nil {
			l.t.Fatalf("%s: %v", verb, err)
		}
		status := http.StatusOK
		answer := l.read(reply.Data)
		if e, ok := answer["error"].(map[string]any); ok {
			status = int(e["status"].(float64))
			code := reply.Header.Get("Nats-Service-Error-Code")
			if code != fmt.Sprint(status) || reply.Header.Get("Nats-Service-Error") == "" {
				l.t.Errorf("%s: status %d, and the headers are %v", verb, status, reply.Header)
			}
		}
		return status, answer
	}
}

// good asks and wants that it is carried out.
func (l *live) good(ask caller, user, verb, body string) map[string]any {
	l.t.Helper()
	status, answer := ask(user, verb, body)
	if status != http.StatusOK {
		l.t.Fatalf("%s %s: %d %v", verb, body, status, answer)
	}
	return answer
}

// refused asks and wants a refusal that names the field.
func (l *live) refused(ask caller, user, verb, body string, status int, field string) map[string]any {
	l.t.Helper()
	got, answer := ask(user, verb, body)
	e, _ := answer["error"].(map[string]any)
	if name, _ := e["field"].(string); got != status || name != field || e["problem"] == "" || e["stored"] == nil {
		l.t.Errorf("%s %.200s: %d %v, want %d with field %q", verb, body, got, answer, status, field)
	}
	return e
}

// records counts what agents and others have written, by kind, of what the ledger has now.
func (l *live) records() map[string]int {
	l.t.Helper()
	head, err := l.store.Head(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	found := map[string]int{}
	for m, err := range l.store.Read(l.t.Context(), 1) {
		if err != nil {
			l.t.Fatal(err)
		}
		entries, err := ledger.Decode(tenant, m)
		if err != nil {
			l.t.Fatal(err)
		}
		for _, e := range entries {
			if e.Source.Class != ledger.ClassExecutor {
				found[ledger.KindOf(e.Record).Name]++
			}
		}
		if m.Sequence >= head.Last {
			break
		}
	}
	return found
}

// judging is users whose tokens a test judges; their changes are those of a directory.
type judging struct {
	*access.Directory
	judge func(token string) (access.User, error)
}

func (j judging) Authenticate(token string, _ time.Time) (access.User, error) { return j.judge(token) }
