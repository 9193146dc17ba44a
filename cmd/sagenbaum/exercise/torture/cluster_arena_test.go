//go:build exercise && linux

package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// arena is a NATS cluster, hosts on it, and agents at work.
type arena struct {
	cluster *natsCluster
	ttl     time.Duration
	dir     string
	hosts   map[string]*cmdtest.Served
	through map[string]string // host -> URLs of its own instead of the cluster's
	inside  map[string]string // host -> network namespace
	conn    *nats.Conn
	client  *cli.Client
	load    *load
	orders  *orders
	losses  []loss
}

// loss is the end of a holder as the test made it.
type loss struct {
	at   time.Time
	term uint64 // that it held
	how  string
	max  time.Duration // promised until the next holder decides
}

// orders are the undos that were sent, by term; a second subscriber sees them all.
type orders struct {
	mu    sync.Mutex
	first map[uint64]time.Time
	last  map[uint64][]byte
}

// newArena starts a cluster, these hosts and agents; the first host holds.
func newArena(t *testing.T, ctx context.Context, ttl time.Duration, hosts ...string) *arena {
	t.Helper()
	a := plainArena(t, startCluster(t, ctx), ctx, ttl)
	for _, name := range hosts {
		a.start(t, name)
	}
	a.work(t, ctx)
	return a
}

// plainArena has a running cluster and nobody on it.
func plainArena(t *testing.T, c *natsCluster, ctx context.Context, ttl time.Duration) *arena {
	t.Helper()
	a := &arena{
		cluster: c, ttl: ttl, dir: t.TempDir(), hosts: map[string]*cmdtest.Served{}, through: map[string]string{},
		inside: map[string]string{},
		orders: &orders{first: map[uint64]time.Time{}, last: map[uint64][]byte{}}, conn: c.connect(t, ctx, "host"),
	}
	a.client = &cli.Client{Conn: a.conn, Tenant: tortureTenant, Server: "the cluster", Timeout: 500 * time.Millisecond}
	return a
}

// start starts a host, or starts it again on its folder, and returns when the
// tenant is held by it or another one.
func (a *arena) start(t *testing.T, name string) *cmdtest.Served {
	t.Helper()
	urls := a.cluster.urls("host")
	if own := a.through[name]; own != "" {
		urls = own
	}
	dir := filepath.Join(a.dir, name)
	command := cmdtest.ServeCommand(t, dir, "--replicas", fmt.Sprint(nodeCount), "--holder", name,
		"--lease-ttl", a.ttl.String())
	// Not as arguments, which doctor finds on the machine.
	command.Env = append(command.Env, "SAGENBAUM_NATS="+urls, "SAGENBAUM_SYSTEM_NATS="+a.cluster.urls("system"))
	if namespace := a.inside[name]; namespace != "" {
		ip, err := exec.LookPath("ip")
		if err != nil {
			t.Fatal(err)
		}
		command.Path, command.Args = ip, append([]string{"ip", "netns", "exec", namespace, command.Path},
			command.Args[1:]...)
	}
	s := cmdtest.ServeAs(t, dir, command)
	s.Confess(t)
	a.hosts[name] = s
	return s
}

// work starts the agents and listens to the commands.
func (a *arena) work(t *testing.T, ctx context.Context) {
	t.Helper()
	listener := a.cluster.connect(t, ctx, "host")
	if _, err := listener.Subscribe(api.UndoSubject(tortureTenant, unmakeThing), a.orders.note); err != nil {
		t.Fatal(err)
	}
	// As startLoad, on connections that notice a server behind a pulled cable.
	l := &load{
		world: newProvider(), conn: a.cluster.connect(t, ctx, "host"), stop: make(chan struct{}),
		next:  make(chan struct{}),
		acked: map[string]bool{}, ends: map[string]string{},
	}
	l.maker = l.world.serveUnmake(t, a.cluster.connect(t, ctx, "host"))
	var err error
	if l.agent, err = tortureAgent(l.conn); err != nil {
		t.Fatal(err)
	}
	for n := range loadAgents {
		l.running.Go(func() { l.run(ctx, n) }) // ends with stop or ctx
	}
	a.load = l
}

func (o *orders) note(m *nats.Msg) {
	var c api.Command
	if json.Unmarshal(m.Data, &c) != nil || m.Reply == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, seen := o.first[c.Term]; !seen {
		o.first[c.Term] = time.Now()
	}
	o.last[c.Term] = m.Data
}

