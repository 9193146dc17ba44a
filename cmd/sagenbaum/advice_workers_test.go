package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// oddWorker serves what undoes room.book in a client of its own, with the answer that is in force.
type oddWorker struct {
	mu     sync.Mutex
	answer func(c api.Command) string
}

func (o *oddWorker) set(answer func(c api.Command) string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer = answer
}

func (o *oddWorker) serve(t *testing.T, conn *nats.Conn) *nats.Subscription {
	t.Helper()
	sub, err := conn.QueueSubscribe(api.UndoSubject("default", "room.free"), "workers", func(m *nats.Msg) {
		var c api.Command
		if json.Unmarshal(m.Data, &c) != nil {
			return
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		_ = m.Respond([]byte(o.answer(c)))
	})
	must(t, errors.Join(err, conn.Flush()))
	return sub
}

// TestTheAdviceOnAnswersOfWorkersIsFollowed: of the checks replies and fields. A worker that was
// written for another version is brought up to date twice: it then repeats key and attempt, and
// then says how long it has worked as a number. What is still held against it is gone at once.
func TestTheAdviceOnAnswersOfWorkersIsFollowed(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t))
	ask, conn := asking(t, s.URL), cmdtest.Dial(t, s.URL)
	agent, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: "default", Agent: "tester",
		Contracts: []contract.Contract{{Capability: "room.book", Class: contract.Compensable,
			Inverse: &contract.Inverse{Call: "room.free", Timeout: time.Second, Backoff: 10 * time.Millisecond}}}})
	must(t, err)
	undone := func(id string) {
		t.Helper()
		plan, err := agent.Begin(t.Context(), coordinator.PlanSpec{ID: id, Deadline: time.Hour})
		must(t, err)
		must(t, plan.Report(t.Context(), coordinator.Action{Capability: "room.book"}, coordinator.Outcome{}))
		must(t, plan.Fail(t.Context(), "no room"))
	}
	py := new(oddWorker)
	py.set(func(api.Command) string { return `{"status":"done","worker":"py"}` })
	sub := py.serve(t, conn)
	undone("p1")
	if f := ask.Advised(t, "replies"); !strings.Contains(f.Next, "it repeats key and attempt of its command") ||
		!strings.HasPrefix(f.Details[0], "worker py of room.free, plan p1 ") {
		t.Errorf("%+v", f)
	}
	py.set(func(c api.Command) string {
		return fmt.Sprintf(`{"status":"done","worker":"py","key":%q,"attempt":%d,"message":["x"]}`, c.Key, c.Attempt)
	})
	f := ask.Advised(t, "fields")
	if !strings.Contains(f.Next, "the types of the fields are in docs/workers.md") ||
		!strings.Contains(f.Details[0], "reply.message") {
		t.Errorf("%+v", f)
	}
	ask.Content(t, "fields") // it is sent the command again, and has its answer counted
	must(t, sub.Unsubscribe())
	w, err := worker.New(worker.Config{Conn: conn, Tenant: "default", Name: "py"})
	must(t, err)
	must(t, w.Handle("room.free", cmdtest.Done))
	undone("p2")
	ask.Content(t)
	found := ask.Findings(t)
	for _, check := range []string{"replies", "fields"} {
		if f := found[check]; !strings.Contains(f.Text, "it answers as it should since") {
			t.Errorf("%+v", f)
		}
	}
	must(t, errors.Join(agent.Close(t.Context()), w.Close(t.Context())))
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// TestTheAdviceOnPagesIsFollowed: someone takes the page over NATS, and another one is posted to a
// webhook once there is one. What is quarantined is its owner's still.
func TestTheAdviceOnPagesIsFollowed(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t))
	ask, conn := asking(t, s.URL), cmdtest.Dial(t, s.URL)
	stuck := func(id string) {
		t.Helper()
		cmdtest.OpenPlan(t, conn, "default", id)
		ask("plan", "cancel", id, "--reason", "sold out", "--wait").Wants(t, "plan cancel", cli.ExitLook)
	}
	stuck("p1")
	f := ask.Advised(t, "pages")
	if said := ask.Follow(t, f); !strings.Contains(said, "mail.send") ||
		!strings.Contains(f.Next, "a receiver of page.default.> that replies") {
		t.Errorf("%+v shows %s", f, said)
	}
	sub, err := conn.Subscribe("page.default.>", func(m *nats.Msg) { _ = m.Respond(m.Data) }) // nats reply --echo
	must(t, errors.Join(err, conn.Flush()))
	ask.Content(t, "quarantine")
	must(t, sub.Unsubscribe())
	stuck("p2")
	if f := ask.Advised(t, "pages"); !strings.Contains(f.Next, "serve --webhook URL") {
		t.Errorf("%+v", f)
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
	hook := testenv.NewHook[api.Page](t, testenv.Takes)
	s = s.Again(t, "--webhook", hook.URL)
	asking(t, s.URL).Content(t, "quarantine")
	if got := hook.Next(t); got.Body.Plan != "p2" {
		t.Errorf("%+v", got)
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
}
