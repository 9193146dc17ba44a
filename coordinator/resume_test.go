package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// another is another process of the agent.
func (l *live) another(t *testing.T, contracts ...contract.Contract) *coordinator.Coordinator {
	t.Helper()
	if contracts == nil {
		contracts = []contract.Contract{quick()}
	}
	c, err := coordinator.New(coordinator.Config{Conn: l.connect("a1"), Tenant: "default", Agent: "a1",
		Contracts: contracts, AppendTimeout: testenv.Patience, ConfirmTimeout: testenv.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// quick is files with a forward that ends with its process.
func quick() contract.Contract {
	c := files()
	c.Late, c.Grace = contract.LateNever, 50*time.Millisecond
	return c
}

// counted is a forward that counts how often it runs, and fails as it is told.
func counted(ran *int, err error) coordinator.Forward {
	return func(_ context.Context, call coordinator.Call) (coordinator.Outcome, error) {
		*ran++
		return coordinator.Outcome{Output: "output of " + call.Action, ExternalRef: "ref " + call.Action}, err
	}
}

func writes(id, path string) coordinator.Action {
	return coordinator.Action{ID: id, Capability: "file.write", Input: map[string]string{"path": path}}
}

// TestAPlanIDOfAnotherAgentIsNotToBeResumed: Begin says at once whose plan it is.
func TestAPlanIDOfAnotherAgentIsNotToBeResumed(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{quick()}})
	other, err := coordinator.New(coordinator.Config{Conn: l.connect("a2"), Tenant: "default", Agent: "a2"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close(context.Background()) })
	other.LookFor(testenv.Patience)
	l.do(l.begin(coordinator.PlanSpec{ID: "theirs"}), "a")
	var refused *ledger.Refused
	_, err = other.Begin(t.Context(), coordinator.PlanSpec{ID: "theirs"})
	if !errors.Is(err, coordinator.ErrPlanExists) || !errors.As(err, &refused) ||
		refused.Problem != "a plan of agent a1" || refused.Want != "an id of its own for each plan" {
		t.Error(err)
	}
}

// TestAPlanIDIsUsedOnce: by whichever process, and whatever has become of it.
func TestAPlanIDIsUsedOnce(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{quick()}})
	ran, second := 0, l.another(t)
	for _, c := range []*coordinator.Coordinator{l.agent, second} {
		c.LookFor(testenv.Patience)
	}
	p := l.begin(coordinator.PlanSpec{ID: "job"})
	for range 2 {
		if _, err := p.Do(t.Context(), writes("", "x"), counted(&ran, nil)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := second.Begin(t.Context(), coordinator.PlanSpec{ID: "job"})
	if !errors.Is(err, coordinator.ErrPlanExists) || !strings.Contains(err.Error(), "Resume") {
		t.Errorf("while it is open: %v", err)
	}
	if err := p.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*coordinator.Coordinator{"the same process": l.agent, "another": second} {
		if _, err := c.Begin(t.Context(), coordinator.PlanSpec{ID: "job"}); !errors.Is(err, coordinator.ErrPlanExists) ||
			!strings.Contains(err.Error(), "it is committed") {
			t.Errorf("%s, when it is committed: %v", name, err)
		}
		var refused *ledger.Refused
		if _, err := c.Resume(t.Context(), "job"); !errors.As(err, &refused) ||
			!strings.Contains(refused.Problem, "committed") {
			t.Errorf("%s resumes it: %v", name, err)
		}
	}
	if end, err := second.Wait(t.Context(), "job"); err != nil || end.State != ledger.StateCommitted {
		t.Errorf("it ended %+v, %v", end, err)
	}
}

// TestOfTwoProcessesThatBeginOnePlanOneRunsItsForwards: neither has found the other's plan.
// What the other has registered is taken back, so that no one is asked about it.
func TestOfTwoProcessesThatBeginOnePlanOneRunsItsForwards(t *testing.T) {
	t.Parallel()
	patient := quick()
	patient.Grace = 0 // a forward starts as late as it may by default: the machine may be slow
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{patient}})
	second := l.another(t, patient)
	for n := range 5 {
		id := fmt.Sprint("job-", n)
		p := l.begin(coordinator.PlanSpec{ID: id})
		q, err := second.Begin(t.Context(), coordinator.PlanSpec{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		var ran [2]int
		ends := make(chan error, 2)
		for i, plan := range []*coordinator.Plan{p, q} {
			go func() {
				_, err := plan.Do(t.Context(), writes("", fmt.Sprint("by ", i)), counted(&ran[i], nil))
				ends <- err
			}()
		}
		one, other := <-ends, <-ends
		if err := errors.Join(one, other); (one == nil) == (other == nil) || !errors.Is(err, coordinator.ErrPlanExists) ||
			ran[0]+ran[1] != 1 {
			t.Fatalf("%v and %v, the forwards ran %v", one, other, ran)
		}
		won := p
		if ran[1] == 1 {
			won = q
		}
		if err := second.Close(t.Context()); err != nil { // with what it takes back
			t.Fatal(err)
		}
		second = l.another(t, patient)
		if ran[1] == 1 {
			if won, err = second.Resume(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		} else if _, err := p.Do(t.Context(), writes("", "more"), counted(&ran[0], nil)); err != nil {
			t.Fatal(err)
		}
		if err := won.Fail(t.Context(), "no"); err != nil {
			t.Fatal(err)
		}
		l.ends(won, ledger.StateCompensated)
	}
}

// TestAnAgentThatComesBackGoesOnWhereItWas: a second process that resumes the plan of one
// that is only thought dead. Each forward runs once, and all of them are undone.
func TestAnAgentThatComesBackGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{quick()}})
	p := l.begin(coordinator.PlanSpec{ID: "trip"})
	ran := 0
	if _, err := p.Do(t.Context(), writes("", "one"), counted(&ran, nil)); err != nil {
		t.Fatal(err)
	}
	if err := p.Savepoint(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	_, err := p.Do(t.Context(), writes("", "two"), counted(&ran, coordinator.NotTaken(errNoRoom)))
	if !errors.Is(err, errNoRoom) {
		t.Fatal(err)
	}
	started, goOn, slow := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() { // it is under way when the second process comes
		_, err := p.Do(t.Context(), writes("", "three"),
			func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
				close(started)
				<-goOn
				return coordinator.Outcome{Output: 3}, nil
			})
		slow <- err
	}()
	<-started
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	q, err := l.another(t).Resume(t.Context(), "trip")
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, past := range q.Recorded() {
		said = append(said, fmt.Sprintf("%s %s %s %s", past.Action, past.Outcome, past.Code, past.Output))
	}
	if got, want := strings.Join(said, "; "), `1 completed  "output of 1"; 2 failed not_taken ; 3 unknown  `; got != want {
		t.Fatalf("recorded %q, want %q", got, want)
	}
	l.runsNothingAgain(q, &ran)
	// Unnamed actions have numbers of their own.
	if _, err := q.Do(t.Context(), writes("", "four"), counted(&ran, nil)); err != nil {
		t.Fatal(err)
	}
	// Once it has heard of it, the first process begins nothing any more, and what it has begun
	// counts. Until then its commit is refused for the forward that still runs.
	for by := time.After(testenv.Patience); !errors.Is(p.Commit(t.Context()), coordinator.ErrSuperseded); {
		select {
		case <-by:
			t.Fatal("it never hears of it")
		case <-time.After(time.Millisecond):
		}
	}
	if _, err := p.Do(t.Context(), writes("", "five"), counted(&ran, nil)); !errors.Is(err, coordinator.ErrSuperseded) {
		t.Errorf("the first process goes on: %v", err)
	}
	if err := p.Commit(t.Context()); !errors.Is(err, coordinator.ErrSuperseded) {
		t.Errorf("the first process commits: %v", err)
	}
	close(goOn)
	if err := <-slow; err != nil {
		t.Error(err)
	}
	if ran != 3 {
		t.Errorf("forwards ran %d times, want 3", ran)
	}
	l.endsFrom(q, &ran)
}

