//go:build exercise

package deploy

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// The disk runs full: nothing is acknowledged that is not stored, and when there
// is room again the work goes on by itself, with everything acknowledged.
func TestServeGoesOnAfterTheDiskWasFull(t *testing.T) {
	t.Parallel()
	data := cmdtest.DataDir(t)
	disk := cmdtest.SmallDisk(t)
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(disk, filepath.Join(data, "nats")); err != nil {
		t.Fatal(err)
	}
	s := cmdtest.ServeFor(t, data, "--listen", "127.0.0.1:0")
	conn := cmdtest.Dial(t, s.URL)
	cmdtest.OpenPlan(t, conn, "default", "before")
	agent, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: "default", Agent: "tester",
		AppendTimeout: 3 * time.Second, Contracts: []contract.Contract{
			{Capability: "mail.send", Class: contract.Irreversible},
		}})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := agent.Begin(t.Context(), coordinator.PlanSpec{ID: "during", Owner: "operator1"})
	if err != nil {
		t.Fatal(err)
	}
	empty := cmdtest.FillDisk(t, disk)
	action := coordinator.Action{ID: "a1", Capability: "mail.send", Input: strings.Repeat("x", 32<<10)}
	if err := plan.Report(t.Context(), action, coordinator.Outcome{}); !errors.Is(err, ledger.ErrInDoubt) {
		t.Errorf("a report on a full disk ended with %v, want in doubt", err)
	}
	empty()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	for err = ledger.ErrInDoubt; errors.Is(err, ledger.ErrInDoubt) && ctx.Err() == nil; {
		err = plan.Report(ctx, action, coordinator.Outcome{})
	}
	if err != nil {
		t.Fatalf("no work after there was room again: %v\n%s", err, s.Stderr)
	}
	if err := agent.Close(ctx); err != nil {
		t.Error(err)
	}
	for _, id := range []string{"before", "during"} {
		p := cmdtest.Decoded[api.Plan](t, s.Ask(t, "default", "plan", "show", id, "-o", "json"))
		if p.ActionCount != 1 || p.Held != 1 {
			t.Errorf("plan %s has %d actions, %d held, want one", id, p.ActionCount, p.Held)
		}
	}
	if r := s.End(t); r.Code != cli.ExitGood || !strings.Contains(r.Stderr, "starting the embedded server again") {
		t.Errorf("serve ended with %d and did not say that it had to start again:\n%s", r.Code, r.Stderr)
	}
}
