package ledger

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

func newLedgerRepair(s *cli.Settings) *cobra.Command {
	var q api.RepairQuery
	limit := cli.RepairWait
	cmd := &cobra.Command{
		Use:   "repair --reason WHY",
		Short: "Rebuild a halted tenant's damaged stream from the host's tiles",
		Long: `Rebuild a halted tenant's damaged stream from the second copy that its host keeps
in tiles. Every record that was folded keeps its sequence, stamp and address; what
the damaged stream has after them is kept where it follows without a gap, appended
again where a gap is before it, and listed where it cannot be. The new stream begins
with a record that says all this, and who asked for it. Before the old stream is
deleted, what the tiles do not have of it is written to a file beside them, and an
embedded server's own files are copied there.

Where several hosts are halted, each has tiles of its own: nothing is done until all of
them but one are stopped.

--dry-run says what would be kept and what is lost, and changes nothing. Exit code 1
when something is lost, dropped or appended again (docs/guide/repair.md).`,
		Example: `  sagenbaum ledger repair --dry-run --reason "look first"
  sagenbaum ledger repair --reason "bit rot on disk 3" --actor alice`,
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ledger.IsBlank(q.Reason) {
				return cli.Fail(cli.ExitUsage, `--reason "bit rot on disk 3"`,
					"a repair needs a reason: it is a record that every audit shows")
			}
			if err := cli.CheckWait(limit, "1h"); err != nil {
				return err
			}
			if err := cli.CheckActor(q.Actor); err != nil {
				return err
			}
			if err := s.With(func(c *cli.Client) error { return oneHalted(cmd.Context(), c) }); err != nil {
				return cli.Failed("repair the ledger", err)
			}
			answer, err := cli.Administer(cmd, s, limit, "repair the ledger", api.LedgerRepair, q)
			if err != nil {
				return err
			}
			if err := s.Print(cmd, answer,
				func() { writeRepair(cmd.OutOrStdout(), answer) }); err != nil {
				return err
			}
			return cli.Look(nil, answer.Lost+answer.Carried+answer.Dropped != "nonenonenone")
		},
	}
	cmd.Flags().BoolVar(&q.DryRun, "dry-run", false, "say what it would do, and change nothing")
	cmd.Flags().StringVar(&q.Reason, "reason", "", "why, for the record")
	cmd.Flags().StringVar(&q.Actor, "actor", cli.DefaultActor(), "`NAME` of the operator who asks")
	cmd.Flags().DurationVar(&limit, "wait-timeout", limit,
		"how long to wait at most; the repair goes on after that while the server runs")
	return cmd
}

// oneHalted refuses a repair that several hosts would answer, each from tiles of its own: a dry run
// would not say of which, and one of them would begin while the others say that they cannot. A host
// that holds the tenant answers in their place.
func oneHalted(ctx context.Context, c *cli.Client) error {
	hosts, err := c.Hosts(ctx)
	if err != nil {
		return err
	}
	var halted []string
	for _, h := range hosts {
		switch h.Mode {
		case api.ModeHolding, api.ModeGuard:
			return nil
		case api.ModeHalted:
			halted = append(halted, fmt.Sprintf("%s (folded to %d)", h.Host, h.Applied))
		}
	}
	if len(halted) < 2 {
		return nil
	}
	return cli.Fail(cli.ExitFailed, "stop serve on all of them but the one whose tiles are to stay, "+
		"ask again, and start the others when the repair is done",
		"%d hosts are halted, and each would repair from its own tiles: %s; nothing was done",
		len(halted), strings.Join(halted, ", "))
}

func writeRepair(w io.Writer, v api.RepairAnswer) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-12s %s\n", name, cli.Printable(fmt.Sprintf(format, args...)))
	}
	did := "repaired"
	if v.DryRun {
		did = "would be"
	}
	line("problem", "%s", v.Problem)
	line(did, "sequences 1 to %d as they were, %d records; the new stream starts at %d", v.Through,
		v.Size, v.Through+1)
	if v.Through > v.Tiles {
		line("added", "%d to %d, which the old stream had after the tiles", v.Tiles+1, v.Through)
	}
	line("lost", "%s, of the %d that the old stream had", v.Lost, v.OldLast)
	line("carried", "%s, appended again with new addresses", v.Carried)
	line("dropped", "%s", v.Dropped)
	if v.File != "" {
		line("file", "%s", v.File)
	}
	if v.Kept != "" {
		line("old files", "%s", v.Kept)
	}
}

