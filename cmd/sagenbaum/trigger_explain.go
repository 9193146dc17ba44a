package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/triggers"
)

func newTriggerExplain(s *settings) *cobra.Command {
	var q executor.ExplainQuery
	cmd := &cobra.Command{
		Use:   "explain PLAN",
		Short: "Say what the held conditions of a plan answer now, and what they wait for",
		Long: `Say what the held conditions of a plan and its actions answer now: the truth, what an
unknown waits for, when time alone could change it, the facts that it is indexed by
and the values it read. Failure, cancellation, deadline, verdicts and extra effects
are conditions like any other.`,
		Example:           "  sagenbaum trigger explain 01JD39QK\n  sagenbaum trigger explain 01JD39QK --action charge --lease unconfirmed",
		Args:              exactly("PLAN"),
		ValidArgsFunction: completePlans(s, "plan.ls"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := s.connect()
			if err != nil {
				return err
			}
			defer c.close()
			q.Plan = args[0]
			var answer executor.ExplainAnswer
			if err := c.ask(cmd.Context(), "trigger.explain", q, &answer); err != nil {
				return failed("explain the triggers", err)
			}
			if s.json() {
				return printJSON(cmd.OutOrStdout(), answer.Explain)
			}
			writeExplain(cmd.OutOrStdout(), s.pen(cmd), forPeople(answer.Explain), time.Now())
			return nil
		},
	}
	cmd.Flags().StringVar(&q.Action, "action", "", "only the conditions of `ACTION`")
	cmd.Flags().StringVar(&q.Lease, "lease", "", "only the condition of this `NAME`")
	return cmd
}

func writeExplain(w io.Writer, p pen, e executor.ExplainView, now time.Time) {
	fmt.Fprintf(w, "plan %s is %s; answers as of %s\n", p.bold(e.Plan), p.state(e.State), moment(e.TimeNs))
	for _, l := range e.Leases {
		of := "the plan"
		if l.Action != "" {
			of = "action " + l.Action
		}
		fmt.Fprintf(w, "\n%s of %s: %s\n", p.bold(l.Name), of, p.bold(leaseWord(l.LeaseView)))
		out := lines{w: w, width: 12, indent: "    "}
		out.line("condition", "%s", triggers.Spaced(l.Condition))
		out.line("error", "%s", l.Error)
		if l.Fired || l.Moot {
			continue
		}
		out.line("waits for", "%s", strings.Join(l.Waits, ", "))
		if l.WakeNs != 0 {
			out.line("wakes", "%s, %s", moment(l.WakeNs), relative(l.WakeNs, now))
		}
		out.line("indexed by", "%s", strings.Join(l.Keys, ", "))
		if l.Shared > 0 {
			out.line("asked as one", "with %d leases that always answer the same", l.Shared)
		}
		for _, r := range l.Readings {
			value := r.Value
			if value == "" {
				value = "unknown"
			}
			from := ""
			if r.Sequence != 0 {
				from = fmt.Sprintf("  (record %d)", r.Sequence)
			}
			out.line("read", "%s = %s%s", r.Name, clip(value, 200), from)
		}
	}
	if e.Omitted {
		fmt.Fprintln(w, "\nthere are more: name an action with --action")
	}
}

// leaseWord is what became of a lease, or what its condition answers.
func leaseWord(l executor.LeaseView) string {
	switch {
	case l.Fired:
		return "fired"
	case l.Moot:
		return "moot, it never fires"
	case l.Truth == triggers.True.String():
		return "true, it fires as soon as the clock allows"
	default:
		return l.Truth
	}
}
