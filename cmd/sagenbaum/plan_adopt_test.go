package main

import (
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/coordinator"
)

// TestAnOperatorHandsAPlanOver of an agent that is gone, and another one commits it.
func TestAnOperatorHandsAPlanOver(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--listen", "127.0.0.1:0")
	ctx := t.Context()
	agent := func(name string) *coordinator.Coordinator {
		c, err := coordinator.New(coordinator.Config{Conn: cmdtest.Dial(t, s.URL), Tenant: "default", Agent: name})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	gone, heir := agent("gone"), agent("heir")
	plan, err := gone.Begin(ctx, coordinator.PlanSpec{ID: "p1"})
	if err == nil {
		err = plan.Flush(ctx)
	}
	if err == nil {
		err = gone.Close(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	adopt := func(more ...string) cmdtest.Result {
		return s.Ask(t, "default", append([]string{"plan", "adopt", "p1", "--actor", "ana"}, more...)...)
	}
	adopt("--agent", "heir").Wants(t, "no reason", cli.ExitUsage, "--reason")
	adopt("--reason", "x").Wants(t, "no agent", cli.ExitUsage, "--agent")
	adopt("--reason", "x", "--agent", "a b").Wants(t, "no name", cli.ExitUsage, "is not a name")
	adopt("--reason", "x", "--agent", "gone").Wants(t, "its own", cli.ExitConflict, "is agent gone's")
	r := adopt("--reason", "its machine is gone", "--agent", "heir")
	if r.Wants(t, "adopt", cli.ExitGood); !strings.Contains(r.Stdout, "p1 is agent heir's, and no longer agent gone's") {
		t.Errorf("%s", r.Stdout)
	}
	if r := s.Ask(t, "default", "plan", "show", "p1"); !strings.Contains(r.Stdout, "agent heir, from gone by ana ") ||
		!strings.Contains(r.Stdout, "(its machine is gone), which has not resumed it yet") {
		t.Errorf("%s", r.Stdout)
	}
	resumed, err := heir.Resume(ctx, "p1")
	if err == nil {
		err = resumed.Commit(ctx)
	}
	if err == nil {
		err = heir.Close(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	adopt("--reason", "too late", "--agent", "gone").Wants(t, "too late", cli.ExitConflict, "is not handed to another")
	s.End(t).Wants(t, "serve", cli.ExitGood)
}