// TestAReportSettlesWhatIsRecordedInDoubt: the agent has looked, and knows more.
func TestAReportSettlesWhatIsRecordedInDoubt(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{quick()}})
	p := l.begin(coordinator.PlanSpec{ID: "trip"})
	ran := 0
	if _, err := p.Do(t.Context(), writes("a", "one"), counted(&ran, errNoRoom)); err == nil {
		t.Fatal("it is not in doubt")
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	q, err := l.another(t).Resume(t.Context(), "trip")
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Savepoint(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // as often as it says so
		if err := q.Report(t.Context(), writes("a", "one"), coordinator.Outcome{Output: "found"}); err != nil {
			t.Fatal(err)
		}
	}
	if output, err := q.Do(t.Context(), writes("a", "one"), counted(&ran, nil)); err != nil ||
		string(output) != `"found"` || ran != 1 {
		t.Errorf("%s, %v, ran %d times", output, err, ran)
	}
	if err := q.UnwindTo(t.Context(), "s", ""); err != nil { // it answers when all is folded
		t.Fatal(err)
	}
	if seen := l.shown("trip"); seen.Actions[0].Outcome != "completed" || len(seen.Orphans) != 0 {
		t.Errorf("the executor has %+v", seen.Actions[0])
	}
}

// TestWhatCannotBeResumed: and why.
func TestWhatCannotBeResumed(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{quick()}})
	l.begin(coordinator.PlanSpec{ID: "here"})
	for id, want := range map[string]string{"nothing": "no such plan", "a.b": "not a name", "": "not a name"} {
		var refused *ledger.Refused
		if _, err := l.another(t).Resume(t.Context(), id); !errors.As(err, &refused) ||
			!strings.Contains(refused.Problem, want) {
			t.Errorf("%q: %v", id, err)
		}
	}
	p := l.begin(coordinator.PlanSpec{ID: "mine"})
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.agent.Resume(t.Context(), "mine"); err == nil || !strings.Contains(err.Error(), "open already") {
		t.Errorf("one's own: %v", err)
	}
}

