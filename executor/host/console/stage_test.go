package console_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/executor/host"
	"github.com/sagenbaum/sagenbaum/executor/host/console"
	"github.com/sagenbaum/sagenbaum/executor/host/console/access"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

const (
	tenant = "default"
	token  = "a-token-of-the-tests-that-is-long-enough"
)

// stage is a server, a host and its console, and the agents and workers that play on it.
type stage struct {
	t       *testing.T
	conn    *nats.Conn
	host    *host.Host
	console *console.Server
	coder   *coordinator.Coordinator
	travel  *coordinator.Coordinator
	detach  func()
	pages   *nats.Subscription
	said    atomic.Pointer[error] // how the last call that failed has ended

	mu     sync.Mutex
	gates  map[string]chan struct{} // by plan: an undo waits for one element
	broken bool                     // the registry refuses to take anything back
	live   *coordinator.Plan
}

func newStage(t *testing.T, change func(*console.Config)) *stage {
	t.Helper()
	dir := t.TempDir()
	srv, err := embedded.Start(embedded.Config{Dir: filepath.Join(dir, "nats"), Port: -1})
	must(t, err)
	t.Cleanup(srv.Close)
	s := &stage{t: t, gates: map[string]chan struct{}{}, broken: true}
	s.conn, err = srv.Connect()
	must(t, err)
	t.Cleanup(s.conn.Close)
	s.pages, err = s.conn.SubscribeSync(api.PageSubject(tenant, "default"))
	must(t, err)
	s.host, err = host.New(
		host.Config{
			Conn: s.conn, Tenants: []string{tenant, "second"}, Dir: filepath.Join(dir, "executor"),
			DurableServer: srv.DurableID(), LeaseTTL: time.Second,
			MasterKey: bytes.Repeat([]byte{7}, 32), TenantKeysDir: filepath.Join(dir, "keys"),
		},
	)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.host.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, s.host.Close()); err != nil {
			t.Error(err)
		}
	})
	s.host.Await(ctx)
	users := filepath.Join(dir, "console", "users")
	must(t, os.MkdirAll(filepath.Dir(users), 0o700))
	ana, err := access.NewUser("ana", token, access.Grant{Role: access.Admin, Tenants: []string{"*"}}, time.Time{})
	must(t, err)
	must(t, os.WriteFile(users, []byte("# tests\n"+ana.String()+"\n"), 0o600))
	config := console.Config{Listen: "127.0.0.1:0", Users: users, OpenRead: true, Version: "test"}
	if change != nil {
		change(&config)
	}
	s.console, err = console.Start(config)
	must(t, err)
	t.Cleanup(s.console.Close)
	s.detach = s.console.Attach(s.host, s.conn)
	s.agents()
	s.worker()
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// compensable is a contract whose inverse takes a name.
func compensable(capability, inverse string) contract.Contract {
	return contract.Contract{
		Capability: capability, Class: contract.Compensable, Fidelity: contract.Exact,
		Inverse: &contract.Inverse{
			Call: inverse, With: map[string]any{"name": "=input.name", "ref": "=output.ref"}, Attempts: 3,
			Backoff: 300 * time.Millisecond, BackoffMax: time.Second,
		},
	}
}

func (s *stage) agents() {
	push := compensable("git.push", "git.push.delete")
	publish := compensable("registry.publish", "registry.yank")
	publish.Fidelity = contract.Lossy
	flight := compensable("flight.book", "flight.cancel")
	flight.ValidFor, flight.Warn = 26*time.Hour, time.Hour
	room := compensable("hotel.book", "hotel.cancel")
	room.ValidFor = 7 * 24 * time.Hour
	for _, a := range []struct {
		to        **coordinator.Coordinator
		name      string
		contracts []contract.Contract
	}{
		{
			&s.coder, "coder",
			[]contract.Contract{
				compensable("git.branch.create", "git.branch.delete"), compensable("git.commit", "git.commit.reset"), push,
				publish, compensable("test.cluster.start", "test.cluster.stop"),
				{Capability: "docs.render", Class: contract.Effectless},
			},
		},
		{
			&s.travel, "travel",
			[]contract.Contract{
				flight, room, compensable("calendar.invite", "calendar.withdraw"), compensable("card.charge", "card.refund"),
				{Capability: "mail.send", Class: contract.Irreversible},
			},
		},
	} {
		c, err := coordinator.New(coordinator.Config{Conn: s.conn, Tenant: tenant, Agent: a.name, Contracts: a.contracts})
		must(s.t, err)
		s.t.Cleanup(func() { _ = c.Close(context.Background()) })
		*a.to = c
	}
}

