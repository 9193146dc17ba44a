// Package complete offers shells the words of a usage, with what the server has now.
package complete

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Shells complete the words of a usage, as PLAN, and the flags of the same names, with
// what the server has now. Without a server they offer nothing, and say nothing.

// completeWithin bounds how long a shell waits for an answer.
const completeWithin = time.Second

// wordsSoFar is what a command line has said so far: the words of the usage before the one
// that is completed, and flags of their names.
type wordsSoFar struct {
	command      string // its path
	plan, action string
}

// completers give the values of a word, with a description after a tab.
var completers = map[string]func(cmd *cobra.Command, c *cli.Client, a wordsSoFar) ([]string, error){
	"PLAN": livePlans, "ACTION": liveActions, "LEASE": liveLeases, "SAVEPOINT": liveSavepoints,
	"KEY": liveFacts, "CAPABILITY": liveCapabilities, "HOST": liveHosts, "TENANT": liveTenants,
}

// wordOfFlag says which word a flag means, where that has another name.
var wordOfFlag = map[string]string{"plan": "PLAN", "action": "ACTION", "lease": "LEASE",
	"to": "SAVEPOINT", "capability": "CAPABILITY", "tenant": "TENANT"}

// Live gives every command below root its completions, but for those that
// have their own or talk to no server.
func Live(root *cobra.Command, s *cli.Settings) {
	for _, cmd := range root.Commands() {
		Live(cmd, s)
		words := usageWords(cmd)
		if slices.ContainsFunc(words, func(w string) bool { return completers[w] != nil }) {
			cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string,
				cobra.ShellCompDirective) {
				at := len(args)
				if last := len(words) - 1; at > last && strings.HasSuffix(cmd.Use, "...") {
					at = last
				}
				if at >= len(words) {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				return LiveWord(s, cmd, words, args, words[at])
			}
		}
		if cmd.Name() == "serve" {
			continue
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if word := wordOfFlag[f.Name]; word != "" {
				// It fails for a flag that has a completion already, which stays.
				_ = cmd.RegisterFlagCompletionFunc(f.Name,
					func(cmd *cobra.Command, args []string, _ string) ([]string,
						cobra.ShellCompDirective) {
						return LiveWord(s, cmd, words, args, word)
					})
			}
		})
	}
}

// usageWords are the names of a command's arguments.
func usageWords(cmd *cobra.Command) (words []string) {
	for _, word := range strings.Fields(cmd.Use)[1:] {
		if strings.HasPrefix(word, "-") {
			break
		}
		word, _, _ = strings.Cut(word, "[")
		words = append(words, strings.TrimSuffix(word, "..."))
	}
	return words
}

// LiveWord asks the server for the values of a word.
func LiveWord(s *cli.Settings, cmd *cobra.Command, words, args []string, word string) ([]string,
	cobra.ShellCompDirective) {
	if completers[word] == nil || s.Recall(cmd) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	a := wordsSoFar{command: cmd.CommandPath()}
	for i, name := range words[:min(len(words), len(args))] {
		switch name {
		case "PLAN":
			a.plan = args[i]
		case "ACTION":
			a.action = args[i]
		}
	}
	if f := cmd.Flags().Lookup("plan"); f != nil && f.Value.String() != "" {
		a.plan = f.Value.String()
	}
	s.Timeout = min(s.Timeout, completeWithin)
	s.Everywhere(word == "TENANT")
	c, err := s.Connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	values, err := completers[word](cmd, c, a)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return values, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// Choice is one value with its description.
func Choice(value, format string, args ...any) string {
	return cli.Printable(value) + "\t" + strings.TrimSpace(cli.Printable(fmt.Sprintf(format,
		args...)))
}

func livePlans(cmd *cobra.Command, c *cli.Client, a wordsSoFar) (out []string, err error) {
	ask := func(ctx context.Context, limit int) (api.PlansAnswer, error) {
		return c.Plans(ctx, api.Filter{}, limit)
	}
	if strings.Contains(a.command, " quarantine ") || strings.HasSuffix(a.command, " resume") ||
		strings.HasSuffix(a.command, " give-up") {
		ask = c.Quarantine
	}
	answer, err := ask(cmd.Context(), cli.PageSize)
	for _, plan := range answer.Plans {
		out = append(out, Choice(plan.Plan, "%s %s", plan.State, plan.Label))
	}
	return out, err
}

func liveActions(cmd *cobra.Command, c *cli.Client, a wordsSoFar) (out []string, err error) {
	plan, err := c.Plan(cmd.Context(), a.plan, 0)
	for _, action := range plan.Actions {
		if strings.Contains(a.command, " quarantine ") && action.Undo != cli.UndoQuarantined {
			continue
		}
		out = append(out,
			Choice(render.ActionArg(action), "%s %s", render.EntryText(action), action.Undo))
	}
	return out, err
}

func liveLeases(cmd *cobra.Command, c *cli.Client, a wordsSoFar) (out []string, err error) {
	plan, err := c.Plan(cmd.Context(), a.plan, 0)
	leases := plan.Leases
	for _, action := range plan.Actions {
		leases = append(leases, action.Leases...)
	}
	for _, l := range leases {
		if one := Choice(l.Name, "%s: %s", l.Truth,
			cli.Clip(l.Condition, 60)); !slices.Contains(out, one) {
			out = append(out, one)
		}
	}
	return out, err
}

func liveSavepoints(cmd *cobra.Command, c *cli.Client, a wordsSoFar) (out []string, err error) {
	plan, err := c.Plan(cmd.Context(), a.plan, 0)
	for _, sp := range plan.Savepoints {
		out = append(out, Choice(sp.Name, "after %s", cli.CountOf(sp.Actions, "action")))
	}
	return out, err
}

func liveFacts(cmd *cobra.Command, c *cli.Client, _ wordsSoFar) (out []string, err error) {
	facts, _, err := cli.FactBatch(&api.FactsQuery{})(
		cli.Listing{Ctx: cmd.Context(), Client: c, Limit: cli.PageSize})
	for _, f := range facts {
		out = append(out, Choice(f.Key, "%s %s", f.State, cli.Clip(string(f.Value), 40)))
	}
	return out, err
}

func liveCapabilities(cmd *cobra.Command, c *cli.Client, _ wordsSoFar) (out []string, err error) {
	all, err := c.Contracts(cmd.Context(), api.ContractQuery{})
	for _, v := range all {
		out = append(out, Choice(v.Capability, "revision %d by %s", v.Revision, v.By))
	}
	if workers, err := c.Workers(cmd.Context()); err == nil &&
		strings.Contains(cmd.CommandPath(), " worker ") {
		out = nil
		for _, w := range workers.Workers {
			out = append(out, Choice(w.Capability, "%s", cli.CountOf(int(w.Held), "held undo")))
		}
	}
	return out, err
}

func liveHosts(cmd *cobra.Command, c *cli.Client, _ wordsSoFar) (out []string, err error) {
	hosts, err := c.Hosts(cmd.Context())
	for _, h := range hosts {
		out = append(out, Choice(h.Host, "%s", h.Mode))
	}
	return out, err
}

func liveTenants(cmd *cobra.Command, c *cli.Client, _ wordsSoFar) ([]string, error) {
	answer, err := c.Tenants(cmd.Context())
	return answer.Tenants, err
}
