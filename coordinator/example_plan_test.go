package coordinator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/supervisor"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// notes are the contracts of the examples: what note.add did is undone by note.remove.
var notes = []contract.Contract{{
	Capability: "note.add", Class: contract.Compensable,
	Inverse: &contract.Inverse{Call: "note.remove", With: map[string]any{"id": "=output.id"}},
}}

// note is what note.add returns.
type note struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

// A plan that goes well: each action is recorded with what undoes it before it runs, and
// Commit retires what was held.
func ExampleDo() {
	nc, stop := serverAndExecutor() // in production: connect.Default()
	defer stop()
	ctx := context.Background()
	c, err := coordinator.New(coordinator.Config{
		Conn: nc, Tenant: "default", Agent: "writer", Contracts: notes,
	})
	must(err)
	defer c.Close(ctx)
	plan, err := c.Begin(ctx, coordinator.PlanSpec{Label: "minutes", Owner: "docs"})
	must(err)
	added, err := coordinator.Do(ctx, plan,
		coordinator.Action{ID: "first", Capability: "note.add", Input: "hello"},
		func(ctx context.Context, call coordinator.Call) (note, error) {
			return note{ID: "n1", Text: "hello"}, nil // the act, with call.Key as its own key
		})
	must(err)
	fmt.Println("added", added.ID)
	must(plan.Commit(ctx))
	end, err := plan.Wait(ctx)
	must(err)
	fmt.Println("the plan is", end.State)
	// Output:
	// added n1
	// the plan is committed
}

// A mail cannot be taken back, so it is sent last: it is staged, and a worker sends it once the plan
// is committed, also if the agent is gone by then.
func ExamplePlan_Stage() {
	nc, stop := serverAndExecutor() // in production: connect.Default()
	defer stop()
	ctx := context.Background()
	w, err := worker.New(worker.Config{Conn: nc, Tenant: "default", Name: "mailer"})
	must(err)
	defer w.Close(ctx)
	must(w.Handle("mail.send", func(_ context.Context, c api.Command) (worker.Result, error) {
		fmt.Println("sent", string(c.Arguments)) // with c.Key, by which the provider knows it again
		return worker.Result{}, nil
	}))
	c, err := coordinator.New(coordinator.Config{Conn: nc, Tenant: "default", Agent: "writer",
		Contracts: []contract.Contract{{Capability: "mail.send", Class: contract.Irreversible,
			Stage: contract.StageCommit, Deliver: &contract.Deliver{
				With: map[string]any{"to": "=input.to"}, Dedupe: 24 * time.Hour}}}})
	must(err)
	defer c.Close(ctx)
	plan, err := c.Begin(ctx, coordinator.PlanSpec{Label: "minutes", Owner: "docs"})
	must(err)
	must(plan.Stage(ctx, coordinator.Action{ID: "mail", Capability: "mail.send",
		Input: map[string]string{"to": "ann"}}))
	fmt.Println("staged") // Fail, a cancel or a deadline would drop it
	must(plan.Commit(ctx))
	delivery, err := plan.Delivered(ctx)
	must(err)
	fmt.Println(delivery.Plan == plan.ID()+"~0", delivery.State, delivery.Delivered)
	// Output:
	// staged
	// sent {"to":"ann"}
	// true delivered [mail]
}

// A plan that goes back to a savepoint and on from there. What came after the savepoint is
// undone, by a worker, when UnwindTo returns.
func ExamplePlan_UnwindTo() {
	nc, stop := serverAndExecutor()
	defer stop()
	ctx := context.Background()
	removing := remover(nc)
	defer removing.Close(ctx)
	c, err := coordinator.New(coordinator.Config{
		Conn: nc, Tenant: "default", Agent: "writer", Contracts: notes,
	})
	must(err)
	defer c.Close(ctx)
	plan, err := c.Begin(ctx, coordinator.PlanSpec{Label: "minutes", Owner: "docs"})
	must(err)
	add := func(id string) {
		_, err := coordinator.Do(ctx, plan, coordinator.Action{ID: id, Capability: "note.add"},
			func(context.Context, coordinator.Call) (note, error) { return note{ID: id}, nil })
		must(err)
	}
	add("agenda")
	must(plan.Savepoint(ctx, "agreed"))
	add("draft")
	must(plan.UnwindTo(ctx, "agreed", "the draft was wrong"))
	add("second-draft") // an action that was undone keeps its ID
	must(plan.Commit(ctx))
	fmt.Println("committed")
	// Output:
	// remove {"id":"draft"}
	// committed
}

