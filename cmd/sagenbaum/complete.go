package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sagenbaum/sagenbaum/executor"
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

// completers give the values of a word, with a description behind a tab.
var completers = map[string]func(cmd *cobra.Command, c *client, a wordsSoFar) ([]string, error){
	"PLAN": livePlans, "ACTION": liveActions, "LEASE": liveLeases, "SAVEPOINT": liveSavepoints,
	"KEY": liveFacts, "CAPABILITY": liveCapabilities, "HOST": liveHosts, "TENANT": liveTenants,
}

// wordOfFlag says which word a flag means, where that has another name.
var wordOfFlag = map[string]string{"plan": "PLAN", "action": "ACTION", "lease": "LEASE", "to": "SAVEPOINT", "capability": "CAPABILITY", "tenant": "TENANT"}

// completeLive gives every command below root its completions, but for those that
// have their own or talk to no server.
func completeLive(root *cobra.Command, s *settings) {
	for _, cmd := range root.Commands() {
		completeLive(cmd, s)
		words := usageWords(cmd)
		if slices.ContainsFunc(words, func(w string) bool { return completers[w] != nil }) {
			cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
				at := len(args)
				if last := len(words) - 1; at > last && strings.HasSuffix(cmd.Use, "...") {
					at = last
				}
				if at >= len(words) {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				return liveWord(s, cmd, words, args, words[at])
			}
		}
		if cmd.Name() == "serve" {
			continue
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if word := wordOfFlag[f.Name]; word != "" {
				// It fails for a flag that has a completion already, which then stands.
				_ = cmd.RegisterFlagCompletionFunc(f.Name, func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
					return liveWord(s, cmd, words, args, word)
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

// liveWord asks the server for the values of a word.
func liveWord(s *settings, cmd *cobra.Command, words, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if completers[word] == nil || s.recall(cmd) != nil {
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
	s.timeout = min(s.timeout, completeWithin)
	c, err := s.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.close()
	values, err := completers[word](cmd, c, a)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return values, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// choice is one value with its description.
func choice(value, format string, args ...any) string {
	return printable(value) + "\t" + strings.TrimSpace(printable(fmt.Sprintf(format, args...)))
}

func livePlans(cmd *cobra.Command, c *client, a wordsSoFar) (out []string, err error) {
	verb := "plan.ls"
	if strings.Contains(a.command, " quarantine ") || strings.HasSuffix(a.command, " resume") || strings.HasSuffix(a.command, " give-up") {
		verb = "quarantine.ls"
	}
	answer, err := c.plans(cmd.Context(), verb, executor.Filter{}, pageSize)
	for _, plan := range answer.Plans {
		out = append(out, choice(plan.Plan, "%s %s", plan.State, plan.Label))
	}
	return out, err
}

func liveActions(cmd *cobra.Command, c *client, a wordsSoFar) (out []string, err error) {
	plan, err := c.plan(cmd.Context(), a.plan, 0)
	for _, action := range plan.Actions {
		if strings.Contains(a.command, " quarantine ") && action.Undo != undoQuarantined {
			continue
		}
		out = append(out, choice(fmt.Sprint(action.Number), "%s %s %s", action.Action, capabilityOf(action), action.Undo))
	}
	return out, err
}

func liveLeases(cmd *cobra.Command, c *client, a wordsSoFar) (out []string, err error) {
	plan, err := c.plan(cmd.Context(), a.plan, 0)
	leases := plan.Leases
	for _, action := range plan.Actions {
		leases = append(leases, action.Leases...)
	}
	for _, l := range leases {
		if one := choice(l.Name, "%s: %s", l.Truth, clip(l.Condition, 60)); !slices.Contains(out, one) {
			out = append(out, one)
		}
	}
	return out, err
}

func liveSavepoints(cmd *cobra.Command, c *client, a wordsSoFar) (out []string, err error) {
	plan, err := c.plan(cmd.Context(), a.plan, 0)
	for _, sp := range plan.Savepoints {
		out = append(out, choice(sp.Name, "after %s", countOf(sp.Actions, "action")))
	}
	return out, err
}

func liveFacts(cmd *cobra.Command, c *client, _ wordsSoFar) (out []string, err error) {
	answer, err := c.facts(cmd.Context(), executor.FactsQuery{}, pageSize)
	for _, f := range answer.Facts {
		out = append(out, choice(f.Key, "%s %s", f.State, clip(string(f.Value), 40)))
	}
	return out, err
}

func liveCapabilities(cmd *cobra.Command, c *client, _ wordsSoFar) (out []string, err error) {
	all, err := c.contracts(cmd.Context(), executor.ContractQuery{})
	for _, v := range all {
		out = append(out, choice(v.Capability, "revision %d by %s", v.Revision, v.By))
	}
	if workers, err := c.workers(cmd.Context()); err == nil && strings.Contains(cmd.CommandPath(), " worker ") {
		out = nil
		for _, w := range workers.Workers {
			out = append(out, choice(w.Capability, "%s", countOf(int(w.Held), "held undo")))
		}
	}
	return out, err
}

func liveHosts(cmd *cobra.Command, c *client, _ wordsSoFar) (out []string, err error) {
	hosts, err := c.hosts(cmd.Context())
	for _, h := range hosts {
		out = append(out, choice(h.Host, "%s", h.Mode))
	}
	return out, err
}

func liveTenants(cmd *cobra.Command, c *client, _ wordsSoFar) ([]string, error) {
	return c.tenants(cmd.Context())
}

// completePlans offers plans for the first argument; completeLive does the same for
// every command whose usage says PLAN.
func completePlans(s *settings, _ string) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return liveWord(s, cmd, nil, nil, "PLAN")
	}
}
