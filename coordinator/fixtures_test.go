package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

const tenant = "default"

func contracts() []contract.Contract {
	return []contract.Contract{
		{
			Capability: "file.write", Class: contract.Compensable, Lift: []string{"path", "size"},
			Inverse: &contract.Inverse{Call: "file.delete", With: map[string]any{"path": "=input.path"}},
		},
		{Capability: "mail.send", Class: contract.Irreversible},
		{Capability: "file.read", Class: contract.Effectless},
	}
}

// memory returns a store whose stamps are the test's clock.
func memory() *ledger.Memory {
	return ledger.NewMemory(tenant, func() int64 { return time.Now().UnixNano() })
}

// start returns a coordinator that is closed at the end of the test. b may be nil.
func start(t *testing.T, store Appender, b bus) *Coordinator {
	t.Helper()
	c, err := newCoordinator(Config{Appender: store, Tenant: tenant, Agent: "a1", Contracts: contracts()}, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Logf("close: %v", err) // a store that a test has broken for good
		}
	})
	return c
}

func begin(t *testing.T, c *Coordinator, plan PlanSpec) *Plan {
	t.Helper()
	p, err := c.Begin(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func write(id string) Action {
	return Action{ID: id, Capability: "file.write", Input: map[string]any{"path": "/tmp/" + id}}
}

// happens is a forward whose effect happens.
func happens(context.Context, Call) (Outcome, error) {
	return Outcome{Output: map[string]any{"size": 7}, ExternalRef: "inode-7"}, nil
}

func mustDo(t *testing.T, p *Plan, a Action) {
	t.Helper()
	if _, err := p.Do(t.Context(), a, happens); err != nil {
		t.Fatal(err)
	}
}

// commit is one stored message, read back.
type commit struct {
	subject string
	size    int
	records []*pb.Record
}

func stored(t *testing.T, store ledger.Store) []commit {
	t.Helper()
	ctx := t.Context()
	head, err := store.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var commits []commit
	for seq := uint64(1); seq <= head.Last; seq++ {
		m, err := store.Get(ctx, seq)
		if err != nil {
			t.Fatal(err)
		}
		entries, err := ledger.Decode(tenant, m)
		if err != nil {
			t.Fatal(err)
		}
		c := commit{subject: m.Subject, size: len(m.Data)}
		for _, e := range entries {
			if e.Err != nil {
				t.Fatalf("message %d holds a record that the fold refuses: %v", seq, e.Err)
			}
			c.records = append(c.records, e.Record)
		}
		commits = append(commits, c)
	}
	return commits
}

// name is a record in short, as in "forward_completed/a".
func name(r *pb.Record) string {
	text := ledger.KindOf(r).Name
	if r.Action != "" {
		text += "/" + r.Action
	}
	return text
}

// lines is what a store holds, one commit a line.
func lines(t *testing.T, store ledger.Store) string {
	t.Helper()
	var all []string
	for _, c := range stored(t, store) {
		var line []string
		for _, r := range c.records {
			line = append(line, name(r))
		}
		all = append(all, strings.Join(line, " "))
	}
	return strings.Join(all, "\n")
}

func wantLines(t *testing.T, store ledger.Store, want ...string) {
	t.Helper()
	if got, want := lines(t, store), strings.Join(want, "\n"); got != want {
		t.Errorf("the ledger holds\n%s\nwant\n%s", got, want)
	}
}

// effective is what a fold keeps of a plan: the first record of each name, in
// order, with the plan's id left out.
func effective(t *testing.T, store ledger.Store, plan string) string {
	t.Helper()
	var names []string
	seen := map[string]bool{}
	for _, c := range stored(t, store) {
		for _, r := range c.records {
			if r.Plan == plan && !seen[name(r)] {
				seen[name(r)] = true
				names = append(names, name(r))
			}
		}
	}
	return strings.Join(names, " ")
}

// find returns the only record of a name.
func find(t *testing.T, store ledger.Store, want string) *pb.Record {
	t.Helper()
	var found *pb.Record
	for _, c := range stored(t, store) {
		for _, r := range c.records {
			if name(r) == want {
				if found != nil {
					t.Fatalf("two records %s", want)
				}
				found = r
			}
		}
	}
	if found == nil {
		t.Fatalf("no record %s in\n%s", want, lines(t, store))
	}
	return found
}

// gate holds every append back until it is opened, and counts them.
type gate struct {
	ledger.Store
	open  chan struct{}
	mu    sync.Mutex
	tries int
}

func newGate(store ledger.Store) *gate { return &gate{Store: store, open: make(chan struct{})} }

func (g *gate) Append(ctx context.Context, a ledger.Append) (uint64, error) {
	g.mu.Lock()
	g.tries++
	g.mu.Unlock()
	select {
	case <-g.open:
		return g.Store.Append(ctx, a)
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: %v", ledger.ErrInDoubt, ctx.Err())
	}
}

// executor is a bus with a holder on it that answers from a script: the last
// line of it answers for ever, and one without a state is a problem. Without a script no one
// listens.
type executor struct {
	mu      sync.Mutex
	script  []api.OutcomeAnswer
	asked   []api.OutcomeQuery
	subject string
	notices map[string]func([]byte)
	back    func()
	serve   map[string]func(body []byte) any // by subject: what others answer; an error is no answer
}

func (e *executor) ask(ctx context.Context, subject string, body []byte) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if serve := e.serve[subject]; serve != nil {
		switch answer := serve(body).(type) {
		case error:
			return nil, answer
		case []byte:
			return answer, nil
		default:
			return json.Marshal(answer)
		}
	}
	if subject != api.QuerySubject(tenant, "plan.outcome") || len(e.script) == 0 {
		return nil, errNobody
	}
	var q api.OutcomeQuery
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, err
	}
	e.subject, e.asked = subject, append(e.asked, q)
	answer := e.script[0]
	if len(e.script) > 1 {
		e.script = e.script[1:]
	}
	if answer.State == "" {
		return json.Marshal(api.Problem{Text: answer.Reason})
	}
	return json.Marshal(answer)
}

