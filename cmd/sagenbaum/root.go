package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// settings are the global flags.
type settings struct {
	server  string
	creds   string
	inbox   string
	tlsCA   string
	tenant  string
	output  string
	noColor bool
	timeout time.Duration

	context  string  // NAME of --context
	natsFile string  // context of the NATS CLI that server and credentials come from; empty: none
	shared   *client // of --watch, for all its looks
}

const serverDefault = "nats://127.0.0.1:4222"

func newRoot() *cobra.Command {
	s := new(settings)
	root := group(&cobra.Command{
		Use:   "sagenbaum",
		Short: "Compensation as infrastructure for AI agents",
		Long: `Sagenbaum undoes what an agent's plan really did, latest first, when the plan
fails, is cancelled or misses its deadline, also when the agent is long gone.

Exit codes: 0 good, 1 look (something is quarantined, a wait ended otherwise,
a check found something), 2 could not do it, 64 usage, 69 no server,
75 conflict, 77 not allowed.`,
		Example: `  sagenbaum demo                  # see it work, in under a minute
  sagenbaum serve                 # run it
  sagenbaum plan ls               # look at plans`,
	},
		newServe(s), newDemo(s), newPlan(s), newQuarantine(s), newUndo(s), newContract(s), newTrigger(s), newFact(s), newMemory(s), newLedger(s), newKey(s), newRebuild(s), newWorker(s), newHost(s), newTenant(s), newLease(s), watchable(s, newStatus(s)), watchable(s, newDoctor(s)), newClock(s), newContext(s),
		newBench(), newSim(s), newVersion(s), newCompletion(), newMan(), newDemoWorker(s), newDemoAgent(s))
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(helpCommand(root))
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fail(exitUsage, cmd.CommandPath()+" --help", "%v", err)
	})
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.recall(cmd); err != nil {
			return err
		}
		if s.output == outputYAML {
			root.SetOut(&yamlOut{Writer: root.OutOrStdout()})
		}
		return s.check()
	}

	flags := root.PersistentFlags()
	flags.StringVar(&s.server, "server", environment("SAGENBAUM_SERVER", serverDefault), "NATS server `URL` (env SAGENBAUM_SERVER)")
	flags.StringVar(&s.creds, "creds", os.Getenv("SAGENBAUM_CREDS"), "NATS credentials `FILE` (env SAGENBAUM_CREDS)")
	flags.StringVar(&s.inbox, "inbox", environment("SAGENBAUM_INBOX", nats.InboxPrefix), "`PREFIX` of the inboxes that the user may subscribe (env SAGENBAUM_INBOX)")
	flags.StringVar(&s.tlsCA, "tls-ca", os.Getenv("SAGENBAUM_TLS_CA"), "CA certificates `FILE` that the server must be signed by (env SAGENBAUM_TLS_CA)")
	flags.StringVar(&s.tenant, "tenant", environment("SAGENBAUM_TENANT", "default"), "`TENANT` whose ledger is meant (env SAGENBAUM_TENANT)")
	flags.StringVarP(&s.output, "output", "o", outputTable, "table, json or yaml")
	flags.BoolVar(&s.noColor, "no-color", false, "no colours, also on a terminal (env NO_COLOR)")
	flags.StringVar(&s.context, "context", os.Getenv("SAGENBAUM_CONTEXT"), "saved `CONTEXT` to take server, credentials and tenant from (env SAGENBAUM_CONTEXT)")
	flags.DurationVar(&s.timeout, "timeout", 5*time.Second, "how long to wait for an answer")
	// The help shows what is built in: the environment may hold a password.
	for name, builtIn := range map[string]string{"server": serverDefault, "creds": "", "tls-ca": "", "inbox": nats.InboxPrefix, "tenant": "default", "context": ""} {
		flags.Lookup(name).DefValue = builtIn
	}
	completeLive(root, s)
	fixedCompletion(root, "output", outputs...)
	completeContext(root, s)
	return root
}

func environment(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// check refuses global flags that make no sense, before any command runs.
func (s *settings) check() error {
	switch {
	case !slices.Contains(outputs, s.output):
		return fail(exitUsage, "-o "+strings.Join(outputs, ", -o "), "unknown output %q", s.output)
	case !ledger.ValidToken(s.tenant):
		return fail(exitUsage, "a tenant of 1 to 64 letters, digits, '-' or '_'", "%q is no tenant", s.tenant)
	case !strings.HasPrefix(s.inbox, "_"):
		return fail(exitUsage, "--inbox _INBOX_operator1", "%q is no inbox prefix", s.inbox)
	case s.timeout <= 0:
		return fail(exitUsage, "--timeout 5s", "a timeout of %s lets nothing happen", s.timeout)
	}
	return nil
}

// json is true where data is printed and no table: in JSON, or in YAML.
func (s *settings) json() bool { return s.output != outputTable }

func (s *settings) pen(cmd *cobra.Command) pen {
	return pen{color: !s.noColor && wantsColor(cmd.OutOrStdout())}
}

// group makes a command that only holds others: without one it shows its help,
// with an unknown one it says which it might have been.
func group(cmd *cobra.Command, children ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(children...)
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return unknownCommand(cmd, args[0])
	}
	return cmd
}

func unknownCommand(cmd *cobra.Command, name string) error {
	hint := cmd.CommandPath() + " --help"
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		hint = cmd.CommandPath() + " " + near[0]
	}
	return fail(exitUsage, hint, "unknown command %q for %q", name, cmd.CommandPath())
}

func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Explain a command",
		Example: "  sagenbaum help plan show",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(root, strings.Join(args, " "))
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

// exactly wants as many arguments as there are names, and says them.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		want := strings.Join(names, " ")
		if want == "" {
			want = "no arguments"
		}
		return fail(exitUsage, cmd.CommandPath()+" --help", "%s takes %s, got %d arguments", cmd.CommandPath(), want, len(args))
	}
}

func newCompletion() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a completion script for bash, zsh, fish or powershell",
		Long: `Print a completion script for bash, zsh, fish or powershell. Plans, actions, leases,
facts and the like are asked of the server as they are typed. That of bash needs the
package bash-completion.`,
		Example:   "  source <(sagenbaum completion bash)\n  sagenbaum completion fish > ~/.config/fish/completions/sagenbaum.fish",
		ValidArgs: shells,
		Args:      exactly("SHELL"),
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
				return fail(exitUsage, "one of "+strings.Join(shells, ", "), "no completion for %q", args[0])
			}
			return failed("print a completion script", err)
		},
	}
}

// oneOf refuses a flag's value that is not in a closed set.
func oneOf(flag, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fail(exitUsage, fmt.Sprintf("--%s %s", flag, strings.Join(allowed, "|")), "--%s cannot be %q", flag, value)
}
