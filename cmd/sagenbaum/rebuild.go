package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor"
)

func newRebuild(s *settings) *cobra.Command {
	var check bool
	limit := repairWait
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Drop a tenant's folded state and fold its ledger again, or only compare",
		Long: `Drop a tenant's folded state and fold its ledger again from the first record, while
nothing is dispatched; it returns when the fold is where it was. The state is a
cache, nothing is lost by that. It also takes a tenant up again that was halted
because its state folder came from elsewhere: the guards look again, then.

--check folds beside the running executor instead and compares the two, byte for
byte; it changes nothing. Exit code 1 when they differ.`,
		Example: "  sagenbaum rebuild --check\n  sagenbaum rebuild --tenant default",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit <= 0 {
				return fail(exitUsage, "--wait-timeout 1h", "a wait of %s is none", limit)
			}
			if check {
				return checkRebuild(cmd, s, limit)
			}
			return rebuild(cmd, s, limit)
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "fold beside the running executor and compare")
	cmd.Flags().DurationVar(&limit, "wait-timeout", limit, "how long to wait at most")
	return cmd
}

// rebuild drops the state and waits until it is there again.
func rebuild(cmd *cobra.Command, s *settings, limit time.Duration) error {
	start := time.Now()
	var dropped executor.DroppedAnswer
	if err := s.administer(cmd, limit, "drop the state", "rebuild", struct{}{}, &dropped); err != nil {
		return err
	}
	c, err := s.connect()
	if err != nil {
		return err
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(cmd.Context(), limit)
	defer cancel()
	var status executor.StatusView
	for again := true; again; {
		if status, err = c.status(ctx); err != nil {
			return failed("see how the rebuild goes", err)
		}
		again = status.Mode == executor.ModeStarting || status.Mode != executor.ModeHalted && status.Applied < dropped.Applied
		if !again {
			break
		}
		select {
		case <-ctx.Done():
			return fail(exitFailed, "sagenbaum status", "the state is folded up to %d of %d so far; it goes on", status.Applied, dropped.Applied)
		case <-time.After(tenantPause):
		}
	}
	if status.Mode == executor.ModeHalted {
		return fail(exitLook, haltedNext(status.Problem), "tenant %s is halted: %s", status.Tenant, status.Problem)
	}
	took := time.Since(start)
	if s.json() {
		return printJSON(cmd.OutOrStdout(), map[string]any{"applied": status.Applied, "records": status.Records, "took_ms": took.Milliseconds()})
	}
	fmt.Fprintf(cmd.OutOrStdout(), "sequences 1 to %d folded anew, %d records, in %s\n", status.Applied, status.Records, span(took))
	return nil
}

// checkRebuild compares the state with a fold beside it.
func checkRebuild(cmd *cobra.Command, s *settings, limit time.Duration) error {
	c, err := s.connect()
	if err != nil {
		return err
	}
	defer c.close()
	c.timeout = limit
	var answer executor.RebuildAnswer
	if err := c.ask(cmd.Context(), "memory.rebuild", struct{}{}, &answer); err != nil {
		return failed("rebuild", lateRebuild(err))
	}
	if s.json() {
		err = printJSON(cmd.OutOrStdout(), answer)
	} else {
		writeRebuild(cmd, s.pen(cmd), answer)
	}
	if err == nil && !answer.Equal {
		return errLook
	}
	return err
}
