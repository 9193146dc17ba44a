// Package rebuild is `sagenbaum rebuild`: fold the ledger again, or compare the state with it.
package rebuild

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Command is `sagenbaum rebuild` with all below it.
func Command(s *cli.Settings) *cobra.Command {
	var check bool
	limit := cli.RepairWait
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Drop a tenant's folded state and fold its ledger again, or only compare",
		Long: `Drop a tenant's folded state and fold its ledger again from the first record, while
nothing is dispatched; it returns when the fold is where it was. The state is a
cache, so nothing is lost. A tenant that was halted because its state folder came
from elsewhere is taken up again: its guards are checked once more.

--check folds beside the running executor instead and compares the two, byte for
byte; it changes nothing. Exit code 1 when they differ.`,
		Example: "  sagenbaum rebuild --check\n  sagenbaum rebuild --tenant default",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckWait(limit, "1h"); err != nil {
				return err
			}
			if check {
				return CheckRebuild(cmd, s, limit)
			}
			return rebuild(cmd, s, limit)
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "fold beside the running executor and compare")
	cmd.Flags().DurationVar(&limit, "wait-timeout", limit, "how long to wait at most")
	return cmd
}

// rebuild drops the state and waits until it is there again.
func rebuild(cmd *cobra.Command, s *cli.Settings, limit time.Duration) error {
	start := time.Now()
	dropped, err := cli.Administer(cmd, s, limit, "drop the state", api.Rebuild, api.Nothing{})
	if err != nil {
		return err
	}
	return s.With(func(c *cli.Client) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), limit)
		defer cancel()
		var status api.Status
		var err error
		for again := true; again; {
			if status, err = c.Status(ctx); err != nil {
				return cli.Failed("see how the rebuild goes", err)
			}
			again = status.Mode == api.ModeStarting || status.Mode != api.ModeHalted &&
				status.Applied < dropped.Applied
			if !again {
				break
			}
			select {
			case <-ctx.Done():
				return cli.Fail(cli.ExitFailed, "sagenbaum status",
					"the state is folded up to %d of %d so far; it goes on", status.Applied,
					dropped.Applied)
			case <-time.After(cli.TenantPause):
			}
		}
		if status.Mode == api.ModeHalted {
			return cli.Fail(cli.ExitLook, render.HaltedNext(status.Halted), "tenant %s is halted: %s",
				status.Tenant, status.Problem)
		}
		took := time.Since(start)
		return s.Print(cmd,
			map[string]any{"applied": status.Applied, "records": status.Records,
				"took_ms": took.Milliseconds()}, func() {
				fmt.Fprintf(cmd.OutOrStdout(), "sequences 1 to %d folded again, %d records, in %s\n",
					status.Applied, status.Records, cli.Span(took))
			})
	})
}

// CheckRebuild compares the state with a fold beside it.
func CheckRebuild(cmd *cobra.Command, s *cli.Settings, limit time.Duration) error {
	answer, err := cli.Administer(cmd, s, limit, "rebuild", api.MemoryRebuild, api.Nothing{})
	if err != nil {
		return err
	}
	err = s.Print(cmd, answer, func() { writeRebuild(cmd, s.Pen(cmd), answer) })
	return cli.Look(err, !answer.Equal)
}

func writeRebuild(cmd *cobra.Command, p cli.Pen, answer api.RebuildAnswer) {
	out := cmd.OutOrStdout()
	word := p.State("ok")
	if !answer.Equal {
		word = p.In(cli.StateColors["FAIL"], "DIFFERENT")
	}
	fmt.Fprintf(out, "%s · sequences 1 to %d folded again in %s\n", word, answer.Applied,
		cli.Span(time.Duration(answer.TookMs)*time.Millisecond))
	fmt.Fprintf(out, "working memory  %s, %d facts\n  folded again  %s\n", answer.Facts,
		answer.Rows, answer.Refolded)
	fmt.Fprintf(out, "whole state     %s\n  folded again  %s\n", answer.State, answer.Rebuilt)
	for _, row := range answer.Differ {
		fmt.Fprintln(out, "  "+cli.Printable(row))
	}
}