// TestAnAgentAttachesItsPlanToAnothersWithTheToken and not without.
func TestAnAgentAttachesItsPlanToAnothersWithTheToken(t *testing.T) {
	t.Parallel()
	var refused *ledger.Refused
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{quick()}})
	if _, err := l.agent.Begin(t.Context(), coordinator.PlanSpec{AttachToken: "short"}); !errors.As(err, &refused) ||
		refused.Field != "plan.attach_token" {
		t.Errorf("a token that can be guessed: %v", err)
	}
	p := l.begin(coordinator.PlanSpec{AttachToken: "a secret between the two"})
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	other, err := coordinator.New(coordinator.Config{Conn: l.root, Tenant: "default", Agent: "a2",
		Contracts: []contract.Contract{quick()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close(context.Background()) })
	for token, joins := range map[string]bool{"": false, "a secret between others": false,
		"a secret between the two": true} {
		child, err := other.Begin(t.Context(), coordinator.PlanSpec{Parent: p.ID(), ParentToken: token})
		if err != nil {
			t.Fatal(err)
		}
		ran := 0
		_, err = child.Do(t.Context(), writes("", "x"), counted(&ran, nil))
		if joins != (err == nil) || joins != (ran == 1) {
			t.Errorf("with %q: %v, the forward ran %d times", token, err, ran)
		}
	}
	if err := p.Fail(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	l.ends(p, ledger.StateCompensated)
}

// runsNothingAgain wants no forward to run for what is recorded of the actions 1 to 3.
func (l *live) runsNothingAgain(q *coordinator.Plan, ran *int) {
	t := l.t
	again := func(id, path string) error {
		output, err := q.Do(t.Context(), writes(id, path), counted(ran, nil))
		if err == nil && string(output) != `"output of 1"` {
			t.Errorf("%s returns %s", id, output)
		}
		return err
	}
	var recorded *coordinator.Recorded
	var refused *ledger.Refused
	if err := again("1", "one"); err != nil {
		t.Error(err)
	}
	if err := again("2", "two"); !errors.As(err, &recorded) || !errors.Is(err, coordinator.ErrNotTaken) {
		t.Errorf("what had failed: %v", err)
	}
	if err := again("3", "three"); !errors.As(err, &recorded) || recorded.Outcome != api.OutcomeUnknown {
		t.Errorf("what nobody knows of: %v", err)
	}
	if err := again("1", "another"); !errors.As(err, &refused) {
		t.Errorf("another action under a recorded id: %v", err)
	}
}

// endsFrom goes back to the savepoint of the process before, and fails the plan.
func (l *live) endsFrom(q *coordinator.Plan, ran *int) {
	t := l.t
	if err := q.UnwindTo(t.Context(), "s", "another way"); err != nil {
		t.Fatal(err)
	}
	if got := l.undoneActions(); got != "4 3" {
		t.Errorf("undone %q, want 4 3", got)
	}
	if err := q.Savepoint(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Do(t.Context(), writes("", "six"), counted(ran, nil)); err != nil {
		t.Fatal(err)
	}
	if err := q.Fail(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	l.ends(q, ledger.StateCompensated)
	if got := l.undoneActions(); got != "4 3 5 1" {
		t.Errorf("undone %q, want 4 3 5 1", got)
	}
}

// TestAFailureIsTakenBackByTheProcessThatSaidIt with Settle, and not with Report, which would be another
// way to register what it has registered.
func TestAFailureIsTakenBackByTheProcessThatSaidIt(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{quick()}})
	p := l.begin(coordinator.PlanSpec{ID: "trip"})
	ran := 0
	_, err := p.Do(t.Context(), writes("1", "one"), counted(&ran, coordinator.NotTaken(errNoRoom)))
	if !errors.Is(err, errNoRoom) {
		t.Fatal(err)
	}
	var refused *coordinator.Refused
	if err := p.Report(t.Context(), writes("1", "one"), coordinator.Outcome{Output: 7}); !errors.As(err, &refused) {
		t.Errorf("it is reported, too: %v", err)
	}
	if err := p.Settle(t.Context(), "1", coordinator.Outcome{Output: 7}, nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Fail(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	if end, err := p.Wait(t.Context()); err != nil || end.State != "compensated" {
		t.Errorf("it is %+v, %v", end, err)
	}
}

// TestAReportAfterAFailureCounts: another process has said that it did not happen, and it is there.
func TestAReportAfterAFailureCounts(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{quick()}})
	p := l.begin(coordinator.PlanSpec{ID: "trip"})
	ran := 0
	_, err := p.Do(t.Context(), writes("", "one"), counted(&ran, coordinator.NotTaken(errNoRoom)))
	if !errors.Is(err, errNoRoom) {
		t.Fatal(err)
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	q, err := l.another(t).Resume(t.Context(), "trip")
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Report(t.Context(), writes("1", "one"), coordinator.Outcome{Output: 7}); err != nil {
		t.Fatal(err)
	}
	got := q.Recorded()[0]
	if got.Outcome != "completed" || string(got.Output) != "7" || got.Code != "" ||
		errors.Is(&got, coordinator.ErrNotTaken) {
		t.Errorf("recorded: %+v", got)
	}
	if err := q.Fail(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	if end, err := q.Wait(t.Context()); err != nil || end.State != "compensated" {
		t.Errorf("it is %+v, %v", end, err)
	}
}
