package main

import (
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/coordinator"
)

// TestAnOperatorMovesTheDeadline of a plan whose agent is gone, and who did is shown.
func TestAnOperatorMovesTheDeadline(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--listen", "127.0.0.1:0")
	ctx := t.Context()
	agent, err := coordinator.New(coordinator.Config{Conn: cmdtest.Dial(t, s.URL), Tenant: "default", Agent: "tester"})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := agent.Begin(ctx, coordinator.PlanSpec{ID: "p1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if err := agent.Close(ctx); err != nil {
		t.Fatal(err)
	}
	move := func(more ...string) cmdtest.Result {
		return s.Ask(t, "default", append([]string{"plan", "deadline", "p1", "--actor", "ana"}, more...)...)
	}
	move("--in", "2h").Wants(t, "no reason", cli.ExitUsage, "--reason")
	move("--reason", "x").Wants(t, "no time", cli.ExitUsage, "one of --in and --at")
	move("--reason", "x", "--in", "1h", "--at", "2099-01-01T00:00:00Z").Wants(t, "two times", cli.ExitUsage,
		"one of --in and --at")
	move("--reason", "x", "--at", "tomorrow").Wants(t, "no time", cli.ExitUsage, "tomorrow")
	move("--reason", "x", "--at", time.Now().Add(-25*time.Hour).Format(time.DateTime)).Wants(t, "yesterday",
		cli.ExitUsage, "has passed")
	move("--reason", "x", "--in", "-1h").Wants(t, "passed", cli.ExitUsage, "plan unwind")
	r := move("--in", "2h", "--reason", "it takes longer")
	if r.Wants(t, "move", cli.ExitGood); !strings.Contains(r.Stdout, "the deadline of p1 is ") ||
		!strings.Contains(r.Stdout, "it had none") {
		t.Errorf("%s", r.Stdout)
	}
	if r := s.Ask(t, "default", "plan", "show", "p1"); !strings.Contains(r.Stdout, ", moved by ana ") ||
		!strings.Contains(r.Stdout, "(it takes longer)") {
		t.Errorf("%s", r.Stdout)
	}
	move("--at", time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano), "--reason", "now").Wants(t, "earlier",
		cli.ExitGood)
	cmdtest.Eventually(t, "a plan that its deadline has ended", func() (string, bool) {
		r := s.Ask(t, "default", "plan", "show", "p1", "-o", "json")
		return r.Stdout, strings.Contains(r.Stdout, `"state": "failed"`)
	})
	move("--in", "2h", "--reason", "too late").Wants(t, "too late", cli.ExitConflict, "is not moved any more")
	s.End(t).Wants(t, "serve", cli.ExitGood)
}