// worker carries out every inverse; the registry never takes anything back while it is broken.
func (s *stage) worker() {
	for name, inverses := range map[string][]string{
		"git-1": {"git.branch.delete", "git.commit.reset", "git.push.delete"}, "registry": {"registry.yank"},
		"cluster":     {"test.cluster.stop"},
		"travel-desk": {"flight.cancel", "hotel.cancel", "calendar.withdraw", "card.refund"},
	} {
		w, err := worker.New(worker.Config{Conn: s.conn, Tenant: tenant, Name: name})
		must(s.t, err)
		for i, inverse := range inverses {
			must(s.t, w.Handle(inverse, func(ctx context.Context, c api.Command) (worker.Result, error) {
				return worker.Result{}, s.undo(ctx, c, time.Duration(30+25*i)*time.Millisecond)
			}))
		}
		s.t.Cleanup(func() { _ = w.Close(context.Background()) })
	}
}

func (s *stage) undo(ctx context.Context, c api.Command, takes time.Duration) error {
	s.mu.Lock()
	gate, broken := s.gates[c.Plan], s.broken
	s.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
	}
	if broken && c.Capability == "registry.yank" {
		return errors.New("the registry answers 403: version is in use by 14 others")
	}
	return nil
}

// do plays actions of a plan, "capability name" each; those behind "|" come after the
// actions of these names only.
func (s *stage) do(p *coordinator.Plan, actions ...string) {
	for _, text := range actions {
		text, after, branch := strings.Cut(text, " | ")
		capability, name, _ := strings.Cut(text, " ")
		a := coordinator.Action{
			ID: name, Capability: capability, Input: map[string]any{"name": name, "dry_run": false}, Branch: branch,
		}
		if after != "" {
			a.After = strings.Fields(after)
		}
		_, err := p.Do(context.Background(), a, func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			return coordinator.Outcome{Output: map[string]string{"ref": "r-" + name}, ExternalRef: "r-" + name}, nil
		})
		if err != nil {
			s.t.Errorf("%s: %v", text, err)
		}
	}
}

func (s *stage) begin(c *coordinator.Coordinator, plan coordinator.PlanSpec) *coordinator.Plan {
	p, err := c.Begin(context.Background(), plan)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// end fails a plan and waits for its end.
func (s *stage) end(p *coordinator.Plan, reason string) {
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	if err := p.Fail(ctx, reason); err != nil {
		s.t.Error(err)
	}
	if _, err := p.Wait(ctx); err != nil {
		s.t.Error(err)
	}
}

// assert puts a fact.
func (s *stage) assert(source, key, value string) {
	s.append(
		ledger.Source{Tenant: tenant, Class: ledger.ClassFact, Name: source},
		&pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: key, Value: []byte(value)}}},
	)
}

func (s *stage) append(source ledger.Source, records ...*pb.Record) uint64 {
	data, err := ledger.EncodeCommit(records)
	if err != nil {
		s.t.Error(err)
		return 0
	}
	appender, err := jetstream.Attach(s.conn, tenant)
	if err == nil {
		var sequence uint64
		if sequence, err = appender.Append(
			context.Background(), ledger.Append{Subject: source.Subject(), ID: jetstream.NewID(), Data: data},
		); err == nil {
			return sequence
		}
	}
	s.t.Error(err)
	return 0
}

