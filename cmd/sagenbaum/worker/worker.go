// Package worker is `sagenbaum worker`: who undoes what is held.
package worker

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/executor/view"
)

// Command is `sagenbaum worker` with all below it.
func Command(s *cli.Settings) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:     "worker",
		Short:   "See which capabilities undo what is held, and who serves them",
		Example: "  sagenbaum worker ls\n  sagenbaum worker show room.free",
	}, cli.Watchable(s, newWorkerLs(s)), cli.Watchable(s, newWorkerShow(s)))
}

func newWorkerLs(s *cli.Settings) *cobra.Command {
	var only cli.ListFilter
	cmd := &cobra.Command{
		Use: "ls",
		Short: "List the capabilities of undos that are held, and who serves them (exit code 1 " +
			"when no worker serves one)",
		Long: `List the capabilities of undos that are held: how many actions each would undo,
whether a worker serves it now, and when one last answered this executor. Whether
one serves it is known where the NATS server runs in the executor's process.
Exit code 1 when it is known that no worker serves one of them.`,
		Example: "  sagenbaum worker ls\n  sagenbaum worker ls --filter 'worker.served != " +
			"\"yes\"' -o json",
		Args: cli.Exactly(),
		RunE: s.Connected(func(cmd *cobra.Command, _ []string, c *cli.Client) error {
			answer, err := c.Workers(cmd.Context())
			if err != nil {
				return cli.Failed("list workers", err)
			}
			answer.Workers = cli.Picked(&only, answer.Workers)
			err = s.Print(cmd, answer, func() { writeWorkers(cmd, s.Pen(cmd), answer) })
			return cli.Look(err, slices.ContainsFunc(answer.Workers, missing))
		}),
	}
	only.Flag(cmd, "worker", `worker.served != "yes"`)
	return cmd
}

// missing reports whether no worker serves a capability, as far as is known.
func missing(w view.Worker) bool { return w.Served == "no" }

func writeWorkers(cmd *cobra.Command, p cli.Pen, answer view.WorkersAnswer) {
	if len(answer.Workers) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "nothing is held that a worker would undo")
		return
	}
	now := time.Now()
	t := cli.Table{Head: []string{"CAPABILITY", "SERVED", "HELD", "DUE", "LAST HEARD", "PLAN"}}
	t.Paint = cli.PaintColumn(1,
		func(cell string) string {
			return p.In(map[string]string{"yes": "32", "no": "31;1"}[cell],
				cell)
		})
	for _, w := range answer.Workers {
		t.Add(w.Capability, w.Served, fmt.Sprint(w.Held), fmt.Sprint(w.Due),
			cli.Relative(w.HeardNs, now), w.Plan)
	}
	t.Write(cmd.OutOrStdout())
	if answer.Partial {
		fmt.Fprintln(cmd.ErrOrStderr(),
			"there are more plans than one look reads: these are the counts of the first")
	}
}

func newWorkerShow(s *cli.Settings) *cobra.Command {
	return &cobra.Command{
		Use:     "show CAPABILITY",
		Short:   "Show who serves one capability of undos, and what is held that it undoes",
		Example: "  sagenbaum worker show room.free",
		Args:    cli.Exactly("CAPABILITY"),
		RunE: s.Connected(func(cmd *cobra.Command, args []string, c *cli.Client) error {
			answer, err := c.Workers(cmd.Context())
			if err != nil {
				return cli.Failed("show the worker", err)
			}
			at := slices.IndexFunc(answer.Workers,
				func(w view.Worker) bool { return w.Capability == args[0] })
			if at < 0 {
				return cli.Fail(cli.ExitFailed, "sagenbaum worker ls",
					"nothing is held that %s would undo", args[0])
			}
			w := answer.Workers[at]
			if s.JSON() {
				err = cli.PrintJSON(cmd.OutOrStdout(), w)
			} else {
				cli.PrintLines(cmd.OutOrStdout(),
					[][2]string{{"capability", w.Capability}, {"served", w.Served},
						{"held", cli.CountOf(int(w.Held), "action")}, {"due", fmt.Sprint(w.Due)},
						{"last heard", cli.Relative(w.HeardNs, time.Now())}, {"in plan", w.Plan}})
			}
			return cli.Look(err, missing(w))
		}),
	}
}