func newLedgerScrub(s *cli.Settings) *cobra.Command {
	limit := cli.RepairWait
	cmd := &cobra.Command{
		Use:   "scrub",
		Short: "Read the whole stream again and compare it with the host's tiles",
		Long: `Read the whole stream again and compare it, byte for byte, with the second copy that
the host keeps in tiles. A host does this by itself once a day, slowly; status says
when. A difference halts the tenant and is named by its first sequence. Exit code 1
when there is one.`,
		Example: "  sagenbaum ledger scrub\n  sagenbaum ledger scrub -o json | jq .differs",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckWait(limit, "1h"); err != nil {
				return err
			}
			v, err := cli.Administer(cmd, s, limit, "scrub the ledger", api.LedgerScrub,
				api.Nothing{})
			if err != nil {
				return err
			}
			if err := s.Print(cmd, v,
				func() { writeScrub(cmd.OutOrStdout(), s.Pen(cmd), v) }); err != nil {
				return err
			}
			return cli.Look(nil, v.Differs != 0)
		},
	}
	cmd.Flags().DurationVar(&limit, "wait-timeout", limit, "how long to wait at most")
	return cmd
}

func writeScrub(w io.Writer, p cli.Pen, v api.ScrubAnswer) {
	took := cli.Span(time.Duration(v.TookMs) * time.Millisecond)
	alone := ""
	if v.Alone > 0 {
		alone = fmt.Sprintf(", %d before a repair are in the tiles only", v.Alone)
	}
	if v.Differs == 0 {
		fmt.Fprintf(w, "%s · %d commits of the stream are as in the tiles%s, %d records, in %s\n",
			p.State("ok"), v.Compared, alone, v.Records, took)
		return
	}
	fmt.Fprintf(w, "%s · sequence %d differs: %s\n", p.State("FAIL"), v.Differs,
		cli.Printable(v.Problem))
	fmt.Fprintln(w, "the tenant is halted; next: sagenbaum doctor, which says what its guard asks for")
}

// ledgerListed is what ledger ls shows.
type ledgerListed struct {
	Tenant string    `json:"tenant"`
	Mode   string    `json:"mode"`
	Last   uint64    `json:"last"`
	Copy   *api.Copy `json:"copy"`
}

func newLedgerLs(s *cli.Settings) *cobra.Command {
	return cli.Show[ledgerListed]{
		Command: &cobra.Command{
			Use:     "ls",
			Short:   "Show the ledger, its second copy and its repairs",
			Example: "  sagenbaum ledger ls\n  sagenbaum ledger ls -o json | jq .copy.repairs",
		},
		Doing: "show the ledger",
		Ask: func(ctx context.Context, c *cli.Client, _ []string) (ledgerListed, error) {
			v, err := c.Status(ctx)
			return ledgerListed{v.Tenant, v.Mode, v.Last, v.Copy}, err
		},
		Write: writeLedgerListed,
	}.New(s)
}

func writeLedgerListed(out io.Writer, p cli.Pen, v ledgerListed) {
	fmt.Fprintf(out, "%s · %d commits · %s\n", p.Bold(v.Tenant), v.Last, p.State(v.Mode))
	if v.Copy == nil {
		fmt.Fprintln(out, "the second copy is not open yet")
		return
	}
	fmt.Fprintln(out, render.CopyText(*v.Copy, time.Now()))
	t := cli.Table{Head: []string{"REPAIR", "THROUGH", "LOST", "CARRIED", "DROPPED", "BY", "WHEN",
		"WHY"}}
	for _, r := range v.Copy.Repairs {
		t.Add(r.At, fmt.Sprint(r.Through), r.Lost, r.Carried, r.Dropped, r.Actor,
			cli.Moment(r.StampNs), r.Reason)
	}
	if len(t.Rows) > 0 {
		t.Write(out)
	}
}
