package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor"
)

// repairWait is how long a repair, a scrub or a rebuild is waited for at most.
const repairWait = time.Hour

func newLedgerRepair(s *settings) *cobra.Command {
	var q executor.RepairQuery
	limit := repairWait
	cmd := &cobra.Command{
		Use:   "repair --reason WHY",
		Short: "Make a halted tenant's damaged stream anew from the host's tiles",
		Long: `Make a halted tenant's damaged stream anew from the second copy that its host keeps
in tiles. Every record that was folded keeps its sequence, stamp and address; what
the damaged stream has behind them is kept where it follows without a gap, appended
again where a gap is before it, and listed where it cannot be. The new stream begins
with a record that says all this, and who asked for it. Before the old stream is
deleted, what the tiles do not have of it is written to a file beside them, and an
embedded server's own files are copied there.

--dry-run says what would be kept and what is lost, and changes nothing. Exit code 1
when something is lost, dropped or appended again (docs/guide/repair.md).`,
		Example: `  sagenbaum ledger repair --dry-run --reason "look first"
  sagenbaum ledger repair --reason "bit rot on disk 3" --actor alice`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case q.Reason == "":
				return fail(exitUsage, `--reason "bit rot on disk 3"`, "a repair needs a reason: it is a record that every audit shows")
			case limit <= 0:
				return fail(exitUsage, "--wait-timeout 1h", "a wait of %s is none", limit)
			}
			if err := checkActor(q.Actor); err != nil {
				return err
			}
			var answer executor.RepairAnswer
			if err := s.administer(cmd, limit, "repair the ledger", "ledger.repair", q, &answer); err != nil {
				return err
			}
			if s.json() {
				if err := printJSON(cmd.OutOrStdout(), answer); err != nil {
					return err
				}
			} else {
				writeRepair(cmd.OutOrStdout(), answer)
			}
			if answer.Lost+answer.Carried+answer.Dropped != "nonenonenone" {
				return errLook
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&q.DryRun, "dry-run", false, "say what it would do, and change nothing")
	cmd.Flags().StringVar(&q.Reason, "reason", "", "why, for the record")
	cmd.Flags().StringVar(&q.Actor, "actor", defaultActor(), "`NAME` of the operator who asks")
	cmd.Flags().DurationVar(&limit, "wait-timeout", limit, "how long to wait at most; the repair goes on behind it")
	return cmd
}

