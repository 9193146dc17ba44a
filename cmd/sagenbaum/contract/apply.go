package contract

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// What a contract of a file is beside the published ones.
const (
	contractNew     = "new"       // its capability has none
	contractChanged = "changed"   // it differs from the current revision
	ContractSame    = "unchanged" // it is the current revision
	contractMissing = "missing"   // published, and in no file
)

// contractDiff is one capability of diff and apply.
type contractDiff struct {
	Capability string `json:"capability"`
	State      string `json:"state"`
	File       string `json:"file,omitempty"`
	Line       int    `json:"line,omitempty"`
	// current one; after apply: the new one
	Revision int               `json:"revision,omitempty"`
	Digest   string            `json:"digest,omitempty"` // of the file
	Changes  []contract.Change `json:"changes,omitempty"`

	compiled *compile.Compiled
}

// localContracts reads files that must be without errors; findings go to stderr.
func localContracts(cmd *cobra.Command, paths []string) ([]localContract, error) {
	if len(paths) == 0 {
		return nil, cli.Fail(cli.ExitUsage, cmd.CommandPath()+" -f DIR",
			"%s takes -f FILE or -f DIR", cmd.CommandPath())
	}
	sources, findings, err := lintedContracts(paths)
	if err != nil {
		return nil, cli.Failed("read the contracts", err)
	}
	for _, f := range findings {
		fmt.Fprintln(cmd.ErrOrStderr(), cli.Printable(f.String()))
	}
	if n := findings.Errors(); n > 0 {
		return nil, cli.Fail(cli.ExitFailed, "sagenbaum contract lint "+paths[0],
			"the contracts have %s; nothing is published", cli.CountOf(n, "error"))
	}
	programs := triggers.NewCache(contractPrograms)
	var local []localContract
	for _, s := range sources {
		compiled, err := compile.Contract(s.Contract, programs)
		if err != nil {
			return nil, cli.Failed("read the contracts", err)
		}
		local = append(local, localContract{s, compiled})
	}
	return local, nil
}

const contractPrograms = 1024 // compiled expressions that one command remembers

// compare says how contracts of files differ from the published ones. whole says
// that the files are meant to be all there are.
func compare(ctx context.Context, c *cli.Client, local []localContract, whole bool) ([]contractDiff,
	error) {
	all, err := c.Contracts(ctx, api.ContractQuery{})
	if err != nil {
		return nil, err
	}
	published := map[string]api.Contract{}
	for _, v := range all {
		published[v.Capability] = v
	}
	var diffs []contractDiff
	for _, l := range local {
		d := contractDiff{Capability: l.Capability, State: contractNew, File: l.File, Line: l.Line,
			Digest: hex.EncodeToString(l.compiled.Digest[:]), compiled: l.compiled}
		if v, ok := published[l.Capability]; ok {
			d.Revision, d.State = v.Revision, ContractSame
			if v.Digest != d.Digest {
				d.State = contractChanged
				if d.Changes, err = changesFrom(v, l.Contract); err != nil {
					return nil, err
				}
			}
			delete(published, l.Capability)
		}
		diffs = append(diffs, d)
	}
	for _, v := range all { // in their order
		if _, left := published[v.Capability]; left && whole {
			diffs = append(diffs,
				contractDiff{Capability: v.Capability, State: contractMissing,
					Revision: v.Revision})
		}
	}
	return diffs, nil
}

func changesFrom(v api.Contract, to contract.Contract) ([]contract.Change, error) {
	from, err := contract.Decode(v.Contract)
	if err != nil {
		return nil, cli.Fail(cli.ExitFailed, "a newer sagenbaum",
			"cannot read the published contract of %s: %v", v.Capability, err)
	}
	return contract.Diff(from, to)
}

