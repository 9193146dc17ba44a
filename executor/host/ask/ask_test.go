package ask

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/actuators"
	"github.com/sagenbaum/sagenbaum/executor/host/observe"
	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestOnlyOneRebuildRuns.
func TestOnlyOneRebuildRuns(t *testing.T) {
	t.Parallel()
	d := New(Config{Shared: new(Shared)})
	began := time.Now()
	d.Shared.rebuilding.Store(&began)
	if _, err := d.rebuild(); err == nil || !strings.Contains(err.Error(), "another rebuild") {
		t.Fatal(err)
	}
}

// TestWhatAWorkerOfAnotherVersionHasSaidIsKnownUntilOneOfTheVersionAnswers.
func TestWhatAWorkerOfAnotherVersionHasSaidIsKnownUntilOneOfTheVersionAnswers(t *testing.T) {
	t.Parallel()
	w := NewWorkers((*observe.Meter)(nil), time.Now, slog.New(slog.DiscardHandler))
	command := api.Command{Capability: "undo.a", WorkerVersion: "v2"}
	w.Heard(command, api.Reply{Status: api.StatusFailed, Code: api.CodeWorkerVersion, Message: "this worker is v1"}, 5)
	if w.at("undo.a") != 5 || w.otherVersion("undo.a", "v2") != "this worker is v1" ||
		w.otherVersion("undo.a", "v3") != "" {
		t.Errorf("%+v", w.other)
	}
	w.Heard(command, api.Reply{Status: api.StatusDone}, 6)
	if w.otherVersion("undo.a", "v2") != "" {
		t.Error("one of the version has answered since")
	}
}

