package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// TestTheAdviceOnTheClockIsFollowed: of the checks clock, and executor, which points to it. The clock
// of a host jumps ahead and is set right; it jumps again, and an operator says that it is right, by
// the command that the doctor prints; and it is set back, so that the ledger's time is ahead of it.
func TestTheAdviceOnTheClockIsFollowed(t *testing.T) {
	t.Parallel()
	url := bare(t)
	ahead, start := new(atomic.Int64), time.Now()
	h, err := host.New(host.Config{Conn: cmdtest.Dial(t, url), Tenants: []string{"default"}, Dir: t.TempDir(),
		Holder: "host-a", AcceptLossyBroker: true,
		Clock: host.ClockOf(func() time.Time { return time.Now().Round(0).Add(time.Duration(ahead.Load())) },
			func() time.Duration { return time.Since(start) })})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }() // ends with cancel
	ask, conn := asking(t, url), cmdtest.Dial(t, url)
	ask.Content(t, lossy)
	cmdtest.Freeing(t, conn, "default")
	set := func(id string, so time.Duration) { // and have something decided under it
		t.Helper()
		ahead.Store(int64(so))
		cmdtest.UnservedPlan(t, conn, "default", id)
		ask("plan", "cancel", id, "--reason", "sold out", "--actor", "ana", "--wait").Wants(t, "plan cancel",
			cli.ExitGood)
	}
	const jump = 20 * time.Second
	set("p1", jump)
	guard := ask.Advised(t, "clock")
	if f := ask.Advised(t, "executor"); !strings.HasPrefix(f.Next, "see clock below") {
		t.Errorf("%+v", f)
	}
	set("p2", 0) // as the first half of the advice says
	ask.Content(t, lossy)
	set("p3", jump)
	ask.Follow(t, guard) // the clock is right, as the second half asks
	ask.Content(t, lossy)
	n := 3
	cmdtest.Eventually(t, "the ledger's time is ahead", func() (string, bool) { // for some seconds each time
		n++
		set(fmt.Sprint("p", n), jump)
		f := ask.Findings(t)["clock"]
		return f.Text + "; " + f.Next, f.State == "warn" &&
			strings.HasPrefix(f.Next, "compare the clocks of this machine, of host host-a and of the NATS servers") &&
			strings.HasSuffix(f.Next, "then wait, if the ledger's time is still ahead")
	})
	ahead.Store(0) // it was the host's
	ask.Content(t, lossy)
	cancel()
	must(t, <-ended)
	must(t, h.Close())
}