func writeRepair(w io.Writer, v executor.RepairAnswer) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-12s %s\n", name, printable(fmt.Sprintf(format, args...)))
	}
	did := "repaired"
	if v.DryRun {
		did = "would be"
	}
	line("problem", "%s", v.Problem)
	line(did, "sequences 1 to %d as they were, %d records; the new stream starts at %d", v.Through, v.Size, v.Through+1)
	if v.Through > v.Tiles {
		line("added", "%d to %d, which the old stream had behind the tiles", v.Tiles+1, v.Through)
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

func newLedgerScrub(s *settings) *cobra.Command {
	limit := repairWait
	cmd := &cobra.Command{
		Use:   "scrub",
		Short: "Read the whole stream again and compare it with the host's tiles",
		Long: `Read the whole stream again and compare it, byte for byte, with the second copy that
the host keeps in tiles. A host does this by itself once a day, slowly; status says
when. A difference halts the tenant and is named by its first sequence. Exit code 1
when there is one.`,
		Example: "  sagenbaum ledger scrub\n  sagenbaum ledger scrub -o json | jq .differs",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit <= 0 {
				return fail(exitUsage, "--wait-timeout 1h", "a wait of %s is none", limit)
			}
			var v executor.ScrubAnswer
			if err := s.administer(cmd, limit, "scrub the ledger", "ledger.scrub", struct{}{}, &v); err != nil {
				return err
			}
			if s.json() {
				if err := printJSON(cmd.OutOrStdout(), v); err != nil {
					return err
				}
			} else {
				writeScrub(cmd.OutOrStdout(), s.pen(cmd), v)
			}
			if v.Differs != 0 {
				return errLook
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&limit, "wait-timeout", limit, "how long to wait at most")
	return cmd
}

func writeScrub(w io.Writer, p pen, v executor.ScrubAnswer) {
	took := span(time.Duration(v.TookMs) * time.Millisecond)
	alone := ""
	if v.Alone > 0 {
		alone = fmt.Sprintf(", %d before a repair are in the tiles only", v.Alone)
	}
	if v.Differs == 0 {
		fmt.Fprintf(w, "%s · %d commits of the stream are as in the tiles%s, %d records, in %s\n", p.state("ok"), v.Compared, alone, v.Records, took)
		return
	}
	fmt.Fprintf(w, "%s · sequence %d differs: %s\n", p.state("FAIL"), v.Differs, printable(v.Problem))
	fmt.Fprintf(w, "the tenant is halted; next: sagenbaum ledger repair --dry-run --reason \"...\"\n")
}

// ledgerListed is what ledger ls shows.
type ledgerListed struct {
	Tenant string             `json:"tenant"`
	Mode   string             `json:"mode"`
	Last   uint64             `json:"last"`
	Copy   *executor.CopyView `json:"copy"`
}

func newLedgerLs(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Short:   "Show the ledger, its second copy and its repairs",
		Example: "  sagenbaum ledger ls\n  sagenbaum ledger ls -o json | jq .copy.repairs",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var answer executor.StatusAnswer
			if err := s.question(cmd, "show the ledger", "status", struct{}{}, &answer); err != nil {
				return err
			}
			v := ledgerListed{answer.Status.Tenant, answer.Status.Mode, answer.Status.Last, answer.Status.Copy}
			if s.json() {
				return printJSON(cmd.OutOrStdout(), v)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s · %d commits · %s\n", s.pen(cmd).bold(v.Tenant), v.Last, s.pen(cmd).state(v.Mode))
			if v.Copy == nil {
				fmt.Fprintln(cmd.OutOrStdout(), "the second copy is not open yet")
				return nil
			}
			fmt.Fprintln(cmd.OutOrStdout(), copyText(*v.Copy, time.Now()))
			t := table{head: []string{"REPAIR", "THROUGH", "LOST", "CARRIED", "DROPPED", "BY", "WHEN", "WHY"}}
			for _, r := range v.Copy.Repairs {
				t.add(r.At, fmt.Sprint(r.Through), r.Lost, r.Carried, r.Dropped, r.Actor, moment(r.StampNs), r.Reason)
			}
			if len(t.rows) > 0 {
				t.write(cmd.OutOrStdout())
			}
			return nil
		},
	}
}

// copyText says how far the second copy is and when it was held against the stream.
func copyText(v executor.CopyView, now time.Time) string {
	parts := []string{fmt.Sprintf("tiles up to %d, %s", v.Last, countOf(int(v.Records), "record"))}
	switch {
	case v.Scrubbing > 0:
		parts = append(parts, fmt.Sprintf("scrub at %d", v.Scrubbing))
	case v.ScrubbedNs == 0:
		parts = append(parts, "never scrubbed, next "+relative(v.NextScrubNs, now))
	default:
		parts = append(parts, "scrubbed "+relative(v.ScrubbedNs, now)+", next "+relative(v.NextScrubNs, now))
	}
	if n := len(v.Repairs); n > 0 {
		parts = append(parts, countOf(n, "repair"))
	}
	return strings.Join(parts, " · ")
}

// administer asks the tenant's host for work on its copies of the ledger.
func (s *settings) administer(cmd *cobra.Command, limit time.Duration, doing, verb string, question, answer any) error {
	c, err := s.connect()
	if err != nil {
		return err
	}
	defer c.close()
	c.timeout = limit
	return failed(doing, lateRebuild(c.administer(cmd.Context(), verb, question, answer)))
}
