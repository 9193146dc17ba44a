package mcp

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/mcp"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// CheckView is the answer of mcp check.
type CheckView struct {
	Tools  []CheckedTool `json:"tools"`
	Unused string        `json:"unused,omitempty"` // which packs are for other servers
}

// CheckedTool is a tool and what a gateway would do about it.
type CheckedTool struct {
	Server   string `json:"server"`
	Tool     string `json:"tool"`
	Contract string `json:"contract"`         // its class; none: it has no contract
	Staged   bool   `json:"staged,omitempty"` // each call is made once its plan is committed
	Fidelity string `json:"fidelity,omitempty"`
	Hint     string `json:"hint,omitempty"` // what the tool says of itself

	Warnings []string `json:"warnings,omitempty"` // what the contract leaves open
}

func newCheck(s *cli.Settings) *cobra.Command {
	o := new(options)
	cmd := &cobra.Command{
		Use:   "check -- COMMAND [ARGUMENT...]",
		Short: "List the tools of a server and what undoes them (exit code 1 when one has no contract)",
		Long: `List the tools of a server and what undoes them. It starts the server and asks it; nothing
is called, and no Sagenbaum server is needed. A call of a tool that is staged is made once
its plan is committed, and dropped by an undo before. The hints are what the tools say of themselves:
they decide nothing. A warning says what a contract leaves open where the answer of a call, or of
its undo, is lost; the exit code does not count it.`,
		Example: `  sagenbaum mcp check -- npx -y @modelcontextprotocol/server-filesystem /srv/files
  sagenbaum mcp check --config mcp.json -o json`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := fromDash(cmd, args); err != nil {
				return err
			}
			return cli.Failed("check the server", o.check(cmd, s, args))
		},
	}
	o.flags(cmd.Flags())
	return cmd
}

func (o *options) check(cmd *cobra.Command, s *cli.Settings, args []string) error {
	servers, err := o.servers(cmd, args, o.logger(cmd))
	if err != nil {
		return err
	}
	var shown CheckView
	unknown := 0
	for _, server := range servers {
		tools, err := checked(cmd, server)
		server.Close()
		if err != nil {
			return err
		}
		for _, t := range tools {
			if t.Contract == "none" {
				unknown++
			}
		}
		shown.Tools = append(shown.Tools, tools...)
	}
	shown.Unused = mcp.Unused(servers)
	if s.JSON() {
		return cli.Look(cli.PrintJSON(cmd.OutOrStdout(), shown), unknown > 0)
	}
	table := cli.Table{Head: []string{"SERVER", "TOOL", "CONTRACT", "FIDELITY", "HINT"}}
	for _, t := range shown.Tools {
		what := t.Contract
		if t.Staged {
			what += ", staged"
		}
		table.Add(t.Server, t.Tool, what, cli.Dash(t.Fidelity), cli.Dash(t.Hint))
	}
	table.Write(cmd.OutOrStdout())
	for _, t := range shown.Tools {
		for _, warning := range t.Warnings {
			fmt.Fprintf(cmd.OutOrStdout(), "warning: %s, %s: %s\n", t.Server, t.Tool, warning)
		}
	}
	if shown.Unused != "" {
		fmt.Fprintln(cmd.OutOrStdout(), "warning:", shown.Unused)
	}
	return cli.Look(nil, unknown > 0)
}

func checked(cmd *cobra.Command, server *mcp.Server) (list []CheckedTool, err error) {
	if err := server.Start(cmd.Context()); err != nil {
		return nil, err
	}
	tools, err := server.Tools(cmd.Context())
	if err != nil {
		return nil, err
	}
	if err := server.Pack().Has(tools); err != nil {
		return nil, err // as the gateway
	}
	for _, t := range tools {
		class, fidelity, known := server.Contract(t.Name)
		one := CheckedTool{
			Server:   server.Name(),
			Tool:     t.Name,
			Contract: "none",
			Fidelity: string(fidelity),
		}
		if known {
			one.Contract = string(class)
			tool := server.Pack().Tools[t.Name]
			one.Staged, one.Warnings = tool.Stage == contract.StageCommit, tool.Warnings()
		}
		if a := t.Annotations; a != nil {
			switch {
			case a.ReadOnlyHint:
				one.Hint = "read only"
			case a.DestructiveHint == nil || *a.DestructiveHint:
				one.Hint = "destructive"
			default:
				one.Hint = "adds"
			}
		}
		list = append(list, one)
	}
	return list, nil
}
