// Package worker is `sagenbaum worker`: who undoes what is held.
package worker

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/proto/api"
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
	var answer api.WorkersAnswer
	return cli.List[api.Worker]{
		Command: &cobra.Command{
			Use: "ls",
			Short: "List the capabilities of undos that are held, and who serves them (exit code 1 " +
				"when no worker serves one)",
			Long: `List the capabilities of undos that are held: how many actions each would undo,
whether a worker serves it now, and when one last answered this executor. A worker
is a member of a queue group, or has just answered; "listener" says that only others
subscribe, as a terminal or a stream. Exit code 1 when it is known that no worker
serves one of them.`,
			Example: "  sagenbaum worker ls\n  sagenbaum worker ls --filter 'worker.served != " +
				"\"yes\"' -o json",
		},
		Doing: "list workers", Name: "worker", Filter: `worker.served != "yes"`,
		Ask: func(in cli.Listing) (_ []api.Worker, _ string, err error) {
			answer, err = in.Client.Workers(in.Ctx)
			return answer.Workers, "", err
		},
		Data: func(workers []api.Worker, _ string) any {
			answer.Workers = workers
			return answer
		},
		Empty: "nothing is held that a worker would undo",
		Table: cli.Table{Head: []string{"CAPABILITY", "SERVED", "HELD", "DUE", "LAST HEARD", "PLAN"}},
		Paint: func(p cli.Pen, cell string) string {
			return p.In(map[string]string{"yes": "32", "no": "31;1", "listener": "31;1"}[cell], cell)
		},
		Row: func(t *cli.Table, w api.Worker) {
			t.Add(w.Capability, w.Served, fmt.Sprint(w.Held), fmt.Sprint(w.Due),
				cli.Relative(w.HeardNs, time.Now()), w.Plan)
		},
		More: func([]api.Worker) string {
			return map[bool]string{true: "there are more plans than one look reads: these are the " +
				"counts of the first"}[answer.Partial]
		},
		Look: missing,
	}.New(s)
}

// missing reports whether no worker serves a capability, as far as is known.
func missing(w api.Worker) bool {
	return w.Served == api.ServedNo || w.Served == api.ServedListener
}

func newWorkerShow(s *cli.Settings) *cobra.Command {
	return cli.Show[api.Worker]{
		Command: &cobra.Command{
			Use:     "show CAPABILITY",
			Short:   "Show who serves one capability of undos, and what is held that it undoes",
			Example: "  sagenbaum worker show room.free",
			Args:    cli.Exactly("CAPABILITY"),
		},
		Doing: "show the worker",
		Ask: func(ctx context.Context, c *cli.Client, args []string) (api.Worker, error) {
			answer, err := c.Workers(ctx)
			if err != nil {
				return api.Worker{}, err
			}
			at := slices.IndexFunc(answer.Workers,
				func(w api.Worker) bool { return w.Capability == args[0] })
			if at < 0 {
				return api.Worker{}, cli.Fail(cli.ExitFailed, "sagenbaum worker ls",
					"nothing is held that %s would undo", args[0])
			}
			return answer.Workers[at], nil
		},
		Write: func(out io.Writer, _ cli.Pen, w api.Worker) {
			cli.PrintLines(out, [][2]string{{"capability", w.Capability}, {"served", w.Served},
				{"held", cli.CountOf(int(w.Held), "action")}, {"due", fmt.Sprint(w.Due)},
				{"last heard", cli.Relative(w.HeardNs, time.Now())}, {"in plan", w.Plan}})
		},
		Look: missing,
	}.New(s)
}