// play puts plans of every state on the stage.
func (s *stage) play() {
	ctx := context.Background()
	for i, price := range []string{"412.5", "399", "431"} {
		s.assert("fares", "fare.lis-ber", price)
		s.assert("fares", fmt.Sprintf("seat.1%dC", i), `{"free": true, "class": "economy"}`)
	}
	for i := range 7 {
		p := s.begin(
			s.coder,
			coordinator.PlanSpec{
				ID: fmt.Sprintf("nightly-%d", i+1), Label: fmt.Sprintf("nightly build %d", i+1),
				Labels: map[string]string{"kind": "nightly"},
			},
		)
		s.do(p, fmt.Sprintf("git.branch.create n%d", i), "git.commit c1")
		if err := p.Commit(ctx); err != nil {
			s.t.Error(err)
		}
	}
	tried := s.begin(s.coder, coordinator.PlanSpec{ID: "try-cache", Label: "try the new cache", Owner: "platform"})
	s.do(tried, "git.branch.create cache", "git.commit keys", "git.commit eviction", "git.push cache-branch")
	s.end(tried, "two tests are slower than before")

	release := s.begin(
		s.coder,
		coordinator.PlanSpec{
			ID: "release-2-4", Label: "release 2.4", Owner: "platform", OnUndoFailure: coordinator.ContinueOnUndoFailure,
			Labels: map[string]string{"env": "prod"},
		},
	)
	s.do(
		release, "git.branch.create release", "git.commit notes", "git.push release-branch | notes",
		"test.cluster.start smoke | notes", "docs.render manual | notes", "registry.publish package | release-branch smoke",
	)
	s.end(release, "the smoke test failed on arm64")

	trip := s.begin(s.travel, coordinator.PlanSpec{ID: "offsite-june", Label: "book the offsite in June", Owner: "travel",
		Deadline: 3 * time.Hour, Triggers: map[string]string{
			"too-expensive": `facts["fare.lis-ber"] > 500.0`, "no-room": `facts["hotel.closed"] == true`,
			"nobody-answers": `absent_for("reply.offsite", plan.opened_at, duration("2h30m"))`,
		}})
	s.do(trip, "flight.book lis-ber", "hotel.book riverside | lis-ber", "calendar.invite team | lis-ber")
	child, err := trip.Begin(ctx, coordinator.PlanSpec{ID: "offsite-dinner", Label: "dinner for twelve"})
	must(s.t, err)
	s.do(child, "card.charge deposit")
	must(s.t, child.Commit(ctx))
	if err := trip.Savepoint(ctx, "booked"); err != nil {
		s.t.Error(err)
	}
	s.do(trip, "card.charge balance")

	thanks := s.begin(s.travel, coordinator.PlanSpec{ID: "thank-you", Label: "thank the speakers", Owner: "travel"})
	s.do(thanks, "calendar.invite call", "mail.send letters")
	s.end(thanks, "the list of names was last year's")
}

// judged has two actions wait for a verdict.
func (s *stage) judged() {
	launch := s.begin(s.travel, coordinator.PlanSpec{ID: "summer-party", Label: "plan the summer party",
		Owner: "travel", Deadline: 5 * time.Hour})
	s.do(launch, "calendar.invite everyone", "card.charge band")
	s.waits(launch, "card.charge", "deposit-of-4800")
	s.waiting(1)
	s.waits(s.begin(s.coder, coordinator.PlanSpec{ID: "hotfix-7", Label: "hotfix 7"}), "git.push", "hotfix-branch")
	s.waiting(2)
}

// lively begins the plan that fails before the eyes of a page; each of its undos waits.
func (s *stage) lively() {
	s.mu.Lock()
	s.gates["live-1"] = make(chan struct{}, 16)
	s.mu.Unlock()
	s.live = s.begin(s.coder, coordinator.PlanSpec{ID: "live-1", Label: "move the search index", Owner: "platform"})
	s.do(s.live, "git.branch.create index", "git.commit mapping", "git.push index-branch", "test.cluster.start reindex")
}

// hostile is a text that would run, close or hide something if a page let it.
const hostile = `"><script>window.pwned=1</script><img src=x onerror="window.pwned=2">{{.}}'--></style></textarea>` +
	"\u202e\x07" + `javascript:window.pwned=3`

