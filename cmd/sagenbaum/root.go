package main

import (
	stdcontext "context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/clock"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cluster"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/complete"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/console"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/context"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/contract"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/demo"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/doctor"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/fact"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/host"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/key"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/lease"
	ledgercmd "github.com/sagenbaum/sagenbaum/cmd/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/mcp"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/memory"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/plan"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/quarantine"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/rebuild"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/review"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/serve"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/status"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/tenant"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/trigger"
	undocmd "github.com/sagenbaum/sagenbaum/cmd/sagenbaum/undo"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/user"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/worker"
)

func newRoot() *cobra.Command {
	s := new(cli.Settings)
	root := cli.Group(&cobra.Command{
		Use:   "sagenbaum",
		Short: "Compensation as infrastructure for AI agents",
		Long: `Sagenbaum undoes what an agent's plan really did, latest first, when the plan
fails, is cancelled or misses its deadline, even when the agent is long gone.

Exit codes: 0 good, 1 look (something is quarantined, a wait ended otherwise,
a check found something), 2 could not do it, 64 usage, 69 no server,
75 conflict, 77 not allowed.`,
		Example: `  sagenbaum demo                  # see it work, in under a minute
  sagenbaum serve                 # run it
  sagenbaum plan ls               # look at plans`,
	},
		serve.Command(s, mcp.Host), demo.Command(s, again), plan.Command(s), quarantine.Command(s),
		review.Command(s), undocmd.Command(s), contract.Command(s), trigger.Command(s), fact.Command(s),
		memory.Command(s), ledgercmd.Command(s), key.Command(s), rebuild.Command(s),
		worker.Command(s), mcp.Command(s), host.Command(s), console.Command(s), tenant.Command(s),
		lease.Command(s),
		cli.Watchable(s, status.Command(s)), cli.Watchable(s, doctor.Command(s)), clock.Command(s),
		context.Command(s), user.Command(s), cluster.Command(s),
		moved("bench"), moved("sim"), newVersion(s), newCompletion(), newMan(),
		demo.WorkerCommand(s), demo.AgentCommand(s), demo.FilesCommand())
	cli.Prepare(root, s)
	s.Flags(root)
	complete.Live(root, s)
	context.Complete(root, s)
	return root
}

// again runs a command line of this binary in this process.
func again(ctx stdcontext.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Execute(ctx, newRoot(), args, stdout, stderr)
}

func newCompletion() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a completion script for bash, zsh, fish or powershell",
		Long: `Print a completion script for bash, zsh, fish or powershell. Plans, actions, leases,
facts and the like are asked of the server as they are typed. That of bash needs the
package bash-completion.`,
		Example: "  source <(sagenbaum completion bash)\n  sagenbaum completion fish > " +
			"~/.config/fish/completions/sagenbaum.fish",
		ValidArgs: shells,
		Args:      cli.Exactly("SHELL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			var err error
			switch args[0] {
			case "bash":
				err = root.GenBashCompletionV2(out, true)
			case "zsh":
				err = root.GenZshCompletion(out)
			case "fish":
				err = root.GenFishCompletion(out, true)
			case "powershell":
				err = root.GenPowerShellCompletionWithDesc(out)
			default:
				return cli.Fail(cli.ExitUsage, "one of "+strings.Join(shells, ", "),
					"no completion for %q", args[0])
			}
			return cli.Failed("print a completion script", err)
		},
	}
}

// moved is a command that went to sagenbaum-lab. It names the new place, for one version.
func moved(name string) *cobra.Command {
	return &cobra.Command{
		Use: name, Hidden: true, DisableFlagParsing: true,
		Short: "Moved to sagenbaum-lab " + name, Example: "  go run ./cmd/sagenbaum-lab " + name,
		RunE: func(*cobra.Command, []string) error {
			return cli.Fail(cli.ExitUsage,
				"go run ./cmd/sagenbaum-lab "+name+", in a checkout of the source",
				"%s is a command of sagenbaum-lab now, which is not part of this binary", name)
		},
	}
}
