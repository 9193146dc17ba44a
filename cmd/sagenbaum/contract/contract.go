// Package contract is `sagenbaum contract`: check, compare, publish and show contracts.
package contract

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/mcp"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Command is `sagenbaum contract` with all below it.
func Command(s *cli.Settings) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "contract",
		Short: "Check, publish and show contracts: what undoes what",
		Long: `Check, publish and look at contracts: what a capability does, what undoes it and
how. A published contract is a record; a registration freezes the one that its
agent uses, so that a later one touches no held compensation. The format is in
docs/guide/contracts.md.`,
		Example: `  sagenbaum contract lint contracts/
  sagenbaum contract diff -f contracts/
  sagenbaum contract apply -f contracts/`,
	}, newContractLint(s), newContractApply(s), newContractLs(s), newContractShow(s),
		newContractDiff(s), mcp.NewInit())
}

// LintView is the answer of contract lint.
type LintView struct {
	Contracts int               `json:"contracts"`
	Errors    int               `json:"errors"`
	Findings  contract.Findings `json:"findings"`
}

func newContractLint(s *cli.Settings) *cobra.Command {
	workers := false
	cmd := &cobra.Command{
		Use:   "lint FILE|DIR...",
		Short: "Check contract files and run their examples, offline (exit code 1 on errors)",
		Long: `Check contract files and run their examples. That needs no server.

With --workers it also asks the running host which workers serve what the contracts call: each
inverse, probe and check without a worker is a warning, and so is a worker version for
which only workers of other versions have answered. A host whose NATS server runs in
another process knows of a capability only once it has sent a command to it.`,
		Example: `  sagenbaum contract lint contracts/
  sagenbaum contract lint --workers contracts/
  sagenbaum contract lint payment.yaml -o json | jq '.findings[].message'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Fail(cli.ExitUsage, cmd.CommandPath()+" --help",
					"%s takes FILE or DIR, got none", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			sources, findings, err := lintedContracts(args)
			if err != nil {
				return cli.Failed("read the contracts", err)
			}
			if workers {
				served, err := servedFindings(cmd.Context(), s, sources)
				if err != nil {
					return cli.Failed("ask which workers serve the contracts", err)
				}
				findings = append(findings, served...)
			}
			shown := LintView{Contracts: len(sources), Errors: findings.Errors(), Findings: findings}
			if s.JSON() {
				shown.Findings = append(contract.Findings{}, shown.Findings...)
				if err := cli.PrintJSON(cmd.OutOrStdout(), shown); err != nil {
					return err
				}
			} else {
				for _, f := range findings {
					fmt.Fprintln(cmd.OutOrStdout(), cli.Printable(f.String()))
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "%s, %s, %s\n",
					cli.CountOf(shown.Contracts, "contract"), cli.CountOf(shown.Errors, "error"),
					cli.CountOf(len(findings)-shown.Errors, "warning"))
			}
			return cli.Look(nil, shown.Errors > 0)
		},
	}
	cmd.Flags().BoolVar(&workers, "workers", false,
		"also ask the host which calls have no worker")
	return cmd
}

// servedFindings asks the host which workers serve what contracts call.
func servedFindings(ctx context.Context, s *cli.Settings,
	sources []contract.Source) (contract.Findings, error) {
	c, err := s.Connect()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return clientFindings(ctx, c, sources, true)
}

// clientFindings leaves out what the host cannot know, unless doubt is wanted.
func clientFindings(ctx context.Context, c *cli.Client, sources []contract.Source,
	doubt bool) (contract.Findings, error) {
	known := map[compile.WorkerCall]compile.Serving{}
	for calls := range slices.Chunk(compile.WorkerCalls(sources), servedAtOnce) {
		var q api.ServedQuery
		for _, call := range calls {
			q.Calls = append(q.Calls,
				api.ServedCall{Capability: call.Capability, Undo: call.Undo,
					Version: call.Version})
		}
		answer, err := cli.Ask(ctx, c, api.WorkerServed, q)
		if err != nil {
			return nil, err
		}
		for _, v := range answer.Calls {
			serving := compile.Serving{Served: v.Served, OtherVersion: v.OtherVersion}
			if v.HeardNs != 0 || !doubt {
				serving.Heard = cli.Relative(v.HeardNs, time.Now())
			}
			known[compile.WorkerCall{Capability: v.Capability, Undo: v.Undo,
				Version: v.Version}] = serving
		}
	}
	return compile.LintWorkers(sources,
		func(call compile.WorkerCall) compile.Serving { return known[call] }), nil
}

// servedAtOnce bounds the calls of one question to the host.
const servedAtOnce = 1000

// lintedContracts reads files and folders and returns all that is wrong with them.
// The error says that one could not be read at all.
func lintedContracts(paths []string) ([]contract.Source, contract.Findings, error) {
	var sources []contract.Source
	var findings contract.Findings
	for _, path := range paths {
		files, err := YamlFiles(path, "contract")
		if err != nil {
			return nil, nil, err
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, nil, err
			}
			found, err := contract.Parse(file, data)
			sources = append(sources, found...)
			if problems, ok := err.(contract.Findings); ok {
				findings = append(findings, problems...)
			}
		}
	}
	return sources, append(findings, compile.Lint(sources)...), nil
}

// YamlFiles are the YAML files at or below path, in order; noun says what they hold.
func YamlFiles(path, noun string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	var files []string
	err = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() &&
			slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(name)) {
			files = append(files, name)
		}
		return err
	})
	if err == nil && len(files) == 0 {
		err = cli.Fail(cli.ExitFailed, "a file, or a folder with *.yaml: docs/guide/contracts.md",
			"no %s in %s: no file there ends in .yaml or .yml", noun, path)
	}
	return files, err
}

// localContract is a contract of a file, checked.
type localContract struct {
	contract.Source
	compiled *compile.Compiled
}

func newContractLs(s *cli.Settings) *cobra.Command {
	var q api.ContractQuery
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the published contracts, the current revision of each",
		Example: "  sagenbaum contract ls\n  sagenbaum contract ls --revisions -o json\n  " +
			"sagenbaum contract ls --filter 'contract.capability.startsWith(\"payments.\")'",
	}
	cmd.Flags().BoolVar(&q.Revisions, "revisions", false,
		"all revisions, not the current ones only")
	return cli.List[api.Contract]{
		Command: cmd, Doing: "list contracts",
		Name: "contract", Filter: `contract.capability.startsWith("payments.")`,
		Ask: cli.ContractBatch(&q),
		Data: func(all []api.Contract, _ string) any {
			return api.ContractsAnswer{Contracts: all}
		},
		Empty: "no contract is published\n  next: sagenbaum contract apply -f DIR",
		Table: cli.Table{Head: []string{"CAPABILITY", "REVISION", "CLASS", "INVERSE", "FIDELITY",
			"IN DOUBT", "WINDOW", "DIGEST", "BY", "SINCE"}, Elastic: []string{"BY", "INVERSE"},
			Spare: []string{"IN DOUBT", "FIDELITY", "BY", "WINDOW", "DIGEST", "SINCE"}},
		Row: addContract,
	}.New(s)
}

func addContract(t *cli.Table, v api.Contract) {
	var c contract.Contract
	if decoded, err := contract.Decode(v.Contract); err == nil {
		c = decoded // another version's contract shows what it can
	}
	inverse, window := "-", "-"
	if c.Inverse != nil {
		inverse = c.Inverse.Call
	}
	switch {
	case c.ValidUntil != "":
		window = "by input"
	case c.ValidFor > 0:
		window = contract.FormatDuration(c.ValidFor)
	}
	revision := strconv.Itoa(v.Revision)
	if !v.Current {
		revision += " (old)"
	}
	t.Add(v.Capability, revision, cli.Dash(string(c.Class)), inverse,
		cli.Dash(string(c.Fidelity)), cli.Dash(string(c.OnInDoubt)), window,
		v.Digest[:min(8, len(v.Digest))], v.By, cli.Moment(v.AtNs))
}

func newContractShow(s *cli.Settings) *cobra.Command {
	return &cobra.Command{
		Use:   "show CAPABILITY[@REVISION|@DIGEST]",
		Short: "Show a published contract as a file that publishes the same",
		Example: `  sagenbaum contract show payments.charge
  sagenbaum contract show payments.charge@2
  sagenbaum contract show payments.charge@04979c9b -o json`,
		Args: cli.Exactly("CAPABILITY"),
		RunE: s.Connected(func(cmd *cobra.Command, args []string, c *cli.Client) error {
			v, err := askContract(cmd.Context(), c, args[0])
			if err != nil {
				return cli.Failed("show the contract", err)
			}
			if s.JSON() {
				return cli.PrintJSON(cmd.OutOrStdout(), v)
			}
			return cli.Failed("show the contract", writeContract(cmd, v))
		}),
	}
}

// askContract finds the revision that name means.
func askContract(ctx context.Context, c *cli.Client, name string) (api.Contract, error) {
	capability, which, chosen := strings.Cut(name, "@")
	all, err := c.Contracts(ctx, api.ContractQuery{Capability: capability, Revisions: chosen})
	if err != nil {
		return api.Contract{}, err
	}
	number, numberErr := strconv.Atoi(which)
	var found []api.Contract
	for _, v := range all {
		byNumber := numberErr == nil && len(which) < digestMin && v.Revision == number
		byDigest := len(which) >= digestMin && strings.HasPrefix(v.Digest, which)
		if !chosen && v.Current || chosen && (byNumber || byDigest) {
			found = append(found, v)
		}
	}
	switch {
	case len(all) == 0:
		return api.Contract{}, cli.Fail(cli.ExitFailed, "sagenbaum contract ls",
			"no contract of %s is published", capability)
	case len(found) == 0:
		return api.Contract{}, cli.Fail(cli.ExitFailed,
			"sagenbaum contract ls --revisions",
			"%s has no revision %q: give its number, or %d or more digits of its digest",
			capability, which, digestMin)
	}
	return found[len(found)-1], nil // the same text may have been published again
}

// digestMin is how many digits name a digest; fewer are a number.
const digestMin = 6

func writeContract(cmd *cobra.Command, v api.Contract) error {
	out := cmd.OutOrStdout()
	current := ""
	if v.Current {
		current = ", current"
	}
	fmt.Fprintf(out, "# revision %d%s, published by %s at %s in %s\n# digest %s\n", v.Revision,
		current, cli.Printable(v.By),
		time.Unix(0, v.AtNs).UTC().Format(time.RFC3339), cli.Printable(v.At),
		cli.Printable(v.Digest))
	c, err := contract.Decode(v.Contract)
	if err != nil { // of a version that knows more fields: as it is
		return cli.PrintJSON(out, json.RawMessage(v.Contract))
	}
	written, err := contract.Format(c)
	if err != nil {
		return err
	}
	writePrintable(out, string(written))
	return nil
}
