package coordinator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestAProcessThatIsAskedLetsAPlanGo: it runs no forward that the plan does not take, and the one
// that resumes the plan knows of each action what has become of it.
func TestAProcessThatIsAskedLetsAPlanGo(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{quick()}})
	second := l.another(t)
	for i := range 20 {
		plan := l.begin(coordinator.PlanSpec{})
		ran, ended := map[string]bool{}, make(chan error)
		l.do(plan, "first")
		go func() { // ends when the plan is lost
			for n := 0; ; n++ {
				_, err := plan.Do(t.Context(), writes(fmt.Sprint("a", n), "x"),
					func(_ context.Context, call coordinator.Call) (coordinator.Outcome, error) {
						ran[call.Action] = true
						return coordinator.Outcome{}, nil
					})
				if err != nil {
					ended <- err
					return
				}
			}
		}()
		<-time.After(time.Duration(i) * 200 * time.Microsecond) // at one point or another of a Do
		next, err := second.Resume(t.Context(), plan.ID())
		if err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, coordinator.ErrSuperseded) {
			t.Fatal(err)
		}
		for _, past := range next.Recorded() {
			want := api.OutcomeCompleted
			if !ran[past.Action] && past.Action != "first" {
				want = api.OutcomeFailed
			}
			if past.Outcome != want || past.Outcome == api.OutcomeFailed && past.Code != "not_started" {
				t.Errorf("action %s is %s %s", past.Action, past.Outcome, past.Code)
			}
			delete(ran, past.Action)
		}
		if len(ran) > 0 {
			t.Errorf("ran, and not recorded: %v", ran)
		}
		if err := next.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAForwardIsWaitedForWhenItsPlanIsLetGo, and an action that waits for its verdict is not called.
func TestAForwardIsWaitedForWhenItsPlanIsLetGo(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{quick()}})
	plan := l.begin(coordinator.PlanSpec{ID: "let-go"})
	running, ended := make(chan struct{}), make(chan error)
	reviewed := writes("reviewed", "y")
	reviewed.Review = true
	go func() { // ends with the forward
		_, err := plan.Do(t.Context(), writes("running", "x"),
			func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
				close(running)
				for !coordinator.Superseded(plan) {
					<-time.After(time.Millisecond)
				}
				return coordinator.Outcome{ExternalRef: "ref"}, nil
			})
		ended <- err
	}()
	<-running
	go func() {
		_, err := plan.Do(t.Context(), reviewed, counted(new(int), nil))
		ended <- err
	}()
	l.registered("let-go", "reviewed")
	next, err := l.another(t).Resume(t.Context(), "let-go")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-ended; err != nil && !errors.Is(err, coordinator.ErrSuperseded) {
			t.Error(err)
		}
	}
	past := next.Recorded()
	if len(past) != 2 || past[0].ExternalRef != "ref" || past[1].Code != "not_started" {
		t.Errorf("%+v", past)
	}
	if err := next.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAPlanIsResumedFromAProcessThatDoesNotAnswer: it is not waited for.
func TestAPlanIsResumedFromAProcessThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{quick()}, Writer: "stopped"})
	plan := l.begin(coordinator.PlanSpec{})
	l.do(plan, "first")
	begun := l.writerAt(plan)
	if err := l.agent.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked := make(chan *nats.Msg, 1)
	stopped := l.connect("a1")
	if _, err := stopped.ChanSubscribe(api.YieldSubject("default", "a1", "stopped"), asked); err != nil {
		t.Fatal(err)
	}
	if err := stopped.Flush(); err != nil {
		t.Fatal(err)
	}
	next, err := l.another(t).Resume(t.Context(), plan.ID())
	if err != nil {
		t.Fatal(err)
	}
	if m := <-asked; string(m.Data) != fmt.Sprintf(`{"plan":%q,"writer_at":%d}`, plan.ID(), begun) {
		t.Errorf("asked %s", m.Data)
	}
	if err := next.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}

// gated is an appender that holds back the appends with a word in them until its gate is open.
type gated struct {
	coordinator.Appender
	word string
	gate chan struct{} // closed: they pass
	held chan struct{} // of the first that waits
}

func (g *gated) Append(ctx context.Context, a ledger.Append) (uint64, error) {
	if bytes.Contains(a.Data, []byte(g.word)) {
		select {
		case g.held <- struct{}{}:
		default:
		}
		<-g.gate
	}
	return g.Appender.Append(ctx, a)
}