// menace puts hostile texts into every field that an agent, a worker, a source or an
// operator can fill.
func (s *stage) menace() {
	ctx := context.Background()
	evil, err := coordinator.New(coordinator.Config{Conn: s.conn, Tenant: tenant, Agent: "evil",
		Contracts: []contract.Contract{
			{
				Capability: "evil.do", Class: contract.Compensable,
				Inverse: &contract.Inverse{Call: "evil.undo", With: map[string]any{"x": hostile, "y": "=input.x"}, Attempts: 1},
			},
			{Capability: "evil.stay", Class: contract.Irreversible},
		}})
	must(s.t, err)
	s.t.Cleanup(func() { _ = evil.Close(ctx) })
	w, err := worker.New(worker.Config{Conn: s.conn, Tenant: tenant, Name: "evil"})
	must(s.t, err)
	s.t.Cleanup(func() { _ = w.Close(ctx) })
	must(s.t, w.Handle("evil.undo", func(context.Context, api.Command) (worker.Result, error) {
		return worker.Result{}, worker.Stop(errors.New(hostile))
	}))
	p := s.begin(
		evil,
		coordinator.PlanSpec{
			ID: "evil-1", Label: hostile, Owner: hostile, Labels: map[string]string{"k": hostile},
			Triggers: map[string]string{
				"evil": `facts["evil<script>"] == "` + strings.ReplaceAll(hostile[:60], `"`, `\"`) + `"`,
			},
		},
	)
	_, err = p.Do(ctx, coordinator.Action{
		ID: "a1", Capability: "evil.do", Input: map[string]string{"x": hostile},
	}, func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
		return coordinator.Outcome{Output: map[string]string{"x": hostile}, ExternalRef: hostile}, nil
	})
	must(s.t, err)
	_, err = p.Do(ctx, coordinator.Action{ID: "a2", Capability: "evil.stay", Input: hostile}, func(
		context.Context, coordinator.Call,
	) (coordinator.Outcome, error) {
		return coordinator.Outcome{}, errors.New(hostile)
	})
	if err == nil {
		s.t.Error("the hostile forward did not fail")
	}
	s.end(p, hostile)
	value, _ := json.Marshal(map[string]string{hostile: hostile})
	s.assert("evil", "evil<script>", string(value))
	s.append(
		ledger.Source{Tenant: tenant, Class: ledger.ClassOperator, Name: "mallory"},
		&pb.Record{
			Plan: "evil-1",
			Kind: &pb.Record_CancelRequested{CancelRequested: &pb.CancelRequested{Reason: hostile, Actor: hostile}},
		},
	)
}

// direct serves the scenes, so that a browser's script can ask for them.
func (s *stage) direct() *httptest.Server {
	scenes := map[string]func(){
		"/lively": s.lively, "/menace": s.menace,
		"/fail":   func() { go func() { _ = s.live.Fail(context.Background(), "the new mapping loses accents") }() },
		"/step":   func() { s.gates["live-1"] <- struct{}{} },
		"/repair": func() { s.mu.Lock(); s.broken = false; s.mu.Unlock() },
		"/detach": func() { s.detach() },
		"/attach": func() { s.detach = s.console.Attach(s.host, s.conn) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/foreign" { // a page of another origin that submits a form to the console
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(
				w,
				`<link rel="icon" href="data:,"><form method="post" action=%q><input name="reason" value="x"></form><script>document.forms[0].submit()</script>`,
				r.URL.Query().Get("to"),
			)
			return
		}
		if r.URL.Path == "/cookies" { // what a browser sends to another port
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, `<link rel="icon" href="data:,"><body>%s`, cmp.Or(r.Header.Get("Cookie"), "none"))
			return
		}
		scene := scenes[r.URL.Path]
		if scene == nil {
			http.NotFound(w, r)
			return
		}
		scene()
	}))
	s.t.Cleanup(server.Close)
	return server
}

// plan is a plan as the host has it.
func (s *stage) plan(id string) api.Plan {
	s.t.Helper()
	answer, err := s.host.Ask(tenant, "plan.show", api.PlanQuery{Plan: id})
	must(s.t, err)
	return answer.(api.PlanAnswer).Plan
}

// settle waits until all that these plans have said is folded, and returns the last sequence.
func (s *stage) settle(plans ...*coordinator.Plan) uint64 {
	s.t.Helper()
	for _, p := range plans {
		must(s.t, p.Flush(s.t.Context()))
	}
	store, err := s.host.Ledger(tenant)
	must(s.t, err)
	head, err := store.Head(s.t.Context())
	must(s.t, err)
	answer, err := s.host.Ask(tenant, "plan.outcome", api.OutcomeQuery{Plan: "none", Sequence: head.Last})
	if o := answer.(api.OutcomeAnswer); o.Applied != head.Last { // there is no such plan
		s.t.Fatalf("folded %d of %d: %v", o.Applied, head.Last, err)
	}
	return head.Last
}
