package undo

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

func TestATimeOfThePast(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("", 2*3600)
	now := time.Date(2026, 5, 4, 15, 30, 0, 0, zone)
	for text, want := range map[string]time.Time{
		"14:00":                time.Date(2026, 5, 4, 14, 0, 0, 0, zone),
		"14:00:05":             time.Date(2026, 5, 4, 14, 0, 5, 0, zone),
		"2026-05-03":           time.Date(2026, 5, 3, 0, 0, 0, 0, zone),
		"2026-05-03 07:10":     time.Date(2026, 5, 3, 7, 10, 0, 0, zone),
		"2026-05-03T07:10":     time.Date(2026, 5, 3, 7, 10, 0, 0, zone),
		"2026-05-03 07:10:01":  time.Date(2026, 5, 3, 7, 10, 1, 0, zone),
		"2026-05-04T13:00:00Z": time.Date(2026, 5, 4, 13, 0, 0, 0, time.UTC),
		"90m":                  now.Add(-90 * time.Minute),
	} {
		if ns, err := past(text, now); err != nil || ns != want.UnixNano() {
			t.Errorf("%s is %v, %v; want %v", text, time.Unix(0, ns), err, want)
		}
	}
	for _, text := range []string{"", "noon", "25:00", "-1h", "16:00", "2026-05-04T14:00:00Z", "0001-01-01", "14"} {
		if _, err := past(text, now); err == nil {
			t.Errorf("%q is a time", text)
		}
	}
}

func TestOnlyAYesIsAYes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"y\n": true, "YES\n": true, "yes": true, "\n": false, "": false,
		"n\n": false, "yesterday\n": false} {
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		cmd.SetIn(strings.NewReader(text))
		cmd.SetErr(io.Discard)
		if err := new(request).ask(cmd, 2); (err == nil) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	never, _ := io.Pipe()
	cmd.SetIn(never)
	cmd.SetErr(io.Discard)
	if new(request).ask(cmd, 1) == nil {
		t.Error("an interrupt is a yes")
	}
}
