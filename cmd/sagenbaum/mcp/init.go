package mcp

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// NewInit is `sagenbaum contract init`.
func NewInit() *cobra.Command {
	o, fromMCP := new(options), false
	cmd := &cobra.Command{
		Use:   "init --from-mcp -- COMMAND [ARGUMENT...]",
		Short: "Draft contracts from the tools of an MCP server",
		Long: `Draft contracts from the tools of an MCP server, as a file for sagenbaum mcp --pack. It
goes by the names of tools (create and delete, add and remove), their schemas and their
hints, each of which may be wrong: read the file, correct it, and remove its line
draft: true. Until then it is refused.`,
		Example: `  sagenbaum contract init --from-mcp -- npx -y some-mcp-server > pack.yaml`,
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !fromMCP {
				return cli.Fail(cli.ExitUsage, "sagenbaum contract init --from-mcp -- COMMAND",
					"say what to draft contracts from")
			}
			if err := fromDash(cmd, args); err != nil {
				return err
			}
			return cli.Failed("draft contracts", o.draft(cmd, args))
		},
	}
	cmd.Flags().BoolVar(&fromMCP, "from-mcp", false, "from the tools of an MCP server")
	o.flags(cmd.Flags())
	return cmd
}

func (o *options) draft(cmd *cobra.Command, args []string) error {
	servers, err := o.servers(cmd, args, o.logger(cmd))
	if err != nil {
		return err
	}
	for i, server := range servers {
		draft, err := drafted(cmd, server)
		server.Close()
		if err != nil {
			return err
		}
		if i > 0 {
			draft = "---\n" + draft
		}
		if _, err := fmt.Fprint(cmd.OutOrStdout(), draft); err != nil {
			return err
		}
	}
	return nil
}

func drafted(cmd *cobra.Command, server *mcp.Server) (string, error) {
	if err := server.Start(cmd.Context()); err != nil {
		return "", err
	}
	tools, err := server.Tools(cmd.Context())
	if err != nil {
		return "", err
	}
	return mcp.Draft(server.Introduced(), tools), nil
}
