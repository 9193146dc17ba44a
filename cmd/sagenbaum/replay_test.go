package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/replay"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// S36, S105: an agent whose code undoes its actions is gone when its plan is
// cancelled. `plan show` and `doctor` say what is waited for and what to do; run
// again, it is undone.
func TestAHandlerThatNoProcessOffersIsSeen(t *testing.T) {
	t.Parallel()
	server := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--listen", "127.0.0.1:0")
	agent := func(ctx context.Context, end func() error) error {
		c, err := coordinator.New(coordinator.Config{Conn: cmdtest.Dial(t, server.URL), Tenant: "default", Agent: "writer"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(t.Context())
		return replay.Run(ctx, c, replay.Config{Plan: coordinator.PlanSpec{ID: "p1"}, Function: "report"},
			func(ctx context.Context, p *replay.Plan) error {
				_, err := p.Do(ctx, replay.Action{ID: "draft", Capability: "file.write", Undo: &replay.Undo{
					Handler: func(context.Context, replay.UndoCall) error { return nil },
				}}, func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
					return coordinator.Outcome{}, nil
				})
				if err != nil {
					return err
				}
				return end()
			})
	}
	ctx, stop := context.WithCancel(t.Context())
	if err := agent(ctx, func() error { stop(); return ctx.Err() }); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	server.Ask(t, "default", "plan", "cancel", "p1", "--reason", "not wanted", "--actor", "ana").Wants(t, "plan cancel",
		cli.ExitGood)
	version, err := replay.BuildVersion() // no version is given
	if err != nil {
		t.Fatal(err)
	}
	waits := "the handler of draft, version " + version + ", of agent writer: no process offers it"
	cmdtest.Until(t, t.Context(), "plan show says what is waited for", func() bool {
		return strings.Contains(server.Ask(t, "default", "plan", "tree", "p1").Stdout, waits)
	})
	ask := asking(t, server.URL)
	if f := ask.Advised(t, "handler"); !strings.HasPrefix(f.Text, "plan p1 action draft waits for "+waits) ||
		!strings.HasPrefix(f.Next, "run that agent's function under plan p1 again: its code undoes the action") {
		t.Errorf("%+v", f)
	}
	if err := agent(t.Context(), func() error { return nil }); !errors.Is(err, coordinator.ErrUnwound) ||
		!strings.Contains(err.Error(), "compensated") {
		t.Errorf("run again: %v", err)
	}
	ask.Content(t, "pages") // that of the undo that waits is taken back, or not yet
}
