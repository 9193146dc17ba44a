package coordinator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/connect"
	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/replay"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// asAgent makes the test binary an agent: a process of its own, to be killed. Its
// value is server, provider, plan and rule.
const asAgent = "SAGENBAUM_TEST_AS_AGENT"

// Exit codes of the agent.
const (
	agentCommitted = 0
	agentFailed    = 1
	agentUnwound   = 3
)

func TestMain(m *testing.M) {
	if words := strings.Fields(os.Getenv(asAgent)); len(words) == 4 {
		os.Exit(agent(words[0], words[1], words[2], words[3]))
	}
	testenv.Parallel(8) // those of replay wait for agents to be lost, each with a server of its own
	os.Exit(m.Run())
}

// agentConnection connects with the credentials that the test has put in the environment.
func agentConnection(server string) (*nats.Conn, error) {
	options, _, err := connect.File(os.Getenv("SAGENBAUM_CREDS"), "")
	if err != nil {
		return nil, err
	}
	return nats.Connect(server, options...)
}

// agent is the program that is killed: five actions at a provider, the last of which
// is refused where the plan is to fail.
func agent(server, provider, plan, rule string) int {
	conn, err := agentConnection(server)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return agentFailed
	}
	defer conn.Close()
	c, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: "default", Agent: "a1"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return agentFailed
	}
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	defer c.Close(ctx)
	if strings.HasPrefix(rule, "stage") {
		return stages(ctx, plan, rule == "stage-run", conn)
	}
	if rule == "resume" {
		return byHand(ctx, provider, plan, strings.HasPrefix(plan, "good"), conn)
	}
	for {
		err = replay.Run(ctx, c, replay.Config{Plan: coordinator.PlanSpec{ID: plan}, Function: "five"},
			five(provider, rule, strings.HasPrefix(plan, "good")))
		if !errors.Is(err, coordinator.ErrRunning) { // the server has not seen yet that the killed one is gone
			break
		}
	}
	var unwound *replay.Unwound
	switch {
	case err == nil:
		return agentCommitted
	case errors.As(err, &unwound) && unwound.State == ledger.StateCompensated:
		return agentUnwound
	}
	fmt.Fprintln(os.Stderr, err)
	return agentFailed
}

// byHand is an agent without Run: it resumes its plan, goes on with the number after the
// last one, and gives up where no one knows whether an action happened.
func byHand(ctx context.Context, provider, plan string, good bool, conn *nats.Conn) int {
	c, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: "default", Agent: "a1",
		Contracts: []contract.Contract{steps()}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return agentFailed
	}
	defer c.Close(ctx)
	p, err := c.Resume(ctx, plan)
	var refused *ledger.Refused
	switch {
	case errors.Is(err, coordinator.ErrUnwinding), errors.As(err, &refused) &&
		strings.HasPrefix(refused.Problem, "it is "):
		return endOf(c.Wait(ctx, plan))
	case errors.As(err, &refused): // killed before anything was stored
		p, err = c.Begin(ctx, coordinator.PlanSpec{ID: plan})
	}
	if err == nil {
		err = allSteps(ctx, p, provider, good)
	}
	if err == nil {
		err = p.Commit(ctx)
	} else if p != nil {
		err = p.Fail(ctx, err.Error())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return agentFailed
	}
	return endOf(c.Wait(ctx, plan))
}

// stages is an agent that stages two acts, and waits until they are delivered.
func stages(ctx context.Context, plan string, runs bool, conn *nats.Conn) int {
	c, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: "default", Agent: "a1", Contracts: mails()})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return agentFailed
	}
	defer c.Close(ctx)
	to := func(id string) any { return map[string]any{"to": id + "-" + plan} }
	if runs {
		for err = coordinator.ErrRunning; errors.Is(err, coordinator.ErrRunning); {
			err = replay.Run(ctx, c, replay.Config{Plan: coordinator.PlanSpec{ID: plan}, Function: "mails"},
				func(ctx context.Context, p *replay.Plan) error {
					return errors.Join(p.Stage(ctx, replay.Action{ID: "m", Capability: "mail.send", Input: to("m")}),
						p.Stage(ctx, replay.Action{ID: "n", Capability: "mail.send", Input: to("n")}))
				})
		}
	} else {
		err = stagesByHand(ctx, c, plan, to)
	}
	d, waited := c.Delivered(ctx, plan)
	if err = errors.Join(err, waited); err != nil || d.State != ledger.StateDelivered ||
		!slices.Equal(d.Delivered, []string{"m", "n"}) {
		fmt.Fprintln(os.Stderr, d, err)
		return agentFailed
	}
	return agentCommitted
}