func newContractDiff(s *cli.Settings) *cobra.Command {
	var paths []string
	cmd := &cobra.Command{
		Use: "diff -f DIR",
		Short: "Compare contract files with the published contracts, field by field (exit code 1 " +
			"when they differ)",
		Long: `Compare contract files with the published contracts, field by field. With a
folder, a published contract that is in none of its files is a difference, too. Exit
code 1 when anything differs.`,
		Example: "  sagenbaum contract diff -f contracts/\n  sagenbaum contract diff -f " +
			"payment.yaml -o json",
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			local, err := localContracts(cmd, paths)
			if err != nil {
				return err
			}
			return s.With(func(c *cli.Client) error {
				diffs, err := compare(cmd.Context(), c, local, anyFolder(paths))
				if err != nil {
					return cli.Failed("compare the contracts", err)
				}
				err = s.Print(cmd, ContractsDiff{Contracts: append([]contractDiff{}, diffs...)},
					func() { writeDiffs(cmd, diffs) })
				if err != nil {
					return err
				}
				for _, d := range diffs {
					if d.State != ContractSame {
						return cli.ErrLook
					}
				}
				return nil
			})
		},
	}
	contractFileFlag(cmd, &paths)
	return cmd
}

// ContractsDiff is the answer of diff and apply.
type ContractsDiff struct {
	Contracts []contractDiff `json:"contracts"`
	Sequence  uint64         `json:"sequence,omitempty"` // of the last record that apply stored
	DryRun    bool           `json:"dry_run,omitempty"`
}

func contractFileFlag(cmd *cobra.Command, paths *[]string) {
	cmd.Flags().StringArrayVarP(paths, "file", "f", nil,
		"`FILE` or folder of contracts; may be given again")
}

func anyFolder(paths []string) bool {
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return true
		}
	}
	return false
}

func writeDiffs(cmd *cobra.Command, diffs []contractDiff) {
	var text strings.Builder
	for _, d := range diffs {
		switch d.State {
		case contractNew:
			fmt.Fprintf(&text, "%s: new, in %s:%d\n", d.Capability, d.File, d.Line)
		case contractMissing:
			fmt.Fprintf(&text, "%s: missing: revision %d is published, and in no file\n",
				d.Capability, d.Revision)
		case contractChanged:
			fmt.Fprintf(&text, "%s: changed from revision %d, in %s:%d\n", d.Capability, d.Revision,
				d.File, d.Line)
		default:
			fmt.Fprintf(&text, "%s: unchanged, revision %d\n", d.Capability, d.Revision)
		}
		for _, change := range d.Changes {
			switch {
			case change.From == "":
				fmt.Fprintf(&text, "  + %s: %s\n", change.Field, change.To)
			case change.To == "":
				fmt.Fprintf(&text, "  - %s: %s\n", change.Field, change.From)
			default:
				fmt.Fprintf(&text, "  ~ %s: %s -> %s\n", change.Field, change.From, change.To)
			}
		}
	}
	writePrintable(cmd.OutOrStdout(), text.String())
}

// writePrintable writes lines, each safe for a terminal.
func writePrintable(w io.Writer, text string) {
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		fmt.Fprintln(w, cli.Printable(line))
	}
}

func newContractApply(s *cli.Settings) *cobra.Command {
	var paths []string
	var actor string
	var dry bool
	cmd := &cobra.Command{
		Use:   "apply -f DIR",
		Short: "Publish the contracts of files that differ from the current revisions",
		Long: `Publish the contracts of files that differ from the current revisions, as records
under the operator's name. Unchanged contracts are listed and not published again;
none is withdrawn. Held compensations keep the contract that they were registered under.`,
		Example: `  sagenbaum contract apply -f contracts/ --dry-run
  sagenbaum contract apply -f contracts/ --actor ana`,
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckActor(actor); err != nil {
				return err
			}
			local, err := localContracts(cmd, paths)
			if err != nil {
				return err
			}
			return s.With(func(c *cli.Client) error {
				return cli.Failed("publish the contracts", applyContracts(cmd, s, c, actor, dry, local))
			})
		},
	}
	contractFileFlag(cmd, &paths)
	cmd.Flags().StringVar(&actor, "actor", cli.DefaultActor(), "`NAME` of the person who publishes")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "say what would be published, and publish nothing")
	return cmd
}

