// Package clock is `sagenbaum clock`: whether deadlines fire, and the operator who confirms a
// clock.
package clock

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// Command is `sagenbaum clock` with all below it.
func Command(s *cli.Settings) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:     "clock",
		Short:   "See whether deadlines fire, and confirm the clock when it jumped",
		Example: "  sagenbaum clock show\n  sagenbaum clock confirm --reason \"compared with ntp\"",
	}, cli.Watchable(s, newClockShow(s)), newClockConfirm(s))
}

// clockView is what `clock show` tells.
type clockView struct {
	Mode    string `json:"mode"`
	Problem string `json:"problem,omitempty"`
	TimeNs  int64  `json:"time_ns"` // logical time of the ledger
	HereNs  int64  `json:"here_ns"` // this machine's clock
}

func newClockShow(s *cli.Settings) *cobra.Command {
	return cli.Show[clockView]{
		Command: &cobra.Command{
			Use: "show",
			Short: "Show the clock guard, and the ledger's time beside this machine's (exit code 1 " +
				"when no deadline fires)",
			Example: "  sagenbaum clock show",
		},
		Doing: "show the clock",
		Ask: func(ctx context.Context, c *cli.Client, _ []string) (clockView, error) {
			status, err := c.Status(ctx)
			v := clockView{Mode: status.Mode, TimeNs: status.TimeNs, HereNs: time.Now().UnixNano()}
			if v.Mode == api.ModeGuard {
				v.Problem = status.Problem
			}
			return v, err
		},
		Write: func(out io.Writer, p cli.Pen, v clockView) {
			fmt.Fprintf(out, "%-12s %s\n%-12s %s, %s by this machine's clock\n", "mode",
				p.State(v.Mode), "ledger", cli.Moment(v.TimeNs),
				cli.Relative(v.TimeNs, time.Unix(0, v.HereNs)))
			cli.PrintLines(out, [][2]string{{"problem", v.Problem}})
		},
		Next: func(v clockView) string {
			if v.Problem == "" {
				return ""
			}
			return "  next: look at the host's clock, then sagenbaum clock confirm --reason WHY"
		},
		Look: func(v clockView) bool { return v.Mode == api.ModeGuard },
	}.New(s)
}

func newClockConfirm(s *cli.Settings) *cobra.Command {
	var reason, actor string
	cmd := &cobra.Command{
		Use:   "confirm --reason WHY",
		Short: "Say that the executor's wall clock is right: deadlines fire again",
		Long: `Say that the executor's wall clock is right, after it has jumped: deadlines that it
has passed fire. Look at that clock first. The confirmation is a record under the
operator's name, and applies to the host that holds the tenant now.`,
		Example: `  sagenbaum clock confirm --reason "compared with ntp"`,
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ledger.IsBlank(reason) {
				return cli.Fail(cli.ExitUsage, `--reason "compared with ntp"`,
					"a word on the clock needs a reason")
			}
			if err := cli.CheckActor(actor); err != nil {
				return err
			}
			return s.With(func(c *cli.Client) error {
				mode, sequence, err := confirmClock(cmd.Context(), c, actor, reason)
				if err != nil {
					return cli.Failed("confirm the clock", err)
				}
				err = s.Print(cmd, map[string]any{"mode": mode, "record": sequence}, func() {
					fmt.Fprintf(cmd.OutOrStdout(), "%s, confirmed by %s · record %d\n",
						s.Pen(cmd).State(mode), actor, sequence)
				})
				return cli.Look(err, mode == api.ModeGuard)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record; required")
	cmd.Flags().StringVar(&actor, "actor", cli.DefaultActor(),
		"`NAME` of the person who vouches for it")
	return cmd
}

// confirmPoll is between two looks at what a word on the clock has done.
const confirmPoll = 50 * time.Millisecond

// confirmClock appends an operator's word and waits until the guard has gone, or for as
// long as an answer may take.
func confirmClock(ctx context.Context, c *cli.Client, actor, reason string) (mode string,
	sequence uint64, err error) {
	source := ledger.Source{Tenant: c.Tenant, Class: ledger.ClassOperator, Name: actor}
	record := &pb.Record{Kind: &pb.Record_ClockConfirmed{ClockConfirmed: &pb.ClockConfirmed{Actor: actor, Reason: reason, WallNs: time.Now().UnixNano()}}}
	if sequence, err = c.AppendRecords(ctx, source, record); err != nil {
		return "", 0, err
	}
	for end := time.Now().Add(c.Timeout); ; {
		status, err := c.Status(ctx)
		if err != nil || status.Applied >= sequence && status.Mode != api.ModeGuard ||
			time.Now().After(end) {
			return status.Mode, sequence, cli.Stored(sequence, "sagenbaum clock show", err)
		}
		select {
		case <-ctx.Done():
			return status.Mode, sequence, ctx.Err()
		case <-time.After(confirmPoll):
		}
	}
}
