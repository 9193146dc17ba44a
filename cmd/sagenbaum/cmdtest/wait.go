package cmdtest

import (
	"context"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/demo"
)

// Eventually asks again and again until the answer is yes; what it last saw is told
// when it never is.
func Eventually(t *testing.T, what string, seen func() (string, bool)) {
	t.Helper()
	eventually(t, what, 50*time.Millisecond, seen)
}

// eventually asks so often.
func eventually(t *testing.T, what string, every time.Duration, seen func() (string, bool)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		saw, yes := seen()
		if yes {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: never; at last\n%s", what, saw)
		case <-tick.C:
		}
	}
}

// Until asks again and again whether something holds, and fails the test when it
// does not before ctx ends, or in testenv.Patience where ctx has no deadline.
func Until(t *testing.T, ctx context.Context, what string, holds func() bool) {
	t.Helper()
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, testenv.Patience)
		defer cancel()
	}
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatalf("not in time: %s", what)
		case <-time.After(demo.AgainPause):
		}
	}
}
