package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/supervisor"
	"github.com/sagenbaum/sagenbaum/executor/host/inprocess"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// publish is what agents may do here only after a verdict.
var publish = []contract.Contract{{Capability: "page.publish", Class: contract.Compensable,
	Review: true, Inverse: &contract.Inverse{Call: "page.remove", With: map[string]any{
		"url": "=output.url"}}}}

// A service that judges what agents are about to do. It looks at the input of each action that
// waits, and allows it or says why not; the agent's call returns then.
func Example() {
	dir, err := os.MkdirTemp("", "sagenbaum")
	must(err)
	defer os.RemoveAll(dir)
	ctx := context.Background()
	server, err := inprocess.Start(ctx, inprocess.Config{Dir: filepath.Join(dir, "data")})
	must(err)
	defer server.Close()
	nc, err := server.Connect() // in production: connect.Default(), of a user of role supervisor
	must(err)

	said := writer(ctx, server)
	judge, err := supervisor.New(supervisor.Config{Conn: nc, Tenant: "default", Name: "compliance"})
	must(err)
	look := time.NewTicker(50 * time.Millisecond) // or a page says when: docs/guide/pages.md
	defer look.Stop()
	for judged := 0; judged < 2; <-look.C {
		waiting, err := judge.Waiting(ctx, 0)
		must(err)
		for _, action := range waiting {
			if action.Omitted { // too large for the list
				whole, waits, err := judge.Show(ctx, action.Plan, action.Action)
				must(err)
				if !waits { // any more
					continue
				}
				action = whole
			}
			given, err := judge.Give(ctx, verdictOn(action))
			must(err)
			fmt.Println("the plan is", given.State)
			judged++
			fmt.Println(<-said)
		}
	}
	<-said
	// Output:
	// the plan is open
	// block by compliance: it names a customer
	// the plan is open
	// published
}

// verdictOn is the rule of this service. It allows nothing that it has not seen.
func verdictOn(action api.Review) supervisor.Verdict {
	v := supervisor.Verdict{Plan: action.Plan, Action: action.Action, Outcome: supervisor.Allow}
	switch {
	case action.Omitted || len(action.Input) == 0:
		v.Outcome, v.Reason = supervisor.Block, "its input is not known"
	case strings.Contains(string(action.Input), "customer"):
		v.Outcome, v.Reason = supervisor.Block, "it names a customer"
	}
	return v
}

// writer is an agent that publishes two texts, and says what came of each.
func writer(ctx context.Context, server *inprocess.Server) <-chan string {
	nc, err := server.Connect()
	must(err)
	c, err := coordinator.New(coordinator.Config{Conn: nc, Tenant: "default", Agent: "writer",
		Contracts: publish})
	must(err)
	plan, err := c.Begin(ctx, coordinator.PlanSpec{Owner: "docs"})
	must(err)
	said := make(chan string)
	go func() { // ends with the second text
		defer close(said)
		for _, text := range []string{"what a customer asked", "what is new"} {
			_, err := plan.Do(ctx, coordinator.Action{Capability: "page.publish", Input: text},
				func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
					return coordinator.Outcome{Output: map[string]string{"url": "/news"}}, nil
				})
			var verdict *coordinator.Verdict
			if errors.As(err, &verdict) {
				said <- fmt.Sprintf("%s by %s: %s", verdict.Outcome, verdict.By, verdict.Reason)
				continue
			}
			must(err)
			said <- "published"
		}
		must(plan.Commit(ctx))
		must(c.Close(ctx))
	}()
	return said
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