// TestWhatIsUnderWayIsStoredBeforeAPlanGoes: also the record of a call, and of a process that closes.
func TestWhatIsUnderWayIsStoredBeforeAPlanGoes(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{quick()}})
	for name, closing := range map[string]bool{"report": false, "closing": true} {
		g := &gated{Appender: l.store, word: "late", gate: make(chan struct{}), held: make(chan struct{}, 1)}
		first, err := coordinator.New(coordinator.Config{Conn: l.connect("a1"), Appender: g, Tenant: "default",
			Agent: "a1", Contracts: []contract.Contract{quick()}})
		if err != nil {
			t.Fatal(err)
		}
		plan, err := first.Begin(t.Context(), coordinator.PlanSpec{ID: "under-way-" + name})
		if err != nil {
			t.Fatal(err)
		}
		l.do(plan, "before")
		ended, over := make(chan error, 1), make(chan error, 1)
		go func() { ended <- plan.Report(t.Context(), writes("late", "x"), coordinator.Outcome{}) }()
		<-g.held
		if closing {
			go func() { over <- first.Close(context.Background()) }()
			for err := error(nil); !errors.Is(err, coordinator.ErrClosed); <-time.After(time.Millisecond) {
				var claim *coordinator.Claim
				if claim, err = first.Claim(t.Context(), coordinator.ClaimConfig{Plan: coordinator.PlanSpec{ID: "x"},
					Function: "f"}); err == nil {
					claim.Release(false, nil)
				}
			}
		}
		second, resumed := l.another(t), make(chan error, 1)
		var next *coordinator.Plan
		go func() {
			var err error
			next, err = second.Resume(t.Context(), plan.ID())
			resumed <- err
		}()
		for !coordinator.Superseded(plan) && len(resumed) == 0 {
			<-time.After(time.Millisecond)
		}
		close(g.gate)
		if err := <-resumed; err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("%s: Report returns %v", name, err)
		}
		if past := next.Recorded(); len(past) != 2 || past[1].Action != "late" || past[1].Outcome != api.OutcomeCompleted {
			t.Errorf("%s: %+v", name, past)
		}
		if err := next.Commit(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !closing {
			over <- first.Close(context.Background())
		}
		if err := <-over; err != nil {
			t.Error(err)
		}
	}
}

// TestAResumeThatIsRefusedAsksForNothing: whoever has the plan goes on with it.
func TestAResumeThatIsRefusedAsksForNothing(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{quick()}})
	plan := l.begin(coordinator.PlanSpec{ID: "once"})
	l.do(plan, "first")
	next, err := l.another(t).Resume(t.Context(), "once")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.agent.Resume(t.Context(), "once"); err == nil || !strings.Contains(err.Error(), "open already") {
		t.Errorf("a plan that this process still holds: %v", err)
	}
	if err := next.Savepoint(t.Context(), "s"); err != nil {
		t.Error(err)
	}
}

// TestAFailureOfAPlanThatIsLostMeanwhileIsNone: while it waits for its forwards.
func TestAFailureOfAPlanThatIsLostMeanwhileIsNone(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{files()}})
	plan := l.begin(coordinator.PlanSpec{ID: "fails"})
	running, end, did := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := plan.Do(t.Context(), writes("a", "x"),
			func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
				close(running)
				<-end
				return coordinator.Outcome{}, nil
			})
		did <- err
	}()
	<-running
	failed := make(chan error, 1)
	go func() { failed <- plan.Fail(t.Context(), "no room") }()
	for {
		_, err := plan.Do(t.Context(), writes("", "y"), counted(new(int), nil))
		if errors.Is(err, coordinator.ErrClosed) {
			break // Fail waits
		}
	}
	next, err := l.another(t, files()).Resume(t.Context(), "fails")
	if err != nil {
		t.Fatal(err)
	}
	close(end)
	if err := <-failed; !errors.Is(err, coordinator.ErrSuperseded) {
		t.Errorf("Fail returns %v", err)
	}
	<-did
	if err := next.Fail(t.Context(), "it is over"); err != nil {
		t.Error(err)
	}
}

// TestAnAnswerToAPlanThatIsLetGoGoesBelowItsSubject alone: a door may publish what its agents may not.
func TestAnAnswerToAPlanThatIsLetGoGoesBelowItsSubject(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{quick()}, Writer: "w"})
	plan := l.begin(coordinator.PlanSpec{})
	l.do(plan, "first")
	asker := l.connect("a1")
	subject := api.YieldSubject("default", "a1", "w")
	for _, reply := range []string{api.YieldSubject("default", "a1", "wx.0"), asker.NewInbox()} {
		heard, err := asker.SubscribeSync(reply)
		if err == nil {
			err = asker.PublishRequest(subject, reply, []byte(fmt.Sprintf(`{"plan":%q}`, plan.ID())))
		}
		if err == nil {
			err = asker.Flush()
		}
		if err != nil {
			t.Fatal(err)
		}
		l.do(plan, "after-"+fmt.Sprint(len(reply)))
		if n, _, _ := heard.Pending(); n != 0 {
			t.Errorf("answered on %s", reply)
		}
	}
}

