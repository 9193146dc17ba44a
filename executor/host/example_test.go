package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/executor/host"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Agent, server and worker in one process, on one folder, as a library. It is as durable as
// `sagenbaum serve`: when this process is killed, the next one undoes what is left to be undone.
func ExampleStart() {
	dir, ctx := folder(), context.Background()
	defer os.RemoveAll(dir)
	s, err := host.Start(ctx, host.LocalConfig{Dir: filepath.Join(dir, "sagenbaum-data")})
	must(err)
	defer s.Close()
	nc, err := s.Connect()
	must(err)

	w, err := worker.New(worker.Config{Conn: nc, Tenant: "default", Name: "files"})
	must(err)
	defer w.Close(ctx)
	must(w.Handle("file.delete", func(_ context.Context, c api.Command) (worker.Result, error) {
		var path string
		must(json.Unmarshal(c.Arguments, &struct{ Path *string }{&path}))
		fmt.Println("delete", filepath.Base(path))
		return worker.Result{}, os.RemoveAll(path)
	}))

	c, err := coordinator.New(coordinator.Config{Conn: nc, Tenant: "default", Agent: "writer",
		Contracts: []contract.Contract{{Capability: "file.write", Class: contract.Compensable,
			Inverse: &contract.Inverse{Call: "file.delete", With: map[string]any{"path": "=input"}}}}})
	must(err)
	defer c.Close(ctx)
	plan, err := c.Begin(ctx, coordinator.PlanSpec{})
	must(err)
	for _, name := range []string{"draft", "summary"} {
		path := filepath.Join(dir, name)
		_, err = plan.Do(ctx, coordinator.Action{Capability: "file.write", Input: path},
			func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
				fmt.Println("write", name)
				return coordinator.Outcome{}, os.WriteFile(path, []byte(name), 0o600)
			})
		must(err)
	}
	must(plan.Fail(ctx, "the report is not wanted"))
	end, err := plan.Wait(ctx)
	must(err)
	fmt.Println(end.State)
	// Output:
	// write draft
	// write summary
	// delete summary
	// delete draft
	// compensated
}

func folder() string {
	dir, err := os.MkdirTemp("", "sagenbaum")
	must(err)
	return dir
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
