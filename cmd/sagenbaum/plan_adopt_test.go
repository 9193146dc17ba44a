package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	plancmd "github.com/sagenbaum/sagenbaum/cmd/sagenbaum/plan"
	"github.com/sagenbaum/sagenbaum/coordinator"
)

// TestAnOperatorHandsAPlanOver of an agent that is gone, and another one ends it.
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
	err := beginsInParts(t, gone)
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
	adopt("--reason", "x", "--agent", "heir", "--follows", "1").Wants(t, "as seen before", cli.ExitConflict,
		"plan_adopted.follows: 1, and the writer of plan p1 is another one since")
	r := adopt("--reason", "its machine is gone", "--agent", "heir")
	r.Wants(t, "adopt", cli.ExitGood)
	if !strings.Contains(r.Stdout, "p1 is agent heir's, and no longer agent gone's") ||
		!strings.Contains(r.Stdout, "its child plan part stays") || strings.Contains(r.Stdout, "child plan ended") {
		t.Errorf("%s", r.Stdout)
	}
	// on, and back, by what the command before has printed, which is honoured once
	var first plancmd.Handed
	r = adopt("--reason", "on", "--agent", "next", "--follows", "0", "-o", "json")
	if json.Unmarshal([]byte(r.Stdout), &first) != nil || first.From != "heir" ||
		first.WriterAt != first.Record || !slices.Equal(first.Children, []string{"part"}) {
		t.Fatalf("%+v", r)
	}
	seen := fmt.Sprint(first.WriterAt)
	adopt("--reason", "its machine is gone", "--agent", "heir", "--follows", seen).Wants(t, "as printed", cli.ExitGood)
	adopt("--reason", "again", "--agent", "next", "--follows", seen).Wants(t, "as printed, once more", cli.ExitConflict,
		"plan_adopted.follows: "+seen)
	if r := s.Ask(t, "default", "plan", "show", "p1"); !strings.Contains(r.Stdout, "agent heir, from gone by ana ") ||
		!strings.Contains(r.Stdout, "(its machine is gone), which has not resumed it yet") {
		t.Errorf("%s", r.Stdout)
	}
	resumed, err := heir.Resume(ctx, "p1")
	if err == nil {
		err = resumed.Fail(ctx, "no more of it")
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

// beginsInParts has an agent begin plan p1, with a child plan that has ended and one that is open.
func beginsInParts(t *testing.T, c *coordinator.Coordinator) error {
	ctx := t.Context()
	plan, err := c.Begin(ctx, coordinator.PlanSpec{ID: "p1"})
	if err == nil {
		err = plan.Flush(ctx)
	}
	for _, id := range []string{"ended", "part"} {
		var part *coordinator.Plan
		if err == nil {
			part, err = c.Begin(ctx, coordinator.PlanSpec{ID: id, Parent: "p1"})
		}
		if err == nil && id == "ended" {
			err = part.Commit(ctx)
		} else if err == nil {
			err = part.Flush(ctx)
		}
	}
	return err
}
