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
			q.Plan = args[0]
			var answer executor.ExplainAnswer
			if err := s.question(cmd, "explain the triggers", "trigger.explain", q, &answer); err != nil {
				return err
			}
			if s.json() {
				return printJSON(cmd.OutOrStdout(), answer.Explain)
			}
			writeExplain(cmd.OutOrStdout(), s.pen(cmd), forPeople(answer.Explain), time.Now())
			return nil
		},
	}
	cmd.Flags().StringVar(&q.Action, "action", "", "only the conditions of `ACTION`, by number or id")
	cmd.Flags().StringVar(&q.Lease, "lease", "", "only the condition of this `NAME`")
	return cmd
}

func writeExplain(w io.Writer, p pen, e executor.ExplainView, now time.Time) {
	fmt.Fprintf(w, "plan %s is %s; answers as of %s by the executor's clock\n", p.bold(e.Plan), p.state(e.State), moment(e.TimeNs))
	for _, l := range e.Leases {
		of := "the plan"
		if l.Action != "" {
			of = "action " + l.Action
		}
		fmt.Fprintf(w, "\n%s of %s: %s\n", p.bold(l.Name), of, p.bold(leaseWord(l.LeaseView)))
		out := lines{w: w, width: 12, indent: "    "}
		out.line("condition", "%s", triggers.Spaced(l.Condition))
		out.line("error", "%s", l.Error)
		out.line("fired at", "%s", l.FiredAt)
		if l.Moot {
			out.line("because", "%s", mootWhy(l.LeaseView))
		}
		if !asked(l.LeaseView) {
			continue
		}
		out.line("waits for", "%s", strings.Join(l.Waits, ", "))
		if l.WakeNs != 0 {
			out.line("wakes", "%s, %s", moment(l.WakeNs), relative(l.WakeNs, now))
		}
		out.line("indexed by", "%s", strings.Join(l.Keys, ", "))
		if l.Shared > 0 {
			out.line("asked as one", "with %s that always answer the same", otherLeases(l.Shared))
		}
		for _, r := range l.Readings {
			out.line("read", "%s", readingText(r))
		}
	}
	if e.Omitted {
		fmt.Fprintln(w, "\nthere are more: name an action with --action")
	}
}

// otherLeases counts the leases beside one.
func otherLeases(n uint64) string {
	if n == 1 {
		return "1 other lease"
	}
	return fmt.Sprintf("%d other leases", n)
}

// readingText is one thing that a condition read: a value, that there is a fact of
// which it asked no more, or that there is none.
func readingText(r executor.ReadingView) string {
	from := ""
	if r.Sequence != 0 {
		from = fmt.Sprintf("(record %d)", r.Sequence)
	}
	_, _, call := strings.Cut(r.Name, "(")
	switch fact := strings.HasPrefix(r.Name, "facts["); {
	case r.Value != "" && from != "":
		return fmt.Sprintf("%s = %s  %s", r.Name, clip(r.Value, 200), from)
	case r.Value != "":
		return fmt.Sprintf("%s = %s", r.Name, clip(r.Value, 200))
	case fact && r.Present:
		return fmt.Sprintf("%s: present %s", r.Name, from)
	case fact:
		return r.Name + ": no such fact"
	case call:
		return r.Name + ": no occurrence"
	}
	return r.Name + ": unknown"
}

// asked reports whether the condition of a lease is still asked by itself.
func asked(l executor.LeaseView) bool {
	return !l.Fired && !l.Moot && l.Retired == "" && l.Suspended == "" && l.Cascade != "cut" && l.Cascade != "given up"
}

// mootWhy says why a moot lease never fires.
func mootWhy(l executor.LeaseView) string {
	if len(l.MootWhy) == 0 {
		return "no future makes it true"
	}
	return strings.Join(l.MootWhy, "; ")
}

// leaseWord is what became of a lease, or what its condition answers.
func leaseWord(l executor.LeaseView) string {
	turned := l.Truth == triggers.True.String()
	switch {
	case l.Fired:
		return "fired"
	case l.Retired != "":
		return "retired when " + l.Retired
	case l.Cascade == "given up":
		return "given up"
	case l.Suspended != "":
		return "suspended until the plan is back at " + l.Suspended
	case l.Cascade == "cut":
		return "true, held: the cascade was cut, see plan why"
	case l.Moot:
		return "moot, it never fires"
	case l.Cascade == "resumed" && turned:
		return "true, resumed by its owner"
	case l.Cascade == "resumed":
		return l.Truth + ", resumed by its owner"
	case turned:
		return "true, it fires as soon as the clock allows"
	default:
		return l.Truth
	}
}
