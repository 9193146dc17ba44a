package coordinator_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
)

// The quickstart: a plan whose second tool fails. Nothing in it undoes anything;
// the executor and a worker for "file.delete" will, also if this process dies.
func Example() {
	nc, stop := server() // in production: connect.Default()
	defer stop()
	ctx := context.Background()
	c, err := coordinator.New(coordinator.Config{Conn: nc, Tenant: "default", Agent: "writer",
		Contracts: []contract.Contract{{Capability: "file.write", Class: contract.Compensable,
			Late: contract.LateNever, OnInDoubt: contract.InDoubtCompensate,
			Inverse: &contract.Inverse{Call: "file.delete", With: map[string]any{
				"path": "=input.path", "key": "=meta.forward_key"}}}}})
	must(err)
	defer c.Close(ctx)
	plan, err := c.Begin(ctx, coordinator.PlanSpec{Label: "report", Owner: "docs", Deadline: 2 * time.Hour})
	must(err)
	for _, path := range []string{os.TempDir() + "/sagenbaum-example", "/no such folder/report"} {
		_, err = plan.Do(ctx,
			coordinator.Action{Capability: "file.write", Input: map[string]string{"path": path}},
			func(ctx context.Context, call coordinator.Call) (coordinator.Outcome, error) {
				return coordinator.Outcome{}, os.WriteFile(path, []byte("draft "+call.Key), 0o600)
			})
		fmt.Println("written:", err == nil)
	}
	if err != nil {
		must(plan.Fail(ctx, "no place for the report")) // the executor now undoes the plan
		return
	}
	must(plan.Commit(ctx))
	// Output:
	// written: true
	// written: false
}

// server starts NATS in this process, as `sagenbaum serve` does, with a ledger
// for tenant default.
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
		must(os.Remove(filepath.Join(os.TempDir(), "sagenbaum-example")))
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