// A call that timed out may have happened. Settled waits until the executor has asked the world.
func ExamplePlan_Settled() {
	nc, stop := serverAndExecutor()
	defer stop()
	ctx := context.Background()
	w, err := worker.New(worker.Config{Conn: nc, Tenant: "default", Name: "notes"})
	must(err)
	defer w.Close(ctx)
	must(w.Answer("note.find", func(context.Context, api.Command) (worker.Answer, error) {
		return worker.Answer{Output: json.RawMessage(`{"presence": "present"}`)}, nil
	}))
	c, err := coordinator.New(coordinator.Config{Conn: nc, Tenant: "default", Agent: "writer",
		Contracts: []contract.Contract{{
			Capability: "note.add", Class: contract.Compensable,
			Inverse:  &contract.Inverse{Call: "note.remove"},
			Probe:    &contract.Probe{Call: "note.find"},
			AskAfter: time.Millisecond, // in production: a minute, which is the default
		}}})
	must(err)
	defer c.Close(ctx)
	plan, err := c.Begin(ctx, coordinator.PlanSpec{Owner: "docs"})
	must(err)
	_, err = plan.Do(ctx, coordinator.Action{ID: "first", Capability: "note.add"},
		func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			return coordinator.Outcome{}, errors.New("no answer in time")
		})
	fmt.Println(err != nil)
	unknown, err := plan.Settled(ctx)
	must(err)
	fmt.Println(len(unknown), "actions are not known")
	must(plan.Commit(ctx))
	// Output:
	// true
	// 0 actions are not known
}

// An action that waits for a supervisor's verdict. A block keeps its forward from running;
// nothing is undone by it, and the agent decides what comes next.
func ExampleVerdict() {
	nc, stop := serverAndExecutor()
	defer stop()
	ctx := context.Background()
	c, err := coordinator.New(coordinator.Config{
		Conn: nc, Tenant: "default", Agent: "writer", Contracts: notes,
	})
	must(err)
	defer c.Close(ctx)
	plan, err := c.Begin(ctx, coordinator.PlanSpec{Owner: "docs"})
	must(err)
	must(plan.Flush(ctx))
	decided := blocking(nc, plan.ID(), "publish", "it names a customer")
	_, err = plan.Do(ctx, coordinator.Action{ID: "publish", Capability: "note.add", Review: true},
		func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			fmt.Println("not reached")
			return coordinator.Outcome{}, nil
		})
	var verdict *coordinator.Verdict
	if errors.As(err, &verdict) {
		fmt.Printf("%s by %s: %s\n", verdict.Outcome, verdict.By, verdict.Reason)
	}
	decided()
	must(plan.Commit(ctx)) // of the rest of the plan
	// Output:
	// block by compliance: it names a customer
}

// remover is a worker for note.remove.
func remover(nc *nats.Conn) *worker.Worker {
	w, err := worker.New(worker.Config{Conn: nc, Tenant: "default", Name: "notes"})
	must(err)
	must(w.Handle("note.remove", func(_ context.Context, c api.Command) (worker.Result, error) {
		fmt.Printf("remove %s\n", c.Arguments)
		return worker.Result{}, nil
	}))
	return w
}

// blocking is a supervisor that blocks one action as soon as it is paged about it.
func blocking(nc *nats.Conn, plan, action, reason string) (wait func()) {
	pages, err := nc.SubscribeSync("page.default.>")
	must(err)
	must(nc.Flush())
	judge, err := supervisor.New(supervisor.Config{Conn: nc, Tenant: "default", Name: "compliance"})
	must(err)
	var done sync.WaitGroup
	done.Go(func() {
		_, err := pages.NextMsg(time.Minute)
		must(err)
		_, err = judge.Give(context.Background(), supervisor.Verdict{Plan: plan, Action: action,
			Outcome: supervisor.Block, Reason: reason})
		must(err)
	})
	return done.Wait
}