// TestAFieldOfAReportThatCannotBeReadIsNamed, as one of an answer, and no answer is refused.
func TestAFieldOfAReportThatCannotBeReadIsNamed(t *testing.T) {
	t.Parallel()
	w := NewWorkers((*observe.Meter)(nil), time.Now, slog.New(slog.DiscardHandler))
	entries, err := ledger.Decode("t", ledger.Message{Sequence: 1, Subject: "saga.t.worker.py",
		ContentType: ledger.ContentTypeJSON, Data: []byte(`{"records":[{"plan":"p","action":"a",` +
			`"compensationReported":{"attempt":1,"key":"k","answer":"ANSWER_DONE","worknS":5}}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	w.Read(entries[0])
	refused, unread := w.notCounted()
	if refused != nil || unread == nil || unread.Count != 1 || unread.Last.Worker != "py" || unread.Last.Plan != "p" ||
		unread.Last.Capability != "compensation_reported" || !strings.Contains(unread.Last.Problem, "worknS") {
		t.Errorf("%+v, %+v", refused, unread)
	}
}

// TestAPlanSaysWhyItsCommandsWait: what cannot be sent waits for no worker, and for no process.
func TestAPlanSaysWhyItsCommandsWait(t *testing.T) {
	t.Parallel()
	d := New(Config{Board: NewBoard((*observe.Meter)(nil))})
	for name, c := range map[string]struct {
		waiting  api.Waiting
		says     string
		noWorker bool
	}{
		"a worker":            {api.Waiting{Capability: "a.b"}, "none serves a.b", true},
		"a handler":           {api.Waiting{Handler: "function f"}, "function f: no process offers it", true},
		"a key":               {api.Waiting{Capability: "a.b", Problem: "no key"}, "no key, tries: 3", false},
		"a key for a handler": {api.Waiting{Handler: "function f", Problem: "no key"}, "no key, tries: 3", false},
		"a worker's answer": {api.Waiting{Capability: "a.b", Working: true, AgainNs: 1e18},
			"still working on a.b; asked again at 2001-09-09 01:46:40Z", false},
	} {
		c.waiting.Plan, c.waiting.Action, c.waiting.Tries = "p", "x", 3
		d.Board.Sending(func() []api.Waiting { return []api.Waiting{c.waiting} })
		shown := api.Plan{Plan: "p", Actions: []api.Action{{Action: "x"}}}
		d.showWaiting(&shown)
		if a := shown.Actions[0]; !strings.Contains(a.WaitsFor, c.says) || a.NoWorker != c.noWorker {
			t.Errorf("%s: %q, no worker: %v", name, a.WaitsFor, a.NoWorker)
		}
	}
}

// TestEveryVerbRefusesWhatItsBodyDoesNotMean, by the name of the field, before it does anything: the
// desk of this test has nothing to do it with.
func TestEveryVerbRefusesWhatItsBodyDoesNotMean(t *testing.T) {
	t.Parallel()
	d := New(Config{Shared: new(Shared), Meter: (*observe.Meter)(nil)})
	asked, requested := Verbs()
	tried := map[string]verb{}
	for _, name := range append(asked, api.HistoryVerb+"a", api.PreviewVerb+"a") {
		tried[name] = questionVerb(name)
	}
	for _, name := range requested {
		tried["admin "+name] = adminVerb(name)
	}
	for name, v := range tried {
		for body, field := range map[string]string{
			`null`: "request", `[]`: "request", `{"Plan":"p"}`: "request.Plan", `{"nothing":1}`: "request.nothing",
		} {
			if got := refusal(d, v, body); got.Field != field || got.Want == "" {
				t.Errorf("%s with %s: %+v, want field %s", name, body, got, field)
			}
		}
	}
	for body, field := range map[string]string{
		`{"plan":"p","plan":"q"}`: "request.plan", `{"plan":null}`: "request.plan",
	} {
		if got := refusal(d, tried["plan.show"], body); got.Field != field {
			t.Errorf("plan.show with %s: %+v", body, got)
		}
	}
	body := `{"tenant":"t","reason":"r","actor":"a","Tenant":"other"}`
	if got := refusal(d, tried["admin tenant.erase"], body); got.Field != "request.Tenant" {
		t.Errorf("tenant.erase of two tenants: %+v", got)
	}
}

// TestAWorkerThatAnswersAsItShouldIsRight, until it is refused again. Another worker says nothing of
// it, and an answer with a field that cannot be read is none as it should be.
func TestAWorkerThatAnswersAsItShouldIsRight(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	w := NewWorkers((*observe.Meter)(nil), func() time.Time { return now }, slog.New(slog.DiscardHandler))
	command := api.Command{Capability: "undo.a", Plan: "p"}
	refuse := func(reason, worker string) {
		w.Refused(actuators.Refusal{Reason: reason, Command: command, Worker: worker, Err: errors.New("odd")})
	}
	want := func(what string, refused, unread int64) {
		t.Helper()
		r, u := w.notCounted()
		if r.Last.RightNs != refused || u.Last.RightNs != unread {
			t.Errorf("%s: answers right since %d, fields since %d, want %d and %d", what, r.Last.RightNs, u.Last.RightNs,
				refused, unread)
		}
	}
	refuse(actuators.RefusedEcho, "py")
	refuse(actuators.RefusedField, "")
	now = time.Unix(0, 1)
	w.Counted(api.Command{Capability: "undo.b"}, "py", true)
	w.Counted(command, "go", false)
	want("others", 0, 0)
	w.Counted(command, "py", false)
	want("a field is odd", 1, 0)
	now = time.Unix(0, 2)
	w.Counted(command, "go", true)
	want("one that has said no name may be any", 1, 2)
	refuse(actuators.RefusedEcho, "py")
	want("again", 0, 2)
}

// refusal is what a verb says of a body, if that is all that it says.
func refusal(d *Desk, v verb, body string) (problem api.Problem) {
	answer, err := v.answer(d, []byte(body))
	if p := new(api.Problem); answer == nil && errors.As(err, &p) {
		problem = *p
	}
	return problem
}

// TestATurnAnswersSoManyWhoWaitForTheEndOfAPlan: the others are answered by the next turns, so that
// who asks much delays nobody's deadlines.
func TestATurnAnswersSoManyWhoWaitForTheEndOfAPlan(t *testing.T) {
	t.Parallel()
	b := NewBoard((*observe.Meter)(nil))
	kv := rows.NewMemoryKV()
	state := executor.Open(kv, "t", nil)
	const waiting = 4*outcomesPerTurn + 1
	var asked []*outcome
	for range waiting {
		q := &outcome{query: api.OutcomeQuery{Plan: "p", Ended: true}, answer: make(chan *toldOutcome, 1)}
		b.outcomes.of["p"] = append(b.outcomes.of["p"], q)
		b.outcomes.count++
		asked = append(asked, q)
	}
	turn := func(notices ...executor.Notice) (answered int) {
		b.AnswerOutcomes(notices, func() *view.Reader {
			answered++
			return view.Live(state, kv, "t")
		})
		return answered
	}
	all := turn(executor.Notice{Plan: "p", State: ledger.StateCompensated})
	for n := all; n > 0; all += n {
		if n > 2*outcomesPerTurn {
			t.Fatalf("a turn answers %d", n)
		}
		if all < waiting {
			select {
			case <-b.Wanted():
			default:
				t.Fatal("no turn looks at the others")
			}
		}
		n = turn()
	}
	for _, q := range asked {
		if len(q.answer) != 1 {
			t.Fatal("one has no answer")
		}
	}
	if all != waiting || b.outcomes.count != 0 {
		t.Errorf("%d answers for %d, %d are left", all, waiting, b.outcomes.count)
	}
}

// While stores wait for room, the mode that all see is that, whatever the loop was in when it began
// to wait; a halt says more.
func TestATenantWhoseStoresWaitForRoomIsDegraded(t *testing.T) {
	t.Parallel()
	m := observe.NewMetrics()
	b := NewBoard(m.Tenant("t"))
	b.Enter(api.ModeHolding, "")
	b.Refused("no room in the ledger")
	shows := func(mode, problem string) {
		t.Helper()
		if is, why, _ := b.Health(); is != mode || why != problem || b.Mode() != mode {
			t.Errorf("it is %s (%s), want %s (%s)", is, why, mode, problem)
		}
		want := fmt.Sprintf("\nsagenbaum_mode{mode=%q,tenant=\"t\"} 1\n", mode)
		if body := testenv.Scrape(t, m.Handler()); !strings.Contains(body, want) ||
			strings.Count(body, `tenant="t"} 1`) != 1 {
			t.Errorf("the numbers do not say that it is %s alone", mode)
		}
	}
	b.Waits("tiles")
	shows(api.ModeDegraded, "tiles")
	b.Waits("state")
	b.Waits("")
	shows(api.ModeDegraded, "state")
	b.Refused("")
	b.Halt(&ledger.Halted{Guard: "G4", Sequence: 1, Problem: "x"})
	if b.Mode() != api.ModeHalted {
		t.Errorf("it is %s", b.Mode())
	}
	b.Enter(api.ModeHolding, "")
	b.Waits("")
	shows(api.ModeHolding, "")
}

// TestACommitIsSettledWhereItWaitsForItsOwnerAlone: what a probe is still asked may be known later.
func TestACommitIsSettledWhereItWaitsForItsOwnerAlone(t *testing.T) {
	owners, probed := api.Doubt{Action: "a", Owner: true}, api.Doubt{Action: "b"}
	for _, c := range []struct {
		doubts []api.Doubt
		want   bool
	}{
		{nil, false}, {[]api.Doubt{owners}, true}, {[]api.Doubt{owners, owners}, true},
		{[]api.Doubt{owners, probed}, false}, {[]api.Doubt{probed}, false},
	} {
		if got := allOwners(c.doubts); got != c.want {
			t.Errorf("%+v: %v", c.doubts, got)
		}
	}
}

// unanswered is a store and a keyring whose server does not answer. It keeps how long it is waited for.
type unanswered struct {
	ledger.Store
	Keyring
	mu    sync.Mutex
	waits []time.Duration
}

func (u *unanswered) wait(ctx context.Context) {
	late, _ := ctx.Deadline()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.waits = append(u.waits, time.Until(late))
}

func (u *unanswered) Head(ctx context.Context) (ledger.Head, error) {
	u.wait(ctx)
	return ledger.Head{}, context.DeadlineExceeded
}

func (u *unanswered) Problem(ctx context.Context) string {
	u.wait(ctx)
	return ""
}

func (u *unanswered) KeyProblem(string, []byte) string     { return "" }
func (u *unanswered) View(v api.Checkpoint) api.Checkpoint { return v }
func (u *unanswered) Forked() string                       { return "it has signed what is not there" }

func openStore(t *testing.T) *pebble.DB {
	t.Helper()
	db, err := store.Open(t.TempDir(), slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// TestAHostAnswersWithoutItsServers: whoever asks for all hosts waits 150 ms for a further one, and
// asks above all where something is wrong.
func TestAHostAnswersWithoutItsServers(t *testing.T) {
	t.Parallel()
	db := openStore(t)
	u := new(unanswered)
	d := New(Config{Tenant: "t", Holder: "h1", Board: NewBoard((*observe.Meter)(nil)), DB: db, Keys: u, Proof: u,
		Shared: new(Shared), Now: time.Now})
	d.Board.Opened(u, nil)
	answer, err := d.host()
	if err != nil || answer.Host.Host != "h1" || answer.Host.Mode != api.ModeStarting || answer.Host.Forked != "" {
		t.Errorf("%+v, %v", answer, err)
	}
	if len(u.waits) != 2 || max(u.waits[0], u.waits[1]) > 100*time.Millisecond {
		t.Errorf("it waits for %v", u.waits)
	}
	d.Board.Enter(api.ModeStandby, "held by h2")
	if answer, err = d.host(); err != nil || answer.Host.Forked != u.Forked() {
		t.Errorf("%+v, %v", answer, err)
	}
}

// TestAHostThatDoesNotKnowTheHolderAnswers: the one that it knew may be gone.
func TestAHostThatDoesNotKnowTheHolderAnswers(t *testing.T) {
	t.Parallel()
	b := NewBoard((*observe.Meter)(nil))
	b.Enter(api.ModeStandby, "held by h2")
	if !b.silent() {
		t.Error("two hosts answer")
	}
	b.Unanswered("no server leads JetStream")
	if _, problem := b.shown(); b.silent() || problem != "not known which host holds it: no server leads JetStream" {
		t.Error("no host answers, or not why:", problem)
	}
	// What changes something each of them would do.
	d := New(Config{Board: b, Shared: new(Shared)})
	if _, err := d.handOver(Request{}, nil); err == nil || !strings.Contains(err.Error(), "nothing was done: not known") {
		t.Error(err)
	}
}