// firstAfter is when the first command of a term above this one was sent.
func (o *orders) firstAfter(term uint64) (at time.Time, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for n, when := range o.first {
		if n > term && (!ok || when.Before(at)) {
			at, ok = when, true
		}
	}
	return at, ok
}

// holder waits until somebody other than this host holds the tenant in a term
// above this one.
func (a *arena) holder(t *testing.T, ctx context.Context, not string, above uint64) api.Status {
	t.Helper()
	var status api.Status
	what := fmt.Sprintf("another host than %q holds the tenant in a term above %d", not, above)
	cmdtest.Until(t, ctx, what, func() bool {
		var err error
		status, err = a.client.Status(ctx)
		return err == nil && status.Mode == api.ModeHolding && status.Holder != not && status.Term > above
	})
	return status
}

// lose notes that a holder is about to be lost.
func (a *arena) lose(how string, status api.Status) {
	a.losses = append(a.losses, loss{time.Now(), status.Term, how, takeOverMax})
}

// takenOver waits until another host has sent commands in a later term, and some
// more work is done.
func (a *arena) takenOver(t *testing.T, ctx context.Context, was api.Status) api.Status {
	t.Helper()
	status := a.holder(t, ctx, was.Holder, was.Term)
	cmdtest.Until(t, ctx, "the next holder sends a command", func() bool {
		_, sent := a.orders.firstAfter(was.Term)
		return sent
	})
	return status
}

// termed is what the ledger says of its terms.
type termed struct {
	began  map[uint64]time.Time // stamp of its TermStarted
	first  map[uint64]time.Time // stamp of its first effective decision
	voided int
}

// checkTerms wants every effective record of a holder to be of the term that was
// begun last before it, terms to rise, and every void record to say why.
func checkTerms(t *testing.T, messages []ledger.Message) termed {
	t.Helper()
	out := termed{began: map[uint64]time.Time{}, first: map[uint64]time.Time{}}
	state, term := executor.Open(rows.NewMemoryKV(), tortureTenant, nil), uint64(0)
	for _, m := range messages {
		entries, err := ledger.Decode(tortureTenant, m)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			result := state.Apply(e)
			if result.Verdict == executor.Void {
				out.voided++
				if result.Reason == "" {
					t.Errorf("void at %s, and nobody says why", ledger.FormatAddress(e.Address))
				}
			}
			if e.Record == nil || e.Source.Class != ledger.ClassExecutor || result.Verdict != executor.Effective {
				continue
			}
			_, begins := e.Record.Kind.(*pb.Record_TermStarted)
			switch {
			case begins && e.Record.Term <= term:
				t.Errorf("term %d begins at %d behind term %d", e.Record.Term, m.Sequence, term)
			case begins:
				term = e.Record.Term
				out.began[term] = time.Unix(0, m.StampNs)
			case e.Record.Term != term:
				t.Errorf("an effective decision of term %d at %s, in term %d", e.Record.Term,
					ledger.FormatAddress(e.Address), term)
			case out.first[term].IsZero():
				out.first[term] = time.Unix(0, m.StampNs)
			}
		}
	}
	return out
}

// finish lets the agents end, waits until all is undone that has to be, stops the
// hosts and checks what load.finish checks, on every host, and the terms.
func (a *arena) finish(t *testing.T, ctx context.Context) {
	t.Helper()
	l := a.load
	close(l.stop)
	l.running.Wait()
	if len(l.errs) > 0 {
		t.Errorf("agents gave up: %v", l.errs)
	}
	if err := l.agent.Close(ctx); err != nil {
		t.Error(err)
	}
	for id := range l.ends {
		cmdtest.Until(t, ctx, "the end of "+id, func() bool {
			plan, err := a.client.Plan(ctx, id, 0)
			return err == nil && hasEnded(plan.State)
		})
	}
	status := settled(t, ctx, a.client)
	messages := stored(t, ctx, a.client)
	a.checkVoid(t, ctx, messages)
	a.awaitHosts(t, ctx, uint64(len(messages)))
	if err := l.maker.Close(ctx); err != nil {
		t.Error(err)
	}
	f := refold(t, messages)
	if missing := lost(f, l.acked, l.ends); len(missing) > 0 {
		t.Errorf("acknowledged and lost: %v", missing)
	}
	standing, held := l.checkPlans(t, f)
	again := l.world.checkOnce(t, standing)
	if status.Held != uint64(held) || status.Quarantined != 0 {
		t.Errorf("%d held, %d quarantined, want %d and none", status.Held, status.Quarantined, held)
	}
	terms := checkTerms(t, messages)
	for name, s := range a.hosts {
		if r := s.End(t); r.Code != cli.ExitGood {
			t.Errorf("%s ended with %d", name, r.Code)
		}
	}
	// A host that ends gives the tenant back and another one may begin a term: the
	// states are held against the ledger as the last one left it.
	for name := range a.hosts {
		a.checkState(t, ctx, name)
	}
	t.Logf("%d acknowledged, %d messages, %d terms, %d void, %d held at the end, %d undos came again under their key",
		l.acks, len(messages), len(terms.began), terms.voided, held, again)
	a.report(t, terms)
}