func stagesByHand(ctx context.Context, c *coordinator.Coordinator, plan string, to func(string) any) error {
	p, err := c.Resume(ctx, plan)
	var refused *ledger.Refused
	switch {
	case errors.As(err, &refused) && strings.HasPrefix(refused.Problem, "it is "):
		return nil // it was committed
	case errors.As(err, &refused): // killed before anything was stored
		p, err = c.Begin(ctx, coordinator.PlanSpec{ID: plan})
	}
	if err != nil {
		return err
	}
	for _, id := range []string{"m", "n"} {
		if err := p.Stage(ctx, coordinator.Action{ID: id, Capability: "mail.send", Input: to(id)}); err != nil {
			return err
		}
	}
	return p.Commit(ctx)
}

func allSteps(ctx context.Context, p *coordinator.Plan, provider string, good bool) error {
	recorded := p.Recorded()
	for _, past := range recorded {
		if past.Outcome != api.OutcomeCompleted {
			return &past
		}
	}
	for n := len(recorded); n < 5; n++ {
		id := string("abcde"[n])
		_, err := p.Do(ctx, coordinator.Action{Capability: "tour.step", Input: map[string]string{"provider": provider,
			"id": id}}, func(ctx context.Context, call coordinator.Call) (coordinator.Outcome, error) {
			if id == "e" && !good {
				return coordinator.Outcome{}, coordinator.NotTaken(errNoRoom)
			}
			return coordinator.Outcome{Output: id}, post(ctx, provider, "do", p.ID(), id, call.Key)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func endOf(end coordinator.End, err error) int {
	switch {
	case err == nil && end.State == ledger.StateCommitted:
		return agentCommitted
	case err == nil && (end.State == ledger.StateCompensated || end.State == ledger.StateFailed):
		return agentUnwound
	}
	fmt.Fprintln(os.Stderr, end, err)
	return agentFailed
}

// steps is what an agent without Run does. Its forward ends with its process.
func steps() contract.Contract {
	with := map[string]any{"provider": "=input.provider", "id": "=input.id", "forward": "=meta.forward_key"}
	return contract.Contract{
		Capability: "tour.step", Class: contract.Compensable, Late: contract.LateNever, Grace: 50 * time.Millisecond,
		Inverse: &contract.Inverse{Call: "tour.back", With: with, Attempts: 10, Backoff: time.Millisecond},
		Probe:   &contract.Probe{Call: "tour.find", With: with},
	}
}

// undoSteps serves the undos of steps, and the questions about them.
func (l *live) undoSteps() {
	called := func(c api.Command) (plan string, arguments map[string]string, err error) {
		return c.Plan, arguments, json.Unmarshal(c.Arguments, &arguments)
	}
	l.undo("tour.back", func(ctx context.Context, c api.Command) (worker.Result, error) {
		plan, with, err := called(c)
		if err != nil {
			return worker.Result{}, err
		}
		return worker.Result{}, post(ctx, with["provider"], "undo", plan, with["id"], c.Key)
	})
	if err := l.work.Answer("tour.find", func(ctx context.Context, c api.Command) (worker.Answer, error) {
		plan, with, err := called(c)
		if err != nil {
			return worker.Answer{}, err
		}
		if post(ctx, with["provider"], "find", plan, with["id"], with["forward"]) != nil {
			return worker.Absent(), nil
		}
		return worker.Present(with["id"]), nil
	}); err != nil {
		l.t.Fatal(err)
	}
}

func five(provider, rule string, good bool) func(context.Context, *replay.Plan) error {
	return func(ctx context.Context, p *replay.Plan) error {
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			a := replay.Action{ID: id, Capability: "tour." + id, Input: id, Repeat: rule == "repeat",
				Undo: &replay.Undo{
					Handler: func(ctx context.Context, u replay.UndoCall) error {
						return post(ctx, provider, "undo", p.ID(), id, u.Key)
					},
					Contract: contract.Contract{Late: contract.LateNever, Grace: 50 * time.Millisecond,
						Inverse: &contract.Inverse{Attempts: 10, Backoff: time.Millisecond, Timeout: 300 * time.Millisecond}},
				}}
			if rule == "find" {
				a.Find = func(ctx context.Context, call coordinator.Call) (coordinator.Outcome, bool, error) {
					err := post(ctx, provider, "find", p.ID(), id, call.Key)
					return coordinator.Outcome{Output: id}, err == nil, nil
				}
			}
			output, err := p.Do(ctx, a, func(ctx context.Context, call coordinator.Call) (coordinator.Outcome, error) {
				if id == "e" && !good {
					return coordinator.Outcome{}, coordinator.NotTaken(errNoRoom)
				}
				return coordinator.Outcome{Output: id}, post(ctx, provider, "do", p.ID(), id, call.Key)
			})
			if err != nil {
				return err
			}
			if string(output) != `"`+id+`"` {
				return fmt.Errorf("the output of %s is %s", id, output)
			}
		}
		return nil
	}
}

func post(ctx context.Context, provider string, words ...string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, provider+"/"+strings.Join(words, "/"), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// counter is the provider: it counts what it was asked for, and can strike in the
// middle of a request, when the effect is there and no one has been told.
type counter struct {
	mu     sync.Mutex
	count  map[string]int // "do/plan/action/key"
	order  []string       // what came first under its key
	seen   int            // requests with an effect
	only   string         // what requests begin with that count
	strike func(seen int) bool
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	what := strings.TrimPrefix(r.URL.Path, "/")
	if done, ok := strings.CutPrefix(what, "find/"); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.count["do/"+done] == 0 {
			w.WriteHeader(http.StatusNotFound)
		}
		return
	}
	if c.happened(what) {
		<-r.Context().Done() // until who asked is dead
	}
}

// happened counts an effect, and reports whether to strike.
func (c *counter) happened(what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count[what]++; c.count[what] == 1 {
		c.order = append(c.order, what)
	}
	if !strings.HasPrefix(what, c.only) {
		return false
	}
	c.seen++
	return c.strike != nil && c.strike(c.seen)
}

// TestB1AnAgentKilledAnywhereRunsEachForwardOnceAndIsUndoneWhole: a real process is
// killed with -9 after the n-th commit to the ledger, or inside the n-th request to
// the provider, for every n there is, in the unwind too, and is started again.
func TestB1AnAgentKilledAnywhereRunsEachForwardOnceAndIsUndoneWhole(t *testing.T) {
	t.Parallel()
	for _, variant := range []struct {
		rule, plan string
		request    bool // strike inside requests
		least      int  // kills
	}{
		{"find", "bad", false, 9},
		{"find", "bad", true, 8},
		{"none", "bad", true, 8},
		{"repeat", "bad", true, 8},
		{"find", "good", false, 7},
		{"resume", "bad", false, 10},
		{"resume", "bad", true, 4},
		{"resume", "good", false, 7},
	} {
		t.Run(fmt.Sprintf("%s-%s-%v", variant.rule, variant.plan, variant.request), func(t *testing.T) {
			t.Parallel()
			l := newLive(t, coordinator.Config{})
			l.undoSteps()
			const together = 4 // they wait until the loss of an agent is known
			kills, ended := 0, false
			for n := 1; !ended && !t.Failed(); n += together {
				var killed [together]bool
				t.Run(fmt.Sprint("from ", n), func(t *testing.T) {
					for i := range killed {
						plan := fmt.Sprintf("%s-%03d", variant.plan, n+i)
						t.Run(plan, func(t *testing.T) {
							t.Parallel()
							killed[i] = killedAgent(t, l, n+i, variant.rule, plan, variant.request)
						})
					}
				})
				for _, hit := range killed {
					if ended = ended || !hit; !ended {
						kills++
					}
				}
			}
			t.Logf("killed %d times", kills)
			if kills < variant.least {
				t.Errorf("killed only %d times: the plan was not played", kills)
			}
		})
	}
}

// killedAgent plays one plan, and reports whether there was an n-th place to be killed at.
func killedAgent(t *testing.T, l *live, n int, rule, plan string, request bool) (killed bool) {
	c := &counter{count: map[string]int{}}
	hit := make(chan struct{})
	if request {
		if rule == "resume" { // its undos are a worker's
			c.only = "do/"
		}
		c.strike = func(seen int) bool {
			if seen == n {
				close(hit)
			}
			return seen == n
		}
	} else {
		l.atCommit(t, n, plan, hit)
	}
	provider := httptest.NewServer(c)
	defer provider.Close()
	code, said := l.lives(t, provider.URL, plan, rule, hit, &killed)
	c.check(t, fmt.Sprintf("%s killed at %d: exit %d %s", plan, n, code, said), code, rule, killed)
	l.refusesNone(t, plan)
	return killed
}

// atCommit closes hit at the n-th commit about a plan.
func (l *live) atCommit(t *testing.T, n int, plan string, hit chan struct{}) {
	t.Helper()
	seen := 0
	sub, err := l.root.Subscribe("saga.default.>", func(m *nats.Msg) {
		if !bytes.Contains(m.Data, []byte(plan)) {
			return
		}
		if seen++; seen == n {
			close(hit)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() }) // it may have ended with its connection
	if err := l.root.Flush(); err != nil {
		t.Fatal(err)
	}
}

// refusesNone wants that the ledger has refused nothing of a plan.
func (l *live) refusesNone(t *testing.T, plan string) {
	t.Helper()
	for _, refused := range l.shown(plan).Refused {
		// What was killed after the end of its plan was stored, and before it was folded, is looked up as open.
		if refused.Kind != "plan_resumed" || !strings.HasSuffix(refused.Reason, " and is not resumed") {
			t.Errorf("the ledger has refused %+v", refused)
		}
	}
}

// TestAnAgentKilledAnywhereStagesEachActOnce: a real process is killed with -9 after each commit to
// the ledger, so also between the pair of a staged act and what tells it that it is staged, and is
// started again; with and without Run.
func TestAnAgentKilledAnywhereStagesEachActOnce(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{"stage", "stage-run"} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			l := newMailer(t)
			kills, killed := 0, true
			for ; killed && !t.Failed(); kills++ {
				plan, hit := fmt.Sprintf("%s-%03d", rule, kills+1), make(chan struct{})
				l.atCommit(t, kills+1, plan, hit)
				killed = false
				if code, said := l.lives(t, "none", plan, rule, hit, &killed); code != agentCommitted {
					t.Errorf("%s: exit %d %s", plan, code, said)
				}
				var sent []string
				for mail := range strings.FieldsSeq(l.mails()) {
					if strings.Contains(mail, plan) {
						sent = append(sent, mail)
					}
				}
				if got, want := strings.Join(sent, " "), fmt.Sprintf(`{"to":"m-%s"} {"to":"n-%[1]s"}`, plan); got != want {
					t.Errorf("sent %s, want %s", got, want)
				}
				l.refusesNone(t, plan)
			}
			if kills--; kills < 5 { // the opening, two pairs, the commit, what delivers them
				t.Errorf("killed only %d times: the plan was not played", kills)
			}
		})
	}
}

// check wants each forward once, in order, and of a plan that failed each undo in the
// reverse order. A forward that repeats may have been killed in; without a rule the
// plan fails there.
func (c *counter) check(t *testing.T, what string, code int, rule string, killed bool) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var did, undid []string
	double := 0
	for _, effect := range c.order {
		words := strings.Split(effect, "/")
		if words[0] == "undo" {
			undid = append(undid, words[2])
			continue
		}
		did = append(did, words[2])
		double += c.count[effect] - 1
	}
	may, done, want := 0, "abcd", agentUnwound
	switch {
	case strings.HasPrefix(what, "good") && (rule != "resume" || code == agentCommitted):
		done, want = "abcde", agentCommitted
	case rule == "none", rule == "resume":
		done = "abcde"[:len(did)]
	}
	if rule == "repeat" && killed {
		may = 1
	}
	got := strings.Join(did, "")
	if want == agentUnwound {
		slices.Reverse(undid)
		done, got = done+done, got+strings.Join(undid, "")
	}
	if code != want || got != done || double > may {
		t.Errorf("%s: effects %v, %d twice", what, c.order, double)
	}
}

// lives runs the agent, kills it when it is hit, and runs it again to its own end.
func (l *live) lives(t *testing.T, provider, plan, rule string, hit <-chan struct{}, killed *bool) (code int,
	said string) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for {
		var stderr bytes.Buffer
		command := exec.CommandContext(t.Context(), self)
		command.Env = slices.Concat(os.Environ(),
			[]string{"SAGENBAUM_CREDS=" + l.creds,
				asAgent + "=" + strings.Join([]string{l.url, provider, plan, rule}, " ")})
		command.Stderr = &stderr
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { // ends with the process
			_ = command.Wait() // its exit code is looked at
			close(ended)
		}()
		if !*killed {
			select {
			case <-hit:
				_ = command.Process.Kill() // it may have ended by itself
				<-ended
				*killed = true
				continue
			case <-ended:
				select {
				case <-hit: // as it ended by itself: there was such a place
					*killed = true
					continue
				default:
				}
			}
		}
		<-ended
		return command.ProcessState.ExitCode(), stderr.String()
	}
}