// question is ask: who serves a subject is a worker, too.
func (e *executor) question(ctx context.Context, q question) ([]byte, error) {
	body, err := e.ask(ctx, q.subject, q.body)
	if err == nil && q.accept != nil {
		err = q.accept(body)
	}
	return body, err
}

func (e *executor) say(answers ...api.OutcomeAnswer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.script = answers
}

// closed: this one never is.
func (e *executor) closed(func(error)) func() { return func() {} }

// reconnected keeps what the end of an outage calls: back.
func (e *executor) reconnected(f func()) func() {
	e.back = f
	return func() {}
}

func (e *executor) listen(subject string, f func([]byte)) (func(), error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.notices == nil {
		e.notices = map[string]func([]byte){}
	}
	e.notices[subject] = f
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.notices, subject)
	}, nil
}

// answer: no process asks this one for a plan.
func (e *executor) answer(string, func([]byte) []byte) (func(), error) { return func() {}, nil }

func (e *executor) notify(t *testing.T, n api.Notice) {
	t.Helper()
	body, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	e.mu.Lock()
	f := e.notices[api.NoticeSubject(tenant, "a1", "*")]
	e.mu.Unlock()
	if f == nil {
		t.Fatal("no one listens to notices")
	}
	f(body)
}

func wantRefused(t *testing.T, err error, field string) {
	t.Helper()
	var refused *ledger.Refused
	if !errors.As(err, &refused) || refused.Field != field {
		t.Errorf("got %v, want a refusal of %s", err, field)
	}
}

func wantIs(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

// in runs a test with a clock of its own, which moves when everyone waits.
func in(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// elapse lets time pass, and then everything that is due happen.
func elapse(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