// asks is a request of a process of the agent to another one, and its answer.
func (l *live) asks(process, body string) string {
	l.t.Helper()
	subject, asker := api.YieldSubject("default", "a1", process), l.connect("a1")
	heard, err := asker.SubscribeSync(subject + ".0")
	if err == nil {
		err = asker.PublishRequest(subject, subject+".0", []byte(body))
	}
	if err != nil {
		l.t.Fatal(err)
	}
	answer, err := heard.NextMsg(testenv.Patience)
	if err != nil {
		l.t.Fatal(err)
	}
	return string(answer.Data)
}

// writerAt is what made the writer of a plan that.
func (l *live) writerAt(p *coordinator.Plan) uint64 {
	l.t.Helper()
	query, err := json.Marshal(api.HistoryQuery{Plan: p.ID(), Sequence: p.Stored(), Limit: 1})
	if err != nil {
		l.t.Fatal(err)
	}
	reply, err := l.connect("a1").Request(api.HistorySubject("default", "a1"), query, testenv.Patience)
	if err != nil {
		l.t.Fatal(err)
	}
	var history api.HistoryAnswer
	if err := api.DecodeAnswer(reply.Data, &history); err != nil || history.WriterAt == 0 {
		l.t.Fatalf("%s, %v", reply.Data, err)
	}
	return history.WriterAt
}

// TestAPlanIsNotLetGoForAnEarlierHold of the process that has resumed it since, nor for a request that
// is none.
func TestAPlanIsNotLetGoForAnEarlierHold(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{quick()}, Writer: "w"})
	plan := l.begin(coordinator.PlanSpec{ID: "back"})
	l.do(plan, "first")
	begun := l.writerAt(plan)
	between, err := l.another(t).Resume(t.Context(), "back")
	if err != nil {
		t.Fatal(err)
	}
	resumed := l.writerAt(between)
	plan.Forget()
	if plan, err = l.agent.Resume(t.Context(), "back"); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct{ body, answer string }{
		{fmt.Sprintf(`{"plan":"back","writer_at":%d}`, begun), `"again":true`},
		{fmt.Sprintf(`{"plan":"back","writer_at":%d}`, resumed), `"again":true`},
		{`{"plan":"back","writer_at":-1}`, `"field":"request.writer_at"`},
		{`{"plan":"back","writer_at":"1"}`, `"field":"request.writer_at"`},
		{`{"plan":["back"]}`, `"field":"request.plan"`},
		{`{"plan":"","writer_at":1}`, `"field":"request.plan"`},
		{`{"plan":"back"`, `"field":"request"`},
		{`{"plan":"another","writer_at":1}`, ""},
	} {
		if answer := l.asks("w", c.body); !strings.Contains(answer, c.answer) || c.answer == "" && answer != "" {
			t.Errorf("%s: answered %q", c.body, answer)
		}
		l.do(plan, fmt.Sprint("after-", i))
	}
	if answer := l.asks("w", fmt.Sprintf(`{"plan":"back","writer_at":%d}`, l.writerAt(plan))); answer != "" ||
		!coordinator.Superseded(plan) {
		t.Errorf("its present hold: answered %q", answer)
	}
}

// TestAPlanIsLetGoForARequestThatNamesNoHold, as earlier versions make it.
func TestAPlanIsLetGoForARequestThatNamesNoHold(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{quick()}, Writer: "w"})
	plan := l.begin(coordinator.PlanSpec{ID: "earlier"})
	for i := range 2 {
		l.do(plan, fmt.Sprint(i))
		if answer := l.asks("w", `{"plan":"earlier"}`); answer != "" || !coordinator.Superseded(plan) {
			t.Errorf("answered %q", answer)
		}
		plan.Forget()
		var err error
		if plan, err = l.agent.Resume(t.Context(), "earlier"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAPlanIsLetGoByWhoeverGoesOnWithItsOwn: a process under the writer of an earlier one, or one that
// has looked its own plan up again, has the hold that the history names.
func TestAPlanIsLetGoByWhoeverGoesOnWithItsOwn(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{quick()}, Writer: "w"})
	plan := l.begin(coordinator.PlanSpec{ID: "own"})
	l.do(plan, "first")
	plan.Forget()
	plan, err := l.agent.Resume(t.Context(), "own")
	if err != nil {
		t.Fatal(err)
	}
	next, err := l.another(t).Resume(t.Context(), "own")
	if err != nil {
		t.Fatal(err)
	}
	if !coordinator.Superseded(plan) {
		t.Error("the process that had the plan was not asked")
	}
	if err := next.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}
