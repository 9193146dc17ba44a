package plan

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

const (
	progressEvery = 500 * time.Millisecond
	progressWidth = 20 // characters of the bar
)

// follow shows on a terminal how an unwind that is waited for gets on, until stop is
// called: on stderr, in one line, over a connection of its own. Anywhere else it is
// silent.
func follow(ctx context.Context, s *cli.Settings, w io.Writer, plan string) (stop func()) {
	f, ok := w.(*os.File)
	if !ok || !cli.IsTerminal(f) || os.Getenv("TERM") == "dumb" {
		return func() {}
	}
	c, err := s.Connect()
	if err != nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // ends with stop
		defer close(done)
		for {
			if shown, err := c.Plan(ctx, plan, 0); err == nil {
				text := cli.Shorten(progressText(cli.ForPeople(shown)), max(cli.ColumnsOf(f)-1, 40))
				fmt.Fprint(w, "\r", text, "\x1b[K")
			}
			select {
			case <-ctx.Done():
				fmt.Fprint(w, "\r\x1b[K")
				return
			case <-time.After(progressEvery):
			}
		}
	}()
	return func() {
		cancel()
		<-done
		c.Close()
	}
}

// progressText is how far an unwind is, in one line.
func progressText(plan api.Plan) string {
	settled, all, working, lost, waiting := 0, 0, 0, 0, 0
	for _, a := range plan.Actions {
		switch a.Undo {
		case "compensated", "skipped", "resolved":
			settled++
			all++
		case "dispatched":
			all++
			if a.NoWorker {
				lost++
			} else {
				working++
			}
		case "waiting":
			waiting++
			all++
		case cli.UndoQuarantined, "owed", "ahead", "ready", "exhausted":
			all++
		}
	}
	if all == 0 {
		return plan.State
	}
	bar := settled * progressWidth / all
	parts := []string{fmt.Sprintf("[%s%s] %d of %d settled", strings.Repeat("#", bar),
		strings.Repeat(".", progressWidth-bar), settled, all)}
	for _, p := range []struct {
		n    int
		what string
	}{{working, "at work"}, {waiting, "to be tried again"}, {lost, "without a worker"},
		{plan.Quarantined, "quarantined"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if plan.State != ledger.StateUnwinding && plan.State != ledger.StateDelivering {
		parts = append(parts, plan.State)
	}
	return strings.Join(parts, ", ")
}
