package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// A worker that deletes branches, and says whether one is there. It gives the key of the
// command to the tool that it calls, because a command may come more than once.
func Example() {
	nc, stop := server() // in production: connect.Default()
	defer stop()
	ctx := context.Background()
	branches := map[string]bool{"feature": true}
	w, err := worker.New(worker.Config{Conn: nc, Tenant: "default", Name: "git", Concurrency: 1})
	must(err)
	defer w.Close(ctx)
	must(w.Handle("git.branch.delete", func(_ context.Context, c api.Command) (worker.Result, error) {
		var arguments struct{ Branch string }
		if err := json.Unmarshal(c.Arguments, &arguments); err != nil {
			return worker.Result{}, worker.Stop(err) // trying again will not help
		}
		delete(branches, arguments.Branch) // gone already is done, too
		return worker.Result{}, nil
	}))
	must(w.Answer("git.branch.get", func(_ context.Context, c api.Command) (worker.Answer, error) {
		if branches["feature"] {
			return worker.Present("refs/heads/feature"), nil
		}
		return worker.Absent(), nil
	}))

	// What an executor sends, which is JSON:
	for attempt := range uint32(2) {
		fmt.Println(ask(nc, api.UndoSubject("default", "git.branch.delete"), api.Command{
			Purpose: "undo", Tenant: "default", Plan: "p1", Action: "branch", Key: "4a44dc15364204a8",
			Capability: "git.branch.delete", Attempt: attempt + 1, Term: 1, TimeoutMs: 1000,
			Arguments: json.RawMessage(`{"branch": "feature"}`),
		}))
	}
	fmt.Println(ask(nc, api.AskSubject("default", "git.branch.get"), api.Command{
		Purpose: api.PurposeVerify, Tenant: "default", Plan: "p1", Action: "branch",
		Key: "4a44dc15364204a8", Capability: "git.branch.get", Attempt: 1, Term: 1, TimeoutMs: 1000,
		Arguments: json.RawMessage(`{}`),
	}))
	// Output:
	// attempt 1: done
	// attempt 2: done
	// attempt 1: done {"presence":"absent"}
}

// ask sends a command, and returns the reply for people.
func ask(nc *nats.Conn, subject string, c api.Command) string {
	body, err := json.Marshal(c)
	must(err)
	answer, err := nc.Request(subject, body, time.Minute)
	must(err)
	var reply api.Reply
	must(json.Unmarshal(answer.Data, &reply))
	text := fmt.Sprintf("attempt %d: %s", reply.Attempt, reply.Status)
	if len(reply.Output) > 0 {
		text += " " + string(reply.Output)
	}
	return text
}

// server starts NATS in this process, as `sagenbaum serve` does, with a ledger for tenant
// default.
func server() (*nats.Conn, func()) {
	dir, err := os.MkdirTemp("", "sagenbaum")
	must(err)
	srv, err := embedded.Start(embedded.Config{Dir: dir, Port: -1})
	must(err)
	nc, err := srv.Connect()
	must(err)
	_, err = jetstream.Open(context.Background(),
		jetstream.Config{Conn: nc, Tenant: "default", DurableServer: srv.DurableID()})
	must(err)
	return nc, func() {
		nc.Close()
		srv.Close()
		must(os.RemoveAll(dir))
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