// awaitHosts waits until every host has folded everything, also those that stand by.
func (a *arena) awaitHosts(t *testing.T, ctx context.Context, applied uint64) {
	t.Helper()
	cmdtest.Until(t, ctx, fmt.Sprintf("all %d hosts have folded %d messages", len(a.hosts), applied), func() bool {
		hosts, err := a.client.Hosts(ctx)
		folded := 0
		for _, h := range hosts {
			if h.Applied >= applied {
				folded++
			}
		}
		return err == nil && folded == len(a.hosts)
	})
}

// checkState holds the state of a stopped host against a fold of what it has folded.
func (a *arena) checkState(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	messages := stored(t, ctx, a.client)
	applied := appliedBy(t, a.hosts[name])
	if applied > uint64(len(messages)) {
		t.Fatalf("%s has folded %d of %d messages", name, applied, len(messages))
	}
	messages = messages[:applied]
	checkDigest(t, a.hosts[name], refold(t, messages), messages)
}

// checkVoid wants `plan show` to say why each void decision about a plan is void.
func (a *arena) checkVoid(t *testing.T, ctx context.Context, messages []ledger.Message) {
	t.Helper()
	state := executor.Open(rows.NewMemoryKV(), tortureTenant, nil)
	for _, m := range messages {
		entries, err := ledger.Decode(tortureTenant, m)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if state.Apply(e).Verdict != executor.Void || e.Record.Plan == "" {
				continue
			}
			plan, err := a.client.Plan(ctx, e.Record.Plan, 0)
			shown := slices.ContainsFunc(plan.Refused, func(r api.Refused) bool {
				return r.Void && r.Sequence == e.Address.Sequence && r.Index == e.Address.Index && r.Reason != ""
			})
			if err != nil || !shown {
				t.Errorf("plan show %s does not explain the void record at %s: %v", e.Record.Plan,
					ledger.FormatAddress(e.Address), err)
			}
		}
	}
}

// report logs how long each loss left the tenant without a holder.
func (a *arena) report(t *testing.T, terms termed) {
	t.Helper()
	commands, decisions := map[string][]time.Duration{}, map[string][]time.Duration{}
	for _, l := range a.losses {
		if at, sent := a.orders.firstAfter(l.term); sent {
			commands[l.how] = append(commands[l.how], at.Sub(l.at))
		}
		var decided time.Time
		for term, at := range terms.first {
			if term > l.term && (decided.IsZero() || at.Before(decided)) {
				decided = at
			}
		}
		took := decided.Sub(l.at)
		if decided.IsZero() || took > l.max {
			t.Errorf("%s: the first decision of the next holder came after %v, want at most %v", l.how, took, l.max)
		}
		decisions[l.how] = append(decisions[l.how], took)
	}
	for how, took := range decisions {
		t.Logf("%s, lease of %v: to the first decision: %s; to the first command: %s", how, a.ttl, spread(took),
			spread(commands[how]))
	}
}

// takeOverMax is the promise for the lease that serve has by default.
const takeOverMax = 15 * time.Second

// appliedBy is how far a stopped host has folded.
func appliedBy(t *testing.T, s *cmdtest.Served) uint64 {
	t.Helper()
	db, err := pebble.Open(s.StatePath(), &pebble.Options{ReadOnly: true, Logger: quietLog{}})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	return view.NewReader(stateRows{db: db, prefix: append([]byte(tortureTenant), 0), fail: t.Fatal}, tortureTenant,
		nil).Applied()
}