func applyContracts(cmd *cobra.Command, s *cli.Settings, c *cli.Client, actor string, dry bool,
	local []localContract) error {
	ctx := cmd.Context()
	diffs, err := compare(ctx, c, local, false)
	if err != nil {
		return err
	}
	answer := ContractsDiff{Contracts: append([]contractDiff{}, diffs...), DryRun: dry}
	if !dry {
		if answer.Sequence, err = publish(ctx, c, actor, diffs); err != nil {
			return err
		}
		if err := published(ctx, c, answer.Sequence, answer.Contracts); err != nil {
			return err
		}
	}
	warnUnserved(c, cmd, local)
	if s.JSON() {
		return cli.PrintJSON(cmd.OutOrStdout(), answer)
	}
	verb := "published as revision"
	if dry {
		verb = "would be published, after revision"
	}
	for _, d := range answer.Contracts {
		if d.State == ContractSame {
			fmt.Fprintf(cmd.OutOrStdout(), "%s: unchanged, revision %d\n",
				cli.Printable(d.Capability), d.Revision)
			continue
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, %s %d\n", cli.Printable(d.Capability), d.State,
			verb, d.Revision)
	}
	return nil
}

// warnUnserved says which inverses no worker serves. A host that cannot say so keeps no one
// from publishing.
func warnUnserved(c *cli.Client, cmd *cobra.Command, local []localContract) {
	sources := make([]contract.Source, len(local))
	for i, l := range local {
		sources[i] = l.Source
	}
	findings, err := clientFindings(cmd.Context(), c, sources, false)
	if err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "who serves these contracts is not known:",
			cli.Printable(err.Error()))
	}
	for _, f := range findings {
		if f.Field == "inverse.call" {
			fmt.Fprintln(cmd.ErrOrStderr(), cli.Printable(f.String()))
		}
	}
}

// publish appends what differs, as many records to a commit as fit: each commit is
// stored whole or not at all. It returns the sequence of the last one, or 0.
func publish(ctx context.Context, c *cli.Client, actor string,
	diffs []contractDiff) (sequence uint64, err error) {
	source := ledger.Source{Tenant: c.Tenant, Class: ledger.ClassOperator, Name: actor}
	var batch []*pb.Record
	size := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		stored, err := c.AppendRecords(ctx, source, batch...)
		if err == nil {
			sequence = stored
		}
		batch, size = nil, 0
		return err
	}
	for _, d := range diffs {
		if d.State == ContractSame {
			continue
		}
		record := &pb.Record{Kind: &pb.Record_ContractPublished{ContractPublished: &pb.ContractPublished{
			Capability: d.Capability, Digest: d.compiled.Digest[:], Contract: d.compiled.Canonical,
		}}}
		if add := ledger.RecordSize(record); size+add > ledger.CommitSizeMax/2 ||
			len(batch) == ledger.CommitLenMax {
			if err := flush(); err != nil {
				return sequence, err
			}
		}
		batch, size = append(batch, record), size+ledger.RecordSize(record)
	}
	return sequence, flush()
}

const foldPoll = 20 * time.Millisecond // between questions whether a record was folded

// published waits until the record at sequence was folded and sets the revisions
// that came of it. Another operator may have been faster: conflict.
func published(ctx context.Context, c *cli.Client, sequence uint64, diffs []contractDiff) error {
	if sequence == 0 {
		return nil
	}
	const look = "sagenbaum contract diff -f DIR"
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	for {
		status, err := c.Status(ctx)
		if err != nil {
			return cli.Stored(sequence, look, err)
		}
		if status.Applied >= sequence {
			break
		}
		select {
		case <-ctx.Done():
			return cli.Fail(cli.ExitNoServer, look,
				"the contracts are stored as record %d, which the executor has not read within %s",
				sequence, c.Timeout)
		case <-time.After(foldPoll):
		}
	}
	all, err := c.Contracts(ctx, api.ContractQuery{})
	if err != nil {
		return cli.Stored(sequence, look, err)
	}
	current := map[string]api.Contract{}
	for _, v := range all {
		current[v.Capability] = v
	}
	for i := range diffs {
		v := current[diffs[i].Capability]
		if v.Digest != diffs[i].Digest {
			return cli.Fail(cli.ExitConflict, "sagenbaum contract show "+diffs[i].Capability,
				"%s is not what was published: revision %d by %s is current", diffs[i].Capability,
				v.Revision, cli.Dash(v.By))
		}
		diffs[i].Revision = v.Revision
	}
	return nil
}
